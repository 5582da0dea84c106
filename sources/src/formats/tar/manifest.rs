//! Reads `NAME.manifest.json`, the manifest that `Pack` writes for a set of shards.
//!
//! The manifest determines which shards belong to the set. If a shard is missing, opening fails. A
//! file that is named like a shard of the set but is not in the manifest is ignored with a warning,
//! because it may come from an interrupted run.
//!
//! Several processes can pack a set together. Each of them packs a **part** of the samples
//! according to a shared plan. Merging the parts writes the manifest and, in a local folder, gives
//! the shards their final names.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Error, Result, counted, push, reservation_result, try_collect};
use crate::machine::file;
use crate::storage::tree::Tree;

/// The suffix of a manifest's file name.
pub const MANIFEST_SUFFIX: &str = ".manifest.json";
/// JSON key of the version number, which must occur in the first [`KEY_SEARCH_BYTES`] bytes of a
/// manifest.
const MARKER_KEY: &str = "\"warpfeed_set\"";
/// The manifest format version that is read and written.
pub const VERSION: u64 = 1;
/// The suffix of a plan's file name. The plan of a set exists until its parts are merged.
pub const PLAN_SUFFIX: &str = ".plan.partial";
pub(super) const MAX_MANIFEST_BYTES: u64 = 1 << 30;
/// Number of bytes at the start of a file that are searched for [`MARKER_KEY`].
pub(super) const KEY_SEARCH_BYTES: usize = 512;
const MAX_NAMED_SHARDS: usize = 5;

#[derive(Debug, Deserialize)]
pub(super) struct Manifest {
    warpfeed_set: u64,
    shards: Vec<Entry>,
}

#[derive(Debug, Clone, Deserialize, PartialEq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) samples: u64,
    pub(super) bytes: u64,
}

pub(super) fn is_manifest(path: &Path, start: &[u8]) -> bool {
    is_named_manifest(path) && memchr::memmem::find(start, MARKER_KEY.as_bytes()).is_some()
}

/// Returns the manifest of a set that was packed to `path`, if the manifest exists and `path` does
/// not.
pub(super) fn find_for_target(path: &Path) -> Result<Option<PathBuf>> {
    let Some(manifest) = path.to_str().and_then(manifest_name) else { return Ok(None) };
    Ok((!file::exists(path)? && file::is_file(&manifest)?).then(|| manifest.into()))
}

pub(super) fn manifest_name(target: &str) -> Option<String> {
    Some(format!("{}{MANIFEST_SUFFIX}", target.strip_suffix(".tar")?))
}

pub(super) fn is_named_manifest(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.ends_with(MANIFEST_SUFFIX))
}

