//! Tests that samples prefetched from a store equal the local samples even if the network truncates
//! bodies, refuses requests, loses replies or reorders them. Errors must name the object and the
//! range. Prefetching must need few round trips and few extra bytes.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::files::seal;
use crate::objects::Objects;
use crate::packed_tokens::random;
use crate::support::{BatchContent, NumberCodec, NumberSource, exit_on_hang};
use warpfeed::pack::Pack;
use warpfeed::sampler::{Sampler, Windowed};
use warpfeed::source::{
    BatchIndex, Lookahead, Memory, Object, Options, OwnedSample, ReadCompletion, Source, Store, open,
};
use warpfeed::{Augment, Error, Loader, Result};

fn shards(len: usize, size: usize) -> tempfile::TempDir {
    shards_of(&vec![size; len])
}

fn shards_of(sizes: &[usize]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let sample = |(n, &size): (usize, &usize)| {
        let bytes: Vec<u8> = (0..size).map(|i| (i * 31 + n * 7) as u8).collect();
        OwnedSample::new(format!("s{n:05}")).field("bin", bytes).label(n as i64)
    };
    let source = Memory::new(sizes.iter().enumerate().map(sample).collect());
    let total = sizes.iter().map(|size| size + 2560).sum::<usize>();
    Pack::new(&source).shard_size(total as u64 / 3).to(root.path().join("s.tar")).unwrap();
    root
}

fn owned(source: &dyn Source, index: usize) -> Result<OwnedSample> {
    OwnedSample::try_from(&source.read(index, &mut Vec::new())?)
}

/// A simulated network whose random faults depend on `seed` and the order of the requests.
#[derive(Clone)]
struct Faulty {
    objects: Objects,
    seed: u64,
    requests: Arc<AtomicU64>,
    /// Number of attempts per request, by object and first byte. The third attempt has no random
    /// fault.
    attempts: Arc<Mutex<HashMap<(String, u64), u64>>>,
    /// Reads that end beyond this offset of the shard `-000001.tar` fail permanently.
    permanent_from: Arc<AtomicU64>,
}

impl Faulty {
    fn new(objects: &Objects, seed: u64) -> Self {
        let (objects, permanent_from) = (objects.clone(), Arc::new(AtomicU64::new(u64::MAX)));
        Faulty { objects, seed, requests: Arc::default(), attempts: Arc::default(), permanent_from }
    }

    fn outcome(&self, object: &Object, range: &Range<u64>) -> (u64, Result<Vec<u8>>) {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut dice = random(self.seed ^ number << 20 ^ range.start);
        let attempt = {
            let mut attempts = self.attempts.lock().unwrap();
            let attempt = attempts.entry((object.url.clone(), range.start)).or_default();
            *attempt += 1;
            *attempt
        };
        let bytes = self.objects.bytes(object, range.clone()).unwrap();
        if range.end > self.permanent_from.load(Ordering::Relaxed) && object.url.ends_with("-000001.tar") {
            return (9, Err(Error::in_source("the credentials have expired").at_path(&object.url)));
        }
        let fault = if attempt > 2 { 9 } else { dice(20) };
        let result = match fault {
            0 => Ok(bytes[..bytes.len() / 2].to_vec()),
            1 => Ok([bytes, vec![0]].concat()),
            2 => Err(Error::in_source("status 503").throttled()),
            3 => Err(Error::in_source("connection reset").transient()),
            _ => Ok(bytes),
        };
        (fault, result)
    }
}

impl Store for Faulty {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.objects.list(prefix)
    }

    fn object(&self, url: &str) -> Result<Object> {
        self.objects.object(url)
    }

    fn read(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
        match self.outcome(object, &(offset..offset + out.len() as u64)).1 {
            Ok(bytes) if bytes.len() == out.len() => out.copy_from_slice(&bytes),
            Ok(_) => return Err(Error::in_source("cut").transient()),
            Err(e) => return Err(e),
        }
        Ok(())
    }

    fn fetch(&self, object: &Object, range: Range<u64>, reply: ReadCompletion) {
        let (fault, result) = self.outcome(object, &range);
        match fault {
            4 => drop(reply),
            5 => panic!("a fault of the store"),
            // Responses arrive on other threads, in any order, possibly before this call returns.
            6..9 => {
                thread::spawn(move || {
                    thread::sleep(Duration::from_micros(300 * fault));
                    reply.complete(result);
                });
            }
            _ => reply.complete(result),
        }
    }
}

