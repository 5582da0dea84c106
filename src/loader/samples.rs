use std::sync::Arc;

use super::Loader;
use super::input::Input;
use super::sampling::Buckets;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::sampler::{self, Sampler};
#[cfg(doc)]
use crate::sampler::{Bucketed, Mixture, Weighted, Windowed};
#[cfg(doc)]
use crate::source;
use crate::source::{Dataset, Labels, Source};

/// The choice of samples and their order.
impl Loader {
    /// Creates a loader of several datasets. Samples are drawn from them in the given proportions.
    /// A dataset is a path or an open source.
    ///
    /// ```no_run
    /// # use warpfeed::{Loader, source};
    /// let paths = Loader::mixture([("photos.lmdb", 0.7), ("sketches", 0.3)]).seed(42);
    /// let open = Loader::mixture([(source::open("photos.lmdb")?, 0.7), (source::open("sketches")?, 0.3)]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// [`Dataset::from`] joins paths and sources in one list.
    ///
    /// A mixture is always shuffled, under the [`seed`](Loader::seed). In every 10,000 draws the
    /// proportions are exact, and each sample of a set comes equally often, ±1; see
    /// [`sampler::Mixture`](Mixture). A set with fewer samples than its share of 10,000 repeats some
    /// before others have come. An epoch has as many draws as there are samples in all sets.
    /// `batches.source().part(id)` returns the set of a sample.
    ///
    /// Samples keep their labels. If two sets give one label different names, opening fails unless
    /// [`match_labels_by_name`](Loader::match_labels_by_name) or [`keep_labels`](Loader::keep_labels) is set.
    ///
    /// [`subset`](Loader::subset), [`weights`](Loader::weights), [`balanced`](Loader::balanced) and
    /// [`shuffle_window`](Loader::shuffle_window) choose within each set. The proportions stay the
    /// same. Indices and weights count through all sets, one after the other.
    pub fn mixture(parts: impl IntoIterator<Item = (impl Into<Dataset>, f64)>) -> Self {
        let part = |(data, proportion): (_, f64)| (Into::<Dataset>::into(data).into(), proportion);
        Self::from_input(Input::Mixture(parts.into_iter().map(part).collect()))
    }

    /// In a [mixture](Loader::mixture), classes of one name get one label. The label is the name's
    /// place among the sorted names of all sets. See
    /// [`Concat::match_labels_by_name`](source::Concat::match_labels_by_name).
    /// [`Batches::classes`](crate::Batches::classes) returns these names.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::mixture([("photos", 0.7), ("sketches", 0.3)]).match_labels_by_name();
    /// ```
    ///
    /// Opening is an error without a mixture, together with [`keep_labels`](Loader::keep_labels),
    /// or if a set has no class names.
    pub fn match_labels_by_name(mut self) -> Self {
        self.sampling.match_labels_by_name = true;
        self
    }

    /// In a [mixture](Loader::mixture), labels stay as they are, even if the sets give them
    /// different names. See [`Concat::keep_labels`](source::Concat::keep_labels).
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::mixture([("english", 0.5), ("german", 0.5)]).keep_labels();
    /// ```
    ///
    /// Opening is an error without a mixture, or together with
    /// [`match_labels_by_name`](Loader::match_labels_by_name).
    pub fn keep_labels(mut self) -> Self {
        self.sampling.keep_labels = true;
        self
    }

    /// Shuffles the samples differently in each epoch, and sets the [`seed`](Loader::seed). Off by
    /// default.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").shuffle(42);
    /// ```
    ///
    /// For any number of samples, the shuffle takes no memory, and an epoch starts at once.
    pub fn shuffle(mut self, seed: u64) -> Self {
        self.sampling.shuffle = true;
        self.seed(seed)
    }

    /// Shuffles as [`shuffle`](Loader::shuffle) does, but reads stay within windows of about
    /// `samples` samples. It suits media with slow random reads; see [`sampler::Windowed`](Windowed).
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let hard_disk = Loader::new("train.tar").shuffle_window(50_000).seed(42);
    /// ```
    ///
    /// Larger windows mix better, but reads gain nothing from windows that exceed the page cache.
    /// In a [mixture](Loader::mixture) each set has windows of its own, and windows below 10,000
    /// samples gain little.
    pub fn shuffle_window(mut self, samples: u64) -> Self {
        self.sampling.window = Some(samples);
        self
    }

