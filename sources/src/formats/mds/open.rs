//! Opens MDS shards.

use std::sync::Arc;

use super::index::{Index, Shard};
use super::layout::MdsLayout;
use crate::error::{Error, Result, try_collect};
use crate::options::{Opened, Options};
use crate::storage::download::Companions;
use crate::storage::{DatasetLocation, OpenFile};
use crate::values::items::{
    Checksum, Compression, Indexed, RowSource, SampleFiles, SampleSpans, decompress_file, read_offsets,
};

/// Opens the dataset at `location`, which is `index.json` or its folder. Compressed shards are
/// decompressed to files in this folder. If any shard of a dataset in an object store is
/// compressed, the whole dataset is downloaded first.
pub(crate) fn open(location: DatasetLocation, options: &Options) -> Opened {
    let path = &*location.path;
    let index_file = Indexed::read(&location)?;
    let index = Index::parse(&index_file.text).map_err(|e| e.at_path(&index_file.path))?;
    if index_file.storage.is_store() && index.shards.iter().any(|shard| shard.zip.is_some()) {
        return open(location.downloaded(&Companions::INDEXED, options.mapped)?, options);
    }
    let files = index_file.storage.in_parallel(&index.shards, |shard| open_shard(&index_file, shard))?;
    let checksum = |shard: &Shard| Ok(Checksum::fastest(&shard.raw.hashes()));
    let sample_files = SampleFiles::new(files)?.with_checksums(try_collect(index.shards.iter().map(checksum))?);
    Ok(Arc::new(RowSource::new(path, sample_files, MdsLayout::new(&index.columns), options)?))
}

fn open_shard(index_file: &Indexed, shard: &Shard) -> Result<(OpenFile, SampleSpans)> {
    let path = index_file.file(&shard.raw.basename);
    if let Some((zip, compression)) = &shard.zip {
        let zip_path = index_file.file(&zip.basename);
        let name = compression.split_once(':').map_or(&**compression, |(name, _level)| name);
        decompress_file(
            &zip_path,
            &path,
            shard.raw.bytes,
            Compression::from_name(name).map_err(|e| e.at_path(&zip_path))?,
        )?;
    }
    let file = index_file.storage.open(&path)?;
    if file.len() != shard.raw.bytes {
        let (len, expected) = (file.len(), shard.raw.bytes);
        return Err(
            Error::in_source(format!("the shard has {len} bytes, but index.json claims {expected}")).at_path(&path)
        );
    }
    let offsets = read_offsets(&file, shard.samples)?;
    Ok((file, SampleSpans::Offsets(offsets)))
}
