//! [`Location`]: the path or URL of a dataset. [`Store`]: reads and writes objects by URL.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::forward::forward;
use super::{BatchIndex, Lookahead};
use crate::error::{Error, ErrorKind, Result};

/// The location of a dataset: a local path, or a URL in a [`Store`].
///
/// ```
/// use warpfeed_sources::Location;
///
/// assert_eq!(Location::parse("s3://bucket/train.tar").scheme(), Some("s3"));
/// assert_eq!(Location::parse("file:///data/train.tar"), Location::parse("/data/train.tar"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A file, a folder, or a pattern for several files.
    Path(PathBuf),
    /// A URL of the form `scheme://…`.
    Url(String),
}

impl Location {
    /// Parses a location. A `file://` URL becomes a path.
    pub fn parse(text: impl AsRef<Path>) -> Self {
        let path = text.as_ref();
        match path.to_str().and_then(|text| Some((text, scheme(text)?))) {
            Some((text, scheme)) if scheme.eq_ignore_ascii_case("file") => {
                Location::Path(text["file://".len()..].into())
            }
            Some((text, _)) => Location::Url(text.to_owned()),
            None => Location::Path(path.to_owned()),
        }
    }

    /// Returns the scheme of a URL.
    pub fn scheme(&self) -> Option<&str> {
        match self {
            Location::Path(_) => None,
            Location::Url(url) => scheme(url),
        }
    }
}

/// Returns the scheme of a URL, as defined in RFC 3986.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once("://")?;
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.bytes().all(is_valid)).then_some(scheme)
}

/// An object in a [`Store`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// URL of the object.
    pub url: String,
    /// Length of the object in bytes.
    pub len: u64,
    /// Version of the content, such as an ETag or a generation, if the store provides it. A tag
    /// that begins with `W/` is weak, as in HTTP: it does not identify the bytes, so objects with
    /// weak tags are never cached.
    pub tag: Option<String>,
    /// Server that stores the object, such as an endpoint or an account. `None` if the URL alone
    /// determines the server. Caches use this field to distinguish objects with the same URL on
    /// different servers.
    pub server: Option<Arc<str>>,
}

impl Object {
    /// Returns the [tag](Object::tag) if it identifies the bytes of the object. Returns `None` if
    /// there is no tag or a weak one.
    pub fn strong_tag(&self) -> Option<&str> {
        self.tag.as_deref().filter(|tag| !tag.starts_with("W/"))
    }
}

/// Reads, and optionally writes, objects that are not in a local folder, for example in an object
/// store, on a web server or in an archive.
///
/// [`Options::store`](crate::Options::store) and `Loader::store` register a store for all URLs with
/// a given scheme. Many threads call the methods at once, and the methods may block.
pub trait Store: Send + Sync {
    /// Lists the objects with URLs that begin with `prefix`, sorted by URL.
    ///
    /// # Errors
    /// If the objects cannot be listed. The message should contain the prefix.
    fn list(&self, prefix: &str) -> Result<Vec<Object>>;

    /// Lists the same objects as [`list`](Store::list), without using cached listings. Downloads
    /// call this method, because downloaded objects are not validated against the server again.
    ///
    /// # Errors
    /// See [`list`](Store::list).
    fn list_uncached(&self, prefix: &str) -> Result<Vec<Object>> {
        self.list(prefix)
    }

    /// Returns the object at `url`.
    ///
    /// # Errors
    /// If the object does not exist or the request fails. The message should contain the URL. Use
    /// [`Error::not_found`] if it is certain that the object does not exist, so that packing need
    /// not list the objects to find out.
    fn object(&self, url: &str) -> Result<Object>;

