//! Checks that the tool inspects and packs the formats of other libraries. Each dataset in [`SETS`]
//! contains 12 images of 4 classes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use warpfeed::source::{DATA_FORMATS, OwnedSample, Source, open};

use crate::support::{json, ok};

const SETS: [(&str, &[&str]); 13] = [
    ("arrow", &["arrow/saved"]),
    ("beton", &["beton/train.beton"]),
    (
        "hdf5",
        &["hdf5/encoded-v114.h5", "hdf5/gzip-earliest.h5", "hdf5/lzf-v114.h5", "hdf5/texts.h5", "hdf5/split.h5/train"],
    ),
    ("litdata", &["litdata"]),
    ("lmdb", &["lmdb/tuples.mdb", "lmdb/dicts.mdb", "lmdb/datums.mdb", "lmdb/pairs.mdb"]),
    ("mds", &["mds", "mds_zstd"]),
    ("npy", &["arrays/npy"]),
    ("npz", &["arrays/stored.npz", "arrays/splits.npz/train"]),
    ("parquet", &["parquet/hub/train"]),
    ("recordio", &["recordio/train.rec"]),
    ("safetensors", &["arrays/a.safetensors"]),
    ("tfrecord", &["tfrecord"]),
    ("torch", &["arrays/tuple.pt", "arrays/dict.pth"]),
];

/// Formats that other tests cover.
const OWN: [&str; 8] = ["clips", "folder", "tar", "coco", "yolo", "voc", "table", "lerobot"];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/formats")
}

/// Copies a fixture, because opening some formats creates files next to the dataset.
fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    } else {
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    }
}

type Fields = (Option<i64>, Vec<(String, Vec<u8>)>);

/// Returns the label and the fields of each sample. The fields are encoded, because packing writes
/// numbers and text as files.
fn samples(source: &dyn Source) -> Vec<Fields> {
    let mut scratch = Vec::new();
    (0..source.len())
        .map(|index| {
            let sample = OwnedSample::try_from(&source.read(index, &mut scratch).unwrap()).unwrap();
            let sample = sample.as_sample().unwrap();
            let file = |&(name, ref value): &(&str, warpfeed::source::Value<'_>)| {
                (name.to_owned(), value.encoded(name).into_owned())
            };
            let mut fields: Vec<_> = sample.fields().iter().map(file).collect();
            fields.sort();
            (sample.label().unwrap(), fields)
        })
        .collect()
}

#[test]
fn every_format_is_inspected_and_packed() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    for name in
        ["arrow", "beton", "litdata", "lmdb", "mds", "mds_zstd", "arrays", "hdf5", "parquet", "recordio", "tfrecord"]
    {
        copy(&fixtures().join(name), &dir.join(name));
    }
    for (kind, sets) in SETS {
        for (number, set) in sets.iter().enumerate() {
            let report = json(&ok(dir, &["inspect", set, "--json", "--strict"]));
            assert_eq!(report["source"], kind, "{set}");
            assert_eq!((&report["samples"], &report["unreadable"]), (&12.into(), &0.into()), "{set}");
            assert_eq!(report["labels"], serde_json::json!({"0": 3, "1": 3, "2": 3, "3": 3}), "{set}");
            let source = open(dir.join(set)).unwrap();
            for ending in ["lmdb", "tar"] {
                let packed = format!("{kind}-{number}.{ending}");
                ok(dir, &["pack", "--from", set, "--to", &packed, "--keep-bytes"]);
                let written = open(dir.join(&packed)).unwrap();
                assert!(samples(&*written) == samples(&*source), "{set} in {ending}");
                assert_eq!(written.classes(), source.classes(), "{set} in {ending}");
            }
        }
    }
}

#[test]
fn robot_episodes_are_inspected_and_packed() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    for version in ["v21", "v30"] {
        let set = format!("lerobot/{version}");
        copy(&fixtures().join(&set), &dir.join(&set));
        let report = json(&ok(dir, &["inspect", &set, "--json"]));
        assert_eq!((&report["source"], &report["samples"]), (&"lerobot".into(), &15.into()), "{report}");
        let source = open(dir.join(&set)).unwrap();
        for ending in ["lmdb", "tar"] {
            let packed = format!("{version}.{ending}");
            ok(dir, &["pack", "--from", &set, "--to", &packed, "--keep-bytes"]);
            let written = open(dir.join(&packed)).unwrap();
            assert!(samples(&*written) == samples(&*source), "{set} in {ending}");
        }
    }
}

#[test]
fn yolo_datasets_are_inspected_and_packed() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    ok(dir, &["synth", "--out", "synth.tar", "--images", "5", "--classes", "2", "--side", "32"]);
    for folder in ["yolo/images/train", "yolo/labels/train"] {
        fs::create_dir_all(dir.join(folder)).unwrap();
    }
    fs::write(dir.join("yolo/data.yaml"), "path: .\ntrain: images/train\nnames: [cat, dog]\n").unwrap();
    for (number, (_, fields)) in samples(&*open(dir.join("synth.tar")).unwrap()).into_iter().enumerate() {
        let (_, image) = fields.into_iter().find(|(name, _)| name == "jpg").unwrap();
        fs::write(dir.join(format!("yolo/images/train/{number}.jpg")), image).unwrap();
        let boxes = "1 0.5 0.5 0.5 0.4\n0 0.25 0.25 0.1 0.1\n".repeat(number);
        fs::write(dir.join(format!("yolo/labels/train/{number}.txt")), boxes).unwrap();
    }
    let report = json(&ok(dir, &["inspect", "yolo/data.yaml", "--json"]));
    assert_eq!((&report["source"], &report["samples"]), (&"yolo".into(), &5.into()), "{report}");
    let source = open(dir.join("yolo/data.yaml")).unwrap();
    for ending in ["lmdb", "tar"] {
        let packed = format!("yolo.{ending}");
        ok(dir, &["pack", "--from", "yolo/data.yaml", "--to", &packed, "--keep-bytes"]);
        let written = open(dir.join(&packed)).unwrap();
        assert!(samples(&*written) == samples(&*source), "{ending}");
        assert_eq!(written.classes(), source.classes(), "{ending}");
    }
}

#[test]
fn every_format_has_a_dataset_in_the_fixtures() {
    let tested: BTreeSet<_> = SETS.iter().map(|set| set.0).chain(OWN).collect();
    assert_eq!(tested, DATA_FORMATS.iter().map(|format| format.name).collect());
}
