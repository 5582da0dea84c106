use std::ops::Range;

use crate::error::reserve_exact;
use crate::layout::{Layout, Window};

/// Length in bytes of a marker, and of an `ff` followed by a stuffed zero.
pub(super) const MARKER_LEN: usize = 2;

/// A sequence of MCUs that can be decoded independently of all earlier data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(super) index: u32,
    /// The MCUs up to the last needed one, numbered row by row.
    pub(crate) mcus: Range<u32>,
    /// True if the segment continues after the last needed MCU.
    pub(crate) is_cut: bool,
    /// Range of the segment's data in the stream that `collect` fills.
    pub(crate) bytes: Range<usize>,
}

impl Segment {
    /// Returns whether `bits` unread bits may remain at the end of the segment. Only padding up to
    /// the next byte may follow the last MCU of a complete segment.
    pub(crate) fn may_leave(&self, bits: usize) -> bool {
        self.is_cut || bits < 8
    }
}

/// Returns the first and last needed MCU of each needed row. MCUs are numbered row by row.
fn needed_mcus(layout: &Layout, window: &Window) -> impl Iterator<Item = (u32, u32)> {
    let (mcus_per_row, columns) = (layout.mcus_per_row, window.columns.clone());
    window.rows.clone().map(move |row| (row * mcus_per_row + columns.start, row * mcus_per_row + columns.end - 1))
}

fn mcus_per_segment(layout: &Layout, interval: u32) -> u32 {
    if interval == 0 { layout.mcus_per_row * layout.mcu_rows } else { interval }
}

pub(crate) fn count_needed(layout: &Layout, window: &Window, interval: u32) -> usize {
    let interval = mcus_per_segment(layout, interval);
    let (mut count, mut listed_end) = (0, 0);
    for (first, last) in needed_mcus(layout, window) {
        let row_end = last / interval + 1;
        count += (row_end - listed_end.max(first / interval)) as usize;
        listed_end = row_end;
    }
    count
}

/// Replaces `segments` with the segments that `window` needs, in order. Returns `None` if an
/// allocation fails, or if data of `data_bytes` bytes cannot contain that many segments. Each
/// segment has at least one byte, and a marker follows each segment except the last.
pub(crate) fn list_needed(
    layout: &Layout,
    window: &Window,
    interval: u32,
    data_bytes: usize,
    segments: &mut Vec<Segment>,
) -> Option<()> {
    segments.clear();
    let count = count_needed(layout, window, interval);
    if count > (data_bytes + MARKER_LEN) / (1 + MARKER_LEN) {
        return None;
    }
    reserve_exact(segments, count).ok()?;
    let (interval, mcus) = (mcus_per_segment(layout, interval), layout.mcus_per_row * layout.mcu_rows);
    for (first, last) in needed_mcus(layout, window) {
        for index in first / interval..=last / interval {
            let start = index * interval;
            let interval_end = mcus.min(start.saturating_add(interval));
            let end = interval_end.min(last + 1);
            match segments.last_mut() {
                Some(segment) if segment.index == index => {
                    (segment.mcus.end, segment.is_cut) = (end, end < interval_end)
                }
                _ => segments.push(Segment { index, mcus: start..end, is_cut: end < interval_end, bytes: 0..0 }),
            }
        }
    }
    Some(())
}
