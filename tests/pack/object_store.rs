//! Tests that packing to an object store writes the same bytes as packing to a folder, for any
//! number of parts and attempts. Readers must see the whole dataset or none of it, and objects must
//! never change.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use warpfeed::pack::{Merge, Pack, Report};
use warpfeed::source::{Memory, Object, Options, OwnedSample, Source, Store, Upload};
use warpfeed::{Error, Result};

use crate::before_read::BeforeRead;
use crate::parts::{files, numbers, read_all};

pub(crate) const URL: &str = "mem://bucket/sets/x.tar";
const FOLDER: &str = "mem://bucket/sets/";

type Hook = Arc<dyn Fn(&str, &str) -> Result<()> + Send + Sync>;

/// Objects in memory. Every third request except uploads fails with a transient error.
#[derive(Clone, Default)]
pub(crate) struct Objects {
    contents: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    requests: Arc<AtomicUsize>,
    /// Called before each request, and after each upload has been stored.
    hook: Option<Hook>,
    /// Uploads to URLs with this suffix are rejected, as S3 does while a concurrent upload
    /// completes.
    refused: Option<&'static str>,
    /// Whether requests for a missing object fail with an error other than "not found".
    unsure: bool,
}

impl Objects {
    fn hooked(&self, hook: impl Fn(&str, &str) -> Result<()> + Send + Sync + 'static) -> Self {
        Objects { hook: Some(Arc::new(hook)), ..self.clone() }
    }

    fn call(&self, kind: &str, url: &str) -> Result<()> {
        self.hook.as_ref().map_or(Ok(()), |hook| hook(kind, url))
    }

    fn request(&self, kind: &str, url: &str) -> Result<()> {
        self.call(kind, url)?;
        match self.requests.fetch_add(1, Ordering::Relaxed) % 3 {
            2 => Err(Error::in_source("busy").transient()),
            _ => Ok(()),
        }
    }

    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let contents = self.contents.lock().unwrap();
        contents.iter().map(|(url, bytes)| (url.strip_prefix(FOLDER).unwrap().to_owned(), bytes.clone())).collect()
    }

    fn names(&self) -> Vec<String> {
        self.files().into_keys().collect()
    }

    fn options(&self) -> Options {
        Options::new().store("mem", Arc::new(self.clone()) as Arc<dyn Store>)
    }

    fn open(&self) -> Result<Vec<OwnedSample>> {
        self.options().open(FOLDER).map(|set| read_all(&*set))
    }

    pub(crate) fn stores(&self) -> [(&'static str, Arc<dyn Store>); 1] {
        [("mem", Arc::new(self.clone()))]
    }

    fn pack<'a>(&self, source: &'a dyn Source) -> Pack<'a> {
        Pack::new(source).workers(2).shard_samples(4).stores(self.stores())
    }

    pub(crate) fn part(&self, source: &dyn Source, part: (u64, u64)) -> Result<Report> {
        self.pack(source).part(part.0, part.1).to(URL)
    }

    pub(crate) fn merge(&self) -> Merge {
        Merge::new(URL).stores(self.stores())
    }
}

impl Store for Objects {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.request("list", prefix)?;
        let contents = self.contents.lock().unwrap();
        let matching = contents.iter().filter(|(url, _)| url.starts_with(prefix));
        Ok(matching.map(|(url, b)| Object { url: url.clone(), len: b.len() as u64, tag: None, server: None }).collect())
    }

    fn object(&self, url: &str) -> Result<Object> {
        self.request("object", url)?;
        let stored = self.contents.lock().unwrap().get(url).map(|bytes| bytes.len() as u64);
        let absent = || Error::in_source("absent").at_path(url);
        let len = stored.ok_or_else(|| if self.unsure { absent() } else { absent().not_found() })?;
        Ok(Object { url: url.to_owned(), len, tag: None, server: None })
    }

    fn read(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
        self.request("read", &object.url)?;
        let contents = self.contents.lock().unwrap();
        let bytes = contents.get(&object.url).ok_or_else(|| Error::in_source("gone"))?;
        out.copy_from_slice(&bytes[offset as usize..][..out.len()]);
        Ok(())
    }

    fn create(&self, url: &str) -> Result<Box<dyn Upload>> {
        self.call("create", url)?;
        Ok(Box::new(Written { store: self.clone(), url: url.to_owned(), bytes: Vec::new() }))
    }

    fn remove(&self, url: &str) -> Result<()> {
        self.request("remove", url)?;
        self.contents.lock().unwrap().remove(url);
        Ok(())
    }
}

