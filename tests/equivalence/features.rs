//! Writes Parquet and HDF5, which need optional dependencies.
#![cfg_attr(not(all(feature = "parquet", feature = "hdf5")), allow(dead_code, unused_imports))]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::formats::{Format, arrays, by_number, labeled, pixels, plain_bytes, put};
use super::random_dataset::{RandomDataset, Value};

pub const FORMATS: &[Format] = &[
    #[cfg(feature = "parquet")]
    Format { name: "parquet", holds: labeled, write: parquet, key: by_number, mapped: false },
    #[cfg(feature = "hdf5")]
    Format { name: "hdf5", holds: pixels, write: hdf5, key: by_number, mapped: true },
];

#[cfg(feature = "parquet")]
fn parquet(dataset: &RandomDataset, root: &Path) -> String {
    use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    use parquet::file::properties::{WriterProperties, WriterVersion};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    let columns: Vec<_> = ["image"].into_iter().chain(dataset.columns().iter().copied()).collect();
    let field = |column: &&str| match (*column, dataset.value(&dataset.samples[0], column)) {
        ("image", _) | (_, Value::Png(_)) => format!("required binary {column};"),
        (_, Value::Int(_)) => format!("required int64 {column};"),
        (_, Value::Text(_)) => format!("required binary {column} (UTF8);"),
    };
    let message = format!("message m {{ {} }}", columns.iter().map(field).collect::<String>());
    let schema = Arc::new(parse_message_type(&message).unwrap());
    let properties = WriterProperties::builder()
        .set_write_batch_size(1)
        .set_data_page_size_limit(2_000)
        .set_dictionary_enabled(dataset.variant & 1 == 0)
        .set_offset_index_disabled(dataset.variant & 2 == 0)
        .set_writer_version(
            [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0][(dataset.variant & 4) as usize / 4],
        );
    let file = fs::File::create(root.join("dataset.parquet")).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build())).unwrap();
    for samples in dataset.samples.chunks(7) {
        let mut group = writer.next_row_group().unwrap();
        for column in &columns {
            let mut out = group.next_column().unwrap().unwrap();
            let bytes: Vec<Vec<u8>> = match *column {
                "image" => samples.iter().map(|sample| sample.encoded.clone()).collect(),
                _ => samples.iter().map(|sample| plain_bytes(dataset.value(sample, column))).collect(),
            };
            if *column != "image" && matches!(dataset.value(&samples[0], column), Value::Int(_)) {
                let numbers: Vec<_> = bytes.iter().map(|b| i64::from_le_bytes(b[..].try_into().unwrap())).collect();
                out.typed::<Int64Type>().write_batch(&numbers, None, None).unwrap();
            } else {
                let bytes: Vec<ByteArray> = bytes.into_iter().map(Into::into).collect();
                out.typed::<ByteArrayType>().write_batch(&bytes, None, None).unwrap();
            }
            out.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
    "dataset.parquet".into()
}

/// Writes an HDF5 file. Half of the variants have one chunk per image; the others are contiguous.
#[cfg(feature = "hdf5")]
fn hdf5(dataset: &RandomDataset, root: &Path) -> String {
    let (pixels, shape, labels) = arrays(dataset);
    let mut file = hdf5_pure::FileBuilder::new();
    let shape = shape.map(|side| side as u64);
    let images = file.create_dataset("images").with_u8_data(&pixels).with_shape(&shape);
    if dataset.variant & 1 == 0 {
        images.with_chunks(&[1, shape[1], shape[2], 3]);
    }
    file.create_dataset("labels").with_i64_data(&labels).with_shape(&[labels.len() as u64]);
    put(root, "dataset.h5", file.finish().unwrap());
    "dataset.h5".into()
}
