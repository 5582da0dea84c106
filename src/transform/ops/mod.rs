//! Operations: the steps of an augmentation that run after the resize.
//!
//! An **operation** has options, and draws random **effects** for each sample. An effect is a
//! [record](super::record) of all of its random values. The host code of an effect is in
//! `ops/NAME.rs`, and its device code, if any, in `ops/NAME.cuh`. Both read the same record and
//! produce the same bits, so an effect with device code can run wherever the pixels are: on a
//! worker or on the device. The plan of a sample contains the effects. Different operations may
//! draw the same kind of effect: the color jitter and the policies both draw tones, for example.
//!
//! A **random effect** is an operation that draws one effect with a given probability.
//! `random_effect!` declares its options with their bounds, how it draws an effect, and the method
//! of `Augment` that adds it (its setter), in the same file as the effect:
//!
//! ```text
//!     tone.rs: effect, random_effect!  ───►  list here  ───►  registry  ───►  operation  ───►  op  ───►  Augment
//!                 │                                                                                        ▲
//!                 └──────────────────────────── the setter of a random effect ─────────────────────────────┘
//! ```
//!
//! Each module imports only from modules to its left in this diagram. `tests/project/layering.rs`
//! permits one exception: `random_effect!` generates the setter, a method of
//! [`Augment`](super::Augment).
//!
//! There are two kinds of effects:
//!
//! - **Effects on pixels** run on the resized `u8` image, before custom transforms. In the kernel
//!   in `device/nvidia/kernels/retouch.cu`, one block of threads runs all effects of a sample, so
//!   an effect may read the whole image.
//! - **Effects on values** run on the output values, before mixing: normalized floats, or 0 to 255
//!   in a batch of `u8`. The kernel in `device/nvidia/kernels/convert.cu` runs them on each pixel
//!   independently.
//!
//! Within each kind, effects run in the order in which their operations were added. The random
//! numbers of effects on values are drawn before the random numbers of effects on pixels. The
//! effects of `warp` also transform masks, boxes, points and maps ([`Plan`](super::Plan)), except
//! in the chains of AugMix.
//!
//! If a sample draws an effect that has no device code, the workers decode the sample.
//! CONTRIBUTING.md explains how to add an effect.

/// The list of effects and their operations. The order of the effects determines the numbers that
/// identify them on a device. The name of each operation's setter precedes the operation.
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
mod noise;
mod op;
mod operation;
mod policy;
mod random_effect;
mod registry;
mod sharpen;
#[cfg(test)]
mod tests;
mod tint;
mod tone;
mod vectorize;
mod warp;

pub(super) use distort::PhotometricDistort;
#[cfg(test)]
pub(crate) use effect::Scratch;
pub use erase::Erase;
pub use erasing::RandomErasing;
pub use jitter::ColorJitter;
pub(crate) use op::Op;
pub use policy::{AutoAugment, Policy};
#[cfg(test)]
pub(crate) use random_effect::EffectDescription;
pub(crate) use registry::{
    AnyPixelEffect, AnyValueEffect, Effect, MAX_PIXEL_EFFECTS, MAX_VALUE_EFFECTS, SampleEffects,
};
#[cfg(test)]
pub(crate) use registry::{declarations, dispatch};
#[cfg(test)]
pub(crate) use tests::effect_descriptions;

#[cfg(test)]
pub(crate) fn c_constants() -> String {
    [tone::Tone::c_constants(), tint::Tint::c_constants(), warp::Warp::c_constants()].concat()
}

pub(super) use affine::Perspective;
pub use affine::RandomAffine;
pub(super) use warp::Warp;
