//! The files of a dataset, and the **units** of bytes that a loader prefetches from them.
//!
//! A **column chunk** is the part of a column that is in one row group. A unit is a byte range that
//! is fetched as a whole: a page, the dictionary of a column chunk, or a whole column chunk if it
//! contains lists or if the offsets of its pages are unknown. Units are numbered across the dataset
//! like the samples of other sources, so the same code can prefetch, cache and count them. Several
//! samples may need the same unit, so the prefetch order omits units that are probably still cached
//! in decoded form.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use super::file::{MAX_CHUNK_BYTES, ParquetFile, Unit};
use super::input::guarded;
use super::schema::{Field, fields};
use crate::error::{Error, Result};
use crate::machine::parallel::in_parallel;
use crate::model::Position;
use crate::model::{BatchIndex, Lookahead, NextUse};
use crate::storage::prefetch::SampleRanges;
use crate::values::lru_cache::LruCache;
use crate::values::record::columns_error;

/// Maximum number of samples that are examined to find the next use of a unit, which is the
/// earliest next use of a sample that needs the unit. If more samples may need the unit, it counts
/// as needed immediately.
const MAX_SAMPLES_PER_UNIT: usize = 512;

/// Maps samples to the rows that they need, and rows to the samples that need them.
pub(crate) trait SampleRows: Send + Sync {
    /// Calls `visit` for each row of column `leaf` that `sample` needs.
    fn rows(&self, sample: u64, leaf: usize, visit: &mut dyn FnMut(usize));

    /// Calls `visit` for each sample that needs `row` of column `leaf`.
    fn samples(&self, row: usize, leaf: usize, visit: &mut dyn FnMut(u64));

    /// Returns an upper bound on the number of samples that need the same row of column `leaf`.
    fn max_samples_per_row(&self, leaf: usize) -> usize;
}

/// Each row is the only row of one sample, and has the same index as the sample.
pub(super) struct RowPerSample;

impl SampleRows for RowPerSample {
    fn rows(&self, sample: u64, _leaf: usize, visit: &mut dyn FnMut(usize)) {
        visit(sample as usize);
    }

    fn samples(&self, row: usize, _leaf: usize, visit: &mut dyn FnMut(u64)) {
        visit(row as u64);
    }

    fn max_samples_per_row(&self, _leaf: usize) -> usize {
        1
    }
}

pub(super) struct Files {
    pub(super) parquet_files: Vec<ParquetFile>,
    /// The first row of each row group, followed by the total number of rows.
    pub(super) group_starts: Vec<usize>,
    /// For each row group, the index of its file and its index within this file.
    pub(super) groups: Vec<(u32, u32)>,
    /// Number of times that the source was asked to check its files. A file is checked before its
    /// first read after such a request.
    pub(super) requested_checks: AtomicU64,
}

impl Files {
    /// Collects the non-empty row groups. Fails if the columns of a file differ from `columns`, or
    /// if the row counts or column counts in a file's metadata are inconsistent.
    pub(super) fn new(parquet_files: Vec<ParquetFile>, columns: &[Field]) -> Result<Self> {
        let (mut group_starts, mut groups) = (vec![0_usize], Vec::new());
        for (file, parquet_file) in parquet_files.iter().enumerate() {
            check_columns(parquet_file, columns, &parquet_files[0]).map_err(|e| e.at_path(&parquet_file.file.path))?;
            let leaf_columns = parquet_file.metadata.file_metadata().schema_descr().num_columns();
            for (group, row_group) in parquet_file.metadata.row_groups().iter().enumerate() {
                let rows = usize::try_from(row_group.num_rows()).ok();
                let end = rows.and_then(|rows| group_starts[group_starts.len() - 1].checked_add(rows));
                let end = end.filter(|_| row_group.num_columns() == leaf_columns);
                let damaged =
                    || Error::in_source(format!("row group {group} is damaged")).at_path(&parquet_file.file.path);
                let end = end.ok_or_else(damaged)?;
                if rows != Some(0) {
                    group_starts.push(end);
                    groups.push((file as u32, group as u32));
                }
            }
            let (claimed, counted) = (parquet_file.metadata.file_metadata().num_rows(), rows_of_groups(parquet_file));
            if counted != Some(claimed) {
                let counted = counted.unwrap_or(i64::MAX);
                let cause = format!(
                    "damaged: the footer claims {claimed} rows, but the row groups have {counted}; write the file again"
                );
                return Err(Error::in_source(cause).at_path(&parquet_file.file.path));
            }
        }
        Ok(Files { parquet_files, group_starts, groups, requested_checks: AtomicU64::new(0) })
    }

