//! Tests RecordIO files that MXNet's C library wrote (see `tests/fixtures/formats/recordio.py`).

use std::fs;

use warpfeed::source::{Options, open};

use crate::formats::{assert_matches_reference, copy, fixture};

const MAGIC: [u8; 4] = 0xced7_230a_u32.to_le_bytes();

#[test]
fn recordio_files_give_the_batches_of_the_folder() {
    assert_matches_reference(fixture("recordio/train.rec"), |loader| loader);
    assert_matches_reference(fixture("recordio/train.rec"), |loader| loader.mmap(false));
    assert_eq!(open(fixture("recordio/train.rec")).unwrap().kind(), "recordio");
}

#[test]
fn a_missing_recordio_index_is_created_once() {
    let folder = copy("recordio");
    fs::remove_file(folder.path().join("train.idx")).unwrap();
    let path = folder.path().join("train.rec");
    assert_matches_reference(&path, |loader| loader);
    let index = folder.path().join("train.rec.warpfeed-index");
    let modified = || fs::metadata(&index).unwrap().modified().unwrap();
    let first = modified();
    open(&path).unwrap();
    assert_eq!(modified(), first, "a second opening writes no index");
    // An index that was written before the file was truncated must be ignored.
    let bytes = fs::read(&path).unwrap();
    let second = bytes.windows(4).skip(4).position(|four| four == MAGIC).unwrap() + 4;
    fs::write(&path, &bytes[..second]).unwrap();
    assert_eq!(open(&path).unwrap().len(), 1);
}

#[test]
fn recordio_records_of_several_parts_are_joined() {
    let folder = copy("recordio_values");
    for mapped in [true, false] {
        let source = Options::new().mmap(mapped).open(folder.path().join("parts.rec")).unwrap();
        let parts =
            [[&b"abcd"[..], &MAGIC, b"efgh", &MAGIC, &MAGIC, b"xyz"].concat(), [&MAGIC[..], b"1"].concat(), vec![]];
        assert_eq!(source.len(), 3);
        let mut scratch = Vec::new();
        for (n, expected) in parts.iter().enumerate() {
            let sample = source.read(n, &mut scratch).unwrap();
            assert_eq!(
                (&*sample.field("image.bin").unwrap(), sample.label().unwrap()),
                (&**expected, Some(3 + n as i64))
            );
            assert_eq!(source.label(n, &mut Vec::new()).unwrap(), Some(3 + n as i64));
        }
    }
}

#[test]
fn recordio_records_with_several_labels_have_a_field() {
    let source = open(fixture("recordio_values/labels.rec")).unwrap();
    let mut scratch = Vec::new();
    for n in 0..2 {
        let sample = source.read(n, &mut scratch).unwrap();
        assert_eq!(sample.label().unwrap(), None);
        assert_eq!(sample.value("label.npy").unwrap().encoded("x.txt"), format!("1.5 2 {n}").as_bytes());
        assert_eq!(&*sample.field("image.bin").unwrap(), b"data");
    }
}

#[test]
fn insightface_recordio_files_skip_records_without_images() {
    let source = open(fixture("recordio_values/faces.rec")).unwrap();
    let labels: Vec<_> = (0..source.len()).map(|n| source.label(n, &mut Vec::new()).unwrap()).collect();
    assert_eq!(labels, [Some(7), Some(8)]);
}

#[test]
fn damaged_recordio_files_fail_with_their_location() {
    let folder = copy("recordio");
    let (path, index) = (folder.path().join("train.rec"), folder.path().join("train.idx"));
    let bytes = fs::read(&path).unwrap();
    let lines = fs::read_to_string(&index).unwrap();
    let second: u64 = lines.lines().nth(1).unwrap().split('\t').next_back().unwrap().parse().unwrap();
    fs::write(&index, lines.replace(&format!("\t{second}\n"), &format!("\t{}\n", second + 4))).unwrap();
    let source = open(&path).unwrap();
    let e = source.read(1, &mut Vec::new()).unwrap_err();
    assert!(e.path() == Some(&*path) && e.cause().contains("no record at the indexed offset"), "{e}");
    source.read(2, &mut Vec::new()).unwrap();
    fs::write(&index, "0\tzero\n").unwrap();
    let e = open(&path).err().unwrap();
    assert!(e.path() == Some(&*index) && e.cause().contains("line 1 is \"0\\tzero\""), "{e}");
    fs::remove_file(&index).unwrap();
    for (damaged, cause) in [
        (bytes[..bytes.len() - 4].to_vec(), "it is truncated"),
        ([&bytes[..], b"more"].concat(), "no record at byte"),
        ([&bytes[..second as usize], &[0; 16]].concat(), &*format!("no record at byte {second} of")),
    ] {
        fs::write(&path, damaged).unwrap();
        let e = open(&path).err().unwrap();
        assert!(e.path() == Some(&*path) && e.cause().contains(cause), "{cause}: {e}");
    }
}

