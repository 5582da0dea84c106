//! Promise: nothing grows. After the first epochs memory, file descriptors and threads stay where they are, epoch after epoch.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use warpfeed::pack::Pack;
use warpfeed::source::{Folder, open};
use warpfeed::{Augment, Loader};

/// What the process holds.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    /// Resident memory that is no file's, in KiB: pages of mapped data sets come and go with the page cache.
    anonymous: usize,
    files: usize,
    threads: usize,
}

impl Held {
    fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
        let count = |path: &str| fs::read_dir(path).unwrap().count();
        Held {
            anonymous: line.split_whitespace().nth(1).unwrap().parse().unwrap(),
            files: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
        }
    }

    fn most(self, other: Self) -> Self {
        Held {
            anonymous: self.anonymous.max(other.anonymous),
            files: self.files.max(other.files),
            threads: self.threads.max(other.threads),
        }
    }
}

/// Pictures of one size, so that no buffer waits for the largest of them to be as large as it gets.
fn pictures(folder: &Path) {
    for i in 0..64u8 {
        let class = folder.join(format!("class{}", i % 4));
        fs::create_dir_all(&class).unwrap();
        let pixels: Vec<u8> = (0..160 * 120 * 3u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 26) as u8 ^ i).collect();
        let encoder = jpeg_encoder::Encoder::new_file(class.join(format!("{i}.jpg")), 90).unwrap();
        encoder.encode(&pixels, 160, 120, jpeg_encoder::ColorType::Rgb).unwrap();
    }
}

/// Epochs for `length`: the most that was held in the middle third against the most in the last one.
fn soak(length: Duration) {
    let root = tempfile::tempdir().unwrap();
    let (set, tar, lmdb) = (root.path().join("set"), root.path().join("x.tar"), root.path().join("x.lmdb"));
    pictures(&set);
    let folder = Folder::open(&set).unwrap();
    Pack::new(&folder).to(&tar).unwrap();
    Pack::new(&folder).to(&lmdb).unwrap();

    let loader = |source| {
        Loader::shared_source(source).augment(Augment::resize(48, 48)).shuffle(7).batch(10).workers(2).prefetch(3)
    };
    let mut all = [&set, &tar, &lmdb].map(|path| loader(open(path).unwrap()).host().unwrap());
    let start = Instant::now();
    let (mut middle, mut last, mut epochs) = (Held::default(), Held::default(), 0);
    while start.elapsed() < length {
        for batches in &mut all {
            // Every third epoch is left early, and its last batch outlives it.
            let take = if epochs % 3 == 0 { 3 } else { usize::MAX };
            let kept = batches.epoch(epochs).take(take).map(|batch| batch.unwrap()).last();
            assert!(kept.is_some_and(|batch| batch.len() <= 10));
        }
        epochs += 1;
        let third = 3.0 * start.elapsed().as_secs_f64() / length.as_secs_f64();
        if third > 2.0 {
            last = last.most(Held::now());
        } else if third > 1.0 {
            middle = middle.most(Held::now());
        }
    }
    println!("{epochs} epochs of three loaders: {middle:?}, then {last:?}");
    assert!(last.anonymous * 100 <= middle.anonymous * 101, "memory grew: {middle:?}, then {last:?}, KiB");
    assert!(last.files == middle.files && last.threads <= middle.threads, "{middle:?}, then {last:?}");

    // Loaders opened and closed beside those that stay leave nothing behind. Of memory the allocator keeps some for each thread
    // that there was at a time, which settles more slowly.
    for _ in 0..50 {
        let mut batches = loader(open(&tar).unwrap()).host().unwrap();
        assert!(batches.epoch(0).next().unwrap().is_ok());
    }
    let mut now = Held::now();
    for _ in 0..1000 {
        // A thread leaves the list a moment after it is joined.
        if now.threads == last.threads {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
        now = Held::now();
    }
    assert!((now.files, now.threads) == (last.files, last.threads), "{last:?}, then {now:?}");
}

#[test]
fn nothing_grows_in_nine_seconds() {
    soak(Duration::from_secs(9));
}

/// `WARPFEED_SOAK_SECONDS=3600 cargo test --release --test soak -- --ignored --nocapture`
#[test]
#[ignore = "takes an hour, or as long as it is told"]
fn nothing_grows_in_an_hour() {
    let seconds = std::env::var("WARPFEED_SOAK_SECONDS").ok().and_then(|v| v.parse().ok()).unwrap_or(3600);
    soak(Duration::from_secs(seconds));
}
