//! Transforms the decoded part of an image into an image of the batch's size.
//!
//! 1. `augment`: [`Augment`], a list of steps: crop, flip, and the rest. `step`: a step as data.
//!    `calls` makes it of
//!    steps. `settings`: what the steps add up to. `requirements`: what a loader asks of them.
//! 2. `tiles`, `presets`, `steps`: its setters for mosaics, recipes of others, and setters that
//!    add operations.
//! 3. `crop`: the part of an image that becomes the output, and its place there.
//! 4. `border`: [`Border`], what a random crop shows outside the image.
//! 5. `geometry`: positions of crops, drawn and rounded as torchvision does.
//! 6. `iou`: a crop that shows enough of the sample's boxes.
//! 7. `mix`: [`Mix`], which mixes samples of a batch with their neighbors.
//! 8. `mosaic`: [`Mosaic`], which puts the images of several samples into one image.
//! 9. `paste`: [`CopyPaste`], which pastes objects of one sample into the image of another.
//! 10. `ops`: the operations after the resize, such as [`ColorJitter`] and [`RandomErasing`]. A row
//!     there is an effect with its setter of [`Augment`].
//! 11. `plan`: [`Plan`], the decisions for one sample, made before it is decoded, and the mapping
//!     of points, boxes and pixels.
//! 12. `record`: values that Rust writes and CUDA reads.
//! 13. `interpolation`: [`Interpolation`], the filters of the resize.
//! 14. `output_sizes`: the image sizes of each epoch.
//! 15. `resize`: [`Resizer`], which crops, resizes and flips in one pass.
//! 16. `transform`: [`Transform`], a function of the user on the image.
//! 17. `view`: [`ImageMut`], the image as a [`Transform`] sees it.
//! 18. `zoom`: a larger canvas around the image, from which `iou` crops.
//!
//! A sample's random numbers come from one [`Rng`](crate::sampler::Rng) in a fixed order: first
//! [`Augment::plan`], then the user's transforms.

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
