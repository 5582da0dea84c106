use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::Loader;
use super::input::{Input, Proportions};
use crate::error::{Error, ErrorKind, Result};
use crate::order::{self, Mixture, Order, Repeat, Sequential, Shuffled, Skip, Subset, Weighted, Windowed};
use crate::recipe::retried;
use crate::source::{self, Join, Source};

/// Which samples come, and in which order.
#[derive(Clone, Default)]
pub(super) struct Sampling {
    shuffle: bool,
    window: Option<u64>,
    order: Option<Arc<dyn Order>>,
    subset: Option<Arc<[u64]>>,
    weights: Option<Arc<[f64]>>,
    balanced: bool,
    by_class_name: bool,
    keep_labels: bool,
    repeat: Option<u64>,
    pub(super) skip: u64,
}

impl Loader {
    /// A loader of several data sets, of which samples are drawn in proportions, such as
    /// `[("photos.lmdb", 0.7), ("sketches", 0.3)]`.
    ///
    /// Always shuffled, under the [`seed`](Loader::seed); see [`order::Mixture`](Mixture) for what
    /// is kept exactly: proportions, and that each sample of a set comes as often as any other of
    /// it, in every 10,000 draws. Within those a set of fewer samples than its share of them
    /// repeats some before others have come. An epoch is as many samples as all the sets have.
    /// `batches.source().part(id)` says which set one comes from.
    ///
    /// Samples keep their labels. Sets that give a label different names are refused when the
    /// loader is opened: [`by_class_name`](Loader::by_class_name) and
    /// [`keep_labels`](Loader::keep_labels) say what is meant.
    ///
    /// [`subset`](Loader::subset), [`weights`](Loader::weights), [`balanced`](Loader::balanced) and
    /// [`shuffle_window`](Loader::shuffle_window) choose within each of the sets, and the
    /// proportions stay what they are. Indices and weights run through all the sets, one behind the
    /// other.
    pub fn mixture<P: AsRef<Path>>(parts: impl IntoIterator<Item = (P, f64)>) -> Self {
        let part = |(path, proportion): (P, f64)| (Input::Path(path.as_ref().to_owned()), proportion);
        Self::from_input(Input::Mixture(parts.into_iter().map(part).collect()))
    }

    /// The same of sources of your own, or ones opened before.
    pub fn mixture_of(parts: impl IntoIterator<Item = (Arc<dyn Source>, f64)>) -> Self {
        let part = |(source, proportion)| (Input::Source(source), proportion);
        Self::from_input(Input::Mixture(parts.into_iter().map(part).collect()))
    }

    /// In a [mixture](Loader::mixture), gives the classes of one name one label: its place among
    /// the names of all sets, sorted. See [`Concat::by_class_name`](source::Concat::by_class_name).
    /// [`Batches::classes`](crate::Batches::classes) has these names.
    ///
    /// An error without a mixture, with [`keep_labels`](Loader::keep_labels), or if a set has no
    /// names.
    pub fn by_class_name(mut self) -> Self {
        self.sampling.by_class_name = true;
        self
    }

    /// In a [mixture](Loader::mixture), leaves the labels as they are even if the sets give them
    /// different names. See [`Concat::keep_labels`](source::Concat::keep_labels).
    ///
    /// An error without a mixture, or with [`by_class_name`](Loader::by_class_name).
    pub fn keep_labels(mut self) -> Self {
        self.sampling.keep_labels = true;
        self
    }

    /// Delivers the samples in an order that is shuffled anew in each epoch, and sets the
    /// [`seed`](Loader::seed). Not shuffled by default.
    ///
    /// It costs no memory and no time at an epoch's start, whatever the number of samples.
    pub fn shuffle(mut self, seed: u64) -> Self {
        self.sampling.shuffle = true;
        self.seed(seed)
    }

    /// Shuffles as [`shuffle`](Loader::shuffle) does, but so that reads stay within windows of
    /// about `samples` samples, for media where a random read is dear; see
    /// [`order::Windowed`](Windowed). In a [mixture](Loader::mixture) the windows are those of each
    /// set; those of less than 10,000 samples gain little there. The larger the window, the better
    /// it mixes; at most as much as the memory can hold of the files is useful.
    pub fn shuffle_window(mut self, samples: u64) -> Self {
        self.sampling.window = Some(samples);
        self
    }

