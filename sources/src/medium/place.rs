use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::HeldFile;
use crate::error::{Error, Result};
use crate::machine::file;
use crate::machine::parallel::{ASKING, in_parallel, on_threads};
use crate::medium::ahead::Remote;
use crate::model::Object;

/// Where the files of a dataset are, and how they are opened.
#[derive(Clone)]
pub(crate) enum Medium {
    /// Local files.
    Machine {
        /// Whether files are memory-mapped.
        mapped: bool,
    },
    Store {
        remote: Arc<Remote>,
        /// Known objects, sorted by URL.
        listed: Arc<[Object]>,
    },
}

impl Medium {
    /// Lists the objects below `folder` in advance if the medium is a store that supports listing,
    /// and returns the medium. One listing replaces a request per file, and pins the versions of
    /// all files at the same moment.
    pub(crate) fn listed(self, folder: &Path) -> Self {
        let url = folder.to_str().unwrap_or_default();
        let mut medium = self;
        // If the store cannot list objects, opening each file costs one request.
        let _ = medium.list(url);
        medium
    }

    /// Lists the objects below `url` if the medium is a store and they have not been listed yet.
    ///
    /// # Errors
    /// If the objects cannot be listed.
    pub(crate) fn list(&mut self, url: &str) -> Result<()> {
        let Medium::Store { remote, listed } = self else { return Ok(()) };
        let url = url.trim_end_matches('/');
        let is_known = |first: &Object| first.url.strip_prefix(url).is_some_and(|rest| rest.starts_with('/'));
        if !listed.first().is_some_and(is_known) {
            let mut found = remote.list(url)?;
            found.sort_by(|a, b| a.url.cmp(&b.url));
            *listed = found.into();
        }
        Ok(())
    }

    pub(crate) fn is_store(&self) -> bool {
        matches!(self, Medium::Store { .. })
    }

    /// Returns the folder that contains `path`, or `None` if `path` is a bucket, which has no
    /// parent folder.
    pub(crate) fn parent(&self, path: &Path) -> Option<PathBuf> {
        match self {
            Medium::Machine { .. } => path.parent().map(Path::to_owned),
            Medium::Store { .. } => {
                let (above, _) = path.to_str()?.trim_end_matches('/').rsplit_once('/')?;
                above.split_once("://").filter(|(_, bucket)| !bucket.is_empty()).map(|_| above.into())
            }
        }
    }

    /// Returns the path of the file `name` in `folder`.
    pub(crate) fn join(&self, folder: &Path, name: &str) -> PathBuf {
        match self {
            Medium::Machine { .. } => folder.join(name),
            Medium::Store { .. } => format!("{}/{name}", folder.display().to_string().trim_end_matches('/')).into(),
        }
    }

    /// Returns the files directly in `folder` whose names satisfy `is`, sorted. Hidden files are
    /// skipped. A folder in a store must have been [listed](Medium::listed).
    ///
    /// # Errors
    /// If the folder cannot be listed.
    pub(crate) fn files_in(&self, folder: &Path, is: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
        let is = |name: &str| !name.starts_with('.') && is(name);
        let mut files = Vec::new();
        match self {
            Medium::Machine { .. } => {
                for entry in fs::read_dir(folder).map_err(|e| Error::io(folder, &e))? {
                    let path = entry.map_err(|e| Error::io(folder, &e))?.path();
                    if is(&path.file_name().unwrap_or_default().to_string_lossy()) && file::is_file(&path)? {
                        files.push(path);
                    }
                }
            }
            Medium::Store { listed, .. } => {
                let root = url_of(folder)?.trim_end_matches('/');
                let name = |object: &Object| object.url.strip_prefix(root)?.strip_prefix('/').map(str::to_owned);
                let names = listed.iter().filter_map(name).filter(|name| !name.contains('/') && is(name));
                files.extend(names.map(|name| self.join(folder, &name)));
            }
        }
        files.sort();
        Ok(files)
    }

    /// Opens the file or the object at `path`, which is a URL if the medium is a store.
    ///
    /// # Errors
    /// If the file does not exist or cannot be opened.
    pub(crate) fn open(&self, path: &Path) -> Result<HeldFile> {
        let (remote, listed) = match self {
            Medium::Machine { mapped } => return HeldFile::open(path, *mapped).map(|(file, _)| file),
            Medium::Store { remote, listed } => (remote, listed),
        };
        let url = url_of(path)?;
        let object = match listed.binary_search_by(|object| object.url.as_str().cmp(url)) {
            Ok(place) => listed[place].clone(),
            Err(_) => {
                let url = url.to_owned();
                remote.repeated(move |store| store.object(&url))?
            }
        };
        Ok(HeldFile::stored(object, remote.clone()))
    }

    /// Reads a whole file of at most `most` bytes.
    ///
    /// # Errors
    /// If the file is larger or cannot be read.
    pub(crate) fn read(&self, path: &Path, most: u64) -> Result<Vec<u8>> {
        match self {
            Medium::Machine { .. } => file::read(path, most).map_err(|e| Error::io(path, &e)),
            Medium::Store { .. } => whole(&self.open(path)?, most),
        }
    }

    /// Like [`read`](Medium::read), but returns `None` if the file does not exist.
    ///
    /// # Errors
    /// The errors of [`read`](Medium::read). Also fails if a store does not respond.
    pub(crate) fn find(&self, path: &Path, most: u64) -> Result<Option<Vec<u8>>> {
        let Medium::Store { remote, listed } = self else {
            return file::exists(path)?.then(|| self.read(path, most)).transpose();
        };
        let url = url_of(path)?.to_owned();
        if !listed.is_empty() {
            let found = listed.binary_search_by(|object| object.url.cmp(&url)).ok();
            return found.map(|_| self.read(path, most)).transpose();
        }
        let found = remote.repeated(move |store| match store.object(&url) {
            // Not every store can tell a missing object from other errors, so every permanent error
            // counts as a missing object.
            Err(e) if !e.is_transient() => Ok(None),
            found => found.map(Some),
        })?;
        found.map(|object| whole(&HeldFile::stored(object, remote.clone()), most)).transpose()
    }

    /// Calls `open` for each item on several threads, and returns the results in the order of the
    /// items.
    ///
    /// # Errors
    /// The error of the first item that fails.
    pub(crate) fn in_parallel<T: Sync, R: Send>(
        &self,
        items: &[T],
        open: impl Fn(&T) -> Result<R> + Sync + Send,
    ) -> Result<Vec<R>> {
        if self.is_store() { on_threads(ASKING, items, open) } else { in_parallel(items, open) }
    }
}

fn url_of(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::in_source("the URL is not UTF-8").at_path(path))
}

/// Reads the whole `file`, which may have at most `most` bytes.
fn whole(file: &HeldFile, most: u64) -> Result<Vec<u8>> {
    if file.len() > most {
        let cause = format!("the file exceeds the limit of {most} bytes");
        return Err(Error::in_source(cause).at_path(&file.path));
    }
    let mut bytes = Vec::new();
    file.get(0, file.len(), &mut bytes)?;
    Ok(bytes)
}
