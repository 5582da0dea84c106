//! The data that a device needs to decode a part of an image: its tables, and the restart segments
//! that contain the part.
//!
//! [`Bitstream::write`] writes, one after the other:
//! 1. a quantization table for each component, 64 `u16` in natural order;
//! 2. the Huffman tables, each 16 counts of codes by their length and 256 symbols;
//! 3. the segments, each as four `u32`: first byte, bytes, first MCU, MCUs, with [`CUT`] added if
//!    the segment has more of them;
//! 4. the data of the segments, without stuffing and markers.
//!
//! Numbers are little-endian, and offsets count from the first byte of the output.

use arrayvec::ArrayVec;

use super::coefficients::check_length;
use super::header::Coding;
use super::huffman::Spec;
use super::jpeg::Jpeg;
use super::kernels::Backend;
use super::layout::{Color, Layout, MOST_COMPONENTS, Upsampling, Window};
use super::lengths::Lengths;
use super::segments::{self, Refusal, Segment, Unstuff, uncached};
use crate::pixels::Rect;

/// Maximum number of components. Devices do not decode CMYK.
const PARTS: usize = 3;
/// Maximum number of Huffman tables of each kind: that of a baseline JPEG.
const TABLES: usize = 2;
/// Bytes of a Huffman table: 16 counts and 256 symbols.
const TABLE: usize = 16 + 256;
/// Bytes of a segment's entry.
const ENTRY: usize = 16;
/// Added to the number of MCUs of a segment that has more MCUs after the last one needed: `CUT` in
/// `src/device/nvidia/kernels/jpeg.cu` of warpfeed. An image has fewer than 2^26 MCUs.
pub const CUT: u32 = 1 << 31;
/// Maximum number of bytes of an image, whose bits the device counts in 32 bits.
const MOST_BYTES: usize = 1 << 28;
/// Initial room for the data of the segments, in bytes.
const FIRST: usize = 256 << 10;
/// Maximum number of blocks of a component between two restarts. The sum of that many 16-bit
/// differences fits into 32 bits.
const MOST_BLOCKS: u64 = u16::MAX as u64;

/// Layout of an image for a device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grid {
    /// Number of segments.
    pub segments: u32,
    /// Bytes of the longest segment.
    pub longest: u32,
    /// MCUs in a row of the image.
    pub mcus_across: u32,
    /// First column and row of the MCUs to keep.
    pub first: (u32, u32),
    /// Numbers of columns and rows of the MCUs to keep.
    pub mcus: (u32, u32),
    /// Blocks in an MCU.
    pub blocks: u32,
    /// 0 is gray, 1 YCbCr, 2 RGB.
    pub color: u32,
    /// Huffman tables.
    pub tables: u32,
    /// Corner of the region in the stored image.
    pub corner: (u32, u32),
    /// Steps that turn the region upright, as bits of [`Turn`].
    pub turned: u32,
    parts: ArrayVec<GridPart, PARTS>,
}

/// Steps from a stored image to an upright one, as bits, in order.
#[derive(Debug)]
pub struct Turn;

impl Turn {
    /// Columns become rows.
    pub const TRANSPOSED: u32 = 1;
    /// Left and right are exchanged.
    pub const MIRRORED: u32 = 2;
    /// Top and bottom are exchanged.
    pub const FLIPPED: u32 = 4;
}

/// One component.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GridPart {
    /// Blocks in an MCU, across.
    pub h: u32,
    /// Blocks in an MCU, down.
    pub v: u32,
    /// Index of the first block in an MCU.
    pub first: u32,
    /// Pixels per sample, across.
    pub across: u32,
    /// Pixels per sample, down.
    pub down: u32,
    /// 0 is none, 1 twice across, 2 twice down, 3 both. 4 repeats samples for any other factors.
    pub upsampling: u32,
    /// Number of samples that contain pixels of the image.
    pub size: (u32, u32),
    /// Index of the component's DC table.
    pub dc: u32,
    /// Index of the component's AC table.
    pub ac: u32,
}

impl Grid {
    /// The one or three components.
    #[inline]
    pub fn parts(&self) -> &[GridPart] {
        &self.parts
    }

