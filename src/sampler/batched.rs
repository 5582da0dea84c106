//! Orders with batches of different sizes.

use std::ops::Range;

/// An order that divides each epoch into batches of different sizes.
pub(crate) trait BatchedOrder: Send + Sync {
    fn num_batches(&self, epoch: u64) -> u64;

    fn sample_count(&self, epoch: u64) -> u64;

    fn max_batch_size(&self) -> u64;

    /// Returns the positions of a batch. The loader skips positions that belong to no batch.
    fn positions(&self, epoch: u64, batch: u64) -> Range<u64>;

    fn batch_of(&self, epoch: u64, position: u64) -> Option<u64>;

    /// Returns a lower bound on the positions of batch `batch` and of all later batches, in any
    /// epoch.
    fn min_position(&self, batch: u64) -> u64;

    fn budget(&self) -> Option<u64> {
        None
    }

    /// Returns the batch size of each dataset of a mixture, or an empty list for any other order.
    fn dataset_batch_sizes(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Returns the index of a batch's image size, or `None` if the order does not determine image
    /// sizes.
    fn image_size_index(&self, epoch: u64, batch: u64) -> Option<usize> {
        let _ = (epoch, batch);
        None
    }

    /// Returns the number of samples in a full batch with image size `size_index`, or 1 if no
    /// sample has that size. Returns `None` if the order does not determine image sizes.
    fn max_batch_size_of(&self, size_index: usize) -> Option<u64> {
        let _ = size_index;
        None
    }
}
