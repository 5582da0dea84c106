//! [`Tar`]: a source that reads samples from WebDataset shards.
//!
//! Invariant: every range in an [`Index`] is inside its shard. `Index::scan` and `sidecar` check
//! all ranges against the shard's length.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use super::index::{Field, Index};
use super::manifest::check_samples;
use super::sidecar::{self, MIN_INDEXED_BYTES};
use super::{remote, shards};
use crate::error::{Error, Result, counted};
use crate::machine::bytes::grow_to;
use crate::machine::hash::Hash;
use crate::machine::parallel::in_parallel;
use crate::model::sample::MAX_FIELDS;
use crate::model::{Lookahead, Prefetcher, Sample, Source};
use crate::storage::{DatasetLocation, Files, OpenFile, Storage, delegate_to_files};

/// The samples in tar files that follow the rules of WebDataset.
///
/// - **Fields.** Adjacent files with the same path up to the first dot of the base name form a
///   sample: `n014/x.jpg` and `n014/x.cls` form a sample with the key `n014/x` and the fields `jpg`
///   and `cls`. Field names are converted to lower case, and `jpeg` becomes `jpg`.
/// - **Labels** are decimal text in the `cls` field. **Class names** are a JSON array in the member
///   `__classes__`, which WebDataset ignores. All shards that contain this member must list the
///   same names.
/// - **Formats.** Supports uncompressed POSIX (ustar and PAX) and GNU tar files without sparse
///   members. Folders, hidden files and files without an extension, other than `__classes__`, are
///   ignored.
/// - **Links.** A hard or symbolic link to a file in the same shard is read as that file. Other
///   links are ignored, with a warning that states their number.
/// - **Invalid samples.** Reading a sample fails if it has a repeated field, or more than 16 fields
///   in addition to `cls`.
///
/// **Changes.** In each epoch, the first worker that reads from a local shard checks whether the
/// file was modified. If so, this read and all later reads from the shard fail. If the file was
/// replaced or removed, a warning is logged, and reads continue from the open file. Batches may be
/// prepared before their epoch is requested, so the shards are checked again when the epoch starts,
/// unless there are more than 64 shards or they are in an object store.
///
/// **Index.** Opening reads the headers of all shards that have no valid index, in parallel. For
/// shards of 1 MiB or more, it stores the resulting index next to the shard in `NAME.tar.index`, if
/// the folder is writable. The index is rebuilt when the size or the modification time of the tar
/// has changed. You may delete it at any time.
///
/// **Memory maps.** [`open`](Tar::open) maps all shards. A map takes address space, but no memory,
/// and files do not stay open, so even ten thousand shards do not exceed the limit on open files.
/// On Linux 5.14 and newer, reading a sample fails if its shard has been truncated or if an I/O
/// error occurs. However, `SIGBUS` kills the process if this happens while the sample is in use
/// and, on other systems, also while the sample is read. If files may be truncated while they are
/// open, use [`open_unmapped`](Tar::open_unmapped), which copies the data.
pub struct Tar {
    shards: Arc<Files<Index>>,
    classes: Vec<String>,
    selected_fields: Option<Vec<String>>,
}

