//! Tests that lists in the documentation are complete. Lists of formats must contain every format
//! (`sources/src/open/walk.rs` tests the list in docs/your-data.md). Two tables must contain the
//! features in Cargo.toml, and the documentation of `Loader` must list its options. The pages may
//! use only commands that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use warpfeed::source::DATA_FORMATS;

const DISPLAY_NAMES: [(&str, &str); 21] = [
    ("arrow", "Arrow"),
    ("beton", "FFCV"),
    ("clips", "videos"),
    ("coco", "COCO"),
    ("folder", "folder"),
    ("hdf5", "HDF5"),
    ("lerobot", "LeRobot"),
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

/// The lists of formats: the file, the text with which the list starts, and the text after the
/// list.
const LISTS: [(&str, &str, &str); 2] = [
    ("cli/src/program.rs", "/// PATH is a local dataset", "#[derive(Parser)]"),
    ("python/warpfeed/_loader.py", "- The path or URL of a dataset", "- A :class:"),
];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn formats_missing_from(list: &str) -> BTreeSet<&'static str> {
    let named = |format: &str| {
        let (_, display_name) = DISPLAY_NAMES
            .iter()
            .find(|(name, _)| *name == format)
            .unwrap_or_else(|| panic!("{format} has no display name"));
        list.contains(display_name)
    };
    DATA_FORMATS.iter().map(|format| format.name).filter(|format| !named(format)).collect()
}

#[test]
fn every_list_of_formats_names_every_format() {
    for (file, begin, end) in LISTS {
        let text = read(file);
        let (_, list) = text.split_once(begin).unwrap_or_else(|| panic!("{file} has no {begin:?}"));
        let (list, _) = list.split_once(end).unwrap_or_else(|| panic!("{file} has no {end:?} after {begin:?}"));
        assert_eq!(formats_missing_from(list), BTreeSet::new(), "{file} does not mention these formats");
    }
    assert_eq!(formats_missing_from("tar, LMDB").len(), DATA_FORMATS.len() - 2);
}

/// The table in docs/object-stores.md lists the formats that are read with range requests. The text
/// below the table lists the formats that are downloaded as whole files.
#[test]
fn the_page_on_stores_lists_every_format_that_a_store_supports() {
    let page = read("docs/object-stores.md");
    let (_, layouts) = page.split_once("## Layouts").expect("the page has a section \"Layouts\"");
    let downloaded: BTreeSet<_> = ["arrow", "hdf5", "lmdb", "voc", "yolo"].into();
    assert_eq!(
        formats_missing_from(layouts.split_once("\n\nThe format").expect("a text follows the table").0),
        downloaded
    );
    assert_eq!(
        formats_missing_from(layouts).len(),
        0,
        "the text after the table must name the formats that are downloaded"
    );
}

fn features(manifest: &str) -> BTreeSet<&str> {
    let (_, section) = manifest.split_once("\n[features]\n").expect("Cargo.toml has a [features] section");
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| Some(line.split_once(" = ")?.0)).filter(|name| !name.starts_with('#'));
    names.filter(|name| *name != "default" && !name.starts_with('_')).collect()
}

fn listed_features(page: &str) -> BTreeSet<&str> {
    let lines = page.lines().map(|line| line.strip_prefix("//! ").unwrap_or(line));
    let table = lines.skip_while(|line| !line.starts_with("| feature | default |")).skip(2);
    let rows = table.map_while(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap()).collect()
}

#[test]
fn the_lists_of_features_are_complete() {
    let manifest = read("Cargo.toml");
    for file in ["src/lib.rs", "docs/getting-started.md"] {
        let page = read(file);
        assert_eq!(listed_features(&page), features(&manifest), "{file}");
        let misspelled = page.replacen("| `lmdb`", "| `lmbd`", 1);
        assert_ne!(listed_features(&misspelled), features(&manifest), "{file}");
    }
}

/// Returns the public setters that are written by hand. Generated setters are omitted, because the
/// macros that generate them also document them. `decoder.rs` has setters of `DecoderBuilder`.
fn setters() -> BTreeSet<String> {
    let files = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/loader")).unwrap();
    let files =
        files.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|name| name == "rs"));
    let by_hand = files.filter(|path| !["decoder.rs", "mod.rs"].iter().any(|name| path.ends_with(name)));
    let text: String = by_hand.map(|path| fs::read_to_string(path).unwrap()).collect();
    let methods = text.lines().filter_map(|line| line.trim_start().strip_prefix("pub fn "));
    let methods = methods.filter(|line| line.contains("(self") || line.contains("(mut self"));
    methods.map(|line| line.chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect()).collect()
}

fn setters_missing_from<'a>(table: &str, setters: &'a BTreeSet<String>) -> Vec<&'a String> {
    setters.iter().filter(|name| !table.contains(&format!("[`{name}`](Loader::{name})"))).collect()
}

#[test]
fn the_table_of_options_is_complete() {
    let (page, setters) = (read("src/loader/options.rs"), setters());
    let (table, _) = page.split_once("pub struct Loader {").expect("the file defines `Loader`");
    assert!(setters.len() > 30, "{setters:?}");
    assert_eq!(setters_missing_from(table, &setters), Vec::<&String>::new());
    let misspelled = table.replace("[`subset`]", "[`subsets`]");
    assert_eq!(setters_missing_from(&misspelled, &setters), ["subset"]);
}

fn commands(program: &str) -> BTreeSet<String> {
    let (_, list) = program.split_once("\nenum Command {\n").expect("the program defines its commands");
    let variants = list.lines().take_while(|line| *line != "}").filter_map(|line| line.trim().split_once('('));
    variants.filter(|(name, _)| !name.starts_with('#')).map(|(name, _)| name.to_lowercase()).collect()
}

fn commands_used_in(page: &str) -> BTreeSet<String> {
    let blocks = page.split("\n```sh\n").skip(1).map(|rest| rest.split("\n```").next().unwrap());
    let lines = blocks.flat_map(str::lines).filter_map(|line| line.trim().strip_prefix("warpfeed "));
    lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn the_pages_use_only_commands_that_exist() {
    let commands = commands(&read("cli/src/program.rs"));
    let pages = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")).unwrap();
    let pages =
        pages.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|name| name == "md"));
    let used: BTreeSet<String> = pages.flat_map(|path| commands_used_in(&fs::read_to_string(path).unwrap())).collect();
    assert!(used.len() > 4, "{used:?}");
    assert!(used.is_subset(&commands), "{used:?}, but the program has {commands:?}");
    assert!(!commands_used_in("\n```sh\nwarpfeed repack a b\n```").is_subset(&commands));
}
