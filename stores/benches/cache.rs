//! Simulates the hit rates of caches over reshuffled epochs, and the load that a large job places
//! on a store, without transferring any data. Run with
//! `cargo bench -p warpfeed-stores --bench cache`. The results are in docs/object-stores.md.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use warpfeed::sampler::{Position, Sampler, Shuffled, Windowed};
use warpfeed::source::{BatchIndex, Lookahead, Object, Store};
use warpfeed::{Error, Result};
use warpfeed_stores::Cache;

/// Number of samples per node in a batch.
const BATCH: u64 = 5;
const SAMPLE: u64 = 64;

/// A store that describes objects but cannot read them, because the simulation needs no bytes.
struct Nowhere;

impl Store for Nowhere {
    fn list(&self, _: &str) -> Result<Vec<Object>> {
        Ok(Vec::new())
    }

    fn object(&self, url: &str) -> Result<Object> {
        Ok(Object { url: url.to_owned(), len: u64::MAX, tag: Some("1".to_owned()), server: None })
    }

    fn read(&self, _: &Object, _: u64, _: &mut [u8]) -> Result<()> {
        Err(Error::in_source("nowhere"))
    }
}

/// Returns the order of the first of `nodes` nodes.
fn order(len: u64, nodes: u64) -> Lookahead {
    let (order, global) = (Shuffled::new(len, 42), nodes * BATCH);
    let samples = move |batch: BatchIndex| {
        let first = batch.batch * global;
        Some((first..first + BATCH).map(|position| order.index(batch.epoch, position)).collect())
    };
    let next = move |epoch, sample, batch| match order.position(epoch, sample, batch * global) {
        Position::At(position) if position % global < BATCH => Position::At(position / global),
        _ => Position::Absent,
    };
    Lookahead::new(0, move |_| len / global, samples).with_next(next)
}

fn reads(order: &Lookahead, epochs: u64) -> Vec<(BatchIndex, u64)> {
    let batches = order.batches_from(BatchIndex::default()).take_while(|(batch, _)| batch.epoch < epochs);
    batches.flat_map(|(batch, samples)| samples.into_iter().map(move |sample| (batch, sample))).collect()
}

fn rate(reads: &[(BatchIndex, u64)], from: u64, to: u64, mut hit: impl FnMut(usize, BatchIndex, u64) -> bool) -> f64 {
    let (mut hits, mut total) = (0, 0);
    for (number, &(batch, sample)) in reads.iter().enumerate().take_while(|(_, (batch, _))| batch.epoch < to) {
        let hit = hit(number, batch, sample);
        if batch.epoch >= from {
            (hits, total) = (hits + u64::from(hit), total + 1);
        }
    }
    hits as f64 / total as f64
}

fn hit_rates(nodes: u64, len: u64, share: f64) {
    let (limit, order) = ((share * len as f64) as usize, order(len, nodes));
    let (from, to) = (4 * nodes, 4 * nodes + 4 + 4 * nodes);
    let reads = reads(&order, to + 8 * nodes + 40);

    let mut used = BTreeSet::new();
    let mut last = HashMap::new();
    let lru = rate(&reads, from, to, |number, _, sample| {
        let old = last.insert(sample, number);
        let hit = old.is_some_and(|old| used.remove(&(old, sample)));
        used.insert((number, sample));
        if used.len() > limit {
            used.pop_first();
        }
        hit
    });
    let pinned = rate(&reads, from, to, |_, _, sample| sample < limit as u64);

    // The optimal policy evicts the sample with the most distant next read, which it finds in the
    // full list of reads.
    let mut next = vec![usize::MAX; reads.len()];
    let mut later = HashMap::new();
    for (number, (_, sample)) in reads.iter().enumerate().rev() {
        next[number] = later.insert(*sample, number).unwrap_or(usize::MAX);
    }
    let mut cached = BTreeSet::new();
    let optimum = rate(&reads, from, to, |number, _, sample| {
        let hit = cached.remove(&(number, sample));
        cached.insert((next[number], sample));
        if cached.len() > limit {
            cached.pop_last();
        }
        hit
    });

    let store = Cache::in_memory(limit as u64 * SAMPLE).store(Arc::new(Nowhere));
    let object = store.object("nowhere://x").expect("the object exists");
    let keep = store.object_cache(1, &order).expect("the store has a cache");
    let mut bytes = [0; SAMPLE as usize];
    let warpfeed = rate(&reads, from, to, |_, batch, sample| {
        keep.advance_to(batch);
        let hit = keep.get(&object, sample * SAMPLE, &mut bytes).is_some();
        if !hit {
            keep.offer(&object, sample * SAMPLE, &bytes, sample, order.next_batch(batch));
        }
        hit
    });
    let [lru, pinned, warpfeed, optimum] = [lru, pinned, warpfeed, optimum].map(|rate| 100.0 * rate);
    println!(
        "| {nodes} | {:.0}% | {lru:.1}% | {pinned:.1}% | {warpfeed:.1}% | {optimum:.1}% | {:.1} |",
        100.0 * share,
        warpfeed / pinned
    );
}

