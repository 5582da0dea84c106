//! [`LaneImage`] is an image that is being decoded in lanes.
//!
//! The image is divided into bands of MCU rows. The part of a restart segment that is in a band is
//! called a piece, and is decoded in one lane. A band is rendered once all of its pieces have been
//! decoded. Bands are small, so that their coefficients are still in the L2 cache when they are
//! rendered. The memory for bands does not depend on the height of the image.

use std::ops::Range;

use arrayvec::ArrayVec;

use super::compact::CompactCoefficients;
use super::entropy::{ImageSlot, LaneDecoder};
use super::header::Coding;
use super::jpeg::Jpeg;
use super::kernels::{Backend, Kernels};
use super::layout::{Layout, MAX_COMPONENTS, Window};
use super::rows::{Blocks, RenderContext, RowConverter};
use super::segments::{self, Segment};
use crate::error::resize;
use crate::pixels::Rect;

/// Maximum number of coefficient blocks per band, unless a single MCU row has more. They take 256
/// KiB and stay in the L2 cache until the band is rendered.
const BAND_BLOCKS: u32 = 2048;
/// Like [`BAND_BLOCKS`], for an image with segments longer than an MCU row. The limit is lower
/// because several such images are decoded at the same time.
const LONG_SEGMENT_BAND_BLOCKS: u32 = 128;
/// Number of bands that are decoded at the same time. With two, lanes have work while the last
/// pieces of a band are being decoded.
const BAND_COUNT: usize = 2;

#[derive(Default)]
pub(crate) struct LaneImage {
    plan: Option<LanePlan>,
    segments: Vec<Segment>,
    bands: [Band; BAND_COUNT],
    oldest_band: usize,
    filling_band: usize,
    next_row: u32,
    next_segment: usize,
    resume_point: ResumePoint,
    row_converter: RowConverter,
}

struct LanePlan {
    layout: Layout,
    window: Window,
    quant: [[u16; 64]; MAX_COMPONENTS],
    pattern: usize,
    slot: ImageSlot,
    band_rows: u32,
}

/// Where to resume a segment that was split at the end of a band.
#[derive(Debug, Clone, Copy, Default)]
struct ResumePoint {
    bit: usize,
    dc: [i32; MAX_COMPONENTS],
}

