//! Opens shards in an object store, and reads their samples.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{env, fs};

use rayon::prelude::*;

use super::header::{BLOCK_BYTES, Header};
use super::index::{self, Field, Index};
use super::manifest::{self, Entry, Manifest};
use super::{shards, sidecar};
use crate::error::{Error, ErrorKind, Result, counted};
use crate::format;
use crate::machine::bytes::{Bytes, grow_to};
use crate::machine::hash::fnv1a;
use crate::machine::index_file;
use crate::machine::{CancelToken, run_with_token};
use crate::model::{Object, Sample};
use crate::storage::OpenFile;
use crate::storage::prefetch::Remote;

/// Maximum number of threads that look up shards and load their indexes. Each thread sends one
/// request at a time.
const MAX_REQUESTS: usize = 128;
/// Maximum number of shards that are scanned concurrently, each in chunks of [`CHUNK_BYTES`] bytes.
/// All chunks together take at most 256 MiB.
const MAX_SCANS: usize = 16;
const CHUNK_BYTES: u64 = 16 << 20;
/// Minimum size of a shard, in bytes, for caching its index on the local disk.
const MIN_CACHED_BYTES: u64 = 1 << 20;
/// Minimum length of a name that may be truncated, in bytes. A header has space for 100 bytes.
const MIN_TRUNCATED_NAME: usize = 96;
/// Number of bytes that are read to detect a manifest. Most manifests are smaller, so one round
/// trip reads them completely.
const MANIFEST_READ_BYTES: u64 = 1 << 20;
/// Largest file size that a header can represent in octal.
const MAX_OCTAL_SIZE: u64 = (8 << 30) - 1;
const MAX_INDEX_BYTES: u64 = 1 << 30;

fn is_shard(url: &str) -> bool {
    url.as_bytes().last_chunk::<4>().is_some_and(|end| url.len() > 4 && end.eq_ignore_ascii_case(b".tar"))
}

fn is_hub(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("hf"))
}

/// Returns whether `object` belongs to the shards below the URL `base`. As in a local folder,
/// hidden files and files in subfolders do not belong to them.
fn is_in_set(base: &str, object: &Object) -> bool {
    let name = object.url.strip_prefix(base).unwrap_or(&object.url);
    is_shard(name) && !name.starts_with('.') && !name.contains('/')
}

fn map_in_parallel<T: Send, S: Sync>(
    threads: usize,
    items: &[S],
    map: impl Fn(&S) -> T + Sync + Send,
) -> Result<Vec<T>> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(items.len().clamp(1, threads))
        .build()
        .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start threads: {e}")))?;
    let stop = CancelToken::current();
    let map = |item| run_with_token(stop.clone(), || map(item));
    Ok(pool.install(|| items.par_iter().with_max_len(1).map(map).collect()))
}

/// A shard, and the object with its index.
type ShardObjects = (Object, Option<Object>);

/// Opens the shards at `url`, which is a single shard, a pattern, a manifest, or a prefix. Below a
/// prefix, opens the shards of the manifest if there is one, and otherwise the `.tar` objects that
/// are neither hidden nor in a subfolder. `listed` contains the objects under the prefix, or is
/// empty if the prefix has not been listed.
///
/// The index of a shard is loaded from the local index cache, or from the `NAME.tar.index` object
/// next to the shard. If neither is valid, the whole shard is read once to build the index.
pub(super) fn open(url: &str, remote: &Remote, listed: &[Object]) -> Result<Vec<(Object, Index)>> {
    let (pairs, entries) = if shards::has_braces(Path::new(url)) {
        let urls = shards::expand_braces(url).map_err(|cause| Error::config(cause).at_path(url))?;
        (look_up_shards(url, &urls, remote)?, Vec::new())
    } else if is_shard(url) {
        match look_up_shards(url, &[url.to_owned()], remote) {
            // `pack` may have been called with `url`, and may have written several shards with
            // longer names.
            Err(e) if !e.is_transient() => match manifest::manifest_name(url) {
                Some(manifest) if exists(remote, &manifest) => list_shards(&manifest, remote, listed)?,
                _ => return Err(e),
            },
            pairs => (pairs?, Vec::new()),
        }
    } else {
        list_shards(url, remote, listed)?
    };
    let opened = load_indexes(pairs, remote)?;
    for (entry, (object, index)) in entries.iter().zip(&opened) {
        manifest::check_samples(entry, index.len()).map_err(|e| e.at_path(&object.url))?;
    }
    Ok(opened)
}

fn exists(remote: &Remote, url: &str) -> bool {
    let url = url.to_owned();
    remote.repeated(move |store| store.object(&url)).is_ok()
}

