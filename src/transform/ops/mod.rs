//! Operations: the effects of the augmentation after the resize. Each operation is one file.
//!
//! 1. `effect`: [`PixelEffect`] and [`ValueEffect`], which effects implement.
//! 2. `arithmetic`: sums and products as PyTorch rounds them. `wide`: loops as vector code. `naive`:
//!    the same effects one pixel after the other, for tests.
//! 3. Effects on pixels. `tone` replaces levels. `tint` changes pixels one by one. `sharpen`,
//!    `blur` and `warp` read the pixels around. `blend` mixes chains of effects.
//! 4. `erase`, `noise`: effects on values. `halve`: an effect without device code, for tests.
//! 5. `registry`: the list of effects, and [`Drawn`], the effects that were drawn for one sample.
//! 6. `operation`: [`Operation`], which the operations below implement.
//! 7. `jitter`: [`ColorJitter`]. `distort`: each effect of colours with its own decision. `erasing`: [`RandomErasing`]. `halving`: for tests.
//! 8. `affine`: [`RandomAffine`] and a perspective. `sometimes`: single effects with a probability.
//! 9. `policy`: [`Policy`], such as RandAugment.
//! 10. `list`: the list of operations.
//! 11. `parity`: tests against torchvision.
//!
//! # How an operation is built
//!
//! An **operation** has options with their bounds, and draws. A draw adds **effects**: an effect is
//! a [record](super::record) with everything that was random. `ops/NAME.rs` holds an effect's host
//! code, and `ops/NAME.cuh` next to it the device code. Both take the effect, and give the same
//! bits. So the plan of a sample contains its effects, and the side that has the pixels runs them:
//! a worker or the device. Operations share effects: the colour jitter and the policies draw the
//! same effects.
//!
//! An effect runs in one of two places:
//!
//! - **on pixels**: on the resized `u8` image, before your own transforms. The kernel
//!   `device/nvidia/kernels/retouch.cu` runs the effects of a sample with one block of threads, so
//!   an effect may look at all of its image.
//! - **on values**: on normalised floats, before mixing. The kernel
//!   `device/nvidia/kernels/convert.cu` runs these effects on each pixel alone.
//!
//! Effects on pixels run in the order in which their operations were added, and so do effects on
//! values. The numbers for values are drawn before those for pixels. Masks, boxes, points and maps
//! follow the effects `warp` ([`Plan`](super::Plan)).
//!
//! A new operation needs a row in `list` and a setter of [`Augment`](super::Augment), which
//! `sometimes!` writes for single effects. A new effect needs a row in `registry`, and `WARPFEED_BLESS=1`
//! for the generated headers and the PTX (`device/nvidia/kernels/README.md`). If an effect has no device
//! code, workers decode the samples for which it was drawn.

mod affine;
mod arithmetic;
mod blend;
mod blur;
mod distort;
mod effect;
mod erase;
mod erasing;
#[cfg(test)]
mod halve;
#[cfg(test)]
mod halving;
mod jitter;
mod list;
#[cfg(test)]
mod naive;
mod noise;
mod operation;
#[cfg(test)]
mod parity;
mod policy;
mod registry;
mod sharpen;
mod sometimes;
mod tint;
mod tone;
mod warp;
mod wide;

pub(super) use distort::Distort;
#[cfg(test)]
pub(crate) use effect::Scratch;
pub use erase::Erase;
pub use erasing::RandomErasing;
#[cfg(test)]
pub(crate) use halving::Halve;
pub use jitter::ColorJitter;
pub(crate) use list::Op;
pub use policy::{AutoAugment, Policy};
pub(crate) use registry::{Drawn, EFFECTS_ON_PIXELS, EFFECTS_ON_VALUES, Effect, OnPixels, OnValues};
#[cfg(test)]
pub(crate) use registry::{declarations, dispatch};

/// C declarations of the numbers that effects contain.
#[cfg(test)]
pub(crate) fn numbers() -> String {
    [tone::Tone::kinds(), tint::Tint::kinds(), warp::Warp::bits()].concat()
}

pub(super) use affine::Perspective;
pub use affine::{Interpolation, RandomAffine};
pub(super) use sometimes::{
    Autocontrast, Equalize, GaussianBlur, Greyscale, Invert, PermuteChannels, Posterize, Sharpness, Solarize,
};
pub(super) use warp::Warp;
