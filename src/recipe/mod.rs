//! What is done to a sample, and to a complete batch. It is a function of (seed, epoch, sample). It
//! knows no thread, and counts nothing but damaged pictures.
//!
//! 1. `recipe`: [`Recipe`]: read, plan, decode, transform, write.
//! 2. `guard`: panics as errors, also of reads that are retried.
//! 3. `damage`: the pictures that were decoded although they are damaged.

mod damage;
mod guard;
#[allow(clippy::module_inception)]
mod recipe;

pub(crate) use damage::Damaged;
pub(crate) use guard::{guarded, panicked, retried};
pub(crate) use recipe::{Planned, Recipe};
