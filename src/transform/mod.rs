//! Transforms the decoded area of an image into an image of the size that the batch requires.
//!
//! 1. `augment`: [`Augment`], a list of steps such as a crop and flips. `step` represents a step as
//!    data. `calls` builds an augmentation from steps. `settings` contains the combined effect of
//!    the steps. `requirements` answers a loader's queries.
//! 2. `tiles`, `presets`, `steps`: setters for mosaics and copy-paste, for published recipes, and
//!    for operations.
//! 3. `crop`: the area of an image that is shown in the output, and its position there.
//! 4. `border`: [`Border`], the content of a random crop outside the image.
//! 5. `geometry`: sizes and positions of crops, drawn and rounded as in torchvision.
//! 6. `iou`: a crop that shows enough of the sample's boxes.
//! 7. `mix`: [`Mix`], which mixes adjacent samples of a batch.
//! 8. `mosaic`: [`Mosaic`], which combines the images of several samples.
//! 9. `paste`: [`CopyPaste`], which pastes objects of one sample into the image of another.
//! 10. `ops`: the operations after the resize, such as [`ColorJitter`] and [`RandomErasing`]. A row
//!     in this module is an effect with its own setter of [`Augment`].
//! 11. `plan`: [`Plan`], the decisions for one sample, made before it is decoded, and the mapping
//!     of points, boxes and pixels.
//! 12. `record`: values that Rust code writes and CUDA code reads.
//! 13. `interpolation`: [`Interpolation`], the filters of the resize.
//! 14. `output_sizes`: the image sizes of each epoch.
//! 15. `resize`: [`Resizer`], which crops, resizes and flips in one pass.
//! 16. `transform`: [`Transform`], a user function on the image.
//! 17. `view`: [`ImageMut`], the image as a [`Transform`] sees it.
//! 18. `zoom`: a larger canvas around the image, from which `iou` crops a box.
//!
//! A sample's random numbers are drawn from one [`Rng`](crate::sampler::Rng) in a fixed order:
//! first by [`Augment::plan`], then by the user's transforms.

mod augment;
mod border;
mod calls;
mod crop;
mod geometry;
mod interpolation;
mod iou;
mod mix;
mod mosaic;
mod ops;
mod output_sizes;
mod paste;
mod plan;
mod presets;
mod record;
mod requirements;
mod resize;
mod settings;
mod step;
mod steps;
mod tiles;
#[allow(clippy::module_inception)]
mod transform;
mod view;
mod zoom;

pub use augment::Augment;
pub use border::Border;
pub use interpolation::Interpolation;
pub use mix::{Mix, Mixing};
pub use mosaic::Mosaic;
pub(crate) use mosaic::TILES;
#[cfg(test)]
pub(crate) use mosaic::Tiling;
pub use ops::{AutoAugment, ColorJitter, Erase, Policy, RandomAffine, RandomErasing};
pub(crate) use ops::{Drawn, EFFECTS_ON_PIXELS, EFFECTS_ON_VALUES, Effect, OnPixels, OnValues};
#[cfg(test)]
pub(crate) use ops::{Scratch, declarations, dispatch, numbers};
pub(crate) use output_sizes::Forms;
pub use paste::CopyPaste;
pub(crate) use paste::Pasting;
pub use plan::{Clipped, Plan};
pub(crate) use record::{Record, record};
pub(crate) use resize::Planes;
pub use resize::Resizer;
pub use step::Step;
pub(crate) use tiles::Join;
pub use transform::Transform;
pub use view::ImageMut;

pub use geometry::Window;
#[cfg(feature = "pack")]
pub(crate) use geometry::shorter_to;
