//! [`Info`]: the content of `meta/info.json`.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;

use super::dataset_folder::DatasetFolder;
use crate::error::{Error, Result};
use crate::machine::file::is_below;

pub(super) const INFO: &str = "meta/info.json";
/// Maximum width, in digits, that a placeholder in a path template may request.
const MAX_DIGITS: usize = 20;

#[derive(Debug, Deserialize)]
pub(super) struct Info {
    codebase_version: String,
    pub(super) fps: f64,
    pub(super) total_episodes: u64,
    data_path: String,
    /// Path template of a video feature's files.
    #[serde(default)]
    #[cfg_attr(not(feature = "video"), expect(dead_code, reason = "only videos need it"))]
    video_path: Option<String>,
    /// Number of episodes per folder in version 2.
    #[serde(default)]
    chunks_size: Option<u64>,
    /// Ranges of episodes, such as `0:50`, keyed by split name.
    #[serde(default)]
    splits: BTreeMap<String, String>,
    pub(super) features: BTreeMap<String, FeatureInfo>,
}

#[derive(Debug, Deserialize)]
pub(super) struct FeatureInfo {
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// Version 2.0 or 2.1: a data file for each episode, and metadata in JSON Lines.
    Two,
    /// Version 3.0: data files with several episodes, and metadata in Parquet.
    Three,
}

impl Info {
    pub(super) fn read(root: &DatasetFolder) -> Result<Self> {
        let info: Info = root.read_json(INFO)?;
        info.check().map_err(|e| e.at_path(root.path_of(INFO)))?;
        Ok(info)
    }

    fn check(&self) -> Result<()> {
        self.version()?;
        if !(self.fps.is_finite() && self.fps > 0.0) {
            return Err(Error::in_source(format!("fps={}: expected a positive number", self.fps)));
        }
        if let Some(name) = self.features.keys().find(|name| name.contains(['/', '\0']) || name.is_empty()) {
            return Err(Error::in_source(format!(
                "feature {name:?}: expected a name that is not empty and contains no '/' or NUL"
            )));
        }
        Ok(())
    }

    pub(super) fn version(&self) -> Result<Version> {
        match self.codebase_version.trim_start_matches('v').split('.').next() {
            Some("2") => Ok(Version::Two),
            Some("3") => Ok(Version::Three),
            _ => Err(Error::in_source(format!(
                "codebase_version={:?}: expected \"v2.0\", \"v2.1\" or \"v3.0\"; convert the dataset with the library \
                 lerobot",
                self.codebase_version
            ))),
        }
    }

    /// Returns the path of an episode's data file in version 2, relative to the dataset.
    pub(super) fn episode_path(&self, episode: u64) -> Result<String> {
        let episodes_per_chunk = self.chunks_size.filter(|&size| size > 0).unwrap_or(1000);
        let numbers = [("episode_chunk", episode / episodes_per_chunk), ("episode_index", episode)];
        fill_template("data_path", &self.data_path, &numbers)
    }

    /// Returns the path of a data file in version 3, relative to the dataset.
    pub(super) fn data_file_path(&self, chunk: u64, file: u64) -> Result<String> {
        fill_template("data_path", &self.data_path, &[("chunk_index", chunk), ("file_index", file)])
    }

    /// Returns the path of a file of the video feature `key`, relative to the dataset. `file` is
    /// the folder and file number. Version 2 has one file per episode, and uses `episode` instead.
    #[cfg(feature = "video")]
    pub(super) fn video_file_path(&self, key: &str, episode: u64, file: (u64, u64)) -> Result<String> {
        let path = self.video_path.as_ref().ok_or_else(|| Error::in_source("video_path is missing"))?;
        let path = path.replace("{video_key}", key);
        let episodes_per_chunk = self.chunks_size.filter(|&size| size > 0).unwrap_or(1000);
        match self.version()? {
            Version::Two => fill_template(
                "video_path",
                &path,
                &[("episode_chunk", episode / episodes_per_chunk), ("episode_index", episode)],
            ),
            Version::Three => fill_template("video_path", &path, &[("chunk_index", file.0), ("file_index", file.1)]),
        }
    }

    pub(super) fn split(&self, name: &str) -> Result<Range<u64>> {
        let Some(range) = self.splits.get(name) else {
            let names: Vec<_> = self.splits.keys().collect();
            return Err(Error::config(format!(
                "split={name:?}: expected one of the splits in meta/info.json: {names:?}"
            )));
        };
        let parsed = range.split_once(':').and_then(|(start, end)| {
            let (start, end) = (start.trim().parse().ok()?, end.trim().parse().ok()?);
            (start <= end).then_some(start..end)
        });
        parsed.ok_or_else(|| {
            Error::in_source(format!("split {name:?} is {range:?}: expected a range of episodes such as \"0:50\""))
        })
    }
}

/// Replaces placeholders such as `{name}` and `{name:06d}` in `template` with numbers. `06d` pads a
/// number with zeros to six digits. Fails if a placeholder is unknown or malformed, or if the path
/// points outside the dataset.
fn fill_template(option: &str, template: &str, numbers: &[(&str, u64)]) -> Result<String> {
    let (mut path, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once('{') {
        path += before;
        let parsed = after.split_once('}').and_then(|(inside, after)| {
            let (name, format) = inside.split_once(':').unwrap_or((inside, "d"));
            let &(_, number) = numbers.iter().find(|(key, _)| *key == name)?;
            let width = format.strip_suffix('d')?;
            let width = if width.is_empty() { 0 } else { width.parse().ok().filter(|&width| width <= MAX_DIGITS)? };
            Some((format!("{number:0width$}"), after))
        });
        let Some((number, after)) = parsed else {
            let names: Vec<_> = numbers.iter().map(|(name, _)| *name).collect();
            return Err(Error::in_source(format!(
                "{option}={template:?}: unknown or damaged placeholder: expected {{{0}:03d}}, for example, with the \
                 names {names:?}",
                names[0]
            )));
        };
        path += &number;
        rest = after;
    }
    path += rest;
    if !is_below(&path) {
        return Err(Error::in_source(format!("{option}={template:?}: expected a relative path inside the dataset")));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced_and_checked() {
        let numbers = [("episode_chunk", 1), ("episode_index", 1234)];
        let path =
            fill_template("data_path", "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet", &numbers)
                .unwrap();
        assert_eq!(path, "data/chunk-001/episode_001234.parquet");
        assert_eq!(fill_template("data_path", "{episode_index}-{episode_index:2d}", &numbers).unwrap(), "1234-1234");
        for template in
            ["{other}", "{episode_index", "{episode_index:x}", "{episode_index:099d}", "../{episode_index}", "/a"]
        {
            let e = fill_template("data_path", template, &numbers).unwrap_err().to_string();
            assert!(e.contains("data_path=") && e.contains("expected"), "{e}");
        }
    }
}