/// Reads two epochs, each batch on several threads. Some seeds cancel an epoch early.
fn drive(source: &Arc<dyn Source>, expected: &[OwnedSample], seed: u64, bytes: usize) -> Result<()> {
    let (len, batch) = (source.len() as u64, 5);
    let order = move |BatchIndex { epoch, batch: number }: BatchIndex| {
        let sample_at = |position: u64| (position * 7 + epoch * 3 + seed) % len;
        Some((number * batch..(number * batch + batch).min(len)).map(sample_at).collect())
    };
    let prefetcher = source.prefetcher(Lookahead::new(bytes, move |_| len.div_ceil(batch), order));
    let mut dice = random(seed + 1);
    for epoch in 0..2 {
        let (first, last) = (dice(3), len.div_ceil(batch) - dice(2));
        if let Some(prefetcher) = &prefetcher {
            prefetcher.start(BatchIndex { epoch, batch: first });
        }
        for number in first..last {
            let place = BatchIndex { epoch, batch: number };
            let samples: Vec<u64> = order(place).unwrap();
            thread::scope(|scope| {
                let reads: Vec<_> = samples
                    .iter()
                    // A loader may skip a sample.
                    .filter(|sample| !(*sample + seed).is_multiple_of(17))
                    .map(|&sample| scope.spawn(move || (sample, owned(&**source, sample as usize))))
                    .collect();
                reads.into_iter().try_for_each(|read| {
                    let (sample, actual) = read.join().unwrap();
                    assert_eq!(actual?, expected[sample as usize], "seed {seed}, sample {sample}");
                    Ok::<_, Error>(())
                })
            })?;
            if let Some(prefetcher) = &prefetcher {
                prefetcher.done(place);
            }
        }
        if let Some(prefetcher) = &prefetcher
            && last < len.div_ceil(batch)
        {
            prefetcher.stop();
        }
    }
    Ok(())
}

