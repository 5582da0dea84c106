//! The options that select samples and their order, and the order that they describe.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::input::Proportions;
use crate::error::{Error, ErrorKind, Result};
use crate::sampler::{Bucketed, Mixture, Repeat, Sampler, Sequential, Shuffled, Subset, Weighted, Windowed, Within};
use crate::source::{Join, Labels, Source};

/// The selection of samples and their order.
#[derive(Clone, Default)]
pub(super) struct Sampling {
    pub(super) shuffle: bool,
    pub(super) window: Option<u64>,
    pub(super) order: Option<Arc<dyn Sampler>>,
    pub(super) subset: Option<Arc<[u64]>>,
    pub(super) weights: Option<Arc<[f64]>>,
    pub(super) balanced: bool,
    pub(super) match_labels_by_name: bool,
    pub(super) keep_labels: bool,
    pub(super) repeat: Option<u64>,
    pub(super) buckets: Option<Buckets>,
}

/// Sample lengths, and the bounds of the length buckets.
#[derive(Clone)]
pub(super) struct Buckets {
    pub(super) lengths: Arc<[u32]>,
    pub(super) bounds: Arc<[u32]>,
}

impl Sampling {
    /// Returns how labels of concatenated datasets are combined, if this was set.
    pub(super) fn join(&self) -> Result<Option<Join>> {
        match (self.match_labels_by_name, self.keep_labels) {
            (false, false) => Ok(None),
            (true, false) => Ok(Some(Join::ByClassName)),
            (false, true) => Ok(Some(Join::KeepLabels)),
            (true, true) => {
                Err(Error::config("match_labels_by_name and keep_labels cannot be combined: set only one of them"))
            }
        }
    }

    /// Creates the order for `source`, or for a mixture with these proportions, with a global batch
    /// size of `global_batch`.
    pub(super) fn open(
        mut self,
        source: &dyn Source,
        mixture: Option<Proportions>,
        seed: u64,
        global_batch: u64,
        workers: usize,
        retries: usize,
    ) -> Result<Arc<dyn Sampler>> {
        let samples = source.len() as u64;
        self.check(samples, mixture.is_some())?;
        // From here on, weights refer to positions in the subset.
        if let (Some(weights), Some(indices)) = (&self.weights, &self.subset) {
            self.weights = Some(indices.iter().map(|&index| weights[index as usize]).collect());
        }
        let labels = Labels { source, workers, retries, missing: "no label, but balanced() requires one" };
        let order = match (mixture, &self.buckets) {
            (Some(parts), _) => self.mixed(parts, seed, &labels)?,
            (None, Some(buckets)) => self.bucketed(buckets, seed, global_batch)?,
            (None, None) => self.order_of(0..samples, seed, &labels)?,
        };
        match self.repeat {
            Some(0) => Err(Error::config("repeat(0): expected at least 1")),
            Some(passes) => Ok(Arc::new(Repeat::new(passes, order))),
            None => Ok(order),
        }
    }

    /// Checks that the options do not contradict each other or the number of `samples` in the
    /// source.
    fn check(&self, samples: u64, mixed: bool) -> Result<()> {
        let chosen = [
            ("sampler", self.order.is_some()),
            ("weights", self.weights.is_some()),
            ("balanced", self.balanced),
            ("shuffle_window", self.window.is_some()),
            ("buckets", self.buckets.is_some()),
            // Weights and windows always shuffle, so they can be combined with `shuffle`, which
            // sets their seed.
            ("shuffle", self.shuffle && self.order.is_some()),
        ];
        let chosen: Vec<_> = chosen.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
        if let [one, other, ..] = chosen[..] {
            return Err(Error::config(format!("{one} and {other}: each decides the order; set only one of them")));
        }
        if mixed && self.order.is_some() {
            return Err(Error::config(
                "mixture and sampler: each decides the order. For a custom sampler over several sources, combine them with source::Concat. \
                 For an order within each source, use sampler::Mixture::of",
            ));
        }
        if self.buckets.is_some() && (mixed || self.repeat.is_some()) {
            let other = if mixed { "mixture" } else { "repeat" };
            return Err(Error::config(format!(
                "buckets and {other}: {other} combines samples of different buckets in a batch"
            )));
        }
        if self.window == Some(0) {
            return Err(Error::config("shuffle_window(0): expected at least 1"));
        }
        if let Some(indices) = &self.subset
            && let Some(place) = indices.iter().position(|&index| index >= samples)
        {
            let index = indices[place];
            return Err(Error::config(format!(
                "subset: entry {place} is sample {index}, but the source has {samples} samples"
            )));
        }
        if let Some(weights) = &self.weights
            && weights.len() as u64 != samples
        {
            let also =
                if self.subset.is_some() { "; even with a subset, each sample of the source needs one" } else { "" };
            return Err(Error::config(format!(
                "{} weights for the {samples} samples of the source{also}",
                weights.len()
            )));
        }
        if let Some(Buckets { lengths, .. }) = &self.buckets
            && lengths.len() as u64 != samples
        {
            return Err(Error::config(format!(
                "buckets: {} lengths for the {samples} samples of the source",
                lengths.len()
            )));
        }
        Ok(())
    }

