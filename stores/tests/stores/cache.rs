//! Tests that reads through the cache return the same bytes as reads from the store, with several
//! cache sizes and numbers of processes, and despite killed processes, damaged blocks, a full disk,
//! a read-only folder, and changed objects. The cache must delete only files that it has written.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::process::child;
use warpfeed::sampler::{Position, Rng, Sampler, Shuffled};
use warpfeed::source::{BatchIndex, Lookahead, Object, ReadCompletion, Store, Tier};
use warpfeed::{Error, Result};
use warpfeed_stores::{Cache, check, empty, show};

/// Number of samples. Each has 40 to 20,000 bytes.
const SAMPLES: u64 = 200;

fn offset_of(sample: u64) -> u64 {
    (0..sample).map(len).sum()
}

fn len(sample: u64) -> u64 {
    40 + sample * 7919 % 19_960
}

/// A store with one object. The content of the object depends on its version. The store counts the
/// bytes that are read.
struct Objects {
    version: Mutex<u64>,
    bytes: AtomicU64,
}

impl Objects {
    fn new(version: u64) -> Arc<Self> {
        Arc::new(Objects { version: Mutex::new(version), bytes: AtomicU64::new(0) })
    }
}

fn content(version: u64, offset: u64, out: &mut [u8]) {
    for (i, byte) in (offset..).zip(out) {
        *byte = ((i ^ version).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8;
    }
}

impl Store for Objects {
    fn list(&self, _: &str) -> Result<Vec<Object>> {
        Ok(vec![self.object("mem://set/x")?])
    }

    fn object(&self, url: &str) -> Result<Object> {
        Ok(Object {
            url: url.to_owned(),
            len: offset_of(SAMPLES),
            tag: Some(self.version.lock().unwrap().to_string()),
            server: None,
        })
    }

    fn read(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
        let version = *self.version.lock().unwrap();
        if object.tag != Some(version.to_string()) {
            return Err(Error::in_source("a different version"));
        }
        self.bytes.fetch_add(out.len() as u64, Relaxed);
        content(version, offset, out);
        Ok(())
    }
}

fn lookahead() -> Lookahead {
    let index_at = |epoch: u64, position: u64| Shuffled::new(SAMPLES, 3).index(epoch, position);
    let samples = move |index: BatchIndex| Some((0..10).map(|i| index_at(index.epoch, index.batch * 10 + i)).collect());
    Lookahead::new(0, |_| SAMPLES / 10, samples).with_next(|epoch, sample, batch| {
        match Shuffled::new(SAMPLES, 3).position(epoch, sample, batch * 10) {
            Position::At(position) => Position::At(position / 10),
            other => other,
        }
    })
}

/// Reads `batches` batches in the order of a loader, starting at `index`, and compares every byte.
/// Offers the samples that are not in the cache to the cache. Returns the index after the last
/// batch.
fn epochs(store: &Arc<dyn Store>, mut index: BatchIndex, batches: u64) -> BatchIndex {
    let (order, object) = (lookahead(), store.object("mem://set/x").unwrap());
    let version: u64 = object.tag.as_ref().unwrap().parse().unwrap();
    let keep = store.object_cache(9, &order).unwrap();
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..batches {
        keep.advance_to(index);
        for sample in order.samples(index).unwrap() {
            bytes.clear();
            bytes.resize(len(sample) as usize, 0);
            expected.resize(bytes.len(), 0);
            content(version, offset_of(sample), &mut expected);
            let has = keep.contains(&object, offset_of(sample), len(sample));
            let is_hit = keep.get(&object, offset_of(sample), &mut bytes).is_some();
            if !is_hit {
                let (send, fetched) = mpsc::channel();
                let range = offset_of(sample)..offset_of(sample) + len(sample);
                store.fetch(&object, range, ReadCompletion::new(move |bytes| send.send(bytes).unwrap()));
                bytes = fetched.recv().unwrap().unwrap();
                keep.offer(&object, offset_of(sample), &bytes, sample, order.next_batch(index));
            }
            assert!(bytes == expected, "sample {sample} at {index:?}");
            // A damaged block is a cache miss. Another process may write a block between the calls.
            assert!(is_hit <= has || std::env::var_os("WARPFEED_TEST_CACHE").is_some(), "sample {sample} at {index:?}");
        }
        index = order.next_batch(index);
    }
    index
}

/// Opens the folder again, with a cache that shares no state in memory with earlier ones. Normally,
/// a process has only one cache per folder, limit and amount of memory, so this function varies the
/// amount of memory.
fn open_as_another_process(folder: &Path, limit: u64) -> Cache {
    static MEMORY: AtomicU64 = AtomicU64::new(0);
    Cache::with_memory(folder, limit, 1 + MEMORY.fetch_add(1, Relaxed) % 40).unwrap()
}

fn files(path: &Path) -> Vec<(PathBuf, u64)> {
    let mut list = Vec::new();
    for entry in fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
        // Another process may have removed the file.
        match fs::metadata(&entry) {
            Ok(metadata) if metadata.is_dir() => list.extend(files(&entry)),
            Ok(metadata) => list.push((entry, metadata.len())),
            Err(_) => {}
        }
    }
    list
}

