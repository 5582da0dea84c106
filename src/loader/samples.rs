//! Setters for the selection of samples and their order.

use std::sync::Arc;

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::Loader;
use super::input::Input;
use super::sampling::Buckets;
use crate::decode::Size;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::field::{AnyFieldType, FieldWriter, Image};
use crate::recipe::check_sample_size;
use crate::sampler::{self, MixtureOptions, Rng, Sampler};
#[cfg(doc)]
use crate::sampler::{Bucketed, Mixture, Weighted, Windowed};
use crate::source::{self, Dataset, LabelReader, Source};
use crate::transform::Augment;

/// Setters for the selection of samples and their order.
impl Loader {
    /// Creates a loader that draws samples from several datasets, in the given proportions. Each
    /// dataset is a path or an open source.
    ///
    /// ```no_run
    /// # use warpfeed::{Loader, source};
    /// let paths = Loader::mixture([("photos.lmdb", 0.7), ("sketches", 0.3)]).seed(42);
    /// let open = Loader::mixture([(source::open("photos.lmdb")?, 0.7), (source::open("sketches")?, 0.3)]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// If a list contains both paths and sources, convert them with [`Dataset::from`].
    ///
    /// A mixture is always shuffled with the [`seed`](Loader::seed). By default, each round of
    /// 10,000 draws has these proportions, rounded to whole draws. After each round, the draw
    /// counts of any two samples of a dataset differ by at most 1, unless weights are set; see
    /// [`sampler::Mixture`](Mixture). Within a round, a dataset that is smaller than its share
    /// repeats some samples before it has used all of them. By default, the number of draws per
    /// epoch is the total number of selected samples in all datasets.
    /// `batches.source().dataset_index(id)` returns the index of the dataset that contains sample
    /// `id`.
    ///
    /// Samples keep their labels. If two datasets have different class names for the same label,
    /// opening fails unless [`match_labels_by_name`](Loader::match_labels_by_name),
    /// [`keep_labels`](Loader::keep_labels) or [`classes`](Loader::classes) is set.
    ///
    /// [`subset`](Loader::subset), [`weights`](Loader::weights), [`balanced`](Loader::balanced) and
    /// [`shuffle_window`](Loader::shuffle_window) apply within each dataset, without changing the
    /// proportions. Indices and weights refer to the concatenation of all datasets.
    pub fn mixture(parts: impl IntoIterator<Item = (impl Into<Dataset>, f64)>) -> Self {
        let part = |(data, proportion): (_, f64)| (Into::<Dataset>::into(data).into(), proportion);
        Self::from_input(Input::Mixture(parts.into_iter().map(part).collect()))
    }

    /// Sets the options of a [mixture](Loader::mixture): a schedule for the proportions, the number
    /// of draws per round, which datasets are repeated, whether a batch may contain samples of
    /// several datasets, and the batch size of each dataset.
    ///
    /// ```
    /// use warpfeed::Loader;
    /// use warpfeed::sampler::{At, MixtureOptions};
    ///
    /// let options = MixtureOptions::new().cosine(At::Step(1000), At::Step(50_000), [0.1, 0.9]);
    /// let loader = Loader::mixture([("photos", 0.7), ("sketches", 0.3)]).mixture_options(options);
    /// ```
    ///
    /// Opening fails if the loader is not a mixture. To change the proportions during training,
    /// call [`Batches::set_mixture`](crate::Batches::set_mixture).
    pub fn mixture_options(mut self, options: MixtureOptions) -> Self {
        self.sampling.mixture = Some(options);
        self
    }

    /// Sets the augmentation of the dataset with index `dataset` in a [mixture](Loader::mixture).
    /// Other datasets use [`augment`](Loader::augment).
    ///
    /// ```
    /// # use warpfeed::{Augment, Loader};
    /// let loader = Loader::mixture([("photos", 0.7), ("sketches", 0.3)]).augment(Augment::train(224));
    /// let loader = loader.augment_for(1, Augment::eval(256, 224));
    /// ```
    ///
    /// The augmentation of a sample is the same as in a loader with this augmentation for all
    /// datasets. If images are [combined](Augment::mosaic) with other samples of the epoch,
    /// possibly from other datasets, the augmentation of the first sample applies to all of them.
    /// Image fields with their own augmentation are not affected.
    ///
    /// Opening fails if the loader is not a mixture, if the dataset does not exist, or if
    /// [`views`](Loader::views) replace the image. All datasets must have the same image size in
    /// every epoch and, because a batch is mixed as a whole, the same [`mix`](Augment::mix).
    pub fn augment_for(mut self, dataset: usize, augment: Augment) -> Self {
        self.own_augments.insert(dataset, augment);
        self
    }

