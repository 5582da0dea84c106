//! Repeats a few batches, to measure a training loop without the cost of loading.

use std::sync::Arc;
use std::time::Duration;

use super::batches::{Batches, POLL_INTERVAL};
use crate::error::{Error, Result};

impl<B> Batches<B> {
    /// Loads the first `n` batches of epoch 0 once, then repeats them endlessly. Use this to
    /// measure how fast a training loop would be if loading took no time.
    ///
    /// The call ends the epoch in progress, and blocks until the `n` batches are ready, or all
    /// batches if epoch 0 has fewer. The iterator never ends; limit it with `take`. Repeated
    /// batches do not appear in the statistics.
    ///
    /// ```no_run
    /// # fn main() -> warpfeed::Result<()> {
    /// # let mut batches = warpfeed::Loader::new("train").host()?;
    /// # fn train_step(_: &warpfeed::HostBatch) {}
    /// for batch in batches.replay(2)?.take(1000) {
    ///     train_step(&batch);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the first error of the batches, as described for [`Epoch`](crate::Epoch). Returns
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the epoch has no batches, or if `n` is 0
    /// or exceeds the configured [prefetch](crate::Loader::prefetch) plus 1. If prefetch is
    /// automatic, the maximum is 3, or 2 if there is not enough memory for two batches ahead.
    pub fn replay(&mut self, n: usize) -> Result<Replay<B>> {
        Ok(self.replay_while(n, &mut || Some(POLL_INTERVAL))?.expect("idle never gives up"))
    }

    /// Like [`replay`](Batches::replay), but calls `idle` before each wait, like
    /// [`next_interruptible`](Batches::next_interruptible). Returns `Ok(None)` if `idle` returns
    /// `None`.
    ///
    /// # Errors
    /// See [`replay`](Batches::replay).
    pub fn replay_while(&mut self, n: usize, idle: &mut dyn FnMut() -> Option<Duration>) -> Result<Option<Replay<B>>> {
        let max_batches = self.shared().runtime.settings.prefetch.min + 1;
        if n == 0 || n > max_batches {
            return Err(Error::config(format!(
                "replay({n}): expected 1 to {max_batches} batches; raise prefetch for more"
            )));
        }
        // `next_interruptible` would move the position of the run, so do not use it below.
        self.start(0, 0);
        let batch_count = self.remaining().min(n as u64);
        let received = (0..batch_count).map(|_| Some(self.receive(idle)?.map(Arc::new)));
        let batches = received.collect::<Option<Result<Vec<_>>>>();
        self.end();
        let Some(batches) = batches.transpose()? else { return Ok(None) };
        if batches.is_empty() {
            return Err(Error::config("replay: the epoch has no batches"));
        }
        Ok(Some(Replay { batches, next: 0 }))
    }
}

/// Repeats the same batches; see [`Batches::replay`].
#[derive(Debug)]
pub struct Replay<B> {
    batches: Vec<Arc<B>>,
    next: usize,
}

impl<B> Iterator for Replay<B> {
    type Item = Arc<B>;

    fn next(&mut self) -> Option<Arc<B>> {
        let batch = &self.batches[self.next % self.batches.len()];
        self.next += 1;
        Some(batch.clone())
    }
}
