//! Tests that memory, file descriptors and threads hardly grow from the middle third to the last
//! third of a run.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::process::{child, serial};
use crate::support::wait_for_threads;
use warpfeed::pack::Pack;
use warpfeed::source::Folder;
use warpfeed::{Augment, Batches, HostBatch, Loader};

#[derive(Debug, Clone, Copy, Default)]
struct HeldResources {
    /// Resident anonymous memory in KiB. Pages of mapped datasets depend on the page cache, so they
    /// are excluded.
    anonymous: usize,
    files: usize,
    threads: usize,
}

impl HeldResources {
    fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
        let count = |path: &str| fs::read_dir(path).unwrap().count();
        HeldResources {
            anonymous: line.split_whitespace().nth(1).unwrap().parse().unwrap(),
            files: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
        }
    }

    fn maxima(self, other: Self) -> Self {
        HeldResources {
            anonymous: self.anonymous.max(other.anonymous),
            files: self.files.max(other.files),
            threads: self.threads.max(other.threads),
        }
    }
}

/// Writes varied images: wide and tall, small and large, color and gray, JPEGs with and without
/// chroma subsampling, and other formats.
fn images(folder: &Path) {
    use image::{DynamicImage, RgbImage};
    let sizes = [(160, 120), (120, 160), (96, 96), (300, 40), (31, 200), (257, 129), (20, 17), (200, 150)];
    for i in 0..64u32 {
        let class = folder.join(format!("class{}", i % 4));
        fs::create_dir_all(&class).unwrap();
        let (width, height) = sizes[i as usize % sizes.len()];
        let noise = |n: u32| (n.wrapping_mul(2_654_435_761) >> 26) as u8 ^ i as u8;
        let pixels: Vec<u8> = (0..width * height * 3).map(noise).collect();
        let path = |extension: &str| class.join(format!("{i}.{extension}"));
        // One image of each of these formats per size.
        let other = ["png", "webp", "bmp", "tiff", "gif"].get(i as usize / sizes.len());
        if let Some(extension) = other {
            let image = DynamicImage::from(RgbImage::from_raw(width, height, pixels).unwrap());
            image.save(path(extension)).unwrap();
            continue;
        }
        let mut encoder = jpeg_encoder::Encoder::new_file(path("jpg"), 90).unwrap();
        let sampling = [jpeg_encoder::SamplingFactor::R_4_4_4, jpeg_encoder::SamplingFactor::R_4_2_0];
        encoder.set_sampling_factor(sampling[i as usize % 2]);
        let (color, bytes) = match i / 8 {
            7 => (jpeg_encoder::ColorType::Luma, &pixels[..(width * height) as usize]),
            _ => (jpeg_encoder::ColorType::Rgb, &pixels[..]),
        };
        encoder.encode(bytes, width as u16, height as u16, color).unwrap();
    }
}

/// Calls `round` for `length`. Returns the peak resources in the middle third and in the last
/// third.
fn watch(length: Duration, mut round: impl FnMut(u64)) -> (HeldResources, HeldResources) {
    // Seconds of sleep per second of work, which leaves CPU time for other programs.
    let rest: f64 = std::env::var("WARPFEED_SOAK_REST").ok().and_then(|v| v.parse().ok()).unwrap_or(0.0);
    let start = Instant::now();
    let (mut middle, mut last) = (HeldResources::default(), HeldResources::default());
    for number in 0.. {
        let since = Instant::now();
        round(number);
        let third = 3.0 * start.elapsed().as_secs_f64() / length.as_secs_f64();
        // Even on a slow machine, the middle and the last third contain at least one round each.
        if third > 2.0 && middle.threads > 0 {
            last = last.maxima(HeldResources::now());
        } else if third > 1.0 {
            middle = middle.maxima(HeldResources::now());
        }
        if third >= 3.0 && last.threads > 0 {
            println!("{} rounds in {:.0} s: {middle:?}, then {last:?}", number + 1, start.elapsed().as_secs_f64());
            break;
        }
        std::thread::sleep(since.elapsed().mul_f64(rest));
    }
    (middle, last)
}

fn sets(root: &Path) -> [PathBuf; 3] {
    let paths = ["set", "x.tar", "x.lmdb"].map(|name| root.join(name));
    images(&paths[0]);
    let folder = Folder::open(&paths[0]).unwrap();
    paths[1..].iter().for_each(|path| drop(Pack::new(&folder).to(path).unwrap()));
    paths
}

const WORKERS: usize = 2;

fn open_loader(path: &Path) -> Batches<HostBatch> {
    let loader = Loader::new(path).augment(Augment::train(48)).shuffle(7).batch_size(10).workers(WORKERS).prefetch(3);
    loader.host().unwrap()
}

