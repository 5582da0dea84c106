//! Reads samples from shards.
//!
//! Every range of an [`Index`] lies inside its shard: `scan` and `sidecar` check it against the
//! length of the shard.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;

use super::index::Index;
use super::manifest::check_samples;
use super::{index, shards, sidecar, stored};
use crate::error::{Error, Result, counted};
use crate::source::ahead::{AHEAD, Parts, Remote, identity};
use crate::source::bytes::{Medium, room};
use crate::source::hash::Hash;
use crate::source::medium::{Held, HeldFile, are_unchanged};
use crate::source::parallel::in_parallel;
use crate::source::sample::MAX_FIELDS;
use crate::source::{Follow, Lookahead, Object, Sample, Source};
use crate::trace::NetworkStats;

/// Minimum size of a shard whose index is kept. The headers of a shard of some megabytes are read
/// fast here, but not from a store, to which the shard may be copied with its index.
const KEEP_INDEX: u64 = 1 << 20;

/// Samples in tar files, by WebDataset's rules. Fields borrow from the memory map without copying.
///
/// - **Fields.** Neighbouring files that share a path up to the first dot of the base name are one
///   sample: `n014/x.jpg` and `n014/x.cls` have the key `n014/x` and the fields `jpg` and `cls`.
///   Field names are in lower case, `jpg` for both of JPEG's extensions.
/// - **Labels** are decimal text in the field `cls`. The **names of the classes** are a JSON array
///   in the member `__classes__`; WebDataset ignores members of this form. All shards that have it
///   must agree.
/// - **Formats.** POSIX (ustar and PAX) and GNU tar, uncompressed. Folders, hidden files and files
///   without an extension are ignored.
/// - **Links**, hard and symbolic, are the files of the same shard that they lead to. Other links
///   are left out, and a warning counts them.
/// - **Bad samples.** A sample with a repeated field, or with more than 16 fields, is an error when
///   it is read. Other samples are not affected.
///
/// **Changes.** The first worker that reads from a shard in an epoch checks whether the file has
/// changed. If so, every sample of the shard is an error from then on. A shard that no epoch reads
/// from is never checked. If there are more than 64 shards, or they are in a store, the batches
/// that were prepared before an epoch was requested are not checked again then.
///
/// **The index.** Opening reads the headers of all shards in parallel. For a shard of 1 MiB or more,
/// the result is stored in `NAME.tar.index` next to it, if the folder is writable. It is rebuilt
/// when the tar's size or modification time changes, and can be deleted at any time.
///
/// **Mapped or not.** [`open`](Tar::open) maps all shards. That takes address space, not memory. No
/// file stays open, so ten thousand shards do not reach the limit on open files. On Linux 5.14 and
/// newer, reading a sample detects a shard that was truncated before. Truncating a shard while a
/// sample from it is in use kills the process with `SIGBUS`, as does an I/O error on a mapped page.
/// Use [`open_unmapped`](Tar::open_unmapped) for files that may be truncated: it reads instead.
pub struct Tar {
    set: Arc<Set>,
    classes: Vec<String>,
    /// Number of requested checks.
    looks: AtomicU64,
    /// The store of all shards, if they are in one.
    remote: Option<Remote>,
}

struct Set {
    shards: Vec<Shard>,
    /// Index of the first sample of each shard, then the total number.
    starts: Vec<usize>,
}

struct Shard {
    file: HeldFile,
    index: Index,
}