#[test]
fn no_fault_schedule_loses_or_changes_samples() {
    exit_on_hang(|| {
        let root = shards(24, 600);
        let (objects, local) = (Objects::of(root.path(), "mem://set"), open(root.path()).unwrap());
        let expected: Vec<_> = (0..local.len()).map(|index| owned(&*local, index).unwrap()).collect();
        let failed = AtomicUsize::new(0);
        let next = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= 1000 {
                            return;
                        }
                        let store = Faulty::new(&objects, seed);
                        let source = Options::new().store("mem", Arc::new(store.clone())).open("mem://set").unwrap();
                        let fails = seed % 10 == 9;
                        if fails {
                            store.permanent_from.store(3000, Ordering::Relaxed);
                        }
                        let bytes = [700, 4_000, 20_000, 1 << 20][seed as usize % 4];
                        if let Err(e) = drive(&source, &expected, seed, bytes) {
                            assert!(fails && !e.is_transient(), "seed {seed}: {e}");
                            assert!(e.path().unwrap().ends_with("s-000001.tar"), "{e}");
                            assert!(e.cause().contains("credentials have expired"), "{e}");
                            failed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(failed.into_inner(), 100, "a permanent fault is an error");
    });
}

#[test]
fn batches_from_a_faulty_store_equal_the_local_files() {
    exit_on_hang(|| {
        let root = tempfile::tempdir().unwrap();
        Pack::new(&NumberSource::new(70))
            .shard_size(16_000)
            .keep_undecodable(true)
            .to(root.path().join("s.tar"))
            .unwrap();
        let objects = Objects::of(root.path(), "mem://set");
        let contents = |loader: Loader, rank: usize, ranks: usize| {
            let loader = loader.codec(NumberCodec).augment(Augment::train(16)).batch_size(4).shuffle(3).workers(2);
            let mut batches = loader.rank(rank, ranks).host().unwrap();
            let epochs = (0..2).flat_map(|epoch| {
                batches.epoch(epoch).map(|batch| BatchContent::from(&batch.unwrap())).collect::<Vec<_>>()
            });
            epochs.collect::<Vec<_>>()
        };
        for (seed, ranks) in [(1, 1), (2, 1), (3, 2), (4, 3)] {
            for rank in 0..ranks {
                let store = Faulty::new(&objects, seed);
                let remote = contents(Loader::new("mem://set").store("mem", store), rank, ranks);
                assert!(remote == contents(Loader::new(root.path()), rank, ranks), "seed {seed}, rank {rank}");
            }
        }
    });
}

/// A network with round trips: when no further request arrives, all pending requests are answered
/// together.
#[derive(Clone)]
struct Trips {
    objects: Objects,
    send: mpsc::Sender<Box<dyn FnOnce() + Send>>,
    trips: Arc<AtomicUsize>,
    bytes: Arc<AtomicU64>,
    direct: Arc<AtomicU64>,
    requests: Arc<AtomicUsize>,
}

/// Time without a request that ends a round trip. It is long, because a busy machine may delay
/// requests of the same round trip.
const QUIET: Duration = Duration::from_millis(1000);

impl Trips {
    fn new(objects: Objects) -> Self {
        let (send, waiting) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let trips = Arc::new(AtomicUsize::new(0));
        let counted = trips.clone();
        thread::spawn(move || {
            while let Ok(first) = waiting.recv() {
                let mut answers = vec![first];
                while let Ok(next) = waiting.recv_timeout(QUIET) {
                    answers.push(next);
                }
                counted.fetch_add(1, Ordering::SeqCst);
                answers.into_iter().for_each(|answer| answer());
            }
        });
        Trips { objects, send, trips, bytes: Arc::default(), direct: Arc::default(), requests: Arc::default() }
    }

    fn wait(&self) {
        let (send, answered) = mpsc::channel();
        self.send.send(Box::new(move || send.send(()).unwrap())).unwrap();
        answered.recv().unwrap();
    }
}

impl Store for Trips {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.wait();
        self.objects.list(prefix)
    }

    fn object(&self, url: &str) -> Result<Object> {
        self.wait();
        self.objects.object(url)
    }

    fn read(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
        self.wait();
        self.direct.fetch_add(out.len() as u64, Ordering::SeqCst);
        self.objects.read(object, offset, out)
    }

    fn fetch(&self, object: &Object, range: Range<u64>, reply: ReadCompletion) {
        self.requests.fetch_add(1, Ordering::SeqCst);
        self.bytes.fetch_add(range.end - range.start, Ordering::SeqCst);
        let bytes = self.objects.bytes(object, range);
        self.send.send(Box::new(move || reply.complete(bytes))).unwrap();
    }
}

#[test]
fn round_trips_are_bounded_at_the_start_and_epoch_boundary() {
    exit_on_hang(|| {
        let root = tempfile::tempdir().unwrap();
        Pack::new(&NumberSource::new(400))
            .shard_size(60_000)
            .keep_undecodable(true)
            .to(root.path().join("s.tar"))
            .unwrap();
        let store = Trips::new(Objects::of(root.path(), "mem://set"));
        let loader = |store: Trips| {
            let loader = Loader::new("mem://set").store("mem", store).codec(NumberCodec).augment(Augment::train(16));
            loader.batch_size(64).shuffle(3).workers(2)
        };
        let trips = || store.trips.load(Ordering::SeqCst);
        let mut batches = loader(store.clone()).host().unwrap();
        batches.epoch(0).next().unwrap().unwrap();
        assert!(trips() <= 5, "{} round trips to the first batch", trips());
        for epoch in 1..3 {
            let begun = trips();
            batches.epoch(epoch).next().unwrap().unwrap();
            assert!(trips() - begun <= 2, "{} round trips to a different epoch", trips() - begun);
            let rest = batches.epoch(epoch);
            assert_eq!(rest.map(|batch| batch.unwrap().len()).sum::<usize>(), 400);
            let ended = trips();
            batches.epoch(epoch + 1).next().unwrap().unwrap();
            assert!(trips() - ended <= 2, "{} round trips at the epoch boundary", trips() - ended);
        }
        drop(batches);
        let mut batches = loader(store.clone()).host().unwrap();
        batches.epoch(0).take(3).for_each(|batch| drop(batch.unwrap()));
        let state = batches.checkpoint();
        drop(batches);
        let begun = trips();
        let mut batches = loader(store.clone()).resume(state).host().unwrap();
        batches.epoch(0).next().unwrap().unwrap();
        assert!(trips() - begun <= 5, "{} round trips to the first batch after a resume", trips() - begun);
    });
}

