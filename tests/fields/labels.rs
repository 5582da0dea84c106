//! Tests missing and negative labels. A missing label is an error if other samples of the batch
//! have labels, unless an option reads it as -1. If no sample of a batch has a label, only reading
//! the labels fails.

use std::io::Write as _;
use std::path::Path;

use crate::support::{NumberCodec, NumberSource, loader};
use warpfeed::pack::{DatasetWriter, LmdbWriter, WriteOptions};
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::{Augment, Dtype, ErrorKind, HostBatch, Loader, OnError, Result};

fn set(labels: &[Option<i64>]) -> Loader {
    let sample = |(i, label): (usize, &Option<i64>)| {
        let sample = OwnedSample::new(format!("set/{i}")).field("img", (i as u64).to_le_bytes());
        label.iter().fold(sample, |sample, &label| sample.label(label))
    };
    let source = Memory::new(labels.iter().enumerate().map(sample).collect());
    Loader::source(source).codec(NumberCodec).augment(Augment::train(16)).batch_size(4)
}

fn first(loader: Loader) -> Result<HostBatch> {
    loader.into_iter().next().unwrap()
}

fn image() -> Vec<u8> {
    let mut png = std::io::Cursor::new(Vec::new());
    image::RgbImage::from_pixel(20, 20, image::Rgb([9; 3])).write_to(&mut png, image::ImageFormat::Png).unwrap();
    png.into_inner()
}

fn exact(path: &Path) -> Loader {
    Loader::new(path).augment(Augment::pass_through(20, 20)).batch_size(4)
}

#[test]
fn unlabeled_datasets_load_but_reading_labels_fails() {
    let flat = tempfile::tempdir().unwrap();
    for name in ["a.png", "b.png", "c.png"] {
        std::fs::write(flat.path().join(name), image()).unwrap();
    }
    let batch = first(exact(flat.path())).unwrap();
    assert_eq!((batch.len(), batch.images().as_u8().unwrap().len()), (3, 3 * 20 * 20 * 3));
    assert!(batch.field("label").is_none());
    let e = batch.labels().unwrap_err();
    assert_eq!((e.kind(), e.sample(), e.key()), (ErrorKind::Source, Some(0), Some("a")));
    assert!(e.cause().contains("no label") && e.cause().contains("unlabeled(true)"), "{e}");
}

#[test]
fn missing_labels_are_minus_one_on_request() {
    let none = first(set(&[None; 4]).unlabeled(true)).unwrap();
    assert_eq!(none.labels().unwrap(), [-1; 4]);
    assert_eq!(none.field("label").unwrap().as_i64().unwrap(), [-1; 4]);
    let some = first(set(&[Some(2), None, None, Some(0)]).unlabeled(true)).unwrap();
    assert_eq!(some.labels().unwrap(), [2, -1, -1, 0]);
}

#[test]
fn a_missing_label_fails_with_its_sample() {
    let e = first(set(&[Some(0), Some(1), None, Some(3)])).unwrap_err();
    assert_eq!((e.kind(), e.sample(), e.key()), (ErrorKind::Source, Some(2), Some("set/2")));
    assert!(e.cause().contains("no label") && e.cause().contains("unlabeled(true)"), "{e}");
}

#[test]
fn a_label_missing_from_a_file_fails_with_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let tar = folder.path().join("set.tar");
    let mut file = std::fs::File::create(&tar).unwrap();
    for i in 0..4 {
        let fields = [("png", image()), ("cls", b"1".to_vec())];
        for (name, bytes) in fields.iter().take(if i == 2 { 1 } else { 2 }) {
            file.write_all(&tar_member(&format!("s{i}.{name}"), bytes)).unwrap();
        }
    }
    file.write_all(&[0; 1024]).unwrap();
    drop(file);

    let lmdb = folder.path().join("set.lmdb");
    let mut writer = Box::new(LmdbWriter::create(&lmdb, &WriteOptions::default()).unwrap());
    for i in 0..4 {
        let sample = OwnedSample::new(format!("s{i}")).field("png", image());
        let sample = if i == 2 { sample } else { sample.label(1) };
        writer.put(&sample.as_sample().unwrap()).unwrap();
    }
    writer.finish().unwrap();

    for path in [tar, lmdb] {
        let e = first(exact(&path)).unwrap_err();
        assert_eq!((e.sample(), e.key()), (Some(2), Some("s2")), "{e}");
        assert!(e.path().is_some_and(|file| file.starts_with(&path)) && e.cause().contains("no label"), "{e}");
        let batch = first(exact(&path).unlabeled(true)).unwrap();
        assert_eq!(batch.labels().unwrap(), [1, 1, -1, 1]);
    }
}

