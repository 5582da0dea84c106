//! Checks the packed parts of a set and combines them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

use super::Written;
use super::destination::{self as dest, Destination, Leftovers, MERGE_END, State};
use super::place::destination;
use super::plan::Plan;
use super::report::{Counts, Report};
use super::set::{PartManifest, Set, ShardEntry};
use super::writer::exists;
use crate::error::{Error, ErrorKind, Result};
use crate::source::{CancelToken, PLAN_END, Store, Stores, during};

/// Maximum number of shards that are named in a message.
const SHOWN: usize = 10;

/// Merges the parts of a set, packed with [`Pack::part`](super::Pack::part).
///
/// A merge checks that all parts exist, that they were packed with the same plan from the same
/// source, that no sample is missing or duplicated, and that the checksums of all shards are
/// correct. It then renames the shards and writes the manifest of the set. An interrupted merge can
/// be run again.
///
/// ```no_run
/// use warpfeed::pack::Merge;
///
/// let merged = Merge::new("train.tar").run()?;
/// println!("{} samples, {} shards", merged.report.samples, merged.report.written.paths.len());
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is merged until `run` is called"]
pub struct Merge {
    pub(super) target: PathBuf,
    force: bool,
    quick: bool,
    pub(super) stores: Stores,
}

/// Result of a [`Merge`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Merged {
    /// Report of the whole set. Duplicate keys are not counted.
    pub report: Report,
    /// Files whose names start like the target's but that do not belong to the set, for example
    /// files of an attempt that is still running. They are ignored and can be deleted.
    pub orphans: Vec<PathBuf>,
}

impl Merge {
    /// Creates a merge of the parts that were packed to `target`.
    pub fn new(target: impl AsRef<Path>) -> Self {
        Merge::of(target.as_ref(), Stores::default())
    }

    pub(super) fn of(target: &Path, stores: Stores) -> Self {
        Merge { target: target.to_owned(), force: false, quick: false, stores }
    }

    /// Sets whether to replace an existing set of the same name. Off by default.
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Sets whether to check only the sizes of shards and not their checksums, which would require
    /// reading the whole set once. Off by default.
    pub fn quick(mut self, quick: bool) -> Self {
        self.quick = quick;
        self
    }

    /// Adds stores for targets that are URLs, each with its URL scheme, like
    /// [`Pack::stores`](super::Pack::stores).
    pub fn stores<S: Into<String>>(mut self, stores: impl IntoIterator<Item = (S, Arc<dyn Store>)>) -> Self {
        stores.into_iter().for_each(|(scheme, store)| self.stores.add(scheme.into(), store));
        self
    }

    /// Merges the parts. If the set has already been merged, the parts are no longer needed, and
    /// the result is the same. In a folder, a merge waits until any other merge of the same target
    /// has finished. In a store, concurrent merges produce the same set. A [`CancelToken`] of the
    /// calling thread cancels the checks.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if parts are missing or were packed with a different plan, or if a set
    /// of this name exists and [`force`](Merge::force) is not set. [`ErrorKind::Source`] if shards
    /// are missing or damaged. The message names the shards and says what to do. After an error,
    /// nothing has been changed.
    pub fn run(&self) -> Result<Merged> {
        let place = destination(&self.target, &self.stores)?;
        let place = &*place;
        if place.in_place() && self.force {
            return Err(not_replaced().at_path(&self.target));
        }
        let _lock = place.lock()?;
        let ends = place.ends()?;
        let plan = dest::read_plan(place)?;
        let set = dest::read_set(place)?;
        let parts = read_parts(place, &ends)?;
        if let Some(set) = set
            && plan.as_ref().is_none_or(|plan| *plan == set.plan)
            && !parts.iter().any(|(_, part)| part.plan != set.plan && plan.is_none())
        {
            // The set has already been merged. Late attempts at its parts may have left files
            // behind.
            self.check(place, &set.shards, State::Merged, &|_| None)?;
            return clean(place, set);
        }
        let plan = match (plan, parts.first()) {
            (Some(plan), _) => plan,
            (None, Some((_, part))) => part.plan.clone(),
            (None, None) => {
                let cause = "no parts with this name; pack them to the same target, then merge";
                return Err(Error::config(cause).at_path(&self.target));
            }
        };
        let renaming = dest::is_renaming(place, &plan)?;
        let shards = match self.checked(place, &plan, parts, renaming) {
            // Another merge may have finished in the meantime, because stores have no locks.
            Err(e) if place.in_place() => {
                return match dest::read_set(place) {
                    Ok(Some(set)) if set.plan == plan => clean(place, set),
                    _ => Err(e),
                };
            }
            shards => shards?,
        };
        let existing = if place.in_place() { Vec::new() } else { dest::existing(&ends) };
        if let Some(&old) = existing.first()
            && !self.force
            && !renaming
        {
            return Err(exists(&place.at(&dest::shard(old))));
        }
        let set = place.publish(&plan, shards, &existing)?;
        clean(place, set)
    }

