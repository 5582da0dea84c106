//! The options that select samples and their order, and the order that results from them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::input::Proportions;
use crate::decode::Size;
use crate::error::{Error, ErrorKind, Result, counted};
use crate::sampler::{
    BatchedOrder, Bucketed, Clock, LastBatch, LiveOrder, Mixture, MixtureOptions, Repeat, Sampler, Sequential,
    Shuffled, Subset, UpdatableOrder, UpdateKind, Weighted, Windowed, WithinSubset,
};
use crate::source::{Join, LabelReader, Source};

#[derive(Clone, Default)]
pub(super) struct Sampling {
    pub(super) is_shuffled: bool,
    pub(super) shuffle_window: Option<u64>,
    pub(super) sampler: Option<Arc<dyn Sampler>>,
    pub(super) subset: Option<Arc<[u64]>>,
    pub(super) weights: Option<Arc<[f64]>>,
    pub(super) is_balanced: bool,
    pub(super) match_labels_by_name: bool,
    pub(super) keep_labels: bool,
    pub(super) repeat: Option<u64>,
    pub(super) buckets: Option<Buckets>,
    pub(super) budget: Option<u64>,
    pub(super) mixture: Option<MixtureOptions>,
}

/// The order of the samples, in up to three forms.
pub(super) struct OpenOrder {
    pub(super) order: Arc<dyn Sampler>,
    /// `Some` if the program may change the order during the run.
    pub(super) live_order: Option<Arc<LiveOrder>>,
    /// `Some` if the order determines the batch boundaries.
    pub(super) batched_order: Option<Arc<dyn BatchedOrder>>,
}

#[derive(Clone)]
pub(super) enum Buckets {
    /// The length of each sample, and the inclusive upper bound of each bucket.
    Lengths { lengths: Arc<[u32]>, bounds: Arc<[u32]> },
    /// The size of each sample's image, and the output size of each bucket.
    Sizes { images: Arc<[Size]>, sizes: Arc<[Size]> },
}

impl Buckets {
    pub(super) fn len(&self) -> usize {
        match self {
            Buckets::Lengths { lengths, .. } => lengths.len(),
            Buckets::Sizes { images, .. } => images.len(),
        }
    }

    fn name(&self, has_budget: bool) -> &'static str {
        match (self, has_budget) {
            (Buckets::Lengths { .. }, false) => "buckets",
            (Buckets::Lengths { .. }, true) => "buckets with a budget",
            (Buckets::Sizes { .. }, false) => "size_buckets",
            (Buckets::Sizes { .. }, true) => "size_buckets with a budget",
        }
    }

    /// Returns the output sizes of size buckets, or an empty slice for buckets by length.
    pub(super) fn sizes(&self) -> &[Size] {
        match self {
            Buckets::Lengths { .. } => &[],
            Buckets::Sizes { sizes, .. } => sizes,
        }
    }

    fn check(&self) -> Result<()> {
        let Buckets::Sizes { sizes, .. } = self else { return Ok(()) };
        if sizes.is_empty() || sizes.len() > MAX_SIZES {
            return Err(Error::config(format!("size_buckets: {} sizes: expected 1 to {MAX_SIZES}", sizes.len())));
        }
        let repeated = sizes.iter().enumerate().find(|(index, size)| sizes[..*index].contains(size));
        if let Some((_, size)) = repeated {
            return Err(Error::config(format!(
                "size_buckets: {}x{} is listed twice: remove one of the two",
                size.width, size.height
            )));
        }
        Ok(())
    }
}

/// Maximum number of image sizes. A device loads kernels for each size.
const MAX_SIZES: usize = 256;

/// Returns the index of the size with the closest aspect ratio on a logarithmic scale. If several
/// sizes are equally close, chooses the largest that has no more pixels than the image, or the
/// smallest if all of them have more. An empty image counts as a square.
fn nearest_size(image: Size, sizes: &[Size]) -> u16 {
    let ratio = |size: &Size| f64::from(size.width.max(1)).ln() - f64::from(size.height.max(1)).ln();
    let (own_ratio, area) = (if image.area() == 0 { 0.0 } else { ratio(&image) }, image.area());
    // Allow for rounding, which must not decide between two sizes with the same aspect ratio.
    let distance = |size: &Size| (ratio(size) - own_ratio).abs();
    let min_distance = sizes.iter().map(distance).fold(f64::INFINITY, f64::min);
    let candidates = sizes.iter().enumerate().filter(|(_, size)| distance(size) <= min_distance + 1e-9);
    let nearest_size = candidates.min_by_key(|(_, size)| match size.area() <= area {
        true => (false, u64::MAX - size.area()),
        false => (true, size.area()),
    });
    nearest_size.map_or(0, |(index, _)| index as u16)
}

