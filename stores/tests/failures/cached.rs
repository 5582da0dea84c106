//! Makes system calls fail, one per run, while a loader reads through a cache, or while a cache is
//! checked and emptied. Either the batches are unchanged, or an error names the affected file or
//! URL, or a lack of memory or threads. Afterward, the cache contains no damaged data, and further
//! loads return the expected batches. At most three of them fill a cache of blocks.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use warpfeed::{Augment, Error, ErrorKind, Loader, Result};
use warpfeed_stores::{Cache, check, empty, show};

use crate::calls::{self, Kind};
use crate::child::{Done, End, attempt, wait_for_loader_threads};
use crate::datasets::{FORMATS, small};
use crate::epoch::{names_a_place, twice};
use crate::objects::Objects;
use crate::process::{own_process, serial};
use crate::sweep::{Case, Table};

const CACHE_BYTES: u64 = 1 << 30;

struct Data {
    objects: Objects,
    url: String,
}

impl Data {
    fn new(format: &str) -> Data {
        let root = tempfile::tempdir().unwrap();
        let dataset = small(crate::datasets::Kind::Labeled);
        let format = FORMATS.iter().find(|candidate| candidate.name == format).unwrap();
        let name = (format.write)(&dataset, root.path());
        let url = if name.is_empty() { "mem://set".to_owned() } else { format!("mem://set/{name}") };
        Data { objects: Objects::of(root.path(), "mem://set"), url }
    }

    fn loader(&self, folder: &Path, bytes: u64, memory: u64) -> Result<Loader> {
        let cache = Cache::with_memory(folder, bytes, memory)?;
        let loader = Loader::new(&*self.url).stores([("mem", cache.store(Arc::new(self.objects.clone())))]);
        Ok(loader.augment(Augment::train(32)).batch_size(4).shuffle(7).workers(2).prefetch(2).retries(0))
    }
}

fn check_folder(folder: &Path, seen: &std::result::Result<String, String>) -> std::result::Result<(), String> {
    let failure = |what: &str| Err(format!("wrong: {what} (the loader had returned {seen:?})"));
    if !folder.join("warpfeed-cache").exists() {
        return Ok(()); // It could not be created.
    }
    let contents = check(folder).map_err(|e| format!("wrong: the cache cannot be checked: {e}"))?;
    if contents.damaged > 0 || !contents.others.is_empty() {
        return failure(&format!("the cache is damaged: {contents:?}"));
    }
    let partial = fs::read_dir(folder.join("partial")).map_or(0, Iterator::count);
    if partial > usize::from(calls::fails_now(Kind::Remove)) {
        return failure(&format!("{partial} partial files remain"));
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let dest = to.join(path.file_name().unwrap());
        if path.is_dir() { copy(&path, &dest) } else { _ = fs::copy(&path, &dest).unwrap() }
    }
}

fn filled_cache(data: &Data) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    let outcome = attempt(None, || twice(&|| data.loader(folder, CACHE_BYTES, 0), usize::MAX, None));
    assert!(matches!(outcome.end, End::Done(Done { result: Ok(_), .. })), "{outcome:?}");
    root
}

/// Returns whether the message of an error blames a lack of memory or threads, and not the cache.
fn is_lack_of_memory_or_threads(e: &str) -> bool {
    e.contains("memory") || e.contains("thread") || e.contains("workers")
}

