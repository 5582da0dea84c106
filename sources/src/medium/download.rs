//! Downloads datasets from stores, for formats that need local files.

use std::ops::Range;
use std::path::PathBuf;

use super::ahead::Remote;
use crate::error::{Error, Result};
use crate::machine::parallel::in_order;
use crate::model::Object;

/// Maximum number of requests in flight. Many are needed for small files, because their downloads
/// are limited by the latency of the store, not by its bandwidth.
const REQUESTS: usize = 64;
/// Maximum total size of the requests in flight.
const BYTES: u64 = 128 << 20;

/// Rules for the companion files that are downloaded together with a file. Each rule is a function
/// of a URL.
pub(crate) struct Companions {
    /// Returns the folder to download as a whole, if the file refers to other files in it.
    pub(crate) folder: fn(&str) -> Option<&str>,
    /// Returns the URL of a companion file, which is downloaded if it exists.
    pub(crate) beside: fn(&str) -> Option<String>,
    /// Returns whether the file at a URL is excluded from the download.
    pub(crate) without: fn(&str) -> bool,
}

impl Companions {
    /// Downloads the file alone.
    pub(crate) const NONE: Self = Companions { folder: |_| None, beside: |_| None, without: |_| false };

    /// Downloads the whole folder of an `index.json`, which names files in that folder.
    #[cfg(feature = "chunks")]
    pub(crate) const INDEXED: Self = Companions { folder: |url| url.strip_suffix("/index.json"), ..Self::NONE };
}

/// Downloads the dataset at `url`: either one file with its companions, or all files below the URL.
/// Returns the local path.
///
/// # Errors
/// If nothing exists at the URL, or the download fails.
pub(crate) fn bring(companions: &Companions, remote: &Remote, url: &str) -> Result<PathBuf> {
    let found = From { companions, remote }.bring(url)?;
    found.ok_or_else(|| Error::in_source("no object exists at or below this URL").at_path(url))
}

/// Splits `url` into its parent and its last component. Returns `None` if `url` is only a bucket.
fn split(url: &str) -> Option<(&str, &str)> {
    url.rsplit_once('/').filter(|(above, _)| !above.ends_with('/'))
}

/// A download from one store.
struct From<'a> {
    companions: &'a Companions,
    remote: &'a Remote,
}

impl From<'_> {
    /// Downloads the content at `url` and returns its local path, or `None` if nothing exists at
    /// `url`.
    fn bring(&self, url: &str) -> Result<Option<PathBuf>> {
        let Some((above, name)) = split(url) else { return self.below(url) };
        if let Some(root) = (self.companions.folder)(url) {
            return Ok(self.below(root)?.map(|path| path.join(url[root.len()..].trim_start_matches('/'))));
        }
        let asked = url.to_owned();
        let mut objects = match self.remote.repeated(move |store| store.object(&asked)) {
            Ok(object) => vec![object],
            Err(e) => {
                return match self.listed(url) {
                    Ok(objects) if !objects.is_empty() => self.all(url, &objects).map(Some),
                    // Plain web servers cannot list objects, so a missing object means that nothing
                    // exists.
                    _ if e.is_absent() => Ok(None),
                    _ => Err(e),
                };
            }
        };
        if let Some(beside) = (self.companions.beside)(url) {
            objects.extend(self.remote.repeated(move |store| store.object(&beside)).ok());
        }
        Ok(Some(self.all(above, &objects)?.join(name)))
    }

    fn below(&self, url: &str) -> Result<Option<PathBuf>> {
        let objects = self.listed(url)?;
        if objects.is_empty() { Ok(None) } else { self.all(url, &objects).map(Some) }
    }

    /// Lists the objects below `url`, bypassing cached listings. The server reports the current
    /// versions, so files that are already downloaded need no separate validation.
    fn listed(&self, url: &str) -> Result<Vec<Object>> {
        let mut objects = self.remote.list_now(url)?;
        // Some stores represent each folder by an object whose name ends in a slash.
        objects.retain(|object| !object.url.ends_with('/') && !(self.companions.without)(&object.url));
        Ok(objects)
    }

    fn all(&self, base: &str, objects: &[Object]) -> Result<PathBuf> {
        let remote = self.remote;
        let read = |parts: &[(&Object, Range<u64>)], take: &mut dyn FnMut(Vec<u8>) -> Result<()>| {
            let bytes =
                |(object, range): &(&Object, Range<u64>)| remote.bytes(object, range.start, range.end - range.start);
            in_order((REQUESTS, BYTES), parts, |(_, range)| range.end - range.start, bytes, take)
        };
        remote.store().bring(base, objects, &read)
    }
}
