//! Folder against LMDB against tar: read alone and end to end, with the files in the page cache and
//! not, for photographs and for thumbnails.
//!
//! ```text
//! cargo bench --bench loader
//! ```
//!
//! Ends with a table of samples a second, and the ratio to the folder.
#![allow(missing_docs, unsafe_code)] // the latter for posix_fadvise, in `forget`

use std::fs::{self, File};
use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use warpfeed::order::{Order, Shuffled};
use warpfeed::pack::Pack;
use warpfeed::source::open;
use warpfeed::{Augment, Loader};
use warpfeed_cli::synth::Synth;

/// Name, number of pictures, their typical side in pixels, side of the crop.
const SETS: [(&str, usize, u32, u32); 2] = [("photographs", 400, 640, 224), ("thumbnails", 3000, 80, 64)];

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let root = tempfile::tempdir().unwrap();
    let mut table = String::new();
    for (set, images, side, crop) in SETS {
        let folder = root.path().join(set);
        Synth::new().images(images).side(side).write(&folder).unwrap();
        let source = open(&folder).unwrap();
        let paths = [folder.clone(), folder.with_extension("lmdb"), folder.with_extension("tar")];
        for target in &paths[1..] {
            Pack::new(&*source).to(target).unwrap();
        }
        let kilobytes = bytes_under(&folder) as f64 / images as f64 / 1e3;
        table += &format!(
            "\n{images} {set} of {kilobytes:.0} KB\n{:<28}{:>12}{:>22}{:>22}\n",
            "samples/s", "folder", "lmdb", "tar"
        );
        for (what, epoch) in [("read alone", read_alone as fn(&Path, u32) -> Duration), ("end to end", end_to_end)] {
            for warm in [true, false] {
                let name = format!("{what}, {}", if warm { "warm" } else { "cold" });
                let mut group = criterion.benchmark_group(format!("{set}/{name}"));
                group.throughput(Throughput::Elements(images as u64));
                group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
                let rates = paths.each_ref().map(|path| {
                    let mut times = Vec::new();
                    let kind = path.extension().map_or("folder".into(), |e| e.to_string_lossy());
                    group.bench_function(BenchmarkId::from_parameter(kind), |b| {
                        b.iter_custom(|epochs| {
                            let once = |_| {
                                if !warm {
                                    forget(path);
                                }
                                let time = epoch(path, crop);
                                times.push(time.as_secs_f64());
                                time
                            };
                            (0..epochs).map(once).sum()
                        });
                    });
                    times.sort_by(f64::total_cmp);
                    times.get(times.len() / 2).map_or(f64::NAN, |median| images as f64 / median)
                });
                group.finish();
                let ratio = |i: usize| format!("{:.0} ({:.2}x)", rates[i], rates[i] / rates[0]);
                table += &format!("{name:<28}{:>12.0}{:>22}{:>22}\n", rates[0], ratio(1), ratio(2));
            }
        }
    }
    println!("{table}");
}

/// Opens the set and reads every sample once, in random order, on one thread.
fn read_alone(path: &Path, _: u32) -> Duration {
    let started = Instant::now();
    let source = open(path).unwrap();
    let order = Shuffled::new(source.len() as u64, 1);
    let mut scratch = Vec::new();
    for position in 0..source.len() as u64 {
        let sample = source.read(order.index(0, position) as usize, &mut scratch).unwrap();
        let (_, bytes) = sample.image().unwrap();
        black_box(bytes.iter().step_by(64).fold(0u8, |sum, byte| sum.wrapping_add(*byte)));
    }
    started.elapsed()
}

/// Opens the set and takes one epoch of it: random-resized crop, flip, `u8` batches of 64 in host
/// memory, all cores.
fn end_to_end(path: &Path, crop: u32) -> Duration {
    let started = Instant::now();
    for batch in Loader::new(path).batch(64).shuffle(1).augment(Augment::train(crop)) {
        black_box(batch.unwrap().images().bytes());
    }
    started.elapsed()
}

fn files_under(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    fs::read_dir(path).unwrap().flat_map(|entry| files_under(&entry.unwrap().path())).collect()
}

fn bytes_under(path: &Path) -> u64 {
    files_under(path).iter().map(|file| fs::metadata(file).unwrap().len()).sum()
}

/// Asks the system to drop the files' pages from its cache.
fn forget(path: &Path) {
    for file in files_under(path) {
        let file = File::open(file).unwrap();
        file.sync_data().unwrap();
        // SAFETY: the descriptor is open, and the call touches no memory of this process.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
}
