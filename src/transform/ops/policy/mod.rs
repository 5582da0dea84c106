//! Policies: lists of effects that are drawn for each sample.
//!
//! 1. `kind`: the kinds of effects.
//! 2. `tables`: the policies of AutoAugment.
//! 3. `space`: the magnitudes of torchvision's policies, and the effects for them.
//! 4. `timm`: the policies that timm describes with a string.
//! 5. `policy`: [`Policy`].

mod kind;
#[allow(clippy::module_inception)]
mod policy;
mod space;
mod tables;
mod timm;

pub use policy::{AutoAugment, Policy};
