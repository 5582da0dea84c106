//! Converts rows of typed columns, as other libraries store them, to samples.
//!
//! Formats only read their columns and the values in each row; this module implements the common
//! rules:
//! - `columns`: decides how samples use each column: as the image, as the label, as a field
//!   or not at all. This depends on the name and the type of the column and on the user's options.
//! - `schema_diff`: the error for a dataset with files that have different columns.
//! - `labels`: determines whether the labels in a column are integers or class names.
//! - `cells`: the value of a column in a row. `column_value`: the same value as a format provides
//!   it.
//! - `sniff`: determines the type of a column of bytes from its first values.
//! - `rows`: rows that contain the names of their cells, such as dicts. A survey of some rows finds
//!   the columns.

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
pub(crate) use labels::{Learner, parse_integer};
#[cfg(any(feature = "arrays", feature = "lmdb"))]
pub(crate) use rows::{Named, Rows, Survey};
pub(crate) use schema_diff::other_columns;
pub(crate) use sniff::sniffed;
