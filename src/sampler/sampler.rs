//! [`Sampler`] maps positions in an epoch to samples.

use std::ops::Range;
use std::sync::Arc;

pub use warpfeed_sources::Position;

/// Determines the order of the samples in each epoch.
///
/// Each method must return the same value for the same arguments, at any time and on any thread.
/// The loader may call the methods for an epoch before the previous epoch has ended. If the order
/// depends on state that the program changes between epochs, set
/// [`Loader::epochs`](crate::Loader::epochs) to 0.
///
/// ```
/// use warpfeed::sampler::Sampler;
///
/// /// All samples, backwards in every second epoch.
/// struct ThereAndBack(u64);
///
/// impl Sampler for ThereAndBack {
///     fn len(&self, _epoch: u64) -> u64 {
///         self.0
///     }
///
///     fn index(&self, epoch: u64, position: u64) -> u64 {
///         if epoch % 2 == 0 { position } else { self.0 - 1 - position }
///     }
/// }
/// # let loader = warpfeed::Loader::new("train").sampler(ThereAndBack(50_000));
/// ```
pub trait Sampler: Send + Sync {
    /// Returns the number of samples in `epoch`.
    fn len(&self, epoch: u64) -> u64;

    /// Returns the source index of the sample at `position` in `epoch`. `position` is less than
    /// [`len`](Sampler::len).
    fn index(&self, epoch: u64, position: u64) -> u64;

    /// Returns the sample at `position` in `epoch`, with its variant. By default, the sample is the
    /// result of [`index`](Sampler::index), and the variant is `epoch`.
    ///
    /// The default variant is correct if each sample occurs at most once per epoch. If a sample can
    /// occur more often, return a different variant for each occurrence, because occurrences with
    /// the same variant are augmented in the same way. A sampler that wraps another one should
    /// forward the variants of the inner sampler.
    fn occurrence(&self, epoch: u64, position: u64) -> Occurrence {
        Occurrence { index: self.index(epoch, position), variant: epoch }
    }

    /// Calls `visit` with the sample at each of the `positions` in `epoch`, in order. The default
    /// implementation calls [`occurrence`](Sampler::occurrence) for each position. Implement this
    /// method if consecutive positions are cheaper to compute together.
    fn for_each(&self, epoch: u64, positions: Range<u64>, visit: &mut dyn FnMut(Occurrence)) {
        positions.for_each(|position| visit(self.occurrence(epoch, position)));
    }

    /// Returns the first position at or after `from` at which sample `index` occurs in `epoch`.
    /// This method is the inverse of [`index`](Sampler::index). The cache for object stores uses it
    /// to keep the samples that will be needed soonest.
    ///
    /// Implement this method only if it finds the position without searching the whole epoch. The
    /// default is [`Position::Unknown`]. The cache then keeps the most recently read samples.
    fn position(&self, epoch: u64, index: u64, from: u64) -> Position {
        let _ = (epoch, index, from);
        Position::Unknown
    }
}

/// One occurrence of a sample in a [`Sampler`]'s order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Occurrence {
    /// Source index of the sample.
    pub index: u64,
    /// Replaces the epoch in the seed of the sample's random numbers, which are a function of
    /// (seed, variant, index).
    pub variant: u64,
}

impl<O: Sampler + ?Sized> Sampler for Arc<O> {
    fn len(&self, epoch: u64) -> u64 {
        (**self).len(epoch)
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        (**self).index(epoch, position)
    }

    fn occurrence(&self, epoch: u64, position: u64) -> Occurrence {
        (**self).occurrence(epoch, position)
    }

    fn for_each(&self, epoch: u64, positions: Range<u64>, visit: &mut dyn FnMut(Occurrence)) {
        (**self).for_each(epoch, positions, visit);
    }