    /// Numbers the classes of a [mixture](Loader::mixture) by name, so that classes with the same
    /// name have the same label in all datasets. The label is the index of the name in the sorted
    /// list of all class names, which [`Batches::classes`](crate::Batches::classes) returns. See
    /// [`Concat::match_labels_by_name`](source::Concat::match_labels_by_name).
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::mixture([("photos", 0.7), ("sketches", 0.3)]).match_labels_by_name();
    /// ```
    ///
    /// Opening fails if the loader is not a mixture, if [`keep_labels`](Loader::keep_labels) or
    /// [`classes`](Loader::classes) is also set, or if a dataset has samples but no class names.
    pub fn match_labels_by_name(mut self) -> Self {
        self.sampling.match_labels_by_name = true;
        self
    }

    /// Keeps the labels of each dataset of a [mixture](Loader::mixture), even if the same label has
    /// different class names in different datasets. See
    /// [`Concat::keep_labels`](source::Concat::keep_labels).
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::mixture([("english", 0.5), ("german", 0.5)]).keep_labels();
    /// ```
    ///
    /// Opening fails if the loader is not a mixture, or if
    /// [`match_labels_by_name`](Loader::match_labels_by_name) or [`classes`](Loader::classes) is
    /// also set.
    pub fn keep_labels(mut self) -> Self {
        self.sampling.keep_labels = true;
        self
    }

    /// Shuffles the samples in each epoch, and sets the [`seed`](Loader::seed). Off by default.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").shuffle(42);
    /// ```
    ///
    /// Shuffling needs no memory per sample, and does not delay the start of an epoch.
    pub fn shuffle(mut self, seed: u64) -> Self {
        self.sampling.is_shuffled = true;
        self.seed(seed)
    }

    /// Shuffles blocks of consecutive samples, and then the samples within windows of several
    /// blocks. A window has about `samples` samples. Reads stay within the blocks of a window,
    /// which helps storage with slow random reads; see [`sampler::Windowed`](Windowed).
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let hard_disk = Loader::new("train.tar").shuffle_window(50_000).seed(42);
    /// ```
    ///
    /// Larger windows shuffle better, but reading is no faster than with a full shuffle if a window
    /// exceeds the page cache. In a [mixture](Loader::mixture), each dataset has its own windows,
    /// and windows with fewer than 10,000 samples barely make reading faster.
    pub fn shuffle_window(mut self, samples: u64) -> Self {
        self.sampling.shuffle_window = Some(samples);
        self
    }

    /// Sets a custom sampler, which determines the order of the samples.
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
    /// Opening fails if a custom sampler is combined with [`shuffle`](Loader::shuffle),
    /// [`shuffle_window`](Loader::shuffle_window), [`weights`](Loader::weights),
    /// [`balanced`](Loader::balanced), [`buckets`](Loader::buckets),
    /// [`size_buckets`](Loader::size_buckets) or a mixture, because each of them also determines
    /// the order. To seed the augmentation, call [`seed`](Loader::seed).
    ///
    /// The sampler must return source indices, as in [`BatchInfo::ids`](crate::BatchInfo::ids),
    /// even with a [`subset`](Loader::subset). If the sampler returns a sample outside the subset,
    /// the epoch ends with an error. Opening fails if epoch 0 has no batches. Later epochs may be
    /// empty.
    pub fn sampler(mut self, order: impl Sampler + 'static) -> Self {
        self.sampling.sampler = Some(Arc::new(order));
        self
    }

    /// Delivers only the samples with these source indices, like PyTorch's `Subset`. If no other
    /// option determines the order, the samples are delivered in the order of the list.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let every_tenth = Loader::new("train").subset((0..50_000).step_by(10)).shuffle(42);
    /// ```
    ///
    /// A sample that is listed twice is delivered twice per epoch, with different augmentation. The
    /// list takes 8 bytes per index, or 12 if any sample is listed more than once. The ids in
    /// batches and all other options still refer to source indices. Opening fails if the list is
    /// empty, or if an index is not less than the number of samples in the source.
    pub fn subset(mut self, indices: impl IntoIterator<Item = u64>) -> Self {
        self.sampling.subset = Some(indices.into_iter().collect());
        self
    }

