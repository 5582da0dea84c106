//! Detects the format of the dataset at a path or URL, using the table of formats.

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use crate::error::{Error, ErrorKind, Result};
use crate::format;
use crate::formats::{DATA_FORMATS, Folder, tar};
use crate::machine::file;
use crate::medium::tree::{INDEX, START, Tree};
use crate::medium::{Around, At, Medium};
use crate::model::Source;
use crate::options::{DataFormat, Opened, Options};

impl DataFormat {
    /// Returns the format called `name`.
    ///
    /// # Errors
    /// If no format has this name. The message lists the names.
    pub(crate) fn named(name: &str) -> Result<&'static DataFormat> {
        DATA_FORMATS.iter().find(|format| format.name == name).ok_or_else(|| {
            let names: Vec<_> = DATA_FORMATS.iter().map(|format| format.name).collect();
            Error::config(format!("format {name:?}: expected one of {}", names.join(", ")))
        })
    }

    /// Returns whether the file at `path`, which begins with `start`, has this format.
    fn is(&self, path: &Path, start: &[u8]) -> bool {
        (self.is_file)(path, start) || self.has_extension(path)
    }
}

/// What exists at a path or URL.
enum Found {
    File,
    /// A folder. A folder in a store has been listed.
    Folder,
    /// Nothing exists, or the store lists nothing. Contains the error of the lookup, if there is
    /// one.
    Nothing(Option<Error>),
}

/// Opens the dataset at this location as `format`, or as the detected format if `format` is `None`.
///
/// # Errors
/// If nothing exists at the location, if no format is detected, if a folder cannot be listed or
/// contains both shards and images, or if the format cannot open the dataset.
pub(super) fn walk(mut at: At, format: Option<&'static DataFormat>, options: &Options) -> Opened {
    // An explicit format examines the URL itself, unless the URL may name a part of a dataset.
    if let Some(format) = format.filter(|format| !format.has_parts && at.medium.is_store()) {
        return format.open(at, options);
    }
    let mut found = look(&mut at, format)?;
    let mut of_names = None;
    if let Found::Nothing(_) = found {
        of_names = pattern_of(&at)?;
        if of_names.is_none()
            && let Some((set, row)) = set_of(&at, format)?
        {
            (at, of_names, found) = (set, row, Found::File);
        }
    }
    match (format.or(of_names), found) {
        (Some(format), _) => format.open(at, options),
        (None, Found::File) => {
            let start = start_of(&at)?;
            let found = DATA_FORMATS.iter().find(|format| format.is(&at.path, &start));
            found.ok_or_else(|| Error::in_source(not_a_dataset(&start)).at_path(&at.path))?.open(at, options)
        }
        (None, Found::Folder) => folder(at, options),
        (None, Found::Nothing(error)) => match (error, at.medium.is_store()) {
            (Some(error), _) => Err(error),
            (None, true) => folder(at, options),
            (None, false) => Err(absent(&at.path)),
        },
    }
}

/// Determines what exists at the location. In a store, a name with the extension of a format is
/// treated as a file, and any other name is listed. If `format` is given, a file may have any name.
///
/// # Errors
/// If the operating system or the store reports an error.
fn look(at: &mut At, format: Option<&DataFormat>) -> Result<Found> {
    let Medium::Store { remote, .. } = &at.medium else {
        return Ok(match file::found(&at.path)? {
            None => Found::Nothing(None),
            Some(found) if found.is_dir() => Found::Folder,
            Some(_) => Found::File,
        });
    };
    let remote = remote.clone();
    if rows(format).any(|format| format.is(&at.path, &[])) {
        return Ok(Found::File);
    }
    let error = match at.list() {
        // The request has already been retried, so the store is unreachable.
        Err(e) if e.kind() == ErrorKind::Io && format.is_none() => return Err(e),
        // Some stores report an error when a folder that does not exist is listed.
        Err(e) => Some(e),
        Ok(false) => None,
        Ok(true) => return Ok(Found::Folder),
    };
    let url = at.url().to_owned();
    match format.map(|_| remote.repeated(move |store| store.object(&url))) {
        Some(Ok(_)) => Ok(Found::File),
        _ => Ok(Found::Nothing(error)),
    }
}

/// Returns the rows of all formats, or only the row of `format`.
fn rows(format: Option<&DataFormat>) -> impl Iterator<Item = &'static DataFormat> {
    DATA_FORMATS.iter().filter(move |row| format.is_none_or(|format| format.name == row.name))
}

