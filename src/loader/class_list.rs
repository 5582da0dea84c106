use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::error::{Result, guarded};
use crate::source::{Classes, Source};

/// The list of classes of a loader, if it has one.
#[derive(Clone, Default)]
pub(super) enum Listed {
    #[default]
    No,
    Names(Vec<String>),
    File(PathBuf),
}

impl Listed {
    /// Checks the list, or reads it.
    pub(super) fn open(&self) -> Result<Option<Classes>> {
        match self {
            Listed::No => Ok(None),
            Listed::Names(names) => Classes::new(names).map(Some),
            Listed::File(path) => Classes::read(path).map(Some),
        }
    }
}

/// The name of a dataset and its classes.
type Set = (String, Vec<String>);

/// Names of folders that hold a part of a dataset.
const SPLITS: [&str; 7] = ["train", "val", "valid", "validation", "test", "dev", "eval"];

/// Class lists of datasets that this process has opened, the latest last, each with the folder that
/// it lies in.
static OPENED: Mutex<Vec<(PathBuf, Set)>> = Mutex::new(Vec::new());
/// Maximum length of [`OPENED`].
const MOST_OPENED: usize = 32;

/// Warns if the classes of `source` are numbered differently by another split that lies next to
/// `path`, or by a dataset in the same folder that this process has opened. Datasets elsewhere are
/// unrelated more often than not.
pub(super) fn compare(path: Option<&Path>, source: &dyn Source) {
    let classes = source.classes();
    if classes.is_empty() || source.is_empty() {
        return;
    }
    // The path may come from the user's code.
    let file = || guarded(|| Ok(source.path(0))).ok().flatten();
    let Some(place) = path.map(Path::to_owned).or_else(file) else { return };
    let set: Set = (place.display().to_string(), classes.to_vec());
    let folder =
        std::path::absolute(&place).ok().and_then(|place| Some(place.parent()?.to_owned())).unwrap_or_default();
    let split = path.filter(|_| source.kind() == "folder").and_then(|path| split_that_differs(path, &set));
    // A lock that a fork has left is never released.
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

/// Describes how another split of the dataset at `path`, next to it, numbers the classes differently.
/// Compares folder names, as opening the other split would.
fn split_that_differs(path: &Path, set: &Set) -> Option<String> {
    let folder = path.file_name().and_then(OsStr::to_str).filter(|name| SPLITS.contains(name))?;
    SPLITS.iter().filter(|split| **split != folder).find_map(|split| {
        let other = path.with_file_name(split);
        disagree(set, &(other.display().to_string(), class_folders(&other)))
    })
}

/// Names of the class folders of a folder, by label.
fn class_folders(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    // The listing has the type, except for links. A flat folder may hold millions of files.
    let is_folder = |entry: &fs::DirEntry| {
        entry.file_type().is_ok_and(|kind| kind.is_dir() || kind.is_symlink() && entry.path().is_dir())
    };
    let folders = entries.filter(is_folder).filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = folders.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

/// Describes the first difference in numbering between two sets that share a class. Sets without a
/// common class are unrelated.
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
        "{place}; if one run uses both, give each loader the same list: Loader::classes or Loader::classes_file"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_disagree_about_a_class_or_a_label_if_they_have_one_in_common() {
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
