//! Parses the `index.json` of MDS shards.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::encoding::Encoding;
use crate::error::{Error, Result, push, try_collect};
use crate::machine::file::is_below;
use crate::values::items::check_copies;

#[derive(Debug, Deserialize)]
struct IndexJson {
    version: u64,
    shards: Vec<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    column_names: Vec<String>,
    column_encodings: Vec<String>,
    column_sizes: Vec<Option<u64>>,
    #[serde(default)]
    compression: Option<String>,
    raw_data: FileInfo,
    #[serde(default)]
    zip_data: Option<FileInfo>,
    samples: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct FileInfo {
    /// Path relative to the folder of the index.
    pub(super) basename: String,
    pub(super) bytes: u64,
    /// Hashes in hexadecimal, keyed by Python's name of the algorithm.
    #[serde(default)]
    hashes: serde_json::Value,
}

impl FileInfo {
    /// Returns the hashes of the file. Skips hashes that are not text, because a shard can be read
    /// without its hash.
    pub(super) fn hashes(&self) -> BTreeMap<String, String> {
        let hashes = self.hashes.as_object().into_iter().flatten();
        hashes.filter_map(|(name, hash)| Some((name.clone(), hash.as_str()?.to_owned()))).collect()
    }
}

#[derive(Debug)]
pub(super) struct Index {
    pub(super) columns: Vec<Column>,
    pub(super) shards: Vec<Shard>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) encoding: String,
    /// Size of each value in bytes, or `None` if each sample contains the length of its value.
    pub(super) size: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Shard {
    pub(super) raw: FileInfo,
    /// The compressed file and its compression, or `None` if the shard is not compressed.
    pub(super) zip: Option<(FileInfo, String)>,
    pub(super) samples: u64,
}

impl Index {
    /// Parses the index. Checks that all shards have the same columns, that decompressing a shard
    /// overwrites none of the files that contain the shards, and that all paths are relative and do
    /// not leave the folder.
    pub(super) fn parse(text: &[u8]) -> Result<Self> {
        let error = |e: serde_json::Error| Error::in_source(format!("not the index of MDS shards: {e}"));
        let IndexJson { version, shards } = serde_json::from_slice(text).map_err(error)?;
        if version != 2 {
            return Err(Error::in_source(format!("MDS version {version}: expected version 2")));
        }
        let mut index = Index { columns: Vec::new(), shards: Vec::new() };
        for (position, shard) in shards.into_iter().enumerate() {
            let shard_error = |e: Error| Error::in_source(format!("shard {position}: {}", e.cause()));
            let (columns, shard) = Self::parse_shard(shard).map_err(shard_error)?;
            if position == 0 {
                index.columns = columns;
            } else if index.columns != columns {
                let name = &shard.raw.basename;
                return Err(Error::in_source(format!(
                    "shard {position} ({name}) and shard 0 have different columns: open them as separate datasets, \
                     and join these with Concat"
                )));
            }
            push(&mut index.shards, shard)?;
        }
        let files = index.shards.iter().map(|shard| match &shard.zip {
            Some((zip, _)) => Ok((&*zip.basename, Some(&*shard.raw.basename))),
            None => Ok((&*shard.raw.basename, None)),
        });
        check_copies(&try_collect(files)?)?;
        Ok(index)
    }

