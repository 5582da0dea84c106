//! Promise: sets of records are read from a store by ranges, without a cache: a few samples take a
//! part of the bytes of the files, and the batches are those of the local set, bit for bit. What
//! cannot be read so is refused without a cache.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::formats::{copy, fixture, loads_as_reference, owned};
use crate::stores::Objects;
use warpfeed::source::{Object, Options, Source, Store, open};
use warpfeed::{Error, Loader, Result};

/// Objects that count the bytes that were read of them.
#[derive(Clone, Default)]
struct Counted {
    objects: Objects,
    bytes: Arc<AtomicU64>,
}

impl Store for Counted {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.objects.list(prefix)
    }

    fn object(&self, url: &str) -> Result<Object> {
        self.objects.object(url)
    }

    fn read(&self, object: &Object, at: u64, to: &mut [u8]) -> Result<()> {
        self.bytes.fetch_add(to.len() as u64, Ordering::Relaxed);
        self.objects.read(object, at, to)
    }
}

impl Counted {
    /// The files of a folder below `mem://set`.
    fn of(folder: &Path) -> Self {
        let store = Counted::default();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let url = format!("mem://set/{}", path.file_name().unwrap().to_str().unwrap());
                store.objects.put(&url, fs::read(&path).unwrap());
            }
        }
        store
    }

    fn open(&self, url: &str) -> Result<Arc<dyn Source>> {
        Options::new().store("mem", Arc::new(self.clone())).open(url)
    }

    /// Bytes of all objects.
    fn size(&self) -> u64 {
        self.objects.0.lock().unwrap().values().map(|(_, bytes)| bytes.len() as u64).sum()
    }
}

/// Sets of the pictures of the reference: the fixture, the URL below its folder, and the kind.
const SETS: [(&str, &str, &str); 5] = [
    ("mds", "", "mds"),
    ("mds", "/index.json", "mds"),
    ("litdata", "", "litdata"),
    ("beton", "/train.beton", "beton"),
    ("recordio", "/train.rec", "recordio"),
];

#[test]
fn batches_of_records_in_a_store_are_those_of_the_machine() {
    for (name, below, kind) in SETS {
        let (store, url) = (Counted::of(&fixture(name)), format!("mem://set{below}"));
        let (here, there) = (open(fixture(&format!("{name}{below}"))).unwrap(), store.open(&url).unwrap());
        assert_eq!((here.kind(), there.kind()), (kind, kind));
        assert!(owned(&*here) == owned(&*there), "{url}");
        assert_eq!((here.classes(), here.fields()), (there.classes(), there.fields()));
        let labels = |source: &dyn Source| -> Vec<_> {
            (0..source.len()).map(|index| source.label(index, &mut Vec::new()).unwrap()).collect()
        };
        assert_eq!(labels(&*here), labels(&*there));
        assert!(there.path(0).unwrap().to_str().unwrap().starts_with("mem://set/"));
        loads_as_reference(&format!("{name} in a store"), &|| Loader::new(&*url).store("mem", store.clone()));
    }
}

#[test]
fn a_few_samples_of_records_take_a_part_of_the_bytes() {
    for (name, below, _) in SETS {
        let store = Counted::of(&fixture(name));
        let source = store.open(&format!("mem://set{below}")).unwrap();
        let opening = store.bytes.load(Ordering::Relaxed);
        for index in [0, source.len() - 1] {
            source.read(index, &mut Vec::new()).unwrap();
        }
        let bytes = store.bytes.load(Ordering::Relaxed);
        assert!(bytes < store.size() / 2, "{name}: {opening} bytes to open, {bytes} of {}", store.size());
        // The start of an index was read before, by each format that looks at it.
        assert!((bytes - 2 * 512..=bytes).contains(&source.network().unwrap().bytes), "{name}");
    }
}

#[test]
fn files_that_are_needed_whole_are_refused_without_a_cache() {
    let without_index = copy("recordio");
    fs::remove_file(without_index.path().join("train.idx")).unwrap();
    for (folder, below) in [
        (fixture("mds_zstd"), ""),
        (fixture("litdata_zstd"), ""),
        (fixture("litdata_bytes"), ""),
        (fixture("litdata_rows"), ""),
        (without_index.path().to_owned(), "/train.rec"),
    ] {
        let e = Counted::of(&folder).open(&format!("mem://set{below}")).err().unwrap();
        assert!(e.cause().contains("the loader has no cache to bring them to"), "{}: {e}", folder.display());
        assert_eq!(e.path().unwrap().to_str().unwrap(), format!("mem://set{below}"));
    }
}

#[test]
fn a_missing_or_changed_file_of_a_set_is_an_error_that_names_it() {
    let store = Counted::of(&fixture("mds"));
    let source = store.open("mem://set").unwrap();
    let shard = "mem://set/shard.00001.mds";
    let bytes = store.objects.0.lock().unwrap()[shard].1.clone();
    store.objects.put(shard, bytes.clone());
    let errors: Vec<Error> = (0..source.len()).filter_map(|i| source.read(i, &mut Vec::new()).err()).collect();
    assert!(!errors.is_empty() && errors.len() < source.len());
    assert!(errors.iter().all(|e| e.path().unwrap().to_str() == Some(shard) && e.cause().contains("another tag")));
    store.objects.put(shard, bytes[..bytes.len() - 1].to_vec());
    let e = store.open("mem://set").err().unwrap();
    assert!(e.cause().contains("but index.json says") && e.path().unwrap().to_str() == Some(shard), "{e}");
    store.objects.0.lock().unwrap().remove(shard);
    let e = store.open("mem://set").err().unwrap();
    assert!(e.cause().contains("no such object") && e.path().unwrap().to_str() == Some(shard), "{e}");
}
