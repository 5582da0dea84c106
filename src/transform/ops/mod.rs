//! Operations: steps of the augmentation that change the image after the resize.
//!
//! 1. `effect`: [`PixelEffect`] and [`ValueEffect`], which effects implement. `row`: [`Row`], an
//!    effect with its own setter.
//! 2. `arithmetic`: sums and products as PyTorch rounds them. `wide`: loops as vector code.
//! 3. Effects on pixels. `tone` maps channel values. `tint` changes each pixel independently.
//!    `sharpen`, `blur` and `warp` read surrounding pixels. `blend` mixes chains of effects.
//! 4. `erase` and `noise`: effects on values. `halve`: an effect without device code, for tests.
//! 5. This file: the list of effects with their rows.
//! 6. `registry`: all effects as one type, and [`Drawn`], the effects drawn for one sample.
//! 7. `operation`: [`Operation`], which rows and the operations below implement.
//! 8. `jitter`: [`ColorJitter`]. `distort`: color effects that are each applied with a separate
//!    probability. `erasing`: [`RandomErasing`]. `affine`: [`RandomAffine`] and a perspective.
//!    `policy`: [`Policy`], such as RandAugment.
//! 9. `list`: the list of operations.
//! 10. `tests`: each effect against a loop over pixels and against torchvision, and the files
//!     generated from the rows.
//!
//! # How an operation is built
//!
//! An **operation** has options, which are checked against bounds, and draws random **effects** for
//! each sample. An effect is a [record](super::record) that contains all of its random values.
//! `ops/NAME.rs` contains the host code of an effect, and `ops/NAME.cuh`, next to it, the device
//! code. Both run the same record and produce the same bits. Therefore the plan of a sample
//! contains its effects, and they run wherever the pixels are, on a worker or on the device.
//! Operations share effects. For example, the color jitter and the policies draw the same ones.
//!
//! A **row** is an operation that draws one effect with a given probability. It is in the same file
//! as the effect, and declares the options, their bounds, the draw and the setter:
//!
//! ```text
//!     tone.rs: effect, row!  ───►  list here  ───►  registry  ───►  operation  ───►  list: Op  ───►  Augment
//!                 │                                                                                    ▲
//!                 └──────────────────────────── the setter of a row ───────────────────────────────────┘
//! ```
//!
//! Each part imports only from parts to its left. The setter is the only exception: `row!`
//! generates a method of [`Augment`](super::Augment), and does not refer to anything else to its
//! right. `tests/project/layering.rs` permits this one name.
//!
//! An effect runs in one of two places:
//!
//! - **on pixels**: on the resized `u8` image, before custom transforms. In the kernel
//!   `device/nvidia/kernels/retouch.cu`, one block of threads runs all effects of a sample, so an
//!   effect may read the whole image.
//! - **on values**: on normalized floats, before mixing. The kernel
//!   `device/nvidia/kernels/convert.cu` runs these effects on each pixel independently.
//!
//! Effects on pixels run in the order in which their operations were added, as do effects on
//! values. The random numbers of effects on values are drawn before those of effects on pixels.
//! Masks, boxes, points and maps are transformed by the effects of `warp` as well
//! ([`Plan`](super::Plan)).
//!
//! CONTRIBUTING.md shows how to add an effect. Samples that draw an effect without device code are
//! decoded by the workers.

/// The effects in the order of the codes that identify them on a device, each with its rows. Rows
/// are named after their setters. Calls `$define` with the list.
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

/// Returns C declarations of the constants that effects use.
#[cfg(test)]
pub(crate) fn numbers() -> String {
    [tone::Tone::kinds(), tint::Tint::kinds(), warp::Warp::bits()].concat()
}

pub(super) use affine::Perspective;
pub use affine::RandomAffine;
pub(super) use warp::Warp;
