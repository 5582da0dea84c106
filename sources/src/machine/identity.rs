//! Detects that an opened file was replaced or written to.

use std::fs::{self, Metadata};
use std::path::Path;
use std::time::SystemTime;

use crate::error::{Error, Result};

/// Identity of a file and of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Device and inode. Equal for all files on systems other than Unix.
    file: (u64, u64),
    len: u64,
    modified: Option<SystemTime>,
}

impl Identity {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        let file = {
            use std::os::unix::fs::MetadataExt;
            (metadata.dev(), metadata.ino())
        };
        #[cfg(not(unix))]
        let file = (0, 0);
        Identity { file, len: metadata.len(), modified: metadata.modified().ok() }
    }

    /// Compares with the file that is at `path` now, and returns its length if it is the same file.
    /// If the file was removed or replaced, logs a warning, because an open file stays readable.
    ///
    /// # Errors
    /// If the file itself was written to, unless `may_be_written` is set.
    pub(crate) fn check(&self, path: &Path, may_be_written: bool) -> Result<Option<u64>> {
        let now = match fs::metadata(path) {
            Ok(metadata) => Identity::of(&metadata),
            Err(e) => {
                tracing::warn!("{}: no longer exists ({e}); continuing with the open file", path.display());
                return Ok(None);
            }
        };
        if now.file != self.file {
            tracing::warn!("{}: replaced by another file; continuing with the open one", path.display());
            return Ok(None);
        }
        if now != *self && !may_be_written {
            let changed = if now.len != self.len {
                format!("it had {} bytes when it was opened and has {} now", self.len, now.len)
            } else {
                let (was, is) = (seconds(self.modified), seconds(now.modified));
                format!("its modification time was {was} when it was opened and is {is} now (`stat -c %.9Y`)")
            };
            return Err(Error::in_source(format!(
                "the file was written to while open: {changed}; open the loader again, and replace files by renaming new ones over them"
            ))
            .at_path(path));
        }
        Ok(Some(now.len))
    }

    /// The length when it was opened.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}

/// Seconds since 1970, as `stat` prints them.
fn seconds(time: Option<SystemTime>) -> String {
    let since = time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map_or_else(
        || "an unknown time".to_owned(),
        |since| format!("{}.{:09}", since.as_secs(), since.subsec_nanos()),
    )
}
