//! The source [`Yolo`].

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::data::{self, Data};
use super::detect::yolo_images;
use super::labels::Labels;
use super::layout::{Item, above_images, below, label_of, split};
use crate::error::{Error, Result, collected, counted};
use crate::format::Format;
use crate::machine::file;
use crate::model::{Sample, Source};
use crate::values::annotated::{Parts, append, key_and_field};

/// Images with YOLO label files, which contain boxes, polygons and keypoints.
///
/// ```no_run
/// use warpfeed_sources::Yolo;
///
/// let train = Yolo::open("coco8/data.yaml")?; // the split `train`
/// let val = Yolo::split("coco8/data.yaml", "val")?;
/// let same = Yolo::open("coco8/images/val")?; // labels in coco8/labels/val
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
///
/// - **Samples** are the images of the split, in the order of its folders and lists. Within a
///   folder, they are sorted by name. The key of a sample is the path of the image below `images`,
///   without the extension.
/// - **Label files** contain one line `class x y width height` per box. The numbers are the center
///   and the size of the box, as fractions of the image. A line with 6 or more coordinates
///   describes a polygon, whose bounding box becomes the box. If `data.yaml` contains `kpt_shape`,
///   the keypoints of a box come after its four numbers.
/// - **Fields**:
///   - `boxes.npy`, (n, 4) f32: left, upper, right and lower edge as **fractions of the image**,
///     which is declared by the text `relative` in the field `boxes.units.txt`. `field::Boxes`
///     converts them to pixels.
///   - `boxes.class.npy`, (n) i64.
///   - `boxes.points.npy`, (n, K, 3) f32.
///   - `boxes.masks.json`, if the image has a polygon: a polygon or `null` for each box.
/// - **Rotated images.** YOLO labels do not contain the image size. If the EXIF data rotates an
///   image, set `Loader::annotations_follow` to state whether the stored or the upright image was
///   annotated.
/// - **Classes** are the `names` in `data.yaml`. If you open a folder, the `data.yaml` next to
///   `images` or in the parent folder is used, if there is one.
///
/// In YOLO, an image without a label file has no boxes. Opening logs a warning that states the
/// number of such images. If there are no label files at all, opening fails.
///
/// Reading a sample fails if a line is invalid, if a class is not in the list, or if a box exceeds
/// the image by more than a hundredth. The message contains the file and the line.
#[derive(Debug)]
pub struct Yolo {
    items: Vec<Item>,
    /// Whether each image has a label file.
    labeled: Vec<bool>,
    classes: Vec<String>,
    /// Number of points per box, and of values per point.
    points: Option<(usize, usize)>,
    formats: Vec<Format>,
}

impl Yolo {
    /// Opens the split `train` of a `data.yaml`, a folder that contains `images` and `labels`, or a
    /// folder of images below `images`.
    ///
    /// # Errors
    /// If the path is none of these, if the YAML is invalid or refers to a folder or list that does
    /// not exist, or if there are no images or no label files.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::with_formats(path.as_ref(), "train", Vec::new())
    }

    /// Opens the split `split` of the `data.yaml` at `yaml`. The split is `train`, `val` or `test`.
    ///
    /// # Errors
    /// The errors of [`open`](Yolo::open). Also fails if the dataset does not have this split.
    pub fn split(yaml: impl AsRef<Path>, split: &str) -> Result<Self> {
        Self::with_formats(yaml.as_ref(), split, Vec::new())
    }

    pub(crate) fn with_formats(path: &Path, name: &str, formats: Vec<Format>) -> Result<Self> {
        let (items, data) = if file::is_folder(path)? {
            let Some(images) = yolo_images(path)? else {
                let cause = "not a YOLO dataset: expected a folder with `images` and `labels`, or a folder below \
                             `images` with a counterpart below `labels`";
                return Err(Error::in_source(cause).at_path(path));
            };
            let yaml = data::beside(&above_images(&images))?;
            let data = yaml.map(|yaml| Data::read(&yaml)).transpose()?.unwrap_or_default();
            (below(&images, &formats)?, data)
        } else {
            let data = Data::read(path)?;
            (split(path, &data, name, &formats)?, data)
        };
        if items.is_empty() {
            return Err(Error::in_source("no images").at_path(path));
        }
        let labeled = labeled(&items)?;
        let missing = labeled.iter().filter(|&&labeled| !labeled).count();
        if let Some(first) = labeled.iter().position(|&labeled| !labeled) {
            let (all, first) = (items.len(), label_of(&items[first].path).concat());
            if missing == all {
                let cause = format!("none of the {all} images has a label file: expected the first at {first}");
                return Err(Error::in_source(cause).at_path(path));
            }
            let path = path.display();
            tracing::warn!(
                "{path}: {missing} of {} no label file, and therefore no boxes; the first was expected at {first}",
                counted(all, "image has", "images have")
            );
        }
        Ok(Yolo { items, labeled, classes: data.names, points: data.points, formats })
    }
}

/// Returns, for each image, whether it has a label file. Each folder is listed only once.
///
/// # Errors
/// If a folder cannot be listed. A folder that does not exist has no label files.
fn labeled(items: &[Item]) -> Result<Vec<bool>> {
    let (mut folder, mut names) = (PathBuf::new(), HashSet::<OsString>::new());
    let look = |item: &Item| {
        let path = PathBuf::from(label_of(&item.path).concat());
        let parent = path.parent().unwrap_or(Path::new(""));
        if parent != folder || names.is_empty() {
            let listed = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let mut list = || -> std::io::Result<()> {
                names.clear();
                for entry in fs::read_dir(listed)? {
                    names.try_reserve(1)?;
                    names.insert(entry?.file_name());
                }
                Ok(())
            };
            match list() {
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => names.clear(),
                end => end.map_err(|e| Error::io(listed, &e))?,
            }
            folder = parent.to_owned();
        }
        Ok(path.file_name().is_some_and(|name| names.contains(name)))
    };
    collected(items.iter().map(look))
}

impl Source for Yolo {
    fn len(&self) -> usize {
        self.items.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        thread_local!(static LABELS: RefCell<Labels> = RefCell::default());
        let Item { path, key } = &self.items[index];
        let (name, field) = key_and_field(path, &self.formats);
        let mut parts = LABELS.with_borrow_mut(|labels| {
            let file = label_of(path);
            scratch.clear();
            if self.labeled[index] {
                append(scratch, &file)?;
            }
            labels.parse(scratch, self.classes.len(), self.points).map_err(|e| e.at_path(file.concat()))?;
            let (n, mut parts) = (labels.classes.len(), Parts::new(scratch));
            parts.keep("boxes.units.txt", "relative");
            parts.array("boxes.npy", &[n, 4], labels.edges.iter().flatten().map(|&edge| edge as f32));
            parts.array("boxes.class.npy", &[n], labels.classes.iter().copied());
            if let Some((points, _)) = self.points {
                parts.array("boxes.points.npy", &[n, points, 3], labels.points.iter().copied());
            }
            if !labels.outlines.is_empty() {
                parts.lists("boxes.masks.json", &labels.ends, &labels.outlines);
            }
            Ok(parts)
        })?;
        parts.file(field, &[path])?;
        parts.sample(&name[*key..])
    }

    fn key(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<String> {
        let Item { path, key } = &self.items[index];
        Ok(key_and_field(path, &self.formats).0[*key..].to_owned())
    }

    fn label(&self, _index: usize, _scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        Ok(None)
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        Some(PathBuf::from(&*self.items[index].path))
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn kind(&self) -> &'static str {
        "yolo"
    }
}
