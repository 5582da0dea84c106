//! Detects the format of the dataset at a path or URL.

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use crate::error::{Error, ErrorKind, Result, counted};
use crate::format;
use crate::formats::{DATA_FORMATS, Folder, tar};
use crate::machine::file;
use crate::model::Source;
use crate::options::{DataFormat, Opened, Options};
use crate::storage::tree::{HEAD_BYTES, INDEX_FILE, Tree};
use crate::storage::{DatasetLocation, Siblings, Storage};

impl DataFormat {
    pub(crate) fn from_name(name: &str) -> Result<&'static DataFormat> {
        DATA_FORMATS.iter().find(|format| format.name == name).ok_or_else(|| {
            let names: Vec<_> = DATA_FORMATS.iter().map(|format| format.name).collect();
            Error::config(format!("format {name:?}: expected one of {}", names.join(", ")))
        })
    }

    fn matches_file(&self, path: &Path, start: &[u8]) -> bool {
        (self.is_file)(path, start) || self.has_extension(path)
    }
}

enum PathKind {
    File,
    /// A folder in a store has been listed.
    Folder,
    /// Nothing exists at this location. Contains the error if the store could not list the URL.
    Nothing(Option<Error>),
}

/// Opens the dataset at this location as `format`, or detects the format if `format` is `None`.
/// Detection fails if a folder contains both shards and images.
pub(super) fn detect_and_open(
    mut location: DatasetLocation,
    format: Option<&'static DataFormat>,
    options: &Options,
) -> Opened {
    // With an explicit format, skip the request that looks up the URL, unless the URL may name a
    // split of a dataset, such as `all.lmdb/train`.
    if let Some(format) = format.filter(|format| !format.has_splits && location.storage.is_store()) {
        return format.open(location, options);
    }
    let mut entry = look_up(&mut location, format)?;
    let mut detected = None;
    if let PathKind::Nothing(_) = entry {
        detected = format_of_pattern(&location)?;
        if detected.is_none()
            && let Some((dataset, dataset_format)) = enclosing_dataset(&location, format)?
        {
            (location, detected, entry) = (dataset, dataset_format, PathKind::File);
        }
    }
    match (format.or(detected), entry) {
        (Some(format), _) => format.open(location, options),
        (None, PathKind::File) => {
            let start = start_of_file(&location)?;
            let detected = DATA_FORMATS.iter().find(|format| format.matches_file(&location.path, &start));
            detected
                .ok_or_else(|| Error::in_source(describe_not_a_dataset(&start)).at_path(&location.path))?
                .open(location, options)
        }
        (None, PathKind::Folder) => open_folder(location, options),
        (None, PathKind::Nothing(error)) => match (error, location.storage.is_store()) {
            (Some(error), _) => Err(error),
            (None, true) => open_folder(location, options),
            (None, false) => Err(no_such_path_error(&location.path)),
        },
    }
}

/// Looks up whether a file or a folder exists at the location. In a store, a URL with a file name
/// that matches `format`, or any format if it is `None`, counts as a file, without a request. Any
/// other URL is listed. If `format` is given and the listing is empty or fails, also looks for an
/// object at the URL itself.
fn look_up(location: &mut DatasetLocation, format: Option<&DataFormat>) -> Result<PathKind> {
    let Storage::Store { remote, .. } = &location.storage else {
        return Ok(match file::metadata(&location.path)? {
            None => PathKind::Nothing(None),
            Some(metadata) if metadata.is_dir() => PathKind::Folder,
            Some(_) => PathKind::File,
        });
    };
    let remote = remote.clone();
    if candidates(format).any(|format| format.matches_file(&location.path, &[])) {
        return Ok(PathKind::File);
    }
    let error = match location.list() {
        // The store is probably unreachable, because the request was already retried.
        Err(e) if e.kind() == ErrorKind::Io && format.is_none() => return Err(e),
        // Some stores report an error for the listing of a folder that does not exist.
        Err(e) => Some(e),
        Ok(false) => None,
        Ok(true) => return Ok(PathKind::Folder),
    };
    let url = location.url().to_owned();
    match format.map(|_| remote.repeated(move |store| store.object(&url))) {
        Some(Ok(_)) => Ok(PathKind::File),
        _ => Ok(PathKind::Nothing(error)),
    }
}

