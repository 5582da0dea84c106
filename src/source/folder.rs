use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::file::{FIRST_READ, read_whole};
use super::{Sample, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{self, FORMATS, Format};

/// Pictures in a folder.
///
/// A folder with sub-folders is read as by torchvision's `ImageFolder`. Each sub-folder of the top
/// level is a class. The classes, sorted by name, give the labels 0, 1, 2, …. Pictures at any depth
/// belong to the class folder above them, in the order of `ImageFolder`. A class folder without
/// pictures keeps its label (`allow_empty=True`). Pictures beside the class folders are left out,
/// and a warning counts them.
///
/// A folder without pictures in sub-folders is flat: its own pictures, sorted by name, without
/// labels.
///
/// - The extensions are `jpg jpeg png webp gif bmp tif tiff`, in any case, and those of your own
///   [formats](super::Options::formats). The field is named after the format: `jpg` for both
///   extensions of JPEG, `tif` for both of TIFF.
/// - A sample's key is its path below the folder without the extension, with `/` on every system.
/// - Names that begin with a dot are ignored. Symbolic links are followed, unless they lead to a
///   folder that contains them.
///
/// Opening reads only names, some 100,000s of files a second. A picture is opened when it is read.
#[derive(Debug)]
pub struct Folder {
    /// Ends with `/`.
    root: String,
    /// All paths below `root`, one after the other: a name costs its bytes and 12 more, no
    /// allocation of its own.
    paths: String,
    ends: Vec<usize>,
    /// Empty if there are no classes.
    labels: Vec<u32>,
    classes: Vec<String>,
    /// What is taken for a picture besides the built-in formats.
    formats: Vec<Format>,
}

impl Folder {
    /// Lists the pictures of the built-in formats under `path`.
    /// [`Options::formats`](super::Options::formats) adds others.
    ///
    /// # Errors
    /// If the path does not exist or is not a folder, a folder cannot be listed, a name is not
    /// UTF-8, or there is no picture. The last error says what was looked for and what was found
    /// instead.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::with_formats(path.as_ref(), Vec::new())
    }

    /// [`open`](Folder::open), with files of `formats` too.
    pub(super) fn with_formats(path: &Path, formats: Vec<Format>) -> Result<Self> {
        let canonical = fs::canonicalize(path).map_err(|e| Error::io(path, &e))?;
        let top = list(path, &formats)?;
        let class_paths: Vec<(PathBuf, String)> = top
            .folders
            .iter()
            .map(|name| Ok((path.join(name), utf8(path, name)?.to_owned())))
            .collect::<Result<_>>()?;
        let walk_class = |(folder, name): &(PathBuf, String)| {
            let mut walk = Walk { ancestors: vec![canonical.clone()], found: Vec::new(), others: Others::default() };
            walk.folder(folder, name, &formats)?;
            // ImageFolder sorts the folders of a class by their path ("a-b" so stands before
            // "a/b"), then the files of each by name.
            walk.found.sort();
            Ok(walk)
        };
        let classes: Vec<Walk> = match class_paths.len() {
            0 | 1 => class_paths.iter().map(walk_class).collect::<Result<_>>()?,
            // Listing waits on the disk or the network far longer than it computes, hence more
            // threads than cores. The pool is gone before the loader's starts.
            _ => rayon::ThreadPoolBuilder::new()
                .num_threads(class_paths.len().min(16))
                .build()
                .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start threads: {e}")))?
                .install(|| class_paths.par_iter().map(walk_class).collect::<Vec<_>>())
                // In order, so that of several bad folders the first is named, whichever thread was
                // faster.
                .into_iter()
                .collect::<Result<_>>()?,
        };

        let mut root = utf8(path, path.as_os_str())?.to_owned();
        if !root.ends_with('/') {
            root.push('/');
        }
        let mut set =
            Folder { root, paths: String::new(), ends: Vec::new(), labels: Vec::new(), classes: Vec::new(), formats };
        for (label, class) in classes.iter().enumerate() {
            for (folder, names) in &class.found {
                for name in names {
                    set.push(folder, name);
                    set.labels.push(label as u32);
                }
            }
        }
        if set.ends.is_empty() {
            top.images.iter().for_each(|name| set.push("", name));
        } else {
            set.classes = class_paths.into_iter().map(|(_, name)| name).collect();
            if !top.images.is_empty() {
                let count = top.images.len();
                tracing::warn!("{}: {count} pictures beside the class folders are not part of the set", path.display());
            }
        }
        if set.ends.is_empty() {
            let mut others = top.others;
            classes.into_iter().for_each(|class| others.add(class.others));
            let folders = top.folders.len();
            let found = if others.count + folders == 0 {
                "the folder is empty".to_owned()
            } else {
                format!("found {others}, {folders} sub-folders")
            };
            let looked: Vec<_> =
                FORMATS.iter().chain(&set.formats).flat_map(|format| format.extensions).copied().collect();
            let looked = looked.join(", .");
            return Err(Error::in_source(format!("no images: {found}; looked for .{looked}")).at_path(path));
        }
        Ok(set)
    }

    fn push(&mut self, folder: &str, name: &str) {
        if !folder.is_empty() {
            self.paths.push_str(folder);
            self.paths.push('/');
        }
        self.paths.push_str(name);
        self.ends.push(self.paths.len());
    }

    /// Path of sample `index` below the root.
    fn name(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.paths[start..self.ends[index]]
    }
}

