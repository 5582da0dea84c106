//! Implements warpfeed's `Store` with `object_store`.

use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Attribute, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use warpfeed_sources::{Error, ErrorKind, Result};
use warpfeed_sources::{Object, ReadCompletion, Store, Upload, is_stopped};

use crate::error::convert;
use crate::http::SILENCE;
use crate::open::{self, StorePath};
use crate::runtime::Process;
use crate::write::Uploading;

/// Timeout for a request that receives no bytes. It is longer than the client's own timeout, whose
/// message is more precise.
const QUIET: Duration = Duration::from_secs(SILENCE.as_secs() + 5);
/// Interval at which a request checks whether it was cancelled.
const SLICE: Duration = Duration::from_millis(50);
/// Maximum number of folders that are listed concurrently. It is large enough to list the class
/// folders of a small dataset in one round trip.
const LISTS: usize = 128;
/// Prefix of the tag of an object that has neither an ETag nor a version. The modification time in
/// seconds follows. The tag is weak, because an object may change twice within a second.
const MODIFIED: &str = "W/modified ";
/// Prefix of the tag of an object that has a version but no ETag.
const VERSION: &str = "version ";
/// Prefix of the tag of a file on the Hub. The commit follows.
pub(crate) const COMMIT: &str = "commit ";

/// The stores for all URLs, configured by environment variables.
pub(crate) struct ByUrl;

/// One store for all buckets, and the name of its server.
pub(crate) struct One(pub(crate) Arc<dyn ObjectStore>, pub(crate) Option<Arc<str>>);

/// Resolves a URL to a location.
trait Find: Send + Sync {
    fn find(&self, url: &str) -> Result<StorePath>;

    /// Resolves a URL for writing.
    fn find_to_write(&self, url: &str) -> Result<StorePath> {
        self.find(url)
    }

    /// Resolves the version of `object` that was opened.
    fn find_version(&self, object: &Object) -> Result<StorePath> {
        self.find(&object.url)
    }
}

impl Find for ByUrl {
    fn find(&self, url: &str) -> Result<StorePath> {
        StorePath::of(url)
    }

    fn find_to_write(&self, url: &str) -> Result<StorePath> {
        StorePath::to_write(url)
    }

    fn find_version(&self, object: &Object) -> Result<StorePath> {
        match object.tag.as_ref().and_then(|tag| tag.strip_prefix(COMMIT)) {
            Some(commit) => StorePath::of_commit(&object.url, commit),
            None => self.find(&object.url),
        }
    }
}

impl Find for One {
    fn find(&self, url: &str) -> Result<StorePath> {
        let start = url.find("://").map_or(0, |at| at + 3);
        let end = url[start..].find('/').map_or(url.len(), |at| start + at);
        let key = url[end..].trim_start_matches('/');
        let path = open::path(key, false).map_err(|cause| Error::config(cause).at_path(url))?;
        let (store, server) = (self.0.clone(), self.1.clone());
        Ok(StorePath { store, server, path, root: url[..end].to_owned(), web: false, conditional: false })
    }
}

macro_rules! is_store {
    ($type:ty) => {
        impl Store for $type {
            fn list(&self, prefix: &str) -> Result<Vec<Object>> {
                list(self, prefix)
            }

            fn object(&self, url: &str) -> Result<Object> {
                object(self, url)
            }

            fn read(&self, object: &Object, at: u64, to: &mut [u8]) -> Result<()> {
                self.read_ranges(object, &mut [(at, to)])
            }

            fn read_ranges(&self, object: &Object, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
                read_ranges(self, object, ranges)
            }

            fn fetch(&self, object: &Object, range: Range<u64>, reply: ReadCompletion) {
                fetch(self, object, range, reply);
            }

            fn create(&self, url: &str) -> Result<Box<dyn Upload>> {
                Ok(Box::new(Uploading::new(self.find_to_write(url)?, url)))
            }

            fn remove(&self, url: &str) -> Result<()> {
                remove(self, url)
            }
        }
    };
}

is_store!(ByUrl);
is_store!(One);

/// Runs `task` on this process's runtime and waits for it. `block_on` is not used, because it would
/// panic if the caller were a thread of another runtime.
pub(crate) fn wait<T: Send + 'static>(task: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let (send, received) = std::sync::mpsc::sync_channel(1);
    let running = Process::current()?.runtime.spawn(async move {
        // Sending fails only after a cancellation, which drops the receiver.
        let _ = send.send(task.await);
    });
    let _abort = Abort(vec![running.abort_handle()]);
    let dropped = || Error::new(ErrorKind::Io, "a request to a store was dropped").transient();
    received_in_time(&received)?.unwrap_or_else(|| Err(dropped()))
}

/// Cancels requests when it is dropped, because their caller no longer waits for them.
struct Abort(Vec<AbortHandle>);

