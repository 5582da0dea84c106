//! Promise: every list of formats that people read names every format: the table of modules, the
//! help of the program, the docstring of the Python class, and the page of stores. Tests of
//! `source::open` and `parsers` check the other pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use warpfeed::source::DATA_FORMATS;

/// The word by which texts name each format.
const WORDS: [(&str, &str); 19] = [
    ("arrow", "Arrow"),
    ("beton", "FFCV"),
    ("coco", "COCO"),
    ("folder", "folder"),
    ("hdf5", "HDF5"),
    ("litdata", "LitData"),
    ("lmdb", "LMDB"),
    ("mds", "MDS"),
    ("npy", "NumPy"),
    ("npz", "NumPy"),
    ("parquet", "Parquet"),
    ("recordio", "RecordIO"),
    ("safetensors", "safetensors"),
    ("table", "table"),
    ("tar", "tar"),
    ("tfrecord", "TFRecord"),
    ("torch", "PyTorch"),
    ("voc", "Pascal VOC"),
    ("yolo", "YOLO"),
];

/// Each list: its file, and the lines at which it begins and ends.
const LISTS: [(&str, &str, &str); 3] = [
    ("ARCHITECTURE.md", "| `source` |", "\n"),
    ("cli/src/program.rs", "/// PATH is a dataset", "#[derive(Parser)]"),
    ("python/warpfeed/_loader.py", "        data: the path or URL of a dataset", "Or :class:"),
];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The formats that a list does not name.
fn missing(list: &str) -> BTreeSet<&'static str> {
    let named = |format: &str| {
        let (_, word) =
            WORDS.iter().find(|(name, _)| *name == format).unwrap_or_else(|| panic!("no word for {format}"));
        list.contains(word)
    };
    DATA_FORMATS.iter().map(|format| format.name).filter(|format| !named(format)).collect()
}

#[test]
fn every_list_of_formats_names_every_format() {
    for (file, begin, end) in LISTS {
        let text = read(file);
        let (_, list) = text.split_once(begin).unwrap_or_else(|| panic!("{file} has no {begin:?}"));
        let (list, _) = list.split_once(end).unwrap_or_else(|| panic!("{file} has no {end:?} after {begin:?}"));
        assert_eq!(missing(list), BTreeSet::new(), "{file} leaves them out");
    }
    assert_eq!(missing("tar, LMDB").len(), DATA_FORMATS.len() - 2);
}

/// What is not read from stores is brought as whole files.
#[test]
fn the_page_of_stores_has_a_row_for_each_format_that_is_read_there() {
    let page = read("docs/object-stores.md");
    let (_, layouts) = page.split_once("## Layouts").expect("a section of layouts");
    let brought: BTreeSet<_> = ["arrow", "hdf5", "lmdb", "voc", "yolo"].into();
    assert_eq!(missing(layouts.split_once("\n\nThe format").expect("a table").0), brought);
    assert_eq!(missing(layouts).len(), 0, "the text after the table says how the others are brought");
}
