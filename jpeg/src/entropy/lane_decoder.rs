//! [`LaneDecoder`] owns the lanes and their memory.
//!
//! All lanes share one stream buffer and one block buffer. An image reserves an [`ImageSlot`], a
//! range of each buffer, and free lanes decode the pieces of the image. The backends' pointers into
//! the buffers are unchecked, which saves several bounds checks per symbol.
//!
//! **Invariants** of [`LaneDecoder`]. The unsafe code of the backends relies on them. Only this
//! file changes the fields named below, except that the backends advance the lanes.
//! - `stream` ends with [`SLACK_BYTES`] bytes that do not belong to any slot, and a lane's `bit` is
//!   at most `max_bit`, the first bit of these bytes. A backend compares `bit` with `max_bit` at
//!   least once per block. Within a block, `bit` advances by less than 256 bytes, and a read
//!   extends at most 24 bytes past `bit`.
//! - A busy lane that has not finished has `next_coefficient < end_coefficient`. It owns the
//!   coefficients up to `end_coefficient` plus [`SLACK_BLOCKS`] blocks. A backend stores at
//!   `next_coefficient` or later in the same block, or at the first coefficient after that block,
//!   and stops at `end_coefficient`.
//! - A lane's `table`, and `ac` and `next_dc` of every link, are offsets of whole tables. A lane's
//!   `link` and every link's `next_link` are indices of links.
//! - While a lane is busy, memory may grow but not shrink.
//! - A [`Backend`] exists only if the CPU has the instructions that it is named after.

use std::ops::Range;

use arrayvec::ArrayVec;

#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::backend::{Backend, Kind};
use super::lanes::{BlockLink, LANE_COUNT, LaneMemory, Lanes, MAX_LINKS, SLACK_BYTES};
use super::scalar;
use super::table::{TABLE_WORDS, Table};
use crate::error::{Result, reserve};
use crate::huffman::HuffmanSpec;

/// Maximum number of bytes of each kind of memory that a thread keeps after a large image.
pub(crate) const MAX_RETAINED_BYTES: usize = 64 << 20;

/// Number of lanes if the backend has no vectors, or if vectors do not pay off.
const SCALAR_LANES: usize = 3;
/// Maximum number of tables in use for which vectors pay off, because the tables of all lanes must
/// fit in the L1 cache. A color image has four tables, so this limit allows two images with their
/// own tables, or any number with the standard tables.
#[cfg(target_arch = "x86_64")]
const MAX_VECTOR_TABLES: usize = 8;
#[cfg(target_arch = "x86_64")]
const MIN_VECTOR_LANES: usize = 7;
/// Number of blocks after a lane's end to which the lane may write before it stops.
const SLACK_BLOCKS: usize = 1;
/// Number of cached tables at which a new table starts to replace unused ones.
const MAX_CACHED_TABLES: usize = 24;

/// 64 coefficients in zigzag order, aligned to cache lines.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(128))]
struct Block([i16; 64]);

/// The blocks of an MCU in scan order, and their tables. Images share equal patterns.
struct Pattern {
    links: Range<usize>,
    tables: ArrayVec<(usize, usize), 10>,
    user_count: usize,
}

struct CachedTable {
    spec: HuffmanSpec,
    is_ac: bool,
    user_count: usize,
    last_use_time: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageSlot {
    pub(crate) stream: Range<usize>,
    pub(crate) blocks: Range<usize>,
}

pub(crate) struct LaneDecoder {
    backend: Backend,
    /// The entropy-coded bytes of all slots, followed by [`SLACK_BYTES`] bytes.
    stream: Vec<u8>,
    blocks: Vec<Block>,
    tables: Vec<Table>,
    cached_tables: Vec<CachedTable>,
    tables_in_use: usize,
    clock: u64,
    links: [BlockLink; MAX_LINKS],
    #[cfg(target_arch = "x86_64")]
    vector_links: avx512::VectorLinks,
    patterns: Vec<Pattern>,
    lanes: Lanes,
    busy_lanes: usize,
    slots: Vec<ImageSlot>,
    free_slots: Vec<ImageSlot>,
}

impl LaneDecoder {
    pub(crate) fn new(backend: Backend) -> Self {
        let lanes = Lanes {
            bit: [0; LANE_COUNT],
            next_coefficient: [0; LANE_COUNT],
            end_coefficient: [0; LANE_COUNT],
            table: [0; LANE_COUNT],
            link: [0; LANE_COUNT],
        };
        LaneDecoder {
            backend,
            stream: vec![0; SLACK_BYTES],
            blocks: Vec::new(),
            tables: Vec::new(),
            cached_tables: Vec::new(),
            tables_in_use: 0,
            clock: 0,
            links: [BlockLink::default(); MAX_LINKS],
            #[cfg(target_arch = "x86_64")]
            vector_links: avx512::VectorLinks {
                ac: [0; MAX_LINKS],
                next_dc: [0; MAX_LINKS],
                next_link: [0; MAX_LINKS],
            },
            patterns: Vec::new(),
            lanes,
            busy_lanes: 0,
            slots: Vec::new(),
            free_slots: Vec::new(),
        }
    }

