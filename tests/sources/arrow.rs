//! Tests that Arrow files written by `datasets` return the values that were written. Opening a
//! truncated file must fail, and a changed byte must not cause a panic.

use std::fs;
use std::path::Path;

use warpfeed::Loader;
use warpfeed::source::{Options, OwnedSample, Source, TableOptions, Value, open};

use crate::formats::{assert_matches_reference, fixture};

fn types(name: &str, columns: Option<&[&str]>) -> std::sync::Arc<dyn Source> {
    let columns = columns.map(|columns| TableOptions::new().columns(columns.iter().copied()));
    Options::new().table(columns.unwrap_or_default()).open(fixture("arrow_types").join(name)).unwrap()
}

#[test]
fn a_saved_dataset_gives_the_same_batches_as_the_folder() {
    assert_matches_reference(fixture("arrow/saved"), |loader| loader);
    assert_matches_reference(fixture("arrow/saved"), |loader| loader.mmap(false));
}

#[test]
fn the_names_of_a_class_label_are_the_classes() {
    let source = open(fixture("arrow/saved")).unwrap();
    assert_eq!(source.classes(), ["banded-ring", "dotted-triangle", "plain-disc", "striped-cross"]);
    let part = open(fixture("arrow/saved/data-00000-of-00002.arrow")).unwrap();
    assert_eq!((part.classes(), part.len(), part.kind()), (source.classes(), 6, "arrow"));
}

#[test]
fn an_image_is_borrowed_from_the_map() {
    let source = open(fixture("arrow/saved")).unwrap();
    let mut scratch = Vec::new();
    let image = source.read(7, &mut scratch).unwrap().image().unwrap().1.as_ptr_range();
    assert!(!scratch.as_ptr_range().contains(&image.start));
}

