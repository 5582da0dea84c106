//! Decodes up to sixteen lanes in AVX-512 vectors, one symbol of every lane per step.
//!
//! A step gathers the windows and the table entries of all lanes, computes the values, and scatters
//! them. Because the two gathers and the scatter are slow, vectors pay off only if many lanes are
//! busy (`MIN_VECTOR_LANES` in `lane_decoder`).
//!
//! A 32-bit scatter stores a coefficient and clears the next one. Clearing the next coefficient is
//! harmless, because coefficients are stored in zigzag order, so the next coefficient is zero or
//! has not been decoded yet.

use std::arch::x86_64::*;

use super::lanes::{LANE_COUNT, LaneMemory, Lanes, MAX_LINKS};
use super::table::{CODE_BITS, CODES_OFFSET, DecodedSymbol, Table};

#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(super) struct VectorLinks {
    pub(super) ac: [u32; MAX_LINKS],
    pub(super) next_dc: [u32; MAX_LINKS],
    pub(super) next_link: [u32; MAX_LINKS],
}

/// Decodes with the first `count` lanes until at least one of them reaches its end.
///
/// # Safety
/// The invariants of [`super::LaneDecoder`] must hold for `memory`, `links` and the first `count`
/// of `lanes`, and the CPU must have AVX-512 F, BW, DQ and VL, BMI1, BMI2 and LZCNT.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt")]
pub(super) unsafe fn run(memory: &LaneMemory, links: &VectorLinks, lanes: &mut Lanes, count: usize) {
    let busy = ((1u32 << count) - 1) as u16;
    let links = [&links.ac, &links.next_dc, &links.next_link]
        .map(|from| [load(&from[..LANE_COUNT]), load(&from[LANE_COUNT..])]);
    let (mut bit, mut index, end) = (load(&lanes.bit), load(&lanes.next_coefficient), load(&lanes.end_coefficient));
    let (mut table, mut link) = (load(&lanes.table), load(&lanes.link));

    let swapped = _mm512_broadcast_i32x4(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
    let max_bit = _mm512_set1_epi32(memory.max_bit as u32 as i32);
    let number = |n: i32| _mm512_set1_epi32(n);
    loop {
        // SAFETY: every busy lane is at or before `max_bit`, and at least four bytes after
        // `max_bit` are readable. The other lanes are masked out.
        let window = unsafe {
            let bytes = _mm512_srli_epi32::<3>(bit);
            _mm512_mask_i32gather_epi32::<1>(_mm512_setzero_si512(), busy, bytes, memory.stream.cast())
        };
        let window = _mm512_sllv_epi32(_mm512_shuffle_epi8(window, swapped), _mm512_and_si512(bit, number(7)));
        // SAFETY: the table of a busy lane has an entry for each value of `CODE_BITS` bits.
        let entry = unsafe {
            let index = _mm512_add_epi32(table, _mm512_srli_epi32::<{ 32 - CODE_BITS as u32 }>(window));
            let codes = memory.tables.add(CODES_OFFSET);
            _mm512_mask_i32gather_epi32::<4>(_mm512_setzero_si512(), busy, index, codes.cast())
        };
        let slow = _mm512_mask_testn_epi32_mask(busy, entry, number(0xff));
        let mut step = steps(window, entry);
        if slow != 0 {
            // SAFETY: guaranteed by the caller.
            step = unsafe { long_steps(memory, slow, step, bit, table) };
        }
        let [length, advance, value] = step;
        bit = _mm512_min_epu32(_mm512_add_epi32(bit, length), max_bit);

        let last = _mm512_or_si512(index, number(63));
        let position = _mm512_add_epi32(index, advance);
        let ends = _mm512_cmpge_epu32_mask(position, last);
        let position = _mm512_min_epu32(position, last);
        // SAFETY: a busy lane has not reached its end, and owns one more block after its end. The
        // coefficient after `position` is in the same block or in the next block.
        unsafe {
            let value = _mm512_and_si512(value, number(0xffff));
            _mm512_mask_i32scatter_epi32::<2>(memory.coefficients.cast(), busy, position, value);
        }
        let [ac, next_dc, next_link] = links.map(|[low, high]| _mm512_permutex2var_epi32(low, link, high));
        table = _mm512_mask_blend_epi32(ends, ac, next_dc);
        link = _mm512_mask_blend_epi32(ends, link, next_link);
        index = _mm512_add_epi32(position, number(1));
        if _mm512_mask_cmpge_epu32_mask(busy, index, end) != 0 {
            break;
        }
    }
    let store = |out: &mut [u32; LANE_COUNT], from| {
        // SAFETY: the array has sixteen numbers.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), from) }
    };
    store(&mut lanes.bit, bit);
    store(&mut lanes.next_coefficient, index);
    store(&mut lanes.table, table);
    store(&mut lanes.link, link);
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt")]
fn load(values: &[u32]) -> __m512i {
    let values: &[u32; LANE_COUNT] = values.try_into().expect("one number for each lane");
    // SAFETY: the array has sixteen numbers.
    unsafe { _mm512_loadu_si512(values.as_ptr().cast()) }
}

/// Returns the length, advance and value of each lane's [`DecodedSymbol`]. `entry` contains the
/// table entries of the codes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt")]
fn steps(window: __m512i, entry: __m512i) -> [__m512i; 3] {
    let byte = |i: i8| {
        _mm512_broadcast_i32x4(_mm_set_epi8(-1, -1, -1, 12 + i, -1, -1, -1, 8 + i, -1, -1, -1, 4 + i, -1, -1, -1, i))
    };
    let shifted = _mm512_sllv_epi32(window, _mm512_shuffle_epi8(entry, byte(2)));
    let negative = _mm512_ternarylogic_epi32::<0x55>(shifted, shifted, _mm512_srai_epi32::<31>(shifted));
    let magnitude = _mm512_srlv_epi32(_mm512_xor_si512(shifted, negative), _mm512_srli_epi32::<24>(entry));
    let value = _mm512_sub_epi32(_mm512_xor_si512(magnitude, negative), negative);
    [_mm512_and_si512(entry, _mm512_set1_epi32(0xff)), _mm512_shuffle_epi8(entry, byte(1)), value]
}

/// Recomputes the steps of the lanes in `slow`, because their codes or values are too long for the
/// vectors.
///
/// # Safety
/// The `bit` and `table` of these lanes must satisfy the contract of [`long_step`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt")]
unsafe fn long_steps(memory: &LaneMemory, slow: u16, step: [__m512i; 3], bit: __m512i, table: __m512i) -> [__m512i; 3] {
    let (mut steps, mut bits, mut tables) = ([[0u32; LANE_COUNT]; 3], [0u32; LANE_COUNT], [0u32; LANE_COUNT]);
    // SAFETY: the arrays have sixteen numbers each, and the caller guarantees all other
    // requirements.
    unsafe {
        for (to, from) in steps.iter_mut().zip(step) {
            _mm512_storeu_si512(to.as_mut_ptr().cast(), from);
        }
        _mm512_storeu_si512(bits.as_mut_ptr().cast(), bit);
        _mm512_storeu_si512(tables.as_mut_ptr().cast(), table);
        for lane in (0..LANE_COUNT).filter(|lane| slow >> lane & 1 == 1) {
            let step = long_step(memory, bits[lane], tables[lane]);
            let step = [step.length, step.advance.into(), step.value as u32];
            steps.iter_mut().zip(step).for_each(|(out, value)| out[lane] = value);
        }
        steps.map(|steps| _mm512_loadu_si512(steps.as_ptr().cast()))
    }
}

/// # Safety
/// `bit` must be at most `memory.max_bit`, and `table` must be the offset of a table.
#[cold]
unsafe fn long_step(memory: &LaneMemory, bit: u32, table: u32) -> DecodedSymbol {
    // SAFETY: guaranteed by the caller.
    let (bytes, table) = unsafe {
        let bytes = memory.stream.add((bit >> 3) as usize).cast::<u64>().read_unaligned();
        (bytes, &*memory.tables.add(table as usize).cast::<Table>())
    };
    // After an invalid code, move the lane to the end of the stream, so that its owner finds the
    // lane outside its segment.
    let end_step = DecodedSymbol { length: memory.max_bit as u32 - bit, advance: 63, value: 0 };
    table.decode_long(u64::from_be(bytes) << (bit & 7), 1).unwrap_or(end_step)
}
