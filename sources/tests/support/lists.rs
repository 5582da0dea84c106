//! Writes a Parquet file in which lists of many numbers take few bytes.

use std::path::Path;
use std::sync::Arc;

use parquet::data_type::Int32Type;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

pub(crate) const ROWS: usize = 10_000;
/// Number of elements in each list.
pub(crate) const LEN: usize = 512;
/// Size of all decoded lists, in bytes.
pub(crate) const NUMBERS: usize = 4 * LEN * ROWS;

/// Writes two columns: `id` contains row numbers, and `ones` contains lists of ones that compress
/// well.
pub(crate) fn write(path: &Path) {
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
