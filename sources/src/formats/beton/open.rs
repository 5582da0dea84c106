//! Opens `.beton` files.

use std::sync::Arc;

use super::header::{ALLOCATION_BYTES, FIELD_BYTES, Field, HEADER_BYTES, Header, u64_at};
use super::layout::BetonLayout;
use crate::error::{Error, Result, try_collect, try_copy};
use crate::options::{Opened, Options};
use crate::storage::{DatasetLocation, OpenFile};
use crate::values::items::{RowSource, SampleFiles, SampleSpans};

pub(crate) fn open(location: DatasetLocation, options: &Options) -> Opened {
    let path = &*location.path;
    let file = location.storage.open(path)?;
    let (layout, spans) = read(&file).map_err(|e| e.at_path(path))?;
    let sample_files = SampleFiles::new(vec![(file, SampleSpans::Spans(spans))])?;
    Ok(Arc::new(RowSource::new(path, sample_files, layout, options)?))
}

/// The start and the end of the values of each sample, as byte offsets in the file.
type Spans = Vec<(u64, u64)>;

fn read(file: &OpenFile) -> Result<(BetonLayout, Spans)> {
    let (len, mut scratch) = (file.len(), Vec::new());
    let bytes = file.get(0, HEADER_BYTES as u64, &mut scratch)?;
    let header = Header::parse(bytes, len)?;
    let page_size =
        bytes.get(4..8).and_then(|size| Some(u64::from(u32::from_le_bytes(*size.first_chunk()?)))).unwrap_or(0);
    let descriptions_len = (header.field_count * FIELD_BYTES) as u64;
    let start = HEADER_BYTES as u64 + descriptions_len;
    let (fields, record_size) = Field::parse_all(file.get(HEADER_BYTES as u64, descriptions_len, &mut scratch)?)?;
    let is_before_table = |records: &u64| start.checked_add(*records).is_some_and(|end| end <= header.table_offset);
    let records = header.sample_count.checked_mul(record_size as u64).filter(is_before_table);
    if fields.is_empty() {
        return Err(Error::in_source("the header lists no fields: the file is damaged"));
    }
    let Some(records) = records.filter(|_| fields.len() == header.field_count) else {
        let Header { field_count, sample_count, table_offset } = header;
        return Err(Error::in_source(format!(
            "{sample_count} samples of {field_count} fields do not fit before byte {table_offset}, where the \
             allocation table starts: the file is damaged or truncated"
        )));
    };
    let allocations =
        file.get(header.table_offset, len - header.table_offset, &mut scratch)?.chunks_exact(ALLOCATION_BYTES);
    let allocation = |entry| Ok(u64_at(entry, 8).zip(u64_at(entry, 16)).expect("an entry has 24 bytes"));
    let allocations = try_collect(allocations.map(allocation))?;
    let records = try_copy(file.get(start, records, &mut scratch)?)?;
    let data = start + records.len() as u64..header.table_offset;
    let layout = BetonLayout::new(fields, records, record_size, allocations);
    let span = |row: usize| layout.value_span(row, &data, page_size).map_err(|e| sample_error(&e, row));
    let spans = try_collect((0..header.sample_count as usize).map(span))?;
    Ok((layout, spans))
}

fn sample_error(error: &Error, row: usize) -> Error {
    Error::in_source(format!("sample {row}: {}", error.cause()))
}
