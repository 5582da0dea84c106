//! [`RowSource`]: a source for formats with samples that follow each other in a file and share
//! typed columns. A format only has to implement [`Layout`], which finds the columns in a sample's
//! bytes.

use std::ops::Range;
use std::path::Path;

use arrayvec::ArrayVec;

use super::sample_files::{MAX_COLUMNS, ReadRow, Row, SampleFiles, SampleSpans};
use crate::error::{Error, Result, counted};
use crate::machine::parallel::{STORE_THREADS, in_parallel_on};
use crate::model::{Lookahead, Prefetcher, Sample, Source};
use crate::options::Options;
use crate::storage::delegate_to_files;
use crate::values::pixels::{self, Candidate, Channels, Colors};
use crate::values::record::{Cell, Column, ColumnType, ColumnValue, Columns};

/// Byte ranges of the columns in a sample.
pub(crate) type ColumnRanges = ArrayVec<Range<usize>, MAX_COLUMNS>;

/// Finds the byte ranges of the columns in a sample of `len` bytes, given the `head` of the sample.
/// A sample starts with the lengths of its variable-length columns, as 32-bit numbers, followed by
/// the values of all columns. `columns` yields the name of each column, and its length in bytes if
/// the length is fixed. The last column must end at `len`.
pub(crate) fn column_ranges<'n>(
    columns: impl Iterator<Item = (&'n str, Option<usize>)> + Clone,
    head: &[u8],
    len: usize,
) -> Result<ColumnRanges> {
    let mut lengths = head.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word) as usize);
    let (mut ranges, mut start) =
        (ColumnRanges::new(), 4 * columns.clone().filter(|column| column.1.is_none()).count());
    for (name, size) in columns {
        let size = size.or_else(|| lengths.next());
        let end = size.and_then(|size| start.checked_add(size)).filter(|&end| end <= len).ok_or_else(|| {
            let size = size.map_or("a missing length".to_owned(), |size| counted(size, "byte", "bytes"));
            Error::in_source(format!("column {name:?} has {size} at byte {start}, but the sample has {len} bytes"))
        })?;
        ranges.push(start..end);
        start = end;
    }
    if start != len {
        return Err(Error::in_source(format!("the columns have {start} bytes, but the sample has {len}")));
    }
    Ok(ranges)
}

/// How samples store their columns.
pub(crate) trait Layout: Send + Sync {
    const KIND: &'static str;

    fn names(&self) -> &[String];

    /// Returns the number of leading bytes of a sample that suffice to find its columns.
    fn head_len(&self) -> usize;

    /// Returns the byte range of each column in sample `row`, which has `len` bytes and starts with
    /// `head`. Fails if a column extends past the end of the sample.
    fn column_ranges(&self, row: usize, head: &[u8], len: usize) -> Result<ColumnRanges>;

    /// Returns the type of a column. `first` reads the column's value in the first sample.
    fn column_type(&self, column: usize, first: &mut dyn FnMut() -> Result<Vec<u8>>) -> Result<ColumnType>;

    /// Decodes `bytes`, the value of `column` in sample `row`. Numbers are little-endian. Appends
    /// converted bytes to `buffer`.
    fn decode<'a>(&self, row: usize, column: usize, bytes: &'a [u8], buffer: &mut Vec<u8>) -> Result<ColumnValue<'a>>;
}

pub(crate) struct RowSource<L> {
    sample_files: SampleFiles,
    layout: L,
    columns: Columns,
    /// The image column, if it contains pixel arrays rather than encoded images.
    pixels: Option<(usize, Channels)>,
}

impl<L: Layout> RowSource<L> {
    /// `path` is the path of the dataset, for messages.
    pub(crate) fn new(path: &Path, sample_files: SampleFiles, layout: L, options: &Options) -> Result<Self> {
        Self::open(sample_files, layout, options).map_err(|e| e.at_path(path))
    }