fn candidates(format: Option<&DataFormat>) -> impl Iterator<Item = &'static DataFormat> {
    DATA_FORMATS.iter().filter(move |other| format.is_none_or(|format| format.name == other.name))
}

/// Returns the format that accepts this path, which does not exist, as a pattern for several files.
/// Fails for a pattern with the extension of a format that does not support patterns.
fn format_of_pattern(location: &DatasetLocation) -> Result<Option<&'static DataFormat>> {
    for format in DATA_FORMATS {
        if !(format.is_pattern)(&location.path)? {
            continue;
        }
        let other = DATA_FORMATS.iter().find(|other| other.name != format.name && other.has_extension(&location.path));
        return match other {
            None => Ok(Some(format)),
            Some(other) => Err(Error::config(format!(
                "only tar shards can be opened with a pattern in braces, but these files have the format {}: open \
                 their folder, or a split in it, as in folder/train",
                other.name
            ))),
        };
    }
    Ok(None)
}

/// If this path names a split of a dataset, as in `all.lmdb/train`, returns the path of the dataset
/// (`all.lmdb`) and its format. The format is `None` if the dataset is a single file.
fn enclosing_dataset(
    location: &DatasetLocation,
    format: Option<&DataFormat>,
) -> Result<Option<(DatasetLocation, Option<&'static DataFormat>)>> {
    let split = location.path.file_name().and_then(|name| name.to_str());
    let (Some(parent), Some(split)) = (location.storage.parent(&location.path), split) else { return Ok(None) };
    let mut dataset =
        DatasetLocation { path: parent, split: Some(split.to_owned()), storage: location.storage.clone() };
    let is_store = location.storage.is_store();
    let entry = match look_up(&mut dataset, None) {
        // Ignore this error, because the caller's error for the URL itself is clearer.
        Err(_) if is_store => return Ok(None),
        result => result?,
    };
    let with_splits = || candidates(format).filter(|format| format.has_splits);
    let detected = match entry {
        PathKind::File if is_store && !with_splits().any(|format| format.matches_file(&dataset.path, &[])) => {
            return Ok(None);
        }
        PathKind::File => None,
        PathKind::Nothing(_) => return Ok(None),
        PathKind::Folder => match format_by_layout(dataset.tree(), with_splits())? {
            Some(format) => Some(format),
            None => match format_by_files(dataset.tree(), with_splits())? {
                None => return Ok(None),
                format => format,
            },
        },
    };
    Ok(Some((dataset, detected)))
}

fn format_by_layout(
    folder: Tree<'_>,
    formats: impl Iterator<Item = &'static DataFormat>,
) -> Result<Option<&'static DataFormat>> {
    for format in formats {
        if (format.is_folder)(folder)? {
            return Ok(Some(format));
        }
    }
    Ok(None)
}

fn format_by_files(
    folder: Tree<'_>,
    formats: impl Iterator<Item = &'static DataFormat>,
) -> Result<Option<&'static DataFormat>> {
    for format in formats {
        if (format.files)(folder)? > 0 {
            return Ok(Some(format));
        }
    }
    Ok(None)
}

/// Returns the beginning of a file. Reads a file in a store only if its URL ends in `.json`,
/// because all other formats are identified by the file name.
fn start_of_file(location: &DatasetLocation) -> Result<Vec<u8>> {
    match &location.storage {
        Storage::Machine { .. } => file::read_head(&location.path, HEAD_BYTES),
        Storage::Store { .. } if !location.url().ends_with(".json") => Ok(Vec::new()),
        store => {
            let (file, mut bytes) = (store.open(&location.path)?, Vec::new());
            file.get(0, HEAD_BYTES as u64, &mut bytes)?;
            Ok(bytes)
        }
    }
}

