//! Measures the cost of one index of each sampler, and how much faster a windowed shuffle reads
//! than a full shuffle if the page cache is cold.
//!
//! Run with `cargo bench --bench order`. The "cold" group creates a tar and an LMDB with 100,000
//! samples of 3 KiB. Each run evicts its file from the page cache, and then reads the
//! first 10,000 samples of an epoch on one thread.
#![allow(unsafe_code)]

use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use warpfeed::pack::{DatasetWriter, LmdbWriter, TarWriter, WriteOptions};
use warpfeed::sampler::{At, Mixture, MixtureOptions, Sampler, Shuffled, Weighted, Windowed};
use warpfeed::source::{OwnedSample, open};

fn index(c: &mut Criterion) {
    const LEN: u64 = 1_281_167;
    let weights: Vec<f64> = (0..LEN).map(|i| 1.0 + (i % 7) as f64).collect();
    let many: Vec<_> = (1..=35).map(|n| (LEN * n / 630, 1.0 / n as f64)).collect();
    let ramp = MixtureOptions::new().cosine(At::Sample(0), At::Epoch(10), (1..=35).map(f64::from));
    let sources = many.iter().map(|&(len, share)| (len, share, Arc::new(Shuffled::new(len, 1)) as Arc<dyn Sampler>));
    let orders: [(&str, Box<dyn Sampler>); 6] = [
        ("shuffled", Box::new(Shuffled::new(LEN, 1))),
        ("windowed", Box::new(Windowed::new(LEN, 1, 8192))),
        ("weighted", Box::new(Weighted::new(&weights, 1).unwrap())),
        ("mixture", Box::new(Mixture::new(&[(LEN, 0.8), (1000, 0.2)], 1).unwrap())),
        ("mixture of 35", Box::new(Mixture::new(&many, 1).unwrap())),
        ("mixture of 35 that changes", Box::new(Mixture::with_options(sources, &ramp, 256, 1).unwrap())),
    ];
    let mut group = c.benchmark_group("order/one index");
    group.measurement_time(Duration::from_secs(2)).sample_size(20);
    for (name, order) in orders {
        let mut position = 0;
        group.bench_function(name, |b| {
            b.iter(|| {
                position = (position + 1) % LEN;
                black_box(order.index(3, position))
            });
        });
    }
    group.finish();
}

/// Evicts `path` from the page cache, except for pages that a process has mapped.
fn evict(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    // SAFETY: the descriptor is open, and the call does not access memory of this process.
    assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) }, 0);
}

fn cold(c: &mut Criterion) {
    const LEN: u64 = 100_000;
    const READS: u64 = 10_000;
    let root = tempfile::tempdir().unwrap();
    let paths: [PathBuf; 2] = ["set.tar", "set.lmdb"].map(|name| root.path().join(name));
    let mut writers: [Box<dyn DatasetWriter>; 2] = [
        Box::new(TarWriter::create(&paths[0], &WriteOptions::default()).unwrap()),
        Box::new(LmdbWriter::create(&paths[1], &WriteOptions::default()).unwrap()),
    ];
    for i in 0..LEN {
        let bytes: Vec<u8> = (0..3 << 10).map(|k| (k * 31 + i) as u8).collect();
        let sample = OwnedSample::new(format!("{i:06}")).field("jpg", bytes).label(0);
        writers.iter_mut().for_each(|writer| writer.put(&sample.as_sample().unwrap()).unwrap());
    }
    writers.into_iter().for_each(|writer| drop(writer.finish().unwrap()));

    let orders: [(&str, Box<dyn Sampler>); 2] =
        [("shuffled", Box::new(Shuffled::new(LEN, 1))), ("window of 4096", Box::new(Windowed::new(LEN, 1, 4096)))];
    let mut group = c.benchmark_group("order/cold");
    group.throughput(Throughput::Elements(READS)).measurement_time(Duration::from_secs(5)).sample_size(10);
    for path in &paths {
        let name = path.extension().unwrap().to_str().unwrap();
        for (order_name, order) in &orders {
            group.bench_with_input(BenchmarkId::new(name, order_name), order, |b, order| {
                b.iter_custom(|rounds| {
                    let mut total_time = Duration::ZERO;
                    for _ in 0..rounds {
                        evict(path);
                        let source = open(path).unwrap();
                        let mut scratch = Vec::new();
                        let start = Instant::now();
                        for position in 0..READS {
                            let sample = source.read(order.index(0, position) as usize, &mut scratch).unwrap();
                            black_box(sample.image().unwrap().1.iter().fold(0_u8, |sum, &byte| sum.wrapping_add(byte)));
                        }
                        total_time += start.elapsed();
                    }
                    total_time
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, index, cold);
criterion_main!(benches);
