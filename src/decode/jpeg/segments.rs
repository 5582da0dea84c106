//! Restart segments: which of them a window needs, their positions in a file, and their unstuffed
//! bytes.

use std::ops::Range;

use super::layout::{Layout, Window};

/// A run of MCUs that can be decoded independently of everything before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    /// Number of the segment in the scan.
    index: u32,
    /// MCUs of the segment up to the last one needed, counted row by row.
    pub(super) mcus: Range<u32>,
    /// Unstuffed bytes of the segment, in the memory that [`collect`] filled.
    pub(super) bytes: Range<usize>,
}

/// Replaces `segments` with the list of segments that `window` needs, in order.
pub(super) fn needed(layout: &Layout, window: &Window, interval: u32, segments: &mut Vec<Segment>) {
    segments.clear();
    let total = layout.mcus.0 * layout.mcus.1;
    let interval = if interval == 0 { total } else { interval };
    for row in window.rows.clone() {
        let first = row * layout.mcus.0 + window.columns.start;
        let last = row * layout.mcus.0 + window.columns.end - 1;
        for index in first / interval..=last / interval {
            let start = index * interval;
            let end = (last + 1).min(start.saturating_add(interval));
            match segments.last_mut() {
                Some(segment) if segment.index == index => segment.mcus.end = end,
                _ => segments.push(Segment { index, mcus: start..end, bytes: 0..0 }),
            }
        }
    }
}

/// Copies the bytes of `segments` from the entropy-coded `data` to `stream`, which must be at least
/// as long, without the zeros stuffed after each `ff`. Does not read past the last segment. Bytes
/// in `stream` after the copied ones are unspecified.
///
/// Returns `None` if the markers are not those of a valid file.
pub(super) fn collect(data: &[u8], segments: &mut [Segment], stream: &mut [u8]) -> Option<()> {
    let (mut index, mut at, mut written) = (0, 0, 0);
    for segment in segments {
        while index < segment.index {
            at += memchr::memchr(0xff, data.get(at..)?)?;
            match *data.get(at + 1)? {
                0 => {}
                marker if marker == 0xd0 + (index & 7) as u8 => index += 1,
                _ => return None,
            }
            at += 2;
        }
        segment.bytes.start = written;
        loop {
            (at, written) = copy_until_ff(data, at, stream, written);
            match data.get(at + 1) {
                // The `ff` itself has already been copied.
                Some(0) => (at, written) = (at + 2, written + 1),
                _ => break,
            }
        }
        segment.bytes.end = written;
    }
    Some(())
}

/// Number of bytes that are copied at a time.
const STEP: usize = 32;

/// Copies from `at` on until the next `ff` or the end of the data, and returns both positions.
/// Copies some bytes more, which the next call overwrites, because copying whole vectors costs less
/// than stopping exactly.
fn copy_until_ff(data: &[u8], mut at: usize, stream: &mut [u8], mut written: usize) -> (usize, usize) {
    while let (Some(from), Some(to)) = (data[at..].first_chunk::<STEP>(), stream[written..].first_chunk_mut::<STEP>()) {
        *to = *from;
        if let Some(length) = find_ff(from) {
            return (at + length, written + length);
        }
        (at, written) = (at + STEP, written + STEP);
    }
    while at < data.len() && data[at] != 0xff {
        stream[written] = data[at];
        (at, written) = (at + 1, written + 1);
    }
    if at < data.len() {
        stream[written] = 0xff;
    }
    (at, written)
}

/// Returns the position of the first `ff`.
fn find_ff(bytes: &[u8; STEP]) -> Option<usize> {
    // No branch per byte, so that the compiler vectorizes the loop.
    let any = bytes.iter().fold(false, |any, &byte| any | (byte == 0xff));
    any.then(|| {
        let mut mask = 0;
        for (i, word) in bytes.chunks_exact(8).enumerate() {
            let word = !u64::from_le_bytes(word.try_into().expect("eight bytes"));
            // Sets the upper bit of each zero byte (no carry leaves a byte), then packs these bits.
            let low = 0x7f7f_7f7f_7f7f_7f7f;
            let zero = !(((word & low) + low) | word | low);
            mask |= ((zero >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56 & 0xff) << (8 * i);
        }
        mask.trailing_zeros() as usize
    })
}
