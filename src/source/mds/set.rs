use std::path::Path;
use std::sync::Arc;

use super::index::{Index, Shard};
use super::rows::MdsRows;
use crate::error::{Error, Result};
use crate::source::items::{Checksum, Items, MOST_INDEX, Rows, Samples, Unpack, read_offsets, unpacked};
use crate::source::medium::HeldFile;
use crate::source::parallel::in_parallel;
use crate::source::{Options, Source, file};

/// Opens the MDS shards of `path`, a folder with `index.json` or that file.
///
/// # Errors
/// If the index or a shard is damaged, a shard is missing, or a column that is used cannot be read.
pub(in crate::source) fn open(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    let index_path = if path.is_dir() { path.join("index.json") } else { path.to_owned() };
    let folder = index_path.parent().unwrap_or(Path::new(""));
    let text = file::read(&index_path, MOST_INDEX).map_err(|e| Error::io(&index_path, &e))?;
    let index = Index::parse(&text).map_err(|e| e.at_path(&index_path))?;
    let files = in_parallel(&index.shards, |shard| open_shard(folder, shard, options.mapped))?;
    let checksum = |shard: &Shard| Checksum::fastest(&shard.raw.hashes());
    let items = Items::new(files, None)?.with_checksums(index.shards.iter().map(checksum).collect());
    Ok(Arc::new(Rows::new(path, items, MdsRows::new(&index.columns), options)?))
}

fn open_shard(folder: &Path, shard: &Shard, mapped: bool) -> Result<(HeldFile, Samples)> {
    let path = folder.join(&shard.raw.basename);
    if let Some((zip, compression)) = &shard.zip {
        let packed = folder.join(&zip.basename);
        let name = compression.split_once(':').map_or(&**compression, |(name, _level)| name);
        unpacked(&packed, &path, shard.raw.bytes, Unpack::named(name).map_err(|e| e.at_path(&packed))?)?;
    }
    let (file, metadata) = HeldFile::open(&path, mapped)?;
    if metadata.len() != shard.raw.bytes {
        let (len, expected) = (metadata.len(), shard.raw.bytes);
        return Err(
            Error::in_source(format!("the shard has {len} bytes, but index.json says {expected}")).at_path(&path)
        );
    }
    let offsets = read_offsets(&file, shard.samples)?;
    Ok((file, Samples::Offsets(offsets)))
}
