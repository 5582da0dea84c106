#![allow(unsafe_code)]
//! Loads and launches the kernels of `kernels/jpeg.cu`, which turn entropy-coded bytes into pixels
//! of the output.
//!
//! **Invariants**
//! 1. The parameter list of each launch matches the entry point in `jpeg.cu`: the same order and
//!    the same widths.
//! 2. Work queued in a [`Branch`] runs after the work that its launch queued earlier in the main
//!    stream, and before any work that is queued in the main stream after the launch, even if the
//!    launch fails.
//! 3. Addresses come from `DeviceBuffer::at`, given the number of bytes that the kernels access. If
//!    a record determines this number, the caller of the launch guarantees it.

use std::ops::Range;

use super::driver::Context;
use super::event::Event;
use super::kernel::{Grid, Kernel};
use super::memory::DeviceBuffer;
use super::stream::Stream;
use crate::batch::DecodeOps;
use crate::error::{Error, Result};

/// Maximum number of threads per block. The kernels are compiled with this bound.
const BLOCK: u32 = 128;
/// Number of threads per block of `jpeg_follow`: `TILE` in `jpeg.cu`.
const TILE: u32 = 128;
/// Number of threads per block of `jpeg_starts`: `SUMMERS` in `jpeg.cu`.
const SUMMERS: u32 = 256;
/// Maximum number of Huffman tables per sample: `MOST_TABLES` in `jpeg.cu`.
const TABLES: u32 = 4;
/// Number of bytes per line of the arena.
const LINE: usize = DecodeOps::LINE;
/// Maximum number of parts of a batch that are decoded at the same time. An image that synchronizes
/// late offers little parallel work. With parts, the device decodes other images at the same time.
const PARTS: usize = 4;
/// Minimum number of samples per part.
const PART: usize = 64;
/// Maximum number of parts for batches without long segments, which stall less.
const SHORT_PARTS: usize = 2;
/// Number of output rows per block of `jpeg_resize`: `ROWS` in `jpeg.cu`.
const ROWS: usize = 8;
/// Number of bytes of shared memory for the lines of a block, unless a single line is longer. If
/// fewer than [`ROWS`] lines of a region fit, a block makes several passes.
const LINES_BYTES: usize = 24 << 10;

/// Arguments of a launch. All offsets in device memory must be multiples of 16.
#[derive(Debug, Clone, Copy, Default)]
pub struct DecodeAt {
    /// Offset of the records, one per sample.
    pub ops: usize,
    /// Offset of the arena: heads and entropy-coded bytes.
    pub arena: usize,
    /// Offset of scratch memory: [`DecodeOps::COEFFICIENT_BYTES`] per block.
    pub coefficients: usize,
    /// Offset of scratch memory after the coefficients: [`DecodeOps::PLANE_BYTES`] per block.
    pub planes: usize,
    /// Offset of scratch memory: [`DecodeOps::axes_bytes`] per sample.
    pub axes: usize,
    /// Offset of scratch memory: [`DecodeOps::TABLES_BYTES`] per sample.
    pub tables: usize,
    /// Offset of scratch memory: [`DecodeOps::starts_bytes`] for the whole arena.
    pub starts: usize,
    /// Offset of the fault flags, one `u32` per sample: 1 if the sample's data is invalid or cannot
    /// be decoded in parallel, otherwise 0. The pixels of a sample with a 1 are unspecified.
    pub faults: usize,
    /// Offset of the output: u8 pixels, (N, H, W, 3).
    pub out: usize,
    /// Size of the arena, in bytes.
    pub arena_bytes: usize,
    /// Number of samples.
    pub count: usize,
    /// Maximum number of segments per sample.
    pub segments: usize,
    /// Length of the longest segment, in bytes.
    pub longest: usize,
    /// Number of blocks in the scratch memory that the records use.
    pub blocks: usize,
    /// Whether any record applies an EXIF orientation.
    pub turned: bool,
    /// Whether any record is a copy of another sample's record, which is then decoded twice.
    pub copied: bool,
    /// Width of the widest region in pixels, at most [`DecodeOps::MOST_COLUMNS`].
    pub columns: usize,
}

impl DecodeAt {
    /// Returns the number of parts in which the batch is decoded.
    fn parts(&self) -> usize {
        let most = if self.longest >= DecodeOps::WORTH { PARTS } else { SHORT_PARTS };
        self.parts_within(most.min(self.count / PART))
    }

    /// Returns the largest possible number of parts up to `most`. The result is 1 if a record is a
    /// copy, because a copy shares scratch memory with the original, and two parts would write to
    /// this memory at the same time.
    fn parts_within(&self, most: usize) -> usize {
        if self.copied { 1 } else { most.min(PARTS).min(self.count).max(1) }
    }
}

/// Device addresses of the ranges of a [`DecodeAt`].
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
    /// Offset of the planes from the coefficients, in units of [`DecodeOps::PLANE_BYTES`].
    planes_at: u32,
}

impl DecodeAt {
    fn check(&self) {
        let DecodeAt { ops, arena, coefficients, planes, axes, tables, starts, faults, out, columns, .. } = *self;
        let offsets = [ops, arena, coefficients, planes, axes, tables, starts, faults, out];
        assert!(offsets.iter().all(|at| at.is_multiple_of(16)), "device offsets {offsets:?} are not multiples of 16");
        assert!(columns <= DecodeOps::MOST_COLUMNS as usize, "region of {columns} columns");
    }

