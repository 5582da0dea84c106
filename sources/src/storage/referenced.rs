//! Reads files in a store to which the samples of a table or of annotations refer.

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;

use super::prefetch::{Remote, SampleRanges, max_prefetch_bytes, order_of_reads};
use crate::error::{Error, Result};
use crate::machine::bytes::grow_to;
use crate::model::store::Stores;
use crate::model::{Lookahead, Object, Prefetcher};
use crate::stats::NetworkStats;

/// Value in `files` for a file that does not exist or is not read.
const ABSENT: u32 = u32::MAX;

/// The files to which samples refer, all in one store.
pub(crate) struct ReferencedFiles {
    remote: Remote,
    table: Arc<FileTable>,
}

struct FileTable {
    objects: Arc<[Object]>,
    /// Object index of each file, with `width` consecutive files per sample.
    files: Vec<u32>,
    width: usize,
}

impl FileTable {
    fn range(&self, index: u64) -> Option<(u32, Range<u64>)> {
        let object = *self.files.get(usize::try_from(index).ok()?)?;
        Some((object, 0..self.objects.get(object as usize)?.len))
    }
}

#[cfg(feature = "tables")]
pub(crate) fn is_url(path: &str) -> bool {
    matches!(crate::model::store::Location::parse(path), crate::model::store::Location::Url(_))
}

/// Returns the URL in `cell`, which contains either a URL or a path relative to `root`.
#[cfg(feature = "tables")]
pub(crate) fn url_of(root: &str, cell: &str) -> String {
    if is_url(cell) { cell.to_owned() } else { format!("{root}{}", cell.strip_prefix("./").unwrap_or(cell)) }
}

/// The objects under the URL of a folder, listed on first use.
pub(crate) struct FolderListing<'a> {
    root: &'a str,
    listed: OnceCell<Vec<Object>>,
}

impl<'a> FolderListing<'a> {
    pub(crate) fn new(root: &'a str) -> Self {
        FolderListing { root, listed: OnceCell::new() }
    }

    /// Returns whether an object exists at `url`, which must be under the folder.
    pub(crate) fn contains(&self, url: &str, stores: &Stores) -> Result<bool> {
        if self.listed.get().is_none() {
            let _ = self.listed.set(list_sorted(&Remote::new(stores.for_url(self.root)?.clone()), self.root)?);
        }
        Ok(self.listed.get().is_some_and(|objects| find(objects, url).is_some()))
    }
}

fn list_sorted(remote: &Remote, folder: &str) -> Result<Vec<Object>> {
    let mut objects = remote.list(folder)?;
    objects.sort_by(|a, b| a.url.cmp(&b.url));
    Ok(objects)
}

fn find(objects: &[Object], url: &str) -> Option<u32> {
    u32::try_from(objects.binary_search_by(|object| object.url.as_str().cmp(url)).ok()?).ok()
}

/// Implements the methods of a [`Source`](crate::Source) that delegate to its
/// `referenced_files` field, an `Option<ReferencedFiles>`.
macro_rules! delegate_to_referenced_files {
    () => {
        fn prefetcher(&self, order: $crate::model::Lookahead) -> Option<Box<dyn $crate::model::Prefetcher>> {
            self.referenced_files.as_ref()?.prefetcher(order)
        }

        fn network_stats(&self) -> Option<$crate::stats::NetworkStats> {
            self.referenced_files.as_ref().map(|files| files.network_stats())
        }

        fn prefetch_bytes(&self) -> usize {
            self.referenced_files.as_ref().map_or(0, |files| files.prefetch_bytes())
        }
    };
}
pub(crate) use delegate_to_referenced_files;

impl std::fmt::Debug for ReferencedFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReferencedFiles").field("files", &self.table.files.len()).finish_non_exhaustive()
    }
}

impl ReferencedFiles {
    /// Finds the object at each URL in a listing of the folder that contains all `urls`. Uses
    /// `listing` if it covers this folder. There are `width` consecutive URLs per sample. A URL is
    /// `None` if the file is not read.
    pub(crate) fn of(
        urls: &[Option<String>],
        width: usize,
        listing: FolderListing<'_>,
        stores: &Stores,
    ) -> Result<Self> {
        let mut present_urls = urls.iter().flatten();
        let first = present_urls.next().ok_or_else(|| Error::in_source("no sample refers to a file"))?;
        let mut folder = &first[..first.rfind('/').map_or(0, |slash| slash + 1)];
        for url in present_urls {
            let common_len = folder.bytes().zip(url.bytes()).take_while(|(a, b)| a == b).count();
            folder = &folder
                [..folder.as_bytes()[..common_len].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1)];
        }
        if folder.split_once("://").is_none_or(|(_, bucket)| bucket.is_empty()) {
            let other = urls.iter().flatten().find(|url| url.split('/').nth(2) != first.split('/').nth(2));
            let cause = format!("the files are in several stores or buckets: {first} and {}", other.unwrap_or(first));
            return Err(Error::config(cause));
        }
        let remote = Remote::new(stores.for_url(folder)?.clone());
        let objects = match listing.listed.into_inner().filter(|_| folder.starts_with(listing.root)) {
            Some(objects) => objects,
            None => list_sorted(&remote, folder)?,
        };
        let files = urls.iter().map(|url| url.as_ref().and_then(|url| find(&objects, url)).unwrap_or(ABSENT)).collect();
        Ok(ReferencedFiles { remote, table: Arc::new(FileTable { objects: objects.into(), files, width }) })
    }

    pub(crate) fn read<'a>(
        &self,
        sample: usize,
        index: usize,
        url: &str,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        let file = (sample * self.table.width + index) as u64;
        let Some((object, range)) = self.table.range(file) else {
            return Err(Error::in_source("the object does not exist").at_path(url));
        };
        let out = grow_to(scratch, range.end)?;
        self.remote.read(file, &self.table.objects[object as usize], 0, out)?;
        Ok(out)
    }

    pub(crate) fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        let files = order_of_reads(order, self.table.width);
        let table = self.table.clone();
        self.remote.prefetcher(files, SampleRanges::new(self.table.objects.clone(), move |file| table.range(file)))
    }

    pub(crate) fn network_stats(&self) -> NetworkStats {
        self.remote.network_stats()
    }

    pub(crate) fn prefetch_bytes(&self) -> usize {
        let files = (0..self.table.files.len() as u64).filter_map(|file| self.table.range(file));
        max_prefetch_bytes(files.map(|(_, range)| range.end))
    }
}