/// Returns the format of a path that does not exist but may be a pattern for several files.
///
/// # Errors
/// If the operating system cannot examine the path, or if the path is a pattern for files of a
/// format that does not support patterns.
fn pattern_of(at: &At) -> Result<Option<&'static DataFormat>> {
    for format in DATA_FORMATS {
        if !(format.is_pattern)(&at.path)? {
            continue;
        }
        let other = DATA_FORMATS.iter().find(|other| other.name != format.name && other.has_extension(&at.path));
        return match other {
            None => Ok(Some(format)),
            Some(other) => Err(Error::config(format!(
                "a pattern in braces is for tar shards, but this one names files of the format {}: open their folder, or a \
                 split in it, as in folder/train",
                other.name
            ))),
        };
    }
    Ok(None)
}

/// Returns the file or folder of the dataset that the path names a part of, such as `train` in
/// `all.lmdb/train`, and its format.
///
/// # Errors
/// If the operating system cannot examine the path.
fn set_of(at: &At, format: Option<&DataFormat>) -> Result<Option<(At, Option<&'static DataFormat>)>> {
    let part = at.path.file_name().and_then(|name| name.to_str());
    let (Some(set), Some(part)) = (at.medium.parent(&at.path), part) else { return Ok(None) };
    let mut set = At { path: set, part: Some(part.to_owned()), medium: at.medium.clone() };
    let is_store = at.medium.is_store();
    let found = match look(&mut set, None) {
        // The caller's error for the URL itself is clearer.
        Err(_) if is_store => return Ok(None),
        found => found?,
    };
    let with_parts = || rows(format).filter(|format| format.has_parts);
    let row = match found {
        Found::File if is_store && !with_parts().any(|format| format.is(&set.path, &[])) => return Ok(None),
        Found::File => None,
        Found::Nothing(_) => return Ok(None),
        Found::Folder => match by_layout(set.tree(), with_parts())? {
            Some(row) => Some(row),
            None => match by_files(set.tree(), with_parts())? {
                None => return Ok(None),
                row => row,
            },
        },
    };
    Ok(Some((set, row)))
}

/// Returns the first format in `rows` that recognizes a folder.
///
/// # Errors
/// If the folder cannot be listed.
fn by_layout(folder: Tree<'_>, rows: impl Iterator<Item = &'static DataFormat>) -> Result<Option<&'static DataFormat>> {
    for format in rows {
        if (format.is_folder)(folder)? {
            return Ok(Some(format));
        }
    }
    Ok(None)
}

/// Returns the first format in `rows` that finds files of its own in a folder.
///
/// # Errors
/// If the folder cannot be listed.
fn by_files(folder: Tree<'_>, rows: impl Iterator<Item = &'static DataFormat>) -> Result<Option<&'static DataFormat>> {
    for format in rows {
        if (format.files)(folder)? > 0 {
            return Ok(Some(format));
        }
    }
    Ok(None)
}

/// Returns the first bytes of a file. In a store, only JSON files are read, because all other
/// formats are identified by the file name.
fn start_of(at: &At) -> Result<Vec<u8>> {
    match &at.medium {
        Medium::Machine { .. } => file::start(&at.path, START),
        Medium::Store { .. } if !at.url().ends_with(".json") => Ok(Vec::new()),
        store => {
            let (file, mut bytes) = (store.open(&at.path)?, Vec::new());
            file.get(0, START as u64, &mut bytes)?;
            Ok(bytes)
        }
    }
}

/// Opens a folder.
///
/// # Errors
/// If no format matches the folder, or if it contains both shards and images.
fn folder(at: At, options: &Options) -> Opened {
    let tree = at.tree();
    if let Some(format) = by_layout(tree, DATA_FORMATS.iter())? {
        return format.open(at, options);
    }
    let e = match Folder::with(&at, options) {
        Err(e) if e.kind() == ErrorKind::Memory => return Err(e),
        Err(e) => e,
        Ok(folder) => {
            let shards = (tar::ROW.files)(tree)?;
            if shards > 0 {
                return Err(Error::in_source(format!(
                    "contains {shards} .tar files and {} images: open one of the two by its format, tar or folder, or move \
                     them apart",
                    folder.len()
                )));
            }
            check_unannotated(tree, folder.class_folders(at.url()))?;
            return Ok(Arc::new(folder));
        }
    };
    if let Some(format) = by_files(tree, DATA_FORMATS.iter())? {
        return format.open(at, options);
    }
    if e.kind() != ErrorKind::Source {
        return Err(e);
    }
    let sets = sets_in(tree)?;
    if !sets.is_empty() {
        let sets = sets.join(", ");
        return Err(Error::in_source(format!(
            "contains the datasets {sets}; open one of them, or join them with Concat"
        )));
    }
    tar::unmerged_in(tree)?;
    let cause = match at.medium.is_store() {
        true => format!("no .tar objects and {}", e.cause()),
        false => format!("{}; no data.mdb, no .tar files", e.cause()),
    };
    let below = match tree.files("tar")?.len() {
        0 => String::new(),
        count => format!("; {count} .tar files are in its subfolders: open one of them"),
    };
    Err(Error::in_source(cause + &below).at_path(e.path().unwrap_or(&at.path)))
}