    /// Checks all parts of `plan`, and returns their shards.
    fn checked(
        &self,
        place: &dyn Destination,
        plan: &Plan,
        parts: Vec<(String, PartManifest)>,
        renaming: bool,
    ) -> Result<Vec<ShardEntry>> {
        let parts = complete(place, plan, parts)?;
        let shards = joined(place, plan, &parts)?;
        let part_of = |first: u64| {
            parts.iter().find(|part| plan.range(part.part, part.parts).contains(&first)).map(|p| (p.part, p.parts))
        };
        let id = plan.id();
        let state = if renaming { State::Merging(&id) } else { State::Staged(&id) };
        self.check(place, &shards, state, &part_of)?;
        Ok(shards)
    }

    /// Checks shards. `part_of` returns the part that contains the sample at a position.
    fn check(
        &self,
        place: &dyn Destination,
        shards: &[ShardEntry],
        state: State<'_>,
        part_of: &(dyn Fn(u64) -> Option<(u64, u64)> + Sync),
    ) -> Result<()> {
        let sound = |number: u64, entry: &ShardEntry| -> Result<Option<String>> {
            let sound = place.has(number, state, entry, !self.quick)?;
            let name = || place.place(number, state).file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok((!sound).then(|| match part_of(entry.first) {
                Some((part, parts)) => format!("{} (part {part}/{parts})", name()),
                None => name(),
            }))
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(shards.len().clamp(1, 16)).build();
        let pool = pool.map_err(|e| Error::new(ErrorKind::Io, format!("cannot start threads: {e}")))?;
        let stop = CancelToken::current();
        let bad: Vec<Option<String>> = pool.install(|| {
            let each = shards.par_iter().enumerate().with_max_len(1);
            each.map(|(number, entry)| during(stop.clone(), || sound(number as u64, entry))).collect::<Result<_>>()
        })?;
        let bad: Vec<String> = bad.into_iter().flatten().collect();
        if bad.is_empty() {
            return Ok(());
        }
        Err(damaged(place, &bad, shards.len(), matches!(state, State::Merged)).at_path(&self.target))
    }
}

/// Returns the error for the `bad` shards out of `count` shards. If the set is `merged`, its parts
/// cannot be packed again, because packing finds that the set is complete.
pub(super) fn damaged(place: &dyn Destination, bad: &[String], count: usize, merged: bool) -> Error {
    let what = match (merged, place.in_place()) {
        (false, _) => "delete them and pack their parts again",
        (true, false) => "pack the set again with force(true)",
        (true, true) => "the set is merged: delete its objects, and pack it again",
    };
    let (number, bad) = (bad.len(), shortened(bad));
    Error::in_source(format!("{number} of {count} shards are missing or damaged: {bad}; {what}"))
}

/// Returns the error for an existing set in a store, which is never replaced, because readers may
/// have it open.
pub(super) fn not_replaced() -> Error {
    Error::config(
        "a set in a store is never replaced: use a different name, or delete the old objects; force applies only to folders",
    )
}

/// Reads the manifests of parts. Returns each with the suffix of its file name.
pub(super) fn read_parts(place: &dyn Destination, ends: &[String]) -> Result<Vec<(String, PartManifest)>> {
    let mut parts = Vec::new();
    for end in Leftovers::of(ends).parts {
        parts.extend(dest::read::<PartManifest>(place, &end)?.map(|part| (end, part)));
    }
    Ok(parts)
}

/// If the plan was divided in several ways, finds a division for which all parts are complete.
/// Returns its parts, in order, and ignores the parts of other divisions.
///
/// # Errors
/// If no division is complete.
fn complete(place: &dyn Destination, plan: &Plan, parts: Vec<(String, PartManifest)>) -> Result<Vec<PartManifest>> {
    let mut divisions = BTreeMap::<u64, BTreeMap<u64, PartManifest>>::new();
    let mut foreign = None;
    for (end, part) in parts {
        let path = place.at(&end);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if dest::part((part.part, part.parts), &part.plan.id()) != end || part.part >= part.parts {
            let cause = format!("is the manifest of part {}/{}", part.part, part.parts);
            return Err(Error::in_source(cause).at_path(path));
        }
        match plan.check(&part.plan, "the plan", &name) {
            Ok(()) => drop(divisions.entry(part.parts).or_default().insert(part.part, part)),
            Err(e) => drop(foreign.get_or_insert((name, e))),
        }
    }
    if let Some(number) = divisions.iter().find(|(number, parts)| parts.len() as u64 == **number).map(|(n, _)| *n) {
        return Ok(divisions.remove(&number).expect("found there").into_values().collect());
    }
    let mut told: Vec<String> = divisions
        .iter()
        .map(|(number, parts)| {
            format!("parts {} of {number} are missing: pack them", missing(parts.keys().copied(), *number))
        })
        .collect();
    if divisions.is_empty() {
        told.push("no part is complete".to_owned());
    }
    if let Some((name, e)) = foreign {
        told.push(format!("{name} is ignored, because {}", e.cause()));
    }
    Err(Error::config(told.join("; ")).at_path(place.target()))
}

/// Returns the numbers below `end` that are not in the sorted list `present`, in the syntax of
/// SLURM arrays: `1,3-9,17`.
pub(super) fn missing(present: impl Iterator<Item = u64>, end: u64) -> String {
    let (mut ranges, mut next) = (Vec::new(), 0);
    for number in present.chain([end]) {
        match number - next {
            0 => {}
            1 => ranges.push(next.to_string()),
            _ => ranges.push(format!("{next}-{}", number - 1)),
        }
        next = number.saturating_add(1);
    }
    ranges.join(",")
}

/// Concatenates the shards of all parts.
///
/// # Errors
/// If samples are missing or duplicated.
fn joined(place: &dyn Destination, plan: &Plan, parts: &[PartManifest]) -> Result<Vec<ShardEntry>> {
    let mut shards: Vec<ShardEntry> = Vec::new();
    let mut before: Option<&PartManifest> = None;
    let wrong = |part: &PartManifest, cause: String| {
        Err(Error::in_source(format!("{cause}; delete this manifest and pack the part again"))
            .at_path(place.at(&dest::part((part.part, part.parts), &plan.id()))))
    };
    for part in parts {
        let range = plan.range(part.part, part.parts);
        let mut next = range.start;
        for entry in &part.shards {
            if dest::shard_name(place, shards.len() as u64) != entry.name || entry.first != next || entry.samples == 0 {
                let cause = format!("{} begins with sample {}, expected {next}", entry.name, entry.first);
                return wrong(part, cause);
            }
            next += entry.samples;
            shards.push(entry.clone());
        }
        if next != range.end {
            return wrong(part, format!("it contains samples {} to {next} instead of {}", range.start, range.end));
        }
        if range.is_empty() {
            continue;
        }
        if let Some(before) = before
            && (before.keys.after != part.keys.first || before.keys.last != part.keys.before)
        {
            return wrong(
                part,
                format!(
                    "the source has changed: the part begins with {:?} after {:?}, but part {} ended with {:?} before {:?}",
                    part.keys.first.as_deref().unwrap_or_default(),
                    part.keys.before.as_deref().unwrap_or_default(),
                    before.part,
                    before.keys.last.as_deref().unwrap_or_default(),
                    before.keys.after.as_deref().unwrap_or_default(),
                ),
            );
        }
        before = Some(part);
    }
    Ok(shards)
}

/// Removes the files that the merge no longer needs, and reports files that do not belong to the
/// set.
fn clean(place: &dyn Destination, set: Set) -> Result<Merged> {
    let (left, id) = (Leftovers::of(&place.ends()?), set.plan.id());
    // This includes the files of late attempts at parts of this set.
    let done = [left.staged, left.journals, left.parts].concat();
    done.iter().filter(|end| dest::id(end) == Some(&id)).try_for_each(|end| place.remove(end))?;
    place.remove_attempts(&left.attempts)?;
    let mut ends = place.ends()?;
    // Remove the files that mark a running merge last, so that the merge can continue after an
    // error.
    for own in [PLAN_END, MERGE_END] {
        if own != PLAN_END || dest::read_plan(place)?.is_some_and(|plan| plan == set.plan) {
            place.remove(own)?;
            ends.retain(|end| end != own);
        }
    }
    let mut orphans = Leftovers::of(&ends).all();
    let count = set.shards.len() as u64;
    orphans.extend(dest::existing(&ends).into_iter().filter(|&number| number >= count).map(dest::shard));
    let orphans = orphans.iter().map(|end| place.at(end)).collect();
    Ok(Merged { report: report(place, &set.shards, 0), orphans })
}

/// Creates a report with the sums over `shards`.
pub(super) fn report(place: &dyn Destination, shards: &[ShardEntry], duplicate_keys: u64) -> Report {
    let (mut counts, mut bytes) = (Counts::default(), 0);
    for entry in shards {
        counts.join(&entry.counts);
        bytes += entry.bytes;
    }
    // The part of a shard's name from the last `-` on contains its number, which determines the
    // path.
    let end = |entry: &ShardEntry| entry.name.rfind('-').map_or(String::new(), |at| entry.name[at..].to_owned());
    let paths = shards.iter().map(|entry| place.at(&end(entry))).collect();
    let written = Written { samples: counts.samples, bytes, paths };
    counts.report(duplicate_keys, written)
}

fn shortened(names: &[String]) -> String {
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len().min(SHOWN)].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_parts_are_named_for_any_number_of_parts() {
        let of = |present: &[u64], end| missing(present.iter().copied(), end);
        assert_eq!(of(&[], 1), "0");
        assert_eq!(of(&[0, 2, 10, 11], 20), "1,3-9,12-19");
        assert_eq!(of(&[0, 1, 2], 3), "");
        assert_eq!(of(&[5], u64::MAX), "0-4,6-18446744073709551614");
        assert_eq!(of(&(0..100).map(|n| 2 * n).collect::<Vec<_>>(), 200).split(',').count(), 100);
    }
}