impl Source for Folder {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let path = self.name(index);
        let (key, extension) = path.rsplit_once('.').unwrap_or((path, ""));
        let field = format::field_of_file(extension, &self.formats).unwrap_or("img");

        // The full path is put together in `scratch` too: the file's bytes need the room only
        // afterwards.
        let full = self.root.len() + path.len();
        if scratch.len() < full {
            scratch.resize(FIRST_READ.max(full), 0);
        }
        scratch[..self.root.len()].copy_from_slice(self.root.as_bytes());
        scratch[self.root.len()..full].copy_from_slice(path.as_bytes());
        let opened = std::str::from_utf8(&scratch[..full]).map(File::open).expect("two strings make a string");
        let len = opened
            .and_then(|mut file| read_whole(&mut file, scratch, 0))
            .map_err(|e| Error::io(format!("{}{path}", self.root), &e))?;

        let sample = Sample::new(key).with_field(field, &scratch[..len])?;
        Ok(match self.labels.get(index) {
            Some(&label) => sample.with_label(label.into()),
            None => sample,
        })
    }

    fn label(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        Ok(self.labels.get(index).map(|&label| label.into()))
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        Some(format!("{}{}", self.root, self.name(index)).into())
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn kind(&self) -> &'static str {
        "folder"
    }
}

/// What one folder holds, hidden names left out; sorted by name.
struct Listing {
    folders: Vec<OsString>,
    images: Vec<String>,
    others: Others,
}

/// Files that are not pictures: their number, and some of their extensions, each with its dot.
#[derive(Default)]
struct Others {
    count: usize,
    extensions: BTreeSet<String>,
}

impl Others {
    /// Extensions that are named; of more the first by name.
    const NAMED: usize = 8;

    fn push(&mut self, extension: Option<&str>) {
        self.count += 1;
        // What is long is a part of a name, not a kind of file.
        if let Some(extension) = extension.filter(|e| e.len() <= 8 && !e.contains(char::is_control)) {
            self.extensions.insert(format!(".{}", extension.to_lowercase()));
        }
        self.cut();
    }

    fn add(&mut self, other: Others) {
        self.count += other.count;
        self.extensions.extend(other.extensions);
        self.cut();
    }

    fn cut(&mut self) {
        while self.extensions.len() > Self::NAMED {
            self.extensions.pop_last();
        }
    }
}

impl fmt::Display for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} other files", self.count)?;
        let named: Vec<&str> = self.extensions.iter().map(String::as_str).collect();
        if named.is_empty() { Ok(()) } else { write!(f, " ({})", named.join(", ")) }
    }
}

