//! [`Yolo`]: a source that pairs images with YOLO label files.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::data::{self, DataYaml};
use super::detect::yolo_images;
use super::labels::LabelBuffer;
use super::layout::{ImageEntry, images_parent, label_path, list_folder, list_split};
use crate::error::{Error, Result, counted, try_collect};
use crate::format::Format;
use crate::machine::file;
use crate::model::{Sample, Source};
use crate::values::annotated::{FieldBuffer, append_file, key_and_field};

/// Images with boxes, polygons and keypoints from YOLO label files.
///
/// ```no_run
/// use warpfeed_sources::Yolo;
///
/// let train = Yolo::open("coco8/data.yaml")?; // the `train` split
/// let val = Yolo::split("coco8/data.yaml", "val")?;
/// let same = Yolo::open("coco8/images/val")?; // labels in coco8/labels/val
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
///
/// - **Samples** are the images of the split. Folders and lists of images are in the order of
///   `data.yaml`, and images in a folder are sorted by name. The key of a sample is the path of its
///   image without the extension, relative to the last `images` folder if there is one.
/// - **Label files** contain one line `class x y width height` per box: the class, and the center
///   and size of the box as fractions of the image. If `data.yaml` contains `kpt_shape`, each line
///   also lists keypoints after the height. Otherwise, a line with six or more coordinates is a
///   polygon; its bounding box becomes the box.
/// - **Fields**:
///   - `boxes.npy`, f32 of shape (n, 4), contains the left, top, right and bottom edge of each box
///     as **fractions of the image**. The `boxes.units.txt` field contains `relative`, so that
///     `field::Boxes` converts them to pixels.
///   - `boxes.class.npy`, i64 of shape (n,), contains the classes.
///   - `boxes.points.npy`, f32 of shape (n, K, 3), contains the x, y and visibility of the
///     keypoints, if `data.yaml` contains `kpt_shape`.
///   - `boxes.masks.json` contains a polygon or `null` for each box, if any box of the image has a
///     polygon.
/// - **Rotated images.** YOLO labels do not contain the size of the image. If images have an EXIF
///   rotation, use `Loader::annotations_follow` to specify whether the stored or the upright images
///   were annotated.
/// - **Classes** are the `names` in `data.yaml`. If you open a folder, the names come from a
///   `data.yaml` next to `images` or one folder higher, if there is one.
///
/// As in YOLO, an image without a label file has no boxes. Opening logs a warning with the number
/// of such images. If no image has a label file, opening fails.
///
/// Reading a sample fails if a line is invalid, if a class is not in `names`, or if a box extends
/// beyond the image by more than 1% of the width or height. The message contains the file and,
/// unless the file is not UTF-8, the line.
#[derive(Debug)]
pub struct Yolo {
    entries: Vec<ImageEntry>,
    has_label_file: Vec<bool>,
    classes: Vec<String>,
    /// Number of points per box, and of values per point.
    keypoint_shape: Option<(usize, usize)>,
    formats: Vec<Format>,
}

impl Yolo {
    /// Opens a `data.yaml` (its `train` split), a folder that contains `images` and `labels`, or a
    /// folder below `images`.
    ///
    /// # Errors
    /// If the path is none of these, or if there are no images or no label files. Also fails if the
    /// YAML file is invalid or refers to a folder or list that does not exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::with_formats(path.as_ref(), "train", Vec::new())
    }

    /// Opens one split of a `data.yaml`: `train`, `val` or `test`.
    ///
    /// # Errors
    /// Fails like [`open`](Yolo::open). Also fails if the path is a folder, or if `data.yaml` does
    /// not contain the split.
    pub fn split(yaml: impl AsRef<Path>, split: &str) -> Result<Self> {
        let path = yaml.as_ref();
        if file::is_folder(path)? {
            let cause = format!("split {split:?}: splits are defined in data.yaml, but this path is a folder");
            return Err(Error::config(cause).at_path(path));
        }
        Self::with_formats(path, split, Vec::new())
    }

    pub(crate) fn with_formats(path: &Path, name: &str, formats: Vec<Format>) -> Result<Self> {
        let (entries, data) = if file::is_folder(path)? {
            let Some(images) = yolo_images(path)? else {
                let cause = "not a YOLO dataset: expected a folder with `images` and `labels`, or a subfolder \
                             of `images` that has a matching subfolder in `labels`";
                return Err(Error::in_source(cause).at_path(path));
            };
            let yaml = data::find_yaml(&images_parent(&images))?;
            let data = yaml.map(|yaml| DataYaml::read(&yaml)).transpose()?.unwrap_or_default();
            (list_folder(&images, &formats)?, data)
        } else {
            let data = DataYaml::read(path)?;
            (list_split(path, &data, name, &formats)?, data)
        };
        if entries.is_empty() {
            return Err(Error::in_source("no images").at_path(path));
        }
        let has_label_file = find_label_files(&entries)?;
        let missing = has_label_file.iter().filter(|&&has_file| !has_file).count();
        if let Some(first) = has_label_file.iter().position(|&has_file| !has_file) {
            let (count, first) = (entries.len(), label_path(&entries[first].path).concat());
            if missing == count {
                let images = counted(count, "image", "images");
                let cause = format!("no label files were found for {images}: the first file was expected at {first}");
                return Err(Error::in_source(cause).at_path(path));
            }
            let path = path.display();
            tracing::warn!(
                "{path}: {missing} of {} no label file and thus no boxes; the first file was expected at {first}",
                counted(count, "image has", "images have")
            );
        }
        Ok(Yolo { entries, has_label_file, classes: data.names, keypoint_shape: data.keypoint_shape, formats })
    }
}