struct Written {
    store: Objects,
    url: String,
    bytes: Vec<u8>,
}

impl Upload for Written {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn complete(self: Box<Self>, new: bool) -> Result<bool> {
        if self.store.refused.is_some_and(|end| self.url.ends_with(end)) {
            return Ok(false);
        }
        let mut contents = self.store.contents.lock().unwrap();
        if contents.contains_key(&self.url) {
            assert!(new || !self.url.ends_with(".tar"), "{} is replaced", self.url);
            if new {
                return Ok(false);
            }
        }
        contents.insert(self.url.clone(), self.bytes.clone());
        drop(contents);
        self.store.call("stored", &self.url)?;
        Ok(true)
    }
}

fn local(source: &dyn Source) -> BTreeMap<String, Vec<u8>> {
    let root = tempfile::tempdir().unwrap();
    Pack::new(source).shard_samples(4).to(root.path().join("x.tar")).unwrap();
    files(root.path())
}

#[test]
fn packing_to_a_store_or_a_folder_gives_the_same_bytes() {
    let set = numbers(50);
    let expected = local(&set);
    let store = Objects::default();
    let report = store.pack(&set).to(URL).unwrap();
    assert_eq!((report.samples, report.written.paths.len()), (50, 13));
    assert_eq!(report.written.paths[1].to_str(), Some("mem://bucket/sets/x-000001.tar"));
    assert!(store.files() == expected, "{:?}", store.names());
    let e = store.pack(&set).to(URL).unwrap_err();
    assert!(e.cause().contains("already exists") && !e.cause().contains("force"), "{e}");
    for parts in [2, 5, 16] {
        let store = Objects::default();
        for number in (0..parts).rev() {
            store.part(&set, (number, parts)).unwrap();
            let e = store.open().unwrap_err();
            assert!(e.cause().contains("the set x is incomplete: "), "{e}");
            let twice = store.part(&set, (number, parts)).unwrap();
            assert_eq!(store.part(&set, (number, parts)).unwrap(), twice);
        }
        let merged = store.merge().run().unwrap();
        assert_eq!((merged.report.samples, merged.orphans.len()), (50, 0));
        assert_eq!(store.merge().run().unwrap(), merged);
        store.part(&set, (0, parts)).unwrap();
        assert!(store.files() == expected, "{parts} parts: {:?}", store.names());
        assert_eq!(store.open().unwrap(), read_all(&set));
    }
}

#[test]
fn a_dataset_that_was_packed_to_a_store_opens_without_reading_its_shards() {
    let bytes = |i: usize, len: usize| (0..len).map(|b| (b * i) as u8).collect::<Vec<_>>();
    let sample = |i: usize| {
        // The keys and names need PAX headers, repeat, or have several spellings.
        let key = ["a", "a", "b.c", "é", "../d", ""][i % 6];
        OwnedSample::new(key).field("jpeg", bytes(i, 300_000 + i)).field("x.txt", format!("{i}")).label(i as i64 % 2)
    };
    let names = ["cat", "dög"].map(str::to_owned);
    let set = Memory::new((0..12).map(sample).collect()).with_classes(names.clone());
    let store = Objects::default();
    store.pack(&set).keep_undecodable(true).to(URL).unwrap();
    let tar_reads = Arc::new(AtomicUsize::new(0));
    let counted = store.hooked({
        let tar_reads = tar_reads.clone();
        move |kind, url| {
            tar_reads.fetch_add(usize::from(kind == "read" && url.ends_with(".tar")), Ordering::Relaxed);
            Ok(())
        }
    });
    let opened = counted.options().open(FOLDER).unwrap();
    assert_eq!((opened.len(), tar_reads.load(Ordering::Relaxed)), (12, 0));
    assert_eq!(
        (opened.classes(), store.names().iter().filter(|name| name.ends_with(".index")).count()),
        (&names[..], 3)
    );
    let fingerprint = opened.fingerprint();
    let samples = read_all(&*opened);
    // Without the index, the shards are scanned, with the same result.
    store.contents.lock().unwrap().retain(|url, _| !url.ends_with(".index"));
    let scanned = store.options().open(FOLDER).unwrap();
    assert_eq!((scanned.fingerprint(), scanned.classes()), (fingerprint, &names[..]));
    assert_eq!(samples, read_all(&*scanned));
}

