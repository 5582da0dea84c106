//! Lists folders recursively.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::{Error, Result, counted, push};
use crate::format::{self, FORMATS, Format};

#[derive(Clone, Copy)]
pub(crate) enum FileKind<'a> {
    /// Images in the built-in formats and in the given formats.
    Images(&'a [Format]),
    #[cfg_attr(not(feature = "video"), allow(dead_code))]
    Videos,
}

impl FileKind<'_> {
    pub(super) fn matches(self, extension: &str) -> bool {
        match self {
            FileKind::Images(formats) => format::field_for_extension(extension, formats).is_some(),
            FileKind::Videos => format::VIDEO_FILES.iter().any(|ending| ending.eq_ignore_ascii_case(extension)),
        }
    }

    pub(super) fn extensions(self) -> String {
        let extensions: Vec<_> = match self {
            FileKind::Images(formats) => {
                FORMATS.iter().chain(formats).flat_map(|format| format.extensions).copied().collect()
            }
            FileKind::Videos => format::VIDEO_FILES.to_vec(),
        };
        format!(".{}", extensions.join(", ."))
    }

    pub(super) fn nouns(self) -> [&'static str; 2] {
        match self {
            FileKind::Images(_) => ["image", "images"],
            FileKind::Videos => ["video", "videos"],
        }
    }
}

pub(super) struct FolderEntries {
    pub(super) folders: Vec<OsString>,
    pub(super) images: Vec<Name>,
    pub(super) ignored_files: IgnoredFiles,
}

/// Name of the file that marks a folder as a cache of the `warpfeed-stores` crate.
const CACHE_MARKER: &str = "warpfeed-cache";

/// Returns whether the loader ignores a file or folder with this name. macOS adds the folder
/// `__MACOSX` to zip files.
pub(super) fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(b".") || name == b"__MACOSX"
}

/// If `is_invalid` is true, `text` is a lossy conversion that cannot be used to open the file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) is_invalid: bool,
}

impl Name {
    pub(super) fn new(name: &OsStr) -> Self {
        match name.to_str() {
            Some(text) => Name { text: text.to_owned(), is_invalid: false },
            None => Name { text: name.to_string_lossy().into_owned(), is_invalid: true },
        }
    }
}

#[derive(Default)]
pub(super) struct IgnoredFiles {
    pub(super) count: usize,
    /// The alphabetically first extensions, with the dot.
    extensions: BTreeSet<String>,
    /// Number of hidden images and folders, and the path of the first one.
    hidden: Option<(usize, PathBuf)>,
}

impl IgnoredFiles {
    const MAX_EXTENSIONS: usize = 8;

    fn push(&mut self, extension: Option<&str>) {
        self.count += 1;
        // A long extension is most likely part of a name that contains a dot.
        if let Some(extension) = extension.filter(|e| e.len() <= 8 && !e.contains(char::is_control)) {
            self.extensions.insert(format!(".{}", extension.to_lowercase()));
        }
        self.limit();
    }

    pub(super) fn add(&mut self, other: IgnoredFiles) {
        self.count += other.count;
        self.extensions.extend(other.extensions);
        self.limit();
        if let Some((count, first)) = other.hidden {
            self.add_hidden(count, first);
        }
    }

    fn add_hidden(&mut self, count: usize, first: PathBuf) {
        self.hidden.get_or_insert((0, first)).0 += count;
    }

    pub(super) fn warn_hidden(&self, root: &Path) {
        if let Some((count, first)) = &self.hidden {
            let hidden = counted(*count, "hidden image or folder", "hidden images and folders");
            tracing::warn!("{}: ignored {hidden}, such as {}", root.display(), first.display());
        }
    }

    fn limit(&mut self) {
        while self.extensions.len() > Self::MAX_EXTENSIONS {
            self.extensions.pop_last();
        }
    }
}

impl fmt::Display for IgnoredFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.count, "other file", "other files"))?;
        let named: Vec<&str> = self.extensions.iter().map(String::as_str).collect();
        if named.is_empty() { Ok(()) } else { write!(f, " ({})", named.join(", ")) }
    }
}

