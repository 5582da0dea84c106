//! Tests that unselected columns are not decoded and cost no memory.

use super::Parquet;
use crate::lists::{NUMBERS, ROWS, write};
use crate::model::{Lookahead, Source};

#[test]
fn unselected_columns_take_no_memory_and_are_not_decoded() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.parquet");
    write(&path);
    let set = Parquet::open(&path).unwrap();
    let selection = set.select_fields(&["id".to_owned()]).unwrap();
    let _prefetcher = selection.prefetcher(Lookahead::new(selection.prefetch_bytes(), |_| 0, |_| None));
    for row in (0..ROWS).step_by(100) {
        selection.read(row, &mut Vec::new()).unwrap();
    }
    assert_eq!(set.decoded_pages(), 1, "only the page of `id` was decoded");
    assert!(set.prefetch_bytes() > NUMBERS && selection.prefetch_bytes() <= 1 << 20);
    selection.check().unwrap();
    // A loader that selects different columns has its own memory limit.
    let other_selection = set.select_fields(&["ones".to_owned()]).unwrap();
    let _other_prefetcher =
        other_selection.prefetcher(Lookahead::new(other_selection.prefetch_bytes(), |_| 0, |_| None));
    other_selection.check().unwrap();
    assert!(other_selection.read(9, &mut Vec::new()).is_ok());
}
