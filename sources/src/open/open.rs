use std::path::Path;
use std::sync::Arc;

use super::walk::walk;
use crate::error::{Error, Result};
use crate::formats::tar;
use crate::machine::file;
use crate::model::Source;
use crate::options::{DataFormat, Options};

/// Opens the dataset at `path`. Its content determines the format, not its name.
/// [`DATA_FORMATS`](crate::DATA_FORMATS) lists the formats and how each is recognized.
///
/// ```no_run
/// let source = warpfeed_sources::open("train")?;
/// println!("{} samples in a {}", source.len(), source.kind());
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
///
/// # Errors
/// If the path does not exist, its format is not recognized (the message lists the formats), a
/// folder holds both shards and images, or the source cannot be opened.
pub fn open(path: impl AsRef<Path>) -> Result<Arc<dyn Source>> {
    Options::new().open(path)
}

impl Options {
    /// Opens the dataset at `path` like [`open`], with these options.
    ///
    /// # Errors
    /// The errors of [`open`]. Also for an LMDB with `mmap(false)`, an option that this dataset
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

    /// Opens one of several datasets that share these options, at `path`. It may have no use for
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
        return Err(Error::config("the path of the dataset is empty"));
    }
    let at = options.at(path)?;
    let mut format = options.format.as_deref().map(DataFormat::named).transpose()?;
    if options.masks.is_some() {
        if at.medium.is_store() {
            let cause = "masks are read from folders of this machine; copy the set, or pack it, which keeps the masks";
            return Err(Error::config(cause).at_path(path));
        }
        // A folder with masks beside it may look like another format, such as YOLO with `labels`.
        if format.get_or_insert(DataFormat::named("folder")?).name != "folder" || file::is_file(path)? {
            return Err(
                Error::config("masks in another folder need a folder of images; this is something else").at_path(path)
            );
        }
    }
    if !at.medium.is_store() {
        tar::check_star(&at.path)?;
    }
    let path = at.path.clone();
    walk(at, format, options).map_err(|e| e.at_path(path))
}