fn blocks(path: &Path) -> Vec<(PathBuf, u64)> {
    files(&path.join("blocks"))
}

#[test]
fn reads_through_the_cache_return_the_bytes_of_the_store() {
    let dataset_bytes = offset_of(SAMPLES);
    for (limit, memory) in [
        (0, 0),
        (1, 1),
        (10_000, 0),
        (dataset_bytes / 3, 0),
        (dataset_bytes / 3, dataset_bytes / 10),
        (4 * dataset_bytes, 0),
        (0, dataset_bytes / 2),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::new(1);
        let cache = Cache::with_memory(folder.path(), limit, memory).unwrap();
        let store = cache.store(objects.clone());
        epochs(&store, BatchIndex::default(), 6 * SAMPLES / 10);
        let written: u64 = blocks(folder.path()).iter().map(|(_, len)| len.next_multiple_of(4096)).sum();
        assert!(written <= limit, "{written} bytes are cached, but the limit is {limit}");
        let counts = cache.stats();
        assert_eq!(counts.memory_bytes + counts.disk_bytes + counts.missed_bytes, 6 * dataset_bytes);
        if limit > dataset_bytes {
            assert_eq!((objects.bytes.load(Relaxed), counts.hit_rate()), (dataset_bytes, Some(5.0 / 6.0)));
            let again = open_as_another_process(folder.path(), limit);
            epochs(&again.store(objects.clone()), BatchIndex::default(), SAMPLES / 10);
            assert_eq!((objects.bytes.load(Relaxed), again.stats().hit_rate()), (dataset_bytes, Some(1.0)));
        }
        // The cache does not know the order of these reads.
        let object = store.object("mem://set/x").unwrap();
        for sample in (0..SAMPLES).chain(0..SAMPLES) {
            let mut ranges = vec![0; 2 * len(sample) as usize];
            let (bytes, half) = ranges.split_at_mut(len(sample) as usize);
            store
                .read_ranges(&object, &mut [(offset_of(sample), &mut *bytes), (offset_of(sample) + 1, &mut half[1..])])
                .unwrap();
            let mut expected = vec![0; bytes.len()];
            content(1, offset_of(sample), &mut expected);
            assert!(
                bytes == expected
                    && half[1..expected.len()] == {
                        content(1, offset_of(sample) + 1, &mut expected);
                        expected
                    }[..half.len() - 1]
            );
        }
    }
}

#[test]
fn a_cache_of_a_third_of_the_data_serves_a_third_of_the_bytes() {
    let folder = tempfile::tempdir().unwrap();
    // Blocks occupy whole pages on disk.
    let pages: u64 = (0..SAMPLES).map(|sample| (len(sample) + 100).next_multiple_of(4096)).sum();
    let cache = Cache::open(folder.path(), pages / 3).unwrap();
    let store = cache.store(Objects::new(1));
    let index = epochs(&store, BatchIndex::default(), SAMPLES / 10);
    let before = cache.stats();
    epochs(&store, index, 20 * SAMPLES / 10);
    let counts = cache.stats();
    let hits = (counts.disk_hits - before.disk_hits) as f64 / (20 * SAMPLES) as f64;
    assert!(hits > 0.31, "{hits:.3}");
    // An LRU cache would miss, and write, nearly every block that it reads.
    assert!(counts.written_bytes < 15 * offset_of(SAMPLES), "{counts:?}");
}

