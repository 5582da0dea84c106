//! Measures the loader's time: counters, statistics, verdicts and traces.
//!
//! 1. `stage`: [`Stage`], a step of a worker's work on a sample, and [`StageMap`], one value per
//!    stage. A field that computes has a stage of its own.
//! 2. [`StageStats`]: count, sum and histogram of one stage. The crate [`warpfeed_sources`] has it,
//!    the tally that one thread writes, and the difference of two statistics.
//! 3. `counters`: the running sums of workers, coordinator, ring and consumer. They are always
//!    active.
//! 4. `timeline`: [`Interval`], the run cut into equal intervals.
//! 5. `process`: [`ProcessStats`], the operating system's counts.
//! 6. [`NetworkStats`]: what sources in stores asked of the network. `stats`: [`Stats`],
//!    all numbers together, with the slowest samples.
//! 7. `bottleneck`: [`Bottleneck`], the stage that limits a loader. `verdict`: [`Verdict`], the limit with
//!    its evidence and advice, and the rules for loaders. `serving`: the rules for decoders;
//!    `store`: the advice for a dataset in a store.
//! 8. `schedule`: [`Schedule`], which batches are traced.
//! 9. `chrome`: the spans of the traced batches, and their file of Chrome trace events.
//! 10. `span`: [`span()`], the program's own spans in that file.
//! 11. `nvtx`: the same spans for Nsight Systems.

mod bottleneck;
mod chrome;
mod counters;
mod nvtx;
mod process;
mod schedule;
mod serving;
mod span;
mod stage;
mod stats;
mod store;
mod timeline;
mod verdict;

pub(crate) use warpfeed_sources::internal::Tally;
pub use warpfeed_sources::{NetworkStats, StageStats};

pub use bottleneck::Bottleneck;
use chrome::STEP;
pub(crate) use chrome::{Args, Row, Trace};
pub(crate) use counters::{Counters, WAIT, WAIT_FOR_SLOT, nanos};
pub(crate) use nvtx::range;
pub use process::ProcessStats;
pub(crate) use process::{Task, ThreadUsage};
pub use schedule::Schedule;
pub use span::{Span, span};
pub use stage::{Stage, StageMap};
pub(crate) use stats::WorkerCounts;
pub use stats::{Stats, Straggler};
pub use timeline::Interval;
pub use verdict::Verdict;
