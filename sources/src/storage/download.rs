//! Downloads datasets from stores, for formats that can read only local files.

use std::ops::Range;
use std::path::PathBuf;

use super::prefetch::Remote;
use crate::error::{Error, Result};
use crate::machine::parallel::in_order;
use crate::model::Object;

/// Maximum number of requests in flight. Small files need many, because their download is limited
/// by latency, not by bandwidth.
const MAX_REQUESTS: usize = 64;
const MAX_BYTES_IN_FLIGHT: u64 = 128 << 20;

/// Rules, as functions of a URL, that determine which files are downloaded together with the main
/// file of a dataset.
pub(crate) struct Companions {
    /// The folder to download instead of the file, if the file refers to other files in it.
    pub(crate) folder: fn(&str) -> Option<&str>,
    /// An additional file, which is downloaded if it exists.
    pub(crate) companion_url: fn(&str) -> Option<String>,
    /// Whether to exclude a file in a folder from the download.
    pub(crate) is_excluded: fn(&str) -> bool,
}

impl Companions {
    pub(crate) const NONE: Self = Companions { folder: |_| None, companion_url: |_| None, is_excluded: |_| false };

    /// Rules for an `index.json`: its whole folder is downloaded, because the file refers to files
    /// in it.
    #[cfg(feature = "chunks")]
    pub(crate) const INDEXED: Self = Companions { folder: |url| url.strip_suffix("/index.json"), ..Self::NONE };
}

/// Downloads the dataset at `url`, and returns its local path. The dataset is a folder, or a file
/// with its companions.
pub(crate) fn download(companions: &Companions, remote: &Remote, url: &str) -> Result<PathBuf> {
    let path = Downloader { companions, remote }.download_dataset(url)?;
    path.ok_or_else(|| Error::in_source("no object exists at or under this URL").at_path(url))
}

/// Splits `url` into its parent and its last component. Returns `None` for a bucket.
fn split(url: &str) -> Option<(&str, &str)> {
    url.rsplit_once('/').filter(|(parent, _)| !parent.ends_with('/'))
}

struct Downloader<'a> {
    companions: &'a Companions,
    remote: &'a Remote,
}

impl Downloader<'_> {
    fn download_dataset(&self, url: &str) -> Result<Option<PathBuf>> {
        let Some((parent, name)) = split(url) else { return self.download_folder(url) };
        if let Some(root) = (self.companions.folder)(url) {
            return Ok(self.download_folder(root)?.map(|path| path.join(url[root.len()..].trim_start_matches('/'))));
        }
        let requested = url.to_owned();
        let mut objects = match self.remote.repeated(move |store| store.object(&requested)) {
            Ok(object) => vec![object],
            Err(e) => {
                return match self.list(url) {
                    Ok(objects) if !objects.is_empty() => self.download_objects(url, &objects).map(Some),
                    // Plain web servers cannot list objects, so nothing exists at `url` if the
                    // object is absent.
                    _ if e.is_not_found() => Ok(None),
                    _ => Err(e),
                };
            }
        };
        if let Some(companion_url) = (self.companions.companion_url)(url) {
            objects.extend(self.remote.repeated(move |store| store.object(&companion_url)).ok());
        }
        Ok(Some(self.download_objects(parent, &objects)?.join(name)))
    }

    fn download_folder(&self, url: &str) -> Result<Option<PathBuf>> {
        let objects = self.list(url)?;
        if objects.is_empty() { Ok(None) } else { self.download_objects(url, &objects).map(Some) }
    }

    /// Lists the objects to download, without cached listings. The listed versions are current, so
    /// files from an earlier download need no separate validation.
    fn list(&self, url: &str) -> Result<Vec<Object>> {
        let mut objects = self.remote.list_uncached(url)?;
        // Some stores represent a folder by an object with a trailing slash.
        objects.retain(|object| !object.url.ends_with('/') && !(self.companions.is_excluded)(&object.url));
        Ok(objects)
    }

    /// Downloads `objects`, and returns the local path of `base`, the URL above all of them.
    fn download_objects(&self, base: &str, objects: &[Object]) -> Result<PathBuf> {
        let remote = self.remote;
        let read = |ranges: &[(&Object, Range<u64>)], take: &mut dyn FnMut(Vec<u8>) -> Result<()>| {
            let bytes =
                |(object, range): &(&Object, Range<u64>)| remote.bytes(object, range.start, range.end - range.start);
            in_order(MAX_REQUESTS, MAX_BYTES_IN_FLIGHT, ranges, |(_, range)| range.end - range.start, bytes, take)
        };
        remote.store().download(base, objects, &read)
    }
}