/// Some tests kill this process before it ends.
#[test]
#[ignore = "started by other tests"]
fn child_process_fills_the_cache() {
    let Some(folder) = std::env::var_os("WARPFEED_TEST_CACHE") else { return };
    let number = |name| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let cache = Cache::open(folder, number("WARPFEED_TEST_BYTES")).unwrap();
    let store = cache.store(Objects::new(1));
    let index = BatchIndex { epoch: number("WARPFEED_TEST_EPOCH"), batch: 0 };
    epochs(&store, index, number("WARPFEED_TEST_BATCHES"));
}

fn filler(folder: &Path, bytes: u64, epoch: u64, batches: u64) -> Child {
    let mut command = child!(child_process_fills_the_cache);
    command.env("WARPFEED_TEST_CACHE", folder).env("WARPFEED_TEST_BYTES", bytes.to_string());
    command.env("WARPFEED_TEST_EPOCH", epoch.to_string()).env("WARPFEED_TEST_BATCHES", batches.to_string());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn check_folder(folder: &Path, limit: u64) {
    let cache = open_as_another_process(folder, limit);
    epochs(&cache.store(Objects::new(1)), BatchIndex::default(), 2 * SAMPLES / 10);
    assert_eq!(cache.stats().damaged, 0);
    let contents = check(folder).unwrap();
    assert_eq!((contents.damaged, &contents.others[..]), (0, &[][..]));
    assert!(contents.bytes <= limit, "{} bytes are cached, but the limit is {limit}", contents.bytes);
    assert_eq!(contents.blocks as usize, blocks(folder).len());
}

#[test]
fn processes_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let limit = offset_of(SAMPLES) / 2;
    let path = folder.path().join("new/cache");
    let fillers: Vec<_> = (0..4).map(|epoch| filler(&path, limit, epoch, 3 * SAMPLES / 10)).collect();
    for mut filler in fillers {
        assert!(filler.wait().unwrap().success(), "a process read wrong bytes");
    }
    assert!(!blocks(&path).is_empty());
    check_folder(&path, limit);
}

#[test]
fn killed_processes_leave_a_valid_folder() {
    let mut rng = Rng::new(25, 0, 0);
    let folder = tempfile::tempdir().unwrap();
    let limit = offset_of(SAMPLES) / 3;
    for schedule in 0..52 {
        let path = folder.path().join((schedule / 4).to_string());
        let mut fillers: Vec<_> = (0..1 + schedule % 3).map(|i| filler(&path, limit, schedule + i, 1 << 40)).collect();
        for filler in &mut fillers {
            std::thread::sleep(Duration::from_micros(rng.below(40_000)));
            filler.kill().unwrap();
            assert!(!filler.wait().unwrap().success(), "the process read wrong bytes, and ended before it was killed");
        }
        if path.join("warpfeed-cache").exists() {
            check_folder(&path, limit);
        }
    }
}

#[test]
fn lost_blocks_and_a_damaged_journal_are_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), 1 << 30).unwrap();
    epochs(&cache.store(Objects::new(1)), BatchIndex::default(), SAMPLES / 10);
    // If a process is killed before it renames its files, the blocks are in the journal but have no
    // files.
    let paths = blocks(folder.path());
    paths.iter().take(20).for_each(|(path, _)| fs::remove_file(path).unwrap());
    // Simulate a process or machine that stopped while it wrote a record.
    let journal = folder.path().join("journal");
    let mut records = fs::read(&journal).unwrap();
    records.extend_from_slice(b"part of a record");
    fs::write(&journal, records).unwrap();
    let again = open_as_another_process(folder.path(), 1 << 30);
    epochs(&again.store(Objects::new(1)), BatchIndex::default(), 2 * SAMPLES / 10);
    assert_eq!(blocks(folder.path()).len(), paths.len(), "missing blocks are written again");
    check_folder(folder.path(), 1 << 30);
    for content in [None, Some("not a journal at all")] {
        fs::remove_file(&journal).unwrap();
        if let Some(content) = content {
            fs::write(&journal, content).unwrap();
        }
        let objects = Objects::new(1);
        epochs(
            &open_as_another_process(folder.path(), 1 << 30).store(objects.clone()),
            BatchIndex::default(),
            SAMPLES / 10,
        );
        assert_eq!(objects.bytes.load(Relaxed), 0);
        check_folder(folder.path(), 1 << 30);
    }
}

