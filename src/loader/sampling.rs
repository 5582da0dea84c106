use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::{Input, Loader, Proportions};
use crate::engine::guarded;
use crate::error::{Error, ErrorKind, Result};
use crate::order::{Mixture, Order, Repeat, Sequential, Shuffled, Skip, Subset, Weighted, Windowed};
use crate::source::Source;

/// Which samples come, and in which order.
#[derive(Clone, Default)]
pub(super) struct Sampling {
    shuffle: bool,
    window: Option<u64>,
    order: Option<Arc<dyn Order>>,
    subset: Option<Arc<[u64]>>,
    weights: Option<Weights>,
    repeat: Option<u64>,
    skip: u64,
}

#[derive(Clone)]
enum Weights {
    Given(Arc<[f64]>),
    Balanced,
}

impl Loader {
    /// A loader of several data sets, of which samples are drawn in proportions, such as `[("photos.lmdb", 0.7), ("sketches", 0.3)]`.
    ///
    /// Always shuffled, under the [`seed`](Loader::seed); see [`order::Mixture`](Mixture) for what is kept exactly. An epoch is as many samples
    /// as all the sets have. Samples keep their labels; `batches.source().part(id)` says which set one comes from.
    pub fn mixture<P: AsRef<Path>>(parts: impl IntoIterator<Item = (P, f64)>) -> Self {
        let part = |(path, proportion): (P, f64)| (Input::Path(path.as_ref().to_owned()), proportion);
        Self::from_input(Input::Mixture(parts.into_iter().map(part).collect()))
    }

    /// The same of sources of your own, or ones opened before.
    pub fn mixture_of(parts: impl IntoIterator<Item = (Arc<dyn Source>, f64)>) -> Self {
        let part = |(source, proportion)| (Input::Source(source), proportion);
        Self::from_input(Input::Mixture(parts.into_iter().map(part).collect()))
    }

    /// Delivers the samples in an order that is shuffled anew in each epoch, and sets the [`seed`](Loader::seed). Not shuffled by default.
    ///
    /// It costs no memory and no time at an epoch's start, whatever the number of samples.
    pub fn shuffle(mut self, seed: u64) -> Self {
        self.sampling.shuffle = true;
        self.seed(seed)
    }

    /// Shuffles as [`shuffle`](Loader::shuffle) does, but so that reads stay within windows of about `samples` samples, for media where a random read is dear; see
    /// [`order::Windowed`](Windowed). The larger the window, the better it mixes; at most as much as the memory can hold of the files is useful.
    pub fn shuffle_window(mut self, samples: u64) -> Self {
        self.sampling.window = Some(samples);
        self
    }

    /// An order of your own, in place of [`shuffle`](Loader::shuffle). With a [`subset`](Loader::subset), it is one of places in that.
    pub fn order(mut self, order: impl Order + 'static) -> Self {
        self.sampling.order = Some(Arc::new(order));
        self
    }

    /// Only these samples, by their index in the source, in this order or shuffled. PyTorch's `Subset`.
    ///
    /// A sample listed twice comes twice, augmented differently. Costs 8 bytes for each.
    pub fn subset(mut self, indices: impl IntoIterator<Item = u64>) -> Self {
        self.sampling.subset = Some(indices.into_iter().collect());
        self
    }

    /// Draws samples with replacement, with chances in proportion to `weights`: one for each sample of the source, or of the
    /// [`subset`](Loader::subset). An epoch is as many draws. In place of [`shuffle`](Loader::shuffle), whose seed it uses. PyTorch's
    /// `WeightedRandomSampler`; see [`order::Weighted`](Weighted).
    pub fn weights(mut self, weights: impl IntoIterator<Item = f64>) -> Self {
        self.sampling.weights = Some(Weights::Given(weights.into_iter().collect()));
        self
    }

    /// Draws with [`weights`](Loader::weights) that make every class equally frequent: one over the number of samples of the same label.
    ///
    /// Opening asks for every label: free for a folder, a short read a sample for tar shards and LMDB, and for a source of your own that does not
    /// implement [`Source::label`] reading all of it once, on all workers. A sample without a label is an error.
    pub fn balanced(mut self) -> Self {
        self.sampling.weights = Some(Weights::Balanced);
        self
    }

