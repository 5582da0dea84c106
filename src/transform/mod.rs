//! Transforms the decoded part of a picture into an image of the batch's size.
//!
//! 1. `augment`: [`Augment`], the options: crop, flip, and the rest.
//! 2. `crop`: the part of a picture that becomes the output, and its place there.
//! 3. `geometry`: positions of crops, drawn and rounded as torchvision does.
//! 4. `iou`: a crop that shows enough of the sample's boxes.
//! 5. `mix`: [`Mix`], which mixes samples of a batch with their neighbours.
//! 6. `ops`: the operations after the resize, such as [`ColorJitter`] and [`RandomErasing`]. Each
//!    is one file for the host and the device.
//! 7. `plan`: [`Plan`], the decisions for one sample, made before it is decoded, and the mapping of
//!    points, boxes and pixels.
//! 8. `record`: values that Rust writes and CUDA reads.
//! 9. `resize`: [`Resizer`], which crops, resizes with antialiasing and flips in one pass.
//! 10. `transform`: [`Transform`], a function of the user on the image.
//! 11. `view`: [`ImageMut`], the image as a [`Transform`] sees it.
//!
//! A sample's random numbers come from one [`Rng`](crate::order::Rng) in a fixed order: first
//! [`Augment::plan`], then the user's transforms.

mod augment;
mod crop;
mod geometry;
mod iou;
mod mix;
mod ops;
mod plan;
mod record;
mod resize;
#[allow(clippy::module_inception)]
mod transform;
mod view;

pub use augment::Augment;
pub use mix::{Mix, Mixing};
pub use ops::{AutoAugment, ColorJitter, Erase, Interpolation, Policy, RandomAffine, RandomErasing};
pub(crate) use ops::{Drawn, EFFECTS_ON_PIXELS, EFFECTS_ON_VALUES, Effect, OnPixels, OnValues};
#[cfg(test)]
pub(crate) use ops::{Halve, Scratch, declarations, dispatch, numbers};
pub use plan::{Clipped, Plan};
pub(crate) use record::{Record, record};
pub(crate) use resize::Planes;
pub use resize::Resizer;
pub use transform::Transform;
pub use view::ImageMut;

pub use geometry::Window;
#[cfg(feature = "pack")]
pub(crate) use geometry::shorter_to;
