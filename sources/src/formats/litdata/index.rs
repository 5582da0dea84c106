//! Parses the `index.json` of LitData chunks.

use serde::Deserialize;
use serde_json::Value;

use super::tree;
use crate::error::{Error, Result, counted};
use crate::machine::file::is_below;
use crate::values::items::check_copies;

#[derive(Debug, Deserialize)]
struct IndexJson {
    chunks: Vec<Chunk>,
    config: Config,
}

#[derive(Debug, Deserialize)]
struct Config {
    data_format: Option<Vec<String>>,
    data_spec: Option<String>,
    #[serde(default)]
    compression: Option<String>,
    #[serde(default)]
    compression_level: Value,
    #[serde(default, deserialize_with = "deserialize_present")]
    encryption: Option<Value>,
    #[serde(default)]
    item_loader: Option<String>,
    #[serde(default)]
    format: Option<String>,
}

/// Deserializes an entry to `Some` even if its value is null, so that `None` means that the entry
/// is absent.
fn deserialize_present<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Chunk {
    pub(super) filename: String,
    #[serde(rename = "chunk_bytes")]
    pub(super) bytes: u64,
    #[serde(rename = "chunk_size")]
    pub(super) samples: u64,
}

impl Chunk {
    /// Returns the name of the decompressed chunk, which omits `compression` and the dot before it.
    /// Returns `None` if the chunk's name does not contain them.
    pub(super) fn decompressed_name(&self, compression: &str) -> Option<String> {
        let decompressed = self.filename.replace(&format!(".{compression}"), "");
        (decompressed != self.filename).then_some(decompressed)
    }
}

#[derive(Debug)]
pub(super) struct Index {
    pub(super) chunks: Vec<Chunk>,
    /// Names of the values, in the order in which samples store them.
    pub(super) names: Vec<String>,
    pub(super) serializers: Vec<String>,
    /// Name of the compression, optionally followed by a colon and the level. `None` if the chunks
    /// are not compressed.
    pub(super) compression: Option<String>,
    /// Whether the index was written by LitData before 0.2.17, or by its predecessor in Lightning
    /// 2. Such an index lacks the entry for encryption.
    pub(super) is_early: bool,
}

