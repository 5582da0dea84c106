//! Operations: the parts of the augmentation after the resize. Each operation is one file.
//!
//! 1. `operation`: [`Operation`], [`PixelEffect`] and [`ValueEffect`], the traits of an operation.
//! 2. `jitter`: [`ColorJitter`].
//! 3. `erase`: [`RandomErasing`].
//! 4. `halve`: an operation without device code, for tests.
//! 5. `registry`: the list of operations, and [`Drawn`], the effects drawn for one sample.
//!
//! # How an operation is built
//!
//! The file `ops/NAME.rs` holds the options with their bounds, the random draws and the host code.
//! `ops/NAME.cuh` next to it holds the device code. A draw gives an **effect**: a
//! [record](super::record) with everything that was random. The host code and the device code both
//! take the effect, and give the same bits. So the plan of a sample contains its effects, and the
//! side that has the pixels runs them: a worker or the device.
//!
//! An operation runs in one of two places:
//!
//! - **on pixels**: on the resized `u8` image, before your own transforms. The kernel
//!   `cuda/kernels/retouch.cu` runs the effects of a sample with one block of threads, so an effect
//!   may look at all of its image.
//! - **on values**: on normalised floats, before mixing. The kernel `cuda/kernels/convert.cu` runs
//!   these effects on each pixel alone.
//!
//! Effects on pixels run in the order in which their operations were added, and so do effects on
//! values. The numbers for values are drawn before those for pixels.
//!
//! A new operation needs a line in [`registry`], a setter of [`Augment`](super::Augment), and
//! `WARPFEED_BLESS=1` for the generated headers and the PTX (`cuda/kernels/README.md`). If it has
//! no device code, workers decode the samples for which it was drawn.

mod erase;
#[cfg(test)]
mod halve;
mod jitter;
mod operation;
mod registry;

pub use erase::{Erase, RandomErasing};
#[cfg(test)]
pub(crate) use halve::Halve;
pub use jitter::ColorJitter;
pub(crate) use registry::{Drawn, EFFECTS_ON_PIXELS, EFFECTS_ON_VALUES, Effect, OnPixels, OnValues, Op};
#[cfg(test)]
pub(crate) use registry::{declarations, dispatch};
