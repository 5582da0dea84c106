//! [`Indexed`]: a folder with an `index.json` that lists its files.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::machine::file;
use crate::storage::tree::INDEX_FILE;
use crate::storage::{DatasetLocation, Storage};

/// Maximum size of an index, in bytes. The index of a dataset with 100,000 files has about 64 MiB.
const MAX_INDEX_BYTES: u64 = 1 << 30;

pub(crate) struct Indexed {
    pub(crate) storage: Storage,
    folder: PathBuf,
    pub(crate) path: PathBuf,
    pub(crate) text: Vec<u8>,
}

impl Indexed {
    /// Reads the index. `location` is either the folder or its index.
    pub(crate) fn read(location: &DatasetLocation) -> Result<Self> {
        let (path, storage) = (&*location.path, location.storage.clone());
        let is_folder = if storage.is_store() { !path.ends_with(INDEX_FILE) } else { file::is_folder(path)? };
        let folder = if is_folder { path } else { path.parent().unwrap_or(Path::new("")) };
        let index = if is_folder { storage.join(path, INDEX_FILE) } else { path.to_owned() };
        let storage = storage.listed(folder);
        Ok(Indexed { folder: folder.to_owned(), text: storage.read(&index, MAX_INDEX_BYTES)?, path: index, storage })
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.storage.join(&self.folder, name)
    }
}
