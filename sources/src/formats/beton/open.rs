//! Opens `.beton` files.

use std::sync::Arc;

use super::header::{ALLOCATION, FIELD, Field, HEADER, Header, u64_at};
use super::layout::BetonLayout;
use crate::error::{Error, Result, try_collect, try_copy};
use crate::options::{Opened, Options};
use crate::storage::{DatasetLocation, OpenFile};
use crate::values::items::{Items, Rows, SampleSpans};

pub(crate) fn open(location: DatasetLocation, options: &Options) -> Opened {
    let path = &*location.path;
    let file = location.storage.open(path)?;
    let (rows, spans) = read(&file).map_err(|e| e.at_path(path))?;
    let items = Items::new(vec![(file, SampleSpans::Spans(spans))])?;
    Ok(Arc::new(Rows::new(path, items, rows, options)?))
}

type Spans = Vec<(u64, u64)>;

fn read(file: &OpenFile) -> Result<(BetonLayout, Spans)> {
    let (len, mut scratch) = (file.len(), Vec::new());
    let bytes = file.get(0, HEADER as u64, &mut scratch)?;
    let header = Header::parse(bytes, len)?;
    let page = bytes.get(4..8).and_then(|page| Some(u64::from(u32::from_le_bytes(*page.first_chunk()?)))).unwrap_or(0);
    let described = (header.fields * FIELD) as u64;
    let start = HEADER as u64 + described;
    let (fields, size) = Field::parse_all(file.get(HEADER as u64, described, &mut scratch)?)?;
    let fits = |records: &u64| start.checked_add(*records).is_some_and(|end| end <= header.table);
    let records = header.samples.checked_mul(size as u64).filter(fits);
    if fields.is_empty() {
        return Err(Error::in_source("the header lists no fields: the file is damaged"));
    }
    let Some(records) = records.filter(|_| fields.len() == header.fields) else {
        let Header { fields, samples, table } = header;
        return Err(Error::in_source(format!(
            "{samples} samples of {fields} fields do not fit before byte {table}, where the allocation table starts: the \
             file is damaged or truncated"
        )));
    };
    let allocations = file.get(header.table, len - header.table, &mut scratch)?.chunks_exact(ALLOCATION);
    let allocation = |entry| Ok(u64_at(entry, 8).zip(u64_at(entry, 16)).expect("an entry has 24 bytes"));
    let allocations = try_collect(allocations.map(allocation))?;
    let records = try_copy(file.get(start, records, &mut scratch)?)?;
    let data = start + records.len() as u64..header.table;
    let rows = BetonLayout::new(fields, records, size, allocations);
    let span = |row: usize| rows.span(row, &data, page).map_err(|e| in_sample(&e, row));
    let spans = try_collect((0..header.samples as usize).map(span))?;
    Ok((rows, spans))
}

fn in_sample(error: &Error, row: usize) -> Error {
    Error::in_source(format!("sample {row}: {}", error.cause()))
}
