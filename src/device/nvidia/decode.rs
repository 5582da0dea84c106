#![allow(unsafe_code)]
//! The kernels of `kernels/jpeg.cu`, which turn entropy-coded bytes into pixels of the output.
//!
//! **Invariants**
//! 1. The parameter list of each launch matches the entry point in `jpeg.cu`: same order, same
//!    widths.
//! 2. Work that is queued in a [`Branch`] comes after what its launch queued before in the stream of
//!    the program, and before what is queued there after the launch, also if the launch fails.
//! 3. Addresses come from `DeviceBuffer::at`, given the number of bytes that the kernels access. If a
//!    record determines these bytes, the caller of the launch guarantees them.

use std::ops::Range;

use super::driver::Context;
use super::event::Event;
use super::kernel::{Grid, Kernel};
use super::memory::DeviceBuffer;
use super::stream::Stream;
use crate::batch::DecodeOps;
use crate::error::{Error, Result};

/// Maximum number of threads per block. The kernels are compiled with that bound.
const BLOCK: u32 = 128;
/// Threads of a block of `jpeg_follow`: `TILE` in `jpeg.cu`.
const TILE: u32 = 128;
/// Threads of a block of `jpeg_starts`: `SUMMERS` in `jpeg.cu`.
const SUMMERS: u32 = 256;
/// Maximum number of Huffman tables of a sample: `MOST_TABLES` in `jpeg.cu`.
const TABLES: u32 = 4;
/// Bytes per line of the arena.
const LINE: usize = DecodeOps::LINE;
/// Maximum number of parts of a batch that are decoded at the same time, and smallest number of
/// samples of a part. Few lines of an image that synchronizes late can be decoded in parallel. With
/// parts, the device decodes the others meanwhile.
const PARTS: usize = 4;
const PART: usize = 64;
/// The same for batches without long segments, where less waits.
const SHORT_PARTS: usize = 2;
/// Rows of the output per block of `jpeg_resize`: `ROWS` in `jpeg.cu`.
const ROWS: usize = 8;
/// Bytes of shared memory for a block's lines, unless a single line is longer. If fewer than
/// [`ROWS`] lines of a region fit, a block takes several turns.
const LINES_BYTES: usize = 24 << 10;

/// Arguments of a launch, as offsets in device memory, which must be multiples of 16.
#[derive(Debug, Clone, Copy, Default)]
pub struct DecodeAt {
    /// One record per sample.
    pub ops: usize,
    /// Heads and entropy-coded bytes.
    pub arena: usize,
    /// Scratch: [`DecodeOps::COEFFICIENT_BYTES`] per block.
    pub coefficients: usize,
    /// Scratch: [`DecodeOps::PLANE_BYTES`] per block, after the coefficients.
    pub planes: usize,
    /// Scratch: [`DecodeOps::axes_bytes`] per sample.
    pub axes: usize,
    /// Scratch: [`DecodeOps::TABLES_BYTES`] per sample.
    pub tables: usize,
    /// Scratch: [`DecodeOps::starts_bytes`] for the arena.
    pub starts: usize,
    /// One `u32` per sample: 0, or 1 if its data is invalid or cannot be decoded in parallel. Its
    /// pixels are then unspecified.
    pub faults: usize,
    /// Destination of the u8 (N, H, W, 3) pixels.
    pub out: usize,
    /// Bytes of the arena.
    pub arena_bytes: usize,
    /// Number of samples.
    pub count: usize,
    /// Largest number of segments of a sample.
    pub segments: usize,
    /// Bytes of the longest segment.
    pub longest: usize,
    /// Number of blocks of the scratch that the records use.
    pub blocks: usize,
    /// Whether a record turns its image upright.
    pub turned: bool,
    /// Whether a record is a copy of another sample's, which is decoded for both.
    pub copied: bool,
    /// Width of the widest region in pixels, at most [`DecodeOps::MOST_COLUMNS`].
    pub columns: usize,
}

impl DecodeAt {
    /// Number of parts that the batch is decoded in.
    fn parts(&self) -> usize {
        let most = if self.longest >= DecodeOps::WORTH { PARTS } else { SHORT_PARTS };
        self.parts_within(most.min(self.count / PART))
    }

