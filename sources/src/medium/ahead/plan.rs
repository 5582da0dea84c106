//! Merges the byte ranges of samples into requests.
//!
//! Each request costs a round trip and counts against the limit of requests in flight, so adjacent
//! and nearly adjacent ranges of an object share a request. The unused bytes in the gaps cost
//! bandwidth and memory. Therefore, the size of each gap is limited, and the total size of all gaps
//! is limited both in proportion to the needed bytes and by the free memory. Merging sorts the
//! samples of a round.

use std::ops::Range;

use crate::model::BatchIndex;

/// The byte range of a sample, and the batch that needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) place: BatchIndex,
    pub(super) sample: u64,
    pub(super) object: u32,
    pub(super) range: Range<u64>,
}

/// One request, which contains the bytes of one or more samples.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) object: u32,
    pub(super) range: Range<u64>,
    /// The first batch that needs the request.
    pub(super) place: BatchIndex,
    pub(super) wanted: Vec<Wanted>,
}

/// Maximum gap between two samples in one request. Transferring up to this many unused bytes costs
/// less than a separate request.
const GAP: u64 = 256 << 10;
/// Gaps up to this size are always merged, because the headers of a separate request are about as
/// large.
const FREE: u64 = 4 << 10;
/// Gaps larger than `FREE` add up to at most `1 / WASTE` of the needed bytes.
const WASTE: u64 = 64;
/// Maximum size of a merged request. Smaller requests share the link more evenly.
const MOST: u64 = 4 << 20;

/// Returns the number of bytes to reserve for the gap next to a sample of `len` bytes.
pub(super) fn allowance(len: usize) -> usize {
    len.min(FREE as usize) + len / WASTE as usize
}

/// Returns whether `b` starts no more than `FREE` bytes after the end of `a` in the same object.
fn is_next(a: &Wanted, b: &Wanted) -> bool {
    a.object == b.object && b.range.start <= a.range.end + FREE
}

/// Returns, for each range in `later`, whether a chain of adjacent ranges connects it to a range in
/// `wanted`.
pub(super) fn neighbors(wanted: &[Wanted], later: &[Wanted]) -> Vec<bool> {
    let mut all: Vec<(&Wanted, Option<usize>)> = wanted.iter().map(|part| (part, None)).collect();
    all.extend(later.iter().enumerate().map(|(number, part)| (part, Some(number))));
    all.sort_by_key(|(part, _)| (part.object, part.range.start));
    let mut joined = vec![false; later.len()];
    for run in all.chunk_by(|(a, _), (b, _)| is_next(a, b)) {
        if run.iter().any(|(_, number)| number.is_none()) {
            run.iter().filter_map(|(_, number)| *number).for_each(|number| joined[number] = true);
        }
    }
    joined
}

/// Returns the number of ranges that are adjacent to at least one other range.
pub(super) fn in_runs(wanted: &[Wanted]) -> usize {
    let mut all: Vec<&Wanted> = wanted.iter().collect();
    all.sort_by_key(|part| (part.object, part.range.start));
    all.chunk_by(|a, b| is_next(a, b)).map(<[_]>::len).filter(|&len| len > 1).sum()
}

/// Merges `wanted` into requests with at most `room` unused bytes in total. The requests are sorted
/// by the first batch that needs them.
pub(super) fn pieces(mut wanted: Vec<Wanted>, mut room: u64) -> Vec<Piece> {
    wanted.sort_by_key(|part| (part.object, part.range.start, part.place));
    let (mut pieces, mut used, mut wasted) = (Vec::<Piece>::new(), 0, 0);
    for part in wanted {
        used += part.range.end - part.range.start;
        if let Some(last) = pieces.last_mut()
            && last.object == part.object
            && part.range.end.max(last.range.end) - last.range.start <= MOST
        {
            let gap = part.range.start.saturating_sub(last.range.end);
            if gap <= room && (gap <= FREE || (gap <= GAP && wasted + gap <= used / WASTE)) {
                room -= gap;
                wasted += if gap > FREE { gap } else { 0 };
                last.range.end = last.range.end.max(part.range.end);
                last.place = last.place.min(part.place);
                last.wanted.push(part);
                continue;
            }
        }
        let Wanted { object, place, .. } = part;
        pieces.push(Piece { object, range: part.range.clone(), place, wanted: vec![part] });
    }
    // A stable sort, so that the requests of one batch stay in file order.
    pieces.sort_by_key(|piece| piece.place);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn want(batch: u64, sample: u64, object: u32, range: Range<u64>) -> Wanted {
        Wanted { place: BatchIndex { epoch: 0, batch }, sample, object, range }
    }

    fn found(wanted: &[Wanted]) -> Vec<(u32, Range<u64>, u64, usize)> {
        let pieces = pieces(wanted.to_vec(), u64::MAX);
        pieces.into_iter().map(|p| (p.object, p.range, p.place.batch, p.wanted.len())).collect()
    }

    #[test]
    fn a_chain_of_adjacent_ranges_connects_later_samples() {
        let k = 1 << 10;
        let wanted = [want(0, 0, 0, 0..10 * k), want(0, 1, 1, 0..k)];
        let later = [
            want(5, 2, 0, 40 * k..50 * k),
            want(5, 3, 0, 14 * k..20 * k),
            want(6, 4, 0, 24 * k + 1..30 * k),
            want(7, 5, 1, k..2 * k),
            want(7, 6, 2, 0..k),
            want(8, 7, 0, 20 * k..23 * k),
        ];
        assert_eq!(neighbors(&wanted, &later), [false, true, true, true, false, true]);
        assert_eq!(neighbors(&[], &later), [false; 6]);
        assert_eq!((in_runs(&wanted), in_runs(&later), in_runs(&[])), (0, 3, 0));
    }

    #[test]
    fn adjacent_ranges_merge_and_the_first_needed_comes_first() {
        let m = 1 << 20;
        let near = [want(1, 5, 0, 512..1000), want(0, 6, 0, 2048..m), want(0, 7, 1, 0..9), want(2, 5, 0, 512..1000)];
        assert_eq!(found(&near), [(0, 512..m, 0, 3), (1, 0..9, 0, 1)]);
        // Merging across a gap of 64 KiB is worthwhile together with about 4 MiB of samples, but
        // not with 20 kB.
        let gap = |len: u64| [want(0, 0, 0, 0..len), want(0, 1, 0, len + 65_536..2 * len + 65_536)];
        assert_eq!(found(&gap(10_000)).len(), 2);
        let many: Vec<_> = (0..3).map(|n| want(0, 9, 9, n * m..n * m + m)).chain(gap(m / 4)).collect();
        assert_eq!(found(&many), [(0, 0..m / 4, 0, 1), (0, m / 4 + 65_536..m / 2 + 65_536, 0, 1), (9, 0..3 * m, 0, 3)]);
        // The gaps do not exceed their budget.
        let headers: Vec<_> = (0..10).map(|n| want(n, n, 0, n * 1000 + 512..n * 1000 + 1000)).collect();
        let bytes = |room| -> u64 {
            pieces(headers.clone(), room).iter().map(|piece| piece.range.end - piece.range.start).sum()
        };
        assert_eq!([0, 511, 1024, 9 * 512].map(bytes), [4880, 4880, 4880 + 1024, 4880 + 9 * 512]);
        // No merged request exceeds the size limit.
        let large: Vec<_> = (0..10).map(|n| want(n, n, 0, n * m..n * m + m)).collect();
        assert!(found(&large).iter().all(|(_, range, _, _)| range.end - range.start <= MOST));
    }
}
