//! Tests that a faulty server delivers the same samples as the local files. In fifty random
//! schedules, with and without a cache, the server refuses requests, truncates and delays
//! responses, sends wrong lengths or ranges, or does not respond. Expired credentials and changed
//! objects must cause errors that name them. An error that retries cannot fix must appear within
//! seconds and say what to do.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{NO_FAULT, Server};
use warpfeed::pack::Pack;
use warpfeed::source::{BatchIndex, Lookahead, Memory, Object, Options, OwnedSample, Source, open};
use warpfeed::{Error, Result};
use warpfeed_stores::Cache;

const SCHEDULES: u64 = 50;
const SAMPLES: u64 = 24;
const BATCH: u64 = 4;

/// Reads two epochs in the order that `seed` determines, and prefetches up to `bytes` bytes. Calls
/// `between` after the first epoch.
fn read_two_epochs(
    source: &dyn Source,
    expected: &[OwnedSample],
    seed: u64,
    bytes: usize,
    between: impl Fn(),
) -> Result<()> {
    let order = move |BatchIndex { epoch, batch }: BatchIndex| -> Option<Vec<u64>> {
        let sample = |position| (position * 7 + epoch * 5 + seed) % SAMPLES;
        Some((batch * BATCH..batch * BATCH + BATCH).map(sample).collect())
    };
    let batches = |epoch| if epoch < 2 { SAMPLES / BATCH } else { 0 };
    let prefetcher = source.prefetcher(Lookahead::new(bytes, batches, order)).unwrap();
    prefetcher.start(BatchIndex::default());
    for epoch in 0..2 {
        for batch in 0..SAMPLES / BATCH {
            let index = BatchIndex { epoch, batch };
            for sample in order(index).unwrap() {
                let actual = OwnedSample::try_from(&source.read(sample as usize, &mut Vec::new())?)?;
                assert!(actual == expected[sample as usize], "seed {seed}, epoch {epoch}, sample {sample}");
            }
            prefetcher.done(index);
        }
        if epoch == 0 {
            between();
        }
    }
    Ok(())
}

fn run(seed: u64, shards: &[(String, Vec<u8>)], expected: &[OwnedSample], fault_counts: &[AtomicU64]) -> Option<Error> {
    let (server, address) = Server::start();
    shards.iter().for_each(|(name, bytes)| server.put(&format!("/set/{name}"), bytes.clone()));
    let folder = tempfile::tempdir().unwrap();
    let stores = match seed % 2 {
        0 => warpfeed_stores::all(),
        _ => Cache::open(folder.path(), SAMPLES * 4096 / 3).unwrap().stores(warpfeed_stores::all()),
    };
    let url = format!("{address}/set/s-{{000000..{:06}}}.tar", shards.len() - 1);
    let source = Options::new().stores(stores).open(url).unwrap();
    server.schedule.store(seed + 1, Ordering::SeqCst);
    // With a large budget, both epochs would be prefetched before the server changes.
    let bytes = if seed % 10 < 8 { [4_000, 12_000, 1 << 20][seed as usize % 3] } else { 4_000 };
    let end = read_two_epochs(&*source, expected, seed, bytes, || match seed % 10 {
        8 => shards.iter().for_each(|(name, bytes)| server.put(&format!("/set/{name}"), vec![1; bytes.len()])),
        9 => server.expired.store(true, Ordering::SeqCst),
        _ => {}
    });
    for (&fault, &times) in server.fault_counts.lock().unwrap().iter() {
        fault_counts[fault as usize].fetch_add(times, Ordering::SeqCst);
    }
    end.err()
}

#[test]
fn reads_are_exact_under_fifty_fault_schedules() {
    let root = tempfile::tempdir().unwrap();
    let sample = |n: u64| OwnedSample::new(format!("s{n:02}")).field("npy", vec![n as u8; 3000]).label(n as i64);
    let source = Memory::new((0..SAMPLES).map(sample).collect());
    Pack::new(&source).shard_size(40_000).keep_undecodable(true).to(root.path().join("s.tar")).unwrap();
    let local = open(root.path()).unwrap();
    let read = |index| OwnedSample::try_from(&local.read(index, &mut Vec::new()).unwrap()).unwrap();
    let expected: Vec<_> = (0..local.len()).map(read).collect();
    let mut shards: Vec<(String, Vec<u8>)> = fs::read_dir(root.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "tar"))
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap()))
        .collect();
    shards.sort();
    assert!(expected.len() as u64 == SAMPLES && shards.len() == 3);
    let (next, fault_counts) = (AtomicU64::new(0), [const { AtomicU64::new(0) }; NO_FAULT as usize + 1]);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= SCHEDULES {
                        return;
                    }
                    let end = run(seed, &shards, &expected, &fault_counts);
                    let words = match seed % 10 {
                        8 => "changed since it was opened",
                        9 => "the credentials have expired",
                        _ => {
                            assert!(end.is_none(), "seed {seed}: {}", end.unwrap());
                            continue;
                        }
                    };
                    let e = end.unwrap_or_else(|| panic!("seed {seed}: no error"));
                    let path = e.path().unwrap().to_str().unwrap().to_owned();
                    assert!(e.cause().contains(words) && !e.is_transient(), "seed {seed}: {e}");
                    assert!(e.cause().contains("bytes ") && path.contains("/set/s-00000"), "seed {seed}: {e}");
                }
            });
        }
    });
    let fault_counts = fault_counts.iter().map(|times| times.load(Ordering::SeqCst)).collect::<Vec<_>>();
    assert!(fault_counts.iter().all(|&times| times > 5), "each fault must happen more than 5 times: {fault_counts:?}");
}

#[test]
fn an_unusable_server_causes_an_error_within_seconds() {
    let (server, address) = Server::start();
    let response = |status: &str, headers: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len())
    };
    let script =
        |target: &str, response: String| server.scripts.lock().unwrap().insert(target.to_owned(), vec![response]);
    for name in ["gzip", "whole"] {
        server.put(&format!("/set/{name}.tar"), vec![0; 4096]);
    }
    script("/set/circle.tar", response("302 Found", "Location: /set/circle.tar\r\n", ""));
    let range = "ETag: \"v0\"\r\nContent-Range: bytes 0-4095/4096\r\n";
    let packed = response("206 Partial Content", &format!("{range}Content-Encoding: gzip\r\n"), "packed");
    script("GET /set/gzip.tar", packed);
    script("GET /set/whole.tar", response("200 OK", "ETag: \"v0\"\r\n", "everything"));
    for (name, words) in [
        ("circle", "redirects this URL in a loop"),
        ("gzip", "the server compresses its responses (gzip)"),
        ("whole", "does not support byte ranges: use a different server"),
    ] {
        let start_time = Instant::now();
        let url = format!("{address}/set/{name}.tar");
        let store = warpfeed_stores::all().into_iter().find(|(scheme, _)| *scheme == "http").unwrap().1;
        let object = Object { url: url.clone(), len: 4096, tag: Some("\"v0\"".into()), server: None };
        let read = store.read(&object, 0, &mut [0; 4096]).unwrap_err();
        let opened = Options::new().stores(warpfeed_stores::all()).open(&url).err().unwrap();
        for e in [read, opened] {
            assert!(e.cause().contains(words) && !e.is_transient(), "{name}: {e}");
            assert!(e.path().unwrap().to_str() == Some(&url), "{e}");
        }
        assert!(start_time.elapsed() < Duration::from_secs(20), "{name}: {:?}", start_time.elapsed());
    }
}
