//! [`Storage`]: opens the files of a dataset on this machine or in a store.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::OpenFile;
use crate::error::{Error, Result};
use crate::machine::file;
use crate::machine::parallel::{STORE_THREADS, in_parallel, in_parallel_on};
use crate::model::Object;
use crate::storage::prefetch::Remote;

#[derive(Clone)]
pub(crate) enum Storage {
    Machine {
        mapped: bool,
    },
    Store {
        remote: Arc<Remote>,
        /// The objects that have been listed, sorted by URL.
        listed: Arc<[Object]>,
    },
}

impl Storage {
    /// Lists the objects under `folder` if the store supports it. The listing saves one request per
    /// file, and fixes the versions of all files at the same time.
    pub(crate) fn listed(self, folder: &Path) -> Self {
        let url = folder.to_str().unwrap_or_default();
        let mut storage = self;
        // Ignore errors. Without a listing, opening a file sends a request for its version.
        let _ = storage.list(url);
        storage
    }

    pub(crate) fn list(&mut self, url: &str) -> Result<()> {
        let Storage::Store { remote, listed } = self else { return Ok(()) };
        let url = url.trim_end_matches('/');
        let is_listed = |first: &Object| first.url.strip_prefix(url).is_some_and(|suffix| suffix.starts_with('/'));
        if !listed.first().is_some_and(is_listed) {
            let mut objects = remote.list(url)?;
            objects.sort_by(|a, b| a.url.cmp(&b.url));
            *listed = objects.into();
        }
        Ok(())
    }

    /// Returns the same storage, with separate prefetchers and request counters.
    #[cfg(feature = "parquet")]
    pub(crate) fn separate(&self) -> Self {
        match self {
            Storage::Machine { .. } => self.clone(),
            Storage::Store { remote, listed } => {
                Storage::Store { remote: Arc::new(remote.separate()), listed: listed.clone() }
            }
        }
    }

    pub(crate) fn is_store(&self) -> bool {
        matches!(self, Storage::Store { .. })
    }

    /// Returns the folder that contains `path`. Returns `None` if `path` is a bucket or a root
    /// folder.
    pub(crate) fn parent(&self, path: &Path) -> Option<PathBuf> {
        match self {
            Storage::Machine { .. } => path.parent().map(Path::to_owned),
            Storage::Store { .. } => {
                let (parent, _) = path.to_str()?.trim_end_matches('/').rsplit_once('/')?;
                parent.split_once("://").filter(|(_, bucket)| !bucket.is_empty()).map(|_| parent.into())
            }
        }
    }

    pub(crate) fn join(&self, folder: &Path, name: &str) -> PathBuf {
        match self {
            Storage::Machine { .. } => folder.join(name),
            Storage::Store { .. } => format!("{}/{name}", folder.display().to_string().trim_end_matches('/')).into(),
        }
    }

    /// Returns the sorted paths of the files directly in `folder` with names that satisfy
    /// `matches`. Skips hidden files. A folder in a store must have been [listed](Storage::listed).
    pub(crate) fn files_in(&self, folder: &Path, matches: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
        let matches = |name: &str| !name.starts_with('.') && matches(name);
        let mut files = Vec::new();
        match self {
            Storage::Machine { .. } => {
                for entry in fs::read_dir(folder).map_err(|e| Error::io(folder, &e))? {
                    let path = entry.map_err(|e| Error::io(folder, &e))?.path();
                    if matches(&path.file_name().unwrap_or_default().to_string_lossy()) && file::is_file(&path)? {
                        files.push(path);
                    }
                }
            }
            Storage::Store { listed, .. } => {
                let root = url_of(folder)?.trim_end_matches('/');
                let name = |object: &Object| object.url.strip_prefix(root)?.strip_prefix('/').map(str::to_owned);
                let names = listed.iter().filter_map(name).filter(|name| !name.contains('/') && matches(name));
                files.extend(names.map(|name| self.join(folder, &name)));
            }
        }
        files.sort();
        Ok(files)
    }

    pub(crate) fn open(&self, path: &Path) -> Result<OpenFile> {
        let (remote, listed) = match self {
            Storage::Machine { mapped } => return OpenFile::open(path, *mapped).map(|(file, _)| file),
            Storage::Store { remote, listed } => (remote, listed),
        };
        let url = url_of(path)?;
        let object = match listed.binary_search_by(|object| object.url.as_str().cmp(url)) {
            Ok(index) => listed[index].clone(),
            Err(_) => {
                let url = url.to_owned();
                remote.repeated(move |store| store.object(&url))?
            }
        };
        Ok(OpenFile::in_store(object, remote.clone()))
    }

    pub(crate) fn read(&self, path: &Path, max_bytes: u64) -> Result<Vec<u8>> {
        match self {
            Storage::Machine { .. } => file::read(path, max_bytes).map_err(|e| Error::io(path, &e)),
            Storage::Store { .. } => read_whole(&self.open(path)?, max_bytes),
        }
    }

    pub(crate) fn find(&self, path: &Path, max_bytes: u64) -> Result<Option<Vec<u8>>> {
        let Storage::Store { remote, listed } = self else {
            return file::exists(path)?.then(|| self.read(path, max_bytes)).transpose();
        };
        let url = url_of(path)?.to_owned();
        if !listed.is_empty() {
            let object = listed.binary_search_by(|object| object.url.cmp(&url)).ok();
            return object.map(|_| self.read(path, max_bytes)).transpose();
        }
        let object = remote.repeated(move |store| match store.object(&url) {
            // Not all stores report missing objects as such, so every permanent error is treated as
            // a missing file.
            Err(e) if !e.is_transient() => Ok(None),
            object => object.map(Some),
        })?;
        object.map(|object| read_whole(&OpenFile::in_store(object, remote.clone()), max_bytes)).transpose()
    }

    /// Calls `open` for each item on several threads. Returns the results in the order of the
    /// items, or the error of the first failed item.
    pub(crate) fn in_parallel<T: Sync, R: Send>(
        &self,
        items: &[T],
        open: impl Fn(&T) -> Result<R> + Sync + Send,
    ) -> Result<Vec<R>> {
        if self.is_store() { in_parallel_on(STORE_THREADS, items, open) } else { in_parallel(items, open) }
    }
}

fn url_of(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::in_source("the URL is not UTF-8").at_path(path))
}

fn read_whole(file: &OpenFile, max_bytes: u64) -> Result<Vec<u8>> {
    if file.len() > max_bytes {
        let cause = format!("the file exceeds the limit of {max_bytes} bytes");
        return Err(Error::in_source(cause).at_path(&file.path));
    }
    let mut bytes = Vec::new();
    file.get(0, file.len(), &mut bytes)?;
    Ok(bytes)
}
