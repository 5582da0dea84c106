//! [`Tree`]: a folder to list, local or in a store, so that the same rules detect the formats of
//! both.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::prefetch::Remote;
use crate::error::{Error, Result};
use crate::machine::file;
use crate::machine::slashes::normalize_separators;
use crate::model::Object;

const MAX_DEPTH: usize = 2;
/// Maximum number of folders that are searched at one depth. More folders are assumed to be classes
/// instead of splits.
const MAX_FOLDERS: usize = 256;
/// Name of the index file that lists the shards of a dataset.
pub(crate) const INDEX_FILE: &str = "index.json";
/// Number of leading bytes that are read to detect the type of a file.
pub(crate) const HEAD_BYTES: usize = 512;

#[derive(Clone, Copy)]
pub(crate) enum Tree<'a> {
    Local(&'a Path),
    /// The URL of a folder, the listed objects sorted by URL, and the store.
    Stored(&'a str, &'a [Object], &'a Remote),
}

impl<'a> Tree<'a> {
    /// Returns whether a file exists. The result is also true for a pipe or a device, so that
    /// opening the dataset reports an error.
    pub(crate) fn has_file(self, name: &str) -> Result<bool> {
        match self {
            Tree::Local(folder) => Ok(file::metadata(&folder.join(name))?.is_some_and(|info| !info.is_dir())),
            Tree::Stored(..) => Ok(self.objects_below().any(|(path, _)| path == name)),
        }
    }

    pub(crate) fn has_folder(self, name: &str) -> Result<bool> {
        match self {
            Tree::Local(folder) => file::is_folder(folder.join(name)),
            Tree::Stored(..) => Ok(self
                .objects_below()
                .any(|(path, _)| path.strip_prefix(name).is_some_and(|rest| rest.starts_with('/')))),
        }
    }

    /// Yields the name of each entry in unspecified order, and whether it is a folder. Skips hidden
    /// entries and follows symbolic links.
    pub(crate) fn entries(self) -> Box<dyn Iterator<Item = Result<(String, bool)>> + 'a> {
        let folder = match self {
            Tree::Local(folder) => folder,
            Tree::Stored(..) => {
                let mut seen = BTreeSet::new();
                return Box::new(self.objects_below().filter_map(move |(name, _)| match name.split_once('/') {
                    Some((folder, _)) => seen.insert(folder.to_owned()).then(|| Ok((folder.to_owned(), true))),
                    None => Some(Ok((name.to_owned(), false))),
                }));
            }
        };
        let io_error = move |e: io::Error| Error::io(folder, &e);
        match fs::read_dir(folder) {
            Err(e) => Box::new(std::iter::once(Err(io_error(e)))),
            Ok(entries) => Box::new(entries.filter_map(move |entry| {
                let is_folder_and_name = entry.and_then(|entry| Ok((is_folder(&entry)?, entry.file_name())));
                let entry = is_folder_and_name.map(|(is_folder_and_name, name)| {
                    is_folder_and_name.map(|is_folder| (name.to_string_lossy().into_owned(), is_folder))
                });
                entry.map_err(io_error).transpose()
            })),
        }
    }

    pub(crate) fn file_names(self) -> Result<Vec<String>> {
        let files =
            self.entries().filter_map(|entry| entry.map(|(name, is_folder)| (!is_folder).then_some(name)).transpose());
        let mut names = files.collect::<Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    pub(crate) fn count_files(self, extension: &str) -> Result<usize> {
        let matches = |(name, is_folder): (String, bool)| file::has_extension(&name, extension) && !is_folder;
        self.entries().try_fold(0, |count, entry| Ok(count + usize::from(matches(entry?))))
    }

    pub(crate) fn in_subfolder<R>(self, name: &str, f: impl FnOnce(Tree<'_>) -> R) -> R {
        match self {
            Tree::Local(folder) => f(Tree::Local(&folder.join(name))),
            Tree::Stored(url, objects, remote) => {
                f(Tree::Stored(&format!("{}/{name}", url.trim_end_matches('/')), objects, remote))
            }
        }
    }

    /// Returns up to [`HEAD_BYTES`] leading bytes of a file, or nothing if it does not exist.
    pub(crate) fn first_bytes(self, name: &str) -> Result<Vec<u8>> {
        self.leading_bytes(name, HEAD_BYTES)
    }

    pub(crate) fn leading_bytes(self, name: &str, len: usize) -> Result<Vec<u8>> {
        match self {
            Tree::Local(folder) => {
                let path = folder.join(name);
                if file::is_file(&path)? { file::read_head(&path, len) } else { Ok(Vec::new()) }
            }
            Tree::Stored(_, _, remote) => match self.objects_below().find(|(path, _)| *path == name) {
                Some((_, object)) => remote.bytes(object, 0, object.len.min(len as u64)),
                None => Ok(Vec::new()),
            },
        }
    }

    /// Returns the relative paths of the files with this extension, sorted by component. Searches
    /// the folder, its subfolders, and their subfolders, and returns the files at the first of
    /// these depths that has any. Skips hidden files and folders.
    pub(crate) fn files(self, extension: &str) -> Result<Vec<String>> {
        let has_extension = |name: &str| {
            Path::new(name).extension().is_some_and(|file_extension| file_extension.eq_ignore_ascii_case(extension))
        };
        let Tree::Local(root) = self else {
            let files_below: Vec<&str> =
                self.objects_below().map(|(name, _)| name).filter(|name| has_extension(name)).collect();
            let names_at = |depth: usize| files_below.iter().filter(move |name| name.matches('/').count() == depth);
            let folder =
                |name: &'a str, depth: usize| name.match_indices('/').nth(depth - 1).map(|(end, _)| &name[..end]);
            let has_few_folders = |depth: usize| {
                let folders: BTreeSet<_> = self.objects_below().filter_map(|(name, _)| folder(name, depth)).collect();
                folders.len() <= MAX_FOLDERS
            };
            let depths = (0..=MAX_DEPTH).take_while(|&depth| depth == 0 || has_few_folders(depth));
            let depth = depths.into_iter().find(|&depth| names_at(depth).next().is_some());
            let mut names: Vec<String> = depth.into_iter().flat_map(names_at).map(|name| (*name).to_owned()).collect();
            // Sort by component, so that the files of a folder stay together.
            names.sort_by(|a, b| a.split('/').cmp(b.split('/')));
            return Ok(names);
        };
        let mut folders = vec![root.to_owned()];
        for _ in 0..=MAX_DEPTH {
            let (mut files, mut subfolders) = (Vec::<PathBuf>::new(), Vec::new());
            for folder in &folders {
                for entry in fs::read_dir(folder).map_err(|e| Error::io(folder, &e))? {
                    let entry = entry.map_err(|e| Error::io(folder, &e))?;
                    let path = entry.path();
                    match is_folder(&entry).map_err(|e| Error::io(&path, &e))? {
                        Some(true) => subfolders.push(path),
                        Some(false) if has_extension(&entry.file_name().to_string_lossy()) => files.push(path),
                        _ => {}
                    }
                }
            }
            if !files.is_empty() {
                files.sort();
                let name = |path: &PathBuf| {
                    path.strip_prefix(root).ok()?.to_str().map(|name| normalize_separators(name).into_owned())
                };
                let error = |path: &Path| Error::in_source("the name is not UTF-8").at_path(path);
                return files.iter().map(|path| name(path).ok_or_else(|| error(path))).collect();
            }
            if subfolders.len() > MAX_FOLDERS {
                break;
            }
            subfolders.sort();
            folders = subfolders;
        }
        Ok(Vec::new())
    }

    fn objects_below(self) -> impl Iterator<Item = (&'a str, &'a Object)> {
        let (url, objects) = match self {
            Tree::Local(_) => ("", &[][..]),
            Tree::Stored(url, objects, _) => (url.trim_end_matches('/'), objects),
        };
        objects.iter().filter_map(move |object| {
            let name = object.url.strip_prefix(url)?.strip_prefix('/')?;
            let is_hidden = name.split('/').any(|part| part.starts_with('.'));
            // Some stores represent a folder by an object with a trailing slash.
            (!is_hidden && !name.is_empty() && !name.ends_with('/')).then_some((name, object))
        })
    }
}

/// Returns whether an entry is a folder. Returns `None` if the entry is hidden, is neither a file
/// nor a folder, or is a dangling link. (In stores, `Tree::objects_below` skips hidden objects.)
fn is_folder(entry: &fs::DirEntry) -> io::Result<Option<bool>> {
    if entry.file_name().as_encoded_bytes().starts_with(b".") {
        return Ok(None);
    }
    let kind = entry.file_type()?;
    let kind =
        if kind.is_symlink() { fs::metadata(entry.path()).ok().map(|target| target.file_type()) } else { Some(kind) };
    Ok(kind.filter(|kind| kind.is_dir() || kind.is_file()).map(|kind| kind.is_dir()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::Store;

    /// A store without objects. The tests pass listed objects to [`Tree::Stored`].
    struct EmptyStore;

    impl Store for EmptyStore {
        fn list(&self, _: &str) -> Result<Vec<Object>> {
            Ok(Vec::new())
        }

        fn object(&self, url: &str) -> Result<Object> {
            Err(Error::in_source("no object").at_path(url))
        }

        fn read(&self, object: &Object, _: u64, _: &mut [u8]) -> Result<()> {
            Err(Error::in_source("no object").at_path(&object.url))
        }
    }

    /// Calls `check` with a local folder and with a folder in a store, both with the files in
    /// `names`.
    fn in_both(names: &[&str], check: impl Fn(Tree<'_>)) {
        let (folder, linked) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in names {
            // Stores have no symbolic links, so `linked/` is an ordinary prefix there.
            let (from, below) = match name.strip_prefix("linked/") {
                Some(below) if cfg!(unix) => (linked.path(), below),
                _ => (folder.path(), *name),
            };
            fs::create_dir_all(from.join(below).parent().unwrap()).unwrap();
            fs::write(from.join(below), b"x").unwrap();
        }
        #[cfg(unix)]
        if names.iter().any(|name| name.starts_with("linked/")) {
            std::os::unix::fs::symlink(linked.path(), folder.path().join("linked")).unwrap();
            std::os::unix::fs::symlink("missing", folder.path().join("nowhere.npy")).unwrap();
        }
        check(Tree::Local(folder.path()));
        let url = "mem://set";
        let object = |name: &&str| Object { url: format!("{url}/{name}"), len: 1, tag: None, server: None };
        let objects: Vec<_> = names.iter().map(object).collect();
        check(Tree::Stored(url, &objects, &Remote::new(Arc::new(EmptyStore))));
    }

    #[test]
    fn hidden_entries_are_skipped_and_links_followed() {
        let names = ["a.npy", ".b.npy", ".ipynb_checkpoints/a-checkpoint.npy", "linked/c.npy", "more/d.npy"];
        in_both(&names, |tree| {
            let mut entries: Vec<_> = tree.entries().collect::<Result<_>>().unwrap();
            entries.sort();
            assert_eq!(entries, [("a.npy".into(), false), ("linked".into(), true), ("more".into(), true)]);
            assert_eq!(tree.count_files("npy").unwrap(), 1);
            assert_eq!(tree.files("npy").unwrap(), ["a.npy"]);
        });
        in_both(&["linked/c.npy", "more/d.npy", ".e.npy"], |tree| {
            assert_eq!(tree.files("npy").unwrap(), ["linked/c.npy", "more/d.npy"]);
        });
    }

    #[test]
    fn a_listing_error_names_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let tree = Tree::Local(&file);
        let errors = [tree.entries().next().unwrap().err(), tree.file_names().err(), tree.count_files("npy").err()];
        for e in errors.into_iter().chain([tree.files("npy").err()]) {
            assert_eq!(e.unwrap().path(), Some(&*file));
        }
        assert!(
            tree.first_bytes("index.json").unwrap().is_empty() && !tree.has_file("x").unwrap(),
            "a file has no children"
        );
    }
}