impl Tar {
    /// Opens one tar file, all `*.tar` of a folder in the order of their names, the shards of a
    /// manifest, or those of a pattern such as `train-{000..099}.tar`. A pattern may have several
    /// braces, also `{a,b}`. If a folder has a manifest, only the shards in it are opened.
    ///
    /// # Errors
    /// If a shard does not exist, is not a tar file, is damaged (with the offset) or differs from
    /// its manifest, or there are no samples. For a folder also if it has several sets, tars that
    /// do not belong to its set, or parts that were not merged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::with(path.as_ref(), true)
    }

    /// Opens shards like [`open`](Tar::open), but without a memory map. Samples are read into the
    /// worker's memory. If the file is truncated or the medium fails, the sample is an error and
    /// the process gets no signal. Use it for network file systems, failing media, and files that
    /// others may truncate.
    ///
    /// Each field costs a copy of its encoded bytes and a system call. If the file is in memory,
    /// this takes about as long as the page faults of a map. Each shard stays open: for thousands
    /// of shards, raise the limit (`ulimit -n`).
    ///
    /// # Errors
    /// The errors of [`open`](Tar::open).
    pub fn open_unmapped(path: impl AsRef<Path>) -> Result<Self> {
        Self::with(path.as_ref(), false)
    }

    /// Opens the shards at `url` in a store: one shard, a pattern, or all objects below `url` that
    /// end in `.tar`. These are taken from `listing`, if it is known.
    ///
    /// # Errors
    /// The errors of [`open`](Tar::open).
    pub(in crate::source) fn in_store(url: &str, remote: Remote, listing: Option<Vec<Object>>) -> Result<Self> {
        let opened = stored::open(url, &remote, listing)?;
        if opened.is_empty() {
            return Err(Error::in_source("no .tar objects below this URL").at_path(url));
        }
        let shards =
            opened.into_iter().map(|stored::Opened { object, index }| Shard { file: HeldFile::stored(object), index });
        Self::from_shards(Path::new(url), shards.collect(), Some(remote))
    }

    /// Opens the shards of `path`, in their order.
    fn with(path: &Path, mapped: bool) -> Result<Self> {
        let shards = in_parallel(&shards::expand(path)?, |(path, entry)| {
            let shard = Shard::open(path, mapped)?;
            entry
                .as_ref()
                .map_or(Ok(()), |entry| check_samples(entry, shard.index.len()))
                .map_err(|e| e.at_path(path))?;
            Ok(shard)
        })?;
        Self::from_shards(path, shards, None)
    }

    fn from_shards(path: &Path, shards: Vec<Shard>, remote: Option<Remote>) -> Result<Self> {
        let mut starts = vec![0];
        let mut named: Option<&Shard> = None;
        for shard in &shards {
            starts.push(starts[starts.len() - 1] + shard.index.len());
            if !shard.index.classes.is_empty() {
                let first = named.get_or_insert(shard);
                if first.index.classes != shard.index.classes {
                    let cause = format!("names of the classes differ from those in {}", first.file.path.display());
                    return Err(Error::in_source(cause).at_path(&shard.file.path));
                }
            }
        }
        if let Some(first) = shards.iter().find(|shard| shard.index.lost.count > 0) {
            let lost = counted(shards.iter().map(|shard| shard.index.lost.count).sum::<u64>(), "link", "links");
            let (path, shard) = (&first.index.lost.first, first.file.path.display());
            tracing::warn!(
                "left out {lost} to files that are not in the same tar, such as {path} in {shard}; write the files \
                 themselves (tar --dereference --hard-dereference)"
            );
        }
        let classes = named.map_or_else(Vec::new, |shard| shard.index.classes.clone());
        let set = Arc::new(Set { shards, starts });
        let tar = Tar { set, classes, looks: AtomicU64::new(0), remote };
        if tar.is_empty() {
            let shards = tar.set.shards.len();
            let cause = format!("no samples in {shards} tar files: none holds a file with an extension");
            return Err(Error::in_source(cause).at_path(path));
        }
        Ok(tar)
    }
}

impl Shard {
    fn open(path: &Path, mapped: bool) -> Result<Self> {
        let (file, metadata) = HeldFile::open(path, mapped)?;
        let len = file.held.bytes().len();
        let index = match sidecar::load(path, &metadata) {
            // The file may have changed before it was mapped. Only the bytes in the map can be
            // read.
            Some(index) if metadata.len() == len => index,
            _ => {
                let index = scan(&file.held, path)?;
                if len >= KEEP_INDEX
                    && let Err(e) = sidecar::store(path, &metadata, &index)
                {
                    tracing::debug!("{}: cannot store the index: {e}", path.display());
                }
                index
            }
        };
        Ok(Shard { file, index })
    }

