//! Generates images with figures of several classes, and their ground truth in COCO or Pascal VOC
//! format.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use rayon::prelude::*;
use serde_json::{Value, json};

use super::ink::random_in;
use super::scene::{Scene, Visibility, VisibleFigure};
use super::{ImageEncoding, Synth, write_atomically};
use warpfeed::decode::Size;
use warpfeed::sampler::Rng;
use warpfeed::{Error, ErrorKind, Result};

struct AnnotatedImage {
    size: Size,
    field: &'static str,
    bytes: Vec<u8>,
    figures: Vec<VisibleFigure>,
    /// One number per pixel: 0 for the background, or 1 plus the index of the figure that is
    /// visible there.
    figure_numbers: Vec<u16>,
}

/// Figures with fewer visible pixels than this are not annotated.
const MIN_VISIBLE_PIXELS: usize = 12;

const VALIDATION_PERIOD: usize = 5;

/// Names of the keypoints. A horizontal flip swaps the last two.
const KEYPOINTS: [&str; 3] = ["top", "left", "right"];

impl Synth {
    /// Generates the dataset in COCO format: `annotations/instances_train.json` and
    /// `instances_val.json`, with the images in `train` and `val`. Each image shows several figures
    /// of random classes. Each figure with at least 12 visible pixels is annotated with its box, a
    /// run-length encoded mask of its visible pixels, and three keypoints. The keypoints are the
    /// points of the outline that are farthest above, to the left and to the right of the center,
    /// along the axes of the rotated figure. Every fifth image belongs to the validation split.
    ///
    /// `written` is called with the size in bytes of each image after the image has been written.
    /// Several threads may call it at the same time.
    ///
    /// # Errors
    /// Fails under the same conditions as [`write`](Synth::write).
    pub fn write_coco(&self, dir: impl AsRef<Path>, written: impl Fn(usize) + Sync) -> Result<()> {
        self.check()?;
        write_atomically(dir.as_ref(), |partial_dir| {
            for folder in ["annotations", "train", "val"] {
                create_folder(&partial_dir.join(folder))?;
            }
            let entries: Vec<(Value, Vec<Value>)> = self.map_images(|index, annotated| {
                let name = format!("{index:06}.{}", annotated.field);
                write_file(&partial_dir.join(split(index)).join(&name), &annotated.bytes)?;
                written(annotated.bytes.len());
                let Size { width, height } = annotated.size;
                let image_entry = json!({"id": index, "file_name": name, "width": width, "height": height});
                Ok((image_entry, annotated.objects().map(|object| object.coco(index, annotated.size)).collect()))
            })?;
            let categories: Vec<Value> = (1..)
                .zip(self.class_names())
                .map(|(id, name)| json!({"id": id, "name": name, "keypoints": KEYPOINTS, "skeleton": []}))
                .collect();
            for split_name in ["train", "val"] {
                let split_entries = || {
                    entries
                        .iter()
                        .enumerate()
                        .filter(|(index, _)| split(*index) == split_name)
                        .map(|(_, image_entries)| image_entries)
                };
                let images: Vec<&Value> = split_entries().map(|image_entries| &image_entries.0).collect();
                let mut annotations: Vec<Value> =
                    split_entries().flat_map(|image_entries| image_entries.1.clone()).collect();
                for (id, annotation) in (1..).zip(&mut annotations) {
                    annotation["id"] = json!(id);
                }
                let contents = json!({"images": images, "annotations": annotations, "categories": categories});
                write_file(
                    &partial_dir.join(format!("annotations/instances_{split_name}.json")),
                    contents.to_string().as_bytes(),
                )?;
            }
            Ok(())
        })
    }

