//! Reads samples from shards.
//!
//! Every range of an [`Index`] lies inside its shard: `scan` and `sidecar` check it against the
//! length of the shard.

use std::path::Path;
use std::sync::Arc;

use super::index::{Field, Index};
use super::manifest::check_samples;
use super::{shards, sidecar, stored};
use crate::error::{Error, Result, counted};
use crate::machine::bytes::room;
use crate::machine::hash::Hash;
use crate::machine::parallel::in_parallel;
use crate::medium::{At, Files, HeldFile, Medium, of_files};
use crate::model::sample::MAX_FIELDS;
use crate::model::{Lookahead, Prefetcher, Sample, Source};

/// Minimum size of a shard whose index is kept. The headers of a shard of some megabytes are read
/// fast here, but not from a store, to which the shard may be copied with its index.
const KEEP_INDEX: u64 = 1 << 20;

/// Samples in tar files, by WebDataset's rules. Fields borrow from the memory map without copying.
///
/// - **Fields.** Neighboring files that share a path up to the first dot of the base name are one
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
    shards: Arc<Files<Index>>,
    classes: Vec<String>,
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
        Self::with(&At::here(path.as_ref()))
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
        let at = At { medium: Medium::Machine { mapped: false }, ..At::here(path.as_ref()) };
        Self::with(&at)
    }

    /// Opens the shards that are there, in their order: in a store one shard, a pattern, or all
    /// objects below the URL that end in `.tar`.
    pub(crate) fn with(at: &At) -> Result<Self> {
        let path = &*at.path;
        let shards = match &at.medium {
            Medium::Machine { mapped } => in_parallel(&shards::expand(path)?, |(path, entry)| {
                let (file, index) = open(path, *mapped)?;
                entry
                    .as_ref()
                    .map_or(Ok(()), |entry| check_samples(entry, index.len()))
                    .map_err(|e| e.at_path(path))?;
                Ok((file, index))
            })?,
            Medium::Store { remote, listed } => {
                let opened = stored::open(at.url(), remote, listed)?;
                if opened.is_empty() {
                    return Err(Error::in_source("no .tar objects below this URL").at_path(path));
                }
                opened.into_iter().map(|(object, index)| (HeldFile::stored(object, remote.clone()), index)).collect()
            }
        };
        Self::from_shards(path, shards)
    }

    fn from_shards(path: &Path, shards: Vec<(HeldFile, Index)>) -> Result<Self> {
        let mut named: Option<&(HeldFile, Index)> = None;
        for shard in shards.iter().filter(|(_, index)| !index.classes.is_empty()) {
            let (first, index) = named.get_or_insert(shard);
            if index.classes != shard.1.classes {
                let cause = format!("names of the classes differ from those in {}", first.path.display());
                return Err(Error::in_source(cause).at_path(&shard.0.path));
            }
        }
        if let Some((first, index)) = shards.iter().find(|(_, index)| index.lost.count > 0) {
            let lost = counted(shards.iter().map(|(_, index)| index.lost.count).sum::<u64>(), "link", "links");
            let (path, shard) = (&index.lost.first, first.path.display());
            tracing::warn!(
                "left out {lost} to files that are not in the same tar, such as {path} in {shard}; write the files \
                 themselves (tar --dereference --hard-dereference)"
            );
        }
        let classes = named.map_or_else(Vec::new, |(_, index)| index.classes.clone());
        let tar = Tar { shards: Arc::new(Files::new(shards, Index::len)?), classes };
        if tar.is_empty() {
            let shards = tar.shards.each().len();
            let cause = format!("no samples in {shards} tar files: none holds a file with an extension");
            return Err(Error::in_source(cause).at_path(path));
        }
        Ok(tar)
    }
}

/// Opens the shard at `path`.
fn open(path: &Path, mapped: bool) -> Result<(HeldFile, Index)> {
    let (file, metadata) = HeldFile::open(path, mapped)?;
    let len = file.len();
    let index = match sidecar::load(path, &metadata) {
        // The file may have changed before it was mapped. Only the bytes in the map can be read.
        Some(index) if metadata.len() == len => index,
        _ => {
            let index = Index::scan(&file).map_err(|e| e.at_path(path))?;
            if len >= KEEP_INDEX
                && let Err(e) = sidecar::store(path, &metadata, &index)
            {
                tracing::debug!("{}: cannot store the index: {e}", path.display());
            }
            index
        }
    };
    Ok((file, index))
}

