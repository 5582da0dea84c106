//! Shuffles with mostly local reads, for storage with slow random reads.
//!
//! One keyed permutation shuffles the blocks of the source, and one per window shuffles the samples
//! of the window. A position is mapped to a window, and then to a sample in the window's blocks, in
//! constant time and without memory per sample. The last block of the source may be shorter than
//! the others. Its position changes from epoch to epoch, so every computation of lengths accounts
//! for it (`Segments`).

use super::permutation::{Permutation, epoch_key};
use super::rng::mix;
use super::{Position, Sampler};

/// A sampler that shuffles samples but reads from only a few regions of the storage at a time, for
/// disks, networks and object stores with slow random reads.
///
/// Consecutive samples form a block, and the blocks are shuffled. Consecutive shuffled blocks form
/// a window, and the samples within each window are shuffled. All samples of a window are in its
/// blocks, and each block is read completely. As long as a window fits into memory, this shortens
/// the seeks of a disk and makes use of the read-ahead of the system or the device. (LMDB is opened
/// without read-ahead.)
///
/// Every sample occurs once per epoch, as with [`Shuffled`](super::Shuffled). The sampler needs no
/// memory per sample, finds the sample at a position in constant time, and does not depend on the
/// number of ranks. If the ranks run on several machines, each machine reads only some samples of
/// each block.
///
/// If a batch lies within one window, its samples come from at most as many unrelated regions as
/// the window has blocks: up to 64 by default. If a dataset is sorted by class, the class counts of
/// a batch vary as if each block of the window contained only one class. More blocks shuffle
/// better, and longer blocks are read faster.
#[derive(Debug, Clone, Copy)]
pub struct Windowed {
    len: u64,
    seed: u64,
    /// Number of samples per block. The last block of the source may be shorter.
    block_len: u64,
    /// Number of blocks per window. The last window of an epoch may have fewer.
    blocks_per_window: u64,
}

const DEFAULT_BLOCKS_PER_WINDOW: u64 = 64;

impl Windowed {
    /// Creates the sampler for a source of `len` samples, with seed `seed` and windows of about
    /// `window` samples. A window has at most 64 blocks.
    pub fn new(len: u64, seed: u64, window: u64) -> Self {
        Self::with_block(len, seed, window, window.div_ceil(DEFAULT_BLOCKS_PER_WINDOW))
    }

    /// Creates a sampler with blocks of `block` samples; see [`new`](Windowed::new). `window` and
    /// `block` are limited to the size of the source. `window` is then rounded up to a multiple of
    /// `block`.
    pub fn with_block(len: u64, seed: u64, window: u64, block: u64) -> Self {
        let block = block.clamp(1, len.max(1));
        Windowed { len, seed, block_len: block, blocks_per_window: window.min(len).div_ceil(block).max(1) }
    }
}

/// The windows of an epoch, or the blocks of a window. All have the same length, with two
/// exceptions: the one that contains the short block of the source, and the last window of an
/// epoch, which may have fewer blocks.
struct Segments {
    /// Number of samples per window or block.
    len: u64,
    short_index: u64,
    /// Number of samples that the short window or block lacks.
    missing: u64,
}

impl Segments {
    fn start(&self, index: u64) -> u64 {
        index * self.len - if index > self.short_index { self.missing } else { 0 }
    }

    fn index_at(&self, position: u64) -> u64 {
        let is_after_short = position >= self.start(self.short_index + 1);
        (position + if is_after_short { self.missing } else { 0 }) / self.len
    }
}

impl Sampler for Windowed {
    fn len(&self, _epoch: u64) -> u64 {
        self.len
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        let layout = Layout::new(self, epoch);
        let Window { first_block, start, shuffle, key, blocks } = layout.window(layout.windows.index_at(position));
        let offset = shuffle.apply(key, position - start);
        let block = blocks.index_at(offset);
        layout.block_permutation.apply(layout.key, first_block + block) * self.block_len + offset - blocks.start(block)
    }

    fn position(&self, epoch: u64, index: u64, from: u64) -> Position {
        if index >= self.len {
            return Position::Absent;
        }
        let layout = Layout::new(self, epoch);
        let block = layout.block_permutation.invert(layout.key, index / self.block_len);
        let Window { first_block, start, shuffle, key, blocks } = layout.window(block / self.blocks_per_window);
        let offset = blocks.start(block - first_block) + index % self.block_len;
        Position::not_before(start + shuffle.invert(key, offset), from)
    }
}

struct Layout<'a> {
    order: &'a Windowed,
    key: u64,
    block_permutation: Permutation,
    /// Position of the short block among the blocks of the epoch.
    short_index: u64,
    windows: Segments,
}

struct Window {
    /// Position of the window's first block among the blocks of the epoch.
    first_block: u64,
    /// Position of the window's first sample in the epoch.
    start: u64,
    shuffle: Permutation,
    key: u64,
    blocks: Segments,
}

impl<'a> Layout<'a> {
    fn new(order: &'a Windowed, epoch: u64) -> Self {
        let key = epoch_key(order.seed, epoch);
        let block_permutation = Permutation::new(order.len.div_ceil(order.block_len));
        let missing = block_permutation.len() * order.block_len - order.len;
        let short_index = block_permutation.invert(key, block_permutation.len() - 1);
        let windows = Segments {
            len: order.blocks_per_window * order.block_len,
            short_index: short_index / order.blocks_per_window,
            missing,
        };
        Layout { order, key, block_permutation, short_index, windows }
    }

