//! The options of a loader.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::batch_size::{BatchSize, RankOrigin};
use super::class_list::ClassList;
use super::images::ImageOptions;
use super::input::{Input, OpenInput};
use super::option_table::listed;
use super::sampling::Sampling;
use crate::engine::{BatchSampler, Checkpoint, OnError};
use crate::field::AnyFieldType;
#[cfg(doc)]
use crate::source;
#[cfg(feature = "tables")]
use crate::source::TableOptions;
use crate::source::{Source, Store, Stores};
use crate::transform::Augment;

/// The options of a data loader.
///
/// A setter takes the loader by value and returns it. Setters do not fail. If two calls set the
/// same option, such as [`rank`](Loader::rank) and [`distributed`](Loader::distributed), the later
/// call takes precedence. The options are validated when the loader is opened. Call
/// [`host`](Loader::host) or `cuda` to open it, or iterate over the loader itself.
///
/// ```no_run
/// # fn main() -> warpfeed::Result<()> {
/// use warpfeed::{Augment, Loader};
///
/// let loader = Loader::new("train").workers(8).pinned(true).prefetch(4);
/// let mut batches = loader.batch_size(256).shuffle(42).augment(Augment::train(224)).host()?;
/// for epoch in 0..90 {
///     for batch in batches.epoch(epoch) {
///         let batch = batch?;
///         println!("{:?} {:?}", batch.images(), batch.labels()?);
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// | purpose | options |
/// |---|---|
/// | data | [`new`](Loader::new), [`source`](Loader::source), [`mixture`](Loader::mixture), [`mixture_options`](Loader::mixture_options), [`match_labels_by_name`](Loader::match_labels_by_name), [`keep_labels`](Loader::keep_labels), [`classes`](Loader::classes), [`classes_file`](Loader::classes_file), [`table`](Loader::table), [`masks`](Loader::masks), [`cache_listing`](Loader::cache_listing), [`store`](Loader::store), [`stores`](Loader::stores), [`codec`](Loader::codec) |
/// | which samples | [`split`](Loader::split), [`split_stratified`](Loader::split_stratified), [`subset`](Loader::subset), [`weights`](Loader::weights), [`balanced`](Loader::balanced), [`repeat`](Loader::repeat) |
#[doc = concat!("| in which order | [`shuffle`](Loader::shuffle), [`shuffle_window`](Loader::shuffle_window), [`buckets`](Loader::buckets), [`size_buckets`](Loader::size_buckets), [`budget`](Loader::budget), [`sampler`](Loader::sampler), [`resume`](Loader::resume), ", listed!("in which order"), " |")]
#[doc = concat!("| batches | [`batch_size`](Loader::batch_size), [`global_batch_size`](Loader::global_batch_size), [`rank`](Loader::rank), [`distributed`](Loader::distributed), ", listed!("batches"), " |")]
#[doc = concat!("| fields | [`field`](Loader::field), [`drop_field`](Loader::drop_field), [`soft_labels`](Loader::soft_labels), [`views`](Loader::views), ", listed!("fields"), " |")]
#[doc = concat!("| images | [`augment`](Loader::augment), [`augment_for`](Loader::augment_for), [`transform`](Loader::transform), ", listed!("images"), " |")]
#[doc = concat!("| speed | ", listed!("speed"), " |")]
#[doc = concat!("| limits and faults | [`on_error`](Loader::on_error), ", listed!("limits and faults"), " |")]
/// | observability | [`trace`](Loader::trace) |
#[cfg_attr(feature = "cuda", doc = "| opening | [`host`](Loader::host), [`cuda`](Loader::cuda) |")]
#[cfg_attr(not(feature = "cuda"), doc = "| opening | [`host`](Loader::host), `cuda` |")]
/// | requests | [`decoder`](Loader::decoder) |
#[must_use = "a loader does nothing until it is opened with `host` or iterated"]
#[derive(Clone)]
pub struct Loader {
    pub(super) input: Input,
    pub(super) open_input: Option<OpenInput>,
    pub(super) classes: ClassList,
    #[cfg(feature = "tables")]
    pub(super) table: TableOptions,
    pub(super) caches_listing: bool,
    pub(super) masks: Option<PathBuf>,
    pub(super) stores: Stores,
    pub(super) batch_size: Option<BatchSize>,
    pub(super) rank_origin: RankOrigin,
    pub(super) sampling: Sampling,
    pub(super) resume: Option<Checkpoint>,
    pub(super) images: ImageOptions,
    /// Augmentations for individual datasets of a mixture, keyed by dataset index.
    pub(super) own_augments: BTreeMap<usize, Augment>,
    pub(super) fields: Vec<(String, AnyFieldType)>,
    pub(super) views: Vec<Augment>,
    pub(super) dropped_fields: Vec<String>,
    pub(super) on_error: OnError,
    /// The number of classes and the label smoothing. If the first value is `None`, the number of
    /// classes is the number of class names of the dataset.
    pub(super) soft_labels: Option<(Option<usize>, f32)>,
    /// Set only if the loader is opened with [`decoder`](Loader::decoder).
    pub(super) batch_sampler: Option<Arc<dyn BatchSampler>>,
}