#[test]
fn a_cold_epoch_fetches_few_extra_bytes_and_few_requests() {
    exit_on_hang(|| {
        let (len, size) = (120, 110_000);
        let root = shards(len, size);
        for (shuffled, max_requests) in [(true, len), (false, len / 5)] {
            let store = Trips::new(Objects::of(root.path(), "mem://set"));
            let source = Options::new().store("mem", Arc::new(store.clone())).open("mem://set").unwrap();
            let order = move |place: BatchIndex| {
                let sample_at = |position| if shuffled { position * 77 % len as u64 } else { position };
                Some((place.batch * 20..place.batch * 20 + 20).map(sample_at).collect::<Vec<u64>>())
            };
            let batches = move |epoch| if epoch == 0 { len as u64 / 20 } else { 0 };
            let prefetcher = source.prefetcher(Lookahead::new(8 << 20, batches, order)).unwrap();
            prefetcher.start(BatchIndex::default());
            for batch in 0..len as u64 / 20 {
                let place = BatchIndex { epoch: 0, batch };
                for sample in order(place).unwrap() {
                    source.read(sample as usize, &mut Vec::new()).unwrap();
                }
                prefetcher.done(place);
            }
            let (bytes, requests) = (store.bytes.load(Ordering::SeqCst), store.requests.load(Ordering::SeqCst));
            let used = (len * size) as f64;
            assert!(bytes as f64 <= 1.02 * used, "{bytes} bytes fetched for {used}, shuffled {shuffled}");
            assert!(requests <= max_requests, "{requests} requests for {len} samples, shuffled {shuffled}");
        }
    });
}

#[test]
fn a_sample_larger_than_the_free_bytes_does_not_end_prefetching() {
    exit_on_hang(|| {
        let sizes: Vec<usize> = (0..20).map(|n| if n % 2 == 0 { 300_000 } else { 800_000 }).collect();
        let root = shards_of(&sizes);
        let store = Trips::new(Objects::of(root.path(), "mem://set"));
        let source = Options::new().store("mem", Arc::new(store.clone())).open("mem://set").unwrap();
        let len = sizes.len() as u64;
        let order = move |place: BatchIndex| Some(vec![place.batch]);
        let batches = move |epoch| if epoch == 0 { len } else { 0 };
        let prefetcher = source.prefetcher(Lookahead::new(1_000_000, batches, order)).unwrap();
        prefetcher.start(BatchIndex::default());
        let requests = || store.requests.load(Ordering::SeqCst) as u64;
        for batch in 0..len {
            // The budget holds only one sample, which is requested once the previous one is done.
            while requests() <= batch {
                thread::sleep(Duration::from_millis(1));
            }
            source.read(batch as usize, &mut Vec::new()).unwrap();
            prefetcher.done(BatchIndex { epoch: 0, batch });
        }
        assert_eq!(requests(), len);
    });
}