#[test]
fn every_type_has_the_value_that_was_written() {
    for (name, mapped) in [("saved", true), ("saved", false), ("one_by_one.arrow", true)] {
        let path = fixture("arrow_types").join(name);
        let source = Options::new().mmap(mapped).open(path).unwrap();
        let mut scratch = Vec::new();
        let sample = source.read(0, &mut scratch).unwrap();
        let text = |name: &str| match sample.value(name) {
            Some(Value::Text(text)) => text.to_owned(),
            Some(Value::Bytes(bytes)) => format!("{bytes:?}"),
            Some(value) => {
                let shape = match value {
                    Value::Numbers(numbers) => numbers.shape(),
                    _ => vec![],
                };
                format!("{shape:?} {}", String::from_utf8(value.encoded("x.txt").into_owned()).unwrap())
            }
            None => "none".to_owned(),
        };
        for (field, expected) in [
            ("text.txt", "dög"),
            ("large.txt", &*"x".repeat(40)),
            ("flag.npy", "[] 1"),
            ("half.npy", "[] 1.5"),
            ("double.npy", &format!("[] {}", 1e300)),
            ("byte.npy", "[] 255"),
            ("when.npy", "[] 1700000000123"),
            ("fixed.npy", "[3] 1 -2 3"),
            ("list.npy", "[2] 0.5 2"),
            ("flags.npy", "[2] 1 0"),
            ("nested.a.npy", "[] 7"),
            ("nested.b.json", r#"["x",null,"\"\n"]"#),
            ("rows.json", "[[1,2],[],[3]]"),
            ("blob.bin", "[0, 1]"),
            ("price.npy", "none"), // decimals are left out
        ] {
            assert_eq!(text(field), expected, "{name}: {field}");
        }
        assert_eq!(
            (sample.label().unwrap(), sample.key(), source.classes()),
            (Some(1), "0", &["cat", "dog"].map(String::from)[..])
        );
    }
}

#[test]
fn a_null_field_or_negative_label_is_absent() {
    let source = types("saved", None);
    let mut scratch = Vec::new();
    let sample = source.read(1, &mut scratch).unwrap();
    assert_eq!((sample.fields().len(), sample.label().unwrap()), (0, None));
    let empty = source.read(2, &mut scratch).unwrap();
    assert_eq!((empty.value("text.txt"), empty.label().unwrap()), (Some(Value::Text("")), Some(0)));
    let e = source.read(3, &mut scratch).unwrap_err();
    assert!(e.to_string().contains("column \"list\": item 1 of a list is null"), "{e}");
    for path in ["arrow_types/saved", "parquet_types/none.parquet"] {
        let table = TableOptions::new().columns(["text"]).image("blob");
        let e = Loader::new(fixture(path)).table(table).subset([1]).into_iter().next().unwrap().unwrap_err();
        assert_eq!(e.cause(), "column \"blob\" is null or empty, so the sample has no image");
        assert_eq!(e.sample(), Some(1));
    }
    let source = types("saved", Some(&["text"]));
    assert_eq!(source.label(3, &mut scratch).unwrap(), None);
    assert_eq!(source.read(3, &mut scratch).unwrap().names(), ["text.txt"]);
}

#[test]
fn unsupported_columns_are_ignored_or_refused_by_name() {
    let mut scratch = Vec::new();
    let words = open(fixture("arrow_types/dictionary.arrow")).unwrap();
    assert_eq!(words.read(2, &mut scratch).unwrap().names(), ["number.npy"]);
    let selected = Options::new().table(TableOptions::new().columns(["word"]));
    let cause =
        |path: &str, options: &Options| options.open(fixture("arrow_types").join(path)).err().unwrap().to_string();
    let e = cause("dictionary.arrow", &selected);
    assert!(e.contains("column \"word\" holds dictionary-encoded values, which are not supported"), "{e}");
    let e = cause("compressed.arrow", &Options::new());
    assert!(e.contains("compressed batches") && e.contains("compressed.arrow"), "{e}");
    let e = cause("views.arrow", &Options::new());
    assert!(e.contains("column \"word\" contains views") && e.contains("cast it to binary or string"), "{e}");
}

#[test]
fn a_split_is_chosen_by_its_path() {
    let texts = |path: &str| -> Vec<String> {
        let source = open(fixture("arrow_splits").join(path)).unwrap();
        let mut scratch = Vec::new();
        let read = |row| match source.read(row, &mut scratch).unwrap().value("name.txt") {
            Some(Value::Text(text)) => text.to_owned(),
            other => panic!("{other:?}"),
        };
        (0..source.len()).map(read).collect()
    };
    assert_eq!(texts("dict/train"), ["train 0", "train 1"]);
    assert_eq!(texts("dict/validation"), ["validation 0"]);
    let shards = ["00000-of-00002 0", "00000-of-00002 1", "00001-of-00002 0", "00001-of-00002 1"];
    assert_eq!(texts("cache/train"), shards.map(|name| format!("mini-train-{name}")));
    assert_eq!(texts("cache/test"), ["mini-test 0", "mini-test 1"]);
    let cause = |path: &str| open(fixture("arrow_splits").join(path)).err().unwrap().to_string();
    for (path, expected) in [
        ("dict", "found the splits train, validation: append one to the path, for example "),
        ("dict/dev", "no split \"dev\": expected one of train, validation"),
        ("cache", "found the splits test, train: append one to the path, for example "),
        ("cache/dev", "no split \"dev\": expected one of test, train"),
    ] {
        assert!(cause(path).contains(expected), "{path}: {}", cause(path));
    }
}

#[test]
fn an_image_without_bytes_is_read_from_its_path() {
    let root = tempfile::tempdir().unwrap();
    let path_of = |name: &str| root.path().join(name);
    fs::create_dir(path_of("pictures")).unwrap();
    fs::write(path_of("pictures/a.jpg"), b"\xff\xd8\xff below").unwrap();
    fs::write(path_of("outside.jpg"), b"\xff\xd8\xff outside").unwrap();
    fs::create_dir(path_of("set")).unwrap();
    let copy = |file: &str| fs::copy(fixture("arrow_paths").join(file), path_of("set").join(file)).unwrap();
    copy("paths.arrow");
    fs::rename(path_of("pictures"), path_of("set/pictures")).unwrap();
    let source = open(path_of("set/paths.arrow")).unwrap();
    let mut scratch = Vec::new();
    assert_eq!(source.read(0, &mut scratch).unwrap().image().unwrap().1, b"\xff\xd8\xff below");
    let e = source.read(1, &mut scratch).unwrap_err().to_string();
    assert!(e.contains("\"../outside.jpg\" is not a relative path below") && e.contains("TableOptions::image"), "{e}");
    let e = source.read(2, &mut scratch).unwrap_err();
    assert!(e.path().unwrap().ends_with("pictures/missing.jpg"), "{e}");
    let anywhere = Options::new().table(TableOptions::new().image("image")).open(path_of("set/paths.arrow")).unwrap();
    assert_eq!(anywhere.read(1, &mut scratch).unwrap().image().unwrap().1, b"\xff\xd8\xff outside");
}

#[test]
fn a_truncated_file_fails_at_every_length() {
    let root = tempfile::tempdir().unwrap();
    let bytes = fs::read(fixture("arrow_types/saved/data-00000-of-00001.arrow")).unwrap();
    let path = root.path().join("cut.arrow");
    for len in (0..bytes.len()).step_by(3) {
        fs::write(&path, &bytes[..len]).unwrap();
        let e = open(&path).err().unwrap_or_else(|| panic!("{len} bytes of {}", bytes.len()));
        assert_eq!(e.path(), Some(&*path), "{e}");
    }
    fs::write(&path, &bytes).unwrap();
    assert_eq!(open(&path).unwrap().len(), 4);
}

fn readable(path: &Path) -> Option<Vec<Option<OwnedSample>>> {
    let source = open(path).ok()?;
    let mut scratch = Vec::new();
    let read = |row| OwnedSample::try_from(&source.read(row, &mut scratch).ok()?).ok();
    Some((0..source.len().min(20)).map(read).collect())
}

#[test]
fn a_changed_byte_never_panics() {
    let root = tempfile::tempdir().unwrap();
    let bytes = fs::read(fixture("arrow_types/saved/data-00000-of-00001.arrow")).unwrap();
    let path = root.path().join("changed.arrow");
    let mut opened = 0;
    // Every fifth byte is enough here, because `sources/tests/fuzz/columns.rs` changes bytes at any
    // offset.
    for offset in (0..bytes.len()).step_by(5) {
        for value in [0, 0x7f, 0xff] {
            let mut changed = bytes.clone();
            changed[offset] = value;
            fs::write(&path, changed).unwrap();
            opened += usize::from(readable(&path).is_some());
        }
    }
    assert!(opened > bytes.len() / 10, "{opened}");
}
