//! Reads the message headers of a file, which contain the schema and locate each batch of rows.
//!
//! This module checks the lengths and offsets in the headers once, except for unsupported columns.
//! `cells` checks the offsets of single values when it reads them. See "Serialization and
//! Interprocess Communication (IPC)" in the Arrow columnar format specification.

use std::ops::Range;

use super::flat::Table;
use super::schema::{Field, Kind, Schema};
use crate::error::{Error, Result, reserve};
use crate::machine::bytes::Bytes;

/// The first bytes of a file in the Arrow file format, which precede the stream.
pub(crate) const MAGIC: &[u8] = b"ARROW1\0\0";
/// The first four bytes of a message. Arrow before 0.15 did not write them.
const CONTINUATION: u32 = u32::MAX;
const MAX_HEADER_BYTES: u64 = 256 << 20;

#[derive(Debug)]
pub(super) struct Batch {
    pub(super) rows: usize,
    /// Number of values in each node. A node is a column, or a field inside a nested column.
    pub(super) nodes: Box<[u64]>,
    /// Offset in the file and length of each buffer, in bytes.
    pub(super) buffers: Box<[(u64, u64)]>,
}

#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) schema: Schema,
    pub(super) batches: Vec<Batch>,
}

impl Stream {
    pub(super) fn read(file: &dyn Bytes, byte_range: Range<u64>) -> Result<Self> {
        let mut scratch = Vec::new();
        let len = byte_range.end;
        let is_file = len - byte_range.start >= 8 && file.get(byte_range.start, 8, &mut scratch)? == MAGIC;
        let mut position = byte_range.start + if is_file { 8 } else { 0 };
        let mut stream: Option<Stream> = None;
        loop {
            let start = position;
            let damaged = |cause: String| Error::in_source(format!("not valid Arrow at byte {start}: {cause}"));
            let truncated = || {
                damaged(format!(
                    "the file ends after {len} bytes without an end marker: the file is truncated, or its writer was \
                     not closed"
                ))
            };
            let mut word = |offset: u64| -> Result<u32> {
                if len - offset.min(len) < 4 {
                    return Err(truncated());
                }
                Ok(u32::from_le_bytes(file.get(offset, 4, &mut scratch)?.try_into().expect("four bytes")))
            };
            let mut header_len = word(position)?;
            position += 4;
            if header_len == CONTINUATION {
                header_len = word(position)?;
                position += 4;
            }
            if header_len == 0 {
                break;
            }
            let header_len = u64::from(header_len);
            if header_len > MAX_HEADER_BYTES {
                return Err(damaged(format!(
                    "a message header claims {header_len} bytes: expected at most {MAX_HEADER_BYTES}"
                )));
            }
            if header_len > len - position {
                return Err(truncated());
            }
            let header = file.get(position, header_len as usize, &mut scratch)?;
            position += header_len;
            let message = Table::root(header).ok_or_else(|| damaged("damaged message header".to_owned()))?;
            if let Some(stream) = &mut stream {
                reserve(&mut stream.batches, 1)?;
            }
            let body_len = Message::read(message, &mut stream, position, len).map_err(|e| match e {
                MessageError::Truncated => truncated(),
                MessageError::Cause(cause) => damaged(cause),
            })?;
            position += body_len;
        }
        stream.ok_or_else(|| Error::in_source("not an Arrow file: it has no schema"))
    }

    pub(super) fn check_row_count(self, expected: Option<u64>) -> Result<Self> {
        let rows = self.batches.iter().fold(0_u64, |rows, batch| rows.saturating_add(batch.rows as u64));
        match expected {
            Some(expected) if rows != expected => {
                Err(Error::in_source(format!("the Arrow data has {rows} rows, but the index claims {expected}")))
            }
            _ => Ok(self),
        }
    }
}

enum MessageError {
    Truncated,
    Cause(String),
}

impl From<&str> for MessageError {
    fn from(cause: &str) -> Self {
        MessageError::Cause(cause.to_owned())
    }
}

impl From<String> for MessageError {
    fn from(cause: String) -> Self {
        MessageError::Cause(cause)
    }
}

struct Message;