    fn open(sample_files: SampleFiles, layout: L, options: &Options) -> Result<Self> {
        if sample_files.len() == 0 {
            return Err(Error::in_source(format!(
                "no samples in {}",
                counted(sample_files.files.entries().len(), "file", "files")
            )));
        }
        if layout.names().len() > MAX_COLUMNS {
            let columns = layout.names().len();
            return Err(Error::in_source(format!(
                "the dataset has {columns} columns; at most {MAX_COLUMNS} are supported"
            )));
        }
        if cfg!(target_endian = "big") {
            return Err(Error::in_source(
                "the data is little-endian, which is not supported on this big-endian machine",
            ));
        }
        let choice = options.column_choice();
        let is_named =
            |name: &String| [&choice.image, &choice.label].iter().any(|selected| selected.as_ref() == Some(name));
        let is_selected =
            |name: &String| is_named(name) || choice.columns.as_ref().is_none_or(|names| names.contains(name));
        let mut scratch = Vec::new();
        let mut column = |(column, name): (usize, &String)| {
            let mut first = || column_bytes(&sample_files, &layout, 0, column, &mut scratch).map(<[u8]>::to_vec);
            match layout.column_type(column, &mut first) {
                Ok(column_type) => Ok(Column::new(name, column_type)),
                Err(e) if is_selected(name) => Err(e),
                // Ignore the error, because an unused column may have an unsupported encoding.
                Err(_) => Ok(Column::new(name, ColumnType::Bytes)),
            }
        };
        let mut all_columns = layout.names().iter().enumerate().map(&mut column).collect::<Result<Vec<_>>>()?;
        let has_encoded_images = all_columns.iter().any(|column| column.column_type == ColumnType::Images);
        let pixels = match (has_encoded_images, choice.image.as_deref()) {
            (true, None) => None,
            (_, requested) => pixels::choose_image(&array_columns(&sample_files, &layout, &all_columns), requested)?,
        };
        if let Some((column, _)) = pixels {
            all_columns[column].column_type = ColumnType::Images;
        }
        let mut columns = Columns::new(&all_columns, &choice)?;
        if let Some(label) = columns.label().filter(|&label| all_columns[label].column_type == ColumnType::Text) {
            let text = |row: usize, visit: &mut dyn FnMut(&str)| {
                with_cell(&sample_files, &layout, row, label, &mut Vec::new(), |cell| {
                    if let Cell::Text(text) = cell {
                        visit(text);
                    }
                    Ok(())
                })
            };
            columns.learn_labels(options.classes.as_ref(), options.defer_unknown_classes, |visit| {
                if sample_files.files.remote().is_none() {
                    return (0..sample_files.len()).try_for_each(|row| text(row, &mut |text| visit(row, text)));
                }
                // Start many threads, because they mostly wait for responses from the store.
                let texts = in_parallel_on(STORE_THREADS, &(0..sample_files.len()).collect::<Vec<_>>(), |&row| {
                    let mut content = None;
                    text(row, &mut |text| content = Some(text.to_owned())).map(|()| content)
                })?;
                let texts = texts.into_iter().enumerate();
                texts.for_each(|(row, text)| text.iter().for_each(|text| visit(row, text)));
                Ok(())
            })?;
        }
        Ok(RowSource { sample_files, layout, columns, pixels })
    }

    /// Parses `sample_bytes`, the bytes of sample `index`, and appends converted bytes to `buffer`.
    /// Unused columns are null.
    fn row<'i>(&self, index: usize, sample_bytes: &'i [u8], buffer: &mut Vec<u8>) -> Result<Row<'i>> {
        let names = self.layout.names();
        let ranges = self.layout.column_ranges(
            index,
            &sample_bytes[..sample_bytes.len().min(self.layout.head_len())],
            sample_bytes.len(),
        )?;
        let mut decode = |column: usize, bytes: &'i [u8]| {
            if !self.columns.uses(column) {
                return Ok(ColumnValue::Null);
            }
            let content = self.layout.decode(index, column, bytes, buffer)?;
            match self.pixels {
                Some((pixels, channels)) if pixels == column => content.into_image(channels, Colors::Rgb, buffer),
                _ => Ok(content),
            }
        };
        let decode_named = |(column, range): (usize, Range<usize>)| {
            let bytes = sample_bytes.get(range).ok_or_else(|| Error::in_source("its bytes are missing"));
            bytes.and_then(|bytes| decode(column, bytes)).map_err(|e| column_error(e, &names[column]))
        };
        ranges.into_iter().enumerate().map(decode_named).collect()
    }
}

/// Maximum number of samples that opening examines to find the columns with pixel arrays. It stops
/// at the first undamaged sample.
const MAX_EXAMINED_SAMPLES: usize = 64;

