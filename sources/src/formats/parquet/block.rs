//! [`Block`]: an entry of the page cache. It contains a decoded page, all lists of a column
//! chunk, a dictionary, or an undecoded column chunk.

use std::ops::Range;

use half::f16;
use parquet::column::page::{Page, PageReader};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType, Int32Type, Int64Type,
};
use parquet::file::metadata::ColumnChunkMetaData;

use super::input::library_error;
use super::nested::NestedLists;
use super::schema::{Levels, ValueType};
use crate::error::{Error, Result, append};
use crate::model::value::Element;
use crate::storage::RowBytes;
use crate::values::record::ColumnValue;

/// Index that marks a row without a value.
const NULL: u32 = u32::MAX;

pub(super) struct Block {
    rows: Range<usize>,
    values: Values,
    bytes: usize,
    dictionary_bytes: usize,
}

enum Values {
    /// `indices` contains the index of each row's value, or [`NULL`].
    Bytes {
        values: Vec<ByteArray>,
        is_text: bool,
        indices: Vec<u32>,
    },
    /// `indices` contains the index of each row's value, or [`NULL`].
    Numbers {
        values: Vec<u8>,
        element: Element,
        indices: Vec<u32>,
    },
    /// `indices` contains each row's list, as a range of the numbers in `values`.
    Lists {
        values: Vec<u8>,
        element: Element,
        indices: Vec<List>,
    },
    Nested(NestedLists),
    Dictionary(Page),
    /// The encoded bytes of a whole column chunk.
    Encoded(Vec<u8>),
}

#[derive(Clone)]
enum List {
    Null,
    /// A list that contains a null. The number is the index of the first null in the list.
    Incomplete(usize),
    /// The range of the list's numbers among all numbers of the block.
    Numbers(Range<usize>),
}

impl Block {
    pub(super) fn from_dictionary(page: Page) -> Self {
        let bytes = page.buffer().len();
        Block { rows: 0..1, values: Values::Dictionary(page), bytes, dictionary_bytes: 0 }
    }

    pub(super) fn from_encoded(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Block { rows: 0..1, values: Values::Encoded(bytes), bytes: len, dictionary_bytes: 0 }
    }

    pub(super) fn dictionary(&self) -> Option<&Page> {
        if let Values::Dictionary(page) = &self.values { Some(page) } else { None }
    }

    pub(super) fn encoded_column(&self) -> Option<&[u8]> {
        if let Values::Encoded(bytes) = &self.values { Some(bytes) } else { None }
    }

    /// Returns the range of rows within the row group that the block covers, or `0..1` for a
    /// dictionary or an undecoded chunk.
    pub(super) fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Returns the size of the block in bytes. Does not include a dictionary that the block may
    /// share with other blocks.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the size in bytes of the dictionary from which the block borrows values, or 0 if
    /// there is none.
    pub(super) fn dictionary_bytes(&self) -> usize {
        self.dictionary_bytes
    }

    /// Appends the bytes of the value in `row` to `scratch`. `row` is counted from the start of the
    /// row group. Fails if text is not UTF-8, if a flat list contains a null, if a nested list is
    /// too long as JSON, or if memory cannot be allocated. Nested lists may contain nulls.
    pub(super) fn append_value(&self, row: usize, scratch: &mut Vec<u8>) -> Result<ColumnValue<'static>> {
        let (index, start) = (row - self.rows.start, scratch.len());
        match &self.values {
            Values::Bytes { values, is_text, indices } => match indices[index] {
                NULL => Ok(ColumnValue::Null),
                value => {
                    let bytes = values[value as usize].data();
                    append(scratch, bytes)?;
                    let bytes = RowBytes::page_tail(start, scratch);
                    if !is_text {
                        return Ok(ColumnValue::Bytes(bytes));
                    }
                    let valid = std::str::from_utf8(&scratch[start..]).is_ok();
                    valid.then_some(ColumnValue::Text(bytes)).ok_or_else(|| Error::in_source("the text is not UTF-8"))
                }
            },
            Values::Numbers { values, element, indices } => match indices[index] {
                NULL => Ok(ColumnValue::Null),
                number => {
                    let size = element.size();
                    append(scratch, &values[number as usize * size..][..size])?;
                    Ok(ColumnValue::number(*element, RowBytes::page_tail(start, scratch)))
                }
            },
            Values::Lists { values, element, indices: lists } => match &lists[index] {
                List::Null => Ok(ColumnValue::Null),
                List::Incomplete(index) => {
                    Err(Error::in_source(format!("item {index} of a list is null: expected a number")))
                }
                List::Numbers(range) => {
                    let size = element.size();
                    append(scratch, &values[range.start * size..range.end * size])?;
                    Ok(ColumnValue::array(*element, &[range.end - range.start], RowBytes::page_tail(start, scratch)))
                }
            },
            Values::Nested(lists) => match lists.write(index, scratch)? {
                true => Ok(ColumnValue::Json(RowBytes::page_tail(start, scratch))),
                false => Ok(ColumnValue::Null),
            },
            Values::Dictionary(_) | Values::Encoded(_) => {
                unreachable!("dictionaries and encoded columns have separate cache keys")
            }
        }
    }

    #[cfg(test)]
    pub(super) fn new_bytes(first_row: usize, rows: usize, bytes: usize) -> Self {
        let values = Values::Bytes { values: vec![vec![0_u8; bytes].into()], is_text: false, indices: vec![0; rows] };
        Block { rows: first_row..first_row + rows, values, bytes, dictionary_bytes: 0 }
    }

    #[cfg(test)]
    pub(super) fn with_dictionary_bytes(self, dictionary_bytes: usize) -> Self {
        Block { dictionary_bytes, ..self }
    }
}

