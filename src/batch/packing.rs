//! Packs the [`Patches`](crate::field::Patches) fields of a full batch. Other variable-length
//! fields stay padded.
//!
//! While a batch is filled, each sample has space for the maximum number of rows, so workers write
//! independently. When the batch is finished, the rows are moved in place to close the gaps.

use super::slot::FilledSlot;
use super::{Role, Span};

/// Number of axes of a grid (time, height and width).
const GRID_AXES: usize = 3;

impl FilledSlot {
    /// Closes the gaps between samples, and computes the cumulative patch counts of the images.
    pub(crate) fn pack(&mut self) {
        let mut packed = std::mem::take(&mut self.header_mut().packed);
        packed.clear();
        for span in 0..self.schema().spans.len() {
            match self.schema().spans[span].role {
                Role::Packed { counts } => {
                    self.clear_failed_counts(counts);
                    packed.push((span, self.move_rows(span, counts, true)));
                }
                Role::CuSeqlens { grids } => {
                    let images = packed.iter().find(|(packed, _)| *packed == grids).map_or(0, |(_, images)| *images);
                    self.write_cu_seqlens(span, grids, images);
                    packed.push((span, images + 1));
                }
                _ => {}
            }
        }
        self.header_mut().packed = packed;
    }

    pub(crate) fn unpack(&mut self) {
        let mut packed = std::mem::take(&mut self.header_mut().packed);
        for (span, _) in packed.drain(..) {
            if let Role::Packed { counts } = self.schema().spans[span].role {
                self.move_rows(span, counts, false);
            }
        }
        self.header_mut().packed = packed;
    }

    /// Closes the gaps between the samples in `span`, or restores them if `is_packing` is false.
    /// Span `counts` contains each sample's number of rows. Returns the total number of rows.
    fn move_rows(&mut self, span: usize, counts: usize, is_packing: bool) -> usize {
        let Span { field, sample_bytes, .. } = &self.schema().spans[span];
        let (max_rows, capacity) = (field.shape[0], *sample_bytes);
        let row_bytes = capacity / max_rows;
        let rows = |full: &FilledSlot, sample: usize| {
            let row_count = full.bytes(counts).as_chunks().0[sample];
            usize::try_from(i64::from_ne_bytes(row_count)).unwrap_or(0).min(max_rows)
        };
        let total_rows: usize = (0..self.len()).map(|sample| rows(self, sample)).sum();
        let mut moved_rows = 0;
        for number in 0..self.len() {
            // When rows move toward the end, start with the last sample, so that no row is
            // overwritten.
            let sample = if is_packing { number } else { self.len() - 1 - number };
            let count = rows(self, sample);
            let packed_offset = if is_packing { moved_rows } else { total_rows - moved_rows - count } * row_bytes;
            let (source, target) =
                if is_packing { (sample * capacity, packed_offset) } else { (packed_offset, sample * capacity) };
            if source != target {
                self.bytes_mut(span).copy_within(source..source + count * row_bytes, target);
            }
            moved_rows += count;
        }
        total_rows
    }

    fn write_cu_seqlens(&mut self, span: usize, grids: usize, images: usize) {
        let (out, grids) = self.bytes_mut_with(span, grids);
        let grids = grids.as_chunks::<8>().0[..images * GRID_AXES].chunks_exact(GRID_AXES);
        let mut end = 0_i64;
        let ends = grids.map(|grid| {
            end += grid.iter().map(|axis| i64::from_ne_bytes(*axis)).product::<i64>();
            i32::try_from(end).unwrap_or(i32::MAX)
        });
        let ends = std::iter::once(0).chain(ends);
        out.as_chunks_mut::<4>().0.iter_mut().zip(ends).for_each(|(out, end)| *out = end.to_ne_bytes());
    }

    /// Sets the counts of failed samples without a replacement to 0, because their rows may be
    /// unwritten.
    fn clear_failed_counts(&mut self, counts: usize) {
        for sample in 0..self.len() {
            if self.meta(sample).fault.is_some() && self.meta(sample).replaced_sample.is_none() {
                self.bytes_mut(counts)[sample * 8..][..8].fill(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Dtype, Field, FreeSlot, Schema, Schemas, SlotMemory};
    use crate::sampler::{Entry, Rng};

    fn field(name: &str, dtype: Dtype, shape: &[usize]) -> Field {
        Field { name: name.into(), dtype, shape: shape.into() }
    }

    /// Returns a full batch and each sample's rows. Sample `i` has `counts[i]` rows of two bytes.
    fn batch(counts: &[usize], max_rows: usize) -> (FilledSlot, Vec<Vec<u8>>) {
        let arrays = [
            (field("rows", Dtype::U8, &[max_rows, 2]), Role::Packed { counts: 1 }),
            (field("rows.count", Dtype::I64, &[]), Role::Plain),
        ];
        let schemas = Schemas::one(Schema::new(counts.len(), arrays).unwrap());
        let free = FreeSlot::new(&schemas, SlotMemory::heap(schemas.bytes()).unwrap());
        let entry = Entry { valid: true, ..Entry::default() };
        let parts = free.begin(counts.len(), |header| {
            header.entries.clear();
            header.entries.extend(counts.iter().map(|_| entry));
        });
        let mut part = parts.into_iter().next().unwrap();
        let mut rng = Rng::new(max_rows as u64, 1, 1);
        let mut rows = Vec::new();
        for (sample, count) in counts.iter().enumerate() {
            let values: Vec<u8> = (0..max_rows * 2).map(|_| rng.next_u64() as u8).collect();
            part.bytes(0, sample).copy_from_slice(&values);
            part.bytes(1, sample).copy_from_slice(&(*count as i64).to_ne_bytes());
            rows.push(values[..count * 2].to_vec());
        }
        (part.finish().unwrap(), rows)
    }

    #[test]
    fn packed_rows_follow_each_other_and_return_to_their_samples() {
        for counts in [&[3, 0, 5, 1][..], &[0, 0, 2], &[5], &[0], &[5, 5, 5], &[1, 4, 0, 0, 5, 2, 3]] {
            let (mut full, rows) = batch(counts, 5);
            for _ in 0..2 {
                full.pack();
                assert_eq!(full.bytes(0), rows.concat());
                full.unpack();
                for (sample, rows) in rows.iter().enumerate() {
                    assert_eq!(&full.bytes_mut(0)[sample * 10..][..rows.len()], rows, "{counts:?} sample {sample}");
                }
            }
        }
    }
}
