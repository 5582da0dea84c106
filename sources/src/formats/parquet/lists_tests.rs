//! Promise: a column that is not chosen is neither granted nor decoded.

use super::Parquet;
use crate::lists::{NUMBERS, ROWS, write};
use crate::model::{Lookahead, Source};

#[test]
fn a_column_that_is_not_chosen_is_neither_granted_nor_decoded() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.parquet");
    write(&path);
    let set = Parquet::open(&path).unwrap();
    let less = set.only(&["id".to_owned()]).unwrap();
    let _follow = less.follow(Lookahead::new(less.ahead_bytes(), |_| 0, |_| None));
    for row in (0..ROWS).step_by(100) {
        less.read(row, &mut Vec::new()).unwrap();
    }
    assert_eq!(set.decoded(), 1, "the page of the numbers");
    assert!(set.ahead_bytes() > NUMBERS && less.ahead_bytes() <= 1 << 20);
    less.check().unwrap();
    // A loader with less room does not take that of another.
    let whole = set.only(&["ones".to_owned()]).unwrap();
    let _enough = whole.follow(Lookahead::new(whole.ahead_bytes(), |_| 0, |_| None));
    whole.check().unwrap();
    assert!(whole.read(9, &mut Vec::new()).is_ok());
}