impl Index {
    pub(super) fn parse(text: &[u8]) -> Result<Self> {
        let error = |e: serde_json::Error| Error::in_source(format!("not the index of LitData chunks: {e}"));
        let IndexJson { chunks, config } = serde_json::from_slice(text).map_err(error)?;
        let unsupported =
            |what: String, advice: &str| Err(Error::in_source(format!("{what} are not supported: {advice}")));
        let rewrite = "write the dataset with PyTreeLoader";
        match config.item_loader.as_deref() {
            None | Some("PyTreeLoader") => {}
            Some("ParquetLoader") => return unsupported("Parquet chunks".into(), "open the Parquet files themselves"),
            Some("TokensLoader") => return unsupported("token chunks".into(), rewrite),
            Some(loader) => return unsupported(format!("chunks for the item loader {loader:?}"), rewrite),
        }
        if config.encryption.as_ref().is_some_and(|encryption| !encryption.is_null()) {
            return unsupported("encrypted chunks".into(), "write the dataset without encryption");
        }
        if let Some(format) = &config.format {
            return unsupported(format!("chunks in the format {format:?}"), "open the original dataset");
        }
        let (Some(serializers), Some(spec)) = (config.data_format, config.data_spec) else {
            return unsupported("chunks without data_format and data_spec".into(), rewrite);
        };
        let compression = config.compression.filter(|name| !name.is_empty());
        if compression.is_some() && !(config.compression_level.is_null() || config.compression_level == "chunk") {
            let level = format!("chunks with compression_level={}", config.compression_level);
            return unsupported(level, "write the dataset with compression_level=\"chunk\", or without compression");
        }
        let names = tree::names(&spec)?;
        if names.len() != serializers.len() {
            let (names, count) = (counted(names.len(), "value", "values"), serializers.len());
            return Err(Error::in_source(format!("data_spec has {names}, but data_format has {count}")));
        }
        if let Some(chunk) = chunks.iter().find(|chunk| !is_below(&chunk.filename)) {
            return Err(Error::in_source(format!(
                "{:?} must be a relative path inside the folder of index.json",
                chunk.filename
            )));
        }
        if let Some(compression) = &compression {
            let decompressed: Vec<_> = chunks.iter().map(|chunk| chunk.decompressed_name(compression)).collect();
            let files = chunks
                .iter()
                .zip(&decompressed)
                .map(|(chunk, decompressed)| (&*chunk.filename, decompressed.as_deref()));
            check_copies(&files.collect::<Vec<_>>())?;
        }
        Ok(Index { chunks, names, serializers, compression, is_early: config.encryption.is_none() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decompressing_a_chunk_never_overwrites_a_chunk() {
        let leaf = r#"{"type": null, "context": null, "children_spec": []}"#;
        let parse = |names: [&str; 2]| {
            let chunks = names.map(|name| serde_json::json!({"chunk_bytes": 9, "chunk_size": 2, "filename": name}));
            let config =
                serde_json::json!({"data_format": ["jpeg"], "data_spec": format!("[1, {leaf}]"), "compression": "gz"});
            Index::parse(serde_json::json!({"chunks": chunks, "config": config}).to_string().as_bytes())
        };
        parse(["a.gz.bin", "b.gz.bin"]).unwrap();
        let e = parse(["a.gz.bin", "a.bin"]).unwrap_err();
        assert!(e.cause().contains("\"a.gz.bin\" would be decompressed to \"a.bin\", which would replace"), "{e}");
    }

    #[test]
    fn unsupported_chunks_are_rejected_with_advice() {
        let leaf = r#"{"type": null, "context": null, "children_spec": []}"#;
        let good = serde_json::json!({
            "chunks": [{"chunk_bytes": 100, "chunk_size": 2, "dim": null, "filename": "chunk-0-0.bin"}],
            "config": {
                "data_format": ["jpeg"], "data_spec": format!("[1, {leaf}]"), "compression": null,
                "compression_level": null, "encryption": null, "item_loader": "PyTreeLoader",
            },
        });
        let parse = |change: &dyn Fn(&mut Value)| {
            let mut index = good.clone();
            change(&mut index);
            Index::parse(index.to_string().as_bytes())
        };
        assert_eq!(parse(&|_| ()).unwrap().names, ["0"]);
        for (pointer, value, cause) in [
            ("/config/item_loader", "TokensLoader".into(), "token chunks are not supported"),
            ("/config/item_loader", "ParquetLoader".into(), "open the Parquet files themselves"),
            ("/config/item_loader", "Mine".into(), "the item loader \"Mine\""),
            ("/config/encryption", serde_json::json!({"algorithm": "fernet"}), "encrypted chunks are not supported"),
            ("/config/data_spec", Value::Null, "chunks without data_format and data_spec"),
            ("/config/data_format", serde_json::json!(["jpeg", "int"]), "data_spec has 1 value, but data_format has 2"),
            ("/chunks/0/filename", "../x.bin".into(), "\"../x.bin\" must be a relative path"),
            ("/chunks/0/chunk_size", (-1).into(), "not the index of LitData chunks"),
        ] {
            let e = parse(&|index| *index.pointer_mut(pointer).unwrap() = value.clone()).unwrap_err();
            assert!(e.cause().contains(cause), "{pointer}: {e}");
        }
        assert!(!parse(&|_| ()).unwrap().is_early);
        let early_index = parse(&|index| _ = index["config"].as_object_mut().unwrap().remove("encryption"));
        assert!(early_index.unwrap().is_early);
        let framed = parse(&|index| {
            index["config"]["compression"] = "zstd".into();
            index["config"]["compression_level"] = "batch".into();
        });
        assert!(framed.unwrap_err().cause().contains("compression_level=\"batch\" are not supported"));
    }
}
