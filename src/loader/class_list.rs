use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::error::{Result, guarded};
use crate::source::{Classes, Source};

/// The class list of a loader, if one was set.
#[derive(Clone, Default)]
pub(super) enum Listed {
    #[default]
    No,
    Names(Vec<String>),
    File(PathBuf),
}

impl Listed {
    /// Returns the class list, after validating it or reading it from its file.
    pub(super) fn open(&self) -> Result<Option<Classes>> {
        match self {
            Listed::No => Ok(None),
            Listed::Names(names) => Classes::new(names).map(Some),
            Listed::File(path) => Classes::read(path).map(Some),
        }
    }
}

/// Name and class names of a dataset.
type Set = (String, Vec<String>);

/// Names of folders that usually contain one split of a dataset.
const SPLITS: [&str; 7] = ["train", "val", "valid", "validation", "test", "dev", "eval"];

/// Class lists of datasets that this process has opened, most recent last, each with its parent
/// folder.
static OPENED: Mutex<Vec<(PathBuf, Set)>> = Mutex::new(Vec::new());
/// Maximum length of [`OPENED`].
const MOST_OPENED: usize = 32;

/// Warns if the classes of `source` have different labels in a sibling split of `path`, or in a
/// dataset in the same folder that this process has opened. Datasets in other folders are usually
/// unrelated.
pub(super) fn compare(path: Option<&Path>, source: &dyn Source) {
    let classes = source.classes();
    if classes.is_empty() || source.is_empty() {
        return;
    }
    // `path` may be user code.
    let file = || guarded(|| Ok(source.path(0))).ok().flatten();
    let Some(place) = path.map(Path::to_owned).or_else(file) else { return };
    let set: Set = (place.display().to_string(), classes.to_vec());
    let folder =
        std::path::absolute(&place).ok().and_then(|place| Some(place.parent()?.to_owned())).unwrap_or_default();
    let split = path.filter(|_| source.kind() == "folder").and_then(|path| split_that_differs(path, &set));
    // Do not block, because a lock that was held at `fork` is never released in the child.
    let Ok(mut opened) = OPENED.try_lock() else { return };
    opened.retain(|(_, (name, _))| *name != set.0);
    let mut near = opened.iter().rev().filter(|(other, _)| *other == folder);
    if let Some(text) = split.or_else(|| near.find_map(|(_, other)| disagree(&set, other))) {
        tracing::warn!("{text}");
    }
    opened.push((folder, set));
    let old = opened.len().saturating_sub(MOST_OPENED);
    opened.drain(..old);
}

/// Looks for a sibling split of the dataset at `path` that numbers the classes differently, and
/// describes the difference. The comparison uses folder names, which determine the labels when that
/// split is opened.
fn split_that_differs(path: &Path, set: &Set) -> Option<String> {
    let folder = path.file_name().and_then(OsStr::to_str).filter(|name| SPLITS.contains(name))?;
    SPLITS.iter().filter(|split| **split != folder).find_map(|split| {
        let other = path.with_file_name(split);
        disagree(set, &(other.display().to_string(), class_folders(&other)))
    })
}

/// Returns the names of the class folders in `folder`, indexed by label.
fn class_folders(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    // A flat folder may contain millions of files, so use the type from the listing, which is known
    // for everything except links.
    let is_folder = |entry: &fs::DirEntry| {
        entry.file_type().is_ok_and(|kind| kind.is_dir() || kind.is_symlink() && entry.path().is_dir())
    };
    let folders = entries.filter(is_folder).filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = folders.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

/// Describes the first difference in numbering between two datasets. Datasets without a common
/// class are unrelated and not compared.
fn disagree((one, classes): &Set, (two, others): &Set) -> Option<String> {
    let numbers: HashMap<&String, usize> = others.iter().zip(0..).collect();
    let mut common = classes.iter().enumerate().filter_map(|(label, name)| Some((name, label, *numbers.get(name)?)));
    let moved = common.clone().find(|(_, label, other)| label != other);
    let place = match moved {
        Some((name, label, other)) => format!("class {name:?} is {label} in {one} and {other} in {two}"),
        None => {
            common.next()?;
            let label = classes.iter().zip(others).position(|(one, other)| one != other)?;
            format!("label {label} is {:?} in {one} and {:?} in {two}", classes[label], others[label])
        }
    };
    Some(format!(
        "{place}; if one run uses both, pass the same list to each loader: Loader::classes or Loader::classes_file"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datasets_with_common_classes_are_compared() {
        let set = |name: &str, classes: &[&str]| (name.to_owned(), classes.iter().map(|&c| c.to_owned()).collect());
        let train: Set = set("train", &["cat", "dog", "fox"]);
        let text = |classes: &[&str]| disagree(&train, &set("val", classes));
        assert!(text(&["dog", "fox"]).unwrap().starts_with("class \"dog\" is 1 in train and 0 in val; "));
        assert!(text(&["cat", "elk"]).unwrap().starts_with("label 1 is \"dog\" in train and \"elk\" in val; "));
        for agree in [&["cat", "dog", "fox"][..], &["cat"], &["cat", "dog", "fox", "owl"], &["ship", "plane"], &[]] {
            assert_eq!(text(agree), None, "{agree:?}");
        }
    }
}
