//! [`Batched`]: an order that determines the number of samples in each batch.

use std::ops::Range;

/// An order that determines the number of samples in each batch.
pub(crate) trait Batched: Send + Sync {
    /// Returns the number of batches in `epoch`.
    fn num_batches(&self, epoch: u64) -> u64;

    /// Returns the number of samples in all batches of `epoch`.
    fn samples(&self, epoch: u64) -> u64;

    /// Returns the maximum number of samples in a batch.
    fn largest(&self) -> u64;

    /// Returns the positions of batch `batch` of `epoch`. Positions outside all batches are not
    /// delivered.
    fn range(&self, epoch: u64, batch: u64) -> Range<u64>;

    /// Returns the batch of `epoch` that contains `position`, if there is one.
    fn batch_of(&self, epoch: u64, position: u64) -> Option<u64>;

    /// Returns a position that no position of batch `batch` or of a later batch precedes.
    fn begins(&self, batch: u64) -> u64;

    /// Returns the maximum cost of a batch, if the cost is limited.
    fn budget(&self) -> Option<u64> {
        None
    }

    /// Returns the number of samples in the batches of each dataset, if the size depends on the
    /// dataset.
    fn sizes(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Returns the index of the image size of batch `batch` of `epoch`, or `None` if the image size
    /// does not depend on the batch.
    fn size_of(&self, epoch: u64, batch: u64) -> Option<usize> {
        let _ = (epoch, batch);
        None
    }

    /// Returns the maximum number of samples in a batch of images of the size with index `size`, or
    /// 1 if no sample has that size. Returns `None` if the image size does not depend on the batch.
    fn largest_of_size(&self, size: usize) -> Option<u64> {
        let _ = size;
        None
    }
}