impl Sampling {
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

    /// Checks the options, and returns the order of the samples. `global_batch` is the global batch
    /// size.
    pub(super) fn open_order(
        mut self,
        source: &dyn Source,
        mixture: Option<Proportions>,
        seed: u64,
        (global_batch, last_batch): (u64, LastBatch),
        workers: usize,
        retries: usize,
    ) -> Result<OpenOrder> {
        let samples = source.len() as u64;
        self.check(samples, mixture.is_some())?;
        self.check_budget(last_batch)?;
        if mixture.is_none() && self.mixture.is_some() {
            return Err(Error::config("mixture_options: expected a mixture, but this loader has one dataset"));
        }
        // From here on, the weights are indexed by position in the subset.
        if let (Some(weights), Some(indices)) = (&self.weights, &self.subset) {
            self.weights = Some(indices.iter().map(|&index| weights[index as usize]).collect());
        }
        let labels = LabelReader { source, workers, retries, missing_message: "no label, but balanced() requires one" };
        if self.repeat == Some(0) {
            return Err(Error::config("repeat(0): expected at least 1"));
        }
        let clock = Clock { batch_size: global_batch, last_batch, passes: self.repeat.unwrap_or(1) };
        let updatable_order = match &mixture {
            Some(proportions) => {
                Some((UpdateKind::Proportions, self.mixture_order(proportions, seed, clock, &labels)?))
            }
            None => self.weighted_order(0..samples, seed, &labels)?.map(|order| (UpdateKind::Weights, order)),
        };
        if let Some((kind, order)) = updatable_order {
            let order = match self.repeat.filter(|_| kind == UpdateKind::Weights) {
                Some(passes) => Arc::new(Repeat::new(passes, order)),
                None => order,
            };
            let live_order = Arc::new(LiveOrder::new(kind, order, samples, self.subset));
            let batched_order = live_order.batched_order();
            return Ok(OpenOrder { order: live_order.clone(), live_order: Some(live_order), batched_order });
        }
        if let Some(buckets) = &self.buckets {
            let (order, buckets) = self.bucketed_order(buckets, seed, (global_batch, last_batch))?;
            return Ok(OpenOrder { order, live_order: None, batched_order: buckets.batched_order() });
        }
        let order = self.order_within(0..samples, seed, &labels)?;
        let order: Arc<dyn Sampler> = match self.repeat {
            Some(passes) => Arc::new(Repeat::new(passes, order)),
            None => order,
        };
        Ok(OpenOrder { order, live_order: None, batched_order: None })
    }

    fn check(&self, samples: u64, is_mixture: bool) -> Result<()> {
        let buckets = self.buckets.as_ref().map_or("buckets", |buckets| buckets.name(self.budget.is_some()));
        let order_options = [
            ("sampler", self.sampler.is_some()),
            ("weights", self.weights.is_some()),
            ("balanced", self.is_balanced),
            ("shuffle_window", self.shuffle_window.is_some()),
            (buckets, self.buckets.is_some()),
            // Weights and windows can be combined with `shuffle`, because they always shuffle, and
            // `shuffle` sets their seed.
            ("shuffle", self.is_shuffled && self.sampler.is_some()),
        ];
        let order_options: Vec<_> = order_options.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
        if let [first_option, other_option, ..] = order_options[..] {
            return Err(Error::config(format!(
                "{first_option} and {other_option}: each decides the order; set only one of them"
            )));
        }
        if is_mixture && self.sampler.is_some() {
            return Err(Error::config(
                "mixture and sampler: each decides the order. For a custom sampler over several sources, combine them with source::Concat. \
                 For an order within each source, use sampler::Mixture::of",
            ));
        }
        if self.buckets.is_some() && (is_mixture || self.repeat.is_some()) {
            let other_option = if is_mixture { "mixture" } else { "repeat" };
            return Err(Error::config(format!(
                "{buckets} and {other_option} cannot be combined: {other_option} puts samples of different buckets into one batch"
            )));
        }
        if self.shuffle_window == Some(0) {
            return Err(Error::config("shuffle_window(0): expected at least 1"));
        }
        if let Some(indices) = &self.subset
            && let Some(entry) = indices.iter().position(|&index| index >= samples)
        {
            let index = indices[entry];
            return Err(Error::config(format!(
                "subset: entry {entry} is sample {index}, but the source has {}",
                counted(samples, "sample", "samples")
            )));
        }
        if let Some(weights) = &self.weights
            && weights.len() as u64 != samples
        {
            let hint =
                if self.subset.is_some() { "; even with a subset, each sample of the source needs one" } else { "" };
            return Err(Error::config(format!(
                "{}, but the source has {}{hint}",
                counted(weights.len() as u64, "weight", "weights"),
                counted(samples, "sample", "samples")
            )));
        }
        let Some(values) = &self.buckets else { return Ok(()) };
        if values.len() as u64 != samples {
            let (one, several) =
                if values.sizes().is_empty() { ("length", "lengths") } else { ("image size", "image sizes") };
            let buckets = values.name(false);
            return Err(Error::config(format!(
                "{buckets}: {}, but the source has {}",
                counted(values.len() as u64, one, several),
                counted(samples, "sample", "samples")
            )));
        }
        values.check()
    }

