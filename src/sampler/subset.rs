//! A sampler that visits only the listed samples.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::live_order::{History, UpdatableOrder, Update};
use super::rng::mix;
use super::{Occurrence, Position, Sampler};
use crate::error::{Error, Result};

/// A sampler over a list of sample indices. An inner sampler determines the order in which the
/// positions of the list are visited.
///
/// Each index in the list takes 8 bytes, plus 4 if any sample is listed more than once, plus 8
/// once [`position`](Sampler::position) has been called. A sample that is listed more than once is
/// augmented differently each time.
#[derive(Debug, Clone)]
pub struct Subset<O> {
    inner: O,
    indices: Arc<[u64]>,
    /// For each position in `indices`, the number of earlier positions with the same sample. Empty
    /// if no sample is listed twice.
    copy_numbers: Arc<[u32]>,
    /// Positions in `indices`, sorted by sample. Computed by the first call of `position`.
    positions: OnceLock<Box<[u64]>>,
}

impl<O: Sampler> Subset<O> {
    /// Creates a sampler over the samples `indices`. `inner` must return only positions below the
    /// length of the list. If `inner` returns any other position, this sampler panics.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the list is empty.
    pub fn new(indices: impl Into<Arc<[u64]>>, inner: O) -> Result<Self> {
        let indices = indices.into();
        if indices.is_empty() {
            return Err(Error::config("subset: the list of indices is empty"));
        }
        let mut copy_numbers = Vec::new();
        if has_repetitions(&indices) {
            let mut positions: Vec<usize> = (0..indices.len()).collect();
            positions.sort_unstable_by_key(|&position| (indices[position], position));
            copy_numbers.resize(indices.len(), 0);
            let is_repeated = |pair: &&[usize]| indices[pair[0]] == indices[pair[1]];
            positions.windows(2).filter(is_repeated).for_each(|pair| copy_numbers[pair[1]] = copy_numbers[pair[0]] + 1);
        }
        Ok(Subset { inner, indices, copy_numbers: copy_numbers.into(), positions: OnceLock::new() })
    }
}

impl<O> Subset<O> {
    fn map_occurrence(&self, inner: Occurrence) -> Occurrence {
        let Occurrence { index: position, variant } = inner;
        let index = *self.indices.get(position as usize).unwrap_or_else(|| {
            let len = self.indices.len();
            panic!(
                "subset: the inner sampler returned the position {position}, but the list has {len} indices: create the \
                 inner sampler for {len} samples"
            )
        });
        match self.copy_numbers.get(position as usize) {
            None | Some(0) => Occurrence { index, variant },
            Some(&copy) => Occurrence { index, variant: mix(variant ^ mix(u64::from(copy))) },
        }
    }
}

/// Returns whether an index occurs twice. If the list is not ascending, uses a bitmap or, if the
/// indices are too sparse for a bitmap, a sorted copy.
fn has_repetitions(indices: &[u64]) -> bool {
    if indices.is_sorted_by(|a, b| a < b) {
        return false;
    }
    let largest = indices.iter().copied().max().unwrap_or(0);
    if largest / 64 <= indices.len() as u64 {
        let mut seen_bits = vec![0u64; (largest / 64) as usize + 1];
        return indices.iter().any(|index| {
            let (word, bit) = (&mut seen_bits[(index / 64) as usize], 1 << (index % 64));
            let is_repeated = *word & bit != 0;
            *word |= bit;
            is_repeated
        });
    }
    let mut sorted_indices = indices.to_vec();
    sorted_indices.sort_unstable();
    sorted_indices.windows(2).any(|pair| pair[0] == pair[1])
}

impl<O: Sampler> Sampler for Subset<O> {
    fn len(&self, epoch: u64) -> u64 {
        self.inner.len(epoch)
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        self.occurrence(epoch, position).index
    }

    fn occurrence(&self, epoch: u64, position: u64) -> Occurrence {
        self.map_occurrence(self.inner.occurrence(epoch, position))
    }

