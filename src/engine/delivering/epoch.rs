//! One pass over the data.

use std::fmt;
use std::ops::Deref;

use super::batches::{Batches, POLL_INTERVAL};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::source::BatchIndex;

impl<B> Batches<B> {
    /// Iterates over the batches of epoch `epoch`, in order. Workers start immediately, and
    /// continue while the program processes a batch.
    ///
    /// ```no_run
    /// # let mut batches = warpfeed::Loader::new("train").host()?;
    /// for batch in batches.epoch(0) {
    ///     let batch = batch?;
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// For given data and options, the order of the samples and every pixel depend only on the seed
    /// and on `epoch`, unless the program changes the order during the run
    /// ([`set_mixture`](Batches::set_mixture), [`set_weights`](Batches::set_weights)) or custom
    /// code depends on other state. Dropping the iterator early ends the epoch and discards the
    /// prefetched batches.
    ///
    /// While the last batches of an epoch are in flight, workers use free slots to prepare the
    /// first batches of the next epoch, so there is usually no gap between epochs. If the program
    /// begins the epoch that it has most recently finished, workers prepare that epoch again
    /// instead, or nothing if the source itself prefetches. The prepared batches are discarded if
    /// the program then requests different batches, or if the data has changed.
    /// [`Loader::epochs`](crate::Loader::epochs) limits which epochs are prepared ahead.
    ///
    /// In a [resumed](crate::Loader::resume) loader, the saved epoch starts at the saved batch, and
    /// earlier epochs are empty, so the same loop serves new and resumed runs. All epochs are
    /// complete again once the saved epoch or a later one has begun, or
    /// [`epoch_from`](Batches::epoch_from) has been called.
    pub fn epoch(&mut self, epoch: u64) -> Epoch<'_, B> {
        self.begin(epoch);
        Epoch { batches: self }
    }

    /// Iterates over the batches of `epoch` from batch `first` on. Earlier batches are not loaded.
    pub fn epoch_from(&mut self, epoch: u64, first: u64) -> Epoch<'_, B> {
        self.begin_from(epoch, first);
        Epoch { batches: self }
    }
}

/// The batches of one epoch; see [`Batches::epoch`].
///
/// After some errors, a program can continue to iterate:
///
/// - **A bad sample** makes its batch fail, unless [`OnError::Skip`](crate::OnError::Skip) replaces
///   the sample. The next item is the following batch. Until the program requests that item, the
///   [checkpoint](Batches::checkpoint) stays at the failed batch, so that a run that ends at the
///   error resumes there.
/// - **The [timeout](crate::Loader::held_batches_timeout)** expires if the consumer holds every
///   batch. The program can drop some batches and then request the same batch again.
/// - **[`ErrorKind::Capturing`]** is returned while the stream is being captured into a CUDA graph.
///   Request the same batch again after the capture.
///
/// After any other error, such as an error in a custom order, the iterator ends.
pub struct Epoch<'a, B> {
    pub(super) batches: &'a mut Batches<B>,
}

impl<B> fmt::Debug for Epoch<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BatchIndex { epoch, batch } = self.batches.shared().position();
        let mut debug_struct = f.debug_struct("Epoch");
        debug_struct
            .field("epoch", &epoch)
            .field("next", &batch)
            .field("remaining", &self.batches.remaining())
            .finish_non_exhaustive()
    }
}

impl<B> Epoch<'_, B> {
    /// Returns the number of batches that the epoch has not delivered yet, for example for a
    /// progress bar, or 0 after an error that ends the epoch. `Epoch` is not an
    /// [`ExactSizeIterator`], because some errors end the epoch early.
    ///
    /// ```
    /// # use warpfeed::{Augment, Loader};
    /// # std::env::set_current_dir(env!("CARGO_MANIFEST_DIR")).unwrap();
    /// let mut batches = Loader::new("datasets/mini").augment(Augment::eval(32, 32)).batch_size(16).host()?;
    /// let mut epoch = batches.epoch(0);
    /// let total = epoch.len();
    /// while let Some(batch) = epoch.next() {
    ///     println!("{} of {total}: {} samples", total - epoch.len(), batch?.len());
    /// }
    /// # assert_eq!((total, epoch.len()), (4, 0));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        usize::try_from(self.batches.remaining()).unwrap_or(usize::MAX)
    }

    /// Returns true if no more batches follow, because the epoch is complete or an error has ended
    /// the epoch.
    pub fn is_empty(&self) -> bool {
        self.batches.remaining() == 0
    }
}

impl<B> Iterator for Epoch<'_, B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Result<B>> {
        self.batches.next_interruptible(&mut || Some(POLL_INTERVAL))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, usize::try_from(self.batches.remaining()).ok())
    }
}

impl<B> std::iter::FusedIterator for Epoch<'_, B> {}

/// Provides the methods of the loader, such as [`checkpoint`](Batches::checkpoint) and
/// [`stats`](Batches::stats).
impl<B> Deref for Epoch<'_, B> {
    type Target = Batches<B>;

    fn deref(&self) -> &Batches<B> {
        self.batches
    }
}

impl<B> Drop for Epoch<'_, B> {
    fn drop(&mut self) {
        tracing::debug!(remaining = self.batches.remaining(), "epoch ends");
        self.batches.end();
    }
}
