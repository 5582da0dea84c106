//! Finds the format of what lies at a path or a URL, by the rows of the formats.

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
    /// The format of this name.
    ///
    /// # Errors
    /// If no format has this name. The message lists the names.
    pub(crate) fn named(name: &str) -> Result<&'static DataFormat> {
        DATA_FORMATS.iter().find(|format| format.name == name).ok_or_else(|| {
            let names: Vec<_> = DATA_FORMATS.iter().map(|format| format.name).collect();
            Error::config(format!("no format of datasets is called {name:?}; there are {}", names.join(", ")))
        })
    }

    /// Whether the file at `path`, which begins with `start`, is of this format.
    fn is(&self, path: &Path, start: &[u8]) -> bool {
        (self.is_file)(path, start) || self.has_extension(path)
    }
}

/// What lies at a path or a URL.
enum Found {
    File,
    /// A folder. That of a store is listed.
    Folder,
    /// Nothing, or nothing that the store lists, with its error.
    Nothing(Option<Error>),
}

/// Opens the dataset that is there, as `format` or as the format that is found.
///
/// # Errors
/// If nothing is there, no format is found, a folder cannot be listed, it holds both shards and
/// images, or the format cannot open it.
pub(super) fn walk(mut at: At, format: Option<&'static DataFormat>, options: &Options) -> Opened {
    // The format finds what it needs, unless the path may be that of a part.
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

/// Looks what is there. In a store, a name with the extension of a format is a file, and anything
/// else is listed. A file of `format` may have any name.
///
/// # Errors
/// If the system or the store cannot tell.
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
        // A store that does not answer has been asked often enough.
        Err(e) if e.kind() == ErrorKind::Io && format.is_none() => return Err(e),
        // Some stores refuse to list what does not exist.
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

/// The rows of all formats, or that of `format`.
fn rows(format: Option<&DataFormat>) -> impl Iterator<Item = &'static DataFormat> {
    DATA_FORMATS.iter().filter(move |row| format.is_none_or(|format| format.name == row.name))
}

/// The format whose files a path that leads nowhere stands for.
///
/// # Errors
/// If the system cannot tell. Also if it is a pattern for files of a format that has none.
fn pattern_of(at: &At) -> Result<Option<&'static DataFormat>> {
    for format in DATA_FORMATS {
        if !(format.is_pattern)(&at.path)? {
            continue;
        }
        let other = DATA_FORMATS.iter().find(|other| other.name != format.name && other.has_extension(&at.path));
        return match other {
            None => Ok(Some(format)),
            Some(other) => Err(Error::config(format!(
                "a pattern in braces names tar shards, and this one names files of the format {}: give their folder, and \
                 the name of the split if it has several, as in folder/train",
                other.name
            ))),
        };
    }
    Ok(None)
}

/// The dataset of which nothing but a part, such as `train` in `all.lmdb/train`, can be at a path:
/// a file, or a folder with its format.
///
/// # Errors
/// If the system cannot tell.
fn set_of(at: &At, format: Option<&DataFormat>) -> Result<Option<(At, Option<&'static DataFormat>)>> {
    let part = at.path.file_name().and_then(|name| name.to_str());
    let (Some(set), Some(part)) = (at.medium.parent(&at.path), part) else { return Ok(None) };
    let mut set = At { path: set, part: Some(part.to_owned()), medium: at.medium.clone() };
    let is_store = at.medium.is_store();
    let found = match look(&mut set, None) {
        // The error of the URL itself is clearer.
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

/// The first format of `rows` that recognizes a folder.
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

/// The first format of `rows` whose files are in a folder.
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

/// The first bytes of a file. In a store, names tell enough, except those of lists of files.
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
/// If no format matches, or the folder contains both shards and images.
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
                    "holds {shards} .tar files and {} images: open one of the two by its format, tar or folder, or move \
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
        return Err(Error::in_source(format!("has the datasets {sets}; open one of them, or join them with Concat")));
    }
    tar::unmerged_in(tree)?;
    let cause = match at.medium.is_store() {
        true => format!("no .tar objects and {}", e.cause()),
        false => format!("{}; no data.mdb, no .tar files", e.cause()),
    };
    let below = match tree.files("tar")?.len() {
        0 => String::new(),
        count => format!("; {count} .tar files lie in folders below it: open one of the folders"),
    };
    Err(Error::in_source(cause + &below).at_path(e.path().unwrap_or(&at.path)))
}

/// Checks that a folder of class folders is not an annotated dataset, whose images would get the
/// numbers of folders such as `train` as their labels. `images` are the folders of the images.
///
/// # Errors
/// If it is one. The message says what to open.
fn check_unannotated<'a>(folder: Tree<'a>, images: impl Iterator<Item = &'a str>) -> Result<()> {
    let around = Around::of(folder, images)?;
    for format in DATA_FORMATS {
        if let Some(found) = (format.annotates)(&around)? {
            return Err(Error::in_source(format!(
                "looks like {found}; its folders would be classes, and the format \"folder\" opens it so"
            )));
        }
    }
    Ok(())
}

/// Folders in `folder` that are datasets of their own, such as the splits of MDS shards.
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

/// The error of a path that leads nowhere.
fn absent(path: &Path) -> Error {
    match url_meant(path) {
        Some(url) => Error::config(format!("no such path; a URL begins with two slashes: {url}")),
        // The absolute path shows which folder a relative path refers to.
        None => {
            let e = fs::metadata(path).err().unwrap_or_else(|| io::ErrorKind::NotFound.into());
            Error::io(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()), &e)
        }
    }
}

/// The URL for a path such as `s3:/bucket/train`, which lacks a slash.
fn url_meant(path: &Path) -> Option<String> {
    let (scheme, rest) = path.to_str()?.split_once(":/")?;
    // A single letter is a drive of Windows.
    let is_scheme = scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric());
    is_scheme.then(|| format!("{scheme}://{rest}"))
}

/// The error of an unrecognized file that begins with `start`.
fn not_a_dataset(start: &[u8]) -> String {
    if start.is_empty() {
        return "not a dataset: the file is empty".to_owned();
    }
    if let Some(format) = format::of(start) {
        return format!("not a dataset: this is one image ({}); give the folder it lies in", format.field);
    }
    let shown = &start[..start.len().min(16)];
    let shown = match std::str::from_utf8(shown) {
        Ok(text) if !text.contains(|c: char| c.is_control() && !c.is_whitespace()) => format!("the text {text:?}"),
        _ => format!("{:02x?}", &shown[..shown.len().min(8)]),
    };
    let formats: Vec<_> =
        DATA_FORMATS.iter().map(|format| format!("{} ({})", format.name, format.looks_like.replace('`', ""))).collect();
    format!("not a dataset of any format: {}; the file begins with {shown}", formats.join("; "))
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
                let found = DATA_FORMATS.iter().find(|format| format.is(Path::new(&file), b""));
                assert_eq!(found.unwrap().name, format.name, "{file}");
            }
        }
        let cause = not_a_dataset(b"PK\x03\x04");
        assert!(cause.contains("tar (a file that begins with a tar header"), "{cause}");
        assert!(cause.ends_with("begins with [50, 4b, 03, 04]"), "{cause}");
    }
}
