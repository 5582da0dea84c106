//! [`Coco`], a source that pairs a COCO file with its images.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::value::RawValue;

use super::images::{check_folder, find_folder, find_url_folder};
use super::json::{self, Id, Object};
use crate::error::{Error, Result, counted, reservation_result, reserve, try_collect};
use crate::format::Format;
use crate::machine::slashes::with_trailing_slash;
use crate::model::{Sample, Source};
use crate::options::Options;
use crate::storage::referenced::{FolderListing, ReferencedFiles, delegate_to_referenced_files};
use crate::storage::{OpenFile, Storage};
use crate::values::annotated::{FieldBuffer, check_below_folder, check_box, key_and_field};

/// Images with boxes, classes, masks and keypoints from a COCO JSON file.
///
/// ```no_run
/// use warpfeed_sources::Coco;
///
/// let set = Coco::open("coco/annotations/instances_val2017.json")?; // images in coco/val2017
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
///
/// - **Samples** are the images, sorted by ID as in torchvision's `CocoDetection`. Below, n is the
///   number of an image's boxes, which may be 0. The key of a sample is its `file_name` without the
///   extension. The `image_id.txt` field is the ID of the image.
/// - **Boxes**: `boxes.npy`, f32 of shape (n, 4), is the left, top, right and bottom edge of each
///   box in pixels, in the order of the file. `boxes.crowd.npy`, u8 of shape (n,), is `iscrowd`.
/// - **Areas**: `boxes.area.npy`, f32 of shape (n,), is `area` in pixels, or the area of the box
///   for annotations without an area. Samples have this field if any annotation in the file has an
///   area.
/// - **Classes**: `boxes.class.npy`, i64 of shape (n,). A class is the index of its category in a
///   list of all categories sorted by ID, so COCO's category IDs 1 to 90 become 0 to 79.
///   [`classes`](Source::classes) returns their names.
/// - **Masks**: `boxes.masks.json` is a list of the n `segmentation`s (polygons or run-length
///   codes), exactly as in the file. A missing or empty segmentation is `null`. Samples have this
///   field if any annotation in the file has a segmentation.
/// - **Keypoints**: `boxes.points.npy`, f32 of shape (n, K, 3), is the x, y and visibility of the K
///   `keypoints`, or zeros for boxes without keypoints. Samples have this field if the categories
///   define keypoints or any annotation has keypoints.
/// - **Size**: `boxes.image_size.txt` is the `width` and `height` that the file states for the
///   image. Samples lack this field if one of these numbers is 0.
///
/// `field::Boxes` delivers the boxes with their arrays, masks and keypoints in batches, and
/// compares the size in the file with the actual size of the image. If EXIF rotates the image but
/// the annotations refer to the stored pixels, `field::Boxes` rotates the annotations as well.
///
/// **Memory.** Opening loads the whole file: a 468 MB file with 860,000 annotations needed at most
/// 617 MB. After that, each annotation takes about 110 bytes plus its keypoints. Segmentations are
/// read from the file with each sample. If the file is modified while it is open, the next epoch
/// fails.
///
/// **Object stores.** The file and its images may be in an object store. Opening then lists the
/// folders that may contain the images, and the text of the segmentations stays in memory. A loader
/// prefetches the images.
///
/// **Invalid annotations.** Reading a sample fails if an annotation has an unknown category, or if
/// a box has a negative size or extends beyond the image by more than one pixel and more than 1% of
/// the width or height. The message names the annotation. Annotations of images that the file does
/// not list are ignored with a warning. If the file has annotations, but none of them belongs to a
/// listed image, opening fails.
#[derive(Debug)]
pub struct Coco {
    /// The JSON file or, for a dataset in an object store, the text of its segmentations.
    json: OpenFile,
    /// Folder of the images, with a trailing `/`.
    root: String,
    parsed: ParsedFile,
    formats: Vec<Format>,
    referenced_files: Option<ReferencedFiles>,
}

