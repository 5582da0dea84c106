//! Detects whether an open file was replaced or modified.

use std::fs::{self, Metadata};
use std::path::Path;
use std::time::SystemTime;

use crate::error::{Error, Result};

/// Identifies a file and a version of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Device and inode on Unix. On other systems, all files have the same value.
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

    /// Compares this identity with the file that is now at `path`. If it is the same file, returns
    /// its current length. If `path` cannot be queried, or on Unix names a different file, logs a
    /// warning and returns `None`, because the open file can still be read. Fails if the file was
    /// modified in place, unless `may_be_written` is true.
    pub(crate) fn check(&self, path: &Path, may_be_written: bool) -> Result<Option<u64>> {
        let now = match fs::metadata(path) {
            Ok(metadata) => Identity::of(&metadata),
            Err(e) => {
                tracing::warn!("{}: cannot query the file ({e}); continuing with the open file", path.display());
                return Ok(None);
            }
        };
        if now.file != self.file {
            tracing::warn!("{}: replaced by a different file; continuing with the open file", path.display());
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
                "the file was written to while open: {changed}; reopen the loader. To update a file that is in use, \
                 write a new file and rename it over the old one"
            ))
            .at_path(path));
        }
        Ok(Some(now.len))
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}

/// Formats a time as seconds since 1970, like `stat -c %.9Y`.
fn seconds(time: Option<SystemTime>) -> String {
    let since = time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map_or_else(|| "unknown".to_owned(), |since| format!("{}.{:09}", since.as_secs(), since.subsec_nanos()))
}