    /// Fills `out` with the bytes of `object` at `offset`.
    ///
    /// # Errors
    /// If the bytes cannot be read, or if the tag of the object has [changed](Object::tag), because
    /// bytes from two versions must never be mixed. The message should contain the URL. Use
    /// [`Error::transient`] if a retry may succeed.
    fn read(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()>;

    /// Fills each buffer in `ranges` with the bytes at its offset. The default reads the ranges one
    /// by one, so a store with high latency should override it.
    ///
    /// # Errors
    /// See [`read`](Store::read).
    fn read_ranges(&self, object: &Object, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        ranges.iter_mut().try_for_each(|(offset, out)| self.read(object, *offset, out))
    }

    /// Reads `range` of `object`, and passes the bytes to `completion` on any thread. The caller
    /// retries [transient](Error::transient) errors, so the store should not retry them.
    ///
    /// The default blocks until the bytes have been read. A store with asynchronous I/O should
    /// return immediately, so that any number of reads can be in flight.
    fn fetch(&self, object: &Object, range: Range<u64>, completion: ReadCompletion) {
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        let result = match bytes.try_reserve_exact(len) {
            Ok(()) => {
                bytes.resize(len, 0);
                self.read(object, range.start, &mut bytes)
            }
            Err(_) => Err(Error::new(ErrorKind::Memory, format!("cannot allocate {len} bytes")).at_path(&object.url)),
        };
        completion.complete(result.map(|()| bytes));
    }

    /// Creates an upload to `url`, for `Pack`, without sending a request. The default returns an
    /// error, which is correct for read-only stores.
    ///
    /// # Errors
    /// If the store is read-only.
    fn create(&self, url: &str) -> Result<Box<dyn Upload>> {
        Err(Error::config("this store is read-only: write to a local folder or to a writable store").at_path(url))
    }

    /// Removes the object at `url`, if it exists. The default returns an error, which is correct
    /// for read-only stores.
    ///
    /// # Errors
    /// If the object cannot be removed.
    fn remove(&self, url: &str) -> Result<()> {
        Err(Error::config("this store is read-only: it cannot remove objects").at_path(url))
    }

    /// Returns the local cache of this store for a loader that reads in `order`. If two datasets
    /// have the same `dataset_hash`, their samples have the same indices, in every process and in
    /// every run. Returns `None`, the default, if the store has no cache.
    fn object_cache(&self, dataset_hash: u64, order: &Lookahead) -> Option<Arc<dyn ObjectCache>> {
        let _ = (dataset_hash, order);
        None
    }

    /// Downloads `objects` to a local folder, and returns its path, for formats that can read only
    /// local files. All objects are under the URL `base`, and an object at `base/a/b` becomes the
    /// file `a/b` in the folder. `read` reads several ranges of objects in this store at once, and
    /// retries failures. The files must exist at least until this process ends. The default returns
    /// an error, for stores without a cache.
    ///
    /// # Errors
    /// If the store has no cache, if the files do not fit in the cache, or if the objects cannot be
    /// read.
    fn download(&self, base: &str, objects: &[Object], read: &ReadParts<'_>) -> Result<PathBuf> {
        let _ = (base, objects, read);
        Err(Error::config(
            "this format needs local files, and the loader has no cache to download them to: configure one (Python: \
             cache_bytes, Rust: the Cache of warpfeed-stores), or copy the dataset to this machine",
        ))
    }
}

/// Reads ranges of objects, and calls a function with the bytes of each range, in the given order.
/// While the function runs, requests for later ranges are in flight.
pub type ReadParts<'a> = dyn Fn(&[(&Object, Range<u64>)], &mut dyn FnMut(Vec<u8>) -> Result<()>) -> Result<()> + 'a;

/// An object that is being written. It becomes visible, as a whole, when the upload is
/// [completed](Upload::complete).
pub trait Upload: Send {
    /// Appends bytes. May block until earlier bytes have been sent.
    ///
    /// # Errors
    /// If the bytes cannot be sent. In that case, the upload cannot be continued.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Makes the object visible. If `new` is true and an object with this name already exists, even
    /// from a concurrent upload, keeps that object and returns `false`. A store that checks for an
    /// existing object only before it writes should document this limitation.
    ///
    /// # Errors
    /// If the bytes cannot be sent. In that case, the object may or may not exist.
    fn complete(self: Box<Self>, new: bool) -> Result<bool>;
}

/// A local cache of bytes from a [`Store`], for one loader. The cache knows the order in which the
/// loader reads. An entry is a range of an object. Lookups must use the identical range.
///
/// A source that prefetches does not request cached ranges. When a prefetched sample is read, the
/// source offers its bytes to the cache.
pub trait ObjectCache: Send + Sync {
    /// Called when the loader starts to read at `batch`, and whenever its progress reaches a later
    /// batch. Implementations must not rely on a call for every batch.
    fn advance_to(&self, batch: BatchIndex);