#[test]
fn an_interrupted_part_in_a_store_resumes_at_its_last_shard() {
    let (reads, fail_at) = (AtomicUsize::new(0), AtomicUsize::new(50 + 33));
    let set =
        BeforeRead(numbers(50), |_| match reads.fetch_add(1, Ordering::Relaxed) == fail_at.load(Ordering::Relaxed) {
            true => Err(Error::in_source("gone")),
            false => Ok(()),
        });
    let store = Objects::default();
    store.pack(&set).workers(1).to(URL).unwrap_err();
    assert_eq!(store.names().iter().filter(|name| name.ends_with(".tar")).count(), 8);
    assert!(store.open().is_err());
    reads.store(0, Ordering::Relaxed);
    fail_at.store(usize::MAX, Ordering::Relaxed);
    store.pack(&set).workers(1).to(URL).unwrap();
    assert_eq!(reads.load(Ordering::Relaxed), 50 + 50 - 32, "50 reads for the plan, and the 18 remaining samples");
    assert!(store.files() == local(&set.0));
}

#[test]
fn concurrent_attempts_and_merges_leave_one_dataset_in_a_store() {
    let set = BeforeRead(numbers(40), |_| {
        std::thread::sleep(std::time::Duration::from_micros(200));
        Ok(())
    });
    let store = Objects::default();
    std::thread::scope(|scope| {
        for attempt in 0..6 {
            let (store, set) = (&store, &set);
            scope.spawn(move || assert_eq!(store.part(set, (attempt % 2, 2)).unwrap().samples, 20));
        }
    });
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert_eq!(store.merge().run().unwrap().report.samples, 40));
        }
    });
    assert_eq!(store.merge().run().unwrap().orphans.len(), 0);
    assert!(store.files() == local(&set.0), "{:?}", store.names());
}

