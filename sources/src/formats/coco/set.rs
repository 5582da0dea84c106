use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::value::RawValue;

use super::images::{check_folder, folder_of, url_folder_of};
use super::json::{self, Id, Object};
use crate::error::{Error, Result, collected, counted, reserve, reserved};
use crate::format::Format;
use crate::machine::slashes::root;
use crate::medium::stored::{Below, Stored, of_stored};
use crate::medium::{HeldFile, Medium};
use crate::model::{Sample, Source};
use crate::options::Options;
use crate::values::annotated::{Parts, below, check_box, key_and_field};

/// Images with the annotations of a COCO JSON file: boxes, classes, masks, points.
///
/// ```no_run
/// use warpfeed_sources::Coco;
///
/// let set = Coco::open("coco/annotations/instances_val2017.json")?; // images in coco/val2017
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
///
/// - **Samples** are the images, sorted by id as in torchvision's `CocoDetection`. An image
///   without annotations has n = 0 boxes. The key is `file_name` without the extension; the field
///   `image_id.txt` holds the id.
/// - **Boxes**: `boxes.npy`, (n, 4) f32, left, upper, right and lower edge in pixels, in the order
///   of the file. `boxes.crowd.npy`, (n) u8, is `iscrowd`.
/// - **Areas**: `boxes.area.npy`, (n) f32, the `area` in pixels of the image. The samples have the
///   field if an annotation of the file has an area. The area of one without it is that of its box.
/// - **Classes**: `boxes.class.npy`, (n) i64. The categories, sorted by id, are numbered 0, 1, 2,
///   …: COCO's ids 1 to 90 become 0 to 79. [`classes`](Source::classes) has their names.
/// - **Masks**: `boxes.masks.json`, the n `segmentation`s as written in the file: polygons or
///   run-length codes. All samples have the field if any annotation of the file has a segmentation.
/// - **Points**: `boxes.points.npy`, (n, K, 3) f32, the `keypoints`: x, y and visibility. The
///   samples have the field if the categories name points or an annotation has them. A box without
///   points has zeros.
/// - **Size**: `boxes.image_size.txt`, the `width` and `height` of the image.
///
/// `field::Boxes` delivers all of these in batches. It compares the size
/// with that of the image. If EXIF turns the image and the stored pixels were annotated, it
/// turns the annotations too.
///
/// **Memory.** Opening holds the whole file in memory: 468 MB of JSON with 860,000 annotations took
/// 617 MB at most. Afterwards, an annotation takes about 110 bytes, plus its points. Segmentations
/// are read from the file with the sample. If the file is written to while it is open, the next
/// epoch is an error.
///
/// **Stores.** The file and its images may be in a store. The folder of the images is listed
/// once, and images are fetched before they are needed. The text of the segmentations then stays
/// in memory.
///
/// **Bad annotations.** A category that the file does not list is an error of the sample, and so is
/// a box that exceeds its image by more than a pixel or a hundredth of the side, whichever is
/// larger. The message names the annotation. Annotations of images that the file does not list are
/// ignored, as by pycocotools. On opening, a warning reports their number. If all annotations are of
/// such images, opening is an error.
#[derive(Debug)]
pub struct Coco {
    /// The file, or the text of its segmentations if it is in a store.
    json: HeldFile,
    /// Folder of the images, with a final `/`.
    root: String,
    set: Set,
    formats: Vec<Format>,
    /// The images, if they are in a store.
    stored: Option<Stored>,
}

/// Content of the file that stays in memory.
#[derive(Debug)]
struct Set {
    images: Vec<Image>,
    /// Annotations, grouped by image in the order of the images.
    annotations: Vec<Annotation>,
    /// Ids of the categories, sorted.
    categories: Vec<i64>,
    classes: Vec<String>,
    masks: bool,
    /// Whether an annotation has an area.
    areas: bool,
    /// Number of points per box; 0 if the set has none.
    points: usize,
    /// All points of all annotations.
    coordinates: Vec<f32>,
}

#[derive(Debug)]
struct Image {
    id: Id<'static>,
    name: Box<str>,
    width: u32,
    height: u32,
    /// End of its annotations.
    end: usize,
}

impl Image {
    /// The size that the file declares. Some programs write 0 for an unknown size.
    fn size(&self) -> Option<(u32, u32)> {
        (self.width > 0 && self.height > 0).then_some((self.width, self.height))
    }
}