    pub(crate) fn has_free_lane(&self) -> bool {
        let lanes = match self.backend.kind() {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 if self.tables_in_use <= MAX_VECTOR_TABLES => LANE_COUNT,
            _ => SCALAR_LANES,
        };
        self.busy_lanes < lanes
    }

    /// Finds or creates the pattern of an MCU from the DC and AC tables of its blocks. Returns
    /// `None` if too many patterns are in use.
    pub(crate) fn acquire_pattern(&mut self, blocks: &[(&HuffmanSpec, &HuffmanSpec)]) -> Result<Option<usize>> {
        let mut tables = ArrayVec::new();
        let start_time = self.clock;
        for (dc, ac) in blocks {
            tables.push((
                self.find_or_build_table(dc, false, start_time)?,
                self.find_or_build_table(ac, true, start_time)?,
            ));
        }
        if let Some(i) = self.patterns.iter().position(|p| p.user_count > 0 && p.tables == tables) {
            self.patterns[i].user_count += 1;
            return Ok(Some(i));
        }
        let is_used = |i: usize| self.patterns.iter().any(|p| p.user_count > 0 && p.links.contains(&i));
        let fits = |&first: &usize| (first..first + blocks.len()).all(|i| i < MAX_LINKS && !is_used(i));
        let Some(first) = (0..MAX_LINKS).find(fits) else { return Ok(None) };
        let links = first..first + blocks.len();
        for (i, &(_, ac)) in tables.iter().enumerate() {
            let next_block = (i + 1) % tables.len();
            let offset = |table: usize| (table * TABLE_WORDS) as u32;
            let (ac, next_dc, next_link) = (offset(ac), offset(tables[next_block].0), (first + next_block) as u32);
            self.links[first + i] = BlockLink { ac, next_dc, next_link };
            #[cfg(target_arch = "x86_64")]
            {
                self.vector_links.ac[first + i] = ac;
                self.vector_links.next_dc[first + i] = next_dc;
                self.vector_links.next_link[first + i] = next_link;
            }
        }
        for table in tables.iter().flat_map(|&(dc, ac)| [dc, ac]) {
            self.tables_in_use += usize::from(self.cached_tables[table].user_count == 0);
            self.cached_tables[table].user_count += 1;
        }
        let pattern = Pattern { links, tables, user_count: 1 };
        match self.patterns.iter().position(|p| p.user_count == 0) {
            Some(i) => {
                self.patterns[i] = pattern;
                Ok(Some(i))
            }
            None => {
                self.patterns.push(pattern);
                Ok(Some(self.patterns.len() - 1))
            }
        }
    }

    pub(crate) fn release_pattern(&mut self, pattern: usize) {
        let pattern = &mut self.patterns[pattern];
        pattern.user_count -= 1;
        if pattern.user_count == 0 {
            for table in pattern.tables.iter().flat_map(|&(dc, ac)| [dc, ac]) {
                self.cached_tables[table].user_count -= 1;
                self.tables_in_use -= usize::from(self.cached_tables[table].user_count == 0);
            }
        }
    }

    /// Returns the index of a cached or newly built table. A new table replaces the least recently
    /// used table without users if the cache is full. Tables requested after `start_time` are not
    /// replaced, because the current image needs them but is not yet counted as their user.
    fn find_or_build_table(&mut self, spec: &HuffmanSpec, is_ac: bool, start_time: u64) -> Result<usize> {
        self.clock += 1;
        if let Some(i) = self.cached_tables.iter().position(|c| c.is_ac == is_ac && c.spec == *spec) {
            self.cached_tables[i].last_use_time = self.clock;
            return Ok(i);
        }
        let cached = CachedTable { spec: spec.clone(), is_ac, user_count: 0, last_use_time: self.clock };
        let is_evictable = |c: &&CachedTable| c.user_count == 0 && c.last_use_time <= start_time;
        let oldest =
            self.cached_tables.iter().filter(is_evictable).min_by_key(|c| c.last_use_time).map(|c| c.last_use_time);
        match self
            .cached_tables
            .iter()
            .position(|c| self.cached_tables.len() >= MAX_CACHED_TABLES && Some(c.last_use_time) == oldest)
        {
            Some(i) => {
                self.tables[i] = Table::new(spec, is_ac)?;
                self.cached_tables[i] = cached;
                Ok(i)
            }
            None => {
                reserve(&mut self.tables, 1)?;
                self.tables.push(Table::new(spec, is_ac)?);
                self.cached_tables.push(cached);
                Ok(self.tables.len() - 1)
            }
        }
    }

