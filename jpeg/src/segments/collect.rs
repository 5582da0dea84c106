use super::needed::{MARKER_LEN, Segment};
use super::unstuff::Unstuff;
use crate::lengths::Lengths;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CollectError {
    Damaged,
    BufferFull,
}

/// Returns whether `marker`, a marker's second byte, is the restart marker before segment `index`,
/// which must not be 0.
fn precedes(index: u32, marker: u8) -> bool {
    marker == 0xd0 | ((index - 1) & 7) as u8
}

/// Copies the bytes of `segments` from the entropy-coded `data` to `stream`, without stuffed zeros.
/// A `stream` with as many bytes as `data` is always long enough. Ignores the data after the marker
/// that ends the last segment.
///
/// If `lengths` is not empty, the function searches for markers only if a marker is not at its
/// expected position. Without a search, damage inside segments that are not needed stays
/// undetected.
pub(crate) fn collect(
    data: &[u8],
    lengths: Lengths<'_>,
    segments: &mut [Segment],
    stream: &mut [u8],
    unstuff: Unstuff,
) -> Result<(), CollectError> {
    if !lengths.is_empty() && collect_by_lengths(data, lengths, segments, stream, unstuff)? {
        return Ok(());
    }
    collect_by_search(data, segments, stream, unstuff)
}

/// Copies the segments at the positions that follow from `lengths`. Returns `false` if `lengths` do
/// not match `data`.
fn collect_by_lengths(
    data: &[u8],
    lengths: Lengths<'_>,
    segments: &mut [Segment],
    stream: &mut [u8],
    unstuff: Unstuff,
) -> Result<bool, CollectError> {
    let (mut index, mut offset, mut written) = (0, 0, 0);
    let mut remaining = lengths.iter();
    for segment in segments {
        while index < segment.index {
            let Some(length) = remaining.next() else { return Ok(false) };
            offset += length;
            index += 1;
            // Check every marker, as in `collect_by_search`, so that both functions detect
            // misplaced markers.
            match data.get(offset..offset + MARKER_LEN) {
                Some(&[0xff, marker]) if precedes(index, marker) => offset += MARKER_LEN,
                _ => return Ok(false),
            }
        }
        let end;
        segment.bytes.start = written;
        (end, written) = unstuff(data, offset, stream, written).ok_or(CollectError::BufferFull)?;
        segment.bytes.end = written;
        let is_complete = match lengths.get(index) {
            Some(length) => end == offset + length,
            None => data.get(end..end + MARKER_LEN) == Some(&[0xff, 0xd9]),
        };
        if !is_complete {
            return Ok(false);
        }
    }
    Ok(true)
}