/// Finds the object at `url`. `objects` must be sorted by URL.
fn find<'a>(objects: &'a [Object], url: &str) -> Option<&'a Object> {
    Some(&objects[objects.binary_search_by(|object| object.url.as_str().cmp(url)).ok()?])
}

/// Lists the objects below `url`, sorted by URL, because sample indices must not depend on the
/// order in which stores list objects.
fn list_sorted(remote: &Remote, url: &str) -> Result<Vec<Object>> {
    let mut objects = remote.list(url)?;
    objects.sort_by(|a, b| a.url.cmp(&b.url));
    Ok(objects)
}

/// Looks up shards and their indexes. `url` is a pattern or a single shard, and expands to `urls`.
fn look_up_shards(url: &str, urls: &[String], remote: &Remote) -> Result<Vec<ShardObjects>> {
    // The Hugging Face Hub versions whole datasets, so a single listing ensures that all shards
    // come from the same commit.
    if is_hub(url) {
        let start = &url[..url.find('{').unwrap_or(url.len())];
        let objects = list_sorted(remote, start.rsplit_once('/').map_or(start, |(folder, _)| folder))?;
        let missing_error = |url: &str| Error::in_source("the commit contains no object at this URL").at_path(url);
        let pair = |url: &String| {
            let shard = find(&objects, url).ok_or_else(|| missing_error(url))?;
            Ok((shard.clone(), find(&objects, &format!("{url}.index")).cloned()))
        };
        return urls.iter().map(pair).collect();
    }
    // Look up each shard and its index concurrently, to save a round trip.
    let candidates: Vec<_> =
        urls.iter().flat_map(|url| [(url.clone(), false), (format!("{url}.index"), true)]).collect();
    let objects = map_in_parallel(MAX_REQUESTS, &candidates, |(url, is_index)| {
        let (url, is_index) = (url.clone(), *is_index);
        remote.repeated(move |store| match store.object(&url) {
            // Most shards have no index, so a missing index is not an error. If a transient error
            // were ignored, the whole shard would be scanned.
            Err(e) if is_index && !e.is_transient() => Ok(None),
            object => object.map(Some),
        })
    })?;
    let (mut objects, mut pairs) = (objects.into_iter(), Vec::new());
    while let (Some(shard), Some(index)) = (objects.next(), objects.next()) {
        pairs.push((shard?.expect("an absent shard is an error"), index?));
    }
    Ok(pairs)
}

/// If `url` is a manifest, returns its shards and entries. If not, returns the shards below `url`,
/// with the entries of their manifest, if any.
fn list_shards(url: &str, remote: &Remote, listed: &[Object]) -> Result<(Vec<ShardObjects>, Vec<Entry>)> {
    let is_manifest = manifest::is_named_manifest(Path::new(url));
    let base = if is_manifest { url.rfind('/').map_or("", |slash| &url[..slash]) } else { url };
    let base = format!("{}/", base.trim_end_matches('/'));
    let listing;
    let objects = if is_manifest || listed.is_empty() {
        listing = list_sorted(remote, &base)?;
        &listing
    } else {
        listed
    };
    let entries = manifest_entries(remote, &base, is_manifest.then(|| &url[base.len()..]), objects)?;
    let shards: Vec<&Object> = match &entries[..] {
        [] => objects.iter().filter(|object| is_in_set(&base, object)).collect(),
        entries => entries.iter().filter_map(|entry| find(objects, &format!("{base}{}", entry.name))).collect(),
    };
    let index = |shard: &Object| find(objects, &format!("{}.index", shard.url)).cloned();
    Ok((shards.into_iter().map(|shard| (shard.clone(), index(shard))).collect(), entries))
}

fn load_indexes(pairs: Vec<ShardObjects>, remote: &Remote) -> Result<Vec<(Object, Index)>> {
    let found_indexes = map_in_parallel(MAX_REQUESTS, &pairs, |(shard, index)| match (cached_index(shard), index) {
        (None, Some(index)) => adjacent_index(remote, shard, index),
        (cached, _) => Ok(cached),
    })?;
    let found_indexes = found_indexes.into_iter().collect::<Result<Vec<_>>>()?;
    let missing: Vec<&Object> =
        pairs.iter().zip(&found_indexes).filter(|(_, index)| index.is_none()).map(|((shard, _), _)| shard).collect();
    if !missing.is_empty() {
        let bytes: u64 = missing.iter().map(|shard| shard.len).sum();
        let shards = counted(missing.len(), "shard has", "shards have");
        tracing::info!("{shards} no index; reading {bytes} bytes once to build it");
    }
    // The results are in the order of the shards, so the first invalid shard is reported.
    let mut scanned = map_in_parallel(MAX_SCANS, &missing, |shard| scan(remote, shard))?.into_iter();
    let opened = pairs.into_iter().zip(found_indexes).map(|((object, _), index)| {
        let index = index.map_or_else(|| scanned.next().expect("every shard without an index was scanned"), Ok)?;
        Ok((object, index))
    });
    opened.collect()
}

