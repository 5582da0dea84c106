use crate::batch::Largest;
use crate::decode::{Grid, Rect};
use crate::transform::{Border, Interpolation, Plan, Record, record};

record! {
    /// One component on the grid of MCUs.
    pub(crate) struct Component {
        /// Blocks in an MCU, across and down.
        h: u32,
        v: u32,
        /// Index of its first block in an MCU.
        first: u32,
        /// Pixels per sample.
        across: u32,
        down: u32,
        /// 0 is none, 1 twice across, 2 twice down, 3 both. 4 repeats samples.
        upsampling: u32,
        /// Samples that hold pixels of the image.
        width: u32,
        height: u32,
    }
}

record! {
    /// Work of the decode kernels on one sample: one record per sample, copied to the device with
    /// its batch. A record of zeros leaves the sample unchanged, because its pixels crossed the
    /// bus.
    pub struct DecodeOps align 16 {
        /// 0: the pixels are in place.
        kind: u32,
        segments: u32,
        /// Offset and size of the head and the data in the arena, in bytes.
        at: u32,
        bytes: u32,
        /// The sample's first block in the scratch of coefficients and of planes.
        block: u32,
        /// MCUs in a row of the whole image.
        mcus: u32,
        /// The window, in MCUs.
        column: u32,
        columns: u32,
        row: u32,
        rows: u32,
        /// Blocks in an MCU.
        blocks: u32,
        /// 0 is gray, 1 YCbCr, 2 RGB.
        color: u32,
        /// Number of parts.
        count: u32,
        /// Huffman tables in the head.
        tables: u32,
        /// Place in the batch for which the record was written. A copy of the record keeps it.
        place: u32,
        /// Number of blocks in the window.
        kept: u32,
        parts: [Component; 3],
        /// DC table of each part, plus 256 times its AC table.
        choice: [u32; 3],
        /// Bytes of the longest segment.
        longest: u32,
        /// The part of the image that the resize may read: its corner in the stored image, and
        /// its size in the upright image.
        region: Rect,
        /// The part of the output that shows the image, after flips.
        shown: Rect,
        mirrored: u32,
        flipped: u32,
        /// Color of the rest of the output: red, plus 2^8 times green, plus 2^16 times blue.
        fill: u32,
        /// Steps from the stored image to the upright one: TRANSPOSED, MIRRORED and FLIPPED.
        turned: u32,
        /// The part of the region that becomes the output: start and end.
        across: [f64; 2],
        down: [f64; 2],
    }
}

/// Place of an image's data in the batch's encoded bytes and among the coefficients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Encoded {
    /// The image's place in the batch.
    pub(crate) place: usize,
    /// Offset of the first byte, a multiple of 16, and number of bytes.
    pub(crate) at: usize,
    pub(crate) bytes: usize,
    /// The image's first block of coefficients.
    pub(crate) block: usize,
}

impl DecodeOps {
    /// Bytes of a record.
    pub const BYTES: usize = 4 * Self::WORDS;
    /// Bytes of the coefficients of a block.
    pub const COEFFICIENT_BYTES: usize = 128;
    /// Bytes of the samples of a block.
    pub const PLANE_BYTES: usize = 64;
    /// Bytes of a fault: a `u32`, which is not 0 if the image is damaged.
    pub const FAULT_BYTES: usize = 4;
    /// Bytes after an image's encoded bytes that the kernels may read.
    pub(crate) const SLACK: usize = 32;
    /// Maximum number of source pixels per output pixel, across or down: `MOST_TAPS` in
    /// `kernels/jpeg.cu`.
    pub const MOST_TAPS: usize = 32;
    /// Largest width of a region in pixels. Each takes 4 bytes of 48 KiB of shared memory, which
    /// also holds the weights of some rows.
    pub const MOST_COLUMNS: u32 = 11 << 10;

    /// Bytes per sample for its resize filter and its record for the resize, for outputs of
    /// (`height`, `width`): `axis_of` in `kernels/jpeg.cu`.
    pub fn axes_bytes(height: usize, width: usize) -> usize {
        let axis = |n: usize| (16 + n * (8 + Self::MOST_TAPS * 2)).next_multiple_of(16);
        Self::BYTES + axis(height) + axis(width)
    }

    /// Bytes per sample of the Huffman tables in the form that the kernels use: `Built` in
    /// `kernels/jpeg.cu`.
    pub const TABLES_BYTES: usize = 42_288;

    /// Bytes per line of the arena: `LINE` in `kernels/jpeg.cu`.
    pub(crate) const LINE: usize = 256;

