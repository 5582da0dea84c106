//! Generates images with figures of several classes, and the ground truth for each figure, in COCO
//! or Pascal VOC format.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use rayon::prelude::*;
use serde_json::{Value, json};

use super::ink::draw;
use super::scene::{Scene, Seen, Visibility};
use super::{Coding, Synth, complete};
use warpfeed::decode::Size;
use warpfeed::sampler::Rng;
use warpfeed::{Error, ErrorKind, Result};

struct Annotated {
    size: Size,
    field: &'static str,
    bytes: Vec<u8>,
    figures: Vec<Seen>,
    /// The index of the figure that each pixel shows, plus 1, or 0 for the background.
    shown: Vec<u16>,
}

/// Minimum number of visible pixels of an annotated figure.
const MIN_VISIBLE: usize = 12;

const VAL: usize = 5;

/// Names of the keypoints. A horizontal flip swaps the last two.
const POINTS: [&str; 3] = ["top", "left", "right"];

impl Synth {
    /// Generates the dataset in COCO format: `annotations/instances_train.json` and
    /// `instances_val.json`, with the images in `train` and `val`. Each image shows several figures
    /// of arbitrary classes. An annotation consists of the figure's box, its visible pixels as run
    /// lengths, and three keypoints: its top, left and right ends. Every fifth image belongs to the
    /// validation split.
    ///
    /// `written` is called with the size in bytes of each image written, possibly from several
    /// threads at once.
    ///
    /// # Errors
    /// Fails under the same conditions as [`write`](Synth::write).
    pub fn write_coco(&self, dir: impl AsRef<Path>, written: impl Fn(usize) + Sync) -> Result<()> {
        self.check()?;
        complete(dir.as_ref(), |beside| {
            for folder in ["annotations", "train", "val"] {
                make(&beside.join(folder))?;
            }
            let drawn: Vec<(Value, Vec<Value>)> = self.for_each(|index, original| {
                let name = format!("{index:06}.{}", original.field);
                write_file(&beside.join(split(index)).join(&name), &original.bytes)?;
                written(original.bytes.len());
                let Size { width, height } = original.size;
                let image = json!({"id": index, "file_name": name, "width": width, "height": height});
                Ok((image, original.objects().map(|object| object.coco(index, original.size)).collect()))
            })?;
            let categories: Vec<Value> = (1..)
                .zip(self.class_names())
                .map(|(id, name)| json!({"id": id, "name": name, "keypoints": POINTS, "skeleton": []}))
                .collect();
            for part in ["train", "val"] {
                let in_part =
                    || drawn.iter().enumerate().filter(|(index, _)| split(*index) == part).map(|(_, both)| both);
                let images: Vec<&Value> = in_part().map(|both| &both.0).collect();
                let mut annotations: Vec<Value> = in_part().flat_map(|both| both.1.clone()).collect();
                for (number, annotation) in (1..).zip(&mut annotations) {
                    annotation["id"] = json!(number);
                }
                let contents = json!({"images": images, "annotations": annotations, "categories": categories});
                write_file(
                    &beside.join(format!("annotations/instances_{part}.json")),
                    contents.to_string().as_bytes(),
                )?;
            }
            Ok(())
        })
    }

    /// Generates the dataset in Pascal VOC format: `JPEGImages`, `Annotations`, `SegmentationClass`
    /// with one mask per image, and the lists `train.txt` and `val.txt` in `ImageSets/Main` and
    /// `ImageSets/Segmentation`. The images are the same as with
    /// [`write_coco`](Synth::write_coco). In a mask, 0 is the background, and the value `i + 1` is
    /// class `i` in the sorted order of the names, counted from 0.
    ///
    /// # Errors
    /// Fails under the same conditions as [`write`](Synth::write), and with [`ErrorKind::Config`] if
    /// there are more than 254 classes.
    pub fn write_voc(&self, dir: impl AsRef<Path>, written: impl Fn(usize) + Sync) -> Result<()> {
        self.check()?;
        let names: Vec<String> = self.class_names().collect();
        let mut sorted = names.clone();
        sorted.sort();
        let numbers: Vec<u8> = names.iter().map(|name| 1 + sorted.binary_search(name).unwrap_or(0) as u8).collect();
        if names.len() > 254 {
            return Err(Error::config(format!("synth: {} classes; a mask can represent at most 254", names.len())));
        }
        complete(dir.as_ref(), |beside| {
            for folder in ["JPEGImages", "Annotations", "SegmentationClass", "ImageSets/Main", "ImageSets/Segmentation"]
            {
                make(&beside.join(folder))?;
            }
            self.for_each(|index, original| {
                let file = |folder: &str, end: &str| beside.join(folder).join(format!("{index:06}.{end}"));
                write_file(&file("JPEGImages", original.field), &original.bytes)?;
                let class = |&number: &u16| match number {
                    0 => 0,
                    _ => numbers[original.figures[usize::from(number) - 1].class],
                };
                let mask: Vec<u8> = original.shown.iter().map(class).collect();
                write_file(&file("SegmentationClass", "png"), &palette_png(&mask, original.size)?)?;
                write_file(&file("Annotations", "xml"), original.xml(&names).as_bytes())?;
                written(original.bytes.len());
                Ok(())
            })?;
            for (folder, part) in
                [("Main", "train"), ("Main", "val"), ("Segmentation", "train"), ("Segmentation", "val")]
            {
                let in_part = (0..self.images).filter(|&index| split(index) == part);
                let list: String = in_part.map(|index| format!("{index:06}\n")).collect();
                write_file(&beside.join(format!("ImageSets/{folder}/{part}.txt")), list.as_bytes())?;
            }
            Ok(())
        })
    }

