//! Converts rows of typed columns, as other libraries store them, to samples. Formats only read
//! their columns and the values in each row. This module implements the common rules.

mod cells;
mod column_value;
mod columns;
mod labels;
#[cfg(any(feature = "arrays", feature = "lmdb"))]
mod rows;
mod schema_diff;
mod sniff;

pub(crate) use cells::Cell;
pub(crate) use column_value::ColumnValue;
pub(crate) use columns::{Column, ColumnType, Columns, is_label};
pub(crate) use labels::Labels;
pub(crate) use labels::{LabelLearner, is_missing, parse_integer};
#[cfg(any(feature = "arrays", feature = "lmdb"))]
pub(crate) use rows::{NamedCell, RowConverter, Survey};
pub(crate) use schema_diff::columns_error;
pub(crate) use sniff::guess_type;
