use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::{Error, Result, counted, push};
use crate::format::{self, Format};

/// Content of one folder without hidden names, sorted by name.
pub(super) struct Listing {
    pub(super) folders: Vec<OsString>,
    pub(super) images: Vec<Name>,
    pub(super) others: Others,
}

/// The file that marks a folder as a cache of the crate `warpfeed-stores`.
const CACHE: &str = "warpfeed-cache";

/// A name as text. If it is not UTF-8, the text is lossy, and the file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) bad: bool,
}

impl Name {
    pub(super) fn new(name: &OsStr) -> Self {
        match name.to_str() {
            Some(text) => Name { text: text.to_owned(), bad: false },
            None => Name { text: name.to_string_lossy().into_owned(), bad: true },
        }
    }
}

/// Files that are not images: their number, and some of their extensions, with the dot.
#[derive(Default)]
pub(super) struct Others {
    pub(super) count: usize,
    extensions: BTreeSet<String>,
    /// Hidden images and folders: their number, and the path of the first.
    hidden: Option<(usize, PathBuf)>,
}

impl Others {
    /// Maximum number of extensions in the message; the first by name are kept.
    const NAMED: usize = 8;

    fn push(&mut self, extension: Option<&str>) {
        self.count += 1;
        // A long extension is part of the name, not a kind of file.
        if let Some(extension) = extension.filter(|e| e.len() <= 8 && !e.contains(char::is_control)) {
            self.extensions.insert(format!(".{}", extension.to_lowercase()));
        }
        self.cut();
    }

    pub(super) fn add(&mut self, other: Others) {
        self.count += other.count;
        self.extensions.extend(other.extensions);
        self.cut();
        if let Some((count, first)) = other.hidden {
            self.hide(count, first);
        }
    }

    fn hide(&mut self, count: usize, first: PathBuf) {
        self.hidden.get_or_insert((0, first)).0 += count;
    }

    /// Warns of hidden images and folders in `root`.
    pub(super) fn tell_hidden(&self, root: &Path) {
        if let Some((count, first)) = &self.hidden {
            let found = counted(*count, "hidden image or folder", "hidden images and folders");
            tracing::warn!("{}: left out {found}, such as {}", root.display(), first.display());
        }
    }

    fn cut(&mut self) {
        while self.extensions.len() > Self::NAMED {
            self.extensions.pop_last();
        }
    }
}

impl fmt::Display for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.count, "other file", "other files"))?;
        let named: Vec<&str> = self.extensions.iter().map(String::as_str).collect();
        if named.is_empty() { Ok(()) } else { write!(f, " ({})", named.join(", ")) }
    }
}

/// Lists the folder at `path`.
pub(super) fn list(path: &Path, formats: &[Format]) -> Result<Listing> {
    let mut listing = Listing { folders: Vec::new(), images: Vec::new(), others: Others::default() };
    for entry in fs::read_dir(path).map_err(|e| Error::io(path, &e))? {
        let entry = entry.map_err(|e| Error::io(path, &e))?;
        let name = entry.file_name();
        // The listing tells files from folders; only links need another system call. A dangling
        // link counts as a file, so that reading it fails instead of the sample silently missing. A
        // pipe or a device is left out: opening one could block.
        let mut kind = entry.file_type().map_err(|e| Error::io(entry.path(), &e))?;
        if let (true, Ok(target)) = (kind.is_symlink(), fs::metadata(entry.path())) {
            kind = target.file_type();
        }
        let extension = Path::new(&name).extension().and_then(|e| e.to_str());
        if name.as_encoded_bytes().starts_with(b".") {
            // A file `._x.jpg` of macOS has attributes of `x.jpg`.
            let is_image = !name.as_encoded_bytes().starts_with(b"._")
                && extension.is_some_and(|e| format::field_of_file(e, formats).is_some());
            if kind.is_dir() || is_image {
                listing.others.hide(1, entry.path());
            }
        } else if kind.is_dir() {
            push(&mut listing.folders, name)?;
        } else if (kind.is_file() || kind.is_symlink())
            && extension.is_some_and(|e| format::field_of_file(e, formats).is_some())
        {
            push(&mut listing.images, Name::new(&name))?;
        } else {
            if name == CACHE {
                let cause =
                    "this folder is the cache of a loader, whose files would be samples: move it out of the dataset";
                return Err(Error::in_source(cause).at_path(path));
            }
            listing.others.push(extension);
        }
    }
    listing.folders.sort_unstable();
    listing.images.sort_unstable();
    Ok(listing)
}

/// Paths of the images at any depth below `path`, relative to it, in the order of
/// [`Folder`](super::Folder).
///
/// # Errors
/// If a folder cannot be listed, or if a name is not UTF-8: annotations name images by text.
pub(crate) fn images_below(path: &Path, formats: &[Format]) -> Result<Vec<String>> {
    let (ancestors, found, visited) = (Vec::new(), Vec::new(), Vec::new());
    let mut walk = Walk { ancestors, found, others: Others::default(), visited };
    walk.folder(path, Name { text: String::new(), bad: false }, formats)?;
    walk.found.sort_unstable();
    let mut paths = Vec::new();
    for (folder, names) in walk.found {
        for name in names {
            let text = format!("{}/{}", folder.text, name.text).trim_start_matches('/').to_owned();
            if folder.bad || name.bad {
                return Err(Error::in_source(format!("the name {text:?} is not UTF-8")).at_path(path));
            }
            push(&mut paths, text)?;
        }
    }
    Ok(paths)
}

/// A class folder being walked.
pub(super) struct Walk {
    /// Canonical paths of the folders that contain the current one.
    pub(super) ancestors: Vec<PathBuf>,
    /// Path of each folder below the root, and the images in it.
    pub(super) found: Vec<(Name, Vec<Name>)>,
    pub(super) others: Others,
    /// Every listed folder, with its time before listing.
    pub(super) visited: Vec<(Name, Option<SystemTime>)>,
}

impl Walk {
    /// Lists the folder at `path`, named `below_root`, and all folders in it.
    pub(super) fn folder(&mut self, path: &Path, below_root: Name, formats: &[Format]) -> Result<()> {
        let canonical = fs::canonicalize(path).map_err(|e| Error::io(path, &e))?;
        if self.ancestors.contains(&canonical) {
            tracing::warn!("{}: not followed, it leads back to {}", path.display(), canonical.display());
            return Ok(());
        }
        push(&mut self.visited, (below_root.clone(), modified(path)))?;
        let listing = list(path, formats)?;
        self.others.add(listing.others);
        if !listing.images.is_empty() {
            push(&mut self.found, (below_root.clone(), listing.images))?;
        }
        self.ancestors.push(canonical);
        for name in &listing.folders {
            let own = Name::new(name);
            let (text, bad) = (format!("{}/{}", below_root.text, own.text), below_root.bad || own.bad);
            self.folder(&path.join(name), Name { text, bad }, formats)?;
        }
        self.ancestors.pop();
        Ok(())
    }
}

/// The last time an entry of the folder at `path` was added or removed.
pub(super) fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}
