//! Records: rows of typed columns, as other libraries store them, as samples.
//!
//! A format reads its columns and the cells of a row. Everything else has its home here, so every
//! format has the same rules:
//! - `columns`: the use of each column in a sample (image, label, field or nothing), from its
//!   name, its type, and the user's options.
//! - `schema_diff`: the error for files of one dataset with different columns.
//! - `labels`: labels of a column, which are integers or names of classes.
//! - `cells`: the value of a column in a row, and `column_value`: where a format finds it.
//! - `sniff`: the type of a column of bytes, by its first values.
//! - `rows`: rows that name their own cells, such as dicts. A survey of some rows finds the
//!   columns.

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