/// Returns the shards of the manifest `name` among the `objects` below the URL `base`. If `name` is
/// `None`, returns the shards of the only manifest, or no shards if there is no manifest.
fn manifest_entries(remote: &Remote, base: &str, name: Option<&str>, objects: &[Object]) -> Result<Vec<Entry>> {
    let mut manifests = Vec::new();
    for object in objects.iter().filter(|object| manifest::is_named_manifest(Path::new(&object.url))) {
        let relative = object.url.strip_prefix(base).unwrap_or(&object.url);
        if name.map_or(relative.contains('/'), |name| name != relative) {
            continue;
        }
        let start = remote.bytes(object, 0, object.len.min(MANIFEST_READ_BYTES))?;
        let key = &start[..start.len().min(manifest::KEY_SEARCH_BYTES)];
        if name.is_some() || manifest::is_manifest(Path::new(&object.url), key) {
            manifests.push((relative.to_owned(), (object, start)));
        }
    }
    if name.is_none() {
        let names: Vec<&str> = objects.iter().filter_map(|object| object.url.strip_prefix(base)).collect();
        manifest::check_merged(&names).map_err(|e| e.at_path(base))?;
    }
    let manifest = manifest::only_manifest(manifests).map_err(|e| e.at_path(base))?;
    let Some((manifest_name, (object, start))) = manifest else {
        return name.map_or(Ok(Vec::new()), |name| {
            Err(Error::in_source(format!("the manifest {name} does not exist")).at_path(base))
        });
    };
    let tars = objects.iter().filter(|object| is_in_set(base, object));
    let tars = tars.map(|tar| (tar.url.strip_prefix(base).unwrap_or(&tar.url).to_owned(), tar.len)).collect();
    if object.len > manifest::MAX_MANIFEST_BYTES {
        return Err(Error::in_source(format!(
            "the manifest has {} bytes: expected at most {}",
            object.len,
            manifest::MAX_MANIFEST_BYTES
        ))
        .at_path(&object.url));
    }
    let bytes = if object.len > MANIFEST_READ_BYTES { remote.bytes(object, 0, object.len)? } else { start };
    let shards = Manifest::parse(&bytes)
        .and_then(|manifest| manifest.into_checked_shards(&manifest_name, &tars, name.is_none()));
    shards.map_err(|e| e.at_path(format!("{base}{manifest_name}")))
}

/// Loads the index of a shard from `index`, the object next to the shard. Returns `None` if the
/// index is damaged or too large, if it belongs to a tar of a different length, or if the object
/// cannot be read, for example because access is denied. Fails if the store does not respond or if
/// memory cannot be allocated, because a retry may succeed.
fn adjacent_index(remote: &Remote, shard: &Object, index: &Object) -> Result<Option<Index>> {
    let Some(len) = usize::try_from(index.len).ok().filter(|_| index.len <= MAX_INDEX_BYTES) else { return Ok(None) };
    let mut bytes = vec![0; len];
    let result = match remote.read_direct(index, 0, &mut bytes) {
        Ok(()) => sidecar::decode_for(&bytes, shard.len, None),
        Err(e) if matches!(e.kind(), ErrorKind::Io | ErrorKind::Timeout | ErrorKind::Memory) => return Err(e),
        Err(_) => None,
    };
    if result.is_none() {
        tracing::info!("{}: the index is unreadable, stale or damaged; scanning the tar instead", index.url);
    }
    Ok(result)
}

/// Returns the index in the local cache, if it belongs to this version of the shard.
fn cached_index(shard: &Object) -> Option<Index> {
    let (path, version) = (cache_path(shard)?, version(shard)?);
    sidecar::decode_for(&sidecar::load_bytes(&path)?, shard.len, Some(version))
}

/// Returns a hash of the shard's ETag, or `None` if no strong ETag identifies its bytes.
fn version(shard: &Object) -> Option<u64> {
    shard.strong_tag().map(|tag| fnv1a(tag.as_bytes()))
}

