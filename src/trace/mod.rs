//! What the loader did with its time.
//!
//! 1. `counters`: what the workers and the consumer add up while they run, always on.
//! 2. [`Stats`]: the sums, for a person or a program.

mod counters;
mod stats;

pub(crate) use counters::{Counters, Stage};
pub use stats::Stats;