    /// Returns whether the `len` bytes at `offset` of `object` are cached. A later
    /// [`get`](ObjectCache::get) may still fail, because another process may evict the bytes.
    fn contains(&self, object: &Object, offset: u64, len: u64) -> bool;

    /// If the bytes of `object` at `offset` are cached, fills `out` with them and returns the tier
    /// that contained them. If not, returns `None`, and the content of `out` is unspecified.
    fn get(&self, object: &Object, offset: u64, out: &mut [u8]) -> Option<Tier>;

    /// Offers the bytes of `object` at `offset`, which belong to `sample`. `next` is the batch
    /// after the batch for which the bytes were fetched. The cache decides whether to store them.
    fn offer(&self, object: &Object, offset: u64, bytes: &[u8], sample: u64, next: BatchIndex);
}

/// A tier of an [`ObjectCache`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tier {
    /// In memory.
    Memory,
    /// On disk.
    Disk,
}

impl<S: Store + ?Sized> Store for Arc<S> {
    forward! { |this| **this;
        fn list(prefix: &str) -> Result<Vec<Object>>;
        fn object(url: &str) -> Result<Object>;
        fn read(object: &Object, offset: u64, out: &mut [u8]) -> Result<()>;
        fn read_ranges(object: &Object, ranges: &mut [(u64, &mut [u8])]) -> Result<()>;
        fn fetch(object: &Object, range: Range<u64>, completion: ReadCompletion);
        fn create(url: &str) -> Result<Box<dyn Upload>>;
        fn remove(url: &str) -> Result<()>;
        fn list_uncached(prefix: &str) -> Result<Vec<Object>>;
        fn object_cache(dataset_hash: u64, order: &Lookahead) -> Option<Arc<dyn ObjectCache>>;
        fn download(base: &str, objects: &[Object], read: &ReadParts<'_>) -> Result<PathBuf>;
    }
}

/// Receives the result of one [`Store::fetch`]. If the completion is dropped before
/// [`complete`](Self::complete) is called, the read fails with a transient error, so that no read
/// waits forever.
///
/// ```
/// use std::sync::mpsc;
/// use warpfeed_sources::ReadCompletion;
///
/// let (send, received) = mpsc::channel();
/// let reply = ReadCompletion::new(move |bytes| send.send(bytes).unwrap());
/// reply.complete(Ok(vec![1, 2, 3]));
/// assert_eq!(received.recv().unwrap()?, [1, 2, 3]);
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
pub struct ReadCompletion {
    started_at: Instant,
    progress_state: Arc<ReadProgress>,
    /// The callback for the result. Only the owner accesses it. The mutex makes `ReadCompletion`
    /// `Sync`, as futures that move between threads require.
    on_result: Mutex<Option<OnResult>>,
}

type OnResult = Box<dyn FnOnce(Result<Vec<u8>>) + Send>;

#[derive(Default)]
struct ReadProgress {
    /// Nanoseconds from the start of the request to its first byte, or 0.
    first_byte_nanos: AtomicU64,
    /// Nanoseconds from the start of the request to its latest bytes, or 0.
    progress_nanos: AtomicU64,
    canceled: AtomicBool,
}

impl ReadCompletion {
    /// Creates a completion that passes the result to `on_result`, which may run on any thread and
    /// should return quickly.
    pub fn new(on_result: impl FnOnce(Result<Vec<u8>>) + Send + 'static) -> Self {
        ReadCompletion {
            started_at: Instant::now(),
            progress_state: Arc::default(),
            on_result: Mutex::new(Some(Box::new(on_result))),
        }
    }

    pub(crate) fn canceler(&self) -> Canceler {
        Canceler(self.progress_state.clone())
    }