    /// Adds `fields` of the map to `sample`.
    ///
    /// # Errors
    /// If a field is repeated, there are too many, or the bytes cannot be loaded.
    fn map<'a>(&'a self, map: &'a [u8], fields: &'a [index::Field], sample: &mut Sample<'a>) -> Result<()> {
        for field in fields {
            let bytes = &map[field.offset() as usize..][..field.len() as usize];
            sample.push(&self.index.names[field.name()], bytes)?;
        }
        // The files of a sample are adjacent, so one request loads all of them. Targets of links
        // lie elsewhere.
        let mut own = fields.iter().filter(|field| !field.is_linked());
        let first = own.next();
        if let (Some(first), Some(last)) = (first, own.next_back().or(first))
            && let Some(all) = map.get(first.offset() as usize..last.end() as usize)
        {
            self.file.load(all, last.end())?;
        }
        for field in fields.iter().filter(|field| field.is_linked()) {
            self.file.load(&map[field.offset() as usize..][..field.len() as usize], field.end())?;
        }
        Ok(())
    }

    /// Reads `fields` into `scratch`, one after the other, and adds them to `sample`.
    fn read<'a>(
        &'a self,
        medium: &dyn Medium,
        fields: &'a [index::Field],
        scratch: &'a mut Vec<u8>,
        sample: &mut Sample<'a>,
    ) -> Result<()> {
        // The label is not a field. A sample with more fields is an error and need not be read.
        if fields.len() > MAX_FIELDS + 1 {
            return Err(Error::in_source(format!("more than {MAX_FIELDS} fields: {}", fields.len())));
        }
        let total = fields.iter().fold(0u64, |sum, field| sum.saturating_add(field.len()));
        let buffer = room(scratch, total)?;
        {
            let mut ranges = ArrayVec::<_, { MAX_FIELDS + 1 }>::new();
            let mut rest = &mut *buffer;
            for field in fields {
                let (bytes, after) = rest.split_at_mut(field.len() as usize);
                ranges.push((field.offset(), bytes));
                rest = after;
            }
            medium.read_ranges(&mut ranges)?;
        }
        let mut rest = &*buffer;
        for field in fields {
            let (bytes, after) = rest.split_at(field.len() as usize);
            sample.push(&self.index.names[field.name()], bytes)?;
            rest = after;
        }
        Ok(())
    }
}

impl Set {
    fn len(&self) -> usize {
        self.starts[self.shards.len()]
    }

    /// The number of the shard that sample `index` is in, the sample's key and its fields.
    fn locate(&self, index: usize) -> (usize, &str, &[index::Field]) {
        assert!(index < self.len(), "sample {index} of {}", self.len());
        // An empty shard starts where the next one does, so the last shard that starts at or before
        // `index` is not empty.
        let number = self.starts.partition_point(|&start| start <= index) - 1;
        let (key, fields) = self.shards[number].index.sample(index - self.starts[number]);
        (number, key, fields)
    }
}

impl Parts for Set {
    fn part(&self, sample: u64) -> Option<(u32, Range<u64>)> {
        let (number, _, fields) = self.locate(sample as usize);
        Some((u32::try_from(number).ok()?, stored::span(fields)))
    }

    fn object(&self, number: u32) -> &Object {
        self.shards[number as usize].file.object()
    }

    fn identity(&self) -> u64 {
        identity((0..self.shards.len() as u32).map(|shard| self.object(shard)))
    }
}

impl Tar {
    /// The shard that sample `index` is in, the sample's key and its fields.
    fn locate(&self, index: usize) -> (&Shard, &str, &[index::Field]) {
        let (number, key, fields) = self.set.locate(index);
        (&self.set.shards[number], key, fields)
    }

