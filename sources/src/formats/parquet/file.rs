//! One Parquet file: its metadata, its page indexes, and cached reads of its pages.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parquet::file::metadata::ParquetMetaData;

use super::block::Block;
use super::cache::{Cache, ColumnKey, PageLimit};
use super::footer;
use super::index::Index;
use super::input::{ByteSource, guarded, read};
use super::pages::{ColumnChunk, check_list_memory};
use super::schema::{Leaf, Levels};
use crate::error::{Error, Result};
use crate::storage::OpenFile;

/// Maximum size in bytes of a column chunk that is read from a store in one piece.
pub(super) const MAX_CHUNK_BYTES: u64 = 256 << 20;
/// The page index of a column chunk with at most this many bytes is not read.
const SMALL_CHUNK_BYTES: u64 = 32 << 10;
/// Maximum distance in bytes between the first and the last byte of page indexes that are read with
/// a single request.
const MAX_INDEXES_BYTES: u64 = 16 << 20;
/// Flag in the column index of a cache key: the entry contains the encoded column chunk.
const WHOLE_CHUNK_FLAG: u32 = 1 << 31;

/// Bytes of a column chunk that are read together. See the `files` module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Whole,
    Dictionary,
    /// The page that starts at this row of the row group.
    Page(usize),
}

/// Access to the units of one column chunk.
pub(super) struct UnitReader<'a> {
    /// Reads a unit, given its byte range in the file.
    pub(super) read: &'a dyn Fn(Unit, Range<u64>) -> Result<Vec<u8>>,
    /// Returns whether the prefetcher has planned to read the unit, but the unit has not been used
    /// yet.
    pub(super) is_planned: &'a dyn Fn(Unit) -> bool,
}

/// Checks that a column chunk of `len` bytes is small enough to be read from a store in one piece.
/// `limit` is the maximum decoded size of a page, in bytes.
pub(super) fn check_chunk_size(len: u64, is_list: bool, limit: usize) -> Result<()> {
    let max_len = MAX_CHUNK_BYTES.min(limit as u64);
    if len <= max_len {
        return Ok(());
    }
    let (reason, advice) = match is_list {
        true => ("contains lists", "smaller row groups"),
        false => ("has no page index", "a page index (write_page_index=True in pyarrow)"),
    };
    let memory_advice = if len <= MAX_CHUNK_BYTES { "raise the loader's memory_limit, " } else { "" };
    Err(Error::in_source(format!(
        "the column chunk has {len} bytes and must be read in one piece, because it {reason}: the limit is {max_len} \
         bytes; {memory_advice}copy the file to this machine, or write it with {advice}"
    )))
}

pub(super) struct ParquetFile {
    pub(super) file: OpenFile,
    pub(super) metadata: ParquetMetaData,
    /// Whether v2 data pages are compressed even if their headers say otherwise.
    assume_compressed: bool,
    /// Page locations that were found so far, by row group and leaf column.
    indexes: Mutex<HashMap<(u32, u32), Arc<Index>>>,
}

/// Returns whether the writer may have compressed v2 data pages but marked them as uncompressed,
/// like PyArrow before version 3 (ARROW-10353). These versions identified themselves with the
/// version of their C++ library, 1.5.1, whereas later versions write `parquet-cpp-arrow`.
fn mislabels_compression(writer: Option<&str>) -> bool {
    writer.is_some_and(|writer| writer.starts_with("parquet-cpp version 1."))
}

/// Returns the encoded bytes of a whole column chunk, from the cache or from the file. `chunk` is
/// the byte range of the column chunk in the file. If a guard is returned, drop it only after using
/// the bytes, as [`Cache::get_or_fetch_column`] requires.
fn load_whole_chunk<'c>(
    cache: &'c Cache,
    key: ColumnKey,
    chunk: Range<u64>,
    column: &ColumnChunk<'_>,
    fetch: &UnitReader<'_>,
) -> Result<(Arc<Block>, Option<MutexGuard<'c, ()>>)> {
    let len = chunk.end - chunk.start;
    cache.get_or_fetch_column(key, len as usize, || {
        check_chunk_size(len, column.levels.is_some(), column.limit)?;
        (fetch.read)(Unit::Whole, chunk).map(Block::from_encoded)
    })
}

impl ParquetFile {
    pub(super) fn open(file: OpenFile) -> Result<Self> {
        let metadata = footer::read(&file).map_err(|e| if e.path().is_some() { e } else { e.at_path(&file.path) })?;
        let assume_compressed = mislabels_compression(metadata.file_metadata().created_by());
        Ok(ParquetFile { file, metadata, assume_compressed, indexes: Mutex::default() })
    }

    pub(super) fn rows(&self, group: u32) -> usize {
        usize::try_from(self.metadata.row_group(group as usize).num_rows()).unwrap_or(0)
    }

