//! What lies around the images of class folders. Formats with annotations tell by it that the
//! folder is theirs, and that its folders are no classes.

use std::path::Path;

use super::tree::Tree;
use crate::error::Result;

/// Number of folders that are looked at for annotations. More are classes.
const FOLDERS: usize = 16;
/// Bytes that tell whether a file has annotations.
const START: usize = 4096;

/// A folder of images.
pub(crate) struct Around<'a> {
    pub(crate) tree: Tree<'a>,
    /// The files in it.
    files: Vec<String>,
    /// The folders above the images, as prefixes of paths, each with the names of those in it
    /// that lead to images.
    pub(crate) above: Vec<(&'a str, Vec<&'a str>)>,
}

impl<'a> Around<'a> {
    /// The folder `tree`, whose `images` are in these folders below it.
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

    /// The first file in the folder that has one of these extensions and begins as `is` says.
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

    /// The paths of the files in each folder that is usual for annotations and lies next to those
    /// of the images, as far as they tell what it has.
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
