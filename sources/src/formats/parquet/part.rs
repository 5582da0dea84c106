//! One Parquet file, with its page indexes and cached reads of its pages.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parquet::file::metadata::ParquetMetaData;

use super::block::Block;
use super::cache::{Cache, Place, Room};
use super::footer;
use super::index::Index;
use super::input::{Bytes, guarded, read};
use super::pages::{Column, lists_fit};
use super::schema::{Leaf, Levels};
use crate::error::{Error, Result};
use crate::medium::HeldFile;

/// Maximum size of a column in a row group that is read from a store as a whole, in bytes.
pub(super) const MAX_CHUNK: u64 = 256 << 20;
/// Columns up to this size are always read from a store as a whole.
const SMALL: u64 = 32 << 10;
/// Maximum distance between the first and the last byte of the page indexes in a file. If they are
/// further apart, they are not read together in advance.
const MAX_INDEXES: u64 = 16 << 20;
/// Bit in the column number of a cache key that marks the encoded bytes of the column.
const WHOLE: u32 = 1 << 31;

/// Bytes of a column in a row group that are read together. See the module `files`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Whole,
    Dictionary,
    /// The page that starts at this row.
    Page(usize),
}

/// Functions that read the units of a column.
pub(super) struct Fetch<'a> {
    /// Reads a unit, which is located at the given byte range.
    pub(super) read: &'a dyn Fn(Unit, Range<u64>) -> Result<Vec<u8>>,
    /// Returns whether a unit is scheduled for prefetching.
    pub(super) is_planned: &'a dyn Fn(Unit) -> bool,
}

/// Checks that a column of `len` bytes is small enough to be read from a store as a whole. `limit`
/// is the maximum decoded size of a page.
///
/// # Errors
/// If the column is too large.
pub(super) fn fits(len: u64, lists: bool, limit: usize) -> Result<()> {
    let most = MAX_CHUNK.min(limit as u64);
    if len <= most {
        return Ok(());
    }
    let (why, write) = match lists {
        true => ("of lists", "smaller row groups"),
        false => ("and no page index", "a page index (write_page_index=True in pyarrow)"),
    };
    let more = if len <= MAX_CHUNK { "raise the loader's memory_limit, " } else { "" };
    Err(Error::in_source(format!(
        "the column has {len} bytes {why}, so it is read from a store as a whole: the limit is {most}; {more}copy the \
         file to this machine, or write it with {write}"
    )))
}

/// An open Parquet file.
pub(super) struct Part {
    pub(super) file: HeldFile,
    pub(super) meta: ParquetMetaData,
    /// The result of [`hides_compression`].
    packed: bool,
    /// The pages of columns, by row group and column, as far as they are known.
    indexes: Mutex<HashMap<(u32, u32), Arc<Index>>>,
}

/// Returns whether the writer of the file compressed pages of version 2 but marked them as
/// uncompressed. PyArrow did so before version 3 (ARROW-10353). It identified itself by the version
/// of its C++ library, 1.5.1. Later versions identify themselves as `parquet-cpp-arrow`.
fn hides_compression(writer: Option<&str>) -> bool {
    writer.is_some_and(|writer| writer.starts_with("parquet-cpp version 1."))
}

/// Returns the encoded bytes of a whole column, and the guard that [`Cache::column`] returns.
fn whole_column<'c>(
    cache: &'c Cache,
    place: Place,
    chunk: Range<u64>,
    column: &Column<'_>,
    fetch: &Fetch<'_>,
) -> Result<(Arc<Block>, Option<MutexGuard<'c, ()>>)> {
    let len = chunk.end - chunk.start;
    cache.column(place, len as usize, || {
        fits(len, column.levels.is_some(), column.limit)?;
        (fetch.read)(Unit::Whole, chunk).map(Block::raw)
    })
}

impl Part {
    pub(super) fn open(file: HeldFile) -> Result<Self> {
        let meta = footer::read(&file).map_err(|e| if e.path().is_some() { e } else { e.at_path(&file.path) })?;
        let packed = hides_compression(meta.file_metadata().created_by());
        Ok(Part { file, meta, packed, indexes: Mutex::default() })
    }

    /// Returns the number of rows in a row group.
    pub(super) fn rows(&self, group: u32) -> usize {
        usize::try_from(self.meta.row_group(group as usize).num_rows()).unwrap_or(0)
    }