/// Adds `fields` of the map of `file` to `sample`.
///
/// # Errors
/// If a field is repeated, there are too many, or the bytes cannot be loaded.
fn borrow<'a>(
    (file, map): (&HeldFile, &'a [u8]),
    names: &'a [String],
    fields: &[Field],
    sample: &mut Sample<'a>,
) -> Result<()> {
    for field in fields {
        let bytes = &map[field.offset() as usize..][..field.len() as usize];
        sample.push(&names[field.name()], bytes)?;
    }
    // The files of a sample are adjacent, so one request loads all of them. Targets of links lie
    // elsewhere.
    let mut own = fields.iter().filter(|field| !field.is_linked());
    let first = own.next();
    if let (Some(first), Some(last)) = (first, own.next_back().or(first))
        && let Some(all) = map.get(first.offset() as usize..last.end() as usize)
    {
        file.load(all, last.end())?;
    }
    for field in fields.iter().filter(|field| field.is_linked()) {
        file.load(&map[field.offset() as usize..][..field.len() as usize], field.end())?;
    }
    Ok(())
}

/// Reads `fields` of `file` into `scratch`, one after the other, and adds them to `sample`.
fn copy<'a>(
    file: &HeldFile,
    names: &'a [String],
    fields: &[Field],
    scratch: &'a mut Vec<u8>,
    sample: &mut Sample<'a>,
) -> Result<()> {
    let total = fields.iter().fold(0u64, |sum, field| sum.saturating_add(field.len()));
    let mut rest = room(scratch, total)?;
    for field in fields {
        let (bytes, after) = rest.split_at_mut(field.len() as usize);
        file.fill(field.offset(), bytes)?;
        sample.push(&names[field.name()], bytes)?;
        rest = after;
    }
    Ok(())
}

impl Tar {
    /// Reads `fields` of sample `index`, which is in `file`, into `sample`.
    fn fields<'a>(
        &'a self,
        index: usize,
        (file, names): (&'a HeldFile, &'a [String]),
        fields: &'a [Field],
        scratch: &'a mut Vec<u8>,
        sample: &mut Sample<'a>,
    ) -> Result<()> {
        if let Some(map) = file.map() {
            return borrow((file, map), names, fields, sample).map_err(|e| e.at_path(&file.path));
        }
        // The label is not a field. A sample with more fields is an error and need not be read.
        let read = if fields.len() > MAX_FIELDS + 1 {
            Err(Error::in_source(format!("more than {MAX_FIELDS} fields: {}", fields.len())))
        } else if file.object().is_some() {
            stored::read(file, index, names, fields, scratch, sample)
        } else {
            copy(file, names, fields, scratch, sample)
        };
        read.map_err(|e| e.at_path(&file.path))
    }
}

impl Source for Tar {
    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let (file, shard, place) = self.shards.open(index)?;
        let (key, fields) = shard.sample(place);
        let mut sample = Sample::new(key);
        self.fields(index, (file, &shard.names), fields, scratch, &mut sample)?;
        Ok(sample)
    }

    fn follow(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        self.shards.follow(order, |index, place| stored::span(index.sample(place).1))
    }

    of_files!(shards);

    fn label(&self, index: usize, scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        let (file, shard, place) = self.shards.locate(index);
        let (key, fields) = shard.sample(place);
        let Some(place) = fields.iter().position(|field| shard.names[field.name()] == "cls") else {
            return Ok(None);
        };
        let (cls, mut sample) = (&fields[place..=place], Sample::new(""));
        if file.object().is_some() {
            // Not a read of the order, whose bytes are fetched ahead.
            let (span, field) = (stored::span(cls), &cls[0]);
            let bytes = file.get(span.start, span.end - span.start, scratch)?;
            let name = &shard.names[field.name()];
            stored::checked(bytes, span.start, key, name, field).and_then(|cls| sample.push(name, cls))
        } else {
            self.fields(index, (file, &shard.names), cls, scratch, &mut sample)
        }
        .and_then(|()| sample.label())
        .map_err(|e| e.at_path(&file.path))
    }

    fn key(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<String> {
        let (_, shard, place) = self.shards.locate(index);
        Ok(shard.sample(place).0.to_owned())
    }

    fn fingerprint(&self) -> Option<u64> {
        Some(self.shards.each().fold(Hash::default(), |hash, (_, index, _)| hash.number(index.hash())).end())
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn kind(&self) -> &'static str {
        "tar"
    }
}

impl std::fmt::Debug for Tar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tar")
            .field("shards", &self.shards.each().len())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
