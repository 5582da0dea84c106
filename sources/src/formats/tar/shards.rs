//! Expands a path into a list of shards.

use std::fs;
use std::path::{Path, PathBuf};

use super::manifest::{self, Entry, tars_in};
use crate::error::{Error, Result, try_collect};
use crate::machine::file;
use crate::storage::tree::Tree;

/// Maximum number of shards in a pattern. A higher number is most likely a typo.
const MAX_SHARDS: usize = 1_000_000;

/// Lists the shards at `path`, which is a pattern, a folder of tar files, a manifest, or a single
/// shard. Shards in a manifest have an entry.
pub(super) fn expand(path: &Path) -> Result<Vec<(PathBuf, Option<Entry>)>> {
    if has_braces(path) && !file::exists(path)? {
        let pattern = path.to_str().expect("`has_braces` requires UTF-8");
        let paths = expand_braces(pattern).map_err(|cause| Error::config(cause).at_path(path))?;
        return try_collect(paths.into_iter().map(|path| Ok((PathBuf::from(path), None))));
    }
    let manifest = manifest::find_for_target(path)?;
    let path = manifest.as_deref().unwrap_or(path);
    let metadata = fs::metadata(path).map_err(|e| Error::io(path, &e))?;
    let with_entries =
        |shards: Vec<(PathBuf, Entry)>| try_collect(shards.into_iter().map(|(path, entry)| Ok((path, Some(entry)))));
    if !metadata.is_dir() {
        // A file that is named like a manifest is treated as a manifest, so that its error
        // describes a manifest.
        return if manifest::is_named_manifest(path) {
            manifest::open(path).and_then(with_entries)
        } else {
            Ok(vec![(path.to_owned(), None)])
        };
    }
    if let Some(shards) = manifest::open_folder(path)? {
        return with_entries(shards);
    }
    let tars = tars_in(path)?;
    if tars.is_empty() {
        return Err(Error::in_source("the folder contains no .tar files").at_path(path));
    }
    try_collect(tars.into_iter().map(|tar| Ok((tar, None))))
}

pub(crate) fn has_braces(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.find('{').is_some_and(|open| text[open..].contains('}')))
}

/// Rejects patterns with a star. They would match only the files that exist, so a missing shard
/// would go unnoticed. If the matching files are numbered consecutively, the error contains the
/// equivalent pattern with braces.
pub(crate) fn check_star(path: &Path) -> Result<()> {
    let Some((prefix, suffix)) = path.to_str().and_then(|text| text.split_once('*')) else { return Ok(()) };
    if file::exists(path)? {
        return Ok(());
    }
    let (folder, name) = prefix.rsplit_once('/').unwrap_or((".", prefix));
    let folder = Path::new(if folder.is_empty() { "/" } else { folder });
    let names = if file::is_folder(folder)? { Tree::Local(folder).file_names()? } else { Vec::new() };
    let middles: Vec<String> =
        names.iter().filter_map(|file| Some(file.strip_prefix(name)?.strip_suffix(suffix)?.to_owned())).collect();
    let advice = match brace_pattern(&middles) {
        Some(braces) => format!("use the pattern {prefix}{braces}{suffix}, or the folder"),
        None => "use the folder of the files, or a pattern such as train-{000..099}.tar".to_owned(),
    };
    Err(Error::config(format!("no such file, and patterns with a star are not supported: {advice}")).at_path(path))
}

/// Returns a pattern with braces that expands to `texts`. Returns `None` unless they are sorted and
/// end in consecutive numbers of the same width.
fn brace_pattern(texts: &[String]) -> Option<String> {
    let prefix = texts.first()?.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits: Vec<&str> = texts.iter().map(|text| text.strip_prefix(prefix)).collect::<Option<_>>()?;
    let numbers: Vec<u64> = digits.iter().map(|text| text.parse().ok()).collect::<Option<_>>()?;
    let (first, last) = (digits[0], digits[digits.len() - 1]);
    let is_consecutive = numbers.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]));
    (is_consecutive && digits.iter().all(|text| text.len() == first.len()))
        .then(|| format!("{prefix}{{{first}..{last}}}"))
}

/// Expands braces like a shell, except that nested braces and ranges of letters are not supported.
/// `{000..099}` expands to numbers that are padded to the width of the first number, and `{a,b}` to
/// the items of the list.
pub(super) fn expand_braces(pattern: &str) -> Result<Vec<String>, String> {
    let Some((before, rest)) = pattern.split_once('{') else { return Ok(vec![pattern.to_owned()]) };
    let (inside, after) = rest.split_once('}').ok_or("the pattern has an unclosed brace")?;
    let choices: Vec<String> = match inside.split_once("..") {
        Some((from, to)) => {
            let number = |s: &str| s.parse::<u64>().map_err(|_| format!("{s:?} in {{{inside}}} is not a number"));
            let (first, last) = (number(from)?, number(to)?);
            if first > last {
                return Err(format!("{{{inside}}} counts down from {first} to {last}: write the smaller number first"));
            }
            if last - first >= MAX_SHARDS as u64 {
                return Err(format!("{{{inside}}} expands to more than {MAX_SHARDS} shards"));
            }
            let width = from.len();
            (first..=last).map(|n| format!("{n:0width$}")).collect()
        }
        None => inside.split(',').map(str::to_owned).collect(),
    };
    let tails = expand_braces(after)?;
    if choices.len().saturating_mul(tails.len()) > MAX_SHARDS {
        return Err(format!("the pattern expands to more than {MAX_SHARDS} shards"));
    }
    Ok(choices.iter().flat_map(|choice| tails.iter().map(move |tail| format!("{before}{choice}{tail}"))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_is_rejected_with_the_equivalent_brace_pattern() {
        let root = tempfile::tempdir().unwrap();
        for name in ["t-08.tar", "t-09.tar", "t-10.tar", "u-1.tar", "u-3.tar"] {
            fs::write(root.path().join(name), "").unwrap();
        }
        let advice = |name: &str| check_star(&root.path().join(name)).unwrap_err().cause().to_owned();
        assert!(advice("t-*.tar").contains("t-{08..10}.tar"), "{}", advice("t-*.tar"));
        assert!(advice("t*.tar").contains("t-{08..10}.tar"), "{}", advice("t*.tar"));
        for name in ["u-*.tar", "*.tar", "none*"] {
            assert!(advice(name).contains("use the folder of the files"), "{}", advice(name));
        }
        fs::write(root.path().join("a*.tar"), "").unwrap();
        check_star(&root.path().join("a*.tar")).unwrap();
    }

    #[test]
    fn braces_expand_ranges_and_lists() {
        assert_eq!(expand_braces("t-{008..010}.tar").unwrap(), ["t-008.tar", "t-009.tar", "t-010.tar"]);
        assert_eq!(expand_braces("{a,b}/{0..1}.tar").unwrap(), ["a/0.tar", "a/1.tar", "b/0.tar", "b/1.tar"]);
        assert_eq!(expand_braces("plain.tar").unwrap(), ["plain.tar"]);
        assert!(expand_braces("{9..1}").unwrap_err().contains("counts down"));
        assert!(expand_braces("{1..x}").unwrap_err().contains("is not a number"));
        assert!(expand_braces("{0..99999999999}").unwrap_err().contains("more than"));
        assert!(expand_braces("{0..9999}{0..9999}").unwrap_err().contains("more than"));
    }
}
