//! What the loader did with its time.
//!
//! 1. `stage`: [`Stage`], what a worker does with a sample, and [`StageMap`], one value for each.
//! 2. `tally`: count, sum and histogram of one stage, for one thread that writes; [`StageStats`] is
//!    what is read from it.
//! 3. `counters`: what workers, coordinator, ring and consumer add up while they run, always on.
//! 4. `timeline`: the run in equal intervals, [`Interval`].
//! 5. `process`: what the operating system counts, [`ProcessStats`].
//! 6. `stats`: [`Stats`], all of it for a person or a program, with the slowest samples.
//! 7. `verdict`: [`Verdict`], what it means: the stage that limits, and what would lift it.
//! 8. `schedule`: [`Schedule`], which batches are traced.
//! 9. `chrome`: the spans of those, and the file of Chrome trace events they become.
//! 10. `span`: [`span()`], the program's own stretches in that file.
//! 11. `nvtx`: the same stretches for Nsight Systems.

mod chrome;
mod counters;
mod nvtx;
mod process;
mod schedule;
mod span;
mod stage;
mod stats;
mod tally;
mod timeline;
mod verdict;

use chrome::STEP;
pub(crate) use chrome::{Args, Row, Trace};
pub(crate) use counters::{Counters, WAIT, WAIT_FOR_SLOT, nanos};
pub(crate) use nvtx::range;
pub use process::ProcessStats;
pub(crate) use process::{Task, ThreadUsage};
pub use schedule::Schedule;
pub use span::{Span, span};
pub use stage::{Stage, StageMap};
pub use stats::{Stats, Straggler};
pub use tally::StageStats;
pub(crate) use tally::Tally;
pub use timeline::Interval;
pub use verdict::{Limit, Verdict};
