//! Packs one part of a set.
//!
//! Any number of processes may pack the same part at the same time, and any of them may be killed.
//! The plan determines the bytes of every shard, so the first complete copy of a shard is used, and
//! later copies must be identical. A process also detects if another process has merged the set in
//! the meantime.

use super::destination::{self as dest, Attempt, Destination, Leftovers, MERGE_END, State};
use super::files::sum;
use super::merge::damaged;
use super::plan::{Cut, Plan};
use super::prepare::Prepared;
use super::report::{Counts, Tally};
use super::run::{Chosen, Run};
use super::set::{Keys, PartManifest, Set, ShardEntry};
use super::shard::Shard;
use super::writer::exists;
use crate::error::{Error, Result};
use crate::source::{self, MANIFEST_END, PLAN_END};

/// Packs one part of a set into shards.
///
/// The plan determines the shards and their bytes, so all attempts at a part produce the same
/// files. An attempt continues after the last complete shard of the part.
pub(super) struct Packer<'a> {
    pub(super) run: Run<'a>,
    pub(super) chosen: &'a Chosen,
    pub(super) destination: &'a dyn Destination,
    pub(super) plan: Plan,
    /// Index of the part, and number of parts.
    pub(super) part: (u64, u64),
    /// Whether to discard an unfinished pack with a different plan, and to repack a complete set.
    pub(super) force: bool,
    /// Whether to read the shards of an earlier run and compare their checksums. If not, the merge
    /// compares them.
    pub(super) compare: bool,
}

