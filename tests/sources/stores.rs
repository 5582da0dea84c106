//! Tests that tar shards in a store have the same samples as local ones. An unregistered URL
//! scheme, or a format that cannot be read from a store, must fail with a helpful message. Reading
//! an object that has changed must fail, and the bytes of two versions must never be mixed.

use std::sync::{Arc, Mutex};

use crate::objects::Objects;
use crate::support::{BatchContent, NumberCodec, NumberSource};
use warpfeed::pack::Pack;
use warpfeed::source::{Object, Options, OwnedSample, Source, Store, open};
use warpfeed::{Augment, Error, ErrorKind, Loader, Result};

pub(crate) fn samples(source: &dyn Source) -> Vec<OwnedSample> {
    let read = |index| OwnedSample::try_from(&source.read(index, &mut Vec::new()).unwrap()).unwrap();
    (0..source.len()).map(read).collect()
}

fn shards() -> (tempfile::TempDir, Objects) {
    let root = tempfile::tempdir().unwrap();
    Pack::new(&NumberSource::new(40)).shard_size(16_000).keep_undecodable(true).to(root.path().join("s.tar")).unwrap();
    let store = Objects::of(root.path(), "mem://set");
    assert!(store.0.lock().unwrap().len() <= 10, "expected shard numbers of one digit");
    store.put("mem://set/notes.txt", b"not a shard".to_vec());
    // The last four bytes of this name begin inside a multi-byte character.
    store.put("mem://set/\u{30c7}\u{30fc}\u{30bf}", b"not a shard".to_vec());
    (root, store)
}

#[test]
fn shards_in_a_store_equal_local_ones() {
    let (root, store) = shards();
    let local = open(root.path()).unwrap();
    let options = Options::new().store("mem", Arc::new(store.clone()));
    let names: Vec<_> = store.list("mem://set/").unwrap().into_iter().map(|object| object.url).collect();
    let names: Vec<_> = names.iter().filter(|url| url.ends_with(".tar")).collect();
    assert!(names.len() > 1);
    // `s.tar`, the path passed to `Pack::to`, finds the shards through the manifest.
    assert_eq!(samples(&*open(root.path().join("s.tar")).unwrap()), samples(&*local));
    assert_eq!(samples(&*options.open("mem://set/s.tar").unwrap()), samples(&*local));
    let e = options.open("mem://set/t.tar").err().unwrap();
    assert!(e.cause().contains("no such object"), "{e}");
    let stems: Vec<_> = names.iter().map(|url| url.strip_prefix("mem://set/").unwrap().to_owned()).collect();
    for url in ["mem://set".to_owned(), "mem://set/".to_owned(), format!("mem://set/{{{}}}", stems.join(","))] {
        let remote = options.open(&url).unwrap();
        assert_eq!((remote.kind(), samples(&*remote)), ("tar", samples(&*local)), "{url}");
        assert_eq!(remote.path(0).unwrap().to_str().unwrap(), names[0]);
    }
    assert!(options.open(names[1]).unwrap().len() < local.len());

    let loader = |loader: Loader| loader.codec(NumberCodec).augment(Augment::train(16)).batch_size(8).shuffle(3);
    let content =
        |loader: Loader| loader.into_iter().map(|batch| BatchContent::from(&batch.unwrap())).collect::<Vec<_>>();
    let remote = loader(Loader::new("mem://set").store("mem", store));
    assert!(content(remote) == content(loader(Loader::new(root.path()))));
}

#[test]
fn a_manifest_in_a_store_determines_the_shards() {
    let (root, store) = shards();
    let local = open(root.path()).unwrap();
    let options = Options::new().store("mem", Arc::new(store.clone()));
    let bytes = |url: &str| store.0.lock().unwrap()[url].1.clone();
    let url = "mem://set/s.manifest.json";
    assert_eq!(samples(&*options.open(url).unwrap()), samples(&*local));
    store.put("mem://set/s-000077.tar", bytes("mem://set/s-000000.tar"));
    for url in ["mem://set", url] {
        assert_eq!(samples(&*options.open(url).unwrap()), samples(&*local), "{url}");
    }
    store.put("mem://set/more.tar", bytes("mem://set/s-000000.tar"));
    let e = options.open("mem://set").err().unwrap();
    assert!(e.cause().contains("1 tar file that s.manifest.json does not list, such as more.tar"), "{e}");
    assert_eq!(options.open(url).unwrap().len(), 40);
    store.0.lock().unwrap().remove("mem://set/more.tar");
    let shard = bytes("mem://set/s-000001.tar");
    store.put("mem://set/s-000001.tar", shard[..shard.len() - 512].to_vec());
    for url in ["mem://set", url] {
        let e = options.open(url).err().unwrap();
        assert!(e.cause().contains("s-000001.tar has") && e.to_string().contains("s.manifest.json"), "{e}");
    }
    store.0.lock().unwrap().remove("mem://set/s-000001.tar");
    for url in ["mem://set", url] {
        let e = options.open(url).err().unwrap();
        assert!(e.cause().contains("s-000001.tar is missing"), "{e}");
    }
    let e = options.open("mem://set/absent.manifest.json").err().unwrap();
    assert!(e.to_string().contains("no such object"), "{e}");
}