    fn position(&self, epoch: u64, index: u64, from: u64) -> Position {
        (**self).position(epoch, index, from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{Mixture, Repeat, Sequential, Shuffled, Subset, Weighted, Windowed};

    fn scanned(list: &[u64], index: u64, from: u64) -> Position {
        let next = (from..list.len() as u64).find(|&position| list[position as usize] == index);
        next.map_or(Position::Absent, Position::At)
    }

    fn indices_of_epoch(order: &dyn Sampler, epoch: u64) -> Vec<u64> {
        (0..order.len(epoch)).map(|position| order.index(epoch, position)).collect()
    }

    #[test]
    fn the_inverse_and_the_iteration_of_every_order_equal_a_scan() {
        let list: Vec<u64> = (0..90).map(|place| place * 7 % 31 + place % 2).collect();
        let mixed = |draws| {
            let sources: [(u64, f64, Arc<dyn Sampler>); 4] = [
                (20, 0.7, Arc::new(Shuffled::new(20, 3))),
                (9, 0.0, Arc::new(Sequential::new(9))),
                (40, 0.1, Arc::new(Subset::new(list.clone(), Windowed::new(90, 5, 16)).unwrap())),
                (5000, 0.2, Arc::new(Shuffled::new(5000, 1))),
            ];
            Mixture::of(sources, 3).unwrap().draws(draws)
        };
        let orders: Vec<(Arc<dyn Sampler>, u64)> = vec![
            (Arc::new(Sequential::new(50)), 52),
            (Arc::new(Shuffled::new(1, 3)), 3),
            (Arc::new(Shuffled::new(77, 3)), 80),
            (Arc::new(Windowed::new(100, 2, 30)), 101),
            (Arc::new(Windowed::with_block(103, 2, 40, 7)), 104),
            (Arc::new(Windowed::with_block(96, 9, 1000, 5)), 97),
            (Arc::new(Subset::new(list.clone(), Sequential::new(90)).unwrap()), 40),
            (Arc::new(Subset::new(list.clone(), Shuffled::new(90, 4)).unwrap()), 40),
            (Arc::new(Repeat::new(3, Windowed::new(40, 2, 9))), 42),
            (Arc::new(Repeat::new(0, Sequential::new(4))), 5),
            (Arc::new(Repeat::new(2, Subset::new(list.clone(), Shuffled::new(90, 4)).unwrap())), 40),
            (Arc::new(mixed(700)), 70),
            (Arc::new(mixed(37)), 70),
        ];
        for (i, (order, samples)) in orders.iter().enumerate() {
            for epoch in [0, 1, 14] {
                let (len, list) = (order.len(epoch), indices_of_epoch(&**order, epoch));
                for positions in [0..len, len / 3..len, len / 2..len / 2] {
                    let mut together = Vec::new();
                    order.for_each(epoch, positions.clone(), &mut |occurrence| together.push(occurrence));
                    let single: Vec<Occurrence> = positions.map(|position| order.occurrence(epoch, position)).collect();
                    assert!(together == single, "order {i}, epoch {epoch}");
                }
                for sample in 0..*samples {
                    for from in (0..len + 2).step_by(1 + len as usize / 16) {
                        let (actual, expected) = (order.position(epoch, sample, from), scanned(&list, sample, from));
                        assert_eq!(actual, expected, "order {i}, epoch {epoch}, sample {sample} from {from}");
                    }
                }
            }
        }
    }

    /// A pass over the source takes several rounds, so a sample is absent from many epochs.
    #[test]
    fn a_mixture_finds_samples_of_later_rounds() {
        let order = Mixture::new(&[(30_000, 0.9), (100, 0.1)], 8).unwrap().draws(25_000);
        for epoch in 0..5 {
            let list = indices_of_epoch(&order, epoch);
            for position in (0..25_000).step_by(997) {
                let sample = order.index(epoch, position);
                assert_eq!(order.position(epoch, sample, position), Position::At(position), "epoch {epoch}");
                let next = order.position(epoch, sample, position + 1);
                assert_eq!(next, scanned(&list, sample, position + 1), "epoch {epoch}, after {position}");
            }
        }
    }

    #[test]
    fn draws_with_replacement_have_no_inverse() {
        let weighted = Weighted::new(&[1.0; 20], 3).unwrap();
        assert_eq!(weighted.position(0, weighted.index(0, 0), 0), Position::Unknown);
        let outer = Repeat::new(2, Subset::new((0..20).collect::<Vec<_>>(), weighted).unwrap());
        assert_eq!(outer.position(0, 3, 0), Position::Unknown);
    }
}
