//! The files of a dataset, and the order in which a loader reads their bytes.
//!
//! From an object store, bytes are read in **units**. A unit is a page, the dictionary of a column
//! in a row group, or the whole column in a row group if the offsets of its pages are unknown.
//! Units are numbered across the dataset, like samples in other sources, so they can use the same
//! code for prefetching, caching and statistics. Several samples may need the same unit, but its
//! decoded page is cached. The order of units therefore leaves out units whose pages are probably
//! still cached.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use super::input::guarded;
use super::part::{MAX_CHUNK, Part, Unit};
use super::schema::{Field, fields};
use crate::error::{Error, Result};
use crate::machine::parallel::in_parallel;
use crate::medium::ahead::Parts;
use crate::model::Position;
use crate::model::{BatchIndex, Lookahead, NextUse};
use crate::values::lru_cache::Recent;
use crate::values::record::other_columns;

/// Maximum number of rows in a page for which the next use is computed, as the earliest next use of
/// its rows. A page with more rows is assumed to be in constant use.
const MOST_ROWS: usize = 512;

/// The files of a dataset.
pub(super) struct Files {
    pub(super) parts: Vec<Part>,
    /// Index of the first row of each row group, followed by the total number of rows.
    pub(super) starts: Vec<usize>,
    /// For each row group, the index of its file, and its index within the file.
    pub(super) groups: Vec<(u32, u32)>,
    /// Number of times that a check for changes was requested.
    pub(super) looks: AtomicU64,
}

impl Files {
    /// Collects the row groups of `parts`, without empty ones. All files must have the same
    /// `columns`.
    ///
    /// # Errors
    /// If a file is damaged or has different columns.
    pub(super) fn new(parts: Vec<Part>, columns: &[Field]) -> Result<Self> {
        let (mut starts, mut groups) = (vec![0_usize], Vec::new());
        for (number, part) in parts.iter().enumerate() {
            check_columns(part, columns, &parts[0]).map_err(|e| e.at_path(&part.file.path))?;
            let leaves = part.meta.file_metadata().schema_descr().num_columns();
            for (group, about) in part.meta.row_groups().iter().enumerate() {
                let rows = usize::try_from(about.num_rows()).ok();
                let end = rows.and_then(|rows| starts[starts.len() - 1].checked_add(rows));
                let end = end.filter(|_| about.num_columns() == leaves);
                let damaged = || Error::in_source(format!("row group {group} is damaged")).at_path(&part.file.path);
                let end = end.ok_or_else(damaged)?;
                if rows != Some(0) {
                    starts.push(end);
                    groups.push((number as u32, group as u32));
                }
            }
            let (says, counted) = (part.meta.file_metadata().num_rows(), rows_of_groups(part));
            if counted != Some(says) {
                let counted = counted.unwrap_or(i64::MAX);
                let cause = format!(
                    "damaged: the footer claims {says} rows, but the row groups have {counted}; write the file again"
                );
                return Err(Error::in_source(cause).at_path(&part.file.path));
            }
        }
        Ok(Files { parts, starts, groups, looks: AtomicU64::new(0) })
    }

    /// Returns the total number of rows.
    pub(super) fn rows(&self) -> usize {
        self.starts[self.groups.len()]
    }

    /// Returns the index of the row group that contains `row`, and the index of the row within this
    /// group.
    pub(super) fn locate(&self, row: usize) -> (usize, usize) {
        assert!(row < self.rows(), "sample {row} of {}", self.rows());
        let number = self.starts.partition_point(|&start| start <= row) - 1;
        (number, row - self.starts[number])
    }

    /// Returns the number of leaf columns in a file.
    fn leaves(&self) -> u64 {
        self.parts.first().map_or(0, |part| part.meta.file_metadata().schema_descr().num_columns() as u64)
    }

    fn rows_of(&self, group: usize) -> u64 {
        (self.starts[group + 1] - self.starts[group]) as u64
    }

    /// Returns the number of a unit of the column `leaf` in the row group `group`. A column in a
    /// row group has one number per row, because a page may start at any row, one for the
    /// dictionary, and one for the whole column.
    pub(super) fn number(&self, group: usize, leaf: usize, unit: Unit) -> u64 {
        let rows = self.rows_of(group);
        let place = match unit {
            Unit::Page(first) => first as u64,
            Unit::Dictionary => rows,
            Unit::Whole => rows + 1,
        };
        self.first(group) + leaf as u64 * (rows + 2) + place
    }