    /// An order of your own. It excludes every other choice of an order:
    /// [`shuffle`](Loader::shuffle) (set the [`seed`](Loader::seed) alone),
    /// [`shuffle_window`](Loader::shuffle_window), [`weights`](Loader::weights) and
    /// [`balanced`](Loader::balanced). With a [`subset`](Loader::subset), it is one of places in
    /// that. Its epoch 0 must have a batch, or opening the loader is an error; later ones may be
    /// empty.
    pub fn order(mut self, order: impl Order + 'static) -> Self {
        self.sampling.order = Some(Arc::new(order));
        self
    }

    /// Only these samples, by their index in the source, in this order or shuffled. PyTorch's
    /// `Subset`.
    ///
    /// A sample listed twice comes twice, augmented differently. Costs 8 bytes for each.
    pub fn subset(mut self, indices: impl IntoIterator<Item = u64>) -> Self {
        self.sampling.subset = Some(indices.into_iter().collect());
        self
    }

    /// Splits the data set at random into parts of these `shares`: one loader for each, of the same
    /// options and the same open source. PyTorch's `random_split`.
    ///
    /// Which sample goes where depends on `seed` alone, and not on that of the
    /// [shuffle](Loader::shuffle). A [`subset`](Loader::subset) that was chosen before is what is
    /// split. See [`order::split`].
    ///
    /// ```no_run
    /// use warpfeed::{Augment, Loader};
    ///
    /// let [train, val] = Loader::new("photos").split([0.8, 0.2], 42)?;
    /// let train = train.shuffle(1).augment(Augment::train(224)).host()?;
    /// let val = val.augment(Augment::eval(256, 224)).host()?;
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// As opening the data set; [`ErrorKind::Config`] for shares that are not from 0 to 1 or more
    /// than 1 together, and for a mixture.
    pub fn split<const N: usize>(self, shares: [f64; N], seed: u64) -> Result<[Loader; N]> {
        let (loader, source) = self.opened()?;
        let samples = loader.chosen(&*source);
        loader.parts(order::split(samples, shares, seed)?)
    }

    /// Splits as [`split`](Loader::split) does, each class for itself, so that every part has the
    /// classes in the proportions of the whole: a stratified split. It asks for every label, as
    /// [`balanced`](Loader::balanced) does.
    ///
    /// # Errors
    /// As [`split`](Loader::split); and of a sample without a label.
    pub fn split_by_class<const N: usize>(self, shares: [f64; N], seed: u64) -> Result<[Loader; N]> {
        let (loader, source) = self.opened()?;
        let samples = loader.chosen(&*source);
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let labels = Labels { source: &*source, workers, retries: loader.limits.retries, asked_by: "split_by_class" };
        let labels = labels.of(&(0..source.len() as u64), Some(&samples))?;
        loader.parts(order::split_by_class(samples.into_iter().zip(labels), shares, seed)?)
    }

    /// The loader over its source, which is open now.
    fn opened(self) -> Result<(Loader, Arc<dyn Source>)> {
        if matches!(self.input, Input::Mixture(_)) {
            return Err(Error::config("split: this is a mixture; split its data sets, and mix the parts"));
        }
        let options = self.source_options();
        let (source, _) = self.input.clone().open(&options, None)?;
        Ok((Loader { input: Input::Source(source.clone()), ..self }, source))
    }

    /// The samples that [`subset`](Loader::subset) chose, or all of them.
    fn chosen(&self, source: &dyn Source) -> Vec<u64> {
        self.sampling.subset.as_ref().map_or_else(|| (0..source.len() as u64).collect(), |subset| subset.to_vec())
    }

    fn parts<const N: usize>(self, parts: [Vec<u64>; N]) -> Result<[Loader; N]> {
        Ok(parts.map(|part| self.clone().subset(part)))
    }

