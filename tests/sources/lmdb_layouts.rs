//! Tests LMDB databases in the layouts that other libraries and common scripts write.

use std::fs;
use std::path::{Path, PathBuf};

use lmdb::{DatabaseFlags, Environment, EnvironmentFlags, Transaction, WriteFlags};
use warpfeed::pack::{DatasetWriter, TarWriter, WriteOptions};
use warpfeed::source::{Classes, Lmdb, OwnedSample, Source, open};

use crate::formats::{assert_matches_reference, fixture, reference};

/// Copies a fixture, because opening a database creates a lock file next to it.
fn copy(name: &str, folder: &Path) -> PathBuf {
    let dest = folder.join(name);
    fs::copy(fixture("lmdb").join(name), &dest).unwrap();
    dest
}

fn write(path: &Path, name: Option<&str>, records: &[(&[u8], Vec<u8>)]) {
    let env = Environment::new()
        .set_flags(EnvironmentFlags::NO_SUB_DIR)
        .set_max_dbs(4)
        .set_map_size(1 << 24)
        .open(path)
        .unwrap();
    let database = env.create_db(name, DatabaseFlags::empty()).unwrap();
    let mut txn = env.begin_rw_txn().unwrap();
    records.iter().for_each(|(key, value)| txn.put(database, key, value, WriteFlags::empty()).unwrap());
    txn.commit().unwrap();
}

fn images() -> Vec<OwnedSample> {
    all_samples(&*open(reference()).unwrap())
}

fn all_samples(source: &dyn Source) -> Vec<OwnedSample> {
    let mut scratch = Vec::new();
    (0..source.len()).map(|i| OwnedSample::try_from(&source.read(i, &mut scratch).unwrap()).unwrap()).collect()
}

pub(crate) fn assert_packs(source: &dyn Source) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("packed.tar");
    let options = WriteOptions { classes: source.classes().to_vec(), ..WriteOptions::default() };
    let mut writer = Box::new(TarWriter::create(&path, &options).unwrap());
    let mut scratch = Vec::new();
    (0..source.len()).for_each(|i| writer.put(&source.read(i, &mut scratch).unwrap()).unwrap());
    writer.finish().unwrap();
    let packed = open(&path).unwrap();
    assert!(all_samples(&*packed) == all_samples(source) && packed.classes() == source.classes());
}

fn jpeg(index: usize) -> Vec<u8> {
    let folder = open(reference()).unwrap();
    folder.read(index, &mut Vec::new()).unwrap().image().unwrap().1.to_vec()
}

fn cause(path: &Path) -> String {
    open(path).err().unwrap().to_string()
}

#[test]
fn databases_of_other_libraries_give_the_batches_of_the_folder() {
    let root = tempfile::tempdir().unwrap();
    for name in ["tuples.mdb", "dicts.mdb", "datums.mdb", "pairs.mdb"] {
        assert_matches_reference(copy(name, root.path()), |loader| loader);
    }
}

#[test]
fn dicts_become_fields_and_pack_into_tar_shards() {
    let root = tempfile::tempdir().unwrap();
    let source = open(copy("dicts.mdb", root.path())).unwrap();
    assert_packs(&*source);
    let mut scratch = Vec::new();
    for i in [1_usize, 2] {
        let sample = source.read(i, &mut scratch).unwrap();
        let odd = if i % 2 == 0 { Some("odd") } else { None };
        assert_eq!(sample.key(), format!("{i:08}"));
        assert_eq!(sample.field("box.json").as_deref(), Some(&b"[1,2.5,null]"[..]));
        assert_eq!(sample.field("note.txt").as_deref(), odd.map(str::as_bytes));
        let size = sample.value("size.npy").unwrap();
        let warpfeed::source::Value::Numbers(size) = size else { panic!("{size:?}") };
        assert_eq!(
            size.iter::<i16>().unwrap().collect::<Vec<_>>(),
            [i as i16, 2 * i as i16],
            "the value is read in its byte order"
        );
        assert_eq!(
            sample.image().unwrap().1.as_ptr(),
            source.read(i, &mut Vec::new()).unwrap().image().unwrap().1.as_ptr()
        );
    }
}

