//! Compares the loading rates of a folder, an LMDB and a tar, for photographs and thumbnails.
//! Reading without decoding is measured with a cold page cache, and printed relative to the disk's
//! rate. End-to-end loading is measured with a warm and a cold page cache, and the cold rate is
//! printed relative to the warm rate.
//!
//! ```text
//! cargo bench --bench loader
//! WARPFEED_PHOTOS=PHOTOGRAPHS cargo bench --bench loader    # with a folder of images instead of synthetic ones
//! ```
//!
//! "Cold" means that the files are evicted from the page cache before each epoch, while no process
//! maps them. In the same round, the rate of the disk is measured with random reads of the same
//! sizes from the tar. The reads are repeated with four queue depths, and the highest rate counts.
//! The time to open a loader is not included. The files are written to `TMPDIR`, which therefore
//! determines the disk.
#![allow(missing_docs, unsafe_code)] // posix_fadvise is unsafe

use std::fs::{self, File};
use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use warpfeed::decode::{Codec, EncodedImage, Pixels, Rect, Size};
use warpfeed::format::Format;
use warpfeed::pack::{Pack, Recode};
use warpfeed::sampler::{Sampler, Shuffled};
use warpfeed::source::{Source, open};
use warpfeed::{Augment, Loader, Result};
use warpfeed_synth::Synth;

struct Set {
    name: &'static str,
    /// Number of generated images. Ignored with `WARPFEED_PHOTOS`.
    images: usize,
    /// Number of files. Each file is a copy of one of the images.
    files: usize,
    /// Longer side of most generated images. The other images are half to twice as large.
    drawn_side: u32,
    /// Maximum side of photographs. Photographs with a longer side are shrunk.
    max_side: Option<u32>,
    crop: u32,
}

const SETS: [Set; 2] = [
    Set { name: "photographs", images: 400, files: 3200, drawn_side: 640, max_side: None, crop: 224 },
    Set { name: "thumbnails", images: 500, files: 16_000, drawn_side: 80, max_side: Some(96), crop: 64 },
];
const ROUNDS: usize = 5;
const DEPTHS: [usize; 4] = [8, 16, 32, 64];

fn main() {
    let root = tempfile::tempdir().unwrap();
    for set in SETS {
        let folder = root.path().join(set.name);
        let generated_folder = root.path().join("few");
        let photos = std::env::var_os("WARPFEED_PHOTOS");
        let images = match &photos {
            Some(photos) => open(photos).unwrap(),
            None => {
                Synth::new().images(set.images).side(set.drawn_side).write(&generated_folder).unwrap();
                open(&generated_folder).unwrap()
            }
        };
        let images = match set.max_side.filter(|_| photos.is_some()) {
            Some(max_side) => {
                let shrunk_path = root.path().join("small.tar");
                let recode = Recode::Quality { quality: 94, max_side: Some(max_side) };
                Pack::new(&*images).recode(recode).to(&shrunk_path).unwrap();
                open(&shrunk_path).unwrap()
            }
            None => images,
        };
        write_copies(&*images, set.files, &folder);
        let source = open(&folder).unwrap();
        let paths = [folder.clone(), folder.with_extension("lmdb"), folder.with_extension("tar")];
        for target in &paths[1..] {
            Pack::new(&*source).recode(Recode::KeepBytes).to(target).unwrap();
        }
        drop((source, images));
        set.measure(&paths);
        for path in paths.iter().chain([&generated_folder]).filter(|path| path.exists()) {
            if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        }
    }
}

/// Writes `count` files to 100 class folders, repeating the images of `source`.
fn write_copies(source: &dyn Source, count: usize, folder: &Path) {
    let mut scratch = Vec::new();
    for class in 0..100 {
        fs::create_dir_all(folder.join(format!("{class:02}"))).unwrap();
    }
    for number in 0..count {
        let sample = source.read(number % source.len(), &mut scratch).unwrap();
        let (name, bytes) = sample.image().unwrap();
        fs::write(folder.join(format!("{:02}/{number:06}.{name}", number % 100)), bytes).unwrap();
    }
}

const KINDS: [&str; 3] = ["folder", "lmdb", "tar"];

