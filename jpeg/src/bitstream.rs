//! [`Bitstream`] contains the data that a device needs to decode a region of an image: the image's
//! tables, and the restart segments that contain the region.
//!
//! [`Bitstream::write`] writes, in this order:
//! 1. one quantization table per component, as 64 `u16` in natural order;
//! 2. the Huffman tables, each as 16 counts of codes by length and 256 symbols;
//! 3. the segments, each as four `u32`: offset, number of bytes, first MCU, number of MCUs. If the
//!    segment continues after the needed MCUs, the [`CUT`] flag is set in the number of MCUs;
//! 4. the data of the segments, without byte stuffing and markers.
//!
//! Numbers are little-endian, and offsets are relative to the first byte of the output.

use arrayvec::ArrayVec;

use super::coefficients::check_length;
use super::header::Coding;
use super::huffman::HuffmanSpec;
use super::jpeg::Jpeg;
use super::kernels::Backend;
use super::layout::{Color, Layout, MAX_COMPONENTS, Upsampling, Window};
use super::lengths::Lengths;
use super::segments::{self, CollectError, Segment, Unstuff, uncached};
use crate::error::reserve_exact;
use crate::orientation::Orientation;
use crate::pixels::Rect;

/// Maximum number of components. Devices do not decode CMYK.
const MAX_GRID_COMPONENTS: usize = 3;
/// Maximum number of DC tables, and of AC tables.
const MAX_TABLES: usize = 2;
const TABLE_BYTES: usize = 16 + 256;
const SEGMENT_ENTRY_BYTES: usize = 16;
/// Flag in a segment's number of MCUs, set if the segment continues after the last needed MCU. Must
/// equal `CUT` in warpfeed's `src/device/nvidia/kernels/jpeg.cu`. Images have at most 2^26 MCUs, so
/// this bit of the number is free.
pub const CUT: u32 = 1 << 31;
/// Maximum size of the data in bytes, because the device uses 32-bit bit offsets.
const MAX_BYTES: usize = 1 << 28;
const INITIAL_CAPACITY: usize = 256 << 10;
/// Maximum of n * d, where n is the number of a component's blocks between two restarts, and d is
/// the largest DC difference that the tables can code. Up to this limit, sums of differences fit
/// into 32 bits on the device.
const MAX_DC_SUM: u64 = 1 << 31;

/// The layout of an image, as a device needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grid {
    /// Number of segments.
    pub segment_count: u32,
    /// Length of the longest segment, in bytes.
    pub max_segment_bytes: u32,
    /// Number of MCUs per row of the image.
    pub mcus_per_row: u32,
    /// Column and row of the first needed MCU.
    pub first_mcu: (u32, u32),
    /// Number of columns and rows of the needed MCUs.
    pub needed_mcus: (u32, u32),
    /// Number of blocks per MCU.
    pub blocks_per_mcu: u32,
    /// Color space: 0 for gray, 1 for YCbCr, 2 for RGB.
    pub color_space: u32,
    /// Number of Huffman tables.
    pub huffman_table_count: u32,
    /// Upper left corner of the region in the stored image.
    pub region_origin: (u32, u32),
    /// Steps that apply the EXIF orientation to the region, as [`OrientationFlags`].
    pub orientation_flags: u32,
    components: ArrayVec<GridComponent, MAX_GRID_COMPONENTS>,
}

/// Flags for the steps that apply the EXIF orientation to a stored image, in the order in which the
/// steps are applied.
#[derive(Debug)]
pub struct OrientationFlags;

impl OrientationFlags {
    /// Rows and columns are swapped.
    pub const TRANSPOSED: u32 = 1;
    /// Left and right are swapped.
    pub const MIRRORED: u32 = 2;
    /// Top and bottom are swapped.
    pub const FLIPPED: u32 = 4;

    /// Returns the flags of an orientation.
    pub fn from_orientation(orientation: Orientation) -> u32 {
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        flag(orientation.transposed, Self::TRANSPOSED)
            | flag(orientation.mirrored, Self::MIRRORED)
            | flag(orientation.flipped, Self::FLIPPED)
    }
}

