use std::path::Path;

use super::Loader;
use crate::trace;

/// Observability.
impl Loader {
    /// Writes a trace of the batches that `schedule` names to `path`, as Chrome trace events.
    /// [Perfetto](https://ui.perfetto.dev), `chrome://tracing` and TensorBoard open it. Off by
    /// default.
    ///
    /// ```
    /// # use warpfeed::{Loader, trace::Schedule};
    /// let schedule = Schedule { wait: 1, warmup: 1, active: 3, repeat: 1 };
    /// let loader = Loader::new("train").trace("trace.json", schedule);
    /// ```
    ///
    /// Each worker, the coordinator and the consumer have a row. A device adds the copy stream, the
    /// convert stream and the consumer's stream, all on the device's own clock. Spans carry the
    /// sample, its key, its bytes and its batch. [`trace::span`](crate::trace::span()) adds spans
    /// of your own.
    ///
    /// The cost outside the schedule's windows is close to zero. Opening creates the file as its
    /// last step. The file is complete after each window and when the loader is dropped, even if a
    /// [`LoaderHandle`](crate::LoaderHandle) of the loader remains.
    pub fn trace(mut self, path: impl AsRef<Path>, schedule: trace::Schedule) -> Self {
        self.images.trace = Some((path.as_ref().to_owned(), schedule));
        self
    }
}