#[test]
fn an_unusable_url_fails_with_advice() {
    let (root, store) = shards();
    let options = Options::new().store("mem", Arc::new(store));
    for (url, kind, words) in [
        (
            "s3://bucket/train",
            ErrorKind::Config,
            "no store is registered for s3:// URLs; add a store for the scheme \"s3\"",
        ),
        ("mem://set/data.yaml", ErrorKind::Config, "this format needs local files, and the loader has no cache"),
        ("mem://empty", ErrorKind::Source, "found no .tar objects, and found no images among 0 objects under this URL"),
        ("mem://set/absent.tar", ErrorKind::Source, "no such object"),
    ] {
        let e = options.open(url).err().unwrap();
        assert_eq!((e.kind(), e.path().unwrap().to_str()), (kind, Some(url)));
        assert!(e.cause().contains(words), "{e}");
    }
    let e = Loader::new("gs://bucket").host().err().unwrap();
    assert!(e.to_string().contains("gs://bucket") && e.cause().contains("\"gs\""), "{e}");
    let path = format!("file://{}", root.path().display());
    assert_eq!(open(&path).unwrap().len(), 40);
    let e = Options::new().format("folder").open(root.path()).err().unwrap();
    assert!(e.cause().contains("no images"), "{e}");
}

#[test]
fn a_changed_object_fails_with_its_url() {
    let (_root, store) = shards();
    let source = Options::new().store("mem", Arc::new(store.clone())).open("mem://set").unwrap();
    let url = source.path(39).unwrap().to_str().unwrap().to_owned();
    let bytes = store.0.lock().unwrap()[&url].1.clone();
    store.put(&url, bytes);
    let e = source.read(39, &mut Vec::new()).unwrap_err();
    assert!(e.to_string().contains(&url) && e.cause().contains("its tag is no longer"), "{e}");
    source.check().unwrap();
    let e = source.read(39, &mut Vec::new()).unwrap_err();
    assert!(e.cause().contains("its tag is no longer"), "{e}");
    assert!(source.read(0, &mut Vec::new()).is_ok(), "other shards are unchanged");
}

/// A store that lists objects in reverse order. If `busy` is true, the next call to `object` fails
/// and sets `busy` to false.
struct Busy {
    objects: Objects,
    busy: Arc<Mutex<bool>>,
}

impl Store for Busy {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        let mut objects = self.objects.list(prefix)?;
        objects.reverse();
        Ok(objects)
    }

    fn object(&self, url: &str) -> Result<Object> {
        if std::mem::take(&mut *self.busy.lock().unwrap()) {
            return Err(Error::in_source("slow down").at_path(url).transient());
        }
        self.objects.object(url)
    }

    fn read(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
        self.objects.read(object, offset, out)
    }
}

#[derive(Default)]
struct Unreachable(Mutex<usize>);

impl Store for Unreachable {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        *self.0.lock().unwrap() += 1;
        Err(Error::new(ErrorKind::Io, "no connection").at_path(prefix))
    }

    fn object(&self, url: &str) -> Result<Object> {
        self.list(url)?.pop().ok_or_else(|| Error::in_source("no object"))
    }

    fn read(&self, object: &Object, _: u64, _: &mut [u8]) -> Result<()> {
        self.object(&object.url).map(drop)
    }
}

#[test]
fn an_unreachable_store_gets_one_request() {
    let store = Arc::new(Unreachable::default());
    let e = Options::new().store("mem", store.clone()).open("mem://set/train").err().unwrap();
    assert_eq!((e.kind(), e.cause()), (ErrorKind::Io, "no connection"));
    assert_eq!(*store.0.lock().unwrap(), 1, "expected a single listing, because each one is retried for 90 s");
}