#[test]
fn samples_that_cannot_be_prefetched_do_not_end_prefetching() {
    exit_on_hang(|| {
        // Sample 0 is larger than the budget, and occurs 70,000 times in the order before sample 1.
        let root = shards_of(&[800_000, 1000]);
        let store = Trips::new(Objects::of(root.path(), "mem://set"));
        let source = Options::new().store("mem", Arc::new(store.clone())).open("mem://set").unwrap();
        let order = |place: BatchIndex| Some(if place.batch < 70 { vec![0; 1000] } else { vec![1] });
        let batches = |epoch| if epoch == 0 { 71 } else { 0 };
        let prefetcher = source.prefetcher(Lookahead::new(500_000, batches, order)).unwrap();
        prefetcher.start(BatchIndex::default());
        (0..70).for_each(|batch| prefetcher.done(BatchIndex { epoch: 0, batch }));
        while store.requests.load(Ordering::SeqCst) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn a_windowed_shuffle_block_is_one_request_if_it_fits() {
    exit_on_hang(|| {
        let (len, size, block) = (768u64, 30_000, 8);
        let root = shards(len as usize, size);
        // A shuffle window has 8 blocks.
        let window = 8 * block * size as u64;
        // Some of the epoch's 96 blocks are split at the end of a shard or of the epoch, and some
        // adjacent ones are merged.
        for (bytes, expected) in [(4 * window, 70..=110), (5 * window / 2, 70..=110), (window / 4, 300..=len)] {
            let store = Trips::new(Objects::of(root.path(), "mem://set"));
            let source = Options::new().store("mem", Arc::new(store.clone())).open("mem://set").unwrap();
            let order = Windowed::with_block(len, 5, 8 * block, block);
            let batch = move |place: BatchIndex| {
                Some(
                    (place.batch * 32..place.batch * 32 + 32)
                        .map(|position| order.index(place.epoch, position))
                        .collect::<Vec<u64>>(),
                )
            };
            let batches = move |epoch| if epoch == 0 { len / 32 } else { 0 };
            let prefetcher = source.prefetcher(Lookahead::new(bytes as usize, batches, batch)).unwrap();
            prefetcher.start(BatchIndex::default());
            for number in 0..len / 32 {
                let place = BatchIndex { epoch: 0, batch: number };
                for sample in batch(place).unwrap() {
                    source.read(sample as usize, &mut Vec::new()).unwrap();
                }
                prefetcher.done(place);
            }
            let sent = store.requests.load(Ordering::SeqCst) as u64;
            assert!(expected.contains(&sent), "{sent} requests with {bytes} bytes for windows of {window}");
        }
    });
}

#[test]
fn a_remote_shard_opens_from_the_index_written_locally() {
    let root = shards(30, 110_000);
    drop(open(root.path()).unwrap());
    let store = Trips::new(Objects::of(root.path(), "mem://set"));
    let source = Options::new().store("mem", Arc::new(store.clone())).open("mem://set").unwrap();
    assert_eq!(source.len(), 30);
    let (trips, bytes) = (store.trips.load(Ordering::SeqCst), store.direct.load(Ordering::SeqCst));
    assert_eq!(trips, 3, "one trip each for the listing, the manifest, and all indexes");
    assert!(bytes < 30 * 110_000 / 100, "{bytes} bytes");
}

#[test]
fn a_shard_index_is_used_unless_it_does_not_match() {
    let root = shards(30, 2000);
    let local = open(root.path()).unwrap();
    // Opening writes an index only for shards of 1 MiB or more, so this index comes from a padded
    // copy.
    let padded = tempfile::tempdir().unwrap();
    let path = padded.path().join("x.tar");
    let mut bytes = std::fs::read(root.path().join("s-000000.tar")).unwrap();
    bytes.resize(2 << 20, 0);
    std::fs::write(&path, &bytes).unwrap();
    let len = open(&path).unwrap().len();
    let index = std::fs::read(padded.path().join("x.tar.index")).unwrap();
    let with = |tar: Vec<u8>| {
        let files = [("mem://set/x.tar".to_owned(), tar), ("mem://set/x.tar.index".to_owned(), index.clone())];
        let store = Trips::new(files.into_iter().collect());
        (store.clone(), Options::new().store("mem", Arc::new(store)).open("mem://set/x.tar").unwrap())
    };
    let (store, source) = with(bytes.clone());
    assert_eq!(
        (source.len(), store.trips.load(Ordering::SeqCst)),
        (len, 2),
        "opening reads the index and not the headers"
    );
    for index in 0..len {
        assert_eq!(owned(&*source, index).unwrap(), owned(&*local, index).unwrap());
    }
    // Use the index with a tar of the same length that contains other files.
    let smaller = shards(30, 1000);
    let mut other = std::fs::read(smaller.path().join("s-000001.tar")).unwrap();
    other.resize(2 << 20, 0);
    let (_, source) = with(other);
    let e = owned(&*source, 3).unwrap_err();
    assert!(e.cause().contains("the index does not match the tar"), "{e}");
    // Use the index with tars that contain the same files in a different order, or one file of a
    // different size, type or name. Only the samples that differ may fail.
    let index_of = |name: &str| {
        let header = bytes.chunks(512).position(|block| block.starts_with(name.as_bytes()) && block[name.len()] == 0);
        512 * header.expect("the shard contains this header")
    };
    let key = |index| local.read(index, &mut Vec::new()).unwrap().key().to_owned();
    let (a, b) = (key(0), key(1));
    let header = |block: &mut [u8], offset: usize, value: &[u8]| {
        block[offset..offset + value.len()].copy_from_slice(value);
        seal(block);
    };
    let (first, second) = (index_of(&format!("{a}.cls")), index_of(&format!("{b}.cls")));
    let mut swapped = bytes.clone();
    header(&mut swapped[first..], 0, format!("{b}.cls\0").as_bytes());
    header(&mut swapped[second..], 0, format!("{a}.cls\0").as_bytes());
    let (mut size, mut kind, mut name) = (bytes.clone(), bytes.clone(), bytes.clone());
    header(&mut size[first..], 124, b"00000000777\0");
    header(&mut kind[first..], 156, b"5");
    header(&mut name[first..], 0, format!("{a}.txt\0").as_bytes());
    for (tar, wrong_count) in [(swapped, 2), (size, 1), (kind, 1), (name, 1)] {
        let (_, source) = with(tar);
        for index in 0..4 {
            let (read, label) = (owned(&*source, index), source.label(index, &mut Vec::new()));
            assert_eq!((read.is_err(), label.is_err()), (index < wrong_count, index < wrong_count), "sample {index}");
            assert_eq!(
                label.err().map(|e| e.cause().contains("does not match")),
                (index < wrong_count).then_some(true)
            );
        }
    }
}

#[test]
fn images_below_a_url_equal_those_of_a_local_folder() {
    let root = tempfile::tempdir().unwrap();
    let files =
        ["dog/2.JPEG", "dog/10.png", "cat/a/b.jpg", "cat/a-b/x.jpg", "cat/z.jpg", "cat/notes.txt", "bird/none.txt"];
    let more = ["beside.jpg", ".hidden/x.jpg", "dog/.hidden.jpg"];
    let mut objects = HashMap::new();
    for file in files.iter().chain(&more) {
        let path = root.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, file.as_bytes()).unwrap();
        objects.insert(format!("mem://set/a/{file}"), file.as_bytes().to_vec());
    }
    objects.insert("mem://set/ab/x.jpg".to_owned(), b"another folder".to_vec());
    let options = Options::new().store("mem", Arc::new(objects.into_iter().collect::<Objects>()));
    for (url, path) in [("mem://set/a", root.path().to_owned()), ("mem://set/a/dog/", root.path().join("dog"))] {
        let (remote, local) = (options.open(url).unwrap(), open(path).unwrap());
        assert_eq!((remote.len(), remote.kind(), remote.classes()), (local.len(), "folder", local.classes()), "{url}");
        for index in 0..local.len() {
            assert_eq!(owned(&*remote, index).unwrap(), owned(&*local, index).unwrap());
            assert_eq!(remote.label(index, &mut Vec::new()).unwrap(), local.label(index, &mut Vec::new()).unwrap());
        }
    }
    let e = options.open("mem://set/a/bird").err().unwrap();
    assert!(e.cause().contains("found no .tar objects, and found no images among 1 object under"), "{e}");
}
