use super::permutation::{Permutation, epoch_key};
use super::rng::mix;
use super::{Position, Sampler};

/// A shuffle that reads from a few places of the storage at a time. It suits disks, networks and
/// object stores, where random reads are slow.
///
/// Consecutive samples form blocks, and the blocks come in shuffled order. A group of consecutive
/// blocks is a window, and the samples within a window are shuffled. While a window is delivered,
/// all reads fall into its blocks, and each block is read to its end. This shortens the seeks of a
/// disk, and uses the read-ahead of the system or the device, as long as a window fits into memory.
/// (LMDB is opened without read-ahead.)
///
/// Every sample comes once per epoch, as with [`Shuffled`](super::Shuffled). The order takes no
/// memory, finds any position in constant time, and is the same for any number of ranks. Ranks on
/// several machines share each block.
///
/// A batch has samples from as many unrelated places as a window has blocks, which is 64 by
/// default. For a dataset sorted by class, the classes in a batch then vary as if each 64th of a
/// window were one class. More blocks mix better, and longer blocks read faster.
#[derive(Debug, Clone, Copy)]
pub struct Windowed {
    len: u64,
    seed: u64,
    /// Samples per block. The last block of the source may be shorter.
    block: u64,
    /// Blocks per window. The last window of the epoch may have fewer.
    per_window: u64,
}

/// Default number of blocks per window.
const BLOCKS: u64 = 64;

impl Windowed {
    /// Creates the order of a source of `len` samples under `seed`, in windows of about `window`
    /// samples. A window has 64 blocks, or one block per sample if it has fewer than 64 samples.
    pub fn new(len: u64, seed: u64, window: u64) -> Self {
        Self::with_block(len, seed, window, window.div_ceil(BLOCKS))
    }

    /// Like [`new`](Windowed::new), with blocks of `block` samples. `window` is rounded up to whole
    /// blocks.
    pub fn with_block(len: u64, seed: u64, window: u64, block: u64) -> Self {
        let block = block.clamp(1, len.max(1));
        Windowed { len, seed, block, per_window: window.min(len).div_ceil(block).max(1) }
    }
}

/// Entries of equal length, one of which may be shorter because it contains the source's short
/// block. Used for the windows of an epoch and for the blocks of a window.
struct Run {
    /// Samples per full entry.
    entry: u64,
    /// Number of the short entry, and how many samples it lacks.
    short: u64,
    lacks: u64,
}

impl Run {
    /// First position of entry `number`.
    fn start(&self, number: u64) -> u64 {
        number * self.entry - if number > self.short { self.lacks } else { 0 }
    }

    /// Number of the entry that contains `position`.
    fn entry(&self, position: u64) -> u64 {
        let after = position >= self.start(self.short + 1);
        (position + if after { self.lacks } else { 0 }) / self.entry
    }
}

impl Sampler for Windowed {
    fn len(&self, _epoch: u64) -> u64 {
        self.len
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        let layout = Layout::new(self, epoch);
        let Window { first, start, shuffle, key, run } = layout.window(layout.windows.entry(position));
        let inside = shuffle.apply(key, position - start);
        let place = run.entry(inside);
        layout.blocks.apply(layout.key, first + place) * self.block + inside - run.start(place)
    }

    fn position(&self, epoch: u64, index: u64, from: u64) -> Position {
        if index >= self.len {
            return Position::Absent;
        }
        let layout = Layout::new(self, epoch);
        let place = layout.blocks.invert(layout.key, index / self.block);
        let Window { first, start, shuffle, key, run } = layout.window(place / self.per_window);
        let inside = run.start(place - first) + index % self.block;
        Position::not_before(start + shuffle.invert(key, inside), from)
    }
}

/// The blocks and windows of one epoch.
struct Layout<'a> {
    order: &'a Windowed,
    key: u64,
    blocks: Permutation,
    /// Position of the short block in the epoch, in blocks.
    short: u64,
    windows: Run,
}

struct Window {
    /// Positions in the epoch: of the first block, in blocks, and of the first sample.
    first: u64,
    start: u64,
    shuffle: Permutation,
    key: u64,
    /// Its blocks.
    run: Run,
}

impl<'a> Layout<'a> {
    fn new(order: &'a Windowed, epoch: u64) -> Self {
        let key = epoch_key(order.seed, epoch);
        let blocks = Permutation::new(order.len.div_ceil(order.block));
        let lacks = blocks.len() * order.block - order.len;
        let short = blocks.invert(key, blocks.len() - 1);
        let windows = Run { entry: order.per_window * order.block, short: short / order.per_window, lacks };
        Layout { order, key, blocks, short, windows }
    }

