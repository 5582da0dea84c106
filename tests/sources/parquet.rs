//! Tests that a Parquet file has the same samples as an Arrow file or a folder with the same data.
//! Opening a truncated file must fail, and a changed byte must not cause a panic.

use std::fs;
use std::path::Path;

use warpfeed::source::{Options, OwnedSample, Source, TableOptions, Value, open};
use warpfeed::{Augment, Loader};

use crate::formats::{assert_matches_reference, fixture};
use crate::objects::Objects;

fn samples(source: &dyn Source) -> Vec<OwnedSample> {
    let mut scratch = Vec::new();
    let read = |row| OwnedSample::try_from(&source.read(row, &mut scratch).unwrap()).unwrap();
    (0..source.len()).map(read).collect()
}

#[test]
fn a_parquet_split_gives_the_same_batches_as_the_folder() {
    assert_matches_reference(fixture("parquet/hub/train"), |loader| loader);
    assert_matches_reference(fixture("parquet/hub/train"), |loader| loader.mmap(false).memory_limit(200 << 20));
}

#[test]
fn pages_of_every_version_hold_the_same_samples() {
    let original = open(fixture("parquet/hub/data/train-00000-of-00002.parquet")).unwrap();
    let expected = samples(&*original);
    assert_eq!((expected.len(), original.kind(), original.classes().len()), (6, "parquet", 4));
    for name in ["pages", "indexed", "v2"] {
        assert_eq!(samples(&*open(fixture("parquet").join(format!("{name}.parquet"))).unwrap()), expected, "{name}");
    }
}

#[test]
fn every_compression_and_type_has_the_values_of_the_arrow_file() {
    let names = [
        "text", "large", "flag", "half", "double", "byte", "when", "fixed", "list", "flags", "blob", "nested.a", "rows",
    ];
    let columns = |names: &[&str]| Options::new().table(TableOptions::new().columns(names.iter().copied()));
    let arrow = columns(&names).open(fixture("arrow_types/saved")).unwrap();
    let (mut scratch, mut other) = (Vec::new(), Vec::new());
    for compression in ["none", "snappy", "zstd", "lz4", "gzip"] {
        let path = fixture("parquet_types").join(format!("{compression}.parquet"));
        let parquet = columns(&names).open(&path).unwrap();
        assert_eq!((parquet.len(), parquet.classes()), (4, arrow.classes()));
        for row in 0..3 {
            let (actual, expected) = (parquet.read(row, &mut scratch).unwrap(), arrow.read(row, &mut other).unwrap());
            let encoded = |sample: &warpfeed::source::Sample<'_>| -> Vec<(String, Vec<u8>)> {
                let fields = sample.fields().iter();
                fields.map(|(name, value)| ((*name).to_owned(), value.encoded(name).into_owned())).collect()
            };
            assert_eq!(encoded(&actual), encoded(&expected), "{compression}: row {row}");
            assert_eq!(actual.label().unwrap(), expected.label().unwrap());
        }
        let e = parquet.read(3, &mut scratch).unwrap_err().to_string();
        assert!(e.contains("column \"list\": item 1 of a list is null"), "{e}");
        assert_eq!(parquet.label(3, &mut scratch).unwrap(), None, "-1 is not a label");
    }
    let nested = columns(&["nested.b"]).open(fixture("parquet_types/none.parquet")).err().unwrap().to_string();
    assert!(nested.contains("column \"nested.b\" holds lists of bytes or text, which are not supported"), "{nested}");
    let mut scratch = Vec::new();
    let brotli =
        open(fixture("parquet_types/brotli.parquet")).unwrap().read(0, &mut scratch).err().unwrap().to_string();
    assert!(brotli.contains("brotli") && brotli.contains("brotli.parquet"), "{brotli}");
}