    /// Returns the byte range of a column in a row group.
    ///
    /// # Errors
    /// If the range extends past the end of the file.
    pub(super) fn chunk(&self, group: u32, leaf: usize) -> Result<Range<u64>> {
        let column = self.meta.row_group(group as usize).column(leaf);
        let (start, len) = guarded(|| Ok(column.byte_range()))?;
        let end = start.checked_add(len).filter(|&end| end <= self.file.len());
        let end = end.ok_or_else(|| Error::in_source("damaged: the column is outside the file"))?;
        Ok(start..end)
    }

    /// Returns the size of a column in a row group if it must be read from a store as a whole,
    /// because it contains lists or has no page index. Returns `None` for other columns, and for
    /// small ones.
    ///
    /// # Errors
    /// If the column is outside the file, or if the location of its page index is invalid.
    pub(super) fn whole(&self, group: u32, leaf: usize, lists: bool) -> Result<Option<u64>> {
        let chunk = self.chunk(group, leaf)?;
        let len = chunk.end - chunk.start;
        Ok((len > SMALL && (lists || self.listed(group, leaf as u32)?.is_none())).then_some(len))
    }

    /// Returns the decoded page that contains `row`.
    ///
    /// # Errors
    /// If the page is damaged, too large, or cannot be read.
    pub(super) fn block(
        &self,
        (cache, room): (&Cache, &Room),
        place: Place,
        (leaf, levels): (Leaf, Option<Levels>),
        row: usize,
        fetch: &Fetch<'_>,
    ) -> Result<Arc<Block>> {
        if let Some(block) = cache.find(place, row) {
            return Ok(block);
        }
        let (_, group, number) = place;
        let (column, rows) = (self.column(group, leaf, levels, room), self.rows(group));
        let chunk = self.chunk(group, leaf.number)?;
        let local = self.file.object().is_none();
        let index = if levels.is_none() { self.index(group, number)? } else { None };
        let whole = (place.0, group, number | WHOLE);
        let (raw, _alone) = match (&index, local) {
            (_, true) => (None, None),
            (Some(_), false) => (cache.find(whole, 0), None),
            // Without an index, read the whole column to find the page in it.
            (None, false) => {
                let (raw, alone) = whole_column(cache, whole, chunk.clone(), &column, fetch)?;
                (Some(raw), alone)
            }
        };
        let raw = raw.as_deref().and_then(Block::bytes_of_column).map(|bytes| Bytes::Part(chunk.start, bytes));
        let bytes = raw.unwrap_or(Bytes::File(&self.file));
        if levels.is_some() {
            // Check this before the headers are read, so that the message states the total
            // requirement.
            lists_fit(column.lists_need(), column.limit, column.most)?;
            let found = || column.all(bytes, chunk.clone());
            return cache.get(place, (row, 0), found, |found| column.lists(bytes, &found));
        }
        let walk = || Ok::<_, Error>(self.keep(group, number, Index::walk(bytes, chunk.clone(), rows)?));
        let index = index.map_or_else(walk, Ok)?;
        let (own, at) = index.find(row, rows)?;
        let read = |unit, at: Range<u64>| match raw.is_none() && !local {
            true => (fetch.read)(unit, at).map(Cow::Owned),
            false => bytes.get(at.start, at.end - at.start),
        };
        let dictionary = || {
            let at =
                index.dictionary.clone().ok_or_else(|| Error::in_source("damaged: the column has no dictionary"))?;
            let size = self.unpacked(group, leaf.number, at.end - at.start).min(column.limit);
            let made = || Ok(Block::of_dictionary(column.dictionary(&read(Unit::Dictionary, at)?)?));
            let block = cache.dictionary(place, size, made)?;
            Ok(block.dictionary().cloned().expect("dictionaries have separate cache keys"))
        };
        let page = || {
            let bytes = read(Unit::Page(own.start), at)?;
            let (needed, with_dictionary) = column.needed(&bytes)?;
            index.noted(own.start, with_dictionary);
            // When the order of units is computed, it is not known which pages need the dictionary,
            // so the order lists the dictionary once, with the first page that is read. If this
            // page does not need the dictionary, decode it nevertheless, so that it is cached for
            // later pages.
            if !with_dictionary && raw.is_none() && !local && (fetch.is_planned)(Unit::Dictionary) {
                let _ = dictionary();
            }
            Ok((bytes, needed))
        };
        cache.get(place, (row, own.start), page, |bytes| column.page(&bytes, own.clone(), dictionary))
    }