    /// Generates the dataset in Pascal VOC format: `JPEGImages`, `Annotations`, `SegmentationClass`
    /// with one mask per image, and the lists `train.txt` and `val.txt` in `ImageSets/Main` and
    /// `ImageSets/Segmentation`. The images are the same as with
    /// [`write_coco`](Synth::write_coco). In a mask, 0 is the background, 1 is the first class
    /// name in sorted order, 2 the second, and so on. `written` is called as in
    /// [`write_coco`](Synth::write_coco).
    ///
    /// # Errors
    /// Fails under the same conditions as [`write`](Synth::write), and with [`ErrorKind::Config`] if
    /// there are more than 254 classes.
    pub fn write_voc(&self, dir: impl AsRef<Path>, written: impl Fn(usize) + Sync) -> Result<()> {
        self.check()?;
        let class_names: Vec<String> = self.class_names().collect();
        if class_names.len() > 254 {
            return Err(Error::config(format!(
                "synth: {} classes; a mask can represent at most 254",
                class_names.len()
            )));
        }
        let mut sorted_names = class_names.clone();
        sorted_names.sort();
        let mask_values: Vec<u8> =
            class_names.iter().map(|name| 1 + sorted_names.binary_search(name).unwrap_or(0) as u8).collect();
        write_atomically(dir.as_ref(), |partial_dir| {
            for folder in ["JPEGImages", "Annotations", "SegmentationClass", "ImageSets/Main", "ImageSets/Segmentation"]
            {
                create_folder(&partial_dir.join(folder))?;
            }
            self.map_images(|index, annotated| {
                let file_path =
                    |folder: &str, extension: &str| partial_dir.join(folder).join(format!("{index:06}.{extension}"));
                write_file(&file_path("JPEGImages", annotated.field), &annotated.bytes)?;
                let mask_value = |&number: &u16| match number {
                    0 => 0,
                    _ => mask_values[annotated.figures[usize::from(number) - 1].class],
                };
                let mask: Vec<u8> = annotated.figure_numbers.iter().map(mask_value).collect();
                write_file(&file_path("SegmentationClass", "png"), &palette_png(&mask, annotated.size)?)?;
                write_file(&file_path("Annotations", "xml"), annotated.xml(&class_names).as_bytes())?;
                written(annotated.bytes.len());
                Ok(())
            })?;
            for (folder, split_name) in
                [("Main", "train"), ("Main", "val"), ("Segmentation", "train"), ("Segmentation", "val")]
            {
                let split_indices = (0..self.images).filter(|&index| split(index) == split_name);
                let contents: String = split_indices.map(|index| format!("{index:06}\n")).collect();
                write_file(&partial_dir.join(format!("ImageSets/{folder}/{split_name}.txt")), contents.as_bytes())?;
            }
            Ok(())
        })
    }

    fn map_images<T: Send>(&self, process: impl Fn(usize, AnnotatedImage) -> Result<T> + Sync) -> Result<Vec<T>> {
        (0..self.images).into_par_iter().map(|index| process(index, self.annotated_image(index)?)).collect()
    }

    fn annotated_image(&self, index: usize) -> Result<AnnotatedImage> {
        let mut rng = Rng::new(self.seed, u64::from(self.side), index as u64);
        let size = self.size(&mut rng);
        let coding = ImageEncoding::random(&mut rng);
        // A cell contains a figure with probability 2/3.
        let choose = |rng: &mut Rng| {
            let class = random_in(rng, 0, self.classes as i32 - 1) as usize;
            (random_in(rng, 0, 2) > 0).then(|| (class, self.figure(class)))
        };
        let scene = Scene::random(size, choose, &mut rng);
        let (figures, figure_numbers) = scene.ground_truth();
        let (field, bytes) = coding.encode(&scene.paint(), size)?;
        Ok(AnnotatedImage { size, field, bytes, figures, figure_numbers })
    }
}

fn split(index: usize) -> &'static str {
    if index % VALIDATION_PERIOD == VALIDATION_PERIOD - 1 { "val" } else { "train" }
}

fn create_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|e| Error::io(folder, &e))
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(|e| Error::io(path, &e))
}

struct Object<'a> {
    figure: &'a VisibleFigure,
    /// One value per pixel of the image, row by row: true if the figure is visible there.
    mask: Vec<bool>,
    /// First and last column of the visible pixels.
    columns: (usize, usize),
    /// First and last row of the visible pixels.
    rows: (usize, usize),
}