/// Writes records with an image of three bytes and one label. Without `arrays`, the label is in the
/// header. With `arrays`, the label follows the header as an array of one number, which is the form
/// that `mx.recordio.pack` writes for a list.
fn with_labels(path: &std::path::Path, labels: &[f32], arrays: bool) {
    let record = |label: &f32| {
        let header = match arrays {
            false => [&[0; 4][..], &label.to_le_bytes(), &[0; 16]].concat(),
            true => [&1_u32.to_le_bytes()[..], &[0; 20], &label.to_le_bytes()].concat(),
        };
        let data = [&header[..], b"abc"].concat();
        [&MAGIC[..], &(data.len() as u32).to_le_bytes(), &data, &[0]].concat()
    };
    fs::write(path, labels.iter().flat_map(record).collect::<Vec<u8>>()).unwrap();
}

#[test]
fn one_integer_after_the_header_is_a_label_like_one_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.rec");
    with_labels(&path, &[7.0, 8.0], true);
    let source = open(&path).unwrap();
    for (n, label) in [7, 8].into_iter().enumerate() {
        let mut scratch = Vec::new();
        let sample = source.read(n, &mut scratch).unwrap();
        assert_eq!((sample.label().unwrap(), sample.value("label.npy").is_none()), (Some(label), true));
        assert_eq!(&*sample.field("image.bin").unwrap(), b"abc");
        assert_eq!(source.label(n, &mut Vec::new()).unwrap(), Some(label));
    }
    with_labels(&path, &[7.0, 8.5], true);
    assert_eq!(
        open(&path).unwrap().label(0, &mut Vec::new()).unwrap(),
        None,
        "one label with a fraction turns all labels into fields"
    );
}

#[test]
fn recordio_labels_with_fractions_are_a_field_of_every_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.rec");
    let values = |options: Options, count: usize| -> Vec<_> {
        let source = options.open(&path).unwrap();
        let mut scratch = Vec::new();
        let value = |n| {
            let sample = source.read(n, &mut scratch).unwrap();
            let (label, value) = (sample.label().unwrap(), sample.value("label.npy"));
            let Some(warpfeed::source::Value::Numbers(numbers)) = value else { return (label, None) };
            (label, Some((numbers.shape(), numbers.iter::<f32>().unwrap().collect::<Vec<_>>())))
        };
        (0..count).map(value).collect()
    };
    let field = |label: f32| (None, Some((vec![1], vec![label])));
    with_labels(&path, &[1.0, 2.5, -3.0], false);
    assert_eq!(values(Options::new(), 3), [field(1.0), field(2.5), field(-3.0)]);
    with_labels(&path, &[1.0, 2.0], false);
    assert_eq!(values(Options::new(), 2), [(Some(1), None), (Some(2), None)]);
    let options = || Options::new().table(warpfeed::source::TableOptions::new().without_label());
    assert_eq!(values(options(), 2), [field(1.0), field(2.0)]);
    // Opening a file of 1000 records inspects only some of them, and record 37 is not among them.
    let mut many = vec![4.0; 1000];
    many[37] = 0.5;
    with_labels(&path, &many, false);
    let source = open(&path).unwrap();
    let e = source.read(37, &mut Vec::new()).unwrap_err();
    assert!(
        e.cause()
            .contains("labels [0.5]: expected a single integer, as in other records; use TableOptions::without_label"),
        "{e}"
    );
    assert!(source.label(37, &mut Vec::new()).is_err());
    assert_eq!(values(options(), 38)[37], field(0.5));
}
