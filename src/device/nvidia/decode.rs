//! Loads and launches the kernels in `kernels/jpeg.cu`, which decode JPEGs, convert video frames to
//! RGB, and resize both.
//!
//! The kernels divide a long segment of entropy-coded data into lines of 128 bytes, and decode
//! these in parallel. A sample that is much larger than the others is divided into shares, which
//! different thread blocks process. The header of `jpeg.cu` explains both.
//!
//! **Invariants**
//! 1. The parameters of each launch have the order and the widths that the entry point in `jpeg.cu`
//!    declares.
//! 2. Work that a launch queues in a [`Branch`] runs after all earlier work in the main stream, and
//!    before all later work in the main stream. This holds even if the launch fails.
//! 3. Addresses come from `DeviceBuffer::at`, which checks the number of bytes that the kernels
//!    access. Where this number depends on a record, the caller of the launch guarantees it.

#![allow(unsafe_code)]

use std::ops::Range;

use super::driver::Context;
use super::event::Event;
use super::kernel::{Grid, Kernel};
use super::memory::DeviceBuffer;
use super::stream::Stream;
use crate::batch::DecodeOps;
use crate::error::{Error, Result};

/// Threads per block, except in `jpeg_follow` and `jpeg_starts`. Must equal `__launch_bounds__` in
/// `jpeg.cu`.
const BLOCK: u32 = 128;
/// Threads per block of `jpeg_follow`. Must equal `TILE` in `jpeg.cu`.
const TILE: u32 = 128;
/// Lines that consecutive thread blocks of `jpeg_follow` share. Must equal `OVERLAP` in `jpeg.cu`.
const OVERLAP: u32 = 16;
/// Threads per block of `jpeg_starts`. Must equal `STARTS_THREADS` in `jpeg.cu`.
const STARTS_THREADS: u32 = 256;
/// Maximum number of Huffman tables per sample. Must equal `MAX_TABLES` in `jpeg.cu`.
const TABLES: u32 = 4;
const LINE_BYTES: usize = DecodeOps::LINE_BYTES;
/// Maximum number of parts of a batch that are decoded at the same time. An image in which codes
/// synchronize late offers little parallel work, so the device decodes images of other parts at the
/// same time.
const MAX_PARTS: usize = 4;
const MIN_PART_SAMPLES: usize = 64;
/// Maximum number of parts for a batch without long segments. Such a batch leaves less of the
/// device idle, so fewer parts suffice.
const SHORT_PARTS: usize = 2;
/// Output rows per thread block of `jpeg_resize`. Must equal `ROWS` in `jpeg.cu`.
const ROWS: usize = 8;
/// Maximum shared memory for rows of vertical sums per thread block, in bytes, unless a single row
/// needs more. If fewer than [`ROWS`] rows fit, a thread block makes several passes.
const ROW_SUMS_BYTES: usize = 22 << 10;
/// Minimum work of a sample that is divided, as a multiple of the average sample's work.
const HEAVY: usize = 4;
/// Maximum number of samples, and of additional shares, if samples are divided. Their sum must fit
/// into one dimension of a grid, which has 65,535 rows.
const MAX_SHARES: usize = 1 << 14;

