use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::at_url;
use super::formats;
use crate::error::{Error, Result};
use crate::formats::{DATA_FORMATS, tar};
use crate::machine::file;
use crate::model::Source;
use crate::model::store::Location;
use crate::options::{DataFormat, Options};

/// Opens the data set at `path`. Its content determines the format, not its name.
/// [`DATA_FORMATS`](crate::DATA_FORMATS) lists the formats and how each is recognised.
///
/// ```no_run
/// let source = warpfeed_sources::open("train")?;
/// println!("{} samples in a {}", source.len(), source.kind());
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
///
/// # Errors
/// If the path does not exist, its format is not recognised (the message lists the formats), a
/// folder holds both shards and pictures, or the source cannot be opened.
pub fn open(path: impl AsRef<Path>) -> Result<Arc<dyn Source>> {
    Options::new().open(path)
}

impl Options {
    /// Opens the data set at `path` like [`open`], with these options.
    ///
    /// # Errors
    /// The errors of [`open`]. Also for an LMDB with `mmap(false)`, an option that this data set
    /// does not use ([`index`](Options::index), [`table`](Options::table)), a class that is not in
    /// the list, a URL whose scheme has no [store](Options::store), and a format that cannot be read
    /// from stores.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Arc<dyn Source>> {
        // A copy of its own, because clones share what they have opened.
        let (path, options) = (path.as_ref(), self.renewed());
        let source = options.open_part(path)?;
        options.check_used().map_err(|e| e.at_path(path))?;
        Ok(source)
    }

    /// Opens one of several data sets that share these options, at `path`. It may have no use for
    /// some of them, which [`check_used`](Options::check_used) finds out at the end.
    ///
    /// # Errors
    /// Those of [`open`](Options::open), except for options that are not used.
    pub fn open_part(&self, path: impl AsRef<Path>) -> Result<Arc<dyn Source>> {
        let path = path.as_ref();
        let source = self.number(any(path, self)?).map_err(|e| e.at_path(path))?;
        self.note_used(path, &*source);
        Ok(source)
    }
}

fn any(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    if path.as_os_str().is_empty() {
        return Err(Error::config("the path of the data set is empty"));
    }
    let mut format = options.format.as_deref().map(DataFormat::named).transpose()?;
    if options.masks.is_some() {
        if matches!(Location::of(path), Location::Url(_)) {
            let cause = "masks are read from folders of this machine; copy the set, or pack it, which keeps the masks";
            return Err(Error::config(cause).at_path(path));
        }
        // A folder with masks beside it may look like another format, such as YOLO with `labels`.
        if format.get_or_insert(DataFormat::named("folder")?).name != "folder" || file::is_file(path)? {
            return Err(Error::config("masks in another folder need a folder of pictures; this is something else")
                .at_path(path));
        }
    }
    match (Location::of(path), format) {
        (Location::Url(url), Some(format)) => format.open_url(&url, options),
        (Location::Url(url), None) => at_url::open_at(&url, options),
        (Location::Path(path), format) => match part_of(&path)? {
            None => of_path(&path, format, options),
            Some((path, part)) => of_path(path, format, &Options { part: Some(part.to_owned()), ..options.clone() }),
        },
    }
}

fn of_path(path: &Path, format: Option<&DataFormat>, options: &Options) -> Result<Arc<dyn Source>> {
    tar::check_star(path)?;
    let opened = match format {
        Some(format) => format.open(path, options),
        None => local(path, options),
    };
    opened.map_err(|e| e.at_path(path))
}

/// Splits `all.lmdb/train` into the path of a data set and the name of a part of it. `None` if the
/// path exists, or does not lead into a file or a database.
///
/// # Errors
/// If the system cannot tell.
fn part_of(path: &Path) -> Result<Option<(&Path, &str)>> {
    let named = path.parent().zip(path.file_name().and_then(|name| name.to_str()));
    let Some((set, part)) = named else { return Ok(None) };
    let has_parts = file::is_file(set)? || formats::has_parts(set);
    Ok((has_parts && !file::exists(path)?).then_some((set, part)))
}

/// The URL for a path such as `s3:/bucket/train`, which lacks a slash.
fn url_meant(path: &Path) -> Option<String> {
    let (scheme, rest) = path.to_str()?.split_once(":/")?;
    // A single letter is a drive of Windows.
    let is_scheme = scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric());
    is_scheme.then(|| format!("{scheme}://{rest}"))
}

/// Opens the data set at a local path.
fn local(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    if tar::has_braces(path) && !file::exists(path)? {
        let other = DATA_FORMATS.iter().find(|format| format.name != "tar" && format.has_extension(path));
        if let Some(format) = other {
            return Err(Error::config(format!(
                "a pattern in braces names tar shards, and this one names files of the format {}: give their folder, and \
                 the name of the split if it has several, as in folder/train",
                format.name
            ))
            .at_path(path));
        }
        return formats::of_pattern().open(path, options);
    }
    if tar::of_target(path)?.is_some() {
        return formats::of_pattern().open(path, options);
    }
    if !file::exists(path)?
        && let (Some(folder), Some(split)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
        && file::is_folder(folder)?
        && let Some(opened) = formats::of_files(folder, Some(split), options)
    {
        return opened;
    }
    // The absolute path shows which folder a relative path refers to.
    let metadata = fs::metadata(path).map_err(|e| match url_meant(path) {
        Some(url) => Error::config(format!("no such path; a URL begins with two slashes: {url}")).at_path(path),
        None => Error::io(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()), &e),
    })?;
    if metadata.is_dir() {
        return formats::open_folder(path, options);
    }
    let mut start = Vec::new();
    let opened = file::open(path).map_err(|e| Error::io(path, &e))?;
    opened.take(512).read_to_end(&mut start).map_err(|e| Error::io(path, &e))?;
    formats::of_file(path, &start)?.open(path, options)
}
