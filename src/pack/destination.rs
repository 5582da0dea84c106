//! [`Destination`]: the files of a packed dataset in a local folder or in an object store.
//!
//! `NAME` is the name of the target without `.tar`. `PLAN` is the ID of the plan. Packs with
//! different plans write different files.
//!
//! | file | contents |
//! |---|---|
//! | `NAME.plan.partial` | the plan, written by the first part |
//! | `NAME-000017.tar.PLAN.partial` | a complete shard, or in a store the manifest entry of a complete shard |
//! | `NAME.part-00003-of-00064.PLAN.json` | the manifest of a complete part |
//! | `NAME-000017.tar`, `NAME.manifest.json` | the merged dataset; in a store, shards have these names before the merge |
//!
//! The following files exist only in a folder:
//!
//! | file | contents |
//! |---|---|
//! | `NAME-000017.tar.PLAN.HEX.partial` | a shard that an attempt is writing and has locked |
//! | `NAME.part-00003-of-00064.PLAN.partial` | the journal of a part, which lists its complete shards |
//! | `NAME.merge.partial` | the plan of a merge that has begun to rename shards |
//! | `NAME.lock.partial` | the lock of a merge, or of a [`TarWriter`](super::TarWriter) |
//!
//! Complete files appear atomically, so readers never see an incomplete file. An **attempt** is a
//! process that packs a part. Two attempts to pack the same part write to different files, and the
//! complete files contain the same bytes.

use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::manifests::{Manifest, PartManifest, ShardEntry};
use super::names::number;
use super::plan::Plan;
use super::shard::Sink;
use crate::error::{Error, Result};
use crate::source::temp_files::{PARTIAL, is_hex};
use crate::source::{MANIFEST_END, PLAN_END};

pub(super) const MERGE_SUFFIX: &str = ".merge.partial";

/// The folder or the store to which a dataset is packed. `end` is the part of a file's name that
/// follows `NAME`.
pub(super) trait Destination: Sync {
    /// Returns the full path or the URL of a file, for error messages.
    fn path_of(&self, end: &str) -> PathBuf;

    /// Returns the target as the user specified it.
    fn target(&self) -> PathBuf {
        self.path_of(".tar")
    }

    /// Returns the `end` of every file, sorted.
    fn suffixes(&self) -> Result<Vec<String>>;

    fn get(&self, end: &str) -> Result<Option<Vec<u8>>>;

    /// Writes a small file atomically. If `new` is true and the file exists, returns false.
    fn put(&self, end: &str, bytes: &[u8], new: bool) -> Result<bool>;

    fn remove(&self, end: &str) -> Result<()>;

    /// Removes files of earlier attempts. Keeps files that a process is still writing.
    fn remove_attempts(&self, attempts: &[String]) -> Result<()>;

    /// Returns whether shards have their final names before the merge.
    fn uploads_in_place(&self) -> bool;

    fn is_merging(&self) -> Result<bool> {
        let end = if self.uploads_in_place() { PLAN_END } else { MERGE_SUFFIX };
        Ok(self.get(end)?.is_some())
    }

    /// Creates shard `number`. `id` identifies the plan.
    fn begin(&self, number: u64, id: &str) -> Result<Box<dyn Attempt>>;

    fn record_shard(&self, part: (u64, u64), number: u64, id: &str, entry: &ShardEntry) -> Result<()>;

    /// Returns the recorded complete shards of a part, in the order of `numbers`.
    fn recorded_shards(&self, part: (u64, u64), numbers: Range<u64>, id: &str) -> Result<Vec<ShardEntry>>;