pub(super) fn list_folder(path: &Path, file_kind: FileKind<'_>) -> Result<FolderEntries> {
    let mut listing = FolderEntries { folders: Vec::new(), images: Vec::new(), ignored_files: IgnoredFiles::default() };
    for entry in fs::read_dir(path).map_err(|e| Error::io(path, &e))? {
        let entry = entry.map_err(|e| Error::io(path, &e))?;
        let name = entry.file_name();
        // A directory entry states whether it is a file or a folder, so only links need an
        // additional system call. A dangling link counts as a file, so that reading its sample
        // fails, instead of the sample silently being missing. Pipes and devices are skipped,
        // because opening them could block.
        let mut kind = entry.file_type().map_err(|e| Error::io(entry.path(), &e))?;
        if let (true, Ok(target)) = (kind.is_symlink(), fs::metadata(entry.path())) {
            kind = target.file_type();
        }
        let extension = Path::new(&name).extension().and_then(|e| e.to_str());
        if is_hidden(name.as_encoded_bytes()) {
            // macOS stores the attributes of `x.jpg` in `._x.jpg`, which is not an image.
            let is_image =
                !name.as_encoded_bytes().starts_with(b"._") && extension.is_some_and(|e| file_kind.matches(e));
            if kind.is_dir() || is_image {
                listing.ignored_files.add_hidden(1, entry.path());
            }
        } else if kind.is_dir() {
            push(&mut listing.folders, name)?;
        } else if (kind.is_file() || kind.is_symlink()) && extension.is_some_and(|e| file_kind.matches(e)) {
            push(&mut listing.images, Name::new(&name))?;
        } else {
            if name == CACHE_MARKER {
                let cause =
                    "the folder is a warpfeed cache, and its files would become samples: move it out of the dataset";
                return Err(Error::in_source(cause).at_path(path));
            }
            listing.ignored_files.push(extension);
        }
    }
    listing.folders.sort_unstable();
    listing.images.sort_unstable();
    Ok(listing)
}

/// Returns the paths of all images below `path`, relative to `path`, sorted by folder and then by
/// name. Omits hidden files and folders. Fails if a name is not UTF-8, because annotations could
/// not refer to the image.
pub(crate) fn images_below(path: &Path, formats: &[Format]) -> Result<Vec<String>> {
    let (ancestors, folders, visited) = (Vec::new(), Vec::new(), Vec::new());
    let mut walk = Walk { ancestors, folders, ignored_files: IgnoredFiles::default(), visited };
    walk.visit(path, Name { text: String::new(), is_invalid: false }, FileKind::Images(formats))?;
    walk.folders.sort_unstable();
    let mut paths = Vec::new();
    for (folder, names) in walk.folders {
        for name in names {
            let text = format!("{}/{}", folder.text, name.text).trim_start_matches('/').to_owned();
            if folder.is_invalid || name.is_invalid {
                return Err(Error::in_source(format!("the name {text:?} is not UTF-8")).at_path(path));
            }
            push(&mut paths, text)?;
        }
    }
    Ok(paths)
}

pub(super) struct Walk {
    /// Canonical paths of the folders that contain the current one.
    pub(super) ancestors: Vec<PathBuf>,
    /// Path of each folder relative to the root, and the images in it.
    pub(super) folders: Vec<(Name, Vec<Name>)>,
    pub(super) ignored_files: IgnoredFiles,
    pub(super) visited: Vec<(Name, Option<SystemTime>)>,
}

impl Walk {
    pub(super) fn visit(&mut self, path: &Path, relative_path: Name, kind: FileKind<'_>) -> Result<()> {
        let canonical = fs::canonicalize(path).map_err(|e| Error::io(path, &e))?;
        if self.ancestors.contains(&canonical) {
            tracing::warn!("{}: link not followed, because it points back to {}", path.display(), canonical.display());
            return Ok(());
        }
        push(&mut self.visited, (relative_path.clone(), modification_time(path)))?;
        let listing = list_folder(path, kind)?;
        self.ignored_files.add(listing.ignored_files);
        if !listing.images.is_empty() {
            push(&mut self.folders, (relative_path.clone(), listing.images))?;
        }
        self.ancestors.push(canonical);
        for name in &listing.folders {
            let entry = Name::new(name);
            let (text, is_invalid) =
                (format!("{}/{}", relative_path.text, entry.text), relative_path.is_invalid || entry.is_invalid);
            self.visit(&path.join(name), Name { text, is_invalid }, kind)?;
        }
        self.ancestors.pop();
        Ok(())
    }
}

/// Returns the modification time of a folder, the time at which an entry was last added, removed or
/// renamed. Returns `None` if the time cannot be read.
pub(super) fn modification_time(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}