    /// Sets an order of your own.
    ///
    /// ```
    /// # use warpfeed::{Loader, sampler::Sampler};
    /// /// The first 1,000 samples, backwards.
    /// struct Backwards;
    ///
    /// impl Sampler for Backwards {
    ///     fn len(&self, _epoch: u64) -> u64 {
    ///         1000
    ///     }
    ///     fn index(&self, _epoch: u64, position: u64) -> u64 {
    ///         999 - position
    ///     }
    /// }
    /// let loader = Loader::new("train").sampler(Backwards);
    /// ```
    ///
    /// It excludes every other choice of an order: [`shuffle`](Loader::shuffle),
    /// [`shuffle_window`](Loader::shuffle_window), [`weights`](Loader::weights),
    /// [`balanced`](Loader::balanced) and mixtures. Set the [`seed`](Loader::seed) separately. The
    /// order gives the numbers that samples have in the whole source, as
    /// [`BatchInfo::ids`](crate::BatchInfo::ids) returns them, also with a
    /// [`subset`](Loader::subset). A sample that is not in the subset is then an error of its batch.
    /// Opening is an error if epoch 0 has no batch. Later epochs may be empty.
    pub fn sampler(mut self, order: impl Sampler + 'static) -> Self {
        self.sampling.order = Some(Arc::new(order));
        self
    }

    /// Delivers only these samples, given by their index in the source, in this order or shuffled.
    /// Like PyTorch's `Subset`.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let every_tenth = Loader::new("train").subset((0..50_000).step_by(10)).shuffle(42);
    /// ```
    ///
    /// A sample that is listed twice comes twice, with different augmentation. Each index takes 8
    /// bytes. A subset does not number samples anew: ids of batches, and all other options, count in
    /// the source.
    pub fn subset(mut self, indices: impl IntoIterator<Item = u64>) -> Self {
        self.sampling.subset = Some(indices.into_iter().collect());
        self
    }

    /// Splits the dataset at random into parts of these `shares`. Each part is a loader with the
    /// same options and the same open source. Like PyTorch's `random_split`.
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
    /// `seed` alone decides which sample goes where; the seed of [`shuffle`](Loader::shuffle) does
    /// not matter. If [`subset`](Loader::subset) was called before, the subset is split. See
    /// [`sampler::split`].
    ///
    /// # Errors
    /// As opening the dataset. [`ErrorKind::Config`] for a share outside 0 to 1, for shares of
    /// more than 1 together, and for a mixture.
    pub fn split<const N: usize>(self, shares: [f64; N], seed: u64) -> Result<[Loader; N]> {
        let (loader, source) = self.opened()?;
        let samples = loader.chosen(&*source);
        loader.parts(sampler::split(samples, shares, seed)?)
    }