#[test]
fn a_damaged_block_is_fetched_again() {
    let mut rng = Rng::new(1, 2, 3);
    let folder = tempfile::tempdir().unwrap();
    let objects = Objects::new(1);
    epochs(&Cache::open(folder.path(), 1 << 30).unwrap().store(objects.clone()), BatchIndex::default(), SAMPLES / 10);
    let paths = blocks(folder.path());
    for (number, (path, _)) in paths.iter().enumerate() {
        let mut bytes = fs::read(path).unwrap();
        match number % 4 {
            0 => {
                let bit = rng.below(8 * bytes.len() as u64);
                bytes[bit as usize / 8] ^= 1 << (bit % 8);
            }
            1 => bytes.truncate(rng.below(bytes.len() as u64) as usize),
            2 => bytes.push(0),
            _ => bytes = fs::read(&paths[number - 1].0).unwrap(),
        }
        fs::write(path, bytes).unwrap();
    }
    let cache = Cache::open(folder.path(), 1 << 30).unwrap();
    epochs(&cache.store(objects.clone()), BatchIndex::default(), SAMPLES / 10);
    assert_eq!((cache.stats().damaged, objects.bytes.load(Relaxed)), (SAMPLES, 2 * offset_of(SAMPLES)));
    check_folder(folder.path(), 1 << 30);
    fs::write(&paths[0].0, "").unwrap();
    let mut bytes = fs::read(&paths[1].0).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&paths[1].0, bytes).unwrap();
    assert_eq!(check(folder.path()).unwrap().damaged, 2);
    assert!(!paths[0].0.exists() && !paths[1].0.exists());
    check_folder(folder.path(), 1 << 30);
}

#[cfg(unix)]
#[test]
fn a_block_that_cannot_be_opened_is_not_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let objects = Objects::new(1);
    epochs(&Cache::open(folder.path(), 1 << 30).unwrap().store(objects.clone()), BatchIndex::default(), SAMPLES / 10);
    // Opening a link to itself fails, even for root.
    let (path, _) = &blocks(folder.path())[0];
    fs::remove_file(path).unwrap();
    std::os::unix::fs::symlink(path, path).unwrap();
    let cache = Cache::open(folder.path(), 1 << 30).unwrap();
    let before = objects.bytes.load(Relaxed);
    epochs(&cache.store(objects.clone()), BatchIndex::default(), SAMPLES / 10);
    assert!(objects.bytes.load(Relaxed) > before, "the bytes are fetched");
    assert_eq!(cache.stats().damaged, 0);
    assert!(path.is_symlink(), "the file is kept");
}

#[test]
fn a_changed_object_never_returns_old_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let objects = Objects::new(1);
    let cache = Cache::with_memory(folder.path(), 1 << 30, offset_of(SAMPLES) / 2).unwrap();
    let store = cache.store(objects.clone());
    for version in [1, 2, 1, 3] {
        *objects.version.lock().unwrap() = version;
        epochs(&store, BatchIndex::default(), 2 * SAMPLES / 10);
    }
    assert_eq!(objects.bytes.load(Relaxed), 3 * offset_of(SAMPLES));
    // The versions of objects without a tag cannot be distinguished.
    let keep = store.object_cache(9, &lookahead()).unwrap();
    let untagged = Object { tag: None, ..store.object("mem://set/x").unwrap() };
    keep.offer(&untagged, 0, &[1; 5000], 0, BatchIndex::default());
    assert!(keep.get(&untagged, 0, &mut [0; 5000]).is_none());
}

