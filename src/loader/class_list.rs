//! The class list of a loader, and a warning if two datasets number their classes differently.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::error::{Result, guarded};
use crate::source::{Classes, Source};

/// The class list, as set by the user.
#[derive(Clone, Default)]
pub(super) enum Listed {
    #[default]
    No,
    Names(Vec<String>),
    File(PathBuf),
}

impl Listed {
    /// Returns the class list, or `None` if it was not set. May read a file.
    pub(super) fn open(&self) -> Result<Option<Classes>> {
        match self {
            Listed::No => Ok(None),
            Listed::Names(names) => Classes::new(names).map(Some),
            Listed::File(path) => Classes::read(path).map(Some),
        }
    }
}

/// The name of a dataset, and its class names.
type NamedClasses = (String, Vec<String>);

/// Usual names of the folders with the splits of a dataset.
const SPLITS: [&str; 7] = ["train", "val", "valid", "validation", "test", "dev", "eval"];

/// The datasets that this process has opened, oldest first, each with the folder that contains it.
static OPENED: Mutex<Vec<(PathBuf, NamedClasses)>> = Mutex::new(Vec::new());
const MAX_OPENED: usize = 32;

/// Logs a warning if a class of `source` has a different label in a sibling split of `path`, or in
/// a dataset that this process opened from the same folder. Datasets in other folders are usually
/// unrelated.
pub(super) fn compare(path: Option<&Path>, source: &dyn Source) {
    let classes = source.classes();
    if classes.is_empty() || source.is_empty() {
        return;
    }
    // `Source::path` may be user code.
    let file = || guarded(|| Ok(source.path(0))).ok().flatten();
    let Some(path_or_file) = path.map(Path::to_owned).or_else(file) else { return };
    let set: NamedClasses = (path_or_file.display().to_string(), classes.to_vec());
    let folder =
        std::path::absolute(&path_or_file).ok().and_then(|path| Some(path.parent()?.to_owned())).unwrap_or_default();
    let split = path.filter(|_| source.kind() == "folder").and_then(|path| split_that_differs(path, &set));
    // Do not wait for the lock: in a forked child, a lock that was held at `fork` is never
    // released.
    let Ok(mut opened) = OPENED.try_lock() else { return };
    opened.retain(|(_, (name, _))| *name != set.0);
    let mut near = opened.iter().rev().filter(|(other, _)| *other == folder);
    if let Some(text) = split.or_else(|| near.find_map(|(_, other)| disagree(&set, other))) {
        tracing::warn!("{text}");
    }
    opened.push((folder, set));
    let old = opened.len().saturating_sub(MAX_OPENED);
    opened.drain(..old);
}

/// Describes the first class that has a different label in a sibling split of `path`. Compares only
/// the names of the class folders, because labels follow from them.
fn split_that_differs(path: &Path, set: &NamedClasses) -> Option<String> {
    let folder = path.file_name().and_then(OsStr::to_str).filter(|name| SPLITS.contains(name))?;
    SPLITS.iter().filter(|split| **split != folder).find_map(|split| {
        let other = path.with_file_name(split);
        disagree(set, &(other.display().to_string(), class_folders(&other)))
    })
}

/// Returns the names of the class folders in `folder`, in the order of their labels.
fn class_folders(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    // A flat folder may contain millions of files, so use the file type from the directory listing,
    // and look up only links.
    let is_folder = |entry: &fs::DirEntry| {
        entry.file_type().is_ok_and(|kind| kind.is_dir() || kind.is_symlink() && entry.path().is_dir())
    };
    let folders = entries.filter(is_folder).filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = folders.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

/// Describes the first class that has different labels in two datasets, or the first label that has
/// different classes. Returns `None` for datasets without a common class, which are unrelated.
fn disagree((one, classes): &NamedClasses, (two, others): &NamedClasses) -> Option<String> {
    let labels: HashMap<&String, usize> = others.iter().zip(0..).collect();
    let mut common = classes.iter().enumerate().filter_map(|(label, name)| Some((name, label, *labels.get(name)?)));
    let moved = common.clone().find(|(_, label, other)| label != other);
    let difference = match moved {
        Some((name, label, other)) => format!("class {name:?} is {label} in {one} and {other} in {two}"),
        None => {
            common.next()?;
            let label = classes.iter().zip(others).position(|(one, other)| one != other)?;
            format!("label {label} is {:?} in {one} and {:?} in {two}", classes[label], others[label])
        }
    };
    Some(format!(
        "{difference}; if one run uses both, pass the same list to each loader: Loader::classes or Loader::classes_file"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datasets_with_common_classes_are_compared() {
        let set = |name: &str, classes: &[&str]| (name.to_owned(), classes.iter().map(|&c| c.to_owned()).collect());
        let train: NamedClasses = set("train", &["cat", "dog", "fox"]);
        let text = |classes: &[&str]| disagree(&train, &set("val", classes));
        assert!(text(&["dog", "fox"]).unwrap().starts_with("class \"dog\" is 1 in train and 0 in val; "));
        assert!(text(&["cat", "elk"]).unwrap().starts_with("label 1 is \"dog\" in train and \"elk\" in val; "));
        for agree in [&["cat", "dog", "fox"][..], &["cat"], &["cat", "dog", "fox", "owl"], &["ship", "plane"], &[]] {
            assert_eq!(text(agree), None, "{agree:?}");
        }
    }
}