    /// Reserves memory for an image. Returns `None` if an allocation fails, or if offsets would not
    /// fit in 32 bits, which the vectors require.
    pub(crate) fn reserve_slot(&mut self, bytes: usize, blocks: usize) -> Option<ImageSlot> {
        // Add slack to each slot, so that a lane that runs past its segment stops before the next
        // slot.
        let bytes = bytes + SLACK_BYTES;
        if let Some(i) = self.free_slots.iter().position(|s| s.stream.len() >= bytes && s.blocks.len() >= blocks) {
            return Some(self.free_slots.swap_remove(i));
        }
        if self.free_slots.len() == self.slots.len() {
            assert!(self.busy_lanes == 0, "a busy lane uses a slot");
            self.free_slots.clear();
            self.slots.clear();
            if self.stream.len() + self.blocks.len() * size_of::<Block>() > MAX_RETAINED_BYTES {
                (self.stream, self.blocks) = (vec![0; SLACK_BYTES], Vec::new());
            }
        }
        let end = self.slots.iter().fold((0, 0), |end, s| (end.0.max(s.stream.end), end.1.max(s.blocks.end)));
        // Reserve more than requested, so that a slightly larger image can reuse the slot.
        let (bytes, blocks) = (bytes + bytes / 4, blocks + blocks / 4);
        if (end.0 + bytes + SLACK_BYTES) * 8 > u32::MAX as usize || (end.1 + blocks) * 64 > i32::MAX as usize {
            return None;
        }
        let slot = ImageSlot { stream: end.0..end.0 + bytes, blocks: end.1..end.1 + blocks };
        let (stream, blocks) = (self.stream.len(), self.blocks.len());
        let ends = (stream.max(slot.stream.end + SLACK_BYTES), blocks.max(slot.blocks.end));
        reserve(&mut self.stream, ends.0 - stream).ok()?;
        reserve(&mut self.blocks, ends.1 - blocks).ok()?;
        self.stream.resize(ends.0, 0);
        self.blocks.resize(ends.1, Block([0; 64]));
        self.slots.push(slot.clone());
        Some(slot)
    }

    pub(crate) fn free_slot(&mut self, slot: ImageSlot) {
        self.free_slots.push(slot);
    }

    pub(crate) fn stream(&mut self, slot: &ImageSlot) -> &mut [u8] {
        &mut self.stream[slot.stream.clone()]
    }

    /// Returns the coefficients of all blocks. Block `i` consists of 64 coefficients in zigzag
    /// order, starting at index `64 * i`.
    pub(crate) fn coefficients(&self) -> &[i16] {
        // SAFETY: blocks are arrays of 64 coefficients, without padding.
        unsafe { std::slice::from_raw_parts(self.blocks.as_ptr().cast(), self.blocks.len() * 64) }
    }

    pub(crate) fn dc(&mut self, block: usize) -> &mut i16 {
        &mut self.blocks[block].0[0]
    }

    pub(crate) fn blocks_to_reserve(blocks: usize) -> usize {
        blocks + SLACK_BLOCKS
    }

    /// Starts a lane at bit `bit` of the stream, and returns the index of the lane. The lane
    /// decodes `count` blocks, a whole number of MCUs, into the blocks that start at index `first`.
    pub(crate) fn start_lane(&mut self, bit: usize, first: usize, count: usize, pattern: usize) -> usize {
        let lane = self.busy_lanes;
        assert!(lane < LANE_COUNT && bit <= self.max_bit() && count > 0);
        let blocks = &mut self.blocks[first..first + Self::blocks_to_reserve(count)];
        blocks[..count].fill(Block([0; 64]));
        let pattern = &self.patterns[pattern];
        assert!(pattern.user_count > 0);
        self.lanes.bit[lane] = bit as u32;
        self.lanes.next_coefficient[lane] = (first * 64) as u32;
        self.lanes.end_coefficient[lane] = ((first + count) * 64) as u32;
        self.lanes.table[lane] = (pattern.tables[0].0 * TABLE_WORDS) as u32;
        self.lanes.link[lane] = pattern.links.start as u32;
        self.busy_lanes += 1;
        lane
    }

