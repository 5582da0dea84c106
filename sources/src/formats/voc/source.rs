//! [`Voc`]: a source that pairs images with Pascal VOC annotations.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::detect::{ANNOTATIONS, IMAGES, LISTS, MASKS, folder_of_list, is_voc};
use super::xml::Annotation;
use crate::error::{Error, Result, push, reserve, try_collect};
use crate::format::Format;
use crate::formats::folder::images_below;
use crate::machine::file::{self, MAX_FILE, is_folder};
use crate::machine::parallel::in_parallel;
use crate::machine::slashes::with_trailing_slash;
use crate::model::{Numbers, Sample, Source};
use crate::storage::tree::Tree;
use crate::values::annotated::{FieldBuffer, key_and_field};

/// Maximum size of an annotation file, in bytes. A file with a hundred objects takes about 50 kB.
const MAX_XML_BYTES: u64 = 64 << 20;

/// The 20 classes of Pascal VOC, in alphabetical order.
const CLASSES: [&str; 20] = [
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
];

/// Images with boxes and class masks in Pascal VOC format.
///
/// ```no_run
/// use warpfeed_sources::Voc;
///
/// let train = Voc::open("VOC2012/ImageSets/Main/train.txt")?;
/// let masks = Voc::open("VOC2012/ImageSets/Segmentation/train.txt")?;
/// let all = Voc::open("VOC2012")?;
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
///
/// - **Samples** are images in `JPEGImages`: the images in a list, in list order, or all images,
///   sorted by name. A list contains one image name per line; anything after the name is ignored.
///   The key of a sample is the name of its image without the extension.
/// - **Boxes**, if the dataset has an `Annotations` folder:
///   - `boxes.npy`, f32 of shape (n, 4), contains the left, top, right and bottom edge of each box
///     in pixels. The files count pixels from 1, and a box includes its last pixel. **1 is
///     subtracted from the left and top edge**, as in Detectron2, so that right minus left is the
///     width. For files that count from 0, [`zero_based`](Voc::zero_based) leaves the edges
///     unchanged.
///   - `boxes.class.npy`, i64 of shape (n,), and `boxes.difficult.npy`, u8 of shape (n,).
/// - **Classes** are all class names in the valid files in `Annotations`, sorted, or the 20 classes
///   of Pascal VOC if no other name occurs. The class indices are the same for all lists of a
///   dataset.
/// - **Size**: `boxes.image_size.txt` contains the `size` in the annotation file, unless it is
///   missing or 0. `field::Boxes` compares it with the actual size of the image. If EXIF data
///   rotates the image but the annotations refer to the stored pixels, `field::Boxes` also rotates
///   the boxes.
/// - **Masks**: `mask.png` is the image's mask from `SegmentationClass`, if there is one. The value
///   0 is the background, c + 1 is class c of the boxes, and 255 marks outlines, which have no
///   class. If a loader maps classes to other indices, masks contain the new indices. All images in
///   a list from `ImageSets/Segmentation` must have masks.
///
/// **Invalid annotations.** Reading a sample fails if its annotation file is missing or invalid, or
/// if a box extends beyond the `size` in the file by more than one pixel or 1% of the width or
/// height, whichever is larger. The message contains the file and, for an invalid annotation,
/// usually the line.
///
/// **Memory.** Opening reads all files in `Annotations`. After that, a box takes 25 bytes, and an
/// image about 60 bytes.
#[derive(Debug)]
pub struct Voc {
    /// Folder of the images, with a trailing `/`.
    images: String,
    /// Folder of the masks, with a trailing `/`.
    masks: String,
    entries: Vec<ImageEntry>,
    has_boxes: bool,
    edges: Vec<[f32; 4]>,
    box_classes: Vec<i64>,
    /// For each box of all images, whether it is marked as difficult.
    difficult: Vec<u8>,
    classes: Vec<String>,
    formats: Vec<Format>,
}

#[derive(Debug)]
struct ImageEntry {
    name: Box<str>,
    /// End of the image's boxes in [`Voc::edges`], [`Voc::box_classes`] and [`Voc::difficult`].
    box_end: usize,
    size: Option<(u32, u32)>,
    has_mask: bool,
    /// The error to report when the sample is read.
    error: Option<Error>,
}