/// Arguments of a launch. All offsets in device memory must be multiples of 16.
#[derive(Debug, Clone, Copy, Default)]
pub struct DecodeAt {
    /// Offset of the records, one per sample.
    pub ops: usize,
    /// Offset of the arena, which contains the tables and the entropy-coded bytes of each JPEG, and
    /// the samples of each video frame.
    pub arena: usize,
    /// Offset of the scratch memory for coefficients: [`DecodeOps::COEFFICIENT_BYTES`] per block.
    pub coefficients: usize,
    /// Offset of the scratch memory for component samples, which follows the coefficients:
    /// [`DecodeOps::PLANE_BYTES`] per block.
    pub planes: usize,
    /// Offset of the scratch memory for resize filters: [`DecodeOps::axes_bytes`] per sample.
    pub axes: usize,
    /// Offset of the scratch memory for Huffman tables: [`DecodeOps::TABLES_BYTES`] per sample.
    pub tables: usize,
    /// Offset of the scratch memory for decoder states: [`DecodeOps::starts_bytes`] for the whole
    /// arena.
    pub starts: usize,
    /// Offset of the fault flags, one `u32` per sample: 1 if the data of the sample is invalid or
    /// cannot be decoded in parallel, and 0 otherwise. If the flag is 1, the pixels of the sample
    /// are unspecified.
    pub faults: usize,
    /// Offset of the output, u8 images of shape (N, H, W, 3).
    pub out: usize,
    /// Size of the arena, in bytes.
    pub arena_bytes: usize,
    /// Number of samples.
    pub count: usize,
    /// Maximum number of segments per sample.
    pub segments: usize,
    /// Length of the longest segment, in bytes.
    pub longest: usize,
    /// Number of blocks of coefficients that the records use.
    pub blocks: usize,
    /// Total encoded size of the samples of at least [`DecodeOps::LARGE_BYTES`] bytes.
    pub large_bytes: usize,
    /// Total number of blocks in samples with at least [`DecodeOps::LARGE_BLOCKS`] blocks.
    pub large_blocks: usize,
    /// True if a record applies an EXIF orientation or converts a video frame.
    pub turned: bool,
    /// True if a record is a copy of a different sample's record. The image is then decoded twice.
    pub copied: bool,
    /// Width of the widest region in pixels, at most [`DecodeOps::MAX_COLUMNS`].
    pub columns: usize,
}

impl DecodeAt {
    fn parts(&self) -> usize {
        let max_parts = if self.longest >= DecodeOps::MIN_SPLIT_BYTES { MAX_PARTS } else { SHORT_PARTS };
        self.parts_within(max_parts.min(self.count / MIN_PART_SAMPLES))
    }

    /// Returns the largest allowed number of parts up to `max_parts`. A copied record shares
    /// scratch memory with its original, and two parts must not write to this memory at the same
    /// time, so the result is then 1.
    fn parts_within(&self, max_parts: usize) -> usize {
        if self.copied { 1 } else { max_parts.min(MAX_PARTS).min(self.count).max(1) }
    }
}

/// The division of samples that are much larger than the others, for one stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Heavy {
    /// Minimum work of a sample that is divided, or 0 if no sample is divided. The number of
    /// additional shares of a sample is the sample's work divided by this number, rounded down.
    work: u32,
    /// Upper bound on the number of additional shares of all samples.
    shares: usize,
}

impl DecodeAt {
    /// Returns the division for a stage. `total` is the work of all samples, or an upper bound, and
    /// `large` is the work of the samples with at least `min_work`. A sample is divided if its work
    /// is at least `min_work` and [`HEAVY`] times the average of `total`. A batch counts as at
    /// least 256 samples in the average. No sample is divided if the limit [`MAX_SHARES`] would be
    /// exceeded.
    fn heavy(&self, total: usize, large: usize, min_work: usize) -> Heavy {
        let work = (HEAVY * total / self.count.max(256)).max(min_work);
        match (u32::try_from(work), large / work) {
            (Ok(work), shares @ 1..=MAX_SHARES) if self.count <= MAX_SHARES => Heavy { work, shares },
            _ => Heavy::default(),
        }
    }
}

struct Addresses {
    ops: u64,
    arena: u64,
    coefficients: u64,
    planes: u64,
    axes: u64,
    tables: u64,
    starts: u64,
    faults: u64,
    out: u64,
    planes_at: u32,
}

impl DecodeAt {
    fn check(&self) {
        let DecodeAt { ops, arena, coefficients, planes, axes, tables, starts, faults, out, columns, .. } = *self;
        let offsets = [ops, arena, coefficients, planes, axes, tables, starts, faults, out];
        assert!(
            offsets.iter().all(|offset| offset.is_multiple_of(16)),
            "device offsets {offsets:?} must be multiples of 16"
        );
        assert!(columns <= DecodeOps::MAX_COLUMNS as usize, "a region of {columns} columns is too wide");
    }

