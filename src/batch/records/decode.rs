//! Records that tell a device how to decode and resize each image.

#[cfg(feature = "video")]
use super::YuvRegion;
use crate::batch::LaunchStats;
#[cfg(any(feature = "video", test))]
use crate::decode::Size;
use crate::decode::{Grid, Rect};
use crate::transform::{Border, Interpolation, Plan, Record, record};

record! {
    /// Layout of one color component in the MCUs of an image.
    pub(crate) struct Component {
        /// Number of blocks across an MCU.
        h: u32,
        /// Number of blocks down an MCU.
        v: u32,
        /// Index of the component's first block within an MCU.
        first: u32,
        /// Horizontal distance between adjacent samples of the component, in pixels of the image.
        across: u32,
        /// Vertical distance between adjacent samples of the component, in pixels of the image.
        down: u32,
        /// Kind of upsampling. 0: none; 1: 2x horizontal; 2: 2x vertical; 3: 2x in both directions;
        /// 4: any factor, by repeating samples.
        upsampling: u32,
        /// Number of columns of component samples that belong to the image.
        width: u32,
        /// Number of rows of component samples that belong to the image.
        height: u32,
    }
}

record! {
    /// Instructions for decoding and resizing one image. There is one record per image. The records
    /// are copied to the device together with the batch. If a record is all zeros, the host writes
    /// the image, and the kernels skip it.
    pub struct DecodeOps align 16 {
        /// Task of the kernels: JPEG to decode a JPEG, YUV to convert a video frame, or 0 to skip
        /// the image.
        kind: u32,
        /// Number of segments into which restart markers divide the data of a JPEG; 0 for a video
        /// frame.
        segments: u32,
        /// Byte offset of the image's data in the arena. The data of a JPEG starts with the
        /// decoding tables, and the data of a video frame with a `YuvHead`.
        at: u32,
        /// Size of the image's data in the arena, in bytes.
        bytes: u32,
        /// Index of the image's first block in the scratch memory. The memory for coefficients and
        /// the memory for planes use the same index.
        block: u32,
        /// Number of MCUs per row of the whole image.
        mcus: u32,
        /// First column of the decoded window, in MCUs.
        column: u32,
        /// Width of the window, in MCUs.
        columns: u32,
        /// First row of the window, in MCUs.
        row: u32,
        /// Height of the window, in MCUs.
        rows: u32,
        /// Number of blocks per MCU.
        blocks: u32,
        /// Color space. 0: gray, 1: YCbCr, 2: RGB.
        color: u32,
        /// Number of elements of `parts` that are used.
        count: u32,
        /// Number of Huffman tables in the image's data.
        tables: u32,
        /// Index, in the batch, of the image that the record was written for. If the image also
        /// replaces a failed sample, the copy of the record in the row of this sample has the same
        /// index.
        place: u32,
        /// Number of blocks of coefficients that the image uses in the scratch memory: all blocks
        /// of the window. For a video frame, enough blocks for the RGB pixels of the region.
        kept: u32,
        parts: [Component; 3],
        /// For each element of `parts`, the index of its DC table in bits 0 to 7, and the index of
        /// its AC table in bits 8 to 15.
        choice: [u32; 3],
        /// Size of the longest segment in bytes.
        longest: u32,
        /// Rectangle of the image that the resize may read. `width` and `height` are in pixels of
        /// the upright image. `x` and `y` are a position in the stored image. For a video frame,
        /// this position is relative to the first luma sample in the arena.
        region: Rect,
        /// Rectangle of the output that the source image covers. Its position already includes the
        /// flips.
        shown: Rect,
        mirrored: u32,
        flipped: u32,
        /// Color of the output outside `shown`, packed as 0x00BBGGRR.
        fill: u32,
        /// The steps that turn the stored image upright: any of TRANSPOSED, MIRRORED and FLIPPED.
        turned: u32,
        /// Range of columns, relative to the region, that is resized to the width of `shown`.
        across: [f64; 2],
        /// Range of rows, relative to the region, that is resized to the height of `shown`.
        down: [f64; 2],
    }
}

/// Location of an image's data in the arena, the buffer for the encoded data of all images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EncodedLocation {
    /// Index of the image in the batch: the row, or for a clip `row * frame count + frame`.
    pub(crate) image_index: usize,
    /// Offset in bytes, a multiple of 16.
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    /// Index of the image's first block in the scratch memory.
    pub(crate) block: usize,
}

