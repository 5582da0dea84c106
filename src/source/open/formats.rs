//! The table of data set formats, with the detector and the opener of each.
//!
//! Detection, [`Options::format`](crate::source::Options::format), messages and the documentation
//! use this table. A format is one row.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use memchr::memmem;

use crate::error::{Error, ErrorKind, Result};
use crate::format;
use crate::source::formats::{Arrow, Folder, Tar, arrow, tar};
use crate::source::medium::ahead::Remote;
use crate::source::medium::brought::bring;
use crate::source::medium::layout::{
    COCO_JSON, annotations_in, is_lmdb, is_npy_folder, is_records_folder, is_records_name, is_voc, is_voc_list, is_yolo,
};
use crate::source::medium::splits;
use crate::source::medium::tree::Tree;
use crate::source::model::{Object, Source};
use crate::source::options::Options;

pub(in crate::source) type Opened = Result<Arc<dyn Source>>;

/// One format of data sets.
pub struct DataFormat {
    /// Its name, as [`Source::kind`] returns it and
    /// [`Options::format`](crate::source::Options::format) takes it.
    pub name: &'static str,
    /// Description of a path to such a data set.
    pub looks_like: &'static str,
    /// Extensions of its files. A file with one of them is opened as this format, so a damaged file
    /// gets the format's own message.
    pub extensions: &'static [&'static str],
    pub(in crate::source) is_folder: fn(Tree<'_>) -> bool,
    /// Recognises a file by its path and its first bytes.
    pub(in crate::source) is_file: fn(&Path, &[u8]) -> bool,
    open: fn(&Path, &Options) -> Opened,
    /// Opens the data set at a URL. `None` if the format needs files of this machine.
    open_url: Option<fn(&str, &Options) -> Opened>,
}

/// The file that lists the shards of a data set in its folder.
const INDEX: &str = "index.json";

/// Formats whose paths may name a part of a data set: `all.lmdb/train`.
pub(in crate::source) const WITH_PARTS: [&str; 7] = ["hdf5", "lmdb", "npy", "npz", "safetensors", "torch", "tfrecord"];