    fn shard_path(&self, number: u64, state: State<'_>) -> PathBuf;

    /// Returns whether the shard exists and has the size in `entry`. If `must_be_complete` is true,
    /// also compares the checksum.
    fn has_shard(&self, number: u64, state: State<'_>, entry: &ShardEntry, must_be_complete: bool) -> Result<bool>;

    /// Takes the lock for merging, and for discarding the files of other packs. Waits until no
    /// other process holds the lock.
    fn lock(&self) -> Result<Lock>;

    /// Renames the checked `shards` of `plan` to their final names, replacing the shards `existing`
    /// of an old dataset, and writes the manifest.
    fn publish(&self, plan: &Plan, shards: Vec<ShardEntry>, existing: &[u64]) -> Result<Manifest>;
}

/// Under which name a shard is stored.
#[derive(Debug, Clone, Copy)]
pub(super) enum State<'a> {
    /// The shard is complete, but the plan with this ID has not been merged.
    Staged(&'a str),
    /// The shard is complete, and an interrupted merge may already have renamed it.
    Merging(&'a str),
    Merged,
}

/// A shard that is being written. Dropping it removes the file.
pub(super) trait Attempt: Write {
    fn sync(&mut self) -> io::Result<()>;

    /// Publishes the finished shard. If another attempt has already published it, checks that the
    /// bytes are the same.
    fn publish(self: Box<Self>, entry: &ShardEntry) -> Result<()>;
}

impl Sink for Box<dyn Attempt> {
    fn sync(&mut self) -> io::Result<()> {
        (**self).sync()
    }
}

pub(super) type Lock = Box<dyn Send>;

pub(super) fn shard(number: u64) -> String {
    format!("-{number:06}.tar")
}

pub(super) fn staged(number: u64, id: &str) -> String {
    format!("-{number:06}.tar.{id}{PARTIAL}")
}

pub(super) fn part_suffix((part, parts): (u64, u64), id: &str) -> String {
    format!(".part-{part:05}-of-{parts:05}.{id}.json")
}

pub(super) fn journal((part, parts): (u64, u64), id: &str) -> String {
    format!(".part-{part:05}-of-{parts:05}.{id}{PARTIAL}")
}

/// Returns the file name of a shard, which is also its name in manifests.
pub(super) fn shard_name(destination: &dyn Destination, number: u64) -> String {
    destination.path_of(&shard(number)).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

pub(super) fn read<T: DeserializeOwned>(destination: &dyn Destination, end: &str) -> Result<Option<T>> {
    let Some(bytes) = destination.get(end)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|e| {
        Error::in_source(format!("the file is damaged, or was not written by this version of warpfeed: {e}"))
            .at_path(destination.path_of(end))
    })
}

pub(super) fn write<T: Serialize>(destination: &dyn Destination, end: &str, value: &T, new: bool) -> Result<bool> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("the value consists of numbers and text");
    bytes.push(b'\n');
    destination.put(end, &bytes, new)
}

pub(super) fn read_plan(destination: &dyn Destination) -> Result<Option<Plan>> {
    read(destination, PLAN_END)
}

pub(super) fn read_manifest(destination: &dyn Destination) -> Result<Option<Manifest>> {
    read(destination, MANIFEST_END)
}

pub(super) fn read_part(destination: &dyn Destination, part_of: (u64, u64), id: &str) -> Result<Option<PartManifest>> {
    read(destination, &part_suffix(part_of, id))
}

pub(super) fn is_renaming(destination: &dyn Destination, plan: &Plan) -> Result<bool> {
    Ok(read::<Plan>(destination, MERGE_SUFFIX)?.is_some_and(|merging| merging == *plan))
}

/// Returns the shard numbers in ascending order.
pub(super) fn existing(ends: &[String]) -> Vec<u64> {
    let mut numbers: Vec<u64> = ends.iter().filter_map(|end| number(end.strip_suffix(".tar")?)).collect();
    numbers.sort_unstable();
    numbers
}

/// The temporary files of packs, by their kind.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    pub(super) staged: Vec<String>,
    pub(super) attempts: Vec<String>,
    pub(super) journals: Vec<String>,
    pub(super) parts: Vec<String>,
}

impl Leftovers {
    pub(super) fn of(ends: &[String]) -> Self {
        let mut leftovers = Leftovers::default();
        for end in ends {
            let names = if let Some((tar, rest)) = end.split_once(".tar.") {
                match rest.strip_suffix(PARTIAL).filter(|_| number(tar).is_some()) {
                    Some(id) if is_hex(id) => &mut leftovers.staged,
                    Some(ids) if ids.split_once('.').is_some_and(|(id, random)| is_hex(id) && is_hex(random)) => {
                        &mut leftovers.attempts
                    }
                    _ => continue,
                }
            } else if end.starts_with(".part-") && id(end).is_some() && end.split('.').count() == 4 {
                if end.ends_with(".json") { &mut leftovers.parts } else { &mut leftovers.journals }
            } else if end
                .strip_suffix(PARTIAL)
                .and_then(|end| end.rsplit_once('.'))
                .is_some_and(|(_, random)| is_hex(random))
            {
                &mut leftovers.attempts
            } else {
                continue;
            };
            names.push(end.clone());
        }
        leftovers
    }

    pub(super) fn into_names(self) -> Vec<String> {
        [self.staged, self.attempts, self.journals, self.parts].concat()
    }

    pub(super) fn is_empty(&self) -> bool {
        let Leftovers { staged, attempts, journals, parts } = self;
        [staged, attempts, journals, parts].iter().all(|list| list.is_empty())
    }
}

pub(super) fn part_of(end: &str) -> Option<(u64, u64)> {
    let (part, parts) = end.strip_prefix(".part-")?.split('.').next()?.split_once("-of-")?;
    Some((part.parse().ok()?, parts.parse().ok()?)).filter(|(part, parts)| part < parts)
}

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
    fn only_files_of_packs_are_recognized() {
        let (plan, random) = ("0123456789abcdef", "fedcba9876543210");
        let names = [
            staged(17, plan),
            format!("-000017.tar.{plan}.{random}.partial"),
            journal((3, 64), plan),
            part_suffix((3, 64), plan),
            format!(".manifest.json.{random}.partial"),
            format!("{}.{random}.partial", part_suffix((3, 64), plan)),
        ];
        let others =
            [".plan.partial", ".merge.partial", ".lock.partial", "-000017.tar", ".manifest.json", "-x.tar.partial"];
        let others = others.iter().map(|&other| other.to_owned());
        let leftovers = Leftovers::of(&names.iter().cloned().chain(others).collect::<Vec<_>>());
        assert_eq!(leftovers.staged, names[..1]);
        assert_eq!((leftovers.journals, leftovers.parts), (names[2..3].to_vec(), names[3..4].to_vec()));
        assert_eq!(leftovers.attempts, [names[1].clone(), names[4].clone(), names[5].clone()]);
        let ids = names.iter().map(|name| id(name));
        assert!(ids.eq([Some(plan), Some(plan), Some(plan), Some(plan), None, Some(plan)]), "{names:?}");
        let parts = names.iter().map(|name| part_of(name));
        assert!(parts.eq([None, None, Some((3, 64)), Some((3, 64)), None, Some((3, 64))]), "{names:?}");
        assert_eq!(part_of(&part_suffix((64, 64), plan)), None);
        assert_eq!(existing(&[shard(12), shard(3), "-3.tar".into(), staged(4, plan)]), [3, 12]);
    }
}