impl AnnotatedImage {
    fn objects(&self) -> impl Iterator<Item = Object<'_>> {
        let width = self.size.width as usize;
        (1..).zip(&self.figures).filter_map(move |(number, figure)| {
            let mask: Vec<bool> = self.figure_numbers.iter().map(|&shown_number| shown_number == number).collect();
            let visible_pixels =
                || mask.iter().enumerate().filter(|(_, is_visible)| **is_visible).map(|(index, _)| index);
            if visible_pixels().count() < MIN_VISIBLE_PIXELS {
                return None;
            }
            let columns = (
                visible_pixels().map(|index| index % width).min()?,
                visible_pixels().map(|index| index % width).max()?,
            );
            let rows = (visible_pixels().next()? / width, visible_pixels().next_back()? / width);
            Some(Object { figure, columns, rows, mask })
        })
    }

    fn xml(&self, class_names: &[String]) -> String {
        let Size { width, height } = self.size;
        let mut xml = format!(
            "<annotation>\n\t<size><width>{width}</width><height>{height}</height><depth>3</depth></size>\n\t<segmented>1</segmented>\n"
        );
        for Object { figure, columns, rows, mask } in self.objects() {
            let visible_count = mask.iter().filter(|is_visible| **is_visible).count();
            let box_area = (columns.1 - columns.0 + 1) * (rows.1 - rows.0 + 1);
            // A figure that fills less than a fifth of its box is probably mostly hidden.
            let difficult = u8::from(visible_count * 5 < box_area);
            let _ = writeln!(
                xml,
                "\t<object>\n\t\t<name>{}</name>\n\t\t<difficult>{difficult}</difficult>\n\t\t<bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox>\n\t</object>",
                class_names[figure.class],
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
        let (box_width, box_height) = (self.columns.1 - self.columns.0 + 1, self.rows.1 - self.rows.0 + 1);
        let keypoints: Vec<i32> = self
            .figure
            .points
            .iter()
            .flat_map(|&(x, y, visibility)| match visibility {
                Visibility::Outside => [0, 0, 0],
                Visibility::Hidden => [x, y, 1],
                Visibility::Visible => [x, y, 2],
            })
            .collect();
        let labeled_count = keypoints.chunks(3).filter(|point| point[2] > 0).count();
        json!({
            "id": 0,
            "image_id": image,
            "category_id": self.figure.class + 1,
            "bbox": [self.columns.0, self.rows.0, box_width, box_height],
            "area": self.mask.iter().filter(|is_visible| **is_visible).count(),
            "iscrowd": 0,
            "segmentation": {"size": [height, width], "counts": run_lengths(&self.mask, width as usize)},
            "keypoints": keypoints,
            "num_keypoints": labeled_count,
        })
    }
}

/// Encodes a mask as run lengths in COCO's compressed format, in column order. Each number is split
/// into 5-bit groups, lowest bits first. A sixth bit (value 32) is set if another group follows.
/// The 6-bit value plus 48, the code of the digit `0`, is the ASCII code that is written. Starting
/// with the fourth run, the number is the difference from the run two positions earlier.
fn run_lengths(mask: &[bool], width: usize) -> String {
    let mut runs = vec![0i64];
    let mut is_inside = false;
    for index in (0..width).flat_map(|x| (x..mask.len()).step_by(width)) {
        if mask[index] != is_inside {
            runs.push(0);
            is_inside = !is_inside;
        }
        *runs.last_mut().expect("there is at least one run") += 1;
    }
    let mut text = String::new();
    for (run_index, &run) in runs.iter().enumerate() {
        let mut bits = if run_index > 2 { run - runs[run_index - 2] } else { run };
        loop {
            let group = (bits & 31) as u8;
            bits >>= 5;
            let is_followed = if group & 16 == 0 { bits != 0 } else { bits != -1 };
            text.push(char::from(48 + group + if is_followed { 32 } else { 0 }));
            if !is_followed {
                break;
            }
        }
    }
    text
}

/// Encodes a mask as a PNG of indices into Pascal VOC's palette.
fn palette_png(class_values: &[u8], size: Size) -> Result<Vec<u8>> {
    let encode_error = |e: png::EncodingError| Error::new(ErrorKind::Io, format!("cannot encode a mask as PNG: {e}"));
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, size.width, size.height);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_palette((0..=255).flat_map(voc_color).collect::<Vec<u8>>());
    let mut writer = encoder.write_header().map_err(encode_error)?;
    writer.write_image_data(class_values).map_err(encode_error)?;
    writer.finish().map_err(encode_error)?;
    Ok(bytes)
}

/// Returns the palette color of a mask value. Pascal VOC distributes the bits of the value to red,
/// green and blue in rotation, starting at the highest bit of each channel.
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
    fn too_many_classes_for_voc_masks_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let error = Synth::new().images(300).classes(300).write_voc(dir.path().join("voc"), |_| ()).unwrap_err();
        assert!(error.to_string().contains("300 classes; a mask can represent at most 254"), "{error}");
    }

    #[test]
    fn coco_and_voc_have_the_same_ground_truth() {
        let dir = tempfile::tempdir().unwrap();
        let set = Synth::new().images(10).classes(3).side(64).seed(5);
        set.write_coco(dir.path().join("coco"), |_| ()).unwrap();
        set.write_voc(dir.path().join("voc"), |_| ()).unwrap();
        let mut box_count = 0;
        for (json, list, count) in [("instances_train.json", "train.txt", 8), ("instances_val.json", "val.txt", 2)] {
            let coco = open(dir.path().join("coco/annotations").join(json)).unwrap();
            let voc = open(dir.path().join("voc/ImageSets/Segmentation").join(list)).unwrap();
            assert_eq!((coco.len(), voc.len()), (count, count));
            let (mut coco_bytes, mut voc_bytes) = (Vec::new(), Vec::new());
            for index in 0..count {
                let (coco, voc) =
                    (coco.read(index, &mut coco_bytes).unwrap(), voc.read(index, &mut voc_bytes).unwrap());
                assert_eq!((coco.field("boxes.npy"), coco.key()), (voc.field("boxes.npy"), voc.key()));
                assert!(voc.field("mask.png").is_some() && coco.field("boxes.masks.json").is_some());
                box_count += (coco.field("boxes.class.npy").unwrap().len() - 64) / 8;
            }
        }
        assert!(box_count > 10, "{box_count}");
    }
}
