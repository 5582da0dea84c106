//! Measures the loader's time: counters, statistics, bottlenecks and traces.
//!
//! [`Stats`] contains the measurements, and [`Verdict`] names the resource that limits the loader.
//! Counters are always collected. A [`Schedule`] selects the batches whose spans are written to a
//! trace.

mod bottleneck;
mod chrome;
mod counters;
mod decoded_cache;
mod nvtx;
mod process;
mod schedule;
mod serving;
mod span;
mod stage;
mod stats;
mod store;
mod stragglers;
mod timeline;
mod verdict;

pub(crate) use warpfeed_sources::internal::Tally;
pub use warpfeed_sources::{NetworkStats, StageStats};

pub use bottleneck::Bottleneck;
use chrome::STEP_PREFIX;
pub(crate) use chrome::{Args, Trace, TraceRow};
pub(crate) use counters::{BATCH_WAIT, Counters, SLOT_WAIT, nanos};
pub use decoded_cache::DecodedCacheStats;
pub(crate) use nvtx::range;
pub use process::ProcessStats;
pub(crate) use process::{SchedulerStats, ThreadUsage};
pub use schedule::Schedule;
pub use span::{Span, span};
pub use stage::{Stage, StageMap};
pub(crate) use stats::WorkerCounts;
pub use stats::{Stats, Straggler};
pub use timeline::Interval;
pub use verdict::Verdict;