    /// Draws samples with replacement, with chances in proportion to `weights`: one for each sample
    /// of the source, or of the [`subset`](Loader::subset). An epoch is as many draws. In place of
    /// [`shuffle`](Loader::shuffle), whose seed it uses. PyTorch's `WeightedRandomSampler`; see
    /// [`order::Weighted`](Weighted).
    pub fn weights(mut self, weights: impl IntoIterator<Item = f64>) -> Self {
        self.sampling.weights = Some(weights.into_iter().collect());
        self
    }

    /// Draws with [`weights`](Loader::weights) that make every class equally frequent: one over the
    /// number of samples of the same label.
    ///
    /// Opening asks for every label: free for a folder, a short read a sample for tar shards and
    /// LMDB, and for a source of your own that does not implement [`Source::label`] reading all of
    /// it once, on all workers. A sample without a label is an error.
    pub fn balanced(mut self) -> Self {
        self.sampling.balanced = true;
        self
    }

    /// Makes one epoch of `passes` epochs: epoch e is what epochs `e * passes` to `(e + 1) * passes - 1` would be, without a break between them. 1 by
    /// default, 0 is an error. For sets that are so small that epochs end too often.
    pub fn repeat(mut self, passes: u64) -> Self {
        self.sampling.repeat = Some(passes);
        self
    }

    /// Leaves out the first `batches` batches of every epoch, at no cost. 0 by default. To go on
    /// where a run stopped, see [`resume`](Loader::resume).
    pub fn skip(mut self, batches: u64) -> Self {
        self.sampling.skip = batches;
        self
    }
}

impl Sampling {
    /// What labels mean where data sets are joined, if that was said.
    pub(super) fn join(&self) -> Result<Option<Join>> {
        match (self.by_class_name, self.keep_labels) {
            (false, false) => Ok(None),
            (true, false) => Ok(Some(Join::ByClassName)),
            (false, true) => Ok(Some(Join::KeepLabels)),
            (true, true) => Err(Error::config(
                "by_class_name and keep_labels: each decides what labels mean, so there can be but one",
            )),
        }
    }

    /// The order of `source`; of a mixture, with its proportions.
    pub(super) fn open(
        self,
        source: &dyn Source,
        mixture: Option<Proportions>,
        seed: u64,
        global_batch: u64,
        workers: usize,
        retries: usize,
    ) -> Result<Arc<dyn Order>> {
        let chosen = [
            ("order", self.order.is_some()),
            ("weights", self.weights.is_some()),
            ("balanced", self.balanced),
            ("shuffle_window", self.window.is_some()),
            // Weights and windows take its seed, and shuffle in any case.
            ("shuffle", self.shuffle && self.order.is_some()),
        ];
        let chosen: Vec<_> = chosen.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
        if let [one, other, ..] = chosen[..] {
            return Err(Error::config(format!("{one} and {other}: each decides the order, so there can be but one")));
        }
        if mixture.is_some() && self.order.is_some() {
            return Err(Error::config(
                "mixture and order: each decides the order. For an order of your own over several sources, join them with source::Concat; \
                 for one within each, make the order with order::Mixture::of",
            ));
        }
        if self.window == Some(0) {
            return Err(Error::config("shuffle_window(0): a window has at least one sample"));
        }
        let samples = source.len() as u64;
        if let Some(indices) = &self.subset
            && let Some(place) = indices.iter().position(|&index| index >= samples)
        {
            let index = indices[place];
            return Err(Error::config(format!("subset: place {place} is sample {index}; the source has {samples}")));
        }
        let len = self.subset.as_ref().map_or(samples, |indices| indices.len() as u64);
        if let Some(weights) = &self.weights
            && weights.len() as u64 != len
        {
            let of = if self.subset.is_some() { "subset" } else { "source" };
            return Err(Error::config(format!("{} weights for the {len} samples of the {of}", weights.len())));
        }

        let labels = Labels { source, workers, retries, asked_by: "balanced" };
        let mut order = match mixture {
            None => self.order_of(0..samples, seed, &labels)?,
            Some(parts) => {
                let mut orders = Vec::with_capacity(parts.len());
                let mut first = 0;
                for (number, (samples, proportion)) in parts.into_iter().enumerate() {
                    let range = first..first + samples;
                    first = range.end;
                    let part = self.within(&range);
                    let order = if proportion > 0.0 && part.subset.as_ref().is_none_or(|indices| !indices.is_empty()) {
                        part.order_of(range, Mixture::seed_within(seed, number), &labels).map_err(|e| {
                            match e.kind() {
                                ErrorKind::Config => Error::config(format!("mixture: source {number}: {}", e.cause())),
                                // Of a sample, which it names.
                                _ => e,
                            }
                        })?
                    } else {
                        // Nothing is drawn, but its samples count for the length of an epoch.
                        Arc::new(Sequential::new(part.subset.as_ref().map_or(samples, |indices| indices.len() as u64)))
                    };
                    orders.push((samples, proportion, order));
                }
                Arc::new(Mixture::of(orders, seed)?)
            }
        };
        match self.repeat {
            Some(0) => return Err(Error::config("repeat(0): an epoch has at least one pass")),
            Some(passes) => order = Arc::new(Repeat::new(passes, order)),
            None => {}
        }
        if self.skip > 0 {
            order = Arc::new(Skip::new(self.skip.saturating_mul(global_batch), order));
        }
        Ok(order)
    }