impl Loader {
    /// Creates a loader for the dataset at `path`:
    ///
    /// - a folder of class folders, or a flat folder of images;
    /// - an LMDB database;
    /// - a tar shard, a folder of shards, or a pattern such as `train-{000..099}.tar`;
    /// - a table: a `.csv`, `.tsv` or JSON-lines file ([`table`](Loader::table) sets the meaning of
    ///   its columns);
    /// - a COCO JSON file, the `data.yaml` or folder of a YOLO dataset, or the folder or list file
    ///   of a Pascal VOC dataset;
    /// - Parquet, Arrow, MDS, LitData, FFCV, RecordIO, TFRecord, HDF5 and array files.
    ///
    /// The format is detected when the loader is opened; [`source::open`] has the complete list.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let folder = Loader::new("imagenet/train");
    /// let shards = Loader::new("train-{000..099}.tar");
    /// let boxes = Loader::new("coco/annotations/instances_train2017.json");
    /// ```
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self::from_input(Input::Path(path.as_ref().to_owned()))
    }

    /// Creates a loader for a custom [`Source`] or for a dataset that is already open. Several
    /// loaders can share an open source.
    ///
    /// ```no_run
    /// # use warpfeed::{Augment, Loader, source};
    /// let photos = source::open("photos")?;
    /// let train = Loader::source(photos.clone()).augment(Augment::train(224));
    /// let plain = Loader::source(photos).augment(Augment::eval(256, 224));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn source(source: impl Source + 'static) -> Self {
        Self::from_input(Input::Source(Arc::new(source)))
    }

    /// Sets the object store for URLs with this scheme, such as `s3` for
    /// `Loader::new("s3://bucket/train-{000..099}.tar")`. Call this method once per scheme.
    /// Datasets in formats that need local files, such as LMDB, can be opened only if the store has
    /// a cache, into which they are downloaded.
    ///
    /// Opening fails if no store has been set for the scheme of a URL.
    pub fn store(mut self, scheme: impl Into<String>, store: impl Store + 'static) -> Self {
        self.stores.add(scheme.into(), Arc::new(store));
        self
    }

    /// Sets several object stores. This is equivalent to calling [`store`](Loader::store) for each
    /// pair of a scheme and a store. The `warpfeed-stores` crate provides stores for `s3://`,
    /// `gs://`, `az://`, `https://` and `hf://`:
    ///
    /// ```ignore
    /// let loader = Loader::new("s3://bucket/train").stores(warpfeed_stores::all());
    /// ```
    pub fn stores<S: Into<String>>(mut self, stores: impl IntoIterator<Item = (S, Arc<dyn Store>)>) -> Self {
        stores.into_iter().for_each(|(scheme, store)| self.stores.add(scheme.into(), store));
        self
    }

    /// Sets whether to store the list of files of a folder in an index file next to the folder; off
    /// by default. As long as the folder does not change, later runs then open it without listing
    /// its files. Opening fails if the dataset is not a local image folder; see
    /// [`source::Options::cache_listing`](crate::source::Options::cache_listing).
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("imagenet/train").cache_listing(true); // imagenet/train.warpfeed-index
    /// ```
    pub fn cache_listing(mut self, is_set: bool) -> Self {
        self.caches_listing = is_set;
        self
    }

    /// Reads the masks for a folder of images from `folder`. If `folder` is a relative path, it is
    /// resolved against the parent of the image folder. Opening fails if the dataset is not an
    /// image folder; see [`source::Options::masks`](crate::source::Options::masks). Add a
    /// [`field::Mask`](crate::field::Mask) to get the masks in the batch.
    ///
    /// ```
    /// # use warpfeed::{Dtype, Loader, field::Mask};
    /// let loader = Loader::new("CamVid/train").masks("trainannot"); // CamVid/trainannot
    /// let loader = loader.drop_field("label").field("mask", Mask::new(Dtype::I64).fill(11));
    /// ```
    pub fn masks(mut self, folder: impl Into<PathBuf>) -> Self {
        self.masks = Some(folder.into());
        self
    }

    /// Sets how the columns of a table are used. Opening fails if the dataset has no columns, or if
    /// an option does not apply to its format; see
    /// [`source::Options::table`](crate::source::Options::table).
    ///
    /// ```
    /// # use warpfeed::{Loader, source::TableOptions};
    /// let columns = TableOptions::new().image("image_id").root("images").label("species");
    /// let loader = Loader::new("train.csv").table(columns);
    /// ```
    #[cfg(feature = "tables")]
    pub fn table(mut self, columns: TableOptions) -> Self {
        self.table = columns;
        self
    }

    pub(super) fn from_input(input: Input) -> Self {
        Loader {
            input,
            open_input: None,
            classes: ClassList::default(),
            #[cfg(feature = "tables")]
            table: TableOptions::new(),
            caches_listing: false,
            masks: None,
            stores: Stores::default(),
            batch_size: None,
            rank_origin: RankOrigin::Explicit { rank: 0, world_size: 1 },
            sampling: Sampling::default(),
            resume: None,
            images: ImageOptions::default(),
            own_augments: BTreeMap::new(),
            fields: Vec::new(),
            views: Vec::new(),
            dropped_fields: Vec::new(),
            on_error: OnError::default(),
            soft_labels: None,
            batch_sampler: None,
        }
    }
}