    pub(super) fn rows(&self) -> usize {
        self.group_starts[self.groups.len()]
    }

    /// Returns the index of the row group that contains `row`, and the index of the row within this
    /// row group.
    ///
    /// # Panics
    /// If `row` is out of range.
    pub(super) fn locate(&self, row: usize) -> (usize, usize) {
        assert!(row < self.rows(), "sample {row} of {}", self.rows());
        let group = self.group_starts.partition_point(|&start| start <= row) - 1;
        (group, row - self.group_starts[group])
    }

    fn leaf_columns(&self) -> u64 {
        self.parquet_files
            .first()
            .map_or(0, |parquet_file| parquet_file.metadata.file_metadata().schema_descr().num_columns() as u64)
    }

    fn group_rows(&self, group: usize) -> u64 {
        (self.group_starts[group + 1] - self.group_starts[group]) as u64
    }

    /// Returns the number of a unit of column `leaf` in row group `group`. Each column chunk has a
    /// number for each of its rows (a page may start at any row), one for its dictionary, and one
    /// for the whole chunk.
    pub(super) fn unit_number(&self, group: usize, leaf: usize, unit: Unit) -> u64 {
        let rows = self.group_rows(group);
        let offset = match unit {
            Unit::Page(first_row) => first_row as u64,
            Unit::Dictionary => rows,
            Unit::Whole => rows + 1,
        };
        self.first_unit(group) + leaf as u64 * (rows + 2) + offset
    }

    fn first_unit(&self, group: usize) -> u64 {
        (self.group_starts[group] as u64 + 2 * group as u64) * self.leaf_columns()
    }

    /// Returns the row group, the leaf column and the unit of a unit number: the inverse of
    /// [`unit_number`](Files::unit_number). Returns `None` if `number` is out of range.
    fn unit(&self, number: u64) -> Option<(usize, usize, Unit)> {
        let (mut group, mut end) = (0, self.groups.len());
        while end - group > 1 {
            let middle = group.midpoint(end);
            if self.first_unit(middle) <= number { group = middle } else { end = middle }
        }
        let rows = self.group_rows(group);
        let offset_in_group = number - self.first_unit(group);
        let (leaf, offset) = (offset_in_group / (rows + 2), offset_in_group % (rows + 2));
        let unit = match offset.checked_sub(rows) {
            None => Unit::Page(offset as usize),
            Some(0) => Unit::Dictionary,
            Some(_) => Unit::Whole,
        };
        (group < end && leaf < self.leaf_columns()).then_some((group, leaf as usize, unit))
    }

    /// Returns the byte range of a unit within its file. Returns `None` if the range is unknown, or
    /// if a whole column chunk exceeds [`MAX_CHUNK_BYTES`].
    fn range(&self, group: usize, leaf: usize, unit: Unit) -> Option<Range<u64>> {
        let (file, group_in_file) = self.groups[group];
        let parquet_file = &self.parquet_files[file as usize];
        match unit {
            Unit::Whole => parquet_file
                .chunk_range(group_in_file, leaf)
                .ok()
                .filter(|chunk| chunk.end - chunk.start <= MAX_CHUNK_BYTES),
            Unit::Dictionary => parquet_file.cached_index(group_in_file, leaf as u32)?.dictionary.clone(),
            Unit::Page(first_row) => {
                let (rows, range) = parquet_file
                    .cached_index(group_in_file, leaf as u32)?
                    .find_page(first_row, parquet_file.rows(group_in_file))
                    .ok()?;
                (rows.start == first_row).then_some(range)
            }
        }
    }

