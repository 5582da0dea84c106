//! Promise: lists of numbers are read if their numbers fit into the memory plan, however few bytes
//! encode them. Otherwise the loader does not open, and says what they need. A column that no field
//! reads costs nothing.

use std::path::Path;
use std::sync::Arc;

use parquet::data_type::Int32Type;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::Parquet;
use crate::field::Numbers;
use crate::source::model::{Lookahead, Source};
use crate::{Dtype, ErrorKind, Loader};

pub(super) const ROWS: usize = 10_000;
const LEN: usize = 512;
/// Bytes of the decoded numbers.
const NUMBERS: usize = 4 * LEN * ROWS;

/// Writes `id`, the number of the row, and `ones`, a list of ones, which take few bytes.
pub(super) fn write(path: &Path) {
    let schema = "message m { required int32 id;
        required group ones (LIST) { repeated group list { required int32 element; } } }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = WriterProperties::builder().set_dictionary_enabled(true).build();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let ids: Vec<i32> = (0..ROWS as i32).collect();
    column.typed::<Int32Type>().write_batch(&ids, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let begins: Vec<i16> = (0..LEN * ROWS).map(|n| i16::from(n % LEN > 0)).collect();
    let (ones, levels) = (vec![1; begins.len()], vec![1; begins.len()]);
    column.typed::<Int32Type>().write_batch(&ones, Some(&levels), Some(&begins)).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

fn loader(path: &Path) -> Loader {
    Loader::new(path).without("image").without("label").batch_size(1000)
}

#[test]
fn lists_of_a_small_file_are_read_and_a_loader_without_room_for_them_does_not_open() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.parquet");
    write(&path);
    assert!(std::fs::metadata(&path).unwrap().len() < 1 << 20);
    let ones = || Numbers::new(Dtype::I32, [LEN]);
    let mut batches = loader(&path).field("ones", ones()).shuffle(1).host().unwrap();
    assert!(batches.memory_plan().source_bytes > NUMBERS, "{}", batches.memory_plan());
    let mut rows = 0;
    for batch in batches.epoch(0) {
        let batch = batch.unwrap();
        let ones = batch.field("ones").unwrap();
        assert!(ones.elements::<i32>().unwrap().iter().all(|&one| one == 1));
        rows += batch.len();
    }
    assert_eq!(rows, ROWS);
    drop(batches);
    let e = loader(&path).field("ones", ones()).memory_limit(200 << 20).host().unwrap_err();
    assert_eq!((e.kind(), e.path()), (ErrorKind::Source, Some(&*path)));
    assert!(e.cause().starts_with("row group 0, column \"ones\": the lists of a row group need "), "{e}");
    assert!(e.cause().contains("raise the loader's memory_limit"), "{e}");
    let need: usize = e.cause().split("need ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((4 * NUMBERS..5 * NUMBERS).contains(&need), "{need}");
    // The limit of the message is enough.
    let plan = loader(&path).field("ones", ones()).memory_limit(5 * need).host().unwrap().memory_plan();
    assert!(plan.source_bytes >= need, "{plan}");
}

#[test]
fn a_column_that_no_field_reads_is_neither_granted_nor_decoded() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.parquet");
    write(&path);
    let id = || Numbers::new(Dtype::I32, []);
    let mut batches = loader(&path).field("id", id()).memory_limit(64 << 20).host().unwrap();
    assert!(batches.memory_plan().source_bytes <= 1 << 20, "{}", batches.memory_plan());
    let ids: Vec<i32> = batches
        .epoch(0)
        .flat_map(|batch| batch.unwrap().field("id").unwrap().elements::<i32>().unwrap().to_vec())
        .collect();
    assert!(ids.into_iter().eq(0..ROWS as i32));
    // A program that asks for a whole sample has all its fields.
    assert_eq!(batches.source().read(7, &mut Vec::new()).unwrap().names(), ["id.npy", "ones.npy"]);

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
