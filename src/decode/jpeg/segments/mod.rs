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
    /// Whether the segment has more MCUs, after the last one needed.
    pub(super) cut: bool,
    /// Unstuffed bytes of the segment, in the memory that [`collect`] filled.
    pub(super) bytes: Range<usize>,
}

impl Segment {
    /// Whether the segment may have `bits` bits after its last needed MCU. In a whole segment, they
    /// only fill its last byte.
    pub(super) fn may_leave(&self, bits: usize) -> bool {
        self.cut || bits < 8
    }
}

/// The first and last MCU of each row of `window`, counted row by row.
fn rows(layout: &Layout, window: &Window) -> impl Iterator<Item = (u32, u32)> {
    let (across, columns) = (layout.mcus.0, window.columns.clone());
    window.rows.clone().map(move |row| (row * across + columns.start, row * across + columns.end - 1))
}

/// MCUs of a segment.
fn length(layout: &Layout, interval: u32) -> u32 {
    if interval == 0 { layout.mcus.0 * layout.mcus.1 } else { interval }
}

/// The number of segments that `window` needs.
pub(super) fn count(layout: &Layout, window: &Window, interval: u32) -> usize {
    let interval = length(layout, interval);
    let (mut count, mut end) = (0, 0);
    for (first, last) in rows(layout, window) {
        let next = last / interval + 1;
        count += (next - end.max(first / interval)) as usize;
        end = next;
    }
    count
}

/// Replaces `segments` with the list of segments that `window` needs, in order. Returns `None` if
/// `bytes` bytes of data cannot hold that many: each has at least one byte and a marker after it.
pub(super) fn needed(
    layout: &Layout,
    window: &Window,
    interval: u32,
    bytes: usize,
    segments: &mut Vec<Segment>,
) -> Option<()> {
    segments.clear();
    let count = count(layout, window, interval);
    if count > (bytes + MARKER) / (1 + MARKER) {
        return None;
    }
    segments.reserve_exact(count);
    let (interval, all) = (length(layout, interval), layout.mcus.0 * layout.mcus.1);
    for (first, last) in rows(layout, window) {
        for index in first / interval..=last / interval {
            let start = index * interval;
            let whole = all.min(start.saturating_add(interval));
            let end = whole.min(last + 1);
            match segments.last_mut() {
                Some(segment) if segment.index == index => (segment.mcus.end, segment.cut) = (end, end < whole),
                _ => segments.push(Segment { index, mcus: start..end, cut: end < whole, bytes: 0..0 }),
            }
        }
    }
    Some(())
}

/// Why segments cannot be collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The markers are not those of a valid file.
    Damaged,
    /// There is not enough room for the bytes.
    NoRoom,
}

/// Copies the bytes of `segments` from the entropy-coded `data` to `stream`, without the zeros
/// stuffed after each `ff`. A stream as long as `data` always has enough room. Does not read past
/// the last segment. Bytes in `stream` after the copied ones are unspecified.
pub(super) fn collect(data: &[u8], segments: &mut [Segment], stream: &mut [u8]) -> Result<(), Refusal> {
    let (mut index, mut at, mut written) = (0, 0, 0);
    let skip = |index: &mut u32, at: &mut usize| {
        *at += memchr::memchr(0xff, data.get(*at..)?)?;
        match *data.get(*at + 1)? {
            0 => {}
            marker if marker == 0xd0 + (*index & 7) as u8 => *index += 1,
            _ => return None,
        }
        *at += MARKER;
        Some(())
    };
    for segment in segments {
        while index < segment.index {
            skip(&mut index, &mut at).ok_or(Refusal::Damaged)?;
        }
        segment.bytes.start = written;
        loop {
            (at, written) = copy_until_ff(data, at, stream, written).ok_or(Refusal::NoRoom)?;
            match data.get(at + 1) {
                // The `ff` itself has already been copied.
                Some(0) => (at, written) = (at + 2, written + 1),
                _ => break,
            }
        }
        segment.bytes.end = written;
        // Fill bytes belong before a marker. Before a stuffed zero they are damage.
        let after = data.get(at..).and_then(|rest| rest.iter().find(|&&byte| byte != 0xff));
        if after == Some(&0) {
            return Err(Refusal::Damaged);
        }
    }
    Ok(())
}

/// Bytes of a marker, and of an `ff` with its stuffed zero.
const MARKER: usize = 2;

/// Number of bytes that are copied at a time.
const STEP: usize = 32;

/// Copies from `at` on until the next `ff` or the end of the data, and returns both positions, or
/// `None` if there is no room. Copies a few more bytes, which the next call overwrites, because
/// whole vectors cost less than an exact stop.
fn copy_until_ff(data: &[u8], mut at: usize, stream: &mut [u8], mut written: usize) -> Option<(usize, usize)> {
    while let (Some(from), Some(to)) = (data[at..].first_chunk::<STEP>(), stream[written..].first_chunk_mut::<STEP>()) {
        *to = *from;
        if let Some(length) = find_ff(from) {
            return Some((at + length, written + length));
        }
        (at, written) = (at + STEP, written + STEP);
    }
    while at < data.len() && data[at] != 0xff {
        *stream.get_mut(written)? = data[at];
        (at, written) = (at + 1, written + 1);
    }
    if at < data.len() {
        *stream.get_mut(written)? = 0xff;
    }
    Some((at, written))
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