/// Checks that a folder of class folders is not an annotated dataset, in which folder names such as
/// `train` would incorrectly become labels. `images` are the paths of the folders with images.
///
/// # Errors
/// If the folder is an annotated dataset. The message says what to open instead.
fn check_unannotated<'a>(folder: Tree<'a>, images: impl Iterator<Item = &'a str>) -> Result<()> {
    let around = Around::of(folder, images)?;
    for format in DATA_FORMATS {
        if let Some(found) = (format.annotates)(&around)? {
            return Err(Error::in_source(format!(
                "looks like {found}: to read its folders as classes, set the format to \"folder\""
            )));
        }
    }
    Ok(())
}

/// Returns the subfolders of `folder` that are separate datasets, such as the splits of an MDS
/// dataset.
fn sets_in(folder: Tree<'_>) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in folder.entries() {
        let (name, is_folder) = entry?;
        let start = if is_folder { folder.within(&name, |inside| inside.start(INDEX))? } else { Vec::new() };
        if DATA_FORMATS.iter().any(|format| (format.is_file)(Path::new(INDEX), &start)) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Returns the error for a path that does not exist.
fn absent(path: &Path) -> Error {
    match url_meant(path) {
        Some(url) => Error::config(format!("no such path; a URL begins with two slashes: {url}")),
        // Include the absolute path, to show what a relative path refers to.
        None => {
            let e = fs::metadata(path).err().unwrap_or_else(|| io::ErrorKind::NotFound.into());
            Error::io(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()), &e)
        }
    }
}

/// Returns the URL that was probably intended by a path such as `s3:/bucket/train`, which lacks a
/// slash.
fn url_meant(path: &Path) -> Option<String> {
    let (scheme, rest) = path.to_str()?.split_once(":/")?;
    // A single letter before the colon is a Windows drive.
    let is_scheme = scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric());
    is_scheme.then(|| format!("{scheme}://{rest}"))
}

/// Returns the error for an unrecognized file that begins with `start`.
fn not_a_dataset(start: &[u8]) -> String {
    if start.is_empty() {
        return "not a dataset: the file is empty".to_owned();
    }
    if let Some(format) = format::of(start) {
        return format!("not a dataset: this is a single image ({}); open its folder instead", format.field);
    }
    let shown = &start[..start.len().min(16)];
    let shown = match std::str::from_utf8(shown) {
        Ok(text) if !text.contains(|c: char| c.is_control() && !c.is_whitespace()) => format!("the text {text:?}"),
        _ => format!("{:02x?}", &shown[..shown.len().min(8)]),
    };
    let formats: Vec<_> =
        DATA_FORMATS.iter().map(|format| format!("{} ({})", format.name, format.looks_like.replace('`', ""))).collect();
    format!("not a dataset in a known format: {}; the file begins with {shown}", formats.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_documented_and_found_by_name() {
        let page = include_str!("../../../docs/your-data.md");
        for format in DATA_FORMATS {
            let row = |line: &&str| line.starts_with('|') && line.contains(&format!("`{}`", format.name));
            assert!(page.lines().find(row).is_some(), "{} is missing in docs/your-data.md", format.name);
            assert_eq!(DataFormat::named(format.name).unwrap().name, format.name);
            for extension in format.extensions {
                let file = format!("x.{}", extension.to_uppercase());
                let found = DATA_FORMATS.iter().find(|format| format.is(Path::new(&file), b""));
                assert_eq!(found.unwrap().name, format.name, "{file}");
            }
        }
        let cause = not_a_dataset(b"PK\x03\x04");
        assert!(cause.contains("tar (a file that begins with a tar header"), "{cause}");
        assert!(cause.ends_with("begins with [50, 4b, 03, 04]"), "{cause}");
    }
}
