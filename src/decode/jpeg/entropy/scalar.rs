//! One to four lanes in plain registers: while one lane waits for its look-up, the others go on.

use std::hint::select_unpredictable;
use std::ptr;

use super::table::{BITS, Entry, LONGEST, Table};
use super::{LINKS, Lanes, Memory};

/// Look-ups in one window of 64 bits, of which up to 7 are spent before the first.
const STEPS: usize = 2;
/// Coefficients that a lane moves by at most before its end is looked at, less than a block for each look-up.
const FAR: u64 = 2 * STEPS as u64 * 64;
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
    /// The next coefficient.
    at: u64,
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
    let load = |i: usize| Lane {
        bit: lanes.bit[i].into(),
        at: lanes.at[i].into(),
        table: table(lanes.table[i]),
        // SAFETY: it is the index of a link.
        link: unsafe { base.add(lanes.link[i] as usize) },
    };
    let end = |i: usize| u64::from(lanes.end[i]);
    let mut lane: [Lane; 4] = [load(0), load(1 % L), load(2 % L), load(3 % L)];
    let end: [u64; 4] = [end(0), end(1 % L), end(2 % L), end(3 % L)];
    loop {
        let mut bits = [0u64; 4];
        // One step of each lane in turn, so that what a lane waits for lies within what the processor looks ahead.
        macro_rules! each {
            ($lane:ident $body:block) => {
                each!($lane 0 $body);
                each!($lane 1 $body);
                each!($lane 2 $body);
                each!($lane 3 $body);
            };
            ($lane:ident $i:literal $body:block) => {
                if $i < L {
                    const $lane: usize = $i;
                    $body
                }
            };
        }
        macro_rules! turn {
            () => {
                // SAFETY: a lane that has not reached its end has room for this many blocks behind it.
                each!(I { bits[I] = unsafe { window(memory, lane[I].bit) } });
                // SAFETY: as above.
                each!(I { unsafe { step(memory, &mut lane[I], &mut bits[I]) } });
                // SAFETY: as above.
                each!(I { unsafe { step(memory, &mut lane[I], &mut bits[I]) } });
            };
        }
        macro_rules! turns {
            () => {
                turn!();
                turn!();
                each!(I { lane[I].bit = lane[I].bit.min(memory.limit) });
            };
        }
        // Far from all ends nothing needs to be remembered. For three lanes the second loop costs more than that saves.
        let mut far = L < 3;
        each!(I { far &= lane[I].at + FAR < end[I] });
        if far {
            turns!();
            continue;
        }
        let before = lane;
        turns!();
        let mut finished = false;
        each!(I { finished |= lane[I].at >= end[I] });
        if !finished {
            continue;
        }
        macro_rules! store {
            ($($i:literal)*) => {$(
                if $i < L {
                    let mut lane = lane[$i];
                    if lane.at >= end[$i] {
                        // The last steps once more, to stop where the lane does.
                        lane = before[$i];
                        while lane.at < end[$i] {
                            // SAFETY: the lane has not reached its end, and stands at `limit` or before.
                            unsafe {
                                let mut bits = window(memory, lane.bit);
                                step(memory, &mut lane, &mut bits);
                            }
                            lane.bit = lane.bit.min(memory.limit);
                        }
                    }
                    lanes.bit[$i] = lane.bit as u32;
                    lanes.at[$i] = lane.at as u32;
                    // SAFETY: each two point into the tables, or the links.
                    unsafe {
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
    let last = lane.at | 63;
    // SAFETY: as above.
    let first = lane.at + u64::from(unsafe { (*entry).first });
    let (reached, value);
    if first >= last {
        // SAFETY: as above, and as for the first window.
        match unsafe { (*lane.table).long(window(memory, lane.bit)) } {
            Some(long) => {
                lane.bit = (lane.bit + u64::from(long.length)).min(memory.limit);
                (reached, value) = (lane.at + u64::from(long.advance), long.value as i16);
            }
            None => {
                // No code: the lane goes to the end of everything, where its owner sees that it left its segment.
                lane.bit = memory.limit;
                (reached, value) = (last, 0);
            }
        }
        // SAFETY: `bit` is at most `limit`.
        *bits = unsafe { window(memory, lane.bit) };
    } else {
        // SAFETY: the entry is one as above; `first` is in the block of `at`, which is the lane's.
        unsafe {
            let length = u64::from((*entry).length);
            lane.bit += length;
            let behind = *bits << BITS >> 1 >> ((*entry).rest & 63);
            *bits <<= length & 63;
            *memory.coefficients.add(first as usize) = (*entry).values[0];
            reached = first + u64::from((*entry).second);
            value = (*entry).values[1].wrapping_add(behind as i16);
        }
    }
    let ends = reached >= last;
    let place = select_unpredictable(ends, last, reached);
    // SAFETY: `place` is in the block of `at`; there is at most one block behind the lane's end for each step behind it. The link is one of
    // the array's.
    unsafe {
        *memory.coefficients.add(place as usize) = value;
        lane.at = place + 1;
        // Volatile, since the compiler would rather choose between the addresses and load after that, which all that follows waits for.
        let ac = (&raw const (*lane.link).ac).read_volatile();
        let next_dc = (&raw const (*lane.link).next_dc).read_volatile();
        let next = (&raw const (*lane.link).next).read_volatile();
        lane.table = select_unpredictable(ends, next_dc, ac);
        lane.link = select_unpredictable(ends, next, lane.link);
    }
}