    /// Number of blocks in the MCUs to keep.
    pub fn kept_blocks(&self) -> usize {
        self.mcus.0 as usize * self.mcus.1 as usize * self.blocks as usize
    }
}

/// Data of an image's part on its way to a device. The memory is reused for the next part, as far
/// as [`keep`](Bitstream::keep) leaves it.
#[derive(Debug)]
pub struct Bitstream {
    unstuff: Unstuff,
    segments: Vec<Segment>,
    /// The segments' bytes.
    stream: Vec<u8>,
    /// Number of valid bytes in `stream`.
    streamed: usize,
    quant: ArrayVec<[u16; 64], PARTS>,
    tables: ArrayVec<(Spec, bool), { 2 * TABLES }>,
}

impl Default for Bitstream {
    fn default() -> Self {
        Bitstream {
            unstuff: Backend::choose().unstuff(),
            segments: Vec::new(),
            stream: Vec::new(),
            streamed: 0,
            quant: ArrayVec::new(),
            tables: ArrayVec::new(),
        }
    }
}

impl Bitstream {
    /// Maximum number of bytes of memory that [`take`](Bitstream::take) uses for `region`.
    pub fn memory_for(jpeg: &Jpeg<'_>, region: Rect, limit: usize) -> usize {
        let Jpeg { bytes, header, layout, .. } = jpeg;
        if !region.fits(jpeg.size()) {
            return 0;
        }
        let data = (bytes.len() - header.scan.data).min(limit).min(MOST_BYTES);
        // More segments than the data can hold are refused.
        let window = Window::new(layout, jpeg.orientation().region(region, layout.size));
        let segments = segments::count(layout, &window, header.restart_interval).min(data);
        data.saturating_add(segments.saturating_mul(size_of::<Segment>()))
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        self.stream.capacity() + self.segments.capacity() * size_of::<Segment>()
    }

    /// Frees the memory if it exceeds `limit` bytes.
    pub fn keep(&mut self, limit: usize) {
        if self.memory() > limit {
            (self.segments, self.stream, self.streamed) = (Vec::new(), Vec::new(), 0);
        }
    }

    /// Collects the data that `region` of the upright image needs. `None` if devices cannot
    /// decode the image, because it is progressive, visibly damaged or of a rare kind, if it
    /// needs more than `limit` bytes, or if the region is not inside the image.
    pub fn take(&mut self, jpeg: &Jpeg<'_>, region: Rect, limit: usize) -> Option<Grid> {
        let Jpeg { bytes, header, layout, closed } = jpeg;
        region.fits(jpeg.size()).then_some(())?;
        let (frame, scan) = (&header.frame, &header.scan);
        let in_order = scan.components().iter().map(|c| usize::from(c.index)).eq(0..layout.parts().len());
        let color = match layout.color {
            Color::Gray => 0,
            Color::YCbCr => 1,
            Color::Rgb => 2,
            Color::Cmyk | Color::Ycck => return None,
        };
        let sequential = frame.coding != Coding::Progressive && in_order && layout.blocks <= 10;
        if !sequential || !closed || check_length(bytes, header).is_err() {
            return None;
        }
        let interval = match header.restart_interval {
            0 => layout.mcus.0 * layout.mcus.1,
            interval => interval,
        };
        let most = layout.parts().iter().map(|part| u64::from(part.h * part.v)).max()?;
        if u64::from(interval) * most > MOST_BLOCKS {
            return None;
        }
        self.quant.clear();
        for component in frame.components() {
            self.quant.push(header.quant(bytes, component.quant)?);
        }
        self.tables.clear();
        let mut used = ArrayVec::<(u32, u32), MOST_COMPONENTS>::new();
        for component in scan.components() {
            let dc = self.table(header.huffman(bytes, false, component.dc).ok()?, false)?;
            let ac = self.table(header.huffman(bytes, true, component.ac).ok()?, true)?;
            used.push((dc, ac));
        }
        let orientation = jpeg.orientation();
        let window = Window::new(layout, orientation.region(region, layout.size));
        let data = &bytes[scan.data..];
        let limit = limit.min(MOST_BYTES);
        let entries = segments::count(layout, &window, header.restart_interval).checked_mul(ENTRY)?;
        let room = limit.checked_sub(self.entries_at())?.checked_sub(entries)?;
        segments::needed(layout, &window, header.restart_interval, data.len(), &mut self.segments)?;
        self.collect(data, header.lengths(bytes, layout.mcus.0 * layout.mcus.1), room)?;
        self.streamed = self.segments.last()?.bytes.end;
        if self.len() > limit {
            return None;
        }
        // As for the lanes, this check keeps a few bytes from expanding into a large image.
        let enough = |s: &Segment| s.bytes.len() * 4 >= s.mcus.len() * layout.blocks as usize;
        self.segments.iter().all(enough).then_some(())?;
        let mut grid = self.grid(layout, &window, color, &used);
        let bit = |is: bool, bit: u32| if is { bit } else { 0 };
        grid.turned = bit(orientation.transposed, Turn::TRANSPOSED)
            | bit(orientation.mirrored, Turn::MIRRORED)
            | bit(orientation.flipped, Turn::FLIPPED);
        // A device turns an image in the memory of its coefficients, two bytes each.
        let turned = region.width.div_ceil(8) as usize * region.height.div_ceil(8) as usize * grid.parts.len();
        (grid.turned == 0 || turned <= 2 * grid.kept_blocks()).then_some(grid)
    }

