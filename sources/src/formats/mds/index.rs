use std::collections::BTreeMap;

use serde::Deserialize;

use super::encoding::Encoding;
use crate::error::{Error, Result, collected, push};
use crate::machine::file::is_below;
use crate::values::items::check_copies;

/// The list of shards.
#[derive(Debug, Deserialize)]
struct File {
    version: u64,
    shards: Vec<serde_json::Value>,
}

/// One shard in the list.
#[derive(Debug, Deserialize)]
struct Entry {
    column_names: Vec<String>,
    column_encodings: Vec<String>,
    column_sizes: Vec<Option<u64>>,
    #[serde(default)]
    compression: Option<String>,
    raw_data: Info,
    #[serde(default)]
    zip_data: Option<Info>,
    samples: u64,
}

/// A file of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Info {
    /// Path relative to the index.
    pub(super) basename: String,
    pub(super) bytes: u64,
    /// Hexadecimal hashes by their names in Python.
    #[serde(default)]
    hashes: serde_json::Value,
}

impl Info {
    /// The hashes of the file. Only a check of whole files needs them, so other values are not an
    /// error.
    pub(super) fn hashes(&self) -> BTreeMap<String, String> {
        let hashes = self.hashes.as_object().into_iter().flatten();
        hashes.filter_map(|(name, hash)| Some((name.clone(), hash.as_str()?.to_owned()))).collect()
    }
}

/// The shards of a dataset, and the columns that all of them have.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) columns: Vec<Column>,
    pub(super) shards: Vec<Shard>,
}

/// A column. Columns are in the order of their values in a sample.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Column {
    pub(super) name: String,
    /// Name of the encoding.
    pub(super) encoding: String,
    /// Bytes of each value. Others are preceded by their lengths.
    pub(super) size: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Shard {
    pub(super) raw: Info,
    /// The compressed file, with the name of the compression.
    pub(super) zip: Option<(Info, String)>,
    pub(super) samples: u64,
}

impl Index {
    /// Reads the text of an `index.json`.
    ///
    /// # Errors
    /// If it is not an index of MDS shards of version 2, a path leaves its folder, the columns of
    /// the shards differ, or a shard would be decompressed to the file of a shard.
    pub(super) fn parse(text: &[u8]) -> Result<Self> {
        let bad = |e: serde_json::Error| Error::in_source(format!("not an index of MDS shards: {e}"));
        let File { version, shards } = serde_json::from_slice(text).map_err(bad)?;
        if version != 2 {
            return Err(Error::in_source(format!("version {version} of MosaicML's format; version 2 is read")));
        }
        let mut index = Index { columns: Vec::new(), shards: Vec::new() };
        for (number, shard) in shards.into_iter().enumerate() {
            let at = |e: Error| Error::in_source(format!("shard {number}: {}", e.cause()));
            let (columns, shard) = Self::shard(shard).map_err(at)?;
            if number == 0 {
                index.columns = columns;
            } else if index.columns != columns {
                let name = &shard.raw.basename;
                return Err(Error::in_source(format!(
                    "shard {number} ({name}) has other columns than shard 0; open them as separate datasets, and join \
                     those with Concat"
                )));
            }
            push(&mut index.shards, shard)?;
        }
        let files = index.shards.iter().map(|shard| match &shard.zip {
            Some((zip, _)) => Ok((&*zip.basename, Some(&*shard.raw.basename))),
            None => Ok((&*shard.raw.basename, None)),
        });
        check_copies(&collected(files)?)?;
        Ok(index)
    }