#[derive(Debug)]
struct Annotation {
    image: u32,
    /// Its position in the file's list.
    number: u32,
    /// Its id, or its position in the file's list if it has none.
    id: Id<'static>,
    category: i64,
    /// Left, upper, right and lower edge.
    edges: [f64; 4],
    /// Its area in pixels; that of its box if the file has none.
    area: f32,
    crowd: bool,
    /// Offset and length of the segmentation in the file; no bytes if it has none.
    at: u64,
    len: u32,
    /// Start of its points in `coordinates`.
    points: Option<usize>,
}

impl Coco {
    /// Opens the annotations in `json`. The images may be next to the file, in the folder that it
    /// is named after (`../train2017` for `instances_train2017.json`), or in `images`. These
    /// folders may be next to the file or next to its folder.
    ///
    /// # Errors
    /// If the file cannot be read or is not COCO's JSON (the message has line and column), if no
    /// annotation is of an image that is listed, if an id is used twice, or if the images are
    /// not found.
    pub fn open(json: impl AsRef<Path>) -> Result<Self> {
        Self::here(json.as_ref(), None)
    }

    /// Opens the annotations in `json` of the images below `folder`.
    ///
    /// # Errors
    /// The errors of [`open`](Coco::open). Opening looks for the first 100 images and fails if the
    /// folder has none of them. Otherwise a missing image is an error when it is read.
    pub fn with_images(json: impl AsRef<Path>, folder: impl AsRef<Path>) -> Result<Self> {
        Self::here(json.as_ref(), Some(folder.as_ref()))
    }

    fn here(json: &Path, folder: Option<&Path>) -> Result<Self> {
        Self::with(&Medium::Machine { mapped: false }, json, folder, &Options::default())
    }

    /// Opens the annotations in `json` of images of the same medium.
    pub(crate) fn with(medium: &Medium, json: &Path, folder: Option<&Path>, options: &Options) -> Result<Self> {
        let file = if medium.is_store() { medium.open(json)? } else { HeldFile::open(json, false)?.0 };
        // The whole file stays in memory while it is opened, so most of it is never copied.
        let bytes = medium.read(json, u64::MAX)?;
        let mut set = Set::parse(&bytes, json).map_err(|e| e.at_path(json))?;
        let formats = options.formats.clone();
        if medium.is_store() {
            let (stores, url) = (&options.stores, json.to_str().unwrap_or_default());
            let root = match folder.and_then(Path::to_str) {
                Some(folder) => format!("{}/", folder.trim_end_matches('/')),
                None => url_folder_of(url, &set.images[0].name, stores)?,
            };
            let url = |image: &Image| below(&image.name).is_ok().then(|| format!("{root}{}", image.name));
            let urls: Vec<Option<String>> = set.images.iter().map(url).collect();
            let stored = Some(Stored::of(&urls, 1, Below::new(&root), stores)?);
            let json = HeldFile::in_memory(json.to_owned(), set.segmentations(&bytes));
            return Ok(Coco { json, root, set, formats, stored });
        }
        let folder = match folder {
            Some(folder) => check_folder(json, folder, set.images.iter().map(|image| &*image.name))?,
            None => folder_of(json, &set.images[0].name)?,
        };
        Ok(Coco { json: file, root: root(&folder)?, set, formats, stored: None })
    }

    /// Checks an annotation of `image`.
    fn check(&self, annotation: &Annotation, image: &Image) -> Result<()> {
        self.set
            .class(annotation)
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
        self.set.images.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let (image, annotations) = (&self.set.images[index], self.set.annotations(index));
        below(&image.name).map_err(|e| e.at_path(&self.json.path))?;
        annotations.iter().try_for_each(|annotation| self.check(annotation, image))?;
        let (n, mut parts) = (annotations.len(), Parts::new(scratch));
        let (key, field) = key_and_field(&image.name, &self.formats);
        let edges = annotations.iter().flat_map(|annotation| annotation.edges);
        parts.array("boxes.npy", &[n, 4], edges.map(|edge| edge as f32));
        let classes = annotations.iter().map(|annotation| self.set.class(annotation).expect("checked above"));
        parts.array("boxes.class.npy", &[n], classes);
        parts.array("boxes.crowd.npy", &[n], annotations.iter().map(|annotation| u8::from(annotation.crowd)));
        if self.set.areas {
            parts.array("boxes.area.npy", &[n], annotations.iter().map(|annotation| annotation.area));
        }
        if self.set.points > 0 {
            let numbers = annotations.iter().flat_map(|annotation| {
                let none = annotation.points.is_none();
                let start = annotation.points.unwrap_or(0);
                (start..start + 3 * self.set.points).map(move |at| if none { 0.0 } else { self.set.coordinates[at] })
            });
            parts.array("boxes.points.npy", &[n, self.set.points, 3], numbers);
        }
        if self.set.masks {
            let json = parts.begin("boxes.masks.json");
            for (number, annotation) in annotations.iter().enumerate() {
                json.push(if number == 0 { b'[' } else { b',' });
                let start = json.len();
                if annotation.len == 0 {
                    json.extend_from_slice(b"null");
                } else {
                    json.resize(start + annotation.len as usize, 0);
                    self.json.fill(annotation.at, &mut json[start..])?;
                }
            }
            json.extend_from_slice(if n == 0 { b"[]" } else { b"]" });
        }
        parts.image_size(image.size());
        write!(parts.begin("image_id.txt"), "{}", image.id).expect("a Vec takes everything");
        match &self.stored {
            None => parts.file(field, &[&self.root, &image.name])?,
            Some(stored) => {
                let (url, mut bytes) = (format!("{}{}", self.root, image.name), Vec::new());
                parts.begin(field).extend_from_slice(stored.read(index, 0, &url, &mut bytes)?);
            }
        }
        parts.sample(key)
    }

