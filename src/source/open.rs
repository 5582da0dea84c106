use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "tables")]
use super::TableOptions;
use super::layout::{coco_json, is_lmdb, is_voc, is_voc_list, yolo_pictures};
use super::{Classes, Folder, Source, Tar, tar};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{self, Format};

/// Opens the data set at `path`. Its content decides what it is, not its name:
///
/// - a pattern such as `train-{000..099}.tar`: [`Tar`];
/// - a folder with `data.mdb`, or a file with LMDB's magic number: [`Lmdb`];
/// - a folder of `.tar` files, or a file that begins with a tar header: [`Tar`];
/// - a `.json` file, or a folder with `_annotations.coco.json`: [`Coco`];
/// - a `.yaml` or `.yml` file, a folder with `images` and `labels`, or a folder below `images` that
///   has its like below `labels`: [`Yolo`];
/// - a folder with `JPEGImages` and `Annotations` or `SegmentationClass`, or a list in its
///   `ImageSets`: [`Voc`];
/// - a file that ends in `.csv`, `.tsv`, `.tab`, `.jsonl` or `.ndjson`: [`Table`](super::Table);
/// - any other folder: [`Folder`].
///
/// ```no_run
/// let source = warpfeed::source::open("train")?;
/// println!("{} samples in a {}", source.len(), source.kind());
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// # Errors
/// If the path does not exist, if it is none of these (the message says what was looked for), if a
/// folder holds both shards and pictures, or if the source cannot be opened.
pub fn open(path: impl AsRef<Path>) -> Result<Arc<dyn Source>> {
    Options::new().open(path)
}

/// How a data set is opened. [`open`] uses the defaults.
///
/// ```no_run
/// use warpfeed::source::Options;
///
/// let shards = Options::new().mmap(false).open("train-{000..099}.tar")?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    mapped: bool,
    formats: Vec<Format>,
    classes: Option<Classes>,
    lenient: bool,
    #[cfg(feature = "tables")]
    table: TableOptions,
    indexed: bool,
}

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
        }
    }
}

impl Options {
    /// Memory maps, and the built-in formats.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether files may be memory-mapped; `true` by default.
    ///
    /// With `false`, changes to the files surface as errors, never as signals. Tar shards are
    /// opened by [`Tar::open_unmapped`], which says what that costs. The files of a folder are
    /// always read. An LMDB is refused: its library always maps it.
    #[must_use]
    pub fn mmap(mut self, mapped: bool) -> Self {
        self.mapped = mapped;
        self
    }

    /// Formats that a folder's files may have, in addition to the built-in ones. They take
    /// precedence. A loader passes those of its [codecs](crate::Loader::codec).
    #[must_use]
    pub fn formats(mut self, formats: impl IntoIterator<Item = Format>) -> Self {
        self.formats.extend(formats);
        self
    }

    /// Whether the listing of a folder of pictures is kept in the file `<folder>.warpfeed-index`
    /// beside it; `false` by default. Opening then looks at the time of each folder, and lists the
    /// files again if one has changed. The file is written whole or not at all, so that ranks can
    /// share it. A folder that changed within the last two seconds is not kept.
    #[must_use]
    pub fn index(mut self, indexed: bool) -> Self {
        self.indexed = indexed;
        self
    }

    /// What the columns of a table mean; no effect on other data sets.
    #[cfg(feature = "tables")]
    #[must_use]
    pub fn table(mut self, columns: TableOptions) -> Self {
        self.table = columns;
        self
    }

    /// Numbers labels by this list, whatever the numbers of the data set; see [`Classes::number`].
    #[must_use]
    pub fn classes(mut self, classes: Classes) -> Self {
        self.classes = Some(classes);
        self
    }

    /// Whether a class that is not in the list is an error of its samples, not of the set.
    pub(crate) fn lenient(mut self, lenient: bool) -> Self {
        self.lenient = lenient;
        self
    }

    /// Opens the data set at `path`, as [`open`] says.
    ///
    /// # Errors
    /// As [`open`], for an LMDB with `mmap(false)`, and for a class that is not in the list.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Arc<dyn Source>> {
        let path = path.as_ref();
        self.number(any(path, self)?).map_err(|e| e.at_path(path))
    }

    /// `source` with its labels numbered by the list, if there is one.
    pub(crate) fn number(&self, source: Arc<dyn Source>) -> Result<Arc<dyn Source>> {
        match &self.classes {
            Some(classes) => classes.number_if(source, self.lenient),
            None => Ok(source),
        }
    }

    /// Whether there is a list of classes.
    pub(crate) fn numbers(&self) -> bool {
        self.classes.is_some()
    }
}

/// A source, or an error that names the Cargo feature that this build lacks.
macro_rules! with_feature {
    ($feature:tt, $what:literal, $path:expr, $source:expr) => {{
        #[cfg(feature = $feature)]
        let source = Ok(Arc::new($source) as Arc<dyn Source>);
        #[cfg(not(feature = $feature))]
        let source = Err(Error::config(concat!(
            "this is ",
            $what,
            ", and this build of warpfeed lacks the Cargo feature \"",
            $feature,
            "\" that reads it"
        ))
        .at_path($path));
        source
    }};
}