    /// Makes one epoch of `passes` epochs: epoch e is what epochs `e * passes` to `(e + 1) * passes - 1` would be, without a break between them. 1 by
    /// default, 0 is an error. For sets that are so small that epochs end too often.
    pub fn repeat(mut self, passes: u64) -> Self {
        self.sampling.repeat = Some(passes);
        self
    }

    /// Leaves out the first `batches` batches of every epoch, at no cost. 0 by default. To go on where a run stopped, see [`resume`](Loader::resume).
    pub fn skip(mut self, batches: u64) -> Self {
        self.sampling.skip = batches;
        self
    }
}

impl Sampling {
    /// The order of `source`; of a mixture, with its proportions.
    pub(super) fn open(
        self,
        source: &dyn Source,
        mixture: Option<Proportions>,
        seed: u64,
        global_batch: u64,
        workers: usize,
    ) -> Result<Arc<dyn Order>> {
        let chosen = [
            ("mixture", mixture.is_some()),
            ("order", self.order.is_some()),
            ("weights or balanced", self.weights.is_some()),
            ("shuffle_window", self.window.is_some()),
        ];
        let chosen: Vec<_> = chosen.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
        if let [one, other, ..] = chosen[..] {
            return Err(Error::config(format!("{one} and {other}: each decides the order, so there can be but one")));
        }
        if mixture.is_some() && self.subset.is_some() {
            return Err(Error::config("a subset of a mixture is not supported: make it of the sources first"));
        }

        let len = match &self.subset {
            Some(indices) => {
                let samples = source.len() as u64;
                if let Some(place) = indices.iter().position(|&index| index >= samples) {
                    let index = indices[place];
                    return Err(Error::config(format!(
                        "subset: place {place} is sample {index}; the source has {samples}"
                    )));
                }
                indices.len() as u64
            }
            None => source.len() as u64,
        };
        let mut order: Arc<dyn Order> = if let Some(parts) = mixture {
            Arc::new(Mixture::new(&parts, seed)?)
        } else if let Some(order) = self.order {
            order
        } else if let Some(weights) = &self.weights {
            let weights = weights.of(source, self.subset.as_deref(), workers)?;
            if weights.len() as u64 != len {
                let of = if self.subset.is_some() { "subset" } else { "source" };
                return Err(Error::config(format!("{} weights for the {len} samples of the {of}", weights.len())));
            }
            Arc::new(Weighted::new(&weights, seed)?)
        } else if let Some(window) = self.window {
            if window == 0 {
                return Err(Error::config("shuffle_window(0): a window has at least one sample"));
            }
            Arc::new(Windowed::new(len, seed, window))
        } else if self.shuffle {
            Arc::new(Shuffled::new(len, seed))
        } else {
            Arc::new(Sequential::new(len))
        };
        if let Some(indices) = self.subset {
            order = Arc::new(Subset::new(indices, order)?);
        }
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
}

impl Weights {
    fn of(&self, source: &dyn Source, subset: Option<&[u64]>, workers: usize) -> Result<Cow<'_, [f64]>> {
        match self {
            Weights::Given(weights) => Ok(Cow::Borrowed(weights)),
            Weights::Balanced => {
                let labels = labels(source, subset, workers)?;
                let mut counts = HashMap::<i64, u32>::new();
                labels.iter().for_each(|label| *counts.entry(*label).or_default() += 1);
                Ok(labels.iter().map(|label| 1.0 / f64::from(counts[label])).collect())
            }
        }
    }
}

/// The label of every sample, or of every one of `subset`.
fn labels(source: &dyn Source, subset: Option<&[u64]>, workers: usize) -> Result<Vec<i64>> {
    let label = |scratch: &mut Vec<u8>, place: usize| {
        let index = subset.map_or(place as u64, |indices| indices[place]);
        let label = guarded(|| source.label(index as usize, scratch))
            .and_then(|label| label.ok_or_else(|| Error::source("no label, which balanced() needs")));
        label.map_err(|e| e.at_sample(index, ""))
    };
    let places = subset.map_or(source.len(), <[u64]>::len);
    // The pool is gone before the loader's starts.
    rayon::ThreadPoolBuilder::new()
        .num_threads(workers)
        .build()
        .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start threads: {e}")))?
        .install(|| (0..places).into_par_iter().map_init(Vec::new, label).collect::<Vec<_>>())
        // In order, so that of several bad samples the first is named, whichever thread was faster.
        .into_iter()
        .collect()
}
