//! Implements the `Store` trait with `object_store`.

use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use futures_util::future::{Either, select, try_join_all};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Attribute, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use warpfeed_sources::{Error, ErrorKind, Result};
use warpfeed_sources::{Object, ReadCompletion, Store, Upload, is_stopped};

use crate::error::convert;
use crate::http::READ_TIMEOUT;
use crate::open::{self, StorePath};
use crate::runtime::Process;
use crate::write::ObjectUpload;

/// Timeout for the start of a response, and for each chunk of its body. It is longer than the
/// client's own timeout, which has a more precise message.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(READ_TIMEOUT.as_secs() + 5);
/// Maximum number of requests for one range.
const MAX_PARTS: u64 = 5;
/// Approximate number of bytes that TCP transfers in the first round trip of a connection. Ranges
/// up to this length are not divided.
const MIN_DIVIDED_BYTES: u64 = 14_000;
/// Maximum length of a range that is divided. The parts are copied into one buffer, which for a
/// longer range would need too much additional memory.
const MAX_DIVIDED_BYTES: u64 = 1 << 20;
/// Interval at which a request checks whether it was canceled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of folders that are listed concurrently. A dataset with at most this many small
/// class folders is listed in two round trips: one for the folders and one for their objects.
const MAX_LISTINGS: usize = 128;
/// Prefix of a tag made from the modification time, for objects with neither an ETag nor a version.
/// Such a tag is weak: it counts whole seconds, and an object may change twice within one second.
const MODIFIED: &str = "W/modified ";
/// Prefix of the tags of objects that have a version but no ETag.
const VERSION: &str = "version ";
/// Prefix of the tags of files on the Hub.
pub(crate) const COMMIT: &str = "commit ";

/// A store that finds the client for each URL. Environment variables configure the clients.
pub(crate) struct ByUrl;

pub(crate) struct SingleStore(pub(crate) Arc<dyn ObjectStore>, pub(crate) Option<Arc<str>>);

trait FindStore: Send + Sync {
    fn find(&self, url: &str) -> Result<StorePath>;

    fn find_to_write(&self, url: &str) -> Result<StorePath> {
        self.find(url)
    }

    fn find_version(&self, object: &Object) -> Result<StorePath> {
        self.find(&object.url)
    }
}

impl FindStore for ByUrl {
    fn find(&self, url: &str) -> Result<StorePath> {
        StorePath::for_reading(url)
    }

    fn find_to_write(&self, url: &str) -> Result<StorePath> {
        StorePath::for_writing(url)
    }

    fn find_version(&self, object: &Object) -> Result<StorePath> {
        match object.tag.as_ref().and_then(|tag| tag.strip_prefix(COMMIT)) {
            Some(commit) => StorePath::at_commit(&object.url, commit),
            None => self.find(&object.url),
        }
    }
}

impl FindStore for SingleStore {
    fn find(&self, url: &str) -> Result<StorePath> {
        let start = url.find("://").map_or(0, |end| end + 3);
        let end = url[start..].find('/').map_or(url.len(), |slash| start + slash);
        let key = url[end..].trim_start_matches('/');
        let path = open::path(key, false).map_err(|cause| Error::config(cause).at_path(url))?;
        let (store, server) = (self.0.clone(), self.1.clone());
        Ok(StorePath {
            store,
            server,
            path,
            root: url[..end].to_owned(),
            is_web: false,
            supports_conditions: false,
            extra_requests: Arc::default(),
        })
    }
}

macro_rules! impl_store {
    ($type:ty) => {
        impl Store for $type {
            fn list(&self, prefix: &str) -> Result<Vec<Object>> {
                list(self, prefix)
            }

            fn object(&self, url: &str) -> Result<Object> {
                object(self, url)
            }

            fn read(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
                self.read_ranges(object, &mut [(offset, out)])
            }

            fn read_ranges(&self, object: &Object, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
                read_ranges(self, object, ranges)
            }

            fn fetch(&self, object: &Object, range: Range<u64>, completion: ReadCompletion) {
                fetch(self, object, range, completion);
            }

            fn create(&self, url: &str) -> Result<Box<dyn Upload>> {
                Ok(Box::new(ObjectUpload::new(self.find_to_write(url)?, url)))
            }

            fn remove(&self, url: &str) -> Result<()> {
                remove(self, url)
            }
        }
    };
}

