use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::HeldFile;
use crate::error::{Error, Result};
use crate::machine::file;
use crate::machine::parallel::{ASKING, in_parallel, on_threads};
use crate::medium::ahead::Remote;
use crate::model::Object;

/// Where the files of a dataset lie, and how they are opened.
#[derive(Clone)]
pub(crate) enum Medium {
    Machine {
        mapped: bool,
    },
    Store {
        remote: Arc<Remote>,
        /// Known objects, sorted by their URLs.
        listed: Arc<[Object]>,
    },
}

impl Medium {
    /// The same medium, whose files below `folder` are listed in one request if it is a store that
    /// can list: all have the versions of one moment, and need no request each.
    pub(crate) fn listed(self, folder: &Path) -> Self {
        let url = folder.to_str().unwrap_or_default();
        let mut medium = self;
        // A store that cannot list is asked for each file.
        let _ = medium.list(url);
        medium
    }

    /// Lists the objects below `url`, if it is a store and they are not known.
    ///
    /// # Errors
    /// If they cannot be listed.
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

    /// The folder of what is at `path`; not the one of all buckets of a store.
    pub(crate) fn parent(&self, path: &Path) -> Option<PathBuf> {
        match self {
            Medium::Machine { .. } => path.parent().map(Path::to_owned),
            Medium::Store { .. } => {
                let (above, _) = path.to_str()?.trim_end_matches('/').rsplit_once('/')?;
                above.split_once("://").filter(|(_, bucket)| !bucket.is_empty()).map(|_| above.into())
            }
        }
    }

    /// The path of the file `name` in `folder`.
    pub(crate) fn join(&self, folder: &Path, name: &str) -> PathBuf {
        match self {
            Medium::Machine { .. } => folder.join(name),
            Medium::Store { .. } => format!("{}/{name}", folder.display().to_string().trim_end_matches('/')).into(),
        }
    }

    /// The files directly in `folder` whose names `is` takes, in their order. Hidden ones are left
    /// out. Those of a store must be [listed](Medium::listed).
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

    /// Opens the file at `path`, or the object at this URL.
    ///
    /// # Errors
    /// If there is none, or it cannot be opened.
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

    /// Reads a file of up to `most` bytes.
    ///
    /// # Errors
    /// If it is larger, or cannot be read.
    pub(crate) fn read(&self, path: &Path, most: u64) -> Result<Vec<u8>> {
        match self {
            Medium::Machine { .. } => file::read(path, most).map_err(|e| Error::io(path, &e)),
            Medium::Store { .. } => whole(&self.open(path)?, most),
        }
    }

    /// Like [`read`](Medium::read); `None` if there is no such file.
    ///
    /// # Errors
    /// Those of [`read`](Medium::read). Also if a store does not answer.
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
            // Not all stores say for certain that there is none.
            Err(e) if !e.is_transient() => Ok(None),
            found => found.map(Some),
        })?;
        found.map(|object| whole(&HeldFile::stored(object, remote.clone()), most)).transpose()
    }

    /// Calls `open` for each item, on several threads.
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

/// All bytes of `file`.
fn whole(file: &HeldFile, most: u64) -> Result<Vec<u8>> {
    if file.len() > most {
        let cause = format!("the file has more than {most} bytes, which is the limit");
        return Err(Error::in_source(cause).at_path(&file.path));
    }
    let mut bytes = Vec::new();
    file.get(0, file.len(), &mut bytes)?;
    Ok(bytes)
}
