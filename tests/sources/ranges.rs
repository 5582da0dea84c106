//! Tests that record and array datasets are read from a store with range requests, without a cache.
//! Reading a few samples must download only a fraction of the dataset, and batches must be
//! bit-identical to local ones. Files that cannot be read in ranges must be rejected.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::formats::{copy, fixture, loads_alike, loads_as_reference, owned};
use crate::objects::Objects;
use warpfeed::source::{Object, Options, Source, Store, open};
use warpfeed::{Error, Loader, Result};

#[derive(Clone, Default)]
struct CountingStore {
    objects: Objects,
    bytes: Arc<AtomicU64>,
}

impl Store for CountingStore {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.objects.list(prefix)
    }

    fn object(&self, url: &str) -> Result<Object> {
        self.objects.object(url)
    }

    fn read(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
        self.bytes.fetch_add(out.len() as u64, Ordering::Relaxed);
        self.objects.read(object, offset, out)
    }
}

impl CountingStore {
    fn of(folder: &Path) -> Self {
        CountingStore { objects: Objects::of(folder, "mem://set"), ..CountingStore::default() }
    }

    fn open(&self, url: &str) -> Result<Arc<dyn Source>> {
        Options::new().store("mem", Arc::new(self.clone())).open(url)
    }
}

/// The datasets that contain the reference images: fixture, path below the fixture, and format.
const DATASETS: [(&str, &str, &str); 5] = [
    ("mds", "", "mds"),
    ("mds", "/index.json", "mds"),
    ("litdata", "", "litdata"),
    ("beton", "/train.beton", "beton"),
    ("recordio", "/train.rec", "recordio"),
];

#[test]
fn batches_of_records_in_a_store_equal_local_ones() {
    for (name, suffix, kind) in DATASETS {
        let (store, url) = (CountingStore::of(&fixture(name)), format!("mem://set{suffix}"));
        let (local, remote) = (open(fixture(&format!("{name}{suffix}"))).unwrap(), store.open(&url).unwrap());
        assert_eq!((local.kind(), remote.kind()), (kind, kind));
        assert!(owned(&*local) == owned(&*remote), "{url}");
        assert_eq!((local.classes(), local.fields()), (remote.classes(), remote.fields()));
        let labels = |source: &dyn Source| -> Vec<_> {
            (0..source.len()).map(|index| source.label(index, &mut Vec::new()).unwrap()).collect()
        };
        assert_eq!(labels(&*local), labels(&*remote));
        assert!(remote.path(0).unwrap().to_str().unwrap().starts_with("mem://set/"));
        loads_as_reference(&format!("{name} in a store"), &|| Loader::new(&*url).store("mem", store.clone()));
    }
}

#[test]
fn a_few_records_download_few_bytes() {
    for (name, suffix, _) in DATASETS {
        let store = CountingStore::of(&fixture(name));
        let source = store.open(&format!("mem://set{suffix}")).unwrap();
        let bytes_to_open = store.bytes.load(Ordering::Relaxed);
        for index in [0, source.len() - 1] {
            source.read(index, &mut Vec::new()).unwrap();
        }
        let bytes = store.bytes.load(Ordering::Relaxed);
        assert!(
            bytes < store.objects.size() / 2,
            "{name}: read {bytes} of {} bytes, {bytes_to_open} of them to open",
            store.objects.size()
        );
        // Detecting the format reads at most 2 * 512 bytes, which `network_stats` does not count.
        assert!((bytes - 2 * 512..=bytes).contains(&source.network_stats().unwrap().received_bytes), "{name}");
    }
}

#[test]
fn files_that_need_a_download_are_refused_without_a_cache() {
    let without_index = copy("recordio");
    fs::remove_file(without_index.path().join("train.idx")).unwrap();
    for (folder, suffix) in [
        (fixture("mds_zstd"), ""),
        (fixture("litdata_zstd"), ""),
        (fixture("litdata_bytes"), ""),
        (fixture("litdata_rows"), ""),
        (without_index.path().to_owned(), "/train.rec"),
    ] {
        let e = CountingStore::of(&folder).open(&format!("mem://set{suffix}")).err().unwrap();
        assert!(e.cause().contains("the loader has no cache to download them to"), "{}: {e}", folder.display());
        assert_eq!(e.path().unwrap().to_str().unwrap(), format!("mem://set{suffix}"));
    }
}

#[test]
fn missing_and_changed_files_fail_with_their_names() {
    let store = CountingStore::of(&fixture("mds"));
    let source = store.open("mem://set").unwrap();
    let shard = "mem://set/shard.00001.mds";
    let bytes = store.objects.0.lock().unwrap()[shard].1.clone();
    store.objects.put(shard, bytes.clone());
    let errors: Vec<Error> = (0..source.len()).filter_map(|i| source.read(i, &mut Vec::new()).err()).collect();
    assert!(!errors.is_empty() && errors.len() < source.len());
    assert!(
        errors.iter().all(|e| e.path().unwrap().to_str() == Some(shard) && e.cause().contains("its tag is no longer"))
    );
    store.objects.put(shard, bytes[..bytes.len() - 1].to_vec());
    let e = store.open("mem://set").err().unwrap();
    assert!(e.cause().contains("but index.json claims") && e.path().unwrap().to_str() == Some(shard), "{e}");
    store.objects.0.lock().unwrap().remove(shard);
    let e = store.open("mem://set").err().unwrap();
    assert!(e.cause().contains("no such object") && e.path().unwrap().to_str() == Some(shard), "{e}");
}

