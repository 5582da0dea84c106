//! The table of data set formats, with the detector and the opener of each.
//!
//! Detection, [`Options::format`](super::Options::format), messages and the documentation use this
//! table. A format is one row.

use std::path::Path;
use std::sync::Arc;

use super::ahead::Remote;
use super::folder::{StoredFolder, is_picture};
use super::layout::{coco_json, is_lmdb, is_voc, is_voc_list, yolo_pictures};
use super::options::Options;
use super::{Folder, Source, Tar, tar};
use crate::error::{Error, ErrorKind, Result};
use crate::format;

type Opened = Result<Arc<dyn Source>>;

/// One format of data sets.
pub struct DataFormat {
    /// Its name, as [`Source::kind`] returns it and [`Options::format`](super::Options::format)
    /// takes it.
    pub name: &'static str,
    /// Description of a path to such a data set.
    pub looks_like: &'static str,
    /// Extensions of its files. A file with one of them is opened as this format, so a damaged file
    /// gets the format's own message.
    pub extensions: &'static [&'static str],
    is_folder: fn(&Path) -> bool,
    /// Recognises a file by its path and its first bytes.
    is_file: fn(&Path, &[u8]) -> bool,
    open: fn(&Path, &Options) -> Opened,
    /// Opens the data set at a URL.
    open_url: Option<fn(&str, &Options) -> Opened>,
}

/// All formats, in the order in which they are tried.
pub const DATA_FORMATS: &[DataFormat] = &[
    DataFormat {
        name: "lmdb",
        looks_like: "a folder with `data.mdb`, or a file with LMDB's magic number at byte 16",
        extensions: &["lmdb", "mdb"],
        is_folder: |path| path.join("data.mdb").exists(),
        is_file: |_, start| is_lmdb(start),
        open: lmdb,
        open_url: None,
    },
    DataFormat {
        name: "tar",
        looks_like: "a file that begins with a tar header, a folder of `.tar` files, or a pattern such as \
                     `train-{000..099}.tar`",
        extensions: &["tar", "tgz", "gz"],
        is_folder: |_| false, // `folder_or_shards`
        is_file: |_, start| tar::is_tar(start),
        open: |path, options| Ok(Arc::new(if options.mapped { Tar::open(path)? } else { Tar::open_unmapped(path)? })),
        open_url: Some(|url, options| Ok(Arc::new(Tar::in_store(url, options.stores.of(url)?, None)?))),
    },
    DataFormat {
        name: "coco",
        looks_like: "a `.json` file, or a folder with `_annotations.coco.json`",
        extensions: &["json"],
        is_folder: |path| coco_json(path).is_some(),
        is_file: |_, _| false,
        open: coco,
        open_url: None,
    },
    DataFormat {
        name: "yolo",
        looks_like: "a `.yaml` file, a folder with `images` and `labels`, or a folder below `images` that has its \
                     counterpart below `labels`",
        extensions: &["yaml", "yml"],
        is_folder: |path| yolo_pictures(path).is_some(),
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
        open_url: None,
    },
    DataFormat {
        name: "folder",
        looks_like: "any other folder: pictures, in one sub-folder for each class or flat",
        extensions: &[],
        is_folder: |_| false, // `folder_or_shards`
        is_file: |_, _| false,
        open: |path, options| Ok(Arc::new(Folder::with_formats(path, options.formats.clone(), options.indexed)?)),
        open_url: Some(|url, options| {
            Ok(Arc::new(StoredFolder::open(url, options.stores.of(url)?, options.formats.clone())?))
        }),
    },
];

