use std::path::Path;
use std::sync::Arc;

use super::index::{Chunk, Index};
use super::rows::LitRows;
use crate::error::{Error, Result};
use crate::source::held::HeldFile;
use crate::source::items::{Items, MOST_INDEX, Rows, Samples, Unpack, read_offsets, unpacked};
use crate::source::parallel::in_parallel;
use crate::source::{Options, Source, file};

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
    Ok(Arc::new(Rows::new(path, Items::new(files, None)?, LitRows::new(&index), options)?))
}

fn open_chunk(folder: &Path, chunk: &Chunk, compression: Option<&str>, mapped: bool) -> Result<(HeldFile, Samples)> {
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
    if chunk.samples > 0 && offsets.first() == offsets.last() {
        // Newer versions store rows of text and numbers alone as Arrow, after an empty table.
        let cause =
            "the samples are rows in Arrow, which are not read; write them as Parquet, or with a picture in each";
        return Err(Error::in_source(cause).at_path(&file.path));
    }
    Ok((file, Samples::Offsets(offsets)))
}