    fn addresses(&self, memory: &DeviceBuffer, (height, width): (usize, usize)) -> Addresses {
        // The resize kernel finds the planes relative to the coefficients.
        let gap = self.planes.checked_sub(self.coefficients).filter(|gap| gap.is_multiple_of(DecodeOps::PLANE_BYTES));
        let gap = gap.expect("planes follow the coefficients at a multiple of a block's bytes");
        Addresses {
            ops: memory.at(self.ops, self.count * DecodeOps::BYTES),
            arena: memory.at(self.arena, self.arena_bytes),
            coefficients: memory.at(self.coefficients, self.blocks * DecodeOps::COEFFICIENT_BYTES),
            planes: memory.at(self.planes, self.blocks * DecodeOps::PLANE_BYTES),
            axes: memory.at(self.axes, self.count * DecodeOps::axes_bytes(height, width)),
            tables: memory.at(self.tables, self.count * DecodeOps::TABLES_BYTES),
            starts: memory.at(self.starts, DecodeOps::starts_bytes(self.arena_bytes)),
            faults: memory.at(self.faults, self.count * DecodeOps::FAULT_BYTES),
            out: memory.at(self.out, self.count * height * width * 3),
            planes_at: u32::try_from(gap / DecodeOps::PLANE_BYTES).expect("the number of blocks fits in a record"),
        }
    }
}

/// A stage of decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Sets the fault flags to zero.
    Clear,
    /// Computes the resize filter of each axis.
    Axes,
    /// Builds the Huffman tables of each sample.
    Tables,
    /// Finds the decoder state at the start of each line of a long segment.
    Follow,
    /// Finds the first block and the DC coefficients of each line of a long segment.
    Starts,
    /// Decodes the entropy-coded bytes to coefficients.
    Huffman,
    /// Transforms the coefficients to component samples.
    Idct,
    /// Writes the upright pixels of images with an EXIF orientation and of video frames.
    Orient,
    /// Converts the component samples to pixels, and resizes these to the output.
    Resize,
}

impl Stage {
    /// The first stages, which process all samples at once.
    pub const ALL_SAMPLES: [Stage; 3] = [Stage::Clear, Stage::Axes, Stage::Tables];
    /// The remaining stages, in order.
    pub const PER_PART: [Stage; 6] =
        [Stage::Follow, Stage::Starts, Stage::Huffman, Stage::Idct, Stage::Orient, Stage::Resize];

    /// Returns all stages in order.
    pub fn all() -> impl Iterator<Item = Stage> {
        Stage::ALL_SAMPLES.into_iter().chain(Stage::PER_PART)
    }
}

struct Branch {
    stream: Stream,
    done: Event,
}

/// The kernels that decode JPEGs or convert video frames, and then crop, resize and flip them, for
/// one output size. The pixels are bit-identical to the host's.
pub struct Decode {
    /// Recorded after the work that all branches depend on.
    fork_event: Event,
    branches: Vec<Branch>,
    axes: Kernel,
    tables: Kernel,
    follow: Kernel,
    starts: Kernel,
    huffman: Kernel,
    idct: Kernel,
    turn: Kernel,
    resize: Kernel,
    height: usize,
    width: usize,
}

impl Decode {
    /// Loads the kernels for outputs of `height` times `width` pixels. `stream` creates the streams
    /// of the branches.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the output is empty or has more than 2^30
    /// pixels. [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) if a driver call fails.
    pub fn load(
        context: &Context,
        (height, width): (usize, usize),
        stream: &dyn Fn() -> Result<Stream>,
    ) -> Result<Self> {
        if height * width == 0 || height * width > 1 << 30 {
            return Err(Error::config(format!(
                "the device cannot decode into images of {width}x{height}: expected 1 to 2^30 pixels"
            )));
        }
        let load = |name: &str| Kernel::load(context, name.into());
        let branch = |_| Ok(Branch { stream: stream()?, done: Event::new(context)? });
        Ok(Decode {
            fork_event: Event::new(context)?,
            branches: (1..MAX_PARTS).map(branch).collect::<Result<_>>()?,
            axes: load("jpeg_axes")?,
            tables: load("jpeg_tables")?,
            follow: load("jpeg_follow")?,
            starts: load("jpeg_starts")?,
            huffman: load("jpeg_huffman")?,
            idct: load("jpeg_idct")?,
            turn: load("jpeg_turn")?,
            resize: load("jpeg_resize")?,
            height,
            width,
        })
    }

