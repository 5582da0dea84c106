//! Locates and converts the values of samples in a `.beton` file.

use std::ops::Range;

use super::header::{Dtype, Field, Kind, u16_at, u64_at};
use crate::error::{Error, Result};
use crate::model::Numbers;
use crate::model::value::Element;
use crate::storage::RowBytes;
use crate::values::items::{ColumnRanges, Layout, f16_to_f32};
use crate::values::record::{ColumnType, ColumnValue};

/// The fields, and the record of each sample. A record contains scalars and pointers to other
/// values.
pub(super) struct BetonLayout {
    names: Vec<String>,
    fields: Vec<Field>,
    records: Vec<u8>,
    record_size: usize,
    /// Offset and length of each allocation in bytes, sorted by offset.
    allocations: Vec<(u64, u64)>,
}

impl BetonLayout {
    pub(super) fn new(
        fields: Vec<Field>,
        records: Vec<u8>,
        record_size: usize,
        mut allocations: Vec<(u64, u64)>,
    ) -> Self {
        allocations.sort_unstable();
        let names = fields.iter().map(|field| field.name.clone()).collect();
        BetonLayout { names, fields, records, record_size, allocations }
    }

    fn record(&self, row: usize, field: &Field) -> &[u8] {
        &self.records[row * self.record_size + field.offset..][..self.record_size - field.offset]
    }

    /// Returns the offset and the length of a value in the file, in bytes, or `None` if the record
    /// itself contains the value.
    fn value_location(&self, row: usize, field: &Field) -> Result<Option<(u64, u64)>> {
        let record = self.record(row, field);
        let word = |offset: usize| u64_at(record, offset).expect("inside the record");
        let allocated_len = |pointer: u64| {
            // Empty allocations with the same offset precede the one that contains the value.
            let after = self.allocations.partition_point(|&(start, _)| start <= pointer);
            let allocation =
                after.checked_sub(1).map(|index| self.allocations[index]).filter(|&(start, _)| start == pointer);
            allocation.map(|(_, len)| len).ok_or_else(|| {
                let name = &field.name;
                Error::in_source(format!(
                    "field {name:?} points to byte {pointer}, which is not an allocation: the file is damaged"
                ))
            })
        };
        let location = match &field.kind {
            Kind::Float | Kind::Int | Kind::Unsupported(_) => return Ok(None),
            Kind::Image => (word(5), allocated_len(word(5))?),
            Kind::Bytes | Kind::Json => (word(0), word(8)),
            Kind::Array(..) => (word(0), allocated_len(word(0))?),
        };
        Ok(Some(location))
    }

    /// Returns the start and the end of the smallest byte range that contains all values of `row`
    /// outside its record. The range is empty if the record contains all values. Fails if the range
    /// is not inside `data` or is longer than `page_size` bytes.
    pub(super) fn value_span(&self, row: usize, data: &Range<u64>, page_size: u64) -> Result<(u64, u64)> {
        let (mut start, mut end) = (u64::MAX, 0);
        for field in &self.fields {
            if let Some((offset, len)) = self.value_location(row, field)? {
                let value_end =
                    offset.checked_add(len).filter(|&value_end| offset >= data.start && value_end <= data.end);
                let value_end = value_end.ok_or_else(|| {
                    let (name, Range { start, end }) = (&field.name, data);
                    Error::in_source(format!(
                        "field {name:?}: {len} bytes at byte {offset} are outside the data of the file (bytes {start} \
                         to {end})"
                    ))
                })?;
                (start, end) = (start.min(offset), end.max(value_end));
            }
        }
        if end < start {
            return Ok((data.start, data.start));
        }
        // FFCV writes all values of a sample to the same page.
        if end - start > page_size {
            return Err(Error::in_source(format!(
                "its values span {} bytes, more than a page of {page_size} bytes",
                end - start
            )));
        }
        Ok((start, end))
    }
}

impl Layout for BetonLayout {
    const KIND: &'static str = "beton";

    fn names(&self) -> &[String] {
        &self.names
    }

    fn head_len(&self) -> usize {
        0
    }

    fn column_ranges(&self, row: usize, _head: &[u8], _len: usize) -> Result<ColumnRanges> {
        let locations = self.fields.iter().map(|field| self.value_location(row, field)).collect::<Result<Vec<_>>>()?;
        let start = locations.iter().flatten().map(|location| location.0).min().unwrap_or(0);
        let range = |location: Option<(u64, u64)>| {
            let (address, len) = location.unwrap_or((start, 0));
            let offset = (address - start) as usize;
            offset..offset + len as usize
        };
        Ok(locations.into_iter().map(range).collect())
    }

    fn column_type(&self, column: usize, first: &mut dyn FnMut() -> Result<Vec<u8>>) -> Result<ColumnType> {
        Ok(match self.fields[column].kind {
            Kind::Int => ColumnType::Integers,
            Kind::Float | Kind::Array(..) => ColumnType::Numbers,
            Kind::Image => ColumnType::Images,
            Kind::Bytes | Kind::Unsupported(_) => ColumnType::from_bytes(&first()?),
            Kind::Json => ColumnType::Json,
        })
    }

    fn decode<'a>(&self, row: usize, column: usize, bytes: &'a [u8], buffer: &mut Vec<u8>) -> Result<ColumnValue<'a>> {
        let field = &self.fields[column];
        let record = self.record(row, field);
        let row_bytes = RowBytes::Borrowed(bytes);
        let from_record = |buffer: &mut Vec<u8>, element| {
            let start = buffer.len();
            buffer.extend_from_slice(&record[..8]);
            ColumnValue::number(element, RowBytes::page_tail(start, buffer))
        };
        Ok(match &field.kind {
            Kind::Int => from_record(buffer, Element::I64),
            Kind::Float => from_record(buffer, Element::F64),
            Kind::Bytes | Kind::Unsupported(_) => ColumnValue::Bytes(row_bytes),
            Kind::Json => ColumnValue::Json(RowBytes::Borrowed(bytes.strip_suffix(b"\0").unwrap_or(bytes))),
            Kind::Array(Dtype::Half, shape) => f16_to_f32(bytes, shape, buffer),
            Kind::Array(Dtype::Element(element), shape) => ColumnValue::array(*element, shape, row_bytes),
            Kind::Image if record[0] == 0 => ColumnValue::Bytes(row_bytes),
            Kind::Image if record[0] == 1 => {
                let side = |offset| usize::from(u16_at(record, offset).expect("inside the record"));
                let (width, height) = (side(1), side(3));
                if width * height * 3 != bytes.len() {
                    let actual = bytes.len();
                    return Err(Error::in_source(format!(
                        "an image of {width}x{height} pixels has {actual} bytes of data: expected 3 bytes per pixel"
                    )));
                }
                let start = buffer.len();
                Numbers::npy_header::<u8>(&[height, width, 3], buffer);
                buffer.extend_from_slice(bytes);
                ColumnValue::Bytes(RowBytes::page_tail(start, buffer))
            }
            Kind::Image => {
                return Err(Error::in_source(format!("image mode {}: expected 0 (JPEG) or 1 (raw)", record[0])));
            }
        })
    }
}
