use crate::batch::Largest;
use crate::decode::Grid;
use crate::transform::Plan;

/// What the decode kernels do to one sample: one record a sample, copied to the device with its
/// batch.
///
/// A record of zeros leaves the sample as it is: its pixels crossed the bus. The bytes of a record
/// are those of `DecodeOps` in `kernels/jpeg.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeOps([u32; Self::BYTES / 4]);

/// Where a picture's part lies, in the batch's encoded bytes and among the coefficients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Encoded {
    /// Its place in the batch.
    pub(crate) place: usize,
    /// First byte, a multiple of 16, and the number of bytes.
    pub(crate) at: usize,
    pub(crate) bytes: usize,
    /// Its first block of coefficients.
    pub(crate) block: usize,
}

impl DecodeOps {
    /// Bytes of a record.
    pub const BYTES: usize = 256;
    /// Bytes of the coefficients of a block.
    pub const COEFFICIENT_BYTES: usize = 128;
    /// Bytes of the samples of a block.
    pub const PLANE_BYTES: usize = 64;
    /// Bytes of a fault: a `u32`, which is not 0 if the picture is damaged.
    pub const FAULT_BYTES: usize = 4;
    /// Bytes behind a picture's encoded bytes that the kernels may read.
    pub(crate) const SLACK: usize = 32;
    /// The most source pixels that an output pixel is made of, across or down: `MOST_TAPS` in
    /// `kernels/jpeg.cu`.
    pub const MOST_TAPS: usize = 32;
    /// The widest region in pixels: 4 bytes for each lie in 48 KiB of shared memory, beside the
    /// weights of some rows.
    pub const MOST_COLUMNS: u32 = 11 << 10;

    /// Bytes that the resize filter of a sample takes, for outputs of (`height`, `width`):
    /// `axis_bytes` in `kernels/jpeg.cu`.
    pub fn axes_bytes(height: usize, width: usize) -> usize {
        let axis = |n: usize| (16 + n * (8 + Self::MOST_TAPS * 2)).next_multiple_of(16);
        axis(height) + axis(width)
    }

    /// Bytes that the Huffman tables of a sample take, as the kernels look codes up: `Built` in
    /// `kernels/jpeg.cu`.
    pub const TABLES_BYTES: usize = 38_192;

    /// Bytes of the arena that are a piece of a long segment: `LINE` in `kernels/jpeg.cu`.
    pub(crate) const LINE: usize = 256;

    /// Bytes of scratch in which the kernels note where the pieces of an arena begin: an eighth of
    /// the arena. `Start` in `kernels/jpeg.cu` has 32 bytes.
    pub fn starts_bytes(arena: usize) -> usize {
        (arena / Self::LINE + 1) * 32
    }

    /// Leaves the sample as it is.
    pub(crate) const NOTHING: DecodeOps = DecodeOps([0; Self::BYTES / 4]);

    /// Whether the kernels make what `plan` says.
    pub(crate) fn takes(plan: &Plan) -> bool {
        let Some((across, down)) = plan.filter() else { return false };
        let taps = |(start, end): (f64, f64), outputs: u32| 2.0 * ((end - start) / f64::from(outputs)).ceil() + 1.0;
        plan.target.fits(plan.output)
            && plan.region.width <= Self::MOST_COLUMNS
            && taps(across, plan.target.width) <= Self::MOST_TAPS as f64
            && taps(down, plan.target.height) <= Self::MOST_TAPS as f64
    }