    fn parse_shard(shard: serde_json::Value) -> Result<(Vec<Column>, Shard)> {
        let text = |key: &str| shard.get(key).and_then(serde_json::Value::as_str).unwrap_or("").to_owned();
        match &*text("format") {
            "mds" => {}
            format @ ("csv" | "tsv" | "xsv" | "json") => {
                return Err(Error::in_source(format!(
                    "format {format:?} contains only text and numbers: expected MDS shards; open .csv, .tsv and .jsonl \
                     files as tables"
                )));
            }
            format => return Err(Error::in_source(format!("unknown format {format:?}: expected MDS shards"))),
        }
        let version = &shard["version"];
        if version.as_u64() != Some(2) {
            return Err(Error::in_source(format!("MDS version {version}: expected version 2")));
        }
        let entry = serde_json::from_value(shard).map_err(|e| Error::in_source(e.to_string()))?;
        let Entry { column_names, column_encodings, column_sizes, compression, raw_data, zip_data, samples } = entry;
        if column_names.len() != column_encodings.len() || column_names.len() != column_sizes.len() {
            return Err(Error::in_source(
                "the numbers of column names, encodings and sizes differ: the index is damaged",
            ));
        }
        let columns = column_names.into_iter().zip(column_encodings).zip(column_sizes);
        let columns = columns.map(|((name, encoding), size)| {
            // Size 0 means a variable size, as in MosaicML's library.
            let size = size.filter(|&size| size != 0).map(usize::try_from).transpose().unwrap_or(Some(usize::MAX));
            let encoded_size = Encoding::from_name(&encoding).ok().and_then(|encoding| encoding.size());
            if let (Some(size), Some(encoded_size)) = (size, encoded_size)
                && size != encoded_size
            {
                let cause =
                    format!("column {name:?} has size {size}, but encoding {encoding:?} has size {encoded_size}");
                return Err(Error::in_source(cause));
            }
            Ok(Column { name, encoding, size })
        });
        let columns = columns.collect::<Result<_>>()?;
        for info in [Some(&raw_data), zip_data.as_ref()].into_iter().flatten() {
            if !is_below(&info.basename) {
                return Err(Error::in_source(format!(
                    "{:?} must be a relative path inside the folder of index.json",
                    info.basename
                )));
            }
        }
        let zip = match (compression.filter(|name| !name.is_empty()), zip_data) {
            (Some(name), Some(info)) => Some((info, name)),
            (None, None) => None,
            _ => {
                return Err(Error::in_source(
                    "the shard has a compression but no compressed file, or a compressed file but no compression: \
                     the index is damaged",
                ));
            }
        };
        Ok((columns, Shard { raw: raw_data, zip, samples }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(change: impl Fn(&mut serde_json::Value)) -> Result<Index> {
        let shard = serde_json::json!({
            "column_names": ["image", "label"], "column_encodings": ["jpeg", "int"], "column_sizes": [null, 8],
            "compression": null, "format": "mds", "hashes": [], "version": 2, "samples": 3, "size_limit": 67108864,
            "raw_data": {"basename": "shard.00000.mds", "bytes": 100, "hashes": {}}, "zip_data": null,
        });
        let mut json = serde_json::json!({"version": 2, "shards": [shard.clone(), shard]});
        change(&mut json);
        Index::parse(json.to_string().as_bytes())
    }

    #[test]
    fn index_lists_shards_with_equal_columns() {
        let parsed = index(|_| ()).unwrap();
        assert_eq!((parsed.shards.len(), parsed.shards[1].samples, parsed.columns[1].size), (2, 3, Some(8)));
        let index_with_size_zero = index(|json| json["shards"][0]["column_sizes"][0] = 0.into()).unwrap();
        assert_eq!(index_with_size_zero.columns[0].size, None, "a size of 0 means that the size varies");
    }

    #[test]
    fn decompressing_a_shard_never_overwrites_a_shard() {
        let index_with_raw_name = |raw: &str| {
            index(|json| {
                let shard = &mut json["shards"][1];
                shard["compression"] = "zstd:3".into();
                shard["raw_data"]["basename"] = raw.into();
                shard["zip_data"] = serde_json::json!({"basename": "b.mds.zstd", "bytes": 10, "hashes": {}});
            })
        };
        index_with_raw_name("b.mds").unwrap();
        for raw in ["b.mds.zstd", "./b.mds.zstd", "shard.00000.mds"] {
            let e = index_with_raw_name(raw).unwrap_err();
            assert!(e.cause().contains("shard 1: \"b.mds.zstd\" would be decompressed to"), "{raw}: {e}");
        }
    }

    #[test]
    fn invalid_entries_fail_and_name_the_shard() {
        for (pointer, value, cause) in [
            ("/version", 3.into(), "MDS version 3: expected version 2"),
            ("/shards/1/version", 1.into(), "shard 1: MDS version 1: expected version 2"),
            ("/shards/1/version", "2.5".into(), "shard 1: MDS version \"2.5\": expected version 2"),
            ("/shards/1/format", "csv".into(), "shard 1: format \"csv\" contains only text"),
            ("/shards/1/format", "mp4".into(), "unknown format \"mp4\""),
            ("/shards/1/raw_data/basename", "../x".into(), "\"../x\" must be a relative path"),
            ("/shards/1/raw_data/basename", "/etc/passwd".into(), "must be a relative path"),
            ("/shards/1/column_sizes/1", 4.into(), "column \"label\" has size 4, but encoding \"int\" has size 8"),
            (
                "/shards/1/column_encodings/1",
                "int64".into(),
                "shard 1 (shard.00000.mds) and shard 0 have different columns",
            ),
            (
                "/shards/1/column_names",
                serde_json::json!(["a"]),
                "the numbers of column names, encodings and sizes differ",
            ),
            ("/shards/1/compression", "zstd".into(), "a compression but no compressed file"),
            ("/shards/1/samples", (-1).into(), "shard 1: "),
            ("/shards", "x".into(), "not the index of MDS shards"),
        ] {
            let e = index(|json| *json.pointer_mut(pointer).unwrap() = value.clone()).unwrap_err();
            assert!(e.cause().contains(cause), "{pointer}: {e}");
        }
    }
}
