use std::sync::{Arc, OnceLock};

use super::rng::mix;
use super::{Occurrence, Position, Sampler};
use crate::error::{Error, Result};

/// An order that is restricted to a list of samples. The inner order returns positions in the list.
///
/// Each entry of the list uses 8 bytes, and another 8 bytes once [`position`](Sampler::position) is
/// called. A sample that is listed more than once is augmented differently each time.
#[derive(Debug, Clone)]
pub struct Subset<O> {
    inner: O,
    indices: Arc<[u64]>,
    /// For each entry, the number of earlier entries with the same sample. Empty if no sample is
    /// listed twice.
    copies: Box<[u32]>,
    /// Positions in `indices`, sorted by the sample they refer to.
    places: OnceLock<Box<[u64]>>,
}

impl<O: Sampler> Subset<O> {
    /// Creates an order over the samples `indices`. `inner` returns positions in this list.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the list is empty.
    pub fn new(indices: impl Into<Arc<[u64]>>, inner: O) -> Result<Self> {
        let indices = indices.into();
        if indices.is_empty() {
            return Err(Error::config("subset: no samples"));
        }
        let mut copies = Vec::new();
        if has_repetitions(&indices) {
            let mut places: Vec<usize> = (0..indices.len()).collect();
            places.sort_unstable_by_key(|&place| (indices[place], place));
            copies.resize(indices.len(), 0);
            let twice = |pair: &&[usize]| indices[pair[0]] == indices[pair[1]];
            places.windows(2).filter(twice).for_each(|pair| copies[pair[1]] = copies[pair[0]] + 1);
        }
        Ok(Subset { inner, indices, copies: copies.into(), places: OnceLock::new() })
    }
}

/// Returns whether any index occurs twice. Uses a bitmap with one bit per sample up to the largest
/// index or, if the indices are too sparse for a bitmap, sorts them.
fn has_repetitions(indices: &[u64]) -> bool {
    if indices.is_sorted_by(|a, b| a < b) {
        return false;
    }
    let largest = indices.iter().copied().max().unwrap_or(0);
    if largest / 64 <= indices.len() as u64 {
        let mut seen = vec![0u64; (largest / 64) as usize + 1];
        return indices.iter().any(|index| {
            let (word, bit) = (&mut seen[(index / 64) as usize], 1 << (index % 64));
            let again = *word & bit != 0;
            *word |= bit;
            again
        });
    }
    let mut sorted = indices.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

impl<O: Sampler> Sampler for Subset<O> {
    fn len(&self, epoch: u64) -> u64 {
        self.inner.len(epoch)
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        self.at(epoch, position).index
    }

    fn at(&self, epoch: u64, position: u64) -> Occurrence {
        let Occurrence { index: place, variant } = self.inner.at(epoch, position);
        let index = self.indices[place as usize];
        // `copies` is empty if no sample is listed twice.
        match self.copies.get(place as usize) {
            None | Some(0) => Occurrence { index, variant },
            Some(&copy) => Occurrence { index, variant: mix(variant ^ mix(u64::from(copy))) },
        }
    }

    fn position(&self, epoch: u64, index: u64, from: u64) -> Position {
        let sample = |place: &u64| self.indices[*place as usize];
        let places = self.places.get_or_init(|| {
            let mut places: Box<[u64]> = (0..self.indices.len() as u64).collect();
            places.sort_unstable_by_key(sample);
            places
        });
        let first = places.partition_point(|place| sample(place) < index);
        let mut found = Position::Absent;
        for &place in places[first..].iter().take_while(|place| sample(place) == index) {
            found = match (self.inner.position(epoch, place, from), found) {
                (Position::Unknown, _) => return Position::Unknown,
                (Position::Absent, found) => found,
                (Position::At(a), Position::At(b)) => Position::At(a.min(b)),
                (at, _) => at,
            };
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{Sequential, Shuffled};

    #[test]
    fn a_list_is_traversed_in_the_inner_order() {
        let list: Vec<u64> = (0..50).map(|i| 1000 - 3 * i).collect();
        let (shuffled, order) = (Shuffled::new(50, 1), Subset::new(&list[..], Shuffled::new(50, 1)).unwrap());
        for p in 0..50 {
            assert_eq!(order.index(3, p), list[shuffled.index(3, p) as usize]);
            assert_eq!(order.at(3, p).variant, 3);
        }
        assert!(Subset::new(vec![], Sequential::new(0)).is_err());
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
        assert_ne!(order.at(0, 0).variant, order.at(0, 2).variant);
    }

    #[test]
    fn a_sample_listed_twice_has_a_variant_for_each_time() {
        let order = Subset::new(vec![7, 3, 7, 7, 4], Sequential::new(5)).unwrap();
        let variants: Vec<_> = (0..5).map(|p| order.at(9, p).variant).collect();
        assert_eq!(
            [variants[0], variants[1], variants[4]],
            [9, 9, 9],
            "the first occurrence keeps the default variant"
        );
        assert!(variants[2] != 9 && variants[3] != 9 && variants[2] != variants[3]);
        assert_ne!(variants[2], order.at(10, 2).variant, "the variant differs between epochs");
    }
}