#[test]
fn a_foreign_folder_is_refused_and_nothing_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |path: &Path, words: &str| {
        for e in [Cache::open(path, 1000).err().unwrap(), empty(path).err().unwrap()] {
            assert!(e.cause().contains(words) && e.path() == Some(path), "{e}");
        }
    };
    let photos = folder.path().join("photos");
    fs::create_dir(&photos).unwrap();
    fs::write(photos.join("only-copy.jpg"), "x").unwrap();
    let e = Cache::open(&photos, 1000).err().unwrap();
    assert!(e.cause().contains("contains \"only-copy.jpg\": choose an empty folder"), "{e}");
    assert!(empty(&photos).is_err() && show(folder.path().join("none")).is_err());
    assert!(Cache::open(photos.join("only-copy.jpg"), 1000).is_err());
    assert_eq!(files(folder.path()).len(), 1);

    for name in ["journal", "lock", "blocks", "partial", "files"] {
        let mine = folder.path().join("mine");
        let file = mine.join(name).join("00").join("0".repeat(32));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "x").unwrap();
        let e = Cache::open(&mine, 1000).err().unwrap();
        assert!(e.cause().contains(&format!("contains {name:?}: choose an empty folder")), "{e}");
        assert!(check(&mine).is_err() && files(&mine).len() == 1);
        fs::remove_dir_all(&mine).unwrap();
    }

    let path = folder.path().join("cache");
    let cache = Cache::open(&path, 50_000).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    // `old` are old files in the folder for partial files, and `block` is a user's file with the
    // name of a block.
    let old = [path.join("partial/notes.txt"), path.join("partial/1-2-3")];
    let block = path.join("blocks/00").join("0".repeat(32));
    fs::create_dir_all(block.parent().unwrap()).unwrap();
    for mine in old.iter().chain([&block]) {
        let hours = std::time::SystemTime::now() - Duration::from_secs(7200);
        fs::File::create(mine).unwrap().set_modified(hours).unwrap();
    }
    assert_eq!(check(&path).unwrap().others, std::slice::from_ref(&block));
    open_as_another_process(&path, 50_000);
    assert_eq!([old[0].exists(), old[1].exists(), block.exists()], [true, false, true]);
    fs::remove_file(block).unwrap();
    fs::remove_file(&old[0]).unwrap();
    epochs(&cache.store(Objects::new(1)), BatchIndex::default(), 1);
    let others = [path.join("blocks/mine.jpg"), blocks(&path)[0].0.with_file_name("mine.jpg")];
    others.iter().for_each(|other| fs::write(other, "x").unwrap());
    epochs(&cache.store(Objects::new(1)), BatchIndex::default(), 3 * SAMPLES / 10);
    let mut actual = check(&path).unwrap().others;
    actual.sort();
    let mut expected = others.to_vec();
    expected.sort();
    assert_eq!(actual, expected);
    let before = show(&path).unwrap();
    assert_eq!(before.sets.keys().collect::<Vec<_>>(), ["mem://set"]);
    assert_eq!(empty(&path).unwrap(), before);
    assert_eq!((show(&path).unwrap().blocks, blocks(&path).len()), (0, 2));
    epochs(&cache.store(Objects::new(1)), BatchIndex::default(), SAMPLES / 10);
    assert!(show(&path).unwrap().blocks > 0);

    let elsewhere = folder.path().join("elsewhere");
    fs::rename(path.join("partial"), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, path.join("partial")).unwrap();
    refused(&path, "\"partial\" in the cache is a symbolic link");
    fs::remove_file(path.join("partial")).unwrap();
    fs::rename(elsewhere, path.join("partial")).unwrap();
    let shared = folder.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    let e = Cache::open(&shared, 1000).err().unwrap();
    assert!(e.cause().contains("writable by all users"), "{e}");

    fs::write(path.join("notes.txt"), "x").unwrap();
    refused(&path, "contains \"notes.txt\"");
    fs::remove_file(path.join("notes.txt")).unwrap();
    fs::write(path.join("warpfeed-cache"), "warpfeed cache, version 9\n").unwrap();
    refused(&path, "a different version (\"warpfeed cache, version 9\")");
}