    /// Queues the decoding of `layout.count` samples. The pixels of a sample with an all-zero
    /// record stay unchanged.
    ///
    /// # Safety
    /// The records, and the tables in the arena that they refer to, must have been written for this
    /// output size. They may refer to blocks below `layout.blocks`, to at most `layout.segments`
    /// segments, and to regions at most `layout.columns` wide. If a record is a copy,
    /// `layout.copied` must be true. Entropy-coded bytes may be arbitrary. The ranges of memory
    /// must not overlap. Streams and events must order this work with all other accesses to these
    /// ranges. `self` must not be dropped before the work is done.
    pub unsafe fn launch(&self, stream: &Stream, memory: &DeviceBuffer, layout: DecodeAt) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.launch_in_parts(stream, memory, layout, layout.parts()) }
    }

    /// Like [`launch`](Decode::launch), but decodes the batch in at most `max_parts` parts.
    ///
    /// # Safety
    /// See [`launch`](Decode::launch).
    pub(crate) unsafe fn launch_in_parts(
        &self,
        stream: &Stream,
        memory: &DeviceBuffer,
        layout: DecodeAt,
        max_parts: usize,
    ) -> Result<()> {
        let parts = layout.parts_within(max_parts);
        let queue = |stream: &Stream, stage: Stage, samples: Range<usize>| {
            // SAFETY: guaranteed by the caller.
            unsafe { self.launch_stage(stream, memory, layout, stage, samples) }
        };
        Stage::ALL_SAMPLES.into_iter().try_for_each(|stage| queue(stream, stage, 0..layout.count))?;
        let branches = &self.branches[..parts - 1];
        if !branches.is_empty() {
            self.fork_event.record(stream)?;
        }
        let streams = || branches.iter().map(|branch| &branch.stream).chain([stream]).enumerate();
        let part = |i: usize| layout.count * i / parts..layout.count * (i + 1) / parts;
        let queued = branches.iter().try_for_each(|branch| branch.stream.wait(&self.fork_event)).and_then(|()| {
            Stage::PER_PART
                .into_iter()
                .try_for_each(|stage| streams().try_for_each(|(i, layout)| queue(layout, stage, part(i))))
        });
        branches.iter().fold(queued, |queued, branch| {
            // Invariant 2: if the driver cannot order the streams, the host waits.
            let joined = branch.done.record(&branch.stream).and_then(|()| stream.wait(&branch.done));
            queued.and(joined.or_else(|e| branch.stream.synchronize().and(Err(e))))
        })
    }

    /// Queues one stage for the samples in `samples`, or for all samples if the stage is in
    /// [`Stage::ALL_SAMPLES`]. Queuing all stages in order is equivalent to
    /// [`launch`](Decode::launch).
    ///
    /// # Safety
    /// See [`launch`](Decode::launch). The previous stages must have been queued for the same
    /// samples. If a record is a copy, they must also have been queued for the sample with the
    /// original record.
    pub unsafe fn launch_stage(
        &self,
        stream: &Stream,
        memory: &DeviceBuffer,
        layout: DecodeAt,
        stage: Stage,
        samples: Range<usize>,
    ) -> Result<()> {
        layout.check();
        let (count, blocks, size) = (layout.count, layout.blocks, (self.height, self.width));
        let is_for_jpegs = [Stage::Tables, Stage::Follow, Stage::Starts, Stage::Huffman, Stage::Idct].contains(&stage);
        if count == 0 || blocks == 0 && stage != Stage::Clear || layout.segments == 0 && is_for_jpegs {
            return Ok(());
        }
        let Addresses { ops, arena, coefficients, planes, axes, tables, starts, faults, out, planes_at } =
            layout.addresses(memory, size);
        let (samples_in_batch, height, width) = (count as u32, size.0 as u32, size.1 as u32);
        let sample_count = samples.len();
        let heavy = match stage {
            Stage::Follow | Stage::Huffman => {
                layout.heavy(layout.arena_bytes, layout.large_bytes, DecodeOps::LARGE_BYTES)
            }
            Stage::Idct | Stage::Orient | Stage::Resize => {
                layout.heavy(blocks, layout.large_blocks, DecodeOps::LARGE_BLOCKS)
            }
            Stage::Clear | Stage::Axes | Stage::Tables | Stage::Starts => Heavy::default(),
        };
        let rows = sample_count + heavy.shares;
        // `Samples` in `jpeg.cu`.
        let samples = [samples.end as u32, samples.start as u32, heavy.work];
        // Twice the mean number of lines per image in a full arena. If an image has more lines or
        // segments, its thread blocks loop.
        let lines = 2 * layout.arena_bytes / count / LINE_BYTES;
        let blocks_per_sample = (blocks / count).div_ceil(BLOCK as usize).clamp(1, 256.max(4096 / count));
        macro_rules! queue {
            ($kernel:ident, $blocks:expr, $block:expr, $shared:expr, $($parameter:expr),*) => {{
                let grid = Grid { blocks: $blocks as u32, block: $block, count: rows, shared: $shared as u32 };
                // SAFETY: invariants 1 and 3, and guaranteed by the caller. The parameters are
                // alive until the call returns.
                unsafe {
                    self.$kernel.queue(stream, memory, grid, &mut [$(std::ptr::from_mut(&mut { $parameter }).cast()),*])
                }
            }};
        }
        match stage {
            Stage::Clear => {
                // SAFETY: guaranteed by the caller.
                unsafe { stream.clear(memory, layout.faults, count * DecodeOps::FAULT_BYTES) }
            }
            Stage::Axes => queue!(axes, 2, BLOCK, 0, axes, faults, ops, samples_in_batch, height, width, planes_at),
            Stage::Tables => queue!(tables, TABLES, BLOCK, 0, tables, arena, ops, samples_in_batch),
            Stage::Follow => {
                let groups = lines.div_ceil((TILE - OVERLAP) as usize).clamp(1, 64);
                queue!(follow, groups, TILE, 0, starts, faults, tables, arena, ops, samples)
            }
            Stage::Starts => queue!(starts, 1, STARTS_THREADS, 0, starts, faults, tables, arena, ops, samples),
            Stage::Huffman => {
                let groups = lines.div_ceil(BLOCK as usize).clamp(1, 64);
                queue!(huffman, groups, BLOCK, 0, coefficients, faults, tables, arena, ops, samples, starts)
            }
            Stage::Idct => queue!(idct, blocks_per_sample, BLOCK, 0, planes, coefficients, faults, arena, ops, samples),
            Stage::Orient if !layout.turned => Ok(()),
            Stage::Orient => {
                queue!(turn, blocks_per_sample, BLOCK, 0, coefficients, planes, faults, arena, ops, samples)
            }
            Stage::Resize => {
                // Rows begin and end at multiples of 4 pixels of the stored image.
                let row = layout.columns + 6;
                let capacity = (ROWS * row).min(ROW_SUMS_BYTES / 4).max(row) as u32;
                let (groups, shared) = (size.0.div_ceil(ROWS), capacity * 4 + 16);
                queue!(
                    resize,
                    groups,
                    BLOCK,
                    shared,
                    out,
                    faults,
                    coefficients,
                    axes,
                    ops,
                    samples,
                    height,
                    width,
                    capacity
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernel::entry_text;
    use super::*;

    #[test]
    fn a_batch_with_a_copied_record_is_one_part() {
        let long = DecodeAt { longest: DecodeOps::MIN_SPLIT_BYTES, ..DecodeAt::default() };
        for (count, parts) in [(0, 1), (1, 1), (127, 1), (128, 2), (255, 3), (256, 4), (4096, 4)] {
            let layout = DecodeAt { count, ..long };
            assert_eq!(layout.parts(), parts, "{count} samples");
            assert_eq!(
                DecodeAt { longest: DecodeOps::MIN_SPLIT_BYTES - 1, ..layout }.parts(),
                parts.min(2),
                "{count} samples"
            );
            // Tests may request parts of only a few samples.
            assert_eq!(layout.parts_within(9), count.clamp(1, MAX_PARTS));
            let copied = DecodeAt { copied: true, ..layout };
            assert_eq!([copied.parts(), copied.parts_within(4)], [1, 1]);
        }
    }

    #[test]
    fn the_grid_has_a_row_for_each_share_of_a_large_sample() {
        let (mut rng, min_work) = (crate::sampler::Rng::new(3, 0, 0), DecodeOps::LARGE_BLOCKS);
        let mut divided = 0;
        for _ in 0..2000 {
            let count = 1 + rng.below(300) as usize;
            let mut random_work =
                || if rng.below(40) == 0 { 1 + rng.below(2_000_000) } else { rng.below(9000) } as usize;
            let work: Vec<usize> = (0..count).map(|_| random_work()).collect();
            let large = work.iter().filter(|&&work| work >= min_work).sum();
            let heavy = DecodeAt { count, ..DecodeAt::default() }.heavy(work.iter().sum(), large, min_work);
            let share_count: usize = work.iter().map(|work| work.checked_div(heavy.work as usize).unwrap_or(0)).sum();
            assert!(share_count <= heavy.shares, "{share_count} additional shares, but {} rows", heavy.shares);
            divided += usize::from(share_count > 0);
        }
        assert!(divided > 1000, "only {divided} batches have a sample that is divided");
        let many = DecodeAt { count: MAX_SHARES + 1, ..DecodeAt::default() };
        assert_eq!(many.heavy(1 << 30, 1 << 30, min_work), Heavy::default());
    }

    #[test]
    fn entry_points_and_constants_match_the_source() {
        for name in [
            "jpeg_axes",
            "jpeg_tables",
            "jpeg_follow",
            "jpeg_starts",
            "jpeg_huffman",
            "jpeg_idct",
            "jpeg_turn",
            "jpeg_resize",
        ] {
            let text = entry_text(name).unwrap_or_else(|| panic!("{name} is not in the PTX"));
            assert_eq!(text.matches(".visible .entry").count(), 1);
            assert_eq!(text.matches('{').count(), text.matches('}').count(), "{name} is truncated");
        }
        let source = include_str!("kernels/jpeg.cu");
        assert!(source.contains(&format!("enum {{ MAX_TAPS = {} }};", DecodeOps::MAX_TAPS)));
        assert!(source.contains(&format!("enum {{ ROWS = {ROWS} }};")));
        assert!(source.contains(&format!("__launch_bounds__({BLOCK})")));
        assert!(source.contains(&format!("enum {{ TILE = {TILE}, OVERLAP = {OVERLAP}, ")));
        assert!(source.contains(&format!("enum {{ STARTS_THREADS = {STARTS_THREADS} }};")));
        assert!(source.contains(&format!("enum {{ LINE_BYTES = {LINE_BYTES} }};")));
        assert!(source.contains(&format!(", MIN_SPLIT_BYTES = {} }};", DecodeOps::MIN_SPLIT_BYTES)));
        assert!(source.contains(&format!("enum {{ MAX_TABLES = {TABLES} }};")));
        assert!(source.contains(&format!("static_assert(sizeof(TableSet) == {},", DecodeOps::TABLES_BYTES)));
        assert_eq!(DecodeOps::axes_bytes(1, 3), 256 + 160 + 432);
        // A `Strip` and the widest row must fit into shared memory together.
        let strip = 8 + ROWS * (8 + 8 * DecodeOps::MAX_TAPS);
        assert!((DecodeOps::MAX_COLUMNS as usize + 6) * 4 + 16 + strip.next_multiple_of(16) <= 48 << 10);
    }
}