    /// Decodes in some or all busy lanes until at least one of them has finished.
    ///
    /// # Panics
    /// If no lane is busy, or if a lane has finished but has not been
    /// [stopped](LaneDecoder::stop_lane).
    pub(crate) fn run(&mut self) {
        let (index, end) =
            (&self.lanes.next_coefficient[..self.busy_lanes], &self.lanes.end_coefficient[..self.busy_lanes]);
        assert!(self.busy_lanes > 0 && index.iter().zip(end).all(|(index, end)| index < end));
        let memory = LaneMemory {
            stream: self.stream.as_ptr(),
            max_bit: self.max_bit() as u64,
            coefficients: self.blocks.as_mut_ptr().cast(),
            tables: self.tables.as_ptr().cast(),
            links: self.links.as_ptr(),
        };
        // SAFETY: `start_lane` made every busy lane valid, no lane has reached its end, and memory
        // has not shrunk since. This CPU supports the backend.
        unsafe {
            match self.backend.kind() {
                Kind::Scalar => scalar::run(&memory, &mut self.lanes, self.busy_lanes),
                #[cfg(target_arch = "x86_64")]
                Kind::Avx512 if self.busy_lanes >= MIN_VECTOR_LANES => {
                    avx512::run(&memory, &self.vector_links, &mut self.lanes, self.busy_lanes);
                }
                #[cfg(target_arch = "x86_64")]
                Kind::Bmi | Kind::Avx512 => {
                    scalar::run_bmi(&memory, &mut self.lanes, self.busy_lanes.min(SCALAR_LANES))
                }
            }
        }
    }

    /// Returns the bit at which a busy lane stopped, or `None` if it has not finished.
    pub(crate) fn finished_bit(&self, lane: usize) -> Option<usize> {
        (self.lanes.next_coefficient[lane] >= self.lanes.end_coefficient[lane]).then(|| self.lanes.bit[lane] as usize)
    }

    /// Ends a lane that has finished. The last busy lane moves to its index.
    pub(crate) fn stop_lane(&mut self, lane: usize) {
        assert!(lane < self.busy_lanes);
        self.busy_lanes -= 1;
        let lanes = &mut self.lanes;
        for field in
            [&mut lanes.bit, &mut lanes.next_coefficient, &mut lanes.end_coefficient, &mut lanes.table, &mut lanes.link]
        {
            field[lane] = field[self.busy_lanes];
        }
    }

    fn max_bit(&self) -> usize {
        (self.stream.len() - SLACK_BYTES) * 8
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_decoder_runs_only_lanes_that_have_not_finished() {
        let refused = |lane_decoder: &mut LaneDecoder| catch_unwind(AssertUnwindSafe(|| lane_decoder.run())).is_err();
        let mut lane_decoder = LaneDecoder::new(Backend::scalar());
        assert!(refused(&mut lane_decoder), "no lane is busy");
        // The only code stands for both a DC difference of zero and the end of a block.
        let spec = HuffmanSpec::new(std::array::from_fn(|i| u8::from(i == 0)), &[0]);
        let pattern = lane_decoder.acquire_pattern(&[(&spec, &spec)]).unwrap().unwrap();
        let slot = lane_decoder.reserve_slot(8, LaneDecoder::blocks_to_reserve(1)).unwrap();
        lane_decoder.stream(&slot).fill(0);
        lane_decoder.start_lane(slot.stream.start * 8, slot.blocks.start, 1, pattern);
        lane_decoder.run();
        assert_eq!(lane_decoder.finished_bit(0), Some(slot.stream.start * 8 + 2));
        assert!(refused(&mut lane_decoder), "the lane has finished");
        lane_decoder.stop_lane(0);
        assert!(refused(&mut lane_decoder), "the lane was stopped");
    }

    #[test]
    fn an_image_does_not_evict_its_own_tables() {
        let mut lane_decoder = LaneDecoder::new(Backend::scalar());
        let spec = |symbol: u8| HuffmanSpec::new(std::array::from_fn(|i| u8::from(i == 0)), &[symbol]);
        let others: Vec<_> = (0..MAX_CACHED_TABLES as u8).map(|i| spec(100 + i)).collect();
        for pair in others.chunks(2) {
            // Only the image's own tables could be evicted, because all others are in use.
            lane_decoder.find_or_build_table(&pair[0], true, 0).unwrap();
            lane_decoder.find_or_build_table(&pair[1], true, 0).unwrap();
        }
        lane_decoder.cached_tables.iter_mut().for_each(|c| c.user_count = 1);
        let (dc, ac): (Vec<_>, Vec<_>) = ([1, 2, 3].map(spec).into(), [4, 5, 6].map(spec).into());
        let blocks: Vec<_> = [0, 1, 1, 1, 1, 1, 1, 1, 1, 2].iter().map(|&i: &usize| (&dc[i], &ac[i])).collect();
        let pattern = lane_decoder.acquire_pattern(&blocks).unwrap().unwrap();
        for (&(d, a), (dc, ac)) in lane_decoder.patterns[pattern].tables.iter().zip(&blocks) {
            assert!(lane_decoder.cached_tables[d].spec == **dc && lane_decoder.cached_tables[a].spec == **ac);
        }
    }
}
