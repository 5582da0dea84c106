//! Copies bytes to a batch. On x86-64, the copy bypasses the CPU's caches, because only the device
//! reads the bytes, and ordinary stores would first load each cache line from memory.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
pub(crate) fn copy(from: &[u8], out: &mut [u8]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    const CACHE_LINE_BYTES: usize = 64;
    assert_eq!(from.len(), out.len());
    // The copy uses ordinary stores for cache lines that are written only partially.
    let head_len = out.as_ptr().align_offset(CACHE_LINE_BYTES).min(out.len());
    let (start, lines) = out.split_at_mut(head_len);
    start.copy_from_slice(&from[..head_len]);
    let from = from[head_len..].as_chunks::<CACHE_LINE_BYTES>();
    let chunks = lines.as_chunks_mut::<CACHE_LINE_BYTES>();
    for (from, to) in from.0.iter().zip(chunks.0) {
        for offset in (0..CACHE_LINE_BYTES).step_by(16) {
            // SAFETY: both arrays have 16 bytes at `offset`, and `chunks` is aligned to a cache
            // line. Every x86-64 CPU has SSE2.
            unsafe {
                _mm_stream_si128(to.as_mut_ptr().add(offset).cast(), _mm_loadu_si128(from.as_ptr().add(offset).cast()))
            };
        }
    }
    chunks.1.copy_from_slice(from.1);
    // SAFETY: every x86-64 CPU has SSE. Without the fence, a thread or a device might see later
    // stores before it sees these stores.
    unsafe { _mm_sfence() };
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn copy(from: &[u8], out: &mut [u8]) {
    out.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::copy;

    #[test]
    fn every_byte_is_copied_at_every_alignment() {
        let from: Vec<u8> = (0..600u32).map(|i| (i * 7 % 251 + 1) as u8).collect();
        for start in 0..70 {
            for length in (0..70).chain([127, 128, 129, 400]) {
                let mut out = vec![0; 600];
                copy(&from[start / 2..][..length], &mut out[start..][..length]);
                assert_eq!(out[start..][..length], from[start / 2..][..length], "{length} bytes at {start}");
                assert!(out[..start].iter().chain(&out[start + length..]).all(|&byte| byte == 0));
            }
        }
    }
}
