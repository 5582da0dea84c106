//! Operations: the effects of the augmentation after the resize.
//!
//! 1. `effect`: [`PixelEffect`] and [`ValueEffect`], which effects implement. `row`: [`Row`], an
//!    effect with a setter of its own.
//! 2. `arithmetic`: sums and products as PyTorch rounds them. `wide`: loops as vector code.
//! 3. Effects on pixels. `tone` replaces levels. `tint` changes pixels one by one. `sharpen`,
//!    `blur` and `warp` read the pixels around. `blend` mixes chains of effects.
//! 4. `erase`, `noise`: effects on values. `halve`: an effect without device code, for tests.
//! 5. This file: the list of effects with their rows.
//! 6. `registry`: the effects as one type, and [`Drawn`], those that were drawn for one sample.
//! 7. `operation`: [`Operation`], which rows and the operations below implement.
//! 8. `jitter`: [`ColorJitter`]. `distort`: each effect of colors with its own decision.
//!    `erasing`: [`RandomErasing`]. `affine`: [`RandomAffine`] and a perspective. `policy`:
//!    [`Policy`], such as RandAugment.
//! 9. `list`: the list of operations.
//! 10. `tests`: each effect against a loop over pixels and against torchvision, and what is written
//!     from the rows.
//!
//! # How an operation is built
//!
//! An **operation** has options with their bounds, and draws. A draw adds **effects**: an effect is
//! a [record](super::record) with everything that was random. `ops/NAME.rs` holds an effect's host
//! code, and `ops/NAME.cuh` next to it the device code. Both take the effect, and give the same
//! bits. So the plan of a sample contains its effects, and the side that has the pixels runs them:
//! a worker or the device. Operations share effects: the color jitter and the policies draw the
//! same effects.
//!
//! A **row** is the operation that draws one effect for a share of the samples, next to the effect.
//! It declares the options, what is refused, the draw and the setter:
//!
//! ```text
//!     tone.rs: effect, row!  ───►  list here  ───►  registry  ───►  operation  ───►  list: Op  ───►  Augment
//!                 │                                                                                    ▲
//!                 └──────────────────────────── the setter of a row ───────────────────────────────────┘
//! ```
//!
//! All imports go to the left. The setter alone goes to the right: `row!` writes a method of
//! [`Augment`](super::Augment), and names nothing else downstream. `tests/project/layering.rs` knows
//! this one name.
//!
//! An effect runs in one of two places:
//!
//! - **on pixels**: on the resized `u8` image, before your own transforms. The kernel
//!   `device/nvidia/kernels/retouch.cu` runs the effects of a sample with one block of threads, so
//!   an effect may look at all of its image.
//! - **on values**: on normalized floats, before mixing. The kernel
//!   `device/nvidia/kernels/convert.cu` runs these effects on each pixel alone.
//!
//! Effects on pixels run in the order in which their operations were added, and so do effects on
//! values. The numbers for values are drawn before those for pixels. Masks, boxes, points and maps
//! follow the effects `warp` ([`Plan`](super::Plan)).
//!
//! CONTRIBUTING.md shows how to add an effect. If an effect has no device code, workers decode the
//! samples for which it was drawn.

/// The effects in the order of their numbers on a device, each with its rows by the names of their
/// setters. Calls `$define` with the list.
macro_rules! effects {
    ($define:ident) => {
        $define! {
            pixels {
                tone::Tone {
                    "invert" Invert, "posterize" Posterize, "solarize" Solarize, "equalize" Equalize,
                    "autocontrast" Autocontrast
                },
                tint::Tint { "grayscale" Grayscale, "permute_channels" PermuteChannels },
                sharpen::Sharpen { "sharpness" Sharpness },
                blur::Blur { "blur" GaussianBlur },
                warp::Warp {},
                blend::Blend {},
            }
            values {
                erase::Erase,
                noise::Noise,
            }
            tests {
                halve::Halved { "halve" Halve },
            }
        }
    };
}

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
mod jitter;
mod list;
mod noise;
mod operation;
mod policy;
mod registry;
mod row;
mod sharpen;
#[cfg(test)]
mod tests;
mod tint;
mod tone;
mod warp;
mod wide;

pub(super) use distort::Distort;
#[cfg(test)]
pub(crate) use effect::Scratch;
pub use erase::Erase;
pub use erasing::RandomErasing;
pub use jitter::ColorJitter;
pub(crate) use list::Op;
pub use policy::{AutoAugment, Policy};
pub(crate) use registry::{Drawn, EFFECTS_ON_PIXELS, EFFECTS_ON_VALUES, Effect, OnPixels, OnValues};
#[cfg(test)]
pub(crate) use registry::{declarations, dispatch};
#[cfg(test)]
pub(crate) use row::Sheet;
#[cfg(test)]
pub(crate) use tests::sheets;

/// C declarations of the numbers that effects contain.
#[cfg(test)]
pub(crate) fn numbers() -> String {
    [tone::Tone::kinds(), tint::Tint::kinds(), warp::Warp::bits()].concat()
}

pub(super) use affine::Perspective;
pub use affine::RandomAffine;
pub(super) use warp::Warp;
