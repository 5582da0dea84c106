//! [`Rows`]: reads single values from Parquet files, for formats such as LeRobot that store their
//! data in Parquet files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::file::ParquetFile;
use super::files::SampleRows;
use super::schema::Form;
use super::source::Parquet;
use crate::error::{Error, Result};
use crate::model::{Lookahead, Prefetcher, Source};
use crate::stats::NetworkStats;
use crate::storage::Storage;
use crate::values::record::{ColumnValue, Columns};

/// The rows of Parquet files, numbered across the files. Unlike in [`Parquet`], a row is not a
/// sample: the caller decides which rows and columns a sample needs.
pub(crate) struct Rows(Parquet);

impl Rows {
    /// Opens `files`, which belong to the dataset at `path`. Only columns for which `is_needed`
    /// returns true can be read. Fails if the type of such a column is not supported.
    pub(crate) fn open(
        path: &Path,
        storage: &Storage,
        files: &[PathBuf],
        is_needed: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        let parquet_files = storage.in_parallel(files, |path| ParquetFile::open(storage.open(path)?))?;
        let mut dataset = Parquet::without_columns(path, parquet_files)?;
        let mut columns = Vec::new();
        for (column, field) in dataset.fields.iter().enumerate().filter(|(_, field)| is_needed(&field.name)) {
            if let Form::Unsupported(what) = field.form {
                let cause = format!("column {:?} holds {what}, which are not supported", field.name);
                return Err(Error::in_source(cause).at_path(files.first().map_or(path, |file| file)));
            }
            columns.push(column);
        }
        dataset.columns = Columns::of_indices(columns);
        dataset.prepare()?;
        Ok(Rows(dataset))
    }

    pub(crate) fn select_columns(&self, columns: impl IntoIterator<Item = usize>) -> Result<Self> {
        self.0.with_columns(Columns::of_indices(columns)).map(Rows)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.fields.iter().map(|field| &*field.name)
    }

    pub(crate) fn column_index(&self, name: &str) -> Option<usize> {
        self.names().position(|other| other == name)
    }

    /// Returns the index of the leaf column that stores a column's values, for [`SampleRows`].
    /// Returns `None` if the type of the column is not supported.
    pub(crate) fn leaf_index(&self, column: usize) -> Option<usize> {
        match self.0.fields[column].form {
            Form::Flat(leaf) | Form::File { bytes: leaf, .. } | Form::List { leaf, .. } => Some(leaf.index),
            Form::Unsupported(_) => None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.files.rows()
    }

    /// Iterates over the path and the number of rows of each file.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Path, u64)> {
        let rows = |file: &ParquetFile| file.metadata.file_metadata().num_rows().try_into().unwrap_or(0);
        self.0.files.parquet_files.iter().map(move |file| (&*file.file.path, rows(file)))
    }

    pub(crate) fn path(&self, row: usize) -> &Path {
        &self.0.file_of(row).file.path
    }

    pub(crate) fn check_once(&self, row: usize) -> Result<()> {
        self.0.file_of(row).file.check_once(self.0.files.requested_checks.load(Ordering::Relaxed))
    }

    pub(crate) fn append_value(
        &self,
        row: usize,
        column: usize,
        scratch: &mut Vec<u8>,
    ) -> Result<ColumnValue<'static>> {
        self.0.append_value(row, column, scratch)
    }

    pub(crate) fn read_integer(&self, row: usize, column: usize, scratch: &mut Vec<u8>) -> Result<i64> {
        let start = scratch.len();
        let content = self.append_value(row, column, scratch)?;
        let number = content.cell(scratch).map(|cell| cell.integer());
        scratch.truncate(start);
        number?.ok_or_else(|| self.error(row, column, format_args!("holds {}: expected an integer", content.kind())))
    }

    /// Returns an error with the message "column NAME CAUSE".
    pub(crate) fn error(&self, row: usize, column: usize, cause: impl std::fmt::Display) -> Error {
        let name = self.names().nth(column).unwrap_or_default();
        Error::in_source(format!("column {name:?} {cause}")).at_path(self.path(row))
    }

    pub(crate) fn prefetcher(&self, order: &Lookahead, rows: &Arc<dyn SampleRows>) -> Box<dyn Prefetcher> {
        self.0.row_prefetcher(order, rows)
    }

    pub(crate) fn prefetch_bytes(&self) -> usize {
        self.0.prefetch_bytes()
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.0.check()
    }

    pub(crate) fn is_unchanged(&self) -> bool {
        self.0.is_unchanged()
    }

    pub(crate) fn network_stats(&self) -> Option<NetworkStats> {
        self.0.network_stats()
    }
}
