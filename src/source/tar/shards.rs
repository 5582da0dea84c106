//! Expands a path into the list of shards.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Maximum number of shards. A pattern with more is a typing error.
const MAX_SHARDS: usize = 1_000_000;

/// The shards that `path` stands for: a pattern, the tars of a folder, or itself.
pub(super) fn expand(path: &Path) -> Result<Vec<PathBuf>> {
    if has_braces(path) && !path.exists() {
        let pattern = path.to_str().expect("has_braces looked at the text");
        let paths = braces(pattern).map_err(|cause| Error::config(cause).at_path(path))?;
        return Ok(paths.into_iter().map(PathBuf::from).collect());
    }
    let metadata = fs::metadata(path).map_err(|e| Error::io(path, &e))?;
    if !metadata.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let tars = tars_in(path)?;
    if tars.is_empty() {
        return Err(Error::in_source("no .tar files in the folder").at_path(path));
    }
    Ok(tars)
}

/// Whether `path` has the form of a pattern.
pub(in crate::source) fn has_braces(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.find('{').is_some_and(|open| text[open..].contains('}')))
}

/// The `*.tar` files of a folder without hidden ones, sorted by name.
pub(in crate::source) fn tars_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut tars = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| Error::io(folder, &e))? {
        let path = entry.map_err(|e| Error::io(folder, &e))?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|e| e.eq_ignore_ascii_case("tar")) {
            tars.push(path);
        }
    }
    tars.sort();
    Ok(tars)
}

/// The shell's brace expansion without nesting. `{000..099}` counts, with the width of its first
/// number; `{a,b}` lists.
pub(super) fn braces(pattern: &str) -> Result<Vec<String>, String> {
    let Some((before, rest)) = pattern.split_once('{') else { return Ok(vec![pattern.to_owned()]) };
    let (inside, after) = rest.split_once('}').ok_or("brace is not closed")?;
    let choices: Vec<String> = match inside.split_once("..") {
        Some((from, to)) => {
            let number = |s: &str| s.parse::<u64>().map_err(|_| format!("{s:?} in {{{inside}}} is not a number"));
            let (first, last) = (number(from)?, number(to)?);
            if first > last {
                return Err(format!("{{{inside}}} counts down from {first} to {last}"));
            }
            if last - first >= MAX_SHARDS as u64 {
                return Err(format!("{{{inside}}} stands for more than {MAX_SHARDS} shards"));
            }
            let width = from.len();
            (first..=last).map(|n| format!("{n:0width$}")).collect()
        }
        None => inside.split(',').map(str::to_owned).collect(),
    };
    let tails = braces(after)?;
    if choices.len().saturating_mul(tails.len()) > MAX_SHARDS {
        return Err(format!("stands for more than {MAX_SHARDS} shards"));
    }
    Ok(choices.iter().flat_map(|choice| tails.iter().map(move |tail| format!("{before}{choice}{tail}"))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_count_with_zeros_and_list() {
        assert_eq!(braces("t-{008..010}.tar").unwrap(), ["t-008.tar", "t-009.tar", "t-010.tar"]);
        assert_eq!(braces("{a,b}/{0..1}.tar").unwrap(), ["a/0.tar", "a/1.tar", "b/0.tar", "b/1.tar"]);
        assert_eq!(braces("plain.tar").unwrap(), ["plain.tar"]);
        assert!(braces("{9..1}").unwrap_err().contains("counts down"));
        assert!(braces("{1..x}").unwrap_err().contains("is not a number"));
        assert!(braces("{0..99999999999}").unwrap_err().contains("more than"));
        assert!(braces("{0..9999}{0..9999}").unwrap_err().contains("more than"));
    }
}