/// All formats, in the order in which they are tried.
pub const DATA_FORMATS: &[DataFormat] = &[
    DataFormat {
        name: "lmdb",
        looks_like: "a folder with `data.mdb`, or a file with LMDB's magic number at byte 16",
        extensions: &["lmdb", "mdb"],
        is_folder: |folder| folder.has_file("data.mdb"),
        is_file: |_, start| is_lmdb(start),
        open: lmdb,
        open_url: None,
    },
    DataFormat {
        name: "tar",
        looks_like: "a file that begins with a tar header, a folder of `.tar` files, a pattern such as \
                     `train-{000..099}.tar`, or a manifest `train.manifest.json`",
        extensions: &["tar", "tgz", "gz"],
        is_folder: |_| false, // `folder_or_shards`
        is_file: |path, start| tar::is_tar(start) || tar::is_manifest(path, start),
        open: |path, options| Ok(Arc::new(if options.mapped { Tar::open(path)? } else { Tar::open_unmapped(path)? })),
        open_url: Some(|url, options| {
            Ok(Arc::new(Tar::in_store(url, Remote::new(options.stores.of(url)?.clone()), None)?))
        }),
    },
    DataFormat {
        name: "mds",
        looks_like: "a folder with the `index.json` of MosaicML's shards, or that file",
        extensions: &[],
        is_folder: |folder| is_mds(Path::new(INDEX), &folder.start(INDEX)),
        is_file: is_mds,
        open: mds,
        open_url: Some(|url, options| mds(Path::new(url), options)),
    },
    DataFormat {
        name: "litdata",
        looks_like: "a folder with the `index.json` of LitData's chunks, or that file",
        extensions: &[],
        is_folder: |folder| is_litdata(Path::new(INDEX), &folder.start(INDEX)),
        is_file: is_litdata,
        open: litdata,
        open_url: Some(|url, options| litdata(Path::new(url), options)),
    },
    DataFormat {
        name: "arrow",
        looks_like: "a folder that `datasets.save_to_disk` wrote, an `.arrow` file in the stream or file format, or a \
                     folder of them",
        extensions: &["arrow"],
        is_folder: Arrow::is_saved,
        is_file: |_, start| start.starts_with(arrow::MAGIC),
        open: |path, options| Ok(Arc::new(Arrow::with(path, None, options)?)),
        open_url: None,
    },
    DataFormat {
        name: "parquet",
        looks_like: "a `.parquet` file, or a folder of them, also in its folder `data`",
        extensions: &["parquet"],
        is_folder: |_| false, // `of_files`
        is_file: |_, start| start.starts_with(b"PAR1"),
        open: |path, options| parquet(path, None, options),
        open_url: Some(|url, options| parquet_at(url, None, options)),
    },
    DataFormat {
        name: "beton",
        looks_like: "a `.beton` file",
        extensions: &["beton"],
        is_folder: |_| false,
        is_file: |_, _| false,
        open: beton,
        open_url: Some(|url, options| beton(Path::new(url), options)),
    },
    DataFormat {
        name: "recordio",
        looks_like: "a file that begins with RecordIO's magic number, such as `train.rec`",
        extensions: &["rec"],
        is_folder: |_| false,
        is_file: is_recordio,
        open: recordio,
        open_url: Some(|url, options| recordio(Path::new(url), options)),
    },
    DataFormat {
        name: "npy",
        looks_like: "an `.npy` file whose first axis counts the samples, or a folder of them",
        extensions: &["npy"],
        is_folder: is_npy_folder,
        is_file: |_, start| start.starts_with(b"\x93NUMPY"),
        open: |path, options| arrays(path, "npy", options),
        open_url: Some(|url, options| with_part(url, "npy", options, |at, o| arrays(at, "npy", o))),
    },
    DataFormat {
        name: "npz",
        looks_like: "an `.npz` archive of NumPy",
        extensions: &["npz"],
        is_folder: |_| false,
        is_file: |_, _| false,
        open: |path, options| arrays(path, "npz", options),
        open_url: Some(|url, options| with_part(url, "npz", options, |at, o| arrays(at, "npz", o))),
    },
    DataFormat {
        name: "safetensors",
        looks_like: "a `.safetensors` file",
        extensions: &["safetensors"],
        is_folder: |_| false,
        is_file: |_, _| false,
        open: |path, options| arrays(path, "safetensors", options),
        open_url: Some(|url, options| with_part(url, "safetensors", options, |at, o| arrays(at, "safetensors", o))),
    },
    DataFormat {
        name: "torch",
        looks_like: "a `.pt` or `.pth` file of tensors",
        extensions: &["pt", "pth"],
        is_folder: |_| false,
        is_file: |_, _| false,
        open: |path, options| arrays(path, "torch", options),
        open_url: Some(|url, options| with_part(url, "torch", options, |at, o| arrays(at, "torch", o))),
    },
    DataFormat {
        name: "hdf5",
        looks_like: "an HDF5 file whose arrays have the samples on their first axis",
        extensions: &["h5", "hdf5"],
        is_folder: |_| false,
        is_file: |_, start| start.starts_with(b"\x89HDF\r\n\x1a\n"),
        open: hdf5,
        open_url: None,
    },
    DataFormat {
        name: "tfrecord",
        looks_like: "a TFRecord file of `tf.train.Example`, or a folder of shards such as `train-00000-of-01024`",
        extensions: &["tfrecord", "tfrecords", "tfrec"],
        is_folder: is_records_folder,
        is_file: |path, _| path.file_name().is_some_and(|name| is_records_name(&name.to_string_lossy())),
        open: tfrecord,
        open_url: Some(|url, options| with_part(url, "tfrecord", options, tfrecord)),
    },
    DataFormat {
        name: "coco",
        looks_like: "a `.json` file, or a folder with `_annotations.coco.json`",
        extensions: &["json"],
        is_folder: |folder| folder.has_file(COCO_JSON),
        is_file: |_, _| false,
        open: coco,
        open_url: Some(coco_at),
    },
    DataFormat {
        name: "yolo",
        looks_like: "a `.yaml` file, a folder with `images` and `labels`, or a folder below `images` that has its \
                     counterpart below `labels`",
        extensions: &["yaml", "yml"],
        is_folder: is_yolo,
        is_file: |_, _| false,
        open: yolo,
        open_url: None,
    },
    DataFormat {
        name: "voc",
        looks_like: "a folder with `JPEGImages` and `Annotations` or `SegmentationClass`, or a list in its `ImageSets`",
        extensions: &[],
        is_folder: is_voc,
        is_file: |path, _| is_voc_list(path),
        open: voc,
        open_url: None,
    },
    DataFormat {
        name: "table",
        looks_like: "a `.csv`, `.tsv`, `.tab`, `.jsonl` or `.ndjson` file",
        extensions: &["csv", "tsv", "tab", "jsonl", "ndjson"],
        is_folder: |_| false,
        is_file: |_, _| false,
        open: table,
        open_url: Some(|url, options| table(Path::new(url), options)),
    },
    DataFormat {
        name: "folder",
        looks_like: "any other folder: pictures, in one sub-folder for each class or flat",
        extensions: &[],
        is_folder: |_| false, // `folder_or_shards`
        is_file: |_, _| false,
        open: |path, options| Ok(Arc::new(Folder::with(path, options)?)),
        open_url: Some(|url, options| {
            Ok(Arc::new(Folder::at_url(url, options.stores.of(url)?, options.formats.clone())?))
        }),
    },
];

