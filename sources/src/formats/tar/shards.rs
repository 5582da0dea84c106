//! Expands a path into the list of shards.

use std::fs;
use std::path::{Path, PathBuf};

use super::manifest::{self, Entry, tars_in};
use crate::error::{Error, Result, collected};
use crate::machine::file;
use crate::medium::tree::Tree;

/// Maximum number of shards. A pattern with more is a typing error.
const MAX_SHARDS: usize = 1_000_000;

/// The shards that `path` stands for: a pattern, the tars of a folder, those of a manifest, or
/// itself. Shards of a manifest come with their entries.
pub(super) fn expand(path: &Path) -> Result<Vec<(PathBuf, Option<Entry>)>> {
    if has_braces(path) && !file::exists(path)? {
        let pattern = path.to_str().expect("has_braces looked at the text");
        let paths = braces(pattern).map_err(|cause| Error::config(cause).at_path(path))?;
        return collected(paths.into_iter().map(|path| Ok((PathBuf::from(path), None))));
    }
    let target = manifest::of_target(path)?;
    let path = target.as_deref().unwrap_or(path);
    let metadata = fs::metadata(path).map_err(|e| Error::io(path, &e))?;
    let listed =
        |shards: Vec<(PathBuf, Entry)>| collected(shards.into_iter().map(|(path, entry)| Ok((path, Some(entry)))));
    if !metadata.is_dir() {
        // A file of this name that is not a manifest has the error of one.
        return if manifest::is_named_manifest(path) {
            manifest::open(path).and_then(listed)
        } else {
            Ok(vec![(path.to_owned(), None)])
        };
    }
    if let Some(shards) = manifest::of_folder(path)? {
        return listed(shards);
    }
    let tars = tars_in(path)?;
    if tars.is_empty() {
        return Err(Error::in_source("no .tar files in the folder").at_path(path));
    }
    collected(tars.into_iter().map(|tar| Ok((tar, None))))
}

/// Whether `path` has the form of a pattern.
pub(crate) fn has_braces(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.find('{').is_some_and(|open| text[open..].contains('}')))
}

/// Refuses a path with a star, which is no pattern: it would not notice a shard that is missing.
///
/// # Errors
/// If `path` does not exist and has a star. The message has a pattern in braces for the files that
/// the star stands for, if they are numbered.
pub(crate) fn check_star(path: &Path) -> Result<()> {
    let Some((before, after)) = path.to_str().and_then(|text| text.split_once('*')) else { return Ok(()) };
    if file::exists(path)? {
        return Ok(());
    }
    let (folder, name) = before.rsplit_once('/').unwrap_or((".", before));
    let folder = Path::new(if folder.is_empty() { "/" } else { folder });
    let names = if file::is_folder(folder)? { Tree::Local(folder).file_names()? } else { Vec::new() };
    let middles: Vec<String> =
        names.iter().filter_map(|file| Some(file.strip_prefix(name)?.strip_suffix(after)?.to_owned())).collect();
    let instead = match numbered(&middles) {
        Some(braces) => format!("give the pattern {before}{braces}{after}, or the folder"),
        None => "give the folder of the files, or a pattern of shards such as train-{000..099}.tar".to_owned(),
    };
    Err(Error::config(format!("no such file, and a star is no pattern here: {instead}")).at_path(path))
}

/// The pattern in braces for sorted texts that end in consecutive numbers of one width.
fn numbered(texts: &[String]) -> Option<String> {
    let start = texts.first()?.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits: Vec<&str> = texts.iter().map(|text| text.strip_prefix(start)).collect::<Option<_>>()?;
    let numbers: Vec<u64> = digits.iter().map(|text| text.parse().ok()).collect::<Option<_>>()?;
    let (first, last) = (digits[0], digits[digits.len() - 1]);
    let follow = numbers.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]));
    (follow && digits.iter().all(|text| text.len() == first.len())).then(|| format!("{start}{{{first}..{last}}}"))
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
    fn a_star_is_refused_with_the_pattern_for_the_files() {
        let root = tempfile::tempdir().unwrap();
        for name in ["t-08.tar", "t-09.tar", "t-10.tar", "u-1.tar", "u-3.tar"] {
            fs::write(root.path().join(name), "").unwrap();
        }
        let told = |name: &str| check_star(&root.path().join(name)).unwrap_err().cause().to_owned();
        assert!(told("t-*.tar").contains("t-{08..10}.tar"), "{}", told("t-*.tar"));
        assert!(told("t*.tar").contains("t-{08..10}.tar"), "{}", told("t*.tar"));
        for name in ["u-*.tar", "*.tar", "none*"] {
            assert!(told(name).contains("give the folder of the files"), "{}", told(name));
        }
        fs::write(root.path().join("a*.tar"), "").unwrap();
        check_star(&root.path().join("a*.tar")).unwrap();
    }

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
