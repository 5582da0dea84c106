//! AVX-512 code that processes 64 bytes at a time.
//!
//! In the data, a zero is stuffed after each `ff` byte. Two comparisons per vector find the `ff`
//! bytes and the zeros that follow them. `VPCOMPRESSB` then removes the zeros without a branch per
//! byte. The loop ends at the first marker.
//!
//! **Invariants**
//! - Functions marked `target_feature` are called only through [`unstuff`], which checks that the
//!   CPU supports AVX-512 F, BW and VBMI2, BMI1, and POPCNT.
//! - Every pointer comes from a slice that contains all bytes that are read or written.

use std::arch::x86_64::*;

use super::unstuff::{self, Unstuff};

const STEP_BYTES: usize = 64;
/// How many bytes ahead to prefetch. Files are usually not in the CPU's caches, and the CPU itself
/// does not prefetch across pages.
const PREFETCH_DISTANCE: usize = 512;

pub(super) fn unstuff() -> Option<Unstuff> {
    let is_supported = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vbmi2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("popcnt");
    // SAFETY: the CPU has the features (see the invariants).
    is_supported.then_some(|data, offset, stream, written| unsafe { copy(data, offset, stream, written) })
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,bmi1,popcnt")]
fn copy(data: &[u8], mut offset: usize, stream: &mut [u8], mut written: usize) -> Option<(usize, usize)> {
    let ff = _mm512_set1_epi8(-1);
    // 1 if the previous vector ended with an `ff`, so that this vector starts with the stuffed
    // zero. Advancing `offset` past the zero would make each load depend on the previous vector.
    let mut after_ff = 0;
    while let (Some(from), Some(to)) =
        (data.get(offset..offset + STEP_BYTES + 1), stream.get_mut(written..written + STEP_BYTES))
    {
        _mm_prefetch::<_MM_HINT_T0>(from.as_ptr().wrapping_add(PREFETCH_DISTANCE).cast());
        // SAFETY: `from` has more bytes than a vector.
        let bytes = unsafe { _mm512_loadu_si512(from.as_ptr().cast()) };
        let is_ff = _mm512_cmpeq_epi8_mask(bytes, ff);
        let before_zero =
            _mm512_testn_epi8_mask(bytes, bytes) >> 1 | u64::from(from[STEP_BYTES] == 0) << (STEP_BYTES - 1);
        let stuffed = is_ff & before_zero;
        let marker = is_ff & !before_zero;
        let keep = marker.wrapping_sub(1) & !marker & !(stuffed << 1 | after_ff);
        let compressed = _mm512_maskz_compress_epi8(keep, bytes);
        // SAFETY: `to` has as many bytes as a vector.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), compressed) };
        written += keep.count_ones() as usize;
        if marker != 0 {
            return Some((offset + marker.trailing_zeros() as usize, written));
        }
        after_ff = stuffed >> (STEP_BYTES - 1);
        offset += STEP_BYTES;
    }
    unstuff::scalar(data, offset + after_ff as usize, stream, written)
}
