//! Tests that batches read through the cache equal the batches of the local files, with several
//! cache sizes and numbers of ranks, and with faults of the store. Cached bytes must not be fetched
//! again.

use std::sync::{Arc, Mutex};

use crate::objects::Objects;
use warpfeed::pack::Pack;
use warpfeed::sampler::Rng;
use warpfeed::source::{Memory, Object, Options, OwnedSample, Store, open};
use warpfeed::{Augment, Error, Loader, Result};
use warpfeed_stores::{Cache, show, warm};

/// A store in which reads fail or are delayed at random if `faults` is set.
struct Faulty {
    objects: Objects,
    faults: Option<Mutex<Rng>>,
}

impl Store for Faulty {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.objects.list(prefix)
    }

    fn object(&self, url: &str) -> Result<Object> {
        self.objects.object(url)
    }

    fn read(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
        if let Some(faults) = &self.faults {
            let fault = faults.lock().unwrap().below(20);
            out.fill(fault as u8);
            match fault {
                0 => return Err(Error::in_source("cut").transient()),
                1 => return Err(Error::in_source("slow down").throttled()),
                2 => std::thread::sleep(std::time::Duration::from_millis(3)),
                _ => {}
            }
        }
        self.objects.read(object, offset, out)
    }
}

fn image(number: u64) -> Vec<u8> {
    let mut bytes = b"BM".to_vec();
    for word in [54 + 3072u32, 0, 54, 40, 32, 32, 1 | 24 << 16, 0, 3072, 0, 0, 0, 0] {
        bytes.extend(word.to_le_bytes());
    }
    let mut rng = Rng::new(number, 0, 0);
    bytes.extend((0..3072).map(|_| rng.below(256) as u8));
    bytes
}

fn shards(faults: Option<u64>) -> (tempfile::TempDir, Arc<Faulty>) {
    let root = tempfile::tempdir().unwrap();
    let sample = |n: u64| OwnedSample::new(format!("s{n:03}")).field("bmp", image(n)).label(n as i64);
    let source = Memory::new((0..96).map(sample).collect());
    Pack::new(&source).shard_size(64_000).to(root.path().join("s.tar")).unwrap();
    let objects = Objects::of(root.path(), "mem://set");
    let store = Faulty { objects, faults: faults.map(|seed| Mutex::new(Rng::new(seed, 0, 0))) };
    (root, Arc::new(store))
}

fn batches(loader: Loader, epochs: usize) -> Vec<(Vec<i64>, Vec<u8>)> {
    let mut batches = loader.augment(Augment::train(16)).batch_size(8).shuffle(5).epochs(epochs as u64).host().unwrap();
    let mut contents = Vec::new();
    for epoch in 0..epochs {
        for batch in batches.epoch(epoch as u64) {
            let batch = batch.unwrap();
            contents.push((batch.labels().unwrap().to_vec(), batch.images().as_u8().unwrap().to_vec()));
        }
    }
    contents
}

#[test]
fn batches_through_the_cache_equal_those_of_local_files() {
    for (number, (limit, memory, faults)) in
        [(1 << 30, 0, None), (150_000, 0, Some(1)), (150_000, 40_000, Some(2)), (1 << 30, 0, Some(3)), (0, 0, Some(4))]
            .into_iter()
            .enumerate()
    {
        let (root, objects) = shards(faults);
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::with_memory(folder.path(), limit, memory).unwrap();
        let world = 1 + number % 2;
        for rank in 0..world {
            let with_ranks = |loader: Loader| loader.rank(rank, world).local_world_size(world);
            let local = batches(with_ranks(Loader::new(root.path())), 3);
            assert_eq!(local.len(), 3 * 96 / 8 / world);
            let remote = Loader::new("mem://set").stores(cache.stores([("mem", objects.clone() as Arc<dyn Store>)]));
            assert!(batches(with_ranks(remote), 3) == local, "cache {number}, rank {rank} of {world}");
            // The first loader may prefetch samples of later epochs before they are cached, so only
            // a second loader is certain to have cache hits.
            let remote = Loader::new("mem://set").stores(cache.stores([("mem", objects.clone() as Arc<dyn Store>)]));
            assert!(batches(with_ranks(remote), 3) == local, "cache {number}, rank {rank} of {world}, again");
        }
        let counts = cache.stats();
        assert!(counts.missed_bytes > 0 && (limit == 0 || counts.disk_hits > 0), "{counts:?}");
    }
}

#[test]
fn cached_bytes_are_not_fetched_again() {
    let (_root, objects) = shards(None);
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), 1 << 30).unwrap();
    let loader = |rank, world| {
        // This call returns the cache that this process has already opened.
        let cache = Cache::open(folder.path(), 1 << 30).unwrap();
        let stores = cache.stores([("mem", objects.clone() as Arc<dyn Store>)]);
        Loader::new("mem://set").stores(stores).rank(rank, world).local_world_size(world)
    };
    batches(loader(0, 1), 1);
    let before = cache.stats();
    batches(loader(0, 1), 3);
    batches(loader(1, 2), 2);
    let counts = cache.stats();
    assert_eq!((counts.misses, counts.disk_hits - before.disk_hits), (before.misses, 3 * 96 + 96));
}

#[test]
fn statistics_distinguish_cache_hits_from_store_reads() {
    let (_root, objects) = shards(None);
    for (limit, memory) in [(1 << 30, 0), (0, 1 << 30)] {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::with_memory(folder.path(), limit, memory).unwrap();
        let network = |epochs: u64| {
            let loader =
                Loader::new("mem://set").store("mem", cache.store(objects.clone())).augment(Augment::train(16));
            let mut batches = loader.batch_size(8).shuffle(5).epochs(epochs).host().unwrap();
            for epoch in 0..epochs {
                batches.epoch(epoch).for_each(|batch| drop(batch.unwrap()));
            }
            batches.stats().network.unwrap()
        };
        let (cold, warm) = (network(1), network(2));
        assert_eq!((cold.hit_rate(), warm.hit_rate()), (Some(0.0), Some(1.0)));
        assert_eq!((cold.memory_hits, cold.disk_hits, warm.used_bytes), (0, 0, 0));
        let hits = (warm.memory_hits, warm.disk_hits);
        assert_eq!(hits, if memory > 0 { (192, 0) } else { (0, 192) });
        assert_eq!(warm.memory_bytes + warm.disk_bytes, 2 * cold.used_bytes);
    }
}

#[test]
fn warming_fills_the_cache_for_the_loader() {
    let (_root, objects) = shards(None);
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), 1 << 30).unwrap();
    let store = cache.store(objects.clone());
    let source = Options::new().store("mem", store.clone()).open("mem://set").unwrap();
    let mut read_count = 0;
    warm(&*source, || read_count += 1).unwrap();
    assert_eq!((read_count, show(folder.path()).unwrap().blocks), (96, 96));
    let before = cache.stats();
    batches(Loader::new("mem://set").store("mem", store), 1);
    let counts = cache.stats();
    assert_eq!((counts.disk_hits - before.disk_hits, counts.misses - before.misses), (96, 0));
    assert_eq!(open(folder.path()).err().map(|e| e.is_transient()), Some(false), "a cache is not a dataset");
}
