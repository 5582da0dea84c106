use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::index;
use super::masks::Masks;
use super::names::Names;
use super::stored::of_objects;
use crate::error::{Error, Result, reserve};
use crate::format::{self, Format};
use crate::machine::bytes::room;
use crate::machine::file::{self, FIRST_READ, read_whole};
use crate::machine::slashes::slashed;
use crate::medium::ahead::{Parts, Remote, ahead_of, identity};
use crate::medium::{At, Medium};
use crate::model::{Lookahead, Object, Prefetcher, Sample, Source};
use crate::options::Options;
use crate::stats::NetworkStats;

/// Images in a folder.
///
/// A folder with sub-folders is read as by torchvision's `ImageFolder`. Each sub-folder of the top
/// level is a class. The classes, sorted by name, give the labels 0, 1, 2, …. Images at any depth
/// belong to the class folder above them, in the order of `ImageFolder`. A class folder without
/// images keeps its label (`allow_empty=True`). Images next to the class folders are left out,
/// and a warning counts them.
///
/// A folder without images in sub-folders is flat: it consists of its own images, sorted by
/// name, without labels.
///
/// - The extensions are `jpg jpeg png webp gif bmp tif tiff`, in any case, and those of your own
///   [formats](crate::Options::formats). The field is named after the format: `jpg` for
///   both extensions of JPEG, `tif` for both of TIFF.
/// - Files with other extensions, such as `.ppm`, `.heic` and `.txt`, are left out, and a warning
///   counts them.
/// - A sample's key is its path below the folder without the extension, with `/` on every system.
///   Files that differ only in the extension are different samples with one key;
///   `pack` counts such keys.
/// - Names that begin with a dot are ignored. A name that is not UTF-8 is one bad sample. Symbolic
///   links are followed, unless they lead to a folder that contains them.
///
/// Opening reads only names, several 100,000 per second. An image is opened when it is read.
#[derive(Debug)]
pub struct Folder {
    names: Names,
    /// Image formats in addition to the built-in ones.
    formats: Vec<Format>,
    files: Files,
}

/// The files of the images.
#[derive(Debug)]
enum Files {
    Local {
        /// Ends with `/`.
        root: String,
        /// Masks in a separate folder.
        masks: Option<Masks>,
    },
    Stored {
        /// All objects of the folder.
        objects: Arc<[Object]>,
        /// The object of each sample.
        of: Arc<[u32]>,
        remote: Arc<Remote>,
    },
}

impl Files {
    /// The objects of the samples; none on this machine.
    fn objects(&self) -> impl Iterator<Item = &Object> {
        let stored = match self {
            Files::Local { .. } => None,
            Files::Stored { objects, of, .. } => Some(of.iter().map(|&number| &objects[number as usize])),
        };
        stored.into_iter().flatten()
    }
}

impl Folder {
    /// Lists the images of the built-in formats under `path`.
    /// [`Options::formats`](crate::Options::formats) adds others.
    ///
    /// # Errors
    /// If the path does not exist or is not a folder, if a folder cannot be listed, or if there is
    /// no image. The last error lists the extensions that were looked for and the files that were
    /// found.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::with(&At::here(path.as_ref()), &Options::new())
    }

    /// As [`open`](Folder::open), with the formats and masks of `options`, here or in a store that
    /// is listed. If they ask for an index, the listing comes from the index next to the folder if
    /// it is current. Otherwise the folder is listed, and the index is written.
    pub(crate) fn with(at: &At, options: &Options) -> Result<Self> {
        let path = &*at.path;
        if let Medium::Store { remote, listed } = &at.medium {
            let (names, of) = of_objects(at.url(), listed, &options.formats).map_err(|e| e.at_path(path))?;
            let files = Files::Stored { objects: listed.clone(), of: of.into(), remote: remote.clone() };
            return Ok(Folder { names, formats: options.formats.clone(), files });
        }
        let (formats, indexed) = (options.formats.clone(), options.indexed);
        let Some(root) = path.to_str() else {
            return Err(Error::in_source("the folder's path is not UTF-8").at_path(path));
        };
        let root = slashed(root);
        let root = if root.ends_with('/') { root.into_owned() } else { format!("{root}/") };
        let names = match indexed.then(|| index::load(path, &formats)).flatten() {
            Some(names) => names,
            None => {
                let (names, visited) = Names::list(path, &formats)?;
                if indexed {
                    index::store(path, &formats, &names, &visited);
                }
                names
            }
        };
        if !names.bad.is_empty() {
            let (count, first) = (names.bad.len(), names.path(names.bad[0]));
            tracing::warn!("{}: {count} names are not UTF-8, the first is {first:?}", path.display());
        }
        let masks = match &options.masks {
            Some(masks) => Some(Masks::find(&beside(path, masks), &names)?),
            None => None,
        };
        Ok(Folder { names, formats, files: Files::Local { root, masks } })
    }

    /// The folders of the images, below the dataset at the URL `url`, if there are class folders.
    pub(crate) fn class_folders<'a>(&'a self, url: &'a str) -> Box<dyn Iterator<Item = &'a str> + 'a> {
        match &self.files {
            Files::Local { .. } => Box::new(self.names.class_folders()),
            // The names of the objects, which may be encoded.
            Files::Stored { .. } => {
                let below = move |object: &'a Object| object.url.strip_prefix(url)?.strip_prefix('/');
                let mut last = "";
                let folders = self.files.objects().filter_map(move |object| Some(below(object)?.rsplit_once('/')?.0));
                Box::new(folders.filter(move |folder| std::mem::replace(&mut last, folder) != *folder))
            }
        }
    }
}