/// Opens a folder in the first of these formats that applies: the format of its layout, class
/// folders, or the format of its files. Fails if the folder contains both tar shards and images.
fn open_folder(location: DatasetLocation, options: &Options) -> Opened {
    let tree = location.tree();
    if let Some(format) = format_by_layout(tree, DATA_FORMATS.iter())? {
        return format.open(location, options);
    }
    let e = match Folder::open_at(&location, options) {
        Err(e) if e.kind() == ErrorKind::Memory => return Err(e),
        Err(e) => e,
        Ok(folder) => {
            let shards = (tar::DATA_FORMAT.files)(tree)?;
            if shards > 0 {
                return Err(Error::in_source(format!(
                    "the folder contains {} and {}: open one of the two by its format, tar or \
                     folder, or move them apart",
                    counted(shards, ".tar file", ".tar files"),
                    counted(folder.len(), "image", "images")
                )));
            }
            check_unannotated(tree, folder.class_folders(location.url()))?;
            return Ok(Arc::new(folder));
        }
    };
    if let Some(format) = format_by_files(tree, DATA_FORMATS.iter())? {
        return format.open(location, options);
    }
    if e.kind() != ErrorKind::Source {
        return Err(e);
    }
    let datasets = datasets_in(tree)?;
    if !datasets.is_empty() {
        let datasets = datasets.join(", ");
        return Err(Error::in_source(format!(
            "the folder contains the datasets {datasets}; open one of them, or join them with Concat"
        )));
    }
    tar::ensure_merged(tree)?;
    let cause = match location.storage.is_store() {
        true => format!("found no .tar objects, and {}", e.cause()),
        false => format!("{}; there is also no data.mdb and no .tar file", e.cause()),
    };
    let hint = match tree.files("tar")?.len() {
        0 => String::new(),
        count => {
            let files = counted(count, ".tar file", ".tar files");
            format!("; its subfolders contain {files}: open one of the subfolders")
        }
    };
    Err(Error::in_source(cause + &hint).at_path(e.path().unwrap_or(&location.path)))
}

/// Rejects annotated datasets that look like class folders, because folders such as `train` would
/// become class names. `images` yields the paths of the folders that contain images. The error
/// names the path to open instead.
fn check_unannotated<'a>(folder: Tree<'a>, images: impl Iterator<Item = &'a str>) -> Result<()> {
    let siblings = Siblings::of(folder, images)?;
    for format in DATA_FORMATS {
        if let Some(description) = (format.annotation_hint)(&siblings)? {
            return Err(Error::in_source(format!(
                "looks like {description}; to read its folders as classes, set the format to \"folder\""
            )));
        }
    }
    Ok(())
}

/// Returns the subfolders that are separate datasets, such as the splits of an MDS dataset.
fn datasets_in(folder: Tree<'_>) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in folder.entries() {
        let (name, is_folder) = entry?;
        let start = if is_folder {
            folder.in_subfolder(&name, |subfolder| subfolder.first_bytes(INDEX_FILE))?
        } else {
            Vec::new()
        };
        if DATA_FORMATS.iter().any(|format| (format.is_file)(Path::new(INDEX_FILE), &start)) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn no_such_path_error(path: &Path) -> Error {
    match intended_url(path) {
        Some(url) => Error::config(format!("no such path; a URL begins with two slashes: {url}")),
        // The absolute path shows how a relative path was resolved.
        None => {
            let e = fs::metadata(path).err().unwrap_or_else(|| io::ErrorKind::NotFound.into());
            Error::io(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()), &e)
        }
    }
}

/// Returns the URL that the user probably meant by a path such as `s3:/bucket/train`.
fn intended_url(path: &Path) -> Option<String> {
    let (scheme, rest) = path.to_str()?.split_once(":/")?;
    // A single letter before the colon is a Windows drive.
    let is_scheme = scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric());
    is_scheme.then(|| format!("{scheme}://{rest}"))
}

fn describe_not_a_dataset(start: &[u8]) -> String {
    if start.is_empty() {
        return "not a dataset: the file is empty".to_owned();
    }
    if let Some(format) = format::detect(start) {
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
            assert_eq!(DataFormat::from_name(format.name).unwrap().name, format.name);
            for extension in format.extensions {
                let file = format!("x.{}", extension.to_uppercase());
                let detected = DATA_FORMATS.iter().find(|format| format.matches_file(Path::new(&file), b""));
                assert_eq!(detected.unwrap().name, format.name, "{file}");
            }
        }
        let cause = describe_not_a_dataset(b"PK\x03\x04");
        assert!(cause.contains("tar (a file that begins with a tar header"), "{cause}");
        assert!(cause.ends_with("begins with [50, 4b, 03, 04]"), "{cause}");
    }
}