impl Message {
    /// Adds the schema or the batch in a message to `stream`. The body of the message starts at
    /// byte `start` of a file with `len` bytes. Returns the length of the body.
    fn read(message: Table<'_>, stream: &mut Option<Stream>, start: u64, len: u64) -> Result<u64, MessageError> {
        const DAMAGED: &str = "damaged message header";
        let version = message.short(0, 0).ok_or(DAMAGED)?;
        let body_len = u64::try_from(message.long(3).ok_or(DAMAGED)?).map_err(|_| DAMAGED)?;
        if body_len > len - start {
            return Err(MessageError::Truncated);
        }
        let header = message.table(2).ok_or(DAMAGED)?.ok_or("a message has no header")?;
        // The type of a message is 1 for a schema, 2 for a dictionary batch, and 3 for a record
        // batch.
        match (message.byte(1).ok_or(DAMAGED)?, stream) {
            // Version V4, encoded as 3, is from 2017 (Arrow 0.8), and V5 is from 2020 (Arrow 1.0).
            _ if !(3..=4).contains(&version) => {
                return Err(format!("unsupported format version {}: expected 4 or 5", version + 1).into());
            }
            (1, stream @ None) => {
                let schema = Schema::read(header)?;
                if schema.has_unions && version < 4 {
                    return Err("unions are not supported in version 4 of the format: write the file with a current \
                                version of Arrow"
                        .into());
                }
                *stream = Some(Stream { schema, batches: Vec::new() });
            }
            (1, Some(_)) => return Err("the file has a second schema".into()),
            (_, None) => return Err("the file does not start with a schema".into()),
            // Dictionary-encoded columns are not supported, so dictionaries are skipped.
            (2, Some(_)) => {}
            (3, Some(stream)) => stream.batches.push(Batch::read(header, &stream.schema, start, body_len)?),
            (kind, Some(_)) => return Err(format!("unsupported message type {kind}").into()),
        }
        Ok(body_len)
    }
}

impl Batch {
    fn read(table: Table<'_>, schema: &Schema, body_offset: u64, body_len: u64) -> Result<Self, MessageError> {
        const DAMAGED: &str = "damaged batch header";
        if table.table(3).ok_or(DAMAGED)?.is_some() {
            return Err("compressed batches do not support random access: write the file without compression".into());
        }
        let rows = usize::try_from(table.long(0).ok_or(DAMAGED)?).map_err(|_| DAMAGED)?;
        let (nodes, buffers) = (table.list(1, 16).ok_or(DAMAGED)?, table.list(2, 16).ok_or(DAMAGED)?);
        if nodes.len != schema.node_count || buffers.len != schema.buffer_count {
            return Err(format!(
                "a batch has {} columns and {} buffers: expected {} and {}",
                nodes.len, buffers.len, schema.node_count, schema.buffer_count
            )
            .into());
        }
        let mut batch = Batch { rows, nodes: Box::new([]), buffers: Box::new([]) };
        let mut has_nulls = Vec::new();
        let mut lengths = Vec::new();
        for number in 0..nodes.len {
            let [length, null_count] = nodes.pair(number).ok_or(DAMAGED)?;
            lengths.push(u64::try_from(length).map_err(|_| DAMAGED)?);
            has_nulls.push(null_count != 0);
        }
        batch.nodes = lengths.into();
        let buffer_ranges = (0..buffers.len).map(|index| {
            let [offset, length] = buffers.pair(index)?;
            let (offset, length) = (u64::try_from(offset).ok()?, u64::try_from(length).ok()?);
            (offset.checked_add(length)? <= body_len).then_some((body_offset + offset, length))
        });
        batch.buffers = buffer_ranges.collect::<Option<_>>().ok_or("a buffer is outside its batch")?;
        for field in &schema.fields {
            batch.check(field, rows as u64, &has_nulls)?;
        }
        Ok(batch)
    }

    /// Checks that `field` has at least `expected` values, and that its validity bitmap, its
    /// offsets and its values of fixed size are complete. Also checks its children. `has_nulls`
    /// tells for each node whether any value is null.
    fn check(&self, field: &Field, expected: u64, has_nulls: &[bool]) -> Result<(), String> {
        let name = &field.name;
        let length = self.nodes[field.node_index];
        if length < expected {
            return Err(format!("column {name:?} has {length} values: expected {expected}"));
        }
        let check_buffer = |index: usize, needed: Option<u64>| match needed {
            Some(needed) if self.buffers[field.first_buffer + index].1 >= needed => Ok(()),
            _ => Err(format!("a buffer of column {name:?} is shorter than its {length} values")),
        };
        if !matches!(field.kind, Kind::Null | Kind::Unsupported { .. })
            && (has_nulls[field.node_index] || self.buffers[field.first_buffer].1 > 0)
        {
            check_buffer(0, Some(length.div_ceil(8)))?;
        }
        // An empty column may lack its offsets.
        let offsets_len = |is_large: bool| {
            if length == 0 { Some(0) } else { (length.checked_add(1)?).checked_mul(if is_large { 8 } else { 4 }) }
        };
        match field.kind {
            Kind::Null | Kind::Unsupported { .. } => return Ok(()),
            Kind::Bool => check_buffer(1, Some(length.div_ceil(8)))?,
            Kind::Number(element) => check_buffer(1, length.checked_mul(element.size() as u64))?,
            Kind::Half => check_buffer(1, length.checked_mul(2))?,
            Kind::FixedBytes(width) => check_buffer(1, length.checked_mul(width as u64))?,
            Kind::Bytes { is_large } | Kind::Text { is_large } | Kind::List { is_large } => {
                check_buffer(1, offsets_len(is_large))?
            }
            Kind::FixedList(_) | Kind::Struct | Kind::OneChild => {}
        }
        let child_count = match field.kind {
            Kind::Struct => length,
            Kind::FixedList(width) => length.checked_mul(width as u64).ok_or("a list is too long")?,
            _ => 0,
        };
        field.children.iter().try_for_each(|child| self.check(child, child_count, has_nulls))
    }
}