#[test]
fn objects_without_a_strong_version_are_not_cached() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::with_memory(folder.path(), 1 << 30, 1 << 20).unwrap();
    let store = cache.store(Objects::new(1));
    let keep = store.object_cache(9, &lookahead()).unwrap();
    for (tag, is_cached) in [(None, false), (Some("W/\"1\""), false), (Some("\"1\""), true)] {
        let object = Object { url: "mem://set/y".to_owned(), len: 9, tag: tag.map(str::to_owned), server: None };
        keep.offer(&object, 0, b"the bytes", 1, BatchIndex::default());
        assert_eq!(
            (keep.contains(&object, 0, 9), keep.get(&object, 0, &mut [0; 9]).is_some()),
            (is_cached, is_cached),
            "{tag:?}"
        );
    }
}

#[test]
fn reads_continue_if_the_folder_is_read_only() {
    let cache = Cache::open("/proc/warpfeed/cache", 1 << 30).unwrap();
    epochs(&cache.store(Objects::new(1)), BatchIndex::default(), SAMPLES / 10);
    assert_eq!((cache.stats().written_bytes, cache.stats().disk_hits), (0, 0));

    // A file in place of the folder `partial` makes writes fail for any user.
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), 1 << 30).unwrap();
    let store = cache.store(Objects::new(1));
    epochs(&store, BatchIndex::default(), 3);
    let block_count = blocks(folder.path()).len();
    fs::remove_dir_all(folder.path().join("partial")).unwrap();
    fs::write(folder.path().join("partial"), "").unwrap();
    epochs(&store, BatchIndex::default(), SAMPLES / 10);
    assert_eq!(
        (blocks(folder.path()).len(), cache.stats().disk_hits),
        (block_count, 30),
        "existing blocks are still read"
    );
}

/// This test needs the permission to mount a file system. Without it, only the previous test covers
/// the error.
#[cfg(target_os = "linux")]
#[test]
fn reads_continue_if_the_disk_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let mount = |options: &str| {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "warpfeed-test"]).arg(folder.path());
        command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    if !mount("size=400k") {
        return crate::require::missing("mount-as-root", "cannot mount a tmpfs");
    }
    let run = std::panic::catch_unwind(|| {
        let path = folder.path().join("cache");
        let cache = Cache::open(&path, 1 << 30).unwrap();
        epochs(&cache.store(Objects::new(1)), BatchIndex::default(), 2 * SAMPLES / 10);
        assert!(cache.stats().disk_hits > 0 && !blocks(&path).is_empty());
        assert!(files(&path.join("partial")).is_empty(), "a partial block remains");
        let contents = check(&path).unwrap();
        assert_eq!((contents.damaged, contents.others.len()), (0, 0));
        assert!(mount("remount,ro"));
        let cache = open_as_another_process(&path, 1 << 30);
        epochs(&cache.store(Objects::new(1)), BatchIndex::default(), SAMPLES / 10);
        assert_eq!((cache.stats().disk_hits, cache.stats().written_bytes), (contents.blocks, 0));
    });
    assert!(Command::new("umount").arg(folder.path()).status().unwrap().success());
    run.unwrap();
}