#[test]
fn values_of_a_dictionary_are_read() {
    let source = open(fixture("parquet_types/words.parquet")).unwrap();
    let mut scratch = Vec::new();
    let words: Vec<_> = (0..4)
        .map(|row| {
            let sample = source.read(row, &mut scratch).unwrap();
            let text = |name| sample.field(name).map(|field| String::from_utf8_lossy(&field).into_owned());
            let number = match sample.value("number.npy") {
                Some(Value::Numbers(numbers)) => numbers.iter::<i8>().unwrap().next(),
                _ => None,
            };
            (number, text("word.txt"))
        })
        .collect();
    let word = |text: &str| Some(text.to_owned());
    assert_eq!(words, [(Some(5), word("a")), (None, word("b")), (Some(7), None), (Some(5), word("a"))]);
}

#[test]
fn a_missing_image_error_lists_the_fields_that_were_not_read() {
    let columns = Options::new().table(TableOptions::new().columns(["list", "flags"]));
    for name in ["none", "zstd"] {
        let source = columns.open(fixture("parquet_types").join(format!("{name}.parquet"))).unwrap();
        assert!(source.select_fields(&[]).is_some(), "the loader reads a view without these fields");
        let loader = Loader::source(source).unlabeled(true).augment(Augment::eval(8, 8)).batch_size(2);
        let e = loader.host().unwrap().epoch(0).next().unwrap().unwrap_err().to_string();
        assert!(e.contains("no image among the fields") && e.contains("\"list") && e.contains("\"flags"), "{e}");
    }
}

#[test]
fn a_folder_with_several_splits_lists_them() {
    assert_eq!(open(fixture("parquet/hub/validation")).unwrap().len(), 1);
    for (path, expected) in [
        ("parquet/hub", "found the splits train, validation: append one to the path, for example "),
        ("parquet/hub/test", "no split \"test\": expected one of train, validation"),
    ] {
        let e = open(fixture(path)).err().unwrap().to_string();
        assert!(e.contains(expected), "{e}");
    }
}

#[test]
fn the_memory_plan_includes_the_page_cache() {
    let load = |loader: Loader| loader.augment(Augment::train(16)).batch_size(4).workers(1).host().unwrap();
    let batches = load(Loader::new(fixture("parquet/hub/train")));
    assert!(batches.memory_plan().source_prefetch_bytes >= 1 << 20, "{}", batches.memory_plan());
}

fn reads(path: &Path) -> usize {
    let Ok(source) = open(path) else { return 0 };
    let mut scratch = Vec::new();
    (0..source.len().min(20)).filter(|&row| source.read(row, &mut scratch).is_ok()).count()
}

#[test]
fn truncated_files_fail_and_changed_files_do_not_panic() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.parquet");
    let bytes = fs::read(fixture("parquet_types/words.parquet")).unwrap();
    for len in 0..bytes.len() {
        fs::write(&path, &bytes[..len]).unwrap();
        let e = open(&path).err().unwrap_or_else(|| panic!("{len} bytes of {}", bytes.len()));
        assert_eq!(e.path(), Some(&*path), "{e}");
    }
    let mut valid = 0;
    for offset in 0..bytes.len() {
        for value in [0, 0x7f, 0xff] {
            let mut changed = bytes.clone();
            changed[offset] = value;
            fs::write(&path, changed).unwrap();
            valid += reads(&path);
        }
    }
    assert!(valid > 0);
}

