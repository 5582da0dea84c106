//! Statistics of sources.
//!
//! 1. `since`: computes the increase of statistics between two snapshots.
//! 2. `tally`: counters and latency histograms. [`StageStats`] is a snapshot of a histogram.
//! 3. `network`: [`NetworkStats`], the counters of requests to stores.

mod network;
mod since;
mod tally;

pub use network::NetworkStats;
pub use since::Since;
pub use tally::{Count, StageStats, Tally, ratio};
