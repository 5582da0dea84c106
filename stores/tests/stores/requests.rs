//! Tests that samples from an object store equal the samples of local files, and that packing to a
//! store writes the same bytes. An object that changes must cause an error. Requests must work
//! inside a user's tokio runtime.

use std::fs;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use warpfeed::pack::{Merge, Pack};
use warpfeed::source::{Memory, Object, Options, OwnedSample, ReadCompletion, Source, Store, open};
use warpfeed_stores::object_store;

use crate::support::Server;

fn samples(source: &dyn Source) -> Vec<OwnedSample> {
    let read = |index| OwnedSample::try_from(&source.read(index, &mut Vec::new()).unwrap()).unwrap();
    (0..source.len()).map(read).collect()
}

fn shards() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let sample = |n: u8| OwnedSample::new(format!("s{n:02}")).field("npy", vec![n; 900]).label(n.into());
    let source = Memory::new((0..40).map(sample).collect());
    Pack::new(&source).shard_size(16_000).keep_undecodable(true).to(root.path().join("s.tar")).unwrap();
    assert!(fs::read_dir(root.path()).unwrap().count() > 1);
    root
}

fn put_object(store: &InMemory, key: &str, bytes: Vec<u8>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.put(&Path::from(key), bytes.into())).unwrap();
}

fn memory() -> (tempfile::TempDir, Arc<InMemory>, Options) {
    let (root, store) = (shards(), Arc::new(InMemory::new()));
    for entry in fs::read_dir(root.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        put_object(&store, &format!("set/train/{name}"), fs::read(&path).unwrap());
    }
    put_object(&store, "set/train-notes/x.tar", b"no".to_vec());
    let options = Options::new().store("mem", warpfeed_stores::store(store.clone() as Arc<dyn ObjectStore>));
    (root, store, options)
}

#[test]
fn an_object_store_has_the_samples_of_local_shards() {
    let (root, _store, options) = memory();
    let local = samples(&*open(root.path()).unwrap());
    assert_eq!(samples(&*options.open("mem://b/set/train").unwrap()), local);
    // A thread of a user's runtime may wait for the store.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let inside = runtime.block_on(async { samples(&*options.open("mem://b/set/train").unwrap()) });
    assert_eq!(inside, local);
}

#[test]
fn an_error_for_a_changed_object_contains_the_range() {
    let (_root, store, options) = memory();
    let source = options.open("mem://b/set/train").unwrap();
    let url = source.path(0).unwrap().to_str().unwrap().to_owned();
    let by_url = warpfeed_stores::store(store.clone() as Arc<dyn ObjectStore>);
    let object: Object = by_url.object(&url).unwrap();
    put_object(&store, url.strip_prefix("mem://b/").unwrap(), vec![1; object.len as usize]);
    let e = source.read(0, &mut Vec::new()).unwrap_err();
    assert!(e.cause().contains("changed since it was opened") && !e.is_transient(), "{e}");
    let (send, received) = std::sync::mpsc::channel();
    by_url.fetch(&object, 3..9, ReadCompletion::new(move |bytes| send.send(bytes).unwrap()));
    let e = received.recv().unwrap().unwrap_err();
    assert!(e.cause().starts_with("bytes 3 to 9 of ") && e.path().unwrap().to_str() == Some(&url), "{e}");
    let e = by_url.object("mem://b/none").unwrap_err();
    assert!(e.cause().contains("does not exist"), "{e}");
}

#[test]
fn multipart_uploads_of_packs_write_the_bytes_of_local_shards() {
    // The shards have up to 60 MB, so they are uploaded in up to 8 parts.
    let sample = |n: u8| OwnedSample::new(format!("s{n:02}")).field("npy", vec![n; 10_000_000]).label(n.into());
    let source = Memory::new((0..13).map(sample).collect());
    let local = tempfile::tempdir().unwrap();
    fn pack(source: &Memory) -> Pack<'_> {
        Pack::new(source).shard_samples(6).keep_undecodable(true)
    }
    pack(&source).to(local.path().join("x.tar")).unwrap();
    let memory = Arc::new(InMemory::new());
    let stores = || [("mem", warpfeed_stores::store(memory.clone() as Arc<dyn ObjectStore>))];
    for part in [1, 0, 1] {
        pack(&source).stores(stores()).part(part, 2).to("mem://b/sets/x.tar").unwrap();
    }
    let e = Options::new().stores(stores()).open("mem://b/sets").err().unwrap();
    assert!(e.cause().contains("is incomplete: 2 finished parts"), "{e}");
    let merged = Merge::new("mem://b/sets/x.tar").stores(stores()).run().unwrap();
    assert_eq!((merged.report.samples, merged.orphans.len()), (13, 0));
    let store = warpfeed_stores::store(memory.clone() as Arc<dyn ObjectStore>);
    // In a folder, the first reader writes the indexes.
    let is_index = |object: &Object| object.url.ends_with(".tar.index");
    let (indexes, objects): (Vec<_>, Vec<_>) = store.list("mem://b/sets/").unwrap().into_iter().partition(is_index);
    assert_eq!((indexes.len(), objects.len()), (3, 4));
    for object in objects {
        let name = object.url.strip_prefix("mem://b/sets/").unwrap();
        let mut bytes = vec![0; object.len as usize];
        store.read(&object, 0, &mut bytes).unwrap();
        assert!(bytes == fs::read(local.path().join(name)).unwrap(), "{name}");
    }
    let opened = Options::new().stores(stores()).open("mem://b/sets").unwrap();
    assert!(samples(&*opened) == samples(&*open(local.path()).unwrap()));
}

