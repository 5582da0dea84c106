//! [`Folder`]: a source of the images in a folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::index;
use super::listing::Listing;
use super::masks::Masks;
use super::store_listing::select_samples;
use super::walk::FileKind;
use crate::error::{Error, Result, counted, reserve};
use crate::format::{self, Format};
use crate::machine::bytes::grow_to;
use crate::machine::file::{self, FIRST_READ_BYTES, read_whole};
use crate::machine::slashes::normalize_separators;
use crate::model::{Lookahead, Object, Prefetcher, Sample, Source};
use crate::options::Options;
use crate::stats::NetworkStats;
use crate::storage::prefetch::{Remote, SampleRanges, hash_objects, max_prefetch_bytes};
use crate::storage::{DatasetLocation, Storage};

/// Images in a folder.
///
/// If any subfolder contains images, the folder is read like torchvision's `ImageFolder`: each
/// top-level subfolder is a class, and contains the images of its class at any depth. A label is
/// the index of the class in a list of all class folders sorted by name. Class folders without
/// images are classes too, as with `allow_empty=True`. Samples are in the same order as in
/// `ImageFolder`. Images next to the class folders are ignored, with a warning that states their
/// number.
///
/// If no subfolder contains images, the samples are the images directly in the folder, sorted by
/// name and without labels.
///
/// - Images are the files with the extension `jpg`, `jpeg`, `png`, `webp`, `gif`, `bmp`, `tif` or
///   `tiff`, in upper or lower case, or with an extension of a custom
///   [format](crate::Options::formats). The field is named after the format: both JPEG extensions
///   give `jpg`, and both TIFF extensions give `tif`.
/// - Files with other extensions, such as `.ppm`, `.heic` and `.txt`, are ignored. When a local
///   folder is listed, a warning states their number.
/// - The key of a sample is the path of its image relative to the folder, without the extension and
///   with `/` on every system. Files that differ only in their extension are separate samples with
///   the same key. `pack` reports the number of such keys.
/// - Files and folders with a name that starts with a dot are ignored. Reading a sample fails if
///   its path is not UTF-8. Symbolic links are followed, except those that point to a folder that
///   contains the link.
///
/// Opening a folder only lists its names, typically at several hundred thousand per second. Each
/// image file is opened when its sample is read.
#[derive(Debug)]
pub struct Folder {
    listing: Listing,
    formats: Vec<Format>,
    files: ImageFiles,
}

#[derive(Debug)]
enum ImageFiles {
    Local {
        /// Path of the folder, with a trailing `/`.
        root: String,
        masks: Option<Masks>,
    },
    Stored {
        objects: Arc<[Object]>,
        object_indices: Arc<[u32]>,
        remote: Arc<Remote>,
    },
}

impl ImageFiles {
    fn objects(&self) -> impl Iterator<Item = &Object> {
        let stored = match self {
            ImageFiles::Local { .. } => None,
            ImageFiles::Stored { objects, object_indices, .. } => {
                Some(object_indices.iter().map(|&index| &objects[index as usize]))
            }
        };
        stored.into_iter().flatten()
    }
}

impl Folder {
    /// Opens the images in the folder at `path`. Only the built-in formats are recognized; to add
    /// formats, use [`Options::formats`](crate::Options::formats).
    ///
    /// # Errors
    ///
    /// If the path does not exist, is not a folder or is not UTF-8, if a folder cannot be listed or
    /// is a cache of the `warpfeed-stores` crate, or if there are no images. In the last case, the
    /// message lists the supported extensions, and some of the extensions that were found.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_at(&DatasetLocation::local(path.as_ref()), &Options::new())
    }

    /// If `options` requests an index, the listing of a local folder comes from the index file next
    /// to it. If the index is missing or stale, the folder is listed, and the index is written
    /// again.
    pub(crate) fn open_at(location: &DatasetLocation, options: &Options) -> Result<Self> {
        let path = &*location.path;
        if let Storage::Store { remote, listed } = &location.storage {
            let (listing, object_indices) = select_samples(location.url(), listed, FileKind::Images(&options.formats))
                .map_err(|e| e.at_path(path))?;
            listing.warn_about_classes(path, false);
            let files = ImageFiles::Stored {
                objects: listed.clone(),
                object_indices: object_indices.into(),
                remote: remote.clone(),
            };
            return Ok(Folder { listing, formats: options.formats.clone(), files });
        }
        let (formats, indexed) = (options.formats.clone(), options.indexed);
        let Some(root) = path.to_str() else {
            return Err(Error::in_source("the path of the folder is not UTF-8").at_path(path));
        };
        let root = normalize_separators(root);
        let root = if root.ends_with('/') { root.into_owned() } else { format!("{root}/") };
        let listing = match indexed.then(|| index::load(path, &formats)).flatten() {
            Some(listing) => listing,
            None => {
                let (listing, visited) = Listing::list_classes(path, FileKind::Images(&formats))?;
                if indexed {
                    index::store(path, &formats, &listing, &visited);
                }
                listing
            }
        };
        if !listing.invalid_names.is_empty() {
            let (count, first) = (listing.invalid_names.len(), listing.path(listing.invalid_names[0]));
            tracing::warn!(
                "{}: {} not UTF-8, such as {first:?}; reading these samples will fail until they are renamed",
                path.display(),
                counted(count, "name is", "names are")
            );
        }
        listing.warn_about_classes(path, options.masks.is_some());
        let masks = match &options.masks {
            Some(masks) => Some(Masks::find(&sibling_path(path, masks), &listing)?),
            None => None,
        };
        Ok(Folder { listing, formats, files: ImageFiles::Local { root, masks } })
    }

    /// Yields the path, relative to `url`, of each folder that contains samples, or nothing if the
    /// samples have no classes.
    pub(crate) fn class_folders<'a>(&'a self, url: &'a str) -> Box<dyn Iterator<Item = &'a str> + 'a> {
        match &self.files {
            ImageFiles::Local { .. } => Box::new(self.listing.class_folders()),
            // URLs may be percent-encoded, unlike the paths in `listing`.
            ImageFiles::Stored { .. } => {
                let relative_path = move |object: &'a Object| object.url.strip_prefix(url)?.strip_prefix('/');
                let mut last = "";
                let folders =
                    self.files.objects().filter_map(move |object| Some(relative_path(object)?.rsplit_once('/')?.0));
                Box::new(folders.filter(move |folder| std::mem::replace(&mut last, folder) != *folder))
            }
        }
    }
}

