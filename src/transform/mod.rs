//! Crops, resizes, flips and augments decoded images.
//!
//! An [`Augment`] is a list of steps, such as a crop, flips and color effects. Before an image is
//! decoded, the augmentation draws a [`Plan`] for it. After decoding, a [`Resizer`] crops, resizes
//! and flips the image according to the plan. A [`Transform`] is a user function that then changes
//! the image.
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
pub use plan::{ClippedBox, Plan};
pub(crate) use record::{Record, record};
pub(crate) use resize::MapResizer;
pub use resize::Resizer;
pub use step::Step;
pub(crate) use tiles::Join;
pub use transform::Transform;
pub use view::ImageMut;

pub use geometry::Window;
#[cfg(feature = "pack")]
pub(crate) use geometry::resized_by_shorter_side;