impl DataFormat {
    /// The format of this name.
    ///
    /// # Errors
    /// If no format has this name. The message lists the names.
    pub(super) fn named(name: &str) -> Result<&'static DataFormat> {
        DATA_FORMATS.iter().find(|format| format.name == name).ok_or_else(|| {
            let names: Vec<_> = DATA_FORMATS.iter().map(|format| format.name).collect();
            Error::config(format!("no format of data sets is called {name:?}; there are {}", names.join(", ")))
        })
    }

    fn has_extension(&self, path: &Path) -> bool {
        let extension = path.extension().unwrap_or_default();
        self.extensions.iter().any(|known| extension.eq_ignore_ascii_case(known))
    }

    pub(super) fn open(&self, path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
        (self.open)(path, options)
    }

    /// Opens the data set at `url`.
    ///
    /// # Errors
    /// If the URL has no store, or the format cannot be read from stores.
    pub(super) fn open_url(&self, url: &str, options: &Options) -> Result<Arc<dyn Source>> {
        options.stores.of(url)?;
        let Some(open) = self.open_url else {
            let readable: Vec<_> =
                DATA_FORMATS.iter().filter(|format| format.open_url.is_some()).map(|format| format.name).collect();
            let (name, readable) = (self.name, readable.join(", "));
            let cause = format!("{name} data sets are not read from a store, only {readable}; copy it to this machine");
            return Err(Error::config(cause).at_path(url));
        };
        open(url, options)
    }
}

/// Opens the data set at `url`: a file whose extension determines the format, a pattern of shards, or
/// the shards or pictures below the URL.
///
/// # Errors
/// If the URL has no store, its format cannot be read from stores, or both shards and pictures lie
/// below it.
pub(super) fn open_at(url: &str, options: &Options) -> Opened {
    let by_extension = DATA_FORMATS.iter().find(|format| format.has_extension(Path::new(url)));
    if let Some(format) = by_extension {
        return format.open_url(url, options);
    }
    if tar::has_braces(Path::new(url)) {
        return of_pattern().open_url(url, options);
    }
    let (store, formats) = (options.stores.of(url)?, options.formats.clone());
    let remote = Remote::new(store.clone());
    let objects = remote.repeated(|| store.list(&format!("{}/", url.trim_end_matches('/'))))?;
    let tars = objects.iter().filter(|object| tar::is_shard(&object.url)).count();
    let pictures = objects.iter().filter(|object| is_picture(object, &formats)).count();
    match (tars, pictures) {
        (0, 0) => {
            let cause = format!("no .tar objects and no pictures among {} objects below this URL", objects.len());
            Err(Error::in_source(cause).at_path(url))
        }
        (0, _) => Ok(Arc::new(StoredFolder::of(url, objects, remote, formats)?)),
        (_, 0) => Ok(Arc::new(Tar::in_store(url, store, Some(objects))?)),
        _ => Err(Error::in_source(format!(
            "{tars} .tar objects and {pictures} pictures lie below this URL; give the URL of one of the two, or the format"
        ))
        .at_path(url)),
    }
}

/// The format of a pattern of files.
pub(super) fn of_pattern() -> &'static DataFormat {
    DataFormat::named("tar").expect("a row of the table")
}

/// The format of the file at `path`, which begins with `start`.
///
/// # Errors
/// If no format matches.
pub(super) fn of_file(path: &Path, start: &[u8]) -> Result<&'static DataFormat> {
    let found = DATA_FORMATS.iter().find(|format| (format.is_file)(path, start) || format.has_extension(path));
    found.ok_or_else(|| Error::in_source(not_a_data_set(start)).at_path(path))
}

/// Opens the folder at `path`.
///
/// # Errors
/// If no format matches, or the folder contains both shards and pictures.
pub(super) fn open_folder(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    if let Some(format) = DATA_FORMATS.iter().find(|format| (format.is_folder)(path)) {
        return format.open(path, options);
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
        (Err(_), _) => of_pattern().open(path, options),
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

fn lmdb(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    if !options.mapped {
        return Err(Error::config(
            "an lmdb is always memory-mapped, by its library; open it mapped, or pack it as tar shards (warpfeed pack --from x.lmdb --to x.tar)",
        )
        .at_path(path));
    }
    with_feature!("lmdb", "an LMDB", path, super::Lmdb::open(path)?)
}

#[cfg_attr(not(feature = "annotations"), allow(unused_variables))]
fn coco(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    let in_folder = coco_json(path);
    let (json, pictures) = in_folder.as_deref().map_or((path, None), |json| (json, Some(path)));
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
        let page = include_str!("../../docs/your-data.md");
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
