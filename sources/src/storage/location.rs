//! [`DatasetLocation`]: the path or URL of a dataset, and its storage.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Storage;
use super::download::{Companions, download};
use super::prefetch::Remote;
use super::tree::Tree;
use crate::error::Result;
use crate::model::{Location, Stores};

#[derive(Clone)]
pub(crate) struct DatasetLocation {
    pub(crate) path: PathBuf,
    /// Name of the split to open, such as `train` in `all.lmdb/train`.
    pub(crate) split: Option<String>,
    pub(crate) storage: Storage,
}

impl DatasetLocation {
    pub(crate) fn of(path: &Path, mapped: bool, stores: &Stores) -> Result<Self> {
        let (path, storage) = match Location::parse(path) {
            Location::Path(path) => (path, Storage::Machine { mapped }),
            Location::Url(url) => {
                let remote = Arc::new(Remote::new(stores.for_url(&url)?.clone()));
                (url.into(), Storage::Store { remote, listed: Arc::default() })
            }
        };
        Ok(DatasetLocation { path, split: None, storage })
    }

    pub(crate) fn local(path: &Path) -> Self {
        DatasetLocation { path: path.to_owned(), split: None, storage: Storage::Machine { mapped: true } }
    }

    /// Returns the path or URL without a trailing slash. The result is empty for a local path that
    /// is not UTF-8.
    pub(crate) fn url(&self) -> &str {
        self.path.to_str().unwrap_or_default().trim_end_matches('/')
    }

    /// Returns the folder at this location. A folder in a store must have been
    /// [listed](Storage::list) before.
    pub(crate) fn tree(&self) -> Tree<'_> {
        match &self.storage {
            Storage::Machine { .. } => Tree::Local(&self.path),
            Storage::Store { remote, listed } => Tree::Stored(self.url(), listed, remote),
        }
    }

    /// Returns whether any objects exist under the URL. Returns true for a local path.
    pub(crate) fn list(&mut self) -> Result<bool> {
        let url = self.url().to_owned();
        self.storage.list(&url)?;
        Ok(!matches!(&self.storage, Storage::Store { listed, .. } if listed.is_empty()))
    }

    /// Returns whether the path or URL is a folder. Lists the objects of a folder in a store.
    #[cfg(feature = "parquet")]
    pub(crate) fn is_folder(&mut self) -> Result<bool> {
        let url = self.url().to_owned();
        let Storage::Store { remote, listed } = &mut self.storage else {
            return crate::machine::file::is_folder(&self.path);
        };
        if !listed.is_empty() {
            return Ok(listed[0].url != url);
        }
        let requested = url.clone();
        match remote.repeated(move |store| store.object(&requested)) {
            Ok(object) => {
                *listed = [object].into();
                Ok(false)
            }
            // If nothing exists under the URL either, an error about the URL is clearer than one
            // about an empty listing.
            Err(e) => {
                if matches!(self.list(), Ok(true)) {
                    Ok(true)
                } else {
                    Err(e)
                }
            }
        }
    }

    pub(crate) fn downloaded(&self, companions: &Companions, mapped: bool) -> Result<Self> {
        let Storage::Store { remote, .. } = &self.storage else { return Ok(self.clone()) };
        let path = download(companions, remote, self.url()).map_err(|e| e.at_path(&self.path))?;
        Ok(DatasetLocation { path, split: self.split.clone(), storage: Storage::Machine { mapped } })
    }
}