/// Returns whether each image has a label file. Consecutive images with labels in the same folder
/// share one listing of it. A folder that does not exist has no label files.
fn find_label_files(entries: &[ImageEntry]) -> Result<Vec<bool>> {
    let (mut folder, mut names) = (None::<PathBuf>, HashSet::<OsString>::new());
    let has_label_file = |entry: &ImageEntry| {
        let path = PathBuf::from(label_path(&entry.path).concat());
        let parent = path.parent().unwrap_or(Path::new(""));
        if folder.as_deref() != Some(parent) {
            let listed_folder = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let mut list = || -> std::io::Result<()> {
                names.clear();
                for entry in fs::read_dir(listed_folder)? {
                    names.try_reserve(1)?;
                    names.insert(entry?.file_name());
                }
                Ok(())
            };
            match list() {
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => names.clear(),
                result => result.map_err(|e| Error::io(listed_folder, &e))?,
            }
            folder = Some(parent.to_owned());
        }
        Ok(path.file_name().is_some_and(|name| names.contains(name)))
    };
    try_collect(entries.iter().map(has_label_file))
}

impl Source for Yolo {
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        thread_local!(static LABELS: RefCell<LabelBuffer> = RefCell::default());
        let ImageEntry { path, key_start } = &self.entries[index];
        let (name, field) = key_and_field(path, &self.formats);
        let mut field_buffer = LABELS.with_borrow_mut(|labels| {
            let file = label_path(path);
            scratch.clear();
            if self.has_label_file[index] {
                append_file(scratch, &file)?;
            }
            labels.parse(scratch, self.classes.len(), self.keypoint_shape).map_err(|e| e.at_path(file.concat()))?;
            let (n, mut field_buffer) = (labels.classes.len(), FieldBuffer::new(scratch));
            field_buffer.push_borrowed("boxes.units.txt", "relative");
            field_buffer.push_array("boxes.npy", &[n, 4], labels.edges.iter().flatten().map(|&edge| edge as f32));
            field_buffer.push_array("boxes.class.npy", &[n], labels.classes.iter().copied());
            if let Some((points, _)) = self.keypoint_shape {
                field_buffer.push_array("boxes.points.npy", &[n, points, 3], labels.points.iter().copied());
            }
            if !labels.outlines.is_empty() {
                field_buffer.push_lists("boxes.masks.json", &labels.outline_ends, &labels.outlines);
            }
            Ok(field_buffer)
        })?;
        field_buffer.push_file(field, &[path])?;
        field_buffer.into_sample(&name[*key_start..])
    }

    fn key(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<String> {
        let ImageEntry { path, key_start } = &self.entries[index];
        Ok(key_and_field(path, &self.formats).0[*key_start..].to_owned())
    }

    fn label(&self, _index: usize, _scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        Ok(None)
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        Some(PathBuf::from(&*self.entries[index].path))
    }

    fn fields(&self) -> Option<Vec<String>> {
        let mut names = vec!["boxes.npy", "boxes.class.npy", "boxes.units.txt", "boxes.masks.json"];
        names.extend(self.keypoint_shape.map(|_| "boxes.points.npy"));
        Some(names.into_iter().map(str::to_owned).collect())
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn kind(&self) -> &'static str {
        "yolo"
    }
}
