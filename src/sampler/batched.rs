//! [`BatchedOrder`]: an order that determines the number of samples in each batch.

use std::ops::Range;

/// An order that determines the number of samples in each batch.
pub(crate) trait BatchedOrder: Send + Sync {
    fn num_batches(&self, epoch: u64) -> u64;

    fn sample_count(&self, epoch: u64) -> u64;

    fn max_batch_size(&self) -> u64;

    /// Returns the positions of a batch. Positions outside all batches are not delivered.
    fn positions(&self, epoch: u64, batch: u64) -> Range<u64>;

    fn batch_of(&self, epoch: u64, position: u64) -> Option<u64>;

    /// Returns a lower bound on the positions of batch `batch` and of all later batches.
    fn min_position(&self, batch: u64) -> u64;

    fn budget(&self) -> Option<u64> {
        None
    }

    /// Empty if the batch size does not depend on the dataset.
    fn dataset_batch_sizes(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Returns `None` if the image size does not depend on the batch.
    fn image_size_index(&self, epoch: u64, batch: u64) -> Option<usize> {
        let _ = (epoch, batch);
        None
    }

    /// Returns the maximum number of samples in a batch of images of the size with index `size`, or
    /// 1 if no sample has that size. Returns `None` if the image size does not depend on the batch.
    fn max_batch_size_of(&self, size_index: usize) -> Option<u64> {
        let _ = size_index;
        None
    }
}
