//! Copies samples that are arrays in memory, such as windows of tokens, to the rows of a batch.
//!
//! Copying a window of tokens usually takes less than a microsecond, and the general path in
//! `filler` takes about twice as long. Here, the samples of a part are timed together, and no
//! images are planned.

use std::ops::Range;

use super::meter::Meter;
use crate::batch::SlotPart;
use crate::engine::state::Runtime;
use crate::error::guarded;
use crate::recipe::Recipe;
use crate::trace::Stage;

/// Approximate minimum size of a part in bytes, unless the batch is smaller. Passing a part to a
/// worker takes about as long as copying 10 KB.
const MIN_PART_BYTES: usize = 256 << 10;

/// Returns the number of samples per part, at least `min_len`, the number on the general path.
pub(super) fn part_len(min_len: usize, batch_len: usize, sample_bytes: usize) -> usize {
    (MIN_PART_BYTES / sample_bytes.max(1)).clamp(min_len, batch_len.max(min_len))
}

/// Copies the samples at the start of `rows`, and removes their rows from `rows`. Stops before the
/// first sample that cannot be copied, or if the run is canceled. Copies nothing if
/// [`Recipe::can_copy`] is false, or while a trace is recorded. The metadata of the rows must be
/// clear.
pub(super) fn copy(recipe: &Recipe, runtime: &Runtime, worker: usize, part: &mut SlotPart, rows: &mut Range<usize>) {
    if !recipe.can_copy || runtime.counters.open_trace().is_some() {
        return;
    }
    let mut meter = Meter::new(&runtime.counters, worker, part.header());
    let (first_row, mut copied_bytes) = (rows.start, 0);
    while rows.start < rows.end && runtime.is_current(part.header().run) {
        let (row, id) = (rows.start, part.header().entries[rows.start].sample);
        meter.enter(Stage::Write, id);
        let result = guarded(|| Ok(recipe.copy(id, part, row)));
        let Some(bytes) = result.ok().flatten() else {
            part.meta(row).key.clear();
            break;
        };
        part.meta(row).fault = None;
        copied_bytes += bytes;
        rows.start += 1;
    }
    let count = rows.start - first_row;
    if let Some(last_row) = rows.start.checked_sub(1).filter(|_| count > 0) {
        let (id, written_bytes) = (part.header().entries[last_row].sample, count * part.schema().sample_bytes());
        meter.finish_copying((id, &part.meta(last_row).key), count as u64, (copied_bytes, written_bytes));
    }
}