impl DecodeOps {
    /// Size of a record in bytes.
    pub const BYTES: usize = 4 * Self::WORDS;
    pub(crate) const JPEG: u32 = 1;
    pub(crate) const YUV: u32 = 2;
    /// Size of the coefficients of one block in bytes.
    pub const COEFFICIENT_BYTES: usize = 128;
    /// Size of the samples of one block in bytes.
    pub const PLANE_BYTES: usize = 64;
    /// Size in bytes of an image's fault flag, a `u32` that is nonzero if the host must decode the
    /// image.
    pub const FAULT_BYTES: usize = 4;
    /// Number of bytes past the end of an image's data that the kernels may read.
    pub(crate) const SLACK: usize = 32;
    /// Maximum number of filter taps per output pixel and axis. Must equal `MAX_TAPS` in
    /// `kernels/jpeg.cu`.
    pub const MAX_TAPS: usize = 64;
    /// Maximum width of a region in pixels. Each column takes 4 bytes of the 48 KiB of shared
    /// memory. The remaining bytes are needed for filter weights.
    pub const MAX_COLUMNS: u32 = 43 << 8;

    /// Returns the size in bytes of the data with which the kernels resize one image to `height` x
    /// `width` pixels: a record, and the filter weights of both axes. See `axis_of` in
    /// `kernels/jpeg.cu`.
    pub fn axes_bytes(height: usize, width: usize) -> usize {
        let axis = |n: usize| (16 + n * (8 + Self::MAX_TAPS * 2)).next_multiple_of(16);
        Self::BYTES + axis(height) + axis(width)
    }

    /// Size of an image's Huffman tables in bytes. Must equal `sizeof(TableSet)` in
    /// `kernels/jpeg.cu`.
    pub const TABLES_BYTES: usize = 42_288;

    /// Long segments are divided into lines of this many bytes, which are decoded in parallel. Must
    /// equal `LINE_BYTES` in `kernels/jpeg.cu`.
    pub(crate) const LINE_BYTES: usize = 128;

