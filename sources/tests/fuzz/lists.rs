//! Fuzzes the readers of class lists, the features of Hugging Face's `datasets`, and token files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::formats::{TokenFile, TokenType};
use crate::fuzz::{self, Random};
use crate::model::{Classes, Source};
use crate::values::features::{Features, FileFeatures};

const NAMES: [&[u8]; 8] = [b"\n", b"\r\n", b"[", b"]", b"\",\"", b"\xef\xbb\xbf", b"\xff", b"\\ud800"];
const FEATURES: [&[u8]; 12] = [
    b"\"features\": ",
    b"\"info\": ",
    b"\"names\": [",
    b"\"_type\": \"ClassLabel\"",
    b"\"_type\": \"Image\"",
    b"\"label\": {",
    b"null",
    b"[[[[[[[[",
    b"{\"a\":{\"a\":{\"a\":",
    b"}",
    b"\\u0000",
    b"1e400",
];
const TOKENS: [&[u8]; 8] = [
    &20_240_520_i32.to_le_bytes(),
    &20_240_801_i32.to_le_bytes(),
    b"\x93NUMPY\x01\0",
    b"'shape': (18446744073709551615,), ",
    b"'descr': '<u4'",
    b"'descr': '>u2'",
    &[0xff; 8],
    &[0; 64],
];

/// Checks that a list that is accepted has names, and that they are distinct. Returns whether the
/// list is accepted.
fn classes(root: &Path, files: &[Vec<u8>], seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let path = root.join(random.pick(&["classes.txt", "classes.json"]));
    fs::write(&path, random.mutated(files, &NAMES)).unwrap();
    Classes::read(&path).is_ok_and(|classes| {
        let mut names = classes.names().to_vec();
        names.sort();
        assert!(names.first().is_some_and(|name| !name.is_empty()));
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        true
    })
}

/// Checks that, unless two files contradict each other, their class names are those of the first of
/// the two files that has any. Returns whether there are any.
fn features(files: &[Vec<u8>], seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let mut file = || (PathBuf::from("x"), text(random.mutated(files, &FEATURES)));
    let both = [file(), file()];
    let features = FileFeatures::new(None, &both);
    for column in ["image", "label", ""] {
        let _ = features.all().file_column_type(column);
    }
    let classes = features.classes(["label", "image"].into_iter(), Some("label"));
    classes.is_ok_and(|names| {
        let named = both.iter().filter_map(|(_, json)| Features::of(json)?.classes("label")).next();
        assert_eq!(names, named);
        names.is_some()
    })
}

/// Checks that the first, the middle and the last window are inside the file, and are the same with
/// and without memory mapping. Returns whether the file can be opened.
fn tokens(root: &Path, files: &[Vec<u8>], seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let path = root.join("x.bin");
    let bytes = random.mutated(files, &TOKENS);
    // A file must not change while it is mapped, so create a new file.
    drop(fs::remove_file(&path));
    fs::write(&path, &bytes).unwrap();
    let (kind, size) = random.pick(&[(TokenType::U16, 2), (TokenType::U32, 4)]);
    let window = (1 + random.below(40), 1 + random.below(40));
    let open = |mapped| TokenFile::open_with(&path, kind, window, mapped);
    let (mapped, unmapped) = (open(true), open(false));
    assert_eq!(mapped.as_ref().err().map(|e| e.cause()), unmapped.as_ref().err().map(|e| e.cause()));
    let (Ok(mapped), Ok(unmapped)) = (mapped, unmapped) else { return false };
    assert!(mapped.len() == unmapped.len() && mapped.len() * size <= bytes.len());
    for index in [0, mapped.len() / 2, mapped.len() - 1] {
        let (mut scratch, mut other) = (Vec::new(), Vec::new());
        let sample = mapped.read(index, &mut scratch).expect("the window is inside the file");
        assert!(sample.fields() == unmapped.read(index, &mut other).expect("inside the file").fields());
    }
    true
}

fn lists() -> Vec<Vec<u8>> {
    ["cat\ndog\n\u{e9}t\u{e9}\n", "[\"cat\", \"dog\"]"].map(|text| text.as_bytes().to_vec()).into()
}

fn jsons() -> Vec<Vec<u8>> {
    let features =
        r#"{"image": {"_type": "Image"}, "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}, "n": {}}"#;
    [format!(r#"{{"features": {features}}}"#), format!(r#"{{"info": {{"features": {features}}}}}"#)]
        .map(String::into_bytes)
        .into()
}

fn streams() -> Vec<Vec<u8>> {
    let npy = "{'descr': '<u2', 'fortran_order': False, 'shape': (50,), }";
    let npy = [&b"\x93NUMPY\x01\x00\x76\x00"[..], format!("{npy:<117}\n").as_bytes(), &[3; 100]].concat();
    let header = [20_240_520_i32, 1, 60].map(i32::to_le_bytes).concat();
    vec![[&header[..], &[0; 1012], &[5; 120]].concat(), npy, vec![9; 160], [[1, 0, 0, 0]; 80].concat()]
}

#[test]
fn class_lists() {
    let (root, files) = (tempfile::tempdir().unwrap(), lists());
    fuzz::run("class lists", |seed| classes(root.path(), &files, seed));
}

#[test]
fn features_of_datasets() {
    let files = jsons();
    fuzz::run("features", |seed| features(&files, seed));
}

#[test]
fn token_files() {
    let (root, files) = (tempfile::tempdir().unwrap(), streams());
    fuzz::run("tokens", |seed| tokens(root.path(), &files, seed));
}