/// Returns the path of a shard's index in the local cache. The cache is `$WARPFEED_CACHE/index`, or
/// `warpfeed/index` in the user's cache folder if the variable is not set.
fn cache_path(shard: &Object) -> Option<PathBuf> {
    let folder = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let user_cache = || folder("XDG_CACHE_HOME").or_else(|| Some(env::home_dir()?.join(".cache")));
    let root = folder("WARPFEED_CACHE").or_else(|| Some(user_cache()?.join("warpfeed")))?;
    let server = shard.server.as_ref().map_or(0, |server| fnv1a(server.as_bytes()).rotate_left(1));
    Some(root.join("index").join(format!("{:016x}.tar.index", fnv1a(shard.url.as_bytes()) ^ server)))
}

/// Scans the shard. If the shard has a strong ETag and at least [`MIN_CACHED_BYTES`] bytes, caches
/// its index locally.
fn scan(remote: &Remote, shard: &Object) -> Result<Index> {
    let chunks = ChunkReader { remote, shard, chunk: Mutex::default() };
    let index = Index::scan(&chunks).map_err(|e| e.at_path(&shard.url))?;
    if shard.len >= MIN_CACHED_BYTES
        && let (Some(path), Some(version)) = (cache_path(shard), version(shard))
    {
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        if let Err(e) = folder.and_then(|()| index_file::store(&path, &sidecar::encode(&index, shard.len, version))) {
            tracing::debug!("{}: cannot store the index: {e}", path.display());
        }
    }
    Ok(index)
}

struct ChunkReader<'a> {
    remote: &'a Remote,
    shard: &'a Object,
    chunk: Mutex<(u64, Vec<u8>)>,
}

impl Bytes for ChunkReader<'_> {
    fn len(&self) -> u64 {
        self.shard.len
    }

    fn get<'a>(&'a self, offset: u64, len: usize, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let mut chunk = self.chunk.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, bytes) = &mut *chunk;
        let is_in_chunk =
            |start: u64, chunk_len: usize| offset >= start && offset + len as u64 <= start + chunk_len as u64;
        if !is_in_chunk(*start, bytes.len()) {
            let length = (len as u64).max(CHUNK_BYTES).min(self.shard.len - offset);
            // Don't reuse the buffer: a failed read would leave stale bytes behind, and a canceled
            // read may still be writing to it.
            *bytes = Vec::new();
            *bytes = self.remote.bytes(self.shard, offset, length)?;
            *start = offset;
        }
        scratch.clear();
        scratch.extend_from_slice(&bytes[(offset - *start) as usize..][..len]);
        Ok(scratch)
    }
}

/// Returns the byte range of `fields` in a shard. One range suffices, because the files of a sample
/// are adjacent. The range includes the headers of the files, from which [`verify_field`] detects
/// that the index belongs to a different tar. It excludes links, because their targets may be
/// elsewhere. If all fields are links, returns the range of the first link.
pub(super) fn field_span(fields: &[Field]) -> Range<u64> {
    let unlinked = || fields.iter().filter(|field| !field.is_linked());
    let span_fields = || unlinked().chain(fields.first().filter(|_| unlinked().next().is_none()));
    let start = span_fields().map(|field| field.offset()).min().unwrap_or(0);
    let end = span_fields().map(|field| field.end()).max().unwrap_or(0);
    start.saturating_sub(BLOCK_BYTES as u64)..end
}

/// Returns the bytes of the field `name` of sample `key`. `field` is their location in the tar.
/// `bytes` is the part of the tar that starts at offset `start`. Fails if the header before the
/// field is invalid or belongs to a different file.
pub(super) fn verify_field<'a>(bytes: &'a [u8], start: u64, key: &str, name: &str, field: &Field) -> Result<&'a [u8]> {
    let file = || {
        let offset = usize::try_from(field.offset().checked_sub(start)?).ok()?;
        let header = Header::parse(bytes.get(offset.checked_sub(BLOCK_BYTES)?..offset)?.first_chunk()?).ok()?;
        // For a huge file, the actual size is in a preceding PAX header. The same applies to a name
        // that is too long for this header.
        let is_huge = field.len() > MAX_OCTAL_SIZE && matches!(header.size, 0 | MAX_OCTAL_SIZE);
        let is_match = (header.size == field.len() || is_huge)
            && matches!(header.kind, b'0' | b'7' | 0)
            && (field.is_linked() || may_be_field(&header.name, key, name));
        bytes.get(offset..offset.checked_add(usize::try_from(field.len()).ok()?)?).filter(|_| is_match)
    };
    file().ok_or_else(|| {
        let (offset, len) = (field.offset(), field.len());
        Error::in_source(format!(
            "the index does not match the tar, which does not have a file {key}.{name} of {len} bytes at offset \
             {offset}: rebuild or delete NAME.tar.index"
        ))
    })
}

