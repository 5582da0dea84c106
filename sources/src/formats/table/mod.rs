//! Reads CSV, TSV and JSON Lines tables. Each row is a sample.

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
