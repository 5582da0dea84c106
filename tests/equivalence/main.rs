//! Tests that a dataset produces the same batches in every format and storage, with random options.
//!
//! Each seed generates a random dataset and random loader options. The test writes the dataset in
//! every format that can represent it, and opens it from the file system and from an object store.
//! Formats that use memory maps by default are also opened without them. An object store may reject
//! a format that it cannot read with range requests. Batches, faults and resumed runs must be
//! identical, bit for bit, to a run on the same samples in memory. Keys must follow the format's
//! documentation.
//!
//! The same seeds can also be used to compare two builds of the library: the first records digests
//! of everything that a run observes. The commands are in `tests/README.md`.

// Other test programs include these files and do not use every item.
#![allow(dead_code, unreachable_pub)]

mod bytes;
#[cfg(all(feature = "parquet", feature = "hdf5"))]
mod compressed;
mod digest;
mod features;
mod formats;
#[path = "../support/objects.rs"]
mod objects;
mod observe;
mod random_dataset;
mod seed;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use digest::{Record, Recording};
use formats::Format;
use objects::Objects;
use observe::Member;
use random_dataset::{Kind, RandomDataset, SampleData};
use seed::{Combinations, Counts, Opened, member, run_seed};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

fn file(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

fn storages(format: &'static Format, folder: &Path, name: &str) -> Vec<Member> {
    let path = if name.is_empty() { folder.to_owned() } else { folder.join(name) };
    let path = path.to_str().unwrap().to_owned();
    let url = if name.is_empty() { "mem://set".to_owned() } else { format!("mem://set/{name}") };
    let mut members = vec![member(format, "machine", path.clone(), None, true)];
    if format.mapped {
        members.push(member(format, "read", path, None, false));
    }
    members.push(member(format, "store", url, Some(Arc::new(Objects::of(folder, "mem://set"))), true));
    members
}

fn combinations() -> Combinations<'static> {
    let may_refuse = |place: &Opened| place.storage == "store" && !formats::BY_RANGES.contains(&place.format);
    Combinations {
        formats: formats::FORMATS.iter().chain(features::FORMATS).collect(),
        storages: &storages,
        may_refuse,
    }
}

const DRAWS: u64 = 60;
const RECORDED: u64 = 150;

#[test]
fn a_dataset_is_the_same_in_every_format_and_storage() {
    let (mut counts, combinations) = (Counts::default(), &combinations());
    let (seed, draws) = (number("WARPFEED_EQUIVALENCE_SEED"), number("WARPFEED_EQUIVALENCE_DRAWS"));
    if let Some(path) = file("WARPFEED_EQUIVALENCE_COMPARE") {
        let mut recording = Recording::read(&path);
        for seed in recording.seeds() {
            for (place, observations) in run_seed(seed, combinations, &mut counts) {
                recording.compare(seed, &place, &observations);
            }
        }
        recording.end();
    } else if let Some(path) = file("WARPFEED_EQUIVALENCE_RECORD") {
        let mut record = Record::new(&path);
        let first = seed.unwrap_or(0);
        for seed in first..first + draws.unwrap_or(RECORDED) {
            for (place, observations) in run_seed(seed, combinations, &mut counts) {
                record.add(seed, &place, &observations);
            }
        }
    } else if let Some(seed) = seed {
        counts.run(combinations, seed..seed + draws.unwrap_or(1), Duration::MAX);
    } else {
        let fresh = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64 >> 10;
        counts.run(combinations, 0..DRAWS, Duration::MAX);
        let seconds = number("WARPFEED_EQUIVALENCE_SECONDS").unwrap_or(5);
        println!("new seeds, starting at WARPFEED_EQUIVALENCE_SEED={fresh}");
        counts.run(combinations, fresh..u64::MAX, Duration::from_secs(seconds));
    }
    counts.end();
}

/// Number of seeds for the compressed formats, which recordings do not include.
#[cfg(all(feature = "parquet", feature = "hdf5"))]
const COMPRESSED: u64 = 16;

#[cfg(all(feature = "parquet", feature = "hdf5"))]
#[test]
fn a_dataset_is_the_same_with_every_compression() {
    let formats = compressed::FORMATS.iter().collect();
    let combinations = Combinations { formats, storages: &storages, may_refuse: |place| place.storage == "store" };
    let mut counts = Counts::default();
    match number("WARPFEED_EQUIVALENCE_SEED") {
        Some(seed) => {
            counts.run(&combinations, seed..seed + number("WARPFEED_EQUIVALENCE_DRAWS").unwrap_or(1), Duration::MAX)
        }
        None => counts.run(&combinations, 0..COMPRESSED, Duration::MAX),
    }
    counts.end();
}

#[test]
fn a_changed_label_and_changed_pixels_are_found() {
    for (file, count) in [("labels.npy", 1), ("images.npy", usize::MAX)] {
        let changed = |format: &'static Format, folder: &Path, name: &str| {
            let mut bytes = fs::read(folder.join(file)).unwrap();
            bytes[128..].iter_mut().take(count).for_each(|byte| *byte ^= 1); // after the header
            fs::write(folder.join(file), bytes).unwrap();
            storages(format, folder, name)
        };
        let formats = formats::FORMATS.iter().filter(|format| format.name == "npy").collect();
        let combinations = Combinations { formats, storages: &changed, may_refuse: |place| place.storage == "store" };
        let mut counts = Counts::default();
        counts.run(&combinations, 0..40, Duration::MAX);
        assert!(counts.found() > 0, "{file}");
    }
}

fn fixture_dataset() -> RandomDataset {
    let listed = |folder: &Path| {
        let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    };
    let mini = Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets/mini");
    let (mut classes, mut samples) = (Vec::new(), Vec::new());
    for folder in listed(&mini).into_iter().filter(|path| path.is_dir()) {
        let jpegs = listed(&folder).into_iter().filter(|path| path.extension().is_some_and(|end| end == "jpg"));
        samples.extend(jpegs.take(3).map(|path| SampleData {
            name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
            class: classes.len(),
            extension: "jpg",
            encoded: fs::read(path).unwrap(),
            ..SampleData::default()
        }));
        classes.push(folder.file_name().unwrap().to_str().unwrap().to_owned());
    }
    RandomDataset { kind: Kind::Labeled, classes, has_class_names: false, variant: 0, samples, target: (0, 0) }
}

#[test]
fn some_writers_produce_the_bytes_of_the_original_libraries() {
    let (dataset, fixtures) = (fixture_dataset(), Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/formats"));
    assert_eq!(dataset.samples.len(), 12);
    for (name, files) in [
        ("recordio", &["train.rec", "train.idx"][..]),
        ("beton", &["train.beton"]),
        ("litdata", &["chunk-0-0.bin", "chunk-0-1.bin", "chunk-0-2.bin", "chunk-0-3.bin"]),
    ] {
        let root = tempfile::tempdir().unwrap();
        let format = formats::FORMATS.iter().find(|format| format.name == name).unwrap();
        (format.write)(&dataset, root.path());
        for file in files {
            let written = fs::read(root.path().join(file.replace("train.", "dataset."))).unwrap();
            assert!(written == fs::read(fixtures.join(name).join(file)).unwrap(), "{name}: {file}");
        }
    }
    let npy = fs::read(fixtures.join("arrays/npy/images.npy")).unwrap();
    assert!(bytes::npy("|u1", &[12, 24, 32, 3], &npy[128..]) == npy);
}