/// Decoded values and their levels, not yet assigned to rows.
pub(super) struct Decoded {
    value_type: ValueType,
    values: DecodedValues,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
    rows: usize,
    buffers: BufferBytes,
}

/// Sizes of the buffers that decoded values may borrow from, in bytes.
pub(super) struct BufferBytes {
    pub(super) pages: usize,
    pub(super) dictionary: usize,
}

enum DecodedValues {
    Bytes(Vec<ByteArray>, bool),
    Numbers(Vec<u8>, Element),
}

impl Decoded {
    pub(super) fn new(
        column: &ColumnChunkMetaData,
        value_type: ValueType,
        pages: Box<dyn PageReader>,
        buffers: BufferBytes,
        rows: usize,
    ) -> Result<Self> {
        let mut levels = (Vec::new(), Vec::new());
        let levels_buffer = &mut levels;
        let values = match value_type {
            ValueType::Bytes | ValueType::Text => {
                let is_text = value_type == ValueType::Text;
                if column.column_type() == parquet::basic::Type::FIXED_LEN_BYTE_ARRAY {
                    let values = decode_values::<FixedLenByteArrayType>(column, pages, rows, levels_buffer)?;
                    DecodedValues::Bytes(values.into_iter().map(ByteArray::from).collect(), is_text)
                } else {
                    DecodedValues::Bytes(decode_values::<ByteArrayType>(column, pages, rows, levels_buffer)?, is_text)
                }
            }
            ValueType::Bool => {
                let values = decode_values::<BoolType>(column, pages, rows, levels_buffer)?;
                DecodedValues::Numbers(values.into_iter().map(u8::from).collect(), Element::U8)
            }
            ValueType::Half => {
                let values = decode_values::<FixedLenByteArrayType>(column, pages, rows, levels_buffer)?;
                let halves = values
                    .iter()
                    .map(|value| value.data().first_chunk().map(|&bytes| f16::from_le_bytes(bytes).to_f32()));
                let halves: Option<Vec<f32>> = halves.collect();
                let halves =
                    halves.ok_or_else(|| Error::in_source("damaged: a 16-bit float has fewer than 2 bytes"))?;
                DecodedValues::Numbers(bytemuck::cast_slice(&halves).to_vec(), Element::F32)
            }
            ValueType::Number(element) => {
                use parquet::basic::Type;
                let bytes = match column.column_type() {
                    Type::INT32 => narrow(&decode_values::<Int32Type>(column, pages, rows, levels_buffer)?, element),
                    Type::INT64 => {
                        bytemuck::cast_slice(&decode_values::<Int64Type>(column, pages, rows, levels_buffer)?).to_vec()
                    }
                    Type::FLOAT => {
                        bytemuck::cast_slice(&decode_values::<FloatType>(column, pages, rows, levels_buffer)?).to_vec()
                    }
                    _ => {
                        bytemuck::cast_slice(&decode_values::<DoubleType>(column, pages, rows, levels_buffer)?).to_vec()
                    }
                };
                DecodedValues::Numbers(bytes, element)
            }
        };
        let (definitions, repetitions) = levels;
        Ok(Decoded { value_type, values, definitions, repetitions, rows, buffers })
    }

    /// Assigns the values to rows. `first_row` is the index of the first of these rows within the
    /// row group. `max_level` is the definition level of a value that is not null. `lists` is
    /// `None` if the column contains no lists.
    pub(super) fn block(self, first_row: usize, max_level: i16, lists: Option<Levels>) -> Result<Block> {
        let rows = first_row..first_row + self.rows;
        let block = match lists {
            Some(levels) if levels.is_nested() => self.nested(levels, max_level),
            Some(levels) if !levels.element_levels().is_empty() => self.lists(levels.element_levels()[0], max_level),
            _ => self.flat(max_level),
        };
        let (values, bytes, dictionary_bytes) =
            block.ok_or_else(|| Error::in_source("damaged: the number of values does not match the levels"))?;
        Ok(Block { rows, values, bytes, dictionary_bytes })
    }

