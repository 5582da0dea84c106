//! [`Merge`] checks the parts of a dataset and combines them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

use super::Written;
use super::destination::{self as dest, Destination, MERGE_SUFFIX, ShardState, TemporaryFiles};
use super::manifests::{Manifest, PartManifest, ShardEntry};
use super::open::open_destination;
use super::plan::Plan;
use super::report::{Counts, Report};
use super::writer::exists_error;
use crate::error::{Error, ErrorKind, Result};
use crate::source::{CancelToken, PLAN_SUFFIX, Store, Stores, run_with_token};

const MAX_NAMES_IN_MESSAGE: usize = 10;

/// Merges the parts of a dataset that were packed with [`Pack::part`](super::Pack::part).
///
/// A merge checks that all parts exist, that they were packed from the same source with the same
/// options, that no sample is missing or duplicated, and that the checksums of all shards are
/// correct (see [`Merge::skip_checksums`]). In a folder, the merge then renames the shards.
/// Finally, it writes the manifest of the dataset. An interrupted merge can be run again.
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
    skip_checksums: bool,
    pub(super) stores: Stores,
}

/// Result of a [`Merge`].
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Merged {
    /// Report of the whole dataset. Duplicate keys are not counted.
    pub report: Report,
    /// Files with similar names that do not belong to the dataset, for example because a process is
    /// still writing them. The merge ignores them.
    pub orphans: Vec<PathBuf>,
}

impl Merge {
    /// Creates a merge of the parts that were packed to `target`.
    pub fn new(target: impl AsRef<Path>) -> Self {
        Merge::with_stores(target.as_ref(), Stores::default())
    }

    pub(super) fn with_stores(target: &Path, stores: Stores) -> Self {
        Merge { target: target.to_owned(), force: false, skip_checksums: false, stores }
    }

    /// Sets whether to replace an existing dataset with the same name. The default is false. A
    /// dataset in a store cannot be replaced.
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Sets whether to check only the sizes of the shards. By default, the checksums are checked as
    /// well, which requires reading the whole dataset.
    pub fn skip_checksums(mut self, skip_checksums: bool) -> Self {
        self.skip_checksums = skip_checksums;
        self
    }

    /// Adds object stores for targets with the given URL schemes, like
    /// [`Pack::stores`](super::Pack::stores).
    pub fn stores<S: Into<String>>(mut self, stores: impl IntoIterator<Item = (S, Arc<dyn Store>)>) -> Self {
        stores.into_iter().for_each(|(scheme, store)| self.stores.add(scheme.into(), store));
        self
    }

    /// Merges the parts. If the dataset has already been merged, checks it, and returns the same
    /// report, even if the parts no longer exist. In a folder whose file system supports locks,
    /// waits until other merges of the same target have finished. In a store, concurrent merges
    /// have the same result. A [`CancelToken`] of the calling thread cancels the wait and the
    /// checks.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if parts are missing or were packed with different options, if a
    /// dataset with the same name exists and [`force`](Merge::force) is not set, or if `force` is
    /// set and the target is in a store. [`ErrorKind::Source`] if shards are missing or damaged, or
    /// if the source changed between two parts. The message names up to ten shards, and says what
    /// to do. [`ErrorKind::Io`] if the merge is canceled. If a check fails, this merge has not
    /// changed any files.
    pub fn run(&self) -> Result<Merged> {
        let destination = open_destination(&self.target, &self.stores)?;
        let destination = &*destination;
        if destination.uploads_in_place() && self.force {
            return Err(not_replaced_error().at_path(&self.target));
        }
        let _lock = destination.lock()?;
        let suffixes = destination.suffixes()?;
        let plan = dest::read_plan(destination)?;
        let manifest = dest::read_manifest(destination)?;
        let parts = read_parts(destination, &suffixes)?;
        if let Some(manifest) = manifest
            && plan.as_ref().is_none_or(|plan| *plan == manifest.plan)
            && !parts.iter().any(|(_, part)| part.plan != manifest.plan && plan.is_none())
        {
            // The dataset has already been merged. Processes that finished a part after the merge
            // may have left files.
            self.check_shards(destination, &manifest.shards, ShardState::Merged, &|_| None)?;
            return remove_leftovers(destination, manifest);
        }
        let plan = match (plan, parts.first()) {
            (Some(plan), _) => plan,
            (None, Some((_, part))) => part.plan.clone(),
            (None, None) => {
                let cause = "there are no parts with this name: pack all parts to the same target, then merge";
                return Err(Error::config(cause).at_path(&self.target));
            }
        };
        let is_renaming = dest::is_renaming(destination, &plan)?;
        let shards = match self.collect_shards(destination, &plan, parts, is_renaming) {
            // Stores have no locks, so another merge may have finished in the meantime.
            Err(e) if destination.uploads_in_place() => {
                return match dest::read_manifest(destination) {
                    Ok(Some(manifest)) if manifest.plan == plan => remove_leftovers(destination, manifest),
                    _ => Err(e),
                };
            }
            shards => shards?,
        };
        let old_shards = if destination.uploads_in_place() { Vec::new() } else { dest::existing_shards(&suffixes) };
        if let Some(&old_shard) = old_shards.first()
            && !self.force
            && !is_renaming
        {
            return Err(exists_error(&destination.path_of(&dest::shard_suffix(old_shard))));
        }
        let manifest = destination.publish(&plan, shards, &old_shards)?;
        remove_leftovers(destination, manifest)
    }