    /// Generates all images on all cores. Returns the results of `take`.
    fn for_each<T: Send>(&self, take: impl Fn(usize, Annotated) -> Result<T> + Sync) -> Result<Vec<T>> {
        (0..self.images).into_par_iter().map(|index| take(index, self.annotated(index)?)).collect()
    }

    fn annotated(&self, index: usize) -> Result<Annotated> {
        let mut rng = Rng::new(self.seed, u64::from(self.side), index as u64);
        let size = self.size(&mut rng);
        let coding = Coding::draw(&mut rng);
        // Two out of three cells contain a figure.
        let choose = |rng: &mut Rng| {
            let class = draw(rng, 0, self.classes as i32 - 1) as usize;
            (draw(rng, 0, 2) > 0).then(|| (class, self.figure(class)))
        };
        let scene = Scene::draw(size, choose, &mut rng);
        let (figures, shown) = scene.truth();
        let (field, bytes) = coding.encode(&scene.paint(), size)?;
        Ok(Annotated { size, field, bytes, figures, shown })
    }
}

fn split(index: usize) -> &'static str {
    if index % VAL == VAL - 1 { "val" } else { "train" }
}

fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|e| Error::io(folder, &e))
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(|e| Error::io(path, &e))
}

struct Object<'a> {
    seen: &'a Seen,
    /// The visible pixels, row by row.
    mask: Vec<bool>,
    /// First and last column of the visible pixels.
    columns: (usize, usize),
    /// First and last row of the visible pixels.
    rows: (usize, usize),
}

impl Annotated {
    fn objects(&self) -> impl Iterator<Item = Object<'_>> {
        let width = self.size.width as usize;
        (1..).zip(&self.figures).filter_map(move |(number, seen)| {
            let mask: Vec<bool> = self.shown.iter().map(|&shown| shown == number).collect();
            let inked = || mask.iter().enumerate().filter(|(_, inked)| **inked).map(|(index, _)| index);
            if inked().count() < MIN_VISIBLE {
                return None;
            }
            let columns = (inked().map(|index| index % width).min()?, inked().map(|index| index % width).max()?);
            let rows = (inked().next()? / width, inked().next_back()? / width);
            Some(Object { seen, columns, rows, mask })
        })
    }

    fn xml(&self, names: &[String]) -> String {
        let Size { width, height } = self.size;
        let mut xml = format!(
            "<annotation>\n\t<size><width>{width}</width><height>{height}</height><depth>3</depth></size>\n\t<segmented>1</segmented>\n"
        );
        for Object { seen, columns, rows, mask } in self.objects() {
            let inked = mask.iter().filter(|inked| **inked).count();
            let room = (columns.1 - columns.0 + 1) * (rows.1 - rows.0 + 1);
            // A figure that fills only a small part of its box is mostly hidden.
            let difficult = u8::from(inked * 5 < room);
            let _ = writeln!(
                xml,
                "\t<object>\n\t\t<name>{}</name>\n\t\t<difficult>{difficult}</difficult>\n\t\t<bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox>\n\t</object>",
                names[seen.class],
                columns.0 + 1,
                rows.0 + 1,
                columns.1 + 1,
                rows.1 + 1
            );
        }
        xml + "</annotation>\n"
    }
}

impl Object<'_> {
    /// Returns the annotation of the figure in COCO format. The id is a placeholder.
    fn coco(&self, image: usize, Size { width, height }: Size) -> Value {
        let (wide, high) = (self.columns.1 - self.columns.0 + 1, self.rows.1 - self.rows.0 + 1);
        let points: Vec<i32> = self
            .seen
            .points
            .iter()
            .flat_map(|&(x, y, visibility)| match visibility {
                Visibility::Outside => [0, 0, 0],
                Visibility::Hidden => [x, y, 1],
                Visibility::Visible => [x, y, 2],
            })
            .collect();
        let labeled = points.chunks(3).filter(|point| point[2] > 0).count();
        json!({
            "id": 0,
            "image_id": image,
            "category_id": self.seen.class + 1,
            "bbox": [self.columns.0, self.rows.0, wide, high],
            "area": self.mask.iter().filter(|inked| **inked).count(),
            "iscrowd": 0,
            "segmentation": {"size": [height, width], "counts": run_lengths(&self.mask, width as usize)},
            "keypoints": points,
            "num_keypoints": labeled,
        })
    }
}