    /// Records the arrival of the first byte.
    pub fn record_first_byte(&self) {
        let nanos = self.update_progress();
        // A relaxed ordering suffices for a measurement.
        let _ = self.progress_state.first_byte_nanos.compare_exchange(0, nanos, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Records that bytes have arrived. A request that makes no progress for two minutes is
    /// retried, so a store with longer requests should call this method whenever bytes arrive.
    pub fn record_progress(&self) {
        self.update_progress();
    }

    fn update_progress(&self) -> u64 {
        let nanos = u64::try_from(self.started_at.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
        self.progress_state.progress_nanos.store(nanos, Ordering::Relaxed);
        nanos
    }

    /// Returns whether the result is no longer needed, so that the store may drop the request.
    pub fn is_canceled(&self) -> bool {
        self.progress_state.canceled.load(Ordering::Relaxed)
    }

    /// Completes the request with the bytes of the range or with an error.
    pub fn complete(mut self, bytes: Result<Vec<u8>>) {
        self.record_first_byte();
        if let Some(on_result) = self.take() {
            on_result(bytes);
        }
    }

    /// Returns a completion that transforms the result with `convert`, for stores that wrap a
    /// different store.
    #[must_use]
    pub fn map(mut self, convert: impl FnOnce(Result<Vec<u8>>) -> Result<Vec<u8>> + Send + 'static) -> Self {
        let on_result = self.take().map(|on_result| -> OnResult { Box::new(move |bytes| on_result(convert(bytes))) });
        self.on_result = Mutex::new(on_result);
        self
    }

    fn take(&mut self) -> Option<OnResult> {
        self.on_result.get_mut().unwrap_or_else(PoisonError::into_inner).take()
    }
}

pub(crate) struct Canceler(Arc<ReadProgress>);

impl Canceler {
    pub(crate) fn cancel(&self) {
        self.0.canceled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn first_byte(&self) -> Option<Duration> {
        Some(self.0.first_byte_nanos.load(Ordering::Relaxed)).filter(|&nanos| nanos > 0).map(Duration::from_nanos)
    }

    pub(crate) fn progress(&self) -> Duration {
        Duration::from_nanos(self.0.progress_nanos.load(Ordering::Relaxed))
    }
}

impl Drop for ReadCompletion {
    fn drop(&mut self) {
        if let Some(on_result) = self.take() {
            on_result(Err(Error::in_source("the store dropped a request without completing it").transient()));
        }
    }
}

impl std::fmt::Debug for ReadCompletion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadCompletion").field("canceled", &self.is_canceled()).finish_non_exhaustive()
    }
}

/// The stores and their schemes, in the order of registration.
#[derive(Clone, Default)]
pub struct Stores(Vec<(String, Arc<dyn Store>)>);

impl Stores {
    /// Registers a store for a scheme.
    pub fn add(&mut self, scheme: String, store: Arc<dyn Store>) {
        self.0.push((scheme, store));
    }

    /// Returns the store that was last registered for the scheme of `url`.
    ///
    /// # Errors
    /// If no store is registered for the scheme.
    pub fn for_url(&self, url: &str) -> Result<&Arc<dyn Store>> {
        let url_scheme = scheme(url).unwrap_or_default();
        let entry = self.0.iter().rev().find(|(scheme, _)| scheme.eq_ignore_ascii_case(url_scheme));
        entry.map(|(_, store)| store).ok_or_else(|| {
            Error::config(format!(
                "no store is registered for {url_scheme}:// URLs; add a store for the scheme {url_scheme:?} to the \
                 loader, or copy the dataset to this machine"
            ))
            .at_path(url)
        })
    }
}

impl std::fmt::Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(scheme, _)| scheme)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weak_tag_is_not_a_strong_tag() {
        for (tag, expected) in
            [(None, None), (Some("\"5\""), Some("\"5\"")), (Some("17"), Some("17")), (Some("W/\"5\""), None)]
        {
            let object = Object { url: "s3://b/x".into(), len: 1, tag: tag.map(str::to_owned), server: None };
            assert_eq!(object.strong_tag(), expected);
        }
    }

    #[test]
    fn only_text_with_a_scheme_is_a_url() {
        for (text, expected) in [
            ("s3://b/x", Some("s3")),
            ("hf+x.y-z://b", Some("hf+x.y-z")),
            ("C:\\x", None),
            ("a/b://c", None),
            ("://x", None),
        ] {
            let location = Location::parse(text);
            assert_eq!(location.scheme(), expected, "{text}");
            assert!(expected.is_some() || location == Location::Path(text.into()));
        }
        for text in ["file:///data/x", "FILE:///data/x"] {
            assert_eq!(Location::parse(text), Location::Path("/data/x".into()));
        }
        let e = Stores::default().for_url("s3://bucket/x").err().unwrap();
        assert_eq!(e.path(), Some(Path::new("s3://bucket/x")));
        assert!(e.cause().contains("s3:// URLs; add a store for the scheme \"s3\""), "{e}");
    }
}