/// One component of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GridComponent {
    /// Number of blocks per MCU horizontally.
    pub h: u32,
    /// Number of blocks per MCU vertically.
    pub v: u32,
    /// Index of the component's first block in an MCU.
    pub first_block: u32,
    /// Number of pixels per sample horizontally.
    pub h_expand: u32,
    /// Number of pixels per sample vertically.
    pub v_expand: u32,
    /// Kind of upsampling. 0: none; 1: 2x horizontal; 2: 2x vertical; 3: 2x in both directions; 4:
    /// any factor, by repeating samples. Kinds 1 to 3 use the triangle filter.
    pub upsampling: u32,
    /// Width and height of the component in samples, without padding.
    pub size: (u32, u32),
    /// Index of the component's DC table.
    pub dc_table: u32,
    /// Index of the component's AC table.
    pub ac_table: u32,
}

impl Grid {
    /// Returns the one or three components.
    #[inline]
    pub fn components(&self) -> &[GridComponent] {
        &self.components
    }

    /// Returns the number of blocks in the needed MCUs.
    pub fn needed_blocks(&self) -> usize {
        self.needed_mcus.0 as usize * self.needed_mcus.1 as usize * self.blocks_per_mcu as usize
    }
}

/// The data that a device needs to decode a region.
#[derive(Debug)]
pub struct Bitstream {
    unstuff: Unstuff,
    segments: Vec<Segment>,
    stream: Vec<u8>,
    stream_len: usize,
    quant: ArrayVec<[u16; 64], MAX_GRID_COMPONENTS>,
    tables: ArrayVec<(HuffmanSpec, bool), { 2 * MAX_TABLES }>,
}

impl Default for Bitstream {
    fn default() -> Self {
        Bitstream {
            unstuff: Backend::choose().unstuff(),
            segments: Vec::new(),
            stream: Vec::new(),
            stream_len: 0,
            quant: ArrayVec::new(),
            tables: ArrayVec::new(),
        }
    }
}

impl Bitstream {
    /// Returns an upper bound, in bytes, on the memory that [`extract`](Bitstream::extract)
    /// allocates in a new `Bitstream`, or 0 if the region is empty or not inside the image.
    pub fn memory_for(jpeg: &Jpeg<'_>, region: Rect, limit: usize) -> usize {
        let Jpeg { bytes, header, layout, .. } = jpeg;
        if !region.is_within(jpeg.size()) {
            return 0;
        }
        let data = (bytes.len() - header.scan.data_offset).min(limit).min(MAX_BYTES);
        // `extract` rejects an image with more segments than its data can contain.
        let window = Window::new(layout, jpeg.orientation().stored_region(region, layout.size));
        let segments = segments::count_needed(layout, &window, header.restart_interval).min(data);
        data.saturating_add(segments.saturating_mul(size_of::<Segment>()))
    }

    /// Returns the number of allocated bytes.
    pub fn memory(&self) -> usize {
        self.stream.capacity() + self.segments.capacity() * size_of::<Segment>()
    }

    /// Frees the memory if it exceeds `max_bytes` bytes.
    pub fn trim_to(&mut self, max_bytes: usize) {
        if self.memory() > max_bytes {
            (self.segments, self.stream, self.stream_len) = (Vec::new(), Vec::new(), 0);
        }
    }

