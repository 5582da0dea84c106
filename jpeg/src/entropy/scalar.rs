//! One to three lanes in plain registers: while one lane waits for its lookup, the others proceed.
//!
//! A branch decides whether a block ends. It is mispredicted about once per block, which costs less
//! than choosing the next table and the next place by conditional moves at every lookup.

use super::lanes::{Lanes, Link, Pointers, SLACK_BYTES};
use super::table::{BITS, LONGEST, LONGEST_CODE, ODD, Table, TableEntry};

/// Minimum number of bits that a lane holds after a refill.
const HELD: usize = 56;
/// Maximum distance, in bytes, between a lane's next bit and the position it reads from next.
const AHEAD: usize = 8;
/// There are two lookups between refills. A lane checks for the end of the stream at the start of
/// each block, and a block has at most 64 symbols.
const _: () = assert!(2 * LONGEST <= HELD && SLACK_BYTES >= 64 * LONGEST_CODE / 8 + 2 * AHEAD + 8);

/// Decodes the first `count` lanes, one to three, until at least one of them has reached its end.
/// That lane stops exactly there.
///
/// # Safety
/// The invariants of [`super::Machine`] hold for `memory` and for the first `count` of `lanes`.
pub(super) unsafe fn run(memory: &Pointers, lanes: &mut Lanes, count: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match count {
            1 => interleaved::<1>(memory, lanes),
            2 => interleaved::<2>(memory, lanes),
            _ => interleaved::<3>(memory, lanes),
        }
    }
}

/// [`run`], compiled for CPUs with shifts that do not set flags.
///
/// # Safety
/// Those of [`run`], on a CPU with BMI1, BMI2, LZCNT and MOVBE.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "bmi1,bmi2,lzcnt,movbe")]
pub(super) unsafe fn run_bmi(memory: &Pointers, lanes: &mut Lanes, count: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match count {
            1 => interleaved::<1>(memory, lanes),
            2 => interleaved::<2>(memory, lanes),
            _ => interleaved::<3>(memory, lanes),
        }
    }
}

/// A lane in registers, inside a block, with pointers instead of offsets.
#[derive(Clone, Copy)]
struct Lane {
    /// Next bits of the stream, from the top.
    bits: u64,
    /// Number of valid bits, in the lower six bits. The upper bits are arbitrary.
    held: u64,
    /// Next byte to read: the first one that is not completely in `bits`.
    next: *const u8,
    /// Table for the next symbol.
    table: *const Table,
    /// Last coefficient of the block.
    last: *mut i16,
    /// Position of the latest coefficient, relative to `last`: -63 is the block's first, 0 its end,
    /// and -64 the position before the block.
    place: isize,
    link: *const Link,
    /// Value of `last` when the lane is finished.
    end: *mut i16,
}