    /// Bytes of a segment from which on its lines are decoded in parallel: `WORTH` in
    /// `kernels/jpeg.cu`.
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) const WORTH: usize = 2048;

    /// Bytes of scratch for the starts of the pieces of an arena: 32 for each line of the arena and
    /// for its end. This is the size of `Start` in `kernels/jpeg.cu`.
    pub fn starts_bytes(arena: usize) -> usize {
        (arena / Self::LINE + 1) * 32
    }

    /// Whether the kernels support `plan`.
    pub(crate) fn takes(plan: &Plan) -> bool {
        let Some((across, down)) = plan.filter() else { return false };
        let taps = |(start, end): (f64, f64), outputs: u32| 2.0 * ((end - start) / f64::from(outputs)).ceil() + 1.0;
        let border = plan.border == Border::Constant || plan.target.size() == plan.output;
        plan.target.fits(plan.output)
            && border
            && plan.interpolation == Interpolation::Bilinear
            && plan.antialias
            && plan.region.width <= Self::MOST_COLUMNS
            && taps(across, plan.target.width) <= Self::MOST_TAPS as f64
            && taps(down, plan.target.height) <= Self::MOST_TAPS as f64
    }

    /// Creates the record that decodes the part of an image that `grid` describes, and transforms
    /// it as `plan` says, which the kernels must [support](DecodeOps::takes). `None` if an offset
    /// of its bytes or coefficients does not fit into 32 bits.
    pub(crate) fn new(grid: &Grid, plan: &Plan, encoded: Encoded) -> Option<Self> {
        let Encoded { place, at, bytes, block } = encoded;
        let kept = grid.kept_blocks();
        u32::try_from(at.checked_add(bytes)?).ok()?;
        u32::try_from(block.checked_add(kept)?).ok()?;
        let (across, down) = plan.filter().unwrap_or_default();
        let mut ops = DecodeOps {
            kind: 1,
            segments: grid.segments,
            at: at as u32,
            bytes: bytes as u32,
            block: block as u32,
            mcus: grid.mcus_across,
            column: grid.first.0,
            columns: grid.mcus.0,
            row: grid.first.1,
            rows: grid.mcus.1,
            blocks: grid.blocks,
            color: grid.color,
            count: grid.parts().len() as u32,
            tables: grid.tables,
            place: place as u32,
            kept: kept as u32,
            longest: grid.longest,
            region: Rect { x: grid.corner.0, y: grid.corner.1, ..plan.region },
            shown: plan.shown(),
            mirrored: plan.flip.into(),
            flipped: plan.vertical_flip.into(),
            fill: u32::from_le_bytes([plan.fill[0], plan.fill[1], plan.fill[2], 0]),
            turned: grid.turned,
            across: across.into(),
            down: down.into(),
            ..Self::nothing()
        };
        for (i, part) in grid.parts().iter().enumerate() {
            ops.parts[i] = Component {
                h: part.h,
                v: part.v,
                first: part.first,
                across: part.across,
                down: part.down,
                upsampling: part.upsampling,
                width: part.size.0,
                height: part.size.1,
            };
            ops.choice[i] = part.dc | part.ac << 8;
        }
        Some(ops)
    }

    /// A record that leaves the sample unchanged.
    pub(crate) fn nothing() -> Self {
        Self::take(&[0; Self::WORDS])
    }

    /// Reads a record.
    pub(crate) fn read(from: &[u8; Self::BYTES]) -> Self {
        let mut words = [0; Self::WORDS];
        for (word, bytes) in words.iter_mut().zip(from.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Self::take(&words)
    }

    /// Writes the record as the kernels read it.
    pub(crate) fn write(&self, to: &mut [u8; Self::BYTES]) {
        let mut words = [0; Self::WORDS];
        self.put(&mut words);
        for (to, word) in to.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
    }

    /// Whether there is something to decode.
    pub(crate) fn decodes(&self) -> bool {
        self.kind != 0
    }

    pub(crate) fn segments(&self) -> u32 {
        self.segments
    }

    /// Bytes of the longest segment.
    pub(crate) fn longest(&self) -> u32 {
        self.longest
    }

    /// Number of blocks of coefficients.
    #[cfg(all(test, feature = "_device"))]
    pub(crate) fn blocks(&self) -> usize {
        self.kept as usize
    }

    /// One past the last block of coefficients.
    pub(crate) fn blocks_end(&self) -> usize {
        self.block as usize + self.kept as usize
    }

    /// The place in the batch for which the record was written. The record is at another place if
    /// it was copied there to replace a failed sample.
    pub(crate) fn place(&self) -> usize {
        self.place as usize
    }

    /// Columns of the region.
    pub(crate) fn columns(&self) -> u32 {
        self.region.width
    }

    /// Whether the image is turned upright.
    pub(crate) fn is_turned(&self) -> bool {
        self.turned != 0
    }

    /// Maxima over `records`, or `None` if no image is decoded.
    pub(crate) fn largest(records: &[u8]) -> Option<Largest> {
        let records = records.as_chunks().0.iter().map(DecodeOps::read).enumerate();
        records.filter(|(_, ops)| ops.decodes()).fold(None, |largest, (place, ops)| {
            let Largest { segments, longest, columns, blocks, turned, copied } = largest.unwrap_or_default();
            Some(Largest {
                segments: segments.max(ops.segments()),
                longest: longest.max(ops.longest()),
                columns: columns.max(ops.columns()),
                blocks: blocks.max(ops.blocks_end()),
                turned: turned || ops.is_turned(),
                copied: copied || ops.place() != place,
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
        // An arena of 4 GiB, and the same number of blocks.
        let end = u32::MAX as usize + 1;
        assert!(record(end - 16, 0).is_none() && record(end, 0).is_none() && record(0, end).is_none());
        let last = record(end - 16 - stream.len().next_multiple_of(16), 7).unwrap();
        assert_eq!((last.at as usize, last.block), (end - 16 - stream.len().next_multiple_of(16), 7));
    }

    /// A copy needs what the decoding of another sample writes.
    #[test]
    fn a_record_that_is_a_copy_is_told_from_one_that_is_not() {
        let records = |places: &[u32]| -> Vec<u8> {
            let record = |&place: &u32| {
                let mut bytes = [0; DecodeOps::BYTES];
                DecodeOps { kind: 1, place, ..DecodeOps::nothing() }.write(&mut bytes);
                bytes
            };
            places.iter().flat_map(record).collect()
        };
        assert!(!DecodeOps::largest(&records(&[0, 1, 2])).unwrap().copied);
        assert!(DecodeOps::largest(&records(&[0, 1, 0])).unwrap().copied);
        assert!(DecodeOps::largest(&records(&[1, 1])).unwrap().copied);
        // A record that decodes nothing has no place.
        let mut left = records(&[0]);
        left.extend([0; DecodeOps::BYTES]);
        left.extend(records(&[2]));
        assert!(!DecodeOps::largest(&left).unwrap().copied);
    }
}
