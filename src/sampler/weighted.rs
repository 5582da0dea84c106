//! Draws samples with replacement, using the alias method.

use std::panic::resume_unwind;
use std::sync::Arc;

use super::live_order::{History, UpdatableOrder, Update};
use super::rng::{Rng, mix};
use super::{Occurrence, Sampler};
use crate::error::{Error, Result, counted};

/// A sampler that draws samples with replacement, with probabilities proportional to their
/// weights, like PyTorch's `WeightedRandomSampler`.
///
/// The draw at a position is a function of (seed, epoch, position). It uses the alias method
/// (Walker, 1977), with a table built as in Vose, "A linear algorithm for generating random numbers
/// with a given distribution", 1991. A draw takes one lookup in the table, which uses 16 bytes per
/// sample. If a sample is drawn several times, it is augmented differently each time. Draws with
/// replacement have no constant-time inverse, so [`position`](Sampler::position) returns
/// [`Unknown`](super::Position::Unknown).
#[derive(Debug, Clone)]
pub struct Weighted {
    /// One table for each set of weights, in increasing order of the positions at which they take
    /// effect.
    tables: Vec<Table>,
    /// The first position for which the weights are still stored.
    recomputable_from: u64,
    draws: u64,
    seed: u64,
}

/// The alias table for the weights from position `from` onward.
#[derive(Debug, Clone)]
struct Table {
    from: u64,
    cells: Arc<Vec<Cell>>,
    /// `None` for the first weights.
    update: Option<Arc<Update>>,
}

/// A cell of the alias table. A draw from cell `i` returns sample `i` with probability
/// `probability`, and sample `alias` otherwise.
#[derive(Debug, Clone, Copy)]
struct Cell {
    probability: f64,
    alias: u64,
}

impl Weighted {
    /// Creates the sampler from one weight per sample. The number of draws per epoch is the number
    /// of samples. The weights need not sum to 1. A sample with weight 0 is never drawn.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if a weight is negative or not finite, or if
    /// no weight is greater than 0.
    pub fn new(weights: &[f64], seed: u64) -> Result<Self> {
        let cells = Self::build_cells(weights)?;
        let draws = cells.len() as u64;
        let table = Table { from: 0, cells: Arc::new(cells), update: None };
        Ok(Weighted { tables: vec![table], recomputable_from: 0, draws, seed })
    }

    fn build_cells(weights: &[f64]) -> Result<Vec<Cell>> {
        if let Some(index) = weights.iter().position(|w| !w.is_finite() || *w < 0.0) {
            return Err(Error::config(format!(
                "weights: weight {index} is {}: expected a finite number of at least 0",
                weights[index]
            )));
        }
        // Dividing by the largest weight first keeps the sum of large weights finite.
        let largest = weights.iter().copied().fold(0.0, f64::max);
        if largest == 0.0 {
            return Err(Error::config(format!("weights: all {} weights are 0", weights.len())));
        }
        let sum: f64 = weights.iter().map(|w| w / largest).sum();
        let mean = sum / weights.len() as f64;
        // Each cell must have the mean weight. Cells above it fill up the cells below it.
        let mut cells: Vec<_> = weights
            .iter()
            .enumerate()
            .map(|(i, w)| Cell { probability: w / largest / mean, alias: i as u64 })
            .collect();
        // Two stacks: from the left, the cells below the mean; from the right, all others.
        let (mut stacks, mut small_end, mut large_start) = (vec![0; cells.len()], 0, cells.len());
        for (i, cell) in cells.iter().enumerate() {
            if cell.probability < 1.0 {
                stacks[small_end] = i;
                small_end += 1;
            } else {
                large_start -= 1;
                stacks[large_start] = i;
            }
        }
        while small_end > 0 && large_start < cells.len() {
            small_end -= 1;
            let (small, large) = (stacks[small_end], stacks[large_start]);
            cells[small].alias = large as u64;
            cells[large].probability -= 1.0 - cells[small].probability;
            if cells[large].probability < 1.0 {
                large_start += 1;
                stacks[small_end] = large;
                small_end += 1;
            }
        }
        // Except for rounding errors, each remaining cell has the mean weight. A sample with weight
        // 0 must never be drawn, so its cell goes to the heaviest sample.
        let heaviest = weights.iter().position(|w| *w == largest).expect("the largest weight is in the list") as u64;
        for &i in stacks[..small_end].iter().chain(&stacks[large_start..]) {
            cells[i] = if weights[i] > 0.0 {
                Cell { probability: 1.0, alias: i as u64 }
            } else {
                Cell { probability: 0.0, alias: heaviest }
            };
        }
        Ok(cells)
    }

    /// Returns the alias table at a position. If the weights of this position are no longer stored,
    /// panics with an [`Error`](crate::Error) as the payload, without calling the panic hook.
    fn cells_at(&self, epoch: u64, position: u64) -> &[Cell] {
        if let ([table], 0) = (&self.tables[..], self.recomputable_from) {
            return &table.cells;
        }
        let draw = epoch.wrapping_mul(self.draws).wrapping_add(position);
        if draw < self.recomputable_from {
            resume_unwind(Box::new(Error::config(format!(
                "the weights of epoch {epoch} are no longer known: after set_weights, only the weights of the epoch in \
                 progress and of later epochs are known; open the loader again with the weights of this epoch"
            ))));
        }
        let table = self.tables.partition_point(|table| table.from <= draw) - 1;
        &self.tables[table].cells
    }

