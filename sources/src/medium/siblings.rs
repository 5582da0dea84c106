//! Finds the files and folders next to the images of a folder dataset. Formats with annotations use
//! this module to recognize annotated datasets, whose folders are not classes.

use std::path::Path;

use super::tree::Tree;
use crate::error::Result;

/// Maximum number of folders that are searched for annotations. If there are more, they are class
/// folders.
const FOLDERS: usize = 16;
/// Number of leading bytes that are examined to determine whether a file contains annotations.
const START: usize = 4096;

/// The surroundings of the images in a folder.
pub(crate) struct Around<'a> {
    pub(crate) tree: Tree<'a>,
    /// Names of the files directly in the folder.
    files: Vec<String>,
    /// Each folder that contains images at any depth, as a path prefix, with the names of those of
    /// its entries that are images or contain images.
    pub(crate) above: Vec<(&'a str, Vec<&'a str>)>,
}

impl<'a> Around<'a> {
    /// Creates the description of the folder `tree`, given the relative paths of its `images`.
    ///
    /// # Errors
    /// If the folder cannot be listed.
    pub(crate) fn of(tree: Tree<'a>, images: impl Iterator<Item = &'a str>) -> Result<Self> {
        let mut above: Vec<(&str, Vec<&str>)> = Vec::new();
        for path in images {
            let starts = std::iter::once(0).chain(path.match_indices('/').map(|(at, _)| at + 1));
            for start in starts {
                let (place, inside) = (&path[..start], path[start..].split('/').next().unwrap_or_default());
                match above.iter().position(|(other, _)| *other == place) {
                    Some(at) if !above[at].1.contains(&inside) && above[at].1.len() < FOLDERS => {
                        above[at].1.push(inside);
                    }
                    None if above.len() < FOLDERS => above.push((place, vec![inside])),
                    _ => {}
                }
            }
        }
        Ok(Around { tree, files: tree.file_names()?, above })
    }

    /// Returns the first file in the folder that has one of `extensions` and whose leading bytes
    /// satisfy `is`.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn file(&self, extensions: &[&str], is: fn(&[u8]) -> bool) -> Result<Option<&str>> {
        let has_end =
            |name: &&String| Path::new(name).extension().is_some_and(|end| extensions.iter().any(|e| end == *e));
        for name in self.files.iter().filter(has_end).take(FOLDERS) {
            if is(&self.tree.start_of(name, START)?) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Returns the paths of the files in each folder named `Annotations` or `annotations` next to
    /// the image folders. Lists only as many files as are needed to recognize the format.
    ///
    /// # Errors
    /// If a folder cannot be listed.
    pub(crate) fn annotations(&self) -> Result<Vec<Vec<String>>> {
        let mut found = Vec::new();
        for (place, _) in &self.above {
            for name in ["Annotations", "annotations"] {
                let folder = format!("{place}{name}");
                if self.tree.has_folder(&folder)? {
                    let names =
                        self.tree.within(&folder, |tree| tree.entries().take(FOLDERS).collect::<Result<Vec<_>>>())?;
                    let mut paths: Vec<_> = names.into_iter().map(|(name, _)| format!("{folder}/{name}")).collect();
                    paths.sort();
                    found.push(paths);
                }
            }
        }
        Ok(found)
    }
}
