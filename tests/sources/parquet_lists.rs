//! Tests that opening the loader fails if lists of numbers decode to more than `memory_limit`
//! allows, even if the file is small. The error must say how much memory the lists need. An unused
//! column must not be decoded.

use std::path::Path;

use warpfeed::field::NdArray;
use warpfeed::{Dtype, ErrorKind, Loader};

use crate::lists::{LEN, NUMBERS, ROWS, write};

fn loader(path: &Path) -> Loader {
    Loader::new(path).drop_field("image").drop_field("label").batch_size(1000)
}

#[test]
fn long_lists_must_fit_into_the_memory_plan() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.parquet");
    write(&path);
    assert!(std::fs::metadata(&path).unwrap().len() < 1 << 20);
    let ones = || NdArray::new(Dtype::I32, [LEN]);
    let mut batches = loader(&path).field("ones", ones()).shuffle(1).host().unwrap();
    assert!(batches.memory_plan().source_prefetch_bytes > NUMBERS, "{}", batches.memory_plan());
    let mut rows = 0;
    for batch in batches.epoch(0) {
        let batch = batch.unwrap();
        let ones = batch.field("ones").unwrap();
        assert!(ones.elements::<i32>().unwrap().iter().all(|&value| value == 1));
        rows += batch.len();
    }
    assert_eq!(rows, ROWS);
    drop(batches);
    let e = loader(&path).field("ones", ones()).memory_limit(200 << 20).host().unwrap_err();
    assert_eq!((e.kind(), e.path()), (ErrorKind::Source, Some(&*path)));
    assert!(e.cause().starts_with("row group 0, column \"ones\": decoding the lists of a row group needs "), "{e}");
    assert!(e.cause().contains("raise the loader's memory_limit"), "{e}");
    let need: usize = e.cause().split("needs ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((4 * NUMBERS..5 * NUMBERS).contains(&need), "{need}");
    let plan = loader(&path).field("ones", ones()).memory_limit(5 * need).host().unwrap().memory_plan();
    assert!(plan.source_prefetch_bytes >= need, "{plan}");
}

#[test]
fn an_unused_column_is_never_decoded_and_takes_no_memory() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.parquet");
    write(&path);
    let id = || NdArray::new(Dtype::I32, []);
    let mut batches = loader(&path).field("id", id()).memory_limit(64 << 20).host().unwrap();
    assert!(batches.memory_plan().source_prefetch_bytes <= 1 << 20, "{}", batches.memory_plan());
    let ids: Vec<i32> = batches
        .epoch(0)
        .flat_map(|batch| batch.unwrap().field("id").unwrap().elements::<i32>().unwrap().to_vec())
        .collect();
    assert!(ids.into_iter().eq(0..ROWS as i32));
    // Only the loader skips unused columns: `Source::read` returns every field.
    assert_eq!(batches.source().read(7, &mut Vec::new()).unwrap().names(), ["id.npy", "ones.npy"]);
}
