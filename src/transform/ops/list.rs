//! The list of operations. All other code uses them through this list, without their names.

#[cfg(test)]
use super::halving;
use super::operation::Operation;
use super::registry::{Drawn, EFFECTS_ON_PIXELS};
use super::{affine, distort, erasing, jitter, policy, sometimes};
use crate::decode::Size;
use crate::error::{Error, Result};
use crate::order::Rng;

macro_rules! operations {
    ($($(#[$oon:meta])* $name:literal $omod:ident::$op:ident),+ $(,)?) => {
        /// An operation with its options.
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        pub(crate) enum Op {
            $($(#[$oon])* #[serde(rename = $name)] $op($omod::$op),)+
        }

        $($(#[$oon])* impl From<$omod::$op> for Op {
            fn from(op: $omod::$op) -> Self {
                Op::$op(op)
            }
        })+

        impl Op {
            /// Names of the operations.
            pub(crate) const NAMES: &[&str] = &[$($(#[$oon])* $name,)+];

            /// Whether the operation changes values, not pixels.
            pub(crate) fn is_on_values(&self) -> bool {
                match self {
                    $($(#[$oon])* Op::$op(_) => <$omod::$op as Operation>::ON_VALUES,)+
                }
            }

            /// Name of the operation, if a device cannot run it.
            #[cfg_attr(not(feature = "_device"), allow(dead_code))]
            pub(crate) fn without_device_code(&self) -> Option<&'static str> {
                match self {
                    $($(#[$oon])* Op::$op(op) => op.without_device_code(),)+
                }
            }

            /// Name of the operation, like [`Operation::changes_colours`].
            pub(crate) fn changes_colours(&self) -> Option<&'static str> {
                match self {
                    $($(#[$oon])* Op::$op(op) => op.changes_colours(),)+
                }
            }

            /// Checks the options, like [`Operation::check`].
            pub(crate) fn check(&self) -> Result<()> {
                match self {
                    $($(#[$oon])* Op::$op(op) => op.check(),)+
                }
            }

            /// Maximum number of effects, like [`Operation::most`].
            pub(super) fn most(&self) -> usize {
                match self {
                    $($(#[$oon])* Op::$op(op) => op.most(),)+
                }
            }

            /// Bytes per pixel next to the image, like [`Operation::bytes_per_pixel`].
            pub(crate) fn bytes_per_pixel(&self) -> u64 {
                match self {
                    $($(#[$oon])* Op::$op(op) => op.bytes_per_pixel(),)+
                }
            }

            pub(super) fn draw(&self, output: Size, rng: &mut Rng, to: &mut Drawn) {
                match self {
                    $($(#[$oon])* Op::$op(op) => op.draw(output, rng, to),)+
                }
            }
        }
    };
}

// The operations, under the names of their setters.
operations! {
    "jitter" jitter::ColorJitter,
    "photometric_distort" distort::Distort,
    "erase" erasing::RandomErasing,
    "policy" policy::Policy,
    "affine" affine::RandomAffine,
    "perspective" affine::Perspective,
    "invert" sometimes::Invert,
    "posterize" sometimes::Posterize,
    "solarize" sometimes::Solarize,
    "equalize" sometimes::Equalize,
    "autocontrast" sometimes::Autocontrast,
    "grayscale" sometimes::Greyscale,
    "permute_channels" sometimes::PermuteChannels,
    "sharpness" sometimes::Sharpness,
    "blur" sometimes::GaussianBlur,
    #[cfg(test)] "halve" halving::Halve,
}

impl Drawn {
    /// Draws the effects of a sample whose image has size `output`.
    pub(crate) fn new(ops: &[Op], output: Size, rng: &mut Rng) -> Self {
        let mut drawn = Drawn::default();
        for values in [true, false] {
            ops.iter().filter(|op| op.is_on_values() == values).for_each(|op| op.draw(output, rng, &mut drawn));
        }
        drawn
    }

    /// Checks the options of `ops`, and that their effects fit.
    pub(crate) fn check(ops: &[Op]) -> Result<()> {
        ops.iter().try_for_each(Op::check)?;
        let most = ops.iter().filter(|op| !op.is_on_values()).map(Op::most).fold(0, usize::saturating_add);
        if most > EFFECTS_ON_PIXELS {
            return Err(Error::config(format!(
                "augment: the operations may draw {most} effects for a sample, at most {EFFECTS_ON_PIXELS} are supported"
            )));
        }
        Ok(())
    }
}