impl Manifest {
    /// The name of each shard must be a plain file name.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let damaged = |cause: String| Error::in_source(format!("damaged manifest: {cause}"));
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(|e| damaged(e.to_string()))?;
        if manifest.warpfeed_set != VERSION {
            let actual = manifest.warpfeed_set;
            return Err(Error::in_source(format!("unsupported manifest version {actual}: expected {VERSION}")));
        }
        if manifest.shards.is_empty() {
            return Err(damaged("it lists no shards".to_owned()));
        }
        let is_invalid = |name: &str| name.is_empty() || name.starts_with('.') || name.contains(['/', '\\', '\0']);
        match manifest.shards.iter().find(|shard| is_invalid(&shard.name)) {
            Some(shard) => Err(damaged(format!("{:?} is not a valid shard name", shard.name))),
            None => Ok(manifest),
        }
    }

    /// Returns the shards, and checks that they exist and have the right sizes. `name` is the file
    /// name of the manifest. `tars` maps the name of each tar file in the folder to its size. If
    /// `reject_others` is true, fails if an unlisted tar file is not named like a shard of the
    /// set.
    pub(super) fn into_checked_shards(
        self,
        name: &str,
        tars: &BTreeMap<String, u64>,
        reject_others: bool,
    ) -> Result<Vec<Entry>> {
        let mut changes = Vec::new();
        for shard in &self.shards {
            match tars.get(&shard.name) {
                None => changes.push(format!("{} is missing", shard.name)),
                Some(&bytes) if bytes != shard.bytes => {
                    changes.push(format!("{} has {bytes} bytes instead of {}", shard.name, shard.bytes));
                }
                Some(_) => {}
            }
        }
        if !changes.is_empty() {
            let (count, shards) = (changes.len(), self.shards.len());
            let more = if count > MAX_NAMED_SHARDS {
                format!(" and {} more", count - MAX_NAMED_SHARDS)
            } else {
                String::new()
            };
            changes.truncate(MAX_NAMED_SHARDS);
            return Err(Error::in_source(format!(
                "{count} of the {shards} shards in {name} have changed since packing: {}{more}",
                changes.join(", ")
            )));
        }
        let mut listed_names = HashSet::new();
        reservation_result(listed_names.try_reserve(self.shards.len()))?;
        listed_names.extend(self.shards.iter().map(|shard| &*shard.name));
        let stem = name.strip_suffix(MANIFEST_SUFFIX).unwrap_or(name);
        let (numbered, others): (Vec<&String>, Vec<&String>) =
            tars.keys().filter(|tar| !listed_names.contains(&***tar)).partition(|tar| is_numbered(tar, stem));
        if let (true, Some(first)) = (reject_others, others.first()) {
            return Err(Error::in_source(format!(
                "the folder contains {} that {name} does not list, such as {first}: open the manifest, or move the \
                 unlisted files to a separate folder",
                counted(others.len(), "tar file", "tar files")
            )));
        }
        if let Some(first) = numbered.first() {
            let shards = counted(numbered.len(), "shard that is", "shards that are");
            tracing::warn!("ignored {shards} not listed in {name}, such as {first}");
        }
        Ok(self.shards)
    }
}