    /// Returns the smallest unit number in a row group.
    fn first(&self, group: usize) -> u64 {
        (self.starts[group] as u64 + 2 * group as u64) * self.leaves()
    }

    /// Returns the row group, the column and the unit that a unit number refers to.
    fn unit(&self, number: u64) -> Option<(usize, usize, Unit)> {
        let (mut group, mut end) = (0, self.groups.len());
        while end - group > 1 {
            let middle = group.midpoint(end);
            if self.first(middle) <= number { group = middle } else { end = middle }
        }
        let rows = self.rows_of(group);
        let inside = number - self.first(group);
        let (leaf, place) = (inside / (rows + 2), inside % (rows + 2));
        let unit = match place.checked_sub(rows) {
            None => Unit::Page(place as usize),
            Some(0) => Unit::Dictionary,
            Some(_) => Unit::Whole,
        };
        (group < end && leaf < self.leaves()).then_some((group, leaf as usize, unit))
    }

    /// Returns the byte range of a unit within its file, if it is known.
    fn range(&self, group: usize, leaf: usize, unit: Unit) -> Option<Range<u64>> {
        let (file, own) = self.groups[group];
        let part = &self.parts[file as usize];
        match unit {
            Unit::Whole => part.chunk(own, leaf).ok().filter(|chunk| chunk.end - chunk.start <= MAX_CHUNK),
            Unit::Dictionary => part.known(own, leaf as u32)?.dictionary.clone(),
            Unit::Page(first) => {
                let (rows, range) = part.known(own, leaf as u32)?.find(first, part.rows(own)).ok()?;
                (rows.start == first).then_some(range)
            }
        }
    }

    /// Returns the rows of the dataset that need the unit.
    fn rows_of_unit(&self, group: usize, leaf: usize, unit: Unit) -> Range<usize> {
        let start = self.starts[group];
        let (file, own) = self.groups[group];
        let part = &self.parts[file as usize];
        match unit {
            Unit::Page(first) => part
                .known(own, leaf as u32)
                .and_then(|index| index.find(first, part.rows(own)).ok())
                .map_or(start + first..start + first + 1, |(rows, _)| start + rows.start..start + rows.end),
            _ => start..self.starts[group + 1],
        }
    }

    /// Reads the page indexes of the columns `leaves`, so that the units are known when a loader
    /// plans its reads.
    ///
    /// # Errors
    /// If a page index is damaged or cannot be read.
    pub(super) fn load_indexes(&self, leaves: &[Needed]) -> Result<()> {
        let flat: Vec<u32> = leaves.iter().filter(|needed| !needed.lists).map(|needed| needed.leaf as u32).collect();
        in_parallel(&self.parts, |part| part.load_indexes(&flat).map_err(|e| e.at_path(&part.file.path))).map(drop)
    }

    /// Converts an order of samples to an order of units for the columns `leaves`. The prefetcher
    /// may hold up to `bytes` bytes. The cache of decoded pages holds up to `kept` bytes.
    pub(super) fn order(
        self: &Arc<Self>,
        order: &Lookahead,
        leaves: Vec<Needed>,
        bytes: usize,
        kept: usize,
    ) -> Lookahead {
        let (files, samples, recent) = (self.clone(), order.clone(), Mutex::new(Units::default()));
        let units = move |place| {
            let samples_of = samples.samples(place)?;
            let mut recent = recent.lock().unwrap_or_else(PoisonError::into_inner);
            if recent.next != Some(place) {
                *recent = Units::default();
            }
            recent.next = Some(samples.after(place));
            let mut units = Vec::new();
            for sample in samples_of {
                for needed in &leaves {
                    // If the whole column was read recently, its pages need not be read.
                    if recent.recent.get(files.whole(sample as usize, *needed)).is_some() {
                        continue;
                    }
                    files.need(sample as usize, *needed, |unit, memory| {
                        units.extend((!recent.uses(unit, memory, kept)).then_some(unit));
                    });
                }
            }
            Some(units)
        };
        let (files, samples) = (self.clone(), order.clone());
        let next = move |epoch, unit, from| {
            let Some((group, leaf, unit)) = files.unit(unit) else { return Position::Absent };
            let rows = files.rows_of_unit(group, leaf, unit);
            if rows.len() > MOST_ROWS {
                return Position::At(from);
            }
            let mut first = None;
            for row in rows {
                match samples.next_use(row as u64, BatchIndex { epoch, batch: from }, 1) {
                    NextUse::At(place) => first = Some(first.map_or(place.batch, |first: u64| first.min(place.batch))),
                    NextUse::Later => {}
                    NextUse::Unknown => return Position::Unknown,
                }
            }
            first.map_or(Position::Absent, Position::At)
        };
        let all = order.clone();
        Lookahead::new(bytes, move |epoch| all.batches(epoch), units).with_next(next)
    }