    fn rows_of_unit(&self, group: usize, leaf: usize, unit: Unit) -> Range<usize> {
        let start = self.group_starts[group];
        let (file, group_in_file) = self.groups[group];
        let parquet_file = &self.parquet_files[file as usize];
        match unit {
            Unit::Page(first_row) => parquet_file
                .cached_index(group_in_file, leaf as u32)
                .and_then(|index| index.find_page(first_row, parquet_file.rows(group_in_file)).ok())
                .map_or(start + first_row..start + first_row + 1, |(rows, _)| start + rows.start..start + rows.end),
            _ => start..self.group_starts[group + 1],
        }
    }

    /// Reads the page indexes of those columns that contain no lists, so that a prefetch order can
    /// list individual pages of these columns.
    pub(super) fn load_indexes(&self, leaf_columns: &[NeededLeaf]) -> Result<()> {
        let flat: Vec<u32> =
            leaf_columns.iter().filter(|needed| !needed.is_list).map(|needed| needed.leaf as u32).collect();
        in_parallel(&self.parquet_files, |parquet_file| {
            parquet_file.load_indexes(&flat).map_err(|e| e.at_path(&parquet_file.file.path))
        })
        .map(drop)
    }

    /// Converts an order of samples to the order of the units that the samples need in the given
    /// columns. Omits units that are probably cached in decoded form. The prefetcher may use up to
    /// `bytes` bytes, and the cache of decoded pages up to `cache_bytes` bytes.
    pub(super) fn unit_order(
        self: &Arc<Self>,
        order: &Lookahead,
        (rows_of_samples, leaf_columns): (&Arc<dyn SampleRows>, Vec<NeededLeaf>),
        bytes: usize,
        cache_bytes: usize,
    ) -> Lookahead {
        let (files, samples, simulation) = (self.clone(), order.clone(), Mutex::new(CacheSimulation::default()));
        let needed_rows = rows_of_samples.clone();
        let units = move |batch| {
            let batch_samples = samples.samples(batch)?;
            let mut simulation = simulation.lock().unwrap_or_else(PoisonError::into_inner);
            if simulation.next_batch != Some(batch) {
                *simulation = CacheSimulation::default();
            }
            simulation.next_batch = Some(samples.next_batch(batch));
            let mut units = Vec::new();
            for sample in batch_samples {
                for needed in &leaf_columns {
                    needed_rows.rows(sample, needed.leaf, &mut |row| {
                        // If the whole column chunk was read recently, it is probably still cached,
                        // so its pages need not be read.
                        if simulation.cached_units.get(files.whole_chunk_unit(row, *needed)).is_some() {
                            return;
                        }
                        files.for_each_unit(row, *needed, |unit, memory| {
                            units.extend((!simulation.record_use(unit, memory, cache_bytes)).then_some(unit));
                        });
                    });
                }
            }
            Some(units)
        };
        let (files, samples, rows_of_samples) = (self.clone(), order.clone(), rows_of_samples.clone());
        let next_use = move |epoch, unit, first_batch| {
            let Some((group, leaf, unit)) = files.unit(unit) else { return Position::Absent };
            let rows = files.rows_of_unit(group, leaf, unit);
            if rows.len().saturating_mul(rows_of_samples.max_samples_per_row(leaf)) > MAX_SAMPLES_PER_UNIT {
                return Position::At(first_batch);
            }
            let (mut first, mut has_unknown) = (None, false);
            for row in rows {
                rows_of_samples.samples(row, leaf, &mut |sample| match samples.next_use(
                    sample,
                    BatchIndex { epoch, batch: first_batch },
                    1,
                ) {
                    NextUse::At(batch) => {
                        first = Some(first.map_or(batch.batch, |first: u64| first.min(batch.batch)));
                    }
                    NextUse::Later => {}
                    NextUse::Unknown => has_unknown = true,
                });
                if has_unknown {
                    return Position::Unknown;
                }
            }
            first.map_or(Position::Absent, Position::At)
        };
        let batches_of = order.clone();
        Lookahead::new(bytes, move |epoch| batches_of.batch_count(epoch), units).with_next(next_use)
    }

