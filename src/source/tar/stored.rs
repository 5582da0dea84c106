//! Shards in a store: their indexes, and the part of a shard that a sample needs.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{env, fs};

use rayon::prelude::*;

use super::header::{BLOCK, Header};
use super::index::{self, Field, Index};
use super::{shards, sidecar};
use crate::error::{Error, ErrorKind, Result};
use crate::format;
use crate::source::ahead::Remote;
use crate::source::bytes::Bytes;
use crate::source::hash::fnv1a;
use crate::source::kept;
use crate::source::sample::MAX_FIELDS;
use crate::source::{Object, Sample, Store};

/// Threads that wait for answers while shards are opened.
const OPENING: usize = 128;
/// Shards whose headers are read at the same time, in pieces of [`CHUNK`] bytes. Together they hold
/// 256 MB.
const SCANS: usize = 16;
const CHUNK: u64 = 16 << 20;
/// Minimum size of a shard whose index is kept on this machine.
const KEEP_INDEX: u64 = 1 << 20;
/// Names from this many bytes on may be cut in a header, which has room for 100.
const SHORT: usize = 96;
/// Maximum size in a header.
const MOST_OCTAL: u64 = (8 << 30) - 1;
/// Maximum size of an index.
const MOST_INDEX: u64 = 1 << 30;

/// A shard and its index.
pub(super) struct Opened {
    pub(super) object: Object,
    pub(super) index: Index,
}

/// Whether a URL names one shard.
pub(in crate::source) fn is_shard(url: &str) -> bool {
    url.as_bytes().last_chunk::<4>().is_some_and(|end| url.len() > 4 && end.eq_ignore_ascii_case(b".tar"))
}

fn in_parallel<T: Send, S: Sync>(threads: usize, items: &[S], make: impl Fn(&S) -> T + Sync + Send) -> Result<Vec<T>> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(items.len().clamp(1, threads))
        .build()
        .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start threads: {e}")))?;
    Ok(pool.install(|| items.par_iter().with_max_len(1).map(make).collect()))
}

/// Opens the shards at `url`: one shard, or a pattern. Otherwise those of `listing`, the objects below
/// `url`, that end in `.tar`.
///
/// An index comes from the object `NAME.tar.index` next to the shard, from this machine's folder of
/// indexes, or from the headers of the whole shard, which is then read once.
///
/// # Errors
/// If a shard does not exist or is not a tar, or there is none.
pub(super) fn open(
    url: &str,
    store: &Arc<dyn Store>,
    remote: &Remote,
    listing: Option<Vec<Object>>,
) -> Result<Vec<Opened>> {
    let named = if shards::has_braces(Path::new(url)) {
        Some(shards::braces(url).map_err(|cause| Error::config(cause).at_path(url))?)
    } else {
        is_shard(url).then(|| vec![url.to_owned()])
    };
    let pairs = match named {
        Some(urls) => {
            // The shard and its index are looked up at the same time, to save a round trip.
            let all: Vec<_> =
                urls.iter().flat_map(|url| [(url.clone(), false), (format!("{url}.index"), true)]).collect();
            let found = in_parallel(OPENING, &all, |(url, is_index)| {
                remote.repeated(|| match store.object(url) {
                    // Most shards have none. An outage is no reason to read whole shards.
                    Err(e) if *is_index && !e.is_transient() => Ok(None),
                    found => found.map(Some),
                })
            })?;
            let (mut found, mut pairs) = (found.into_iter(), Vec::new());
            while let (Some(shard), Some(index)) = (found.next(), found.next()) {
                pairs.push((shard?.expect("an absent shard is an error"), index?));
            }
            pairs
        }
        None => {
            let list = || remote.repeated(|| store.list(&format!("{}/", url.trim_end_matches('/'))));
            let mut below = listing.map_or_else(list, Ok)?;
            // The number of a sample must not depend on the order of the answer.
            below.sort_by(|a, b| a.url.cmp(&b.url));
            let index = |shard: &Object| {
                let url = format!("{}.index", shard.url);
                below.binary_search_by(|object| object.url.cmp(&url)).ok().map(|at| below[at].clone())
            };
            let shards = below.iter().filter(|object| is_shard(&object.url));
            shards.map(|shard| (shard.clone(), index(shard))).collect::<Vec<_>>()
        }
    };
    let kept = in_parallel(OPENING, &pairs, |(shard, index)| match (kept_here(shard), index) {
        (None, Some(index)) => next_to(remote, shard, index),
        (kept, _) => Ok(kept),
    })?;
    let kept = kept.into_iter().collect::<Result<Vec<_>>>()?;
    let missing: Vec<&Object> =
        pairs.iter().zip(&kept).filter(|(_, index)| index.is_none()).map(|((shard, _), _)| shard).collect();
    if !missing.is_empty() {
        let bytes: u64 = missing.iter().map(|shard| shard.len).sum();
        tracing::info!("{} shards have no index: {bytes} bytes are read once to make it", missing.len());
    }
    // In order, so that the first of several bad shards is reported.
    let mut scanned = in_parallel(SCANS, &missing, |shard| scan(remote, shard))?.into_iter();
    let opened = pairs.into_iter().zip(kept).map(|((object, _), index)| {
        let index = index.map_or_else(|| scanned.next().expect("one for each missing index"), Ok)?;
        Ok(Opened { object, index })
    });
    opened.collect()
}

