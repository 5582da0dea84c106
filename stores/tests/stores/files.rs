//! Tests that a dataset in any format can be opened from a store, with the same samples as the
//! local files. A format that needs local files is opened through the cache. Errors must name the
//! missing object or setting.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use crate::objects::Objects;
use crate::process::child;
use warpfeed::sampler::Rng;
use warpfeed::source::{
    BatchIndex, CancelToken, DATA_FORMATS, Lookahead, Object, Options, OwnedSample, Source, Store, open,
};
use warpfeed::{Error, Result};
use warpfeed_stores::{Cache, check, empty, show};

/// In-memory objects. Counts the bytes that are read. After `reads_left` reads, every read fails.
struct Counted {
    objects: Objects,
    bytes: AtomicU64,
    reads_left: AtomicU64,
}

impl Counted {
    fn new(objects: Objects) -> Arc<Self> {
        Arc::new(Counted { objects, bytes: AtomicU64::new(0), reads_left: AtomicU64::new(u64::MAX) })
    }

    fn from_folder(folder: &Path) -> Arc<Self> {
        Counted::new(Objects::of(folder, "mem://set"))
    }
}

impl Store for Counted {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.objects.list(prefix)
    }

    fn object(&self, url: &str) -> Result<Object> {
        self.objects.object(url)
    }

    fn read(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
        if self.reads_left.fetch_update(SeqCst, SeqCst, |reads| reads.checked_sub(1)).is_err() {
            return Err(Error::in_source("refused").at_path(&object.url));
        }
        self.bytes.fetch_add(out.len() as u64, SeqCst);
        self.objects.read(object, offset, out)
    }
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/formats")
}

fn samples(source: &dyn Source) -> Vec<OwnedSample> {
    let read = |index| OwnedSample::try_from(&source.read(index, &mut Vec::new()).unwrap()).unwrap();
    (0..source.len()).map(read).collect()
}

fn with(folder: &Path, limit: u64, store: &Arc<Counted>) -> Options {
    Options::new().store("mem", Cache::open(folder, limit).unwrap().store(store.clone()))
}

fn annotated() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let image = b"\xff\xd8\xff not decoded here";
    write("yolo/images/1.jpg", image);
    write("yolo/labels/1.txt", b"0 0.5 0.5 0.25 0.25\n");
    write("voc/JPEGImages/1.jpg", image);
    write("voc/ImageSets/Main/train.txt", b"1\n");
    let xml = "<annotation><size><width>8</width><height>8</height></size><object><name>cat</name><bndbox>\
               <xmin>1</xmin><ymin>1</ymin><xmax>4</xmax><ymax>4</ymax></bndbox></object></annotation>";
    write("voc/Annotations/1.xml", xml.as_bytes());
    write("table/t.csv", b"path,label\na.jpg,0\n");
    write("table/a.jpg", image);
    write("folder/cat/1.jpg", image);
    let coco = r#"{"images":[{"id":1,"file_name":"1.jpg","width":8,"height":8}],"categories":[{"id":1,"name":"cat"}],
        "annotations":[{"id":1,"image_id":1,"category_id":1,"bbox":[1,1,2,2],"area":4,"iscrowd":0}]}"#;
    write("coco/_annotations.coco.json", coco.as_bytes());
    write("coco/1.jpg", image);
    let source = warpfeed::source::Memory::new(vec![OwnedSample::new("s").field("jpg", image.to_vec()).label(3)]);
    fs::create_dir_all(root.path().join("tar")).unwrap();
    warpfeed::pack::Pack::new(&source).keep_undecodable(true).to(root.path().join("tar/s.tar")).unwrap();
    root
}

