//! [`Indexed`]: a folder with an `index.json` that lists its files.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::machine::file;
use crate::medium::tree::INDEX;
use crate::medium::{At, Medium};

/// Maximum size of an `index.json`. The index of a dataset with 100,000 files is about 64 MiB.
const MAX_INDEX: u64 = 1 << 30;

/// A folder with an `index.json` that lists its files.
pub(crate) struct Indexed {
    pub(crate) medium: Medium,
    folder: PathBuf,
    /// Path of the index.
    pub(crate) path: PathBuf,
    /// Content of the index.
    pub(crate) text: Vec<u8>,
}

impl Indexed {
    /// Reads the index of a folder. `at` is either the folder or the index file.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub(crate) fn read(at: &At) -> Result<Self> {
        let (path, medium) = (&*at.path, at.medium.clone());
        let is_folder = if medium.is_store() { !path.ends_with(INDEX) } else { file::is_folder(path)? };
        let folder = if is_folder { path } else { path.parent().unwrap_or(Path::new("")) };
        let index = if is_folder { medium.join(path, INDEX) } else { path.to_owned() };
        let medium = medium.listed(folder);
        Ok(Indexed { folder: folder.to_owned(), text: medium.read(&index, MAX_INDEX)?, path: index, medium })
    }

    /// Returns the path of the file `name` in the folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.medium.join(&self.folder, name)
    }
}
