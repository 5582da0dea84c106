//! The class list of a loader, and a warning if two datasets number their classes differently.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::error::{Result, guarded};
use crate::source::{Classes, Source};

#[derive(Clone, Default)]
pub(super) enum ClassList {
    #[default]
    Unset,
    Names(Vec<String>),
    File(PathBuf),
}

impl ClassList {
    /// Returns the class list, or `None` if no class list was set. Fails if the list cannot be read
    /// or is invalid.
    pub(super) fn open(&self) -> Result<Option<Classes>> {
        match self {
            ClassList::Unset => Ok(None),
            ClassList::Names(names) => Classes::new(names).map(Some),
            ClassList::File(path) => Classes::read(path).map(Some),
        }
    }
}

/// The path of a dataset, as text for messages, and its class names.
type NamedClasses = (String, Vec<String>);

/// Common names of the folders that contain the splits of a dataset.
const SPLITS: [&str; 7] = ["train", "val", "valid", "validation", "test", "dev", "eval"];

/// The most recently opened datasets of this process that have class names, oldest first. The path
/// is the parent folder of the dataset, or of its first file if the dataset was not opened by path.
/// It is empty if the parent folder cannot be determined.
static RECENT_CLASSES: Mutex<Vec<(PathBuf, NamedClasses)>> = Mutex::new(Vec::new());
const MAX_RECENT_CLASSES: usize = 32;

/// Logs a warning if `source` numbers its classes differently than a sibling split of `path`, or
/// than a dataset in the same parent folder that this process has opened recently. Datasets in
/// different parent folders are not compared, because they are usually unrelated.
pub(super) fn warn_about_differences(path: Option<&Path>, source: &dyn Source) {
    let classes = source.classes();
    if classes.is_empty() || source.is_empty() {
        return;
    }
    // `Source::path` may be user code, so catch its panics.
    let file = || guarded(|| Ok(source.path(0))).ok().flatten();
    let Some(path_or_file) = path.map(Path::to_owned).or_else(file) else { return };
    let own_classes: NamedClasses = (path_or_file.display().to_string(), classes.to_vec());
    let folder =
        std::path::absolute(&path_or_file).ok().and_then(|path| Some(path.parent()?.to_owned())).unwrap_or_default();
    let split_difference =
        path.filter(|_| source.kind() == "folder").and_then(|path| find_different_split(path, &own_classes));
    // Do not wait for the lock: in a forked child, a lock that was held at `fork` is never
    // released.
    let Ok(mut recent_classes) = RECENT_CLASSES.try_lock() else { return };
    recent_classes.retain(|(_, (name, _))| *name != own_classes.0);
    let mut neighbors = recent_classes.iter().rev().filter(|(other_folder, _)| *other_folder == folder);
    if let Some(text) = split_difference
        .or_else(|| neighbors.find_map(|(_, other_classes)| find_difference(&own_classes, other_classes)))
    {
        tracing::warn!("{text}");
    }
    recent_classes.push((folder, own_classes));
    let surplus = recent_classes.len().saturating_sub(MAX_RECENT_CLASSES);
    recent_classes.drain(..surplus);
}

/// Describes the first difference from a sibling split of `path`. Compares only the names of the
/// class folders, because these names determine the labels.
fn find_different_split(path: &Path, own_classes: &NamedClasses) -> Option<String> {
    let folder = path.file_name().and_then(OsStr::to_str).filter(|name| SPLITS.contains(name))?;
    SPLITS.iter().filter(|split| **split != folder).find_map(|split| {
        let other_path = path.with_file_name(split);
        find_difference(own_classes, &(other_path.display().to_string(), class_folders(&other_path)))
    })
}

/// Returns the names of the class folders in `folder`, in the order of their labels.
fn class_folders(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    // A flat folder may contain millions of files, so use the file types in the directory listing.
    // Only symbolic links need a separate lookup.
    let is_folder = |entry: &fs::DirEntry| {
        entry.file_type().is_ok_and(|kind| kind.is_dir() || kind.is_symlink() && entry.path().is_dir())
    };
    let folders = entries.filter(is_folder).filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = folders.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

/// Describes the first class that has different labels in two datasets, or the first label that has
/// different classes. Returns `None` if there is no difference, or if the datasets have no common
/// class, in which case they are unrelated.
fn find_difference((own_name, classes): &NamedClasses, (other_name, other_classes): &NamedClasses) -> Option<String> {
    let labels: HashMap<&String, usize> = other_classes.iter().zip(0..).collect();
    let mut common_classes =
        classes.iter().enumerate().filter_map(|(label, name)| Some((name, label, *labels.get(name)?)));
    let moved_class = common_classes.clone().find(|(_, label, other_label)| label != other_label);
    let difference = match moved_class {
        Some((name, label, other_label)) => {
            format!("class {name:?} is {label} in {own_name} and {other_label} in {other_name}")
        }
        None => {
            common_classes.next()?;
            let label =
                classes.iter().zip(other_classes).position(|(own_class, other_class)| own_class != other_class)?;
            format!(
                "label {label} is {:?} in {own_name} and {:?} in {other_name}",
                classes[label], other_classes[label]
            )
        }
    };
    Some(format!(
        "{difference}; if you use both datasets in one run, pass the same class list to each loader, \
         with Loader::classes or Loader::classes_file"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datasets_with_common_classes_are_compared() {
        let set = |name: &str, classes: &[&str]| (name.to_owned(), classes.iter().map(|&c| c.to_owned()).collect());
        let train: NamedClasses = set("train", &["cat", "dog", "fox"]);
        let text = |classes: &[&str]| find_difference(&train, &set("val", classes));
        assert!(text(&["dog", "fox"]).unwrap().starts_with("class \"dog\" is 1 in train and 0 in val; "));
        assert!(text(&["cat", "elk"]).unwrap().starts_with("label 1 is \"dog\" in train and \"elk\" in val; "));
        for agree in [&["cat", "dog", "fox"][..], &["cat"], &["cat", "dog", "fox", "owl"], &["ship", "plane"], &[]] {
            assert_eq!(text(agree), None, "{agree:?}");
        }
    }
}
