//! Promise: tar shards are read from a store by URL as from this machine. A URL without a store,
//! and a format that is not read from one, are errors that say what to do. An object that changes
//! is an error, and bytes of two versions are never mixed.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex};

use crate::support::{Content, Draw, Numbers};
use warpfeed::pack::Pack;
use warpfeed::source::{Object, Options, OwnedSample, Source, Store, open};
use warpfeed::{Augment, Error, ErrorKind, Loader, Result};

/// Objects in memory, each with a version.
#[derive(Clone, Default)]
struct Objects(Arc<Mutex<Versions>>);

/// Number and bytes of the newest version of each object.
type Versions = BTreeMap<String, (u64, Vec<u8>)>;

impl Objects {
    fn put(&self, url: &str, bytes: Vec<u8>) {
        let mut objects = self.0.lock().unwrap();
        let version = objects.get(url).map_or(0, |(version, _)| version + 1);
        objects.insert(url.to_owned(), (version, bytes));
    }
}

impl Store for Objects {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        let urls: Vec<_> = self.0.lock().unwrap().keys().filter(|url| url.starts_with(prefix)).cloned().collect();
        urls.iter().map(|url| self.object(url)).collect()
    }

    fn object(&self, url: &str) -> Result<Object> {
        let objects = self.0.lock().unwrap();
        let (version, bytes) = objects.get(url).ok_or_else(|| Error::in_source("no such object").at_path(url))?;
        Ok(Object { url: url.to_owned(), len: bytes.len() as u64, tag: Some(version.to_string()) })
    }

    fn read(&self, object: &Object, at: u64, to: &mut [u8]) -> Result<()> {
        let objects = self.0.lock().unwrap();
        let (version, bytes) = &objects[&object.url];
        if object.tag != Some(version.to_string()) {
            return Err(Error::in_source("the object has another tag").at_path(&object.url));
        }
        to.copy_from_slice(&bytes[at as usize..][..to.len()]);
        Ok(())
    }
}

fn samples(source: &dyn Source) -> Vec<OwnedSample> {
    let read = |index| OwnedSample::try_from(&source.read(index, &mut Vec::new()).unwrap()).unwrap();
    (0..source.len()).map(read).collect()
}

/// Shards of 40 numbers, here and in a store.
fn shards() -> (tempfile::TempDir, Objects) {
    let (root, store) = (tempfile::tempdir().unwrap(), Objects::default());
    Pack::new(&Numbers::new(40)).shard_size(16_000).keep_bad(true).to(root.path().join("s.tar")).unwrap();
    for (number, entry) in fs::read_dir(root.path()).unwrap().enumerate() {
        let path = entry.unwrap().path();
        assert!(number < 10, "shards have one digit");
        store.put(&format!("mem://set/{}", path.file_name().unwrap().to_str().unwrap()), fs::read(&path).unwrap());
    }
    store.put("mem://set/notes.txt", b"not a shard".to_vec());
    // The last four bytes of this name begin inside a character.
    store.put("mem://set/\u{30c7}\u{30fc}\u{30bf}", b"not a shard".to_vec());
    (root, store)
}

#[test]
fn shards_in_a_store_are_those_of_the_machine() {
    let (root, store) = shards();
    let local = open(root.path()).unwrap();
    let options = Options::new().store("mem", Arc::new(store.clone()));
    let names: Vec<_> = store.list("mem://set/").unwrap().into_iter().map(|object| object.url).collect();
    let names: Vec<_> = names.iter().filter(|url| url.ends_with(".tar")).collect();
    assert!(names.len() > 1);
    let stems: Vec<_> = names.iter().map(|url| url.strip_prefix("mem://set/").unwrap().to_owned()).collect();
    for url in ["mem://set".to_owned(), "mem://set/".to_owned(), format!("mem://set/{{{}}}", stems.join(","))] {
        let remote = options.open(&url).unwrap();
        assert_eq!((remote.kind(), samples(&*remote)), ("tar", samples(&*local)), "{url}");
        assert_eq!(remote.path(0).unwrap().to_str().unwrap(), names[0]);
    }
    assert!(options.open(names[1]).unwrap().len() < local.len());

    let loader = |loader: Loader| loader.codec(Draw).augment(Augment::train(16)).batch_size(8).shuffle(3);
    let content = |loader: Loader| loader.into_iter().map(|batch| Content::from(&batch.unwrap())).collect::<Vec<_>>();
    let remote = loader(Loader::new("mem://set").store("mem", store));
    assert!(content(remote) == content(loader(Loader::new(root.path()))));
}

#[test]
fn a_url_that_cannot_be_opened_says_what_to_do() {
    let (root, store) = shards();
    let options = Options::new().store("mem", Arc::new(store));
    for (url, kind, words) in [
        ("s3://bucket/train", ErrorKind::Config, "no store is known for s3:// URLs; add a store for the scheme \"s3\""),
        ("mem://set/coco.json", ErrorKind::Config, "coco data sets are not read from a store, only tar"),
        ("mem://empty", ErrorKind::Source, "no .tar objects and no pictures among 0 objects below this URL"),
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
    // An explicit format overrides the one that the path suggests.
    let e = Options::new().format("folder").open(root.path()).err().unwrap();
    assert!(e.cause().contains("no images"), "{e}");
}

#[test]
fn an_object_that_changes_is_an_error_with_its_url() {
    let (_root, store) = shards();
    let source = Options::new().store("mem", Arc::new(store.clone())).open("mem://set").unwrap();
    let url = source.path(39).unwrap().to_str().unwrap().to_owned();
    let bytes = store.0.lock().unwrap()[&url].1.clone();
    store.put(&url, bytes);
    let e = source.read(39, &mut Vec::new()).unwrap_err();
    assert!(e.to_string().contains(&url) && e.cause().contains("another tag"), "{e}");
    source.check().unwrap();
    let e = source.read(39, &mut Vec::new()).unwrap_err();
    assert!(e.cause().contains("another tag"), "{e}");
    assert!(source.read(0, &mut Vec::new()).is_ok(), "other shards are as they were");
}

/// A store that lists objects in reverse order. If `busy` is set, the next call of `object` clears
/// it and fails.
struct Busy {
    objects: Objects,
    busy: Arc<Mutex<bool>>,
}

impl Store for Busy {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        let mut all = self.objects.list(prefix)?;
        all.reverse();
        Ok(all)
    }

    fn object(&self, url: &str) -> Result<Object> {
        if std::mem::take(&mut *self.busy.lock().unwrap()) {
            return Err(Error::in_source("slow down").at_path(url).transient());
        }
        self.objects.object(url)
    }

    fn read(&self, object: &Object, at: u64, to: &mut [u8]) -> Result<()> {
        self.objects.read(object, at, to)
    }
}

#[test]
fn a_store_that_is_busy_once_loses_no_shard_and_its_list_may_be_in_any_order() {
    let (_root, objects) = shards();
    let busy = Arc::new(Mutex::new(false));
    let expected = samples(&*Options::new().store("mem", Arc::new(objects.clone())).open("mem://set").unwrap());
    *busy.lock().unwrap() = true;
    let store = Arc::new(Busy { objects, busy: busy.clone() });
    let url = "mem://set/{s-000000,s-000001}.tar";
    assert!(Options::new().store("mem", store.clone()).open(url).unwrap().len() > 1);
    assert!(!*busy.lock().unwrap(), "the store was busy");
    let source = Options::new().store("mem", store).open("mem://set").unwrap();
    assert_eq!(samples(&*source), expected);
}
