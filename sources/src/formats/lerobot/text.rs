//! Reads the JSON and JSON Lines files in the `meta` folder. Errors name the file.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::storage::{DatasetLocation, Storage};

/// Maximum size of a file in the `meta` folder, in bytes.
pub(super) const MAX_FILE: u64 = 1 << 30;

#[derive(Clone)]
pub(super) struct DatasetFolder {
    pub(super) path: PathBuf,
    pub(super) storage: Storage,
}

impl DatasetFolder {
    /// Lists the files of a folder in an object store once.
    pub(super) fn of(location: DatasetLocation) -> Self {
        DatasetFolder { storage: location.storage.listed(&location.path), path: location.path }
    }

    /// Returns the same folder with separate prefetchers and request counters. The prefetchers
    /// identify requests by number, and the reads of videos and of Parquet files use the same
    /// numbers.
    pub(super) fn with_separate_requests(&self) -> Self {
        DatasetFolder { storage: self.storage.separate(), path: self.path.clone() }
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.storage.join(&self.path, name)
    }

    /// Errors state the file, the line and the column.
    pub(super) fn json<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        let path = self.file(name);
        let bytes = self.storage.read(&path, MAX_FILE)?;
        serde_json::from_slice(&bytes).map_err(|e| damaged(&path, &e))
    }

    pub(super) fn json_if_any<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let path = self.file(name);
        let Some(bytes) = self.storage.find(&path, MAX_FILE)? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|e| damaged(&path, &e))
    }

    /// Errors state the file and the line.
    pub(super) fn lines<T: DeserializeOwned>(&self, name: &str, with: impl FnMut(T) -> Result<()>) -> Result<()> {
        let path = self.file(name);
        each_line(&path, &self.storage.read(&path, MAX_FILE)?, with)
    }

    /// Like [`lines`](DatasetFolder::lines), but returns `false` if the file does not exist.
    pub(super) fn lines_if_any<T: DeserializeOwned>(
        &self,
        name: &str,
        with: impl FnMut(T) -> Result<()>,
    ) -> Result<bool> {
        let path = self.file(name);
        let Some(bytes) = self.storage.find(&path, MAX_FILE)? else { return Ok(false) };
        each_line(&path, &bytes, with).map(|()| true)
    }
}

fn each_line<T: DeserializeOwned>(path: &Path, bytes: &[u8], mut with: impl FnMut(T) -> Result<()>) -> Result<()> {
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let parsed =
            serde_json::from_slice(line).map_err(|e| Error::in_source(format!("damaged: {e}"))).and_then(&mut with);
        parsed.map_err(|e| e.at_line(path, index + 1))?;
    }
    Ok(())
}

fn damaged(path: &Path, e: &serde_json::Error) -> Error {
    Error::in_source(format!("damaged: {e}")).at_path(path)
}