    /// Sets the number of draws per epoch.
    #[must_use]
    pub fn draws(mut self, draws: u64) -> Self {
        self.draws = draws;
        self
    }
}

impl Sampler for Weighted {
    fn len(&self, _epoch: u64) -> u64 {
        self.draws
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        // The augmentation of sample `position` uses the seed itself, so draws need a different
        // seed.
        let mut rng = Rng::new(mix(self.seed ^ 0x6a09_e667_f3bc_c908), epoch, position);
        let cells = self.cells_at(epoch, position);
        let cell = rng.below(cells.len() as u64);
        let Cell { probability, alias: other } = cells[cell as usize];
        if rng.unit() < probability { cell } else { other }
    }

    fn occurrence(&self, epoch: u64, position: u64) -> Occurrence {
        let variant = mix(mix(epoch ^ 0xbb67_ae85_84ca_a73b) ^ position);
        Occurrence { index: self.index(epoch, position), variant }
    }
}

impl UpdatableOrder for Weighted {
    fn with_update(&self, update: Update, first_needed_position: u64) -> Result<(Arc<dyn UpdatableOrder>, u64)> {
        let (samples, from) = (self.tables[0].cells.len(), update.from);
        if update.values.len() != samples {
            let given = counted(update.values.len() as u64, "weight", "weights");
            let expected = counted(samples as u64, "sample", "samples");
            return Err(Error::config(format!("set_weights: {given}, but {expected}")));
        }
        let cells = Arc::new(Self::build_cells(&update.values)?);
        let mut changed = self.clone();
        changed.tables.retain(|table| table.from < from);
        changed.tables.push(Table { from, cells, update: Some(Arc::new(update)) });
        changed.recomputable_from = changed.recomputable_from.min(from);
        let superseded_count =
            changed.tables.partition_point(|table| table.from <= first_needed_position).saturating_sub(1);
        if superseded_count > 0 {
            changed.tables.drain(..superseded_count);
            changed.recomputable_from = changed.recomputable_from.max(first_needed_position);
        }
        Ok((Arc::new(changed), from))
    }

    fn history(&self) -> History {
        let updates = self.tables.iter().filter_map(|table| table.update.as_deref().cloned()).collect();
        History { updates, recomputable_from: self.recomputable_from }
    }

    fn positions_per_epoch(&self) -> u64 {
        self.draws
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_in_proportion_to_the_weights() {
        let weights = [0.0, 1.0, 2.5, 0.01, 7.0, 0.0, 1e-3, 40.0, 3.0, 1.0];
        for scale in [1.0, 1e300, 1e-300] {
            let scaled: Vec<_> = weights.iter().map(|w| w * scale).collect();
            let order = Weighted::new(&scaled, 3).unwrap().draws(200_000);
            let mut counts = [0u32; 10];
            (0..2).for_each(|epoch| (0..200_000).for_each(|p| counts[order.index(epoch, p) as usize] += 1));
            assert_eq!((counts[0], counts[5]), (0, 0));
            let sum: f64 = weights.iter().sum();
            let chi2: f64 = (0..10).filter(|&i| weights[i] > 0.0).fold(0.0, |chi2, i| {
                let expected = 400_000.0 * weights[i] / sum;
                chi2 + (f64::from(counts[i]) - expected).powi(2) / expected
            });
            // With 7 degrees of freedom, the probability of values above 24.3 is less than 0.001.
            assert!(chi2 < 24.3, "chi-square {chi2:.1} of {counts:?}");
        }
    }

    #[test]
    fn equal_weights_are_drawn_equally_with_a_new_variant_each_time() {
        let order = Weighted::new(&[0.3; 3], 1).unwrap();
        assert_eq!(order.len(0), 3);
        let order = order.draws(3000);
        let ones = (0..3000).filter(|&p| order.index(0, p) == 1).count();
        assert!((880..1120).contains(&ones), "{ones} of 3000");
        let variants: std::collections::HashSet<_> = (0..3)
            .flat_map(|epoch| (0..3000).map(move |p| (epoch, p)))
            .map(|(e, p)| order.occurrence(e, p).variant)
            .collect();
        assert_eq!(variants.len(), 9000);
    }

    #[test]
    fn invalid_weights_are_refused() {
        let check_refused = |weights: &[f64], words: &str| {
            let e = Weighted::new(weights, 0).unwrap_err().to_string();
            assert!(e.contains(words), "{e}");
        };
        check_refused(&[1.0, -0.5], "weight 1 is -0.5");
        check_refused(&[f64::NAN], "weight 0 is NaN");
        check_refused(&[1.0, 2.0, f64::INFINITY], "weight 2 is inf");
        check_refused(&[0.0, 0.0], "all 2 weights are 0");
        check_refused(&[], "all 0 weights are 0");
    }
}
