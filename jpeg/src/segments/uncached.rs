//! Copies bytes to memory that the CPU will not read soon.

/// Copies `from` to `to`, bypassing the CPU's caches. Both must have the same length. A batch does
/// not fit in the caches, and ordinary stores would first load each cache line from memory.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
pub(crate) fn copy(from: &[u8], to: &mut [u8]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    /// Number of bytes per cache line.
    const LINE: usize = 64;
    assert_eq!(from.len(), to.len());
    // Cache lines that are written only partially are copied with ordinary stores.
    let head = to.as_ptr().align_offset(LINE).min(to.len());
    let (start, lines) = to.split_at_mut(head);
    start.copy_from_slice(&from[..head]);
    let from = from[head..].as_chunks::<LINE>();
    let to = lines.as_chunks_mut::<LINE>();
    for (from, to) in from.0.iter().zip(to.0) {
        for at in (0..LINE).step_by(16) {
            // SAFETY: both arrays have 16 bytes from `at` on, and `to` is aligned to a cache line.
            // Every x86-64 CPU has SSE2.
            unsafe { _mm_stream_si128(to.as_mut_ptr().add(at).cast(), _mm_loadu_si128(from.as_ptr().add(at).cast())) };
        }
    }
    to.1.copy_from_slice(from.1);
    // SAFETY: every x86-64 CPU has SSE. Without the fence, a thread or a device might see later
    // stores before it sees these stores.
    unsafe { _mm_sfence() };
}

/// Copies `from` to `to`. Both must have the same length.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn copy(from: &[u8], to: &mut [u8]) {
    to.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::copy;

    #[test]
    fn every_byte_is_copied_at_every_alignment() {
        let from: Vec<u8> = (0..600u32).map(|i| (i * 7 % 251 + 1) as u8).collect();
        for start in 0..70 {
            for length in (0..70).chain([127, 128, 129, 400]) {
                let mut to = vec![0; 600];
                copy(&from[start / 2..][..length], &mut to[start..][..length]);
                assert_eq!(to[start..][..length], from[start / 2..][..length], "{length} bytes at {start}");
                assert!(to[..start].iter().chain(&to[start + length..]).all(|&byte| byte == 0));
            }
        }
    }
}