    fn nested(self, levels: Levels, max_level: i16) -> Option<(Values, usize, usize)> {
        let DecodedValues::Numbers(values, element) = self.values else { return None };
        let is_bool = self.value_type == ValueType::Bool;
        let nested =
            NestedLists::new((values, element, is_bool), self.definitions, self.repetitions, (levels, max_level));
        let nested = nested.filter(|nested| nested.rows.len() == self.rows + 1)?;
        let bytes = nested.bytes();
        Some((Values::Nested(nested), bytes, 0))
    }

    /// `item_level` is the lowest definition level at which a list has an item, which may be null.
    fn lists(self, item_level: i16, max_level: i16) -> Option<(Values, usize, usize)> {
        let DecodedValues::Numbers(values, element) = self.values else { return None };
        let (mut indices, mut next) = (Vec::<List>::new(), 0);
        for (index, &level) in self.definitions.iter().enumerate() {
            if self.repetitions.get(index).is_none_or(|&repetition| repetition == 0) {
                indices.push(if level + 1 < item_level { List::Null } else { List::Numbers(next..next) });
            }
            if level < item_level {
                continue;
            }
            let is_number = level == max_level;
            next += usize::from(is_number);
            let list = indices.last_mut()?;
            if let List::Numbers(range) = list {
                match is_number {
                    true => range.end = next,
                    false => *list = List::Incomplete(range.end - range.start),
                }
            }
        }
        let bytes = values.len() + indices.len() * size_of::<List>();
        (next == values.len() / element.size() && indices.len() == self.rows).then_some((
            Values::Lists { values, element, indices },
            bytes,
            0,
        ))
    }

    fn flat(self, max_level: i16) -> Option<(Values, usize, usize)> {
        let has_value = |row: usize| max_level == 0 || self.definitions.get(row) == Some(&max_level);
        let mut next = 0;
        let mut indices = Vec::with_capacity(self.rows);
        for row in 0..self.rows {
            indices.push(if has_value(row) { next } else { NULL });
            next += u32::from(has_value(row));
        }
        if max_level > 0 && self.definitions.len() != self.rows {
            return None;
        }
        let (count, value_bytes, dictionary_bytes, values) = match self.values {
            DecodedValues::Bytes(values, is_text) => {
                let value_bytes = self.buffers.pages + values.len() * size_of::<ByteArray>();
                (values.len(), value_bytes, self.buffers.dictionary, Values::Bytes { values, is_text, indices })
            }
            DecodedValues::Numbers(values, element) => {
                (values.len() / element.size(), values.len(), 0, Values::Numbers { values, element, indices })
            }
        };
        (next as usize == count).then_some((values, value_bytes + 4 * self.rows, dictionary_bytes))
    }
}

/// Decodes the values of `rows` rows. Appends their definition levels to `definitions` and their
/// repetition levels to `repetitions`. Fails if `pages` contains fewer rows, or more rows of lists.
fn decode_values<T: DataType>(
    column: &ColumnChunkMetaData,
    pages: Box<dyn PageReader>,
    rows: usize,
    (definitions, repetitions): &mut (Vec<i16>, Vec<i16>),
) -> Result<Vec<T::T>> {
    let descriptor = column.column_descr_ptr();
    let (has_definitions, has_repetitions) = (descriptor.max_def_level() > 0, descriptor.max_rep_level() > 0);
    let mut reader = ColumnReaderImpl::<T>::new(descriptor, pages);
    let (mut values, mut read_rows) = (Vec::new(), 0);
    while read_rows < rows {
        let (read, _, _) = reader
            .read_records(
                rows - read_rows,
                has_definitions.then_some(&mut *definitions),
                has_repetitions.then_some(&mut *repetitions),
                &mut values,
            )
            .map_err(library_error)?;
        if read == 0 {
            return Err(Error::in_source(format!("damaged: the pages have {read_rows} rows: expected {rows}")));
        }
        read_rows += read;
    }
    if has_repetitions {
        // Without this check, extra rows would be lost silently, because not all headers of list
        // pages contain the number of rows.
        let mut extra = (Vec::new(), Vec::new(), Vec::new());
        let definitions = has_definitions.then_some(&mut extra.0);
        let (extra_rows, _, _) =
            reader.read_records(1, definitions, Some(&mut extra.1), &mut extra.2).map_err(library_error)?;
        if extra_rows > 0 {
            return Err(Error::in_source(format!(
                "damaged: the column chunk has more than the {rows} rows of its row group; write the file again"
            )));
        }
    }
    Ok(values)
}

/// Converts 32-bit integers to the bytes of `element`, in native byte order.
fn narrow(numbers: &[i32], element: Element) -> Vec<u8> {
    match element {
        Element::I8 | Element::U8 => numbers.iter().map(|&number| number as u8).collect(),
        Element::I16 | Element::U16 => numbers.iter().flat_map(|&number| (number as u16).to_ne_bytes()).collect(),
        _ => bytemuck::cast_slice(numbers).to_vec(),
    }
}