    /// Collects the data that is needed to decode `region` of the upright image. Returns `None` in
    /// these cases:
    ///
    /// - The region is empty or not inside the image.
    /// - The data exceeds `limit` bytes or 256 MiB, or an allocation fails.
    /// - Devices cannot decode the image, because it is progressive, CMYK or YCCK, or because it is
    ///   unusual, for example with more than two DC tables.
    /// - The image is damaged, as far as this can be detected without decoding.
    /// - The sums of DC differences may exceed 32 bits.
    /// - The image must be rotated or mirrored, and the result does not fit into the memory of the
    ///   coefficients.
    pub fn extract(&mut self, jpeg: &Jpeg<'_>, region: Rect, limit: usize) -> Option<Grid> {
        let Jpeg { bytes, header, layout, has_eoi, .. } = jpeg;
        region.is_within(jpeg.size()).then_some(())?;
        let (frame, scan) = (&header.frame, &header.scan);
        let is_in_order = scan.components().iter().map(|c| usize::from(c.index)).eq(0..layout.components().len());
        let color_space = match layout.color {
            Color::Gray => 0,
            Color::YCbCr => 1,
            Color::Rgb => 2,
            Color::Cmyk | Color::Ycck => return None,
        };
        let is_sequential = frame.coding != Coding::Progressive && is_in_order && layout.blocks_per_mcu <= 10;
        if !is_sequential || !has_eoi || check_length(bytes, header).is_err() {
            return None;
        }
        let interval = match header.restart_interval {
            0 => layout.mcus_per_row * layout.mcu_rows,
            interval => interval,
        };
        self.quant.clear();
        for component in frame.components() {
            self.quant.push(header.quant(bytes, component.quant_index)?);
        }
        self.tables.clear();
        let mut table_indices = ArrayVec::<(u32, u32), MAX_COMPONENTS>::new();
        for component in scan.components() {
            let dc = self.add_table(header.huffman(bytes, false, component.dc_table).ok()?, false)?;
            let ac = self.add_table(header.huffman(bytes, true, component.ac_table).ok()?, true)?;
            table_indices.push((dc, ac));
        }
        let max_blocks = layout.components().iter().map(|component| u64::from(component.h * component.v)).max()?;
        if u64::from(interval) * max_blocks * self.max_dc_difference() > MAX_DC_SUM {
            return None;
        }
        let orientation = jpeg.orientation();
        let window = Window::new(layout, orientation.stored_region(region, layout.size));
        let data = &bytes[scan.data_offset..];
        let limit = limit.min(MAX_BYTES);
        let entry_bytes =
            segments::count_needed(layout, &window, header.restart_interval).checked_mul(SEGMENT_ENTRY_BYTES)?;
        let free_bytes = limit.checked_sub(self.entries_offset())?.checked_sub(entry_bytes)?;
        segments::list_needed(layout, &window, header.restart_interval, data.len(), &mut self.segments)?;
        let lengths = header.lengths(bytes, layout.mcus_per_row * layout.mcu_rows);
        self.collect(data, lengths, header.restart_interval > 0, free_bytes)?;
        self.stream_len = self.segments.last()?.bytes.end;
        if self.len() > limit {
            return None;
        }
        // As in `LaneImage::begin`, so that a few bytes cannot expand to a large image.
        let has_enough_bytes = |s: &Segment| s.bytes.len() * 4 >= s.mcus.len() * layout.blocks_per_mcu as usize;
        self.segments.iter().all(has_enough_bytes).then_some(())?;
        let mut grid = self.grid(layout, &window, color_space, &table_indices);
        grid.orientation_flags = OrientationFlags::from_orientation(orientation);
        // A device writes the upright pixels to the memory of the coefficients, which have two
        // bytes each, so the pixels must fit in that memory.
        let upright_blocks =
            region.width.div_ceil(8) as usize * region.height.div_ceil(8) as usize * grid.components.len();
        (grid.orientation_flags == 0 || upright_blocks <= 2 * grid.needed_blocks()).then_some(grid)
    }

    /// Collects the segments and their data. The buffer starts small, because the segments may be a
    /// small part of `data`. Without restart markers, nearly all of `data` is needed, so the buffer
    /// is enlarged only once.
    fn collect(&mut self, data: &[u8], lengths: Lengths<'_>, has_restarts: bool, max_bytes: usize) -> Option<()> {
        let max_bytes = max_bytes.min(data.len());
        loop {
            match segments::collect(data, lengths, &mut self.segments, &mut self.stream, self.unstuff) {
                Ok(()) => return Some(()),
                Err(CollectError::BufferFull) if self.stream.len() < max_bytes => {
                    let larger_bytes =
                        if has_restarts || self.stream.is_empty() { 2 * self.stream.len() } else { max_bytes };
                    let bytes = larger_bytes.max(INITIAL_CAPACITY).min(max_bytes);
                    // Growing the old buffer would need both buffers at the same time.
                    self.stream = Vec::new();
                    reserve_exact(&mut self.stream, bytes).ok()?;
                    self.stream.resize(bytes, 0);
                }
                Err(_) => return None,
            }
        }
    }

