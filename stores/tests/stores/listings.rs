//! Tests that a folder in a store is listed only once, by one of the ranks. If a listed object
//! changes, opening or reading must detect the change, and the folder is listed again. New objects
//! appear only when the folder is listed again, for example after a refresh.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use crate::objects::Objects;
use warpfeed::source::{Object, Options, Source, Store};
use warpfeed::{Error, Result};
use warpfeed_stores::{Cache, check, empty, refresh, show};

/// In-memory objects. Counts listings.
#[derive(Default)]
struct Listed {
    objects: Objects,
    lists: AtomicU64,
    server: Mutex<Option<Arc<str>>>,
}

impl Listed {
    fn of(count: u64) -> Arc<Self> {
        let store = Arc::new(Listed::default());
        (0..count).for_each(|n| store.put(&format!("mem://set/{}/{n:03}.bmp", n % 2), n as u8));
        store
    }

    fn put(&self, url: &str, byte: u8) {
        self.objects.put(url, vec![byte; 9]);
    }
}

impl Store for Listed {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.lists.fetch_add(1, SeqCst);
        // This pause gives the other rank time to request the listing.
        thread::sleep(Duration::from_millis(50));
        let server = self.server.lock().unwrap().clone();
        let objects = self.objects.list(prefix)?.into_iter();
        Ok(objects.map(|object| Object { server: server.clone(), ..object }).collect())
    }

    fn object(&self, url: &str) -> Result<Object> {
        let server = self.server.lock().unwrap().clone();
        Ok(Object { server, ..self.objects.object(url)? })
    }

    fn read(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
        if self.object(&object.url)? != *object {
            return Err(Error::in_source("the object has changed").at_path(&object.url));
        }
        self.objects.read(object, offset, out)
    }
}

fn opened(folder: &tempfile::TempDir, store: &Arc<Listed>) -> Result<Arc<dyn Source>> {
    let cache = Cache::open(folder.path(), 1 << 30)?;
    Options::new().store("mem", cache.store(store.clone())).open("mem://set")
}

fn read(source: &dyn Source) -> Result<Vec<u8>> {
    (0..source.len()).map(|index| Ok(source.read(index, &mut Vec::new())?.image().unwrap().1[0])).collect()
}

#[test]
fn a_folder_is_listed_once_by_one_of_the_ranks() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Listed::of(40));
    let (both, cache) = (Barrier::new(2), Cache::open(folder.path(), 1 << 30).unwrap());
    let rank = || {
        both.wait();
        Options::new().store("mem", cache.store(store.clone())).open("mem://set").unwrap().len()
    };
    let ranks: Vec<_> = thread::scope(|scope| {
        let ranks = [scope.spawn(rank), scope.spawn(rank)];
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    assert_eq!((ranks, store.lists.load(SeqCst)), (vec![40, 40], 1));
    let direct = Options::new().store("mem", store.clone()).open("mem://set").unwrap();
    let lists = store.lists.load(SeqCst);
    let again = opened(&folder, &store).unwrap();
    assert_eq!((again.fingerprint(), read(&*again).unwrap()), (direct.fingerprint(), read(&*direct).unwrap()));
    assert_eq!(store.lists.load(SeqCst), lists, "reopening the dataset must not list the store again");
    let listings = show(folder.path()).unwrap().listings;
    assert_eq!(
        listings.into_iter().map(|(url, (count, _))| (url, count)).collect::<Vec<_>>(),
        [("mem://set/".to_owned(), 40)]
    );
}

#[test]
fn a_changed_object_causes_an_error_and_a_new_listing() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Listed::of(40));
    opened(&folder, &store).unwrap();
    // Opening compares only 8 of the 40 objects with the store. This object is not among them, so
    // its change is not detected.
    store.put("mem://set/0/002.bmp", 200);
    let set = opened(&folder, &store).unwrap();
    assert_eq!(store.lists.load(SeqCst), 1);
    let e = read(&*set).unwrap_err();
    assert!(e.cause().contains("has changed") && e.path().unwrap().ends_with("002.bmp"), "{e}");
    let set = opened(&folder, &store).unwrap();
    assert_eq!((read(&*set).unwrap()[1], store.lists.load(SeqCst)), (200, 2));

    // Change the first object. Then pretend that a different server has the same URLs.
    store.put("mem://set/0/000.bmp", 201);
    assert_eq!(read(&*opened(&folder, &store).unwrap()).unwrap()[0], 201);
    assert_eq!(store.lists.load(SeqCst), 3);
    *store.server.lock().unwrap() = Some("elsewhere".into());
    opened(&folder, &store).unwrap();
    assert_eq!(store.lists.load(SeqCst), 4);
    store.objects.0.lock().unwrap().remove("mem://set/1/039.bmp");
    assert_eq!((opened(&folder, &store).unwrap().len(), store.lists.load(SeqCst)), (39, 5));
}

#[test]
fn a_new_object_appears_after_a_refresh() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Listed::of(40));
    opened(&folder, &store).unwrap();
    store.put("mem://set/1/new.bmp", 9);
    assert_eq!(opened(&folder, &store).unwrap().len(), 40);
    assert_eq!(refresh(folder.path(), "mem://other").unwrap(), 0);
    assert_eq!(opened(&folder, &store).unwrap().len(), 40);
    assert_eq!(refresh(folder.path(), "mem://set").unwrap(), 1);
    assert_eq!(opened(&folder, &store).unwrap().len(), 41);
    // A write through the cache invalidates the listing.
    store.put("mem://set/1/newer.bmp", 9);
    let written = Cache::open(folder.path(), 1 << 30).unwrap().store(store.clone()).create("mem://set/1/newer.bmp");
    assert!(written.is_err(), "this store is read-only");
    assert_eq!(opened(&folder, &store).unwrap().len(), 42);
    empty(folder.path()).unwrap();
    assert!(show(folder.path()).unwrap().listings.is_empty());
}

#[test]
fn damaged_and_empty_listings_are_not_used() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Listed::of(40));
    opened(&folder, &store).unwrap();
    let file = || {
        let files = fs::read_dir(folder.path().join("files")).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().unwrap() == "listing").collect::<Vec<_>>()
    };
    for bytes in [&b""[..], b"wflist\0\x01", b"something else"] {
        fs::write(&file()[0], bytes).unwrap();
        let lists = store.lists.load(SeqCst);
        assert_eq!((opened(&folder, &store).unwrap().len(), store.lists.load(SeqCst)), (40, lists + 1));
    }
    fs::write(&file()[0], b"damaged").unwrap();
    assert_eq!((check(folder.path()).unwrap().damaged, file().len()), (1, 0));
    store.objects.0.lock().unwrap().clear();
    assert!(opened(&folder, &store).is_err() && file().is_empty());
}
