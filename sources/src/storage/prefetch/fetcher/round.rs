//! Plans a round: selects samples to prefetch, and merges them into requests.
//!
//! A round first selects samples in the order in which they are needed, up to half of the free
//! bytes. The first sample may be larger. The round then adds samples that are needed a little
//! later and are adjacent to a selected sample in the same object. A windowed shuffle reads all
//! samples of a block within one window. If a window fits in the byte budget, each block therefore
//! becomes one request, or several of up to 4 MiB. The remaining bytes stay free for the blocks of
//! the next window. If few samples are adjacent, the round uses the remaining bytes for the next
//! samples to be read.

use std::ops::Range;
use std::sync::Arc;

use super::{Fetcher, Piece, State};
use crate::model::{BatchIndex, ObjectCache};
use crate::storage::prefetch::congestion::weight;
use crate::storage::prefetch::plan::{SampleRange, count_adjacent, find_neighbors, merge_ranges, reserved_gap_bytes};

/// Maximum number of samples that a round selects in order. The same limit applies to the later
/// samples that it checks for adjacency.
const MAX_SAMPLES: usize = 1 << 16;
pub(super) const MAX_EMPTY_BATCHES: usize = 256;
/// The loader is assumed to read in blocks if at least `1 / MIN_ADJACENT_DIVISOR` of the selected
/// samples are adjacent to another selected sample.
const MIN_ADJACENT_DIVISOR: usize = 4;

struct Round {
    free_bytes: usize,
    selected_bytes: usize,
    /// Bytes reserved for the gaps between samples.
    gap_bytes: u64,
    samples: Vec<SampleRange>,
    has_order_ended: bool,
}

fn range_len(sample_range: &SampleRange) -> usize {
    (sample_range.range.end - sample_range.range.start) as usize
}

impl Fetcher {
    pub(super) fn plan_round(&self, state: &mut State) {
        let bytes = self.order.budget_bytes();
        let free_bytes = bytes.saturating_sub(state.piece_bytes + state.cached_bytes.values().sum::<usize>());
        let is_full = free_bytes < bytes / 2 && !state.pieces.is_empty();
        let is_early = state.first_unfinished_batch < state.next_useful_batch;
        if state.is_closed || state.batches.is_none() || is_full || is_early {
            return;
        }
        let max_bytes = free_bytes / 2;
        let mut round =
            Round { free_bytes, selected_bytes: 0, gap_bytes: 0, samples: Vec::new(), has_order_ended: true };
        for checked in 1..=MAX_SAMPLES {
            let Some((batch, sample)) = self.take_next_sample(state, &mut round) else { break };
            let Some(sample_range) = self.sample_range(batch, sample) else {
                if checked == MAX_SAMPLES && round.selected_bytes == 0 {
                    (state.next_useful_batch, round.has_order_ended) = (batch, false);
                }
                continue;
            };
            if range_len(&sample_range) > round.free_bytes
                || round.selected_bytes > 0 && round.selected_bytes + range_len(&sample_range) > max_bytes
            {
                // Reads of earlier samples will free bytes for this sample.
                state.pending.push_front((batch, sample));
                round.has_order_ended = false;
                break;
            }
            self.select(state, &mut round, sample_range);
        }
        if round.selected_bytes > 0 {
            self.select_neighbors(state, &mut round);
        }
        if round.samples.is_empty() && self.cache.is_none() && round.has_order_ended {
            // There are no more samples to read.
            state.batches = None;
        }
        for piece in merge_ranges(round.samples, round.gap_bytes + round.free_bytes as u64) {
            let id = state.next_id();
            for sample_range in &piece.samples {
                let planned = state.planned_samples.entry(sample_range.sample).or_default();
                let index = planned.partition_point(|(batch, _)| *batch <= sample_range.batch);
                planned.insert(index, (sample_range.batch, id));
            }
            state.piece_bytes += (piece.range.end - piece.range.start) as usize;
            state.queue.insert((piece.batch, id));
            let piece = Piece {
                object: piece.object,
                range: piece.range,
                batch: piece.batch,
                unread_samples: piece.samples.len(),
                outcome: Arc::default(),
                is_complete: false,
                attempts: 0,
                in_flight: 0,
                is_hedged: false,
            };
            state.pieces.insert(id, piece);
        }
        let State { congestion, queue, pieces, .. } = state;
        if let Some(&(first_batch, _)) = queue.first() {
            let first_pieces = queue.iter().take_while(|(batch, _)| *batch == first_batch);
            congestion.start_ramp(|| first_pieces.map(|(_, id)| weight(pieces[id].len())).sum());
        }
    }

