//! [`Options`]: the options for opening a dataset of any format.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ColumnChoice;
#[cfg(feature = "tables")]
use super::TableOptions;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::model::store::{Location, Store, Stores};
use crate::model::{Classes, Source};
use crate::storage::DatasetLocation;

/// Options for opening a dataset. [`open`](crate::open()) uses the defaults.
///
/// ```no_run
/// use warpfeed_sources::Options;
///
/// let shards = Options::new().mmap(false).open("train-{000..099}.tar")?;
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) mapped: bool,
    pub(crate) formats: Vec<Format>,
    pub(crate) classes: Option<Classes>,
    pub(crate) defer_unknown_classes: bool,
    #[cfg(feature = "tables")]
    pub(crate) table: TableOptions,
    pub(crate) indexed: bool,
    pub(crate) masks: Option<PathBuf>,
    pub(crate) stores: Stores,
    pub(crate) format: Option<String>,
    pub(crate) used: Arc<UsedOptions>,
}

/// Records which options applied to a dataset. Clones of the options share this record.
#[derive(Debug, Default)]
pub(crate) struct UsedOptions {
    cache_listing: AtomicBool,
    columns: AtomicBool,
    table: AtomicBool,
}

const FORMATS_WITHOUT_COLUMNS: [&str; 7] = ["clips", "coco", "folder", "lerobot", "tar", "voc", "yolo"];

impl Default for Options {
    fn default() -> Self {
        Options {
            mapped: true,
            formats: Vec::new(),
            classes: None,
            defer_unknown_classes: false,
            #[cfg(feature = "tables")]
            table: TableOptions::new(),
            indexed: false,
            masks: None,
            stores: Stores::default(),
            format: None,
            used: Arc::default(),
        }
    }
}

impl Options {
    /// Creates the default options: files are memory-mapped, and images have the built-in formats.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether files may be memory-mapped. The default is `true`.
    ///
    /// With `false`, a file that is truncated while it is read causes an error rather than a signal
    /// such as SIGBUS. Tar shards are opened with
    /// [`Tar::open_unmapped`](crate::Tar::open_unmapped), which documents the cost. Folders never
    /// map files. Opening an LMDB database fails, because its library always maps the file.
    #[must_use]
    pub fn mmap(mut self, mapped: bool) -> Self {
        self.mapped = mapped;
        self
    }

    /// Adds image formats, which take precedence over the built-in formats. A loader passes the
    /// formats of its codecs.
    #[must_use]
    pub fn formats(mut self, formats: impl IntoIterator<Item = Format>) -> Self {
        self.formats.extend(formats);
        self
    }

    /// Sets whether the listing of an image folder is saved in `<folder>.warpfeed-index` next to
    /// the folder. The default is `false`. Opening the folder then reads this index instead of
    /// listing the files, unless the modification time of a folder or the extensions of custom
    /// formats have changed. The index is written atomically, so ranks can share it. It is not
    /// written if a folder changed within the last two seconds. With this option, opening a dataset
    /// that is not a local image folder fails.
    #[must_use]
    pub fn cache_listing(mut self, indexed: bool) -> Self {
        self.indexed = indexed;
        self
    }

    /// Reads the masks of an image folder from `folder`. The mask of `a/1.jpg` is `a/1.png` in
    /// `folder`, or the file with the same name and the extension `.npy`, `.tif`, `.tiff`, `.gif`,
    /// `.bmp` or `.webp`. The mask becomes the sample's `mask` field, which `field::Mask` reads. A
    /// relative `folder` is resolved against the parent of the image folder. A `*` in the last
    /// component of `folder` represents the name of the image, as in `train_masks/*_mask`.
    ///
    /// Reading a sample without a mask fails. Masks without an image are ignored with a warning.
    /// With this option, opening a dataset that is not an image folder fails.
    ///
    /// ```no_run
    /// use warpfeed_sources::Options;
    ///
    /// let camvid = Options::new().masks("trainannot").open("CamVid/train")?; // CamVid/trainannot
    /// # Ok::<(), warpfeed_sources::Error>(())
    /// ```
    #[must_use]
    pub fn masks(mut self, folder: impl Into<PathBuf>) -> Self {
        self.masks = Some(folder.into());
        self
    }

    /// Sets the format of the dataset instead of detecting it. `name` is one of the names in
    /// [`DATA_FORMATS`](crate::DATA_FORMATS).
    ///
    /// ```
    /// let e = warpfeed_sources::Options::new().format("unknown").open("train").err().unwrap();
    /// let names = "beton, recordio, npy";
    /// assert!(e.to_string().contains(names));
    /// ```
    #[must_use]
    pub fn format(mut self, name: impl Into<String>) -> Self {
        self.format = Some(name.into());
        self
    }