/// The contents of the JSON file that stay in memory.
#[derive(Debug)]
struct ParsedFile {
    images: Vec<Image>,
    /// Annotations, grouped by image in the order of the images.
    annotations: Vec<Annotation>,
    /// IDs of the categories, in ascending order.
    categories: Vec<i64>,
    classes: Vec<String>,
    has_masks: bool,
    has_areas: bool,
    /// Keypoints per box, or 0 if the dataset has none.
    points_per_box: usize,
    /// The x, y and visibility of all keypoints of all annotations.
    coordinates: Vec<f32>,
}

#[derive(Debug)]
struct Image {
    id: Id<'static>,
    name: Box<str>,
    width: u32,
    height: u32,
    /// End of this image's annotations in [`ParsedFile::annotations`].
    annotation_end: usize,
}

impl Image {
    /// Returns width and height, or `None` if one of them is 0, as some programs write.
    fn size(&self) -> Option<(u32, u32)> {
        (self.width > 0 && self.height > 0).then_some((self.width, self.height))
    }
}

#[derive(Debug)]
struct Annotation {
    image_index: u32,
    index: u32,
    /// ID of the annotation, or its index if it has none.
    id: Id<'static>,
    category: i64,
    /// Left, top, right and bottom, in pixels.
    edges: [f64; 4],
    /// Area in pixels, or the area of the box if the annotation has none.
    area: f32,
    is_crowd: bool,
    segmentation_offset: u64,
    /// Length of the segmentation's text in bytes, or 0 if there is no segmentation.
    segmentation_len: u32,
    /// Index of the annotation's first value in `coordinates`, if it has keypoints.
    first_coordinate: Option<usize>,
}

impl Coco {
    /// Opens the annotations in `json`. The images may be in the folder of the file, in a folder
    /// called `images`, or in a folder named after the file (`train2017` or `instances_train2017`
    /// for `instances_train2017.json`), which may be inside `images`. These folders may be next to
    /// the file or next to the file's folder.
    ///
    /// # Errors
    /// If the file cannot be read or is not COCO JSON (the message states line and column), or if
    /// the images cannot be found. Also fails if the file lists no images, if it has annotations
    /// but none of them belongs to a listed image, if an annotation has the wrong number of
    /// keypoint values, or if two images or two categories have the same ID.
    pub fn open(json: impl AsRef<Path>) -> Result<Self> {
        Self::open_local(json.as_ref(), None)
    }

    /// Opens the annotations in `json`, with the images in `folder`.
    ///
    /// # Errors
    /// Fails like [`open`](Coco::open), and if all of the first 100 images are missing in `folder`.
    /// Other missing images are reported when their samples are read.
    pub fn with_images(json: impl AsRef<Path>, folder: impl AsRef<Path>) -> Result<Self> {
        Self::open_local(json.as_ref(), Some(folder.as_ref()))
    }

    fn open_local(json: &Path, folder: Option<&Path>) -> Result<Self> {
        Self::open_with(&Storage::Machine { mapped: false }, json, folder, &Options::default())
    }

    /// If `folder` is `None`, searches for the image folder. The images must be on the same storage
    /// as `json`.
    pub(crate) fn open_with(storage: &Storage, json: &Path, folder: Option<&Path>, options: &Options) -> Result<Self> {
        let file = if storage.is_store() { storage.open(json)? } else { OpenFile::open(json, false)?.0 };
        // Read the whole file at once, so that segmentations can be borrowed instead of copied.
        let bytes = storage.read(json, u64::MAX)?;
        let mut parsed = ParsedFile::parse(&bytes, json).map_err(|e| e.at_path(json))?;
        let formats = options.formats.clone();
        if storage.is_store() {
            let (stores, url) = (&options.stores, json.to_str().unwrap_or_default());
            let root = match folder.and_then(Path::to_str) {
                Some(folder) => format!("{}/", folder.trim_end_matches('/')),
                None => find_url_folder(url, &parsed.images[0].name, stores)?,
            };
            let url = |image: &Image| check_below_folder(&image.name).is_ok().then(|| format!("{root}{}", image.name));
            let urls: Vec<Option<String>> = parsed.images.iter().map(url).collect();
            let referenced_files = Some(ReferencedFiles::of(&urls, 1, FolderListing::new(&root), stores)?);
            let json = OpenFile::in_memory(json.to_owned(), parsed.segmentations(&bytes));
            return Ok(Coco { json, root, parsed, formats, referenced_files });
        }
        let folder = match folder {
            Some(folder) => check_folder(json, folder, parsed.images.iter().map(|image| &*image.name))?,
            None => find_folder(json, &parsed.images[0].name)?,
        };
        Ok(Coco { json: file, root: with_trailing_slash(&folder)?, parsed, formats, referenced_files: None })
    }

