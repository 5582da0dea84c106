//! Shows, checks, refreshes and empties the folder of a cache.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use warpfeed_sources::{Error, Result};

use super::block::{Header, has_magic};
use super::eviction::BlockKey;
use super::files;
use super::folder::{Blocks, Folder, Journal};
use super::listing::{self, Listing};
use super::tiered::remove;

/// The content of a cache folder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Contents {
    /// Number of blocks.
    pub blocks: u64,
    /// Number of bytes that the blocks occupy on disk, in whole pages.
    pub bytes: u64,
    /// Number of blocks and their size in bytes. The key is the object's URL without its last
    /// component, and contains the server if the URL does not determine the server.
    pub sets: BTreeMap<String, (u64, u64)>,
    /// Number of objects in each cached listing, and age of the listing in seconds. The key is the
    /// listed URL.
    pub listings: BTreeMap<String, (u64, u64)>,
    /// Number of files that are cached whole, and the bytes that they occupy on disk, in whole
    /// pages. Incomplete downloads count like complete ones. The key is the URL of the dataset, and
    /// contains the server if the URL does not determine the server.
    pub files: BTreeMap<String, (u64, u64)>,
    /// Number of damaged blocks, listings and whole files that [`check`] has dropped. A dataset of
    /// whole files without a valid list of objects counts as one file.
    pub damaged: u64,
    /// Paths of files that were not recognized as blocks. [`check`] drops damaged blocks among them,
    /// and never removes the others.
    pub others: Vec<PathBuf>,
}

/// Returns the content of the cache at `path`. Reads only the headers of blocks, and none of the
/// whole files.
///
/// # Errors
/// If the folder is not a cache or cannot be read.
pub fn show(path: impl AsRef<Path>) -> Result<Contents> {
    let folder = Folder::open_existing(path.as_ref())?;
    Ok(list_contents(&folder)?.0)
}

/// Drops the listings of all URLs that begin with `prefix`, and all damaged listings, from the
/// cache at `path`. When a dataset is next opened, its objects are listed again, so that new
/// objects are found. Does not drop blocks. Returns the number of dropped listings.
///
/// # Errors
/// If the folder is not a cache, or cannot be read or written.
pub fn refresh(path: impl AsRef<Path>, prefix: &str) -> Result<u64> {
    let folder = Folder::open_existing(path.as_ref())?;
    let mut dropped = 0;
    for path in listing::listing_paths(&folder).map_err(|e| Error::io(&folder.path, &e))? {
        let listing = Listing::load(&path).map_err(|e| Error::io(&path, &e))?;
        if listing.is_none_or(|listing| listing.prefix.starts_with(prefix)) {
            drop_listing(&path)?;
            dropped += 1;
        }
    }
    Ok(dropped)
}

fn drop_listing(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io(path, &e)),
        _ => Ok(()),
    }
}