#[test]
fn shards_with_different_class_names_name_both_files() {
    // A renamed class makes the second shard contradict the first shard or `dataset_info.json`.
    for (folder, set, first, second) in [
        ("parquet/hub/data", "train", "train-00000-of-00002.parquet", "train-00001-of-00002.parquet"),
        ("arrow/saved", "", "dataset_info.json", "data-00001-of-00002.arrow"),
    ] {
        let root = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(fixture(folder)).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, root.path().join(path.file_name().unwrap())).unwrap();
        }
        let set = if set.is_empty() { root.path().to_owned() } else { root.path().join(set) };
        assert_eq!(open(&set).unwrap().len(), 12, "{folder}");
        let path = root.path().join(second);
        let mut bytes = fs::read(&path).unwrap();
        let places: Vec<_> = bytes.windows(11).enumerate().filter(|(_, name)| name == b"banded-ring").collect();
        let places: Vec<usize> = places.into_iter().map(|(offset, _)| offset).collect();
        assert!(!places.is_empty());
        places.into_iter().for_each(|offset| bytes[offset..offset + 11].copy_from_slice(b"banded-rang"));
        fs::write(&path, bytes).unwrap();
        let e = open(&set).err().unwrap_or_else(|| panic!("{folder} opens"));
        let expected = "column \"label\": class 0 is \"banded-rang\" here, but \"banded-ring\" in ";
        assert!(e.cause().contains(expected) && e.cause().contains(first), "{e}");
        assert_eq!(e.path(), Some(&*path), "{e}");
    }
}

fn nested(name: &str, columns: &[&str], row: usize) -> warpfeed::Result<Vec<(String, String)>> {
    let columns = TableOptions::new().columns(columns.iter().copied());
    let source = Options::new().table(columns).open(fixture("nested").join(name))?;
    let mut scratch = Vec::new();
    let sample = source.read(row, &mut scratch)?;
    let text = |value: &Value<'_>| String::from_utf8(value.encoded("x.txt").into_owned()).unwrap();
    Ok(sample.fields().iter().map(|(name, value)| ((*name).to_owned(), text(value))).collect())
}

const NESTED: [&str; 6] =
    ["boxes", "ragged", "objects.bbox", "objects.category", "objects.about.area", "objects.about.note"];

#[test]
fn nested_values_equal_the_arrow_file() {
    let columns: Vec<_> = NESTED.into_iter().chain(["points.x", "points.id", "deep"]).collect();
    for row in 0..9 {
        let (arrow, parquet) =
            (nested("saved", &columns, row).unwrap(), nested("nested.parquet", &columns, row).unwrap());
        assert_eq!(arrow.len(), if row == 8 { 0 } else { 9 }, "row {row}");
        // Skip the first column: its lists have a fixed length and are arrays in Arrow, but Parquet
        // does not store the length.
        assert_eq!(arrow[arrow.len().min(1)..], parquet[parquet.len().min(1)..], "row {row}");
        let numbers = |text: &str| text.replace(['[', ']', ','], " ").split_whitespace().collect::<Vec<_>>().join(" ");
        let boxes = |fields: &[(String, String)]| fields.first().map(|(_, text)| numbers(text));
        assert_eq!(boxes(&arrow), boxes(&parquet), "row {row}");
    }
    let expected = [
        ("boxes.json", "[[3,0,0.5,2.25],[3,1,0.5,2.25],[3,2,0.5,2.25]]"),
        ("ragged.json", "[[],[3],[3,-1]]"),
        ("objects.bbox.json", "[[3,0,0.5,2.25],[3,1,0.5,2.25],[3,2,0.5,2.25]]"),
        ("objects.category.npy", "0 1 0"),
        ("objects.about.area.npy", "0.75"),
        ("objects.about.note.txt", "n3"),
    ];
    let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(nested("nested.parquet", &NESTED, 3).unwrap(), expected);
    let last = |row, column| nested("nested.parquet", &[column], row).unwrap().pop().unwrap().1;
    assert_eq!(
        (last(4, "boxes"), last(4, "ragged"), last(2, "deep")),
        ("[]".into(), "[]".into(), "[[[true],[]],[]]".into())
    );
    assert_eq!(last(5, "points.id"), "1000000000000 1000000000001");
}

