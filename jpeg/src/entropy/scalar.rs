//! Decodes one to three lanes in plain registers.
//!
//! The branch at the end of a block is mispredicted about once per block. Conditional moves would
//! avoid this, but cost more, because they select the next table and position after every lookup.

use super::lanes::{BlockLink, LaneMemory, Lanes, SLACK_BYTES};
use super::table::{MAX_CODE_BITS, MAX_ENTRY_BITS, NO_SYMBOL, PAIR_BITS, Table, TableEntry};

const MIN_BITS: usize = 56;
const READ_AHEAD: usize = 8;
/// Unchecked reads are safe because there are at most two lookups between refills, and because the
/// end of the stream is checked at the start of each block, which has at most 64 symbols.
const _: () = assert!(2 * MAX_ENTRY_BITS <= MIN_BITS && SLACK_BYTES >= 64 * MAX_CODE_BITS / 8 + 2 * READ_AHEAD + 8);

/// Decodes with the first `count` lanes, one to three, until at least one of them reaches its end.
/// A lane stops exactly at its end.
///
/// # Safety
/// The invariants of [`super::LaneDecoder`] must hold for `memory` and for the first `count` of
/// `lanes`.
pub(super) unsafe fn run(memory: &LaneMemory, lanes: &mut Lanes, count: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match count {
            1 => interleaved::<1>(memory, lanes),
            2 => interleaved::<2>(memory, lanes),
            _ => interleaved::<3>(memory, lanes),
        }
    }
}

/// Like [`run`], but compiled for CPUs with shift instructions that do not set flags.
///
/// # Safety
/// Same as [`run`]. The CPU must also have BMI1, BMI2, LZCNT and MOVBE.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "bmi1,bmi2,lzcnt,movbe")]
pub(super) unsafe fn run_bmi(memory: &LaneMemory, lanes: &mut Lanes, count: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match count {
            1 => interleaved::<1>(memory, lanes),
            2 => interleaved::<2>(memory, lanes),
            _ => interleaved::<3>(memory, lanes),
        }
    }
}

#[derive(Clone, Copy)]
struct Lane {
    bits: u64,
    /// The lower six bits are the number of valid bits in `bits`. The upper bits of `bit_count` are
    /// arbitrary.
    bit_count: u64,
    next_byte: *const u8,
    table: *const Table,
    last: *mut i16,
    /// Position of the latest coefficient relative to `last`: -63 for the first coefficient of the
    /// block, 0 for the last, and -64 if the block has not been started.
    position: isize,
    link: *const BlockLink,
    end: *mut i16,
}

