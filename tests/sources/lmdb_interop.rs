//! Tests interoperability with Python's `lmdb` and `msgpack`: each side reads the databases that
//! the other writes.
//!
//! `tests/fixtures/make.py` generates the fixtures.

use std::fs;
use std::path::Path;
use std::process::Command;

use warpfeed::pack::{DatasetWriter, LmdbWriter, WriteOptions};
use warpfeed::source::{Lmdb, OwnedSample, Sample, Source, ValueFormat, open};

/// Copies a fixture, because opening a database creates a lock file next to it.
fn fixture(name: &str, folder: &Path) -> std::path::PathBuf {
    let (from, to) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name), folder.join(name));
    if from.is_dir() {
        fs::create_dir(&to).unwrap();
        fs::copy(from.join("data.mdb"), to.join("data.mdb")).unwrap();
    } else {
        fs::copy(from, &to).unwrap();
    }
    to
}

fn jpeg(i: usize) -> Vec<u8> {
    let mut bytes = b"\xff\xd8\xff".to_vec();
    bytes.resize(bytes.len() + i * 700 + 1, i as u8);
    bytes
}

#[test]
fn databases_written_by_python_are_read() {
    let root = tempfile::tempdir().unwrap();
    let source = open(fixture("msgpack_mdb", root.path())).unwrap();
    assert_eq!((source.kind(), source.len()), ("lmdb", 5), "metadata entries must not be samples");
    assert_eq!(source.classes(), ["zero", "eins ä"]);
    for i in 0..5 {
        let mut scratch = Vec::new();
        let sample = source.read(i, &mut scratch).unwrap();
        assert_eq!(sample.key(), format!("c{}/{i}", i % 2));
        assert_eq!(sample.label().unwrap(), Some(i as i64 % 2));
        // The values also have `width` and `box`, which are ignored, because they are neither bytes
        // nor text.
        assert_eq!(
            sample.fields(),
            [("jpg", (&jpeg(i)).into()), ("caption", format!("picture {i}").as_bytes().into())]
        );
    }
}

#[test]
fn bare_images_under_decimal_keys_are_in_numerical_order() {
    let root = tempfile::tempdir().unwrap();
    let source = open(fixture("bare.mdb", root.path())).unwrap();
    assert_eq!(source.len(), 11);
    for i in 0..11 {
        let mut scratch = Vec::new();
        let sample = source.read(i, &mut scratch).unwrap();
        assert_eq!((sample.key(), sample.label().unwrap()), (&*i.to_string(), None));
        assert_eq!(sample.fields(), [("jpg", (&jpeg(i)).into())]);
    }
}

#[test]
fn keys_that_are_not_text_are_shown_in_hexadecimal() {
    let root = tempfile::tempdir().unwrap();
    let source = Lmdb::open(fixture("binary_keys.mdb", root.path())).unwrap();
    let mut scratch = Vec::new();
    assert_eq!(source.read(0, &mut scratch).unwrap().key(), "0000000000000007");
    let sample = source.read(1, &mut scratch).unwrap();
    assert_eq!((sample.key(), sample.image().unwrap().1), ("00000000000000fe", &b"\x89PNG\r\n\xfe"[..]));
}

#[test]
fn a_user_defined_value_format_is_read() {
    struct LastByteIsLabel;
    impl ValueFormat for LastByteIsLabel {
        fn sample<'a>(&self, key: &'a str, value: &'a [u8]) -> warpfeed::Result<Sample<'a>> {
            let (label, bytes) = value.split_last().ok_or_else(|| warpfeed::Error::in_source("empty value"))?;
            Ok(Sample::new(key).with_field("png", bytes)?.with_label((*label).into()))
        }
    }
    let root = tempfile::tempdir().unwrap();
    let source = Lmdb::with_layout(fixture("binary_keys.mdb", root.path()), LastByteIsLabel).unwrap();
    assert_eq!(source.read(1, &mut Vec::new()).unwrap().label().unwrap(), Some(254));
}