    fn key(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<String> {
        Ok(key_and_field(&self.set.images[index].name, &self.formats).0.to_owned())
    }

    fn label(&self, _index: usize, _scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        Ok(None)
    }

    fn check(&self) -> Result<()> {
        self.json.check()
    }

    of_stored!();

    fn path(&self, index: usize) -> Option<PathBuf> {
        Some(format!("{}{}", self.root, self.set.images[index].name).into())
    }

    fn classes(&self) -> &[String] {
        &self.set.classes
    }

    fn category_ids(&self) -> Vec<i64> {
        self.set.categories.clone()
    }

    fn fields(&self) -> Option<Vec<String>> {
        // Without boxes, a sample needs no columns of them.
        if self.set.annotations.is_empty() {
            return None;
        }
        let mut names = vec!["boxes.npy", "boxes.class.npy", "boxes.crowd.npy"];
        names.extend(self.set.areas.then_some("boxes.area.npy"));
        names.extend((self.set.points > 0).then_some("boxes.points.npy"));
        names.extend(self.set.masks.then_some("boxes.masks.json"));
        names.extend(["boxes.image_size.txt", "image_id.txt"]);
        Some(names.into_iter().map(str::to_owned).collect())
    }

    fn kind(&self) -> &'static str {
        "coco"
    }
}

impl Set {
    /// The content of the file at `path`, which has these bytes.
    fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        let content: json::File<'_> =
            serde_json::from_slice(bytes).map_err(|e| Error::in_source(format!("not the JSON of COCO: {e}")))?;
        if content.images.is_empty() {
            return Err(Error::in_source("lists no images"));
        }
        Set::of(content, bytes, path)
    }

    fn of(mut content: json::File<'_>, bytes: &[u8], path: &Path) -> Result<Self> {
        sort(&mut content)?;
        let mut coordinates = Vec::new();
        let (mut annotations, areas, points) = {
            let mut places = HashMap::<&Id<'_>, u32>::new();
            reserved(places.try_reserve(content.images.len()))?;
            places.extend(content.images.iter().map(|image| &image.id).zip(0..));
            let listed = |object: &&Object<'_>| places.contains_key(&object.image_id);
            check_listed(&content.annotations, listed, path)?;
            let named = content.categories.iter().map(|category| category.keypoints.len()).max();
            let with_points = content.annotations.iter().filter(|object| object.keypoints.is_some()).filter(listed);
            let given = with_points.filter_map(|object| Some(object.keypoints.as_ref()?.len() / 3)).max();
            let points = named.filter(|&named| named > 0).or(given).unwrap_or(0);
            let areas = content.annotations.iter().any(|object| object.area.is_some() && listed(&object));
            let objects = content.annotations.into_iter().enumerate();
            let annotations = objects.filter_map(|(number, object)| {
                let &image = places.get(&object.image_id)?;
                Some(Annotation::of(object, number, image, points, &mut coordinates, bytes))
            });
            (collected(annotations)?, areas, points)
        };
        // A stable sort needs memory. Annotations of one image keep the order of the file.
        annotations.sort_unstable_by_key(|annotation| (annotation.image, annotation.number));
        let images = content.images.into_iter().enumerate().map(|(index, image)| {
            Ok(Image {
                id: image.id.into_owned(),
                name: image.file_name.into(),
                width: image.width,
                height: image.height,
                end: annotations.partition_point(|annotation| annotation.image as usize <= index),
            })
        });
        Ok(Set {
            images: collected(images)?,
            categories: content.categories.iter().map(|category| category.id).collect(),
            classes: content.categories.into_iter().map(|category| category.name.into_owned()).collect(),
            masks: annotations.iter().any(|annotation| annotation.len > 0),
            areas,
            points,
            coordinates,
            annotations,
        })
    }

    /// The text of all segmentations in `bytes`, in which they are found from now on.
    fn segmentations(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        for annotation in self.annotations.iter_mut().filter(|annotation| annotation.len > 0) {
            let start = text.len() as u64;
            text.extend_from_slice(&bytes[annotation.at as usize..][..annotation.len as usize]);
            annotation.at = start;
        }
        text
    }

    fn annotations(&self, index: usize) -> &[Annotation] {
        let start = if index == 0 { 0 } else { self.images[index - 1].end };
        &self.annotations[start..self.images[index].end]
    }

    fn class(&self, annotation: &Annotation) -> Result<i64> {
        let found = self.categories.binary_search(&annotation.category);
        found.map(|class| class as i64).map_err(|_| {
            let (category, all) = (annotation.category, self.categories.len());
            Error::in_source(format!("category {category} is not among the {all} categories of the file"))
        })
    }
}