fn any(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    let mapped = options.mapped;
    if tar::has_braces(path) && !path.exists() {
        return shards(path, mapped);
    }
    if path.as_os_str().is_empty() {
        return Err(Error::config("the path of the data set is empty"));
    }
    // In full, so that a relative one says relative to what.
    let metadata =
        fs::metadata(path).map_err(|e| Error::io(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()), &e))?;
    if metadata.is_dir() { folder(path, options) } else { file(path, options) }
}

fn shards(path: &Path, mapped: bool) -> Result<Arc<dyn Source>> {
    Ok(Arc::new(if mapped { Tar::open(path)? } else { Tar::open_unmapped(path)? }))
}

fn lmdb(path: &Path, mapped: bool) -> Result<Arc<dyn Source>> {
    if !mapped {
        return Err(Error::config(
            "an lmdb is always memory-mapped, by its library; open it mapped, or pack it as tar shards (warpfeed pack --from x.lmdb --to x.tar)",
        )
        .at_path(path));
    }
    with_feature!("lmdb", "an LMDB", path, super::Lmdb::open(path)?)
}

#[cfg_attr(not(feature = "annotations"), allow(unused_variables))]
fn coco(json: &Path, pictures: Option<&Path>, options: &Options) -> Result<Arc<dyn Source>> {
    with_feature!(
        "annotations",
        "a COCO data set",
        json,
        super::Coco::with_formats(json, pictures, options.formats.clone())?
    )
}

#[cfg_attr(not(feature = "annotations"), allow(unused_variables))]
fn yolo(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    with_feature!(
        "annotations",
        "a YOLO data set",
        path,
        super::Yolo::with_formats(path, "train", options.formats.clone())?
    )
}

#[cfg_attr(not(feature = "annotations"), allow(unused_variables))]
fn voc(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    with_feature!(
        "annotations",
        "a Pascal VOC data set",
        path,
        super::Voc::with_formats(path, options.formats.clone())?
    )
}

#[cfg_attr(not(feature = "tables"), allow(unused_variables))]
fn table(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    with_feature!(
        "tables",
        "a table",
        path,
        options.table.open_with(path, options.classes.as_ref(), options.lenient, options.formats.clone())?
    )
}

fn folder(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    let mapped = options.mapped;
    if path.join("data.mdb").exists() {
        return lmdb(path, mapped);
    }
    if let Some(json) = coco_json(path) {
        return coco(&json, Some(path), options);
    }
    if yolo_pictures(path).is_some() {
        return yolo(path, options);
    }
    if is_voc(path) {
        return voc(path, options);
    }
    let tars = tar::tars_in(path)?.len();
    match (Folder::with_formats(path, options.formats.clone(), options.indexed), tars) {
        (Ok(folder), 0) => Ok(Arc::new(folder)),
        (Ok(folder), _) => Err(Error::in_source(format!(
            "holds {tars} .tar files and {} images; open one of the two with `Tar::open` or `Folder::open`, or move them apart",
            folder.len()
        ))
        .at_path(path)),
        (Err(e), 0) if e.kind() == ErrorKind::Source => {
            Err(Error::in_source(format!("{}; no data.mdb, no .tar files", e.cause())).at_path(e.path().unwrap_or(path)))
        }
        (Err(e), 0) => Err(e),
        (Err(_), _) => shards(path, mapped),
    }
}

fn file(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    let mapped = options.mapped;
    let mut start = Vec::new();
    let file = super::file::open(path).map_err(|e| Error::io(path, &e))?;
    file.take(512).read_to_end(&mut start).map_err(|e| Error::io(path, &e))?;
    // A name that promises one of them gets that one's message, which knows the offset.
    let named = |extensions: &[&str]| {
        path.extension().is_some_and(|have| extensions.iter().any(|want| have.eq_ignore_ascii_case(want)))
    };
    if is_lmdb(&start) || named(&["lmdb", "mdb"]) {
        lmdb(path, mapped)
    } else if tar::is_tar(&start) || named(&["tar", "tgz", "gz"]) {
        shards(path, mapped)
    } else if named(&["json"]) {
        coco(path, None, options)
    } else if named(&["yaml", "yml"]) {
        yolo(path, options)
    } else if is_voc_list(path) {
        voc(path, options)
    } else if named(&["csv", "tsv", "tab", "jsonl", "ndjson"]) {
        table(path, options)
    } else {
        Err(Error::in_source(not_a_data_set(&start)).at_path(path))
    }
}

/// What is wrong with a file that begins with `start`.
fn not_a_data_set(start: &[u8]) -> String {
    if start.is_empty() {
        return "not a data set: the file is empty".to_owned();
    }
    if let Some(format) = format::of(start) {
        return format!("not a data set: this is one picture ({}); give the folder it lies in", format.field);
    }
    let shown = &start[..start.len().min(16)];
    let shown = match std::str::from_utf8(shown) {
        Ok(text) if !text.contains(|c: char| c.is_control() && !c.is_whitespace()) => format!("the text {text:?}"),
        _ => format!("{:02x?}", &shown[..shown.len().min(8)]),
    };
    format!(
        "not a data set: not a folder, an lmdb file (magic number at byte 16), a tar (checksum of the first header), \
         a table (.csv, .tsv, .tab, .jsonl, .ndjson), annotations (.json, .yaml) or a list of Pascal VOC; it begins with \
         {shown}"
    )
}
