//! Crops, resizes, flips and augments decoded images.
//!
//! 1. `augment`: [`Augment`], a list of steps such as a crop and flips. `step` is a step as
//!    data, `from_steps` builds an augmentation from steps, and `settings` combines their effects.
//!    `requirements` is what a loader needs to know about an augmentation.
//! 2. `tiles`, `presets`, `steps`: setters for mosaics and copy-paste, constructors and setters for
//!    published recipes, and setters for operations.
//! 3. `crop`: the area of an image that the output shows, and its position in the output.
//! 4. `border`: [`Border`], which fills the part of a random crop that is outside the image.
//! 5. `geometry`: sizes and positions of crops, with torchvision's distributions and rounding.
//! 6. `iou`: a random crop that overlaps enough with one of the sample's boxes.
//! 7. `mix`: [`Mix`], which mixes adjacent samples of a batch.
//! 8. `mosaic`: [`Mosaic`], which combines the images of several samples.
//! 9. `paste`: [`CopyPaste`], which pastes objects of one sample into the image of a different
//!    sample.
//! 10. `ops`: the operations after the resize, such as [`ColorJitter`] and [`RandomErasing`].
//! 11. `plan`: [`Plan`], all decisions about one sample before it is decoded. A plan also maps
//!     points, boxes and pixels.
//! 12. `record`: structs with the same layout in Rust and CUDA.
//! 13. `interpolation`: [`Interpolation`], the filters of the resize.
//! 14. `output_sizes`: the sizes of the output images in each epoch.
//! 15. `resize`: [`Resizer`], which crops, resizes and flips images.
//! 16. `transform`: [`Transform`], a user function that changes the image.
//! 17. `view`: [`ImageMut`], the mutable image that a [`Transform`] receives.
//! 18. `zoom`: a larger canvas around the image, which `iou` crops instead of the image.
//!
//! [`Augment::plan`] and the user's transforms draw from the same [`Rng`](crate::sampler::Rng) of
//! the sample, in this order. Mosaics and copy-paste have generators of their own.

mod augment;
mod border;
mod crop;
mod from_steps;
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
pub(crate) use ops::{AnyPixelEffect, AnyValueEffect, Effect, MAX_PIXEL_EFFECTS, MAX_VALUE_EFFECTS, SampleEffects};
pub use ops::{AutoAugment, ColorJitter, Erase, Policy, RandomAffine, RandomErasing};
#[cfg(test)]
pub(crate) use ops::{Scratch, c_constants, declarations, dispatch};
pub(crate) use output_sizes::OutputSizes;
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
pub(crate) use geometry::resized_by_shorter_side;