/// Reads all blocks and whole files of the cache at `path`, and drops damaged blocks, listings and
/// files. Skips whole files that a process is downloading or removing.
///
/// # Errors
/// If the folder is not a cache, cannot be read or written, or stays locked by another process.
pub fn check(path: impl AsRef<Path>) -> Result<Contents> {
    let folder = Folder::open_existing(path.as_ref())?;
    let (mut contents, blocks) = list_contents(&folder)?;
    let mut damaged_keys = Vec::new();
    for (key, header, bytes) in blocks {
        let is_intact = match File::open(folder.block_path(key)) {
            Ok(mut file) => Header::read(&mut file)
                .and_then(|current| Ok(current == Some(header.clone()) && header.check(&mut file)?)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(true),
            Err(e) => Err(e),
        };
        if !is_intact.map_err(|e| Error::io(folder.block_path(key), &e))? {
            contents.blocks -= 1;
            contents.bytes -= bytes;
            contents.damaged += 1;
            damaged_keys.push(key);
        }
    }
    // A file with a damaged header belongs to the cache if the journal lists it, or if it begins
    // with the magic number of a block.
    let added_keys = Journal::added_keys(&folder).map_err(|e| Error::io(&folder.path, &e))?;
    let damaged_key = |path: &PathBuf| {
        let key = BlockKey::from_str_radix(path.file_name()?.to_str()?, 16).ok()?;
        (folder.block_path(key) == *path && (added_keys.contains(&key) || has_magic(path))).then_some(key)
    };
    let without_header: Vec<_> = contents.others.iter().filter_map(damaged_key).collect();
    contents.damaged += without_header.len() as u64;
    contents.others.retain(|path| damaged_key(path).is_none());
    damaged_keys.extend(without_header);
    for path in listing::listing_paths(&folder).map_err(|e| Error::io(&folder.path, &e))? {
        let failed = |e: std::io::Error| Error::io(&path, &e);
        // Another process may have dropped the file.
        if Listing::load(&path).map_err(failed)?.is_none() && path.try_exists().map_err(failed)? {
            drop_listing(&path)?;
            contents.damaged += 1;
        }
    }
    drop_blocks(&folder, &damaged_keys)?;
    contents.damaged += files::check(&folder)?;
    Ok(contents)
}

/// Removes all blocks and listings of the cache at `path`, and the whole files that no process is
/// using. Other files in the folder remain, and the folder remains a cache. Returns the previous
/// content.
///
/// # Errors
/// If the folder is not a cache, cannot be read or written, or stays locked by another process.
pub fn empty(path: impl AsRef<Path>) -> Result<Contents> {
    let folder = Folder::open_existing(path.as_ref())?;
    let (contents, blocks) = list_contents(&folder)?;
    refresh(path, "")?;
    files::empty(&folder).map_err(|e| Error::io(&folder.path, &e))?;
    drop_blocks(&folder, &blocks.iter().map(|(key, ..)| *key).collect::<Vec<_>>())?;
    Ok(contents)
}

fn list_contents(folder: &Folder) -> Result<(Contents, Blocks)> {
    let (blocks, others) = folder.scan().map_err(|e| Error::io(&folder.path, &e))?;
    let mut contents = Contents { others, ..Contents::default() };
    for (_, header, bytes) in &blocks {
        contents.blocks += 1;
        contents.bytes += bytes;
        let url = &header.object.url;
        let dataset = url.rsplit_once('/').map_or(&url[..], |(dataset, _)| dataset);
        let server = header.object.server.as_ref().map(|server| format!(" at {server}")).unwrap_or_default();
        let total = contents.sets.entry(format!("{dataset}{server}")).or_default();
        *total = (total.0 + 1, total.1 + bytes);
    }
    for (dataset, (files, bytes)) in files::contents(folder).map_err(|e| Error::io(&folder.path, &e))? {
        // The folder may contain several versions of a dataset.
        let total = contents.files.entry(dataset).or_default();
        *total = (total.0 + files, total.1 + bytes);
    }
    for path in listing::listing_paths(folder).map_err(|e| Error::io(&folder.path, &e))? {
        if let Some(listing) = Listing::load(&path).map_err(|e| Error::io(&path, &e))? {
            let summary = (listing.objects.len() as u64, listing.age_s());
            contents.listings.insert(listing.prefix, summary);
        }
    }
    Ok((contents, blocks))
}

fn drop_blocks(folder: &Folder, keys: &[BlockKey]) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let failed = |e: &std::io::Error| Error::io(&folder.path, e);
    let busy = || {
        Error::config("another process holds the lock on the cache: check whether it is suspended")
            .at_path(&folder.path)
    };
    let _lock = folder.lock().map_err(|e| failed(&e))?.ok_or_else(busy)?;
    for &key in keys {
        remove(folder, key).map_err(|e| failed(&e))?;
    }
    Journal::default().rebuild(folder).map(|_| ()).map_err(|e| failed(&e))
}