impl Packer<'_> {
    /// Packs the part and writes its manifest. Returns its shards.
    ///
    /// # Errors
    /// If samples cannot be read or written, if images are bad, or if the target contains a set or
    /// parts with a different plan.
    pub(super) fn pack(&mut self, tally: &mut Tally<'_>) -> Result<Vec<ShardEntry>> {
        if let Some(set) = self.claim()? {
            return self.of_set(&set);
        }
        let (destination, part) = (self.destination, self.part);
        let id = self.plan.id();
        let mut entries = self.complete(&id)?;
        entries.iter().for_each(|entry| tally.done(&entry.counts));
        let range = self.plan.range(part.0, part.1);
        let first = entries.last().map_or(range.start, |entry| entry.first + entry.samples);
        if first < range.end || dest::read_part(destination, part, &id)?.is_none() {
            self.remove_attempts()?;
            let number = self.plan.shards(part.0, part.1).start + entries.len() as u64;
            let mut stage = Stage {
                packer: self,
                id: &id,
                open: None,
                next: (number, first),
                entries: Vec::new(),
                overtaken: None,
            };
            let packed =
                self.run.each(self.chosen, first as usize..range.end as usize, &mut |index, prepared, good| {
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
                        Some(set) => {
                            self.withdraw(&id, next)?;
                            self.of_set(&set)
                        }
                        None => {
                            if part.1 == 1 {
                                self.tidy()?;
                            }
                            Err(e)
                        }
                    };
                }
            }
            drop(stage);
            let done = PartManifest::new(self.plan.clone(), part, self.keys()?, entries.clone());
            dest::write(destination, &dest::part(part, &id), &done, false)?;
        }
        destination.remove(&dest::journal(part, &id))?;
        // Another attempt may have finished the part, and the set may have been merged.
        if dest::read_set(destination)?.is_some_and(|set| set.plan == self.plan) {
            self.withdraw(&id, self.plan.shards(part.0, part.1).start + entries.len() as u64)?;
        }
        Ok(entries)
    }

    /// Removes the files that this attempt wrote after the set was merged: the part's shards before
    /// `next`, the manifest of the part and its journal.
    fn withdraw(&self, id: &str, next: u64) -> Result<()> {
        let (destination, part) = (self.destination, self.part);
        for number in self.plan.shards(part.0, part.1).start..next {
            destination.remove(&dest::staged(number, id))?;
        }
        destination.remove(&dest::part(part, id))?;
        destination.remove(&dest::journal(part, id))
    }

    /// Checks that the target belongs to this plan, or writes the plan if the target is new.
    /// Returns the set if it is already complete.
    fn claim(&mut self) -> Result<Option<Set>> {
        let destination = self.destination;
        // The order matters: a merge writes the set before it removes the plan, and shards are
        // written after the plan.
        let ends = destination.ends()?;
        let begun = dest::read_plan(destination)?;
        match dest::read_set(destination)? {
            Some(set) => {
                self.plan.repeated = set.plan.repeated;
                match (set.plan == self.plan, self.force) {
                    (true, false) => return Ok(Some(set)),
                    (true, true) => self.plan.repeated += 1,
                    (false, true) => {}
                    (false, false) => {
                        let differ = set.plan.check(&self.plan, "the set", "this run").err();
                        let how = differ.map_or(String::new(), |e| format!("; {}", e.cause()));
                        let at = destination.at(MANIFEST_END);
                        return Err(Error::config(format!("{}{how}", exists(&at).cause())).at_path(at));
                    }
                }
            }
            None => {
                // An interrupted merge has already removed the old set that is being repacked.
                if let Some(begun) = begun.as_ref().filter(|begun| begun.repeats(&self.plan)) {
                    self.plan.repeated = begun.repeated;
                }
                let expected = destination.in_place() && begun.is_some()
                    || !destination.in_place() && dest::is_renaming(destination, &self.plan)?;
                if !self.force
                    && !expected
                    && let Some(&old) = dest::existing(&ends).first()
                {
                    return Err(exists(&destination.at(&dest::shard(old))));
                }
            }
        }
        if let Some(set) = self.write_plan()? {
            return Ok(Some(set));
        }
        // The set may have been merged just before this process wrote the plan.
        let merged = dest::read_set(destination)?.filter(|set| set.plan == self.plan);
        if merged.is_some() {
            destination.remove(PLAN_END)?;
        }
        Ok(merged)
    }

    /// Writes the plan, unless it exists. Returns the set if it was merged in the meantime.
    fn write_plan(&self) -> Result<Option<Set>> {
        let destination = self.destination;
        while !dest::write(destination, PLAN_END, &self.plan, true)? {
            match dest::read_plan(destination)? {
                Some(plan) if plan == self.plan => break,
                Some(plan) if !self.force => {
                    let differ = plan.check(&self.plan, "the unfinished pack", "this run").err();
                    let how = differ.map_or(String::new(), |e| e.cause().to_owned());
                    let discard = if destination.in_place() {
                        "delete its objects, or use another name"
                    } else {
                        "discard it with force(true)"
                    };
                    return Err(Error::config(format!(
                        "the target contains an unfinished pack, and {how}; continue it with the same source and options, or {discard}"
                    ))
                    .at_path(destination.at(PLAN_END)));
                }
                Some(_) => {
                    // Wait for a running merge.
                    let _lock = destination.lock()?;
                    if dest::read_plan(destination)?.is_some() {
                        dest::write(destination, PLAN_END, &self.plan, false)?;
                        self.discard()?;
                        break;
                    }
                }
                // The set has just been merged.
                None => {
                    if let Some(set) = dest::read_set(destination)?.filter(|set| set.plan == self.plan) {
                        return Ok(Some(set));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Removes the files of packs with different plans. Files of this plan are kept, because other
    /// processes may already be writing them.
    fn discard(&self) -> Result<()> {
        let id = self.plan.id();
        let left = Leftovers::of(&self.destination.ends()?);
        let others = |ends: Vec<String>| ends.into_iter().filter(|end| dest::id(end) != Some(&id)).collect::<Vec<_>>();
        self.destination.remove_attempts(&others(left.attempts))?;
        let rest = others([left.staged, left.journals, left.parts].concat());
        rest.iter().try_for_each(|end| self.destination.remove(end))?;
        if dest::read::<Plan>(self.destination, MERGE_END)?.is_some_and(|merging| merging != self.plan) {
            self.destination.remove(MERGE_END)?;
        }
        Ok(())
    }

    /// Returns the shards of this part in a complete set.
    ///
    /// # Errors
    /// If shards are missing, in which case the set must be packed again.
    fn of_set(&self, set: &Set) -> Result<Vec<ShardEntry>> {
        let range = self.plan.range(self.part.0, self.part.1);
        let (mut entries, mut bad) = (Vec::new(), Vec::new());
        for (number, entry) in (0..).zip(&set.shards).filter(|(_, entry)| range.contains(&entry.first)) {
            if !self.destination.has(number, State::Merged, entry, false)? {
                bad.push(entry.name.clone());
            }
            entries.push(entry.clone());
        }
        match bad.is_empty() {
            true => Ok(entries),
            false => {
                Err(damaged(self.destination, &bad, entries.len(), true).at_path(self.destination.at(MANIFEST_END)))
            }
        }
    }

    /// Returns the complete shards at the beginning of the part.
    fn complete(&self, id: &str) -> Result<Vec<ShardEntry>> {
        let (part, numbers) = (self.part, self.plan.shards(self.part.0, self.part.1));
        let known = match dest::read_part(self.destination, part, id)? {
            Some(done) if done.plan == self.plan && (done.part, done.parts) == part => done.shards,
            _ => self.destination.noted(part, numbers.clone(), id)?,
        };
        // An interrupted merge may have renamed some shards.
        let renaming = dest::is_renaming(self.destination, &self.plan)?;
        let state = if renaming { State::Merging(id) } else { State::Staged(id) };
        let (mut next, mut usable) = (self.plan.range(part.0, part.1).start, Vec::new());
        for (entry, number) in known.into_iter().zip(numbers) {
            if entry.first != next
                || entry.name != dest::shard_name(self.destination, number)
                || !entry.counts.allowed(self.run.keep_bad, self.run.strict)
                || !self.destination.has(number, state, &entry, self.compare)?
            {
                break;
            }
            next += entry.samples;
            usable.push(entry);
        }
        Ok(usable)
    }

    /// Removes incomplete files of earlier attempts at this part.
    fn remove_attempts(&self) -> Result<()> {
        let shards = self.plan.shards(self.part.0, self.part.1);
        let mine = |end: &String| {
            let number = end.split_once(".tar.").and_then(|(number, _)| number.strip_prefix('-')?.parse().ok());
            number.is_some_and(|number| shards.contains(&number))
        };
        let mut attempts = Leftovers::of(&self.destination.ends()?).attempts;
        attempts.retain(mine);
        self.destination.remove_attempts(&attempts)
    }

    /// Cleans up after an error. If there is no complete shard after which a later run could
    /// continue, removes all files.
    fn tidy(&self) -> Result<()> {
        // In a store, shards have their final names, including shards from uploads whose response
        // was lost. Without the plan, they would look like a set.
        if self.destination.in_place() {
            return Ok(());
        }
        if Leftovers::of(&self.destination.ends()?).is_empty() {
            self.destination.remove(PLAN_END)?;
        }
        Ok(())
    }

    /// Returns the keys at the boundaries of the part.
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

/// State of an attempt while it writes its shards.
struct Stage<'a, 'b> {
    packer: &'a Packer<'b>,
    id: &'a str,
    open: Option<Open>,
    /// Number of the next shard, and the position of its first sample.
    next: (u64, u64),
    entries: Vec<ShardEntry>,
    /// The set, if another process has merged it in the meantime.
    overtaken: Option<Set>,
}

/// A shard that is being written. Dropping it removes the file.
struct Open {
    shard: Shard<Box<dyn Attempt>>,
    counts: Counts,
}

impl Stage<'_, '_> {
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
                    let path = destination.at(&dest::shard(self.next.0));
                    let attempt = destination.begin(self.next.0, self.id)?;
                    let shard = Shard::begin(path, attempt, self.packer.run.source.classes())?;
                    none.insert(Open { shard, counts: Counts::default() })
                }
            };
            if open.shard.put(&sample, limit)? {
                open.counts.add(index, prepared);
                return Ok(());
            }
            self.end()?;
        }
    }

    /// Completes the open shard.
    fn end(&mut self) -> Result<()> {
        let Some(Open { mut shard, counts }) = self.open.take() else { return Ok(()) };
        let done = shard.finish()?;
        let (number, first) = self.next;
        let Packer { destination, plan, part, .. } = self.packer;
        let name = dest::shard_name(*destination, number);
        let entry =
            ShardEntry { name, first, samples: counts.samples, bytes: done.bytes, crc32: sum(done.crc), counts };
        match dest::read_plan(*destination)? {
            Some(now) if now == *plan => {}
            Some(_) => {
                return Err(Error::config(
                    "a pack with different options or a different source has started here in the meantime",
                )
                .at_path(destination.at(PLAN_END)));
            }
            None => {
                self.overtaken = dest::read_set(*destination)?.filter(|set| set.plan == *plan);
                return Err(
                    Error::config("the plan was removed while its part was packed").at_path(destination.at(PLAN_END))
                );
            }
        }
        shard.into_sink().keep(&entry)?;
        destination.note(*part, number, self.id, &entry)?;
        self.next = (number + 1, first + entry.samples);
        self.entries.push(entry);
        Ok(())
    }
}
