//! Opens LitData chunks.

use std::ops::Range;
use std::sync::Arc;

use super::index::{Chunk, Index};
use super::layout::LitDataLayout;
use crate::error::{Error, Result, push};
use crate::formats::Arrow;
use crate::options::{Opened, Options};
use crate::storage::download::Companions;
use crate::storage::{DatasetLocation, OpenFile};
use crate::values::items::{
    Compression, Indexed, Layout, RowSource, SampleFiles, SampleSpans, decompress_file, read_offsets,
};

/// `location` is `index.json` or its folder. Chunks in an object store are downloaded first if they
/// are compressed or contain Arrow rows.
pub(crate) fn open(location: DatasetLocation, options: &Options) -> Opened {
    let path = &*location.path;
    let index_file = Indexed::read(&location)?;
    let index = Index::parse(&index_file.text).map_err(|e| e.at_path(&index_file.path))?;
    let compression = index.compression.as_deref();
    let download = || open(location.downloaded(&Companions::INDEXED, options.mapped)?, options);
    if index_file.storage.is_store() && compression.is_some() {
        return download();
    }
    let files = index_file.storage.in_parallel(&index.chunks, |chunk| open_chunk(&index_file, chunk, compression))?;
    let (mut sample_files, mut arrow_files) = (Vec::new(), Vec::new());
    for ((file, content), chunk) in files.into_iter().zip(&index.chunks) {
        match content {
            Content::Samples(samples) => push(&mut sample_files, (file, samples))?,
            Content::ArrowRows(byte_range) => push(&mut arrow_files, (file, byte_range, Some(chunk.samples)))?,
        }
    }
    match (sample_files.is_empty(), arrow_files.first()) {
        (_, None) => {
            Ok(Arc::new(RowSource::new(path, SampleFiles::new(sample_files)?, LitDataLayout::new(&index), options)?))
        }
        (true, Some(_)) if index_file.storage.is_store() => download(),
        (true, Some(_)) => Ok(Arc::new(Arrow::open_embedded(LitDataLayout::KIND, path, arrow_files, options)?)),
        (false, Some((file, ..))) => {
            let cause = format!(
                "the chunk contains Arrow rows, but {} does not: write the dataset again",
                sample_files[0].0.path.display()
            );
            Err(Error::in_source(cause).at_path(&file.path))
        }
    }
}

enum Content {
    Samples(SampleSpans),
    /// The samples are rows of an Arrow file, which occupies this byte range of the chunk.
    ArrowRows(Range<u64>),
}

/// The last bytes of a chunk with Arrow rows. The length of the Arrow file precedes them.
const ARROW_MARK: &[u8; 8] = b"LDARW01\0";

fn open_chunk(index_file: &Indexed, chunk: &Chunk, compression: Option<&str>) -> Result<(OpenFile, Content)> {
    let mut path = index_file.file(&chunk.filename);
    if let Some(compression) = compression {
        let name = compression.split_once(':').map_or(compression, |(name, _level)| name);
        let unpack = Compression::from_name(name).map_err(|e| e.at_path(&path))?;
        let Some(decompressed_name) = chunk.decompressed_name(compression) else {
            let cause = format!(
                "index.json declares compression {compression:?}, but the name of the chunk does not contain \
                 .{compression}"
            );
            return Err(Error::in_source(cause).at_path(path));
        };
        let compressed_path = std::mem::replace(&mut path, index_file.file(&decompressed_name));
        decompress_file(&compressed_path, &path, chunk.bytes, unpack)?;
    }
    let file = index_file.storage.open(&path)?;
    if file.len() != chunk.bytes {
        let (len, expected) = (file.len(), chunk.bytes);
        return Err(
            Error::in_source(format!("the chunk has {len} bytes, but index.json claims {expected}")).at_path(&path)
        );
    }
    let offsets = read_offsets(&file, chunk.samples)?;
    // Newer versions of LitData store samples that contain only bytes, text and numbers as Arrow
    // rows after the offset table. The offset table then lists only empty samples.
    let content = match (offsets.first(), offsets.last()) {
        (Some(&start), Some(&end)) if chunk.samples > 0 && start == end => {
            Content::ArrowRows(find_arrow_rows(&file, start).map_err(|e| e.at_path(&file.path))?)
        }
        _ => Content::Samples(SampleSpans::Offsets(offsets)),
    };
    Ok((file, content))
}

/// Returns the byte range of the Arrow file in a chunk. `start` is the end of the chunk's offset
/// table.
fn find_arrow_rows(file: &OpenFile, start: u64) -> Result<Range<u64>> {
    let damaged = || Error::in_source("the chunk contains neither samples nor Arrow rows");
    let end = file.len().checked_sub(12).filter(|&end| end >= start).ok_or_else(damaged)?;
    let mut scratch = Vec::new();
    let (len, mark) = file.get(end, 12, &mut scratch)?.split_first_chunk::<4>().ok_or_else(damaged)?;
    let start_of_rows = end.checked_sub(u64::from(u32::from_le_bytes(*len)));
    start_of_rows.filter(|&from| mark == ARROW_MARK && from >= start).map(|from| from..end).ok_or_else(damaged)
}
