//! Decompresses a PNG row by row, with limited memory.
//!
//! The window contains the last 32 KiB of decompressed data, to which later data may refer,
//! followed by newly decompressed rows. When the window is full, its last 32 KiB and its unread
//! rows are moved to the front. The memory therefore depends on the width of the image, but not on
//! its height. Decompression stops at most one window after the last requested row.

use fdeflate::Decompressor;

use super::chunk::find_chunk;
use super::filter;
use crate::error::{Error, Result, resize};

/// Maximum back-reference distance in a zlib stream.
const HISTORY_BYTES: usize = 32 << 10;
/// Minimum number of bytes that are decompressed before the history is moved to the front. Typical
/// masks are smaller, so their history is never moved.
const MIN_NEW_BYTES: usize = 256 << 10;

#[derive(Default)]
pub(crate) struct Scratch {
    /// The history, followed by the most recent filtered rows.
    window: Vec<u8>,
    row: Vec<u8>,
    above: Vec<u8>,
    /// The current row with one byte per value. Used only if the file packs several values into a
    /// byte.
    values: Vec<u8>,
}

pub(super) struct RowReader<'a> {
    bytes: &'a [u8],
    chunk_offset: usize,
    chunk_data: &'a [u8],
    inflater: Decompressor,
    scratch: &'a mut Scratch,
    unread_start: usize,
    unread_end: usize,
    depth: u8,
}

impl<'a> RowReader<'a> {
    /// Creates a reader. `chunk_offset` is the offset of the first data chunk, and `depth` the
    /// number of bits per value. The caller must have verified all chunks.
    pub(super) fn new(bytes: &'a [u8], chunk_offset: usize, depth: u8, scratch: &'a mut Scratch) -> Self {
        let mut inflater = Decompressor::new();
        // Do not verify the stream's own checksum: a crop reads only a part of the stream, and the
        // checksums of the chunks already detect damage.
        inflater.ignore_adler32();
        RowReader { bytes, chunk_offset, chunk_data: &[], inflater, scratch, unread_start: 0, unread_end: 0, depth }
    }

    /// Begins a pass with rows of `row_bytes` bytes, without the byte that contains the filter.
    pub(super) fn begin_pass(&mut self, row_bytes: usize) {
        let Scratch { row, above, .. } = &mut *self.scratch;
        for row in [row, above] {
            row.clear();
            resize(row, row_bytes, 0);
        }
    }

    pub(super) fn next_row(&mut self) -> Result<()> {
        let filtered_bytes = self.scratch.row.len() + 1;
        while self.unread_end - self.unread_start < filtered_bytes {
            self.inflate_more(filtered_bytes)?;
        }
        let Scratch { window, row, above, .. } = &mut *self.scratch;
        let (kind, filtered) =
            (window[self.unread_start], &window[self.unread_start + 1..self.unread_start + filtered_bytes]);
        std::mem::swap(row, above);
        row.copy_from_slice(filtered);
        self.unread_start += filtered_bytes;
        let undo = if self.depth == 16 { filter::undo::<2> } else { filter::undo::<1> };
        undo(kind, row, above)
            .ok_or_else(|| Error::decode(format!("the png has the row filter {kind}: expected 0 to 4")))
    }

    fn inflate_more(&mut self, needed_bytes: usize) -> Result<()> {
        let window = &mut self.scratch.window;
        let capacity = HISTORY_BYTES + needed_bytes.max(MIN_NEW_BYTES);
        if window.len() < capacity {
            resize(window, capacity, 0);
        }
        // A wider image may have left a larger window than `capacity`.
        if self.unread_end >= capacity {
            let history_start = self.unread_start.min(self.unread_end - HISTORY_BYTES);
            window.copy_within(history_start..self.unread_end, 0);
            (self.unread_start, self.unread_end) = (self.unread_start - history_start, self.unread_end - history_start);
        }
        let mut has_more_chunks = true;
        while self.chunk_data.is_empty() && has_more_chunks {
            let (kind, next) = find_chunk(self.bytes, self.chunk_offset)?;
            has_more_chunks = kind == b"IDAT";
            if has_more_chunks {
                (self.chunk_data, self.chunk_offset) = (&self.bytes[self.chunk_offset + 8..next - 4], next);
            }
        }
        let read = self.inflater.read(self.chunk_data, &mut window[..capacity], self.unread_end, !has_more_chunks);
        let (consumed, produced) = read.map_err(|e| Error::decode(format!("the data of the png is damaged: {e:?}")))?;
        (self.chunk_data, self.unread_end) = (&self.chunk_data[consumed..], self.unread_end + produced);
        if consumed == 0 && produced == 0 && (!has_more_chunks || self.inflater.is_done()) {
            return Err(Error::decode("png: the data ends before the last row"));
        }
        Ok(())
    }

    pub(super) fn unpack(&mut self) {
        let (depth, Scratch { row, values, .. }) = (self.depth, &mut *self.scratch);
        if depth < 8 {
            let value = |byte: u8, position: u8| byte >> (8 - depth * position) & ((1 << depth) - 1);
            values.clear();
            values.extend(row.iter().flat_map(|&byte| (1..=8 / depth).map(move |position| value(byte, position))));
        }
    }

    pub(super) fn values(&self) -> &[u8] {
        if self.depth < 8 { &self.scratch.values } else { &self.scratch.row }
    }
}
