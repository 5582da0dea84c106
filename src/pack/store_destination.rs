//! A dataset in an object store.

use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::destination::{self as dest, Attempt, Destination, Lock, State};
use super::folder_destination::format_crc32;
use super::manifests::{Manifest, ShardEntry};
use super::plan::Plan;
use super::writer::exists;
use crate::error::{Error, Result};
use crate::source::{MANIFEST_END, Object, Remote, Store, Upload};

/// Maximum size in bytes of a manifest or other small file.
const MAX_SMALL_FILE: u64 = 1 << 30;
/// Bytes per request when a shard is read to compute its checksum.
const CHUNK: u64 = 16 << 20;
/// How many times an object is looked up while a concurrent upload may be writing it.
const MAX_LOOKUPS: usize = 10;
const LOOKUP_INTERVAL: Duration = Duration::from_millis(100);
/// How many times a read is repeated if a small object has changed during the read.
const MAX_REREADS: usize = 5;

/// A dataset in an object store.
///
/// Stores cannot rename objects, so shards are uploaded under their final names. As long as the
/// plan exists and the manifest does not, readers know that the dataset is incomplete. Shards and
/// the manifest are never replaced with different bytes.
pub(super) struct StoreDestination {
    store: Arc<dyn Store>,
    remote: Arc<Remote>,
    /// URL of the target without `.tar`.
    base: String,
}

impl StoreDestination {
    pub(super) fn new(url: &str, store: Arc<dyn Store>) -> Result<Self> {
        // Check that the store supports writing. Dropping an upload creates no object.
        drop(store.create(url)?);
        let base = url.strip_suffix(".tar").unwrap_or(url).to_owned();
        Ok(StoreDestination { remote: Arc::new(Remote::new(store.clone())), store, base })
    }

    fn url(&self, end: &str) -> String {
        format!("{}{end}", self.base)
    }
}

impl Destination for StoreDestination {
    fn path_of(&self, end: &str) -> PathBuf {
        self.url(end).into()
    }

    fn suffixes(&self) -> Result<Vec<String>> {
        let base = self.base.clone();
        let listing = self.remote.repeated(move |store| store.list(&base))?;
        let end =
            |object: &Object| object.url.strip_prefix(&self.base).filter(|end| !end.contains('/')).map(str::to_owned);
        let mut ends: Vec<String> = listing.iter().filter_map(end).collect();
        ends.sort();
        Ok(ends)
    }

    fn get(&self, end: &str) -> Result<Option<Vec<u8>>> {
        let mut times = 0;
        loop {
            let Some(object) = object(&self.remote, &self.url(end))? else { return Ok(None) };
            if object.len > MAX_SMALL_FILE {
                return Err(Error::in_source(format!(
                    "the object has {} bytes: expected at most {MAX_SMALL_FILE}",
                    object.len
                ))
                .at_path(object.url));
            }
            match self.remote.bytes(&object, 0, object.len) {
                // Another process may have rewritten or removed the object.
                Err(_) if times < MAX_REREADS => times += 1,
                read => return read.map(Some),
            }
        }
    }

    fn put(&self, end: &str, bytes: &[u8], new: bool) -> Result<bool> {
        let (url, bytes): (_, Arc<[u8]>) = (self.url(end), bytes.into());
        self.remote.repeated(move |store| {
            let mut upload = store.create(&url)?;
            upload.write(&bytes)?;
            upload.complete(new)
        })
    }

    fn remove(&self, end: &str) -> Result<()> {
        let url = self.url(end);
        self.remote.repeated(move |store| store.remove(&url))
    }

    fn remove_attempts(&self, _: &[String]) -> Result<()> {
        Ok(())
    }

    fn uploads_in_place(&self) -> bool {
        true
    }

    fn begin(&self, number: u64, _: &str) -> Result<Box<dyn Attempt>> {
        let url = self.url(&dest::shard(number));
        Ok(Box::new(Uploading { upload: self.store.create(&url)?, remote: self.remote.clone(), url }))
    }

    fn record_shard(&self, _: (u64, u64), number: u64, id: &str, entry: &ShardEntry) -> Result<()> {
        dest::write(self, &dest::staged(number, id), entry, false).map(drop)
    }

