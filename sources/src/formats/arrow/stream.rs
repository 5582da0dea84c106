//! Reads the message headers of a file: the schema, and where each batch of rows has its values.
//! Every length and offset is checked here once, so that later reads stay inside their buffers.

use std::ops::Range;

use super::flat::Table;
use super::schema::{Field, Kind, Schema};
use crate::error::{Error, Result, reserve};
use crate::machine::bytes::Bytes;

/// First bytes of the file format, which contains a stream.
pub(crate) const MAGIC: &[u8] = b"ARROW1\0\0";
/// Begins each message.
const CONTINUATION: u32 = u32::MAX;
/// Maximum size of a header.
const MAX_HEADER: u64 = 256 << 20;

/// A batch of rows.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) rows: usize,
    /// Length of each node.
    pub(super) nodes: Box<[u64]>,
    /// Offset in the file, and length, of each buffer.
    pub(super) buffers: Box<[(u64, u64)]>,
}

/// The headers of a file.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) schema: Schema,
    pub(super) batches: Vec<Batch>,
}

impl Stream {
    /// Reads the headers in `within` of a file, which contains it.
    ///
    /// # Errors
    /// With the offset, if the file is cut short or damaged, or has a feature that is not read.
    pub(super) fn read(file: &dyn Bytes, within: Range<u64>) -> Result<Self> {
        let mut scratch = Vec::new();
        let len = within.end;
        let is_file = len - within.start >= 8 && file.get(within.start, 8, &mut scratch)? == MAGIC;
        let mut at = within.start + if is_file { 8 } else { 0 };
        let mut stream: Option<Stream> = None;
        loop {
            let start = at;
            let damaged = |cause: String| Error::in_source(format!("not valid Arrow at byte {start}: {cause}"));
            let cut = || {
                damaged(format!(
                    "the file ends here, with {len} bytes and without an end mark: it was cut short, or its writer was not closed"
                ))
            };
            let mut word = |at: u64| -> Result<u32> {
                if len - at.min(len) < 4 {
                    return Err(cut());
                }
                Ok(u32::from_le_bytes(file.get(at, 4, &mut scratch)?.try_into().expect("four bytes")))
            };
            let mut size = word(at)?;
            at += 4;
            if size == CONTINUATION {
                size = word(at)?;
                at += 4;
            }
            if size == 0 {
                break;
            }
            let size = u64::from(size);
            if size > MAX_HEADER {
                return Err(damaged(format!("a message header of {size} bytes")));
            }
            if size > len - at {
                return Err(cut());
            }
            let header = file.get(at, size as usize, &mut scratch)?;
            at += size;
            let message = Table::root(header).ok_or_else(|| damaged("the message header".to_owned()))?;
            if let Some(stream) = &mut stream {
                reserve(&mut stream.batches, 1)?;
            }
            let body = Message::read(message, &mut stream, at, len).map_err(|e| match e {
                Broken::Cut => cut(),
                Broken::Cause(cause) => damaged(cause),
            })?;
            at += body;
        }
        stream.ok_or_else(|| Error::in_source("not an Arrow file: it has no schema"))
    }

    /// # Errors
    /// If the number of rows is known and there are others.
    pub(super) fn with_rows(self, expected: Option<u64>) -> Result<Self> {
        let rows = self.batches.iter().fold(0_u64, |rows, batch| rows.saturating_add(batch.rows as u64));
        match expected {
            Some(expected) if rows != expected => {
                Err(Error::in_source(format!("{rows} rows in Arrow, but the index says {expected}")))
            }
            _ => Ok(self),
        }
    }
}

/// Why a message cannot be used.
enum Broken {
    /// The file is too short for it.
    Cut,
    Cause(String),
}

impl From<&str> for Broken {
    fn from(cause: &str) -> Self {
        Broken::Cause(cause.to_owned())
    }
}

impl From<String> for Broken {
    fn from(cause: String) -> Self {
        Broken::Cause(cause)
    }
}

struct Message;