    fn for_each(&self, epoch: u64, positions: Range<u64>, visit: &mut dyn FnMut(Occurrence)) {
        self.inner.for_each(epoch, positions, &mut |occurrence| visit(self.map_occurrence(occurrence)));
    }

    fn position(&self, epoch: u64, index: u64, from: u64) -> Position {
        let sample = |position: &u64| self.indices[*position as usize];
        let positions = self.positions.get_or_init(|| {
            let mut positions: Box<[u64]> = (0..self.indices.len() as u64).collect();
            positions.sort_unstable_by_key(sample);
            positions
        });
        let first = positions.partition_point(|position| sample(position) < index);
        let mut next_position = Position::Absent;
        for &position in positions[first..].iter().take_while(|position| sample(position) == index) {
            next_position = match (self.inner.position(epoch, position, from), next_position) {
                (Position::Unknown, _) => return Position::Unknown,
                (Position::Absent, next_position) => next_position,
                (Position::At(a), Position::At(b)) => Position::At(a.min(b)),
                (position, _) => position,
            };
        }
        next_position
    }
}

impl<O: UpdatableOrder> UpdatableOrder for Subset<O> {
    fn with_update(&self, update: Update, first_needed_position: u64) -> Result<(Arc<dyn UpdatableOrder>, u64)> {
        let (inner, effective_position) = self.inner.with_update(update, first_needed_position)?;
        let (indices, copy_numbers) = (self.indices.clone(), self.copy_numbers.clone());
        Ok((Arc::new(Subset { inner, indices, copy_numbers, positions: OnceLock::new() }), effective_position))
    }

    fn history(&self) -> History {
        self.inner.history()
    }

    fn positions_per_epoch(&self) -> u64 {
        self.inner.positions_per_epoch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{Sequential, Shuffled};

    #[test]
    fn the_inner_order_selects_positions_in_the_list() {
        let list: Vec<u64> = (0..50).map(|i| 1000 - 3 * i).collect();
        let (shuffled, order) = (Shuffled::new(50, 1), Subset::new(&list[..], Shuffled::new(50, 1)).unwrap());
        for p in 0..50 {
            assert_eq!(order.index(3, p), list[shuffled.index(3, p) as usize]);
            assert_eq!(order.occurrence(3, p).variant, 3);
        }
        assert!(Subset::new(vec![], Sequential::new(0)).is_err());
    }

    #[test]
    #[should_panic(expected = "returned the position 3, but the list has 3 indices")]
    fn a_position_past_the_list_panics_with_advice() {
        Subset::new(vec![7, 8, 9], Sequential::new(5)).unwrap().index(0, 3);
    }

    #[test]
    fn repetitions_are_found_in_sorted_dense_and_sparse_lists() {
        let far = u64::MAX - 1;
        for (list, expected) in [
            (vec![0, 1, 5, 900], false),
            (vec![3, 1, 2, 0], false),
            (vec![3, 1, 2, 3], true),
            (vec![0, 0], true),
            (vec![63, 64, 127, 128, 0], false),
            (vec![64, 128, 0, 64], true),
            (vec![far, 3, 4], false),
            (vec![far, 3, far], true),
            (vec![u64::MAX, 0], false),
        ] {
            assert_eq!(has_repetitions(&list), expected, "{list:?}");
        }
        let order = Subset::new(vec![far, 3, far], Sequential::new(3)).unwrap();
        assert_ne!(order.occurrence(0, 0).variant, order.occurrence(0, 2).variant);
    }

    #[test]
    fn each_repetition_has_a_different_variant() {
        let order = Subset::new(vec![7, 3, 7, 7, 4], Sequential::new(5)).unwrap();
        let variants: Vec<_> = (0..5).map(|p| order.occurrence(9, p).variant).collect();
        assert_eq!(
            [variants[0], variants[1], variants[4]],
            [9, 9, 9],
            "the first occurrence keeps the default variant"
        );
        assert!(variants[2] != 9 && variants[3] != 9 && variants[2] != variants[3]);
        assert_ne!(variants[2], order.occurrence(10, 2).variant, "the variant differs between epochs");
    }
}
