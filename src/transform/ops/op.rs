//! [`Op`]: an enum over all operations. Code outside `ops` uses operations only through it, so that
//! adding one touches no other module.

use std::ops::Deref;

use super::operation::Operation;
use super::registry::{Drawn, EFFECTS_ON_PIXELS};
use crate::decode::Size;
use crate::error::{Error, Result};
use crate::sampler::Rng;

macro_rules! operations {
    ($($(#[$oon:meta])* $name:literal super::$omod:ident::$op:ident,)+) => {
        /// An operation with its options.
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        pub(crate) enum Op {
            $($(#[$oon])* #[serde(rename = $name)] $op(super::$omod::$op),)+
        }

        $($(#[$oon])* impl From<super::$omod::$op> for Op {
            fn from(op: super::$omod::$op) -> Self {
                Op::$op(op)
            }
        })+

        impl Op {
            /// Names of the operations.
            pub(crate) const NAMES: &[&str] = &[$($(#[$oon])* $name,)+];
        }

        impl Deref for Op {
            type Target = dyn Operation;

            fn deref(&self) -> &Self::Target {
                match self {
                    $($(#[$oon])* Op::$op(op) => op,)+
                }
            }
        }
    };
}

// All operations, each with the name of its setter. The first ones draw several effects or act on
// normalized values. The rest, from `effects!`, draw one pixel effect each.
macro_rules! with_rows {
    (
        pixels { $($mod:ident::$effect:ident { $($name:literal $op:ident),* },)+ }
        values { $($values:tt)* }
        tests { $tmod:ident::$teffect:ident { $tname:literal $top:ident }, }
    ) => {
        operations! {
            "jitter" super::jitter::ColorJitter,
            "photometric_distort" super::distort::Distort,
            "erase" super::erasing::RandomErasing,
            "policy" super::policy::Policy,
            "affine" super::affine::RandomAffine,
            "perspective" super::affine::Perspective,
            $($($name super::$mod::$op,)*)+
            #[cfg(test)] $tname super::$tmod::$top,
        }
    };
}
effects!(with_rows);

impl Drawn {
    /// Draws the effects for a sample with an output image of size `output`.
    pub(crate) fn new(ops: &[Op], output: Size, rng: &mut Rng) -> Self {
        let mut drawn = Drawn::default();
        for values in [true, false] {
            ops.iter().filter(|op| op.on_values() == values).for_each(|op| op.draw(output, rng, &mut drawn));
        }
        drawn
    }

    /// Validates `ops`, including the limit on effects per sample.
    pub(crate) fn check(ops: &[Op]) -> Result<()> {
        ops.iter().try_for_each(|op| op.check())?;
        let effects = ops.iter().filter(|op| !op.on_values()).map(|op| op.max_effects()).fold(0, usize::saturating_add);
        if effects > EFFECTS_ON_PIXELS {
            return Err(Error::config(format!(
                "augment: the operations may draw {effects} effects for one sample: expected at most \
                 {EFFECTS_ON_PIXELS}"
            )));
        }
        Ok(())
    }
}