impl DataFormat {
    /// The format of this name.
    ///
    /// # Errors
    /// If no format has this name. The message lists the names.
    pub(in crate::source) fn named(name: &str) -> Result<&'static DataFormat> {
        DATA_FORMATS.iter().find(|format| format.name == name).ok_or_else(|| {
            let names: Vec<_> = DATA_FORMATS.iter().map(|format| format.name).collect();
            Error::config(format!("no format of data sets is called {name:?}; there are {}", names.join(", ")))
        })
    }

    pub(in crate::source) fn has_extension(&self, path: &Path) -> bool {
        let extension = path.extension().unwrap_or_default();
        self.extensions.iter().any(|known| extension.eq_ignore_ascii_case(known))
    }

    pub(in crate::source) fn open(&self, path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
        if let (Some(part), false) = (&options.part, WITH_PARTS.contains(&self.name)) {
            let cause = format!("{} data sets have no parts such as {part:?}", self.name);
            return Err(Error::config(cause).at_path(path));
        }
        (self.open)(path, options)
    }

    /// Opens the data set at `url`.
    ///
    /// # Errors
    /// If the URL has no store, or the format needs files and the store has no cache.
    pub(in crate::source) fn open_url(&self, url: &str, options: &Options) -> Result<Arc<dyn Source>> {
        options.stores.of(url)?;
        if let Some(open) = self.open_url {
            return open(url, options);
        }
        let brought = bring(self.name, &|path| self.has_extension(path), url, &options.stores);
        let (path, part) = brought.map_err(|e| e.at_path(url))?;
        match &part {
            None => self.open(&path, options),
            Some(split) if self.name == "arrow" => {
                let absent = || Error::in_source("nothing is at this URL, or below it").at_path(url);
                of_files(&path, Some(split), options).ok_or_else(absent)?
            }
            Some(_) => self.open(&path, &Options { part, ..options.clone() }),
        }
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

/// Whether a folder is a data set that may have parts.
pub(in crate::source) fn has_parts(folder: &Path) -> bool {
    DATA_FORMATS.iter().any(|format| WITH_PARTS.contains(&format.name) && (format.is_folder)(Tree::Local(folder)))
}

/// The format of a pattern of files.
pub(in crate::source) fn of_pattern() -> &'static DataFormat {
    DataFormat::named("tar").expect("a row of the table")
}

