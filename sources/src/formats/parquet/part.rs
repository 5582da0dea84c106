//! One file, and its pages.

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

/// Maximum size of a column of a row group in a store whose pages have no index: it is read whole.
pub(super) const MAX_CHUNK: u64 = 256 << 20;
/// Columns that are at most this large are read whole from a store.
const SMALL: u64 = 32 << 10;
/// Maximum bytes of the indexes of a file, which are read when it is opened.
const MAX_INDEXES: u64 = 16 << 20;
/// Marks the place of the bytes of a column.
const WHOLE: u32 = 1 << 31;

/// Bytes of a column in a row group that are read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Whole,
    Dictionary,
    /// The page that begins at this row.
    Page(usize),
}

/// The units of a column in a store.
pub(super) struct Fetch<'a> {
    /// Reads a unit, which lies in the range.
    pub(super) read: &'a dyn Fn(Unit, Range<u64>) -> Result<Vec<u8>>,
    /// Whether a unit is fetched ahead.
    pub(super) is_planned: &'a dyn Fn(Unit) -> bool,
}

/// Checks that a column of a row group in a store may be read as a whole, when a decoded page may
/// take `limit` bytes.
///
/// # Errors
/// If it is too large.
pub(super) fn fits(len: u64, lists: bool, limit: usize) -> Result<()> {
    let most = MAX_CHUNK.min(limit as u64);
    if len <= most {
        return Ok(());
    }
    let (why, write) = match lists {
        true => ("lists, which are read from a store as a whole", "smaller row groups"),
        false => ("no index of its pages, so it is read as a whole", "a page index (write_page_index=True in pyarrow)"),
    };
    let more = if len <= MAX_CHUNK { "raise the loader's memory_limit, " } else { "" };
    Err(Error::in_source(format!(
        "{len} bytes with {why}; the limit is {most}: {more}copy the file to this machine, or write it with {write}"
    )))
}

/// An open file.
pub(super) struct Part {
    pub(super) file: HeldFile,
    pub(super) meta: ParquetMetaData,
    /// See [`hides_compression`].
    packed: bool,
    /// The pages of columns in row groups that were found.
    indexes: Mutex<HashMap<(u32, u32), Arc<Index>>>,
}

/// Whether this writer compressed pages of version 2 that say they are not compressed: PyArrow before
/// version 3 (ARROW-10353). It called itself by the version of its C++ library, 1.5.1. Its successors
/// are called `parquet-cpp-arrow`.
fn hides_compression(writer: Option<&str>) -> bool {
    writer.is_some_and(|writer| writer.starts_with("parquet-cpp version 1."))
}