#[test]
fn a_failing_cache_disk_changes_no_batch() {
    own_process!(a_failing_cache_disk_changes_no_batch);
    let _serial = serial();
    let mut table = Table::default();
    // `blocks` are the minimum and maximum number of blocks that the folder must contain after at
    // most three loads. `None` means that the number is not checked, and that the loader may fail
    // if the cache folder does.
    let mut sweep = |name: &str, data: &Data, limits: (u64, u64), cache: Option<&Path>, blocks: Option<(u64, u64)>| {
        let (bytes, memory) = limits;
        let run = Box::new(move |folder: &Path, expected: Option<&str>| {
            let folder = folder.join("cache");
            let load = |expected| twice(&|| data.loader(&folder, bytes, memory), usize::MAX, expected);
            let seen = load(expected);
            calls::end();
            if let (Err(e), Some(_)) = (&seen, blocks)
                && !is_lack_of_memory_or_threads(e)
                && !e.starts_with("wrong")
            {
                return Err(format!("wrong: the store works, but the loader failed: {e}"));
            }
            // Wait for the threads of the old loader. Until the last one ends, the next loader
            // would share the old loader's in-memory index of the folder.
            wait_for_loader_threads();
            check_folder(&folder, &seen)?;
            // On a busy machine, a thread that waits too long for the folder's lock does not
            // cache its block, so one loader may not be enough.
            let mut block_count = 0;
            for _ in 0..3 {
                let again = load(expected)?;
                if expected.is_some_and(|expected| again != expected) {
                    return Err(format!("wrong: after {seen:?}: {again}"));
                }
                block_count = show(&folder).map_err(|e| format!("wrong: {e}"))?.blocks;
                if blocks.is_none_or(|(min, max)| (min..=max).contains(&block_count)) {
                    return seen;
                }
            }
            Err(format!("wrong: {block_count} blocks, after {seen:?}"))
        });
        let prepare = Box::new(move |folder: &Path| {
            if let Some(cache) = cache {
                copy(cache, &folder.join("cache"));
            }
        });
        table.sweep(&Case { name: name.into(), prepare, run, kinds: &Kind::ALL });
    };
    let (shards, lmdb) = (Data::new("tar shards"), Data::new("lmdb"));
    let (shards_cache, lmdb_cache) = (filled_cache(&shards), filled_cache(&lmdb));
    sweep("blocks, filling the cache", &shards, (CACHE_BYTES, 0), None, Some((12, 12)));
    sweep("blocks, reading the cache", &shards, (CACHE_BYTES, 0), Some(shards_cache.path()), Some((12, 12)));
    // The cache holds three 4 KiB blocks, so almost every new block evicts an old one. Two threads
    // may evict at the same time, so a run can end with two blocks.
    sweep("small cache", &shards, (3 << 12, 0), None, Some((2, 3)));
    sweep("blocks, with a cache in memory", &shards, (CACHE_BYTES, 1500), None, None);
    sweep("whole files, filling the cache", &lmdb, (CACHE_BYTES, 0), None, None);
    sweep("whole files, reading the cache", &lmdb, (CACHE_BYTES, 0), Some(lmdb_cache.path()), None);
    table.finish();
}

#[test]
fn a_failing_cache_disk_can_be_checked_and_emptied() {
    own_process!(a_failing_cache_disk_can_be_checked_and_emptied);
    let _serial = serial();
    let mut table = Table::default();
    for format in ["tar shards", "lmdb"] {
        let data = Data::new(format);
        let cache = filled_cache(&data);
        let run = Box::new(|folder: &Path, expected: Option<&str>| {
            let folder = folder.join("cache");
            let manage = || -> Result<String> {
                let checked = check(&folder)?;
                let emptied = empty(&folder)?;
                // `empty` may have removed some blocks before it failed.
                let contents = show(&folder)?;
                if checked.damaged > 0
                    || contents.blocks > 0
                    || !contents.files.is_empty()
                    || !contents.listings.is_empty()
                {
                    return Err(Error::new(ErrorKind::Source, format!("{checked:?} {emptied:?} {contents:?}")));
                }
                Ok("emptied".into())
            };
            match manage() {
                Err(e) if !names_a_place(&e) => Err(format!("wrong: {e}")),
                Err(e) => match manage() {
                    Ok(text) if expected.is_none_or(|expected| text == expected) => Err(e.to_string()),
                    again => Err(format!("wrong: after {e}: {again:?}")),
                },
                Ok(text) => Ok(text),
            }
        });
        let prepare = Box::new(|folder: &Path| copy(cache.path(), &folder.join("cache")));
        table.sweep(&Case { name: format!("emptied, {format}"), prepare, run, kinds: &Kind::ALL });
    }
    table.finish();
}