#[test]
fn fields_borrow_from_the_map_and_live_as_long_as_the_source() {
    let root = tempfile::tempdir().unwrap();
    let source = Lmdb::open(fixture("bare.mdb", root.path())).unwrap();
    let mut scratches = vec![Vec::new(); 11];
    let samples: Vec<Sample<'_>> = scratches.iter_mut().enumerate().map(|(i, s)| source.read(i, s).unwrap()).collect();
    for (i, sample) in samples.iter().enumerate() {
        assert_eq!(*sample.field("jpg").unwrap(), jpeg(i));
    }
    let mut other = Vec::new();
    let again = source.read(10, &mut other).unwrap().field("jpg").unwrap();
    assert_eq!(again.as_ptr(), samples[10].field("jpg").unwrap().as_ptr(), "both fields borrow the mapped bytes");
}

#[test]
fn python_reads_what_the_writer_wrote() {
    let script = "import sys, lmdb, msgpack
env = lmdb.open(sys.argv[1], readonly=True, lock=False)
with env.begin() as txn:
    sample = msgpack.unpackb(txn.get(b'0000000001'))
    classes = msgpack.unpackb(txn.get(b'__classes__'))
    assert sample == {'__key__': 'eins/1', 'jpg': bytes([1]) * 5000, 'json': b'{}', 'cls': 1}, sample
    assert classes == ['null', 'eins ü'], classes
    assert txn.stat()['entries'] == 4
";
    let python = std::env::var("WARPFEED_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    match Command::new(&python).args(["-c", "import lmdb, msgpack"]).output() {
        Ok(output) if output.status.success() => {}
        _ => return crate::require::missing("python-lmdb", format_args!("{python} cannot import lmdb and msgpack")),
    }
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.lmdb");
    let options = WriteOptions { classes: vec!["null".into(), "eins ü".into()], ..Default::default() };
    let mut writer = Box::new(LmdbWriter::create(&path, &options).unwrap());
    for i in 0..3_u8 {
        let sample =
            OwnedSample::new(format!("eins/{i}")).field("jpg", [i; 5000]).field("json", *b"{}").label(i.into());
        writer.put(&sample.as_sample().unwrap()).unwrap();
    }
    writer.finish().unwrap();
    let output = Command::new(python).args(["-c", script]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn keyed(root: &Path, keys: &[&str]) -> Lmdb {
    let path = root.join(format!("{}.mdb", keys.join("-")));
    let env = lmdb::Environment::new().set_flags(lmdb::EnvironmentFlags::NO_SUB_DIR).open(&path).unwrap();
    let database = env.open_db(None).unwrap();
    let mut txn = lmdb::Environment::begin_rw_txn(&env).unwrap();
    for key in keys {
        let value = [b"\xff\xd8\xff", key.as_bytes()].concat();
        txn.put(database, key, &value, lmdb::WriteFlags::empty()).unwrap();
    }
    lmdb::Transaction::commit(txn).unwrap();
    drop(env);
    Lmdb::open(&path).unwrap()
}

#[test]
fn keys_that_are_almost_padded_decimals_are_all_listed() {
    let root = tempfile::tempdir().unwrap();
    let sets: [&[&str]; 6] = [
        &["000", "0005", "002"],
        &["000", "0005", "002", "003"],
        &["000", "001", "0015", "003"],
        &["00", "0x", "02", "03"],
        &["000", "001", "002", "003"],
        &["0", "1", "10", "2"],
    ];
    for keys in sets {
        let source = keyed(root.path(), keys);
        assert_eq!(source.len(), keys.len());
        let mut actual: Vec<String> = (0..source.len())
            .map(|i| source.read(i, &mut Vec::new()).unwrap_or_else(|e| panic!("{keys:?}: {e}")).key().to_owned())
            .collect();
        actual.sort();
        let mut expected = keys.to_vec();
        expected.sort_unstable();
        assert_eq!(actual, expected);
    }
}