/// The bytes of a whole column, and the guard of [`Cache::column`].
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

    /// Rows of a row group.
    pub(super) fn rows(&self, group: u32) -> usize {
        usize::try_from(self.meta.row_group(group as usize).num_rows()).unwrap_or(0)
    }

    /// The bytes of a column in a row group.
    ///
    /// # Errors
    /// If they lie outside the file.
    pub(super) fn chunk(&self, group: u32, leaf: usize) -> Result<Range<u64>> {
        let column = self.meta.row_group(group as usize).column(leaf);
        let (start, len) = guarded(|| Ok(column.byte_range()))?;
        let end = start.checked_add(len).filter(|&end| end <= self.file.len());
        let end = end.ok_or_else(|| Error::in_source("damaged: the column lies outside the file"))?;
        Ok(start..end)
    }

    /// Bytes of a column in a row group that are read from a store as a whole, because the file has
    /// no index of its pages. `None` if they are few.
    ///
    /// # Errors
    /// If the column lies outside the file, or the place of its index is damaged.
    pub(super) fn whole(&self, group: u32, leaf: usize, lists: bool) -> Result<Option<u64>> {
        let chunk = self.chunk(group, leaf)?;
        let len = chunk.end - chunk.start;
        Ok((len > SMALL && (lists || self.listed(group, leaf as u32)?.is_none())).then_some(len))
    }

    /// The decoded page that has `row`.
    ///
    /// # Errors
    /// If it is damaged, too large or cannot be read.
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
            // The first page is found in the whole column.
            (None, false) => {
                let (raw, alone) = whole_column(cache, whole, chunk.clone(), &column, fetch)?;
                (Some(raw), alone)
            }
        };
        let raw = raw.as_deref().and_then(Block::bytes_of_column).map(|bytes| Bytes::Part(chunk.start, bytes));
        let bytes = raw.unwrap_or(Bytes::File(&self.file));
        if levels.is_some() {
            // Before their headers are read, so that the message has all that they need.
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
                index.dictionary.clone().ok_or_else(|| Error::in_source("damaged: a column without its dictionary"))?;
            let size = self.unpacked(group, leaf.number, at.end - at.start).min(column.limit);
            let made = || Ok(Block::of_dictionary(column.dictionary(&read(Unit::Dictionary, at)?)?));
            let block = cache.dictionary(place, size, made)?;
            Ok(block.dictionary().cloned().expect("a dictionary has a place of its own"))
        };
        let page = || {
            let bytes = read(Unit::Page(own.start), at)?;
            let (needed, with_dictionary) = column.needed(&bytes)?;
            index.noted(own.start, with_dictionary);
            // The order did not know which pages need the dictionary, and names it only once. It is
            // kept for those that do.
            if !with_dictionary && raw.is_none() && !local && (fetch.is_planned)(Unit::Dictionary) {
                let _ = dictionary();
            }
            Ok((bytes, needed))
        };
        cache.get(place, (row, own.start), page, |bytes| column.page(&bytes, own.clone(), dictionary))
    }

    /// A column of a row group, whose pages must fit into `room`.
    pub(super) fn column(&self, group: u32, leaf: Leaf, levels: Option<Levels>, room: &Room) -> Column<'_> {
        let about = self.meta.row_group(group as usize).column(leaf.number);
        let (rows, packed) = (self.rows(group), self.packed);
        Column { about, leaf, levels, rows, packed, limit: room.limit(), most: room.most() }
    }

    /// The pages of a column without lists in a row group, if they were found before.
    pub(super) fn known(&self, group: u32, leaf: u32) -> Option<Arc<Index>> {
        self.indexes.lock().unwrap_or_else(PoisonError::into_inner).get(&(group, leaf)).cloned()
    }

    /// Bytes of memory for `len` bytes of a column in a row group, as the file declares them.
    pub(super) fn unpacked(&self, group: u32, leaf: usize, len: u64) -> usize {
        let column = self.meta.row_group(group as usize).column(leaf);
        let (packed, size) = (column.compressed_size().max(1) as u64, column.uncompressed_size().max(0) as u64);
        let ratio = (size.div_ceil(packed)).clamp(1, 100);
        usize::try_from(len.saturating_mul(ratio)).unwrap_or(usize::MAX)
    }

    /// Reads the indexes that the file has of the pages of columns without lists, most of them at
    /// once.
    ///
    /// # Errors
    /// If one is damaged or cannot be read.
    pub(super) fn load_indexes(&self, leaves: &[u32]) -> Result<()> {
        let damaged = || Error::in_source("damaged: the index of the pages");
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
            // They are then read one by one, when they are needed.
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

    /// Offset and length of the index that the file has of the pages of a column in a row group.
    fn listed(&self, group: u32, leaf: u32) -> Result<Option<(u64, u64)>> {
        let column = self.meta.row_group(group as usize).column(leaf as usize);
        let (Some(at), Some(len)) = (column.offset_index_offset(), column.offset_index_length()) else {
            return Ok(None);
        };
        let damaged = |_| Error::in_source("damaged: the index of the pages");
        Ok(Some((u64::try_from(at).map_err(damaged)?, u64::try_from(len).map_err(damaged)?)))
    }

    /// The pages of a column without lists in a row group, as far as they are known.
    ///
    /// # Errors
    /// If the index that the file has of them is damaged.
    pub(super) fn index(&self, group: u32, leaf: u32) -> Result<Option<Arc<Index>>> {
        if let Some(index) = self.known(group, leaf) {
            return Ok(Some(index));
        }
        let chunk = self.chunk(group, leaf as usize)?;
        // The headers of pages are found without requests on this machine, and decide.
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
