//! Fuzzes the readers of Arrow and Parquet files. Each case damages a file that a different library
//! wrote, and then opens and reads it.

use std::fs;
use std::path::Path;

use crate::error::Result;
use crate::formats::{Arrow, Parquet};
use crate::fuzz::{self, Random};
use crate::model::Source;

/// Byte sequences that mutations insert: numbers at the limits of their types, and parts of
/// headers.
const WORDS: [&[u8]; 16] = [
    &[0; 4],
    &[0xff; 4],
    &[0xff, 0xff, 0xff, 0x7f],
    &[0, 0, 0, 0x80],
    &[0; 8],
    &[0xff; 8],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
    &[1, 0, 0, 0, 0, 0, 0, 0],
    &[0, 0, 0, 0x40, 0, 0, 0, 0],
    &[8],
    b"ARROW1\0\0",
    b"PAR1",
    &[0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f],
    &[0x19, 0xfc, 0xff, 0xff, 0xff, 0x0f],
    &[0x1c],
    &[0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
];

fn files(names: &[&str]) -> Vec<Vec<u8>> {
    names.iter().map(|name| fs::read(fuzz::fixtures().join(name)).unwrap()).collect()
}

/// Writes, opens and reads a damaged file. Checks that repeated reads return the same bytes, and
/// that `label` agrees with `read`. Returns whether any sample can be read.
fn case<S: Source>(path: &Path, files: &[Vec<u8>], seed: u64, open: impl Fn(&Path) -> Result<S>) -> bool {
    fs::write(path, Random::new(seed).mutated(files, &WORDS)).unwrap();
    let Ok(source) = open(path) else { return false };
    let (mut scratch, mut again) = (Vec::new(), Vec::new());
    let rows = (0..source.len().min(8)).chain(source.len().checked_sub(1));
    let valid = rows.filter(|&row| {
        let Ok(sample) = source.read(row, &mut scratch) else { return false };
        let encoded = |field: &(&str, crate::model::Value<'_>)| field.1.encoded(field.0).into_owned();
        let other = source.read(row, &mut again).expect("the sample was read before");
        // Compare encoded values, because NaN is not equal to itself.
        assert!(sample.fields().iter().map(encoded).eq(other.fields().iter().map(encoded)));
        let label = other.label();
        if let (Ok(own_label), Ok(label)) = (label, source.label(row, &mut Vec::new())) {
            assert_eq!(own_label, label, "row {row}");
        }
        true
    });
    valid.count() > 0
}

#[test]
fn arrow_files() {
    let root = tempfile::tempdir().unwrap();
    let names = [
        "arrow_types/saved/data-00000-of-00001.arrow",
        "arrow_types/one_by_one.arrow",
        "arrow_types/dictionary.arrow",
        "nested/saved/data-00000-of-00001.arrow",
    ];
    let (files, path) = (files(&names), root.path().join("x.arrow"));
    fuzz::run("arrow files", |seed| case(&path, &files, seed, |path| Arrow::open(path)));
}

#[test]
fn parquet_files() {
    let root = tempfile::tempdir().unwrap();
    let names = ["zstd", "none", "gzip", "lz4", "snappy", "words"].map(|name| format!("parquet_types/{name}.parquet"));
    let names: Vec<&str> = names.iter().map(String::as_str).chain(["nested/nested.parquet"]).collect();
    let (files, path) = (files(&names), root.path().join("x.parquet"));
    fuzz::run("parquet files", |seed| case(&path, &files, seed, |path| Parquet::open(path)));
}