#[test]
fn keys_of_metadata_are_not_samples() {
    let root = tempfile::tempdir().unwrap();
    let source = open(copy("tuples.mdb", root.path())).unwrap();
    assert_eq!(source.len(), 12, "neither __len__ nor __keys__ is a sample");
    assert_eq!(source.read(11, &mut Vec::new()).unwrap().key(), "11", "samples are in numerical order");
}

#[test]
fn text_labels_of_pairs_are_a_field_and_integers_are_classes() {
    let root = tempfile::tempdir().unwrap();
    let source = open(copy("pairs.mdb", root.path())).unwrap();
    let sample = source.read(11, &mut Vec::new()).map(|s| OwnedSample::try_from(&s).unwrap()).unwrap();
    assert_eq!(sample, with_key(&images()[11], "image-000000012").field("label.txt", *b"3"));

    let path = root.path().join("words.mdb");
    let records: [(&[u8], Vec<u8>); 5] = [
        (b"num-samples", b"2".to_vec()),
        (b"image-000000001", jpeg(0)),
        (b"image-000000002", jpeg(1)),
        (b"label-000000001", b"2019".to_vec()),
        (b"label-000000002", "Straße".into()),
    ];
    write(&path, None, &records);
    let source = open(&path).unwrap();
    let mut scratch = Vec::new();
    let texts: Vec<_> = (0..2)
        .map(|i| {
            let sample = source.read(i, &mut scratch).unwrap();
            assert_eq!(sample.label().unwrap(), None, "one label is not an integer, so none is a class");
            String::from_utf8(sample.field("label.txt").unwrap().into_owned()).unwrap()
        })
        .collect();
    assert_eq!(texts, ["2019", "Straße"]);

    let wrong_path = root.path().join("wrong.mdb");
    write(
        &wrong_path,
        None,
        &[(b"num-samples", b"3".to_vec()), (b"image-000000001", jpeg(0)), (b"label-000000001", vec![])],
    );
    assert!(cause(&wrong_path).contains("num-samples is 3"), "{}", cause(&wrong_path));
}

fn with_key(sample: &OwnedSample, key: &str) -> OwnedSample {
    OwnedSample::try_from(&sample.as_sample().unwrap().with_key(key)).unwrap()
}

#[test]
fn a_path_names_a_database_and_an_error_lists_the_names() {
    let root = tempfile::tempdir().unwrap();
    let path = copy("named.mdb", root.path());
    let shown = cause(&path);
    assert!(
        shown.contains("the file contains 2 databases (\"train\", \"val\"): add `/` and a name to the path"),
        "{shown}"
    );
    let part = |name: &str| path.join(name);
    assert_eq!((open(part("train")).unwrap().len(), open(part("val")).unwrap().len()), (12, 1));
    assert_eq!(Lmdb::open_named(&path, "val").unwrap().len(), 1);
    let keyed: Vec<_> = images().iter().enumerate().map(|(i, s)| with_key(s, &format!("{i:05}"))).collect();
    let actual = all_samples(&*open(part("train")).unwrap());
    assert_eq!(actual.len(), keyed.len());
    for (actual, expected) in actual.iter().zip(&keyed) {
        assert_eq!(actual.as_sample().unwrap().fields(), expected.as_sample().unwrap().fields());
    }
    assert!(
        cause(&part("test")).contains("no database \"test\": the file contains \"train\", \"val\""),
        "{}",
        cause(&part("test"))
    );
    let table = root.path().join("t.csv");
    fs::write(&table, "path\n").unwrap();
    let inside = cause(&table.join("train"));
    assert!(inside.contains("table datasets have no parts: remove \"train\""), "{inside}");

    let path = root.path().join("one.mdb");
    write(&path, Some("only"), &[(b"a", jpeg(3))]);
    assert_eq!(open(&path).unwrap().len(), 1, "the only database needs no name");
    write(&path, None, &[(b"b", jpeg(3))]);
    assert_eq!(open(&path).unwrap().len(), 1, "a database is not a sample of the main one");
}

