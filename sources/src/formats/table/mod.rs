//! Reads CSV, TSV and JSON Lines tables. Each row is a sample.
//!
//! 1. `text`: reads the text of a file, and computes line numbers.
//! 2. `cells`: the cells of a row. `csv` and `json` parse rows, `syntax` dispatches to one of them,
//!    and `scan` parses all rows once.
//! 3. `columns`: decides how samples use each column.
//! 4. `sample_buffer`: collects the bytes of a sample in a buffer.
//! 5. `extension`: finds file extensions that paths omit.
//! 6. `source`: [`Table`], the source. `labels` determines the labels, and `assemble` assembles the
//!    sample of a row.
//!
//! `data_format` registers the format.

#[cfg(feature = "tables")]
mod assemble;
#[cfg(feature = "tables")]
mod cells;
#[cfg(feature = "tables")]
mod columns;
#[cfg(feature = "tables")]
mod csv;
mod data_format;
#[cfg(feature = "tables")]
mod extension;
#[cfg(feature = "tables")]
mod json;
#[cfg(feature = "tables")]
mod labels;
#[cfg(feature = "tables")]
mod sample_buffer;
#[cfg(feature = "tables")]
mod scan;
#[cfg(feature = "tables")]
#[allow(clippy::module_inception)]
mod source;
#[cfg(feature = "tables")]
mod syntax;
#[cfg(feature = "tables")]
mod text;

pub(crate) use data_format::DATA_FORMAT;
#[cfg(feature = "tables")]
pub use source::Table;