    fn check_budget(&self, last_batch: LastBatch) -> Result<()> {
        if last_batch == LastBatch::Pad && self.buckets.as_ref().is_some_and(|buckets| !buckets.sizes().is_empty()) {
            return Err(Error::config(
                "size_buckets and last_batch(Pad): a batch contains images of one size, so its last samples cannot be \
                 replaced by others: use LastBatch::Keep or LastBatch::Drop",
            ));
        }
        let Some(budget) = self.budget else { return Ok(()) };
        if self.buckets.is_none() {
            return Err(Error::config(format!(
                "budget({budget}): the number of samples in a batch depends on their bucket: set buckets as well"
            )));
        }
        if last_batch == LastBatch::Pad {
            return Err(Error::config(format!(
                "budget({budget}) and last_batch(Pad): batches of the same number of samples would exceed the budget: use \
                 LastBatch::Keep or LastBatch::Drop"
            )));
        }
        Ok(())
    }

    fn mixture_order(
        &self,
        proportions: &Proportions,
        seed: u64,
        clock: Clock,
        labels: &LabelReader<'_>,
    ) -> Result<Arc<dyn UpdatableOrder>> {
        let options = self.mixture.clone().unwrap_or_default();
        let mut orders = Vec::with_capacity(proportions.len());
        let mut first = 0;
        for (source_index, &(samples, proportion)) in proportions.iter().enumerate() {
            let range = first..first + samples;
            first = range.end;
            let restricted = self.restrict_to(&range);
            let is_empty = restricted.subset.as_ref().is_some_and(|indices| indices.is_empty());
            let is_drawn = proportion > 0.0 || options.is_scheduled(source_index);
            if is_empty && samples > 0 && is_drawn {
                return Err(Error::config(format!(
                    "mixture and subset: the subset has no sample of source {source_index}, which has the proportion \
                     {proportion}"
                )));
            }
            // `set_mixture` may raise a proportion of 0 later, so such a source needs an order as
            // well. But the program may never raise it, so don't require weights and labels for it.
            let is_ready = is_drawn || !self.is_balanced && self.weights.is_none();
            let order = if !is_empty && is_ready {
                restricted.order_within(range, Mixture::source_seed(seed, source_index), labels).map_err(|e| {
                    match e.kind() {
                        ErrorKind::Config => Error::config(format!("mixture: source {source_index}: {}", e.cause())),
                        // The message already contains the number of the sample.
                        _ => e,
                    }
                })?
            } else {
                // Only the selected samples count toward the length of an epoch.
                let samples = restricted.subset.as_ref().map_or(samples, |indices| indices.len() as u64);
                Arc::new(Sequential::new(samples))
            };
            orders.push((samples, proportion, order, is_ready));
        }
        Ok(Arc::new(Mixture::with_clock(orders, &options, clock, seed)?))
    }

    fn weighted_order(
        &self,
        range: Range<u64>,
        seed: u64,
        labels: &LabelReader<'_>,
    ) -> Result<Option<Arc<dyn UpdatableOrder>>> {
        let order = if let Some(weights) = &self.weights {
            Weighted::new(weights, seed)?
        } else if self.is_balanced {
            Weighted::new(&balancing_weights(&labels.read(&range, self.subset.as_deref())?), seed)?
        } else {
            return Ok(None);
        };
        Ok(Some(match self.indices_within(&range) {
            None => Arc::new(order),
            Some(indices) => Arc::new(Subset::new(indices, order)?),
        }))
    }