#[test]
fn every_format_opens_from_a_store() {
    let (root, fixtures) = (annotated(), fixtures());
    let mut seen = Vec::new();
    // Opening an LMDB database creates a lock file next to it.
    fs::create_dir(root.path().join("lmdb")).unwrap();
    for name in ["dicts.mdb", "named.mdb"] {
        fs::copy(fixtures.join("lmdb").join(name), root.path().join("lmdb").join(name)).unwrap();
    }
    for (kind, local, path) in [
        ("lmdb", root.path().join("lmdb"), "dicts.mdb"),
        ("lmdb", root.path().join("lmdb"), "named.mdb/train"),
        ("mds", fixtures.join("mds"), ""),
        ("mds", fixtures.join("mds"), "index.json"),
        ("litdata", fixtures.join("litdata"), ""),
        ("litdata", fixtures.join("litdata"), "index.json"),
        ("arrow", fixtures.join("arrow/saved"), ""),
        ("parquet", fixtures.join("parquet"), "pages.parquet"),
        ("lerobot", fixtures.join("lerobot/v21"), ""),
        ("lerobot", fixtures.join("lerobot/v30"), "train"),
        ("clips", fixtures.join("lerobot/v21_video/videos/chunk-000"), ""),
        ("beton", fixtures.join("beton"), "train.beton"),
        ("recordio", fixtures.join("recordio"), "train.rec"),
        ("npy", fixtures.join("arrays/npy"), ""),
        ("npz", fixtures.join("arrays"), "stored.npz"),
        ("safetensors", fixtures.join("arrays"), "a.safetensors"),
        ("torch", fixtures.join("arrays"), "dict.pth"),
        ("hdf5", fixtures.join("hdf5"), "contiguous-v114.h5"),
        ("tfrecord", fixtures.join("tfrecord"), ""),
        ("yolo", root.path().join("yolo"), ""),
        ("yolo", root.path().join("yolo"), "images"),
        ("voc", root.path().join("voc"), ""),
        ("coco", root.path().join("coco"), ""),
        ("table", root.path().join("table"), "t.csv"),
        ("folder", root.path().join("folder"), ""),
        ("tar", root.path().join("tar"), "s.tar"),
    ] {
        let local_source = match open(local.join(path)) {
            Err(e) if e.cause().contains("enable the Cargo feature") => {
                seen.push(kind);
                continue;
            }
            local_source => local_source.unwrap(),
        };
        let (folder, store) = (tempfile::tempdir().unwrap(), Counted::from_folder(&local));
        let url = if path.is_empty() { "mem://set".to_owned() } else { format!("mem://set/{path}") };
        let remote_source = with(folder.path(), 1 << 30, &store).open(&url).unwrap_or_else(|e| panic!("{url}: {e}"));
        assert_eq!((local_source.kind(), remote_source.kind()), (kind, kind), "{url}");
        assert!(
            samples(&*local_source) == samples(&*remote_source) && local_source.classes() == remote_source.classes(),
            "{kind}: {url}"
        );
        if !show(folder.path()).unwrap().files.is_empty() {
            let bytes = store.bytes.load(SeqCst);
            with(folder.path(), 1 << 30, &store).open(&url).unwrap();
            // Only the start of an index is read again, once for each format that examines it
            // during detection.
            assert!(store.bytes.load(SeqCst) - bytes <= 2 * 512, "{kind}: {url}");
        }
        seen.push(kind);
    }
    for format in DATA_FORMATS {
        assert!(seen.contains(&format.name), "{} was not tried", format.name);
    }
}

/// Returns a YOLO dataset, which needs local files: two images of `bytes` bytes, and their labels.
fn yolo(url: &str, bytes: usize) -> BTreeMap<String, Vec<u8>> {
    let image = |n: usize| {
        let rest = (0..bytes).map(|i| ((i + n) * 31 % 251) as u8);
        b"\xff\xd8\xff".iter().copied().chain(rest).collect::<Vec<u8>>()
    };
    let both = |n: usize| {
        let labels = b"0 0.5 0.5 0.25 0.25\n".to_vec();
        [(format!("{url}/images/{n}.jpg"), image(n)), (format!("{url}/labels/{n}.txt"), labels)]
    };
    (1..3).flat_map(both).collect()
}

fn large() -> Arc<Counted> {
    Counted::new(yolo("mem://set", 10 << 20).into_iter().collect())
}

fn large_local() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (url, bytes) in yolo("", 10 << 20) {
        let path = folder.path().join(&url[1..]);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    folder
}