#[test]
fn a_late_attempt_changes_nothing_in_a_store() {
    let set = numbers(40);
    for stop_at in [0, 5, 19] {
        let store = Objects::default();
        let (reads, gate) = (AtomicUsize::new(0), (Mutex::new(false), std::sync::Condvar::new()));
        let waits = BeforeRead(numbers(40), |index| {
            if reads.fetch_add(1, Ordering::Relaxed) >= 40 && index == stop_at {
                let mut open = gate.0.lock().unwrap();
                while !*open {
                    open = gate.1.wait(open).unwrap();
                }
            }
            Ok(())
        });
        std::thread::scope(|scope| {
            let late = scope.spawn(|| store.part(&waits, (0, 2)));
            while reads.load(Ordering::Relaxed) <= 40 + stop_at {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            (0..2).for_each(|number| drop(store.part(&set, (number, 2)).unwrap()));
            store.merge().run().unwrap();
            *gate.0.lock().unwrap() = true;
            gate.1.notify_all();
            assert_eq!(late.join().unwrap().unwrap().samples, 20, "the late attempt finds the dataset");
        });
        assert_eq!(store.open().unwrap(), read_all(&set));
        assert_eq!(store.merge().run().unwrap().orphans.len(), 0);
        assert!(store.files() == local(&set), "{:?}", store.names());
    }
}

#[test]
fn objects_in_a_store_are_never_replaced() {
    let (set, other) = (numbers(40), numbers(44));
    let store = Objects::default();
    store.part(&set, (0, 2)).unwrap();
    let before = store.files();
    let e = store.part(&other, (1, 2)).unwrap_err();
    assert!(e.cause().contains("plans differ in samples") && e.cause().contains("delete its objects"), "{e}");
    let e = store.pack(&other).force(true).to(URL).unwrap_err();
    assert!(e.cause().contains("a dataset in a store is never replaced"), "{e}");
    assert!(store.merge().force(true).run().unwrap_err().cause().contains("is never replaced"));
    let e = store.merge().run().unwrap_err();
    assert!(e.cause().contains("part 1 of 2 is missing"), "{e}");
    assert!(store.files() == before);

    let foreign = format!("{FOLDER}x-000007.tar");
    let sound = local(&set)["x-000007.tar"].clone();
    let mut damaged = sound.clone();
    damaged[700] ^= 1;
    store.contents.lock().unwrap().insert(foreign.clone(), damaged.clone());
    let e = store.part(&set, (1, 2)).unwrap_err();
    assert!(e.cause().contains("different bytes: delete it") && e.path().unwrap().to_str() == Some(&foreign), "{e}");
    store.contents.lock().unwrap().remove(&foreign);
    store.part(&set, (1, 2)).unwrap();
    store.contents.lock().unwrap().insert(foreign.clone(), damaged);
    let e = store.merge().run().unwrap_err();
    assert!(e.cause().contains("missing or damaged: x-000007.tar (part 1/2)"), "{e}");
    store.contents.lock().unwrap().insert(foreign, sound);
    store.merge().run().unwrap();
    assert!(store.files() == local(&set));
    let e = store.part(&other, (1, 2)).unwrap_err();
    assert!(e.cause().contains("pack to a different URL; the plans differ in samples"), "{e}");
    assert!(!e.cause().contains("force"), "{e}");
    store.contents.lock().unwrap().remove(&format!("{FOLDER}x-000007.tar"));
    for e in [store.merge().run().unwrap_err(), store.part(&set, (1, 2)).unwrap_err()] {
        assert!(
            e.cause().ends_with("x-000007.tar; the dataset is already merged: delete its objects, and pack it again"),
            "{e}"
        );
    }
    // Shards without a manifest do not form a dataset.
    let store = Objects::default();
    store.contents.lock().unwrap().insert(format!("{FOLDER}x-000001.tar"), vec![0; 1024]);
    let e = store.pack(&set).to(URL).unwrap_err();
    assert!(e.cause().contains("already exists") && !e.cause().contains("force"), "{e}");
    assert_eq!(store.names(), ["x-000001.tar"]);
}

#[test]
fn targets_that_a_store_cannot_hold_are_refused() {
    struct ReadOnly(Objects);
    impl Store for ReadOnly {
        fn list(&self, prefix: &str) -> Result<Vec<Object>> {
            self.0.list(prefix)
        }
        fn object(&self, url: &str) -> Result<Object> {
            self.0.object(url)
        }
        fn read(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
            self.0.read(object, offset, out)
        }
    }
    let (set, store) = (numbers(10), Objects::default());
    let refused = |pack: Pack<'_>, url: &str, words: &str| {
        let e = pack.to(url).unwrap_err();
        assert!(e.cause().contains(words), "{e}");
    };
    refused(
        Pack::new(&set).stores(store.stores()),
        "mem://bucket/x.lmdb",
        "an LMDB can only be written to a local path",
    );
    refused(Pack::new(&set).stores(store.stores()), URL, "set shard_size(bytes) or shard_samples(samples)");
    refused(store.pack(&set), "s3://bucket/x.tar", "no store is registered for s3://");
    let read_only: Arc<dyn Store> = Arc::new(ReadOnly(store.clone()));
    refused(Pack::new(&set).shard_samples(4).stores([("mem", read_only)]), URL, "this store is read-only");
    assert!(store.names().is_empty());
    let root = tempfile::tempdir().unwrap();
    Pack::new(&set).shard_samples(4).to(format!("file://{}/x.tar", root.path().display())).unwrap();
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 4);
}

#[test]
fn an_upload_with_a_lost_reply_leaves_no_partial_dataset() {
    let set = numbers(10);
    let store = Objects::default();
    let lossy = store.hooked(|kind, url| match kind == "stored" && url.ends_with(".tar") {
        true => Err(Error::in_source("the answer was lost")),
        false => Ok(()),
    });
    let e = lossy.pack(&set).to(URL).unwrap_err();
    assert!(e.cause().contains("the answer was lost"), "{e}");
    assert!(store.names().contains(&"x-000000.tar".to_owned()), "{:?}", store.names());
    let e = store.open().unwrap_err();
    assert!(e.cause().contains("the set x is incomplete"), "{e}");
    store.pack(&set).to(URL).unwrap();
    assert!(store.files() == local(&set), "{:?}", store.names());
}

#[test]
fn unmerged_shards_do_not_open_even_without_the_plan() {
    let set = numbers(10);
    for kept_end in [".json", ".partial"] {
        let store = Objects::default();
        store.part(&set, (0, 2)).unwrap();
        let contents = || store.contents.lock().unwrap();
        contents().retain(|url, _| url.ends_with(".tar") || url.ends_with(kept_end));
        contents().remove(&format!("{FOLDER}x.plan.partial"));
        assert!(store.names().iter().any(|name| name.ends_with(kept_end)), "{:?}", store.names());
        let e = store.open().unwrap_err();
        assert!(e.cause().contains("the set x is incomplete"), "{e}");
    }
}

