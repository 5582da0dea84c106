//! Draws effects for each sample by published rules, called policies.

mod kind;
#[allow(clippy::module_inception)]
mod policy;
mod space;
mod tables;
mod timm;

pub use policy::{AutoAugment, Policy};
