//! Merges the byte ranges of samples into requests.
//!
//! Each request costs a round trip and counts against the limit on requests in flight, so adjacent
//! or nearly adjacent ranges of an object share a request. The gaps between the ranges cost
//! bandwidth and memory. The size of each gap is therefore limited. The total size of the larger
//! gaps is limited in proportion to the needed bytes, and the total size of all gaps by the free
//! memory.

use std::ops::Range;

use crate::model::BatchIndex;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SampleRange {
    pub(super) batch: BatchIndex,
    pub(super) sample: u64,
    pub(super) object: u32,
    pub(super) range: Range<u64>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct PlannedPiece {
    pub(super) object: u32,
    pub(super) range: Range<u64>,
    /// The first batch that needs the request.
    pub(super) batch: BatchIndex,
    pub(super) samples: Vec<SampleRange>,
}

/// Maximum gap between two samples in one request. A gap up to this size costs less than a separate
/// request.
const MAX_GAP_BYTES: u64 = 256 << 10;
/// Maximum size of a gap, in bytes, that does not count as waste. The headers of a separate request
/// are about as large.
const FREE_GAP_BYTES: u64 = 4 << 10;
/// Gaps larger than [`FREE_GAP_BYTES`] may add up to `1 / WASTE_DIVISOR` of the needed bytes.
const WASTE_DIVISOR: u64 = 64;
/// Maximum size of a merged request, in bytes. Smaller requests share the link more evenly.
const MAX_REQUEST_BYTES: u64 = 4 << 20;

/// Returns the number of bytes to reserve for a gap at a sample of `len` bytes.
pub(super) fn reserved_gap_bytes(len: usize) -> usize {
    len.min(FREE_GAP_BYTES as usize) + len / WASTE_DIVISOR as usize
}

fn is_next(a: &SampleRange, b: &SampleRange) -> bool {
    a.object == b.object && b.range.start <= a.range.end + FREE_GAP_BYTES
}

/// Returns for each range in `later` whether a chain of adjacent ranges connects it to `samples`.
pub(super) fn find_neighbors(samples: &[SampleRange], later: &[SampleRange]) -> Vec<bool> {
    let mut ranges: Vec<(&SampleRange, Option<usize>)> = samples.iter().map(|sample| (sample, None)).collect();
    ranges.extend(later.iter().enumerate().map(|(index, sample)| (sample, Some(index))));
    ranges.sort_by_key(|(sample, _)| (sample.object, sample.range.start));
    let mut is_neighbor = vec![false; later.len()];
    for run in ranges.chunk_by(|(a, _), (b, _)| is_next(a, b)) {
        if run.iter().any(|(_, index)| index.is_none()) {
            run.iter().filter_map(|(_, index)| *index).for_each(|index| is_neighbor[index] = true);
        }
    }
    is_neighbor
}

/// Returns the number of ranges in `samples` that are adjacent to another range, or nearly
/// adjacent.
pub(super) fn count_adjacent(samples: &[SampleRange]) -> usize {
    let mut ranges: Vec<&SampleRange> = samples.iter().collect();
    ranges.sort_by_key(|sample| (sample.object, sample.range.start));
    ranges.chunk_by(|a, b| is_next(a, b)).map(<[_]>::len).filter(|&len| len > 1).sum()
}

/// Merges the byte ranges of `samples` into requests. The requests have at most `max_unused` unused
/// bytes in total, and are sorted by their first batch.
pub(super) fn merge_ranges(mut samples: Vec<SampleRange>, mut max_unused: u64) -> Vec<PlannedPiece> {
    samples.sort_by_key(|sample| (sample.object, sample.range.start, sample.batch));
    let (mut pieces, mut needed_bytes, mut wasted_bytes) = (Vec::<PlannedPiece>::new(), 0, 0);
    for sample in samples {
        needed_bytes += sample.range.end - sample.range.start;
        if let Some(last) = pieces.last_mut()
            && last.object == sample.object
            && sample.range.end.max(last.range.end) - last.range.start <= MAX_REQUEST_BYTES
        {
            let gap = sample.range.start.saturating_sub(last.range.end);
            if gap <= max_unused
                && (gap <= FREE_GAP_BYTES
                    || (gap <= MAX_GAP_BYTES && wasted_bytes + gap <= needed_bytes / WASTE_DIVISOR))
            {
                max_unused -= gap;
                wasted_bytes += if gap > FREE_GAP_BYTES { gap } else { 0 };
                last.range.end = last.range.end.max(sample.range.end);
                last.batch = last.batch.min(sample.batch);
                last.samples.push(sample);
                continue;
            }
        }
        let SampleRange { object, batch, .. } = sample;
        pieces.push(PlannedPiece { object, range: sample.range.clone(), batch, samples: vec![sample] });
    }
    // The stable sort keeps the requests of one batch in file order.
    pieces.sort_by_key(|piece| piece.batch);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range_of(batch: u64, sample: u64, object: u32, range: Range<u64>) -> SampleRange {
        SampleRange { batch: BatchIndex { epoch: 0, batch }, sample, object, range }
    }

    fn merged(samples: &[SampleRange]) -> Vec<(u32, Range<u64>, u64, usize)> {
        let pieces = merge_ranges(samples.to_vec(), u64::MAX);
        pieces.into_iter().map(|p| (p.object, p.range, p.batch.batch, p.samples.len())).collect()
    }

    #[test]
    fn a_chain_of_adjacent_ranges_connects_later_samples() {
        let k = 1 << 10;
        let samples = [range_of(0, 0, 0, 0..10 * k), range_of(0, 1, 1, 0..k)];
        let later = [
            range_of(5, 2, 0, 40 * k..50 * k),
            range_of(5, 3, 0, 14 * k..20 * k),
            range_of(6, 4, 0, 24 * k + 1..30 * k),
            range_of(7, 5, 1, k..2 * k),
            range_of(7, 6, 2, 0..k),
            range_of(8, 7, 0, 20 * k..23 * k),
        ];
        assert_eq!(find_neighbors(&samples, &later), [false, true, true, true, false, true]);
        assert_eq!(find_neighbors(&[], &later), [false; 6]);
        assert_eq!((count_adjacent(&samples), count_adjacent(&later), count_adjacent(&[])), (0, 3, 0));
    }

    #[test]
    fn adjacent_ranges_merge_and_the_first_needed_comes_first() {
        let m = 1 << 20;
        let adjacent = [
            range_of(1, 5, 0, 512..1000),
            range_of(0, 6, 0, 2048..m),
            range_of(0, 7, 1, 0..9),
            range_of(2, 5, 0, 512..1000),
        ];
        assert_eq!(merged(&adjacent), [(0, 512..m, 0, 3), (1, 0..9, 0, 1)]);
        // A 64 KiB gap is too large for samples of 20 kB or 512 KiB in total, regardless of the
        // samples in later objects.
        let gap = |len: u64| [range_of(0, 0, 0, 0..len), range_of(0, 1, 0, len + 65_536..2 * len + 65_536)];
        assert_eq!(merged(&gap(10_000)).len(), 2);
        let many: Vec<_> = (0..3).map(|n| range_of(0, 9, 9, n * m..n * m + m)).chain(gap(m / 4)).collect();
        assert_eq!(
            merged(&many),
            [(0, 0..m / 4, 0, 1), (0, m / 4 + 65_536..m / 2 + 65_536, 0, 1), (9, 0..3 * m, 0, 3)]
        );
        // The gaps add up to at most `unused` bytes.
        let headers: Vec<_> = (0..10).map(|n| range_of(n, n, 0, n * 1000 + 512..n * 1000 + 1000)).collect();
        let bytes = |unused| -> u64 {
            merge_ranges(headers.clone(), unused).iter().map(|piece| piece.range.end - piece.range.start).sum()
        };
        assert_eq!([0, 511, 1024, 9 * 512].map(bytes), [4880, 4880, 4880 + 1024, 4880 + 9 * 512]);
        let large: Vec<_> = (0..10).map(|n| range_of(n, n, 0, n * m..n * m + m)).collect();
        assert!(merged(&large).iter().all(|(_, range, _, _)| range.end - range.start <= MAX_REQUEST_BYTES));
    }
}