    pub(super) fn chunk_range(&self, group: u32, leaf: usize) -> Result<Range<u64>> {
        let column = self.metadata.row_group(group as usize).column(leaf);
        let (start, len) = guarded(|| Ok(column.byte_range()))?;
        let end = start.checked_add(len).filter(|&end| end <= self.file.len());
        let end = end.ok_or_else(|| Error::in_source("damaged: the column is outside the file"))?;
        Ok(start..end)
    }

    /// Returns the size in bytes of a column chunk that must be read from a store in one piece,
    /// because it contains lists or has no page index. Returns `None` for other column chunks, and
    /// for chunks of at most [`SMALL_CHUNK_BYTES`] bytes.
    pub(super) fn unsplit_chunk_len(&self, group: u32, leaf: usize, is_list: bool) -> Result<Option<u64>> {
        let chunk = self.chunk_range(group, leaf)?;
        let len = chunk.end - chunk.start;
        Ok((len > SMALL_CHUNK_BYTES && (is_list || self.page_index_location(group, leaf as u32)?.is_none()))
            .then_some(len))
    }

    pub(super) fn load_block(
        &self,
        (cache, page_limit): (&Cache, &PageLimit),
        key: ColumnKey,
        (leaf, levels): (Leaf, Option<Levels>),
        row: usize,
        fetch: &UnitReader<'_>,
    ) -> Result<Arc<Block>> {
        if let Some(block) = cache.find(key, row) {
            return Ok(block);
        }
        let (_, group, leaf_index) = key;
        let (column, rows) = (self.column_chunk(group, leaf, levels, page_limit), self.rows(group));
        let chunk = self.chunk_range(group, leaf.index)?;
        let is_local = self.file.object().is_none();
        let index = if levels.is_none() { self.load_index(group, leaf_index)? } else { None };
        let column_key = (key.0, group, leaf_index | WHOLE_CHUNK_FLAG);
        let (encoded_chunk, _large_guard) = match (&index, is_local) {
            (_, true) => (None, None),
            (Some(_), false) => (cache.find(column_key, 0), None),
            // Without an index, finding a page requires reading the whole column chunk. Lists are
            // always read as whole column chunks.
            (None, false) => {
                let (encoded_chunk, large_guard) = load_whole_chunk(cache, column_key, chunk.clone(), &column, fetch)?;
                (Some(encoded_chunk), large_guard)
            }
        };
        let encoded_chunk =
            encoded_chunk.as_deref().and_then(Block::encoded_column).map(|bytes| ByteSource::Slice(chunk.start, bytes));
        let bytes = encoded_chunk.unwrap_or(ByteSource::File(&self.file));
        if levels.is_some() {
            // Check before reading the page headers, so that the message states the memory for all
            // lists.
            check_list_memory(column.list_decode_bytes(), column.limit, column.max_grant)?;
            let scan = || column.scan_headers(bytes, chunk.clone());
            return cache.get_or_decode(key, (row, 0), scan, |pages| column.decode_lists(bytes, &pages));
        }
        let scan = || Ok::<_, Error>(self.cache_index(group, leaf_index, Index::scan(bytes, chunk.clone(), rows)?));
        let index = index.map_or_else(scan, Ok)?;
        let (page_rows, range) = index.find_page(row, rows)?;
        let read = |unit, range: Range<u64>| match encoded_chunk.is_none() && !is_local {
            true => (fetch.read)(unit, range).map(Cow::Owned),
            false => bytes.get(range.start, range.end - range.start),
        };
        let dictionary = || {
            let range =
                index.dictionary.clone().ok_or_else(|| Error::in_source("damaged: the column has no dictionary"))?;
            let size = self.estimate_decoded_size(group, leaf.index, range.end - range.start).min(column.limit);
            let load = || Ok(Block::from_dictionary(column.decompress_dictionary(&read(Unit::Dictionary, range)?)?));
            let block = cache.get_or_fetch_dictionary(key, size, load)?;
            Ok(block.dictionary().cloned().expect("only dictionaries have dictionary keys"))
        };
        let page = || {
            let bytes = read(Unit::Page(page_rows.start), range)?;
            let (needed_bytes, needs_dictionary) = column.decode_cost(&bytes)?;
            index.record_dictionary_use(page_rows.start, needs_dictionary);
            // The prefetch order was computed before the page headers were read. It therefore lists
            // the dictionary once, with the first page of the column chunk, and assumes that the
            // dictionary is cached afterwards. Fetch the dictionary now, even if this page does not
            // need it.
            if !needs_dictionary && encoded_chunk.is_none() && !is_local && (fetch.is_planned)(Unit::Dictionary) {
                let _ = dictionary();
            }
            Ok((bytes, needed_bytes))
        };
        cache.get_or_decode(key, (row, page_rows.start), page, |bytes| {
            column.decode_page(&bytes, page_rows.clone(), dictionary)
        })
    }

