//! A set in an object store.

use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::destination::{self as dest, Attempt, Destination, Lock, State};
use super::files::sum;
use super::plan::Plan;
use super::set::{Set, ShardEntry};
use super::writer::exists;
use crate::error::{Error, Result};
use crate::source::{MANIFEST_END, Object, Remote, Store, Upload};

/// Maximum size of a small file, in bytes.
const MOST: u64 = 1 << 30;
/// Number of bytes of a shard that are read and compared at a time.
const CHUNK: u64 = 16 << 20;
/// Number of times to look for an object that a concurrent upload is writing.
const LOOKS: usize = 10;
/// Interval between these attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of retries for a small file that changes while it is read.
const CHANGES: usize = 5;

/// A set in an object store.
///
/// A store cannot rename objects, so shards are uploaded under their final names. Until the merge
/// writes the manifest, the presence of the plan tells readers that the set is incomplete. No
/// object is ever replaced with different bytes.
pub(super) struct Stored {
    store: Arc<dyn Store>,
    remote: Arc<Remote>,
    /// URL of the target, without `.tar`.
    base: String,
}

impl Stored {
    /// Creates the destination for a set at `url` in `store`.
    ///
    /// # Errors
    /// If the store is not writable.
    pub(super) fn new(url: &str, store: Arc<dyn Store>) -> Result<Self> {
        // Test for write access. Dropping the upload leaves nothing behind.
        drop(store.create(url)?);
        let base = url.strip_suffix(".tar").unwrap_or(url).to_owned();
        Ok(Stored { remote: Arc::new(Remote::new(store.clone())), store, base })
    }

    fn url(&self, end: &str) -> String {
        format!("{}{end}", self.base)
    }
}

impl Destination for Stored {
    fn at(&self, end: &str) -> PathBuf {
        self.url(end).into()
    }

    fn ends(&self) -> Result<Vec<String>> {
        let base = self.base.clone();
        let found = self.remote.repeated(move |store| store.list(&base))?;
        let end =
            |object: &Object| object.url.strip_prefix(&self.base).filter(|end| !end.contains('/')).map(str::to_owned);
        let mut ends: Vec<String> = found.iter().filter_map(end).collect();
        ends.sort();
        Ok(ends)
    }

    fn get(&self, end: &str) -> Result<Option<Vec<u8>>> {
        let mut times = 0;
        loop {
            let Some(object) = object(&self.remote, &self.url(end))? else { return Ok(None) };
            if object.len > MOST {
                return Err(
                    Error::in_source(format!("{} bytes, at most {MOST} are expected", object.len)).at_path(object.url)
                );
            }
            match self.remote.bytes(&object, 0, object.len) {
                // Another process has rewritten or removed the object.
                Err(_) if times < CHANGES => times += 1,
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
        // The store itself removes incomplete uploads.
        Ok(())
    }

    fn in_place(&self) -> bool {
        true
    }

    fn begin(&self, number: u64, _: &str) -> Result<Box<dyn Attempt>> {
        let url = self.url(&dest::shard(number));
        Ok(Box::new(Uploading { upload: self.store.create(&url)?, remote: self.remote.clone(), url }))
    }

    fn note(&self, _: (u64, u64), number: u64, id: &str, entry: &ShardEntry) -> Result<()> {
        dest::write(self, &dest::staged(number, id), entry, false).map(drop)
    }

    fn noted(&self, _: (u64, u64), numbers: Range<u64>, id: &str) -> Result<Vec<ShardEntry>> {
        let ends = self.ends()?;
        let notes = numbers.map(|number| dest::staged(number, id)).take_while(|note| ends.binary_search(note).is_ok());
        let entries = notes.map(|note| dest::read(self, &note)).take_while(|entry| !matches!(entry, Ok(None)));
        entries.filter_map(Result::transpose).collect()
    }

    fn place(&self, number: u64, _: State<'_>) -> PathBuf {
        self.at(&dest::shard(number))
    }

    fn has(&self, number: u64, _: State<'_>, entry: &ShardEntry, whole: bool) -> Result<bool> {
        has(&self.remote, &self.url(&dest::shard(number)), entry, whole)
    }

    /// Returns a dummy lock. No lock is needed, because the set appears with its manifest, which is
    /// written only once. A merge that finds no parts checks whether the set exists.
    fn lock(&self) -> Result<Lock> {
        Ok(Box::new(()))
    }

    fn publish(&self, plan: &Plan, shards: Vec<ShardEntry>, _: &[u64]) -> Result<Set> {
        let set = Set::new(plan.clone(), shards);
        if dest::write(self, MANIFEST_END, &set, true)? {
            return Ok(set);
        }
        match dest::read_set(self)? {
            Some(other) if other == set => Ok(set),
            Some(_) => Err(exists(&self.at(MANIFEST_END))),
            None => Err(Error::in_source(
                "the store refused the manifest, because something else wrote it at the same time, but no object of \
                 this name exists: merge again",
            )
            .at_path(self.at(MANIFEST_END))),
        }
    }
}

/// A shard that is being uploaded.
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

    fn keep(self: Box<Self>, entry: &ShardEntry) -> Result<()> {
        let Uploading { upload, remote, url } = *self;
        if upload.complete(true)? || has(&remote, &url, entry, true)? {
            return Ok(());
        }
        // The faster upload may still be in progress.
        for _ in 0..LOOKS {
            if object(&remote, &url)?.is_some() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        Err(Error::in_source(match object(&remote, &url)? {
            Some(_) if has(&remote, &url, entry, true)? => return Ok(()),
            Some(_) => "an object with this name exists and has different bytes: delete it, and pack again",
            None => {
                "the store refused the shard, because something else wrote it at the same time, but no object of this \
                 name exists: pack again"
            }
        })
        .at_path(url))
    }
}

/// Returns the object at `url`, if it exists.
fn object(remote: &Remote, url: &str) -> Result<Option<Object>> {
    let wanted = url.to_owned();
    remote.repeated(move |store| match store.object(&wanted) {
        Err(e) if e.is_absent() => Ok(None),
        // The error does not prove that the object is missing, so look for the object in the
        // listing.
        Err(e) if !e.is_transient() => match store.list(&wanted)?.iter().any(|object| object.url == wanted) {
            true => Err(e),
            false => Ok(None),
        },
        found => found.map(Some),
    })
}

/// Returns whether the object at `url` matches the size and, if `whole` is true, the checksum in
/// `entry`.
fn has(remote: &Remote, url: &str, entry: &ShardEntry, whole: bool) -> Result<bool> {
    let Some(object) = object(remote, url)?.filter(|object| object.len == entry.bytes) else { return Ok(false) };
    if !whole {
        return Ok(true);
    }
    let (mut hasher, mut at) = (crc32fast::Hasher::new(), 0);
    while at < object.len {
        let bytes = remote.bytes(&object, at, CHUNK.min(object.len - at))?;
        hasher.update(&bytes);
        at += bytes.len() as u64;
    }
    Ok(sum(hasher.finalize()) == entry.crc32)
}