#[test]
fn raw_values_of_lsun_basicsr_and_openmmlab_are_read() {
    let root = tempfile::tempdir().unwrap();
    let lsun = root.path().join("lsun.mdb");
    let keys = ["00a5f3e2c0b1d4f60708090a0b0c0d0e0f101112", "f0a5f3e2c0b1d4f60708090a0b0c0d0e0f101112"];
    write(&lsun, None, &[0, 1].map(|i| (keys[i].as_bytes(), jpeg(i))));
    // BasicSR's keys have no extension. Its separate list of names is not needed.
    let basic = root.path().join("x");
    fs::create_dir(&basic).unwrap();
    write(&basic.join("data.mdb"), None, &[(b"0001_s001", jpeg(0)), (b"0001_s002", jpeg(1))]);
    fs::write(basic.join("meta_info.txt"), "0001_s001.png (48,48,3) 1\n0001_s002.png (48,48,3) 1\n").unwrap();
    // OpenMMLab (mmsegmentation) uses file paths as keys.
    let openmmlab = root.path().join("img_dir.lmdb");
    fs::create_dir(&openmmlab).unwrap();
    let paths: [&[u8]; 2] = [b"train/aachen_000000.jpg", b"train/aachen_000001.jpg"];
    write(&openmmlab.join("data.mdb"), None, &[(paths[0], jpeg(0)), (paths[1], jpeg(1))]);
    fs::write(openmmlab.join("meta_info.txt"), "aachen_000000.jpg (48,48,3) 1\n").unwrap();
    for (path, first) in [(lsun, keys[0]), (basic, "0001_s001"), (openmmlab, "train/aachen_000000.jpg")] {
        let source = open(path).unwrap();
        let mut scratch = Vec::new();
        let sample = source.read(0, &mut scratch).unwrap();
        assert_eq!((source.len(), sample.key(), sample.label().unwrap()), (2, first, None));
        assert_eq!(sample.image(), Some(("jpg", &jpeg(0)[..])));
    }
}

fn datum(channels: u8, data: &[u8]) -> Vec<u8> {
    [&[8, channels, 16, 2, 24, 3, 0x22, data.len() as u8], data, &[0x28, 7]].concat()
}

#[test]
fn caffe_pixels_are_read_in_the_declared_color_order() {
    let root = tempfile::tempdir().unwrap();
    let (gray, color) = (root.path().join("gray.mdb"), root.path().join("color.mdb"));
    let planes: Vec<u8> = (0..18).collect();
    write(&gray, None, &[(b"a", datum(1, &planes[..6]))]);
    write(&color, None, &[(b"a", datum(3, &planes))]);
    let pixels = |source: &Lmdb| {
        let mut scratch = Vec::new();
        let sample = source.read(0, &mut scratch).map_err(|e| e.to_string())?;
        assert_eq!(sample.label().unwrap(), Some(7));
        Ok::<_, String>(sample.field("rgb.npy").unwrap()[128..].to_vec())
    };
    let expected: Vec<u8> = (0..6).flat_map(|i| [i; 3]).collect();
    assert_eq!(pixels(&Lmdb::open(&gray).unwrap()).unwrap(), expected);
    let unknown = pixels(&Lmdb::open(&color).unwrap()).unwrap_err();
    assert!(unknown.contains("may be RGB or BGR"), "{unknown}");
    let rgb: Vec<u8> = (0..6).flat_map(|i| [i, i + 6, i + 12]).collect();
    let bgr: Vec<u8> = (0..6).flat_map(|i| [i + 12, i + 6, i]).collect();
    assert_eq!(pixels(&Lmdb::open(&color).unwrap().rgb().unwrap()).unwrap(), rgb);
    assert_eq!(pixels(&Lmdb::open(&color).unwrap().bgr().unwrap()).unwrap(), bgr);
}

