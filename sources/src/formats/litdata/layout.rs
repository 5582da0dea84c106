//! Locates and decodes the values of a sample.

use super::index::Index;
use super::serializer::Serializer;
use crate::error::{Error, Result};
use crate::values::items::{ColumnRanges, Layout, column_ranges};
use crate::values::record::{ColumnType, ColumnValue};

/// The layout of a sample: the lengths of all values in four bytes each, then the values
/// themselves.
pub(super) struct LitDataLayout {
    names: Vec<String>,
    serializers: Vec<Result<Serializer>>,
}

impl LitDataLayout {
    pub(super) fn new(index: &Index) -> Self {
        let serializers = index.serializers.iter().map(|name| Serializer::from_name(name, index.is_early)).collect();
        LitDataLayout { names: index.names.clone(), serializers }
    }

    fn serializer(&self, column: usize) -> Result<Serializer> {
        let column_error = |e: Error| Error::in_source(format!("column {:?}: {}", self.names[column], e.cause()));
        self.serializers[column].clone().map_err(column_error)
    }
}

impl Layout for LitDataLayout {
    const KIND: &'static str = "litdata";

    fn names(&self) -> &[String] {
        &self.names
    }

    fn head_len(&self) -> usize {
        4 * self.names.len()
    }

    fn column_ranges(&self, _row: usize, head: &[u8], len: usize) -> Result<ColumnRanges> {
        column_ranges(self.names.iter().map(|name| (&**name, None)), head, len)
    }

    fn column_type(&self, column: usize, first: &mut dyn FnMut() -> Result<Vec<u8>>) -> Result<ColumnType> {
        self.serializer(column)?.column_type(first)
    }

    fn decode<'a>(&self, _row: usize, column: usize, bytes: &'a [u8], buffer: &mut Vec<u8>) -> Result<ColumnValue<'a>> {
        self.serializer(column)?.decode(bytes, buffer)
    }
}
