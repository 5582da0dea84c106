//! Transforms the decoded part of a picture into an image of the batch's size.
//!
//! 1. `augment`: [`Augment`], the steps for every sample: crop, flip, and the rest.
//! 2. `colour`: [`ColorJitter`].
//! 3. `crop`: the part of a picture that becomes the output, and its place there.
//! 4. `erase`: [`RandomErasing`].
//! 5. `geometry`: positions of crops, drawn and rounded as torchvision does.
//! 6. `iou`: a crop that shows enough of the sample's boxes.
//! 7. `mix`: [`Mix`], which mixes samples of a batch with their neighbours.
//! 8. `plan`: [`Plan`], the decisions for one sample, made before it is decoded, and the mapping of
//!    points, boxes and pixels.
//! 9. `resize`: [`Resizer`], which crops, resizes with antialiasing and flips in one pass.
//! 10. `step`: [`Transform`], a step of the user.
//! 11. `view`: [`ImageMut`], the image as a [`Transform`] sees it.
//!
//! A sample's random numbers come from one [`Rng`](crate::order::Rng) in a fixed order: first
//! [`Augment::plan`], then the colour, then the user's transforms.

mod augment;
mod colour;
mod crop;
mod erase;
mod geometry;
mod iou;
mod mix;
mod plan;
mod resize;
mod step;
mod view;

pub use augment::Augment;
pub use colour::ColorJitter;
pub use erase::{Erase, RandomErasing};
pub use mix::{Mix, Mixing};
pub use plan::{Clipped, Plan};
pub(crate) use resize::Planes;
pub use resize::Resizer;
pub use step::Transform;
pub use view::ImageMut;

pub use geometry::Window;
#[cfg(feature = "pack")]
pub(crate) use geometry::shorter_to;
