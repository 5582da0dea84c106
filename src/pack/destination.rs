//! Files of a set that is being packed, in a folder or in a store.
//!
//! `NAME` is the target's name without `.tar`. `PLAN` is the id of the plan, so that the files of
//! packs by different plans are never confused.
//!
//! | file | contents |
//! |---|---|
//! | `NAME.plan.partial` | the plan; the first part writes it |
//! | `NAME-000017.tar.PLAN.partial` | a complete shard; in a store, only its entry |
//! | `NAME.part-00003-of-00064.PLAN.json` | the manifest of a complete part |
//! | `NAME-000017.tar`, `NAME.manifest.json` | the set, after the merge; in a store, the shards before |
//!
//! Only in a folder:
//!
//! | file | contents |
//! |---|---|
//! | `NAME-000017.tar.PLAN.HEX.partial` | a shard that one attempt is writing; locked |
//! | `NAME.part-00003-of-00064.PLAN.partial` | the journal of a part: its complete shards |
//! | `NAME.merge.partial` | the plan of a merge that began to rename shards |
//! | `NAME.lock.partial` | the lock of a merge, or of a [`TarWriter`](super::TarWriter) |
//!
//! Complete files appear at once, so none is ever seen in part. Two attempts at one part write
//! different files until a shard is complete, and then the same bytes.

use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::names::number;
use super::plan::Plan;
use super::set::{PartManifest, Set, ShardEntry};
use super::shard::Sink;
use crate::error::{Error, Result};
use crate::source::attempt::{PARTIAL, is_hex};
use crate::source::{MANIFEST_END, PLAN_END};

/// End of the name of the plan of a merge.
pub(super) const MERGE_END: &str = ".merge.partial";

/// The place of a set. Files are named by the ends of their names, after `NAME`.
pub(super) trait Destination: Sync {
    /// The whole name of a file, for messages.
    fn at(&self, end: &str) -> PathBuf;

    /// The target that the user gave.
    fn target(&self) -> PathBuf {
        self.at(".tar")
    }

    /// All files, sorted.
    fn ends(&self) -> Result<Vec<String>>;

    /// The bytes of a small file, if it exists.
    fn get(&self, end: &str) -> Result<Option<Vec<u8>>>;

    /// Writes a small file, which appears at once. With `new`, an existing file stays, and the
    /// result is `false`.
    fn put(&self, end: &str, bytes: &[u8], new: bool) -> Result<bool>;

    /// Removes a file that may be absent.
    fn remove(&self, end: &str) -> Result<()>;

    /// Removes those of `attempts` that no process is writing.
    fn remove_attempts(&self, attempts: &[String]) -> Result<()>;

    /// Whether shards have their final names before the merge.
    fn in_place(&self) -> bool;

    /// Whether a merge may have been interrupted.
    fn is_merging(&self) -> Result<bool> {
        let end = if self.in_place() { PLAN_END } else { MERGE_END };
        Ok(self.get(end)?.is_some())
    }

    /// Begins shard `number` of the plan `id`.
    fn begin(&self, number: u64, id: &str) -> Result<Box<dyn Attempt>>;

    /// Notes that a shard of `part` is complete.
    fn note(&self, part: (u64, u64), number: u64, id: &str, entry: &ShardEntry) -> Result<()>;

    /// The entries that were noted for the shards `numbers` of `part`, in order.
    fn noted(&self, part: (u64, u64), numbers: Range<u64>, id: &str) -> Result<Vec<ShardEntry>>;

