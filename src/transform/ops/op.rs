//! [`Op`]: an enum over all operations, through which code outside `ops` checks and draws them.

use std::ops::Deref;

use super::operation::Operation;
use super::registry::{MAX_PIXEL_EFFECTS, SampleEffects};
use crate::decode::Size;
use crate::error::{Error, Result};
use crate::sampler::Rng;

macro_rules! define_op {
    ($($(#[$cfg:meta])* $name:literal super::$module:ident::$op:ident,)+) => {
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        pub(crate) enum Op {
            $($(#[$cfg])* #[serde(rename = $name)] $op(super::$module::$op),)+
        }

        $($(#[$cfg])* impl From<super::$module::$op> for Op {
            fn from(op: super::$module::$op) -> Self {
                Op::$op(op)
            }
        })+

        impl Op {
            pub(crate) const NAMES: &[&str] = &[$($(#[$cfg])* $name,)+];
        }

        impl Deref for Op {
            type Target = dyn Operation;

            fn deref(&self) -> &Self::Target {
                match self {
                    $($(#[$cfg])* Op::$op(op) => op,)+
                }
            }
        }
    };
}

// All operations, with the names of their setters. The operations from `effects!` draw at most one
// effect for each sample.
macro_rules! define_operations {
    (
        pixels { $($mod:ident::$effect:ident { $($name:literal $op:ident),* },)+ }
        values { $($values:tt)* }
        tests { $tmod:ident::$teffect:ident { $tname:literal $top:ident }, }
    ) => {
        define_op! {
            "jitter" super::jitter::ColorJitter,
            "photometric_distort" super::distort::PhotometricDistort,
            "erase" super::erasing::RandomErasing,
            "policy" super::policy::Policy,
            "affine" super::affine::RandomAffine,
            "perspective" super::affine::Perspective,
            $($($name super::$mod::$op,)*)+
            #[cfg(test)] $tname super::$tmod::$top,
        }
    };
}
effects!(define_operations);

impl SampleEffects {
    pub(crate) fn new(ops: &[Op], output: Size, rng: &mut Rng) -> Self {
        let mut effects = SampleEffects::default();
        for changes_values in [true, false] {
            ops.iter()
                .filter(|op| op.changes_values() == changes_values)
                .for_each(|op| op.draw(output, rng, &mut effects));
        }
        effects
    }

    pub(crate) fn check(ops: &[Op]) -> Result<()> {
        ops.iter().try_for_each(|op| op.check())?;
        let effects =
            ops.iter().filter(|op| !op.changes_values()).map(|op| op.max_effects()).fold(0, usize::saturating_add);
        if effects > MAX_PIXEL_EFFECTS {
            return Err(Error::config(format!(
                "augment: the operations may draw {effects} effects for one sample, but the maximum is \
                 {MAX_PIXEL_EFFECTS}"
            )));
        }
        Ok(())
    }
}
