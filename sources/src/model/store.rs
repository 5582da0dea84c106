//! [`Location`] of a dataset, and [`Store`], the files that are not in a local folder.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::forward::forward;
use super::{BatchIndex, Lookahead};
use crate::error::{Error, ErrorKind, Result};

/// Location of a dataset: a local path, or a URL in a [`Store`].
///
/// ```
/// use warpfeed_sources::Location;
///
/// assert_eq!(Location::of("s3://bucket/train.tar").scheme(), Some("s3"));
/// assert_eq!(Location::of("file:///data/train.tar"), Location::of("/data/train.tar"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A file or a folder, or a pattern of files.
    Path(PathBuf),
    /// A text of the form `scheme://…`.
    Url(String),
}

impl Location {
    /// The location that `text` names. A `file://` URL is a path.
    pub fn of(text: impl AsRef<Path>) -> Self {
        let path = text.as_ref();
        match path.to_str().and_then(|text| Some((text, scheme(text)?))) {
            Some((text, "file")) => Location::Path(text["file://".len()..].into()),
            Some((text, _)) => Location::Url(text.to_owned()),
            None => Location::Path(path.to_owned()),
        }
    }

    /// The scheme of a URL.
    pub fn scheme(&self) -> Option<&str> {
        match self {
            Location::Path(_) => None,
            Location::Url(url) => scheme(url),
        }
    }
}

/// The scheme of a URL, as RFC 3986 defines it.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once("://")?;
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    (scheme.starts_with(|first: char| first.is_ascii_alphabetic()) && scheme.bytes().all(sound)).then_some(scheme)
}

/// One object of a [`Store`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its URL.
    pub url: String,
    /// Its length in bytes.
    pub len: u64,
    /// Version of its bytes, such as an ETag or a generation, if the store has one. A tag that
    /// begins with `W/` is weak, as in HTTP: objects with other bytes may have the same, so nothing
    /// is kept on this machine by it.
    pub tag: Option<String>,
    /// The server that holds it, if the URL does not say it: an endpoint, or an account. Bytes and
    /// indexes that this machine keeps of two servers are never mixed. `None` if all programs that
    /// open the URL reach the same server.
    pub server: Option<Arc<str>>,
}

/// Files that are not in a local folder: an object store, a web server, an archive.
///
/// [`Options::store`](crate::Options::store) and `Loader::store`
/// open the URLs of a scheme with it. Methods are called from many threads at once and may wait.
pub trait Store: Send + Sync {
    /// The objects whose URL begins with `prefix`, sorted by URL.
    ///
    /// # Errors
    /// If they cannot be listed. The message should have the prefix.
    fn list(&self, prefix: &str) -> Result<Vec<Object>>;

    /// Like [`list`](Store::list), but never a listing that was kept: for bytes that are not
    /// compared with the server again.
    ///
    /// # Errors
    /// The errors of [`list`](Store::list).
    fn list_now(&self, prefix: &str) -> Result<Vec<Object>> {
        self.list(prefix)
    }

    /// The object at `url`.
    ///
    /// # Errors
    /// If there is none. The message should have the URL. Use [`Error::absent`] if this is certain:
    /// packing lists the objects otherwise, to find out.
    fn object(&self, url: &str) -> Result<Object>;

    /// Fills `to` with the bytes of `object` from `at` on.
    ///
    /// # Errors
    /// If they cannot be read, or the object no longer has its [tag](Object::tag): bytes of two
    /// versions must never be mixed. The message should have the URL. Use [`Error::transient`] if
    /// another attempt may succeed.
    fn read(&self, object: &Object, at: u64, to: &mut [u8]) -> Result<()>;

    /// Fills each of `ranges` from its offset. The default reads one after the other. A store with
    /// latency should override it.
    ///
    /// # Errors
    /// The errors of [`read`](Store::read).
    fn read_ranges(&self, object: &Object, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        ranges.iter_mut().try_for_each(|(at, to)| self.read(object, *at, to))
    }

