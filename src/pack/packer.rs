//! [`Packer`]: packs one part of a dataset.
//!
//! Any number of processes may pack the same part at the same time, and each may be killed at any
//! time. The plan determines the bytes of every shard, so all copies of a shard are identical, and
//! the first complete one is used. A process also detects if another process has merged the
//! dataset.

use super::destination::{self as dest, Attempt, Destination, Leftovers, MERGE_SUFFIX, State};
use super::folder_destination::format_crc32;
use super::manifests::{Keys, Manifest, PartManifest, ShardEntry};
use super::merge::damaged_error;
use super::pipeline::{Chosen, Run};
use super::plan::{Cut, Plan};
use super::prepare::Prepared;
use super::report::{Counts, Tally};
use super::shard::Shard;
use super::writer::exists;
use crate::error::{Error, Result};
use crate::source::{self, MANIFEST_END, PLAN_END};

/// Packs one part. Continues after the last complete shard of the part.
pub(super) struct Packer<'a> {
    pub(super) run: Run<'a>,
    pub(super) chosen: &'a Chosen,
    pub(super) destination: &'a dyn Destination,
    pub(super) plan: Plan,
    /// Index of the part, and the number of parts.
    pub(super) part: (u64, u64),
    /// Whether to discard an unfinished pack with a different plan, and to replace a complete
    /// dataset.
    pub(super) force: bool,
    /// Whether to compare the checksums of an earlier run's shards. If false, only the merge
    /// compares them.
    pub(super) compare: bool,
}

