//! [`Destination`] reads and writes the files of a packed dataset in a local folder or in an object
//! store.
//!
//! `NAME` is the name of the target without `.tar`. `PLAN` is the ID of the plan. Files with `PLAN`
//! in their names do not collide with the files of other plans. `HEX` is a random hexadecimal
//! number.
//!
//! | file | contents |
//! |---|---|
//! | `NAME.plan.partial` | the plan, written by the first process |
//! | `NAME-000017.tar.PLAN.partial` | a complete shard; in a store, only the manifest entry of the shard |
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
//! | `NAME.lock.partial` | the lock of a process that merges or discards files, or of a [`TarWriter`](super::TarWriter) |
//!
//! In a folder, a small file is first written under a name that ends in `.HEX.partial`, and then
//! renamed or linked. Journals are an exception: new entries are appended to them. Complete shards
//! and manifests appear atomically, so readers never see an incomplete file. Several processes may
//! try to pack the same part. Each try is an **attempt**. Attempts write to different files, and
//! the complete files contain the same bytes.

use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::manifests::{Manifest, PartManifest, ShardEntry};
use super::names::parse_shard_number;
use super::plan::Plan;
use super::shard::Sink;
use crate::error::{Error, Result};
use crate::source::temp_files::{PARTIAL, is_hex_u64};
use crate::source::{MANIFEST_SUFFIX, PLAN_SUFFIX};

pub(super) const MERGE_SUFFIX: &str = ".merge.partial";

/// The folder or the store to which a dataset is packed. `suffix` is the part of a file's name that
/// follows `NAME`.
pub(super) trait Destination: Sync {
    /// Returns the full path or the URL of a file, for error messages.
    fn path_of(&self, suffix: &str) -> PathBuf;

    fn target(&self) -> PathBuf {
        self.path_of(".tar")
    }

    /// Returns the `suffix` of each file whose name begins with `NAME`, sorted.
    fn suffixes(&self) -> Result<Vec<String>>;

    fn get(&self, suffix: &str) -> Result<Option<Vec<u8>>>;

    /// Writes a small file atomically, and returns true. If `must_be_new` is true and the file
    /// exists, returns false, and does not change the file.
    fn put(&self, suffix: &str, bytes: &[u8], must_be_new: bool) -> Result<bool>;

    fn remove(&self, suffix: &str) -> Result<()>;

    /// Removes the files in `attempts`, which are incomplete files of earlier attempts. Files that
    /// a process is still writing are not removed.
    fn remove_attempts(&self, attempts: &[String]) -> Result<()>;

    /// Returns whether shards have their final names before the merge.
    fn uploads_in_place(&self) -> bool;

    fn is_merging(&self) -> Result<bool> {
        let suffix = if self.uploads_in_place() { PLAN_SUFFIX } else { MERGE_SUFFIX };
        Ok(self.get(suffix)?.is_some())
    }

    /// Creates shard `number`. `plan_id` identifies the plan.
    fn begin_shard(&self, number: u64, plan_id: &str) -> Result<Box<dyn ShardWriter>>;

    fn record_shard(&self, part: (u64, u64), number: u64, plan_id: &str, entry: &ShardEntry) -> Result<()>;

    /// Returns the recorded complete shards of a part, in the order of `numbers`. Shards after a
    /// gap in the numbers may be omitted.
    fn recorded_shards(&self, part: (u64, u64), numbers: Range<u64>, plan_id: &str) -> Result<Vec<ShardEntry>>;

