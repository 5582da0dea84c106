//! Lists the images or videos of a local folder with their labels and classes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::walk::{FileKind, IgnoredFiles, Name, Walk, list_folder, modification_time};
use crate::error::{Error, Result, counted, push, reservation_result, reserve, try_collect};
use crate::machine::hash::Hash;
use crate::machine::parallel::in_parallel;
use crate::storage::splits::common_split_name;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// The paths relative to the root, concatenated to avoid an allocation per path. A sample takes
    /// its path, 8 bytes in `path_ends` and 4 bytes in `labels`.
    pub(super) paths: String,
    pub(super) path_ends: Vec<usize>,
    /// Empty if there are no classes.
    pub(crate) labels: Vec<u32>,
    pub(crate) classes: Vec<String>,
    /// Sorted indices of the samples with names that are not UTF-8.
    pub(crate) invalid_names: Vec<usize>,
}

/// The folders that have been listed, each with its modification time just before it was listed.
/// The name of the root is empty.
pub(super) type Visited = Vec<(Name, Option<SystemTime>)>;

impl Listing {
    pub(crate) fn hash(&self) -> Hash {
        // Hash the ends too: without them, "a", "bc" would equal "ab", "c".
        let hash = Hash::default().text(&self.paths);
        self.path_ends.iter().fold(hash, |hash, &end| hash.number(end as u64))
    }

    pub(super) fn list_classes(path: &Path, kind: FileKind<'_>) -> Result<(Self, Visited)> {
        let canonical = fs::canonicalize(path).map_err(|e| Error::io(path, &e))?;
        let mut visited = vec![(Name { text: String::new(), is_invalid: false }, modification_time(path))];
        let root_entries = list_folder(path, kind)?;
        let class_paths: Vec<(PathBuf, Name)> =
            try_collect(root_entries.folders.iter().map(|name| Ok((path.join(name), Name::new(name)))))?;
        let walk_class = |(folder, name): &(PathBuf, Name)| {
            let (ancestors, folders, visited) = (vec![canonical.clone()], Vec::new(), Vec::new());
            let mut walk = Walk { ancestors, folders, ignored_files: IgnoredFiles::default(), visited };
            walk.visit(folder, name.clone(), kind)?;
            // The order of ImageFolder: the folders in a class by path ("a-b" before "a/b"), then
            // the files in each folder by name.
            walk.folders.sort_unstable();
            Ok(walk)
        };
        let mut classes = in_parallel(&class_paths, walk_class)?;

        let mut listing = Listing::default();
        for (label, class) in classes.iter_mut().enumerate() {
            reserve(&mut visited, class.visited.len())?;
            visited.append(&mut class.visited);
            for (folder, names) in &class.folders {
                for name in names {
                    listing.push(&folder.text, &name.text, folder.is_invalid || name.is_invalid)?;
                    push(&mut listing.labels, label as u32)?;
                }
            }
        }
        if listing.path_ends.is_empty() {
            root_entries.images.iter().try_for_each(|name| listing.push("", &name.text, name.is_invalid))?;
        } else {
            listing.classes = class_paths.into_iter().map(|(_, name)| name.text).collect();
            if !root_entries.images.is_empty() {
                let [singular, many] = kind.nouns();
                let ignored = counted(root_entries.images.len(), singular, many);
                tracing::warn!("{}: ignored {ignored} next to the class folders", path.display());
            }
        }
        let mut ignored_files = root_entries.ignored_files;
        classes.into_iter().for_each(|class| ignored_files.add(class.ignored_files));
        if listing.path_ends.is_empty() {
            let folders = root_entries.folders.len();
            let description = if ignored_files.count + folders == 0 {
                "the folder is empty".to_owned()
            } else {
                format!("found {ignored_files}, {}", counted(folders, "subfolder", "subfolders"))
            };
            let ([_, nouns], extensions) = (kind.nouns(), kind.extensions());
            return Err(Error::in_source(format!("no {nouns}: {description}; looked for {extensions}")).at_path(path));
        }
        ignored_files.warn_hidden(path);
        if ignored_files.count > 0 && matches!(kind, FileKind::Images(_)) {
            tracing::warn!(
                "{}: ignored {ignored_files} without the extension of a supported image format: convert images to \
                 such a format, or add a codec",
                path.display()
            );
        }
        Ok((listing, visited))
    }

    /// Logs a warning if the class folders of `path` are probably splits, or images and their masks.
    pub(super) fn warn_about_classes(&self, path: &Path, has_masks: bool) {
        let classes = &self.classes;
        let is_split = |name: &&String| common_split_name(name).is_some();
        if let (Some(first), true) = (classes.first(), classes.iter().all(|name| is_split(&name))) {
            let is_train = |name: &&String| common_split_name(name) == Some("train");
            let split = path.join(classes.iter().find(is_train).unwrap_or(first));
            tracing::warn!(
                "{}: the class folders {classes:?} look like splits: open {} to load one split",
                path.display(),
                split.display()
            );
        }
        let is_called = |name: &String, names: &[&str]| names.iter().any(|other| other.eq_ignore_ascii_case(name));
        let (images, masks) = match &classes[..] {
            [first, second] if is_called(first, &["images"]) => (first, second),
            [first, second] => (second, first),
            _ => return,
        };
        if !has_masks && is_called(images, &["images"]) && is_called(masks, &["masks", "labels", "annotations"]) {
            tracing::warn!(
                "{}: the class folders {classes:?} look like images and their annotations; to load the masks, open {} \
                 with the option masks set to {masks:?}",
                path.display(),
                path.join(images).display()
            );
        }
    }

    #[cfg(feature = "video")]
    pub(crate) fn videos(path: &Path) -> Result<Self> {
        Ok(Self::list_classes(path, FileKind::Videos)?.0)
    }

    pub(super) fn push(&mut self, folder: &str, name: &str, is_invalid: bool) -> Result<()> {
        if is_invalid {
            push(&mut self.invalid_names, self.path_ends.len())?;
        }
        reservation_result(self.paths.try_reserve(folder.len() + name.len() + 1))?;
        if !folder.is_empty() {
            self.paths.push_str(folder);
            self.paths.push('/');
        }
        self.paths.push_str(name);
        push(&mut self.path_ends, self.paths.len())
    }

    pub(crate) fn len(&self) -> usize {
        self.path_ends.len()
    }

    /// Yields each folder that contains samples, or nothing if the samples have no classes.
    pub(super) fn class_folders(&self) -> impl Iterator<Item = &str> {
        let mut last = "";
        let folders = (0..self.labels.len()).filter_map(|index| Some(self.path(index).rsplit_once('/')?.0));
        folders.filter(move |folder| std::mem::replace(&mut last, folder) != *folder)
    }

    pub(crate) fn path(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.path_ends[index - 1] };
        &self.paths[start..self.path_ends[index]]
    }
}
