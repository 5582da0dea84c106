use std::fmt;
use std::time::Duration;

use super::batches::{Batches, TICK};
use super::replay::Replay;
use crate::batch::HostBatch;
use crate::engine::state::Checkpoint;
use crate::error::{Error, Result};

/// An owned loader and its epochs, for iterators that cannot borrow the loader, such as those of
/// other languages.
///
/// [`Batches::epoch`] borrows the loader for the time of an epoch. `Epochs` begins an epoch and
/// returns its batches one by one. A wait can be given up and resumed, for example to check for
/// signals in between.
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
    /// Takes ownership of `batches`. No epoch has begun.
    pub fn new(batches: Batches<B>) -> Self {
        Epochs { batches }
    }

    /// The loader.
    pub fn batches(&self) -> &Batches<B> {
        &self.batches
    }

    /// The loader, for calls that change it. Ends the epoch in progress.
    pub fn batches_mut(&mut self) -> &mut Batches<B> {
        self.end();
        &mut self.batches
    }

    /// Begins epoch `epoch` like [`Batches::epoch`]. Ends the epoch in progress.
    pub fn begin(&mut self, epoch: u64) {
        self.batches.begin(epoch);
    }

    /// Begins epoch `epoch` at batch `first` like [`Batches::epoch_from`]. Ends the epoch in
    /// progress.
    pub fn begin_from(&mut self, epoch: u64, first: u64) {
        self.batches.begin_from(epoch, first);
    }

    /// Number of batches that the epoch in progress has yet to deliver. One that failed counts until
    /// the next is requested.
    pub fn left(&self) -> u64 {
        self.batches.left()
    }

    /// The next batch of the epoch in progress. `None` after its last batch, without an epoch, and
    /// if `idle` gave up.
    ///
    /// `idle` is called before each wait and returns its maximum length. `None` gives up: the batch
    /// is not lost, and the next call continues to wait for it.
    ///
    /// # Errors
    /// The errors of [`Epoch`](crate::Epoch), which says how to go on after each.
    pub fn next(&mut self, idle: &mut dyn FnMut() -> Option<Duration>) -> Option<Result<B>> {
        self.batches.next(idle)
    }

    /// Repeats the first `n` batches of epoch 0 like [`Batches::replay`]. Ends the epoch in
    /// progress. `idle` is called before each wait, as for [`next`](Epochs::next). If it gives up,
    /// the result is `None`.
    ///
    /// # Errors
    /// The errors of [`Batches::replay`].
    pub fn replay(&mut self, n: usize, idle: &mut dyn FnMut() -> Option<Duration>) -> Result<Option<Replay<B>>> {
        self.batches_mut().replay_while(n, idle)
    }

    /// Ends the epoch in progress, and discards its batches that were made ahead. After the last
    /// batch of an epoch, those of the next one stay.
    pub fn end(&mut self) {
        self.batches.end();
    }

    /// Checks that [`resume`](Epochs::resume) would accept `state`. Nothing changes, and the epoch
    /// in progress goes on.
    ///
    /// # Errors
    /// The errors of [`Loader::resume`](crate::Loader::resume).
    pub fn fits(&self, state: &Checkpoint) -> Result<()> {
        self.batches.place(state).map(drop)
    }

    /// Moves the loader to the position of `state`, like [`Loader::resume`](crate::Loader::resume).
    /// This takes effect at the next [`begin`](Epochs::begin). Ends the epoch in progress.
    ///
    /// # Errors
    /// The errors of [`Loader::resume`](crate::Loader::resume). The position then does not change.
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

/// One pass over a [`Loader`](crate::Loader) that is used directly in `for`. If opening fails, the
/// error is the only item.
///
/// The errors of [`Epoch`](crate::Epoch), which says how to go on after each.
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
