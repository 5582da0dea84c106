//! Measures how long each source takes to read a sample from a warm page cache, without decoding,
//! and how long it takes to open a dataset.
//!
//! Run with `cargo bench --bench source`. Consecutive reads are far apart in the file. One byte of
//! every cache line is read, because a decoder would load all of them.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use warpfeed::pack::{DatasetWriter, LmdbWriter, TarWriter, WriteOptions};
use warpfeed::source::{Memory, Options, OwnedSample, Source, open};

/// Bytes per sample and number of samples, for photographs and for CIFAR images.
const SETS: [(usize, usize); 2] = [(110 << 10, 1000), (3 << 10, 20_000)];

fn sources(root: &Path, size: usize, count: usize) -> Vec<(&'static str, Arc<dyn Source>)> {
    let bytes = |i: usize| (0..size).map(|k| (k * 31 + i) as u8).collect::<Vec<u8>>();
    let sample = |i: usize| OwnedSample::new(format!("c{}/{i:06}", i % 10)).field("jpg", bytes(i)).label(0);
    let memory = Memory::new((0..count).map(sample).collect());
    let mut lmdb = Box::new(LmdbWriter::create(root.join("set.lmdb"), &WriteOptions::default()).unwrap());
    let mut tar = Box::new(TarWriter::create(root.join("set.tar"), &WriteOptions::default()).unwrap());
    for class in 0..10 {
        fs::create_dir_all(root.join(format!("folder/c{class}"))).unwrap();
    }
    let mut scratch = Vec::new();
    for i in 0..count {
        let sample = memory.read(i, &mut scratch).unwrap();
        fs::write(root.join(format!("folder/{}.jpg", sample.key())), sample.field("jpg").unwrap()).unwrap();
        lmdb.put(&sample).unwrap();
        tar.put(&sample).unwrap();
    }
    lmdb.finish().unwrap();
    tar.finish().unwrap();
    let mut sources: Vec<(&'static str, Arc<dyn Source>)> = vec![("memory", Arc::new(memory))];
    for (kind, name) in [("folder", "folder"), ("lmdb", "set.lmdb"), ("tar", "set.tar")] {
        sources.push((kind, open(root.join(name)).unwrap()));
    }
    sources.push(("tar unmapped", Options::new().mmap(false).open(root.join("set.tar")).unwrap()));
    sources
}

fn read(c: &mut Criterion) {
    for (size, count) in SETS {
        let root = tempfile::tempdir().unwrap();
        let mut group = c.benchmark_group(format!("read/{} KiB", size >> 10));
        group.throughput(Throughput::Bytes(size as u64)).measurement_time(Duration::from_secs(3)).sample_size(30);
        for (kind, source) in sources(root.path(), size, count) {
            let mut scratch = Vec::new();
            let mut position = 0;
            group.bench_with_input(BenchmarkId::from_parameter(kind), &source, |b, source| {
                b.iter(|| {
                    // 7919 is a prime that does not divide the number of samples, so all samples
                    // are read equally often, and never directly after an adjacent sample.
                    position = (position + 7919) % count;
                    let sample = source.read(position, &mut scratch).unwrap();
                    let (_, bytes) = sample.image().unwrap();
                    black_box(bytes.iter().step_by(64).fold(0_u8, |sum, &byte| sum.wrapping_add(byte)))
                });
            });
        }
        group.finish();
    }
}

fn open_datasets(c: &mut Criterion) {
    let root = tempfile::tempdir().unwrap();
    let (size, count) = (64, 20_000);
    drop(sources(root.path(), size, count));
    let mut group = c.benchmark_group(format!("open/{count} samples"));
    group.throughput(Throughput::Elements(count as u64)).measurement_time(Duration::from_secs(3)).sample_size(10);
    for name in ["folder", "set.lmdb", "set.tar"] {
        group.bench_function(name, |b| b.iter(|| black_box(open(root.path().join(name)).unwrap().len())));
    }
    group.finish();
}

criterion_group!(benches, read, open_datasets);
criterion_main!(benches);