impl Tar {
    /// Opens a tar file, all `*.tar` files of a folder sorted by name, the shards of a manifest, or
    /// the shards that match a pattern such as `train-{000..099}.tar`. A pattern may contain
    /// several pairs of braces, including lists such as `{a,b}`. If a folder contains a manifest,
    /// only the shards that it lists are opened.
    ///
    /// # Errors
    ///
    /// If a shard does not exist, is not a tar file, is damaged (the message contains the offset)
    /// or differs from its manifest. Also fails if there are no samples, if shards list different
    /// class names, or if a folder contains several sets, unmerged parts, or tar files that do not
    /// belong to its set.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_at(&DatasetLocation::local(path.as_ref()))
    }

    /// Opens shards like [`open`](Tar::open), but without memory maps: samples are copied into the
    /// worker's memory. If a file is truncated or the storage fails, reading a sample returns an
    /// error, whereas a memory map could kill the process. Use this function for network file
    /// systems, unreliable storage, and files that other programs may truncate.
    ///
    /// Each field costs a system call and a copy of its encoded bytes. If the file is in the page
    /// cache, this takes about as long as the page faults of a memory map. All shards stay open, so
    /// thousands of shards require a higher limit on open files (`ulimit -n`).
    ///
    /// # Errors
    /// See [`open`](Tar::open).
    pub fn open_unmapped(path: impl AsRef<Path>) -> Result<Self> {
        let location =
            DatasetLocation { storage: Storage::Machine { mapped: false }, ..DatasetLocation::local(path.as_ref()) };
        Self::open_at(&location)
    }

    /// In an object store, the location is a single shard, a pattern, a manifest, or a prefix of
    /// `.tar` objects.
    pub(crate) fn open_at(location: &DatasetLocation) -> Result<Self> {
        let path = &*location.path;
        let shards = match &location.storage {
            Storage::Machine { mapped } => in_parallel(&shards::expand(path)?, |(path, entry)| {
                let (file, index) = open_shard(path, *mapped)?;
                entry
                    .as_ref()
                    .map_or(Ok(()), |entry| check_samples(entry, index.len()))
                    .map_err(|e| e.at_path(path))?;
                Ok((file, index))
            })?,
            Storage::Store { remote, listed } => {
                let opened = remote::open(location.url(), remote, listed)?;
                if opened.is_empty() {
                    return Err(Error::in_source("the store has no .tar objects under this URL").at_path(path));
                }
                opened.into_iter().map(|(object, index)| (OpenFile::in_store(object, remote.clone()), index)).collect()
            }
        };
        Self::from_shards(path, shards)
    }

    fn from_shards(path: &Path, shards: Vec<(OpenFile, Index)>) -> Result<Self> {
        let mut first_with_classes: Option<&(OpenFile, Index)> = None;
        for shard in shards.iter().filter(|(_, index)| !index.classes.is_empty()) {
            let (first, index) = first_with_classes.get_or_insert(shard);
            if index.classes != shard.1.classes {
                let cause = format!(
                    "the class names differ from the ones in {}: pack both shards with the same classes",
                    first.path.display()
                );
                return Err(Error::in_source(cause).at_path(&shard.0.path));
            }
        }
        if let Some((first, index)) = shards.iter().find(|(_, index)| index.unresolved_links.count > 0) {
            let links =
                counted(shards.iter().map(|(_, index)| index.unresolved_links.count).sum::<u64>(), "link", "links");
            let (path, shard) = (&index.unresolved_links.first_path, first.path.display());
            tracing::warn!(
                "ignored {links} without a target in the tar, such as {path} in {shard}: pack the files instead of \
                 links (tar --dereference --hard-dereference)"
            );
        }
        let classes = first_with_classes.map_or_else(Vec::new, |(_, index)| index.classes.clone());
        let tar = Tar { shards: Arc::new(Files::new(shards, Index::len)?), classes, selected_fields: None };
        if tar.is_empty() {
            let shards = counted(tar.shards.entries().len(), "tar file", "tar files");
            let cause = format!("no samples in {shards}: no member has a file extension");
            return Err(Error::in_source(cause).at_path(path));
        }
        Ok(tar)
    }
}

fn open_shard(path: &Path, mapped: bool) -> Result<(OpenFile, Index)> {
    let (file, metadata) = OpenFile::open(path, mapped)?;
    let len = file.len();
    let index = match sidecar::load(path, &metadata) {
        // The file may have changed since its metadata was queried. If the lengths agree, all
        // ranges of the index are inside the map.
        Some(index) if metadata.len() == len => index,
        _ => {
            let index = Index::scan(&file).map_err(|e| e.at_path(path))?;
            if len >= MIN_INDEXED_BYTES
                && let Err(e) = sidecar::store(path, &metadata, &index)
            {
                tracing::debug!("{}: cannot store the index: {e}", path.display());
            }
            index
        }
    };
    Ok((file, index))
}

fn borrow_fields<'a>(
    file: &OpenFile,
    map: &'a [u8],
    names: &'a [String],
    fields: &[Field],
    sample: &mut Sample<'a>,
) -> Result<()> {
    for field in fields {
        let bytes = &map[field.offset() as usize..][..field.len() as usize];
        sample.push(&names[field.name()], bytes)?;
    }
    // The files of a sample are adjacent, so one call loads all of them. The targets of links may
    // be elsewhere, so each link needs its own call.
    let mut unlinked = fields.iter().filter(|field| !field.is_linked());
    let first = unlinked.next();
    if let (Some(first), Some(last)) = (first, unlinked.next_back().or(first))
        && let Some(mapped) = map.get(first.offset() as usize..last.end() as usize)
    {
        file.load(mapped, last.end())?;
    }
    for field in fields.iter().filter(|field| field.is_linked()) {
        file.load(&map[field.offset() as usize..][..field.len() as usize], field.end())?;
    }
    Ok(())
}