    fn check(&self, annotation: &Annotation, image: &Image) -> Result<()> {
        self.parsed
            .class_of(annotation)
            .and_then(|_| {
                let [width, height] = image.size().map_or([f64::INFINITY; 2], |(w, h)| [w.into(), h.into()]);
                check_box(annotation.edges, width, height, 1.0)
            })
            .map_err(|e| {
                Error::in_source(format!("annotation {}: {}", annotation.id, e.cause())).at_path(&self.json.path)
            })
    }
}

impl Source for Coco {
    fn len(&self) -> usize {
        self.parsed.images.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let (image, annotations) = (&self.parsed.images[index], self.parsed.annotations(index));
        check_below_folder(&image.name).map_err(|e| e.at_path(&self.json.path))?;
        annotations.iter().try_for_each(|annotation| self.check(annotation, image))?;
        let (n, mut field_buffer) = (annotations.len(), FieldBuffer::new(scratch));
        let (key, field) = key_and_field(&image.name, &self.formats);
        let edges = annotations.iter().flat_map(|annotation| annotation.edges);
        field_buffer.push_array("boxes.npy", &[n, 4], edges.map(|edge| edge as f32));
        let classes = annotations.iter().map(|annotation| self.parsed.class_of(annotation).expect("checked above"));
        field_buffer.push_array("boxes.class.npy", &[n], classes);
        field_buffer.push_array(
            "boxes.crowd.npy",
            &[n],
            annotations.iter().map(|annotation| u8::from(annotation.is_crowd)),
        );
        if self.parsed.has_areas {
            field_buffer.push_array("boxes.area.npy", &[n], annotations.iter().map(|annotation| annotation.area));
        }
        if self.parsed.points_per_box > 0 {
            let numbers = annotations.iter().flat_map(|annotation| {
                let has_no_keypoints = annotation.first_coordinate.is_none();
                let start = annotation.first_coordinate.unwrap_or(0);
                (start..start + 3 * self.parsed.points_per_box)
                    .map(move |index| if has_no_keypoints { 0.0 } else { self.parsed.coordinates[index] })
            });
            field_buffer.push_array("boxes.points.npy", &[n, self.parsed.points_per_box, 3], numbers);
        }
        if self.parsed.has_masks {
            let json = field_buffer.begin_field("boxes.masks.json");
            for (position, annotation) in annotations.iter().enumerate() {
                json.push(if position == 0 { b'[' } else { b',' });
                let start = json.len();
                if annotation.segmentation_len == 0 {
                    json.extend_from_slice(b"null");
                } else {
                    json.resize(start + annotation.segmentation_len as usize, 0);
                    self.json.fill(annotation.segmentation_offset, &mut json[start..])?;
                }
            }
            json.extend_from_slice(if n == 0 { b"[]" } else { b"]" });
        }
        field_buffer.push_image_size(image.size());
        write!(field_buffer.begin_field("image_id.txt"), "{}", image.id).expect("writing to a Vec succeeds");
        match &self.referenced_files {
            None => field_buffer.push_file(field, &[&self.root, &image.name])?,
            Some(referenced_files) => {
                let (url, mut bytes) = (format!("{}{}", self.root, image.name), Vec::new());
                field_buffer.begin_field(field).extend_from_slice(referenced_files.read(index, 0, &url, &mut bytes)?);
            }
        }
        field_buffer.into_sample(key)
    }

