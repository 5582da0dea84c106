//! Converts rows of typed columns, as other libraries store them, to samples.
//!
//! A format reads its columns and the cells of each row. This module does everything else, so that
//! all formats follow the same rules:
//! - `columns`: decides how each column is used in a sample (image, label, field or not at all),
//!   based on its name, its type, and the user's options.
//! - `schema_diff`: the error for a dataset whose files have different columns.
//! - `labels`: the labels in a column, which are integers or class names.
//! - `cells`: the value of a column in a row. `column_value`: the form in which a format provides
//!   this value.
//! - `sniff`: determines the type of a byte column from its first values.
//! - `rows`: rows that name their own cells, such as dicts. The columns are found by a survey of
//!   some rows.

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
pub(crate) use columns::{Column, Columns, Holds, is_label};
pub(crate) use labels::Labels;
pub(crate) use labels::{Learner, whole};
#[cfg(any(feature = "arrays", feature = "lmdb"))]
pub(crate) use rows::{Named, Rows, Survey};
pub(crate) use schema_diff::other_columns;
pub(crate) use sniff::sniffed;