/// Returns whether `tar` has the form `STEM-NUMBER.tar`.
fn is_numbered(tar: &str, stem: &str) -> bool {
    let number = tar.strip_prefix(stem).and_then(|rest| rest.strip_prefix('-')?.strip_suffix(".tar"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns a folder's only manifest, or `None` if there is no manifest. Fails if there are several.
pub(super) fn only_manifest<T>(mut manifests: Vec<(String, T)>) -> Result<Option<(String, T)>> {
    match manifests.len() {
        0 | 1 => Ok(manifests.pop()),
        count => Err(Error::in_source(format!(
            "the folder contains {count} sets of shards: open one of their manifests, such as {}",
            manifests[0].0
        ))),
    }
}

pub(super) fn open(path: &Path) -> Result<Vec<(PathBuf, Entry)>> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    list_shards(folder, &name, read_manifest(path)?, false).map_err(|e| e.at_path(path))
}

/// Returns the shards in the folder's manifest, or `None` if the folder contains no manifest. Fails
/// if the folder contains several sets or unmerged parts.
pub(super) fn open_folder(folder: &Path) -> Result<Option<Vec<(PathBuf, Entry)>>> {
    let mut manifests = Vec::new();
    let names = entry_names(folder)?;
    for name in names.iter().filter(|name| name.ends_with(MANIFEST_SUFFIX)) {
        // Check the content, because other programs may use the same file names.
        let path = folder.join(name);
        if is_manifest(&path, &file::read_head(&path, KEY_SEARCH_BYTES)?) {
            manifests.push((name.clone(), ()));
        }
    }
    check_merged(&names).map_err(|e| e.at_path(folder))?;
    let Some((name, ())) = only_manifest(manifests).map_err(|e| e.at_path(folder))? else { return Ok(None) };
    let path = folder.join(&name);
    let shards = read_manifest(&path).and_then(|manifest| list_shards(folder, &name, manifest, true));
    shards.map(Some).map_err(|e| e.at_path(path))
}

pub(crate) fn ensure_merged(folder: Tree<'_>) -> Result<()> {
    check_merged(&folder.file_names()?)
}

/// Checks that each set with a plan, a part or an unmerged shard in the folder has a manifest.
/// `names` contains the names of the files in the folder, in ascending order.
pub(super) fn check_merged(names: &[impl AsRef<str>]) -> Result<()> {
    let exists = |required: &str| names.binary_search_by(|name| name.as_ref().cmp(required)).is_ok();
    let names = || names.iter().map(AsRef::as_ref);
    let mut stems = names().filter_map(unmerged_stem);
    match stems.find(|stem| !exists(&format!("{stem}{MANIFEST_SUFFIX}"))) {
        None => Ok(()),
        Some(stem) => {
            let parts = names().filter(|name| name.starts_with(&format!("{stem}.part-")) && name.ends_with(".json"));
            Err(Error::in_source(format!(
                "the set {stem} is incomplete: {} not merged; pack the missing parts, then merge all parts (warpfeed \
                 pack --merge {stem}.tar)",
                counted(parts.count(), "finished part is", "finished parts are")
            )))
        }
    }
}

/// Returns the name of the set if `name` is the name of a plan, a part, or an unmerged shard.
fn unmerged_stem(name: &str) -> Option<&str> {
    if let Some(stem) = name.strip_suffix(PLAN_SUFFIX) {
        return Some(stem);
    }
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (is_json, rest) = match name.strip_suffix(".json") {
        Some(rest) => (true, rest),
        None => (false, name.strip_suffix(".partial")?),
    };
    let (rest, plan) = rest.rsplit_once('.')?;
    let has_plan_hash = plan.len() == 16 && plan.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (stem, numbers) = match is_json {
        true => rest.rsplit_once(".part-")?,
        false => rest.strip_suffix(".tar")?.rsplit_once('-')?,
    };
    let has_valid_numbers = match is_json {
        true => numbers.split_once("-of-").is_some_and(|(part, parts)| is_number(part) && is_number(parts)),
        false => is_number(numbers),
    };
    (has_plan_hash && has_valid_numbers).then_some(stem)
}

fn read_manifest(path: &Path) -> Result<Manifest> {
    let bytes = file::read(path, MAX_MANIFEST_BYTES).map_err(|e| Error::io(path, &e))?;
    Manifest::parse(&bytes).map_err(|e| e.at_path(path))
}

fn list_shards(folder: &Path, name: &str, manifest: Manifest, reject_others: bool) -> Result<Vec<(PathBuf, Entry)>> {
    let mut tars = BTreeMap::new();
    for path in tars_in(folder)? {
        let bytes = fs::metadata(&path).map_err(|e| Error::io(&path, &e))?.len();
        if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
            tars.insert(name.to_owned(), bytes);
        }
    }
    let shards = manifest.into_checked_shards(name, &tars, reject_others)?;
    try_collect(shards.into_iter().map(|shard| Ok((folder.join(&shard.name), shard))))
}

/// Lists the `*.tar` files in a folder, sorted by name, without hidden files.
pub(super) fn tars_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut tars = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| Error::io(folder, &e))? {
        let path = entry.map_err(|e| Error::io(folder, &e))?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !is_hidden && path.extension().is_some_and(|e| e.eq_ignore_ascii_case("tar")) {
            push(&mut tars, path)?;
        }
    }
    tars.sort_unstable();
    Ok(tars)
}

/// Returns the sorted names of the entries of `folder`, except names that are not UTF-8.
fn entry_names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| Error::io(folder, &e))? {
        if let Ok(name) = entry.map_err(|e| Error::io(folder, &e))?.file_name().into_string() {
            push(&mut names, name)?;
        }
    }
    names.sort_unstable();
    Ok(names)
}

pub(super) fn check_samples(entry: &Entry, actual: usize) -> Result<()> {
    if entry.samples == actual as u64 {
        return Ok(());
    }
    let actual = counted(actual, "sample", "samples");
    Err(Error::in_source(format!("the shard has {actual}, but its manifest claims {}", entry.samples)))
}