    fn key(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<String> {
        Ok(key_and_field(&self.parsed.images[index].name, &self.formats).0.to_owned())
    }

    fn label(&self, _index: usize, _scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        Ok(None)
    }

    fn check(&self) -> Result<()> {
        self.json.check()
    }

    delegate_to_referenced_files!();

    fn path(&self, index: usize) -> Option<PathBuf> {
        Some(format!("{}{}", self.root, self.parsed.images[index].name).into())
    }

    fn classes(&self) -> &[String] {
        &self.parsed.classes
    }

    fn category_ids(&self) -> Vec<i64> {
        self.parsed.categories.clone()
    }

    fn fields(&self) -> Option<Vec<String>> {
        // A file without annotations, such as for a test split, does not tell which optional fields
        // the dataset has, so it may have all of them.
        let has_no_annotations = self.parsed.annotations.is_empty();
        let mut names = vec!["boxes.npy", "boxes.class.npy", "boxes.crowd.npy"];
        names.extend((has_no_annotations || self.parsed.has_areas).then_some("boxes.area.npy"));
        names.extend((has_no_annotations || self.parsed.points_per_box > 0).then_some("boxes.points.npy"));
        names.extend((has_no_annotations || self.parsed.has_masks).then_some("boxes.masks.json"));
        names.extend(["boxes.image_size.txt", "image_id.txt"]);
        Some(names.into_iter().map(str::to_owned).collect())
    }

    fn kind(&self) -> &'static str {
        "coco"
    }
}

impl ParsedFile {
    fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        let content: json::CocoJson<'_> =
            serde_json::from_slice(bytes).map_err(|e| Error::in_source(format!("not a COCO file: {e}")))?;
        if content.images.is_empty() {
            return Err(Error::in_source("the file lists no images"));
        }
        ParsedFile::from_json(content, bytes, path)
    }

    fn from_json(mut content: json::CocoJson<'_>, bytes: &[u8], path: &Path) -> Result<Self> {
        sort(&mut content)?;
        let mut coordinates = Vec::new();
        let (mut annotations, has_areas, points_per_box) = {
            let mut image_indices = HashMap::<&Id<'_>, u32>::new();
            reservation_result(image_indices.try_reserve(content.images.len()))?;
            image_indices.extend(content.images.iter().map(|image| &image.id).zip(0..));
            let is_listed = |object: &&Object<'_>| image_indices.contains_key(&object.image_id);
            check_listed(&content.annotations, is_listed, path)?;
            let category_points = content.categories.iter().map(|category| category.keypoints.len()).max();
            let with_points = content.annotations.iter().filter(|object| object.keypoints.is_some()).filter(is_listed);
            let point_count = with_points.filter_map(|object| Some(object.keypoints.as_ref()?.len() / 3)).max();
            let points_per_box =
                category_points.filter(|&category_points| category_points > 0).or(point_count).unwrap_or(0);
            let has_areas = content.annotations.iter().any(|object| object.area.is_some() && is_listed(&object));
            let objects = content.annotations.into_iter().enumerate();
            let annotations = objects.filter_map(|(index, object)| {
                let &image_index = image_indices.get(&object.image_id)?;
                Some(Annotation::new(object, index, image_index, points_per_box, &mut coordinates, bytes))
            });
            (try_collect(annotations)?, has_areas, points_per_box)
        };
        // Keeps the annotations of an image in file order, like a stable sort, but without
        // allocating.
        annotations.sort_unstable_by_key(|annotation| (annotation.image_index, annotation.index));
        let images = content.images.into_iter().enumerate().map(|(index, image)| {
            Ok(Image {
                id: image.id.into_owned(),
                name: image.file_name.into(),
                width: image.width,
                height: image.height,
                annotation_end: annotations.partition_point(|annotation| annotation.image_index as usize <= index),
            })
        });
        Ok(ParsedFile {
            images: try_collect(images)?,
            categories: content.categories.iter().map(|category| category.id).collect(),
            classes: content.categories.into_iter().map(|category| category.name.into_owned()).collect(),
            has_masks: annotations.iter().any(|annotation| annotation.segmentation_len > 0),
            has_areas,
            points_per_box,
            coordinates,
            annotations,
        })
    }

    /// Returns a copy of all segmentations, and makes the annotations refer to this copy.
    fn segmentations(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        for annotation in self.annotations.iter_mut().filter(|annotation| annotation.segmentation_len > 0) {
            let start = text.len() as u64;
            text.extend_from_slice(
                &bytes[annotation.segmentation_offset as usize..][..annotation.segmentation_len as usize],
            );
            annotation.segmentation_offset = start;
        }
        text
    }

    fn annotations(&self, index: usize) -> &[Annotation] {
        let start = if index == 0 { 0 } else { self.images[index - 1].annotation_end };
        &self.annotations[start..self.images[index].annotation_end]
    }

    fn class_of(&self, annotation: &Annotation) -> Result<i64> {
        let index = self.categories.binary_search(&annotation.category);
        index.map(|class| class as i64).map_err(|_| {
            let (category, count) = (annotation.category, self.categories.len());
            Error::in_source(format!(
                "unknown category {category}: expected the id of one of the {count} categories that the file lists"
            ))
        })
    }
}