/// The format of the file at `path`, which begins with `start`.
///
/// # Errors
/// If no format matches.
pub(in crate::source) fn of_file(path: &Path, start: &[u8]) -> Result<&'static DataFormat> {
    let found = DATA_FORMATS.iter().find(|format| (format.is_file)(path, start) || format.has_extension(path));
    found.ok_or_else(|| Error::in_source(not_a_data_set(start)).at_path(path))
}

/// Opens the folder at `path`.
///
/// # Errors
/// If no format matches, or the folder contains both shards and pictures.
pub(in crate::source) fn open_folder(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    if let Some(format) = DATA_FORMATS.iter().find(|format| (format.is_folder)(Tree::Local(path))) {
        return format.open(path, options);
    }
    let tars = tar::tars_in(path)?.len();
    let folder = Folder::with(path, options);
    if tars == 0
        && folder.is_err()
        && let Some(opened) = of_files(path, None, options)
    {
        return opened;
    }
    match (folder, tars) {
        (Ok(folder), 0) => {
            no_annotations(Tree::Local(path), folder.class_folders()).map_err(|e| e.at_path(path))?;
            Ok(Arc::new(folder))
        }
        (Ok(folder), _) => Err(Error::in_source(format!(
            "holds {tars} .tar files and {} images; open one of the two with `Tar::open` or `Folder::open`, or move them apart",
            folder.len()
        ))
        .at_path(path)),
        (Err(_), 0) if !sets_in(path).is_empty() => {
            let cause = format!("has the data sets {}; open one of them, or join them with Concat", sets_in(path).join(", "));
            Err(Error::in_source(cause).at_path(path))
        }
        (Err(e), 0) if e.kind() == ErrorKind::Source => {
            tar::unmerged(path)?;
            Err(Error::in_source(format!("{}; no data.mdb, no .tar files", e.cause())).at_path(e.path().unwrap_or(path)))
        }
        (Err(e), 0) => Err(e),
        (Err(_), _) => of_pattern().open(path, options),
    }
}

/// Checks that a folder of class folders is not an annotated data set, whose pictures would get the
/// numbers of folders such as `train` as their labels. `pictures` are the folders of the pictures.
///
/// # Errors
/// If it is one. The message says what to open.
pub(in crate::source) fn no_annotations<'a>(folder: Tree<'_>, pictures: impl Iterator<Item = &'a str>) -> Result<()> {
    match annotations_in(folder, pictures) {
        Some(found) => Err(Error::in_source(format!(
            "looks like {found}; its folders would be classes, and the format \"folder\" opens it so"
        ))),
        None => Ok(()),
    }
}

/// Opens the Arrow or Parquet files in `folder`, if there are any: those of `split`, or of the only
/// split.
pub(in crate::source) fn of_files(folder: &Path, split: Option<&str>, options: &Options) -> Option<Opened> {
    let open = || -> Result<Option<Arc<dyn Source>>> {
        if Arrow::is_saved(Tree::Local(folder)) || !splits::files_in(folder, "arrow")?.is_empty() {
            return Ok(Some(Arc::new(Arrow::with(folder, split, options)?)));
        }
        if !Tree::Local(folder).files("parquet")?.is_empty() {
            return parquet(folder, split, options).map(Some);
        }
        Ok(None)
    };
    open().transpose()
}

#[cfg_attr(not(feature = "parquet"), allow(unused_variables))]
fn parquet(path: &Path, split: Option<&str>, options: &Options) -> Opened {
    with_feature!("parquet", "a Parquet data set", path, crate::source::formats::Parquet::with(path, split, options)?)
}

