//! Tests that TFRecord files of `tf.train.Example` messages give the same batches as the class
//! folder from which they were made, and that damaged files are rejected.

use std::fs;
use std::path::Path;

use warpfeed::source::{Options, Source, TfRecord, Value, open};

use crate::formats::{assert_matches_reference, fixture};
use crate::support::exit_on_hang;

fn copy(folder: &Path) {
    for shard in ["train-00000-of-00002", "train-00001-of-00002"] {
        fs::copy(fixture("tfrecord").join(shard), folder.join(shard)).unwrap();
    }
}

fn cause(path: &Path) -> String {
    open(path).err().unwrap().to_string()
}

#[test]
fn tfrecord_shards_give_the_same_batches_as_the_folder() {
    assert_matches_reference(fixture("tfrecord"), |loader| loader);
    assert_matches_reference(fixture("tfrecord").join("train"), |loader| loader.mmap(false));
}

#[test]
fn features_are_fields_and_may_be_missing() {
    for mapped in [true, false] {
        let source = Options::new().mmap(mapped).open(fixture("tfrecord")).unwrap();
        assert_eq!((source.kind(), source.len()), ("tfrecord", 12));
        let mut scratch = Vec::new();
        for i in 0..12 {
            let sample = source.read(i, &mut scratch).unwrap();
            assert_eq!(sample.key(), format!("train-{:05}-of-00002/{}", i / 6, i % 6));
            let class = ["banded-ring", "dotted-triangle", "plain-disc", "striped-cross"][i / 3];
            assert_eq!(&*sample.field("image_class_text.txt").unwrap(), class.as_bytes());
            let height = sample.value("image_height.npy");
            assert_eq!(height.is_some(), i % 3 == 0, "the feature is missing in the other records");
            let Some(Value::Numbers(edges)) = sample.value("image_object_bbox_xmin.npy") else { panic!("{i}") };
            let expected: Vec<f32> = (0..i % 4).map(|j| 0.25 * j as f32).collect();
            assert_eq!((edges.shape(), edges.iter::<f32>().unwrap().collect::<Vec<_>>()), (vec![i % 4], expected));
        }
    }
}

#[test]
fn records_pack_into_tar_shards() {
    crate::lmdb_layouts::assert_packs(&*open(fixture("tfrecord")).unwrap());
}

#[test]
fn a_missing_shard_is_rejected() {
    let root = tempfile::tempdir().unwrap();
    copy(root.path());
    fs::remove_file(root.path().join("train-00000-of-00002")).unwrap();
    let shown = cause(root.path());
    assert!(shown.contains("shard 0 of 2 is missing; found only 1 shard"), "{shown}");
    assert_eq!(TfRecord::open(root.path().join("train-00001-of-00002")).unwrap().len(), 6, "a shard opens by its name");
}

#[test]
fn a_dataset_with_several_splits_requires_a_choice() {
    let root = tempfile::tempdir().unwrap();
    copy(root.path());
    fs::copy(fixture("tfrecord").join("train-00000-of-00002"), root.path().join("validation-00000-of-00001")).unwrap();
    assert!(cause(root.path()).contains("the splits train, validation"), "{}", cause(root.path()));
    assert_eq!(open(root.path().join("train")).unwrap().len(), 12);
    assert_eq!(open(root.path().join("validation")).unwrap().len(), 6);
}

#[test]
fn damage_is_reported_with_its_offset() {
    let root = tempfile::tempdir().unwrap();
    let file = fs::read(fixture("tfrecord").join("train-00000-of-00002")).unwrap();
    let path = root.path().join("a.tfrecord");
    let first = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize + 16;

    let mut record = file.clone();
    record[first + 12 + 5000] ^= 1;
    fs::write(&path, record).unwrap();
    let source = open(&path).unwrap();
    source.read(0, &mut Vec::new()).unwrap();
    let e = source.read(1, &mut Vec::new()).err().unwrap().to_string();
    assert!(e.contains("checksum mismatch") && e.contains(&format!("at byte {}", first + 12)), "{e}");

    let mut length = file.clone();
    length[first] ^= 1;
    fs::write(&path, length).unwrap();
    assert!(cause(&path).contains(&format!("length checksum mismatch at byte {first}")), "{}", cause(&path));

    for end in [1, 11, 12, first - 1, first + 5, file.len() - 1] {
        fs::write(&path, &file[..end]).unwrap();
        assert!(cause(&path).contains("tfrecord: "), "{end}: {}", cause(&path));
    }
    fs::write(&path, b"\x1f\x8b\x08\0\0\0\0\0\0\0\0\0").unwrap();
    assert!(cause(&path).contains("decompress the file with gunzip"), "{}", cause(&path));
    fs::write(&path, b"").unwrap();
    assert!(cause(&path).contains("no records"), "{}", cause(&path));
}

#[test]
fn the_index_of_a_large_file_is_rebuilt_when_the_file_changes() {
    let root = tempfile::tempdir().unwrap();
    let file = fs::read(fixture("tfrecord").join("train-00000-of-00002")).unwrap();
    let path = root.path().join("large.tfrecord");
    let times = (17 << 20) / file.len() + 1;
    fs::write(&path, file.repeat(times)).unwrap();
    let labels = |source: &dyn Source| -> Vec<_> {
        (0..source.len()).map(|i| source.label(i, &mut Vec::new()).unwrap()).collect()
    };
    let first = labels(&*open(&path).unwrap());
    assert_eq!(first.len(), 6 * times);
    // The file of another program has a similar name, and must be left alone.
    let foreign = root.path().join("large.tfrecord.index");
    fs::write(&foreign, "0 17\n").unwrap();
    let index = root.path().join("large.tfrecord.warpfeed-index");
    let original = fs::read(&index).unwrap();
    assert_eq!(labels(&*open(&path).unwrap()), first);
    // Neither a damaged index nor the index of a different file may be used.
    fs::write(&index, &original[..original.len() - 9]).unwrap();
    assert_eq!(open(&path).unwrap().len(), 6 * times);
    fs::write(&path, file.repeat(times + 1)).unwrap();
    assert_eq!(open(&path).unwrap().len(), 6 * (times + 1));
    assert_eq!(fs::read(&foreign).unwrap(), b"0 17\n");
    #[cfg(target_os = "linux")]
    {
        fs::remove_file(&index).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&index).status().unwrap().success());
        exit_on_hang(|| assert_eq!(open(&path).unwrap().len(), 6 * (times + 1)));
    }
}