impl Packer<'_> {
    /// Packs the part, writes its manifest, and returns its shards. Fails if there are bad images,
    /// or if the target contains a dataset or parts with a different plan.
    pub(super) fn pack(&mut self, tally: &mut Tally<'_>) -> Result<Vec<ShardEntry>> {
        if let Some(manifest) = self.claim()? {
            return self.complete_shards(&manifest);
        }
        let (destination, part) = (self.destination, self.part);
        let id = self.plan.id();
        let mut entries = self.complete(&id)?;
        entries.iter().for_each(|entry| tally.add_resumed(&entry.counts));
        let range = self.plan.range(part.0, part.1);
        let first = entries.last().map_or(range.start, |entry| entry.first + entry.samples);
        if first < range.end || dest::read_part(destination, part, &id)?.is_none() {
            self.remove_attempts()?;
            let number = self.plan.shards(part.0, part.1).start + entries.len() as u64;
            let mut stage = ShardSequence {
                packer: self,
                id: &id,
                open: None,
                next: (number, first),
                entries: Vec::new(),
                overtaken: None,
            };
            let packed =
                self.run.for_each(self.chosen, first as usize..range.end as usize, &mut |index, prepared, good| {
                    if good {
                        stage.put(index, prepared)?;
                    }
                    tally.add(prepared);
                    Ok(())
                });
            match packed.and_then(|()| stage.end()) {
                Ok(()) => entries.append(&mut stage.entries),
                Err(e) => {
                    let (overtaken, next) = (stage.overtaken.take(), stage.next.0);
                    drop(stage);
                    return match overtaken {
                        Some(manifest) => {
                            self.withdraw(&id, next)?;
                            self.complete_shards(&manifest)
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
            drop(stage);
            let done = PartManifest::new(self.plan.clone(), part, self.keys()?, entries.clone());
            dest::write(destination, &dest::part_suffix(part, &id), &done, false)?;
        }
        destination.remove(&dest::journal(part, &id))?;
        // Another process may have finished the part, and the dataset may have been merged.
        if dest::read_manifest(destination)?.is_some_and(|manifest| manifest.plan == self.plan) {
            self.withdraw(&id, self.plan.shards(part.0, part.1).start + entries.len() as u64)?;
        }
        Ok(entries)
    }

    /// Removes files that this process wrote after the dataset was merged: the part's shards before
    /// `next`, its manifest and its journal.
    fn withdraw(&self, id: &str, next: u64) -> Result<()> {
        let (destination, part) = (self.destination, self.part);
        for number in self.plan.shards(part.0, part.1).start..next {
            destination.remove(&dest::staged(number, id))?;
        }
        destination.remove(&dest::part_suffix(part, id))?;
        destination.remove(&dest::journal(part, id))
    }

    /// Checks that the target has the same plan, or writes the plan if the target is new. Returns
    /// the dataset if it is already complete.
    fn claim(&mut self) -> Result<Option<Manifest>> {
        let destination = self.destination;
        // List the files first, then read the plan and then the dataset: shards are written after
        // the plan, and a merge writes the dataset before it removes the plan.
        let ends = destination.suffixes()?;
        let begun = dest::read_plan(destination)?;
        match dest::read_manifest(destination)? {
            Some(manifest) => {
                self.plan.repeated = manifest.plan.repeated;
                match (manifest.plan == self.plan, self.force) {
                    (true, false) => return Ok(Some(manifest)),
                    (true, true) => self.plan.repeated += 1,
                    (false, true) => {}
                    (false, false) => {
                        let differ = manifest.plan.check(&self.plan, "the set", "this run").err();
                        let how = differ.map_or(String::new(), |e| format!("; {}", e.cause()));
                        let path = destination.path_of(MANIFEST_END);
                        return Err(Error::config(format!("{}{how}", exists(&path).cause())).at_path(path));
                    }
                }
            }
            None => {
                // An interrupted merge has already removed the old dataset.
                if let Some(begun) = begun.as_ref().filter(|begun| begun.repeats(&self.plan)) {
                    self.plan.repeated = begun.repeated;
                }
                let expected = destination.uploads_in_place() && begun.is_some()
                    || !destination.uploads_in_place() && dest::is_renaming(destination, &self.plan)?;
                if !self.force
                    && !expected
                    && let Some(&old) = dest::existing(&ends).first()
                {
                    return Err(exists(&destination.path_of(&dest::shard(old))));
                }
            }
        }
        if let Some(manifest) = self.write_plan()? {
            return Ok(Some(manifest));
        }
        // The dataset may have been merged just before this process wrote the plan.
        let merged = dest::read_manifest(destination)?.filter(|manifest| manifest.plan == self.plan);
        if merged.is_some() {
            destination.remove(PLAN_END)?;
        }
        Ok(merged)
    }

    /// Writes the plan, unless it exists. Returns the dataset if it has been merged meanwhile.
    fn write_plan(&self) -> Result<Option<Manifest>> {
        let destination = self.destination;
        while !dest::write(destination, PLAN_END, &self.plan, true)? {
            match dest::read_plan(destination)? {
                Some(plan) if plan == self.plan => break,
                Some(plan) if !self.force => {
                    let differ = plan.check(&self.plan, "the unfinished pack", "this run").err();
                    let how = differ.map_or(String::new(), |e| e.cause().to_owned());
                    let discard = if destination.uploads_in_place() {
                        "delete its objects, or use a different name"
                    } else {
                        "discard it with force(true)"
                    };
                    return Err(Error::config(format!(
                        "the target contains an unfinished pack, and {how}; continue that pack with the same source and options, or {discard}"
                    ))
                    .at_path(destination.path_of(PLAN_END)));
                }
                Some(_) => {
                    let _lock = destination.lock()?;
                    if dest::read_plan(destination)?.is_some() {
                        dest::write(destination, PLAN_END, &self.plan, false)?;
                        self.discard()?;
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
    fn discard(&self) -> Result<()> {
        let id = self.plan.id();
        let leftovers = Leftovers::of(&self.destination.suffixes()?);
        let others = |ends: Vec<String>| ends.into_iter().filter(|end| dest::id(end) != Some(&id)).collect::<Vec<_>>();
        self.destination.remove_attempts(&others(leftovers.attempts))?;
        let rest = others([leftovers.staged, leftovers.journals, leftovers.parts].concat());
        rest.iter().try_for_each(|end| self.destination.remove(end))?;
        if dest::read::<Plan>(self.destination, MERGE_SUFFIX)?.is_some_and(|merging| merging != self.plan) {
            self.destination.remove(MERGE_SUFFIX)?;
        }
        Ok(())
    }

    /// Returns the part's shards in a complete dataset. Fails if any of them is missing.
    fn complete_shards(&self, manifest: &Manifest) -> Result<Vec<ShardEntry>> {
        let range = self.plan.range(self.part.0, self.part.1);
        let (mut entries, mut damaged) = (Vec::new(), Vec::new());
        for (number, entry) in (0..).zip(&manifest.shards).filter(|(_, entry)| range.contains(&entry.first)) {
            if !self.destination.has_shard(number, State::Merged, entry, false)? {
                damaged.push(entry.name.clone());
            }
            entries.push(entry.clone());
        }
        match damaged.is_empty() {
            true => Ok(entries),
            false => Err(damaged_error(self.destination, &damaged, entries.len(), true)
                .at_path(self.destination.path_of(MANIFEST_END))),
        }
    }

    /// Returns the complete shards at the beginning of the part.
    fn complete(&self, id: &str) -> Result<Vec<ShardEntry>> {
        let (part, numbers) = (self.part, self.plan.shards(self.part.0, self.part.1));
        let complete_entries = match dest::read_part(self.destination, part, id)? {
            Some(done) if done.plan == self.plan && (done.part, done.parts) == part => done.shards,
            _ => self.destination.recorded_shards(part, numbers.clone(), id)?,
        };
        // A merge that was interrupted may have renamed some shards.
        let renaming = dest::is_renaming(self.destination, &self.plan)?;
        let state = if renaming { State::Merging(id) } else { State::Staged(id) };
        let (mut next, mut usable) = (self.plan.range(part.0, part.1).start, Vec::new());
        for (entry, number) in complete_entries.into_iter().zip(numbers) {
            if entry.first != next
                || entry.name != dest::shard_name(self.destination, number)
                || !entry.counts.allowed(self.run.keep_bad, self.run.strict)
                || !self.destination.has_shard(number, state, &entry, self.compare)?
            {
                break;
            }
            next += entry.samples;
            usable.push(entry);
        }
        Ok(usable)
    }

    fn remove_attempts(&self) -> Result<()> {
        let shards = self.plan.shards(self.part.0, self.part.1);
        let mine = |end: &String| {
            let number = end.split_once(".tar.").and_then(|(number, _)| number.strip_prefix('-')?.parse().ok());
            number.is_some_and(|number| shards.contains(&number))
        };
        let mut attempts = Leftovers::of(&self.destination.suffixes()?).attempts;
        attempts.retain(mine);
        self.destination.remove_attempts(&attempts)
    }

    /// Removes the plan if no shard has been written, because a later run then has nothing to
    /// continue.
    fn remove_empty_plan(&self) -> Result<()> {
        // Shards in a store have their final names, so without the plan, they would look like a
        // complete dataset. An upload may have succeeded even if its response was lost.
        if self.destination.uploads_in_place() {
            return Ok(());
        }
        if Leftovers::of(&self.destination.suffixes()?).is_empty() {
            self.destination.remove(PLAN_END)?;
        }
        Ok(())
    }

    fn keys(&self) -> Result<Keys> {
        let range = self.plan.range(self.part.0, self.part.1);
        let mut scratch = Vec::new();
        let mut key = |position: Option<u64>| {
            let Some(position) = position.filter(|&position| position < self.plan.samples) else { return Ok(None) };
            let index = self.chosen.index(position as usize);
            let key =
                source::retried(self.run.retries, index as u64, || true, || self.run.source.key(index, &mut scratch));
            key.map(Some).map_err(|e| source::sample_error(self.run.source, index, "", e))
        };
        if range.is_empty() {
            return Ok(Keys::default());
        }
        Ok(Keys {
            before: key(range.start.checked_sub(1))?,
            first: key(Some(range.start))?,
            last: key(Some(range.end - 1))?,
            after: key(Some(range.end))?,
        })
    }
}

/// The shards of a part, which are written one after the other.
struct ShardSequence<'a, 'b> {
    packer: &'a Packer<'b>,
    id: &'a str,
    open: Option<OpenShard>,
    /// Number of the next shard, and the position of its first sample.
    next: (u64, u64),
    entries: Vec<ShardEntry>,
    /// Set if another process has merged the dataset while this process was packing.
    overtaken: Option<Manifest>,
}

/// A shard that is being written. Dropping it removes the file.
struct OpenShard {
    shard: Shard<Box<dyn Attempt>>,
    counts: Counts,
}

impl ShardSequence<'_, '_> {
    fn put(&mut self, index: u64, prepared: &Prepared) -> Result<()> {
        let sample = prepared.sample()?;
        let limit = match self.packer.plan.cut {
            Cut::Samples(samples) => {
                if self.open.as_ref().is_some_and(|open| open.counts.samples == samples) {
                    self.end()?;
                }
                None
            }
            Cut::Bytes(bytes) => Some(bytes),
        };
        loop {
            let open = match &mut self.open {
                Some(open) => open,
                none => {
                    let destination = self.packer.destination;
                    let path = destination.path_of(&dest::shard(self.next.0));
                    let attempt = destination.begin(self.next.0, self.id)?;
                    let shard = Shard::begin(path, attempt, self.packer.run.source.classes())?;
                    none.insert(OpenShard { shard, counts: Counts::default() })
                }
            };
            if open.shard.put(&sample, limit)? {
                open.counts.add(index, prepared);
                return Ok(());
            }
            self.end()?;
        }
    }

    fn end(&mut self) -> Result<()> {
        let Some(OpenShard { mut shard, counts }) = self.open.take() else { return Ok(()) };
        let done = shard.finish()?;
        let (number, first) = self.next;
        let Packer { destination, plan, part, .. } = self.packer;
        let name = dest::shard_name(*destination, number);
        let entry = ShardEntry {
            name,
            first,
            samples: counts.samples,
            bytes: done.bytes,
            crc32: format_crc32(done.crc),
            counts,
        };
        match dest::read_plan(*destination)? {
            Some(now) if now == *plan => {}
            Some(_) => {
                return Err(Error::config(
                    "another process has started a pack with a different source or different options: use a different target",
                )
                .at_path(destination.path_of(PLAN_END)));
            }
            None => {
                self.overtaken = dest::read_manifest(*destination)?.filter(|manifest| manifest.plan == *plan);
                return Err(Error::config("the plan was removed while a part was being packed: pack the part again")
                    .at_path(destination.path_of(PLAN_END)));
            }
        }
        shard.into_sink().publish(&entry)?;
        destination.record_shard(*part, number, self.id, &entry)?;
        self.next = (number + 1, first + entry.samples);
        self.entries.push(entry);
        Ok(())
    }
}