    pub(super) fn column_chunk(
        &self,
        group: u32,
        leaf: Leaf,
        levels: Option<Levels>,
        page_limit: &PageLimit,
    ) -> ColumnChunk<'_> {
        let metadata = self.metadata.row_group(group as usize).column(leaf.index);
        let (rows, assume_compressed) = (self.rows(group), self.assume_compressed);
        ColumnChunk {
            metadata,
            leaf,
            levels,
            rows,
            assume_compressed,
            limit: page_limit.limit(),
            max_grant: page_limit.max_grant(),
        }
    }

    /// Returns the page locations of a column chunk, or `None` if they have not been found yet. The
    /// column must not contain lists.
    pub(super) fn cached_index(&self, group: u32, leaf: u32) -> Option<Arc<Index>> {
        self.indexes.lock().unwrap_or_else(PoisonError::into_inner).get(&(group, leaf)).cloned()
    }

    /// Estimates the decoded size in bytes of `len` encoded bytes, from the compression ratio of
    /// their column chunk.
    pub(super) fn estimate_decoded_size(&self, group: u32, leaf: usize, len: u64) -> usize {
        let column = self.metadata.row_group(group as usize).column(leaf);
        let (compressed_bytes, decompressed_bytes) =
            (column.compressed_size().max(1) as u64, column.uncompressed_size().max(0) as u64);
        let ratio = (decompressed_bytes.div_ceil(compressed_bytes)).clamp(1, 100);
        usize::try_from(len.saturating_mul(ratio)).unwrap_or(usize::MAX)
    }

    /// Reads the page indexes of all large column chunks of `leaves` with a single request. The
    /// columns must not contain lists. Does nothing if the page indexes are too far apart.
    pub(super) fn load_indexes(&self, leaves: &[u32]) -> Result<()> {
        let damaged = || Error::in_source("the page index is damaged");
        let mut missing = Vec::new();
        for group in 0..self.metadata.num_row_groups() as u32 {
            for &leaf in leaves {
                let chunk = self.chunk_range(group, leaf as usize)?;
                if chunk.end - chunk.start > SMALL_CHUNK_BYTES
                    && let Some((start, len)) = self.page_index_location(group, leaf)?
                {
                    let end = start.checked_add(len).filter(|&end| end <= self.file.len()).ok_or_else(damaged)?;
                    missing.push((group, leaf, chunk, start..end));
                }
            }
        }
        let (start, end) = missing
            .iter()
            .fold((u64::MAX, 0), |(start, end), (_, _, _, range)| (range.start.min(start), range.end.max(end)));
        if end.saturating_sub(start) > MAX_INDEXES_BYTES {
            // In this case, each page index is read separately when it is needed.
            return Ok(());
        }
        if !missing.is_empty() {
            let bytes = read(&self.file, start, end - start)?;
            for (group, leaf, chunk, range) in missing {
                let index_bytes = &bytes[(range.start - start) as usize..(range.end - start) as usize];
                if let Some(index) = Index::from_page_index(index_bytes, chunk, self.rows(group))? {
                    self.cache_index(group, leaf, index);
                }
            }
        }
        Ok(())
    }

    /// Returns the offset and the length in bytes of a column chunk's page index, or `None` if the
    /// column chunk has no page index.
    fn page_index_location(&self, group: u32, leaf: u32) -> Result<Option<(u64, u64)>> {
        let column = self.metadata.row_group(group as usize).column(leaf as usize);
        let (Some(start), Some(len)) = (column.offset_index_offset(), column.offset_index_length()) else {
            return Ok(None);
        };
        let damaged = |_| Error::in_source("the page index is damaged");
        Ok(Some((u64::try_from(start).map_err(damaged)?, u64::try_from(len).map_err(damaged)?)))
    }

    /// Returns the locations of a column chunk's pages if they have already been found, or if the
    /// column chunk is large, in a store, and has a page index, which is then read. Returns `None`
    /// for other column chunks. The column must not contain lists.
    pub(super) fn load_index(&self, group: u32, leaf: u32) -> Result<Option<Arc<Index>>> {
        if let Some(index) = self.cached_index(group, leaf) {
            return Ok(Some(index));
        }
        let chunk = self.chunk_range(group, leaf as usize)?;
        // In a local file, scan the page headers instead. This takes no requests, and page headers
        // are authoritative, unlike a page index.
        if self.file.object().is_none() || chunk.end - chunk.start <= SMALL_CHUNK_BYTES {
            return Ok(None);
        }
        let Some((start, len)) = self.page_index_location(group, leaf)? else { return Ok(None) };
        let index = Index::from_page_index(&read(&self.file, start, len)?, chunk, self.rows(group))?;
        Ok(index.map(|index| self.cache_index(group, leaf, index)))
    }

    fn cache_index(&self, group: u32, leaf: u32, index: Index) -> Arc<Index> {
        let mut indexes = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        indexes.entry((group, leaf)).or_insert_with(|| Arc::new(index)).clone()
    }
}
