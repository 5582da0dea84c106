//! Recognises and opens files and folders by the rows of the formats.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::format;
use crate::formats::{Arrow, DATA_FORMATS, Folder, parquet, tar};
use crate::medium::ahead::Remote;
use crate::medium::brought::bring;
use crate::medium::layout::{INDEX, annotations_in, is_litdata, is_mds};
use crate::medium::splits;
use crate::medium::tree::Tree;
use crate::model::Source;
use crate::options::{AtUrl, DataFormat, Opened, Options};

impl DataFormat {
    /// The format of this name.
    ///
    /// # Errors
    /// If no format has this name. The message lists the names.
    pub(crate) fn named(name: &str) -> Result<&'static DataFormat> {
        DATA_FORMATS.iter().find(|format| format.name == name).ok_or_else(|| {
            let names: Vec<_> = DATA_FORMATS.iter().map(|format| format.name).collect();
            Error::config(format!("no format of data sets is called {name:?}; there are {}", names.join(", ")))
        })
    }

    pub(crate) fn open(&self, path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
        if let (Some(part), false) = (&options.part, self.has_parts) {
            let cause = format!("{} data sets have no parts such as {part:?}", self.name);
            return Err(Error::config(cause).at_path(path));
        }
        (self.open)(path, options)
    }

    /// Opens the data set at `url`.
    ///
    /// # Errors
    /// If the URL has no store, or the format needs files and the store has no cache.
    pub(crate) fn open_url(&self, url: &str, options: &Options) -> Result<Arc<dyn Source>> {
        options.stores.of(url)?;
        let companions = match &self.at_url {
            AtUrl::Same if self.has_parts => return self.with_part(url, options),
            AtUrl::Same => return self.open(Path::new(url), options),
            AtUrl::Other(open) => return open(url, options),
            AtUrl::Brought(companions) => companions,
        };
        let brought = bring(companions, &|path| self.has_extension(path), url, &options.stores);
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

    /// Opens the data set at `url`. The last part of the URL may be a part of the data set
    /// before it, as in `x.npz/train`, if nothing is there.
    fn with_part(&self, url: &str, options: &Options) -> Opened {
        let url = url.trim_end_matches('/');
        let is_named = |name: &str| self.has_extension(Path::new(name));
        let Some((set, part)) = url.rsplit_once('/').filter(|(_, part)| !is_named(part)) else {
            return self.open(Path::new(url), options);
        };
        let (remote, asked) = (Remote::new(options.stores.of(url)?.clone()), url.to_owned());
        let is_part = is_named(set)
            || remote.repeated(move |store| store.object(&asked)).is_err()
                && remote.list(url).is_ok_and(|found| found.is_empty());
        match is_part {
            true => self.open(Path::new(set), &Options { part: Some(part.to_owned()), ..options.clone() }),
            false => self.open(Path::new(url), options),
        }
    }
}

/// Whether a folder is a data set that may have parts.
pub(crate) fn has_parts(folder: &Path) -> bool {
    DATA_FORMATS.iter().any(|format| format.has_parts && (format.is_folder)(Tree::Local(folder)))
}

/// The format of a pattern of files.
pub(crate) fn of_pattern() -> &'static DataFormat {
    DataFormat::named("tar").expect("a row of the table")
}

/// The format of the file at `path`, which begins with `start`.
///
/// # Errors
/// If no format matches.
pub(crate) fn of_file(path: &Path, start: &[u8]) -> Result<&'static DataFormat> {
    let found = DATA_FORMATS.iter().find(|format| (format.is_file)(path, start) || format.has_extension(path));
    found.ok_or_else(|| Error::in_source(not_a_data_set(start)).at_path(path))
}

/// Opens the folder at `path`.
///
/// # Errors
/// If no format matches, or the folder contains both shards and pictures.
pub(crate) fn open_folder(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    if let Some(format) = DATA_FORMATS.iter().find(|format| (format.is_folder)(Tree::Local(path))) {
        return format.open(path, options);
    }
    let tars = tar::tars_in(path)?.len();
    let folder = match Folder::with(path, options) {
        Err(e) if e.kind() == ErrorKind::Memory => return Err(e),
        folder => folder,
    };
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
pub(crate) fn no_annotations<'a>(folder: Tree<'_>, pictures: impl Iterator<Item = &'a str>) -> Result<()> {
    match annotations_in(folder, pictures) {
        Some(found) => Err(Error::in_source(format!(
            "looks like {found}; its folders would be classes, and the format \"folder\" opens it so"
        ))),
        None => Ok(()),
    }
}

/// Opens the Arrow or Parquet files in `folder`, if there are any: those of `split`, or of the only
/// split.
pub(crate) fn of_files(folder: &Path, split: Option<&str>, options: &Options) -> Option<Opened> {
    let open = || -> Result<Option<Arc<dyn Source>>> {
        if Arrow::is_saved(Tree::Local(folder)) || !splits::files_in(folder, "arrow")?.is_empty() {
            return Ok(Some(Arc::new(Arrow::with(folder, split, options)?)));
        }
        if !Tree::Local(folder).files("parquet")?.is_empty() {
            return parquet::open(folder, split, options).map(Some);
        }
        Ok(None)
    };
    open().transpose()
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
