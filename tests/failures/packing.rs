//! Lets single system calls and large allocations fail while a dataset is packed or merged. An
//! incomplete file must never have its final name. After an error, a second run must complete the
//! dataset and leave no temporary files behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use warpfeed::Result;
use warpfeed::pack::{Merge, Pack};
use warpfeed::source::{Source, open};

use crate::calls::{self, Kind};
use crate::epoch::names_a_place;
use crate::loading::Data;
use crate::process::{own_process, serial};
use crate::sweep::{Case, Table};

fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut contents = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name().into_string().unwrap())).unwrap();
        if path.is_dir() {
            contents.extend(files(&path).into_iter().map(|(below, hash)| (format!("{name}/{below}"), hash)));
        } else {
            let bytes = fs::read(path).unwrap();
            contents.insert(name, format!("{} {:08x}", bytes.len(), crc32fast::hash(&bytes)));
        }
    }
    contents
}

fn list_files(folder: &Path) -> String {
    files(folder).iter().map(|(name, hash)| format!("{name} {hash}\n")).collect()
}

/// Packs into `folder`. After an error, checks the files that remain, and packs again.
fn twice(
    pack: &dyn Fn(&Path) -> Result<()>,
    folder: &Path,
    expected: Option<&str>,
) -> std::result::Result<String, String> {
    let before = calls::ignored(|| files(folder));
    let packed = pack(folder);
    calls::end();
    let Err(e) = packed else {
        let text = list_files(folder);
        // Ignore a leftover lock file, which is not locked and is reused by the next run.
        let lines = text.lines().filter(|line| !line.contains(".lock.partial "));
        let without: String = lines.map(|line| format!("{line}\n")).collect();
        return Ok(if expected == Some(&without) { without } else { text });
    };
    if !names_a_place(&e) {
        return Err(format!("wrong: the error names no location: {e}"));
    }
    let expected = expected.expect("the first run succeeds");
    let complete: BTreeMap<&str, &str> = expected.lines().filter_map(|line| line.split_once(' ')).collect();
    for (name, hash) in files(folder) {
        let old = before.get(&name).is_some_and(|old| *old == hash);
        if !old && complete.get(&*name).is_some_and(|complete_hash| *complete_hash != hash) {
            return Err(format!("wrong: after {e}: {name} is {hash}, not {}", complete[&*name]));
        }
    }
    match pack(folder) {
        Ok(()) if list_files(folder) == expected => Err(e.to_string()),
        Ok(()) => Err(format!("wrong: after {e}: {} instead of {expected}", list_files(folder))),
        Err(again) => Err(format!("wrong: after {e}, again: {again}")),
    }
}

#[test]
fn a_failed_call_leaves_nothing_incomplete_under_a_final_name() {
    own_process!(a_failed_call_leaves_nothing_incomplete_under_a_final_name);
    let _serial = serial();
    let data = Data::new();
    let folder = data.path("folder");
    let source = || open(&folder);
    let pack = |source: &dyn Source, dest: &Path| Pack::new(source).workers(2).retries(0).to(dest).map(drop);
    let shards = |source: &dyn Source, dest: &Path| {
        Pack::new(source).workers(2).retries(0).shard_samples(4).to(dest.join("x.tar")).map(drop)
    };
    let parts = |source: &dyn Source, dest: &Path| {
        let dest = dest.join("x.tar");
        for part in 0..2 {
            let pack = Pack::new(source).workers(2).retries(0).shard_samples(4);
            pack.part(part, 2).to(&dest)?;
        }
        Merge::new(&dest).run().map(drop)
    };
    let mut table = Table::default();
    let mut sweep = |name: &str, pack: &dyn Fn(&Path) -> Result<()>| {
        let run = Box::new(|folder: &Path, expected: Option<&str>| twice(pack, folder, expected));
        table.sweep(&Case { name: name.into(), prepare: Box::new(|_| ()), run, kinds: &Kind::ALL });
    };
    sweep("pack to LMDB", &|dest| pack(&*source()?, &dest.join("x.lmdb")));
    sweep("pack to one tar", &|dest| pack(&*source()?, &dest.join("x.tar")));
    sweep("pack to shards", &|dest| shards(&*source()?, dest));
    sweep("pack in parts, and merge", &|dest| parts(&*source()?, dest));
    table.finish();
}