#[test]
fn arrays_in_a_store_equal_local_ones() {
    for (folder, name, kind) in [
        ("arrays/npy", "", "npy"),
        ("arrays/npy", "/images.npy", "npy"),
        ("arrays", "/stored.npz", "npz"),
        ("arrays", "/splits.npz/train", "npz"),
        ("arrays", "/a.safetensors", "safetensors"),
        ("arrays", "/tuple.pt", "torch"),
        ("arrays", "/dict.pth", "torch"),
    ] {
        let (store, url, path) =
            (CountingStore::of(&fixture(folder)), format!("mem://set{name}"), format!("{folder}{name}"));
        let (local, remote) =
            (open(fixture(&path)).unwrap(), store.open(&url).unwrap_or_else(|e| panic!("{url}: {e}")));
        assert_eq!((local.kind(), remote.kind()), (kind, kind), "{url}");
        assert!(owned(&*local) == owned(&*remote), "{url}");
        assert_eq!((local.classes(), local.fields()), (remote.classes(), remote.fields()));
        if name != "/images.npy" {
            let other = fixture(&path);
            loads_alike(&url, &|| Loader::new(&*url).store("mem", store.clone()), &|| Loader::new(&*other));
        }
    }
    let e = CountingStore::of(&fixture("arrays")).open("mem://set/splits.npz/absent").err().unwrap();
    assert!(e.cause().contains("no split \"absent\""), "{e}");
}

#[test]
fn a_few_array_samples_download_few_bytes() {
    const ROW: usize = 1 << 16;
    let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': (64, {ROW}), }}");
    let mut npy = format!("\u{1}\0v\0{header:<117}\n").into_bytes();
    npy.splice(..0, *b"\x93NUMPY");
    npy.extend((0..64 * ROW).map(|i| (i * 31 % 251) as u8));
    // In a store, the checksum of the archive's member is not verified, because that would download
    // the whole member.
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x.npy"), &npy).unwrap();
    fs::write(folder.path().join("y.npz"), stored_zip("x.npy", &npy)).unwrap();
    let store = CountingStore::of(folder.path());
    for name in ["x.npy", "y.npz"] {
        store.bytes.store(0, Ordering::Relaxed);
        let (local, remote) =
            (open(folder.path().join(name)).unwrap(), store.open(&format!("mem://set/{name}")).unwrap());
        let read = |source: &dyn Source, index: usize| {
            warpfeed::source::OwnedSample::try_from(&source.read(index, &mut Vec::new()).unwrap()).unwrap()
        };
        assert!([0, 40, 63].iter().all(|&index| read(&*local, index) == read(&*remote, index)));
        let bytes = store.bytes.load(Ordering::Relaxed);
        assert!(bytes < 64 * ROW as u64 / 8, "{name}: {bytes} bytes");
    }
}

fn stored_zip(name: &str, content: &[u8]) -> Vec<u8> {
    let (crc, len, size) = (crc32fast::hash(content), name.len() as u16, (content.len() as u32).to_le_bytes());
    let common =
        [&[20, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &crc.to_le_bytes(), &size, &size, &len.to_le_bytes(), &[0, 0]].concat();
    let local = [b"PK\x03\x04", &common[..], name.as_bytes(), content].concat();
    let central = [b"PK\x01\x02\x14\0", &common[..], &[0; 14], name.as_bytes()].concat();
    let end = [
        b"PK\x05\x06\0\0\0\0\x01\0\x01\0",
        &(central.len() as u32).to_le_bytes()[..],
        &(local.len() as u32).to_le_bytes(),
        &[0, 0],
    ];
    [local, central, end.concat()].concat()
}

#[test]
fn remote_tfrecord_files_need_an_index_or_a_cache() {
    let folder = tempfile::tempdir().unwrap();
    let file = fs::read(fixture("tfrecord/train-00000-of-00002")).unwrap();
    let times = (17 << 20) / file.len() + 1;
    for name in ["train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord"] {
        fs::write(folder.path().join(name), file.repeat(times)).unwrap();
    }
    // Opening the local files writes their indexes, which the store then contains.
    let local_source = open(folder.path()).unwrap();
    let store = CountingStore::of(folder.path());
    let remote = store.open("mem://set").unwrap();
    assert_eq!((local_source.kind(), remote.kind(), local_source.len()), ("tfrecord", "tfrecord", remote.len()));
    assert_eq!((local_source.classes(), local_source.fields()), (remote.classes(), remote.fields()));
    let read = |source: &dyn Source, index: usize| {
        warpfeed::source::OwnedSample::try_from(&source.read(index, &mut Vec::new()).unwrap()).unwrap()
    };
    assert!([0, 7, local_source.len() - 1].iter().all(|&index| read(&*local_source, index) == read(&*remote, index)));
    let bytes = store.bytes.load(Ordering::Relaxed);
    assert!(bytes < store.objects.size() / 5, "{bytes} of {}", store.objects.size());
    let epoch = |loader: Loader| {
        let batches = loader.augment(warpfeed::Augment::train(32)).batch_size(7).shuffle(1).epochs(1).rank(0, 40);
        batches.into_iter().map(|batch| crate::support::BatchContent::from(&batch.unwrap())).collect::<Vec<_>>()
    };
    let local = epoch(Loader::new(folder.path()));
    assert!(!local.is_empty() && epoch(Loader::new("mem://set").store("mem", store.clone())) == local);
    let part = Options::new().store("mem", Arc::new(store.clone())).format("tfrecord").open("mem://set/train");
    assert_eq!(part.unwrap().len(), local_source.len());

    let e = CountingStore::of(&fixture("tfrecord")).open("mem://set").err().unwrap();
    assert!(e.cause().contains("the loader has no cache to download them to"), "{e}");
}
