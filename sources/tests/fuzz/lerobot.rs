//! Fuzzes the reader of LeRobot datasets. Each case damages one file of a dataset that the
//! `lerobot` library wrote, and then opens and reads the dataset.

use std::fs;
use std::path::{Path, PathBuf};

use super::{LeRobot, LeRobotOptions};
use crate::fuzz::{self, Random};
use crate::model::{Source, Value};
use crate::options::Options;

/// Byte sequences that mutations insert, such as JSON members, path components and integers.
const TOKENS: [&[u8]; 22] = [
    b"\"fps\": 1e308",
    b"\"fps\": -1",
    b"\"shape\": [0]",
    b"\"shape\": [4294967295, 4294967295, 4294967295]",
    b"\"dtype\": \"video\"",
    b"\"dtype\": \"int64\"",
    b"\"length\": 18446744073709551615",
    b"\"episode_index\": 9223372036854775807",
    b"\"task_index\": -1",
    b"\"splits\": {\"train\": \"2:1\"}",
    b"{episode_index:20d}",
    b"../",
    b"[[[[[[[[[[[[[[[[",
    b"null",
    b"1e400",
    b"\n",
    &[0; 8],
    &[0xff; 8],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
    &[0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    b"PAR1",
    &[1, 0, 0, 0, 0, 0, 0, 0],
];

/// Files that a case may damage, for each version of the format.
const FILES: [(&str, &[&str]); 2] = [
    (
        "v21",
        &[
            "meta/info.json",
            "meta/episodes.jsonl",
            "meta/episodes_stats.jsonl",
            "meta/tasks.jsonl",
            "data/chunk-000/episode_000000.parquet",
        ],
    ),
    (
        "v30",
        &[
            "meta/info.json",
            "meta/stats.json",
            "meta/tasks.parquet",
            "meta/episodes/chunk-000/file-000.parquet",
            "data/chunk-000/file-000.parquet",
        ],
    ),
];

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let dest = to.join(entry.file_name());
        if entry.path().is_dir() { copy(&entry.path(), &dest) } else { _ = fs::copy(entry.path(), dest).unwrap() }
    }
}

/// Opens the dataset and reads up to 20 samples twice, which must give the same fields. Returns
/// whether any sample could be read.
fn can_read_any(root: &Path, random: &mut Random) -> bool {
    let mut options = LeRobotOptions::new().tolerance_s(1e9);
    if random.below(2) == 0 {
        options = options.features(["action", "observation.images.top", "task"]).delta_indices("action", [-3, 0, 9]);
    }
    let Ok(set) = LeRobot::open_with(root, &options, &Options::new()) else { return false };
    let _ = set.stats();
    let (mut scratch, mut again) = (Vec::new(), Vec::new());
    let valid = (0..set.len().min(20)).filter(|&index| {
        let Ok(sample) = set.read(index, &mut scratch) else { return false };
        let encoded = |field: &(&str, Value<'_>)| field.1.encoded(field.0).into_owned();
        let other = set.read(index, &mut again).expect("the sample was read before");
        assert!(sample.fields().iter().map(encoded).eq(other.fields().iter().map(encoded)));
        assert_eq!(sample.key(), set.key(index, &mut Vec::new()).unwrap());
        true
    });
    valid.count() > 0
}

#[test]
fn lerobot_sets() {
    let root = tempfile::tempdir().unwrap();
    let mut originals: Vec<(PathBuf, Vec<Vec<u8>>)> = Vec::new();
    for (version, files) in FILES {
        copy(&fuzz::fixtures().join("lerobot").join(version), &root.path().join(version));
        for file in files {
            let path = root.path().join(version).join(file);
            let bytes = fs::read(&path).unwrap();
            originals.push((path, vec![bytes]));
        }
    }
    fuzz::run("lerobot sets", |seed| {
        let mut random = Random::new(seed);
        let (path, bytes) = &originals[random.below(originals.len())];
        fs::write(path, random.mutated(bytes, &TOKENS)).unwrap();
        let version = path.strip_prefix(root.path()).unwrap().iter().next().unwrap();
        let valid = can_read_any(&root.path().join(version), &mut random);
        fs::write(path, &bytes[0]).unwrap();
        valid
    });
}