    fn collect_shards(
        &self,
        destination: &dyn Destination,
        plan: &Plan,
        parts: Vec<(String, PartManifest)>,
        is_renaming: bool,
    ) -> Result<Vec<ShardEntry>> {
        let parts = find_complete_division(destination, plan, parts)?;
        let shards = concatenate_shards(destination, plan, &parts)?;
        let part_of = |first: u64| {
            parts
                .iter()
                .find(|part| plan.sample_positions(part.part, part.parts).contains(&first))
                .map(|p| (p.part, p.parts))
        };
        let id = plan.id();
        let state = if is_renaming { ShardState::Merging(&id) } else { ShardState::Staged(&id) };
        self.check_shards(destination, &shards, state, &part_of)?;
        Ok(shards)
    }

    /// Checks that no shard is missing or damaged. `part_of` returns the part that contains a
    /// sample.
    fn check_shards(
        &self,
        destination: &dyn Destination,
        shards: &[ShardEntry],
        state: ShardState<'_>,
        part_of: &(dyn Fn(u64) -> Option<(u64, u64)> + Sync),
    ) -> Result<()> {
        let describe_damage = |number: u64, entry: &ShardEntry| -> Result<Option<String>> {
            let is_sound = destination.has_shard(number, state, entry, !self.skip_checksums)?;
            let name =
                || destination.shard_path(number, state).file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok((!is_sound).then(|| match part_of(entry.first) {
                Some((part, parts)) => format!("{} (part {part}/{parts})", name()),
                None => name(),
            }))
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(shards.len().clamp(1, 16)).build();
        let pool = pool.map_err(|e| Error::new(ErrorKind::Io, format!("cannot start threads: {e}")))?;
        let cancel_token = CancelToken::current();
        let damaged_names: Vec<Option<String>> = pool.install(|| {
            let entries = shards.par_iter().enumerate().with_max_len(1);
            entries
                .map(|(number, entry)| run_with_token(cancel_token.clone(), || describe_damage(number as u64, entry)))
                .collect::<Result<_>>()
        })?;
        let damaged_names: Vec<String> = damaged_names.into_iter().flatten().collect();
        if damaged_names.is_empty() {
            return Ok(());
        }
        Err(damaged_error(destination, &damaged_names, shards.len(), matches!(state, ShardState::Merged))
            .at_path(&self.target))
    }
}

/// Returns the error for damaged shards. In a merged dataset, packing a part again has no effect,
/// so the advice is different.
pub(super) fn damaged_error(
    destination: &dyn Destination,
    damaged_names: &[String],
    shard_count: usize,
    is_merged: bool,
) -> Error {
    let advice = match (is_merged, destination.uploads_in_place()) {
        (false, _) => "delete them and pack their parts again",
        (true, false) => "pack the dataset again with force(true)",
        (true, true) => "the dataset is already merged: delete its objects, and pack it again",
    };
    let (damaged_count, damaged_names) = (damaged_names.len(), list_names(damaged_names));
    Error::in_source(format!(
        "{damaged_count} of {shard_count} shards are missing or damaged: {damaged_names}; {advice}"
    ))
}

/// Returns the error for `force` with a target in a store. Datasets in stores are never replaced,
/// because readers may have opened the old dataset.
pub(super) fn not_replaced_error() -> Error {
    Error::config(
        "a dataset in a store is never replaced: use a different name, or delete the old objects; force applies only to folders",
    )
}

pub(super) fn read_parts(destination: &dyn Destination, suffixes: &[String]) -> Result<Vec<(String, PartManifest)>> {
    let mut parts = Vec::new();
    for suffix in TemporaryFiles::from_suffixes(suffixes).part_manifests {
        parts.extend(dest::read_json::<PartManifest>(destination, &suffix)?.map(|part| (suffix, part)));
    }
    Ok(parts)
}

/// Returns the parts of the dataset in order. If the dataset was packed several times with
/// different numbers of parts, finds a division in which all parts are complete. Fails if there is
/// none.
fn find_complete_division(
    destination: &dyn Destination,
    plan: &Plan,
    parts: Vec<(String, PartManifest)>,
) -> Result<Vec<PartManifest>> {
    let mut divisions = BTreeMap::<u64, BTreeMap<u64, PartManifest>>::new();
    let mut foreign_part = None;
    for (suffix, part) in parts {
        let path = destination.path_of(&suffix);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if dest::part_suffix((part.part, part.parts), &part.plan.id()) != suffix || part.part >= part.parts {
            let cause = format!("is the manifest of part {}/{}", part.part, part.parts);
            return Err(Error::in_source(cause).at_path(path));
        }
        match plan.check_equal(&part.plan, "the plan", &name) {
            Ok(()) => drop(divisions.entry(part.parts).or_default().insert(part.part, part)),
            Err(e) => drop(foreign_part.get_or_insert((name, e))),
        }
    }
    if let Some(part_count) =
        divisions.iter().find(|(part_count, parts)| parts.len() as u64 == **part_count).map(|(n, _)| *n)
    {
        return Ok(divisions.remove(&part_count).expect("`find` returned a key of this map").into_values().collect());
    }
    let mut causes: Vec<String> = divisions
        .iter()
        .map(|(part_count, parts)| {
            let missing = missing_ranges(parts.keys().copied(), *part_count);
            match part_count - parts.len() as u64 {
                1 => format!("part {missing} of {part_count} is missing: pack this part"),
                _ => format!("parts {missing} of {part_count} are missing: pack these parts"),
            }
        })
        .collect();
    if divisions.is_empty() {
        causes.push("no part is complete".to_owned());
    }
    if let Some((name, e)) = foreign_part {
        causes.push(format!("{name} is ignored, because {}", e.cause()));
    }
    Err(Error::config(causes.join("; ")).at_path(destination.target()))
}

/// Returns the indices of the missing parts in the syntax of SLURM arrays, such as `1,3-9,17`.
/// `complete_parts` must be sorted.
pub(super) fn missing_ranges(complete_parts: impl Iterator<Item = u64>, part_count: u64) -> String {
    let (mut ranges, mut next_part) = (Vec::new(), 0);
    for part in complete_parts.chain([part_count]) {
        match part - next_part {
            0 => {}
            1 => ranges.push(next_part.to_string()),
            _ => ranges.push(format!("{next_part}-{}", part - 1)),
        }
        next_part = part.saturating_add(1);
    }
    ranges.join(",")
}

/// Combines the shards of all parts. Fails if samples are missing or duplicated, or if the source
/// has changed between two parts.
fn concatenate_shards(destination: &dyn Destination, plan: &Plan, parts: &[PartManifest]) -> Result<Vec<ShardEntry>> {
    let mut shards: Vec<ShardEntry> = Vec::new();
    let mut previous: Option<&PartManifest> = None;
    let error = |part: &PartManifest, cause: String| {
        Err(Error::in_source(format!("{cause}: delete this manifest, and pack the part again"))
            .at_path(destination.path_of(&dest::part_suffix((part.part, part.parts), &plan.id()))))
    };
    for part in parts {
        let range = plan.sample_positions(part.part, part.parts);
        let mut next_position = range.start;
        for entry in &part.shards {
            if dest::shard_name(destination, shards.len() as u64) != entry.name
                || entry.first != next_position
                || entry.samples == 0
            {
                let cause = format!(
                    "it lists {} with {} samples from position {}, but expected {} with samples from position \
                     {next_position}",
                    entry.name,
                    entry.samples,
                    entry.first,
                    dest::shard_name(destination, shards.len() as u64)
                );
                return error(part, cause);
            }
            next_position += entry.samples;
            shards.push(entry.clone());
        }
        if next_position != range.end {
            return error(
                part,
                format!("it contains samples {} to {next_position} instead of {}", range.start, range.end),
            );
        }
        if range.is_empty() {
            continue;
        }
        if let Some(previous) = previous
            && (previous.keys.after != part.keys.first || previous.keys.last != part.keys.before)
        {
            return error(
                part,
                format!(
                    "the source has changed: the part begins with {:?} after {:?}, but part {} ended with {:?} before {:?}",
                    part.keys.first.as_deref().unwrap_or_default(),
                    part.keys.before.as_deref().unwrap_or_default(),
                    previous.part,
                    previous.keys.last.as_deref().unwrap_or_default(),
                    previous.keys.after.as_deref().unwrap_or_default(),
                ),
            );
        }
        previous = Some(part);
    }
    Ok(shards)
}

/// Removes the files that are not needed after the merge. The result lists files with similar names
/// that do not belong to the dataset.
fn remove_leftovers(destination: &dyn Destination, manifest: Manifest) -> Result<Merged> {
    let (files, plan_id) = (TemporaryFiles::from_suffixes(&destination.suffixes()?), manifest.plan.id());
    // Include the files of processes that finished a part after the merge.
    let finished_suffixes = [files.staged_shards, files.journals, files.part_manifests].concat();
    finished_suffixes
        .iter()
        .filter(|suffix| dest::plan_id(suffix) == Some(&plan_id))
        .try_for_each(|suffix| destination.remove(suffix))?;
    destination.remove_attempts(&files.attempts)?;
    let mut suffixes = destination.suffixes()?;
    // Remove these files last, so that the merge can be run again if anything fails before.
    for obsolete_suffix in [PLAN_SUFFIX, MERGE_SUFFIX] {
        if obsolete_suffix != PLAN_SUFFIX || dest::read_plan(destination)?.is_some_and(|plan| plan == manifest.plan) {
            destination.remove(obsolete_suffix)?;
            suffixes.retain(|suffix| suffix != obsolete_suffix);
        }
    }
    let mut orphans = TemporaryFiles::from_suffixes(&suffixes).into_names();
    let shard_count = manifest.shards.len() as u64;
    orphans.extend(
        dest::existing_shards(&suffixes).into_iter().filter(|&number| number >= shard_count).map(dest::shard_suffix),
    );
    let orphans = orphans.iter().map(|suffix| destination.path_of(suffix)).collect();
    Ok(Merged { report: report_shards(destination, &manifest.shards, 0), orphans })
}

pub(super) fn report_shards(destination: &dyn Destination, shards: &[ShardEntry], duplicate_keys: u64) -> Report {
    let (mut counts, mut bytes) = (Counts::default(), 0);
    for entry in shards {
        counts.add_all(&entry.counts);
        bytes += entry.bytes;
    }
    // The end of the name, from the last `-`, identifies a shard.
    let suffix = |entry: &ShardEntry| entry.name.rfind('-').map_or(String::new(), |dash| entry.name[dash..].to_owned());
    let paths = shards.iter().map(|entry| destination.path_of(&suffix(entry))).collect();
    let written = Written { samples: counts.samples, bytes, paths };
    counts.into_report(duplicate_keys, written)
}

fn list_names(names: &[String]) -> String {
    let rest_count = names.len().saturating_sub(MAX_NAMES_IN_MESSAGE);
    let shown_names = names[..names.len().min(MAX_NAMES_IN_MESSAGE)].join(", ");
    if rest_count > 0 { format!("{shown_names} and {rest_count} more") } else { shown_names }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_parts_are_listed_as_ranges() {
        let missing_in = |present: &[u64], end| missing_ranges(present.iter().copied(), end);
        assert_eq!(missing_in(&[], 1), "0");
        assert_eq!(missing_in(&[0, 2, 10, 11], 20), "1,3-9,12-19");
        assert_eq!(missing_in(&[0, 1, 2], 3), "");
        assert_eq!(missing_in(&[5], u64::MAX), "0-4,6-18446744073709551614");
        assert_eq!(missing_in(&(0..100).map(|n| 2 * n).collect::<Vec<_>>(), 200).split(',').count(), 100);
    }
}