fn list(path: &Path, formats: &[Format]) -> Result<Listing> {
    let mut listing = Listing { folders: Vec::new(), images: Vec::new(), others: Others::default() };
    for entry in fs::read_dir(path).map_err(|e| Error::io(path, &e))? {
        let entry = entry.map_err(|e| Error::io(path, &e))?;
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        // The listing itself tells files from folders; only links need a look of their own. A link
        // that leads nowhere stays a file, so that reading it says so, instead of the sample
        // silently missing. A pipe or a device is left out: opening one could block.
        let mut kind = entry.file_type().map_err(|e| Error::io(entry.path(), &e))?;
        if let (true, Ok(target)) = (kind.is_symlink(), fs::metadata(entry.path())) {
            kind = target.file_type();
        }
        let extension = Path::new(&name).extension().and_then(|e| e.to_str());
        if kind.is_dir() {
            listing.folders.push(name);
        } else if (kind.is_file() || kind.is_symlink())
            && extension.is_some_and(|e| format::field_of_file(e, formats).is_some())
        {
            listing.images.push(utf8(path, &name)?.to_owned());
        } else {
            listing.others.push(extension);
        }
    }
    listing.folders.sort();
    listing.images.sort();
    Ok(listing)
}

/// The pictures at any depth below `path`, as paths below it, in the order of [`Folder`].
pub(super) fn pictures_below(path: &Path, formats: &[Format]) -> Result<Vec<String>> {
    let mut walk = Walk { ancestors: Vec::new(), found: Vec::new(), others: Others::default() };
    walk.folder(path, "", formats)?;
    walk.found.sort();
    let paths = |(folder, names): (String, Vec<String>)| {
        names.into_iter().map(move |name| format!("{folder}/{name}").trim_start_matches('/').to_owned())
    };
    Ok(walk.found.into_iter().flat_map(paths).collect())
}

/// A class folder being walked.
struct Walk {
    /// The folders that the current one lies in, as the system sees them once all links are
    /// resolved.
    ancestors: Vec<PathBuf>,
    /// Path of each folder below the root, and the pictures in it.
    found: Vec<(String, Vec<String>)>,
    others: Others,
}

impl Walk {
    fn folder(&mut self, path: &Path, below_root: &str, formats: &[Format]) -> Result<()> {
        let canonical = fs::canonicalize(path).map_err(|e| Error::io(path, &e))?;
        if self.ancestors.contains(&canonical) {
            tracing::warn!("{}: not followed, it leads back to {}", path.display(), canonical.display());
            return Ok(());
        }
        let listing = list(path, formats)?;
        self.others.add(listing.others);
        if !listing.images.is_empty() {
            self.found.push((below_root.to_owned(), listing.images));
        }
        self.ancestors.push(canonical);
        for name in &listing.folders {
            self.folder(&path.join(name), &format!("{below_root}/{}", utf8(path, name)?), formats)?;
        }
        self.ancestors.pop();
        Ok(())
    }
}