/// Returns whether a file with the name `path` in its header may be the field `name` of sample
/// `key`.
fn may_be_field(path: &[u8], key: &str, name: &str) -> bool {
    let Some(path) = std::str::from_utf8(path).ok().filter(|path| path.is_ascii()) else { return true };
    // A long name is truncated in this header. The full name is in a preceding header.
    if path.len() >= MIN_TRUNCATED_NAME || key.len() + name.len() >= MIN_TRUNCATED_NAME || !name.is_ascii() {
        return true;
    }
    // If a file name cannot represent the key, the name in this header differs from the key. `pack`
    // adds `~` if the previous sample has the same key.
    let is_expressible = key.is_ascii() && !key.contains(['.', '\0']) && key.split('/').all(|part| !part.is_empty());
    index::split_name(path.trim_start_matches("./")).is_some_and(|(stem, extension)| {
        let is_key = stem == key || stem.strip_suffix('~') == Some(key);
        format::canonical_field(&extension.to_lowercase()) == name && (is_key || !is_expressible)
    })
}

/// Reads `fields`, which belong to sample `index`, into `sample`. Fails if the tar contains
/// different files at the offsets of the fields.
pub(super) fn read<'a>(
    file: &OpenFile,
    index: usize,
    names: &'a [String],
    fields: &[Field],
    scratch: &'a mut Vec<u8>,
    sample: &mut Sample<'a>,
) -> Result<()> {
    let span = field_span(fields);
    let is_separate = |field: &Field| field.offset() < span.start + BLOCK_BYTES as u64 || field.end() > span.end;
    let separate_fields = fields.iter().filter(|field| is_separate(field));
    let separate_bytes =
        separate_fields.clone().fold(0u64, |sum, field| sum.saturating_add(BLOCK_BYTES as u64 + field.len()));
    let mut len = (span.end - span.start) as usize;
    let buffer = grow_to(scratch, (len as u64).saturating_add(separate_bytes))?;
    file.fill_for(index as u64, span.start, &mut buffer[..len])?;
    for field in separate_fields {
        let out = &mut buffer[len..][..BLOCK_BYTES + field.len() as usize];
        file.fill(field.offset().saturating_sub(BLOCK_BYTES as u64), out)?;
        len += out.len();
    }
    let buffer: &'a [u8] = buffer;
    let (bytes, mut rest) = buffer.split_at((span.end - span.start) as usize);
    for field in fields {
        let name = &names[field.name()];
        let mut start = span.start;
        let field_bytes = if is_separate(field) {
            start = field.offset().saturating_sub(BLOCK_BYTES as u64);
            rest.split_off(..BLOCK_BYTES + field.len() as usize).unwrap_or_default()
        } else {
            bytes
        };
        sample.push(name, verify_field(field_bytes, start, sample.key(), name, field)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_index_path_depends_on_url_and_server() {
        let shard = |url: &str, server: Option<&str>| {
            let object = Object { url: url.into(), len: 9, tag: None, server: server.map(Into::into) };
            cache_path(&object).expect("the user has a home folder")
        };
        let names = [
            shard("s3://b/x.tar", None),
            shard("s3://b/y.tar", None),
            shard("s3://b/x.tar", Some("http://127.0.0.1:1")),
            shard("s3://b/x.tar", Some("http://127.0.0.1:2")),
        ];
        let different: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len());
    }

    #[test]
    fn tar_header_matches_its_sample_unless_the_name_is_elsewhere() {
        let long = "x".repeat(99);
        for (path, key, name, same) in [
            ("a/1.jpg", "a/1", "jpg", true),
            ("./a/1.JPEG", "a/1", "jpg", true),
            ("a/1.seg.png", "a/1", "seg.png", true),
            ("a/1.png", "a/1", "jpg", false),
            ("a/2.jpg", "a/1", "jpg", false),
            ("1.jpg", "a/1", "jpg", false),
            ("1", "1", "jpg", false),
            // The actual key, `v1.5`, is in a preceding PAX header.
            ("v1_5.jpg", "v1.5", "jpg", true),
            ("v1_5.cls", "v1.5", "jpg", false),
            // The sample has the same key as the previous one.
            ("a/1~.jpg", "a/1", "jpg", true),
            ("a/1~.jpg", "a/1~", "jpg", true),
            (&long, "a", "jpg", true),
            ("cut.jpg", &long, "jpg", true),
            ("\u{e9}.jpg", "e", "jpg", true),
            ("?.jpg", "\u{e9}", "jpg", true),
        ] {
            assert_eq!(may_be_field(path.as_bytes(), key, name), same, "{path}: {key}.{name}");
        }
    }
}
