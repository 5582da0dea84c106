//! [`ShardNames`] determines the file names of a dataset.

use std::fs;
use std::path::{Path, PathBuf};

use super::writer::without_slash;
use crate::error::{Error, Result};

pub(super) struct ShardNames {
    /// The target, without a trailing slash.
    pub(super) target: PathBuf,
    is_numbered: bool,
}

impl ShardNames {
    pub(super) fn new(target: &Path, is_numbered: bool) -> Self {
        ShardNames { target: without_slash(target), is_numbered }
    }

    pub(super) fn folder(&self) -> &Path {
        self.target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Returns the name of the target without `.tar`. All file names begin with this stem.
    pub(super) fn stem(&self) -> String {
        let name = self.target.file_name().unwrap_or_default().to_string_lossy();
        name.strip_suffix(".tar").unwrap_or(&name).to_owned()
    }

    pub(super) fn shard_path(&self, number: u64) -> PathBuf {
        if self.is_numbered { self.sibling_path(&format!("-{number:06}.tar")) } else { self.target.clone() }
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        match self.is_numbered {
            true => name
                .strip_prefix(&self.stem())
                .and_then(|suffix| parse_shard_number(suffix.strip_suffix(".tar")?))
                .is_some(),
            false => self.target.file_name().is_some_and(|target| target == name),
        }
    }

    pub(super) fn sibling_path(&self, suffix: &str) -> PathBuf {
        self.target.with_file_name(format!("{}{suffix}", self.stem()))
    }

    /// Returns the sorted suffixes of all file names that begin with the stem, or an empty list if
    /// the folder does not exist.
    pub(super) fn suffixes(&self) -> Result<Vec<String>> {
        let folder = self.folder();
        let entries = match fs::read_dir(folder) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|e| Error::io(folder, &e))?,
        };
        let stem = self.stem();
        let mut suffixes = Vec::new();
        for entry in entries {
            let name = entry.map_err(|e| Error::io(folder, &e))?.file_name();
            suffixes.extend(name.to_str().and_then(|name| name.strip_prefix(&stem)).map(str::to_owned));
        }
        suffixes.sort();
        Ok(suffixes)
    }

    pub(super) fn existing_shards(&self) -> Result<Vec<PathBuf>> {
        if !self.is_numbered {
            return Ok(if self.target.exists() { vec![self.target.clone()] } else { Vec::new() });
        }
        let mut numbers: Vec<u64> =
            self.suffixes()?.iter().filter_map(|suffix| parse_shard_number(suffix.strip_suffix(".tar")?)).collect();
        numbers.sort_unstable();
        Ok(numbers.into_iter().map(|number| self.shard_path(number)).collect())
    }
}

pub(super) fn parse_shard_number(text: &str) -> Option<u64> {
    let number = text.strip_prefix('-')?.parse().ok()?;
    (text == format!("-{number:06}")).then_some(number)
}
