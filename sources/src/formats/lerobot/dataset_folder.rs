//! Reads the JSON and JSON Lines files in the `meta` folder. Errors name the file.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::storage::{DatasetLocation, Storage};

/// Maximum size of a file in the `meta` folder, in bytes.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 30;

#[derive(Clone)]
pub(super) struct DatasetFolder {
    pub(super) path: PathBuf,
    pub(super) storage: Storage,
}

impl DatasetFolder {
    /// If the folder is in an object store that can list files, lists its files once.
    pub(super) fn new(location: DatasetLocation) -> Self {
        DatasetFolder { storage: location.storage.listed(&location.path), path: location.path }
    }

    /// Returns the same folder with separate prefetchers and request counters. The prefetchers
    /// identify requests by number, and the reads of videos and of Parquet files use the same
    /// numbers.
    pub(super) fn with_separate_requests(&self) -> Self {
        DatasetFolder { storage: self.storage.separate(), path: self.path.clone() }
    }

    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.storage.join(&self.path, name)
    }

    pub(super) fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        let path = self.path_of(name);
        let bytes = self.storage.read(&path, MAX_FILE_BYTES)?;
        serde_json::from_slice(&bytes).map_err(|e| json_error(&path, &e))
    }

    pub(super) fn find_json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let path = self.path_of(name);
        let Some(bytes) = self.storage.find(&path, MAX_FILE_BYTES)? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|e| json_error(&path, &e))
    }

    pub(super) fn for_each_line<T: DeserializeOwned>(
        &self,
        name: &str,
        visit: impl FnMut(T) -> Result<()>,
    ) -> Result<()> {
        let path = self.path_of(name);
        for_each_line(&path, &self.storage.read(&path, MAX_FILE_BYTES)?, visit)
    }

    pub(super) fn for_each_line_if_exists<T: DeserializeOwned>(
        &self,
        name: &str,
        visit: impl FnMut(T) -> Result<()>,
    ) -> Result<bool> {
        let path = self.path_of(name);
        let Some(bytes) = self.storage.find(&path, MAX_FILE_BYTES)? else { return Ok(false) };
        for_each_line(&path, &bytes, visit).map(|()| true)
    }
}

fn for_each_line<T: DeserializeOwned>(path: &Path, bytes: &[u8], mut visit: impl FnMut(T) -> Result<()>) -> Result<()> {
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let parsed =
            serde_json::from_slice(line).map_err(|e| Error::in_source(format!("damaged: {e}"))).and_then(&mut visit);
        parsed.map_err(|e| e.at_line(path, index + 1))?;
    }
    Ok(())
}

fn json_error(path: &Path, e: &serde_json::Error) -> Error {
    Error::in_source(format!("damaged: {e}")).at_path(path)
}