/// Sorts the images and the categories.
///
/// # Errors
/// If two of them have one id.
fn sort(content: &mut json::File<'_>) -> Result<()> {
    content.categories.sort_unstable_by_key(|category| category.id);
    content.images.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    if let Some(twice) = content.categories.windows(2).find(|pair| pair[0].id == pair[1].id) {
        let (id, one, other) = (twice[0].id, &twice[0].name, &twice[1].name);
        return Err(Error::in_source(format!("category id {id} is used by {one:?} and by {other:?}")));
    }
    if let Some(twice) = content.images.windows(2).find(|pair| pair[0].id == pair[1].id) {
        let (id, one, other) = (&twice[0].id, &twice[0].file_name, &twice[1].file_name);
        return Err(Error::in_source(format!("image id {id} is used by {one:?} and by {other:?}")));
    }
    Ok(())
}

/// Warns of annotations of images that are not `listed`.
///
/// # Errors
/// If all of them are.
fn check_listed(annotations: &[Object<'_>], listed: impl Fn(&&Object<'_>) -> bool, path: &Path) -> Result<()> {
    let Some(first) = annotations.iter().find(|object| !listed(object)) else { return Ok(()) };
    let (all, count) = (annotations.len(), annotations.iter().filter(|object| !listed(object)).count());
    let image = &first.image_id;
    let id = first.id.as_ref().map_or("without an id".to_owned(), Id::to_string);
    let cause = format!(
        "the file does not list the images of {count} of its {}, such as image {image} of annotation {id}",
        counted(all, "annotation", "annotations"),
    );
    if count == all {
        return Err(Error::in_source(cause));
    }
    tracing::warn!("{}: {cause}; they are ignored", path.display());
    Ok(())
}

impl Annotation {
    /// Creates the annotation `number` of the file, whose text is `bytes`.
    fn of(
        object: Object<'_>,
        number: usize,
        image: u32,
        points: usize,
        coordinates: &mut Vec<f32>,
        bytes: &[u8],
    ) -> Result<Self> {
        let id = object.id.map_or(Id::Number(number as i64), Id::into_owned);
        let keypoints = object.keypoints.unwrap_or_default();
        if !keypoints.is_empty() && keypoints.len() != 3 * points {
            let (found, needed) = (keypoints.len(), 3 * points);
            return Err(Error::in_source(format!(
                "annotation {id} has {found} keypoint numbers; {points} points of x, y and visibility need {needed}"
            )));
        }
        let start = (!keypoints.is_empty()).then_some(coordinates.len());
        reserve(coordinates, keypoints.len())?;
        coordinates.extend(keypoints);
        let text = object.segmentation.map_or("", RawValue::get);
        // Some exporters write an empty list for a missing mask.
        let text = if matches!(text, "[]" | "null") { "" } else { text };
        let len = u32::try_from(text.len())
            .map_err(|_| Error::in_source(format!("annotation {id} has a segmentation of {} bytes", text.len())))?;
        let at = if len == 0 { 0 } else { (text.as_ptr().addr() - bytes.as_ptr().addr()) as u64 };
        let [x, y, width, height] = object.bbox;
        let edges = [x, y, x + width, y + height];
        let (category, crowd) = (object.category_id, object.iscrowd);
        let area = object.area.unwrap_or(width * height) as f32;
        Ok(Annotation { image, number: number as u32, id, category, edges, area, crowd, at, len, points: start })
    }
}