    /// Creates the order for a mixture of `parts`.
    fn mixed(&self, parts: Proportions, seed: u64, labels: &Labels<'_>) -> Result<Arc<dyn Sampler>> {
        let mut orders = Vec::with_capacity(parts.len());
        let mut first = 0;
        for (number, (samples, proportion)) in parts.into_iter().enumerate() {
            let range = first..first + samples;
            first = range.end;
            let part = self.within(&range);
            let is_empty = part.subset.as_ref().is_some_and(|indices| indices.is_empty());
            if is_empty && samples > 0 && proportion > 0.0 {
                return Err(Error::config(format!(
                    "mixture and subset: the subset has no sample of source {number}, whose proportion is {proportion}"
                )));
            }
            let order = if proportion > 0.0 && !is_empty {
                part.order_of(range, Mixture::seed_within(seed, number), labels).map_err(|e| match e.kind() {
                    ErrorKind::Config => Error::config(format!("mixture: source {number}: {}", e.cause())),
                    // The error already names its sample.
                    _ => e,
                })?
            } else {
                // The proportion of this source is 0, but its samples count towards the length of
                // an epoch.
                Arc::new(Sequential::new(part.subset.as_ref().map_or(samples, |indices| indices.len() as u64)))
            };
            orders.push((samples, proportion, order));
        }
        Ok(Arc::new(Mixture::of(orders, seed)?))
    }

    /// Creates the order for the selected samples, grouped into `buckets`.
    fn bucketed(&self, buckets: &Buckets, seed: u64, global_batch: u64) -> Result<Arc<dyn Sampler>> {
        let Buckets { lengths, bounds } = buckets;
        let order = |lengths: &[u32]| -> Result<Bucketed> {
            let order = Bucketed::new(lengths, bounds, global_batch)?;
            Ok(if self.shuffle { order.shuffled(seed) } else { order })
        };
        Ok(match &self.subset {
            None => Arc::new(order(&lengths[..])?),
            Some(indices) => {
                let lengths: Vec<u32> = indices.iter().map(|index| lengths[*index as usize]).collect();
                Arc::new(Subset::new(indices.clone(), order(&lengths)?)?)
            }
        })
    }

    /// Restricts this selection to the samples `range` of a mixture. The result is shuffled by
    /// default.
    fn within(&self, range: &Range<u64>) -> Sampling {
        let mut part = Sampling { shuffle: true, ..self.clone() };
        let places: Option<Vec<usize>> = self
            .subset
            .as_ref()
            .map(|indices| (0..indices.len()).filter(|&place| range.contains(&indices[place])).collect());
        if let (Some(places), Some(indices)) = (&places, &self.subset) {
            part.subset = Some(places.iter().map(|&place| indices[place]).collect());
        }
        if let Some(all) = &self.weights {
            part.weights = Some(match places {
                Some(places) => places.iter().map(|&place| all[place]).collect(),
                None => all[range.start as usize..range.end as usize].into(),
            });
        }
        part
    }

    /// Creates the order for the samples `range`, with indices relative to the start of `range`. A
    /// custom order uses source indices, even with a subset; all other orders use positions in the
    /// subset.
    fn order_of(&self, range: Range<u64>, seed: u64, labels: &Labels<'_>) -> Result<Arc<dyn Sampler>> {
        if let Some(order) = &self.order {
            // A mixture cannot have a custom order, so `range` starts at 0 and these are source
            // indices.
            return Ok(match &self.subset {
                None => order.clone(),
                Some(indices) => Arc::new(Within::new(indices, order.clone())),
            });
        }
        let len = self.subset.as_ref().map_or(range.end - range.start, |indices| indices.len() as u64);
        let order: Arc<dyn Sampler> = if let Some(weights) = &self.weights {
            Arc::new(Weighted::new(weights, seed)?)
        } else if self.balanced {
            Arc::new(Weighted::new(&balancing(&labels.of(&range, self.subset.as_deref())?), seed)?)
        } else if let Some(window) = self.window {
            Arc::new(Windowed::new(len, seed, window))
        } else if self.shuffle {
            Arc::new(Shuffled::new(len, seed))
        } else {
            Arc::new(Sequential::new(len))
        };
        Ok(match &self.subset {
            None => order,
            Some(indices) if range.start == 0 => Arc::new(Subset::new(indices.clone(), order)?),
            Some(indices) => {
                let inside: Arc<[u64]> = indices.iter().map(|index| index - range.start).collect();
                Arc::new(Subset::new(inside, order)?)
            }
        })
    }
}

/// Returns weights that make the classes in `labels` equally frequent.
fn balancing(labels: &[i64]) -> Vec<f64> {
    let mut counts = HashMap::<i64, u32>::new();
    labels.iter().for_each(|label| *counts.entry(*label).or_default() += 1);
    labels.iter().map(|label| 1.0 / f64::from(counts[label])).collect()
}