fn tuple(image: &[u8], label: &[u8]) -> Vec<u8> {
    let length = (image.len() as u32).to_le_bytes();
    [b"\x80\x04B", &length[..], image, label, b"\x86."].concat()
}

#[test]
fn text_labels_are_numbered_by_class_list_or_sorted() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.mdb");
    let dict = |label: &str| {
        let label = [&[0x8c, label.len() as u8], label.as_bytes()].concat();
        [b"\x80\x04}(\x8c\x05imageC\x04\xff\xd8\xff\xe0\x8c\x05label", &label[..], b"u."].concat()
    };
    write(&path, None, &[(b"0", dict("dog")), (b"1", dict("cat")), (b"2", dict("dog"))]);
    let labels = |source: &dyn Source| -> Vec<_> {
        (0..source.len()).map(|i| source.label(i, &mut Vec::new()).unwrap().unwrap()).collect()
    };
    let source = open(&path).unwrap();
    assert_eq!((labels(&*source), source.classes()), (vec![1, 0, 1], &["cat".to_owned(), "dog".to_owned()][..]));
    let listed = warpfeed::source::Options::new().classes(Classes::new(["dog", "cat"]).unwrap()).open(&path).unwrap();
    assert_eq!(labels(&*listed), [0, 1, 0]);
}

#[test]
fn a_different_value_fails_only_its_sample() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.mdb");
    let good = tuple(&jpeg(0), b"K\x05");
    let mut records: Vec<(Vec<u8>, Vec<u8>)> =
        (0..200).map(|i| (format!("{i:03}").into_bytes(), good.clone())).collect();
    records[37].1 = b"cos\nsystem\n(S'true'\ntR.".to_vec();
    records[38].1 = b"\x80\x04K\x01K\x02K\x03\x87.".to_vec();
    records[39].1 = tuple(&jpeg(0), b"\x8c\x01x");
    records[40].1 = good[..good.len() - 1].to_vec();
    let borrowed: Vec<_> = records.iter().map(|(key, value)| (&key[..], value.clone())).collect();
    write(&path, None, &borrowed);
    let source = open(&path).unwrap();
    let mut scratch = Vec::new();
    for (index, expected) in [
        (37, "key \"037\": pickle: GLOBAL at byte 0: os.system is refused"),
        (38, "key \"038\": the value is a tuple or list with 3 items: expected 2, like the first sample"),
        (39, "key \"039\": \"label\" is text, but other samples have integers"),
        (40, "key \"040\": pickle: truncated at byte 12980: the opcode STOP is missing"),
    ] {
        let e = source.read(index, &mut scratch).err().unwrap();
        assert!(e.cause().contains(expected), "{e}");
        assert_eq!(e.path(), Some(&*path));
    }
    assert_eq!(source.read(36, &mut scratch).unwrap().label().unwrap(), Some(5));
}

#[test]
fn a_database_of_refused_pickles_names_the_refused_class() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.mdb");
    write(&path, None, &[(b"0", b"\x80\x04\x8c\x08__main__\x8c\x05Image\x93)\x81.".to_vec())]);
    let shown = cause(&path);
    assert!(shown.contains("key \"0\": pickle: STACK_GLOBAL at byte 19: __main__.Image is refused"), "{shown}");
}

/// `pickle.dumps({"image": numpy.arange(18, dtype="u1").reshape(2, 3, 3), "label": 4}, protocol=4)`
const PIXELS: &[u8] = b"\x80\x04\x95\xb5\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x05image\x94\x8c\x16numpy._core.multiarray\x94\x8c\x0c_reconstruct\x94\x93\x94\x8c\x05numpy\x94\x8c\x07ndarray\x94\x93\x94K\x00\x85\x94C\x01b\x94\x87\x94R\x94(K\x01K\x02K\x03K\x03\x87\x94h\x05\x8c\x05dtype\x94\x93\x94\x8c\x02u1\x94\x89\x88\x87\x94R\x94(K\x03\x8c\x01|\x94NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t\x94b\x89C\x12\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x94t\x94b\x8c\x05label\x94K\x04u.";