    /// Reads `range` of `object` and passes its bytes to `reply`, on any thread. Called once for
    /// each attempt. The caller repeats a read that fails with a [transient](Error::transient)
    /// error, so the store should not.
    ///
    /// The default reads before it returns. A store with asynchronous I/O should start the read and
    /// return at once; any number of reads may then be in flight.
    fn fetch(&self, object: &Object, range: Range<u64>, reply: ReadCompletion) {
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        let read = match bytes.try_reserve_exact(len) {
            Ok(()) => {
                bytes.resize(len, 0);
                self.read(object, range.start, &mut bytes)
            }
            Err(_) => Err(Error::new(ErrorKind::Memory, format!("no memory for {len} bytes")).at_path(&object.url)),
        };
        reply.done(read.map(|()| bytes));
    }

    /// Begins to write the object at `url`, for `Pack`. Sends no request yet.
    /// The default says that the store is read-only.
    ///
    /// # Errors
    /// If the store cannot be written.
    fn create(&self, url: &str) -> Result<Box<dyn Upload>> {
        Err(Error::config(
            "this store only reads objects: write to a folder of this machine, or to a store that can be written",
        )
        .at_path(url))
    }

    /// Removes the object at `url`, which may be absent. The default says that the store is
    /// read-only.
    ///
    /// # Errors
    /// If it cannot be removed.
    fn remove(&self, url: &str) -> Result<()> {
        Err(Error::config("this store only reads objects, and removes none").at_path(url))
    }

    /// The bytes that this store keeps on this machine, for a loader that reads in `order`. `set`
    /// is a hash of the dataset. Samples of sets with the same hash have the same numbers, in
    /// every process and run. `None`, the default, if nothing is kept.
    fn keep(&self, set: u64, order: &Lookahead) -> Option<Arc<dyn ObjectCache>> {
        let _ = (set, order);
        None
    }

    /// Brings `objects`, which lie below the URL `base`, to a folder of this machine, for formats
    /// that need files. An object at `base/a/b` is the file `a/b` in the folder. `read` reads parts
    /// of objects from this store, several at a time, and repeats what fails. The files stay as
    /// long as this process lives. The default says that the store has no cache.
    ///
    /// # Errors
    /// If the store keeps no files, has no room for these, or they cannot be read.
    fn bring(&self, base: &str, objects: &[Object], read: &ReadParts<'_>) -> Result<PathBuf> {
        let _ = (base, objects, read);
        Err(Error::config(
            "this format needs files of this machine, and the loader has no cache to bring them to: give it one (Python: \
             cache_bytes, Rust: the Cache of warpfeed-stores), or copy the dataset to this machine",
        ))
    }
}

/// Reads these ranges of objects, and gives the bytes of each to the function, in this order. Later
/// ranges arrive meanwhile.
pub type ReadParts<'a> = dyn Fn(&[(&Object, Range<u64>)], &mut dyn FnMut(Vec<u8>) -> Result<()>) -> Result<()> + 'a;

/// An object that is being written. It appears whole when it is [completed](Upload::complete), or
/// never.
pub trait Upload: Send {
    /// Appends bytes. May wait for earlier ones.
    ///
    /// # Errors
    /// If they cannot be sent. The upload is then useless.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Makes the object visible. With `new`, an existing object stays, and the result is `false`,
    /// also if another upload of this name is being completed. A store that can check this only
    /// before it writes should say so in its documentation.
    ///
    /// # Errors
    /// If the bytes cannot be sent. The object may then exist or not.
    fn complete(self: Box<Self>, new: bool) -> Result<bool>;
}

