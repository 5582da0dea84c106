//! The work on a sample and on a complete batch, as a function of (seed, epoch, sample). The recipe
//! has no threads, and no counters except for damaged pictures.
//!
//! 1. `recipe`: [`Recipe`]: read, plan, decode, transform, write.
//! 2. `damage`: counts the damaged pictures that were decoded.

mod damage;
#[allow(clippy::module_inception)]
mod recipe;

pub(crate) use damage::Damaged;
pub(crate) use recipe::{Planned, Recipe};
