//! Setters for observability.

use std::path::Path;

use super::Loader;
use crate::trace;

/// Setters for observability.
impl Loader {
    /// Writes a trace of the batches that `schedule` selects to `path`, as Chrome trace events, for
    /// [Perfetto](https://ui.perfetto.dev), `chrome://tracing` and TensorBoard. Off by default.
    ///
    /// ```
    /// # use warpfeed::{Loader, trace::Schedule};
    /// let schedule = Schedule { wait: 1, warmup: 1, active: 3, repeat: 1 };
    /// let loader = Loader::new("train").trace("trace.json", schedule);
    /// ```
    ///
    /// The trace has one row for each worker and each reader that recorded a span, one for the
    /// coordinator and one for the consumer. With a device, there are also rows for the copy
    /// stream, the convert stream and the consumer's stream, with times from the device's own
    /// clock. The loader's spans name the batch and, if they belong to one sample, the index and
    /// the key of the sample. Use [`trace::span`](crate::trace::span()) to add your own spans.
    ///
    /// Outside the windows of the schedule, tracing costs almost nothing. The file is created as
    /// the last step of opening the loader. The file is a complete JSON document after each window,
    /// and after the loader has been dropped, even if a [`LoaderHandle`](crate::LoaderHandle)
    /// remains.
    pub fn trace(mut self, path: impl AsRef<Path>, schedule: trace::Schedule) -> Self {
        self.images.trace = Some((path.as_ref().to_owned(), schedule));
        self
    }
}
