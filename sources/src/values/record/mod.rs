//! Converts rows of typed columns, as other libraries store them, to samples.
//!
//! Formats only read their columns and the values in each row. This module implements the common
//! rules:
//! - `columns`: decides from a column's name and type, and the user's options, whether it becomes
//!   the image, the label, a field or nothing.
//! - `schema_diff`: the error for a dataset with files that have different columns.
//! - `labels`: determines whether the labels in a column are integers or class names.
//! - `cells`: a column's value in a row. `column_value`: the same, as the format stores it.
//! - `sniff`: determines the type of a column of bytes from its first values.
//! - `rows`: rows that name their cells, such as dicts. Some of the rows determine the columns.

mod cells;
mod column_value;
mod columns;
mod labels;
#[cfg(any(feature = "arrays", feature = "lmdb"))]
mod rows;
mod schema_diff;
mod sniff;

pub(crate) use cells::Cell;
pub(crate) use column_value::Found;
pub(crate) use columns::{Column, ColumnType, Columns, is_label};
pub(crate) use labels::Labels;
pub(crate) use labels::{Learner, is_missing, parse_integer};
#[cfg(any(feature = "arrays", feature = "lmdb"))]
pub(crate) use rows::{NamedCell, Rows, Survey};
pub(crate) use schema_diff::columns_error;
pub(crate) use sniff::guess_type;