/// The index in the object next to the shard, if it belongs to a tar of this length.
///
/// # Errors
/// If the store fails. An object that may not be read is like none.
fn next_to(remote: &Remote, shard: &Object, index: &Object) -> Result<Option<Index>> {
    let Some(len) = usize::try_from(index.len).ok().filter(|_| index.len <= MOST_INDEX) else { return Ok(None) };
    let mut bytes = vec![0; len];
    let found = match remote.direct(index, 0, &mut bytes) {
        Ok(()) => sidecar::decode_for(&bytes, shard.len, None),
        Err(e) if matches!(e.kind(), ErrorKind::Io | ErrorKind::Timeout | ErrorKind::Memory) => return Err(e),
        Err(_) => None,
    };
    if found.is_none() {
        tracing::info!("{}: stale or damaged, the tar is read instead", index.url);
    }
    Ok(found)
}

/// The index that this machine keeps of the version of the shard.
fn kept_here(shard: &Object) -> Option<Index> {
    let (path, version) = (kept_path(shard)?, version(shard)?);
    sidecar::decode_for(&fs::read(path).ok()?, shard.len, Some(version))
}

/// Names the bytes of a shard. A weak tag does not.
fn version(shard: &Object) -> Option<u64> {
    Some(fnv1a(shard.tag.as_ref().filter(|tag| !tag.starts_with("W/"))?.as_bytes()))
}

/// The file of a shard's index in `$WARPFEED_CACHE/index`, or below the user's folder of caches.
fn kept_path(shard: &Object) -> Option<PathBuf> {
    let folder = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let user = || folder("XDG_CACHE_HOME").or_else(|| Some(env::home_dir()?.join(".cache")));
    let root = folder("WARPFEED_CACHE").or_else(|| Some(user()?.join("warpfeed")))?;
    Some(root.join("index").join(format!("{:016x}.tar.index", fnv1a(shard.url.as_bytes()))))
}

/// Reads the headers of a shard.
fn scan(remote: &Remote, shard: &Object) -> Result<Index> {
    let chunks = Chunks { remote, shard, chunk: Mutex::default() };
    let index = (|| {
        if shard.len >= 2 && chunks.get(0, 2, &mut Vec::new())? == [0x1f, 0x8b] {
            return Err(Error::in_source("compressed with gzip; only an uncompressed tar can be read at random"));
        }
        Index::scan(&chunks)
    })()
    .map_err(|e| e.at_path(&shard.url))?;
    if shard.len >= KEEP_INDEX
        && let (Some(path), Some(version)) = (kept_path(shard), version(shard))
    {
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        if let Err(e) = folder.and_then(|()| kept::store(&path, &sidecar::encode(&index, shard.len, version))) {
            tracing::debug!("{}: no index kept: {e}", path.display());
        }
    }
    Ok(index)
}

/// A shard that is read from its start to its end in large pieces.
struct Chunks<'a> {
    remote: &'a Remote,
    shard: &'a Object,
    /// Offset and bytes of the last piece.
    chunk: Mutex<(u64, Vec<u8>)>,
}

impl Bytes for Chunks<'_> {
    fn len(&self) -> u64 {
        self.shard.len
    }

    fn get<'a>(&'a self, at: u64, len: usize, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let mut chunk = self.chunk.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, bytes) = &mut *chunk;
        let inside = |start: u64, have: usize| at >= start && at + len as u64 <= start + have as u64;
        if !inside(*start, bytes.len()) {
            let wanted = (len as u64).max(CHUNK).min(self.shard.len - at);
            bytes.resize(wanted as usize, 0);
            *start = at;
            if let Err(e) = self.remote.direct(self.shard, at, bytes) {
                bytes.clear();
                return Err(e);
            }
        }
        scratch.clear();
        scratch.extend_from_slice(&bytes[(at - *start) as usize..][..len]);
        Ok(scratch)
    }
}

