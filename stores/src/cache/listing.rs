//! Caches the listings of object stores in the cache folder, so that a folder of a million images
//! does not have to be listed for every training run.
//!
//! A listing is stored in `files/KEY.listing`, where KEY is a hash of the listed prefix. A process
//! locks `files/KEY.lock` while it lists the objects. The format is little-endian. The file
//! contains the magic number, the time of the listing in seconds, the prefix, the number of
//! objects, the objects (the URL after the prefix, the length, the tag and the server), and the
//! CRC-32 of all preceding bytes. Each string follows its length, and a missing string has the
//! length `u32::MAX`. The last byte of the magic number is the version.
//!
//! Objects that were added after a listing are not found until the objects are listed again. Before
//! a cached listing is used, a few of its objects are compared with the server, and its age is
//! logged. Reading an object that has changed fails and invalidates the listing.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use warpfeed_sources::internal::counted;
use warpfeed_sources::{CancelToken, Object, Store, is_stopped};
use warpfeed_sources::{Error, Result};

use super::folder::{FILES, Folder, none_if_missing};

const MAGIC: [u8; 8] = *b"wflist\x00\x01";
const ABSENT: u32 = u32::MAX;
/// Maximum number of objects that are compared with the server before a cached listing is used.
const MAX_PROBES: usize = 8;
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum wait for the lock. A process that holds it for longer may be suspended, so the objects
/// are listed anyway.
const LOCK_TIMEOUT: Duration = Duration::from_secs(600);
pub(super) const LISTING: &str = "listing";

pub(super) struct Listing {
    /// Time of the listing, in seconds since 1970.
    pub(super) time: u64,
    pub(super) prefix: String,
    pub(super) objects: Vec<Object>,
}

impl Listing {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let text = |bytes: &mut Vec<u8>, text: Option<&str>| {
            bytes.extend_from_slice(&text.map_or(ABSENT, |text| text.len() as u32).to_le_bytes());
            bytes.extend_from_slice(text.unwrap_or_default().as_bytes());
        };
        bytes.extend_from_slice(&self.time.to_le_bytes());
        text(&mut bytes, Some(&self.prefix));
        bytes.extend_from_slice(&(self.objects.len() as u64).to_le_bytes());
        for object in &self.objects {
            text(&mut bytes, object.url.strip_prefix(&self.prefix));
            bytes.extend_from_slice(&object.len.to_le_bytes());
            text(&mut bytes, object.tag.as_deref());
            text(&mut bytes, object.server.as_deref());
        }
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, checksum) = bytes.split_last_chunk()?;
        if crc32fast::hash(body).to_le_bytes() != *checksum {
            return None;
        }
        let rest = &mut body.strip_prefix(&MAGIC)?;
        let time = read_u64(rest)?;
        let prefix = read_text(rest)??.to_owned();
        let count = read_u64(rest)?;
        let mut objects = Vec::new();
        // Most listings come from one server, so the objects share its string.
        let mut server: Option<Arc<str>> = None;
        for _ in 0..count {
            let url = format!("{prefix}{}", read_text(rest)??);
            let len = read_u64(rest)?;
            let tag = read_text(rest)?.map(str::to_owned);
            let object_server = read_text(rest)?;
            if object_server != server.as_deref() {
                server = object_server.map(Into::into);
            }
            objects.push(Object { url, len, tag, server: server.clone() });
        }
        rest.is_empty().then_some(Listing { time, prefix, objects })
    }

    /// Reads a listing. Returns `None` if the file is missing, damaged, or not a listing.
    pub(super) fn load(path: &Path) -> io::Result<Option<Self>> {
        Ok(none_if_missing(fs::read(path))?.and_then(|bytes| Self::decode(&bytes)))
    }

    pub(super) fn age_s(&self) -> u64 {
        unix_time_s().saturating_sub(self.time)
    }

    /// Compares up to [`MAX_PROBES`] objects with the server, and returns whether none of them has
    /// changed. A missing or inaccessible object counts as changed. Fails if a request fails with a
    /// transient error. The listing must not be empty.
    fn is_current(&self, store: &dyn Store) -> Result<bool> {
        let count = self.objects.len().min(MAX_PROBES);
        let last_index = self.objects.len() - 1;
        let probes = (0..count).map(|i| &self.objects[i * last_index / (count - 1).max(1)]);
        let stop = CancelToken::current();
        let check = |object: &Object| match store.object(&object.url) {
            Ok(current) => Ok(current == *object),
            Err(e) if e.is_transient() => Err(e),
            Err(_) => Ok(false),
        };
        let results: Vec<Result<bool>> = std::thread::scope(|scope| {
            let spawn = |object| {
                let (stop, check) = (stop.clone(), &check);
                let thread = std::thread::Builder::new().spawn_scoped(scope, move || match stop {
                    Some(stop) => stop.run(|| check(object)),
                    None => check(object),
                });
                // If a thread cannot be spawned, send the request from this thread.
                thread.map_err(|_| check(object))
            };
            let threads: Vec<_> = probes.map(spawn).collect();
            let error = || Error::in_source("a request for an object was interrupted").transient();
            let join = |thread: std::result::Result<std::thread::ScopedJoinHandle<'_, _>, _>| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|_| Err(error())),
                Err(result) => result,
            };
            threads.into_iter().map(join).collect()
        });
        results.into_iter().try_fold(true, |is_current, result| Ok(is_current && result?))
    }
}

pub(super) fn unix_time_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn read_u64(rest: &mut &[u8]) -> Option<u64> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u64::from_le_bytes(*number))
}

