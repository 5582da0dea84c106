//! Reads *cells*: the values of one column in one row.

use std::cell::RefCell;
use std::ops::Range;

use arrayvec::ArrayVec;
use half::f16;

use super::schema::{Field, Kind};
use super::stream::Batch;
use crate::error::{Error, Result, append, reserve};
use crate::machine::bytes::grow_to;
use crate::model::Value;
use crate::model::value::{Element, MAX_NUMBERS_AXES};
use crate::storage::{OpenFile, RowBytes};
use crate::values::record::ColumnValue;

/// Approximate maximum size of a value as JSON, in bytes. Lists may share elements, so even a small
/// file can describe a huge value. The size is checked before each element, so the last element may
/// exceed the limit.
const MAX_JSON_BYTES: usize = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Form {
    Plain,
    /// A struct with the content of a file, and possibly its path. `bytes` and `path` are the
    /// indices of these children.
    File {
        bytes: usize,
        path: Option<usize>,
    },
    /// A list of numbers, or of nested fixed-size lists of numbers.
    Numbers,
    /// Any other nested value, converted to JSON.
    Json,
}

impl Form {
    pub(super) fn for_field(field: &Field) -> Result<Form, &'static str> {
        match field.kind {
            Kind::Unsupported { name, .. } => Err(name),
            Kind::List { .. } | Kind::FixedList(_) => match is_numeric(&field.children[0], 1) {
                true => Ok(Form::Numbers),
                false => check_json(field).map(|()| Form::Json),
            },
            Kind::OneChild => Form::for_field(&field.children[0]),
            // `Field::columns` has split structs that are not files into columns.
            Kind::Struct if field.is_file() => {
                let child = |name: &str| field.children.iter().position(|child| child.name == name);
                Ok(Form::File { bytes: child("bytes").expect("it has one"), path: child("path") })
            }
            Kind::Struct => check_json(field).map(|()| Form::Json),
            _ => Ok(Form::Plain),
        }
    }
}

/// Returns whether the elements of a list, described by `field`, are numbers. `axes` is the number
/// of list axes around the elements.
fn is_numeric(field: &Field, axes: usize) -> bool {
    match field.kind {
        Kind::Number(_) | Kind::Half | Kind::Bool => true,
        Kind::FixedList(_) => axes < MAX_NUMBERS_AXES && is_numeric(&field.children[0], axes + 1),
        Kind::OneChild => is_numeric(&field.children[0], axes),
        _ => false,
    }
}

fn check_json(field: &Field) -> Result<(), &'static str> {
    match field.kind {
        Kind::Unsupported { name, .. } => Err(name),
        Kind::Bytes { .. } | Kind::FixedBytes(_) => Err("bytes inside nested values"),
        _ => field.children.iter().try_for_each(check_json),
    }
}

const BLOCK_BYTES: u64 = 4096;
const MAX_BLOCKS: usize = 16;
/// Maximum size of a value that is read through the block cache, in bytes.
const MAX_CACHED_VALUE_BYTES: u64 = 64;

/// Caches blocks of a file, so that small reads, such as of the elements of a nested list, do not
/// need one system call each.
#[derive(Default)]
pub(super) struct BlockCache(RefCell<CachedBlocks>);

/// The cached blocks, and the index of the block that is replaced next.
type CachedBlocks = (ArrayVec<(Range<u64>, Vec<u8>), MAX_BLOCKS>, usize);

impl BlockCache {
    /// Calls `read` with the `len` bytes at `offset` of a file that ends at `end`. `len` is at most
    /// the size of a block. `load` returns the bytes in a range of the file. If the file is mapped,
    /// `load` returns an empty vector, and `read` gets an empty slice.
    fn with_bytes<T>(
        &self,
        offset: u64,
        len: u64,
        end: u64,
        load: impl FnOnce(Range<u64>) -> Result<Vec<u8>>,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let (blocks, next) = &mut *self.0.borrow_mut();
        let index = blocks.iter().position(|(range, _)| range.start <= offset && offset + len <= range.end);
        let slot = match index {
            Some(slot) => slot,
            None => {
                let start = offset / BLOCK_BYTES * BLOCK_BYTES;
                let range = start..(offset + len).next_multiple_of(BLOCK_BYTES).min(end);
                let bytes = load(range.clone())?;
                let slot = *next % MAX_BLOCKS;
                *next += 1;
                match blocks.get_mut(slot) {
                    Some(block) => *block = (range, bytes),
                    None => blocks.push((range, bytes)),
                }
                slot
            }
        };
        let (range, bytes) = &blocks[slot];
        let start = (offset - range.start) as usize;
        Ok(read(bytes.get(start..start + len as usize).unwrap_or_default()))
    }
}