fn tar_member(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut header = [0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..108].copy_from_slice(b"0000644\0");
    header[124..136].copy_from_slice(format!("{:011o}\0", bytes.len()).as_bytes());
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut member = [&header[..], bytes].concat();
    member.resize(member.len().next_multiple_of(512), 0);
    member
}

#[test]
fn a_sample_without_a_label_is_skipped_like_a_damaged_one() {
    let mut batches =
        set(&[Some(0), None, Some(2), Some(3)]).on_error(OnError::Skip { max_skipped: 1 }).host().unwrap();
    let batch = batches.epoch(0).next().unwrap().unwrap();
    assert_eq!(batch.labels().unwrap(), [0, 2, 2, 3], "sample 2 replaces sample 1");
    assert_eq!(batch.valid().collect::<Vec<_>>(), [true, false, true, true]);
    drop(batch);
    let faults = batches.sample_errors();
    assert_eq!(faults.iter().map(|fault| fault.error.sample()).collect::<Vec<_>>(), [Some(1)]);
}

#[test]
fn a_sample_that_failed_for_a_different_reason_keeps_its_error() {
    let bad_sample = OwnedSample::new("bad").field("img", *b"no number");
    let good = |i: u64| OwnedSample::new("good").field("img", i.to_le_bytes());
    let open = |samples| {
        let skip = OnError::Skip { max_skipped: 9 };
        Loader::source(Memory::new(samples)).codec(NumberCodec).augment(Augment::train(16)).batch_size(2).on_error(skip)
    };
    let mut batches = open(vec![bad_sample, good(1).label(7)]).host().unwrap();
    assert_eq!(batches.epoch(0).next().unwrap().unwrap().labels().unwrap(), [7, 7]);
    let faults = batches.sample_errors();
    assert_eq!(faults.len(), 1);
    assert!(faults[0].error.cause().contains("a number of 9 bytes: expected 8"), "{}", faults[0].error);
}

#[test]
fn a_negative_label_fails_its_sample() {
    let e = first(set(&[Some(3), Some(-49), Some(2), Some(1)])).unwrap_err();
    assert!(e.sample() == Some(1) && e.cause().contains("label -49 is negative"), "{e}");
    let e = first(set(&[Some(0), Some(-1), None, Some(1)]).soft_labels(4, 0.1)).unwrap_err();
    assert!(e.sample().is_some(), "{e}");
    let batch = first(set(&[Some(0), Some(-1), None, Some(1)]).unlabeled(true)).unwrap();
    assert_eq!(batch.labels().unwrap(), [0, -1, -1, 1]);
}

#[test]
fn soft_labels_need_a_label_for_each_sample() {
    let e = first(set(&[None; 4]).soft_labels(3, 0.3)).unwrap_err();
    assert!(e.sample().is_some() && e.cause().contains("no label, but soft_labels requires one"), "{e}");
    let batch = first(set(&[None, Some(2), None, Some(-5)]).soft_labels(3, 0.3).unlabeled(true)).unwrap();
    let rows = batch.soft_labels().unwrap().as_f32().unwrap().to_vec();
    let (low, high) = (0.3 / 3.0, 0.7f32.mul_add(1.0, 0.3 / 3.0));
    assert_eq!(rows, [low, low, low, low, low, high, low, low, low, low, low, low]);
}

/// A batch with labels must not affect the next batch in the same slot, and vice versa.
#[test]
fn each_batch_tracks_whether_it_has_labels() {
    let labels: Vec<_> = (0..24).map(|i| (i / 4 % 2 == 1).then_some(i)).collect();
    let mut batches = set(&labels).workers(2).prefetch(1).host().unwrap();
    for epoch in 0..2 {
        for batch in batches.epoch(epoch) {
            let batch = batch.unwrap();
            assert_eq!(batch.labels().is_ok(), batch.batch_index() % 2 == 1, "batch {}", batch.batch_index());
        }
    }
}

#[test]
fn present_labels_are_read_unchanged() {
    let batch = first(loader(NumberSource::new(20)).dtype(Dtype::F32)).unwrap();
    assert_eq!(batch.labels().unwrap(), [0, 1, 2, 3, 4, 5, 6]);
}
