//! [`SampleFiles`]: files that contain samples one after the other, and the offsets of the samples.

use std::cell::Cell;
use std::io::Write as _;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrayvec::ArrayVec;

use super::Checksum;
use crate::error::{Error, Result, counted};
use crate::machine::bytes::grow_to;
use crate::storage::{Files, OpenFile};
use crate::values::record::ColumnValue;

pub(super) const MAX_COLUMNS: usize = 64;

/// A sample, with one value per column.
pub(super) type Row<'a> = ArrayVec<ColumnValue<'a>, MAX_COLUMNS>;

/// The files of a dataset, and the offsets of the samples in each file.
pub(crate) struct SampleFiles {
    pub(crate) files: Arc<Files<SampleSpans>>,
    /// Expected hash of each file, or `None` if the index contains no hash.
    checksums: Vec<Option<Checksum>>,
}

pub(crate) enum SampleSpans {
    /// Start offset of each sample, followed by the end offset of the last sample.
    Offsets(Vec<u64>),
    /// Start and end offset of each sample.
    Spans(Vec<(u64, u64)>),
}

impl SampleSpans {
    fn are_inside(&self, len: u64) -> bool {
        match self {
            SampleSpans::Offsets(offsets) => offsets.is_sorted() && offsets.last().is_some_and(|&end| end <= len),
            SampleSpans::Spans(spans) => spans.iter().all(|&(start, end)| start <= end && end <= len),
        }
    }

    fn len(&self) -> usize {
        match self {
            SampleSpans::Offsets(offsets) => offsets.len() - 1,
            SampleSpans::Spans(spans) => spans.len(),
        }
    }

    pub(super) fn span(&self, index: usize) -> Range<u64> {
        match self {
            SampleSpans::Offsets(offsets) => offsets[index]..offsets[index + 1],
            SampleSpans::Spans(spans) => spans[index].0..spans[index].1,
        }
    }
}

pub(super) struct ReadRow<'a> {
    pub(super) key: &'a str,
    pub(super) row: Row<'a>,
    /// The bytes of the row that are not borrowed from the file.
    pub(super) page: &'a [u8],
}

thread_local! {
    /// Bytes that a parser has converted. They are later appended to the scratch buffer, after the
    /// sample.
    static CONVERTED_BYTES: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

fn write_key(page: &mut Vec<u8>, index: usize) -> Range<usize> {
    page.clear();
    write!(page, "{index}").expect("writing to a Vec cannot fail");
    0..page.len()
}

impl SampleFiles {
    /// Fails if the offsets of a sample are out of order or exceed its file.
    pub(crate) fn new(files: Vec<(OpenFile, SampleSpans)>) -> Result<Self> {
        if let Some((file, _)) = files.iter().find(|(file, samples)| !samples.are_inside(file.len())) {
            let len = file.len();
            let cause = format!("the sample offsets are not in ascending order, or exceed the file of {len} bytes");
            return Err(Error::in_source(cause).at_path(&file.path));
        }
        Ok(SampleFiles { files: Arc::new(Files::new(files, SampleSpans::len)?), checksums: Vec::new() })
    }

    pub(crate) fn with_checksums(self, checksums: Vec<Option<Checksum>>) -> Self {
        SampleFiles { checksums, ..self }
    }

    /// Checks the hash of each file that has its first sample in `samples`.
    pub(crate) fn verify(&self, samples: Range<usize>, on_error: &mut dyn FnMut(Error)) {
        let selected_files =
            self.files.entries().zip(&self.checksums).filter(|((.., start), _)| samples.contains(start));
        let selected_files = selected_files.filter_map(|((file, ..), sum)| Some((file, sum.as_ref()?)));
        let (checkable, unknown): (Vec<_>, Vec<_>) = selected_files.partition(|(_, sum)| sum.is_supported());
        if let Some((file, sum)) = unknown.first() {
            tracing::warn!(
                "{}: the index contains only the unsupported hash {}, so {} not verified",
                file.path.display(),
                sum.name,
                counted(unknown.len(), "file is", "files are")
            );
        }
        checkable.into_iter().filter_map(|(file, sum)| sum.check(file).err()).for_each(on_error);
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    pub(crate) fn path(&self, index: usize) -> &Path {
        self.files.path(index)
    }

    pub(crate) fn len_of(&self, index: usize) -> usize {
        let (_, samples, index) = self.files.locate(index);
        let span = samples.span(index);
        (span.end - span.start) as usize
    }

    /// Reads sample `index`. `parse` receives the bytes of the sample, and appends converted bytes
    /// to a buffer.
    pub(super) fn read<'a>(
        &'a self,
        index: usize,
        scratch: &'a mut Vec<u8>,
        parse: impl for<'i> FnOnce(&'i [u8], &mut Vec<u8>) -> Result<Row<'i>>,
    ) -> Result<ReadRow<'a>> {
        let (file, samples, index_in_file) = self.files.open(index)?;
        let span = samples.span(index_in_file);
        let (row, key) = self.row(index, file, span, scratch, parse).map_err(|e| e.at_path(&file.path))?;
        let page: &'a [u8] = scratch;
        Ok(ReadRow { key: std::str::from_utf8(&page[key]).expect("digits"), row, page })
    }

    /// Returns the row, and the range of the key in `scratch`.
    fn row<'a>(
        &'a self,
        index: usize,
        file: &'a OpenFile,
        span: Range<u64>,
        scratch: &mut Vec<u8>,
        parse: impl for<'i> FnOnce(&'i [u8], &mut Vec<u8>) -> Result<Row<'i>>,
    ) -> Result<(Row<'a>, Range<usize>)> {
        let len = (span.end - span.start) as usize;
        if let Some(map) = file.map() {
            let sample_bytes = &map[span.start as usize..span.end as usize];
            file.load(sample_bytes, span.end)?;
            let key = write_key(scratch, index);
            return Ok((parse(sample_bytes, scratch)?, key));
        }
        file.fill_for(index as u64, span.start, grow_to(scratch, len as u64)?)?;
        let mut buffer = CONVERTED_BYTES.take();
        let key = write_key(&mut buffer, index);
        let sample_bytes = &scratch[..len];
        // Append the converted bytes after the sample in the scratch buffer.
        let move_content =
            |content: ColumnValue<'_>| -> ColumnValue<'a> { content.map(|part| part.rebase(sample_bytes, 0, len)) };
        let row = parse(sample_bytes, &mut buffer).map(|row| row.into_iter().map(move_content).collect::<Row<'a>>());
        let appended = grow_to(scratch, (len + buffer.len()) as u64).map(|out| out[len..].copy_from_slice(&buffer));
        CONVERTED_BYTES.set(buffer);
        appended?;
        Ok((row?, len + key.start..len + key.end))
    }

    /// Reads the bytes of sample `index` in `range`, which is relative to the start of the sample
    /// and may exceed its end. Use this function for reads that do not follow the order in which a
    /// loader reads samples.
    pub(crate) fn peek<'a>(&'a self, index: usize, range: Range<u64>, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let (file, samples, index) = self.files.open(index)?;
        let span = samples.span(index);
        let clamp_offset = |offset: u64| span.start.saturating_add(offset).min(span.end);
        let (start, end) = (clamp_offset(range.start), clamp_offset(range.end.max(range.start)));
        file.get(start, end - start, scratch)
    }
}
