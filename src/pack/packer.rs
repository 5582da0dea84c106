//! [`Packer`] packs one part of a dataset.
//!
//! Any number of processes may pack the same part at the same time, and each may be killed at any
//! time. The plan and the source determine the bytes of every shard, so all copies of a shard are
//! identical, and the first complete copy is used. A process also notices when another process has
//! already merged the dataset.

use super::destination::{self as dest, Destination, MERGE_SUFFIX, ShardState, ShardWriter, TemporaryFiles};
use super::folder_destination::format_crc32;
use super::manifests::{Keys, Manifest, PartManifest, ShardEntry};
use super::merge::damaged_error;
use super::pipeline::{Pipeline, Selection};
use super::plan::{Plan, ShardLimit};
use super::prepare::PreparedSample;
use super::report::{Counts, Tally};
use super::shard::Shard;
use super::writer::exists_error;
use crate::error::{Error, Result};
use crate::source::{self, MANIFEST_SUFFIX, PLAN_SUFFIX};

pub(super) struct Packer<'a> {
    pub(super) pipeline: Pipeline<'a>,
    pub(super) selection: &'a Selection,
    pub(super) destination: &'a dyn Destination,
    pub(super) plan: Plan,
    /// Index of the part, and the number of parts.
    pub(super) part: (u64, u64),
    /// Whether to discard an unfinished pack with a different plan, and to replace a complete
    /// dataset.
    pub(super) force: bool,
    /// Whether to verify the checksums of an earlier run's shards before this run reuses the
    /// shards. If false, only the merge verifies the checksums.
    pub(super) compares_checksums: bool,
}