    /// Adds later samples that are adjacent to samples of `round`, or any later samples if the
    /// loader does not read in blocks. Moves the other later samples to `pending`.
    fn select_neighbors(&self, state: &mut State, round: &mut Round) {
        let (mut later, mut later_bytes) = (Vec::new(), 0);
        while later_bytes < round.free_bytes && later.len() < MAX_SAMPLES {
            let Some((batch, sample)) = self.take_next_sample(state, round) else { break };
            let Some(sample_range) = self.sample_range(batch, sample) else { continue };
            later_bytes += range_len(&sample_range);
            later.push(sample_range);
        }
        let is_neighbor = find_neighbors(&round.samples, &later);
        let mut others = Vec::new();
        for (sample_range, is_neighbor) in later.into_iter().zip(is_neighbor) {
            if is_neighbor && range_len(&sample_range) <= round.free_bytes {
                self.select(state, round, sample_range);
            } else {
                others.push(sample_range);
            }
        }
        let adjacent_count = count_adjacent(&round.samples);
        let has_blocks = adjacent_count > 0 && MIN_ADJACENT_DIVISOR * adjacent_count >= round.samples.len();
        let mut others = others.into_iter().peekable();
        while !has_blocks
            && let Some(sample_range) = others.next_if(|sample_range| range_len(sample_range) <= round.free_bytes)
        {
            self.select(state, round, sample_range);
        }
        let skipped: Vec<_> = others.map(|sample_range| (sample_range.batch, sample_range.sample)).collect();
        skipped.into_iter().rev().for_each(|sample| state.pending.push_front(sample));
    }

    fn take_next_sample(&self, state: &mut State, round: &mut Round) -> Option<(BatchIndex, u64)> {
        loop {
            if let Some(sample) = state.pending.pop_front() {
                return Some(sample);
            }
            if state.empty_batches.len() >= MAX_EMPTY_BATCHES {
                round.has_order_ended = false;
                return None;
            }
            let batches = state.batches.as_mut()?;
            if !self.ranges.are_ready(state.next_unplanned_batch) {
                round.has_order_ended = false;
                return None;
            }
            let (batch, samples) = batches.next()?;
            state.next_unplanned_batch = self.order.next_batch(batch);
            if samples.is_empty() {
                round.has_order_ended = false;
                // No call of `done` would remove the entry of a batch that was completed before it
                // was planned.
                if batch >= state.first_unfinished_batch {
                    state.empty_batches.insert(batch);
                }
            }
            state.pending.extend(samples.into_iter().map(|sample| (batch, sample)));
        }
    }

    /// Returns the byte range of a sample. Returns `None` if the sample is not prefetched, because
    /// the source excludes it, it has no bytes, or it is larger than the whole budget.
    fn sample_range(&self, batch: BatchIndex, sample: u64) -> Option<SampleRange> {
        let (object, range): (u32, Range<u64>) = self.ranges.object_and_range(sample)?;
        let sample_range = SampleRange { batch, sample, object, range };
        (1..=self.order.budget_bytes()).contains(&range_len(&sample_range)).then_some(sample_range)
    }

    /// Adds a sample, which must fit, to the round. The bytes of a cached sample are counted but
    /// not requested.
    fn select(&self, state: &mut State, round: &mut Round, sample_range: SampleRange) {
        let size = range_len(&sample_range);
        round.free_bytes -= size;
        round.selected_bytes += size;
        let is_cached = |cache: &Arc<dyn ObjectCache>| {
            cache.contains(self.ranges.object(sample_range.object), sample_range.range.start, size as u64)
        };
        if self.cache.as_ref().is_some_and(is_cached) {
            *state.cached_bytes.entry(sample_range.batch).or_default() += size;
            return;
        }
        // Reserve bytes for a gap, in case this sample shares a request with others.
        let gap = reserved_gap_bytes(size).min(round.free_bytes);
        round.free_bytes -= gap;
        round.gap_bytes += gap as u64;
        round.samples.push(sample_range);
    }
}