fn collect_by_search(
    data: &[u8],
    segments: &mut [Segment],
    stream: &mut [u8],
    unstuff: Unstuff,
) -> Result<(), CollectError> {
    let (mut index, mut offset, mut written) = (0, 0, 0);
    let skip = |index: &mut u32, offset: &mut usize| {
        *offset += memchr::memchr(0xff, data.get(*offset..)?)?;
        match *data.get(*offset + 1)? {
            0 => {}
            marker if precedes(*index + 1, marker) => *index += 1,
            _ => return None,
        }
        *offset += MARKER_LEN;
        Some(())
    };
    for segment in segments {
        while index < segment.index {
            skip(&mut index, &mut offset).ok_or(CollectError::Damaged)?;
        }
        segment.bytes.start = written;
        (offset, written) = unstuff(data, offset, stream, written).ok_or(CollectError::BufferFull)?;
        segment.bytes.end = written;
        // Fill bytes may precede only a marker. Before a stuffed zero, fill bytes are damage.
        let after = data.get(offset..).and_then(|rest| rest.iter().find(|&&byte| byte != 0xff));
        if after == Some(&0) {
            return Err(CollectError::Damaged);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::needed::list_needed;
    use super::*;
    use crate::fuzz::Random;
    use crate::header::Header;
    use crate::kernels::Backend;
    use crate::layout::{Layout, Window};
    use crate::libjpeg::{Options, encode};
    use crate::pixels::Rect;
    use crate::repack::repack;

    type Collected = Result<Vec<Vec<u8>>, CollectError>;

    fn collect_both_ways(jpeg: &[u8], region: Rect) -> (Option<Collected>, Collected) {
        let header = Header::read(jpeg).unwrap();
        let layout = Layout::new(&header).unwrap();
        let (data, unstuff) = (&jpeg[header.scan.data_offset..], Backend::choose().unstuff());
        let mut segments = Vec::new();
        list_needed(&layout, &Window::new(&layout, region), header.restart_interval, data.len(), &mut segments)
            .unwrap();
        let lengths = header.lengths(jpeg, layout.mcus_per_row * layout.mcu_rows);
        let mut stream = vec![0; data.len()];
        let copy = |segments: &[Segment], stream: &[u8]| {
            segments.iter().map(|segment| stream[segment.bytes.clone()].to_vec()).collect::<Vec<_>>()
        };
        let by_lengths = match collect_by_lengths(data, lengths, &mut segments, &mut stream, unstuff) {
            Ok(true) => Some(Ok(copy(&segments, &stream))),
            Ok(false) => None,
            Err(e) => Some(Err(e)),
        };
        let by_search = collect_by_search(data, &mut segments, &mut stream, unstuff).map(|()| copy(&segments, &stream));
        (by_lengths, by_search)
    }

    fn packed(random: &mut Random, (width, height): (u32, u32)) -> Vec<u8> {
        let pixels: Vec<u8> = (0..width * height * 3).map(|i| (i / 7 + random.below(90) as u32) as u8).collect();
        let (h, v) = [(1, 1), (2, 1), (2, 2)][random.below(3)];
        let plain = encode(&pixels, width, height, 3, &Options::new(85, h, v));
        let mut packed = Vec::new();
        repack(&plain, &mut packed).unwrap();
        packed
    }

    fn region(random: &mut Random, (width, height): (u32, u32)) -> Rect {
        let (x, y) = (random.below(width as usize) as u32, random.below(height as usize) as u32);
        let part = |random: &mut Random, limit: u32| 1 + random.below(limit as usize) as u32;
        Rect::new(x, y, part(random, width - x), part(random, height - y))
    }

    #[test]
    fn a_packed_file_is_collected_without_a_search() {
        let random = &mut Random::new(1);
        for size in [(400, 300), (333, 257), (90, 1200)] {
            let jpeg = packed(random, size);
            for _ in 0..30 {
                let region = region(random, size);
                let (by_lengths, by_search) = collect_both_ways(&jpeg, region);
                assert!(by_search.is_ok());
                assert!(by_lengths == Some(by_search), "{size:?} {region:?}");
            }
        }
    }

    #[test]
    fn lengths_that_do_not_fit_the_data_are_not_used() {
        let (random, size) = (&mut Random::new(2), (400, 300));
        let jpeg = packed(random, size);
        let header = Header::read(&jpeg).unwrap();
        let app = jpeg.windows(Lengths::ID.len()).position(|bytes| bytes == Lengths::ID).unwrap() + Lengths::ID.len();
        let markers: Vec<usize> = (header.scan.data_offset..jpeg.len())
            .filter(|&i| jpeg[i - 1] == 0xff && (0xd0..0xd8).contains(&jpeg[i]))
            .collect();
        let (mut refused, mut used) = (0, 0);
        for _ in 0..2000 {
            let mut damaged = jpeg.clone();
            for _ in 0..1 + random.below(2) {
                let (offset, bits) = match random.below(2) {
                    0 => (app + random.below(2 * markers.len()), 255),
                    _ => (markers[random.below(markers.len())], 7),
                };
                damaged[offset] ^= 1 + random.below(bits) as u8;
            }
            let (by_lengths, by_search) = collect_both_ways(&damaged, region(random, size));
            match by_lengths {
                Some(by_lengths) => {
                    assert!(by_lengths == by_search);
                    used += 1;
                }
                None => refused += 1,
            }
        }
        assert!(refused > 200 && used > 200, "{refused} refused, {used} used");
    }

    #[test]
    fn lengths_of_another_scan_are_not_used() {
        let (random, size) = (&mut Random::new(3), (400, 300));
        let (first, second) = (packed(random, size), packed(random, size));
        let scan = |jpeg: &[u8]| Header::read(jpeg).unwrap().scan.data_offset;
        // A program might keep the header's segments but replace the data.
        let mixed = [&first[..scan(&first)], &second[scan(&second)..]].concat();
        let (by_lengths, _) = collect_both_ways(&mixed, Rect::new(0, 0, size.0, size.1));
        assert_eq!(by_lengths, None);
        let mut short = first;
        let app = short.windows(Lengths::ID.len()).position(|bytes| bytes == Lengths::ID).unwrap();
        let bytes = u16::from_be_bytes([short[app - 2], short[app - 1]]) - 2;
        short[app - 2..app].copy_from_slice(&bytes.to_be_bytes());
        short.drain(app + Lengths::ID.len()..app + Lengths::ID.len() + 2);
        let header = Header::read(&short).unwrap();
        let layout = Layout::new(&header).unwrap();
        assert_eq!(header.lengths(&short, layout.mcus_per_row * layout.mcu_rows).len(), 0);
    }
}
