use std::cell::Cell;
use std::io::Write as _;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrayvec::ArrayVec;

use super::Checksum;
use crate::error::{Error, Result};
use crate::machine::bytes::room;
use crate::medium::{Files, HeldFile};
use crate::values::record::Found;

/// Maximum number of columns of a dataset.
pub(super) const MAX_COLUMNS: usize = 64;

/// The values of the columns of a sample.
pub(super) type Row<'a> = ArrayVec<Found<'a>, MAX_COLUMNS>;

/// The files of a dataset, and the place of each sample in them.
pub(crate) struct Items {
    pub(crate) files: Arc<Files<Samples>>,
    /// The hash of each file, if the index has them.
    checksums: Vec<Option<Checksum>>,
}

/// The places of the samples of a file.
pub(crate) enum Samples {
    /// Start of each sample, then the end of the last.
    Offsets(Vec<u64>),
    /// Start and end of each sample.
    Spans(Vec<(u64, u64)>),
}

impl Samples {
    /// Whether all lie inside a file of `len` bytes.
    fn are_inside(&self, len: u64) -> bool {
        match self {
            Samples::Offsets(offsets) => offsets.is_sorted() && offsets.last().is_some_and(|&end| end <= len),
            Samples::Spans(spans) => spans.iter().all(|&(start, end)| start <= end && end <= len),
        }
    }

    fn len(&self) -> usize {
        match self {
            Samples::Offsets(offsets) => offsets.len() - 1,
            Samples::Spans(spans) => spans.len(),
        }
    }

    pub(super) fn span(&self, place: usize) -> Range<u64> {
        match self {
            Samples::Offsets(offsets) => offsets[place]..offsets[place + 1],
            Samples::Spans(spans) => spans[place].0..spans[place].1,
        }
    }
}

/// A sample that was read.
pub(super) struct Read<'a> {
    /// The number of the sample.
    pub(super) key: &'a str,
    pub(super) row: Row<'a>,
    /// Bytes of the row that are not borrowed.
    pub(super) page: &'a [u8],
}

thread_local! {
    /// What a parser makes while the scratch memory holds the sample.
    static MADE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Clears a page and writes the key of sample `index` to it. Returns the key's place.
fn begin(page: &mut Vec<u8>, index: usize) -> Range<usize> {
    page.clear();
    write!(page, "{index}").expect("a Vec takes everything");
    0..page.len()
}

impl Items {
    /// Samples in `files`.
    ///
    /// # Errors
    /// If offsets are not in ascending order or leave the file, with the file.
    pub(crate) fn new(files: Vec<(HeldFile, Samples)>) -> Result<Self> {
        if let Some((file, _)) = files.iter().find(|(file, samples)| !samples.are_inside(file.len())) {
            let len = file.len();
            let cause = format!("the places of its samples are not in ascending order inside its {len} bytes");
            return Err(Error::in_source(cause).at_path(&file.path));
        }
        Ok(Items { files: Arc::new(Files::new(files, Samples::len)?), checksums: Vec::new() })
    }

    /// The same with the hash of each file.
    pub(crate) fn with_checksums(self, checksums: Vec<Option<Checksum>>) -> Self {
        Items { checksums, ..self }
    }

    /// Checks the hashes of the files that begin in `samples`.
    pub(crate) fn verify(&self, samples: Range<usize>, found: &mut dyn FnMut(Error)) {
        let chosen = self.files.each().zip(&self.checksums).filter(|((.., start), _)| samples.contains(start));
        let chosen = chosen.filter_map(|((file, ..), sum)| Some((file, sum.as_ref()?)));
        let (known, unknown): (Vec<_>, Vec<_>) = chosen.partition(|(_, sum)| sum.is_known());
        if let Some((file, sum)) = unknown.first() {
            tracing::warn!(
                "{}: the index has no hash of this file that can be computed here, only {}: {} files are not compared",
                file.path.display(),
                sum.name,
                unknown.len()
            );
        }
        known.into_iter().filter_map(|(file, sum)| sum.check(file).err()).for_each(found);
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// The file of sample `index`.
    pub(crate) fn path(&self, index: usize) -> &Path {
        self.files.path(index)
    }

    /// Bytes of sample `index`.
    pub(crate) fn len_of(&self, index: usize) -> usize {
        let (_, samples, place) = self.files.locate(index);
        let span = samples.span(place);
        (span.end - span.start) as usize
    }

    /// Reads sample `index`. `parse` gets its bytes, and appends bytes that it makes from them.
    ///
    /// # Errors
    /// If the file has changed or cannot be read, and those of `parse`, with the file.
    pub(super) fn read<'a>(
        &'a self,
        index: usize,
        scratch: &'a mut Vec<u8>,
        parse: impl for<'i> FnOnce(&'i [u8], &mut Vec<u8>) -> Result<Row<'i>>,
    ) -> Result<Read<'a>> {
        let (file, samples, place) = self.files.open(index)?;
        let span = samples.span(place);
        let (row, key) = self.row(index, file, span, scratch, parse).map_err(|e| e.at_path(&file.path))?;
        let page: &'a [u8] = scratch;
        Ok(Read { key: std::str::from_utf8(&page[key]).expect("digits"), row, page })
    }

    /// The row of sample `index`, and the place of its key.
    fn row<'a>(
        &'a self,
        index: usize,
        file: &'a HeldFile,
        span: Range<u64>,
        scratch: &mut Vec<u8>,
        parse: impl for<'i> FnOnce(&'i [u8], &mut Vec<u8>) -> Result<Row<'i>>,
    ) -> Result<(Row<'a>, Range<usize>)> {
        let len = (span.end - span.start) as usize;
        if let Some(map) = file.map() {
            let item = &map[span.start as usize..span.end as usize];
            file.load(item, span.end)?;
            let key = begin(scratch, index);
            return Ok((parse(item, scratch)?, key));
        }
        file.fill_for(index as u64, span.start, room(scratch, len as u64)?)?;
        let mut made = MADE.take();
        let key = begin(&mut made, index);
        let item = &scratch[..len];
        // The sample stays in the scratch memory, and what was made of it follows there.
        let moved = |found: Found<'_>| -> Found<'a> { found.map(|part| part.moved(item, 0, len)) };
        let row = parse(item, &mut made).map(|row| row.into_iter().map(moved).collect::<Row<'a>>());
        let copied = room(scratch, (len + made.len()) as u64).map(|to| to[len..].copy_from_slice(&made));
        MADE.set(made);
        copied?;
        Ok((row?, len + key.start..len + key.end))
    }

    /// Reads the part `within` of the bytes of sample `index`, or what there is of it. Not a read
    /// of the loader's order, whose bytes are fetched ahead.
    ///
    /// # Errors
    /// If the file has changed or cannot be read, with the file.
    pub(crate) fn peek<'a>(&'a self, index: usize, within: Range<u64>, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let (file, samples, place) = self.files.open(index)?;
        let span = samples.span(place);
        let at = |offset: u64| span.start.saturating_add(offset).min(span.end);
        let (start, end) = (at(within.start), at(within.end.max(within.start)));
        file.get(start, end - start, scratch)
    }
}