    /// Returns the addresses in `memory`, for outputs of (`height`, `width`).
    fn addresses(&self, memory: &DeviceBuffer, (height, width): (usize, usize)) -> Addresses {
        // The resize kernel computes both addresses from the start of the coefficients.
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
            planes_at: u32::try_from(gap / DecodeOps::PLANE_BYTES).expect("a record holds the number of blocks"),
        }
    }
}

/// A decoding stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Sets the fault flags to zero.
    Clear,
    /// Computes the resize filter of each axis.
    Axes,
    /// Builds the Huffman tables of each sample.
    Tables,
    /// Finds the decoder state at each line of long segments.
    Follow,
    /// Finds the starts of the pieces of long segments.
    Starts,
    /// Decodes entropy-coded bytes to coefficients.
    Huffman,
    /// Transforms coefficients to samples.
    Idct,
    /// Converts samples to upright pixels, for images with an EXIF orientation.
    Turn,
    /// Converts and resizes samples to pixels of the output.
    Resize,
}

impl Stage {
    /// The first stages, which process all samples at once.
    pub const TOGETHER: [Stage; 3] = [Stage::Clear, Stage::Axes, Stage::Tables];
    /// The remaining stages, in order.
    pub const APART: [Stage; 6] =
        [Stage::Follow, Stage::Starts, Stage::Huffman, Stage::Idct, Stage::Turn, Stage::Resize];

    /// Returns all stages in order.
    pub fn all() -> impl Iterator<Item = Stage> {
        Stage::TOGETHER.into_iter().chain(Stage::APART)
    }
}

/// A stream that decodes one part of a batch.
struct Branch {
    stream: Stream,
    done: Event,
}

/// The kernels that decode, crop, resize and flip JPEGs, for one output size. Their pixels equal
/// the host's bit for bit.
pub struct Decode {
    /// Event recorded after the work that all branches depend on.
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
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the output is empty or has more than 2^30
    /// pixels. [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) if a driver call fails.
    pub fn load(context: &Context, (height, width): (usize, usize)) -> Result<Self> {
        if height * width == 0 || height * width > 1 << 30 {
            return Err(Error::config(format!(
                "image size {width}x{height}: the device decodes into 1 to 2^30 pixels"
            )));
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

    /// Queues the decoding of `at.count` samples. If the record of a sample says that its pixels
    /// are already in place, they stay unchanged.
    ///
    /// # Safety
    /// The records, and the heads in the arena that they refer to, must have been written for this
    /// output size and fit `at`: they may refer to blocks below `at.blocks`, to at most
    /// `at.segments` segments, and to regions at most `at.columns` wide. If a record is a copy,
    /// `at.copied` must be set. Entropy-coded bytes may be arbitrary. The ranges must not overlap.
    /// Other accesses to them must be ordered by streams and events. `self` must not be dropped
    /// before the work is done.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) if a driver call fails.
    pub unsafe fn launch(&self, stream: &Stream, memory: &DeviceBuffer, at: DecodeAt) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.launch_in_parts(stream, memory, at, at.parts()) }
    }

    /// Same as [`launch`](Decode::launch), but with at most the given number of parts.
    ///
    /// # Safety
    /// Same as [`launch`](Decode::launch).
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) if a driver call fails.
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
            // Upholds invariant 2. If the driver cannot order the streams, the host waits.
            let joined = branch.done.record(&branch.stream).and_then(|()| stream.wait(&branch.done));
            queued.and(joined.or_else(|e| branch.stream.synchronize().and(Err(e))))
        })
    }

    /// Queues one stage for some samples, or for all samples if the stage is in
    /// [`Stage::TOGETHER`]. Queuing all stages in order is equivalent to
    /// [`launch`](Decode::launch).
    ///
    /// # Safety
    /// Same as [`launch`](Decode::launch). The previous stages must have been queued for the same
    /// samples, and for any samples whose records these samples copy.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) if a driver call fails.
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
        // Twice the mean number of lines per image. If an image has more lines, the thread blocks
        // loop over them.
        let lines = 2 * at.arena_bytes / count / LINE;
        let kept = (blocks / count).div_ceil(BLOCK as usize).clamp(1, 256);
        macro_rules! queue {
            ($kernel:ident, $blocks:expr, $block:expr, $shared:expr, $($parameter:expr),*) => {{
                let grid = Grid { blocks: $blocks as u32, block: $block, count: count_of_part, shared: $shared as u32 };
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
                unsafe { stream.clear(memory, at.faults, count * DecodeOps::FAULT_BYTES) }
            }
            Stage::Axes => queue!(axes, 2, BLOCK, 0, axes, faults, ops, all, height, width, planes_at),
            Stage::Tables => queue!(tables, TABLES, BLOCK, 0, tables, arena, ops, all),
            Stage::Follow => {
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
            // Tests request parts that contain only a few samples.
            assert_eq!(at.parts_within(9), count.clamp(1, PARTS));
            let copied = DecodeAt { copied: true, ..at };
            assert_eq!([copied.parts(), copied.parts_within(4)], [1, 1]);
        }
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
            assert_eq!(text.matches('{').count(), text.matches('}').count(), "{name} is cut at its end");
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
        // A `Strip` and the widest line must fit into shared memory together.
        let strip = 8 + ROWS * (8 + 8 * DecodeOps::MOST_TAPS);
        assert!((DecodeOps::MOST_COLUMNS as usize + 6) * 4 + 16 + strip.next_multiple_of(16) <= 48 << 10);
    }
}