#[derive(Clone, Copy)]
pub(super) struct CellReader<'a, 'b> {
    pub(super) column: &'a str,
    pub(super) file: &'a OpenFile,
    pub(super) batch: &'a Batch,
    pub(super) blocks: &'b BlockCache,
}

impl<'a> CellReader<'a, '_> {
    pub(super) fn read_cell(
        self,
        field: &Field,
        form: Form,
        row: u64,
        scratch: &mut Vec<u8>,
    ) -> Result<ColumnValue<'a>> {
        if !self.is_valid(field, row)? {
            return Ok(ColumnValue::Null);
        }
        if field.kind == Kind::OneChild {
            return self.read_cell(&field.children[0], form, row, scratch);
        }
        match form {
            Form::Plain => self.read_plain(field, row, scratch),
            Form::File { bytes, path } => {
                let file = self.read_cell(&field.children[bytes], Form::Plain, row, scratch)?;
                match (file, path) {
                    (ColumnValue::Null, Some(path)) => {
                        match self.read_cell(&field.children[path], Form::Plain, row, scratch)? {
                            ColumnValue::Text(path) => Ok(ColumnValue::Path(path)),
                            other => Ok(other),
                        }
                    }
                    (file, _) => Ok(file),
                }
            }
            Form::Numbers => self.read_numbers(field, row, scratch),
            Form::Json => {
                let start = scratch.len();
                self.append_json(field, row, start, scratch)?;
                Ok(ColumnValue::Json(RowBytes::page_tail(start, scratch)))
            }
        }
    }

    fn read_plain(self, field: &Field, row: u64, scratch: &mut Vec<u8>) -> Result<ColumnValue<'a>> {
        match field.kind {
            Kind::Number(element) => {
                let size = element.size() as u64;
                Ok(ColumnValue::number(element, self.read_bytes(field.first_buffer + 1, row * size, size, scratch)?))
            }
            Kind::Bool | Kind::Half => {
                let start = scratch.len();
                let element = self.append_converted(field, row..row + 1, scratch)?;
                Ok(ColumnValue::number(element, RowBytes::page_tail(start, scratch)))
            }
            Kind::Bytes { is_large } | Kind::Text { is_large } => {
                let (start, end) =
                    self.value_range(field, is_large, row, self.batch.buffers[field.first_buffer + 2].1)?;
                let bytes = self.read_bytes(field.first_buffer + 2, start, end - start, scratch)?;
                if matches!(field.kind, Kind::Bytes { .. }) {
                    return Ok(ColumnValue::Bytes(bytes));
                }
                match std::str::from_utf8(bytes.resolve(scratch)) {
                    Ok(_) => Ok(ColumnValue::Text(bytes)),
                    Err(_) => Err(self.damaged("the text is not UTF-8")),
                }
            }
            Kind::FixedBytes(width) => self
                .read_bytes(field.first_buffer + 1, row * width as u64, width as u64, scratch)
                .map(ColumnValue::Bytes),
            _ => Ok(ColumnValue::Null),
        }
    }

    fn read_numbers(self, field: &Field, row: u64, scratch: &mut Vec<u8>) -> Result<ColumnValue<'a>> {
        let mut range = self.element_rows(field, row)?;
        let mut shape = ArrayVec::<usize, MAX_NUMBERS_AXES>::new();
        shape.push((range.end - range.start) as usize);
        let mut inner = &field.children[0];
        loop {
            match inner.kind {
                Kind::OneChild => self.reject_nulls(inner, range.clone())?,
                Kind::FixedList(width) => {
                    self.reject_nulls(inner, range.clone())?;
                    shape.push(width);
                    range = range.start * width as u64..range.end * width as u64;
                }
                _ => break,
            }
            inner = &inner.children[0];
        }
        self.reject_nulls(inner, range.clone())?;
        let Kind::Number(element) = inner.kind else {
            let start = scratch.len();
            let element = self.append_converted(inner, range, scratch)?;
            return Ok(ColumnValue::Numbers { element, shape, data: RowBytes::page_tail(start, scratch) });
        };
        let size = element.size() as u64;
        let data =
            self.read_bytes(inner.first_buffer + 1, range.start * size, (range.end - range.start) * size, scratch)?;
        Ok(ColumnValue::Numbers { element, shape, data })
    }

    /// Appends the values in the rows `range`. Booleans become `u8`, and 16-bit floats become
    /// `f32`. Returns the new type.
    fn append_converted(self, field: &Field, range: Range<u64>, scratch: &mut Vec<u8>) -> Result<Element> {
        let size = if field.kind == Kind::Bool { 1 } else { size_of::<f32>() };
        reserve(scratch, size.saturating_mul((range.end - range.start) as usize))?;
        for row in range {
            if field.kind == Kind::Bool {
                scratch.push(self.bit(field.first_buffer + 1, row)?.into());
            } else {
                let number = f16::from_ne_bytes(self.read_array(field.first_buffer + 1, row * 2)?);
                scratch.extend_from_slice(&number.to_f32().to_ne_bytes());
            }
        }
        Ok(if field.kind == Kind::Bool { Element::U8 } else { Element::F32 })
    }

    fn element_rows(self, field: &Field, row: u64) -> Result<Range<u64>> {
        match field.kind {
            Kind::FixedList(width) => Ok(row * width as u64..(row + 1) * width as u64),
            Kind::List { is_large } => {
                let (start, end) =
                    self.value_range(field, is_large, row, self.batch.nodes[field.children[0].node_index])?;
                Ok(start..end)
            }
            _ => unreachable!("only lists have elements"),
        }
    }

    /// Returns the start and the end of the variable-length value in `row`: byte offsets for bytes
    /// and text, or element indices for lists. Fails if the end exceeds `limit`.
    fn value_range(self, field: &Field, is_large: bool, row: u64, limit: u64) -> Result<(u64, u64)> {
        let buffer = field.first_buffer + 1;
        let (start, end) = if is_large {
            let [start, end]: [i64; 2] = bytemuck::cast(self.read_array::<16>(buffer, row * 8)?);
            (start, end)
        } else {
            let [start, end]: [i32; 2] = bytemuck::cast(self.read_array::<8>(buffer, row * 4)?);
            (start.into(), end.into())
        };
        match (u64::try_from(start), u64::try_from(end)) {
            (Ok(start), Ok(end)) if start <= end && end <= limit => Ok((start, end)),
            _ => Err(self.damaged(&format!(
                "a value claims the range {start} to {end}, but the limit is {limit}: the file is damaged"
            ))),
        }
    }

    fn is_valid(self, field: &Field, row: u64) -> Result<bool> {
        let has_no_values = matches!(field.kind, Kind::Null | Kind::Unsupported { .. });
        Ok(!has_no_values && (self.batch.buffers[field.first_buffer].1 == 0 || self.bit(field.first_buffer, row)?))
    }

    fn reject_nulls(self, field: &Field, range: Range<u64>) -> Result<()> {
        for row in range.clone() {
            if self.batch.buffers[field.first_buffer].1 == 0 {
                break;
            }
            if !self.is_valid(field, row)? {
                let item = row - range.start;
                return Err(self.damaged(&format!("item {item} of a list is null: expected a number")));
            }
        }
        Ok(())
    }

    /// `start` is the offset in `out` of the outermost value.
    fn append_json(self, field: &Field, row: u64, start: usize, out: &mut Vec<u8>) -> Result<()> {
        if out.len() - start > MAX_JSON_BYTES {
            return Err(self.damaged("a nested value exceeds 64 MiB as JSON"));
        }
        if !self.is_valid(field, row)? {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        match field.kind {
            Kind::List { .. } | Kind::FixedList(_) => {
                out.push(b'[');
                for (position, element) in self.element_rows(field, row)?.enumerate() {
                    if position > 0 {
                        out.push(b',');
                    }
                    self.append_json(&field.children[0], element, start, out)?;
                }
                out.push(b']');
            }
            Kind::OneChild => self.append_json(&field.children[0], row, start, out)?,
            Kind::Struct => {
                out.push(b'{');
                for (position, child) in field.children.iter().enumerate() {
                    if position > 0 {
                        out.push(b',');
                    }
                    write_json(out, &child.name);
                    out.push(b':');
                    self.append_json(child, row, start, out)?;
                }
                out.push(b'}');
            }
            Kind::Bool => write_json(out, &self.bit(field.first_buffer + 1, row)?),
            _ => {
                let mut scratch = Vec::new();
                let content = self.read_plain(field, row, &mut scratch)?;
                match content.cell(&scratch)?.value() {
                    Some(Value::Text(text)) => write_json(out, text),
                    Some(Value::Numbers(number)) => number.write_json(out),
                    _ => out.extend_from_slice(b"null"),
                }
            }
        }
        Ok(())
    }

    fn damaged(self, cause: &str) -> Error {
        Error::in_source(format!("column {:?}: {cause}", self.column))
    }

    fn bit(self, buffer: usize, index: u64) -> Result<bool> {
        let [byte] = self.read_array(buffer, index / 8)?;
        Ok(byte >> (index % 8) & 1 == 1)
    }

    /// Returns the offset in the file of byte `offset` of the buffer. Fails if the buffer does not
    /// contain the `len` bytes at `offset`.
    fn file_offset(self, buffer: usize, offset: u64, len: u64) -> Result<u64> {
        let (start, buffer_len) = self.batch.buffers[buffer];
        match offset.checked_add(len) {
            Some(end) if end <= buffer_len => Ok(start + offset),
            _ => Err(self.damaged(&format!(
                "{len} bytes at offset {offset} extend past the end of a buffer of {buffer_len} bytes"
            ))),
        }
    }

    fn read_array<const N: usize>(self, buffer: usize, offset: u64) -> Result<[u8; N]> {
        let offset = self.file_offset(buffer, offset, N as u64)?;
        let mut array = [0; N];
        self.with_bytes(offset, N as u64, |bytes| array.copy_from_slice(bytes))?;
        Ok(array)
    }

    /// `len` is at most the size of a block.
    fn with_bytes<T>(self, offset: u64, len: u64, read: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let end = self.file.len();
        let Some(map) = self.file.map() else {
            let load = |range: Range<u64>| {
                let mut bytes = Vec::new();
                self.file.fill(range.start, grow_to(&mut bytes, range.end - range.start)?)?;
                Ok(bytes)
            };
            return self.blocks.with_bytes(offset, len, end, load, read);
        };
        let load = |range: Range<u64>| {
            self.file.load(&map[range.start as usize..range.end as usize], range.end)?;
            Ok(Vec::new())
        };
        self.blocks.with_bytes(offset, len, end, load, |_| ())?;
        Ok(read(&map[offset as usize..][..len as usize]))
    }

    fn read_bytes(self, buffer: usize, offset: u64, len: u64, scratch: &mut Vec<u8>) -> Result<RowBytes<'a>> {
        let offset = self.file_offset(buffer, offset, len)?;
        if len > MAX_CACHED_VALUE_BYTES {
            return self.file.read_range(None, offset..offset + len, scratch);
        }
        if let Some(map) = self.file.map() {
            self.with_bytes(offset, len, |_| ())?;
            return Ok(RowBytes::Borrowed(&map[offset as usize..][..len as usize]));
        }
        let start = scratch.len();
        self.with_bytes(offset, len, |bytes| append(scratch, bytes))??;
        Ok(RowBytes::page_tail(start, scratch))
    }
}

