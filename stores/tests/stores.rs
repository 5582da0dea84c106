//! Promise: batches from an object store are those of the local files; an object that changes is an
//! error; requests work inside a user's tokio runtime and after a `fork`.

use std::fs;
use std::sync::Arc;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use warpfeed::pack::Pack;
use warpfeed::source::{Memory, Object, Options, OwnedSample, Reply, Source, Store, open};
use warpfeed_stores::object_store;

fn samples(source: &dyn Source) -> Vec<OwnedSample> {
    let read = |index| OwnedSample::try_from(&source.read(index, &mut Vec::new()).unwrap()).unwrap();
    (0..source.len()).map(read).collect()
}

/// Tar shards in a folder, with their number.
fn shards() -> (tempfile::TempDir, usize) {
    let root = tempfile::tempdir().unwrap();
    let sample = |n: u8| OwnedSample::new(format!("s{n:02}")).field("npy", vec![n; 900]).label(n.into());
    let source = Memory::new((0..40).map(sample).collect());
    Pack::new(&source).shard_size(16_000).keep_bad(true).to(root.path().join("s.tar")).unwrap();
    let number = fs::read_dir(root.path()).unwrap().count();
    assert!(number > 1);
    (root, number)
}

fn put(store: &InMemory, key: &str, bytes: Vec<u8>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.put(&Path::from(key), bytes.into())).unwrap();
}

fn memory() -> (tempfile::TempDir, Arc<InMemory>, Options) {
    let ((root, _), store) = (shards(), Arc::new(InMemory::new()));
    for entry in fs::read_dir(root.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        put(&store, &format!("set/train/{name}"), fs::read(&path).unwrap());
    }
    put(&store, "set/train-notes/x.tar", b"no".to_vec());
    let options = Options::new().store("mem", warpfeed_stores::store(store.clone() as Arc<dyn ObjectStore>));
    (root, store, options)
}

#[test]
fn shards_in_an_object_store_are_those_of_the_machine() {
    let (root, _store, options) = memory();
    let local = samples(&*open(root.path()).unwrap());
    assert_eq!(samples(&*options.open("mem://b/set/train").unwrap()), local);
    // A thread of a user's runtime may wait for the store.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let inside = runtime.block_on(async { samples(&*options.open("mem://b/set/train").unwrap()) });
    assert_eq!(inside, local);
}

#[test]
fn an_object_that_changes_is_an_error_with_its_range() {
    let (_root, store, options) = memory();
    let source = options.open("mem://b/set/train").unwrap();
    let url = source.path(0).unwrap().to_str().unwrap().to_owned();
    let by_url = warpfeed_stores::store(store.clone() as Arc<dyn ObjectStore>);
    let object: Object = by_url.object(&url).unwrap();
    put(&store, url.strip_prefix("mem://b/").unwrap(), vec![1; object.len as usize]);
    let e = source.read(0, &mut Vec::new()).unwrap_err();
    assert!(e.cause().contains("changed since it was opened") && !e.is_transient(), "{e}");
    let (send, received) = std::sync::mpsc::channel();
    by_url.fetch(&object, 3..9, Reply::new(move |bytes| send.send(bytes).unwrap()));
    let e = received.recv().unwrap().unwrap_err();
    assert!(e.cause().starts_with("bytes 3 to 9 of ") && e.path().unwrap().to_str() == Some(&url), "{e}");
    let e = by_url.object("mem://b/none").unwrap_err();
    assert!(e.cause().contains("does not exist"), "{e}");
}