impl Voc {
    /// Opens the dataset at `path`, which is its folder or one of its lists.
    ///
    /// # Errors
    /// If the path is neither the folder of a dataset nor a list, if a folder cannot be listed or
    /// the list cannot be read, if there are no images, or if two image names differ only in their
    /// extension. An invalid annotation is reported only when its sample is read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::with_formats(path.as_ref(), Vec::new(), 1.0)
    }

    /// Opens the dataset at `path` and leaves the edges of boxes unchanged, for files that count
    /// pixels from 0.
    ///
    /// # Errors
    /// See [`open`](Voc::open).
    pub fn zero_based(path: impl AsRef<Path>) -> Result<Self> {
        Self::with_formats(path.as_ref(), Vec::new(), 0.0)
    }

    /// `first_pixel` is the coordinate of the first pixel, 0 or 1.
    pub(crate) fn with_formats(path: &Path, formats: Vec<Format>, first_pixel: f64) -> Result<Self> {
        let (folder, list) = match folder_of_list(path) {
            Some(folder) => (folder, Some(path)),
            None => (path.to_owned(), None),
        };
        if !is_voc(Tree::Local(&folder))? {
            let cause = format!(
                "not a Pascal VOC dataset: expected a folder {IMAGES} with {ANNOTATIONS} or {MASKS} next to it, or a \
                 list in {LISTS}"
            );
            return Err(Error::in_source(cause).at_path(path));
        }
        let files = list_images(&folder.join(IMAGES), &formats)?;
        let names: Vec<String> = match list {
            Some(list) => {
                let text = file::read_text(list, MAX_FILE).map_err(|e| Error::io(list, &e))?;
                let names = text.lines().filter_map(|line| line.split_whitespace().next());
                try_collect(names.map(|name| Ok(name.to_owned())))?
            }
            None => try_collect(files.keys().cloned().map(Ok))?,
        };
        if names.is_empty() {
            return Err(Error::in_source("no images").at_path(path));
        }
        let has_boxes = is_folder(folder.join(ANNOTATIONS))?;
        let annotations =
            if has_boxes { read_annotations(&folder.join(ANNOTATIONS), first_pixel)? } else { BTreeMap::new() };
        let classes = class_names(&annotations);
        let images_with_mask = list_masks(&folder.join(MASKS))?;
        let needs_mask = list.and_then(Path::parent).is_some_and(|parent| parent.ends_with("Segmentation"));

        let (images, masks) = (with_trailing_slash(&folder.join(IMAGES))?, with_trailing_slash(&folder.join(MASKS))?);
        let mut set = Voc {
            images,
            masks,
            entries: Vec::new(),
            has_boxes,
            edges: Vec::new(),
            box_classes: Vec::new(),
            difficult: Vec::new(),
            classes,
            formats,
        };
        for name in names {
            let has_mask = images_with_mask.contains(&name);
            let file = files.get(&name).cloned();
            let mut error = None;
            if file.is_none() {
                error = Some(Error::in_source(format!("there is no image {name:?} in {IMAGES}")).at_path(path));
            } else if needs_mask && !has_mask {
                let missing = folder.join(MASKS).join(format!("{name}.png"));
                error = Some(Error::in_source("the mask is missing").at_path(missing));
            } else if has_boxes {
                error = set.add_boxes(&folder, &name, annotations.get(&name))?;
            }
            let size = annotations.get(&name).and_then(|objects| objects.as_ref().ok()?.size);
            let file = file.unwrap_or_else(|| name.into());
            push(&mut set.entries, ImageEntry { name: file, box_end: set.box_classes.len(), size, has_mask, error })?;
        }
        Ok(set)
    }

    /// Adds the boxes of an image. If its annotations are missing or invalid, returns the error for
    /// reading the sample.
    fn add_boxes(&mut self, folder: &Path, name: &str, objects: Option<&Result<Annotation>>) -> Result<Option<Error>> {
        let missing = || folder.join(ANNOTATIONS).join(format!("{name}.xml"));
        match objects {
            None => Ok(Some(Error::in_source("the annotation file is missing").at_path(missing()))),
            Some(Err(e)) => Ok(Some(e.clone())),
            Some(Ok(objects)) => {
                let count = objects.names.len();
                reserve(&mut self.box_classes, count)?;
                reserve(&mut self.edges, count)?;
                reserve(&mut self.difficult, count)?;
                let class =
                    |name: &String| self.classes.binary_search(name).expect("`classes` contains all names") as i64;
                self.box_classes.extend(objects.names.iter().map(class));
                self.edges.extend(&objects.edges);
                self.difficult.extend(&objects.difficult);
                Ok(None)
            }
        }
    }
}

/// Lists the images of a folder: maps names without the extension to file names.
fn list_images(folder: &Path, formats: &[Format]) -> Result<BTreeMap<String, Box<str>>> {
    let mut files = BTreeMap::<String, Box<str>>::new();
    for file in images_below(folder, formats)? {
        let key = key_and_field(&file, formats).0.to_owned();
        if let Some(other) = files.insert(key, file.as_str().into()) {
            let cause = format!(
                "{other:?} and {file:?} differ only in their extension, so their annotations are \
                 ambiguous: rename one of them"
            );
            return Err(Error::in_source(cause).at_path(folder));
        }
    }
    Ok(files)
}

