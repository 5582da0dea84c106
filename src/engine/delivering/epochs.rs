use std::fmt;
use std::time::Duration;

use super::batches::{Batches, Replay, TICK};
use crate::batch::HostBatch;
use crate::engine::state::Checkpoint;
use crate::error::{Error, Result};

/// The epochs of a loader that it owns: for iterators that cannot borrow the loader, as those of
/// other languages.
///
/// [`Batches::epoch`] borrows the loader for the time of an epoch. Here an epoch is begun, and
/// batches are asked for one by one. The waits can be given up and taken up again, so that a signal
/// can be looked for in between.
///
/// ```
/// use std::time::Duration;
///
/// use warpfeed::{Augment, Epochs, Loader};
///
/// # fn main() -> warpfeed::Result<()> {
/// # std::env::set_current_dir(env!("CARGO_MANIFEST_DIR")).unwrap();
/// let loader = Loader::new("datasets/mini").augment(Augment::train(64)).batch_size(16);
/// let mut epochs = Epochs::new(loader.host()?);
/// let mut samples = 0;
/// for epoch in 0..2 {
///     epochs.begin(epoch);
///     while let Some(batch) = epochs.next(&mut || Some(Duration::from_millis(50))) {
///         samples += batch?.len();
///     }
/// }
/// assert_eq!(samples, 2 * epochs.batches().source_len());
/// # Ok(())
/// # }
/// ```
pub struct Epochs<B> {
    batches: Batches<B>,
}

impl<B> Epochs<B> {
    /// The epochs of `batches`; none has begun.
    pub fn new(batches: Batches<B>) -> Self {
        Epochs { batches }
    }

    /// The loader.
    pub fn batches(&self) -> &Batches<B> {
        &self.batches
    }

    /// The loader, for calls that change it. The epoch that has begun is ended.
    pub fn batches_mut(&mut self) -> &mut Batches<B> {
        self.end();
        &mut self.batches
    }

    /// Begins epoch `epoch`, as [`Batches::epoch`] does. An epoch that was under way is ended.
    pub fn begin(&mut self, epoch: u64) {
        self.batches.begin(epoch);
    }

    /// Begins epoch `epoch` at batch `first`, as [`Batches::epoch_from`] does. An epoch that was under
    /// way is ended.
    pub fn begin_from(&mut self, epoch: u64, first: u64) {
        self.batches.begin_from(epoch, first);
    }

    /// The next batch of the epoch that has begun. `None` after its last batch, without an epoch,
    /// and where `idle` gave up.
    ///
    /// `idle` is called before each wait. It says how long that may last at most. With `None` it
    /// gives up: the batch is not lost, and the next call goes on waiting for it.
    ///
    /// # Errors
    /// As the items of [`Epoch`](crate::Epoch), which says after which of them the epoch goes on.
    pub fn next(&mut self, idle: &mut dyn FnMut() -> Option<Duration>) -> Option<Result<B>> {
        self.batches.next(idle)
    }

    /// The first `n` batches of epoch 0 again and again, as [`Batches::replay`]. The epoch that has
    /// begun is ended. `idle` is called before each wait, as for [`next`](Epochs::next); where it
    /// gives up, the result is `None`.
    ///
    /// # Errors
    /// As [`Batches::replay`].
    pub fn replay(&mut self, n: usize, idle: &mut dyn FnMut() -> Option<Duration>) -> Result<Option<Replay<B>>> {
        self.batches_mut().replay_while(n, idle)
    }

    /// Ends the epoch that has begun. What was prepared ahead is discarded.
    pub fn end(&mut self) {
        self.batches.end();
    }

    /// Goes on where `state` stands, from the next [`begin`](Epochs::begin) on, as a loader that
    /// was opened with [`Loader::resume`](crate::Loader::resume). The epoch that has begun is
    /// ended.
    ///
    /// # Errors
    /// As [`Loader::resume`](crate::Loader::resume). The loader then stays where it was.
    pub fn resume(&mut self, state: &Checkpoint) -> Result<()> {
        self.end();
        self.batches.resume(state)
    }
}

impl<B> fmt::Debug for Epochs<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epochs").field("batches", &self.batches).finish()
    }
}

/// One pass over a [`Loader`](crate::Loader) that went straight into `for`. If opening fails, the
/// error is the only item.
///
/// As with [`Epoch`](crate::Epoch), an error is the last item, unless it is the
/// [timeout](crate::Loader::timeout) of a consumer that holds every batch.
pub struct IntoIter(Pass);

enum Pass {
    Open(Box<Epochs<HostBatch>>),
    Failed(Option<Error>),
}

impl fmt::Debug for IntoIter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Pass::Open(epochs) => f.debug_tuple("IntoIter").field(epochs.batches()).finish(),
            Pass::Failed(error) => f.debug_tuple("IntoIter").field(error).finish(),
        }
    }
}

impl IntoIter {
    pub(crate) fn new(opened: Result<Batches<HostBatch>>) -> Self {
        IntoIter(match opened {
            Ok(batches) => {
                let (first, mut epochs) = (batches.first_epoch(), Epochs::new(batches));
                epochs.begin(first);
                Pass::Open(Box::new(epochs))
            }
            Err(e) => Pass::Failed(Some(e)),
        })
    }
}

impl Iterator for IntoIter {
    type Item = Result<HostBatch>;

    fn next(&mut self) -> Option<Result<HostBatch>> {
        match &mut self.0 {
            Pass::Open(epochs) => epochs.next(&mut || Some(TICK)),
            Pass::Failed(error) => error.take().map(Err),
        }
    }
}