    /// Registers `store` for URLs with this scheme, such as `s3`.
    #[must_use]
    pub fn store(mut self, scheme: impl Into<String>, store: Arc<dyn Store>) -> Self {
        self.stores.add(scheme.into(), store);
        self
    }

    /// Registers several stores, each with its scheme, like [`store`](Options::store).
    #[must_use]
    pub fn stores<S: Into<String>>(mut self, stores: impl IntoIterator<Item = (S, Arc<dyn Store>)>) -> Self {
        stores.into_iter().for_each(|(scheme, store)| self.stores.add(scheme.into(), store));
        self
    }

    /// Sets what each column of a table contains. With this option, opening a dataset that has no
    /// columns fails. Formats with typed columns, such as Parquet, reject the options that apply
    /// only to text tables, such as [`root`](TableOptions::root).
    #[cfg(feature = "tables")]
    #[must_use]
    pub fn table(mut self, columns: TableOptions) -> Self {
        self.table = columns;
        self
    }

    /// Sets the list that assigns an index to each class, instead of the dataset's own list. See
    /// [`Classes::relabel`].
    #[must_use]
    pub fn classes(mut self, classes: Classes) -> Self {
        self.classes = Some(classes);
        self
    }

    pub(crate) fn without_usage(&self) -> Self {
        Options { used: Arc::default(), ..self.clone() }
    }

    pub(crate) fn record_used_options(&self, path: &Path, source: &dyn Source) {
        let kind = source.kind();
        let note = |used: &AtomicBool, uses: bool| used.fetch_or(uses, Ordering::Relaxed);
        note(&self.used.cache_listing, kind == "folder" && matches!(Location::parse(path), Location::Path(_)));
        note(&self.used.columns, !FORMATS_WITHOUT_COLUMNS.contains(&kind));
        note(&self.used.table, kind == "table");
    }

    /// Checks that the options applied to a dataset that was opened with
    /// [`open_part`](Options::open_part). Only [`cache_listing`](Options::cache_listing) and
    /// [`table`](Options::table) are checked, if they were set.
    ///
    /// # Errors
    /// If one of these options was set and applied to none of the datasets.
    pub fn check_used(&self) -> Result<()> {
        let used = |used: &AtomicBool| used.load(Ordering::Relaxed);
        if self.indexed && !used(&self.used.cache_listing) {
            return Err(Error::config(
                "cache_listing(true) saves the listing of a local image folder, but this dataset is not a local image folder: \
                 remove the option",
            ));
        }
        #[cfg(feature = "tables")]
        if self.table.column_choice() != ColumnChoice::default() && !used(&self.used.columns) {
            return Err(Error::config(
                "the option table describes columns, but this dataset has no columns: remove the option",
            ));
        }
        #[cfg(feature = "tables")]
        if let Some(option) = self.table.find_table_only_option()
            && !used(&self.used.table)
        {
            return Err(Error::config(format!(
                "{option} of TableOptions applies to CSV, TSV and JSON-lines files, but this dataset has a different \
                 format: remove the option"
            )));
        }
        Ok(())
    }

    pub(crate) fn column_choice(&self) -> ColumnChoice {
        #[cfg(feature = "tables")]
        return self.table.column_choice();
        #[cfg(not(feature = "tables"))]
        ColumnChoice::default()
    }

    pub(crate) fn locate(&self, path: &Path) -> Result<DatasetLocation> {
        DatasetLocation::of(path, self.mapped, &self.stores)
    }

    /// Replaces all registered stores.
    #[doc(hidden)]
    pub fn with_stores(mut self, stores: Stores) -> Self {
        self.stores = stores;
        self
    }

    /// Sets whether the error for a class that is missing from the list is returned only when one
    /// of its samples is read. By default, opening the dataset fails.
    #[doc(hidden)]
    pub fn defer_unknown_classes(mut self, defer: bool) -> Self {
        self.defer_unknown_classes = defer;
        self
    }

    /// Lets the class list, if one was set, determine the labels of `source`.
    #[doc(hidden)]
    pub fn relabel(&self, source: Arc<dyn Source>) -> Result<Arc<dyn Source>> {
        match &self.classes {
            Some(classes) => classes.relabel_with(source, self.defer_unknown_classes),
            None => Ok(source),
        }
    }

    /// Returns whether [`masks`](Options::masks) was called.
    pub fn has_masks(&self) -> bool {
        self.masks.is_some()
    }

    /// Returns whether a class list was set.
    #[doc(hidden)]
    pub fn has_classes(&self) -> bool {
        self.classes.is_some()
    }
}