impl Drop for Abort {
    fn drop(&mut self) {
        // Aborting a request that has already ended does nothing.
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// Waits for the next message. Returns `None` if the sender was dropped.
///
/// # Errors
/// If the reads of this thread are cancelled.
fn received_in_time<T>(received: &Receiver<T>) -> Result<Option<T>> {
    loop {
        match received.recv_timeout(SLICE) {
            Ok(message) => return Ok(Some(message)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) if is_stopped() => {
                return Err(Error::new(ErrorKind::Io, "a request to a store was cancelled"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Waits for `answer`, and fails if nothing is received for too long.
pub(crate) async fn heard<T>(
    answer: impl Future<Output = object_store::Result<T>>,
    url: &str,
    what: &str,
) -> Result<T> {
    match timeout(QUIET, answer).await {
        Ok(answer) => answer.map_err(|e| convert(e, url, what)),
        Err(_) => {
            let cause = format!("{what}: the server was silent for {} s", QUIET.as_secs());
            Err(Error::new(ErrorKind::Timeout, cause).at_path(url).transient())
        }
    }
}

/// Returns the version tag of an object.
fn tag(meta: &ObjectMeta) -> Option<String> {
    e_tag(meta).or_else(|| version(meta)).or_else(|| modified(meta))
}

/// Returns the ETag with quotes, which are missing in the listings of Azure and of some
/// S3-compatible servers.
fn e_tag(meta: &ObjectMeta) -> Option<String> {
    let tag = meta.e_tag.as_ref()?;
    Some(if tag.ends_with('"') { tag.clone() } else { format!("\"{tag}\"") })
}

fn version(meta: &ObjectMeta) -> Option<String> {
    Some(format!("{VERSION}{}", meta.version.as_ref()?))
}

/// Returns the modification time in whole seconds, because listings contain fractions of a second
/// but response headers do not.
fn modified(meta: &ObjectMeta) -> Option<String> {
    // A server that does not know the modification time reports 1970.
    let known = meta.last_modified.timestamp() > 0;
    known.then(|| format!("{MODIFIED}{}", meta.last_modified.format("%Y-%m-%dT%H:%M:%SZ")))
}

fn object(stores: &impl Find, url: &str) -> Result<Object> {
    let place = stores.find(url)?;
    let url = url.to_owned();
    if open::is_hub(&url) {
        return crate::hub::object(place, url);
    }
    wait(async move {
        let meta = heard(place.store.head(&place.path), &url, "opening").await?;
        Ok(Object { url, len: meta.size, tag: tag(&meta), server: place.server })
    })
}

fn remove(stores: &impl Find, url: &str) -> Result<()> {
    let place = stores.find_to_write(url)?;
    let url = url.to_owned();
    wait(async move {
        match place.store.delete(&place.path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(convert(e, &url, "removing")),
        }
    })
}

fn list(stores: &impl Find, prefix: &str) -> Result<Vec<Object>> {
    // The server lists whole folders, so match the part of the prefix after the last slash here.
    let folder = &prefix[..prefix.rfind('/').map_or(prefix.len(), |at| at + 1)];
    let place = Arc::new(stores.find(folder)?);
    if open::is_hub(folder) {
        return crate::hub::list(place, prefix.to_owned());
    }
    let prefix = prefix.to_owned();
    wait(async move {
        let first = heard(place.store.list_with_delimiter(Some(&place.path)), &prefix, "listing").await?;
        let (mut found, mut folders) = (first.objects, JoinSet::new());
        let turns = Arc::new(Semaphore::new(LISTS));
        for folder in first.common_prefixes {
            let (turns, place, prefix) = (turns.clone(), place.clone(), prefix.clone());
            folders.spawn(async move {
                let _turn = turns.acquire().await;
                below(&place, &folder, &prefix).await
            });
        }
        while let Some(part) = folders.join_next().await {
            let lost = |e| Error::new(ErrorKind::Io, format!("listing was interrupted: {e}")).at_path(&prefix);
            found.extend(part.map_err(lost)??);
        }
        let objects = found.iter().map(|meta| {
            let (url, server) = (place.url(&meta.location), place.server.clone());
            Object { url, len: meta.size, tag: tag(meta), server }
        });
        let mut objects: Vec<_> = objects.filter(|object| object.url.starts_with(&prefix)).collect();
        objects.sort_by(|a, b| a.url.cmp(&b.url));
        if objects.is_empty() && place.web {
            let cause = "no objects are listed here, and most web servers cannot list: name the objects, for example as \
                         train-{000..099}.tar";
            return Err(Error::in_source(cause).at_path(&prefix));
        }
        Ok(objects)
    })
}

/// Returns all objects below a folder.
async fn below(place: &StorePath, folder: &Path, url: &str) -> Result<Vec<ObjectMeta>> {
    let (mut pages, mut found) = (place.store.list(Some(folder)), Vec::new());
    while let Some(meta) = heard(pages.try_next(), url, "listing").await? {
        found.push(meta);
    }
    Ok(found)
}

fn read_ranges(stores: &impl Find, object: &Object, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
    let runtime = &Process::current()?.runtime;
    let (send, received) = std::sync::mpsc::channel();
    let mut abort = Abort(Vec::new());
    for (number, (at, to)) in ranges.iter().enumerate() {
        let (place, object, range) = (stores.find_version(object)?, object.clone(), *at..*at + to.len() as u64);
        let (send, reply) = (send.clone(), ReadCompletion::new(|_| ()));
        let running = runtime.spawn(async move {
            let _ = send.send((number, bytes(&place, &object, range, &reply).await));
        });
        abort.0.push(running.abort_handle());
    }
    drop(send);
    let mut left = ranges.len();
    while let Some((number, bytes)) = received_in_time(&received)? {
        ranges[number].1.copy_from_slice(&bytes?);
        left -= 1;
    }
    match left {
        0 => Ok(()),
        _ => Err(Error::new(ErrorKind::Io, "a request to a store was dropped").at_path(&object.url).transient()),
    }
}

fn fetch(stores: &impl Find, object: &Object, range: Range<u64>, reply: ReadCompletion) {
    let found = Process::current().and_then(|process| Ok((process, stores.find_version(object)?)));
    let (process, place) = match found {
        Ok(found) => found,
        Err(e) => return reply.done(Err(e)),
    };
    let object = object.clone();
    process.runtime.spawn(async move {
        let bytes = {
            let (answer, cancelled) = (pin!(bytes(&place, &object, range, &reply)), pin!(cancelled(&reply)));
            match select(answer, cancelled).await {
                Either::Left((bytes, _)) => bytes,
                // Leaving this block drops the request, which frees its connection even if the
                // server is silent.
                Either::Right(_) => Err(Error::new(ErrorKind::Io, "cancelled").at_path(&object.url).transient()),
            }
        };
        reply.done(bytes);
    });
}

/// Completes when the result is no longer needed.
async fn cancelled(reply: &ReadCompletion) {
    while !reply.is_cancelled() {
        sleep(SLICE).await;
    }
}

/// Reads `range` of the version of `object` that was opened.
async fn bytes(place: &StorePath, object: &Object, range: Range<u64>, reply: &ReadCompletion) -> Result<Vec<u8>> {
    if range.is_empty() {
        return Ok(Vec::new());
    }
    let (url, len) = (&object.url, range.end - range.start);
    let what = format!("bytes {} to {} of {}", range.start, range.end, object.len);
    let changed = |was: String, is: String| {
        let cause =
            format!("{what}: the object has changed since it was opened, from {was} to {is}; open the loader again");
        Error::in_source(cause).at_path(url)
    };
    let mut options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
    let tag = object.tag.as_deref().unwrap_or_default();
    if let Some(version) = tag.strip_prefix(VERSION) {
        options.version = Some(version.to_owned());
    } else if let (Some(time), true) = (tag.strip_prefix(MODIFIED), place.conditional) {
        options.if_unmodified_since = time.parse().ok();
    } else if place.conditional && tag.starts_with('"') {
        // According to HTTP, weak ETags never match, so the condition is used only for strong ones.
        options.if_match = Some(tag.to_owned());
    }
    let answer = heard(place.store.get_opts(&place.path, options), url, &what).await?;
    reply.first_byte();
    // Not every server honors the condition, so compare the versions here. A response may contain a
    // different kind of version than a listing.
    let now = match tag {
        _ if tag.starts_with(MODIFIED) => modified(&answer.meta),
        _ if tag.starts_with(VERSION) => version(&answer.meta),
        _ if tag.is_empty() || tag.starts_with(COMMIT) => object.tag.clone(),
        _ => e_tag(&answer.meta),
    };
    if now != object.tag {
        return Err(changed(format!("version {tag}"), format!("version {}", now.as_deref().unwrap_or("unknown"))));
    }
    if answer.meta.size != object.len {
        return Err(changed(format!("{} bytes", object.len), format!("{} bytes", answer.meta.size)));
    }
    let encoding = answer.attributes.get(&Attribute::ContentEncoding).map(|encoding| encoding.to_string());
    let wrong = |came: u64| {
        if let Some(encoding) = encoding.as_deref().filter(|encoding| *encoding != "identity") {
            let cause = format!(
                "{what}: received {came} bytes instead of {len}, because the server compresses its answers ({encoding}): turn \
                 this off for the dataset, or copy it"
            );
            return Error::in_source(cause).at_path(url);
        }
        let cause = format!("{what}: received {came} bytes instead of {len}; the connection was closed early");
        Error::new(ErrorKind::Io, cause).at_path(url).transient()
    };
    if answer.range != range {
        return Err(wrong(answer.range.end.saturating_sub(answer.range.start)));
    }
    let mut bytes = Vec::new();
    let room = usize::try_from(len).ok().filter(|len| bytes.try_reserve_exact(*len).is_ok());
    if room.is_none() {
        return Err(Error::new(ErrorKind::Memory, format!("cannot allocate {len} bytes")).at_path(url));
    }
    let mut body = answer.into_stream();
    while let Some(chunk) = heard(body.next().map(Option::transpose), url, &what).await? {
        reply.progress();
        if bytes.len() as u64 + chunk.len() as u64 > len {
            return Err(wrong(bytes.len() as u64 + chunk.len() as u64));
        }
        bytes.extend_from_slice(&chunk);
    }
    if bytes.len() as u64 == len { Ok(bytes) } else { Err(wrong(bytes.len() as u64)) }
}