    fn grid(&self, layout: &Layout, window: &Window, color_space: u32, table_indices: &[(u32, u32)]) -> Grid {
        let components =
            layout.components().iter().zip(table_indices).map(|(component, &(dc_table, ac_table))| GridComponent {
                h: component.h,
                v: component.v,
                first_block: component.first_block,
                h_expand: component.h_expand,
                v_expand: component.v_expand,
                upsampling: match component.upsampling {
                    Upsampling::None => 0,
                    Upsampling::H2V1 => 1,
                    Upsampling::H1V2 => 2,
                    Upsampling::H2V2 => 3,
                    Upsampling::Replicate(..) => 4,
                },
                size: (component.size.width, component.size.height),
                dc_table,
                ac_table,
            });
        Grid {
            segment_count: self.segments.len() as u32,
            max_segment_bytes: self.segments.iter().map(|segment| segment.bytes.len()).max().unwrap_or(0) as u32,
            mcus_per_row: layout.mcus_per_row,
            first_mcu: (window.columns.start, window.rows.start),
            needed_mcus: (window.columns.len() as u32, window.rows.len() as u32),
            blocks_per_mcu: layout.blocks_per_mcu,
            color_space,
            huffman_table_count: self.tables.len() as u32,
            region_origin: (window.region.x, window.region.y),
            orientation_flags: 0,
            components: components.collect(),
        }
    }

    /// Returns the index of the Huffman table, and adds the table if it is new. Returns `None` if
    /// the table is invalid, or if there are already [`MAX_TABLES`] of its class.
    fn add_table(&mut self, spec: HuffmanSpec, is_ac: bool) -> Option<u32> {
        let existing =
            self.tables.iter().position(|&(ref table_spec, is_table_ac)| is_table_ac == is_ac && *table_spec == spec);
        if let Some(existing) = existing {
            return Some(existing as u32);
        }
        drop(spec.codes(is_ac).ok()?);
        if self.tables.iter().filter(|&&(_, is_table_ac)| is_table_ac == is_ac).count() == MAX_TABLES {
            return None;
        }
        self.tables.push((spec, is_ac));
        Some(self.tables.len() as u32 - 1)
    }

    /// Returns a power of two that bounds the magnitude of a DC difference. Baseline encoders code
    /// differences of at most 11 bits. The limit [`MAX_DC_SUM`] then allows a million blocks, or 67
    /// megapixels.
    fn max_dc_difference(&self) -> u64 {
        let sizes = self.tables.iter().filter(|(_, is_ac)| !is_ac).flat_map(|(spec, _)| spec.values());
        1 << sizes.copied().max().unwrap_or(0).min(15)
    }