    /// Returns a column in a row group. Decoding it is limited by the memory in `room`.
    pub(super) fn column(&self, group: u32, leaf: Leaf, levels: Option<Levels>, room: &Room) -> Column<'_> {
        let about = self.meta.row_group(group as usize).column(leaf.number);
        let (rows, packed) = (self.rows(group), self.packed);
        Column { about, leaf, levels, rows, packed, limit: room.limit(), most: room.most() }
    }

    /// Returns the pages of a column in a row group, if they are known. The column must not contain
    /// lists.
    pub(super) fn known(&self, group: u32, leaf: u32) -> Option<Arc<Index>> {
        self.indexes.lock().unwrap_or_else(PoisonError::into_inner).get(&(group, leaf)).cloned()
    }

    /// Estimates the decoded size of `len` bytes of a column from the sizes in the metadata.
    pub(super) fn unpacked(&self, group: u32, leaf: usize, len: u64) -> usize {
        let column = self.meta.row_group(group as usize).column(leaf);
        let (packed, size) = (column.compressed_size().max(1) as u64, column.uncompressed_size().max(0) as u64);
        let ratio = (size.div_ceil(packed)).clamp(1, 100);
        usize::try_from(len.saturating_mul(ratio)).unwrap_or(usize::MAX)
    }

    /// Reads the page indexes of the columns `leaves`, which must not contain lists. Uses a single
    /// read, or does nothing if the page indexes are too far apart.
    ///
    /// # Errors
    /// If a page index is damaged or cannot be read.
    pub(super) fn load_indexes(&self, leaves: &[u32]) -> Result<()> {
        let damaged = || Error::in_source("the page index is damaged");
        let mut wanted = Vec::new();
        for group in 0..self.meta.num_row_groups() as u32 {
            for &leaf in leaves {
                let chunk = self.chunk(group, leaf as usize)?;
                if chunk.end - chunk.start > SMALL
                    && let Some((at, len)) = self.listed(group, leaf)?
                {
                    let end = at.checked_add(len).filter(|&end| end <= self.file.len()).ok_or_else(damaged)?;
                    wanted.push((group, leaf, chunk, at..end));
                }
            }
        }
        let (start, end) =
            wanted.iter().fold((u64::MAX, 0), |(start, end), (_, _, _, at)| (at.start.min(start), at.end.max(end)));
        if end.saturating_sub(start) > MAX_INDEXES {
            // In this case, each page index is read when it is needed.
            return Ok(());
        }
        if !wanted.is_empty() {
            let bytes = read(&self.file, start, end - start)?;
            for (group, leaf, chunk, at) in wanted {
                let own = &bytes[(at.start - start) as usize..(at.end - start) as usize];
                if let Some(index) = Index::listed(own, chunk, self.rows(group))? {
                    self.keep(group, leaf, index);
                }
            }
        }
        Ok(())
    }

    /// Returns the offset and the length of the page index of a column in a row group, if the file
    /// contains one.
    fn listed(&self, group: u32, leaf: u32) -> Result<Option<(u64, u64)>> {
        let column = self.meta.row_group(group as usize).column(leaf as usize);
        let (Some(at), Some(len)) = (column.offset_index_offset(), column.offset_index_length()) else {
            return Ok(None);
        };
        let damaged = |_| Error::in_source("the page index is damaged");
        Ok(Some((u64::try_from(at).map_err(damaged)?, u64::try_from(len).map_err(damaged)?)))
    }

    /// Returns the pages of a column in a row group, if they are known or a page index lists them.
    /// The column must not contain lists.
    ///
    /// # Errors
    /// If the page index is damaged.
    pub(super) fn index(&self, group: u32, leaf: u32) -> Result<Option<Arc<Index>>> {
        if let Some(index) = self.known(group, leaf) {
            return Ok(Some(index));
        }
        let chunk = self.chunk(group, leaf as usize)?;
        // In a local file, scanning the page headers costs no requests, and unlike the page index,
        // they are authoritative.
        if self.file.object().is_none() || chunk.end - chunk.start <= SMALL {
            return Ok(None);
        }
        let Some((at, len)) = self.listed(group, leaf)? else { return Ok(None) };
        let listed = Index::listed(&read(&self.file, at, len)?, chunk, self.rows(group))?;
        Ok(listed.map(|index| self.keep(group, leaf, index)))
    }

    fn keep(&self, group: u32, leaf: u32, index: Index) -> Arc<Index> {
        let mut indexes = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        indexes.entry((group, leaf)).or_insert_with(|| Arc::new(index)).clone()
    }
}