    /// Splits the dataset at random, like PyTorch's `random_split`. `fractions` contains the
    /// fraction of the samples for each part. Each part is a loader with the options of this loader
    /// and a [`subset`](Loader::subset). All parts share one open source.
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
    /// The split depends on `seed`, but not on the seed passed to [`shuffle`](Loader::shuffle). If
    /// this loader already has a subset, the subset is split. See [`sampler::split`].
    ///
    /// # Errors
    /// Returns an error if the dataset or its class list cannot be opened, and
    /// [`ErrorKind::Config`] if a fraction is outside 0 to 1, if the sum of the fractions exceeds
    /// 1, or if the loader is a mixture.
    pub fn split<const N: usize>(self, fractions: [f64; N], seed: u64) -> Result<[Loader; N]> {
        let (loader, source) = self.open_source()?;
        let indices = loader.selected_indices(&*source);
        loader.into_subsets(sampler::split(indices, fractions, seed)?)
    }

    /// Splits each class separately (a stratified [`split`](Loader::split)), so that every part has
    /// the class proportions of the dataset or [`subset`](Loader::subset), up to rounding. Reads
    /// the label of every sample that is split; [`balanced`](Loader::balanced) describes the cost.
    ///
    /// ```no_run
    /// # use warpfeed::Loader;
    /// let [train, val, test] = Loader::new("photos").split_stratified([0.8, 0.1, 0.1], 42)?;
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`split`](Loader::split). In addition, fails if a label cannot be read, or if a sample
    /// has no label.
    pub fn split_stratified<const N: usize>(self, fractions: [f64; N], seed: u64) -> Result<[Loader; N]> {
        let (loader, source) = self.open_source()?;
        let indices = loader.selected_indices(&*source);
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let missing_message = "no label, but split_stratified() requires one";
        let labels = LabelReader { source: &*source, workers, retries: loader.images.retries, missing_message };
        let labels = labels.read(&(0..source.len() as u64), Some(&indices))?;
        loader.into_subsets(sampler::split_stratified(indices.into_iter().zip(labels), fractions, seed)?)
    }

    fn open_source(self) -> Result<(Loader, Arc<dyn Source>)> {
        if matches!(self.input, Input::Mixture(_)) {
            return Err(Error::config(
                "split: the loader is a mixture; split each dataset first, and then mix the parts",
            ));
        }
        let options = self.source_options()?;
        let (source, _) = self.input.clone().open(&options, None)?;
        // Opening the source has already applied these options.
        let loader = Loader {
            input: Input::Source(source.clone()),
            open_input: None,
            caches_listing: false,
            masks: None,
            ..self
        };
        #[cfg(feature = "tables")]
        let loader = loader.table(crate::source::TableOptions::new());
        Ok((loader, source))
    }

    fn selected_indices(&self, source: &dyn Source) -> Vec<u64> {
        self.sampling.subset.as_ref().map_or_else(|| (0..source.len() as u64).collect(), |subset| subset.to_vec())
    }

    fn into_subsets<const N: usize>(self, parts: [Vec<u64>; N]) -> Result<[Loader; N]> {
        Ok(parts.map(|part| self.clone().subset(part)))
    }

    /// Draws samples with replacement, with probabilities in proportion to `weights`, like
    /// PyTorch's `WeightedRandomSampler`; see [`sampler::Weighted`](Weighted).
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let hard_samples_twice = (0..50_000).map(|i| if i % 10 == 0 { 2.0 } else { 1.0 });
    /// let loader = Loader::new("train").weights(hard_samples_twice).seed(42);
    /// ```
    ///
    /// Pass one weight for each sample of the source, even with a [`subset`](Loader::subset), which
    /// restricts the draws to its samples. An epoch makes one draw per sample of the source or
    /// subset. The draws depend on the [`seed`](Loader::seed). [`shuffle`](Loader::shuffle) has no
    /// effect other than setting the seed.
    ///
    /// Opening fails if the number of weights is wrong, if a weight is negative or not finite, if
    /// all weights are 0, or if a different option also determines the order.
    pub fn weights(mut self, weights: impl IntoIterator<Item = f64>) -> Self {
        self.sampling.weights = Some(weights.into_iter().collect());
        self
    }

    /// Draws samples with replacement, so that every class is equally likely. The
    /// [weight](Loader::weights) of a sample is the reciprocal of the number of samples with the
    /// same label.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").balanced().seed(42);
    /// ```
    ///
    /// The label of every selected sample is read when the loader is opened. This costs nothing for
    /// a folder, and one short read per sample for tar shards and LMDB. The samples of a custom
    /// source without [`Source::label`] are read completely, on as many threads as there are
    /// workers. Opening fails if a label cannot be read, if a sample has no label, or if a
    /// different option also determines the order.
    pub fn balanced(mut self) -> Self {
        self.sampling.is_balanced = true;
        self
    }

    /// Groups samples of similar length into batches, which reduces the padding of variable-length
    /// rows. See [`sampler::Bucketed`](Bucketed).
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
    /// `lengths` contains the length of each sample of the source, in any unit. With a
    /// [`subset`](Loader::subset), it still contains the lengths of all samples of the source.
    /// `bounds` contains the inclusive upper bound of each bucket. [`shuffle`](Loader::shuffle)
    /// shuffles the samples within each bucket, and then the batches. Opening fails if the number
    /// of lengths differs from the number of samples, if the bounds are not in increasing order, or
    /// if a mixture, [`repeat`](Loader::repeat) or a different option that determines the order is
    /// also set.
    pub fn buckets(mut self, lengths: impl IntoIterator<Item = u32>, bounds: impl IntoIterator<Item = u32>) -> Self {
        let (lengths, bounds) = (lengths.into_iter().collect(), bounds.into_iter().collect());
        self.sampling.buckets = Some(Buckets::Lengths { lengths, bounds });
        self
    }

    /// Groups images by aspect ratio into buckets with different image sizes. Diffusion models and
    /// vision-language models are trained with such buckets, because cropping to a bucket of a
    /// similar aspect ratio preserves nearly all of each image.
    ///
    /// ```no_run
    /// use warpfeed::decode::Size;
    /// use warpfeed::{Augment, Loader};
    ///
    /// let sizes = [(1024, 1024), (1216, 832), (832, 1216)].map(|(width, height)| Size::new(width, height));
    /// let loader = Loader::new("photographs").shuffle(1).batch_size(32).augment(Augment::cover(1024, 1024));
    /// let images = loader.image_sizes()?;
    /// for batch in loader.size_buckets(images, sizes).budget(32 << 20).host()?.epoch(0) {
    ///     println!("{:?}", batch?.images().shape()); // [32, 1024, 1024, 3], or fewer images
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// `images` contains the image size of each sample of the source. With a
    /// [`subset`](Loader::subset), it still contains the sizes of all samples of the source.
    /// [`image_sizes`](Loader::image_sizes) returns these sizes. `sizes` contains the output size
    /// of each bucket, which replaces the output size of the [augmentation](Loader::augment). An
    /// image belongs to the bucket with the closest aspect ratio. If several buckets are equally
    /// close, the image belongs to the largest of them that has no more pixels than the image, or
    /// to the smallest if all of them have more.
    ///
    /// If both this method and [`buckets`](Loader::buckets) are called, the later call applies.
    ///
    /// Every batch contains images of one bucket. The [budget](Loader::budget), if any, limits the
    /// number of pixels of a global batch, so batches of large images contain fewer images. The
    /// last batch of each bucket may be smaller, and [`LastBatch::Drop`](crate::LastBatch::Drop)
    /// drops it. If a batch has fewer samples than there are ranks, each rank without a sample gets
    /// one sample that is marked as not valid and has the image size of the batch.
    /// [Views](Loader::views) and other images with their own augmentation keep their size.
    ///
    /// Opening fails if the number of images differs from the number of samples, if there are no
    /// sizes or more than 256, if a size is listed twice, or if the loader uses a mixture,
    /// [`repeat`](Loader::repeat), [`LastBatch::Pad`](crate::LastBatch::Pad),
    /// [`Augment::from_epoch`](crate::Augment::from_epoch),
    /// [`Augment::mosaic`](crate::Augment::mosaic),
    /// [`Augment::copy_paste`](crate::Augment::copy_paste), or a different option that determines
    /// the order.
    pub fn size_buckets(
        mut self,
        images: impl IntoIterator<Item = Size>,
        sizes: impl IntoIterator<Item = Size>,
    ) -> Self {
        let (images, sizes) = (images.into_iter().collect(), sizes.into_iter().collect());
        self.sampling.buckets = Some(Buckets::Sizes { images, sizes });
        self
    }

    /// Returns the image size of each sample of the dataset, after the EXIF orientation has been
    /// applied. Reads each sample and parses the header of its image, on all cores. A sample has
    /// the size 0x0 if its image is missing or the header is unreadable; the loader reports the
    /// error when it loads the sample.
    ///
    /// # Errors
    /// If the dataset or its class list cannot be opened, if a sample cannot be read or exceeds
    /// [`max_sample_bytes`](Loader::max_sample_bytes), if the fields are invalid, or if the loader
    /// has no image field that uses the loader's [augmentation](Loader::augment).
    pub fn image_sizes(&self) -> Result<Vec<Size>> {
        let source = self.input.clone().open(&self.source_options()?, self.sampling.join()?)?.0;
        let (codecs, retries, field_types) = (self.images.codecs(), self.images.retries, self.fields()?);
        let max_bytes = self.images.max_sample_bytes;
        let mut images = field_types.iter().filter(|(_, AnyFieldType(kind))| kind.augment().is_none());
        let image = images.find_map(|(name, AnyFieldType(kind))| match kind.writer() {
            FieldWriter::Image(source_field) => Some((name, Image::with_options(source_field, None, kind.frames()))),
            _ => None,
        });
        let (name, image) = image
            .ok_or_else(|| Error::config("image_sizes: the loader has no image field without its own augmentation"))?;
        let size = |buffers: &mut Vec<Vec<u8>>, id: usize| -> Result<Size> {
            let mut buffers = buffers.iter_mut();
            let sample = source::retried(
                retries,
                id as u64,
                || true,
                || {
                    let buffer = buffers.next().expect("there is a buffer for every attempt");
                    source::within(max_bytes, || source.read_drawn(id, 0, buffer))
                },
            );
            let sample = sample.map_err(|e| source::sample_error(&*source, id, "", e))?;
            check_sample_size(&sample, max_bytes).map_err(|e| source::sample_error(&*source, id, sample.key(), e))?;
            let encoded =
                image.encoded(name, &sample, &codecs, &Rng::new(0, 0, 0)).and_then(|(bytes, _)| codecs.open(bytes));
            Ok(encoded.map_or(Size::new(0, 0), |image| image.size()))
        };
        (0..source.len()).into_par_iter().map_init(|| vec![Vec::new(); retries + 1], size).collect()
    }

    /// Limits the total length of the samples in a batch, so that the batches of all buckets take a
    /// similar amount of memory and time. A batch contains as many samples of one
    /// [bucket](Loader::buckets) as fit into `budget`. The upper bound of the bucket counts as the
    /// length of each of its samples.
    ///
    /// ```no_run
    /// use warpfeed::field::Ragged;
    /// use warpfeed::{Dtype, Loader};
    ///
    /// # fn number_of_tokens(document: usize) -> u32 { 1 }
    /// // Batches of 128 documents of up to 64 tokens, 64 of up to 128, 32 of up to 256, or 16 longer ones.
    /// let lengths = (0..50_000).map(|document| number_of_tokens(document).min(512));
    /// let loader = Loader::new("documents.tar").drop_field("image").drop_field("label").shuffle(1).batch_size(128);
    /// let loader = loader.field("tokens.npy", Ragged::new(Dtype::I64, [], 512).truncate());
    /// let batches = loader.buckets(lengths, [64, 128, 256]).budget(8192).host()?;
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// The budget is in the unit of the lengths. With [`size_buckets`](Loader::size_buckets), the
    /// unit is pixels. For samples beyond the last bound, the length of the longest sample counts.
    /// The budget applies to the global batch, which is divided evenly among the ranks, and all
    /// ranks have the same number of batches. The batch size limits the number of samples. The last
    /// batch of each bucket may be smaller, and [`LastBatch::Drop`](crate::LastBatch::Drop) drops
    /// it. Every batch buffer is sized for the largest possible batch.
    ///
    /// Opening fails if no buckets are set, if a single sample of a bucket exceeds the budget, or
    /// if the last batch is padded ([`LastBatch::Pad`](crate::LastBatch::Pad)).
    pub fn budget(mut self, budget: u64) -> Self {
        self.sampling.budget = Some(budget);
        self
    }

    /// Combines `passes` passes over the samples into one epoch, for small datasets; 1 by default.
    /// Epoch `e` then consists of the original epochs `e * passes` to `(e + 1) * passes - 1`.
    /// Opening fails if `passes` is 0, or if [`buckets`](Loader::buckets) or
    /// [`size_buckets`](Loader::size_buckets) are also set.
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
