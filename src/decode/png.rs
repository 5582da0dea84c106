//! PNG values as stored: grey values or palette indices, row by row. Pictures are read by the
//! `image` crate; this reader is for masks, whose numbers mean classes. The crate `png` allocates
//! for each picture, and finds damage only in the chunks that it reads, without their position.
//!
//! The format is that of <https://www.w3.org/TR/png-3/>. All chunks are checked when a file is
//! opened, so damage is reported no matter how many of the pixels are read. Only the rows up to the
//! last requested one are decompressed, and they are not kept.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_PARSE_ZLIB_HEADER};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use crate::decode::Size;
use crate::error::{Error, Result};

const SIGNATURE: &[u8; 8] = b"\x89PNG\r\n\x1a\n";

/// Size of the ring buffer for decompression: twice the distance that deflate looks back.
const WINDOW: usize = 1 << 16;

/// A PNG of one channel: grey, or palette indices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Png<'a> {
    bytes: &'a [u8],
    size: Size,
    /// Bits per value: 1, 2, 4, 8 or 16.
    depth: u8,
    interlaced: bool,
    /// Offset of the first chunk of pixels.
    pixels: usize,
}

/// The rows and columns of the picture in one pass: every `across`-th column of every `down`-th
/// row, starting at (`x`, `y`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) across: u32,
    pub(crate) down: u32,
}

impl Pass {
    /// A pass over the whole picture.
    pub(crate) const WHOLE: Pass = Pass { x: 0, y: 0, across: 1, down: 1 };

    /// Number of rows of the pass in a picture of `size`.
    pub(crate) fn rows(self, size: Size) -> u32 {
        (size.height - self.y).div_ceil(self.down)
    }
}

/// The seven passes of Adam7.
const ADAM7: [Pass; 7] = [
    Pass { x: 0, y: 0, across: 8, down: 8 },
    Pass { x: 4, y: 0, across: 8, down: 8 },
    Pass { x: 0, y: 4, across: 4, down: 8 },
    Pass { x: 2, y: 0, across: 4, down: 4 },
    Pass { x: 0, y: 2, across: 2, down: 4 },
    Pass { x: 1, y: 0, across: 2, down: 2 },
    Pass { x: 0, y: 1, across: 1, down: 2 },
];

/// Reads a chunk. Returns its kind, its content, and the offset of the next one.
fn chunk(bytes: &[u8], at: usize) -> Result<(&[u8; 4], &[u8], usize)> {
    let cut = || Error::decode(format!("png ends at byte {} in the chunk at byte {at}", bytes.len()));
    let length = bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or_else(cut)?;
    let length = u32::from_be_bytes(*length) as usize;
    let kind = bytes.get(at + 4..).and_then(|rest| rest.first_chunk()).ok_or_else(cut)?;
    let end = (at + 8).checked_add(length).ok_or_else(cut)?;
    let content = bytes.get(at + 8..end).ok_or_else(cut)?;
    let stored = bytes.get(end..).and_then(|rest| rest.first_chunk()).ok_or_else(cut)?;
    if crc32fast::hash(&bytes[at + 4..end]) != u32::from_be_bytes(*stored) {
        let kind = String::from_utf8_lossy(kind);
        return Err(Error::decode(format!("png chunk {kind:?} at byte {at} is damaged: its checksum is wrong")));
    }
    Ok((kind, content, end + 4))
}

impl<'a> Png<'a> {
    /// Whether `bytes` start like a PNG.
    pub(crate) fn matches(bytes: &[u8]) -> bool {
        bytes.starts_with(SIGNATURE)
    }