impl Packer<'_> {
    /// Packs the part, writes its manifest, and returns the entries of its shards. If the dataset
    /// of this plan is already complete and `force` is not set, only checks the sizes of the part's
    /// shards. Fails on a bad image unless `keep_undecodable` is set. Also fails if the target
    /// contains a dataset or parts with a different plan, unless `force` is set.
    pub(super) fn pack(&mut self, tally: &mut Tally<'_>) -> Result<Vec<ShardEntry>> {
        if let Some(manifest) = self.claim()? {
            return self.check_merged_shards(&manifest);
        }
        let (destination, part) = (self.destination, self.part);
        let plan_id = self.plan.id();
        let mut entries = self.reusable_entries(&plan_id)?;
        entries.iter().for_each(|entry| tally.add_counts(&entry.counts));
        let range = self.plan.sample_positions(part.0, part.1);
        let first_position = entries.last().map_or(range.start, |entry| entry.first + entry.samples);
        if first_position < range.end || dest::read_part(destination, part, &plan_id)?.is_none() {
            self.remove_attempts()?;
            let number = self.plan.shard_numbers(part.0, part.1).start + entries.len() as u64;
            let mut sequence = ShardSequence {
                packer: self,
                plan_id: &plan_id,
                open_shard: None,
                next_number: number,
                next_position: first_position,
                entries: Vec::new(),
                merged_manifest: None,
            };
            let result = self.pipeline.for_each(
                self.selection,
                first_position as usize..range.end as usize,
                &mut |index, prepared, is_good| {
                    if is_good {
                        sequence.put(index, prepared)?;
                    }
                    tally.add(prepared);
                    Ok(())
                },
            );
            match result.and_then(|()| sequence.end_shard()) {
                Ok(()) => entries.append(&mut sequence.entries),
                Err(e) => {
                    let (merged_manifest, next_number) = (sequence.merged_manifest.take(), sequence.next_number);
                    drop(sequence);
                    return match merged_manifest {
                        Some(manifest) => {
                            self.remove_part(&plan_id, next_number)?;
                            self.check_merged_shards(&manifest)
                        }
                        None => {
                            if part.1 == 1 {
                                self.remove_empty_plan()?;
                            }
                            Err(e)
                        }
                    };
                }
            }
            drop(sequence);
            let manifest = PartManifest::new(self.plan.clone(), part, self.read_keys()?, entries.clone());
            dest::write_json(destination, &dest::part_suffix(part, &plan_id), &manifest, false)?;
        }
        destination.remove(&dest::journal_suffix(part, &plan_id))?;
        // By now, another process may have finished this part and merged the dataset. In that case,
        // delete what this process has just written.
        if dest::read_manifest(destination)?.is_some_and(|manifest| manifest.plan == self.plan) {
            self.remove_part(&plan_id, self.plan.shard_numbers(part.0, part.1).start + entries.len() as u64)?;
        }
        Ok(entries)
    }

    /// Removes the part's remaining files after a merge: its staged shards before `end_number`, its
    /// manifest and its journal.
    fn remove_part(&self, plan_id: &str, end_number: u64) -> Result<()> {
        let (destination, part) = (self.destination, self.part);
        for number in self.plan.shard_numbers(part.0, part.1).start..end_number {
            destination.remove(&dest::staged_suffix(number, plan_id))?;
        }
        destination.remove(&dest::part_suffix(part, plan_id))?;
        destination.remove(&dest::journal_suffix(part, plan_id))
    }

    /// Checks that the target has the same plan, or writes the plan if the target is new or `force`
    /// is set. Returns the manifest if the dataset of this plan is already complete.
    fn claim(&mut self) -> Result<Option<Manifest>> {
        let destination = self.destination;
        // The order of the following reads matters. A plan is written before its shards, so if a
        // shard is listed, its plan is found unless a merge has removed it. In that case, the
        // manifest is found, because a merge writes the manifest before it removes the plan.
        let suffixes = destination.suffixes()?;
        let existing_plan = dest::read_plan(destination)?;
        match dest::read_manifest(destination)? {
            Some(manifest) => {
                self.plan.repeated = manifest.plan.repeated;
                match (manifest.plan == self.plan, self.force) {
                    (true, false) => return Ok(Some(manifest)),
                    (true, true) => self.plan.repeated += 1,
                    (false, true) => {}
                    (false, false) => {
                        let difference = manifest.plan.check_equal(&self.plan, "the dataset", "this run").err();
                        let difference_text = difference.map_or(String::new(), |e| format!("; {}", e.cause()));
                        let path = destination.path_of(MANIFEST_SUFFIX);
                        return Err(
                            Error::config(format!("{}{difference_text}", exists_error(&path).cause())).at_path(path)
                        );
                    }
                }
            }
            None => {
                // If there is an unfinished pack with the same plan, continue it with its value of
                // `repeated`. This value cannot be computed again, because an interrupted merge may
                // already have removed the old manifest.
                if let Some(existing_plan) =
                    existing_plan.as_ref().filter(|existing_plan| existing_plan.repeats(&self.plan))
                {
                    self.plan.repeated = existing_plan.repeated;
                }
                let is_expected = destination.uploads_in_place() && existing_plan.is_some()
                    || !destination.uploads_in_place() && dest::is_renaming(destination, &self.plan)?;
                if !self.force
                    && !is_expected
                    && let Some(&old_shard) = dest::existing_shards(&suffixes).first()
                {
                    return Err(exists_error(&destination.path_of(&dest::shard_suffix(old_shard))));
                }
            }
        }
        if let Some(manifest) = self.write_plan()? {
            return Ok(Some(manifest));
        }
        // The dataset may have been merged just before this process wrote the plan.
        let manifest = dest::read_manifest(destination)?.filter(|manifest| manifest.plan == self.plan);
        if manifest.is_some() {
            destination.remove(PLAN_SUFFIX)?;
        }
        Ok(manifest)
    }

    /// Writes the plan, unless the target already has it. If `force` is set, replaces a different
    /// plan. Returns the manifest if the dataset has been merged in the meantime.
    fn write_plan(&self) -> Result<Option<Manifest>> {
        let destination = self.destination;
        while !dest::write_json(destination, PLAN_SUFFIX, &self.plan, true)? {
            match dest::read_plan(destination)? {
                Some(plan) if plan == self.plan => break,
                Some(plan) if !self.force => {
                    let difference = plan.check_equal(&self.plan, "the unfinished pack", "this run").err();
                    let difference_text = difference.map_or(String::new(), |e| e.cause().to_owned());
                    let advice = if destination.uploads_in_place() {
                        "delete its objects, or use a different name"
                    } else {
                        "discard it with force(true)"
                    };
                    return Err(Error::config(format!(
                        "the target contains an unfinished pack, and {difference_text}; continue that pack with the same source and options, or {advice}"
                    ))
                    .at_path(destination.path_of(PLAN_SUFFIX)));
                }
                Some(_) => {
                    let _lock = destination.lock()?;
                    if dest::read_plan(destination)?.is_some() {
                        dest::write_json(destination, PLAN_SUFFIX, &self.plan, false)?;
                        self.remove_other_plans()?;
                        break;
                    }
                }
                None => {
                    if let Some(manifest) =
                        dest::read_manifest(destination)?.filter(|manifest| manifest.plan == self.plan)
                    {
                        return Ok(Some(manifest));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Removes the files of other plans. Files of the current plan stay, because other processes
    /// may already be writing them.
    fn remove_other_plans(&self) -> Result<()> {
        let plan_id = self.plan.id();
        let files = TemporaryFiles::from_suffixes(&self.destination.suffixes()?);
        let of_other_plans = |suffixes: Vec<String>| {
            suffixes.into_iter().filter(|suffix| dest::plan_id(suffix) != Some(&plan_id)).collect::<Vec<_>>()
        };
        self.destination.remove_attempts(&of_other_plans(files.attempts))?;
        let remaining_suffixes = of_other_plans([files.staged_shards, files.journals, files.part_manifests].concat());
        remaining_suffixes.iter().try_for_each(|suffix| self.destination.remove(suffix))?;
        if dest::read_json::<Plan>(self.destination, MERGE_SUFFIX)?.is_some_and(|merging| merging != self.plan) {
            self.destination.remove(MERGE_SUFFIX)?;
        }
        Ok(())
    }

    /// Returns the entries of the part's shards in a complete dataset. Fails if any of these shards
    /// is missing or has a different size.
    fn check_merged_shards(&self, manifest: &Manifest) -> Result<Vec<ShardEntry>> {
        let range = self.plan.sample_positions(self.part.0, self.part.1);
        let (mut entries, mut damaged_names) = (Vec::new(), Vec::new());
        for (number, entry) in (0..).zip(&manifest.shards).filter(|(_, entry)| range.contains(&entry.first)) {
            if !self.destination.has_shard(number, ShardState::Merged, entry, false)? {
                damaged_names.push(entry.name.clone());
            }
            entries.push(entry.clone());
        }
        match damaged_names.is_empty() {
            true => Ok(entries),
            false => Err(damaged_error(self.destination, &damaged_names, entries.len(), true)
                .at_path(self.destination.path_of(MANIFEST_SUFFIX))),
        }
    }

    /// Returns the entries of the shards that an earlier run has completed, starting with the first
    /// shard of the part. Stops at the first shard that is missing or damaged, or that contains an
    /// image that the current options do not allow.
    fn reusable_entries(&self, plan_id: &str) -> Result<Vec<ShardEntry>> {
        let (part, numbers) = (self.part, self.plan.shard_numbers(self.part.0, self.part.1));
        let complete_entries = match dest::read_part(self.destination, part, plan_id)? {
            Some(manifest) if manifest.plan == self.plan && (manifest.part, manifest.parts) == part => manifest.shards,
            _ => self.destination.recorded_shards(part, numbers.clone(), plan_id)?,
        };
        // A merge that was interrupted may have renamed some shards.
        let is_renaming = dest::is_renaming(self.destination, &self.plan)?;
        let state = if is_renaming { ShardState::Merging(plan_id) } else { ShardState::Staged(plan_id) };
        let (mut next_position, mut usable_entries) = (self.plan.sample_positions(part.0, part.1).start, Vec::new());
        for (entry, number) in complete_entries.into_iter().zip(numbers) {
            if entry.first != next_position
                || entry.name != dest::shard_name(self.destination, number)
                || !entry.counts.is_allowed(self.pipeline.keep_undecodable, self.pipeline.strict)
                || !self.destination.has_shard(number, state, &entry, self.compares_checksums)?
            {
                break;
            }
            next_position += entry.samples;
            usable_entries.push(entry);
        }
        Ok(usable_entries)
    }

    fn remove_attempts(&self) -> Result<()> {
        let shards = self.plan.shard_numbers(self.part.0, self.part.1);
        let is_own = |suffix: &String| {
            let number = suffix.split_once(".tar.").and_then(|(number, _)| number.strip_prefix('-')?.parse().ok());
            number.is_some_and(|number| shards.contains(&number))
        };
        let mut attempts = TemporaryFiles::from_suffixes(&self.destination.suffixes()?).attempts;
        attempts.retain(is_own);
        self.destination.remove_attempts(&attempts)
    }

    /// In a folder, removes the plan if nothing else has been written, because a later run has
    /// nothing to continue. In a store, the plan stays.
    fn remove_empty_plan(&self) -> Result<()> {
        // Shards in a store have their final names, so without the plan, they would look like a
        // complete dataset. A listing that shows no shards proves nothing, because an upload may
        // still succeed after its response was lost.
        if self.destination.uploads_in_place() {
            return Ok(());
        }
        if TemporaryFiles::from_suffixes(&self.destination.suffixes()?).is_empty() {
            self.destination.remove(PLAN_SUFFIX)?;
        }
        Ok(())
    }

    fn read_keys(&self) -> Result<Keys> {
        let range = self.plan.sample_positions(self.part.0, self.part.1);
        let mut scratch = Vec::new();
        let mut read_key = |position: Option<u64>| {
            let Some(position) = position.filter(|&position| position < self.plan.samples) else { return Ok(None) };
            let index = self.selection.index(position as usize);
            let key = source::retried(
                self.pipeline.retries,
                index as u64,
                || true,
                || self.pipeline.source.key(index, &mut scratch),
            );
            key.map(Some).map_err(|e| source::sample_error(self.pipeline.source, index, "", e))
        };
        if range.is_empty() {
            return Ok(Keys::default());
        }
        Ok(Keys {
            before: read_key(range.start.checked_sub(1))?,
            first: read_key(Some(range.start))?,
            last: read_key(Some(range.end - 1))?,
            after: read_key(Some(range.end))?,
        })
    }
}

struct ShardSequence<'a, 'b> {
    packer: &'a Packer<'b>,
    plan_id: &'a str,
    open_shard: Option<OpenShard>,
    next_number: u64,
    /// Position of the first sample of the next shard.
    next_position: u64,
    entries: Vec<ShardEntry>,
    /// Set if another process has merged the dataset while this process was packing.
    merged_manifest: Option<Manifest>,
}

/// The shard that is being written. If it is dropped before it is published, its file is removed.
struct OpenShard {
    shard: Shard<Box<dyn ShardWriter>>,
    counts: Counts,
}

impl ShardSequence<'_, '_> {
    fn put(&mut self, index: u64, prepared: &PreparedSample) -> Result<()> {
        let sample = prepared.sample()?;
        let max_bytes = match self.packer.plan.cut {
            ShardLimit::Samples(samples) => {
                if self.open_shard.as_ref().is_some_and(|open_shard| open_shard.counts.samples == samples) {
                    self.end_shard()?;
                }
                None
            }
            ShardLimit::Bytes(bytes) => Some(bytes),
        };
        loop {
            let open_shard = match &mut self.open_shard {
                Some(open_shard) => open_shard,
                empty => {
                    let destination = self.packer.destination;
                    let path = destination.path_of(&dest::shard_suffix(self.next_number));
                    let attempt = destination.begin_shard(self.next_number, self.plan_id)?;
                    let classes = self.packer.pipeline.source.classes();
                    let mut shard = Shard::create(path, attempt, classes)?;
                    // In a folder, the first reader stores the index. A store is usually read-only.
                    if destination.uploads_in_place() {
                        shard = shard.with_index(classes);
                    }
                    empty.insert(OpenShard { shard, counts: Counts::default() })
                }
            };
            if open_shard.shard.put(&sample, max_bytes)? {
                open_shard.counts.add(index, prepared);
                return Ok(());
            }
            self.end_shard()?;
        }
    }

    fn end_shard(&mut self) -> Result<()> {
        let Some(OpenShard { mut shard, counts }) = self.open_shard.take() else { return Ok(()) };
        let digest = shard.finish()?;
        let (number, first_position) = (self.next_number, self.next_position);
        let Packer { destination, plan, part, .. } = self.packer;
        let name = dest::shard_name(*destination, number);
        let entry = ShardEntry {
            name,
            first: first_position,
            samples: counts.samples,
            bytes: digest.bytes,
            crc32: format_crc32(digest.crc),
            counts,
        };
        match dest::read_plan(*destination)? {
            Some(current_plan) if current_plan == *plan => {}
            Some(_) => {
                return Err(Error::config(
                    "another process has started a pack with a different source, with different options or with \
                     force(true): use a different target",
                )
                .at_path(destination.path_of(PLAN_SUFFIX)));
            }
            None => {
                self.merged_manifest = dest::read_manifest(*destination)?.filter(|manifest| manifest.plan == *plan);
                return Err(Error::config("the plan was removed while a part was being packed: pack the part again")
                    .at_path(destination.path_of(PLAN_SUFFIX)));
            }
        }
        shard.into_sink().publish(&entry)?;
        if let Some(index) = digest.index {
            destination.put(&format!("{}.index", dest::shard_suffix(number)), &index, false)?;
        }
        destination.record_shard(*part, number, self.plan_id, &entry)?;
        (self.next_number, self.next_position) = (number + 1, first_position + entry.samples);
        self.entries.push(entry);
        Ok(())
    }
}