impl_store!(ByUrl);
impl_store!(SingleStore);

/// Runs `future` on this process's runtime and waits for the result. Fails if the reads of the
/// calling thread are canceled. `block_on` would panic if the calling thread belonged to the
/// program's own tokio runtime.
pub(crate) fn wait<T: Send + 'static>(future: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let task = Process::current()?.runtime.spawn(async move {
        // Sending fails only after a cancellation, which drops the receiver.
        let _ = sender.send(future.await);
    });
    let _abort = AbortOnDrop(vec![task.abort_handle()]);
    let error = || Error::new(ErrorKind::Io, "a request to a store was dropped").transient();
    receive(&receiver)?.unwrap_or_else(|| Err(error()))
}

/// Cancels requests when it is dropped, because their caller no longer waits for them.
struct AbortOnDrop(Vec<AbortHandle>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// Waits for the next message. Returns `None` if the sender was dropped. Fails if the reads of this
/// thread are canceled.
fn receive<T>(receiver: &Receiver<T>) -> Result<Option<T>> {
    loop {
        match receiver.recv_timeout(POLL_INTERVAL) {
            Ok(message) => return Ok(Some(message)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) if is_stopped() => {
                return Err(Error::new(ErrorKind::Io, "a request to a store was canceled"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

pub(crate) async fn within_timeout<T>(
    response: impl Future<Output = object_store::Result<T>>,
    url: &str,
    operation: &str,
) -> Result<T> {
    match timeout(RESPONSE_TIMEOUT, response).await {
        Ok(response) => response.map_err(|e| convert(e, url, operation)),
        Err(_) => {
            let cause = format!("{operation}: the server sent nothing for {} s", RESPONSE_TIMEOUT.as_secs());
            Err(Error::new(ErrorKind::Timeout, cause).at_path(url).transient())
        }
    }
}

fn tag(meta: &ObjectMeta) -> Option<String> {
    e_tag(meta).or_else(|| version(meta)).or_else(|| modified(meta))
}

/// Returns the ETag with its quotes, which the listings of Azure and of some S3-compatible servers
/// omit.
fn e_tag(meta: &ObjectMeta) -> Option<String> {
    let tag = meta.e_tag.as_ref()?;
    Some(if tag.ends_with('"') { tag.clone() } else { format!("\"{tag}\"") })
}

fn version(meta: &ObjectMeta) -> Option<String> {
    Some(format!("{VERSION}{}", meta.version.as_ref()?))
}

/// Returns a tag made from the modification time. The time is in whole seconds, because listings
/// contain fractions of a second but response headers do not.
fn modified(meta: &ObjectMeta) -> Option<String> {
    // If a response has no modification time, `object_store` returns the start of 1970.
    let has_time = meta.last_modified.timestamp() > 0;
    has_time.then(|| format!("{MODIFIED}{}", meta.last_modified.format("%Y-%m-%dT%H:%M:%SZ")))
}

fn object(stores: &impl FindStore, url: &str) -> Result<Object> {
    let location = stores.find(url)?;
    let url = url.to_owned();
    if open::is_hub(&url) {
        return crate::hub::object(location, url);
    }
    wait(async move {
        let meta = within_timeout(location.store.head(&location.path), &url, "opening").await?;
        Ok(Object { url, len: meta.size, tag: tag(&meta), server: location.server })
    })
}

fn remove(stores: &impl FindStore, url: &str) -> Result<()> {
    let location = stores.find_to_write(url)?;
    let url = url.to_owned();
    wait(async move {
        match location.store.delete(&location.path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(convert(e, &url, "removing")),
        }
    })
}

fn list(stores: &impl FindStore, prefix: &str) -> Result<Vec<Object>> {
    // Servers list whole folders, so match the characters of the prefix after its last slash here.
    let folder = &prefix[..prefix.rfind('/').map_or(prefix.len(), |slash| slash + 1)];
    let location = Arc::new(stores.find(folder)?);
    if open::is_hub(folder) {
        return crate::hub::list(location, prefix.to_owned());
    }
    let prefix = prefix.to_owned();
    wait(async move {
        let root_listing =
            within_timeout(location.store.list_with_delimiter(Some(&location.path)), &prefix, "listing").await?;
        let (mut listed, mut folders) = (root_listing.objects, JoinSet::new());
        let permits = Arc::new(Semaphore::new(MAX_LISTINGS));
        for folder in root_listing.common_prefixes {
            let (permits, location, prefix) = (permits.clone(), location.clone(), prefix.clone());
            folders.spawn(async move {
                let _permit = permits.acquire().await;
                objects_below(&location, &folder, &prefix).await
            });
        }
        while let Some(result) = folders.join_next().await {
            let interrupted = |e| Error::new(ErrorKind::Io, format!("listing was interrupted: {e}")).at_path(&prefix);
            listed.extend(result.map_err(interrupted)??);
        }
        let objects = listed.iter().map(|meta| {
            let (url, server) = (location.url(&meta.location), location.server.clone());
            Object { url, len: meta.size, tag: tag(meta), server }
        });
        let mut objects: Vec<_> = objects.filter(|object| object.url.starts_with(&prefix)).collect();
        objects.sort_by(|a, b| a.url.cmp(&b.url));
        if objects.is_empty() && location.is_web {
            let cause = "found no objects here, and most web servers cannot list objects: name the objects, for example as \
                         train-{000..099}.tar";
            return Err(Error::in_source(cause).at_path(&prefix));
        }
        Ok(objects)
    })
}

async fn objects_below(location: &StorePath, folder: &Path, url: &str) -> Result<Vec<ObjectMeta>> {
    let (mut pages, mut objects) = (location.store.list(Some(folder)), Vec::new());
    while let Some(meta) = within_timeout(pages.try_next(), url, "listing").await? {
        objects.push(meta);
    }
    Ok(objects)
}

fn read_ranges(stores: &impl FindStore, object: &Object, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
    let runtime = &Process::current()?.runtime;
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut abort = AbortOnDrop(Vec::new());
    for (index, (offset, out)) in ranges.iter().enumerate() {
        let (location, object, range) =
            (stores.find_version(object)?, object.clone(), *offset..*offset + out.len() as u64);
        let (sender, completion) = (sender.clone(), ReadCompletion::new(|_| ()));
        let task = runtime.spawn(async move {
            let _ = sender.send((index, read_divided(&location, &object, range, &completion).await));
        });
        abort.0.push(task.abort_handle());
    }
    drop(sender);
    let mut pending = ranges.len();
    while let Some((index, bytes)) = receive(&receiver)? {
        ranges[index].1.copy_from_slice(&bytes?);
        pending -= 1;
    }
    match pending {
        0 => Ok(()),
        _ => Err(Error::new(ErrorKind::Io, "a request to a store was dropped").at_path(&object.url).transient()),
    }
}

fn fetch(stores: &impl FindStore, object: &Object, range: Range<u64>, completion: ReadCompletion) {
    let result = Process::current().and_then(|process| Ok((process, stores.find_version(object)?)));
    let (process, location) = match result {
        Ok(pair) => pair,
        Err(e) => return completion.complete(Err(e)),
    };
    let object = object.clone();
    process.runtime.spawn(async move {
        let bytes = {
            let (response, canceled) =
                (pin!(read_divided(&location, &object, range, &completion)), pin!(wait_for_cancel(&completion)));
            match select(response, canceled).await {
                Either::Left((bytes, _)) => bytes,
                // Leaving this block drops the request, which frees its connection even if the
                // server never responds.
                Either::Right(_) => Err(Error::new(ErrorKind::Io, "canceled").at_path(&object.url).transient()),
            }
        };
        completion.complete(bytes);
    });
}

/// Completes once the caller no longer waits for the result.
async fn wait_for_cancel(completion: &ReadCompletion) {
    while !completion.is_canceled() {
        sleep(POLL_INTERVAL).await;
    }
}

/// Reads the range with one request, or divides it into up to [`MAX_PARTS`] concurrent requests
/// until the client has used its additional requests. If a request of a divided range fails, the
/// client divides no more ranges.
async fn read_divided(
    location: &StorePath,
    object: &Object,
    range: Range<u64>,
    completion: &ReadCompletion,
) -> Result<Vec<u8>> {
    let len = range.end.saturating_sub(range.start);
    // Without a strong tag, the parts could belong to different versions.
    let wanted = match object.strong_tag().is_some() && len <= MAX_DIVIDED_BYTES {
        true => len.div_ceil(MIN_DIVIDED_BYTES).clamp(1, MAX_PARTS) - 1,
        false => 0,
    };
    let take = |left: u64| Some(left.saturating_sub(wanted));
    let left = location.extra_requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).unwrap_or(0);
    let parts = wanted.min(left) + 1;
    if parts == 1 {
        return read_range(location, object, range, completion).await;
    }
    let bound = |part: u64| range.start + len * part / parts;
    let requests = (0..parts).map(|part| read_range(location, object, bound(part)..bound(part + 1), completion));
    let bytes = try_join_all(requests).await.inspect_err(|_| location.extra_requests.store(0, Ordering::Relaxed))?;
    Ok(bytes.concat())
}

async fn read_range(
    location: &StorePath,
    object: &Object,
    range: Range<u64>,
    completion: &ReadCompletion,
) -> Result<Vec<u8>> {
    if range.is_empty() {
        return Ok(Vec::new());
    }
    let (url, len) = (&object.url, range.end - range.start);
    let operation = format!("bytes {} to {} of {}", range.start, range.end, object.len);
    let changed_error = |old: String, new: String| {
        let cause = format!(
            "{operation}: the object has changed since it was opened, from {old} to {new}: open the loader again"
        );
        Error::in_source(cause).at_path(url)
    };
    let mut options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
    let tag = object.tag.as_deref().unwrap_or_default();
    if let Some(version) = tag.strip_prefix(VERSION) {
        options.version = Some(version.to_owned());
    } else if let (Some(time), true) = (tag.strip_prefix(MODIFIED), location.supports_conditions) {
        options.if_unmodified_since = time.parse().ok();
    } else if location.supports_conditions && tag.starts_with('"') {
        // A weak ETag would never match.
        options.if_match = Some(tag.to_owned());
    }
    let response = within_timeout(location.store.get_opts(&location.path, options), url, &operation).await?;
    completion.record_first_byte();
    // Not every server honors the condition, so compare the versions as well. A response may
    // contain a different kind of version than the listing did.
    let response_tag = match tag {
        _ if tag.starts_with(MODIFIED) => modified(&response.meta),
        _ if tag.starts_with(VERSION) => version(&response.meta),
        _ if tag.is_empty() || tag.starts_with(COMMIT) => object.tag.clone(),
        _ => e_tag(&response.meta),
    };
    if response_tag != object.tag {
        return Err(changed_error(
            format!("version {tag}"),
            format!("version {}", response_tag.as_deref().unwrap_or("unknown")),
        ));
    }
    if response.meta.size != object.len {
        return Err(changed_error(format!("{} bytes", object.len), format!("{} bytes", response.meta.size)));
    }
    let encoding = response.attributes.get(&Attribute::ContentEncoding).map(|encoding| encoding.to_string());
    let wrong_length = |received: u64| {
        if let Some(encoding) = encoding.as_deref().filter(|encoding| *encoding != "identity") {
            let cause = format!(
                "{operation}: received {received} bytes instead of {len}, because the server compresses its \
                 responses ({encoding}): disable \
                 compression for the dataset, or copy the dataset"
            );
            return Error::in_source(cause).at_path(url);
        }
        let cause = format!("{operation}: received {received} bytes instead of {len}; the connection was closed early");
        Error::new(ErrorKind::Io, cause).at_path(url).transient()
    };
    if response.range != range {
        return Err(wrong_length(response.range.end.saturating_sub(response.range.start)));
    }
    let mut bytes = Vec::new();
    let reserved = usize::try_from(len).ok().filter(|len| bytes.try_reserve_exact(*len).is_ok());
    if reserved.is_none() {
        return Err(Error::new(ErrorKind::Memory, format!("cannot allocate {len} bytes")).at_path(url));
    }
    let mut body = response.into_stream();
    while let Some(chunk) = within_timeout(body.next().map(Option::transpose), url, &operation).await? {
        completion.record_progress();
        if bytes.len() as u64 + chunk.len() as u64 > len {
            return Err(wrong_length(bytes.len() as u64 + chunk.len() as u64));
        }
        bytes.extend_from_slice(&chunk);
    }
    if bytes.len() as u64 == len { Ok(bytes) } else { Err(wrong_length(bytes.len() as u64)) }
}
