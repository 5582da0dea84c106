//! Restart segments: which of them a window needs, where they lie in a file, and their bytes without stuffing.

use std::ops::Range;

use super::layout::{Layout, Window};

/// A run of MCUs whose decoding depends on nothing before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    /// Its number in the scan.
    index: u32,
    /// Its MCUs as far as they are needed, counted row by row.
    pub(super) mcus: Range<u32>,
    /// Its bytes, unstuffed, in the memory that [`collect`] filled.
    pub(super) bytes: Range<usize>,
}

/// Lists the segments that `window` needs, in order, in place of what was in `segments`.
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

/// Copies the bytes of `segments` from the entropy-coded `data` to `stream`, which is as long as `data`, without the zeros stuffed
/// behind each `ff`. Reads no further than the last of them.
///
/// `None` if the markers are not those of a sound file.
pub(super) fn collect(data: &[u8], segments: &mut [Segment], stream: &mut [u8]) -> Option<()> {
    let mut written = 0;
    let mut index = 0;
    // Where the bytes begin that are not yet copied.
    let mut from = 0;
    let mut wanted = segments.iter_mut().peekable();
    if let Some(segment) = wanted.peek_mut() {
        segment.bytes.start = 0;
    }
    let mut copy = |range: Range<usize>, written: &mut usize| {
        stream[*written..*written + range.len()].copy_from_slice(&data[range.clone()]);
        *written += range.len();
    };
    let ends = memchr::memchr_iter(0xff, data).chain(std::iter::once(data.len()));
    for at in ends {
        let marker = data.get(at + 1).copied();
        let is_wanted = wanted.peek().is_some_and(|segment| segment.index == index);
        if marker == Some(0) {
            if is_wanted {
                copy(from..at + 1, &mut written);
                from = at + 2;
            }
            continue;
        }
        if is_wanted {
            copy(from..at, &mut written);
            let segment = wanted.next()?;
            segment.bytes.end = written;
            match wanted.peek_mut() {
                None => return Some(()),
                Some(next) => next.bytes.start = written,
            }
        }
        if marker != Some(0xd0 + (index & 7) as u8) {
            return None;
        }
        index += 1;
        from = at + 2;
    }
    None
}
