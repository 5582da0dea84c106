use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::walk::{Name, Others, Walk, list, modified};
use crate::error::{Error, Result, collected, counted, push, reserve, reserved};
use crate::format::{FORMATS, Format};
use crate::machine::hash::Hash;
use crate::machine::parallel::in_parallel;

/// The images of a folder, their labels and classes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// All paths below the root, concatenated: a name takes its bytes and 12 more, without its own
    /// allocation.
    pub(super) paths: String,
    pub(super) ends: Vec<usize>,
    /// Empty if there are no classes.
    pub(super) labels: Vec<u32>,
    pub(super) classes: Vec<String>,
    /// The samples whose names are not UTF-8, in order.
    pub(super) bad: Vec<usize>,
}

/// The listed folders, the root as an empty name, with their times before listing.
pub(super) type Visited = Vec<(Name, Option<SystemTime>)>;

impl Names {
    /// Hash of the list.
    pub(super) fn hash(&self) -> Hash {
        // The paths alone could be cut elsewhere.
        let hash = Hash::default().text(&self.paths);
        self.ends.iter().fold(hash, |hash, &end| hash.number(end as u64))
    }

    /// Lists the folder at `path`.
    ///
    /// # Errors
    /// If a folder cannot be listed, or if there is no image.
    pub(super) fn list(path: &Path, formats: &[Format]) -> Result<(Self, Visited)> {
        let canonical = fs::canonicalize(path).map_err(|e| Error::io(path, &e))?;
        let mut visited = vec![(Name { text: String::new(), bad: false }, modified(path))];
        let top = list(path, formats)?;
        let class_paths: Vec<(PathBuf, Name)> =
            collected(top.folders.iter().map(|name| Ok((path.join(name), Name::new(name)))))?;
        let walk_class = |(folder, name): &(PathBuf, Name)| {
            let (ancestors, found, visited) = (vec![canonical.clone()], Vec::new(), Vec::new());
            let mut walk = Walk { ancestors, found, others: Others::default(), visited };
            walk.folder(folder, name.clone(), formats)?;
            // ImageFolder sorts the folders of a class by path (so "a-b" comes before "a/b"), then
            // the files of each by name.
            walk.found.sort_unstable();
            Ok(walk)
        };
        let mut classes = in_parallel(&class_paths, walk_class)?;

        let mut set = Names::default();
        for (label, class) in classes.iter_mut().enumerate() {
            reserve(&mut visited, class.visited.len())?;
            visited.append(&mut class.visited);
            for (folder, names) in &class.found {
                for name in names {
                    set.push(&folder.text, &name.text, folder.bad || name.bad)?;
                    push(&mut set.labels, label as u32)?;
                }
            }
        }
        if set.ends.is_empty() {
            top.images.iter().try_for_each(|name| set.push("", &name.text, name.bad))?;
        } else {
            set.classes = class_paths.into_iter().map(|(_, name)| name.text).collect();
            if !top.images.is_empty() {
                let found = counted(top.images.len(), "image", "images");
                tracing::warn!("{}: left out {found} next to the class folders", path.display());
            }
        }
        let mut others = top.others;
        classes.into_iter().for_each(|class| others.add(class.others));
        if set.ends.is_empty() {
            let folders = top.folders.len();
            let found = if others.count + folders == 0 {
                "the folder is empty".to_owned()
            } else {
                format!("found {others}, {}", counted(folders, "sub-folder", "sub-folders"))
            };
            let looked: Vec<_> = FORMATS.iter().chain(formats).flat_map(|format| format.extensions).copied().collect();
            let looked = looked.join(", .");
            return Err(Error::in_source(format!("no images: {found}; looked for .{looked}")).at_path(path));
        }
        others.tell_hidden(path);
        if others.count > 0 {
            tracing::warn!(
                "{}: left out {others}: no image format that is read has these names; convert such images, or read \
                 them with a codec of your own",
                path.display()
            );
        }
        Ok((set, visited))
    }

    pub(super) fn push(&mut self, folder: &str, name: &str, bad: bool) -> Result<()> {
        if bad {
            push(&mut self.bad, self.ends.len())?;
        }
        reserved(self.paths.try_reserve(folder.len() + name.len() + 1))?;
        if !folder.is_empty() {
            self.paths.push_str(folder);
            self.paths.push('/');
        }
        self.paths.push_str(name);
        push(&mut self.ends, self.paths.len())
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The folders of the images, if there are class folders.
    pub(super) fn class_folders(&self) -> impl Iterator<Item = &str> {
        let mut last = "";
        let folders = (0..self.labels.len()).filter_map(|index| Some(self.path(index).rsplit_once('/')?.0));
        folders.filter(move |folder| std::mem::replace(&mut last, folder) != *folder)
    }

    /// Path of sample `index` below the root.
    pub(super) fn path(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.paths[start..self.ends[index]]
    }
}