/// Opens the Parquet file at `url`, or those among `listing`, all objects below it, that belong to
/// the split.
#[cfg_attr(not(feature = "parquet"), allow(unused_variables))]
pub(in crate::source) fn parquet_at(
    url: &str,
    listing: Option<(Vec<Object>, Option<&str>)>,
    options: &Options,
) -> Opened {
    with_feature!(
        "parquet",
        "a Parquet data set",
        url,
        crate::source::formats::Parquet::in_store(url, options.stores.of(url)?, listing, options)?
    )
}

fn lmdb(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    if !options.mapped {
        return Err(Error::config(
            "an lmdb is always memory-mapped, by its library; open it mapped, or pack it as tar shards (warpfeed pack --from x.lmdb --to x.tar)",
        )
        .at_path(path));
    }
    with_feature!("lmdb", "an LMDB", path, {
        let name = options.part.as_deref();
        let (wanted, classes, lenient) = (options.wanted(), options.classes.as_ref(), options.lenient);
        crate::source::formats::Lmdb::with_options(
            path,
            &crate::source::formats::lmdb::LmdbOptions { name, wanted, classes, lenient },
        )?
    })
}

/// Whether the file at `path`, which begins with `start`, lists MDS shards.
fn is_mds(path: &Path, start: &[u8]) -> bool {
    is_index(path) && memmem::find(start, b"\"shards\"").is_some()
}

/// Whether the file at `path`, which begins with `start`, lists LitData's chunks.
fn is_litdata(path: &Path, start: &[u8]) -> bool {
    is_index(path) && memmem::find(start, b"\"chunks\"").is_some()
}

fn is_index(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == INDEX)
}

