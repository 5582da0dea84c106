use std::sync::Arc;
use std::time::Duration;

use super::batches::{Batches, TICK};
use crate::error::{Error, Result};

impl<B> Batches<B> {
    /// Makes the first `n` batches of epoch 0 once, and then repeats them. This shows how fast a
    /// training loop would be if the loader took no time.
    ///
    /// The iterator is endless: `take` as many batches as the measurement needs. The call waits for
    /// the `n` batches. Repeated batches do not count in the statistics. A shorter epoch gives
    /// fewer batches.
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
    /// The errors of a batch of [`epoch`](Batches::epoch).
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if `n` is 0 or exceeds the set
    /// [prefetch](crate::Loader::prefetch) plus 1, or 3 if the prefetch is automatic.
    pub fn replay(&mut self, n: usize) -> Result<Replay<B>> {
        Ok(self.replay_while(n, &mut || Some(TICK))?.expect("it never gives up"))
    }

    /// Like [`replay`](Batches::replay). `idle` is called before each wait, as for
    /// [`next`](Batches::next). If it gives up, the result is `None`.
    ///
    /// # Errors
    /// The errors of [`replay`](Batches::replay).
    pub fn replay_while(&mut self, n: usize, idle: &mut dyn FnMut() -> Option<Duration>) -> Result<Option<Replay<B>>> {
        let room = self.shared().run.settings.prefetch.least + 1;
        if n == 0 || n > room {
            return Err(Error::config(format!(
                "replay({n}): from 1 to {room} batches fit the loader; raise prefetch for more"
            )));
        }
        // Batches are not taken by `next`, so a measurement does not move the position of the run.
        self.start(0, 0);
        let count = self.left().min(n as u64);
        let taken = (0..count).map(|_| Some(self.receive(idle)?.map(Arc::new)));
        let batches = taken.collect::<Option<Result<Vec<_>>>>();
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
