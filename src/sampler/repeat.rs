use std::sync::Arc;

use super::live_order::{History, UpdatableOrder, Update};
use super::{Occurrence, Position, Sampler};
use crate::error::Result;

/// A sampler that combines several passes into one epoch. Epoch e consists of `passes` epochs of the
/// inner sampler, starting with epoch `e * passes`.
///
/// Each sample has the same random numbers as in the inner sampler. A batch may contain samples of
/// several passes.
#[derive(Debug, Clone, Copy)]
pub struct Repeat<O> {
    inner: O,
    passes: u64,
}

impl<O: Sampler> Repeat<O> {
    /// Creates a sampler in which each epoch consists of `passes` epochs of `inner`.
    pub fn new(passes: u64, inner: O) -> Self {
        Repeat { inner, passes }
    }

    fn passes(&self, epoch: u64) -> impl Iterator<Item = u64> {
        let first = epoch.wrapping_mul(self.passes);
        (0..self.passes).map(move |pass| first.wrapping_add(pass))
    }

    /// Returns the epoch of the inner sampler, and the position in that epoch.
    fn inner_position(&self, epoch: u64, mut position: u64) -> (u64, u64) {
        for pass in self.passes(epoch) {
            let len = self.inner.len(pass);
            if position < len {
                return (pass, position);
            }
            position -= len;
        }
        panic!("position {position} is beyond the end of {} passes", self.passes)
    }
}

impl<O: Sampler> Sampler for Repeat<O> {
    fn len(&self, epoch: u64) -> u64 {
        self.passes(epoch).fold(0, |sum, pass| sum.saturating_add(self.inner.len(pass)))
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        self.occurrence(epoch, position).index
    }

    fn occurrence(&self, epoch: u64, position: u64) -> Occurrence {
        let (pass, position) = self.inner_position(epoch, position);
        self.inner.occurrence(pass, position)
    }

    fn position(&self, epoch: u64, index: u64, from: u64) -> Position {
        let mut pass_start = 0u64;
        for pass in self.passes(epoch) {
            let pass_end = pass_start.saturating_add(self.inner.len(pass));
            if from < pass_end {
                match self.inner.position(pass, index, from.saturating_sub(pass_start)) {
                    Position::At(position) => return Position::At(pass_start + position),
                    Position::Absent => {}
                    Position::Unknown => return Position::Unknown,
                }
            }
            pass_start = pass_end;
        }
        Position::Absent
    }
}

impl<O: UpdatableOrder> UpdatableOrder for Repeat<O> {
    fn with_update(&self, update: Update, first_needed_position: u64) -> Result<(Arc<dyn UpdatableOrder>, u64)> {
        let (inner, effective_position) = self.inner.with_update(update, first_needed_position)?;
        Ok((Arc::new(Repeat::new(self.passes, inner)), effective_position))
    }

    fn history(&self) -> History {
        self.inner.history()
    }

    fn positions_per_epoch(&self) -> u64 {
        self.inner.positions_per_epoch().saturating_mul(self.passes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Shuffled;

    fn all_occurrences(order: &dyn Sampler, epoch: u64) -> Vec<Occurrence> {
        (0..order.len(epoch)).map(|p| order.occurrence(epoch, p)).collect()
    }

    #[test]
    fn passes_are_the_epochs_of_the_inner_order() {
        let inner = Shuffled::new(20, 4);
        let expected = [all_occurrences(&inner, 6), all_occurrences(&inner, 7), all_occurrences(&inner, 8)].concat();
        assert_eq!(all_occurrences(&Repeat::new(3, inner), 2), expected);
    }

    #[test]
    fn epochs_of_changing_length_are_repeated_too() {
        struct Growing;
        impl Sampler for Growing {
            fn len(&self, epoch: u64) -> u64 {
                epoch
            }
            fn index(&self, epoch: u64, position: u64) -> u64 {
                100 * epoch + position
            }
        }
        let samples: Vec<_> = all_occurrences(&Repeat::new(2, Growing), 1).iter().map(|o| o.index).collect();
        assert_eq!(samples, [200, 201, 300, 301, 302]);
    }
}