    /// Returns a map from unit numbers to byte ranges, for files in an object store.
    pub(super) fn units(self: &Arc<Self>) -> Parts {
        let objects = self.parts.iter().filter_map(|part| Some(part.file.object()?.0.clone()));
        let files = self.clone();
        Parts::new(objects.collect(), move |number| {
            let (group, leaf, unit) = files.unit(number)?;
            Some((files.groups[group].0, files.range(group, leaf, unit)?))
        })
    }

    /// Returns the number of the unit that consists of the whole column, for the row group of
    /// `row`.
    fn whole(&self, row: usize, needed: Needed) -> u64 {
        self.number(self.locate(row).0, needed.leaf, Unit::Whole)
    }

    /// Calls `with` for each unit of a column that `row` needs. Passes the number and the memory
    /// use of the unit.
    fn need(&self, row: usize, needed: Needed, mut with: impl FnMut(u64, usize)) {
        let (group, inside) = self.locate(row);
        let (file, own) = self.groups[group];
        let part = &self.parts[file as usize];
        let index = if needed.lists { None } else { part.known(own, needed.leaf as u32) };
        let mut with = |unit: Unit| {
            let Some(range) = self.range(group, needed.leaf, unit) else { return };
            let memory = part.unpacked(own, needed.leaf, range.end - range.start);
            // For a whole column, both the encoded bytes and the decoded pages are cached.
            let memory = if unit == Unit::Whole { memory.saturating_mul(2) } else { memory };
            with(self.number(group, needed.leaf, unit), memory);
        };
        let Some(index) = index else { return with(Unit::Whole) };
        if let Ok((rows, _)) = index.find(inside, part.rows(own)) {
            if index.may_need_dictionary(rows.start) {
                with(Unit::Dictionary);
            }
            with(Unit::Page(rows.start));
        }
    }
}

/// Returns the total number of rows in the row groups of a file, or `None` if it overflows.
fn rows_of_groups(part: &Part) -> Option<i64> {
    part.meta.row_groups().iter().try_fold(0_i64, |all, group| all.checked_add(group.num_rows()))
}

/// Checks that a file has the same columns as the first file. These are passed as `columns`.
///
/// # Errors
/// If the columns of the two files differ.
fn check_columns(part: &Part, columns: &[Field], first: &Part) -> Result<()> {
    let found = guarded(|| Ok(fields(part.meta.file_metadata().schema_descr())))?;
    if found == columns {
        return Ok(());
    }
    let names = |fields: &[Field]| fields.iter().map(|field| field.name.clone()).collect::<Vec<_>>();
    Err(other_columns(&first.file.path, &names(columns), &names(&found), |place| {
        found[place].form == columns[place].form
    }))
}

/// A leaf column that is needed to read samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needed {
    pub(super) leaf: usize,
    pub(super) lists: bool,
}

/// A simulation of the page cache, which predicts which decoded pages are still cached.
#[derive(Default)]
struct Units {
    /// The batch that is expected next. For any other batch, the simulation starts again.
    next: Option<BatchIndex>,
    recent: Recent<u64, ()>,
}

impl Units {
    /// Records a use of `unit`. Returns whether the unit is probably still cached.
    fn uses(&mut self, unit: u64, memory: usize, most: usize) -> bool {
        let before = self.recent.get(unit).is_some();
        self.recent.insert(unit, (), memory);
        self.recent.shrink(most, 0);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recently_used_units_count_as_cached() {
        let mut recent = Units::default();
        let mut uses = |unit| recent.uses(unit, 10, 30);
        assert_eq!([1, 2, 3, 1, 4, 2, 1].map(&mut uses), [false, false, false, true, false, false, true]);
        assert!(recent.recent.get(1).is_some() && recent.recent.get(3).is_none());
        assert!(!recent.uses(9, 31, 30) && !recent.uses(9, 31, 30));
        assert_eq!((recent.recent.bytes(), recent.recent.len()), (0, 0));
    }
}