#[derive(Debug, Default)]
struct Band {
    rows: Range<u32>,
    pieces: Vec<Piece>,
    issued_pieces: usize,
    finished_pieces: usize,
    /// For each MCU in the window's columns, the offset of its first coefficient.
    offsets: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    segment: usize,
    first_mcu: u32,
    mcu_count: u32,
    first_block: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct LanePiece {
    band: usize,
    piece: usize,
    dc: [i32; MAX_COMPONENTS],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BeginError {
    /// Other images currently use too many links. The image can be decoded later.
    Busy,
    /// The image is progressive, damaged or unusual, or memory ran out. It needs the plain decoder.
    NeedsPlainDecoder,
}

/// Returns the initial size of the stream buffer. Segments contain `needed_mcus` of the image's
/// `image_mcus` MCUs, and the whole data has `bytes` bytes. A region of a large image needs only a
/// small part of the data, and allocating a buffer for all of it would take longer than decoding.
fn initial_capacity(bytes: usize, needed_mcus: u64, image_mcus: u64) -> usize {
    const BASE_CAPACITY: usize = 1 << 20;
    let share = (bytes as u64).saturating_mul(needed_mcus.min(image_mcus)) / image_mcus * 5 / 4;
    bytes.min(BASE_CAPACITY.saturating_add(share as usize))
}

fn is_in_order(jpeg: &Jpeg<'_>) -> bool {
    let components = jpeg.header.scan.components();
    components.iter().map(|c| usize::from(c.index)).eq(0..jpeg.layout.components().len())
}

fn acquire_pattern(lane_decoder: &mut LaneDecoder, jpeg: &Jpeg<'_>) -> Result<usize, BeginError> {
    let Jpeg { bytes, header, layout, .. } = jpeg;
    let mut tables = ArrayVec::<_, MAX_COMPONENTS>::new();
    for component in header.scan.components() {
        let dc = header.huffman(bytes, false, component.dc_table).map_err(|_| BeginError::NeedsPlainDecoder)?;
        let ac = header.huffman(bytes, true, component.ac_table).map_err(|_| BeginError::NeedsPlainDecoder)?;
        tables.push((dc, ac));
    }
    let mut specs = ArrayVec::<_, 10>::new();
    for (component, (dc, ac)) in layout.components().iter().zip(&tables) {
        for _ in 0..component.h * component.v {
            specs.try_push((dc, ac)).map_err(|_| BeginError::NeedsPlainDecoder)?;
        }
    }
    lane_decoder.acquire_pattern(&specs).map_err(|_| BeginError::NeedsPlainDecoder)?.ok_or(BeginError::Busy)
}

impl LaneImage {
    /// Finds the segments that `region` of the stored image needs, and copies their data.
    /// `max_coefficient_bytes` is the maximum number of bytes for the coefficients that are stored,
    /// or 0 to store none.
    pub(crate) fn begin(
        &mut self,
        lane_decoder: &mut LaneDecoder,
        backend: Backend,
        jpeg: &Jpeg<'_>,
        region: Rect,
        max_coefficient_bytes: usize,
    ) -> Result<(), BeginError> {
        let Jpeg { bytes, header, layout, .. } = jpeg;
        let (frame, scan) = (&header.frame, &header.scan);
        if frame.coding == Coding::Progressive || !is_in_order(jpeg) || layout.blocks_per_mcu > 10 {
            return Err(BeginError::NeedsPlainDecoder);
        }
        let mut quant = [[0; 64]; MAX_COMPONENTS];
        for (quant, component) in quant.iter_mut().zip(frame.components()) {
            *quant = header.quant(bytes, component.quant_index).ok_or(BeginError::NeedsPlainDecoder)?;
        }
        let window = Window::new(layout, region);
        let data = &bytes[scan.data_offset..];
        segments::list_needed(layout, &window, header.restart_interval, data.len(), &mut self.segments)
            .ok_or(BeginError::NeedsPlainDecoder)?;

        // Each piece of a band is followed by slack. A band contains at most one piece per
        // interval, plus one for a split segment.
        let row_blocks = layout.mcus_per_row * layout.blocks_per_mcu;
        let interval = if header.restart_interval == 0 { u32::MAX } else { header.restart_interval };
        let target_band_blocks = if interval <= layout.mcus_per_row { BAND_BLOCKS } else { LONG_SEGMENT_BAND_BLOCKS };
        let band_rows = (target_band_blocks / row_blocks).clamp(1, window.rows.end);
        let piece_count = (band_rows * layout.mcus_per_row).div_ceil(interval) as usize + 1;
        let band_blocks = (band_rows * row_blocks) as usize + piece_count * LaneDecoder::blocks_to_reserve(0);

        let pattern = acquire_pattern(lane_decoder, jpeg)?;
        let Some((slot, is_collected)) = self.collect(lane_decoder, backend, jpeg, BAND_COUNT * band_blocks) else {
            lane_decoder.release_pattern(pattern);
            return Err(BeginError::NeedsPlainDecoder);
        };
        // A block takes at least two bits: one for its DC coefficient and one for its end. Without
        // this check, a few bytes could expand to a large image.
        let has_enough_bytes = |s: &Segment| s.bytes.len() * 4 >= s.mcus.len() * layout.blocks_per_mcu as usize;
        let is_valid = is_collected && self.segments.iter().all(has_enough_bytes);
        self.row_converter.begin(layout, &window, if is_valid { max_coefficient_bytes } else { 0 });
        self.next_row = self.segments[0].mcus.start / layout.mcus_per_row;
        (self.oldest_band, self.filling_band, self.next_segment) = (0, 0, 0);
        for band in &mut self.bands {
            band.clear();
        }
        self.plan = Some(LanePlan { layout: layout.clone(), window, quant, pattern, slot, band_rows });
        if !is_valid {
            self.end(lane_decoder);
            return Err(BeginError::NeedsPlainDecoder);
        }
        self.fill_band();
        Ok(())
    }

    /// Reserves memory and copies the data of the segments to it. Returns the memory and whether
    /// the data could be read, or `None` if an allocation fails.
    fn collect(
        &mut self,
        lane_decoder: &mut LaneDecoder,
        backend: Backend,
        jpeg: &Jpeg<'_>,
        blocks: usize,
    ) -> Option<(ImageSlot, bool)> {
        let Jpeg { bytes, header, layout, .. } = jpeg;
        let (data, mcus) = (&bytes[header.scan.data_offset..], layout.mcus_per_row * layout.mcu_rows);
        let interval = if header.restart_interval == 0 { mcus } else { header.restart_interval };
        let mut capacity = initial_capacity(data.len(), self.segments.len() as u64 * u64::from(interval), mcus.into());
        loop {
            let slot = lane_decoder.reserve_slot(capacity, blocks)?;
            let (lengths, stream) = (header.lengths(bytes, mcus), lane_decoder.stream(&slot));
            match segments::collect(data, lengths, &mut self.segments, stream, backend.unstuff()) {
                Err(segments::CollectError::BufferFull) if capacity < data.len() => lane_decoder.free_slot(slot),
                result => return Some((slot, result.is_ok())),
            }
            capacity = capacity.saturating_mul(2).min(data.len());
        }
    }

    pub(crate) fn take_coefficients(&mut self) -> Option<CompactCoefficients> {
        self.row_converter.take_coefficients(&self.plan.as_ref()?.quant)
    }

    /// Frees the image's memory in `lane_decoder`. None of the image's lanes may be busy.
    pub(crate) fn end(&mut self, lane_decoder: &mut LaneDecoder) {
        if let Some(plan) = self.plan.take() {
            lane_decoder.release_pattern(plan.pattern);
            lane_decoder.free_slot(plan.slot);
        }
    }

    fn fill_band(&mut self) {
        let plan = self.plan.as_ref().expect("an image was started");
        let (mcus_per_row, blocks) = (plan.layout.mcus_per_row, plan.layout.blocks_per_mcu);
        let band = &mut self.bands[self.filling_band];
        let rows = self.next_row..(self.next_row + plan.band_rows).min(plan.window.rows.end);
        let mcus = rows.start * mcus_per_row..rows.end * mcus_per_row;
        let columns = plan.window.columns.clone();
        let visible_rows = plan.window.rows.start.max(rows.start)..rows.end;
        band.clear();
        resize(&mut band.offsets, rows.len() * columns.len(), 0);
        let band_blocks = plan.slot.blocks.len() / BAND_COUNT;
        let mut block = plan.slot.blocks.start + self.filling_band * band_blocks;
        for (i, segment) in self.segments.iter().enumerate().skip(self.next_segment) {
            let first_mcu = segment.mcus.start.max(mcus.start);
            if first_mcu >= mcus.end {
                break;
            }
            let end_mcu = segment.mcus.end.min(mcus.end);
            if segment.mcus.end <= mcus.end {
                self.next_segment = i + 1;
            }
            if first_mcu >= end_mcu {
                continue;
            }
            band.pieces.push(Piece { segment: i, first_mcu, mcu_count: end_mcu - first_mcu, first_block: block });
            for row in (first_mcu / mcus_per_row).max(visible_rows.start)..=((end_mcu - 1) / mcus_per_row) {
                let visible = (row * mcus_per_row + columns.start).max(first_mcu)
                    ..(row * mcus_per_row + columns.end).min(end_mcu);
                for mcu in visible {
                    let index = (row - rows.start) as usize * columns.len()
                        + (mcu - row * mcus_per_row - columns.start) as usize;
                    band.offsets[index] = ((block + ((mcu - first_mcu) * blocks) as usize) * 64) as u32;
                }
            }
            block += LaneDecoder::blocks_to_reserve(((end_mcu - first_mcu) * blocks) as usize);
        }
        self.next_row = rows.end;
        band.rows = rows;
    }

    pub(crate) fn start_piece(&mut self, lane_decoder: &mut LaneDecoder) -> Option<LanePiece> {
        let plan = self.plan.as_ref()?;
        if self.bands[self.filling_band].issued_pieces == self.bands[self.filling_band].pieces.len() {
            let next_band = (self.filling_band + 1) % BAND_COUNT;
            if self.next_row >= plan.window.rows.end || !self.bands[next_band].pieces.is_empty() {
                return None;
            }
            self.filling_band = next_band;
            self.fill_band();
        }
        let plan = self.plan.as_ref()?;
        let (band, previous_band) =
            (&self.bands[self.filling_band], &self.bands[(self.filling_band + BAND_COUNT - 1) % BAND_COUNT]);
        let (index, piece) = (band.issued_pieces, *band.pieces.get(band.issued_pieces)?);
        let segment = &self.segments[piece.segment];
        let ResumePoint { bit, dc } = if piece.first_mcu == segment.mcus.start {
            ResumePoint { bit: (plan.slot.stream.start + segment.bytes.start) * 8, dc: [0; MAX_COMPONENTS] }
        } else if previous_band.finished_pieces < previous_band.issued_pieces {
            // The segment's piece in the previous band is still being decoded.
            return None;
        } else {
            self.resume_point
        };
        lane_decoder.start_lane(
            bit,
            piece.first_block,
            (piece.mcu_count * plan.layout.blocks_per_mcu) as usize,
            plan.pattern,
        );
        self.bands[self.filling_band].issued_pieces += 1;
        Some(LanePiece { band: self.filling_band, piece: index, dc })
    }

    /// Ends the lane of a piece, which stopped at `bit`. Returns `None` if the data is damaged,
    /// that is, if the lane read past the end of its segment or at least a whole byte follows the
    /// last MCU.
    pub(crate) fn finish_piece(
        &mut self,
        lane_decoder: &mut LaneDecoder,
        lane_piece: LanePiece,
        bit: usize,
    ) -> Option<()> {
        let plan = self.plan.as_ref()?;
        let band = &mut self.bands[lane_piece.band];
        band.finished_pieces += 1;
        let piece = band.pieces[lane_piece.piece];
        let segment = &self.segments[piece.segment];
        let unread_bits = ((plan.slot.stream.start + segment.bytes.end) * 8).checked_sub(bit)?;
        let is_split = piece.first_mcu + piece.mcu_count < segment.mcus.end;
        if !is_split && !segment.may_leave(unread_bits) {
            return None;
        }
        // The stream contains differences of DC coefficients, so add them up.
        let mut dc = lane_piece.dc;
        let mut block = piece.first_block;
        for _ in 0..piece.mcu_count {
            for (dc, component) in dc.iter_mut().zip(plan.layout.components()) {
                for _ in 0..component.h * component.v {
                    let value = lane_decoder.dc(block);
                    *dc = dc.wrapping_add(i32::from(*value));
                    *value = *dc as i16;
                    block += 1;
                }
            }
        }
        if is_split {
            self.resume_point = ResumePoint { bit, dc };
        }
        Some(())
    }

    /// Renders the bands that are decoded completely. Returns whether the image is complete.
    pub(crate) fn render(&mut self, lane_decoder: &LaneDecoder, kernels: &Kernels, rgb: &mut [u8]) -> bool {
        let Some(plan) = &self.plan else { return true };
        let context = RenderContext { kernels, layout: &plan.layout, window: &plan.window, quant: &plan.quant };
        while !self.bands[self.oldest_band].pieces.is_empty() {
            let band = &mut self.bands[self.oldest_band];
            if band.finished_pieces < band.pieces.len() {
                return false;
            }
            let mut blocks = BandBlocks { plan, band, coefficients: lane_decoder.coefficients() };
            for row in band.rows.start.max(plan.window.rows.start)..band.rows.end {
                self.row_converter.convert_mcu_row(&context, row, &mut blocks, rgb);
            }
            let end_row = band.rows.end;
            self.bands[self.oldest_band].clear();
            self.oldest_band = (self.oldest_band + 1) % BAND_COUNT;
            if end_row >= plan.window.rows.end {
                return true;
            }
        }
        false
    }
}

impl Band {
    fn clear(&mut self) {
        self.pieces.clear();
        self.offsets.clear();
        (self.issued_pieces, self.finished_pieces) = (0, 0);
    }
}

struct BandBlocks<'a> {
    plan: &'a LanePlan,
    band: &'a Band,
    coefficients: &'a [i16],
}

impl Blocks for BandBlocks<'_> {
    const IS_ZIGZAG: bool = true;

    fn locate(&mut self, index: usize, row: u32, columns: Range<u32>, offsets: &mut Vec<u32>) -> &[i16] {
        let component = self.plan.layout.components()[index];
        let window = &self.plan.window.columns;
        let mcus =
            &self.band.offsets[(row / component.v - self.band.rows.start) as usize * window.len()..][..window.len()];
        let block_offset = (component.first_block + row % component.v * component.h) * 64;
        let first_mcu = columns.start / component.h;
        if component.h == 1 {
            let mcus = &mcus[(first_mcu - window.start) as usize..][..columns.len()];
            offsets.extend(mcus.iter().map(|&mcu| mcu + block_offset));
        } else {
            for (&mcu, index) in
                mcus[(first_mcu - window.start) as usize..].iter().zip(first_mcu..(columns.end - 1) / component.h + 1)
            {
                let columns_of_mcu =
                    (index * component.h).max(columns.start)..((index + 1) * component.h).min(columns.end);
                offsets.extend(columns_of_mcu.map(|column| mcu + block_offset + (column - index * component.h) * 64));
            }
        }
        self.coefficients
    }
}