    /// If the longest segment of an image has at least this many bytes, the kernels divide all
    /// segments of at least `LONG_SEGMENT_BYTES` bytes into lines. Must equal `MIN_SPLIT_BYTES` in
    /// `kernels/jpeg.cu`.
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) const MIN_SPLIT_BYTES: usize = 2048;

    /// Minimum encoded size, in bytes, of an image that may be divided among several rows of a
    /// kernel's grid.
    pub const LARGE_BYTES: usize = 256 << 10;
    /// Minimum number of blocks of an image that may be divided among several rows of a kernel's
    /// grid.
    pub const LARGE_BLOCKS: usize = 16 << 10;

    /// Returns the size in bytes of the scratch memory for decoder states, for an arena of `arena`
    /// bytes. There is one state for each complete line of the arena, and one more. Each state
    /// takes 32 bytes, the size of `Start` in `kernels/jpeg.cu`.
    pub fn starts_bytes(arena: usize) -> usize {
        (arena / Self::LINE_BYTES + 1) * 32
    }

    /// `bytes` starts with a record. Returns whether the kernels decode the image that this record
    /// describes.
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) fn is_for_device(bytes: &[u8]) -> bool {
        // The first word of a record is `kind`.
        bytes[..4] != [0; 4]
    }

    /// Returns whether the kernels can crop and resize an image according to `plan`.
    pub(crate) fn supports(plan: &Plan) -> bool {
        let Some((across, down)) = plan.source_spans() else { return false };
        let taps = |(start, end): (f64, f64), outputs: u32| 2.0 * ((end - start) / f64::from(outputs)).ceil() + 1.0;
        let is_border_supported = plan.border == Border::Constant || plan.target.size() == plan.output;
        plan.target.is_within(plan.output)
            && is_border_supported
            && plan.interpolation == Interpolation::Bilinear
            && plan.antialias
            && plan.region.width <= Self::MAX_COLUMNS
            && taps(across, plan.target.width) <= Self::MAX_TAPS as f64
            && taps(down, plan.target.height) <= Self::MAX_TAPS as f64
    }

    /// Creates a record that decodes the image described by `grid` and resizes it according to
    /// `plan`, which the kernels must [support](DecodeOps::supports). Returns `None` if an offset
    /// of the image's data or coefficients does not fit in 32 bits.
    pub(crate) fn new(grid: &Grid, plan: &Plan, encoded: EncodedLocation) -> Option<Self> {
        let mut ops = DecodeOps {
            kind: Self::JPEG,
            segments: grid.segment_count,
            mcus: grid.mcus_per_row,
            column: grid.first_mcu.0,
            columns: grid.needed_mcus.0,
            row: grid.first_mcu.1,
            rows: grid.needed_mcus.1,
            blocks: grid.blocks_per_mcu,
            color: grid.color_space,
            count: grid.components().len() as u32,
            tables: grid.huffman_table_count,
            longest: grid.max_segment_bytes,
            turned: grid.orientation_flags,
            ..Self::new_resize(plan, grid.region_origin, encoded, grid.needed_blocks())?
        };
        for (i, component) in grid.components().iter().enumerate() {
            ops.parts[i] = Component {
                h: component.h,
                v: component.v,
                first: component.first_block,
                across: component.h_expand,
                down: component.v_expand,
                upsampling: component.upsampling,
                width: component.size.0,
                height: component.size.1,
            };
            ops.choice[i] = component.dc_table | component.ac_table << 8;
        }
        Some(ops)
    }

    /// Creates a record that converts a region of a video frame to RGB, and resizes it according to
    /// `plan`. The kernels must [support](DecodeOps::supports) the plan. Returns `None` if an
    /// offset does not fit in 32 bits.
    #[cfg(feature = "video")]
    pub(crate) fn for_yuv(yuv: &YuvRegion<'_>, plan: &Plan, encoded: EncodedLocation) -> Option<Self> {
        Some(DecodeOps {
            kind: Self::YUV,
            color: 2,
            count: 3,
            turned: yuv.orientation_flags(),
            ..Self::new_resize(plan, yuv.corner(), encoded, Self::rgb_blocks(plan.region.size()))?
        })
    }

    /// Returns how many coefficient blocks are needed to store the RGB pixels of a region. `size`
    /// is the size of the region in a video frame.
    #[cfg(feature = "video")]
    pub(crate) fn rgb_blocks(size: Size) -> usize {
        let blocks = size.width.div_ceil(8) as usize * size.height.div_ceil(8) as usize;
        (3 * blocks * Self::PLANE_BYTES).div_ceil(Self::COEFFICIENT_BYTES)
    }

    /// Creates a record with instructions for the resize, but not for decoding. `corner` is the
    /// upper left corner (column, row) of `region`, and `blocks` the number of blocks of
    /// coefficients. Returns `None` if an offset does not fit in 32 bits.
    fn new_resize(plan: &Plan, corner: (u32, u32), encoded: EncodedLocation, blocks: usize) -> Option<Self> {
        let EncodedLocation { image_index, offset, bytes, block } = encoded;
        u32::try_from(offset.checked_add(bytes)?).ok()?;
        u32::try_from(block.checked_add(blocks)?).ok()?;
        let (across, down) = plan.source_spans().unwrap_or_default();
        Some(DecodeOps {
            at: offset as u32,
            bytes: bytes as u32,
            block: block as u32,
            place: image_index as u32,
            kept: blocks as u32,
            region: Rect { x: corner.0, y: corner.1, ..plan.region },
            shown: plan.image_area(),
            mirrored: plan.flip.into(),
            flipped: plan.vertical_flip.into(),
            fill: u32::from_le_bytes([plan.fill[0], plan.fill[1], plan.fill[2], 0]),
            across: across.into(),
            down: down.into(),
            ..Self::empty()
        })
    }

    pub(crate) fn empty() -> Self {
        Self::read_words(&[0; Self::WORDS])
    }

    pub(crate) fn read(from: &[u8; Self::BYTES]) -> Self {
        let mut words = [0; Self::WORDS];
        for (word, bytes) in words.iter_mut().zip(from.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Self::read_words(&words)
    }

    pub(crate) fn write(&self, out: &mut [u8; Self::BYTES]) {
        let mut words = [0; Self::WORDS];
        self.write_words(&mut words);
        for (out, word) in out.as_chunks_mut().0.iter_mut().zip(words) {
            *out = word.to_le_bytes();
        }
    }

    pub(crate) fn decodes(&self) -> bool {
        self.kind != 0
    }

    pub(crate) fn segments(&self) -> u32 {
        self.segments
    }

    pub(crate) fn longest(&self) -> u32 {
        self.longest
    }

    #[cfg(all(test, feature = "_device"))]
    pub(crate) fn blocks(&self) -> usize {
        self.kept as usize
    }

    pub(crate) fn end_block(&self) -> usize {
        self.block as usize + self.kept as usize
    }

    pub(crate) fn image_index(&self) -> usize {
        self.place as usize
    }

    pub(crate) fn columns(&self) -> u32 {
        self.region.width
    }

    pub(crate) fn is_turned(&self) -> bool {
        self.turned != 0 || self.kind == Self::YUV
    }

    /// Returns the statistics that determine the launch sizes of the kernels, or `None` if no
    /// record decodes an image. `records` contains the records of a batch.
    pub(crate) fn launch_stats(records: &[u8]) -> Option<LaunchStats> {
        let records = records.as_chunks().0.iter().map(DecodeOps::read).enumerate();
        records.filter(|(_, ops)| ops.decodes()).fold(None, |stats: Option<LaunchStats>, (image_index, ops)| {
            let stats = stats.unwrap_or_default();
            let if_large = |size: u32, min_size: usize| if size as usize >= min_size { size as usize } else { 0 };
            Some(LaunchStats {
                max_segments: stats.max_segments.max(ops.segments()),
                max_segment_bytes: stats.max_segment_bytes.max(ops.longest()),
                max_columns: stats.max_columns.max(ops.columns()),
                end_block: stats.end_block.max(ops.end_block()),
                large_bytes: stats.large_bytes
                    + if_large(if ops.kind == Self::JPEG { ops.bytes } else { 0 }, Self::LARGE_BYTES),
                large_blocks: stats.large_blocks + if_large(ops.kept, Self::LARGE_BLOCKS),
                has_turned: stats.has_turned || ops.is_turned(),
                has_copies: stats.has_copies || ops.image_index() != image_index,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Bitstream, standard};

    #[test]
    fn offsets_that_exceed_32_bits_are_refused() {
        let mut jpeg = Vec::new();
        jpeg_encoder::Encoder::new(&mut jpeg, 80).encode(&[90; 192], 8, 8, jpeg_encoder::ColorType::Rgb).unwrap();
        let (size, mut stream) = (Size::new(8, 8), Bitstream::default());
        let grid = standard().open(&jpeg).unwrap().bitstream(Rect::full(size), usize::MAX, &mut stream).unwrap();
        let plan = Plan::resized_crop(size, Rect::full(size), size, Rect::full(size));
        let record = |offset, block| {
            DecodeOps::new(&grid, &plan, EncodedLocation { image_index: 0, offset, bytes: stream.len(), block })
        };
        let end = u32::MAX as usize + 1;
        assert!(record(end - 16, 0).is_none() && record(end, 0).is_none() && record(0, end).is_none());
        let last = record(end - 16 - stream.len().next_multiple_of(16), 7).unwrap();
        assert_eq!((last.at as usize, last.block), (end - 16 - stream.len().next_multiple_of(16), 7));
    }

    #[test]
    fn a_device_resizes_whole_images_of_24_megapixels() {
        let output = Size::new(224, 224);
        let plan = |width, height| {
            let size = Size::new(width, height);
            Plan::resized_crop(size, Rect::full(size), output, Rect::full(output))
        };
        assert!(DecodeOps::supports(&plan(6000, 4000)) && DecodeOps::supports(&plan(4000, 6000)));
        // At a scale of 31, an output pixel has at most 2 * 31 + 1 taps. At a larger scale, it has
        // up to two more taps.
        assert!(DecodeOps::supports(&plan(31 * 224, 300)) && !DecodeOps::supports(&plan(31 * 224 + 1, 300)));
    }

    /// A copied record must be recognized, because the kernels decode its image in a different row.
    #[test]
    fn copied_records_are_recognized() {
        let records = |places: &[u32]| -> Vec<u8> {
            let record = |&place: &u32| {
                let mut bytes = [0; DecodeOps::BYTES];
                DecodeOps { kind: 1, place, ..DecodeOps::empty() }.write(&mut bytes);
                bytes
            };
            places.iter().flat_map(record).collect()
        };
        assert!(!DecodeOps::launch_stats(&records(&[0, 1, 2])).unwrap().has_copies);
        assert!(DecodeOps::launch_stats(&records(&[0, 1, 0])).unwrap().has_copies);
        assert!(DecodeOps::launch_stats(&records(&[1, 1])).unwrap().has_copies);
        let mut records_of_batch = records(&[0]);
        records_of_batch.extend([0; DecodeOps::BYTES]);
        records_of_batch.extend(records(&[2]));
        assert!(!DecodeOps::launch_stats(&records_of_batch).unwrap().has_copies);
    }
}