    /// Copies the data of the segments if they have at most `room` bytes. The memory for them grows
    /// as needed, because much of `data` may not be needed.
    fn collect(&mut self, data: &[u8], lengths: Lengths<'_>, room: usize) -> Option<()> {
        let room = room.min(data.len());
        loop {
            match segments::collect(data, lengths, &mut self.segments, &mut self.stream, self.unstuff) {
                Ok(()) => return Some(()),
                Err(Refusal::NoRoom) if self.stream.len() < room => {
                    let bytes = (2 * self.stream.len()).max(FIRST).min(room);
                    // Copying again takes less memory than growing the buffer.
                    self.stream = Vec::new();
                    self.stream = vec![0; bytes];
                }
                Err(_) => return None,
            }
        }
    }

    fn grid(&self, layout: &Layout, window: &Window, color: u32, used: &[(u32, u32)]) -> Grid {
        let parts = layout.parts().iter().zip(used).map(|(part, &(dc, ac))| GridPart {
            h: part.h,
            v: part.v,
            first: part.first,
            across: part.across,
            down: part.down,
            upsampling: match part.upsampling {
                Upsampling::None => 0,
                Upsampling::H2V1 => 1,
                Upsampling::H1V2 => 2,
                Upsampling::H2V2 => 3,
                Upsampling::Replicate(..) => 4,
            },
            size: (part.size.width, part.size.height),
            dc,
            ac,
        });
        Grid {
            segments: self.segments.len() as u32,
            longest: self.segments.iter().map(|segment| segment.bytes.len()).max().unwrap_or(0) as u32,
            mcus_across: layout.mcus.0,
            first: (window.columns.start, window.rows.start),
            mcus: (window.columns.len() as u32, window.rows.len() as u32),
            blocks: layout.blocks,
            color,
            tables: self.tables.len() as u32,
            corner: (window.region.x, window.region.y),
            turned: 0,
            parts: parts.collect(),
        }
    }

    /// The number of a table. `None` if the table is invalid, or if there are too many.
    fn table(&mut self, spec: Spec, ac: bool) -> Option<u32> {
        let known = self.tables.iter().position(|(own, class)| *class == ac && *own == spec);
        if let Some(known) = known {
            return Some(known as u32);
        }
        drop(spec.codes(ac).ok()?);
        if self.tables.iter().filter(|(_, class)| *class == ac).count() == TABLES {
            return None;
        }
        self.tables.push((spec, ac));
        Some(self.tables.len() as u32 - 1)
    }