    pub(super) fn units(self: &Arc<Self>) -> SampleRanges {
        let objects = self.parquet_files.iter().filter_map(|parquet_file| Some(parquet_file.file.object()?.0.clone()));
        let files = self.clone();
        SampleRanges::new(objects.collect(), move |number| {
            let (group, leaf, unit) = files.unit(number)?;
            Some((files.groups[group].0, files.range(group, leaf, unit)?))
        })
    }

    fn whole_chunk_unit(&self, row: usize, needed: NeededLeaf) -> u64 {
        self.unit_number(self.locate(row).0, needed.leaf, Unit::Whole)
    }

    /// Calls `visit` with the number and the estimated decoded size in bytes of each unit that
    /// `row` needs.
    fn for_each_unit(&self, row: usize, needed: NeededLeaf, mut visit: impl FnMut(u64, usize)) {
        let (group, row_in_group) = self.locate(row);
        let (file, group_in_file) = self.groups[group];
        let parquet_file = &self.parquet_files[file as usize];
        let index = if needed.is_list { None } else { parquet_file.cached_index(group_in_file, needed.leaf as u32) };
        let mut visit = |unit: Unit| {
            let Some(range) = self.range(group, needed.leaf, unit) else { return };
            let memory = parquet_file.estimate_decoded_size(group_in_file, needed.leaf, range.end - range.start);
            // Both the encoded bytes and the decoded pages of a whole column chunk are cached.
            let memory = if unit == Unit::Whole { memory.saturating_mul(2) } else { memory };
            visit(self.unit_number(group, needed.leaf, unit), memory);
        };
        let Some(index) = index else { return visit(Unit::Whole) };
        if let Ok((rows, _)) = index.find_page(row_in_group, parquet_file.rows(group_in_file)) {
            if index.may_need_dictionary(rows.start) {
                visit(Unit::Dictionary);
            }
            visit(Unit::Page(rows.start));
        }
    }
}

fn rows_of_groups(parquet_file: &ParquetFile) -> Option<i64> {
    parquet_file.metadata.row_groups().iter().try_fold(0_i64, |total, group| total.checked_add(group.num_rows()))
}

/// Fails if the columns of a file differ from `columns`, the columns of the first file.
fn check_columns(parquet_file: &ParquetFile, columns: &[Field], first: &ParquetFile) -> Result<()> {
    let actual = guarded(|| Ok(fields(parquet_file.metadata.file_metadata().schema_descr())))?;
    if actual == columns {
        return Ok(());
    }
    let names = |fields: &[Field]| fields.iter().map(|field| field.name.clone()).collect::<Vec<_>>();
    Err(columns_error(&first.file.path, &names(columns), &names(&actual), |column| {
        actual[column].form == columns[column].form
    }))
}

#[derive(Debug, Clone, Copy)]
pub(super) struct NeededLeaf {
    pub(super) leaf: usize,
    pub(super) is_list: bool,
}

/// Predicts which decoded units are still cached.
#[derive(Default)]
struct CacheSimulation {
    /// The batch that is expected next. Any other batch restarts the simulation.
    next_batch: Option<BatchIndex>,
    cached_units: LruCache<u64, ()>,
}

impl CacheSimulation {
    /// Records a use of a unit, which takes `memory` bytes when decoded. Evicts units until the
    /// cache takes at most `limit` bytes. Returns whether the unit was probably cached before.
    fn record_use(&mut self, unit: u64, memory: usize, limit: usize) -> bool {
        let was_cached = self.cached_units.get(unit).is_some();
        self.cached_units.insert(unit, (), memory);
        self.cached_units.shrink(limit, 0);
        was_cached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recently_used_units_count_as_cached() {
        let mut simulation = CacheSimulation::default();
        let mut uses = |unit| simulation.record_use(unit, 10, 30);
        assert_eq!([1, 2, 3, 1, 4, 2, 1].map(&mut uses), [false, false, false, true, false, false, true]);
        assert!(simulation.cached_units.get(1).is_some() && simulation.cached_units.get(3).is_none());
        assert!(!simulation.record_use(9, 31, 30) && !simulation.record_use(9, 31, 30));
        assert_eq!((simulation.cached_units.bytes(), simulation.cached_units.len()), (0, 0));
    }
}
