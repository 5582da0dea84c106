//! Reads the message headers of a file, which contain the schema and locate each batch of rows.
//!
//! This module checks every length and offset in the headers once. `cells` checks the offsets of
//! single values when it reads them. See "Serialization and Interprocess Communication (IPC)" in
//! the Arrow columnar format specification.

use std::ops::Range;

use super::flat::Table;
use super::schema::{Field, Kind, Schema};
use crate::error::{Error, Result, reserve};
use crate::machine::bytes::Bytes;

/// The first bytes of a file in the Arrow file format, which precede the stream.
pub(crate) const MAGIC: &[u8] = b"ARROW1\0\0";
/// The first four bytes of a message. Arrow before 0.15 did not write them.
const CONTINUATION: u32 = u32::MAX;
const MAX_HEADER: u64 = 256 << 20;

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
    pub(super) fn read(file: &dyn Bytes, within: Range<u64>) -> Result<Self> {
        let mut scratch = Vec::new();
        let len = within.end;
        let is_file = len - within.start >= 8 && file.get(within.start, 8, &mut scratch)? == MAGIC;
        let mut position = within.start + if is_file { 8 } else { 0 };
        let mut stream: Option<Stream> = None;
        loop {
            let start = position;
            let damaged = |cause: String| Error::in_source(format!("not valid Arrow at byte {start}: {cause}"));
            let cut = || {
                damaged(format!(
                    "the file ends after {len} bytes without an end marker: the file is truncated, or its writer was \
                     not closed"
                ))
            };
            let mut word = |offset: u64| -> Result<u32> {
                if len - offset.min(len) < 4 {
                    return Err(cut());
                }
                Ok(u32::from_le_bytes(file.get(offset, 4, &mut scratch)?.try_into().expect("four bytes")))
            };
            let mut size = word(position)?;
            position += 4;
            if size == CONTINUATION {
                size = word(position)?;
                position += 4;
            }
            if size == 0 {
                break;
            }
            let size = u64::from(size);
            if size > MAX_HEADER {
                return Err(damaged(format!("a message header claims {size} bytes: expected at most {MAX_HEADER}")));
            }
            if size > len - position {
                return Err(cut());
            }
            let header = file.get(position, size as usize, &mut scratch)?;
            position += size;
            let message = Table::root(header).ok_or_else(|| damaged("damaged message header".to_owned()))?;
            if let Some(stream) = &mut stream {
                reserve(&mut stream.batches, 1)?;
            }
            let body = Message::read(message, &mut stream, position, len).map_err(|e| match e {
                MessageError::Cut => cut(),
                MessageError::Cause(cause) => damaged(cause),
            })?;
            position += body;
        }
        stream.ok_or_else(|| Error::in_source("not an Arrow file: it has no schema"))
    }

    pub(super) fn with_rows(self, expected: Option<u64>) -> Result<Self> {
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
    Cut,
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
        let body = u64::try_from(message.long(3).ok_or(DAMAGED)?).map_err(|_| DAMAGED)?;
        if body > len - start {
            return Err(MessageError::Cut);
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
                if schema.unions && version < 4 {
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
            (3, Some(stream)) => stream.batches.push(Batch::read(header, &stream.schema, start, body)?),
            (kind, Some(_)) => return Err(format!("unsupported message type {kind}").into()),
        }
        Ok(body)
    }
}

impl Batch {
    fn read(table: Table<'_>, schema: &Schema, body_offset: u64, body: u64) -> Result<Self, MessageError> {
        const DAMAGED: &str = "damaged batch header";
        if table.table(3).ok_or(DAMAGED)?.is_some() {
            return Err("compressed batches do not support random access: write the file without compression".into());
        }
        let rows = usize::try_from(table.long(0).ok_or(DAMAGED)?).map_err(|_| DAMAGED)?;
        let (nodes, buffers) = (table.list(1, 16).ok_or(DAMAGED)?, table.list(2, 16).ok_or(DAMAGED)?);
        if nodes.len != schema.nodes || buffers.len != schema.buffers {
            return Err(format!(
                "a batch has {} columns and {} buffers: expected {} and {}",
                nodes.len, buffers.len, schema.nodes, schema.buffers
            )
            .into());
        }
        let mut batch = Batch { rows, nodes: Box::new([]), buffers: Box::new([]) };
        let mut nulls = Vec::new();
        let mut lengths = Vec::new();
        for number in 0..nodes.len {
            let [length, null] = nodes.pair(number).ok_or(DAMAGED)?;
            lengths.push(u64::try_from(length).map_err(|_| DAMAGED)?);
            nulls.push(null != 0);
        }
        batch.nodes = lengths.into();
        let located = (0..buffers.len).map(|index| {
            let [offset, length] = buffers.pair(index)?;
            let (offset, length) = (u64::try_from(offset).ok()?, u64::try_from(length).ok()?);
            (offset.checked_add(length)? <= body).then_some((body_offset + offset, length))
        });
        batch.buffers = located.collect::<Option<_>>().ok_or("a buffer is outside its batch")?;
        for field in &schema.fields {
            batch.check(field, rows as u64, &nulls)?;
        }
        Ok(batch)
    }

    /// Checks that `field` has at least `expected` values, and buffers that are long enough for all
    /// of them.
    fn check(&self, field: &Field, expected: u64, nulls: &[bool]) -> Result<(), String> {
        let name = &field.name;
        let length = self.nodes[field.node];
        if length < expected {
            return Err(format!("column {name:?} has {length} values: expected {expected}"));
        }
        let has = |index: usize, needed: Option<u64>| match needed {
            Some(needed) if self.buffers[field.buffer + index].1 >= needed => Ok(()),
            _ => Err(format!("a buffer of column {name:?} is shorter than its {length} values")),
        };
        if !matches!(field.kind, Kind::Null | Kind::Other { .. })
            && (nulls[field.node] || self.buffers[field.buffer].1 > 0)
        {
            has(0, Some(length.div_ceil(8)))?;
        }
        // An empty column may lack its offsets.
        let ends = |large: bool| {
            if length == 0 { Some(0) } else { (length.checked_add(1)?).checked_mul(if large { 8 } else { 4 }) }
        };
        match field.kind {
            Kind::Null | Kind::Other { .. } => return Ok(()),
            Kind::Bool => has(1, Some(length.div_ceil(8)))?,
            Kind::Number(element) => has(1, length.checked_mul(element.size() as u64))?,
            Kind::Half => has(1, length.checked_mul(2))?,
            Kind::FixedBytes(width) => has(1, length.checked_mul(width as u64))?,
            Kind::Bytes { large } | Kind::Text { large } | Kind::List { large } => has(1, ends(large))?,
            Kind::FixedList(_) | Kind::Struct | Kind::OneChild => {}
        }
        let inside = match field.kind {
            Kind::Struct => length,
            Kind::FixedList(width) => length.checked_mul(width as u64).ok_or("a list is too long")?,
            _ => 0,
        };
        field.children.iter().try_for_each(|child| self.check(child, inside, nulls))
    }
}
