//! What is done to a sample, and to a batch when all its samples are there. It is a function of
//! (seed, epoch, sample), knows of no thread, and counts nothing.
//!
//! 1. `recipe`: [`Recipe`]: read, plan, decode, transform, write.
//! 2. `guard`: errors of panics, and a second try of what failed for a moment.
//! 3. `report`: what of the user's panics reaches standard error.

mod guard;
#[allow(clippy::module_inception)]
mod recipe;
mod report;

pub(crate) use guard::{guarded, panicked, retried};
pub(crate) use recipe::{Planned, Recipe};
pub(crate) use report::Reports;
