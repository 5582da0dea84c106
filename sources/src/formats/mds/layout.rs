//! Locates and decodes the columns of a sample.

use super::encoding::Encoding;
use super::index::Column;
use crate::error::{Error, Result};
use crate::values::items::{ColumnRanges, Layout, column_ranges};
use crate::values::record::{ColumnType, ColumnValue};

/// The layout of a sample: the lengths of its variable-length values, then the values of all
/// columns.
pub(super) struct MdsLayout {
    names: Vec<String>,
    encodings: Vec<Result<Encoding>>,
    sizes: Vec<Option<usize>>,
}

impl MdsLayout {
    pub(super) fn new(columns: &[Column]) -> Self {
        MdsLayout {
            names: columns.iter().map(|column| column.name.clone()).collect(),
            encodings: columns.iter().map(|column| Encoding::from_name(&column.encoding)).collect(),
            sizes: columns.iter().map(|column| column.size).collect(),
        }
    }

    fn encoding(&self, column: usize) -> Result<&Encoding> {
        let column_error = |e: &Error| Error::in_source(format!("column {:?}: {}", self.names[column], e.cause()));
        self.encodings[column].as_ref().map_err(column_error)
    }
}

impl Layout for MdsLayout {
    const KIND: &'static str = "mds";

    fn names(&self) -> &[String] {
        &self.names
    }

    fn head_len(&self) -> usize {
        4 * self.sizes.iter().filter(|size| size.is_none()).count()
    }

    fn column_ranges(&self, _row: usize, head: &[u8], len: usize) -> Result<ColumnRanges> {
        column_ranges(self.names.iter().map(String::as_str).zip(self.sizes.iter().copied()), head, len)
    }

    fn column_type(&self, column: usize, first: &mut dyn FnMut() -> Result<Vec<u8>>) -> Result<ColumnType> {
        self.encoding(column)?.column_type(first)
    }

    fn decode<'a>(&self, _row: usize, column: usize, bytes: &'a [u8], buffer: &mut Vec<u8>) -> Result<ColumnValue<'a>> {
        self.encoding(column)?.decode(bytes, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_must_fill_the_sample() {
        let column = |name: &str, encoding: &str, size| Column { name: name.into(), encoding: encoding.into(), size };
        let rows = MdsLayout::new(&[column("a", "bytes", None), column("b", "int", Some(8)), column("c", "str", None)]);
        let head = [3, 0, 0, 0, 1, 0, 0, 0];
        assert_eq!(&rows.column_ranges(0, &head, 20).unwrap()[..], [8..11, 11..19, 19..20]);
        let cause = |head: &[u8], len| rows.column_ranges(0, head, len).unwrap_err().cause().to_owned();
        assert!(cause(&head, 19).contains("column \"c\" has 1 byte at byte 19"));
        assert!(cause(&head, 21).contains("the columns have 20 bytes, but the sample has 21"));
        assert!(cause(&head[..4], 20).contains("column \"c\" has a missing length"));
        assert!(cause(&[0xff; 8], 20).contains("column \"a\" has 4294967295 bytes"));
    }
}
