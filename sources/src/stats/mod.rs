//! Statistics of sources.

mod network;
mod since;
mod tally;

pub use network::NetworkStats;
pub use since::Since;
pub use tally::{Count, StageStats, Tally, ratio};
