//! Draws effects for each sample by published rules, called policies.
//!
//! 1. `kind`: the kinds of effects.
//! 2. `tables`: the pairs of effects that AutoAugment published.
//! 3. `space`: the effects of torchvision's policies, with their magnitudes.
//! 4. `timm`: parses timm's policy strings, and draws their effects.
//! 5. `policy`: [`Policy`].

mod kind;
#[allow(clippy::module_inception)]
mod policy;
mod space;
mod tables;
mod timm;

pub use policy::{AutoAugment, Policy};
