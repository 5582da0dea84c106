use std::cell::Cell;
use std::io::Write as _;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;

use super::Checksum;
use crate::error::{Error, Result};
use crate::source::ahead::{AHEAD, Parts, Remote, identity};
use crate::source::bytes::room;
use crate::source::medium::{Held, HeldFile, are_unchanged};
use crate::source::record::Found;
use crate::source::{Follow, Lookahead, Object};
use crate::trace::NetworkStats;

/// Maximum number of columns of a data set.
pub(super) const MAX_COLUMNS: usize = 64;

/// The values of the columns of a sample.
pub(super) type Row<'a> = ArrayVec<Found<'a>, MAX_COLUMNS>;

/// The files of a data set, and the place of each sample in them.
pub(in crate::source) struct Items {
    set: Arc<Set>,
    /// Number of requested checks.
    looks: AtomicU64,
    /// The store of all files, if they are in one.
    remote: Option<Remote>,
    /// The hash of each file, if the index has them.
    checksums: Vec<Option<Checksum>>,
}

struct Set {
    files: Vec<ItemFile>,
    /// Number of the first sample of each file, then the total number.
    starts: Vec<usize>,
}

struct ItemFile {
    file: HeldFile,
    samples: Samples,
}

/// The places of the samples of a file.
pub(in crate::source) enum Samples {
    /// Start of each sample, then the end of the last.
    Offsets(Vec<u64>),
    /// Start and end of each sample.
    Spans(Vec<(u64, u64)>),
}

impl Samples {
    /// Their number, if all lie inside a file of `len` bytes.
    fn checked(&self, len: u64) -> Option<usize> {
        match self {
            Samples::Offsets(offsets) => {
                let sound = offsets.is_sorted() && offsets.last().is_some_and(|&end| end <= len);
                offsets.len().checked_sub(1).filter(|_| sound)
            }
            Samples::Spans(spans) => {
                spans.iter().all(|&(start, end)| start <= end && end <= len).then_some(spans.len())
            }
        }
    }