#[test]
fn nulls_inside_nested_values_are_not_lost() {
    for name in ["saved", "nested.parquet"] {
        let ragged = nested(name, &["ragged", "objects.bbox", "objects.about.area"], 9).unwrap();
        assert_eq!(ragged, [("ragged.json".to_owned(), "[null,[1,null]]".to_owned())], "{name}");
        for (row, column, cause) in
            [(10, "points.x", "item 1"), (10, "points.id", "item 1"), (11, "points.x", "item 0")]
        {
            let e = nested(name, &[column], row).unwrap_err().to_string();
            assert!(e.contains(&format!("column {column:?}: {cause} of a list is null")), "{name}: {e}");
        }
        assert_eq!(nested(name, &["points.id"], 11).unwrap()[0].1, "1", "{name}");
    }
}

#[test]
fn a_missing_path_does_not_open_files_of_another_dataset() {
    let (root, store) = (tempfile::tempdir().unwrap(), Objects::default());
    let other = root.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let bytes = std::fs::read(fixture("parquet/hub/data/train-00000-of-00002.parquet")).unwrap();
    std::fs::write(other.join("train-00000-of-00001.parquet"), &bytes).unwrap();
    store.put("mem://bucket/other/train-00000-of-00001.parquet", bytes);
    let options = Options::new().store("mem", std::sync::Arc::new(store));
    let folder = root.path().to_str().unwrap();
    for place in [folder, "mem://bucket"] {
        for name in ["train", "none"] {
            let e = options.open(format!("{place}/{name}")).err().unwrap();
            assert!(
                e.cause().contains("no such file or folder") && e.cause().contains("in the folder \"other\""),
                "{e}"
            );
            assert!(e.path().unwrap().ends_with(name), "{e}");
        }
        assert!(!options.open(format!("{place}/other/train")).unwrap().is_empty());
        assert!(!options.open(place).unwrap().is_empty());
    }
}

#[test]
fn a_missing_path_next_to_a_file_without_a_split_is_not_found() {
    let root = tempfile::tempdir().unwrap();
    fs::copy(fixture("parquet_types/words.parquet"), root.path().join("old_experiment.parquet")).unwrap();
    for name in ["train", "train.csv", "missing.lmdb"] {
        let path = root.path().join(name);
        let e = open(&path).err().unwrap();
        assert_eq!((e.kind(), e.os_code(), e.path()), (warpfeed::ErrorKind::Io, Some(2), Some(&*path)), "{e}");
        assert!(e.cause().ends_with(&format!("open the folder itself, {}", root.path().display())), "{e}");
    }
    assert!(!open(root.path()).unwrap().is_empty());
}

#[test]
fn unmarked_compressed_pages_of_old_pyarrow_are_read() {
    let mut bytes = fs::read(fixture("parquet/v2.parquet")).unwrap();
    // The page of each column in the first row group declares that it is not compressed.
    for start in [4, 66193, 66354] {
        let header = &mut bytes[start..start + 30];
        let flag = header.windows(5).position(|part| part == [0x15, 4, 0x15, 0, 0x11]).unwrap() + 4;
        header[flag] = 0x12;
    }
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.parquet");
    let opened = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        open(&path).unwrap()
    };
    let mut scratch = Vec::new();
    let e = opened(&bytes).read(0, &mut scratch).unwrap_err().to_string();
    assert!(e.contains("bytes, but its header claims"), "{e}");
    // Replace the name of the writer by the name that PyArrow before version 3 wrote, truncated to
    // the length of the name in the file.
    let writer = b"parquet-cpp-arrow version 26.0.1";
    let offset = bytes.windows(writer.len()).position(|part| part == writer).unwrap();
    bytes[offset..offset + writer.len()].copy_from_slice(b"parquet-cpp version 1.5.1-SNAPSH");
    let (old, new) = (opened(&bytes), open(fixture("parquet/v2.parquet")).unwrap());
    for row in 0..5 {
        let old = OwnedSample::try_from(&old.read(row, &mut scratch).unwrap()).unwrap();
        assert_eq!(old, OwnedSample::try_from(&new.read(row, &mut scratch).unwrap()).unwrap(), "row {row}");
    }
}
