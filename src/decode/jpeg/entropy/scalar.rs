//! One to four lanes in plain registers: while one lane waits for its look-up, the others go on.

use std::hint::select_unpredictable;
use std::ptr;

use super::table::{BITS, Entry, LONGEST, ODD, Table};
use super::{LINKS, Lanes, Memory};

/// Look-ups in one window of 64 bits, of which up to 7 are spent before the first.
const STEPS: usize = 2;
const _: () = assert!(STEPS * LONGEST <= 57 && 2 * STEPS <= super::SLACK_BLOCKS + 1);

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

/// A lane in registers, with pointers in place of offsets.
#[derive(Clone, Copy)]
struct Lane {
    bit: u64,
    /// The block, as a pointer to its first coefficient, and the index in it.
    block: *mut i16,
    index: u64,
    table: *const Table,
    link: *const Link,
}

/// [`super::Link`] with pointers.
#[derive(Clone, Copy)]
struct Link {
    ac: *const Table,
    next_dc: *const Table,
    next: *const Link,
}

/// Everything is spelled out for each lane, since the compiler leaves a loop over lanes as one and their state in memory.
#[inline(always)]
unsafe fn interleaved<const L: usize>(memory: &Memory, lanes: &mut Lanes) {
    // SAFETY: they are offsets of tables.
    let table = |offset: u32| unsafe { memory.tables.add(offset as usize).cast::<Table>() };
    let mut links = [Link { ac: ptr::null(), next_dc: ptr::null(), next: ptr::null() }; LINKS];
    let base = links.as_mut_ptr();
    for i in 0..LINKS {
        // SAFETY: there are as many of both, and `next` is the index of one.
        unsafe {
            let link = *memory.links.add(i);
            let next = base.add(link.next as usize);
            *base.add(i) = Link { ac: table(link.ac), next_dc: table(link.next_dc), next };
        }
    }
    let load = |i: usize| {
        let at = lanes.at[i] as usize;
        // SAFETY: `at` is a coefficient of the lane's.
        let block = unsafe { memory.coefficients.add(at & !63) };
        Lane {
            bit: lanes.bit[i].into(),
            block,
            index: at as u64 & 63,
            table: table(lanes.table[i]),
            // SAFETY: it is the index of a link.
            link: unsafe { base.add(lanes.link[i] as usize) },
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
                    // SAFETY: a lane that has not reached its end has room for this many blocks behind it.
                    unsafe {
                        let mut bits = window(memory, lane[$i].bit);
                        step(memory, &mut lane[$i], &mut bits);
                        step(memory, &mut lane[$i], &mut bits);
                        bits = window(memory, lane[$i].bit);
                        step(memory, &mut lane[$i], &mut bits);
                        step(memory, &mut lane[$i], &mut bits);
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
                        // The last steps once more, to stop where the lane does.
                        lane = before[$i];
                        while lane.block < end[$i] {
                            // SAFETY: the lane has not reached its end, and stands at `limit` or before.
                            unsafe {
                                let mut bits = window(memory, lane.bit);
                                step(memory, &mut lane, &mut bits);
                            }
                            lane.bit = lane.bit.min(memory.limit);
                        }
                    }
                    lanes.bit[$i] = lane.bit as u32;
                    // SAFETY: each two point into the coefficients, the tables, or the links.
                    unsafe {
                        let block = lane.block.offset_from(memory.coefficients);
                        lanes.at[$i] = block as u32 + lane.index as u32;
                        lanes.table[$i] = lane.table.cast::<u32>().offset_from(memory.tables) as u32;
                        lanes.link[$i] = lane.link.offset_from(base) as u32;
                    }
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

/// Decodes the one or two symbols of a look-up. What comes next is chosen by conditional moves: a branch at each block's end would be
/// mispredicted, and cost all lanes.
#[inline(always)]
unsafe fn step(memory: &Memory, lane: &mut Lane, bits: &mut u64) {
    // SAFETY: `table` points to a table, which begins with an entry for each value of that many bits. Its parts are loaded one by one, which
    // takes fewer instructions than to take one word apart.
    let entry: *const Entry = unsafe { lane.table.cast::<Entry>().add((*bits >> (64 - BITS)) as usize) };
    // SAFETY: as above.
    let first = lane.index + u64::from(unsafe { (*entry).first });
    let (reached, value);
    if first >= ODD.into() {
        // SAFETY: as above, and as for the first window.
        match unsafe { (*lane.table).long(window(memory, lane.bit)) } {
            Some(long) => {
                lane.bit = (lane.bit + u64::from(long.length)).min(memory.limit);
                (reached, value) = (lane.index + u64::from(long.advance), long.value as i16);
            }
            None => {
                // No code: the lane goes to the end of everything, where its owner sees that it left its segment.
                lane.bit = memory.limit;
                (reached, value) = (63, 0);
            }
        }
        // SAFETY: `bit` is at most `limit`.
        *bits = unsafe { window(memory, lane.bit) };
    } else {
        // SAFETY: the sum is less than 128, places are less than 64, and the block is the lane's.
        unsafe {
            let length = u64::from((*entry).length);
            lane.bit += length;
            let behind = *bits << BITS >> 1 >> ((*entry).rest & 63);
            *bits <<= length & 63;
            let place = *memory.places.first.get_unchecked(first as usize);
            *lane.block.add(place.into()) = (*entry).values[0];
            reached = first.wrapping_add_signed((*entry).second.into());
            value = (*entry).values[1].wrapping_add(behind as i16);
        }
    }
    // SAFETY: an entry that holds leads to less than 128 (see `Entry`), and so do an index and an advance of at most 63 each. The link is
    // one, and the rest as above. There is at most one block behind the lane's end for each step behind it.
    unsafe {
        let place = *memory.places.second.get_unchecked(reached as usize);
        *lane.block.add(place.into()) = value;
        lane.index = (*memory.places.next.get_unchecked(reached as usize)).into();
        let Link { ac, next_dc, next } = *lane.link;
        let ends = reached >= 63;
        lane.table = select_unpredictable(ends, next_dc, ac);
        lane.link = select_unpredictable(ends, next, lane.link);
        lane.block = select_unpredictable(ends, lane.block.add(64), lane.block);
    }
}