#[test]
fn a_busy_store_with_an_unsorted_listing_loses_no_shard() {
    let (_root, objects) = shards();
    let busy = Arc::new(Mutex::new(false));
    let expected = samples(&*Options::new().store("mem", Arc::new(objects.clone())).open("mem://set").unwrap());
    *busy.lock().unwrap() = true;
    let store = Arc::new(Busy { objects, busy: busy.clone() });
    let url = "mem://set/{s-000000,s-000001}.tar";
    assert!(Options::new().store("mem", store.clone()).open(url).unwrap().len() > 1);
    assert!(!*busy.lock().unwrap(), "the store must have failed once");
    let source = Options::new().store("mem", store).open("mem://set").unwrap();
    assert_eq!(samples(&*source), expected);
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_files_in_a_store_equal_local_ones() {
    use crate::formats::fixture;

    let store = Objects::default();
    store.add(&fixture("parquet/hub/data"), "mem://org/name/data");
    store.put("mem://org/name/README.md", b"# name".to_vec());
    // `pages.parquet` has no page index, so opening it scans the file for its pages.
    for name in ["indexed", "pages"] {
        let bytes = std::fs::read(fixture("parquet").join(format!("{name}.parquet"))).unwrap();
        store.put(&format!("mem://one/{name}.parquet"), bytes);
    }
    let options = Options::new().store("mem", Arc::new(store.clone()));
    let expected = samples(&*open(fixture("parquet/hub/train")).unwrap());
    let remote = options.open("mem://org/name/train").unwrap();
    assert_eq!((remote.kind(), remote.classes().len(), samples(&*remote)), ("parquet", 4, expected.clone()));
    for name in ["indexed", "pages"] {
        let file = options.open(format!("mem://one/{name}.parquet")).unwrap();
        assert_eq!(samples(&*file), expected[..6], "{name}");
    }
    // Spark writes folders with names that end in `.parquet`.
    store.put("mem://spark/x.parquet/_SUCCESS", Vec::new());
    for part in ["part-00000", "part-00001"] {
        let bytes = std::fs::read(fixture("parquet/indexed.parquet")).unwrap();
        store.put(&format!("mem://spark/x.parquet/{part}.snappy.parquet"), bytes);
    }
    for url in ["mem://spark/x.parquet", "mem://spark/x.parquet/"] {
        let folder = samples(&*options.open(url).unwrap());
        assert_eq!((folder.len(), &folder[..6]), (12, &expected[..6]), "{url}");
    }
    let e = options.open("mem://spark/y.parquet").err().unwrap();
    assert!(e.path().unwrap().to_str() == Some("mem://spark/y.parquet"), "{e}");
    for (url, expected) in [
        (
            "mem://org/name",
            "found the splits train, validation: append one to the path, for example mem://org/name/train",
        ),
        ("mem://org/name/dev", "no split \"dev\": expected one of train, validation"),
    ] {
        let e = options.open(url).err().unwrap().to_string();
        assert!(e.contains(expected), "{e}");
    }
    crate::formats::loads_as_reference("parquet in a store", &|| {
        Loader::new("mem://org/name/train").store("mem", store.clone())
    });
    let url = "mem://one/indexed.parquet";
    let file = options.open(url).unwrap();
    store.put(url, vec![0; 100_000]);
    let e = file.read(5, &mut Vec::new()).err().unwrap();
    assert!(e.path().unwrap().to_str() == Some(url) && e.cause().contains("its tag is no longer"), "{e}");
}

#[cfg(all(feature = "parquet", feature = "arrays", feature = "chunks", feature = "annotations"))]
#[test]
fn a_folder_is_the_same_dataset_on_this_machine_and_in_a_store() {
    use crate::formats::fixture;

    let bytes = |name: &str| match name.rsplit('.').next().unwrap() {
        "tar" => std::fs::read(fixture("../ustar.tar")).unwrap(),
        "parquet" => std::fs::read(fixture("parquet_types/words.parquet")).unwrap(),
        "arrow" => std::fs::read(fixture("arrow_types/one_by_one.arrow")).unwrap(),
        "txt" => b"0 0.5 0.5 0.1 0.1\n".to_vec(),
        _ => b"\xff\xd8\xff".to_vec(),
    };
    let trees: [(&str, &[&str]); 24] = [
        ("folder", &["a/1.jpg", "b/2.jpg"]),
        ("folder", &["1.jpg", "2.jpg"]),
        // Images take precedence over Parquet files in any folder.
        ("folder", &["a/1.jpg", "b/2.jpg", "x.parquet"]),
        ("folder", &["a/1.jpg", "b/2.jpg", "a/x.parquet"]),
        ("folder", &["a/1.jpg", "b/deep/2.jpg", "b/deep/deeper/x.parquet"]),
        ("folder", &["a/1.jpg", "b/x.tar"]),
        ("tar", &["x.tar", "y.tar"]),
        ("tar", &["x.tar", "tables/x.parquet"]),
        ("tar", &["x.tar", ".y.tar", "more/z.tar"]),
        ("error", &["x.tar", "1.jpg"]),
        ("error", &["more/z.tar"]),
        // Hidden names are ignored.
        ("folder", &["a/1.jpg", ".cache/x.parquet", ".x.parquet", ".x.tar"]),
        ("error", &[".cache/x.parquet", ".x.parquet", "notes.md"]),
        ("parquet", &["a.parquet", ".b.parquet", ".cache/c.parquet"]),
        ("error", &[]),
        // Files in the folder take precedence over files in its subfolders.
        ("parquet", &["train.parquet", "data/test.parquet"]),
        ("parquet", &["data/train.parquet", "extra/test.parquet"]),
        ("error", &["data/train.parquet", "data/test.parquet"]),
        ("parquet", &["plain/train-00000-of-00001.parquet"]),
        ("parquet", &["plain/train/0000.parquet", "plain/train/0001.parquet"]),
        ("error", &["a/b/c/0000.parquet"]),
        // The files are sorted by folder. As strings, "a-b/0.parquet" would precede "a/0.parquet".
        ("error", &["a-b/0.parquet", "a/0.parquet"]),
        ("arrow", &["train.arrow", "x.parquet"]),
        ("yolo", &["images/1.jpg", "labels/1.txt"]),
    ];
    let same = |local: &std::path::Path, expected: &str| {
        let store = Objects::of(local, "mem://set");
        let local = open(local);
        let there = Options::new().store("mem", Arc::new(store)).open("mem://set");
        match (local, there) {
            (Ok(local), Ok(there)) => {
                assert_eq!((local.kind(), there.kind()), (expected, expected));
                assert_eq!(samples(&*local), samples(&*there));
                assert_eq!(local.classes(), there.classes());
            }
            (Err(local), Err(there)) => assert_eq!(expected, "error", "{local}; {there}"),
            // A format that needs local files must be recognized, then rejected because there is no
            // cache.
            (Ok(local), Err(there)) => {
                assert_eq!(local.kind(), expected);
                let refused = "the loader has no cache to download them to";
                assert!(there.cause().contains(refused), "{there}");
            }
            (Err(local), Ok(there)) => panic!("{}: {local}", there.kind()),
        }
    };
    for (expected, files) in trees {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, bytes(file)).unwrap();
        }
        eprintln!("{files:?}");
        same(root.path(), expected);
    }
    for (name, expected) in [("arrow/saved", "arrow"), ("arrow_splits/dict", "error"), ("parquet/hub/data", "error")] {
        eprintln!("{name}");
        let store = Objects::of(&fixture(name), "mem://set");
        let there = Options::new().store("mem", Arc::new(store)).open("mem://set").err().unwrap();
        match expected {
            "error" => assert!(open(fixture(name)).is_err()),
            kind => {
                assert_eq!(open(fixture(name)).unwrap().kind(), kind);
                let refused = "the loader has no cache to download them to";
                assert!(there.cause().contains(refused), "{there}");
            }
        }
    }
}