impl Message {
    /// Adds a message, whose body begins at byte `at` of a file of `len` bytes, to `stream`.
    /// Returns the length of the body.
    fn read(message: Table<'_>, stream: &mut Option<Stream>, at: u64, len: u64) -> Result<u64, Broken> {
        const DAMAGED: &str = "the message header";
        let version = message.short(0, 0).ok_or(DAMAGED)?;
        let body = u64::try_from(message.long(3).ok_or(DAMAGED)?).map_err(|_| DAMAGED)?;
        if body > len - at {
            return Err(Broken::Cut);
        }
        let header = message.table(2).ok_or(DAMAGED)?.ok_or("a message without a header")?;
        match (message.byte(1).ok_or(DAMAGED)?, stream) {
            // Version 4 is from 2017.
            _ if !(3..=4).contains(&version) => return Err(format!("version {} of the format", version + 1).into()),
            (1, stream @ None) => {
                let schema = Schema::read(header)?;
                if schema.unions && version < 4 {
                    return Err("a column of several types in version 4 of the format".into());
                }
                *stream = Some(Stream { schema, batches: Vec::new() });
            }
            (1, Some(_)) => return Err("a second schema".into()),
            (_, None) => return Err("no schema at the start".into()),
            // The columns that need a dictionary are not read.
            (2, Some(_)) => {}
            (3, Some(stream)) => stream.batches.push(Batch::read(header, &stream.schema, at, body)?),
            (kind, Some(_)) => return Err(format!("a message of kind {kind}").into()),
        }
        Ok(body)
    }
}

impl Batch {
    fn read(table: Table<'_>, schema: &Schema, at: u64, body: u64) -> Result<Self, Broken> {
        const DAMAGED: &str = "the header of a batch";
        if table.table(3).ok_or(DAMAGED)?.is_some() {
            return Err(
                "its batches are compressed, so rows cannot be read at random; write it without compression".into()
            );
        }
        let rows = usize::try_from(table.long(0).ok_or(DAMAGED)?).map_err(|_| DAMAGED)?;
        let (nodes, buffers) = (table.list(1, 16).ok_or(DAMAGED)?, table.list(2, 16).ok_or(DAMAGED)?);
        if nodes.len != schema.nodes || buffers.len != schema.buffers {
            return Err(format!(
                "a batch with {} columns and {} buffers, where the schema has {} and {}",
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
        let placed = (0..buffers.len).map(|number| {
            let [offset, length] = buffers.pair(number)?;
            let (offset, length) = (u64::try_from(offset).ok()?, u64::try_from(length).ok()?);
            (offset.checked_add(length)? <= body).then_some((at + offset, length))
        });
        batch.buffers = placed.collect::<Option<_>>().ok_or("a buffer outside its batch")?;
        for field in &schema.fields {
            batch.check(field, rows as u64, &nulls)?;
        }
        Ok(batch)
    }

    /// Checks that the buffers of `field` have room for at least `least` values.
    fn check(&self, field: &Field, least: u64, nulls: &[bool]) -> Result<(), String> {
        let name = &field.name;
        let length = self.nodes[field.node];
        if length < least {
            return Err(format!("column {name:?} has {length} values of {least}"));
        }
        let has = |number: usize, needed: Option<u64>| match needed {
            Some(needed) if self.buffers[field.buffer + number].1 >= needed => Ok(()),
            _ => Err(format!("a buffer of column {name:?} is shorter than its {length} values")),
        };
        if !matches!(field.kind, Kind::Null | Kind::Other { .. })
            && (nulls[field.node] || self.buffers[field.buffer].1 > 0)
        {
            has(0, Some(length.div_ceil(8)))?;
        }
        // The offsets of no values may be absent.
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
            Kind::FixedList(_) | Kind::Struct | Kind::Part => {}
        }
        let inside = match field.kind {
            Kind::Struct => length,
            Kind::FixedList(width) => length.checked_mul(width as u64).ok_or("a list that is too long")?,
            _ => 0,
        };
        field.children.iter().try_for_each(|child| self.check(child, inside, nulls))
    }
}