/// The path `other`, which begins in the folder that holds `path`.
fn beside(path: &Path, other: &Path) -> PathBuf {
    // `.` and `x/..` have no name of their own.
    let path = std::path::absolute(path).ok().filter(|_| path.file_name().is_none()).unwrap_or_else(|| path.to_owned());
    path.parent().map_or_else(|| other.to_owned(), |parent| parent.join(other))
}

impl Folder {
    /// Reads the image `index` of this machine, and its mask.
    fn local<'a>(
        &'a self,
        index: usize,
        (root, masks): (&str, Option<&'a Masks>),
        (key, field): (&'a str, &'a str),
        scratch: &'a mut Vec<u8>,
    ) -> Result<Sample<'a>> {
        let path = self.names.path(index);
        if self.names.bad.binary_search(&index).is_ok() {
            let cause = format!("the name {path:?} is not UTF-8; rename the file or folder");
            return Err(Error::in_source(cause).at_path(root));
        }
        // The full path is assembled in `scratch` too, because the file's bytes need the room only
        // afterwards.
        let full = root.len() + path.len();
        if scratch.len() < full {
            let longer = FIRST_READ.max(full);
            reserve(scratch, longer - scratch.len()).map_err(|e| e.at_path(format!("{root}{path}")))?;
            scratch.resize(longer, 0);
        }
        scratch[..root.len()].copy_from_slice(root.as_bytes());
        scratch[root.len()..full].copy_from_slice(path.as_bytes());
        let opened = std::str::from_utf8(&scratch[..full]).map(file::open).expect("two strings make a string");
        let len = opened
            .and_then(|mut file| read_whole(&mut file, scratch, 0))
            .map_err(|e| Error::io(format!("{root}{path}"), &e))?;

        let mut sample = Sample::new(key);
        if let Some(masks) = masks {
            let (name, file) = masks.of(index, path)?;
            let end = file::open(&file)
                .and_then(|mut opened| read_whole(&mut opened, scratch, len))
                .map_err(|e| Error::io(file, &e))?;
            sample = sample.with_field(name, &scratch[len..end])?;
        }
        sample.with_field(field, &scratch[..len])
    }
}

impl Source for Folder {
    fn len(&self) -> usize {
        self.names.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let path = self.names.path(index);
        let (key, extension) = path.rsplit_once('.').unwrap_or((path, ""));
        let field = format::field_of_file(extension, &self.formats).unwrap_or("img");
        let sample = match &self.files {
            Files::Local { root, masks } => self.local(index, (root, masks.as_ref()), (key, field), scratch)?,
            Files::Stored { objects, of, remote } => {
                let object = &objects[of[index] as usize];
                let bytes = room(scratch, object.len)?;
                remote.read(index as u64, object, 0, bytes)?;
                Sample::new(key).with_field(field, &*bytes)?
            }
        };
        Ok(match self.names.labels.get(index) {
            Some(&label) => sample.with_label(label.into()),
            None => sample,
        })
    }

    fn follow(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        let Files::Stored { objects, of, remote } = &self.files else { return None };
        let (all, of) = (objects.clone(), of.clone());
        let part = move |sample: u64| of.get(sample as usize).map(|&number| (number, 0..all[number as usize].len));
        remote.follow(order, Parts::new(objects.clone(), part))
    }

    fn network(&self) -> Option<NetworkStats> {
        let Files::Stored { remote, .. } = &self.files else { return None };
        Some(remote.network())
    }

    fn ahead_bytes(&self) -> usize {
        ahead_of(self.files.objects().map(|object| object.len))
    }

    fn label(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        Ok(self.names.labels.get(index).map(|&label| label.into()))
    }

    fn key(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<String> {
        let path = self.names.path(index);
        Ok(path.rsplit_once('.').map_or(path, |(key, _)| key).to_owned())
    }

    fn fingerprint(&self) -> Option<u64> {
        let hash = self.names.hash();
        let hash = match &self.files {
            Files::Local { masks, .. } => masks.as_ref().map_or(hash, |masks| masks.add_to(hash)),
            Files::Stored { .. } => hash.number(identity(self.files.objects())),
        };
        Some(hash.end())
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        Some(match &self.files {
            Files::Local { root, .. } => format!("{root}{}", self.names.path(index)).into(),
            Files::Stored { objects, of, .. } => objects[of[index] as usize].url.clone().into(),
        })
    }

    fn classes(&self) -> &[String] {
        &self.names.classes
    }

    fn kind(&self) -> &'static str {
        "folder"
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::error::ErrorKind;

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

    /// Key, field name, label and content of every sample, all read with one `scratch`.
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
    fn a_folder_that_is_not_a_dataset_is_an_error_that_says_why() {
        let root = tree(&["a/x.txt", "y.csv"]);
        let cause = |path: &Path| Folder::open(path).unwrap_err();
        let error = cause(root.path());
        assert_eq!(error.path(), Some(root.path()));
        assert!(
            error
                .cause()
                .starts_with("no images: found 2 other files (.csv, .txt), 1 sub-folder; looked for .jpg, .jpeg"),
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
            assert_eq!(set.read(i, &mut scratch).unwrap().image().unwrap().1, contents[i]);
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
        let keys: Vec<&str> = (0..set.len()).map(|i| set.names.path(i)).collect();
        assert_eq!(keys, ["a/x.jpg", "b/broken.jpg", "b/deep/y.jpg"]);
        assert_eq!(
            set.read(1, &mut Vec::new()).unwrap_err().kind(),
            ErrorKind::Io,
            "a broken link is not silently dropped"
        );
    }
}