    /// Returns the subset, if any, with indices relative to the start of `range`. All indices must
    /// be in `range`.
    fn indices_within(&self, range: &Range<u64>) -> Option<Arc<[u64]>> {
        let indices = self.subset.as_ref()?;
        Some(if range.start == 0 { indices.clone() } else { indices.iter().map(|index| index - range.start).collect() })
    }

    /// Returns the order of the samples as source indices, and the [`Bucketed`] sampler on which
    /// the order is based. With a subset, the `Bucketed` sampler returns positions in the subset.
    fn bucketed_order(
        &self,
        buckets: &Buckets,
        seed: u64,
        (global_batch, last_batch): (u64, LastBatch),
    ) -> Result<(Arc<dyn Sampler>, Arc<Bucketed>)> {
        let order = |indices: Option<&[u64]>| -> Result<Arc<Bucketed>> {
            let order = match buckets {
                Buckets::Lengths { lengths, bounds } => Bucketed::new(&select(lengths, indices), bounds, global_batch)?,
                Buckets::Sizes { images, sizes } => {
                    let images = select(images, indices);
                    let nearest: Vec<u16> = images.iter().map(|image| nearest_size(*image, sizes)).collect();
                    let areas: Vec<u32> = sizes.iter().map(|size| size.area() as u32).collect();
                    Bucketed::by_size(&nearest, &areas, global_batch)?
                }
            };
            let order = if self.is_shuffled { order.shuffled(seed) } else { order };
            // Without a budget, only the batch size limits the number of images of a size.
            let unlimited = (!buckets.sizes().is_empty()).then_some(u64::MAX);
            Ok(Arc::new(match self.budget.or(unlimited) {
                Some(budget) => order.with_budget(budget, last_batch == LastBatch::Drop)?,
                None => order,
            }))
        };
        let order = order(self.subset.as_deref())?;
        Ok(match &self.subset {
            None => (order.clone(), order),
            Some(indices) => (Arc::new(Subset::new(indices.clone(), order.clone())?), order),
        })
    }

    /// Restricts the options to `range`, one dataset of a mixture. The result always shuffles.
    fn restrict_to(&self, range: &Range<u64>) -> Sampling {
        let mut restricted = Sampling { is_shuffled: true, ..self.clone() };
        let positions: Option<Vec<usize>> = self
            .subset
            .as_ref()
            .map(|indices| (0..indices.len()).filter(|&position| range.contains(&indices[position])).collect());
        if let (Some(positions), Some(indices)) = (&positions, &self.subset) {
            restricted.subset = Some(positions.iter().map(|&position| indices[position]).collect());
        }
        if let Some(weights) = &self.weights {
            restricted.weights = Some(match positions {
                Some(positions) => positions.iter().map(|&position| weights[position]).collect(),
                None => weights[range.start as usize..range.end as usize].into(),
            });
        }
        restricted
    }

    /// Returns the order of the samples in `range`. The sampler returns indices relative to the
    /// start of `range`.
    fn order_within(&self, range: Range<u64>, seed: u64, labels: &LabelReader<'_>) -> Result<Arc<dyn Sampler>> {
        if let Some(order) = &self.sampler {
            // Custom samplers return source indices. Mixtures have none, so `range` starts at 0.
            return Ok(match &self.subset {
                None => order.clone(),
                Some(indices) => Arc::new(WithinSubset::new(indices, order.clone())),
            });
        }
        if let Some(order) = self.weighted_order(range.clone(), seed, labels)? {
            return Ok(order);
        }
        let len = self.subset.as_ref().map_or(range.end - range.start, |indices| indices.len() as u64);
        let order: Arc<dyn Sampler> = if let Some(window) = self.shuffle_window {
            Arc::new(Windowed::new(len, seed, window))
        } else if self.is_shuffled {
            Arc::new(Shuffled::new(len, seed))
        } else {
            Arc::new(Sequential::new(len))
        };
        Ok(match self.indices_within(&range) {
            None => order,
            Some(indices) => Arc::new(Subset::new(indices, order)?),
        })
    }
}

fn select<'a, T: Copy>(values: &'a [T], indices: Option<&[u64]>) -> Cow<'a, [T]> {
    match indices {
        None => values.into(),
        Some(indices) => indices.iter().map(|index| values[*index as usize]).collect(),
    }
}

fn balancing_weights(labels: &[i64]) -> Vec<f64> {
    let mut counts = HashMap::<i64, u32>::new();
    labels.iter().for_each(|label| *counts.entry(*label).or_default() += 1);
    labels.iter().map(|label| 1.0 / f64::from(counts[label])).collect()
}
