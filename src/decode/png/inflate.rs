//! Decompresses the rows of a PNG one after the other, in bounded memory.

use fdeflate::Decompressor;

use super::chunk::span;
use super::filter;
use crate::error::{Error, Result, resize};

/// Distance that a zlib stream refers back to at most, in bytes.
const HISTORY: usize = 32 << 10;
/// Bytes that are decompressed before the history is moved to the front. Typical masks are smaller.
const ROOM: usize = 256 << 10;

/// Memory that is kept from PNG to PNG.
#[derive(Default)]
pub(crate) struct Scratch {
    /// The end of the decompressed bytes, filtered rows.
    window: Vec<u8>,
    row: Vec<u8>,
    above: Vec<u8>,
    /// The values of the row, if several share a byte.
    values: Vec<u8>,
}

/// The decompressed rows.
pub(super) struct Inflated<'a> {
    bytes: &'a [u8],
    /// Offset of the next chunk, and the unread bytes of the last one.
    chunk: usize,
    data: &'a [u8],
    inflater: Decompressor,
    scratch: &'a mut Scratch,
    /// The decompressed bytes in the window that belong to no row yet.
    from: usize,
    to: usize,
    depth: u8,
}

impl<'a> Inflated<'a> {
    /// Begins at the first chunk of data. All chunks of `bytes` have been checked.
    pub(super) fn new(bytes: &'a [u8], chunk: usize, depth: u8, scratch: &'a mut Scratch) -> Self {
        let mut inflater = Decompressor::new();
        // The chunks have checksums of their own, and often not all of the data is read.
        inflater.ignore_adler32();
        Inflated { bytes, chunk, data: &[], inflater, scratch, from: 0, to: 0, depth }
    }

    /// Begins a pass whose rows have `bytes` bytes.
    pub(super) fn begin(&mut self, bytes: usize) {
        let Scratch { row, above, .. } = &mut *self.scratch;
        for row in [row, above] {
            row.clear();
            resize(row, bytes, 0);
        }
    }

    /// Reads the next row.
    pub(super) fn next(&mut self) -> Result<()> {
        let bytes = self.scratch.row.len() + 1;
        while self.to - self.from < bytes {
            self.more(bytes)?;
        }
        let Scratch { window, row, above, .. } = &mut *self.scratch;
        let (kind, filtered) = (window[self.from], &window[self.from + 1..self.from + bytes]);
        std::mem::swap(row, above);
        row.copy_from_slice(filtered);
        self.from += bytes;
        let undo = if self.depth == 16 { filter::undo::<2> } else { filter::undo::<1> };
        undo(kind, row, above).ok_or_else(|| Error::decode(format!("png: a row has filter {kind}, the last is 4")))
    }

    /// Decompresses some more, with room for a row of `bytes` bytes.
    fn more(&mut self, bytes: usize) -> Result<()> {
        let window = &mut self.scratch.window;
        let room = HISTORY + bytes.max(ROOM);
        if window.len() < room {
            resize(window, room, 0);
        }
        // The window may be larger, from a wider image.
        if self.to >= room {
            let keep = self.from.min(self.to - HISTORY);
            window.copy_within(keep..self.to, 0);
            (self.from, self.to) = (self.from - keep, self.to - keep);
        }
        let mut more = true;
        while self.data.is_empty() && more {
            let (kind, next) = span(self.bytes, self.chunk)?;
            more = kind == b"IDAT";
            if more {
                (self.data, self.chunk) = (&self.bytes[self.chunk + 8..next - 4], next);
            }
        }
        let read = self.inflater.read(self.data, &mut window[..room], self.to, !more);
        let (consumed, produced) = read.map_err(|e| Error::decode(format!("png: damaged data: {e:?}")))?;
        (self.data, self.to) = (&self.data[consumed..], self.to + produced);
        if consumed == 0 && produced == 0 && (!more || self.inflater.is_done()) {
            return Err(Error::decode("png: the data ends before the last row"));
        }
        Ok(())
    }

    /// Gives each value of the last row a byte, if several share one.
    pub(super) fn unpack(&mut self) {
        let (depth, Scratch { row, values, .. }) = (self.depth, &mut *self.scratch);
        if depth < 8 {
            let value = |byte: u8, place: u8| byte >> (8 - depth * place) & ((1 << depth) - 1);
            values.clear();
            values.extend(row.iter().flat_map(|&byte| (1..=8 / depth).map(move |place| value(byte, place))));
        }
    }

    /// The values of the last row.
    pub(super) fn values(&self) -> &[u8] {
        if self.depth < 8 { &self.scratch.values } else { &self.scratch.row }
    }
}