/// Folders in `folder` that are data sets of their own, such as the splits of MDS shards.
fn sets_in(folder: &Path) -> Vec<String> {
    let is_set = |start: &[u8]| is_mds(Path::new(INDEX), start) || is_litdata(Path::new(INDEX), start);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let entries = entries.filter(|entry| is_set(&Tree::Local(&entry.path()).start(INDEX)));
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[cfg_attr(not(feature = "chunks"), allow(unused_variables))]
fn mds(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    with_feature!("chunks", "a data set of MDS shards", path, crate::source::formats::mds::open(path, options)?)
}

#[cfg_attr(not(feature = "chunks"), allow(unused_variables))]
fn litdata(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    with_feature!(
        "chunks",
        "a data set of LitData's chunks",
        path,
        crate::source::formats::litdata::open(path, options)?
    )
}

#[cfg_attr(not(feature = "chunks"), allow(unused_variables))]
fn beton(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    with_feature!("chunks", "a data set of FFCV", path, crate::source::formats::beton::open(path, options)?)
}

fn is_recordio(_path: &Path, start: &[u8]) -> bool {
    start.starts_with(&[0x0a, 0x23, 0xd7, 0xce])
}

#[cfg_attr(not(feature = "chunks"), allow(unused_variables))]
fn recordio(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    with_feature!("chunks", "a RecordIO file", path, crate::source::formats::recordio::open(path, options)?)
}

#[cfg_attr(not(feature = "arrays"), allow(unused_variables))]
fn arrays(path: &Path, kind: &'static str, options: &Options) -> Result<Arc<dyn Source>> {
    with_feature!("arrays", "a data set of arrays", path, crate::source::formats::Arrays::with(path, kind, options)?)
}

/// Opens the data set at `url` by `open`. The last part of the URL may be a part of the data set
/// before it, as in `x.npz/train`, if nothing is there.
fn with_part(url: &str, kind: &str, options: &Options, open: impl Fn(&Path, &Options) -> Opened) -> Opened {
    let url = url.trim_end_matches('/');
    let format = DataFormat::named(kind)?;
    let is_named = |name: &str| format.has_extension(Path::new(name));
    let Some((set, part)) = url.rsplit_once('/').filter(|(_, part)| !is_named(part)) else {
        return open(Path::new(url), options);
    };
    let (remote, asked) = (Remote::new(options.stores.of(url)?.clone()), url.to_owned());
    let is_part = is_named(set)
        || remote.repeated(move |store| store.object(&asked)).is_err()
            && remote.list(url).is_ok_and(|found| found.is_empty());
    match is_part {
        true => open(Path::new(set), &Options { part: Some(part.to_owned()), ..options.clone() }),
        false => open(Path::new(url), options),
    }
}

#[cfg_attr(not(feature = "hdf5"), allow(unused_variables))]
fn hdf5(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    with_feature!("hdf5", "an HDF5 file", path, crate::source::formats::Arrays::with(path, "hdf5", options)?)
}

#[cfg_attr(not(feature = "arrays"), allow(unused_variables))]
fn tfrecord(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    with_feature!("arrays", "a TFRecord file", path, crate::source::formats::TfRecord::with(path, options)?)
}

#[cfg_attr(not(feature = "annotations"), allow(unused_variables))]
fn coco(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    let in_folder = Tree::Local(path).has_file(COCO_JSON).then(|| path.join(COCO_JSON));
    let (json, pictures) = in_folder.as_deref().map_or((path, None), |json| (json, Some(path)));
    with_feature!(
        "annotations",
        "a COCO data set",
        json,
        crate::source::formats::Coco::with_formats(json, pictures, options.formats.clone())?
    )
}

/// Opens the annotations at `url`, or those in the folder of pictures at `url`.
#[cfg_attr(not(feature = "annotations"), allow(unused_variables))]
fn coco_at(url: &str, options: &Options) -> Opened {
    let in_folder = (!url.ends_with(".json")).then(|| format!("{}/{COCO_JSON}", url.trim_end_matches('/')));
    let (json, pictures) = in_folder.as_deref().map_or((url, None), |json| (json, Some(url)));
    with_feature!(
        "annotations",
        "a COCO data set",
        json,
        crate::source::formats::Coco::in_store(json, pictures, options.formats.clone(), &options.stores)?
    )
}

#[cfg_attr(not(feature = "annotations"), allow(unused_variables))]
fn yolo(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    with_feature!(
        "annotations",
        "a YOLO data set",
        path,
        crate::source::formats::Yolo::with_formats(path, "train", options.formats.clone())?
    )
}

#[cfg_attr(not(feature = "annotations"), allow(unused_variables))]
fn voc(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    with_feature!(
        "annotations",
        "a Pascal VOC data set",
        path,
        crate::source::formats::Voc::with_formats(path, options.formats.clone(), 1.0)?
    )
}

#[cfg_attr(not(feature = "tables"), allow(unused_variables))]
fn table(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    with_feature!(
        "tables",
        "a table",
        path,
        options.table.open_with(
            path,
            options.classes.as_ref(),
            options.lenient,
            options.formats.clone(),
            &options.stores
        )?
    )
}

/// The error of an unrecognised file that begins with `start`.
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
    let formats: Vec<_> =
        DATA_FORMATS.iter().map(|format| format!("{} ({})", format.name, format.looks_like.replace('`', ""))).collect();
    format!("not a data set of any format: {}; the file begins with {shown}", formats.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_a_row_in_the_documentation_and_is_found_by_its_name() {
        let page = include_str!("../../../docs/your-data.md");
        for format in DATA_FORMATS {
            let row = |line: &&str| line.starts_with('|') && line.contains(&format!("`{}`", format.name));
            assert!(page.lines().find(row).is_some(), "{} is missing in docs/your-data.md", format.name);
            assert_eq!(DataFormat::named(format.name).unwrap().name, format.name);
            for extension in format.extensions {
                let file = format!("x.{}", extension.to_uppercase());
                assert_eq!(of_file(Path::new(&file), b"").unwrap().name, format.name, "{file}");
            }
        }
        let e = of_file(Path::new("x.zip"), b"PK\x03\x04").err().unwrap();
        assert!(e.cause().contains("tar (a file that begins with a tar header"), "{e}");
        assert!(e.cause().ends_with("begins with [50, 4b, 03, 04]"), "{e}");
    }
}