    /// Splits each class separately, as [`split`](Loader::split) does: a stratified split. Every
    /// part has the classes in the proportions of the whole. All labels are read, as for
    /// [`balanced`](Loader::balanced).
    ///
    /// ```no_run
    /// # use warpfeed::Loader;
    /// let [train, val, test] = Loader::new("photos").split_by_class([0.8, 0.1, 0.1], 42)?;
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`split`](Loader::split), and for a sample without a label.
    pub fn split_by_class<const N: usize>(self, shares: [f64; N], seed: u64) -> Result<[Loader; N]> {
        let (loader, source) = self.opened()?;
        let samples = loader.chosen(&*source);
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let missing = "no label, which split_by_class() needs";
        let labels = Labels { source: &*source, workers, retries: loader.images.retries, missing };
        let labels = labels.of(&(0..source.len() as u64), Some(&samples))?;
        loader.parts(sampler::split_by_class(samples.into_iter().zip(labels), shares, seed)?)
    }

    /// Opens the source, and returns it with a loader over it.
    fn opened(self) -> Result<(Loader, Arc<dyn Source>)> {
        if matches!(self.input, Input::Mixture(_)) {
            return Err(Error::config("split: this is a mixture; split its datasets, and mix the parts"));
        }
        let options = self.source_options()?;
        let (source, _) = self.input.clone().open(&options, None)?;
        // The options for opening have been used.
        let loader = Loader { input: Input::Source(source.clone()), opened: None, indexed: false, masks: None, ..self };
        #[cfg(feature = "tables")]
        let loader = loader.table(crate::source::TableOptions::new());
        Ok((loader, source))
    }

    /// The samples that [`subset`](Loader::subset) chose, or all of them.
    fn chosen(&self, source: &dyn Source) -> Vec<u64> {
        self.sampling.subset.as_ref().map_or_else(|| (0..source.len() as u64).collect(), |subset| subset.to_vec())
    }

    fn parts<const N: usize>(self, parts: [Vec<u64>; N]) -> Result<[Loader; N]> {
        Ok(parts.map(|part| self.clone().subset(part)))
    }

    /// Draws samples with replacement, with probabilities in proportion to `weights`. Like
    /// PyTorch's `WeightedRandomSampler`; see [`sampler::Weighted`](Weighted).
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let hard_samples_twice = (0..50_000).map(|i| if i % 10 == 0 { 2.0 } else { 1.0 });
    /// let loader = Loader::new("train").weights(hard_samples_twice).seed(42);
    /// ```
    ///
    /// Give one weight for each sample of the source, also with a [`subset`](Loader::subset), which
    /// restricts the draws to its samples. An epoch has as many draws as the source or the subset has
    /// samples. The draws depend on the
    /// [`seed`](Loader::seed); [`shuffle`](Loader::shuffle) changes only the seed.
    pub fn weights(mut self, weights: impl IntoIterator<Item = f64>) -> Self {
        self.sampling.weights = Some(weights.into_iter().collect());
        self
    }

    /// Draws samples so that every class is equally frequent. The [weight](Loader::weights) of a
    /// sample is one over the number of samples with its label.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").balanced().seed(42);
    /// ```
    ///
    /// Opening reads every label. That is free for a folder, and one short read per sample for tar
    /// shards and LMDB. A source of your own without [`Source::label`] is read once in full, on all
    /// workers. A sample without a label is an error.
    pub fn balanced(mut self) -> Self {
        self.sampling.balanced = true;
        self
    }

    /// Puts samples of similar lengths into the same batches, so that rows that are cut to the
    /// longest sample of their batch have little padding. See [`sampler::Bucketed`](Bucketed).
    ///
    /// ```no_run
    /// use warpfeed::field::Ragged;
    /// use warpfeed::{Dtype, Loader};
    ///
    /// # fn number_of_tokens(document: usize) -> u32 { 1 }
    /// let lengths = (0..50_000).map(number_of_tokens);
    /// let loader = Loader::new("documents.tar").drop_field("image").drop_field("label").shuffle(1);
    /// let loader = loader.field("tokens.npy", Ragged::new(Dtype::I64, [], 512)).buckets(lengths, [64, 128, 256]);
    /// let mut batches = loader.host()?;
    /// for batch in batches.epoch(0) {
    ///     let batch = batch?;
    ///     let longest = batch.counts("tokens.npy").and_then(|counts| counts.iter().max());
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// `lengths` has one number for each sample of the source, also with a
    /// [`subset`](Loader::subset). Its unit is yours. `bounds` are the lengths at which a bucket
    /// ends, in increasing order. [`shuffle`](Loader::shuffle) shuffles the samples within each
    /// bucket, and then the batches. Other lengths than samples, and bounds that do not increase,
    /// are errors of opening.
    pub fn buckets(mut self, lengths: impl IntoIterator<Item = u32>, bounds: impl IntoIterator<Item = u32>) -> Self {
        let (lengths, bounds) = (lengths.into_iter().collect(), bounds.into_iter().collect());
        self.sampling.buckets = Some(Buckets { lengths, bounds });
        self
    }

    /// Combines `passes` passes into one epoch, for small datasets. Epoch e consists of the former
    /// epochs `e * passes` to `(e + 1) * passes - 1`, without a break between them. 1 by default; 0
    /// is an error.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let cifar = Loader::new("cifar10/train").shuffle(42).repeat(10);
    /// ```
    pub fn repeat(mut self, passes: u64) -> Self {
        self.sampling.repeat = Some(passes);
        self
    }
}