#[test]
fn an_upload_creates_replaces_or_is_dropped() {
    let store = warpfeed_stores::store(Arc::new(InMemory::new()) as Arc<dyn ObjectStore>);
    let write = |bytes: &[u8], new: bool| {
        let mut upload = store.create("mem://b/x").unwrap();
        bytes.chunks(700_001).for_each(|piece| upload.write(piece).unwrap());
        upload.complete(new).unwrap()
    };
    let size = || store.object("mem://b/x").map(|object| object.len).ok();
    for len in [0, 1, 8 << 20, (8 << 20) + 1, 40 << 20] {
        let bytes: Vec<u8> = (0..len).map(|i: usize| (i % 251) as u8).collect();
        assert!(write(&bytes, true) && size() == Some(len as u64), "{len} bytes");
        assert!(!write(&bytes[..len / 2], true) && size() == Some(len as u64), "{len} bytes");
        let object = store.object("mem://b/x").unwrap();
        let mut read = vec![0; len];
        store.read(&object, 0, &mut read).unwrap();
        assert!(read == bytes, "{len} bytes");
        assert!(write(&bytes[..len / 2], false) && size() == Some(len as u64 / 2), "{len} bytes");
        store.remove("mem://b/x").unwrap();
        store.remove("mem://b/x").unwrap();
        assert_eq!(size(), None);
    }
    let mut dropped = store.create("mem://b/x").unwrap();
    dropped.write(&vec![1; 20 << 20]).unwrap();
    drop(dropped);
    assert_eq!(size(), None);
    let stores = warpfeed_stores::all();
    let (_, web) = stores.iter().find(|(scheme, _)| *scheme == "https").unwrap();
    for url in ["https://example.com/x.tar", "hf://datasets/a/b/x.tar"] {
        let e = web.create(url).err().unwrap();
        assert!(e.cause().contains("read-only"), "{e}");
    }
}

/// Returns a new server, and a function that reads a range of an object on this server. The
/// function returns the number of requests, or `None` if the read fails.
fn counted_reads(faults: u64) -> (Arc<Server>, impl Fn(Range<usize>) -> Option<u64>) {
    let (server, address) = Server::start();
    let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
    server.put("/bucket/photo", bytes.clone());
    server.faults.store(faults, Ordering::SeqCst);
    let (store, counted) = (warpfeed_stores::all().remove(0).1, server.clone());
    let object = store.object(&format!("{address}/bucket/photo")).unwrap();
    let read = move |range: Range<usize>| {
        let (before, mut out) = (counted.requests.load(Ordering::SeqCst), vec![0; range.len()]);
        store.read(&object, range.start as u64, &mut out).ok()?;
        assert!(out == bytes[range]);
        Some(counted.requests.load(Ordering::SeqCst) - before)
    };
    (server, read)
}

#[test]
fn first_reads_are_divided_until_additional_requests_are_used_up_or_fail() {
    let (_server, requests) = counted_reads(0);
    assert_eq!([requests(5..14_005), requests(7..30_000), requests(0..100_000)], [Some(1), Some(3), Some(5)]);
    // Of 72 additional requests, 6 have been sent.
    assert_eq!((0..40).filter_map(|_| requests(0..100_000)).sum::<u64>(), 40 + 66);
    let (server, requests) = counted_reads(1);
    assert_eq!(requests(0..100_000), None);
    server.faults.store(0, Ordering::SeqCst);
    assert!(requests(0..100_000).is_some());
    assert!(server.received.lock().unwrap().iter().any(|request| request.contains("bytes=0-99999")));
}
