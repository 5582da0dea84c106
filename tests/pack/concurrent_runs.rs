//! Tests runs that pack to the same name. If two do so at the same time, the second must be
//! rejected or do no harm. Files of a killed run must be removed, and files of different runs must
//! never form one dataset.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use warpfeed::pack::{DatasetWriter, Pack, TarWriter, WriteOptions};
use warpfeed::source::{Memory, OwnedSample, Sample, Source, open};
use warpfeed::{Error, ErrorKind, Result};

use crate::process::child;

const TARGET: &str = "WARPFEED_TEST_PACK_TWICE";

struct Numbered {
    set: u8,
    len: usize,
    pause: Duration,
}

impl Numbered {
    fn new(set: u8, len: usize) -> Self {
        Numbered { set, len, pause: Duration::ZERO }
    }
}

impl Source for Numbered {
    fn len(&self) -> usize {
        self.len
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        std::thread::sleep(self.pause);
        *scratch = vec![self.set; 5_000 + index % 7];
        Sample::new("k").with_field("bin", scratch)
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns the number of the dataset at `path`, and its length. Panics if the samples belong to
/// different datasets.
fn set_at(path: &Path) -> (u8, usize) {
    let source = open(path).unwrap();
    let mut scratch = Vec::new();
    let sets: Vec<u8> =
        (0..source.len()).map(|i| source.read(i, &mut scratch).unwrap().field("bin").unwrap()[0]).collect();
    assert!(sets.iter().all(|set| *set == sets[0]), "{sets:?}");
    (sets[0], sets.len())
}

fn is_refused(e: &Error, target: &Path) -> bool {
    e.kind() == ErrorKind::Config
        && e.cause().contains("another process is packing to the same target")
        && e.path() == Some(target)
}

#[test]
fn a_second_run_to_the_same_target_is_refused() {
    let root = tempfile::tempdir().unwrap();
    for (name, force) in [("x.lmdb", false), ("x.tar", false), ("x.lmdb", true), ("x.tar", true)] {
        let target = root.path().join(name);
        let mut refused = 0;
        let (first, second) = (Numbered::new(1, 900), Numbered::new(2, 900));
        let pack = Pack::new(&first).workers(1).keep_undecodable(true).force(force).progress(|progress| {
            if progress.samples % 300 == 7 {
                let e = Pack::new(&second).keep_undecodable(true).force(force).to(&target).unwrap_err();
                assert!(is_refused(&e, &target), "{e}");
                refused += 1;
            }
        });
        assert_eq!(pack.to(&target).unwrap().samples, 900);
        assert_eq!((refused, set_at(&target)), (3, (1, 900)), "{name}");
        assert!(names(root.path()).iter().all(|name| !name.contains("partial")), "{:?}", names(root.path()));
        let after = Pack::new(&second).keep_undecodable(true).force(true).to(&target).unwrap();
        assert_eq!((after.samples, set_at(&target)), (900, (2, 900)));
    }
}

#[test]
#[ignore = "started by another test"]
fn pack_without_end() {
    let Some(target) = std::env::var_os(TARGET) else { return };
    let endless = Numbered { set: 1, len: 1_000_000, pause: Duration::from_micros(200) };
    let _ = Pack::new(&endless).workers(1).keep_undecodable(true).to(target);
}

#[test]
fn a_run_removes_the_files_of_a_killed_process() {
    let root = tempfile::tempdir().unwrap();
    for name in ["x.lmdb", "x.tar"] {
        let folder = root.path().join(name.replace('.', "-"));
        fs::create_dir(&folder).unwrap();
        let target = folder.join(name);
        let mut process = child!(pack_without_end).env(TARGET, &target).stdout(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        let is_writing = || names(&folder).len() >= 2;
        while !is_writing() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let before = names(&folder);
        let refused = Pack::new(&Numbered::new(2, 10)).keep_undecodable(true).to(&target).unwrap_err();
        let (runs, after) = (process.try_wait().unwrap().is_none(), names(&folder));
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(runs && is_refused(&refused, &target), "{refused}");
        assert_eq!(before, after);
        assert_eq!(Pack::new(&Numbered::new(2, 10)).keep_undecodable(true).to(&target).unwrap().samples, 10);
        assert_eq!((set_at(&target), names(&folder)), ((2, 10), vec![name.to_owned()]));
    }
}

#[test]
fn concurrent_replacements_leave_one_complete_dataset() {
    let root = tempfile::tempdir().unwrap();
    for name in ["x.lmdb", "x.tar"] {
        let target = root.path().join(name);
        let done = std::sync::Mutex::new(0);
        std::thread::scope(|scope| {
            for set in 1..=4 {
                let (target, done) = (&target, &done);
                scope.spawn(move || {
                    for _ in 0..10 {
                        let source = Numbered::new(set, 20 + usize::from(set));
                        match Pack::new(&source).workers(1).keep_undecodable(true).force(true).to(target) {
                            Ok(report) => {
                                assert_eq!(report.samples, 20 + u64::from(set));
                                *done.lock().unwrap() += 1;
                            }
                            Err(e) => assert!(is_refused(&e, target), "{e}"),
                        }
                    }
                });
            }
        });
        assert!(*done.lock().unwrap() > 0);
        let (set, samples) = set_at(&target);
        assert_eq!(samples, 20 + usize::from(set));
    }
    assert_eq!(names(root.path()), ["x.lmdb", "x.tar"]);
}

fn shards(folder: &Path, set: u8, samples: usize, force: bool) -> Result<u64> {
    let options = WriteOptions { force, shard_size: Some(1), ..WriteOptions::default() };
    let mut writer = Box::new(TarWriter::create(folder.join("x.tar"), &options)?);
    let bytes = vec![set; 3000];
    (0..samples).try_for_each(|i| writer.put(&Sample::new(&i.to_string()).with_field("bin", &bytes)?))?;
    writer.finish().map(|written| written.samples)
}

#[test]
fn old_shards_are_removed_before_new_ones_get_their_names() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(shards(root.path(), 1, 5, false).unwrap(), 5);
    assert_eq!(shards(root.path(), 2, 3, true).unwrap(), 3);
    assert_eq!((set_at(root.path()), names(root.path()).len()), ((2, 3), 3));
    // A folder in place of a shard makes publishing fail halfway, as in a crash.
    let middle = root.path().join("x-000001.tar");
    fs::remove_file(&middle).unwrap();
    fs::create_dir(&middle).unwrap();
    shards(root.path(), 3, 3, true).unwrap_err();
    let tars = ["x-000000.tar", "x-000002.tar"].map(|name| root.path().join(name));
    let sets: Vec<u8> = tars.iter().filter(|tar| tar.exists()).map(|tar| set_at(tar).0).collect();
    assert!(sets.iter().all(|set| *set == 2) || sets.iter().all(|set| *set == 3), "{sets:?}");
    assert!(names(root.path()).iter().all(|name| !name.contains("partial")));
}

#[test]
fn replacing_a_packed_dataset_replaces_its_manifest() {
    let root = tempfile::tempdir().unwrap();
    let set = Memory::new((0..4).map(|i| OwnedSample::new(i.to_string()).field("bin", vec![1; 10])).collect());
    Pack::new(&set).keep_undecodable(true).shard_samples(2).to(root.path().join("x.tar")).unwrap();
    assert!(root.path().join("x.manifest.json").exists());
    shards(root.path(), 2, 3, true).unwrap();
    assert_eq!(set_at(root.path()), (2, 3));
}