    fn window(&self, window: u64) -> Window {
        let (start, end) = (self.windows.start(window), self.windows.start(window + 1).min(self.order.len));
        let first = window * self.order.per_window;
        // In a window without the short block, `short` lies past the end.
        let short = if window == self.windows.short { self.short - first } else { self.order.per_window };
        Window {
            first,
            start,
            shuffle: Permutation::new(end - start),
            key: mix(self.key ^ mix(window)),
            run: Run { entry: self.order.block, short, lacks: self.windows.lacks },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(order: &Windowed, epoch: u64) -> Vec<u64> {
        (0..order.len).map(|p| order.index(epoch, p)).collect()
    }

    #[test]
    fn every_sample_comes_once_and_a_window_is_whole_blocks() {
        for len in (1..70).chain([100, 127, 128, 1000]) {
            for window in [1, 2, 7, 16, 64, 100, 5000] {
                for block in [1, 2, 5, 16, 33] {
                    let order = Windowed::with_block(len, 3, window, block);
                    let samples = all(&order, 1);
                    let mut sorted = samples.clone();
                    sorted.sort_unstable();
                    assert!(sorted.iter().copied().eq(0..len), "{len} samples, window {window}, block {block}");

                    // The blocks of a window are complete when it ends, so no block is in two
                    // windows.
                    let mut left = samples.as_slice();
                    while !left.is_empty() {
                        let mut blocks: Vec<u64> = vec![];
                        let (mut taken, mut missing) = (0, 0);
                        for sample in left {
                            let b = sample / order.block;
                            if !blocks.contains(&b) {
                                blocks.push(b);
                                missing += order.block.min(len - b * order.block);
                            }
                            (taken, missing) = (taken + 1, missing - 1);
                            if missing == 0 && (blocks.len() as u64 == order.per_window || taken == left.len()) {
                                break;
                            }
                        }
                        assert!(missing == 0 && blocks.len() as u64 <= order.per_window);
                        left = &left[taken..];
                    }
                }
            }
        }
    }

    /// Each (position, sample) pair is equally likely over epochs: a chi-square test of the whole
    /// table, with a short block.
    #[test]
    fn places_are_uniform_over_epochs() {
        let (len, epochs) = (16u64, 20_000u64);
        let order = Windowed::with_block(len, 7, 8, 2);
        let mut counts = vec![0u32; (len * len) as usize];
        for epoch in 0..epochs {
            for (position, sample) in all(&order, epoch).into_iter().enumerate() {
                counts[position * len as usize + sample as usize] += 1;
            }
        }
        let expected = epochs as f64 / len as f64;
        let chi2: f64 = counts.iter().map(|&c| (f64::from(c) - expected).powi(2) / expected).sum();
        // At most (16 - 1)^2 = 225 degrees of freedom, and the samples of a window depend on each
        // other: mean 225, five deviations of 30.
        assert!((75.0..375.0).contains(&chi2), "chi-square {chi2:.0}");
    }

    /// Over a dataset sorted by class, the classes of a batch scatter as much as theory says. With
    /// many blocks per window, that is hardly more than after a full shuffle.
    #[test]
    fn a_batch_mixes_classes_as_its_blocks_allow() {
        let (len, classes, batch) = (100_000u64, 10u64, 250usize);
        // Chi-square of a batch's class counts against equal shares, averaged over an epoch's
        // batches. Independent draws give 9.
        let scatter = |order: &dyn Sampler| {
            let samples: Vec<_> = (0..len).map(|p| order.index(2, p) * classes / len).collect();
            let expected = batch as f64 / classes as f64;
            let of = |batch: &[u64]| -> f64 {
                (0..classes)
                    .map(|class| batch.iter().filter(|c| **c == class).count() as f64)
                    .map(|n| (n - expected).powi(2) / expected)
                    .sum()
            };
            samples.chunks_exact(batch).map(of).sum::<f64>() / (len as usize / batch) as f64
        };
        let full = scatter(&crate::sampler::Shuffled::new(len, 5));
        assert!((8.5..9.5).contains(&full), "full shuffle: {full:.2}");
        // For a batch of 250 from a window of k blocks, theory gives 9 for the draw from the
        // window, plus 9 * 250 / k for the k classes in it.
        for (window, blocks) in [(10_000, 1000), (10_000, 250), (10_000, 64), (2000, 20)] {
            let mean = scatter(&Windowed::with_block(len, 5, window, window / blocks));
            let theory = 9.0 * (1.0 - batch as f64 / window as f64) + 9.0 * batch as f64 / blocks as f64;
            assert!((mean / theory - 1.0).abs() < 0.25, "{blocks} blocks of {window}: {mean:.1}, theory {theory:.1}");
        }
    }

    #[test]
    fn a_huge_source_costs_no_more() {
        let order = Windowed::new((1 << 40) - 12_345, 1, 1 << 20);
        let picked: std::collections::HashSet<u64> = (0..1000).map(|p| order.index(0, p << 30)).collect();
        assert_eq!(picked.len(), 1000);
        assert!(picked.iter().all(|&sample| sample < order.len));
    }
}