/// Size of one photograph in bytes.
const PHOTO: u64 = 110_000;
const PHOTOS: u64 = 100_000_000_000_000 / PHOTO;
const NODES: u64 = 128;
/// Number of photographs that a node reads per second: 5,000 for each of the 8 ranks.
const RATE: u64 = 40_000;
/// Number of samples per node in a global batch: 256 for each of the 8 ranks.
const SHARE: u64 = 2048;
/// Maximum number of requests per second for each prefix on S3.
const LIMIT: f64 = 5500.0;
/// Price of a request to S3 in dollars.
const DOLLARS: f64 = 0.0004 / 1000.0;

/// Prints the load of 1,024 ranks that read 100 TB, derived from the requests of one node for the
/// samples that it fetches together (256 MiB per rank). Adjacent samples form one request of up to
/// 4 MiB.
fn load(name: &str, order: &dyn Fn(u64) -> u64, prefixes: u64, hit: f64) {
    let sample_count = 8 * (256 << 20) / PHOTO;
    let mut samples: Vec<u64> = (0..sample_count).map(order).collect();
    samples.sort_unstable();
    let runs = samples.chunk_by(|a, b| a + 1 == *b);
    let requests: u64 = runs.map(|run| (run.len() as u64).div_ceil((4 << 20) / PHOTO)).sum();
    let requests_per_sample = requests as f64 / sample_count as f64;
    // The requests are spread evenly over the prefixes.
    let requests_per_second = requests_per_sample * (NODES * RATE) as f64 * (1.0 - hit);
    let bytes = (NODES * RATE * PHOTO) as f64 * (1.0 - hit);
    println!(
        "| {name} | {:.0}% | {prefixes} | {requests_per_second:.0} | {:.1} | {:.1} Tbit/s | {:.1} Gbit/s | {:.0} |",
        100.0 * hit,
        requests_per_second / prefixes as f64 / LIMIT,
        8.0 * bytes / 1e12,
        bytes * 8.0 / 1e9 / NODES as f64,
        requests_per_sample * PHOTOS as f64 * (1.0 - hit) * DOLLARS,
    );
}

fn main() {
    println!("| nodes | cache of a node / set | LRU | pinned part | warpfeed | optimum | warpfeed / pinned |");
    println!("|---|---|---|---|---|---|---|");
    for (nodes, len, shares) in
        [(1, 3000, &[0.1, 1.0 / 3.0, 0.75][..]), (8, 4000, &[0.05, 0.125, 1.0 / 3.0]), (128, 12_800, &[0.01, 0.08])]
    {
        shares.iter().for_each(|&share| hit_rates(nodes, len, share));
    }
    println!("\n| order | hits | prefixes | GET/s | of the limit | from the store | each node | $ an epoch |");
    println!("|---|---|---|---|---|---|---|---|");
    // Converts the position of a sample among the first node's samples to its position in the
    // global batches.
    let shared = |number: u64| number / SHARE * SHARE * NODES + number % SHARE;
    let full = Shuffled::new(PHOTOS, 1);
    let block = 64_000_000 / PHOTO;
    let window = Windowed::with_block(PHOTOS, 1, 64 * block, block);
    // For comparison, an order that warpfeed does not use: each node shuffles its own part of the
    // data in windows.
    let blocks = Windowed::with_block(PHOTOS / NODES, 1, 32 * block, block);
    for (prefixes, hit) in [(1, 0.0), (1000, 0.0), (1000, 0.36)] {
        load("full shuffle", &|number| full.index(0, shared(number)), prefixes, hit);
    }
    load("windows of 64 blocks of 64 MB", &|number| window.index(0, shared(number)), 1000, 0.0);
    load("a part for each node, in windows of 32 blocks", &|number| blocks.index(0, number), 32, 0.0);
}