    fn shard_path(&self, number: u64, state: ShardState<'_>) -> PathBuf;

    /// Returns whether the shard exists and has the size in `entry`. If `must_be_complete` is true,
    /// also compares the checksum.
    fn has_shard(&self, number: u64, state: ShardState<'_>, entry: &ShardEntry, must_be_complete: bool)
    -> Result<bool>;

    /// Acquires the lock for merging, and for discarding the files of other plans. Waits until no
    /// other process holds the lock. If locks are not supported, as in a store, the returned value
    /// locks nothing.
    fn lock(&self) -> Result<Lock>;

    /// Publishes the merged dataset, which consists of `shards`. The caller has checked the shards.
    /// In a folder, removes `old_shards`, the shards of the previous dataset, and renames `shards`
    /// to their final names. Writes the manifest last.
    fn publish(&self, plan: &Plan, shards: Vec<ShardEntry>, old_shards: &[u64]) -> Result<Manifest>;
}

/// Whether a complete shard still has its temporary name. In a folder, the state determines the
/// path of the shard.
#[derive(Debug, Clone, Copy)]
pub(super) enum ShardState<'a> {
    /// The shard is complete, but the plan with this ID has not been merged.
    Staged(&'a str),
    /// The shard is complete, and an interrupted merge may already have renamed it.
    Merging(&'a str),
    Merged,
}

/// A shard that is being written. Dropping it removes the file.
pub(super) trait ShardWriter: Write {
    fn sync(&mut self) -> io::Result<()>;

    /// Publishes the finished shard. If a shard with different bytes already has its name, a folder
    /// replaces that shard, and a store returns an error.
    fn publish(self: Box<Self>, entry: &ShardEntry) -> Result<()>;
}

impl Sink for Box<dyn ShardWriter> {
    fn sync(&mut self) -> io::Result<()> {
        (**self).sync()
    }
}

pub(super) type Lock = Box<dyn Send>;

pub(super) fn shard_suffix(number: u64) -> String {
    format!("-{number:06}.tar")
}

pub(super) fn staged_suffix(number: u64, plan_id: &str) -> String {
    format!("-{number:06}.tar.{plan_id}{PARTIAL}")
}

pub(super) fn part_suffix((part, parts): (u64, u64), plan_id: &str) -> String {
    format!(".part-{part:05}-of-{parts:05}.{plan_id}.json")
}

pub(super) fn journal_suffix((part, parts): (u64, u64), plan_id: &str) -> String {
    format!(".part-{part:05}-of-{parts:05}.{plan_id}{PARTIAL}")
}

/// Returns the final file name of a shard, as it appears in manifests.
pub(super) fn shard_name(destination: &dyn Destination, number: u64) -> String {
    destination.path_of(&shard_suffix(number)).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

pub(super) fn read_json<T: DeserializeOwned>(destination: &dyn Destination, suffix: &str) -> Result<Option<T>> {
    let Some(bytes) = destination.get(suffix)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|e| {
        Error::in_source(format!("the file is damaged, or was not written by this version of warpfeed: {e}"))
            .at_path(destination.path_of(suffix))
    })
}

pub(super) fn write_json<T: Serialize>(
    destination: &dyn Destination,
    suffix: &str,
    value: &T,
    must_be_new: bool,
) -> Result<bool> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("the value consists of numbers and text");
    bytes.push(b'\n');
    destination.put(suffix, &bytes, must_be_new)
}

pub(super) fn read_plan(destination: &dyn Destination) -> Result<Option<Plan>> {
    read_json(destination, PLAN_SUFFIX)
}

pub(super) fn read_manifest(destination: &dyn Destination) -> Result<Option<Manifest>> {
    read_json(destination, MANIFEST_SUFFIX)
}

pub(super) fn read_part(
    destination: &dyn Destination,
    part: (u64, u64),
    plan_id: &str,
) -> Result<Option<PartManifest>> {
    read_json(destination, &part_suffix(part, plan_id))
}

pub(super) fn is_renaming(destination: &dyn Destination, plan: &Plan) -> Result<bool> {
    Ok(read_json::<Plan>(destination, MERGE_SUFFIX)?.is_some_and(|merging| merging == *plan))
}

pub(super) fn existing_shards(suffixes: &[String]) -> Vec<u64> {
    let mut numbers: Vec<u64> =
        suffixes.iter().filter_map(|suffix| parse_shard_number(suffix.strip_suffix(".tar")?)).collect();
    numbers.sort_unstable();
    numbers
}

#[derive(Debug, Default)]
pub(super) struct TemporaryFiles {
    pub(super) staged_shards: Vec<String>,
    pub(super) attempts: Vec<String>,
    pub(super) journals: Vec<String>,
    pub(super) part_manifests: Vec<String>,
}

impl TemporaryFiles {
    pub(super) fn from_suffixes(suffixes: &[String]) -> Self {
        let mut files = TemporaryFiles::default();
        for suffix in suffixes {
            let names = if let Some((tar, remainder)) = suffix.split_once(".tar.") {
                match remainder.strip_suffix(PARTIAL).filter(|_| parse_shard_number(tar).is_some()) {
                    Some(plan_id) if is_hex_u64(plan_id) => &mut files.staged_shards,
                    Some(ids)
                        if ids
                            .split_once('.')
                            .is_some_and(|(plan_id, random)| is_hex_u64(plan_id) && is_hex_u64(random)) =>
                    {
                        &mut files.attempts
                    }
                    _ => continue,
                }
            } else if suffix.starts_with(".part-") && plan_id(suffix).is_some() && suffix.split('.').count() == 4 {
                if suffix.ends_with(".json") { &mut files.part_manifests } else { &mut files.journals }
            } else if suffix
                .strip_suffix(PARTIAL)
                .and_then(|suffix| suffix.rsplit_once('.'))
                .is_some_and(|(_, random)| is_hex_u64(random))
            {
                &mut files.attempts
            } else {
                continue;
            };
            names.push(suffix.clone());
        }
        files
    }

    pub(super) fn into_names(self) -> Vec<String> {
        [self.staged_shards, self.attempts, self.journals, self.part_manifests].concat()
    }

    pub(super) fn is_empty(&self) -> bool {
        let TemporaryFiles { staged_shards, attempts, journals, part_manifests } = self;
        [staged_shards, attempts, journals, part_manifests].iter().all(|list| list.is_empty())
    }
}

pub(super) fn part_numbers(suffix: &str) -> Option<(u64, u64)> {
    let (part, parts) = suffix.strip_prefix(".part-")?.split('.').next()?.split_once("-of-")?;
    Some((part.parse().ok()?, parts.parse().ok()?)).filter(|(part, parts)| part < parts)
}

pub(super) fn plan_id(suffix: &str) -> Option<&str> {
    let plan_id = match suffix.split_once(".tar.") {
        Some((_, rest)) => rest.split('.').next()?,
        None => suffix.split('.').nth(2)?,
    };
    Some(plan_id).filter(|plan_id| is_hex_u64(plan_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_packs_are_recognized() {
        let (plan, random) = ("0123456789abcdef", "fedcba9876543210");
        let names = [
            staged_suffix(17, plan),
            format!("-000017.tar.{plan}.{random}.partial"),
            journal_suffix((3, 64), plan),
            part_suffix((3, 64), plan),
            format!(".manifest.json.{random}.partial"),
            format!("{}.{random}.partial", part_suffix((3, 64), plan)),
        ];
        let others =
            [".plan.partial", ".merge.partial", ".lock.partial", "-000017.tar", ".manifest.json", "-x.tar.partial"];
        let others = others.iter().map(|&other| other.to_owned());
        let leftovers = TemporaryFiles::from_suffixes(&names.iter().cloned().chain(others).collect::<Vec<_>>());
        assert_eq!(leftovers.staged_shards, names[..1]);
        assert_eq!((leftovers.journals, leftovers.part_manifests), (names[2..3].to_vec(), names[3..4].to_vec()));
        assert_eq!(leftovers.attempts, [names[1].clone(), names[4].clone(), names[5].clone()]);
        let ids = names.iter().map(|name| plan_id(name));
        assert!(ids.eq([Some(plan), Some(plan), Some(plan), Some(plan), None, Some(plan)]), "{names:?}");
        let parts = names.iter().map(|name| part_numbers(name));
        assert!(parts.eq([None, None, Some((3, 64)), Some((3, 64)), None, Some((3, 64))]), "{names:?}");
        assert_eq!(part_numbers(&part_suffix((64, 64), plan)), None);
        assert_eq!(
            existing_shards(&[shard_suffix(12), shard_suffix(3), "-3.tar".into(), staged_suffix(4, plan)]),
            [3, 12]
        );
    }
}