    /// Largest possible number of parts up to `most`, which is 1 if a record is a copy. A copy shares
    /// its scratch with another sample, and two parts would write there at the same time.
    fn parts_within(&self, most: usize) -> usize {
        if self.copied { 1 } else { most.min(PARTS).min(self.count).max(1) }
    }
}

/// Addresses of the ranges of a [`DecodeAt`].
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
    /// Distance of the planes from the coefficients, in planes of a block.
    planes_at: u32,
}

impl DecodeAt {
    fn check(&self) {
        let DecodeAt { ops, arena, coefficients, planes, axes, tables, starts, faults, out, columns, .. } = *self;
        let offsets = [ops, arena, coefficients, planes, axes, tables, starts, faults, out];
        assert!(offsets.iter().all(|at| at.is_multiple_of(16)), "device offsets {offsets:?} are not multiples of 16");
        assert!(columns <= DecodeOps::MOST_COLUMNS as usize, "a region of {columns} columns");
    }

    /// The addresses in `memory`, for outputs of (`height`, `width`).
    fn addresses(&self, memory: &DeviceBuffer, (height, width): (usize, usize)) -> Addresses {
        // The kernel that resizes computes the address of both from the start of the coefficients.
        let gap = self.planes.checked_sub(self.coefficients).filter(|gap| gap.is_multiple_of(DecodeOps::PLANE_BYTES));
        let gap = gap.expect("planes lie behind the coefficients, at a multiple of a block's bytes");
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
            planes_at: u32::try_from(gap / DecodeOps::PLANE_BYTES).expect("a record counts the blocks"),
        }
    }
}

/// A stage of the decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Sets the faults to zero.
    Clear,
    /// The resize filter of each axis.
    Axes,
    /// The Huffman tables of each sample.
    Tables,
    /// The decoder state at each line of long segments.
    Prefetcher,
    /// The starts of the pieces of long segments.
    Starts,
    /// Entropy-coded bytes to coefficients.
    Huffman,
    /// Coefficients to samples.
    Idct,
    /// Samples to upright pixels, for turned images.
    Turn,
    /// Samples to pixels of the output.
    Resize,
}

impl Stage {
    /// The first stages, which take all samples at once.
    pub const TOGETHER: [Stage; 3] = [Stage::Clear, Stage::Axes, Stage::Tables];
    /// The stages after these, in order.
    pub const APART: [Stage; 6] =
        [Stage::Prefetcher, Stage::Starts, Stage::Huffman, Stage::Idct, Stage::Turn, Stage::Resize];

    /// All stages in order.
    pub fn all() -> impl Iterator<Item = Stage> {
        Stage::TOGETHER.into_iter().chain(Stage::APART)
    }
}

/// A stream for one part of the samples of a batch.
struct Branch {
    stream: Stream,
    done: Event,
}