    /// Returns the number of bytes that [`write`](Bitstream::write) writes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.data_offset() + self.stream_len
    }

    fn entries_offset(&self) -> usize {
        self.quant.len() * 128 + self.tables.len() * TABLE_BYTES
    }

    fn data_offset(&self) -> usize {
        self.entries_offset() + self.segments.len() * SEGMENT_ENTRY_BYTES
    }

    /// Writes the data to `out`.
    ///
    /// # Panics
    /// If `out` does not have [`len`](Bitstream::len) bytes.
    pub fn write(&self, out: &mut [u8]) {
        let data_offset = self.data_offset();
        let (quant, rest) = out.split_at_mut(self.quant.len() * 128);
        let (tables, rest) = rest.split_at_mut(self.tables.len() * TABLE_BYTES);
        let (entries, stream) = rest.split_at_mut(self.segments.len() * SEGMENT_ENTRY_BYTES);
        for (out, value) in quant.as_chunks_mut().0.iter_mut().zip(self.quant.iter().flatten()) {
            *out = value.to_le_bytes();
        }
        for (out, (spec, _)) in tables.chunks_exact_mut(TABLE_BYTES).zip(&self.tables) {
            let (counts, symbols) = out.split_at_mut(16);
            counts.copy_from_slice(spec.counts());
            let (used_symbols, unused_symbols) = symbols.split_at_mut(spec.values().len());
            used_symbols.copy_from_slice(spec.values());
            unused_symbols.fill(0);
        }
        for (out, segment) in entries.chunks_exact_mut(SEGMENT_ENTRY_BYTES).zip(&self.segments) {
            let Segment { mcus, bytes, is_cut, .. } = segment;
            let count = mcus.len() as u32 | if *is_cut { CUT } else { 0 };
            let words = [(data_offset + bytes.start) as u32, bytes.len() as u32, mcus.start, count];
            for (out, word) in out.as_chunks_mut().0.iter_mut().zip(words) {
                *out = word.to_le_bytes();
            }
        }
        uncached::copy(&self.stream[..self.stream_len], stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gray(size: u16, restart: u16) -> Vec<u8> {
        let mut jpeg = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut jpeg, 95);
        encoder.set_restart_interval(restart);
        let pixels: Vec<u8> =
            (0..u32::from(size).pow(2)).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        encoder.encode(&pixels, size, size, jpeg_encoder::ColorType::Luma).unwrap();
        jpeg
    }

    fn extract(stream: &mut Bitstream, jpeg: &[u8], limit: usize) -> Option<Grid> {
        let jpeg = Jpeg::open(jpeg).unwrap();
        let region = Rect::full(jpeg.size());
        let grid = stream.extract(&jpeg, region, limit);
        let bound = Bitstream::memory_for(&jpeg, region, limit);
        assert!(
            stream.memory() <= bound.max(INITIAL_CAPACITY),
            "{} bytes are allocated, but the bound is {bound}",
            stream.memory()
        );
        grid
    }

    #[test]
    fn rejecting_an_image_allocates_at_most_the_limit() {
        let jpeg = gray(1500, 0);
        assert!(jpeg.len() > 1 << 20);
        let mut stream = Bitstream::default();
        let limit = 100_000;
        assert!(extract(&mut stream, &jpeg, limit).is_none());
        assert!(stream.memory() <= limit + 100, "{} bytes", stream.memory());
        assert!(extract(&mut stream, &jpeg, usize::MAX).is_some());
        stream.trim_to(1 << 20);
        assert_eq!(stream.memory(), 0);
    }

    #[test]
    fn devices_accept_large_images_without_restart_markers() {
        let mut jpeg = gray(2400, 0);
        assert!(
            extract(&mut Bitstream::default(), &jpeg, usize::MAX).is_some(),
            "90,000 differences of 11 bits fit into 32-bit sums"
        );
        // The sum of 90,000 differences of 15 bits may not fit into 32 bits. The host reports such
        // an overflow as an error, but the device cannot.
        let table = jpeg.windows(5).position(|bytes| bytes[..2] == [0xff, 0xc4] && bytes[4] == 0).unwrap() + 5;
        let last = table + 16 + jpeg[table..table + 16].iter().map(|&count| usize::from(count)).sum::<usize>() - 1;
        for (size, accepted) in [(14, true), (15, false)] {
            jpeg[last] = size;
            assert_eq!(extract(&mut Bitstream::default(), &jpeg, usize::MAX).is_some(), accepted, "{size} bits");
        }
    }

    #[test]
    fn memory_depends_only_on_the_needed_bytes() {
        let mut jpeg = gray(64, 0);
        jpeg.resize(20 << 20, 7);
        let mut stream = Bitstream::default();
        assert!(extract(&mut stream, &jpeg, usize::MAX).is_some(), "bytes after a complete JPEG are ignored");
        assert!(stream.memory() <= INITIAL_CAPACITY + 100, "{} bytes", stream.memory());
    }

    #[test]
    fn segments_that_a_file_cannot_contain_are_not_listed() {
        // The header declares 16384 x 16384 pixels with a restart marker after each block.
        let mut jpeg = gray(16, 1);
        let frame = jpeg.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
        jpeg[frame + 5..frame + 9].copy_from_slice(&[0x40, 0, 0x40, 0]);
        let end = jpeg.len() - 2;
        jpeg.splice(end..end, std::iter::repeat_n(0x55, 530_000));
        let mut stream = Bitstream::default();
        assert!(extract(&mut stream, &jpeg, usize::MAX).is_none());
        assert!(stream.memory() < 1 << 20, "{} bytes", stream.memory());
    }
}