/// The part of a shard with `fields`. The files of a sample are adjacent, so with the block before the
/// first it contains the header of every file, by which [`check`] finds an index of another tar.
pub(super) fn span(fields: &[Field]) -> Range<u64> {
    let start = fields.iter().map(|field| field.offset).min().unwrap_or(0);
    let end = fields.iter().map(|field| field.offset + field.len).max().unwrap_or(0);
    start.saturating_sub(BLOCK as u64)..end
}

/// The bytes of the file of sample `key` that is the field `name`, and lies at `field` in the tar.
/// `bytes` are those of the tar from `start` on.
///
/// # Errors
/// If its header is that of another file.
pub(super) fn checked<'a>(bytes: &'a [u8], start: u64, key: &str, name: &str, field: &Field) -> Result<&'a [u8]> {
    let file = || {
        let at = usize::try_from(field.offset.checked_sub(start)?).ok()?;
        let header = Header::parse(bytes.get(at.checked_sub(BLOCK)?..at)?.first_chunk()?).ok()?;
        // A PAX header has the size of a huge file, and long names.
        let huge = field.len > MOST_OCTAL && matches!(header.size, 0 | MOST_OCTAL);
        let same = (header.size == field.len || huge)
            && matches!(header.kind, b'0' | b'7' | 0)
            && is_named(&header.name, key, name);
        bytes.get(at..at.checked_add(usize::try_from(field.len).ok()?)?).filter(|_| same)
    };
    file().ok_or_else(|| {
        let Field { offset, len, .. } = field;
        Error::in_source(format!(
            "the index does not match the tar: no file {key}.{name} of {len} bytes at offset {offset}; write \
             NAME.tar.index again, or remove it"
        ))
    })
}

/// Whether a file whose header has the name `path` may be the field `name` of sample `key`.
fn is_named(path: &[u8], key: &str, name: &str) -> bool {
    let Some(path) = std::str::from_utf8(path).ok().filter(|path| path.is_ascii()) else { return true };
    // Longer names are cut, and the whole name is in a header before this one.
    if path.len() >= SHORT || key.len() + name.len() >= SHORT || !name.is_ascii() {
        return true;
    }
    // A key that no file name can express is in such a header too.
    let expressible = key.is_ascii() && !key.contains(['.', '\0']) && key.split('/').all(|part| !part.is_empty());
    index::parts(path.trim_start_matches("./")).is_some_and(|(stem, extension)| {
        format::field(&extension.to_lowercase()) == name && (stem == key || !expressible)
    })
}

/// Reads `fields` of sample `index` and adds them to `sample`.
///
/// # Errors
/// If they cannot be read, or the shard does not have the file that its index says.
pub(super) fn read<'a>(
    remote: &Remote,
    index: usize,
    object: &Object,
    names: &'a [String],
    fields: &'a [Field],
    scratch: &'a mut Vec<u8>,
    sample: &mut Sample<'a>,
) -> Result<()> {
    // The label is not a field. A sample with more fields is an error and need not be read.
    if fields.len() > MAX_FIELDS + 1 {
        return Err(Error::in_source(format!("more than {MAX_FIELDS} fields: {}", fields.len())));
    }
    let span = span(fields);
    let bytes = remote.read(index as u64, object, span.clone(), scratch)?;
    for field in fields {
        let name = &names[field.name as usize];
        sample.push(name, checked(bytes, span.start, sample.key(), name, field)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_names_the_file_of_its_sample_or_leaves_the_name_to_another_header() {
        let long = "x".repeat(99);
        for (path, key, name, same) in [
            ("a/1.jpg", "a/1", "jpg", true),
            ("./a/1.JPEG", "a/1", "jpg", true),
            ("a/1.seg.png", "a/1", "seg.png", true),
            ("a/1.png", "a/1", "jpg", false),
            ("a/2.jpg", "a/1", "jpg", false),
            ("1.jpg", "a/1", "jpg", false),
            ("1", "1", "jpg", false),
            // The key is in a PAX header.
            ("v1_5.jpg", "v1.5", "jpg", true),
            ("v1_5.cls", "v1.5", "jpg", false),
            (&long, "a", "jpg", true),
            ("cut.jpg", &long, "jpg", true),
            ("\u{e9}.jpg", "e", "jpg", true),
            ("?.jpg", "\u{e9}", "jpg", true),
        ] {
            assert_eq!(is_named(path.as_bytes(), key, name), same, "{path}: {key}.{name}");
        }
    }
}
