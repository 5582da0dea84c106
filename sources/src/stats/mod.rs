//! Counts of what sources do.
//!
//! 1. `since`: the difference of two statistics.
//! 2. `tally`: a count, and count, sum and histogram of one stage, written by one thread.
//!    [`StageStats`] is the result.
//! 3. `network`: [`NetworkStats`], what sources in stores asked of the network.

mod network;
mod since;
mod tally;

pub use network::NetworkStats;
pub use since::Since;
pub use tally::{Count, StageStats, Tally, ratio};
