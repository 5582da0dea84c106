//! The manifest of a set of shards, `NAME.manifest.json`, which `Pack` writes.
//!
//! The manifest decides which shards are the set. A missing shard is an error, and a shard of that
//! name that the manifest does not list is left out with a warning: an attempt that was given up
//! may leave one.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Error, Result, collected, counted, push, reserved};
use crate::machine::file;
use crate::medium::tree::Tree;

/// End of a manifest's name.
pub const MANIFEST_END: &str = ".manifest.json";
/// Key of a manifest's version, at its beginning.
const KEY: &str = "\"warpfeed_set\"";
/// The version that is read and written.
pub const VERSION: u64 = 1;
/// End of the name of a plan, which lies there until the parts are merged.
pub const PLAN_END: &str = ".plan.partial";
/// Maximum size of a manifest.
pub(super) const MOST: u64 = 1 << 30;
/// Bytes at the beginning of a manifest that have its key.
pub(super) const START: usize = 512;
/// Maximum number of shards in a message.
const SHOWN: usize = 5;

/// What a reader needs of a manifest.
#[derive(Debug, Deserialize)]
pub(super) struct Manifest {
    warpfeed_set: u64,
    shards: Vec<Entry>,
}

/// A shard in a manifest.
#[derive(Debug, Clone, Deserialize, PartialEq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) samples: u64,
    pub(super) bytes: u64,
}

/// Whether the file at `path`, which begins with `start`, is a manifest.
pub(super) fn is_manifest(path: &Path, start: &[u8]) -> bool {
    is_named_manifest(path) && memchr::memmem::find(start, KEY.as_bytes()).is_some()
}

/// The manifest of the set that was packed to `path`, such as `train.tar`, which is no file then.
///
/// # Errors
/// If the system cannot tell.
pub(super) fn of_target(path: &Path) -> Result<Option<PathBuf>> {
    let Some(manifest) = path.to_str().and_then(manifest_of) else { return Ok(None) };
    Ok((!file::exists(path)? && file::is_file(&manifest)?).then(|| manifest.into()))
}

/// The name of the manifest of the set that is packed to `target`.
pub(super) fn manifest_of(target: &str) -> Option<String> {
    Some(format!("{}{MANIFEST_END}", target.strip_suffix(".tar")?))
}

/// Whether the name is that of a manifest.
pub(super) fn is_named_manifest(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.ends_with(MANIFEST_END))
}

impl Manifest {
    /// # Errors
    /// If the text is not a manifest of this version, or a name leads out of the folder.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let damaged = |cause: String| Error::in_source(format!("damaged manifest: {cause}"));
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(|e| damaged(e.to_string()))?;
        if manifest.warpfeed_set != VERSION {
            let found = manifest.warpfeed_set;
            return Err(Error::in_source(format!("manifest of version {found}; this build reads version {VERSION}")));
        }
        if manifest.shards.is_empty() {
            return Err(damaged("no shards".to_owned()));
        }
        let wrong = |name: &str| name.is_empty() || name.starts_with('.') || name.contains(['/', '\\', '\0']);
        match manifest.shards.iter().find(|shard| wrong(&shard.name)) {
            Some(shard) => Err(damaged(format!("{:?} is not the name of a shard", shard.name))),
            None => Ok(manifest),
        }
    }

    /// The shards of this manifest, called `name`, if `tars` has them all with the right sizes.
    /// `tars` are the names and sizes in the folder.
    ///
    /// # Errors
    /// If a shard is missing or has another size, and if `whole` and there are tars of another
    /// name.
    pub(super) fn choose(self, name: &str, tars: &BTreeMap<String, u64>, whole: bool) -> Result<Vec<Entry>> {
        let mut missing = Vec::new();
        for shard in &self.shards {
            match tars.get(&shard.name) {
                None => missing.push(format!("{} is missing", shard.name)),
                Some(&bytes) if bytes != shard.bytes => {
                    missing.push(format!("{} has {bytes} bytes instead of {}", shard.name, shard.bytes));
                }
                Some(_) => {}
            }
        }
        if !missing.is_empty() {
            let (count, all) = (missing.len(), self.shards.len());
            let more = if count > SHOWN { format!(" and {} more", count - SHOWN) } else { String::new() };
            missing.truncate(SHOWN);
            return Err(Error::in_source(format!(
                "{count} of the {all} shards in {name} are not as packed: {}{more}",
                missing.join(", ")
            )));
        }
        let mut listed = HashSet::new();
        reserved(listed.try_reserve(self.shards.len()))?;
        listed.extend(self.shards.iter().map(|shard| &*shard.name));
        let stem = name.strip_suffix(MANIFEST_END).unwrap_or(name);
        let (own, others): (Vec<&String>, Vec<&String>) =
            tars.keys().filter(|tar| !listed.contains(&***tar)).partition(|tar| is_numbered(tar, stem));
        if let (true, Some(first)) = (whole, others.first()) {
            return Err(Error::in_source(format!(
                "{} tars are not in {name}, such as {first}; open the manifest, or move them to a folder of their own",
                others.len()
            )));
        }
        if let Some(first) = own.first() {
            let shards = counted(own.len(), "shard that is", "shards that are");
            tracing::warn!("left out {shards} not in {name}, such as {first}");
        }
        Ok(self.shards)
    }
}