/// Decodes with the first `L` lanes. Macros repeat the code for each lane, because the compiler
/// would not unroll a loop over the lanes, and would keep their state in memory.
#[inline(always)]
unsafe fn interleaved<const L: usize>(memory: &LaneMemory, lanes: &mut Lanes) {
    macro_rules! each {
        ($lane:ident $body:block) => {
            each!($lane 0 $body);
            each!($lane 1 $body);
            each!($lane 2 $body);
        };
        ($lane:ident $i:literal $body:block) => {
            if $i < L {
                const $lane: usize = $i;
                $body
            }
        };
    }
    // SAFETY: the first `L` lanes are valid.
    let mut lane: [Lane; 3] = unsafe { [Lane::load(memory, lanes, 0); 3] };
    let mut can_continue = true;
    each!(I {
        // SAFETY: as above. A lane that is at the start of a block owns this block.
        unsafe {
            lane[I] = Lane::load(memory, lanes, I);
            can_continue &= lane[I].position > -64 || decode_dc(memory, &mut lane[I]);
        }
    });
    macro_rules! steps {
        ($all:lifetime) => {
            // Interleave single steps, so that while one lane waits, the next steps of the others
            // are within the CPU's reorder window.
            each!(I {
                // SAFETY: the lane has not reached its end, and has read ahead enough bits for this
                // lookup.
                unsafe {
                    if !step(&mut lane[I]) && !finish_step(memory, &mut lane[I]) {
                        break $all;
                    }
                }
            });
        };
    }
    if can_continue {
        'all: loop {
            // SAFETY: the lane has not reached its end.
            each!(I { unsafe { refill(&mut lane[I]) } });
            steps!('all);
            steps!('all);
        }
    }
    // SAFETY: the lane was loaded by `load`.
    each!(I { unsafe { lane[I].store(memory, lanes, I) } });
}

impl LaneMemory {
    /// Returns a read position that a lane reaches only after leaving its segment.
    #[inline(always)]
    fn abandoned_position(&self) -> *const u8 {
        // SAFETY: the slack after `max_bit` is longer than `READ_AHEAD`.
        unsafe { self.stream.add(self.max_bit as usize / 8 + READ_AHEAD) }
    }
}

impl Lane {
    /// Loads the state of lane `i` into registers.
    ///
    /// # Safety
    /// Lane `i` must be a valid lane of `memory`.
    #[inline(always)]
    unsafe fn load(memory: &LaneMemory, lanes: &Lanes, i: usize) -> Lane {
        let (bit, index) = (lanes.bit[i] as usize, lanes.next_coefficient[i] as usize);
        // SAFETY: the offsets and indices of a valid lane are inside the memory that they refer to,
        // which includes one more block after `end`.
        let mut lane = unsafe {
            Lane {
                bits: 0,
                bit_count: 0,
                next_byte: memory.stream.add(bit >> 3),
                table: memory.tables.add(lanes.table[i] as usize).cast(),
                last: memory.coefficients.add(index | 63),
                position: (index & 63) as isize - 64,
                link: memory.links.add(lanes.link[i] as usize),
                end: memory.coefficients.add(lanes.end_coefficient[i] as usize | 63),
            }
        };
        // SAFETY: `bit` is at most `max_bit`.
        unsafe { refill(&mut lane) };
        lane.bits <<= bit & 7;
        lane.bit_count -= (bit & 7) as u64;
        lane
    }

    /// Writes the state back to lane `i`.
    ///
    /// # Safety
    /// The lane must have been [loaded](Lane::load) from `memory`.
    #[inline(always)]
    unsafe fn store(&self, memory: &LaneMemory, lanes: &mut Lanes, i: usize) {
        // SAFETY: in each pair, both pointers point into the same allocation.
        unsafe {
            let read = self.next_byte.offset_from(memory.stream) as u64 * 8;
            lanes.bit[i] = (read - (self.bit_count & 63)).min(memory.max_bit) as u32;
            lanes.next_coefficient[i] = (self.last.offset_from(memory.coefficients) + self.position + 1) as u32;
            lanes.table[i] = self.table.cast::<u32>().offset_from(memory.tables) as u32;
            lanes.link[i] = self.link.offset_from(memory.links) as u32;
        }
    }

    /// Removes bits that have been decoded. Uses only the lower six bits of `length`.
    #[inline(always)]
    fn consume(&mut self, length: u64) {
        self.bits <<= length & 63;
        self.bit_count = self.bit_count.wrapping_sub(length);
    }

    /// Moves the lane past all segments to tell its owner that the data is invalid.
    #[inline(always)]
    fn abandon(&mut self, memory: &LaneMemory) {
        self.next_byte = memory.abandoned_position();
        (self.bit_count, self.last, self.position) = (0, self.end, -64);
    }
}

/// Refills a lane to at least [`MIN_BITS`] bits.
///
/// # Safety
/// Eight bytes must be readable at `next_byte`.
#[inline(always)]
unsafe fn refill(lane: &mut Lane) {
    // Reads some bits of `bits` again, with the same values. SAFETY: guaranteed by the caller.
    unsafe {
        lane.bits |= u64::from_be(lane.next_byte.cast::<u64>().read_unaligned()) >> (lane.bit_count & 63);
        lane.next_byte = lane.next_byte.add((!lane.bit_count >> 3 & 7) as usize);
    }
    lane.bit_count |= MIN_BITS as u64;
}

/// Looks up the entry for the next bits.
///
/// # Safety
/// The lane's table must be valid.
#[inline(always)]
unsafe fn find_entry<'a>(lane: &Lane) -> &'a TableEntry {
    // SAFETY: a table starts with an entry for each value of `PAIR_BITS` bits.
    unsafe { &*lane.table.cast::<TableEntry>().add((lane.bits >> (64 - PAIR_BITS)) as usize) }
}

#[inline(always)]
fn second_value(entry: &TableEntry, bits: u64) -> i16 {
    entry.values[1].wrapping_add((bits << PAIR_BITS >> 1 >> (entry.tail_shift & 63)) as i16)
}

/// Decodes the one or two symbols of a lookup. Returns `false`, without decoding anything, if the
/// block ends with these symbols or if the entry is not valid.
///
/// # Safety
/// The lane must be valid and must have read ahead at least [`MAX_ENTRY_BITS`] bits.
#[inline(always)]
unsafe fn step(lane: &mut Lane) -> bool {
    // SAFETY: the lane is valid.
    let entry = unsafe { find_entry(lane) };
    let first = lane.position + isize::from(entry.first);
    let second = first + isize::from(entry.second);
    if second >= 0 {
        return false;
    }
    // SAFETY: both positions are after `position` and before the end of the block.
    unsafe {
        *lane.last.offset(first) = entry.values[0];
        *lane.last.offset(second) = second_value(entry, lane.bits);
    }
    lane.position = second;
    lane.consume(entry.packed_length());
    true
}

/// Decodes the symbols for which [`step`] returned `false`. If the block ends, moves to the next
/// block. Returns `false` if there is no next block, or if the data is invalid.
///
/// # Safety
/// See [`step`].
#[inline(always)]
unsafe fn finish_step(memory: &LaneMemory, lane: &mut Lane) -> bool {
    // SAFETY: the lane is valid, and it stays in its block or moves to the next one, which exists
    // unless the block was the last block.
    unsafe {
        let entry = find_entry(lane);
        let first = lane.position + isize::from(entry.first);
        if first >= 0 {
            if !decode_long_symbol(memory, lane, if entry.first == NO_SYMBOL { PAIR_BITS } else { 1 }) {
                return false;
            }
            if lane.position < 0 {
                refill(lane);
                return true;
            }
        } else {
            *lane.last.offset(first) = entry.values[0];
            // If the second symbol ends the block, `second` is the last position, and storing its
            // value there is harmless: both are zero.
            let second = (first + isize::from(entry.second)).min(0);
            *lane.last.offset(second) = second_value(entry, lane.bits);
            lane.consume(entry.packed_length());
        }
        lane.last = lane.last.add(64);
        lane.position = -64;
        lane.table = memory.tables.add((*lane.link).next_dc as usize).cast();
        lane.link = memory.links.add((*lane.link).next_link as usize);
        lane.last != lane.end && decode_dc(memory, lane)
    }
}

/// Decodes the DC coefficient of the lane's block. Returns `false` if the stream has ended, or if
/// the code is invalid.
///
/// # Safety
/// The lane must be valid and must not have reached its end.
#[inline(always)]
unsafe fn decode_dc(memory: &LaneMemory, lane: &mut Lane) -> bool {
    // SAFETY: the lane and its link are valid. Even at the end of the stream, there is enough slack
    // after the previous block to refill.
    unsafe {
        refill(lane);
        let entry = find_entry(lane);
        if lane.next_byte > memory.abandoned_position() {
            lane.abandon(memory);
            return false;
        }
        if entry.first == NO_SYMBOL {
            if !decode_long_symbol(memory, lane, PAIR_BITS) {
                return false;
            }
        } else {
            lane.position = -63;
            *lane.last.sub(63) = second_value(entry, lane.bits);
            lane.consume(entry.packed_length());
        }
        lane.table = memory.tables.add((*lane.link).ac as usize).cast();
        refill(lane);
    }
    true
}

/// Decodes a symbol without a valid entry. Its code has at least `shortest` bits. Returns `false`
/// if the code is invalid.
///
/// # Safety
/// The lane must be valid and must not have reached its end.
#[inline(always)]
unsafe fn decode_long_symbol(memory: &LaneMemory, lane: &mut Lane, shortest: usize) -> bool {
    // SAFETY: the lane is valid, and `position` is inside its block.
    unsafe {
        refill(lane);
        let Some(step) = (*lane.table).decode_long(lane.bits, shortest) else {
            lane.abandon(memory);
            return false;
        };
        lane.consume(step.length.into());
        lane.position = (lane.position + 1 + isize::from(step.advance)).min(0);
        *lane.last.offset(lane.position) = step.value as i16;
    }
    true
}