pub(super) fn utf8<'a>(folder: &Path, name: &'a OsStr) -> Result<&'a str> {
    name.to_str().ok_or_else(|| Error::in_source(format!("name {name:?} is not UTF-8")).at_path(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes each file with its own path as content.
    fn tree(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        root
    }

    /// Key, field name, label and content of every sample; all read with one `scratch`.
    fn all(set: &Folder) -> Vec<(String, String, Option<i64>, String)> {
        let mut scratch = Vec::new();
        let read = |i| {
            let sample = set.read(i, &mut scratch).unwrap();
            let (name, bytes) = sample.image().unwrap();
            let text = String::from_utf8(bytes.to_owned()).unwrap();
            (sample.key().to_owned(), name.to_owned(), sample.label().unwrap(), text)
        };
        (0..set.len()).map(read).collect()
    }

    #[test]
    fn class_folders_give_labels_in_the_order_of_image_folder() {
        let root = tree(&[
            "dog/2.JPEG",
            "dog/10.png",
            "cat/a/b.jpg",
            "cat/a-b/x.jpg",
            "cat/z.jpg",
            "cat/notes.txt",
            "bird/none.txt",
            "beside.jpg",
            ".hidden/x.jpg",
            "dog/.hidden.jpg",
        ]);
        let set = Folder::open(root.path()).unwrap();
        assert_eq!(set.classes(), ["bird", "cat", "dog"]);
        let row = |key: &str, field: &str, label, file: &str| (key.into(), field.into(), Some(label), file.into());
        // sorted(os.walk("cat")) lists "cat", "cat/a", "cat/a-b", as torchvision's make_dataset
        // does.
        assert_eq!(
            all(&set),
            [
                row("cat/z", "jpg", 1, "cat/z.jpg"),
                row("cat/a/b", "jpg", 1, "cat/a/b.jpg"),
                row("cat/a-b/x", "jpg", 1, "cat/a-b/x.jpg"),
                row("dog/10", "png", 2, "dog/10.png"),
                row("dog/2", "jpg", 2, "dog/2.JPEG"),
            ]
        );
    }

    #[test]
    fn a_flat_folder_has_no_labels() {
        let root = tree(&["b.png", "a.b.jpg", "labels/x.txt"]);
        let set = Folder::open(root.path()).unwrap();
        assert!(set.classes().is_empty());
        let row = |key: &str, field: &str, file: &str| (key.into(), field.into(), None, file.into());
        assert_eq!(all(&set), [row("a.b", "jpg", "a.b.jpg"), row("b", "png", "b.png")]);
    }

    #[test]
    fn what_is_no_data_set_says_why() {
        let root = tree(&["a/x.txt", "y.csv"]);
        let cause = |path: &Path| Folder::open(path).unwrap_err();
        let error = cause(root.path());
        assert_eq!(error.path(), Some(root.path()));
        assert!(
            error
                .cause()
                .starts_with("no images: found 2 other files (.csv, .txt), 1 sub-folders; looked for .jpg, .jpeg"),
            "{error}"
        );
        assert!(cause(tree(&[]).path()).cause().contains("the folder is empty"));
        assert_eq!(cause(&root.path().join("absent")).kind(), ErrorKind::Io);
        assert_eq!(cause(&root.path().join("y.csv")).kind(), ErrorKind::Io);
    }

    #[test]
    fn files_of_any_length_come_back_whole() {
        let root = tree(&[]);
        let contents = [0, 1, FIRST_READ - 1, FIRST_READ, FIRST_READ + 1, 5 * FIRST_READ + 7]
            .map(|len| (0..len).map(|i| (i * 31 / 7) as u8).collect::<Vec<u8>>());
        for (i, bytes) in contents.iter().enumerate() {
            fs::write(root.path().join(format!("{i}.jpg")), bytes).unwrap();
        }
        let set = Folder::open(root.path()).unwrap();
        let mut scratch = Vec::new();
        for i in (0..contents.len()).chain((0..contents.len()).rev()) {
            assert_eq!(set.read(i, &mut scratch).unwrap().field("jpg").unwrap(), contents[i]);
        }
    }

    #[test]
    fn a_file_that_vanished_is_an_error_with_its_path() {
        let root = tree(&["a/x.jpg"]);
        let set = Folder::open(root.path()).unwrap();
        fs::remove_file(root.path().join("a/x.jpg")).unwrap();
        let error = set.read(0, &mut Vec::new()).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(&*root.path().join("a/x.jpg"))));
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_loops_are_not() {
        use std::os::unix::fs::symlink;
        let root = tree(&["a/x.jpg"]);
        let elsewhere = tree(&["deep/y.jpg"]);
        symlink(root.path().join("a"), root.path().join("a/loop")).unwrap();
        symlink(root.path(), root.path().join("a/root")).unwrap();
        symlink(elsewhere.path(), root.path().join("b")).unwrap();
        symlink("nowhere.jpg", root.path().join("b/broken.jpg")).unwrap();
        let set = Folder::open(root.path()).unwrap();
        let keys: Vec<&str> = (0..set.len()).map(|i| set.name(i)).collect();
        assert_eq!(keys, ["a/x.jpg", "b/broken.jpg", "b/deep/y.jpg"]);
        assert_eq!(
            set.read(1, &mut Vec::new()).unwrap_err().kind(),
            ErrorKind::Io,
            "a broken link is not silently dropped"
        );
    }
}