/// The kernels that decode, crop, resize and flip JPEGs, for one output size.
///
/// Pixels equal those of the host path, bit for bit.
pub struct Decode {
    /// Marks the work that all branches need.
    begun: Event,
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
    /// Loads the kernels for outputs of (`height`, `width`).
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for an output that is empty or has more than
    /// 2^30 pixels, [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) from the driver.
    pub fn load(context: &Context, (height, width): (usize, usize)) -> Result<Self> {
        if height * width == 0 || height * width > 1 << 30 {
            return Err(Error::config(format!("images of {width}x{height} pixels cannot be decoded on the device")));
        }
        let load = |name: &str| Kernel::load(context, name.into());
        let branch = |_| Ok(Branch { stream: Stream::new(context)?, done: Event::new(context)? });
        Ok(Decode {
            begun: Event::new(context)?,
            branches: (1..PARTS).map(branch).collect::<Result<_>>()?,
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

    /// Queues the decoding of `at.count` samples. If a sample's record says that its pixels are in
    /// place, they stay.
    ///
    /// # Safety
    /// The records, and the heads in the arena that they refer to, must have been written for this
    /// output size and fit `at`: they name blocks below `at.blocks`, at most `at.segments`
    /// segments, and regions at most `at.columns` wide. If one is a copy of another, `at` says so.
    /// Entropy-coded bytes may be arbitrary. The ranges must not overlap. Other accesses to them
    /// must be ordered by streams and events. `self` must not be dropped before the work is done.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) from the driver.
    pub unsafe fn launch(&self, stream: &Stream, memory: &DeviceBuffer, at: DecodeAt) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.launch_in_parts(stream, memory, at, at.parts()) }
    }

    /// [`launch`](Decode::launch) with at most the given number of parts.
    ///
    /// # Safety
    /// Those of [`launch`](Decode::launch).
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) from the driver.
    pub(crate) unsafe fn launch_in_parts(
        &self,
        stream: &Stream,
        memory: &DeviceBuffer,
        at: DecodeAt,
        most: usize,
    ) -> Result<()> {
        let parts = at.parts_within(most);
        let queue = |stream: &Stream, stage: Stage, samples: Range<usize>| {
            // SAFETY: guaranteed by the caller.
            unsafe { self.launch_stage(stream, memory, at, stage, samples) }
        };
        Stage::TOGETHER.into_iter().try_for_each(|stage| queue(stream, stage, 0..at.count))?;
        let branches = &self.branches[..parts - 1];
        if !branches.is_empty() {
            self.begun.record(stream)?;
        }
        let streams = || branches.iter().map(|branch| &branch.stream).chain([stream]).enumerate();
        let part = |i: usize| at.count * i / parts..at.count * (i + 1) / parts;
        let queued = branches.iter().try_for_each(|branch| branch.stream.wait(&self.begun)).and_then(|()| {
            Stage::APART.into_iter().try_for_each(|stage| streams().try_for_each(|(i, at)| queue(at, stage, part(i))))
        });
        branches.iter().fold(queued, |queued, branch| {
            // Invariant 2. If the driver refuses to order the streams, the host waits.
            let joined = branch.done.record(&branch.stream).and_then(|()| stream.wait(&branch.done));
            queued.and(joined.or_else(|e| branch.stream.synchronize().and(Err(e))))
        })
    }