fn copy_fields<'a>(
    file: &OpenFile,
    names: &'a [String],
    fields: &[Field],
    scratch: &'a mut Vec<u8>,
    sample: &mut Sample<'a>,
) -> Result<()> {
    let total = fields.iter().fold(0u64, |sum, field| sum.saturating_add(field.len()));
    let mut rest = grow_to(scratch, total)?;
    for field in fields {
        let (bytes, after) = rest.split_at_mut(field.len() as usize);
        file.fill(field.offset(), bytes)?;
        sample.push(&names[field.name()], bytes)?;
        rest = after;
    }
    Ok(())
}

impl Tar {
    pub(crate) fn view(&self, selected_fields: Option<Vec<String>>) -> Self {
        Tar { shards: self.shards.clone(), classes: self.classes.clone(), selected_fields }
    }

    fn select_fields<'f>(&self, names: &[String], fields: &'f [Field]) -> Cow<'f, [Field]> {
        let Some(selected_fields) = &self.selected_fields else { return Cow::Borrowed(fields) };
        fields.iter().filter(|field| selected_fields.contains(&names[field.name()])).copied().collect()
    }

    fn load_fields<'a>(
        &'a self,
        index: usize,
        (file, names): (&'a OpenFile, &'a [String]),
        fields: &[Field],
        scratch: &'a mut Vec<u8>,
        sample: &mut Sample<'a>,
    ) -> Result<()> {
        if let Some(map) = file.map() {
            return borrow_fields(file, map, names, fields, sample).map_err(|e| e.at_path(&file.path));
        }
        // Reading a sample with too many fields fails anyway. The `+ 1` is for the label, which
        // does not count as a field.
        let result = if fields.len() > MAX_FIELDS + 1 {
            Err(Error::in_source(format!("the sample has more than {MAX_FIELDS} fields: {}", fields.len())))
        } else if file.object().is_some() {
            remote::read(file, index, names, fields, scratch, sample)
        } else {
            copy_fields(file, names, fields, scratch, sample)
        };
        result.map_err(|e| e.at_path(&file.path))
    }
}

impl Source for Tar {
    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let (file, shard, sample_index) = self.shards.open(index)?;
        let (key, fields) = shard.sample(sample_index);
        let mut sample = Sample::new(key);
        let fields = self.select_fields(&shard.names, fields);
        self.load_fields(index, (file, &shard.names), &fields, scratch, &mut sample)?;
        Ok(sample)
    }

    fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        let view = self.view(self.selected_fields.clone());
        self.shards.prefetcher(order, move |index, sample_index| {
            remote::field_span(&view.select_fields(&index.names, index.sample(sample_index).1))
        })
    }

    delegate_to_files!(shards);

    fn label(&self, index: usize, scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        let (file, shard, sample_index) = self.shards.locate(index);
        let (key, fields) = shard.sample(sample_index);
        let Some(cls) = fields.iter().position(|field| shard.names[field.name()] == "cls") else {
            return Ok(None);
        };
        let (cls, mut sample) = (&fields[cls..=cls], Sample::new(""));
        if file.object().is_some() {
            // Labels are not read in sample order, so their bytes have not been prefetched.
            let (span, field) = (remote::field_span(cls), &cls[0]);
            let bytes = file.get(span.start, span.end - span.start, scratch)?;
            let name = &shard.names[field.name()];
            remote::verify_field(bytes, span.start, key, name, field).and_then(|cls| sample.push(name, cls))
        } else {
            self.load_fields(index, (file, &shard.names), cls, scratch, &mut sample)
        }
        .and_then(|()| sample.label())
        .map_err(|e| e.at_path(&file.path))
    }

    fn key(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<String> {
        let (_, shard, sample_index) = self.shards.locate(index);
        Ok(shard.sample(sample_index).0.to_owned())
    }

    fn fingerprint(&self) -> Option<u64> {
        Some(self.shards.entries().fold(Hash::default(), |hash, (_, index, _)| hash.number(index.hash())).finish())
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
            .field("shards", &self.shards.entries().len())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
