//! AVX-512: sixteen lanes in vector elements, with one symbol of each per step.
//!
//! Windows and table entries are gathered, and values computed, for all lanes at once. Coefficients
//! are in zigzag order here. A 32-bit scatter therefore also clears the next coefficient, which has
//! either not been decoded yet or is zero already.

use std::arch::x86_64::*;

use super::lanes::{LANES, LINKS, Lanes, Memory};
use super::table::{CODE_BITS, CODES, Step, Table};

/// The links of a pattern, in the layout for vector lookups.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(super) struct Links {
    pub(super) ac: [u32; LINKS],
    pub(super) next_dc: [u32; LINKS],
    pub(super) next: [u32; LINKS],
}

/// Decodes the first `count` lanes until at least one of them has reached its end. All lanes stop
/// at their exact positions.
///
/// # Safety
/// The invariants of [`super::Machine`] hold for `memory`, `links` and the first `count` of
/// `lanes`, and the processor has AVX-512 F, BW, DQ and VL, BMI1, BMI2 and LZCNT.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt")]
pub(super) unsafe fn run(memory: &Memory, links: &Links, lanes: &mut Lanes, count: usize) {
    let busy = ((1u32 << count) - 1) as u16;
    let load = |from: &[u32; LANES]| {
        // SAFETY: sixteen numbers.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    };
    let both = |from: &[u32; LINKS]| {
        // SAFETY: 32 numbers.
        unsafe { [_mm512_loadu_si512(from.as_ptr().cast()), _mm512_loadu_si512(from[16..].as_ptr().cast())] }
    };
    let (acs, next_dcs, nexts) = (both(&links.ac), both(&links.next_dc), both(&links.next));
    let (mut bit, mut at, end) = (load(&lanes.bit), load(&lanes.at), load(&lanes.end));
    let (mut table, mut link) = (load(&lanes.table), load(&lanes.link));

    let byte = |i: i8| {
        _mm512_broadcast_i32x4(_mm_set_epi8(-1, -1, -1, 12 + i, -1, -1, -1, 8 + i, -1, -1, -1, 4 + i, -1, -1, -1, i))
    };
    let (second, third) = (byte(1), byte(2));
    let swapped = _mm512_broadcast_i32x4(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
    let limit = _mm512_set1_epi32(memory.limit as u32 as i32);
    let number = |n: i32| _mm512_set1_epi32(n);
    loop {
        // SAFETY: every busy lane is at `limit` or before it, and four more bytes after that are
        // readable. The other lanes are masked.
        let window = unsafe {
            let bytes = _mm512_srli_epi32::<3>(bit);
            _mm512_mask_i32gather_epi32::<1>(_mm512_setzero_si512(), busy, bytes, memory.stream.cast())
        };
        let window = _mm512_sllv_epi32(_mm512_shuffle_epi8(window, swapped), _mm512_and_si512(bit, number(7)));
        // SAFETY: a busy lane's table has an entry for each value of that many bits.
        let entry = unsafe {
            let index = _mm512_add_epi32(table, _mm512_srli_epi32::<{ 32 - CODE_BITS as u32 }>(window));
            let codes = memory.tables.add(CODES);
            _mm512_mask_i32gather_epi32::<4>(_mm512_setzero_si512(), busy, index, codes.cast())
        };
        let shifted = _mm512_sllv_epi32(window, _mm512_shuffle_epi8(entry, third));
        let negative = _mm512_ternarylogic_epi32::<0x55>(shifted, shifted, _mm512_srai_epi32::<31>(shifted));
        let magnitude = _mm512_srlv_epi32(_mm512_xor_si512(shifted, negative), _mm512_srli_epi32::<24>(entry));
        let mut value = _mm512_sub_epi32(_mm512_xor_si512(magnitude, negative), negative);
        let mut length = _mm512_and_si512(entry, number(0xff));
        let mut advance = _mm512_shuffle_epi8(entry, second);
        let slow = _mm512_mask_testn_epi32_mask(busy, entry, number(0xff));
        if slow != 0 {
            let mut step = Steps { length: [0; LANES], advance: [0; LANES], value: [0; LANES] };
            let (mut bits, mut tables) = ([0u32; LANES], [0u32; LANES]);
            // SAFETY: the arrays have sixteen numbers each, and the lanes satisfy the contract of
            // `one`.
            unsafe {
                _mm512_storeu_si512(step.length.as_mut_ptr().cast(), length);
                _mm512_storeu_si512(step.advance.as_mut_ptr().cast(), advance);
                _mm512_storeu_si512(step.value.as_mut_ptr().cast(), value);
                _mm512_storeu_si512(bits.as_mut_ptr().cast(), bit);
                _mm512_storeu_si512(tables.as_mut_ptr().cast(), table);
                for lane in (0..LANES).filter(|lane| slow >> lane & 1 == 1) {
                    let one = one(memory, bits[lane], tables[lane]);
                    (step.length[lane], step.advance[lane], step.value[lane]) =
                        (one.length, one.advance.into(), one.value);
                }
                length = _mm512_loadu_si512(step.length.as_ptr().cast());
                advance = _mm512_loadu_si512(step.advance.as_ptr().cast());
                value = _mm512_loadu_si512(step.value.as_ptr().cast());
            }
        }
        bit = _mm512_min_epu32(_mm512_add_epi32(bit, length), limit);

        let last = _mm512_or_si512(at, number(63));
        let place = _mm512_add_epi32(at, advance);
        let ends = _mm512_cmpge_epu32_mask(place, last);
        let place = _mm512_min_epu32(place, last);
        // SAFETY: a busy lane has not reached its end, and has room for one block after it. The
        // coefficient after `place` is in the same block or in the next one.
        unsafe {
            let value = _mm512_and_si512(value, number(0xffff));
            _mm512_mask_i32scatter_epi32::<2>(memory.coefficients.cast(), busy, place, value);
        }
        let ac = _mm512_permutex2var_epi32(acs[0], link, acs[1]);
        let next_dc = _mm512_permutex2var_epi32(next_dcs[0], link, next_dcs[1]);
        let next = _mm512_permutex2var_epi32(nexts[0], link, nexts[1]);
        table = _mm512_mask_blend_epi32(ends, ac, next_dc);
        link = _mm512_mask_blend_epi32(ends, link, next);
        at = _mm512_add_epi32(place, number(1));
        if _mm512_mask_cmpge_epu32_mask(busy, at, end) != 0 {
            break;
        }
    }
    let store = |to: &mut [u32; LANES], from| {
        // SAFETY: sixteen numbers.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), from) }
    };
    store(&mut lanes.bit, bit);
    store(&mut lanes.at, at);
    store(&mut lanes.table, table);
    store(&mut lanes.link, link);
}

/// The values of [`Step`], for all lanes.
struct Steps {
    length: [u32; LANES],
    advance: [u32; LANES],
    value: [i32; LANES],
}

/// Decodes one step of a lane whose code or value is too long for the vectors.
///
/// # Safety
/// `bit` must be at most `memory.limit`, and `table` the offset of a table.
#[cold]
unsafe fn one(memory: &Memory, bit: u32, table: u32) -> Step {
    // SAFETY: guaranteed by the caller.
    let (bytes, table) = unsafe {
        let bytes = memory.stream.add((bit >> 3) as usize).cast::<u64>().read_unaligned();
        (bytes, &*memory.tables.add(table as usize).cast::<Table>())
    };
    // If the code is invalid, the lane moves to the end of the stream, where its owner notices that
    // it left its segment.
    let none = Step { length: memory.limit as u32 - bit, advance: 63, value: 0 };
    table.long(u64::from_be(bytes) << (bit & 7), 1).unwrap_or(none)
}