    /// Bytes that [`write`](Bitstream::write) writes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.data_at() + self.streamed
    }

    fn entries_at(&self) -> usize {
        self.quant.len() * 128 + self.tables.len() * TABLE
    }

    fn data_at(&self) -> usize {
        self.entries_at() + self.segments.len() * ENTRY
    }

    /// Writes the data to `to`, which has [`len`](Bitstream::len) bytes.
    pub fn write(&self, to: &mut [u8]) {
        let data = self.data_at();
        let (quant, rest) = to.split_at_mut(self.quant.len() * 128);
        let (tables, rest) = rest.split_at_mut(self.tables.len() * TABLE);
        let (entries, stream) = rest.split_at_mut(self.segments.len() * ENTRY);
        for (to, value) in quant.as_chunks_mut().0.iter_mut().zip(self.quant.iter().flatten()) {
            *to = value.to_le_bytes();
        }
        for (to, (spec, _)) in tables.chunks_exact_mut(TABLE).zip(&self.tables) {
            let (counts, symbols) = to.split_at_mut(16);
            counts.copy_from_slice(spec.bits());
            let (used, unused) = symbols.split_at_mut(spec.values().len());
            used.copy_from_slice(spec.values());
            unused.fill(0);
        }
        for (to, segment) in entries.chunks_exact_mut(ENTRY).zip(&self.segments) {
            let Segment { mcus, bytes, cut, .. } = segment;
            let count = mcus.len() as u32 | if *cut { CUT } else { 0 };
            let words = [(data + bytes.start) as u32, bytes.len() as u32, mcus.start, count];
            for (to, word) in to.as_chunks_mut().0.iter_mut().zip(words) {
                *to = word.to_le_bytes();
            }
        }
        uncached::copy(&self.stream[..self.streamed], stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gray(side: u16, restart: u16) -> Vec<u8> {
        let (mut jpeg, side) = (Vec::new(), side);
        let mut encoder = jpeg_encoder::Encoder::new(&mut jpeg, 95);
        encoder.set_restart_interval(restart);
        let pixels: Vec<u8> =
            (0..u32::from(side).pow(2)).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        encoder.encode(&pixels, side, side, jpeg_encoder::ColorType::Luma).unwrap();
        jpeg
    }

    fn take(stream: &mut Bitstream, jpeg: &[u8], limit: usize) -> Option<Grid> {
        let jpeg = Jpeg::open(jpeg).unwrap();
        let whole = Rect::full(jpeg.size());
        let grid = stream.take(&jpeg, whole, limit);
        let most = Bitstream::memory_for(&jpeg, whole, limit);
        assert!(stream.memory() <= most.max(FIRST), "{} bytes are taken, {most} were said", stream.memory());
        grid
    }

    #[test]
    fn a_refused_image_takes_no_memory() {
        let jpeg = gray(1500, 0);
        assert!(jpeg.len() > 1 << 20);
        let mut stream = Bitstream::default();
        let room = 100_000;
        assert!(take(&mut stream, &jpeg, room).is_none());
        assert!(stream.memory() <= room + 100, "{} bytes", stream.memory());
        assert!(take(&mut stream, &jpeg, usize::MAX).is_some());
        stream.keep(1 << 20);
        assert_eq!(stream.memory(), 0);
    }

    #[test]
    fn only_the_needed_bytes_of_a_file_take_memory() {
        let mut jpeg = gray(64, 0);
        jpeg.resize(20 << 20, 7);
        let mut stream = Bitstream::default();
        assert!(take(&mut stream, &jpeg, usize::MAX).is_some(), "bytes behind a complete JPEG are ignored");
        assert!(stream.memory() <= FIRST + 100, "{} bytes", stream.memory());
    }

    #[test]
    fn segments_that_a_file_cannot_hold_are_not_listed() {
        // 16384 x 16384 pixels, with a restart marker for each of four million blocks.
        let mut jpeg = gray(16, 1);
        let frame = jpeg.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
        jpeg[frame + 5..frame + 9].copy_from_slice(&[0x40, 0, 0x40, 0]);
        let end = jpeg.len() - 2;
        jpeg.splice(end..end, std::iter::repeat_n(0x55, 530_000));
        let mut stream = Bitstream::default();
        assert!(take(&mut stream, &jpeg, usize::MAX).is_none());
        assert!(stream.memory() < 1 << 20, "{} bytes", stream.memory());
    }
}