/// Encodes a mask as run lengths in COCO's compressed format, in column order. Each number is split
/// into 5-bit groups, lowest bits first. Bit 5 is set if another group follows, and the group is
/// written as the character with that offset from `0`. Starting with the fourth run, the number is
/// the difference from the run two positions earlier.
fn run_lengths(mask: &[bool], width: usize) -> String {
    let mut runs = vec![0i64];
    let mut inked = false;
    for index in (0..width).flat_map(|x| (x..mask.len()).step_by(width)) {
        if mask[index] != inked {
            runs.push(0);
            inked = !inked;
        }
        *runs.last_mut().expect("there is at least one run") += 1;
    }
    let mut text = String::new();
    for (number, &run) in runs.iter().enumerate() {
        let mut bits = if number > 2 { run - runs[number - 2] } else { run };
        loop {
            let part = (bits & 31) as u8;
            bits >>= 5;
            let more = if part & 16 == 0 { bits != 0 } else { bits != -1 };
            text.push(char::from(48 + part + if more { 32 } else { 0 }));
            if !more {
                break;
            }
        }
    }
    text
}

/// Encodes a mask as a PNG of indices into Pascal VOC's palette.
fn palette_png(mask: &[u8], size: Size) -> Result<Vec<u8>> {
    let fail = |e: png::EncodingError| Error::new(ErrorKind::Io, format!("cannot encode: {e}"));
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, size.width, size.height);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_palette((0..=255).flat_map(voc_color).collect::<Vec<u8>>());
    let mut writer = encoder.write_header().map_err(fail)?;
    writer.write_image_data(mask).map_err(fail)?;
    writer.finish().map_err(fail)?;
    Ok(bytes)
}

/// Returns the color of a class. Pascal VOC distributes the bits of the class index to red, green
/// and blue in rotation, starting at the highest bit of each channel.
fn voc_color(class: u8) -> [u8; 3] {
    let bit = |number: usize| (u16::from(class) >> number & 1) as u8;
    std::array::from_fn(|channel| (0..3).fold(0, |value, step| value | bit(3 * step + channel) << (7 - step)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpfeed::source::{Source, open};

    #[test]
    fn mask_colors_equal_pascal_voc() {
        let voc_colors = [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0], [0, 0, 128], [128, 0, 128]];
        assert_eq!([0, 1, 2, 3, 4, 5].map(voc_color), voc_colors);
        assert_eq!((voc_color(20), voc_color(255)), ([0, 64, 128], [224, 224, 192]));
    }

    /// Strings produced by `pycocotools.mask.encode`.
    #[test]
    fn run_lengths_equal_pycocotools() {
        let mask = |width: usize, rows: &[&str]| {
            let mask: Vec<bool> = rows.concat().bytes().map(|b| b == b'x').collect();
            run_lengths(&mask, width)
        };
        assert_eq!(mask(4, &["....", ".xx.", "...."]), "41202");
        assert_eq!(mask(2, &["x.", "xx"]), "021O");
        assert_eq!(run_lengths(&[false; 1000], 40), "Xo0");
    }

    #[test]
    fn coco_and_voc_have_the_same_ground_truth() {
        let dir = tempfile::tempdir().unwrap();
        let set = Synth::new().images(10).classes(3).side(64).seed(5);
        set.write_coco(dir.path().join("coco"), |_| ()).unwrap();
        set.write_voc(dir.path().join("voc"), |_| ()).unwrap();
        let mut boxes = 0;
        for (json, list, count) in [("instances_train.json", "train.txt", 8), ("instances_val.json", "val.txt", 2)] {
            let coco = open(dir.path().join("coco/annotations").join(json)).unwrap();
            let voc = open(dir.path().join("voc/ImageSets/Segmentation").join(list)).unwrap();
            assert_eq!((coco.len(), voc.len()), (count, count));
            let (mut one, mut other) = (Vec::new(), Vec::new());
            for index in 0..count {
                let (coco, voc) = (coco.read(index, &mut one).unwrap(), voc.read(index, &mut other).unwrap());
                assert_eq!((coco.field("boxes.npy"), coco.key()), (voc.field("boxes.npy"), voc.key()));
                assert!(voc.field("mask.png").is_some() && coco.field("boxes.masks.json").is_some());
                boxes += (coco.field("boxes.class.npy").unwrap().len() - 64) / 8;
            }
        }
        assert!(boxes > 10, "{boxes}");
    }
}