    fn span(&self, place: usize) -> Range<u64> {
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
    pub(in crate::source) fn new(files: Vec<(HeldFile, Samples)>, remote: Option<Remote>) -> Result<Self> {
        let mut starts = vec![0];
        for (file, samples) in &files {
            let len = file.len();
            let Some(samples) = samples.checked(len) else {
                let cause = format!("the places of its samples are not in ascending order inside its {len} bytes");
                return Err(Error::in_source(cause).at_path(&file.path));
            };
            starts.push(starts[starts.len() - 1] + samples);
        }
        let files = files.into_iter().map(|(file, samples)| ItemFile { file, samples }).collect();
        Ok(Items { set: Arc::new(Set { files, starts }), looks: AtomicU64::new(0), remote, checksums: Vec::new() })
    }

    /// The same with the hash of each file.
    pub(in crate::source) fn with_checksums(self, checksums: Vec<Option<Checksum>>) -> Self {
        Items { checksums, ..self }
    }

    /// Checks the hashes of the files that begin in `samples`.
    pub(in crate::source) fn verify(&self, samples: Range<usize>, found: &mut dyn FnMut(Error)) {
        let files = self.set.files.iter().zip(&self.set.starts).zip(&self.checksums);
        let chosen = files.filter(|((_, start), _)| samples.contains(start));
        let chosen = chosen.filter_map(|((file, _), sum)| Some((&file.file, sum.as_ref()?)));
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

    pub(in crate::source) fn len(&self) -> usize {
        self.set.starts[self.set.files.len()]
    }

    /// Number of files.
    pub(in crate::source) fn files(&self) -> usize {
        self.set.files.len()
    }

    /// The file of sample `index`.
    pub(in crate::source) fn path(&self, index: usize) -> &Path {
        &self.set.files[self.set.locate(index).0].file.path
    }

    /// Bytes of sample `index`.
    pub(in crate::source) fn len_of(&self, index: usize) -> usize {
        let span = self.set.locate(index).1;
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
        let (file, span) = self.open(index)?;
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
        match (&file.held, &self.remote) {
            (Held::Map { map, .. }, _) => {
                let item = &map[span.start as usize..span.end as usize];
                file.load(item, span.end)?;
                let key = begin(scratch, index);
                return Ok((parse(item, scratch)?, key));
            }
            (Held::Read(medium), _) => medium.read_ranges(&mut [(span.start, room(scratch, len as u64)?)])?,
            (Held::Stored(object), Some(remote)) => _ = remote.read(index as u64, object, span, scratch)?,
            (Held::Stored(_), None) => unreachable!("a file in a store has one"),
        }
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
    pub(in crate::source) fn peek<'a>(
        &'a self,
        index: usize,
        within: Range<u64>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        let (file, span) = self.open(index)?;
        let at = |offset: u64| span.start.saturating_add(offset).min(span.end);
        let (start, end) = (at(within.start), at(within.end.max(within.start)));
        let at_path = |e: Error| e.at_path(&file.path);
        if let Held::Map { map, .. } = &file.held {
            let bytes = &map[start as usize..end as usize];
            return file.load(bytes, end).map(|()| bytes).map_err(at_path);
        }
        let to = room(scratch, end - start).map_err(at_path)?;
        match (&file.held, &self.remote) {
            (Held::Read(medium), _) => medium.read_ranges(&mut [(start, &mut *to)]),
            (Held::Stored(object), Some(remote)) => remote.direct(object, start, to),
            _ => unreachable!("a file in a store has one"),
        }
        .map(|()| &*to)
        .map_err(at_path)
    }

    fn open(&self, index: usize) -> Result<(&HeldFile, Range<u64>)> {
        let (number, span) = self.set.locate(index);
        let file = &self.set.files[number].file;
        file.look(self.looks.load(Ordering::Relaxed))?;
        Ok((file, span))
    }

    pub(in crate::source) fn follow(&self, order: Lookahead) -> Option<Box<dyn Follow>> {
        self.remote.as_ref()?.follow(order, self.set.clone())
    }

    pub(in crate::source) fn network(&self) -> Option<NetworkStats> {
        self.remote.as_ref().map(Remote::network)
    }

    pub(in crate::source) fn ahead_bytes(&self) -> usize {
        // More than the whole set would hold the same bytes twice.
        let all = || self.set.files.iter().map(|file| file.file.len()).sum::<u64>();
        self.remote.as_ref().map_or(0, |_| usize::try_from(all()).map_or(AHEAD, |all| all.min(AHEAD)))
    }

    /// Asks each file to be checked when it is next read.
    pub(in crate::source) fn check(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::source) fn is_unchanged(&self) -> bool {
        are_unchanged(self.set.files.iter().map(|file| &file.file), self.looks.load(Ordering::Relaxed))
    }
}

impl Set {
    /// The number of the file of sample `index`, and the sample's place in it.
    fn locate(&self, index: usize) -> (usize, Range<u64>) {
        let len = self.starts[self.files.len()];
        assert!(index < len, "sample {index} of {len}");
        // An empty file starts where the next one does, so the last file that starts at or before
        // `index` is not empty.
        let number = self.starts.partition_point(|&start| start <= index) - 1;
        (number, self.files[number].samples.span(index - self.starts[number]))
    }
}

impl Parts for Set {
    fn part(&self, sample: u64) -> Option<(u32, Range<u64>)> {
        let (number, span) = self.locate(sample as usize);
        Some((u32::try_from(number).ok()?, span))
    }

    fn object(&self, number: u32) -> &Object {
        self.files[number as usize].file.object()
    }

    fn identity(&self) -> u64 {
        identity((0..self.files.len() as u32).map(|file| self.object(file)))
    }
}
