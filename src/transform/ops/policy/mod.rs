//! Policies: published rules for drawing effects for each sample.
//!
//! 1. `kind`: the kinds of effects.
//! 2. `tables`: the policies of AutoAugment.
//! 3. `space`: the effects of torchvision's policies, with their magnitudes.
//! 4. `timm`: the policies that timm describes with a string.
//! 5. `policy`: [`Policy`].

mod kind;
#[allow(clippy::module_inception)]
mod policy;
mod space;
mod tables;
mod timm;

pub use policy::{AutoAugment, Policy};