    fn shard(shard: serde_json::Value) -> Result<(Vec<Column>, Shard)> {
        let text = |key: &str| shard.get(key).and_then(serde_json::Value::as_str).unwrap_or("").to_owned();
        let number = |key: &str| shard.get(key).and_then(serde_json::Value::as_u64);
        match &*text("format") {
            "mds" => {}
            format @ ("csv" | "tsv" | "xsv" | "json") => {
                return Err(Error::in_source(format!(
                    "the format {format:?}, which holds only text and numbers; MDS shards are read, and tables of .csv, \
                     .tsv and .jsonl files"
                )));
            }
            format => return Err(Error::in_source(format!("the unknown format {format:?}; MDS shards are read"))),
        }
        if number("version") != Some(2) {
            return Err(Error::in_source("another version of MDS than 2"));
        }
        let entry = serde_json::from_value(shard).map_err(|e| Error::in_source(e.to_string()))?;
        let Entry { column_names, column_encodings, column_sizes, compression, raw_data, zip_data, samples } = entry;
        if column_names.len() != column_encodings.len() || column_names.len() != column_sizes.len() {
            return Err(Error::in_source("the numbers of column names, encodings and sizes differ"));
        }
        let columns = column_names.into_iter().zip(column_encodings).zip(column_sizes);
        let columns = columns.map(|((name, encoding), size)| {
            // The library takes 0 for a length that varies, too.
            let size = size.filter(|&size| size != 0).map(usize::try_from).transpose().unwrap_or(Some(usize::MAX));
            let known = Encoding::named(&encoding).ok().and_then(|encoding| encoding.size());
            if let (Some(size), Some(known)) = (size, known)
                && size != known
            {
                let cause = format!("column {name:?} has {size} bytes, but the encoding {encoding:?} has {known}");
                return Err(Error::in_source(cause));
            }
            Ok(Column { name, encoding, size })
        });
        let columns = columns.collect::<Result<_>>()?;
        for info in [Some(&raw_data), zip_data.as_ref()].into_iter().flatten() {
            if !is_below(&info.basename) {
                return Err(Error::in_source(format!("{:?} is not a relative path below the index", info.basename)));
            }
        }
        let zip = match (compression.filter(|name| !name.is_empty()), zip_data) {
            (Some(name), Some(info)) => Some((info, name)),
            (None, None) => None,
            _ => return Err(Error::in_source("compression without a compressed file, or the reverse")),
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
        let mut all = serde_json::json!({"version": 2, "shards": [shard.clone(), shard]});
        change(&mut all);
        Index::parse(all.to_string().as_bytes())
    }

    #[test]
    fn an_index_lists_shards_with_the_same_columns() {
        let found = index(|_| ()).unwrap();
        assert_eq!((found.shards.len(), found.shards[1].samples, found.columns[1].size), (2, 3, Some(8)));
        let zero = index(|all| all["shards"][0]["column_sizes"][0] = 0.into()).unwrap();
        assert_eq!(zero.columns[0].size, None, "a length that varies");
    }

    #[test]
    fn a_shard_is_not_decompressed_to_its_own_file_or_that_of_another_shard() {
        let with = |raw: &str| {
            index(|all| {
                let shard = &mut all["shards"][1];
                shard["compression"] = "zstd:3".into();
                shard["raw_data"]["basename"] = raw.into();
                shard["zip_data"] = serde_json::json!({"basename": "b.mds.zstd", "bytes": 10, "hashes": {}});
            })
        };
        with("b.mds").unwrap();
        for raw in ["b.mds.zstd", "./b.mds.zstd", "shard.00000.mds"] {
            let e = with(raw).unwrap_err();
            assert!(e.cause().contains("shard 1: \"b.mds.zstd\" would be decompressed to"), "{raw}: {e}");
        }
    }

    #[test]
    fn wrong_entries_are_errors_that_name_the_shard() {
        for (place, value, cause) in [
            ("/version", 3.into(), "version 3 of MosaicML's format"),
            ("/shards/1/version", 1.into(), "shard 1: another version"),
            ("/shards/1/format", "csv".into(), "shard 1: the format \"csv\", which holds only text"),
            ("/shards/1/format", "mp4".into(), "the unknown format \"mp4\""),
            ("/shards/1/raw_data/basename", "../x".into(), "\"../x\" is not a relative path"),
            ("/shards/1/raw_data/basename", "/etc/passwd".into(), "is not a relative path"),
            ("/shards/1/column_sizes/1", 4.into(), "column \"label\" has 4 bytes, but the encoding \"int\" has 8"),
            ("/shards/1/column_encodings/1", "int64".into(), "shard 1 (shard.00000.mds) has other columns"),
            ("/shards/1/column_names", serde_json::json!(["a"]), "the numbers of column names"),
            ("/shards/1/compression", "zstd".into(), "compression without a compressed file"),
            ("/shards/1/samples", (-1).into(), "shard 1: "),
            ("/shards", "x".into(), "not an index of MDS shards"),
        ] {
            let e = index(|all| *all.pointer_mut(place).unwrap() = value.clone()).unwrap_err();
            assert!(e.cause().contains(cause), "{place}: {e}");
        }
    }
}