fn write_json(out: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    serde_json::to_writer(out, value).expect("writing to memory succeeds");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_failed_allocation_for_a_list_is_not_damage() {
        let file = OpenFile::in_memory("x.arrow".into(), Vec::new());
        let batch = Batch { rows: 1, nodes: Box::new([u64::MAX]), buffers: Box::new([(0, 0), (0, u64::MAX)]) };
        let (blocks, column) = (BlockCache::default(), "flags");
        let reader = CellReader { column, file: &file, batch: &batch, blocks: &blocks };
        let field =
            Field { name: column.into(), kind: Kind::Bool, children: Vec::new(), node_index: 0, first_buffer: 0 };
        let e = reader.append_converted(&field, 0..u64::MAX, &mut Vec::new()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Memory, "{e}");
    }

    #[test]
    fn adjacent_values_are_loaded_once() {
        let file: Vec<u8> = (0..20_000_u32).map(|n| (n * 7 / 3) as u8).collect();
        let (blocks, loads) = (BlockCache::default(), std::cell::Cell::new(0));
        let get = |offset: u64, len: u64| {
            let load = |range: Range<u64>| {
                loads.set(loads.get() + 1);
                Ok(file[range.start as usize..range.end as usize].to_vec())
            };
            blocks.with_bytes(offset, len, file.len() as u64, load, <[u8]>::to_vec).unwrap()
        };
        for offset in 0..file.len() as u64 - 8 {
            assert_eq!(get(offset, 8), file[offset as usize..offset as usize + 8], "{offset}");
        }
        // Each of the five blocks is loaded once. A value that crosses the end of a block may load
        // a block again.
        assert!(loads.get() <= 10, "{}", loads.get());
        assert_eq!(get(19_999, 1), file[19_999..]);
    }
}
