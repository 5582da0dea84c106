//! Measures the loader's time: counters, statistics, bottlenecks and traces.
//!
//! 1. `stage`: [`Stage`], a step in the processing of a sample, and [`StageMap`], one value per
//!    stage. Statistics list each computed field as a separate stage.
//! 2. [`StageStats`]: count, sum and histogram of one stage. This type is defined in the
//!    [`warpfeed_sources`] crate, together with the single-writer tally and the trait for
//!    differences of statistics.
//! 3. `counters`: the running totals of workers, coordinator, ring and consumer, which are always
//!    collected.
//! 4. `timeline`: [`Interval`], one of the equal intervals into which a run is divided.
//! 5. `process`: [`ProcessStats`], counters of the operating system.
//! 6. [`NetworkStats`]: counters of requests to stores. `decoded_cache`: [`DecodedCacheStats`], the
//!    counters of the cache of decoded images. `stats`: [`Stats`], all numbers and the slowest
//!    samples.
//! 7. `bottleneck`: [`Bottleneck`], the resource that limits a loader. `verdict`: [`Verdict`], the
//!    bottleneck with its evidence and advice, and the rules for loaders. `stragglers`: the rule
//!    for slow samples; `serving`: the rules for decoders; `store`: the advice for a dataset in a
//!    store.
//! 8. `schedule`: [`Schedule`], which selects the batches to trace.
//! 9. `chrome`: records spans, and writes them as Chrome trace events.
//! 10. `span`: [`span()`], which adds the program's own spans to the trace.
//! 11. `nvtx`: the same spans for Nsight Systems.

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