    /// What of the choice falls on the samples `range` of a mixture, shuffled if nothing else.
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

    /// The order of the samples `range`, as indices that count from its start.
    fn order_of(&self, range: Range<u64>, seed: u64, labels: &Labels<'_>) -> Result<Arc<dyn Order>> {
        let len = self.subset.as_ref().map_or(range.end - range.start, |indices| indices.len() as u64);
        let order: Arc<dyn Order> = if let Some(order) = &self.order {
            order.clone()
        } else if let Some(weights) = &self.weights {
            Arc::new(Weighted::new(weights, seed)?)
        } else if self.balanced {
            Arc::new(Weighted::new(&labels.balanced(&range, self.subset.as_deref())?, seed)?)
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

/// Asks a source for labels.
struct Labels<'a> {
    source: &'a dyn Source,
    workers: usize,
    /// How often a read that failed for a moment is tried again.
    retries: usize,
    /// The option that needs them.
    asked_by: &'static str,
}

impl Labels<'_> {
    /// A weight for every sample of `range`, or every one of `subset`, that makes the classes
    /// equally frequent.
    fn balanced(&self, range: &Range<u64>, subset: Option<&[u64]>) -> Result<Vec<f64>> {
        let labels = self.of(range, subset)?;
        let mut counts = HashMap::<i64, u32>::new();
        labels.iter().for_each(|label| *counts.entry(*label).or_default() += 1);
        Ok(labels.iter().map(|label| 1.0 / f64::from(counts[label])).collect())
    }

    fn of(&self, range: &Range<u64>, subset: Option<&[u64]>) -> Result<Vec<i64>> {
        let Labels { source, workers, retries, asked_by } = *self;
        let label = |scratch: &mut Vec<u8>, place: usize| {
            let index = subset.map_or(range.start + place as u64, |indices| indices[place]);
            let label = retried(retries, index, || true, || source.label(index as usize, scratch))
                .and_then(|label| label.ok_or_else(|| Error::in_source(format!("no label, which {asked_by}() needs"))));
            label.map_err(|e| {
                // What cannot be read has no key to be had either.
                let key = || match e.kind() {
                    ErrorKind::Io | ErrorKind::Panic => Ok(String::new()),
                    _ => Ok(source.read(index as usize, scratch)?.key().to_owned()),
                };
                let key = retried(0, index, || false, key).unwrap_or_default();
                source::blame(source, index as usize, &key, e)
            })
        };
        let places = subset.map_or((range.end - range.start) as usize, <[u64]>::len);
        // The pool is gone before the loader's starts.
        rayon::ThreadPoolBuilder::new()
            .num_threads(workers)
            .build()
            .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start threads: {e}")))?
            .install(|| (0..places).into_par_iter().map_init(Vec::new, label).collect::<Vec<_>>())
            // In order, so that of several bad samples the first is named, whichever thread was
            // faster.
            .into_iter()
            .collect()
    }
}
