//! Datasets in stores whose formats need files of this machine: their files are brought to it.

use std::ops::Range;
use std::path::PathBuf;

use super::ahead::Remote;
use crate::error::{Error, Result};
use crate::machine::parallel::in_order;
use crate::model::Object;

/// Number of requests in flight, and the bytes that they ask for together. Small files wait for the
/// delay of the store, not for its rate.
const REQUESTS: usize = 64;
const BYTES: u64 = 128 << 20;

/// What is brought with a file, by its URL.
pub(crate) struct Companions {
    /// The folder of the files that this one names, which is brought whole.
    pub(crate) folder: fn(&str) -> Option<&str>,
    /// A file that is brought if it exists.
    pub(crate) beside: fn(&str) -> Option<String>,
    /// Whether a file is left out.
    pub(crate) without: fn(&str) -> bool,
}

impl Companions {
    /// A file is brought alone.
    pub(crate) const NONE: Self = Companions { folder: |_| None, beside: |_| None, without: |_| false };

    /// An `index.json` names files in its folder.
    #[cfg(feature = "chunks")]
    pub(crate) const INDEXED: Self = Companions { folder: |url| url.strip_suffix("/index.json"), ..Self::NONE };
}

/// Brings the files of the dataset at `url` to this machine: one file, with the files that belong
/// to it, or all files below the URL. Returns its path.
///
/// # Errors
/// If nothing is there, or the store cannot bring it.
pub(crate) fn bring(companions: &Companions, remote: &Remote, url: &str) -> Result<PathBuf> {
    let found = From { companions, remote }.bring(url)?;
    found.ok_or_else(|| Error::in_source("nothing is at this URL, or below it").at_path(url))
}

/// `url` without its last part, and this part. `None` if nothing but a bucket is before it.
fn split(url: &str) -> Option<(&str, &str)> {
    url.rsplit_once('/').filter(|(above, _)| !above.ends_with('/'))
}

/// A dataset in a store.
struct From<'a> {
    companions: &'a Companions,
    remote: &'a Remote,
}

impl From<'_> {
    /// The path of what is at `url`, on this machine. `None` if nothing is there.
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
                    // Web servers cannot list.
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

    /// The objects below `url`, from the server: files that are here are not compared with it again.
    fn listed(&self, url: &str) -> Result<Vec<Object>> {
        let mut objects = self.remote.list_now(url)?;
        // Some stores have an object for each folder, whose name ends with a slash.
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