    /// Reads `fields` of sample `index` of `shard` into `sample`.
    fn fields<'a>(
        &'a self,
        index: usize,
        shard: &'a Shard,
        fields: &'a [index::Field],
        scratch: &'a mut Vec<u8>,
        sample: &mut Sample<'a>,
    ) -> Result<()> {
        match (&shard.file.held, &self.remote) {
            (Held::Map { map, .. }, _) => shard.map(map, fields, sample),
            (Held::Read(medium), _) => shard.read(&**medium, fields, scratch, sample),
            (Held::Stored(object), Some(remote)) => {
                stored::read(remote, index, object, &shard.index.names, fields, scratch, sample)
            }
            (Held::Stored(_), None) => unreachable!("a shard in a store has one"),
        }
        .map_err(|e| e.at_path(&shard.file.path))
    }
}

impl Source for Tar {
    fn len(&self) -> usize {
        self.set.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let (shard, key, fields) = self.locate(index);
        shard.file.look(self.looks.load(Ordering::Relaxed))?;
        let mut sample = Sample::new(key);
        self.fields(index, shard, fields, scratch, &mut sample)?;
        Ok(sample)
    }

    fn follow(&self, order: Lookahead) -> Option<Box<dyn Follow>> {
        self.remote.as_ref()?.follow(order, self.set.clone())
    }

    fn network(&self) -> Option<NetworkStats> {
        self.remote.as_ref().map(Remote::network)
    }

    fn ahead_bytes(&self) -> usize {
        // More than the whole set would hold the same bytes twice.
        let all = || (0..self.set.shards.len() as u32).map(|shard| self.set.object(shard).len).sum::<u64>();
        self.remote.as_ref().map_or(0, |_| usize::try_from(all()).map_or(AHEAD, |all| all.min(AHEAD)))
    }

    fn check(&self) -> Result<()> {
        // Checking every shard here would delay the epoch by seconds for 10,000 shards on a
        // network.
        self.looks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn is_unchanged(&self) -> bool {
        are_unchanged(self.set.shards.iter().map(|shard| &shard.file), self.looks.load(Ordering::Relaxed))
    }

    fn label(&self, index: usize, scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        let (shard, key, fields) = self.locate(index);
        let Some(place) = fields.iter().position(|field| shard.index.names[field.name()] == "cls") else {
            return Ok(None);
        };
        let (cls, mut sample) = (&fields[place..=place], Sample::new(""));
        match (&shard.file.held, &self.remote) {
            // Not a read of the order, whose bytes are fetched ahead.
            (Held::Stored(object), Some(remote)) => {
                let (span, field) = (stored::span(cls), &cls[0]);
                let bytes = room(scratch, span.end - span.start)?;
                remote.direct(object, span.start, bytes)?;
                let name = &shard.index.names[field.name()];
                stored::checked(bytes, span.start, key, name, field).and_then(|cls| sample.push(name, cls))
            }
            _ => self.fields(index, shard, cls, scratch, &mut sample),
        }
        .and_then(|()| sample.label())
        .map_err(|e| e.at_path(&shard.file.path))
    }

    fn key(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<String> {
        Ok(self.locate(index).1.to_owned())
    }

    fn fingerprint(&self) -> Option<u64> {
        let add = |hash: Hash, shard: &Shard| hash.number(shard.index.hash());
        Some(self.set.shards.iter().fold(Hash::new(), add).end())
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        Some(self.locate(index).0.file.path.clone())
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn kind(&self) -> &'static str {
        "tar"
    }
}

/// Reads the headers of a shard.
fn scan(held: &Held, path: &Path) -> Result<Index> {
    let bytes = held.bytes();
    if bytes.len() >= 2 && bytes.get(0, 2, &mut Vec::new())? == [0x1f, 0x8b] {
        return Err(
            Error::in_source("compressed with gzip; only an uncompressed tar can be read at random").at_path(path)
        );
    }
    Index::scan(&*bytes).map_err(|e| e.at_path(path))
}

impl std::fmt::Debug for Tar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tar").field("shards", &self.set.shards.len()).field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
