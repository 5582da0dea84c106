//! Pixels to pixels: makes the decoded part of a picture into an image of the batch's size.
//!
//! 1. `augment`: [`Augment`], the steps for every sample: crop, flip, and what follows.
//! 2. `colour`: [`ColorJitter`].
//! 3. `crop`: what of a picture becomes the output, and where it lies in there.
//! 4. `erase`: [`RandomErasing`].
//! 5. `geometry`: where a crop lies, drawn and rounded as torchvision does.
//! 6. `iou`: a crop that shows enough of the sample's boxes.
//! 7. `mix`: [`Mix`], how a batch's samples are mixed with their neighbours.
//! 8. `plan`: [`Plan`], the decisions for one sample, made before it is decoded, and where they
//!    take a point, a box or a pixel.
//! 9. `resize`: [`Resizer`], crop, antialiased resize and flip in one go.
//! 10. `step`: [`Transform`], the user's own step.
//! 11. `view`: [`ImageMut`], the image as a user's [`Transform`] sees it.
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
pub(crate) use geometry::shorter_to;
