use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::index::{Chunk, Index};
use super::rows::LitRows;
use crate::error::{Error, Result};
use crate::source::items::{Items, Layout, MOST_INDEX, Rows, Samples, Unpack, read_offsets, unpacked};
use crate::source::medium::HeldFile;
use crate::source::parallel::in_parallel;
use crate::source::{Arrow, Options, Source, file};

/// Opens LitData's chunks at `path`, a folder with `index.json` or that file.
///
/// # Errors
/// If the index or a chunk is damaged, a chunk is missing, or a value that is used cannot be read.
pub(in crate::source) fn open(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    let index_path = if path.is_dir() { path.join("index.json") } else { path.to_owned() };
    let folder = index_path.parent().unwrap_or(Path::new(""));
    let text = file::read(&index_path, MOST_INDEX).map_err(|e| Error::io(&index_path, &e))?;
    let index = Index::parse(&text).map_err(|e| e.at_path(&index_path))?;
    let compression = index.compression.as_deref();
    let files = in_parallel(&index.chunks, |chunk| open_chunk(folder, chunk, compression, options.mapped))?;
    let (mut items, mut rows) = (Vec::new(), Vec::new());
    for ((file, content), chunk) in files.into_iter().zip(&index.chunks) {
        match content {
            Content::Items(samples) => items.push((file, samples)),
            Content::Rows(within) => rows.push((file, within, Some(chunk.samples))),
        }
    }
    match (items.is_empty(), rows.first()) {
        (_, None) => Ok(Arc::new(Rows::new(path, Items::new(items, None)?, LitRows::new(&index), options)?)),
        (true, Some(_)) => Ok(Arc::new(Arrow::within(LitRows::KIND, path, rows, options)?)),
        (false, Some((file, ..))) => {
            let cause = format!("the chunk has rows in Arrow, but {} has not", items[0].0.path.display());
            Err(Error::in_source(cause).at_path(&file.path))
        }
    }
}

/// The samples of a chunk.
enum Content {
    Items(Samples),
    /// Rows in an Arrow file, which is this part of the chunk.
    Rows(Range<u64>),
}

/// End of a chunk with rows in Arrow, after the length of the Arrow file.
const ARROW_END: &[u8; 8] = b"LDARW01\0";

fn open_chunk(folder: &Path, chunk: &Chunk, compression: Option<&str>, mapped: bool) -> Result<(HeldFile, Content)> {
    let mut path = folder.join(&chunk.filename);
    if let Some(compression) = compression {
        let name = compression.split_once(':').map_or(compression, |(name, _level)| name);
        let unpack = Unpack::named(name).map_err(|e| e.at_path(&path))?;
        let Some(plain) = chunk.plain(compression) else {
            let cause = format!("index.json says {compression:?}, but the name of the chunk has no .{compression}");
            return Err(Error::in_source(cause).at_path(path));
        };
        let packed = std::mem::replace(&mut path, folder.join(plain));
        unpacked(&packed, &path, chunk.bytes, unpack)?;
    }
    let (file, metadata) = HeldFile::open(&path, mapped)?;
    if metadata.len() != chunk.bytes {
        let (len, expected) = (metadata.len(), chunk.bytes);
        return Err(
            Error::in_source(format!("the chunk has {len} bytes, but index.json says {expected}")).at_path(&path)
        );
    }
    let offsets = read_offsets(&file, chunk.samples)?;
    // Newer versions store rows of bytes, text and numbers alone as Arrow, after an empty table.
    let content = match (offsets.first(), offsets.last()) {
        (Some(&start), Some(&end)) if chunk.samples > 0 && start == end => {
            Content::Rows(arrow_after(&file, start).map_err(|e| e.at_path(&file.path))?)
        }
        _ => Content::Items(Samples::Offsets(offsets)),
    };
    Ok((file, content))
}

/// The Arrow file at the end of a chunk, whose table ends at `start`.
fn arrow_after(file: &HeldFile, start: u64) -> Result<Range<u64>> {
    let damaged = || Error::in_source("the chunk has no bytes for its samples, and no rows in Arrow at its end");
    let end = file.len().checked_sub(12).filter(|&end| end >= start).ok_or_else(damaged)?;
    let mut scratch = Vec::new();
    let (len, mark) = file.get(end, 12, &mut scratch)?.split_first_chunk::<4>().ok_or_else(damaged)?;
    let from = end.checked_sub(u64::from(u32::from_le_bytes(*len)));
    from.filter(|&from| mark == ARROW_END && from >= start).map(|from| from..end).ok_or_else(damaged)
}