    fn window(&self, window: u64) -> Window {
        let (start, end) = (self.windows.start(window), self.windows.start(window + 1).min(self.order.len));
        let first_block = window * self.order.blocks_per_window;
        // In a window without the short block, the index of the short block is past the end.
        let short_index = if window == self.windows.short_index {
            self.short_index - first_block
        } else {
            self.order.blocks_per_window
        };
        Window {
            first_block,
            start,
            shuffle: Permutation::new(end - start),
            key: mix(self.key ^ mix(window)),
            blocks: Segments { len: self.order.block_len, short_index, missing: self.windows.missing },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indices_of_epoch(order: &Windowed, epoch: u64) -> Vec<u64> {
        (0..order.len).map(|p| order.index(epoch, p)).collect()
    }

    #[test]
    fn every_sample_occurs_once_and_windows_are_whole_blocks() {
        for len in (1..70).chain([100, 127, 128, 1000]) {
            for window in [1, 2, 7, 16, 64, 100, 5000] {
                for block in [1, 2, 5, 16, 33] {
                    let order = Windowed::with_block(len, 3, window, block);
                    let samples = indices_of_epoch(&order, 1);
                    let mut sorted = samples.clone();
                    sorted.sort_unstable();
                    assert!(sorted.iter().copied().eq(0..len), "{len} samples, window {window}, block {block}");

                    let mut unseen = samples.as_slice();
                    while !unseen.is_empty() {
                        let mut blocks: Vec<u64> = vec![];
                        let (mut complete, mut missing) = (0, 0);
                        for sample in unseen {
                            let b = sample / order.block_len;
                            if !blocks.contains(&b) {
                                blocks.push(b);
                                missing += order.block_len.min(len - b * order.block_len);
                            }
                            (complete, missing) = (complete + 1, missing - 1);
                            if missing == 0
                                && (blocks.len() as u64 == order.blocks_per_window || complete == unseen.len())
                            {
                                break;
                            }
                        }
                        assert!(missing == 0 && blocks.len() as u64 <= order.blocks_per_window);
                        unseen = &unseen[complete..];
                    }
                }
            }
        }
    }

    #[test]
    fn positions_are_uniform_over_epochs() {
        let (len, epochs) = (16u64, 20_000u64);
        let order = Windowed::with_block(len, 7, 8, 2);
        let mut counts = vec![0u32; (len * len) as usize];
        for epoch in 0..epochs {
            for (position, sample) in indices_of_epoch(&order, epoch).into_iter().enumerate() {
                counts[position * len as usize + sample as usize] += 1;
            }
        }
        let expected = epochs as f64 / len as f64;
        let chi2: f64 = counts.iter().map(|&c| (f64::from(c) - expected).powi(2) / expected).sum();
        // There are at most (16 - 1)^2 = 225 degrees of freedom, and a window's samples are not
        // independent. The bounds are the mean of 225 plus or minus five standard deviations of 30.
        assert!((75.0..375.0).contains(&chi2), "chi-square {chi2:.0}");
    }

    /// The dataset is sorted by class.
    #[test]
    fn class_counts_of_a_batch_vary_as_predicted() {
        let (len, classes, batch) = (100_000u64, 10u64, 250usize);
        // Returns the mean over all batches of the chi-square of the class counts. For independent
        // draws, the mean is 9.
        let scatter = |order: &dyn Sampler| {
            let samples: Vec<_> = (0..len).map(|p| order.index(2, p) * classes / len).collect();
            let expected = batch as f64 / classes as f64;
            let share_in = |batch: &[u64]| -> f64 {
                (0..classes)
                    .map(|class| batch.iter().filter(|c| **c == class).count() as f64)
                    .map(|n| (n - expected).powi(2) / expected)
                    .sum()
            };
            samples.chunks_exact(batch).map(share_in).sum::<f64>() / (len as usize / batch) as f64
        };
        let full = scatter(&crate::sampler::Shuffled::new(len, 5));
        assert!((8.5..9.5).contains(&full), "full shuffle: {full:.2}");
        // For a batch of 250 samples from a window of k blocks, the prediction is the sum of two
        // terms: 9 * (1 - 250 / window) for drawing from the window without replacement, and 9 *
        // 250 / k for the classes of the k blocks.
        for (window, blocks) in [(10_000, 1000), (10_000, 250), (10_000, 64), (2000, 20)] {
            let mean = scatter(&Windowed::with_block(len, 5, window, window / blocks));
            let theory = 9.0 * (1.0 - batch as f64 / window as f64) + 9.0 * batch as f64 / blocks as f64;
            assert!((mean / theory - 1.0).abs() < 0.25, "{blocks} blocks of {window}: {mean:.1}, theory {theory:.1}");
        }
    }

    #[test]
    fn a_huge_source_is_shuffled() {
        let order = Windowed::new((1 << 40) - 12_345, 1, 1 << 20);
        let picked: std::collections::HashSet<u64> = (0..1000).map(|p| order.index(0, p << 30)).collect();
        assert_eq!(picked.len(), 1000);
        assert!(picked.iter().all(|&sample| sample < order.len));
    }
}