    /// Reads the header, and checks all chunks up to the end.
    ///
    /// # Errors
    /// If the PNG has several channels, is damaged, or ends early.
    pub(crate) fn open(bytes: &'a [u8]) -> Result<Self> {
        let (kind, header, mut at) = chunk(bytes, SIGNATURE.len())?;
        let (b"IHDR", &[a, b, c, d, e, f, g, h, depth, colour, compression, filter, interlace]) = (kind, header) else {
            return Err(Error::decode("png without a header at byte 8"));
        };
        let size = Size::new(u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        let channels = match (colour, depth) {
            (0, 1 | 2 | 4 | 8 | 16) | (3, 1 | 2 | 4 | 8) => None,
            (2, 8 | 16) => Some("RGB"),
            (4, 8 | 16) => Some("grey and alpha"),
            (6, 8 | 16) => Some("RGB and alpha"),
            _ => return Err(Error::decode(format!("png of colour type {colour} with {depth} bits"))),
        };
        if let Some(channels) = channels {
            let cause = "a mask has one number per pixel: grey, or palette indices";
            return Err(Error::decode(format!("png of {channels}: {cause}")));
        }
        let side = 1..=i32::MAX as u32;
        if !side.contains(&size.width) || !side.contains(&size.height) || (compression, filter) != (0, 0) {
            let Size { width, height } = size;
            return Err(Error::decode(format!(
                "png header claims {width}x{height} pixels, compression {compression}, filter {filter}"
            )));
        }
        let interlaced = match interlace {
            0 => false,
            1 => true,
            other => return Err(Error::decode(format!("png of interlace method {other}: only 0 and 1 exist"))),
        };
        let mut pixels = None;
        loop {
            let (kind, _, next) = chunk(bytes, at)?;
            match kind {
                b"IDAT" => _ = pixels.get_or_insert(at),
                b"IEND" => break,
                _ => {}
            }
            at = next;
        }
        let pixels = pixels.ok_or_else(|| Error::decode(format!("png of {} bytes without pixels", bytes.len())))?;
        Ok(Png { bytes, size, depth, interlaced, pixels })
    }

    /// Width and height.
    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// Whether values take two bytes, the higher one first, instead of one.
    pub(crate) fn is_wide(&self) -> bool {
        self.depth == 16
    }

    /// The non-empty passes in the order of the file.
    pub(crate) fn passes(&self) -> impl Iterator<Item = Pass> + use<> {
        let (size, passes) = (self.size, if self.interlaced { &ADAM7[..] } else { &[Pass::WHOLE] });
        passes.iter().copied().filter(move |pass| pass.x < size.width && pass.y < size.height)
    }
}

/// Reads the rows of PNGs, reusing its memory: the window, and two rows.
pub(crate) struct PngReader {
    inflate: Box<DecompressorOxide>,
    window: Box<[u8]>,
    /// Bytes of the window that have been written and not yet taken.
    from: usize,
    to: usize,
    /// The next chunk, and the unread rest of the current one.
    next: usize,
    left: (usize, usize),
    done: bool,
    row: Vec<u8>,
    above: Vec<u8>,
    values: Vec<u8>,
}

impl PngReader {
    pub(crate) fn new() -> Self {
        PngReader {
            inflate: Box::default(),
            window: vec![0; WINDOW].into(),
            from: 0,
            to: 0,
            next: 0,
            left: (0, 0),
            done: false,
            row: Vec::new(),
            above: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Starts with the first pass of `png`.
    pub(crate) fn begin(&mut self, png: &Png<'_>) {
        self.inflate.init();
        (self.from, self.to, self.next, self.left, self.done) = (0, 0, png.pixels, (0, 0), false);
    }

    /// Starts the next pass.
    pub(crate) fn begin_pass(&mut self, png: &Png<'_>, pass: Pass) {
        let columns = (png.size.width - pass.x).div_ceil(pass.across) as usize;
        let bytes = (columns * usize::from(png.depth)).div_ceil(8);
        for row in [&mut self.row, &mut self.above] {
            row.clear();
            row.resize(bytes, 0);
        }
        self.values.clear();
        self.values.resize(if png.depth < 8 { columns } else { 0 }, 0);
    }

    /// Reads the next `rows` rows of the pass. [`values`](Self::values) returns the last one.
    pub(crate) fn read(&mut self, png: &Png<'_>, rows: u32) -> Result<()> {
        (0..rows).try_for_each(|_| self.unfiltered(png))?;
        if rows > 0 && png.depth < 8 {
            let depth = png.depth;
            for (values, byte) in self.values.chunks_mut(usize::from(8 / depth)).zip(&self.row) {
                for (place, value) in values.iter_mut().enumerate() {
                    *value = byte >> (8 - depth * (place as u8 + 1)) & ((1 << depth) - 1);
                }
            }
        }
        Ok(())
    }

    /// Values of the row that was read last, with one byte each, or two if they are
    /// [wide](Png::is_wide).
    pub(crate) fn values(&self, png: &Png<'_>) -> &[u8] {
        if png.depth < 8 { &self.values } else { &self.row }
    }

    /// Reads the next row into `row`, and moves the previous one to `above`.
    fn unfiltered(&mut self, png: &Png<'_>) -> Result<()> {
        std::mem::swap(&mut self.row, &mut self.above);
        let mut row = std::mem::take(&mut self.row);
        let mut filter = [0];
        let taken = self.take(png, &mut filter).and_then(|()| self.take(png, &mut row));
        self.row = row;
        taken?;
        unfilter(filter[0], usize::from(png.depth / 8).max(1), &mut self.row, &self.above)
    }

    /// Fills `to` with the next bytes.
    fn take(&mut self, png: &Png<'_>, mut to: &mut [u8]) -> Result<()> {
        while !to.is_empty() {
            if self.from == self.to {
                self.inflate(png)?;
            }
            let count = to.len().min(self.to - self.from);
            let (now, rest) = to.split_at_mut(count);
            now.copy_from_slice(&self.window[self.from..self.from + count]);
            self.from += count;
            to = rest;
        }
        Ok(())
    }

    /// Decompresses at least one more byte.
    fn inflate(&mut self, png: &Png<'_>) -> Result<()> {
        if self.to == WINDOW {
            self.to = 0;
        }
        self.from = self.to;
        while self.from == self.to {
            if self.left.0 == self.left.1 {
                let (kind, content, next) = chunk(png.bytes, self.next)?;
                if kind != b"IDAT" || self.done {
                    return Err(Error::decode(format!("png ends at byte {} within its pixels", self.next)));
                }
                let start = self.next + 8;
                (self.left, self.next) = ((start, start + content.len()), next);
                if content.is_empty() {
                    continue;
                }
            }
            let flags = TINFL_FLAG_PARSE_ZLIB_HEADER | TINFL_FLAG_HAS_MORE_INPUT;
            let input = &png.bytes[self.left.0..self.left.1];
            let (status, read, written) = decompress(&mut self.inflate, input, &mut self.window, self.to, flags);
            self.left.0 += read;
            self.to += written;
            match status {
                TINFLStatus::NeedsMoreInput | TINFLStatus::HasMoreOutput => {}
                TINFLStatus::Done => {
                    self.done = true;
                    self.left.0 = self.left.1;
                }
                failed => {
                    let at = self.left.0;
                    return Err(Error::decode(format!("png pixels do not decompress at byte {at}: {failed:?}")));
                }
            }
        }
        Ok(())
    }
}

/// Undoes the filter of a row, whose values have `bytes` bytes each.
fn unfilter(filter: u8, bytes: usize, row: &mut [u8], above: &[u8]) -> Result<()> {
    match (filter, bytes) {
        (0, _) => {}
        // The value to the left is kept in a register.
        (1, 1) => {
            let mut left = 0u8;
            for byte in row {
                left = left.wrapping_add(*byte);
                *byte = left;
            }
        }
        (3, 1) => {
            let mut left = 0;
            for (byte, &above) in row.iter_mut().zip(above) {
                left = byte.wrapping_add(((u16::from(left) + u16::from(above)) / 2) as u8);
                *byte = left;
            }
        }
        (4, 1) => {
            let (mut left, mut corner) = (0, 0);
            for (byte, &above) in row.iter_mut().zip(above) {
                // In a mask most neighbours are equal.
                let guess = if above == corner { left } else { nearest(left, above, corner) };
                left = byte.wrapping_add(guess);
                corner = above;
                *byte = left;
            }
        }
        (1, _) => (bytes..row.len()).for_each(|i| row[i] = row[i].wrapping_add(row[i - bytes])),
        (2, _) => row.iter_mut().zip(above).for_each(|(byte, above)| *byte = byte.wrapping_add(*above)),
        (3, _) => {
            for i in 0..row.len() {
                let left = if i < bytes { 0 } else { row[i - bytes] };
                row[i] = row[i].wrapping_add(((u16::from(left) + u16::from(above[i])) / 2) as u8);
            }
        }
        (4, _) => {
            for i in 0..row.len() {
                let (left, corner) = if i < bytes { (0, 0) } else { (row[i - bytes], above[i - bytes]) };
                row[i] = row[i].wrapping_add(nearest(left, above[i], corner));
            }
        }
        (other, _) => return Err(Error::decode(format!("png row with filter {other}: only 0 to 4 exist"))),
    }
    Ok(())
}

/// Returns the neighbour nearest to left + above - corner: Paeth's predictor.
fn nearest(left: u8, above: u8, corner: u8) -> u8 {
    let [a, b, c] = [left, above, corner].map(i16::from);
    let (to_left, to_above, to_corner) = ((b - c).abs(), (a - c).abs(), (a + b - 2 * c).abs());
    if to_left <= to_above && to_left <= to_corner {
        left
    } else if to_above <= to_corner {
        above
    } else {
        corner
    }
}