#[test]
fn interrupted_downloads_continue_and_ranks_share_them() {
    let (folder, store) = (tempfile::tempdir().unwrap(), large());
    let total = store.objects.size();
    let local = samples(&*open(large_local().path()).unwrap());
    let opened = |store: &Arc<Counted>| with(folder.path(), 1 << 30, store).open("mem://set");
    let ranks: Vec<_> = thread::scope(|scope| {
        let ranks = [(); 2].map(|()| scope.spawn(|| samples(&*opened(&store).unwrap())));
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    assert!(ranks.iter().all(|rank| *rank == local));
    assert_eq!(store.bytes.load(SeqCst), total);
    yolo("mem://set", 10 << 20).into_iter().for_each(|(url, bytes)| store.objects.put(&url, bytes));
    opened(&store).unwrap();
    assert_eq!(store.bytes.load(SeqCst), 2 * total);

    // Parts that were received with a correct checksum are not fetched again.
    let folder = tempfile::tempdir().unwrap();
    let set = || {
        let sets = fs::read_dir(folder.path().join("files")).unwrap().map(|entry| entry.unwrap().path());
        sets.into_iter().find(|path| path.is_dir()).unwrap()
    };
    let opened = || with(folder.path(), 1 << 30, &store).open("mem://set");
    opened().unwrap();
    let file = set().join("data/images/1.jpg");
    fs::remove_file(set().join("complete")).unwrap();
    let before = store.bytes.load(SeqCst);
    assert!(samples(&*opened().unwrap()) == local);
    assert_eq!(store.bytes.load(SeqCst), before);
    let mut bytes = fs::read(&file).unwrap();
    let len = bytes.len() as u64;
    bytes[9_000_000] ^= 1;
    fs::write(&file, bytes).unwrap();
    assert!(samples(&*opened().unwrap()) == local);
    assert_eq!(store.bytes.load(SeqCst), before + len);
}

#[test]
fn an_error_names_the_missing_object_or_setting() {
    let (folder, store) = (tempfile::tempdir().unwrap(), large());
    let cause = |options: Options, url: &str| options.open(url).err().unwrap().cause().to_owned();
    let e = cause(Options::new().store("mem", store.clone()), "mem://set");
    assert!(e.contains("the loader has no cache to download them to") && e.contains("cache_bytes"), "{e}");
    let e = cause(Options::new().store("mem", Cache::in_memory(9).store(store.clone())), "mem://set");
    assert!(e.contains("the cache has no writable folder"), "{e}");
    let e = cause(with(folder.path(), 1 << 20, &store), "mem://set");
    assert!(e.contains("the cache is too small") && e.contains("1048576"), "{e}");
    let e = cause(with(folder.path(), 1 << 30, &store), "mem://absent/x.yaml");
    assert!(e.contains("no object exists at or under this URL"), "{e}");
    store.reads_left.store(1, SeqCst);
    let e = cause(with(folder.path(), 1 << 30, &store), "mem://set");
    assert!(e.contains("refused"), "{e}");
    let files = || show(folder.path()).unwrap().files;
    assert_eq!(files().keys().collect::<Vec<_>>(), ["mem://set"]);
    empty(folder.path()).unwrap();
    assert!(files().is_empty());
    store.reads_left.store(u64::MAX, SeqCst);
    let set = with(folder.path(), 1 << 30, &store).open("mem://set").unwrap();
    empty(folder.path()).unwrap();
    assert_eq!((files().len(), samples(&*set).len()), (1, 2));
}

/// Opens the dataset in the folder that an environment variable names.
#[test]
#[ignore = "started by other tests"]
fn child_process_opens_the_dataset() {
    let Ok(folder) = std::env::var("WARPFEED_TEST_FILES") else { return };
    let store = large();
    let set = with(Path::new(&folder), 1 << 30, &store).open("mem://set").unwrap();
    assert!(samples(&*set) == samples(&*open(large_local().path()).unwrap()), "wrong bytes");
}

fn process(folder: &Path) -> Child {
    let mut command = child!(child_process_opens_the_dataset);
    command.env("WARPFEED_TEST_FILES", folder).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn downloads_of_killed_processes_are_completed() {
    let mut rng = Rng::new(25, 0, 1);
    let root = tempfile::tempdir().unwrap();
    for schedule in 0..24 {
        let folder = root.path().join((schedule / 4).to_string());
        let mut processes: Vec<_> = (0..1 + schedule % 3).map(|_| process(&folder)).collect();
        for process in &mut processes {
            thread::sleep(Duration::from_micros(rng.below(60_000)));
            let _ = process.kill();
            process.wait().unwrap();
        }
        if schedule % 4 == 3 {
            let processes = [(); 3].map(|()| process(&folder));
            for mut process in processes {
                assert!(process.wait().unwrap().success());
            }
            assert_eq!(check(&folder).unwrap().damaged, 0);
        }
    }
}

#[test]
fn files_and_blocks_stay_within_the_cache_limit() {
    let (folder, bytes) = (tempfile::tempdir().unwrap(), |mib: usize| vec![7u8; mib << 20]);
    let store = Counted::new([1, 2, 3].into_iter().flat_map(|n| yolo(&format!("mem://{n}"), 2 << 20)).collect());
    // The first two datasets stay in use until this process ends, so they cannot be evicted.
    let limit = 9 << 20;
    let open = |n: u64| with(folder.path(), limit, &store).open(format!("mem://{n}"));
    open(1).unwrap();
    open(2).unwrap();
    let e = open(3).err().unwrap();
    assert!(e.cause().contains("files in use have") && e.to_string().contains("mem://3"), "{e}");
    let used_bytes: u64 = show(folder.path()).unwrap().files.values().map(|(_, bytes)| bytes).sum();
    assert!(used_bytes <= limit, "{used_bytes}");

    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), limit).unwrap().store(store.clone());
    let keep = cache.object_cache(1, &Lookahead::new(0, |_| 1, |_| Some(vec![0]))).unwrap();
    let object = store.object("mem://2/images/1.jpg").unwrap();
    for sample in 0..8 {
        keep.offer(&object, sample * 130_000, &bytes(1), sample, BatchIndex::default());
    }
    let measure = || {
        let contents = show(folder.path()).unwrap();
        (contents.blocks, contents.bytes + contents.files.values().map(|(_, bytes)| bytes).sum::<u64>())
    };
    let (blocks, bytes) = measure();
    assert!(blocks == 8 && bytes <= limit, "{blocks} blocks of {bytes} bytes");
    with(folder.path(), limit, &store).open("mem://1").unwrap();
    let (blocks, bytes) = measure();
    assert!((1..8).contains(&blocks) && bytes <= limit, "{blocks} blocks, {bytes} bytes with the files");
}

#[test]
fn a_cached_listing_does_not_hide_a_changed_object() {
    let (root, folder) = (annotated(), tempfile::tempdir().unwrap());
    for n in 2..40 {
        fs::copy(root.path().join("yolo/images/1.jpg"), root.path().join(format!("yolo/images/{n}.jpg"))).unwrap();
        fs::copy(root.path().join("yolo/labels/1.txt"), root.path().join(format!("yolo/labels/{n}.txt"))).unwrap();
    }
    let before = Counted::from_folder(&root.path().join("yolo"));
    let old = samples(&*with(folder.path(), 1 << 30, &before).open("mem://set").unwrap());
    let after = Counted::from_folder(&root.path().join("yolo"));
    after.objects.put("mem://set/labels/17.txt", b"0 0.5 0.5 0.75 0.75\n".to_vec());
    let new = samples(&*with(folder.path(), 1 << 30, &after).open("mem://set").unwrap());
    let changed: Vec<_> = (0..old.len()).filter(|&i| old[i] != new[i]).map(|i| format!("{:?}", new[i])).collect();
    assert_eq!(changed.len(), 1, "{changed:?}");
    assert!(changed[0].contains("17"), "{changed:?}");
}

#[test]
fn check_finds_a_damaged_file_that_is_in_use() {
    let (folder, store) = (tempfile::tempdir().unwrap(), large());
    let open = || with(folder.path(), 1 << 30, &store).open("mem://set").unwrap();
    let used = open();
    let local = samples(&*used);
    let sets = fs::read_dir(folder.path().join("files")).unwrap().map(|entry| entry.unwrap().path());
    let file = sets.into_iter().find(|path| path.is_dir()).unwrap().join("data/images/1.jpg");
    // The modification time stays the same, as after a disk fault.
    let time = fs::metadata(&file).unwrap().modified().unwrap();
    let mut bytes = fs::read(&file).unwrap();
    bytes[5_000_000] ^= 1;
    fs::remove_file(&file).unwrap();
    fs::write(&file, bytes).unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    assert_eq!(check(folder.path()).unwrap().damaged, 1);
    assert_eq!(check(folder.path()).unwrap().damaged, 0);
    assert!(samples(&*open()) == local && samples(&*used) == local);
}

/// The test holds the lock that a process needs to free space, like a process that was suspended
/// while it freed space.
#[test]
fn opening_can_be_canceled_while_another_process_evicts() {
    let (folder, store) = (tempfile::tempdir().unwrap(), large());
    let options = with(folder.path(), 1 << 30, &store);
    let room = fs::File::create(folder.path().join("files/room.lock")).unwrap();
    room.lock().unwrap();
    let canceled = Arc::new(AtomicU64::new(0));
    let (is_canceled, (send, opened)) = (canceled.clone(), std::sync::mpsc::channel());
    let stop = CancelToken::new(move || is_canceled.load(SeqCst) > 0);
    thread::spawn(move || {
        let result = stop.run(|| options.open("mem://set").map(|_| ()));
        send.send(result)
    });
    thread::sleep(Duration::from_millis(200));
    canceled.store(1, SeqCst);
    let e = opened.recv_timeout(Duration::from_secs(60)).expect("opening is canceled").unwrap_err();
    assert!(e.cause().contains("cancel"), "{e}");
}