/// Bytes that a [`Store`] keeps on this machine, as seen by one loader in a known
/// order. The bytes of a sample are kept as the range that was offered, and are found by the same
/// range again.
///
/// A source that fetches ahead skips what is kept, and offers the bytes of every sample that it
/// fetched.
pub trait ObjectCache: Send + Sync {
    /// Reads continue at `place`. Called at least once for each batch.
    fn start(&self, place: BatchIndex);

    /// Whether the `len` bytes of `object` from `at` on are kept. [`get`](ObjectCache::get) may still
    /// fail, as another process may drop them.
    fn has(&self, object: &Object, at: u64, len: u64) -> bool;

    /// Fills `to` with the bytes of `object` from `at` on, if they are kept, and says where they
    /// were. Otherwise the content of `to` is unspecified.
    fn get(&self, object: &Object, at: u64, to: &mut [u8]) -> Option<Tier>;

    /// Offers the bytes of `object` from `at` on, which belong to `sample`. `next` is the place
    /// after the one that they were fetched for. The bytes may be kept or not.
    fn offer(&self, object: &Object, at: u64, bytes: &[u8], sample: u64, next: BatchIndex);
}

/// Where a [`ObjectCache`] has bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tier {
    /// In memory.
    Memory,
    /// In a folder.
    Folder,
}

impl<S: Store + ?Sized> Store for Arc<S> {
    forward! { |this| **this;
        fn list(prefix: &str) -> Result<Vec<Object>>;
        fn object(url: &str) -> Result<Object>;
        fn read(object: &Object, at: u64, to: &mut [u8]) -> Result<()>;
        fn read_ranges(object: &Object, ranges: &mut [(u64, &mut [u8])]) -> Result<()>;
        fn fetch(object: &Object, range: Range<u64>, reply: ReadCompletion);
        fn create(url: &str) -> Result<Box<dyn Upload>>;
        fn remove(url: &str) -> Result<()>;
        fn list_now(prefix: &str) -> Result<Vec<Object>>;
        fn keep(set: u64, order: &Lookahead) -> Option<Arc<dyn ObjectCache>>;
        fn bring(base: &str, objects: &[Object], read: &ReadParts<'_>) -> Result<PathBuf>;
    }
}

/// Takes the bytes of one [`Store::fetch`]. A reply that is dropped without an answer is an error
/// of its read, so no read waits forever.
///
/// ```
/// use std::sync::mpsc;
/// use warpfeed_sources::ReadCompletion;
///
/// let (send, received) = mpsc::channel();
/// let reply = ReadCompletion::new(move |bytes| send.send(bytes).unwrap());
/// reply.done(Ok(vec![1, 2, 3]));
/// assert_eq!(received.recv().unwrap()?, [1, 2, 3]);
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
pub struct ReadCompletion {
    begun: Instant,
    shared: Arc<Shared>,
    /// Locked only by its owner: the lock makes a `ReadCompletion` usable in futures that change threads.
    done: Mutex<Option<Done>>,
}

type Done = Box<dyn FnOnce(Result<Vec<u8>>) + Send>;

/// State that both sides of a request share.
#[derive(Default)]
struct Shared {
    /// Nanoseconds until the first byte; 0 before.
    first: AtomicU64,
    /// Nanoseconds until the latest bytes; 0 before the first.
    latest: AtomicU64,
    cancelled: AtomicBool,
}

impl ReadCompletion {
    /// Creates a reply that passes its answer to `done`, on a thread of the store. `done` should
    /// return quickly.
    pub fn new(done: impl FnOnce(Result<Vec<u8>>) + Send + 'static) -> Self {
        ReadCompletion { begun: Instant::now(), shared: Arc::default(), done: Mutex::new(Some(Box::new(done))) }
    }

    /// Cancels the request of this reply.
    pub(crate) fn canceller(&self) -> Canceller {
        Canceller(self.shared.clone())
    }