/// Everything is spelled out for each lane, because the compiler keeps a loop over lanes as a loop,
/// and their state in memory.
#[inline(always)]
unsafe fn interleaved<const L: usize>(memory: &Pointers, lanes: &mut Lanes) {
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
    let mut more = true;
    each!(I {
        // SAFETY: as above; a lane at a block's first coefficient has that block.
        unsafe {
            lane[I] = Lane::load(memory, lanes, I);
            more &= lane[I].place > -64 || dc(memory, &mut lane[I]);
        }
    });
    macro_rules! steps {
        ($all:lifetime) => {
            // One step of each lane in turn, so that the other lanes' work is within the
            // core's reorder window while one lane waits.
            each!(I {
                // SAFETY: the lane has not reached its end, and holds enough bits for a lookup.
                unsafe {
                    if !step(&mut lane[I]) && !turn(memory, &mut lane[I]) {
                        break $all;
                    }
                }
            });
        };
    }
    if more {
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

impl Pointers {
    /// A read position that no lane inside its segment reaches.
    #[inline(always)]
    fn beyond(&self) -> *const u8 {
        // SAFETY: there is slack after the limit.
        unsafe { self.stream.add(self.limit as usize / 8 + AHEAD) }
    }
}

impl Lane {
    /// # Safety
    /// Lane `i` must be a valid lane of `memory`.
    #[inline(always)]
    unsafe fn load(memory: &Pointers, lanes: &Lanes, i: usize) -> Lane {
        let (bit, at) = (lanes.bit[i] as usize, lanes.at[i] as usize);
        // SAFETY: offsets and indices of a valid lane are inside the memory that they refer to,
        // which has a block after `end`.
        let mut lane = unsafe {
            Lane {
                bits: 0,
                held: 0,
                next: memory.stream.add(bit >> 3),
                table: memory.tables.add(lanes.table[i] as usize).cast(),
                last: memory.coefficients.add(at | 63),
                place: (at & 63) as isize - 64,
                link: memory.links.add(lanes.link[i] as usize),
                end: memory.coefficients.add(lanes.end[i] as usize | 63),
            }
        };
        // SAFETY: `bit` is at most `limit`.
        unsafe { refill(&mut lane) };
        lane.bits <<= bit & 7;
        lane.held -= (bit & 7) as u64;
        lane
    }

    /// # Safety
    /// The lane must have been [loaded](Lane::load) from `memory`.
    #[inline(always)]
    unsafe fn store(&self, memory: &Pointers, lanes: &mut Lanes, i: usize) {
        // SAFETY: both pointers of each pair point into the same memory.
        unsafe {
            let read = self.next.offset_from(memory.stream) as u64 * 8;
            lanes.bit[i] = (read - (self.held & 63)).min(memory.limit) as u32;
            lanes.at[i] = (self.last.offset_from(memory.coefficients) + self.place + 1) as u32;
            lanes.table[i] = self.table.cast::<u32>().offset_from(memory.tables) as u32;
            lanes.link[i] = self.link.offset_from(memory.links) as u32;
        }
    }

    /// Consumes `length` bits. Only the lower six bits of `length` count.
    #[inline(always)]
    fn take(&mut self, length: u64) {
        self.bits <<= length & 63;
        self.held = self.held.wrapping_sub(length);
    }

    /// Marks the lane as finished, at a position after all segments. There its owner notices that
    /// the lane left its segment.
    #[inline(always)]
    fn lose(&mut self, memory: &Pointers) {
        self.next = memory.beyond();
        (self.held, self.last, self.place) = (0, self.end, -64);
    }
}

/// Refills a lane to at least [`HELD`] bits.
///
/// # Safety
/// Eight bytes must be readable at `next`.
#[inline(always)]
unsafe fn refill(lane: &mut Lane) {
    // SAFETY: guaranteed by the caller. Bits that were read before are read again, unchanged.
    unsafe {
        lane.bits |= u64::from_be(lane.next.cast::<u64>().read_unaligned()) >> (lane.held & 63);
        lane.next = lane.next.add((!lane.held >> 3 & 7) as usize);
    }
    lane.held |= HELD as u64;
}

/// Returns the entry for the next bits of a lane.
///
/// # Safety
/// The lane's table must be valid.
#[inline(always)]
unsafe fn look_up<'a>(lane: &Lane) -> &'a TableEntry {
    // SAFETY: a table starts with an entry for each value of that many bits.
    unsafe { &*lane.table.cast::<TableEntry>().add((lane.bits >> (64 - BITS)) as usize) }
}

/// The second value of an entry, with its bits after the window.
#[inline(always)]
fn second_value(entry: &TableEntry, bits: u64) -> i16 {
    entry.values[1].wrapping_add((bits << BITS >> 1 >> (entry.rest & 63)) as i16)
}

/// Decodes the one or two symbols of a lookup. Returns `false`, and does nothing, if the block ends
/// with them or the entry is not valid.
///
/// # Safety
/// The lane must be valid, and hold [`LONGEST`] bits.
#[inline(always)]
unsafe fn step(lane: &mut Lane) -> bool {
    // SAFETY: the lane is valid.
    let entry = unsafe { look_up(lane) };
    let first = lane.place + isize::from(entry.first);
    let second = first + isize::from(entry.second);
    if second >= 0 {
        return false;
    }
    // SAFETY: both are after `place` and before the block's end.
    unsafe {
        *lane.last.offset(first) = entry.values[0];
        *lane.last.offset(second) = second_value(entry, lane.bits);
    }
    lane.place = second;
    lane.take(entry.head());
    true
}

/// Decodes what [`step`] could not, and moves on to the next block if this one ends. Returns
/// `false` if there is no next block.
///
/// # Safety
/// Like [`step`].
#[inline(always)]
unsafe fn turn(memory: &Pointers, lane: &mut Lane) -> bool {
    // SAFETY: the lane is valid, and stays in its block or moves to the next one, which exists
    // unless the block was the last.
    unsafe {
        let entry = look_up(lane);
        let first = lane.place + isize::from(entry.first);
        if first >= 0 {
            if !long(memory, lane, if entry.first == ODD { BITS } else { 1 }) {
                return false;
            }
            if lane.place < 0 {
                refill(lane);
                return true;
            }
        } else {
            *lane.last.offset(first) = entry.values[0];
            // If the symbol ends the block, this stores a zero in the last place, which is zero
            // already.
            let second = (first + isize::from(entry.second)).min(0);
            *lane.last.offset(second) = second_value(entry, lane.bits);
            lane.take(entry.head());
        }
        lane.last = lane.last.add(64);
        lane.place = -64;
        lane.table = memory.tables.add((*lane.link).next_dc as usize).cast();
        lane.link = memory.links.add((*lane.link).next as usize);
        lane.last != lane.end && dc(memory, lane)
    }
}

/// Decodes the DC coefficient of the block that starts at the lane's position. Returns `false` if
/// the stream has ended.
///
/// # Safety
/// The lane must be valid, and not have reached its end.
#[inline(always)]
unsafe fn dc(memory: &Pointers, lane: &mut Lane) -> bool {
    // SAFETY: the lane is valid, and so is its link. After the previous block there is enough slack
    // to refill from.
    unsafe {
        refill(lane);
        let entry = look_up(lane);
        if lane.next > memory.beyond() {
            lane.lose(memory);
            return false;
        }
        if entry.first == ODD {
            if !long(memory, lane, BITS) {
                return false;
            }
        } else {
            lane.place = -63;
            *lane.last.sub(63) = second_value(entry, lane.bits);
            lane.take(entry.head());
        }
        lane.table = memory.tables.add((*lane.link).ac as usize).cast();
        refill(lane);
    }
    true
}

/// Decodes one symbol whose code has at least `shortest` bits, and whose entry is not valid.
/// Returns `false` if the code does not exist.
///
/// # Safety
/// The lane must be valid, and not have reached its end.
#[inline(always)]
unsafe fn long(memory: &Pointers, lane: &mut Lane, shortest: usize) -> bool {
    // SAFETY: the lane is valid; the place is in its block.
    unsafe {
        refill(lane);
        let Some(step) = (*lane.table).long(lane.bits, shortest) else {
            lane.lose(memory);
            return false;
        };
        lane.take(step.length.into());
        lane.place = (lane.place + 1 + isize::from(step.advance)).min(0);
        *lane.last.offset(lane.place) = step.value as i16;
    }
    true
}
