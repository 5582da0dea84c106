use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(feature = "tables")]
use super::TableOptions;
use super::Wanted;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::medium::At;
use crate::model::store::{Location, Store, Stores};
use crate::model::{Classes, Source};

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
    pub(crate) lenient: bool,
    #[cfg(feature = "tables")]
    pub(crate) table: TableOptions,
    pub(crate) indexed: bool,
    pub(crate) masks: Option<PathBuf>,
    pub(crate) stores: Stores,
    pub(crate) format: Option<String>,
    pub(crate) used: Arc<Used>,
}

/// Whether a dataset has used these options. Clones of the options share it.
#[derive(Debug, Default)]
pub(crate) struct Used {
    index: AtomicBool,
    /// The uses of columns.
    columns: AtomicBool,
    /// Everything else that describes a table.
    table: AtomicBool,
}

/// Formats without columns.
const WITHOUT_COLUMNS: [&str; 5] = ["coco", "folder", "tar", "voc", "yolo"];

impl Default for Options {
    fn default() -> Self {
        Options {
            mapped: true,
            formats: Vec::new(),
            classes: None,
            lenient: false,
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
    /// Default options: memory maps, and the built-in formats.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether files may be memory-mapped; `true` by default.
    ///
    /// With `false`, changes to the files surface as errors, never as signals. Tar shards are
    /// opened by [`Tar::open_unmapped`](crate::Tar::open_unmapped), which says what that
    /// costs. The files of a folder are always read. An LMDB is refused: its library always maps
    /// it.
    #[must_use]
    pub fn mmap(mut self, mapped: bool) -> Self {
        self.mapped = mapped;
        self
    }

    /// Formats that a folder's files may have, in addition to the built-in ones. They take
    /// precedence. A loader passes those of its codecs.
    #[must_use]
    pub fn formats(mut self, formats: impl IntoIterator<Item = Format>) -> Self {
        self.formats.extend(formats);
        self
    }

    /// Whether the listing of a folder of images is stored in the file `<folder>.warpfeed-index`
    /// next to it; `false` by default. Other datasets refuse it. Opening then checks the modification
    /// time of each folder, and lists the files again if one has changed. The file is written
    /// atomically, so ranks can share it. The listing is not stored if a folder changed within the
    /// last two seconds.
    #[must_use]
    pub fn index(mut self, indexed: bool) -> Self {
        self.indexed = indexed;
        self
    }

    /// Takes the masks of a folder of images from another folder. The mask of `a/1.jpg` is
    /// `a/1.png` there, or `.npy`, `.tif`, `.gif`, `.bmp` or `.webp`, and becomes the sample's
    /// field `mask`, which `field::Mask` reads. A relative path begins in the
    /// folder that holds the folder of images. A `*` in its last part stands for the name of an
    /// image, as in `train_masks/*_mask`.
    ///
    /// An image without a mask is a bad sample. Masks without an image are left out, and a
    /// warning counts them. Other datasets than folders refuse this option.
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

    /// Opens the dataset as this format, a name of [`DATA_FORMATS`](crate::DATA_FORMATS),
    /// without detection.
    ///
    /// ```
    /// let e = warpfeed_sources::Options::new().format("unknown").open("train").err().unwrap();
    /// let names = "arrow, parquet, beton, recordio, npy";
    /// assert!(e.to_string().contains(names));
    /// ```
    #[must_use]
    pub fn format(mut self, name: impl Into<String>) -> Self {
        self.format = Some(name.into());
        self
    }

    /// Opens URLs of `scheme`, such as `s3`, with `store`.
    #[must_use]
    pub fn store(mut self, scheme: impl Into<String>, store: Arc<dyn Store>) -> Self {
        self.stores.add(scheme.into(), store);
        self
    }

    /// Opens the URLs of each scheme with its store, like [`store`](Options::store).
    #[must_use]
    pub fn stores<S: Into<String>>(mut self, stores: impl IntoIterator<Item = (S, Arc<dyn Store>)>) -> Self {
        stores.into_iter().for_each(|(scheme, store)| self.stores.add(scheme.into(), store));
        self
    }

    /// Meaning of the columns of a table, or of another format with columns. Datasets without
    /// columns refuse it, and columns with types refuse what only describes a table, such as
    /// [`root`](TableOptions::root).
    #[cfg(feature = "tables")]
    #[must_use]
    pub fn table(mut self, columns: TableOptions) -> Self {
        self.table = columns;
        self
    }

    /// Numbers labels by this list instead of by the dataset; see [`Classes::number`].
    #[must_use]
    pub fn classes(mut self, classes: Classes) -> Self {
        self.classes = Some(classes);
        self
    }

    /// A copy that has opened nothing yet.
    pub(crate) fn renewed(&self) -> Self {
        Options { used: Arc::default(), ..self.clone() }
    }

    /// Notes which options `source` uses, the dataset at `path`.
    pub(crate) fn note_used(&self, path: &Path, source: &dyn Source) {
        let kind = source.kind();
        let note = |used: &AtomicBool, uses: bool| used.fetch_or(uses, Ordering::Relaxed);
        note(&self.used.index, kind == "folder" && matches!(Location::of(path), Location::Path(_)));
        note(&self.used.columns, !WITHOUT_COLUMNS.contains(&kind));
        note(&self.used.table, kind == "table");
    }

    /// Checks that the datasets that [`open_part`](Options::open_part) opened use the options for
    /// listings and columns.
    ///
    /// # Errors
    /// If one was set and none of them uses it.
    pub fn check_used(&self) -> Result<()> {
        let used = |used: &AtomicBool| used.load(Ordering::Relaxed);
        if self.indexed && !used(&self.used.index) {
            return Err(Error::config(
                "index(true) keeps the listing of a folder of images on this machine, and this dataset is not one: \
                 leave it out",
            ));
        }
        #[cfg(feature = "tables")]
        if self.table.wanted() != Wanted::default() && !used(&self.used.columns) {
            return Err(Error::config("the option table describes columns, and this dataset has none: leave it out"));
        }
        #[cfg(feature = "tables")]
        if let Some(option) = self.table.of_tables_only()
            && !used(&self.used.table)
        {
            return Err(Error::config(format!(
                "{option} of TableOptions describes CSV, TSV and JSON-lines files, and this dataset is not one: leave \
                 it out"
            )));
        }
        Ok(())
    }

    /// The uses of columns that the user chose.
    pub(crate) fn wanted(&self) -> Wanted {
        #[cfg(feature = "tables")]
        return self.table.wanted();
        #[cfg(not(feature = "tables"))]
        Wanted::default()
    }

    /// What is at `path`, a path or a URL.
    ///
    /// # Errors
    /// If the URL has no store.
    pub(crate) fn at(&self, path: &Path) -> Result<At> {
        At::of(path, self.mapped, &self.stores)
    }

    /// Takes the stores of a loader.
    #[doc(hidden)]
    pub fn with_stores(mut self, stores: Stores) -> Self {
        self.stores = stores;
        self
    }

    /// Reports a class that is not in the list when its samples are read, not when the set is
    /// opened.
    #[doc(hidden)]
    pub fn lenient(mut self, lenient: bool) -> Self {
        self.lenient = lenient;
        self
    }

    /// `source` with its labels numbered by the list, if there is one.
    #[doc(hidden)]
    pub fn number(&self, source: Arc<dyn Source>) -> Result<Arc<dyn Source>> {
        match &self.classes {
            Some(classes) => classes.number_if(source, self.lenient),
            None => Ok(source),
        }
    }

    /// Whether [`masks`](Options::masks) was called.
    pub fn has_masks(&self) -> bool {
        self.masks.is_some()
    }

    /// Whether there is a list of classes.
    #[doc(hidden)]
    pub fn numbers(&self) -> bool {
        self.classes.is_some()
    }
}