#[test]
fn a_refused_upload_does_not_claim_that_the_object_exists() {
    let (set, store) = (numbers(10), Objects::default());
    for (end, what) in [("x-000001.tar", "pack again"), ("x.manifest.json", "merge again")] {
        let refusing = Objects { refused: Some(end), ..store.clone() };
        let e = refusing.pack(&set).to(URL).unwrap_err();
        assert!(e.cause().contains("no object with this name exists") && e.cause().ends_with(what), "{e}");
        assert_eq!(e.path().unwrap().to_str(), Some(&*format!("{FOLDER}{end}")));
    }
    store.pack(&set).to(URL).unwrap();
    assert!(store.files() == local(&set), "{:?}", store.names());
}

#[test]
fn an_object_known_to_be_absent_needs_fewer_listings() {
    let set = numbers(50);
    let listings = |unsure: bool| {
        let (objects, lists) = (Objects { unsure, ..Objects::default() }, Arc::new(AtomicUsize::new(0)));
        let counts = lists.clone();
        let store = objects.hooked(move |kind, _| {
            counts.fetch_add(usize::from(kind == "list"), Ordering::Relaxed);
            Ok(())
        });
        (0..2).for_each(|number| drop(store.part(&set, (number, 2)).unwrap()));
        store.merge().run().unwrap();
        assert!(store.files() == local(&set), "{:?}", store.names());
        lists.load(Ordering::Relaxed)
    };
    let (sure, unsure) = (listings(false), listings(true));
    assert!(sure <= 15 && sure < unsure, "{sure} listings with \"not found\" errors, and {unsure} with other errors");
}

#[test]
fn an_overtaken_merge_returns_the_merged_dataset() {
    let set = numbers(40);
    // In turn, the other merge overtakes this one at its first request for a part, at its first
    // read of a shard, and before it writes the manifest.
    for (kind, fault) in [("object", ".part-"), ("read", "x-000003.tar"), ("create", "x.manifest.json")] {
        let store = Objects::default();
        (0..2).for_each(|number| drop(store.part(&set, (number, 2)).unwrap()));
        let (other, begun) = (store.clone(), AtomicUsize::new(0));
        let overtaken = store.hooked(move |now, url| {
            if now == kind && url.contains(fault) && begun.fetch_add(1, Ordering::Relaxed) == 0 {
                other.merge().run().unwrap();
                assert!(!other.names().iter().any(|name| name.contains(".part-")));
            }
            Ok(())
        });
        let merged = overtaken.merge().run().unwrap();
        assert_eq!((merged.report.samples, merged.orphans.len()), (40, 0), "{kind} {fault}");
        assert!(store.files() == local(&set), "{:?}", store.names());
    }
}

#[test]
fn a_part_started_during_the_merge_returns_the_dataset() {
    let set = numbers(40);
    let store = Objects::default();
    let (other, begun) = (store.clone(), AtomicUsize::new(0));
    let late = store.hooked(move |kind, url| {
        if kind == "create" && url.ends_with("x.plan.partial") && begun.fetch_add(1, Ordering::Relaxed) == 0 {
            (0..2).for_each(|number| drop(other.part(&numbers(40), (number, 2)).unwrap()));
            other.merge().run().unwrap();
        }
        assert!(kind != "create" || !url.contains("x-0"), "{url} is packed again");
        Ok(())
    });
    assert_eq!(late.part(&set, (0, 2)).unwrap().samples, 20);
    assert!(store.files() == local(&set), "{:?}", store.names());
}

#[test]
fn an_attempt_overtaken_by_the_merge_leaves_nothing_behind() {
    let set = numbers(40);
    let store = Objects::default();
    let (other, stored) = (store.clone(), AtomicUsize::new(0));
    let late = store.hooked(move |kind, url| {
        if kind == "stored" && url.ends_with("x-000001.tar") && stored.fetch_add(1, Ordering::Relaxed) == 0 {
            (0..2).for_each(|number| drop(other.part(&numbers(40), (number, 2)).unwrap()));
            other.merge().run().unwrap();
        }
        Ok(())
    });
    assert_eq!(late.part(&set, (0, 2)).unwrap().samples, 20);
    assert!(store.files() == local(&set), "{:?}", store.names());
}