    /// The file of shard `number`.
    fn place(&self, number: u64, state: State<'_>) -> PathBuf;

    /// Whether shard `number` is there with the size of `entry`, and `whole`: with its checksum.
    fn has(&self, number: u64, state: State<'_>, entry: &ShardEntry, whole: bool) -> Result<bool>;

    /// Excludes other merges, and packs that discard files, until the lock is dropped.
    fn lock(&self) -> Result<Lock>;

    /// Gives the checked `shards` of `plan` their final names, and writes the manifest. `existing`
    /// are the shards of an old set, which is replaced.
    fn publish(&self, plan: &Plan, shards: Vec<ShardEntry>, existing: &[u64]) -> Result<Set>;
}

/// How far a shard is.
#[derive(Debug, Clone, Copy)]
pub(super) enum State<'a> {
    /// Complete, before the merge of the plan with this id.
    Staged(&'a str),
    /// Complete, and perhaps renamed by an interrupted merge.
    Merging(&'a str),
    /// In a set.
    Merged,
}

/// A shard that is being written. Removed if it is dropped.
pub(super) trait Attempt: Write {
    /// Writes everything to the disk.
    fn sync(&mut self) -> io::Result<()>;

    /// Makes the shard complete. Another attempt may have been faster: the bytes must be equal
    /// then.
    fn keep(self: Box<Self>, entry: &ShardEntry) -> Result<()>;
}

impl Sink for Box<dyn Attempt> {
    fn sync(&mut self) -> io::Result<()> {
        (**self).sync()
    }
}

/// Held until it is dropped.
pub(super) type Lock = Box<dyn Send>;

pub(super) fn shard(number: u64) -> String {
    format!("-{number:06}.tar")
}

pub(super) fn staged(number: u64, id: &str) -> String {
    format!("-{number:06}.tar.{id}{PARTIAL}")
}

pub(super) fn part((part, parts): (u64, u64), id: &str) -> String {
    format!(".part-{part:05}-of-{parts:05}.{id}.json")
}

pub(super) fn journal((part, parts): (u64, u64), id: &str) -> String {
    format!(".part-{part:05}-of-{parts:05}.{id}{PARTIAL}")
}

/// Name of the shard, as manifests have it.
pub(super) fn shard_name(destination: &dyn Destination, number: u64) -> String {
    destination.at(&shard(number)).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The JSON file `end`.
///
/// # Errors
/// If it cannot be read, or is damaged.
pub(super) fn read<T: DeserializeOwned>(destination: &dyn Destination, end: &str) -> Result<Option<T>> {
    let Some(bytes) = destination.get(end)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|e| {
        Error::in_source(format!("not written by this version of warpfeed, or damaged: {e}"))
            .at_path(destination.at(end))
    })
}

/// [Writes](Destination::put) JSON.
pub(super) fn write<T: Serialize>(destination: &dyn Destination, end: &str, value: &T, new: bool) -> Result<bool> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("numbers and text");
    bytes.push(b'\n');
    destination.put(end, &bytes, new)
}

pub(super) fn read_plan(destination: &dyn Destination) -> Result<Option<Plan>> {
    read(destination, PLAN_END)
}

pub(super) fn read_set(destination: &dyn Destination) -> Result<Option<Set>> {
    read(destination, MANIFEST_END)
}

pub(super) fn read_part(destination: &dyn Destination, of: (u64, u64), id: &str) -> Result<Option<PartManifest>> {
    read(destination, &part(of, id))
}

/// Whether a merge of `plan` has begun to rename shards.
pub(super) fn is_renaming(destination: &dyn Destination, plan: &Plan) -> Result<bool> {
    Ok(read::<Plan>(destination, MERGE_END)?.is_some_and(|merging| merging == *plan))
}

/// Numbers of the shards that have their final names, in order.
pub(super) fn existing(ends: &[String]) -> Vec<u64> {
    let mut numbers: Vec<u64> = ends.iter().filter_map(|end| number(end.strip_suffix(".tar")?)).collect();
    numbers.sort_unstable();
    numbers
}

/// Files of unfinished and unmerged packs.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    pub(super) staged: Vec<String>,
    pub(super) attempts: Vec<String>,
    pub(super) journals: Vec<String>,
    pub(super) parts: Vec<String>,
}

impl Leftovers {
    pub(super) fn of(ends: &[String]) -> Self {
        let mut found = Leftovers::default();
        for end in ends {
            let to = if let Some((tar, rest)) = end.split_once(".tar.") {
                match rest.strip_suffix(PARTIAL).filter(|_| number(tar).is_some()) {
                    Some(id) if is_hex(id) => &mut found.staged,
                    Some(ids) if ids.split_once('.').is_some_and(|(id, one)| is_hex(id) && is_hex(one)) => {
                        &mut found.attempts
                    }
                    _ => continue,
                }
            } else if end.starts_with(".part-") && id(end).is_some() && end.split('.').count() == 4 {
                if end.ends_with(".json") { &mut found.parts } else { &mut found.journals }
            } else if end.strip_suffix(PARTIAL).and_then(|end| end.rsplit_once('.')).is_some_and(|(_, one)| is_hex(one))
            {
                // A small file that is being written.
                &mut found.attempts
            } else {
                continue;
            };
            to.push(end.clone());
        }
        found
    }

    pub(super) fn all(self) -> Vec<String> {
        [self.staged, self.attempts, self.journals, self.parts].concat()
    }

    pub(super) fn is_empty(&self) -> bool {
        let Leftovers { staged, attempts, journals, parts } = self;
        [staged, attempts, journals, parts].iter().all(|list| list.is_empty())
    }
}

/// The part whose manifest or journal is `end`, and the number of parts.
pub(super) fn part_of(end: &str) -> Option<(u64, u64)> {
    let (part, parts) = end.strip_prefix(".part-")?.split('.').next()?.split_once("-of-")?;
    Some((part.parse().ok()?, parts.parse().ok()?)).filter(|(part, parts)| part < parts)
}

/// The plan's id in the name of a shard or part.
pub(super) fn id(end: &str) -> Option<&str> {
    let id = match end.split_once(".tar.") {
        Some((_, rest)) => rest.split('.').next()?,
        None => end.split('.').nth(2)?,
    };
    Some(id).filter(|id| is_hex(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_a_pack_is_recognized_and_no_other() {
        let (plan, one) = ("0123456789abcdef", "fedcba9876543210");
        let names = [
            staged(17, plan),
            format!("-000017.tar.{plan}.{one}.partial"),
            journal((3, 64), plan),
            part((3, 64), plan),
            format!(".manifest.json.{one}.partial"),
            format!("{}.{one}.partial", part((3, 64), plan)),
        ];
        let others =
            [".plan.partial", ".merge.partial", ".lock.partial", "-000017.tar", ".manifest.json", "-x.tar.partial"];
        let others = others.iter().map(|&other| other.to_owned());
        let found = Leftovers::of(&names.iter().cloned().chain(others).collect::<Vec<_>>());
        assert_eq!(found.staged, names[..1]);
        assert_eq!((found.journals, found.parts), (names[2..3].to_vec(), names[3..4].to_vec()));
        assert_eq!(found.attempts, [names[1].clone(), names[4].clone(), names[5].clone()]);
        let ids = names.iter().map(|name| id(name));
        assert!(ids.eq([Some(plan), Some(plan), Some(plan), Some(plan), None, Some(plan)]), "{names:?}");
        let parts = names.iter().map(|name| part_of(name));
        assert!(parts.eq([None, None, Some((3, 64)), Some((3, 64)), None, Some((3, 64))]), "{names:?}");
        assert_eq!(part_of(&part((64, 64), plan)), None);
        assert_eq!(existing(&[shard(12), shard(3), "-3.tar".into(), staged(4, plan)]), [3, 12]);
    }
}