fn sort(content: &mut json::CocoJson<'_>) -> Result<()> {
    content.categories.sort_unstable_by_key(|category| category.id);
    content.images.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    if let Some(duplicates) = content.categories.windows(2).find(|pair| pair[0].id == pair[1].id) {
        let (id, first, other) = (duplicates[0].id, &duplicates[0].name, &duplicates[1].name);
        return Err(Error::in_source(format!("category id {id} is used by both {first:?} and {other:?}")));
    }
    if let Some(duplicates) = content.images.windows(2).find(|pair| pair[0].id == pair[1].id) {
        let (id, first, other) = (&duplicates[0].id, &duplicates[0].file_name, &duplicates[1].file_name);
        return Err(Error::in_source(format!("image id {id} is used by both {first:?} and {other:?}")));
    }
    Ok(())
}

/// Logs a warning if some annotations belong to images that the file does not list, and fails if
/// all do. `is_listed` returns whether the image of an annotation is listed.
fn check_listed(annotations: &[Object<'_>], is_listed: impl Fn(&&Object<'_>) -> bool, path: &Path) -> Result<()> {
    let Some(first) = annotations.iter().find(|object| !is_listed(object)) else { return Ok(()) };
    let (total, count) = (annotations.len(), annotations.iter().filter(|object| !is_listed(object)).count());
    let image = &first.image_id;
    let id = first.id.as_ref().map_or("without an id".to_owned(), Id::to_string);
    let cause = format!(
        "the file does not list the images of {count} of its {}, such as image {image} of annotation {id}",
        counted(total, "annotation", "annotations"),
    );
    if count == total {
        return Err(Error::in_source(cause));
    }
    tracing::warn!("{}: {cause}; these annotations are ignored", path.display());
    Ok(())
}

impl Annotation {
    /// `index` is the index of `object` in the file's list, and `bytes` is the content of the file.
    fn new(
        object: Object<'_>,
        index: usize,
        image_index: u32,
        points_per_box: usize,
        coordinates: &mut Vec<f32>,
        bytes: &[u8],
    ) -> Result<Self> {
        let id = object.id.map_or(Id::Number(index as i64), Id::into_owned);
        let keypoints = object.keypoints.unwrap_or_default();
        if !keypoints.is_empty() && keypoints.len() != 3 * points_per_box {
            let (actual, expected) = (keypoints.len(), 3 * points_per_box);
            return Err(Error::in_source(format!(
                "annotation {id} has {actual} keypoint values: expected {expected} (x, y and visibility of \
                 {points_per_box} points)"
            )));
        }
        let first_coordinate = (!keypoints.is_empty()).then_some(coordinates.len());
        reserve(coordinates, keypoints.len())?;
        coordinates.extend(keypoints);
        let text = object.segmentation.map_or("", RawValue::get);
        // Some exporters write an empty list if there is no mask.
        let text = if matches!(text, "[]" | "null") { "" } else { text };
        let len = u32::try_from(text.len()).map_err(|_| {
            Error::in_source(format!("annotation {id} has a segmentation of {} bytes: the limit is 4 GiB", text.len()))
        })?;
        let offset = if len == 0 { 0 } else { (text.as_ptr().addr() - bytes.as_ptr().addr()) as u64 };
        let [x, y, width, height] = object.bbox;
        let edges = [x, y, x + width, y + height];
        let (category, is_crowd) = (object.category_id, object.iscrowd);
        let area = object.area.unwrap_or(width * height) as f32;
        Ok(Annotation {
            image_index,
            index: index as u32,
            id,
            category,
            edges,
            area,
            is_crowd,
            segmentation_offset: offset,
            segmentation_len: len,
            first_coordinate,
        })
    }
}