/// Reads a string. Returns `None` if the bytes end too early, and `Some(None)` for a missing
/// string.
fn read_text<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a str>> {
    let (len, after) = rest.split_first_chunk()?;
    *rest = after;
    let len = u32::from_le_bytes(*len);
    if len == ABSENT {
        return Some(None);
    }
    let (text, after) = rest.split_at_checked(len as usize)?;
    *rest = after;
    std::str::from_utf8(text).ok().map(Some)
}

/// Returns the path of a file for `text`: its 128-bit FNV-1a hash, with the extension.
fn path_for(folder: &Folder, text: &str, extension: &str) -> PathBuf {
    let hash = text.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash: u128, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    folder.path.join(FILES).join(format!("{hash:032x}.{extension}"))
}

/// Returns the objects of `store` under `prefix`, and whether they come from the cached listing. If
/// there is no current listing, lists the objects, and caches the result unless it is empty.
pub(super) fn list(folder: &Folder, store: &dyn Store, prefix: &str) -> Result<(Vec<Object>, bool)> {
    let path = path_for(folder, prefix, LISTING);
    if let Some(objects) = current_objects(&path, store, prefix)? {
        return Ok((objects, true));
    }
    // The first rank on this machine lists the objects. The others wait here, and then read its
    // listing.
    let _lock = lock(&path_for(folder, prefix, "lock"))?;
    if let Some(objects) = current_objects(&path, store, prefix)? {
        return Ok((objects, true));
    }
    let time = unix_time_s();
    let objects = store.list(prefix)?;
    if !objects.is_empty() && objects.iter().all(|object| object.url.starts_with(prefix)) {
        let listing = Listing { time, prefix: prefix.to_owned(), objects };
        if let Err(e) = write(folder, &path, &listing.encode()) {
            tracing::warn!("{}: cannot cache the listing: {e}", folder.path.display());
        }
        return Ok((listing.objects, false));
    }
    Ok((objects, false))
}

fn current_objects(path: &Path, store: &dyn Store, prefix: &str) -> Result<Option<Vec<Object>>> {
    // Ignore a listing that cannot be read. It is replaced.
    let cached = Listing::load(path).ok().flatten();
    let cached = cached.filter(|cached| cached.prefix == prefix && !cached.objects.is_empty());
    let Some(cached) = cached else { return Ok(None) };
    let (count, age) = (counted(cached.objects.len(), "object", "objects"), cached.age_s());
    if !cached.is_current(store)? {
        tracing::info!("{prefix}: objects have changed since the listing {age} s ago; listing again");
        return Ok(None);
    }
    tracing::info!(
        "{prefix}: using the cached listing of {count}, which is {age} s old; to list again, run `warpfeed cache refresh`"
    );
    Ok(Some(cached.objects))
}

pub(super) fn write(folder: &Folder, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = folder.new_partial_path();
    let result = fs::write(&partial, bytes).and_then(|()| fs::rename(&partial, path));
    if result.is_err() {
        let _ = fs::remove_file(partial);
    }
    result
}

/// Waits for the lock. The system releases the lock if the process that holds it dies. Returns
/// `None` if the file cannot be opened or locked, or if another process holds the lock for too
/// long. Fails if the reads of this thread are canceled.
fn lock(path: &Path) -> Result<Option<File>> {
    let Ok(file) = OpenOptions::new().create(true).truncate(false).write(true).open(path) else { return Ok(None) };
    let mut waited = Duration::ZERO;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) if waited < LOCK_TIMEOUT => {}
            Err(_) => return Ok(None),
        }
        if is_stopped() {
            return Err(Error::new(
                warpfeed_sources::ErrorKind::Io,
                "canceled while waiting for another process to list the objects",
            ));
        }
        std::thread::sleep(POLL_INTERVAL);
        waited += POLL_INTERVAL;
    }
}

pub(super) fn remove_listing(folder: &Folder, prefix: &str) {
    match fs::remove_file(path_for(folder, prefix, LISTING)) {
        Err(e) if e.kind() != ErrorKind::NotFound => tracing::warn!("cannot remove the listing of {prefix}: {e}"),
        _ => {}
    }
}

pub(super) fn listing_paths(folder: &Folder) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder.path.join(FILES)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    let is_listing = |path: &PathBuf| {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        stem.len() == 32
            && u128::from_str_radix(stem, 16).is_ok()
            && path.extension().is_some_and(|extension| extension == LISTING)
    };
    let mut paths: Vec<_> = paths.into_iter().filter(is_listing).collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_round_trips_and_damage_is_detected() {
        let object = |url: &str, tag: Option<&str>, server: Option<&str>| Object {
            url: format!("s3://b/x/{url}"),
            len: 1 << 40,
            tag: tag.map(str::to_owned),
            server: server.map(Into::into),
        };
        let objects = vec![
            object("a.jpg", Some("\"1\""), Some("http://h")),
            object("", None, Some("http://h")),
            object("\u{e9}/b.jpg", Some(""), None),
        ];
        let listing = Listing { time: 7, prefix: "s3://b/x/".to_owned(), objects: objects.clone() };
        let bytes = listing.encode();
        let decoded = Listing::decode(&bytes).unwrap();
        assert_eq!((decoded.time, &*decoded.prefix, decoded.objects), (7, "s3://b/x/", objects));
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Listing::decode(&flipped).is_none(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(Listing::decode(&bytes[..len]).is_none(), "{len} bytes");
        }
    }
}
