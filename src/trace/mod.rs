//! What the loader did with its time.
//!
//! 1. `tally`: count, sum and histogram of one stage, for one thread that writes; [`StageStats`] is
//!    what is read from it.
//! 2. `counters`: what workers, coordinator, ring and consumer add up while they run, always on.
//! 3. `timeline`: the run in equal intervals, [`Interval`].
//! 4. `process`: what the operating system counts, [`ProcessStats`].
//! 5. `stats`: [`Stats`], all of it for a person or a program, with the slowest samples.
//! 6. `verdict`: [`Verdict`], what it means: the stage that limits, and what would lift it.
//! 7. `schedule`: [`Schedule`], which batches are traced.
//! 8. `chrome`: the spans of those, and the file of Chrome trace events they become.
//! 9. `span`: [`span()`], the program's own stretches in that file.
//! 10. `nvtx`: the same stretches for Nsight Systems.

mod chrome;
mod counters;
mod nvtx;
mod process;
mod schedule;
mod span;
mod stats;
mod tally;
mod timeline;
mod verdict;

use chrome::STEP;
pub(crate) use chrome::{Args, Row, Trace};
pub(crate) use counters::{Counters, Stage, WAIT, WAIT_FOR_SLOT, nanos};
pub(crate) use nvtx::range;
pub use process::ProcessStats;
pub(crate) use process::{Task, ThreadUsage};
pub use schedule::Schedule;
pub use span::{Span, span};
pub use stats::{Stats, Straggler};
pub use tally::StageStats;
pub(crate) use tally::Tally;
pub use timeline::Interval;
pub use verdict::{Limit, Verdict};
