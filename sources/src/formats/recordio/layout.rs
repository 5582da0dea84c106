//! Locates and decodes the label and the image in a record.

use std::ops::Range;

use super::record::{FRAME_HEADER_BYTES, Position, append_record, parse_frame_header};
use crate::error::{Error, Result};
use crate::model::value::Element;
use crate::storage::RowBytes;
use crate::values::items::{ColumnRanges, Layout};
use crate::values::record::{ColumnType, ColumnValue};

/// Size in bytes of MXNet's `IRHeader` at the start of a record. The header consists of a 32-bit
/// flag, a label (an `f32`), and two 64-bit IDs. The flag is the number of labels that follow the
/// header. If the flag is 0, the only label is in the header.
pub(super) const LABEL_HEADER_BYTES: usize = 24;

const LABEL_COLUMN: usize = 0;

/// The layout of a record, which has the columns `label` and `image`.
pub(super) struct RecordIoLayout {
    names: Vec<String>,
    label_type: LabelType,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LabelType {
    /// One integer per record.
    Integers,
    /// Any numbers, as floating-point values: records may have several labels, or a label that is
    /// not an integer.
    Numbers,
}

impl RecordIoLayout {
    pub(super) fn new(label_type: LabelType) -> Self {
        RecordIoLayout { names: vec!["label".to_owned(), "image".to_owned()], label_type }
    }

    fn read_label(&self, bytes: &[u8], buffer: &mut Vec<u8>) -> Result<ColumnValue<'static>> {
        let start = buffer.len();
        match self.label_type {
            LabelType::Numbers => {
                buffer.extend_from_slice(bytes);
                Ok(ColumnValue::array(Element::F32, &[bytes.len() / 4], RowBytes::page_tail(start, buffer)))
            }
            LabelType::Integers => {
                let label = integer_label(bytes).ok_or_else(|| {
                    let labels: Vec<f32> =
                        bytes.as_chunks::<4>().0.iter().take(8).map(|bytes| f32::from_le_bytes(*bytes)).collect();
                    Error::in_source(format!(
                        "the record has the labels {labels:?}: expected a single integer, as in other records; use \
                         TableOptions::without_label to read labels as a field of numbers"
                    ))
                })?;
                buffer.extend(label.to_le_bytes());
                Ok(ColumnValue::number(Element::I64, RowBytes::page_tail(start, buffer)))
            }
        }
    }
}

/// Returns the label, or `None` unless there is exactly one label and it is an integer of at most
/// 2^24 in magnitude.
pub(super) fn integer_label(bytes: &[u8]) -> Option<i64> {
    let [bytes] = bytes.as_chunks::<4>().0 else { return None };
    let number = f32::from_le_bytes(*bytes);
    // Above 2^24, an `f32` cannot represent every integer.
    (number.trunc() == number && number.abs() <= 16_777_216.0).then_some(number as i64)
}

/// Returns the byte ranges of the labels and of the image within the data of a record. The data
/// begins with the `IRHeader`. `data` is its beginning, from which only the flag is read, and `len`
/// is the length of the whole data in bytes.
pub(super) fn label_and_image_ranges(data: &[u8], len: usize) -> Result<(Range<usize>, Range<usize>)> {
    let truncated = || Error::in_source(format!("a record of {len} bytes is too short for its header and labels"));
    let label_count = data.first_chunk::<4>().map(|word| u32::from_le_bytes(*word) as usize).ok_or_else(truncated)?;
    let end =
        label_count.checked_mul(4).and_then(|bytes| bytes.checked_add(LABEL_HEADER_BYTES)).filter(|&end| end <= len);
    let end = end.ok_or_else(truncated)?;
    // If the flag is 0, the only label is in the header.
    Ok((if label_count == 0 { 4..8 } else { LABEL_HEADER_BYTES..end }, end..len))
}

impl Layout for RecordIoLayout {
    const KIND: &'static str = "recordio";

    fn names(&self) -> &[String] {
        &self.names
    }

    fn head_len(&self) -> usize {
        FRAME_HEADER_BYTES + LABEL_HEADER_BYTES
    }

    fn column_ranges(&self, _row: usize, head: &[u8], len: usize) -> Result<ColumnRanges> {
        let (part_len, position) = parse_frame_header(head)
            .ok_or_else(|| Error::in_source("no record at the indexed offset: the file or its index is damaged"))?;
        let end = FRAME_HEADER_BYTES + part_len;
        match position {
            Position::Whole if end > len => Err(Error::in_source(format!(
                "a record claims {end} bytes, but the next record starts after {len} bytes: the file or its index is \
                 damaged"
            ))),
            Position::Whole => {
                let (label, image) = label_and_image_ranges(&head[FRAME_HEADER_BYTES..], part_len)?;
                let shifted = |range: Range<usize>| range.start + FRAME_HEADER_BYTES..range.end + FRAME_HEADER_BYTES;
                Ok([shifted(label), shifted(image)].into_iter().collect())
            }
            // If a record has several parts, its columns can be located only after the parts have
            // been joined, so each column is the whole record until then.
            _ => Ok([0..len, 0..len].into_iter().collect()),
        }
    }

    fn column_type(&self, column: usize, first: &mut dyn FnMut() -> Result<Vec<u8>>) -> Result<ColumnType> {
        if column == LABEL_COLUMN {
            return Ok(match self.label_type {
                LabelType::Integers => ColumnType::Integers,
                LabelType::Numbers => ColumnType::Numbers,
            });
        }
        let (bytes, mut buffer) = (first()?, Vec::new());
        let content = self.decode(0, column, &bytes, &mut buffer)?;
        Ok(content.cell(&buffer)?.bytes().map_or(ColumnType::Bytes, ColumnType::from_bytes))
    }

    fn decode<'a>(&self, _row: usize, column: usize, bytes: &'a [u8], buffer: &mut Vec<u8>) -> Result<ColumnValue<'a>> {
        // If the record has several parts, `bytes` is the whole record and begins with a frame
        // header. A column of a different record cannot be mistaken for such a record: an image
        // begins with its own signature, and real labels do not begin with the magic number.
        if bytes.len() > FRAME_HEADER_BYTES
            && parse_frame_header(bytes).is_some_and(|(_, position)| position == Position::First)
        {
            let start = buffer.len();
            append_record(bytes, buffer)?;
            let (labels, image) = label_and_image_ranges(&buffer[start..], buffer.len() - start)?;
            if column == LABEL_COLUMN {
                let bytes = buffer[start + labels.start..start + labels.end].to_vec();
                return self.read_label(&bytes, buffer);
            }
            return Ok(ColumnValue::Bytes(RowBytes::Page(start + image.start..start + image.end)));
        }
        match column {
            LABEL_COLUMN => self.read_label(bytes, buffer),
            _ => Ok(ColumnValue::Bytes(RowBytes::Borrowed(bytes))),
        }
    }
}