    /// Decodes the part of a picture that `grid` describes, and makes of it what `plan` says, which
    /// the kernels [take](DecodeOps::takes). `None` if its bytes or coefficients lie farther than a
    /// record counts: 2^32 of them.
    pub(crate) fn new(grid: &Grid, plan: &Plan, encoded: Encoded) -> Option<Self> {
        let Encoded { place, at, bytes, block } = encoded;
        let kept = grid.kept_blocks();
        u32::try_from(at.checked_add(bytes)?).ok()?;
        u32::try_from(block.checked_add(kept)?).ok()?;
        let mut words = [0; Self::BYTES / 4];
        let mut put = |at: usize, values: &[u32]| words[at..at + values.len()].copy_from_slice(values);
        let Grid { segments, mcus_across, first, mcus, blocks, colour, tables, parts, .. } = grid;
        put(0, &[1, *segments, at as u32, bytes as u32, block as u32, *mcus_across]);
        put(6, &[first.0, mcus.0, first.1, mcus.1, *blocks, *colour, parts.len() as u32, *tables]);
        put(14, &[place as u32, kept as u32]);
        for (i, part) in parts.iter().enumerate() {
            let (width, height) = part.size;
            let words = [part.h, part.v, part.first, part.across, part.down, part.upsampling, width, height];
            put(16 + 8 * i, &words);
            put(40 + i, &[part.dc | part.ac << 8]);
        }
        put(43, &[grid.longest]);
        let (region, shown) = (plan.region, plan.shown());
        put(44, &[region.x, region.y, region.width, region.height]);
        put(48, &[shown.x, shown.y, shown.width, shown.height]);
        put(
            52,
            &[
                plan.flip.into(),
                plan.vertical_flip.into(),
                u32::from_le_bytes([plan.fill[0], plan.fill[1], plan.fill[2], 0]),
            ],
        );
        let (across, down) = plan.filter().unwrap_or_default();
        for (i, edge) in [across.0, across.1, down.0, down.1].into_iter().enumerate() {
            let bits = edge.to_bits();
            put(56 + 2 * i, &[bits as u32, (bits >> 32) as u32]);
        }
        Some(DecodeOps(words))
    }

    /// Reads a record.
    pub(crate) fn read(from: &[u8; Self::BYTES]) -> Self {
        let mut words = [0; Self::BYTES / 4];
        for (word, bytes) in words.iter_mut().zip(from.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        DecodeOps(words)
    }

    /// Writes the record as the kernels read it.
    pub(crate) fn write(&self, to: &mut [u8; Self::BYTES]) {
        for (to, word) in to.as_chunks_mut().0.iter_mut().zip(self.0) {
            *to = word.to_le_bytes();
        }
    }

    /// Whether there is something to decode.
    pub(crate) fn decodes(&self) -> bool {
        self.0[0] != 0
    }

    /// Its number of segments.
    pub(crate) fn segments(&self) -> u32 {
        self.0[1]
    }

    /// Bytes of the longest of them.
    #[cfg(all(test, feature = "cuda"))]
    pub(crate) fn longest(&self) -> u32 {
        self.0[43]
    }

    /// Its blocks of coefficients.
    #[cfg(all(test, feature = "cuda"))]
    pub(crate) fn blocks(&self) -> usize {
        self.0[15] as usize
    }

    /// One past its last block of coefficients.
    pub(crate) fn blocks_end(&self) -> usize {
        self.0[4] as usize + self.0[15] as usize
    }

    /// The place in the batch that it was written for. It stands at another one if the sample there
    /// failed and this one stands in.
    #[cfg(feature = "cuda")]
    pub(crate) fn place(&self) -> usize {
        self.0[14] as usize
    }

    /// Columns of the region.
    pub(crate) fn columns(&self) -> u32 {
        self.0[46]
    }

    /// Maxima over `records`; `None` if no picture is decoded.
    pub(crate) fn largest(records: &[u8]) -> Option<Largest> {
        let records = records.as_chunks().0.iter().map(DecodeOps::read).filter(DecodeOps::decodes);
        records.fold(None, |largest, ops| {
            let Largest { segments, columns, blocks } = largest.unwrap_or_default();
            Some(Largest {
                segments: segments.max(ops.segments()),
                columns: columns.max(ops.columns()),
                blocks: blocks.max(ops.blocks_end()),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Bitstream, Rect, Size, standard};

    #[test]
    fn a_record_that_cannot_name_its_place_is_refused() {
        let mut jpeg = Vec::new();
        jpeg_encoder::Encoder::new(&mut jpeg, 80).encode(&[90; 192], 8, 8, jpeg_encoder::ColorType::Rgb).unwrap();
        let (size, mut stream) = (Size::new(8, 8), Bitstream::default());
        let grid = standard().open(&jpeg).unwrap().bitstream(Rect::full(size), usize::MAX, &mut stream).unwrap();
        let plan = Plan::resized_crop(size, Rect::full(size), size, Rect::full(size));
        let record = |at, block| DecodeOps::new(&grid, &plan, Encoded { place: 0, at, bytes: stream.len(), block });
        // An arena of 4 GiB, and as many blocks.
        let end = u32::MAX as usize + 1;
        assert!(record(end - 16, 0).is_none() && record(end, 0).is_none() && record(0, end).is_none());
        let last = record(end - 16 - stream.len().next_multiple_of(16), 7).unwrap();
        assert_eq!((last.0[2] as usize, last.0[4]), (end - 16 - stream.len().next_multiple_of(16), 7));
    }
}
