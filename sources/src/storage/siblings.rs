//! Finds the files and folders near the images in a folder, from which annotation formats recognize
//! their datasets. Without this search, a folder of an annotated dataset would be opened as if its
//! subfolders were classes.

use std::path::Path;

use super::tree::Tree;
use crate::error::Result;

/// Maximum number of folders, of entries per folder, and of files that are inspected. Annotated
/// datasets have few image folders, so more folders are assumed to be classes.
const MAX_ENTRIES: usize = 16;
/// Number of leading bytes that are read to recognize annotations.
const HEAD_BYTES: usize = 4096;

pub(crate) struct Siblings<'a> {
    pub(crate) tree: Tree<'a>,
    files: Vec<String>,
    /// The folders with subfolders that contain images: the path with a trailing slash (empty for
    /// the root), and the names of these subfolders.
    pub(crate) image_folders: Vec<(&'a str, Vec<&'a str>)>,
}

impl<'a> Siblings<'a> {
    /// `images` yields the relative paths of the folders that contain images.
    pub(crate) fn of(tree: Tree<'a>, images: impl Iterator<Item = &'a str>) -> Result<Self> {
        let mut image_folders: Vec<(&str, Vec<&str>)> = Vec::new();
        for path in images {
            let starts = std::iter::once(0).chain(path.match_indices('/').map(|(offset, _)| offset + 1));
            for start in starts {
                let (folder, entry) = (&path[..start], path[start..].split('/').next().unwrap_or_default());
                match image_folders.iter().position(|(known, _)| *known == folder) {
                    Some(i) if !image_folders[i].1.contains(&entry) && image_folders[i].1.len() < MAX_ENTRIES => {
                        image_folders[i].1.push(entry);
                    }
                    None if image_folders.len() < MAX_ENTRIES => image_folders.push((folder, vec![entry])),
                    _ => {}
                }
            }
        }
        Ok(Siblings { tree, files: tree.file_names()?, image_folders })
    }

    pub(crate) fn file(&self, extensions: &[&str], matches: fn(&[u8]) -> bool) -> Result<Option<&str>> {
        let has_extension = |name: &&String| {
            Path::new(name).extension().is_some_and(|extension| extensions.iter().any(|e| extension == *e))
        };
        for name in self.files.iter().filter(has_extension).take(MAX_ENTRIES) {
            if matches(&self.tree.leading_bytes(name, HEAD_BYTES)?) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Returns the paths of a few files in each folder called `Annotations` or `annotations` near
    /// the images, enough to recognize the format.
    pub(crate) fn annotations(&self) -> Result<Vec<Vec<String>>> {
        let mut annotations = Vec::new();
        for (parent, _) in &self.image_folders {
            for name in ["Annotations", "annotations"] {
                let folder = format!("{parent}{name}");
                if self.tree.has_folder(&folder)? {
                    let names = self
                        .tree
                        .in_subfolder(&folder, |tree| tree.entries().take(MAX_ENTRIES).collect::<Result<Vec<_>>>())?;
                    let mut paths: Vec<_> = names.into_iter().map(|(name, _)| format!("{folder}/{name}")).collect();
                    paths.sort();
                    annotations.push(paths);
                }
            }
        }
        Ok(annotations)
    }
}