    /// Queues one stage for some samples, or for all if it is one of [`Stage::TOGETHER`]. All stages
    /// in order make up [`launch`](Decode::launch).
    ///
    /// # Safety
    /// Those of [`launch`](Decode::launch). The previous stages must have been queued for the same
    /// samples, and for those of which these are copies.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) from the driver.
    pub unsafe fn launch_stage(
        &self,
        stream: &Stream,
        memory: &DeviceBuffer,
        at: DecodeAt,
        stage: Stage,
        samples: Range<usize>,
    ) -> Result<()> {
        at.check();
        let (count, blocks, size) = (at.count, at.blocks, (self.height, self.width));
        if count == 0 || blocks == 0 && stage != Stage::Clear {
            return Ok(());
        }
        let Addresses { ops, arena, coefficients, planes, axes, tables, starts, faults, out, planes_at } =
            at.addresses(memory, size);
        let (all, height, width) = (count as u32, size.0 as u32, size.1 as u32);
        // `Samples` in `jpeg.cu`.
        let (samples, count_of_part) = ([samples.end as u32, samples.start as u32], samples.len());
        // Twice the mean number of lines per image. Blocks of threads loop over any further
        // lines.
        let lines = 2 * at.arena_bytes / count / LINE;
        let kept = (blocks / count).div_ceil(BLOCK as usize).clamp(1, 256);
        macro_rules! queue {
            ($kernel:ident, $blocks:expr, $block:expr, $shared:expr, $($parameter:expr),*) => {{
                let grid = Grid { blocks: $blocks as u32, block: $block, count: count_of_part, shared: $shared as u32 };
                // SAFETY: invariants 1 and 3, and guaranteed by the caller. The parameters live until the
                // call returns.
                unsafe {
                    self.$kernel.queue(stream, memory, grid, &mut [$(std::ptr::from_mut(&mut { $parameter }).cast()),*])
                }
            }};
        }
        match stage {
            Stage::Clear => {
                // SAFETY: guaranteed by the caller.
                unsafe { stream.clear(memory, at.faults, count * DecodeOps::FAULT_BYTES) }
            }
            Stage::Axes => queue!(axes, 2, BLOCK, 0, axes, faults, ops, all, height, width, planes_at),
            Stage::Tables => queue!(tables, TABLES, BLOCK, 0, tables, arena, ops, all),
            Stage::Prefetcher => {
                let groups = lines.div_ceil(TILE as usize).clamp(1, 64);
                queue!(follow, groups, TILE, 0, starts, faults, tables, arena, ops, samples)
            }
            Stage::Starts => queue!(starts, 1, SUMMERS, 0, starts, faults, tables, arena, ops, samples),
            Stage::Huffman => {
                let groups = (at.segments + lines).div_ceil(BLOCK as usize).clamp(1, 64);
                queue!(huffman, groups, BLOCK, 0, coefficients, faults, tables, arena, ops, samples, starts)
            }
            Stage::Idct => queue!(idct, kept, BLOCK, 0, planes, coefficients, faults, arena, ops, samples),
            Stage::Turn if !at.turned => Ok(()),
            Stage::Turn => queue!(turn, kept, BLOCK, 0, coefficients, planes, faults, ops, samples),
            Stage::Resize => {
                // Lines begin and end at multiples of 4 pixels of the stored image.
                let line = at.columns + 6;
                let words = (ROWS * line).min(LINES_BYTES / 4).max(line) as u32;
                let (groups, shared) = (size.0.div_ceil(ROWS), words * 4 + 16);
                queue!(resize, groups, BLOCK, shared, out, faults, coefficients, axes, samples, height, width, words)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernel::entry_text;
    use super::*;

    #[test]
    fn a_batch_with_a_copy_is_one_part() {
        let long = DecodeAt { longest: DecodeOps::WORTH, ..DecodeAt::default() };
        for (count, parts) in [(0, 1), (1, 1), (127, 1), (128, 2), (255, 3), (256, 4), (4096, 4)] {
            let at = DecodeAt { count, ..long };
            assert_eq!(at.parts(), parts, "{count} samples");
            assert_eq!(DecodeAt { longest: DecodeOps::WORTH - 1, ..at }.parts(), parts.min(2), "{count} samples");
            // Tests ask for parts of a few samples.
            assert_eq!(at.parts_within(9), count.clamp(1, PARTS));
            let copied = DecodeAt { copied: true, ..at };
            assert_eq!([copied.parts(), copied.parts_within(4)], [1, 1]);
        }
    }

    #[test]
    fn every_entry_point_is_in_the_ptx_and_constants_are_those_of_the_source() {
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
            assert_eq!(text.matches('{').count(), text.matches('}').count(), "{name} is cut whole");
        }
        let source = include_str!("kernels/jpeg.cu");
        assert!(source.contains(&format!("enum {{ MOST_TAPS = {} }};", DecodeOps::MOST_TAPS)));
        assert!(source.contains(&format!("enum {{ ROWS = {ROWS} }};")));
        assert!(source.contains(&format!("__launch_bounds__({BLOCK})")));
        assert!(source.contains(&format!("enum {{ TILE = {TILE} }};")));
        assert!(source.contains(&format!("enum {{ SUMMERS = {SUMMERS} }};")));
        assert!(source.contains(&format!("enum {{ LINE = {LINE} }};")));
        assert!(source.contains(&format!(", WORTH = {} }};", DecodeOps::WORTH)));
        assert!(source.contains(&format!("enum {{ MOST_TABLES = {TABLES}, ")));
        assert!(source.contains(&format!("static_assert(sizeof(Built) == {},", DecodeOps::TABLES_BYTES)));
        assert_eq!(DecodeOps::axes_bytes(1, 3), 256 + 96 + 240);
        // `Strip` shares the memory with the widest line.
        let strip = 8 + ROWS * (8 + 8 * DecodeOps::MOST_TAPS);
        assert!((DecodeOps::MOST_COLUMNS as usize + 6) * 4 + 16 + strip.next_multiple_of(16) <= 48 << 10);
    }
}