/// `pickle.dumps((numpy.arange(18, dtype="f4").reshape(2, 3, 3), numpy.ones((2, 6), "u1"), 4),
/// protocol=4)`
const FLOATS_AND_MASK: &[u8] = b"\x80\x04\x95)\x01\x00\x00\x00\x00\x00\x00\x8c\x16numpy._core.multiarray\x94\x8c\x0c_reconstruct\x94\x93\x94\x8c\x05numpy\x94\x8c\x07ndarray\x94\x93\x94K\x00\x85\x94C\x01b\x94\x87\x94R\x94(K\x01K\x02K\x03K\x03\x87\x94h\x03\x8c\x05dtype\x94\x93\x94\x8c\x02f4\x94\x89\x88\x87\x94R\x94(K\x03\x8c\x01<\x94NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t\x94b\x89CH\x00\x00\x00\x00\x00\x00\x80?\x00\x00\x00@\x00\x00@@\x00\x00\x80@\x00\x00\xa0@\x00\x00\xc0@\x00\x00\xe0@\x00\x00\x00A\x00\x00\x10A\x00\x00 A\x00\x000A\x00\x00@A\x00\x00PA\x00\x00`A\x00\x00pA\x00\x00\x80A\x00\x00\x88A\x94t\x94bh\x02h\x05K\x00\x85\x94h\x07\x87\x94R\x94(K\x01K\x02K\x06\x86\x94h\x0c\x8c\x02u1\x94\x89\x88\x87\x94R\x94(K\x03\x8c\x01|\x94NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t\x94b\x89C\x0c\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x94t\x94bK\x04\x87\x94.";

#[test]
fn color_order_applies_only_to_raw_pixels() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.mdb");
    write(&path, None, &[(b"0", PIXELS.to_vec())]);
    let pixels = |source: Lmdb| source.read(0, &mut Vec::new()).unwrap().field("rgb.npy").unwrap()[128..].to_vec();
    let rgb: Vec<u8> = (0..18).collect();
    let bgr: Vec<u8> = (0..6).flat_map(|i| [3 * i + 2, 3 * i + 1, 3 * i]).collect();
    assert_eq!(pixels(Lmdb::open(&path).unwrap()), rgb);
    assert_eq!(pixels(Lmdb::open(&path).unwrap().rgb().unwrap()), rgb);
    assert_eq!(pixels(Lmdb::open(&path).unwrap().bgr().unwrap()), bgr);
    for (name, value) in [("bare.mdb", jpeg(0)), ("pickled.mdb", tuple(&jpeg(0), b"K\x05"))] {
        let path = root.path().join(name);
        write(&path, None, &[(b"0", value)]);
        let e = Lmdb::open(&path).unwrap().bgr().unwrap_err();
        assert!(e.cause().contains("Lmdb::bgr applies only to raw pixels") && e.path() == Some(&*path), "{e}");
        assert!(Lmdb::open(&path).unwrap().rgb().is_err());
    }
}

#[test]
fn a_tuple_of_float_pixels_and_a_mask_needs_a_choice() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.mdb");
    write(&path, None, &[(b"0", FLOATS_AND_MASK.to_vec())]);
    let shown = cause(&path);
    assert!(shown.contains("the images may be in \"0\" (arrays of f32, shape [2, 3, 3]) or in \"1\""), "{shown}");
    let options = warpfeed::source::Options::new().table(warpfeed::source::TableOptions::new().image("1"));
    let source = options.open(&path).unwrap();
    let mut scratch = Vec::new();
    let sample = source.read(0, &mut scratch).unwrap();
    assert_eq!((sample.image().unwrap().1.len(), sample.label().unwrap()), (128 + 36, Some(4)));
}