/// Returns the columns that contain arrays, with the shapes in the first undamaged sample.
fn array_columns<L: Layout>(sample_files: &SampleFiles, layout: &L, columns: &[Column]) -> Vec<Candidate> {
    let (mut scratch, mut buffer) = (Vec::new(), Vec::new());
    let mut candidates_in = |row: usize| {
        let mut candidates = Vec::new();
        for (index, column) in
            columns.iter().enumerate().filter(|(_, column)| column.column_type == ColumnType::Numbers)
        {
            let bytes = column_bytes(sample_files, layout, row, index, &mut scratch)?;
            buffer.clear();
            if let ColumnValue::Numbers { element, shape, .. } = layout.decode(row, index, bytes, &mut buffer)? {
                candidates.push(Candidate { column: index, name: column.name.clone(), element, shape: shape.to_vec() });
            }
        }
        Ok::<_, Error>(candidates)
    };
    (0..sample_files.len().min(MAX_EXAMINED_SAMPLES)).find_map(|row| candidates_in(row).ok()).unwrap_or_default()
}

/// Number of leading bytes of a sample that are read from a store to find a column. Most labels are
/// within these bytes and need no second request.
const STORE_HEAD_BYTES: u64 = 4096;

fn column_bytes<'a, L: Layout>(
    sample_files: &'a SampleFiles,
    layout: &L,
    row: usize,
    column: usize,
    scratch: &'a mut Vec<u8>,
) -> Result<&'a [u8]> {
    let (len, head) = (sample_files.len_of(row), layout.head_len());
    let is_stored = sample_files.files.remote().is_some();
    let head_bytes =
        sample_files.peek(row, 0..if is_stored { STORE_HEAD_BYTES.max(head as u64) } else { head as u64 }, scratch)?;
    let read_len = head_bytes.len();
    let ranges = layout
        .column_ranges(row, &head_bytes[..head.min(read_len)], len)
        .map_err(|e| e.at_path(sample_files.path(row)))?;
    let range = ranges[column].clone();
    if is_stored && range.end <= read_len {
        return Ok(&scratch[range]);
    }
    sample_files.peek(row, range.start as u64..range.end as u64, scratch)
}

fn with_cell<L: Layout, T>(
    sample_files: &SampleFiles,
    layout: &L,
    row: usize,
    column: usize,
    scratch: &mut Vec<u8>,
    f: impl FnOnce(Cell<'_>) -> Result<T>,
) -> Result<T> {
    let (bytes, mut buffer) = (column_bytes(sample_files, layout, row, column, scratch)?, Vec::new());
    let content = layout.decode(row, column, bytes, &mut buffer);
    let name_column = |e| column_error(e, &layout.names()[column]);
    content
        .and_then(|content| content.cell(&buffer).map_err(name_column).and_then(f))
        .map_err(|e| e.at_path(sample_files.path(row)))
}

impl<L: Layout> Source for RowSource<L> {
    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let names = self.layout.names();
        let ReadRow { key, row, page } =
            self.sample_files.read(index, scratch, |sample_bytes, buffer| self.row(index, sample_bytes, buffer))?;
        self.columns
            .sample(key, |column| row[column].cell(page).map_err(|e| column_error(e, &names[column])))
            .map_err(|e| e.at_path(self.sample_files.path(index)))
    }

    fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        self.sample_files.files.prefetcher(order, SampleSpans::span)
    }

    delegate_to_files!(sample_files.files);

    fn verify(&self, samples: Range<usize>, on_error: &mut dyn FnMut(Error)) {
        self.sample_files.verify(samples, on_error);
    }

    fn label(&self, index: usize, scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        let Some(label) = self.columns.label() else { return Ok(None) };
        let label_of =
            |cell: Cell<'_>| self.columns.label_of(cell).map_err(|e| e.at_path(self.sample_files.path(index)));
        with_cell(&self.sample_files, &self.layout, index, label, scratch, label_of)
    }

    fn fields(&self) -> Option<Vec<String>> {
        Some(self.columns.field_names())
    }

    fn classes(&self) -> &[String] {
        self.columns.classes()
    }

    fn kind(&self) -> &'static str {
        L::KIND
    }
}

fn column_error(error: Error, column: &str) -> Error {
    Error::new(error.kind(), format!("column {column:?}: {}", error.cause()))
}
