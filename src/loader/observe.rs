use std::path::Path;

use super::Loader;
use crate::trace;

/// What is told of a run.
impl Loader {
    /// Writes a trace of the batches that `schedule` names to `path`, as Chrome trace events:
    /// [Perfetto](https://ui.perfetto.dev), `chrome://tracing` and TensorBoard open it. No trace by
    /// default.
    ///
    /// A row a worker, the coordinator, the consumer, and on a device the copy stream, the convert
    /// stream and the consumer's stream, each placed by the device's own clock. Spans carry the
    /// sample, its key, its bytes and its batch; [`trace::span`](crate::trace::span()) adds your
    /// own. Outside of the schedule's windows it costs next to nothing. The file is made when the
    /// loader is opened, as the last step of that, and is whole after each window and after the
    /// loader is dropped.
    ///
    /// ```no_run
    /// # use warpfeed::{Loader, trace::Schedule};
    /// let batches = Loader::new("train").trace("trace.json", Schedule { wait: 1, warmup: 1, active: 3, repeat: 1 }).host();
    /// ```
    pub fn trace(mut self, path: impl AsRef<Path>, schedule: trace::Schedule) -> Self {
        self.trace = Some((path.as_ref().to_owned(), schedule));
        self
    }
}