/// Runs epochs of three loaders for three quarters of `length`, then opens and closes loaders.
fn soak(length: Duration) {
    let root = tempfile::tempdir().unwrap();
    let mut loaders = sets(root.path()).map(|path| open_loader(&path));
    let (middle, last) = watch(length.mul_f64(0.75), |round| {
        for batches in &mut loaders {
            // Every third epoch is abandoned early, and its last batch outlives it.
            let take = if round % 3 == 0 { 3 } else { usize::MAX };
            let last = batches.epoch(round).take(take).map(|batch| batch.unwrap()).last();
            assert!(last.is_some_and(|batch| batch.len() <= 10));
        }
    });
    // Workers' buffers grow until each has held the largest image. On a busy machine, this takes
    // more than a few seconds, so memory may grow in a short run.
    let warming = if length < Duration::from_secs(60) { 2048 } else { 0 };
    assert!(
        last.anonymous <= middle.anonymous + middle.anonymous / 100 + warming,
        "memory grew: {middle:?}, then {last:?}, KiB"
    );
    // Workers may still have files open from an abandoned epoch.
    let open = WORKERS * loaders.len();
    assert!(last.files <= middle.files + open && last.threads <= middle.threads, "{middle:?}, then {last:?}");
    drop(loaders);
    wait_for_threads(0);

    // After thousands of loaders, glibc's per-thread arenas would hide leaks, so the child process
    // uses a single arena.
    let status = child!(open_and_close_loaders)
        .env("MALLOC_ARENA_MAX", "1")
        .env("REOPEN_SECONDS", (length.as_secs_f64() / 4.0).to_string())
        .status();
    assert!(status.unwrap().success());
}

/// Returns the bytes that the program has allocated and not freed. Resident pages would be too
/// noisy: a thread that ends late changes their number by more than a leak does.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
fn allocated() -> usize {
    // SAFETY: the call reads the allocator's counters under its locks.
    unsafe { libc::mallinfo2() }.uordblks
}

/// Child process of [`soak`]: repeatedly opens a loader and drops it while holding some of its
/// batches. One other loader stays open.
#[test]
#[ignore = "started by another test"]
#[cfg(target_env = "gnu")]
fn open_and_close_loaders() {
    let _serial = serial();
    let Some(seconds) = std::env::var("REOPEN_SECONDS").ok().and_then(|v| v.parse().ok()) else { return };
    let root = tempfile::tempdir().unwrap();
    let paths = sets(root.path());
    let mut stays = open_loader(&paths[2]);
    // Fewest allocated bytes in each block of 100 rounds. A leak increases this number, but
    // memory that is freed late does not.
    let mut fewest = vec![usize::MAX];
    let (middle, last) = watch(Duration::from_secs_f64(seconds), |round| {
        let mut batches = open_loader(&paths[round as usize % 3]);
        let held_batches: Vec<_> =
            batches.epoch(round).take(1 + round as usize % 4).map(|batch| batch.unwrap()).collect();
        drop(batches);
        assert!(held_batches.iter().all(|batch| batch.len() == 10));
        wait_for_threads(3);
        let now = fewest.last_mut().unwrap();
        *now = allocated().min(*now);
        if round % 100 == 99 {
            fewest.push(usize::MAX);
        }
    });
    fewest.pop();
    let third = fewest.len() / 3;
    let smallest = |range: &[usize]| range.iter().copied().min();
    let (before, after) = (smallest(&fewest[third..2 * third]), smallest(&fewest[2 * third..]));
    println!("{before:?} bytes allocated, then {after:?}");
    if let (Some(before), Some(after)) = (before, after) {
        // Thread stacks and buffer growth change the minimum of a block by about 40 KiB.
        assert!(
            after <= before + before / 100 + (64 << 10),
            "memory grew: {before} bytes allocated in the middle third, then {after}"
        );
    }
    // Every round already checked the crate's own threads. Threads of other libraries may stay in
    // `/proc` for a moment after they exit, so the thread count is not compared.
    assert!(last.files <= middle.files, "{middle:?}, then {last:?}");
    assert_eq!(stays.epoch(0).map(|batch| batch.unwrap().len()).sum::<usize>(), 64);
}

#[test]
fn nothing_grows_in_nine_seconds() {
    let _serial = serial();
    soak(Duration::from_secs(9));
}

/// The long test. Run it with `cargo test --release --test process_wide soak:: -- --ignored
/// --nocapture` and `WARPFEED_SOAK_SECONDS=3600`. To run it in the background, add `nice -n 19
/// taskset -c 0`, and `WARPFEED_SOAK_REST=9` to sleep nine seconds per second of work.
#[test]
#[ignore = "takes an hour, or WARPFEED_SOAK_SECONDS seconds"]
fn nothing_grows_in_an_hour() {
    let _serial = serial();
    let seconds = std::env::var("WARPFEED_SOAK_SECONDS").ok().and_then(|v| v.parse().ok()).unwrap_or(3600);
    soak(Duration::from_secs(seconds));
}
