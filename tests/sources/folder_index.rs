//! Tests that a folder opened with an index has the samples of a new listing, even if the folder
//! has changed. A damaged index must be rewritten. A file name that is not UTF-8 must make only its
//! own sample fail.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use warpfeed::source::{Options, Source, open};
use warpfeed::{Augment, Loader, OnError};

fn tree(files: &[&str]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    files.iter().for_each(|file| add(root.path(), file));
    backdate(&root.path().join("set"), 100);
    root
}

fn add(root: &Path, file: &str) {
    let path = root.join("set").join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, file).unwrap();
}

fn backdate(path: &Path, seconds: u64) {
    for entry in fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            backdate(&entry, seconds);
        }
    }
    File::open(path).unwrap().set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
}

fn index(root: &Path) -> PathBuf {
    root.join("set.warpfeed-index")
}

type Row = (String, Option<i64>, Vec<u8>);

fn rows_and_classes(source: &dyn Source) -> (Vec<Row>, Vec<String>) {
    let mut scratch = Vec::new();
    let row = |i| {
        let sample = source.read(i, &mut scratch).unwrap();
        (sample.key().to_owned(), sample.label().unwrap(), sample.image().unwrap().1.to_owned())
    };
    ((0..source.len()).map(row).collect(), source.classes().to_vec())
}

fn same(root: &Path) -> usize {
    let set = root.join("set");
    let listed = rows_and_classes(&*open(&set).unwrap());
    for _ in 0..2 {
        assert_eq!(rows_and_classes(&*Options::new().cache_listing(true).open(&set).unwrap()), listed);
    }
    listed.0.len()
}

#[test]
fn the_index_equals_a_listing_and_follows_changed_names() {
    for files in [&["b/2.jpg", "a/x/1.png", "a/1.jpg", "c/no.txt"][..], &["2.jpg", "1.jpg"]] {
        let root = tree(files);
        assert!(!index(root.path()).exists());
        let before = same(root.path());
        assert!(index(root.path()).exists() && !root.path().join("set/.warpfeed-index").exists());
        let written = fs::metadata(index(root.path())).unwrap().modified().unwrap();
        same(root.path());
        assert_eq!(fs::metadata(index(root.path())).unwrap().modified().unwrap(), written, "a valid index is kept");
        let dir = root.path().join("set").join(files[0]).parent().unwrap().to_owned();
        fs::write(dir.join("new.jpg"), "new").unwrap();
        assert_eq!(same(root.path()), before + 1, "a file was added");
        fs::rename(dir.join("new.jpg"), dir.join("newer.jpg")).unwrap();
        assert_eq!(same(root.path()), before + 1);
        fs::remove_file(dir.join("newer.jpg")).unwrap();
        assert_eq!(same(root.path()), before, "a file was removed");
        backdate(&root.path().join("set"), 50);
        assert_eq!(same(root.path()), before);
        add(root.path(), "d/e/f.jpg");
        same(root.path());
    }
}

#[test]
fn only_the_index_is_read_while_no_folder_has_changed() {
    let root = tree(&["a/1.jpg", "a/2.jpg"]);
    same(root.path());
    // Remove a file, but restore the folder's modification time, which users must never do. The
    // stale result proves that the index was used.
    let set = root.path().join("set");
    let time = fs::metadata(set.join("a")).unwrap().modified().unwrap();
    fs::remove_file(set.join("a/2.jpg")).unwrap();
    File::open(set.join("a")).unwrap().set_modified(time).unwrap();
    let source = Options::new().cache_listing(true).open(&set).unwrap();
    assert_eq!((source.len(), open(&set).unwrap().len()), (2, 1));
    assert!(source.read(1, &mut Vec::new()).unwrap_err().path().unwrap().ends_with("a/2.jpg"));
}

#[test]
fn a_damaged_or_unwritable_index_is_ignored() {
    let root = tree(&["a/1.jpg", "b/2.jpg"]);
    same(root.path());
    let bytes = fs::read(index(root.path())).unwrap();
    for damaged in [&bytes[..bytes.len() / 2], &[], b"wffoldr\x01", &[7; 300]] {
        fs::write(index(root.path()), damaged).unwrap();
        assert_eq!(same(root.path()), 2);
        assert_eq!(fs::read(index(root.path())).unwrap(), bytes, "the damaged index is rewritten");
    }
    fs::remove_file(index(root.path())).unwrap();
    fs::create_dir(index(root.path())).unwrap();
    fs::write(index(root.path()).join("full"), "").unwrap();
    assert_eq!(same(root.path()), 2);
    let names: Vec<_> = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "an incomplete file remains: {names:?}");
}

#[test]
fn a_recently_changed_folder_gets_no_index() {
    let root = tree(&["a/1.jpg", "b/2.jpg"]);
    add(root.path(), "b/3.jpg");
    same(root.path());
    assert!(!index(root.path()).exists());
}

#[test]
fn the_loader_keeps_an_index_on_request_and_ranks_share_it() {
    let root = tree(&["a/1.jpg"]);
    let set = root.path().join("set");
    for i in 0..6 {
        image::RgbImage::new(8, 8).save(set.join(format!("a/{i}.png"))).unwrap();
    }
    fs::remove_file(set.join("a/1.jpg")).unwrap();
    backdate(&set, 100);
    let labels = |rank| {
        let loader = Loader::new(&set).cache_listing(true).augment(Augment::pass_through(8, 8)).batch_size(3);
        loader.rank(rank, 2).into_iter().next().unwrap().unwrap().sample_keys().map(str::to_owned).collect::<Vec<_>>()
    };
    let keys: Vec<String> = std::thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| scope.spawn(move || labels(rank)));
        ranks.into_iter().flat_map(|rank| rank.join().unwrap()).collect()
    });
    assert_eq!(keys.len(), 6);
    assert!(index(root.path()).exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_non_utf8_name_is_one_bad_sample() {
    use std::os::unix::ffi::OsStrExt;
    let root = tree(&["a/1.jpg", "b/x.jpg"]);
    let set = root.path().join("set");
    fs::remove_file(set.join("a/1.jpg")).unwrap();
    fs::remove_file(set.join("b/x.jpg")).unwrap();
    for name in [&b"a/1.png"[..], b"a/caf\xe9.png", b"b/2.png"] {
        let png = root.path().join("x.png");
        image::RgbImage::new(8, 8).save(&png).unwrap();
        fs::rename(png, set.join(std::ffi::OsStr::from_bytes(name))).unwrap();
    }
    backdate(&set, 100);
    for indexed in [false, true] {
        let loader = || Loader::new(&set).cache_listing(indexed).augment(Augment::pass_through(8, 8));
        let e = loader().into_iter().find_map(Result::err).unwrap();
        assert_eq!((e.sample(), e.path()), (Some(1), Some(&*PathBuf::from(format!("{}/", set.display())))));
        assert_eq!(e.cause(), "the name \"a/caf\u{fffd}.png\" is not UTF-8: rename the file or folder");
        let mut batches = loader().on_error(OnError::Skip { max_skipped: 1 }).host().unwrap();
        let batch = batches.epoch(0).next().unwrap().unwrap();
        assert_eq!(batch.labels().unwrap(), [0, 1, 1]);
        assert_eq!(batch.valid().collect::<Vec<_>>(), [true, false, true]);
    }
}