fn sibling_path(path: &Path, other: &Path) -> PathBuf {
    // Paths such as `.` and `x/..` have no file name, so their parent comes from the absolute path.
    let path = std::path::absolute(path).ok().filter(|_| path.file_name().is_none()).unwrap_or_else(|| path.to_owned());
    path.parent().map_or_else(|| other.to_owned(), |parent| parent.join(other))
}

impl Folder {
    fn read_local<'a>(
        &'a self,
        index: usize,
        root: &str,
        masks: Option<&'a Masks>,
        key: &'a str,
        field: &'a str,
        scratch: &'a mut Vec<u8>,
    ) -> Result<Sample<'a>> {
        let path = self.listing.path(index);
        if self.listing.invalid_names.binary_search(&index).is_ok() {
            let cause = format!("the name {path:?} is not UTF-8: rename the file or folder");
            return Err(Error::in_source(cause).at_path(root));
        }
        // Build the full path in `scratch`, which is unused until the file is read.
        let path_len = root.len() + path.len();
        if scratch.len() < path_len {
            let buffer_len = FIRST_READ_BYTES.max(path_len);
            reserve(scratch, buffer_len - scratch.len()).map_err(|e| e.at_path(format!("{root}{path}")))?;
            scratch.resize(buffer_len, 0);
        }
        scratch[..root.len()].copy_from_slice(root.as_bytes());
        scratch[root.len()..path_len].copy_from_slice(path.as_bytes());
        let opened =
            std::str::from_utf8(&scratch[..path_len]).map(file::open).expect("the root and the path are UTF-8");
        let len = opened
            .and_then(|mut file| read_whole(&mut file, scratch, 0))
            .map_err(|e| Error::io(format!("{root}{path}"), &e))?;

        let mut sample = Sample::new(key);
        if let Some(masks) = masks {
            let (name, file) = masks.mask_of(index, path)?;
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
        self.listing.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let path = self.listing.path(index);
        let (key, extension) = path.rsplit_once('.').unwrap_or((path, ""));
        let field = format::field_for_extension(extension, &self.formats).unwrap_or("img");
        let sample = match &self.files {
            ImageFiles::Local { root, masks } => self.read_local(index, root, masks.as_ref(), key, field, scratch)?,
            ImageFiles::Stored { objects, object_indices, remote } => {
                let object = &objects[object_indices[index] as usize];
                let bytes = grow_to(scratch, object.len)?;
                remote.read(index as u64, object, 0, bytes)?;
                Sample::new(key).with_field(field, &*bytes)?
            }
        };
        Ok(match self.listing.labels.get(index) {
            Some(&label) => sample.with_label(label.into()),
            None => sample,
        })
    }

    fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        let ImageFiles::Stored { objects, object_indices, remote } = &self.files else { return None };
        let (sample_objects, object_indices) = (objects.clone(), object_indices.clone());
        let byte_range = move |sample: u64| {
            object_indices.get(sample as usize).map(|&index| (index, 0..sample_objects[index as usize].len))
        };
        remote.prefetcher(order, SampleRanges::new(objects.clone(), byte_range))
    }

    fn network_stats(&self) -> Option<NetworkStats> {
        let ImageFiles::Stored { remote, .. } = &self.files else { return None };
        Some(remote.network_stats())
    }

    fn prefetch_bytes(&self) -> usize {
        max_prefetch_bytes(self.files.objects().map(|object| object.len))
    }

    fn label(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        Ok(self.listing.labels.get(index).map(|&label| label.into()))
    }

    fn key(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<String> {
        let path = self.listing.path(index);
        Ok(path.rsplit_once('.').map_or(path, |(key, _)| key).to_owned())
    }

    fn fingerprint(&self) -> Option<u64> {
        let hash = self.listing.hash();
        let hash = match &self.files {
            ImageFiles::Local { masks, .. } => masks.as_ref().map_or(hash, |masks| masks.add_to(hash)),
            ImageFiles::Stored { .. } => hash.number(hash_objects(self.files.objects())),
        };
        Some(hash.finish())
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        Some(match &self.files {
            ImageFiles::Local { root, .. } => format!("{root}{}", self.listing.path(index)).into(),
            ImageFiles::Stored { objects, object_indices, .. } => {
                objects[object_indices[index] as usize].url.clone().into()
            }
        })
    }

    fn classes(&self) -> &[String] {
        &self.listing.classes
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
    use crate::warnings::Warnings;

    #[test]
    fn class_folders_with_names_of_splits_or_masks_cause_a_warning() {
        let warned = |files: &[&str]| {
            let (root, warnings) = (tree(files), Warnings::default());
            let folder = tracing::subscriber::with_default(warnings.clone(), || Folder::open(root.path()).unwrap());
            let warnings = warnings.0.lock().unwrap().join("\n");
            (folder.classes().to_vec(), warnings.replace(root.path().to_str().unwrap(), "ROOT"))
        };
        let (classes, warnings) = warned(&["Val/dog/2.jpg", "train/cat/1.jpg"]);
        assert_eq!(classes, ["Val", "train"], "as in ImageFolder");
        let expected =
            "ROOT: the class folders [\"Val\", \"train\"] look like splits: open ROOT/train to load one split";
        assert_eq!(warnings, expected);
        let (_, warnings) = warned(&["images/1.jpg", "masks/1.png"]);
        let expected = "ROOT: the class folders [\"images\", \"masks\"] look like images and their annotations; to load \
                        the masks, open ROOT/images with the option masks set to \"masks\"";
        assert_eq!(warnings, expected);
        for files in [&["cat/1.jpg", "train/1.jpg"][..], &["images/1.jpg"], &["train.jpg", "val.jpg"]] {
            assert_eq!(warned(files).1, "", "{files:?}");
        }
    }

    #[test]
    fn the_folder_that_macos_adds_to_zip_files_is_not_a_class() {
        let root = tree(&["__MACOSX/cat/1.jpg", "cat/1.jpg", "cat/__MACOSX/2.jpg"]);
        let folder = Folder::open(root.path()).unwrap();
        assert_eq!((folder.classes(), folder.len()), (&["cat".to_owned()][..], 1));
    }

    /// Creates files that contain their own path.
    fn tree(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        root
    }

    /// All samples are read with the same `scratch`.
    fn all_samples(set: &Folder) -> Vec<(String, String, Option<i64>, String)> {
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
    fn class_folder_labels_match_image_folder() {
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
        // Like torchvision's make_dataset: sorted(os.walk("cat")) lists "cat", "cat/a", "cat/a-b".
        assert_eq!(
            all_samples(&set),
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
        assert_eq!(all_samples(&set), [row("a.b", "jpg", "a.b.jpg"), row("b", "png", "b.png")]);
    }

    #[test]
    fn folder_without_images_fails_with_the_reason() {
        let root = tree(&["a/x.txt", "y.csv"]);
        let cause = |path: &Path| Folder::open(path).unwrap_err();
        let error = cause(root.path());
        assert_eq!(error.path(), Some(root.path()));
        assert!(
            error
                .cause()
                .starts_with("no images: found 2 other files (.csv, .txt), 1 subfolder; looked for .jpg, .jpeg"),
            "{error}"
        );
        assert!(cause(tree(&[]).path()).cause().contains("the folder is empty"));
        assert_eq!(cause(&root.path().join("absent")).kind(), ErrorKind::Io);
        assert_eq!(cause(&root.path().join("y.csv")).kind(), ErrorKind::Io);
    }

    #[test]
    fn files_of_any_length_are_read_completely() {
        let root = tree(&[]);
        let contents = [0, 1, FIRST_READ_BYTES - 1, FIRST_READ_BYTES, FIRST_READ_BYTES + 1, 5 * FIRST_READ_BYTES + 7]
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
    fn vanished_file_fails_with_its_path() {
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
        let keys: Vec<&str> = (0..set.len()).map(|i| set.listing.path(i)).collect();
        assert_eq!(keys, ["a/x.jpg", "b/broken.jpg", "b/deep/y.jpg"]);
        assert_eq!(
            set.read(1, &mut Vec::new()).unwrap_err().kind(),
            ErrorKind::Io,
            "a broken link causes an error, and its sample is not omitted"
        );
    }
}
