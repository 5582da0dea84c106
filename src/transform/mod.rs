//! Pixels to pixels: makes the decoded part of a picture into an image of the batch's size.
//!
//! 1. `augment`: [`Augment`], the steps for every sample: crop, flip, and what follows.
//! 2. `colour`: [`ColorJitter`].
//! 3. `erase`: [`RandomErasing`].
//! 4. `geometry`: where a crop lies, drawn and rounded as torchvision does.
//! 5. `mix`: [`Mix`], how a batch's samples are mixed with their neighbours.
//! 6. `plan`: [`Plan`], the decisions for one sample, made before it is decoded.
//! 7. `resize`: [`Resizer`], crop, antialiased resize and flip in one go.
//! 8. `step`: [`Transform`], the user's own step.
//! 9. `view`: [`ImageMut`], the image as a user's [`Transform`] sees it.
//!
//! A sample's random numbers come from one [`Rng`](crate::order::Rng) in a fixed order: first
//! [`Augment::plan`], then the colour, then the user's transforms.

mod augment;
mod colour;
mod erase;
mod geometry;
mod mix;
mod plan;
mod resize;
mod step;
mod view;

pub use augment::Augment;
pub use colour::ColorJitter;
pub use erase::{Erase, RandomErasing};
pub use mix::{Mix, Mixing};
pub use plan::Plan;
pub use resize::Resizer;
pub use step::Transform;
pub use view::ImageMut;

pub use geometry::Window;
pub(crate) use geometry::shorter_to;
