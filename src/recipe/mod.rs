//! The work on a sample and on a complete batch, as a function of (seed, epoch, sample). The recipe
//! has no threads, and no counters except for damaged pictures.
//!
//! 1. `recipe`: [`Recipe`]: read, plan, decode, transform, write.
//! 2. `guard`: turns panics into errors, and retries reads.
//! 3. `damage`: counts the damaged pictures that were decoded.

mod damage;
mod guard;
#[allow(clippy::module_inception)]
mod recipe;

pub(crate) use damage::Damaged;
pub(crate) use guard::{guarded, panicked, retried};
pub(crate) use recipe::{Planned, Recipe};