    /// Notes that the first byte has arrived.
    pub fn first_byte(&self) {
        let nanos = self.progress_now();
        // The time is a measurement that publishes no memory.
        let _ = self.shared.first.compare_exchange(0, nanos, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Notes that more bytes have arrived. A request that makes no progress for two minutes is
    /// repeated, so a store whose requests may take longer calls this for each part of the answer.
    pub fn progress(&self) {
        self.progress_now();
    }

    fn progress_now(&self) -> u64 {
        let nanos = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
        self.shared.latest.store(nanos, Ordering::Relaxed);
        nanos
    }

    /// Whether the answer is no longer needed. A store may then drop the request.
    pub fn is_cancelled(&self) -> bool {
        self.shared.cancelled.load(Ordering::Relaxed)
    }

    /// Answers with the bytes of the range, or with the error.
    pub fn done(mut self, bytes: Result<Vec<u8>>) {
        self.first_byte();
        if let Some(done) = self.take() {
            done(bytes);
        }
    }

    /// Passes the answer through `then` first, for a store that wraps another.
    #[must_use]
    pub fn map(mut self, then: impl FnOnce(Result<Vec<u8>>) -> Result<Vec<u8>> + Send + 'static) -> Self {
        let done = self.take().map(|done| -> Done { Box::new(move |bytes| done(then(bytes))) });
        self.done = Mutex::new(done);
        self
    }

    fn take(&mut self) -> Option<Done> {
        self.done.get_mut().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Cancels a request whose answer nobody waits for.
pub(crate) struct Canceller(Arc<Shared>);

impl Canceller {
    pub(crate) fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }

    /// Time from the start of the request to its first byte.
    pub(crate) fn first_byte(&self) -> Option<Duration> {
        Some(self.0.first.load(Ordering::Relaxed)).filter(|&nanos| nanos > 0).map(Duration::from_nanos)
    }

    /// Time from the start of the request to its latest progress.
    pub(crate) fn progress(&self) -> Duration {
        Duration::from_nanos(self.0.latest.load(Ordering::Relaxed))
    }
}

impl Drop for ReadCompletion {
    fn drop(&mut self) {
        if let Some(done) = self.take() {
            done(Err(Error::in_source("the store dropped a request without an answer").transient()));
        }
    }
}

impl std::fmt::Debug for ReadCompletion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").field("cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}

/// Stores by scheme, in the order in which they were added.
#[derive(Clone, Default)]
pub struct Stores(Vec<(String, Arc<dyn Store>)>);

impl Stores {
    /// Adds the store of a scheme.
    pub fn add(&mut self, scheme: String, store: Arc<dyn Store>) {
        self.0.push((scheme, store));
    }

    /// The store of `url`: the last one that was added for its scheme.
    ///
    /// # Errors
    /// If there is none.
    pub fn of(&self, url: &str) -> Result<&Arc<dyn Store>> {
        let wanted = scheme(url).unwrap_or_default();
        let found = self.0.iter().rev().find(|(scheme, _)| scheme.eq_ignore_ascii_case(wanted));
        found.map(|(_, store)| store).ok_or_else(|| {
            Error::config(format!(
                "no store is known for {wanted}:// URLs; add a store for the scheme {wanted:?} to the loader, or copy the \
                 dataset to this machine"
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
    fn a_text_with_a_scheme_is_a_url_and_everything_else_a_path() {
        for (text, expected) in [
            ("s3://b/x", Some("s3")),
            ("hf+x.y-z://b", Some("hf+x.y-z")),
            ("C:\\x", None),
            ("a/b://c", None),
            ("://x", None),
        ] {
            let location = Location::of(text);
            assert_eq!(location.scheme(), expected, "{text}");
            assert!(expected.is_some() || location == Location::Path(text.into()));
        }
        let e = Stores::default().of("s3://bucket/x").err().unwrap();
        assert_eq!(e.path(), Some(Path::new("s3://bucket/x")));
        assert!(e.cause().contains("s3:// URLs; add a store for the scheme \"s3\""), "{e}");
    }
}