impl Set {
    fn measure(&self, paths: &[PathBuf; 3]) {
        let files = files_under(&paths[0]);
        let sizes: Vec<usize> = files.iter().map(|file| fs::metadata(file).unwrap().len() as usize).collect();
        let kilobytes = sizes.iter().sum::<usize>() as f64 / sizes.len() as f64 / 1e3;
        println!("\n{} {} of {kilobytes:.1} KB, samples/s, {ROUNDS} rounds", files.len(), self.name);
        let per_second = |seconds: f64| files.len() as f64 / seconds;
        let mut disk_rates = vec![Vec::new(); DEPTHS.len()];
        let mut rates: [[Vec<f64>; 3]; 3] = Default::default();
        for round in 0..=ROUNDS {
            for (rates, depth) in disk_rates.iter_mut().zip(DEPTHS) {
                evict(&paths[2]);
                rates.push(per_second(random_reads(&paths[2], &sizes, depth, round as u64)));
            }
            for (kind, path) in paths.iter().enumerate() {
                let without_decoding = |loader: Loader| loader.codec(NoDecode).augment(Augment::resize(8, 8));
                let cropped = |loader: Loader| loader.augment(Augment::train(self.crop));
                evict(path);
                rates[0][kind].push(per_second(epoch(path, without_decoding)));
                evict(path);
                rates[1][kind].push(per_second(epoch(path, cropped)));
                rates[2][kind].push(per_second(epoch(path, cropped)));
            }
        }
        disk_rates.iter_mut().for_each(|rates| _ = rates.remove(0));
        rates.iter_mut().flatten().for_each(|rates| _ = rates.remove(0));
        for (rates, depth) in disk_rates.iter().zip(DEPTHS) {
            println!("  random reads of one file, queue depth {depth:>3}: {:>8.0}", median(rates));
        }
        let best_disk_rates: Vec<f64> =
            (0..ROUNDS).map(|round| disk_rates.iter().map(|rates| rates[round]).fold(0.0, f64::max)).collect();
        println!("  with the best queue depth of each round: {:.0}", median(&best_disk_rates));
        println!("  {:<34}{:>20}{:>20}{:>20}", "", KINDS[0], KINDS[1], KINDS[2]);
        let row = |name: &str, rates: &[Vec<f64>; 3], baseline: &dyn Fn(usize) -> Option<Vec<f64>>| {
            let cells = (0..3).map(|kind| {
                let ratio = baseline(kind).map_or(String::new(), |base| {
                    let ratios: Vec<f64> = rates[kind].iter().zip(&base).map(|(rate, base)| rate / base).collect();
                    format!(" ({:.2})", median(&ratios))
                });
                format!("{:>20}", format!("{:.0}{ratio}", median(&rates[kind])))
            });
            println!("  {name:<34}{}", cells.collect::<String>());
        };
        row("reading, cold (relative to disk)", &rates[0], &|_| Some(best_disk_rates.clone()));
        row("end to end, warm", &rates[2], &|_| None);
        row("end to end, cold (relative to warm)", &rates[1], &|kind| Some(rates[2][kind].clone()));
    }
}

struct NoDecode;

impl Codec for NoDecode {
    fn format(&self) -> Format {
        Format::any("anything")
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        Ok(EncodedImage::new(bytes, Size::new(8, 8)))
    }

    fn decode(&self, image: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        let sum = image.bytes().iter().step_by(512).fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        out.reset(region.size()).fill(sum);
        out.set_origin(region.x, region.y);
        Ok(())
    }
}

/// Returns the seconds of an epoch of shuffled `u8` batches of 64 in host memory, on all cores.
fn epoch(path: &Path, configure: impl Fn(Loader) -> Loader) -> f64 {
    let mut batches = configure(Loader::new(path).batch_size(64).shuffle(1)).host().unwrap();
    let started = Instant::now();
    for batch in batches.epoch(0) {
        black_box(batch.unwrap().images().bytes());
    }
    started.elapsed().as_secs_f64()
}

/// Returns the seconds to read ranges of `sizes` that are spread over `path`, in random order, with
/// `depth` reads in flight.
fn random_reads(path: &Path, sizes: &[usize], depth: usize, seed: u64) -> f64 {
    let file = File::open(path).unwrap();
    // SAFETY: the descriptor is open, and the call does not access memory of this process.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
    let file_bytes = file.metadata().unwrap().len() as usize;
    let total_bytes: usize = sizes.iter().sum();
    // One offset per size, spread over the file without overlaps.
    let mut ranges = Vec::with_capacity(sizes.len());
    let mut offset = 0;
    for size in sizes {
        ranges.push((offset, *size));
        offset += size;
    }
    let spread = file_bytes as f64 / total_bytes as f64;
    let order = Shuffled::new(sizes.len() as u64, seed);
    let (next_range, max_bytes) = (AtomicUsize::new(0), *sizes.iter().max().unwrap());
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..depth {
            scope.spawn(|| {
                let mut buffer = vec![0; max_bytes];
                loop {
                    let number = next_range.fetch_add(1, Ordering::Relaxed);
                    if number >= ranges.len() {
                        return;
                    }
                    let (start, size) = ranges[order.index(0, number as u64) as usize];
                    let offset = ((start as f64 * spread) as usize).min(file_bytes - size);
                    file.read_exact_at(&mut buffer[..size], offset as u64).unwrap();
                    black_box(buffer.iter().take(size).step_by(512).fold(0u8, |sum, byte| sum.wrapping_add(*byte)));
                }
            });
        }
    });
    started.elapsed().as_secs_f64()
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn files_under(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    fs::read_dir(path).unwrap().flat_map(|entry| files_under(&entry.unwrap().path())).collect()
}

fn evict(path: &Path) {
    for file in files_under(path) {
        let file = File::open(file).unwrap();
        file.sync_data().unwrap();
        // SAFETY: the descriptor is open, and the call does not access memory of this process.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
}