/// Whether `tar` is `STEM-NUMBER.tar`.
fn is_numbered(tar: &str, stem: &str) -> bool {
    let number = tar.strip_prefix(stem).and_then(|rest| rest.strip_prefix('-')?.strip_suffix(".tar"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The manifest of several, each with its name, that describes a folder. `None` without one.
///
/// # Errors
/// If there are several.
pub(super) fn only<T>(mut manifests: Vec<(String, T)>) -> Result<Option<(String, T)>> {
    match manifests.len() {
        0 | 1 => Ok(manifests.pop()),
        count => Err(Error::in_source(format!(
            "{count} sets lie here; open one of their manifests, such as {}",
            manifests[0].0
        ))),
    }
}

/// The shards of the set whose manifest is at `path`.
pub(super) fn open(path: &Path) -> Result<Vec<(PathBuf, Entry)>> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    of(folder, &name, read(path)?, false).map_err(|e| e.at_path(path))
}

/// The shards of the set in `folder`, if a manifest describes it.
///
/// # Errors
/// If there are several sets, parts that were not merged, or shards are missing.
pub(super) fn of_folder(folder: &Path) -> Result<Option<Vec<(PathBuf, Entry)>>> {
    let mut manifests = Vec::new();
    let names = names(folder)?;
    for name in names.iter().filter(|name| name.ends_with(MANIFEST_END)) {
        // Other programs may use such names.
        let path = folder.join(name);
        if is_manifest(&path, &file::start(&path, START)?) {
            manifests.push((name.clone(), ()));
        }
    }
    unmerged(&names).map_err(|e| e.at_path(folder))?;
    let Some((name, ())) = only(manifests).map_err(|e| e.at_path(folder))? else { return Ok(None) };
    let path = folder.join(&name);
    let found = read(&path).and_then(|manifest| of(folder, &name, manifest, true));
    found.map(Some).map_err(|e| e.at_path(path))
}

/// # Errors
/// If the folder has parts of a set that were not merged, or cannot be listed.
pub(crate) fn unmerged_in(folder: Tree<'_>) -> Result<()> {
    unmerged(&folder.file_names()?)
}

/// # Errors
/// If there are parts of a set that were not merged among the files with these sorted names.
pub(super) fn unmerged(names: &[impl AsRef<str>]) -> Result<()> {
    let has = |wanted: &str| names.binary_search_by(|name| name.as_ref().cmp(wanted)).is_ok();
    let names = || names.iter().map(AsRef::as_ref);
    let mut stems = names().filter_map(unfinished);
    match stems.find(|stem| !has(&format!("{stem}{MANIFEST_END}"))) {
        None => Ok(()),
        Some(stem) => {
            let parts = names().filter(|name| name.starts_with(&format!("{stem}.part-")) && name.ends_with(".json"));
            Err(Error::in_source(format!(
                "the set {stem} is not complete: it has {} finished parts that were not merged; pack the missing parts, \
                 then merge them (warpfeed pack --merge {stem}.tar)",
                parts.count()
            )))
        }
    }
}

/// The set of which the file `name` is the plan, a part or a complete shard, before the merge.
fn unfinished(name: &str) -> Option<&str> {
    if let Some(stem) = name.strip_suffix(PLAN_END) {
        return Some(stem);
    }
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (json, rest) = match name.strip_suffix(".json") {
        Some(rest) => (true, rest),
        None => (false, name.strip_suffix(".partial")?),
    };
    let (rest, plan) = rest.rsplit_once('.')?;
    let hex = plan.len() == 16 && plan.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (stem, numbers) = match json {
        true => rest.rsplit_once(".part-")?,
        false => rest.strip_suffix(".tar")?.rsplit_once('-')?,
    };
    let sound = match json {
        true => numbers.split_once("-of-").is_some_and(|(part, parts)| digits(part) && digits(parts)),
        false => digits(numbers),
    };
    (hex && sound).then_some(stem)
}

fn read(path: &Path) -> Result<Manifest> {
    let bytes = file::read(path, MOST).map_err(|e| Error::io(path, &e))?;
    Manifest::parse(&bytes).map_err(|e| e.at_path(path))
}

fn of(folder: &Path, name: &str, manifest: Manifest, whole: bool) -> Result<Vec<(PathBuf, Entry)>> {
    let mut tars = BTreeMap::new();
    for path in tars_in(folder)? {
        let bytes = fs::metadata(&path).map_err(|e| Error::io(&path, &e))?.len();
        if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
            tars.insert(name.to_owned(), bytes);
        }
    }
    let shards = manifest.choose(name, &tars, whole)?;
    collected(shards.into_iter().map(|shard| Ok((folder.join(&shard.name), shard))))
}

/// The `*.tar` files of a folder without hidden ones, sorted by name.
pub(super) fn tars_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut tars = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| Error::io(folder, &e))? {
        let path = entry.map_err(|e| Error::io(folder, &e))?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|e| e.eq_ignore_ascii_case("tar")) {
            push(&mut tars, path)?;
        }
    }
    tars.sort_unstable();
    Ok(tars)
}

/// Sorted names of the files of `folder`.
fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| Error::io(folder, &e))? {
        if let Ok(name) = entry.map_err(|e| Error::io(folder, &e))?.file_name().into_string() {
            push(&mut names, name)?;
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Checks that a shard has as many samples as its manifest says.
pub(super) fn check_samples(entry: &Entry, found: usize) -> Result<()> {
    if entry.samples == found as u64 {
        return Ok(());
    }
    Err(Error::in_source(format!("has {found} samples, but its manifest says {}", entry.samples)))
}