/// A store in which the dataset gets a new commit on every `object` or `list` call.
struct Hub {
    objects: Objects,
    commits: Mutex<u64>,
}

impl Hub {
    fn commit(&self, mut object: Object) -> Object {
        object.tag = Some(format!("commit {}", self.commits.lock().unwrap()));
        object
    }
}

impl Store for Hub {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        *self.commits.lock().unwrap() += 1;
        Ok(self.objects.list(prefix)?.into_iter().map(|object| self.commit(object)).collect())
    }

    fn object(&self, url: &str) -> Result<Object> {
        *self.commits.lock().unwrap() += 1;
        self.objects.object(url).map(|object| self.commit(object))
    }

    fn read(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
        // All bytes must come from the commit that was listed first.
        assert_eq!(object.tag.as_deref(), Some("commit 1"));
        self.objects.read(&self.objects.object(&object.url)?, offset, out)
    }
}

#[test]
fn hub_shards_come_from_a_single_commit() {
    let (root, mem) = shards();
    let objects = Objects::default();
    for (url, (_, bytes)) in mem.0.lock().unwrap().iter() {
        objects.put(&url.replace("mem://set", "hf://datasets/org/name"), bytes.clone());
    }
    let hub = || Options::new().store("hf", Arc::new(Hub { objects: objects.clone(), commits: Mutex::default() }));
    let pattern = |names: &str| format!("hf://datasets/org/name/{names}.tar");
    let source = hub().open(pattern("{s-000000,s-000001}")).unwrap();
    let local = open(root.path().join("{s-000000,s-000001}.tar")).unwrap();
    assert_eq!(samples(&*source), samples(&*local));
    let e = hub().open(pattern("s-00{0000,9999}")).err().unwrap();
    assert!(
        e.cause().contains("the commit contains no object at this URL") && e.to_string().contains("s-009999.tar"),
        "{e}"
    );
}