/// The test locks the folder through a separate open file, which has the same effect as a lock of
/// another process.
#[test]
fn a_slow_folder_does_not_delay_reads_from_memory() {
    let folder = tempfile::tempdir().unwrap();
    let objects = Objects::new(1);
    let cache = Cache::with_memory(folder.path(), 1 << 30, offset_of(60)).unwrap();
    let store = cache.store(objects);
    let (keep, object) = (store.object_cache(9, &lookahead()).unwrap(), store.object("mem://set/x").unwrap());
    let bytes = |sample: u64| {
        let mut bytes = vec![0; len(sample) as usize];
        content(1, offset_of(sample), &mut bytes);
        bytes
    };
    let mut tiers = Vec::new();
    for sample in 0..60 {
        keep.offer(&object, offset_of(sample), &bytes(sample), sample, BatchIndex::default());
        tiers
            .extend((keep.get(&object, offset_of(sample), &mut bytes(sample)) == Some(Tier::Memory)).then_some(sample));
    }
    assert!(tiers.len() > 20, "{tiers:?}");
    let (done, end) = mpsc::channel::<()>();
    let path = folder.path().join("lock");
    let reads = std::thread::scope(|scope| {
        // The other thread ends when `done` is dropped, even if this thread panics.
        let done = done;
        scope.spawn(move || {
            let lock = fs::File::options().write(true).open(path).unwrap();
            while end.try_recv() == Err(mpsc::TryRecvError::Empty) {
                lock.lock().unwrap();
                std::thread::sleep(Duration::from_millis(150));
                lock.unlock().unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let writes = scope.spawn(|| {
            for sample in 60..80 {
                keep.offer(&object, offset_of(sample), &bytes(sample), sample, BatchIndex::default());
            }
        });
        let expected: Vec<_> = tiers.iter().map(|&sample| (sample, bytes(sample))).collect();
        let mut reads = 0_u64;
        while !writes.is_finished() {
            for (sample, expected) in &expected {
                let (sample, mut actual) = (*sample, vec![0; expected.len()]);
                keep.advance_to(BatchIndex::default());
                // A sample that was evicted from memory is in the folder, or is a cache miss.
                let tier = keep.get(&object, offset_of(sample), &mut actual);
                reads += 1;
                assert!(tier.is_none() || actual == *expected);
            }
        }
        drop(done);
        reads
    });
    // Each of the 20 writes waits for the lock. If reads also waited, there would be only one read
    // per write.
    assert!(reads > 20 * 10, "{reads} reads during 20 writes");
    // The writing thread may evict a sample between these calls.
    for &sample in &tiers {
        let tier = keep.get(&object, offset_of(sample), &mut bytes(sample));
        assert!(keep.contains(&object, offset_of(sample), len(sample)) || tier.is_none());
    }
}

#[test]
fn a_lower_limit_shrinks_the_cache_in_bounded_steps() {
    let folder = tempfile::tempdir().unwrap();
    let cache_of = |limit: u64, dataset: u64| {
        let cache = open_as_another_process(folder.path(), limit);
        let keep = cache.store(Objects::new(1)).object_cache(dataset, &lookahead()).unwrap();
        move |offset: u64, len: usize| {
            let object = Object { url: "mem://set/z".into(), len: 1 << 40, tag: Some("1".into()), server: None };
            keep.offer(&object, offset, &vec![1; len], offset, BatchIndex::default());
        }
    };
    let offer = cache_of(1 << 30, 1);
    (0..600).for_each(|number| offer(number * 4000, 3000));
    assert_eq!(blocks(folder.path()).len(), 600);
    // The new limit is one block. Blocks that no loader needs are evicted first.
    drop(offer);
    let offer = cache_of(5000, 2);
    let block_counts: Vec<_> = (0..4)
        .map(|number| {
            offer(1_000_000_000 + number, 3000);
            blocks(folder.path()).len()
        })
        .collect();
    assert_eq!(block_counts[..2], [600 - 256, 600 - 512]);
    assert!(block_counts[2..].iter().all(|&count| count <= 1), "{block_counts:?}");
    check(folder.path()).unwrap();
}

#[test]
fn a_cache_folder_in_a_dataset_is_ignored() {
    let set = tempfile::tempdir().unwrap();
    for class in ["cat", "dog"] {
        std::fs::create_dir(set.path().join(class)).unwrap();
        std::fs::write(set.path().join(class).join("1.jpg"), b"x").unwrap();
    }
    let inside = set.path().join("cache");
    Cache::open(&inside, 1 << 20).unwrap();
    let e = warpfeed::source::open(set.path()).err().unwrap();
    assert!(e.cause().contains("the folder is a warpfeed cache") && e.path() == Some(&inside), "{e}");
}