/// Reads all annotation files in a folder: maps file names without the extension to the objects in
/// the files. `first_pixel` is the coordinate of the first pixel.
fn read_annotations(folder: &Path, first_pixel: f64) -> Result<BTreeMap<String, Result<Annotation>>> {
    let entries = fs::read_dir(folder).map_err(|e| Error::io(folder, &e))?;
    let paths = entries
        .map(|entry| entry.map(|entry| entry.path()).map_err(|e| Error::io(folder, &e)))
        .filter(|path| path.as_ref().map_or(true, |path| path.extension().is_some_and(|end| end == "xml")));
    let paths = try_collect(paths)?;
    let read = |path: &PathBuf| {
        let Some(name) = path.file_stem().and_then(|stem| stem.to_str()) else { return Ok(None) };
        let text = file::read_text(path, MAX_XML_BYTES).map_err(|e| Error::io(path, &e));
        Ok(Some((
            name.to_owned(),
            text.and_then(|text| Annotation::parse(&text, first_pixel)).map_err(|e| e.at_path(path)),
        )))
    };
    let mut annotations = BTreeMap::new();
    annotations.extend(in_parallel(&paths, read)?.into_iter().flatten());
    Ok(annotations)
}

/// Returns the class names in all valid annotations, sorted, or the 20 classes of Pascal VOC if no
/// other name occurs.
fn class_names(annotations: &BTreeMap<String, Result<Annotation>>) -> Vec<String> {
    let mut names = BTreeSet::<&String>::new();
    names.extend(annotations.values().flatten().flat_map(|objects| &objects.names));
    if names.iter().all(|name| CLASSES.binary_search(&name.as_str()).is_ok()) {
        return CLASSES.map(str::to_owned).to_vec();
    }
    names.into_iter().cloned().collect()
}

/// Returns the names of the images that have a mask, without the extension.
fn list_masks(folder: &Path) -> Result<BTreeSet<String>> {
    if !is_folder(folder)? {
        return Ok(BTreeSet::new());
    }
    let entries = fs::read_dir(folder).map_err(|e| Error::io(folder, &e))?;
    let name = |path: PathBuf| {
        let is_png = path.extension().is_some_and(|end| end == "png");
        path.file_stem().and_then(|stem| stem.to_str()).filter(|_| is_png).map(str::to_owned)
    };
    let mut masks = BTreeSet::new();
    for entry in entries {
        masks.extend(name(entry.map_err(|e| Error::io(folder, &e))?.path()));
    }
    Ok(masks)
}

impl Source for Voc {
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let entry = &self.entries[index];
        if let Some(error) = &entry.error {
            return Err(error.clone());
        }
        let (key, field) = key_and_field(&entry.name, &self.formats);
        let mut field_buffer = FieldBuffer::new(scratch);
        if self.has_boxes {
            let boxes = if index == 0 { 0 } else { self.entries[index - 1].box_end }..entry.box_end;
            let n = boxes.len();
            field_buffer.push_borrowed("boxes.npy", Numbers::new(self.edges[boxes.clone()].as_flattened(), &[n, 4])?);
            field_buffer.push_borrowed("boxes.class.npy", Numbers::new(&self.box_classes[boxes.clone()], &[n])?);
            field_buffer.push_borrowed("boxes.difficult.npy", Numbers::new(&self.difficult[boxes], &[n])?);
        }
        field_buffer.push_image_size(entry.size);
        if entry.has_mask {
            field_buffer.push_borrowed("mask.first_class.txt", "1");
            field_buffer.push_file("mask.png", &[&self.masks, key, ".png"])?;
        }
        field_buffer.push_file(field, &[&self.images, &entry.name])?;
        field_buffer.into_sample(key)
    }

    fn key(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<String> {
        Ok(key_and_field(&self.entries[index].name, &self.formats).0.to_owned())
    }

    fn label(&self, _index: usize, _scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        Ok(None)
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        Some(format!("{}{}", self.images, self.entries[index].name).into())
    }

    fn fields(&self) -> Option<Vec<String>> {
        let mut names = Vec::new();
        if self.has_boxes {
            names.extend(["boxes.npy", "boxes.class.npy", "boxes.difficult.npy", "boxes.image_size.txt"]);
        }
        if self.entries.iter().any(|entry| entry.has_mask) {
            names.extend(["mask.png", "mask.first_class.txt"]);
        }
        Some(names.into_iter().map(str::to_owned).collect())
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn kind(&self) -> &'static str {
        "voc"
    }
}