    fn recorded_shards(&self, _: (u64, u64), numbers: Range<u64>, id: &str) -> Result<Vec<ShardEntry>> {
        let ends = self.suffixes()?;
        let notes = numbers.map(|number| dest::staged(number, id)).take_while(|note| ends.binary_search(note).is_ok());
        let entries = notes.map(|note| dest::read(self, &note)).take_while(|entry| !matches!(entry, Ok(None)));
        entries.filter_map(Result::transpose).collect()
    }

    fn shard_path(&self, number: u64, _: State<'_>) -> PathBuf {
        self.path_of(&dest::shard(number))
    }

    fn has_shard(&self, number: u64, _: State<'_>, entry: &ShardEntry, must_be_complete: bool) -> Result<bool> {
        has(&self.remote, &self.url(&dest::shard(number)), entry, must_be_complete)
    }

    /// Takes no lock, because a merge needs none: it only writes the manifest, which can be written
    /// only once, and removes files. If a file is missing, the merge checks whether another merge
    /// has written the manifest.
    fn lock(&self) -> Result<Lock> {
        Ok(Box::new(()))
    }

    fn publish(&self, plan: &Plan, shards: Vec<ShardEntry>, _: &[u64]) -> Result<Manifest> {
        let manifest = Manifest::new(plan.clone(), shards);
        if dest::write(self, MANIFEST_END, &manifest, true)? {
            return Ok(manifest);
        }
        match dest::read_manifest(self)? {
            Some(other) if other == manifest => Ok(manifest),
            Some(_) => Err(exists(&self.path_of(MANIFEST_END))),
            None => Err(Error::in_source(
                "the store refused the manifest because of a concurrent write, but no object with this name exists: merge again",
            )
            .at_path(self.path_of(MANIFEST_END))),
        }
    }
}

struct Uploading {
    upload: Box<dyn Upload>,
    remote: Arc<Remote>,
    url: String,
}

impl Write for Uploading {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.upload.write(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Attempt for Uploading {
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn publish(self: Box<Self>, entry: &ShardEntry) -> Result<()> {
        let Uploading { upload, remote, url } = *self;
        if upload.complete(true)? || has(&remote, &url, entry, true)? {
            return Ok(());
        }
        // Repeat the lookup, because the concurrent upload may still be in progress.
        for _ in 0..MAX_LOOKUPS {
            if object(&remote, &url)?.is_some() {
                break;
            }
            std::thread::sleep(LOOKUP_INTERVAL);
        }
        Err(Error::in_source(match object(&remote, &url)? {
            Some(_) if has(&remote, &url, entry, true)? => return Ok(()),
            Some(_) => "an object with this name exists and has different bytes: delete it, and pack again",
            None => {
                "the store refused the shard because of a concurrent write, but no object with this name exists: pack again"
            }
        })
        .at_path(url))
    }
}

fn object(remote: &Remote, url: &str) -> Result<Option<Object>> {
    let object_url = url.to_owned();
    remote.repeated(move |store| match store.object(&object_url) {
        Err(e) if e.is_absent() => Ok(None),
        // Some stores return an unspecific error for a missing object, so look for it in the list
        // of objects.
        Err(e) if !e.is_transient() => match store.list(&object_url)?.iter().any(|object| object.url == object_url) {
            true => Err(e),
            false => Ok(None),
        },
        object => object.map(Some),
    })
}

/// Returns whether the object exists and has the size in `entry`. If `must_be_complete` is true,
/// also compares the checksum.
fn has(remote: &Remote, url: &str, entry: &ShardEntry, must_be_complete: bool) -> Result<bool> {
    let Some(object) = object(remote, url)?.filter(|object| object.len == entry.bytes) else { return Ok(false) };
    if !must_be_complete {
        return Ok(true);
    }
    let (mut hasher, mut offset) = (crc32fast::Hasher::new(), 0);
    while offset < object.len {
        let bytes = remote.bytes(&object, offset, CHUNK.min(object.len - offset))?;
        hasher.update(&bytes);
        offset += bytes.len() as u64;
    }
    Ok(format_crc32(hasher.finalize()) == entry.crc32)
}
