//! [`StoreDestination`] packs to an object store.

use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::destination::{self as dest, Destination, Lock, ShardState, ShardWriter};
use super::folder_destination::format_crc32;
use super::manifests::{Manifest, ShardEntry};
use super::plan::Plan;
use super::writer::exists_error;
use crate::error::{Error, Result};
use crate::source::{MANIFEST_SUFFIX, Object, Remote, Store, Upload};

/// Maximum size in bytes of a manifest or other small file.
const MAX_SMALL_FILE_BYTES: u64 = 1 << 30;
/// Size of the requests that read a shard to compute its checksum, in bytes.
const CHUNK_BYTES: u64 = 16 << 20;
/// How many times an object is looked up while a concurrent upload may be writing it.
const MAX_LOOKUPS: usize = 10;
const LOOKUP_INTERVAL: Duration = Duration::from_millis(100);
/// How many times a failed read of a small object is repeated, because the object may have changed
/// during the read.
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

    fn url(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.base)
    }
}

impl Destination for StoreDestination {
    fn path_of(&self, suffix: &str) -> PathBuf {
        self.url(suffix).into()
    }

    fn suffixes(&self) -> Result<Vec<String>> {
        let base = self.base.clone();
        let listing = self.remote.repeated(move |store| store.list(&base))?;
        let suffix = |object: &Object| {
            object.url.strip_prefix(&self.base).filter(|suffix| !suffix.contains('/')).map(str::to_owned)
        };
        let mut suffixes: Vec<String> = listing.iter().filter_map(suffix).collect();
        suffixes.sort();
        Ok(suffixes)
    }

    fn get(&self, suffix: &str) -> Result<Option<Vec<u8>>> {
        let mut rereads = 0;
        loop {
            let Some(object) = find_object(&self.remote, &self.url(suffix))? else { return Ok(None) };
            if object.len > MAX_SMALL_FILE_BYTES {
                return Err(Error::in_source(format!(
                    "the object has {} bytes: expected at most {MAX_SMALL_FILE_BYTES}",
                    object.len
                ))
                .at_path(object.url));
            }
            match self.remote.bytes(&object, 0, object.len) {
                // Another process may have rewritten or removed the object.
                Err(_) if rereads < MAX_REREADS => rereads += 1,
                result => return result.map(Some),
            }
        }
    }

    fn put(&self, suffix: &str, bytes: &[u8], must_be_new: bool) -> Result<bool> {
        let (url, bytes): (_, Arc<[u8]>) = (self.url(suffix), bytes.into());
        self.remote.repeated(move |store| {
            let mut upload = store.create(&url)?;
            upload.write(&bytes)?;
            upload.complete(must_be_new)
        })
    }

    fn remove(&self, suffix: &str) -> Result<()> {
        let url = self.url(suffix);
        self.remote.repeated(move |store| store.remove(&url))
    }

    fn remove_attempts(&self, _: &[String]) -> Result<()> {
        Ok(())
    }

    fn uploads_in_place(&self) -> bool {
        true
    }

    fn begin_shard(&self, number: u64, _: &str) -> Result<Box<dyn ShardWriter>> {
        let url = self.url(&dest::shard_suffix(number));
        Ok(Box::new(ShardUpload { upload: self.store.create(&url)?, remote: self.remote.clone(), url }))
    }

    fn record_shard(&self, _: (u64, u64), number: u64, plan_id: &str, entry: &ShardEntry) -> Result<()> {
        dest::write_json(self, &dest::staged_suffix(number, plan_id), entry, false).map(drop)
    }

    fn recorded_shards(&self, _: (u64, u64), numbers: Range<u64>, plan_id: &str) -> Result<Vec<ShardEntry>> {
        let suffixes = self.suffixes()?;
        let entry_suffixes = numbers
            .map(|number| dest::staged_suffix(number, plan_id))
            .take_while(|entry_suffix| suffixes.binary_search(entry_suffix).is_ok());
        let entries = entry_suffixes
            .map(|entry_suffix| dest::read_json(self, &entry_suffix))
            .take_while(|entry| !matches!(entry, Ok(None)));
        entries.filter_map(Result::transpose).collect()
    }

    fn shard_path(&self, number: u64, _: ShardState<'_>) -> PathBuf {
        self.path_of(&dest::shard_suffix(number))
    }

    fn has_shard(&self, number: u64, _: ShardState<'_>, entry: &ShardEntry, must_be_complete: bool) -> Result<bool> {
        has_content(&self.remote, &self.url(&dest::shard_suffix(number)), entry, must_be_complete)
    }

    /// Acquires no lock, because concurrent merges do not conflict: a merge writes the manifest,
    /// which can be written only once, and then removes files. If a file is missing, the merge
    /// checks whether another merge has written the manifest.
    fn lock(&self) -> Result<Lock> {
        Ok(Box::new(()))
    }

    fn publish(&self, plan: &Plan, shards: Vec<ShardEntry>, _: &[u64]) -> Result<Manifest> {
        let manifest = Manifest::new(plan.clone(), shards);
        if dest::write_json(self, MANIFEST_SUFFIX, &manifest, true)? {
            return Ok(manifest);
        }
        match dest::read_manifest(self)? {
            Some(existing_manifest) if existing_manifest == manifest => Ok(manifest),
            Some(_) => Err(exists_error(&self.path_of(MANIFEST_SUFFIX))),
            None => Err(Error::in_source(
                "the store refused the manifest because of a concurrent write, but no object with this name exists: merge again",
            )
            .at_path(self.path_of(MANIFEST_SUFFIX))),
        }
    }
}

struct ShardUpload {
    upload: Box<dyn Upload>,
    remote: Arc<Remote>,
    url: String,
}

impl Write for ShardUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.upload.write(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ShardWriter for ShardUpload {
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn publish(self: Box<Self>, entry: &ShardEntry) -> Result<()> {
        let ShardUpload { upload, remote, url } = *self;
        if upload.complete(true)? || has_content(&remote, &url, entry, true)? {
            return Ok(());
        }
        // Repeat the lookup, because the concurrent upload may still be in progress.
        for _ in 0..MAX_LOOKUPS {
            if find_object(&remote, &url)?.is_some() {
                break;
            }
            std::thread::sleep(LOOKUP_INTERVAL);
        }
        Err(Error::in_source(match find_object(&remote, &url)? {
            Some(_) if has_content(&remote, &url, entry, true)? => return Ok(()),
            Some(_) => "an object with this name exists and has different bytes: delete it, and pack again",
            None => {
                "the store refused the shard because of a concurrent write, but no object with this name exists: pack again"
            }
        })
        .at_path(url))
    }
}

fn find_object(remote: &Remote, url: &str) -> Result<Option<Object>> {
    let object_url = url.to_owned();
    remote.repeated(move |store| match store.object(&object_url) {
        Err(e) if e.is_not_found() => Ok(None),
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
fn has_content(remote: &Remote, url: &str, entry: &ShardEntry, must_be_complete: bool) -> Result<bool> {
    let Some(object) = find_object(remote, url)?.filter(|object| object.len == entry.bytes) else { return Ok(false) };
    if !must_be_complete {
        return Ok(true);
    }
    let (mut hasher, mut offset) = (crc32fast::Hasher::new(), 0);
    while offset < object.len {
        let bytes = remote.bytes(&object, offset, CHUNK_BYTES.min(object.len - offset))?;
        hasher.update(&bytes);
        offset += bytes.len() as u64;
    }
    Ok(format_crc32(hasher.finalize()) == entry.crc32)
}
