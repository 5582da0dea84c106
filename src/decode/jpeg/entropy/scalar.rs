//! One to four lanes in plain registers: while one lane waits for its look-up, the others go on.

use super::table::{BITS, Step, Table};
use super::{Lanes, Memory};

/// Symbols from one window of 64 bits, of which up to 7 are spent before the first.
const SYMBOLS: usize = 5;
const _: () = assert!(SYMBOLS * BITS <= 57 && SYMBOLS <= super::SLACK_BLOCKS + 1);

/// Decodes the first `count` lanes, one to four, until at least one of them has reached its end; that one stops exactly there.
///
/// # Safety
/// The invariants of [`super::Machine`] hold for `memory` and for the first `count` of `lanes`.
pub(super) unsafe fn run(memory: &Memory, lanes: &mut Lanes, count: usize) {
    // SAFETY: passed on.
    unsafe {
        match count {
            1 => interleaved::<1>(memory, lanes),
            2 => interleaved::<2>(memory, lanes),
            3 => interleaved::<3>(memory, lanes),
            _ => interleaved::<4>(memory, lanes),
        }
    }
}

/// [`run`], compiled for processors that shift without flags.
///
/// # Safety
/// As [`run`], on a processor with BMI1, BMI2 and LZCNT.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "bmi1,bmi2,lzcnt")]
pub(super) unsafe fn run_bmi(memory: &Memory, lanes: &mut Lanes, count: usize) {
    // SAFETY: passed on.
    unsafe {
        match count {
            1 => interleaved::<1>(memory, lanes),
            2 => interleaved::<2>(memory, lanes),
            3 => interleaved::<3>(memory, lanes),
            _ => interleaved::<4>(memory, lanes),
        }
    }
}

/// A lane in registers.
#[derive(Clone, Copy)]
struct Lane {
    bit: u64,
    /// The block, as a pointer to its first coefficient, and the index in it.
    block: *mut i16,
    index: u64,
    table: u64,
    link: u64,
}

/// Everything is spelled out for each lane, since the compiler leaves a loop over lanes as one and their state in memory.
#[inline(always)]
unsafe fn interleaved<const L: usize>(memory: &Memory, lanes: &mut Lanes) {
    let load = |i: usize| {
        let at = lanes.at[i] as usize;
        // SAFETY: `at` is a coefficient of the lane's.
        let block = unsafe { memory.coefficients.add(at & !63) };
        Lane {
            bit: lanes.bit[i].into(),
            block,
            index: at as u64 & 63,
            table: lanes.table[i].into(),
            link: lanes.link[i].into(),
        }
    };
    // SAFETY: `end` is behind coefficients of the lane's.
    let end = |i: usize| unsafe { memory.coefficients.add(lanes.end[i] as usize) };
    let mut lane: [Lane; 4] = [load(0), load(1 % L), load(2 % L), load(3 % L)];
    let end: [*mut i16; 4] = [end(0), end(1 % L), end(2 % L), end(3 % L)];
    loop {
        let before = lane;
        let mut finished = false;
        macro_rules! advance {
            ($($i:literal)*) => {$(
                if $i < L {
                    // SAFETY: a lane that has not reached its end has room for this many symbols behind it.
                    unsafe {
                        let mut window = window(memory, lane[$i].bit);
                        symbol(memory, &mut lane[$i], &mut window);
                        symbol(memory, &mut lane[$i], &mut window);
                        symbol(memory, &mut lane[$i], &mut window);
                        symbol(memory, &mut lane[$i], &mut window);
                        symbol(memory, &mut lane[$i], &mut window);
                    }
                    lane[$i].bit = lane[$i].bit.min(memory.limit);
                    finished |= lane[$i].block >= end[$i];
                }
            )*};
        }
        advance!(0 1 2 3);
        if !finished {
            continue;
        }
        macro_rules! store {
            ($($i:literal)*) => {$(
                if $i < L {
                    let mut lane = lane[$i];
                    if lane.block >= end[$i] {
                        // The last symbols once more, to stop where the lane does.
                        lane = before[$i];
                        while lane.block < end[$i] {
                            // SAFETY: the lane has not reached its end, and stands at `limit` or before.
                            unsafe {
                                let mut window = window(memory, lane.bit);
                                symbol(memory, &mut lane, &mut window);
                            }
                            lane.bit = lane.bit.min(memory.limit);
                        }
                    }
                    lanes.bit[$i] = lane.bit as u32;
                    // SAFETY: both point into the coefficients.
                    lanes.at[$i] = unsafe { lane.block.offset_from(memory.coefficients) } as u32 + lane.index as u32;
                    lanes.table[$i] = lane.table as u32;
                    lanes.link[$i] = lane.link as u32;
                }
            )*};
        }
        store!(0 1 2 3);
        return;
    }
}

/// The 57 bits or more from `bit` on, at the top.
#[inline(always)]
unsafe fn window(memory: &Memory, bit: u64) -> u64 {
    // SAFETY: `bit` is hardly behind `limit`, which has slack behind it.
    let bytes = unsafe { memory.stream.add((bit >> 3) as usize).cast::<u64>().read_unaligned() };
    u64::from_be(bytes) << (bit & 7)
}

/// Decodes one symbol of a lane. What comes next is chosen with shifts: a branch at each block's end would be mispredicted, and cost all
/// lanes.
#[inline(always)]
unsafe fn symbol(memory: &Memory, lane: &mut Lane, bits: &mut u64) {
    // SAFETY: `table` is the offset of a table, and `link` the index of a link.
    let (table, link) = unsafe { (memory.tables.add(lane.table as usize), *memory.links.add(lane.link as usize)) };
    // SAFETY: a table begins with an entry for each value of that many bits.
    let entry = unsafe { *table.add((*bits >> (64 - BITS)) as usize) };
    let (advance, value);
    if entry & 0xff == 0 {
        // SAFETY: as for the first window.
        let fresh = unsafe { window(memory, lane.bit) };
        let step = if entry == 0 {
            // SAFETY: it is a table.
            unsafe { &*table.cast::<Table>() }.long(fresh)
        } else {
            Some(Step::new(entry >> 20, entry >> 8 & 0xff, entry >> 16 & 15, fresh))
        };
        match step {
            Some(step) => {
                lane.bit = (lane.bit + u64::from(step.length)).min(memory.limit);
                (advance, value) = (step.advance, step.value as u32);
            }
            None => {
                // No code: the lane goes to the end of everything, where its owner sees that it left its segment.
                lane.bit = memory.limit;
                (advance, value) = (63, 0);
            }
        }
        // SAFETY: `bit` is at most `limit`.
        *bits = unsafe { window(memory, lane.bit) };
    } else {
        lane.bit += u64::from(entry & 0xff);
        *bits <<= entry & 0x3f;
        (advance, value) = (entry >> 8 & 0xff, entry >> 16);
    }
    let reached = lane.index + u64::from(advance);
    // SAFETY: an index is at most 63 and an advance too; places are less than 64, and the block is the lane's.
    unsafe {
        let (place, next) = *memory.places.add(reached as usize);
        *lane.block.add(place.into()) = value as i16;
        lane.index = next.into();
    }
    // 32 if that was the block's last coefficient, 0 if not.
    let ends = (reached + 1) >> 1 & 32;
    lane.table = link.tables >> ends & 0xffff_ffff;
    lane.link = link.links >> ends & 0xffff_ffff;
    // SAFETY: at most one block behind the lane's end for each symbol behind it.
    lane.block = unsafe { lane.block.add(2 * ends as usize) };
}
