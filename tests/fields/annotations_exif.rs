//! Tests that annotations stay correct when EXIF rotates an image. Annotations of the stored image
//! must rotate with it; annotations of the upright image must not. A sample with annotations must
//! fail if neither the dataset nor an option shows which image was annotated, or if the annotated
//! image had a different size.
//!
//! `fixtures/orientation/make.py` generated the images and, with torchvision and pycocotools, the
//! expected annotations.

use std::fs;
use std::path::{Path, PathBuf};

use crate::annotated::{expect_error, write_files};
use crate::reference_fields::npy;
use serde::Deserialize;
use serde_json::{Value, json};
use warpfeed::decode::{AnnotationFrame, Info, Size};
use warpfeed::field::{Annotations, Boxes, DenseMap, Keypoints, Mask};
use warpfeed::pack::Pack;
use warpfeed::source::{Memory, OwnedSample, open};
use warpfeed::{Augment, Dtype, HostBatch, Loader, Result};

#[derive(Deserialize)]
struct Case {
    name: String,
    tag: u8,
    stored: [u32; 2],
    upright: [u32; 2],
    first_pixel: Vec<u8>,
    boxes: Vec<[f32; 4]>,
    polygon: Vec<f64>,
    code: Value,
    points: Vec<[f32; 2]>,
    boxes_upright: Vec<[f32; 4]>,
    masks_upright: Vec<Vec<usize>>,
    points_upright: Vec<[f32; 2]>,
}

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/orientation");

fn cases() -> Vec<Case> {
    let cases: Vec<Case> = serde_json::from_slice(&fs::read(format!("{FIXTURES}/cases.json")).unwrap()).unwrap();
    assert_eq!(cases.iter().map(|case| case.tag).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8, 6]);
    cases
}

impl Case {
    fn jpeg(&self) -> Vec<u8> {
        fs::read(format!("{FIXTURES}/{}.jpg", self.name)).unwrap()
    }

    fn fits_both(&self) -> bool {
        self.tag > 1 && self.stored == self.upright
    }

    fn is_mirrored(&self) -> bool {
        [2, 4, 5, 7].contains(&self.tag)
    }

    fn coco(&self, size: [u32; 2]) -> (tempfile::TempDir, PathBuf) {
        let points: Vec<f32> = self.points.iter().flat_map(|&[x, y]| [x, y, 2.0]).collect();
        let annotation = |number: usize, segmentation: Value| {
            let [x1, y1, x2, y2] = self.boxes[number];
            json!({"id": number, "image_id": 1, "category_id": 1, "bbox": [x1, y1, x2 - x1, y2 - y1],
                   "segmentation": segmentation, "keypoints": points})
        };
        let text = json!({
            "images": [{"id": 1, "file_name": "a.jpg", "width": size[0], "height": size[1]}],
            "annotations": [annotation(0, json!([self.polygon])), annotation(1, self.code.clone()), annotation(2, json!([self.polygon]))],
            "categories": [{"id": 1, "name": "cat"}],
        });
        let root = write_files(&[("x.json", &text.to_string())]);
        fs::write(root.path().join("a.jpg"), self.jpeg()).unwrap();
        let json = root.path().join("x.json");
        (root, json)
    }

    /// With `rotated`, the boxes, points and first masks must match torchvision's rotated
    /// annotations. Otherwise, the boxes and points must be unchanged.
    fn check(&self, batch: &HostBatch, rotated: bool) {
        let name = &self.name;
        let [width, height] = self.upright.map(|side| side as usize);
        assert_eq!(batch.images().shape(), [1, height, width, 3]);
        assert_eq!(batch.images().as_u8().unwrap()[..3], self.first_pixel, "{name}: torchvision's first pixel");
        let (boxes, points) = match rotated {
            true => (&self.boxes_upright, &self.points_upright),
            false => (&self.boxes, &self.points),
        };
        assert_eq!(batch.counts("boxes").unwrap(), [3], "{name}");
        assert_eq!(batch.field("boxes").unwrap().as_f32().unwrap(), boxes.as_flattened(), "{name}");
        let mut expected: Vec<[f32; 3]> = points.iter().map(|&[x, y]| [x, y, 2.0]).collect();
        if rotated && self.is_mirrored() {
            expected.swap(0, 1);
        }
        let actual = batch.field("boxes.points").unwrap().as_f32().unwrap();
        assert_eq!(actual[..9], *expected.as_flattened(), "{name}");
        if rotated {
            let masks = batch.field("boxes.masks").unwrap().bytes();
            for (mask, runs) in masks.chunks_exact(width * height).zip(&self.masks_upright) {
                assert!(runs_of(mask, width, height) == *runs, "{name}");
            }
        }
    }
}

fn runs_of(mask: &[u8], width: usize, height: usize) -> Vec<usize> {
    let (mut runs, mut value) = (vec![0], 0);
    for place in 0..width * height {
        let pixel = mask[place % height * width + place / height];
        if pixel != value {
            runs.push(0);
            value = pixel;
        }
        *runs.last_mut().unwrap() += 1;
    }
    runs
}

fn batch(case: &Case, loader: Loader, follow: Option<AnnotationFrame>) -> Result<HostBatch> {
    let loader =
        loader.augment(Augment::pass_through(case.upright[0], case.upright[1])).drop_field("label").batch_size(1);
    let loader = follow.into_iter().fold(loader, Loader::annotations_follow);
    loader.into_iter().next().unwrap()
}

fn boxes() -> Boxes {
    Boxes::new(3).points(3).flip_pairs([(0, 1)])
}

fn names_the_option<T>(result: Result<T>) {
    let e = expect_error(result);
    assert!(
        e.cause().contains("Loader::annotations_follow(AnnotationFrame::Stored) or (AnnotationFrame::Upright)"),
        "{e}"
    );
}

#[test]
fn coco_annotations_rotate_with_exif_as_in_torchvision() {
    for case in cases() {
        let (root, json) = case.coco(case.stored);
        let load = |path: &Path, follow| {
            let kind = if follow == Some(AnnotationFrame::Upright) { boxes() } else { boxes().masks() };
            batch(&case, Loader::new(path).field("boxes", kind), follow)
        };
        if case.fits_both() {
            names_the_option(load(&json, None));
            case.check(&load(&json, Some(AnnotationFrame::Upright)).unwrap(), false);
        } else {
            case.check(&load(&json, None).unwrap(), true);
        }
        let stored = load(&json, Some(AnnotationFrame::Stored)).unwrap();
        case.check(&stored, true);
        let packed = root.path().join("packed.lmdb");
        Pack::new(&*open(&json).unwrap()).to(&packed).unwrap();
        case.check(&load(&packed, Some(AnnotationFrame::Stored)).unwrap(), true);
    }
}

#[test]
fn coco_annotations_of_the_upright_image_are_not_rotated() {
    for case in cases() {
        let (_root, json) = case.coco(case.upright);
        let load = |follow| batch(&case, Loader::new(&json).field("boxes", boxes()), follow);
        if case.fits_both() {
            names_the_option(load(None));
        } else {
            case.check(&load(None).unwrap(), false);
        }
        case.check(&load(Some(AnnotationFrame::Upright)).unwrap(), false);
    }
}

#[test]
fn a_wrong_annotated_image_size_fails_with_both_sizes() {
    for case in cases() {
        let (_root, json) = case.coco([96, 64]);
        let e = expect_error(batch(&case, Loader::new(&json).field("boxes", boxes()), Some(AnnotationFrame::Stored)));
        let [width, height] = case.upright;
        let words = format!("annotations are for 96x64 pixels, but the image has {width}x{height}");
        assert!(e.cause().contains(&words) && e.key() == Some("a"), "{e}");
    }
}

#[test]
fn a_crop_that_depends_on_boxes_uses_rotated_boxes() {
    for case in cases().iter().filter(|case| case.tag == 6) {
        let (_root, json) = case.coco(case.stored);
        let loader = Loader::new(&json).augment(Augment::iou_crop(32, 32)).drop_field("label").batch_size(1).repeat(40);
        let loader = loader.annotations_follow(AnnotationFrame::Stored).field("boxes", Boxes::new(3));
        // The crop must contain the center of a box. If the crop used unrotated boxes, the batch
        // would often have no box.
        assert!(loader.into_iter().all(|batch| batch.unwrap().counts("boxes").unwrap()[0] > 0), "{}", case.name);
    }
}

#[test]
fn yolo_annotations_follow_the_option() {
    for case in cases() {
        let [width, height] = case.stored.map(|side| side as f32);
        let line = |[x1, y1, x2, y2]: [f32; 4]| {
            let sides = [(x1 + x2) / 2.0 / width, (y1 + y2) / 2.0 / height, (x2 - x1) / width, (y2 - y1) / height];
            format!("0 {} {} {} {}\n", sides[0], sides[1], sides[2], sides[3])
        };
        let text: String = case.boxes.iter().map(|&corners| line(corners)).collect();
        let root = write_files(&[("labels/a.txt", &text), ("labels/b.txt", "")]);
        fs::create_dir(root.path().join("images")).unwrap();
        fs::write(root.path().join("images/a.jpg"), case.jpeg()).unwrap();
        let load = |follow| batch(&case, Loader::new(root.path()).field("boxes", Boxes::new(3)), follow);
        match case.tag {
            1 => assert!(load(None).is_ok()),
            _ => names_the_option(load(None)),
        }
        let near = |batch: &HostBatch, expected: &[f32]| {
            let actual = batch.field("boxes").unwrap().as_f32().unwrap().to_vec();
            assert!(
                actual.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-3),
                "{}: {actual:?} {expected:?}",
                case.name
            );
        };
        near(&load(Some(AnnotationFrame::Stored)).unwrap(), case.boxes_upright.as_flattened());
        let scale = |&[a, b, c, d]: &[f32; 4]| {
            let (across, down) = (case.upright[0] as f32 / width, case.upright[1] as f32 / height);
            [a * across, b * down, c * across, d * down]
        };
        near(
            &load(Some(AnnotationFrame::Upright)).unwrap(),
            case.boxes.iter().map(scale).collect::<Vec<_>>().as_flattened(),
        );
        fs::write(root.path().join("labels/a.txt"), "").unwrap();
        assert_eq!(load(None).unwrap().counts("boxes").unwrap(), [0]);
    }
}

#[test]
fn boxes_and_masks_of_pascal_voc_rotate_with_the_image() {
    for case in cases() {
        let [width, height] = case.stored;
        // Pascal VOC counts pixels from 1.
        let object = |[x1, y1, x2, y2]: [f32; 4]| {
            let (x1, y1) = (x1 + 1.0, y1 + 1.0);
            format!(
                "<object><name>cat</name><bndbox><xmin>{x1}</xmin><ymin>{y1}</ymin><xmax>{x2}</xmax><ymax>{y2}</ymax></bndbox></object>"
            )
        };
        let objects: String = case.boxes.iter().map(|&corners| object(corners)).collect();
        let size = format!("<size><width>{width}</width><height>{height}</height></size>");
        let root = write_files(&[("Annotations/a.xml", &format!("<annotation>{size}{objects}</annotation>"))]);
        fs::create_dir_all(root.path().join("JPEGImages")).unwrap();
        fs::create_dir_all(root.path().join("SegmentationClass")).unwrap();
        fs::write(root.path().join("JPEGImages/a.jpg"), case.jpeg()).unwrap();
        let value = |x: u32, y: u32| ((x * 5 + y * 3) % 250) as u8;
        let mask = image::GrayImage::from_fn(width, height, |x, y| image::Luma([value(x, y)]));
        mask.save(root.path().join("SegmentationClass/a.png")).unwrap();
        let load = |follow| {
            let loader = Loader::new(root.path()).field("boxes", Boxes::new(3)).field("mask", Mask::new(Dtype::U8));
            batch(&case, loader, follow)
        };
        if case.fits_both() {
            names_the_option(load(None));
        }
        let rotated = load(Some(AnnotationFrame::Stored)).unwrap();
        assert_eq!(rotated.field("boxes").unwrap().as_f32().unwrap(), case.boxes_upright.as_flattened());
        let frame =
            Info::read(&case.jpeg()).unwrap().oriented.annotated(Some(AnnotationFrame::Stored)).frame(None).unwrap();
        let pixels = rotated.field("mask").unwrap().bytes();
        for (pixel, place) in pixels.iter().zip(0..) {
            let (x, y) = frame.pixel(place % case.upright[0], place / case.upright[0]);
            assert_eq!(*pixel, value(x, y), "{}: pixel {place}", case.name);
        }
    }
}

/// Compares with a sample that was rotated in advance, with several crops, resizes and flips.
#[test]
fn masks_maps_and_points_follow_every_rotation() {
    for case in cases() {
        let frame =
            Info::read(&case.jpeg()).unwrap().oriented.annotated(Some(AnnotationFrame::Stored)).frame(None).unwrap();
        let placed = |upright: bool, x: u32, y: u32| if upright { frame.pixel(x, y) } else { (x, y) };
        let sample = |upright: bool| {
            let [width, height] = if upright { case.upright } else { case.stored };
            let pixels =
                || (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| placed(upright, x, y));
            let mask: Vec<u8> = pixels().map(|(x, y)| ((x * 7 + y * 11) % 251) as u8).collect();
            let depth = pixels().flat_map(|(x, y)| ((x * 3 + y * 5) as f32).to_le_bytes()).collect::<Vec<_>>();
            let flow = pixels().flat_map(|(x, y)| {
                let flow = (x as f32 / 2.0 - 3.0, y as f32 / 4.0 + 1.0);
                let (across, down) = if upright { frame.displacement(flow) } else { flow };
                [across.to_le_bytes(), down.to_le_bytes()].concat()
            });
            let points = if upright && case.is_mirrored() { [1, 0, 2] } else { [0, 1, 2] };
            let listed = if upright { &case.points_upright } else { &case.points };
            let points = points.map(|i| format!("{} {} ", listed[i][0], listed[i][1])).concat();
            let mut pixels = warpfeed::decode::Pixels::new();
            let jpeg = case.jpeg();
            let codecs = warpfeed::decode::Codecs::new();
            let mut image = codecs.open(&jpeg).unwrap();
            image.decode(warpfeed::decode::Rect::full(image.size()), &mut pixels).unwrap();
            let built = OwnedSample::new("a").label(0);
            let built = match upright {
                true => built.field("rgb.npy", npy("|u1", &format!("({height}, {width}, 3)"), pixels.data())),
                false => built.field("jpg", jpeg.clone()),
            };
            built
                .field("mask.npy", npy("|u1", &format!("({height}, {width})"), &mask))
                .field("depth.npy", npy("<f4", &format!("({height}, {width})"), &depth))
                .field("near.npy", npy("<f4", &format!("({height}, {width})"), &depth))
                .field("flow.npy", npy("<f4", &format!("({height}, {width}, 2)"), &flow.collect::<Vec<_>>()))
                .field("landmarks.txt", points)
        };
        for augment in
            [Augment::train(40).flip(0.5).vertical_flip(0.5), Augment::letterbox(50, 40), Augment::resize(17, 23)]
        {
            let load = |upright: bool| {
                let loader = Loader::source(Memory::new(vec![sample(upright)])).augment(augment.clone()).repeat(8);
                let loader = loader.field("mask", Mask::new(Dtype::I32).fill(255)).field("depth", DenseMap::new());
                let loader = loader.field("near", DenseMap::new().nearest()).field("flow", DenseMap::flow());
                loader
                    .field("landmarks", Keypoints::new(3).flip_pairs([(0, 1)]))
                    .annotations_follow(AnnotationFrame::Stored)
            };
            for (stored, upright) in load(false).into_iter().zip(load(true)) {
                let (stored, upright) = (stored.unwrap(), upright.unwrap());
                for field in ["image", "mask", "depth", "near", "flow", "landmarks"] {
                    let bytes = |batch: &HostBatch| batch.field(field).unwrap().bytes().to_vec();
                    assert!(bytes(&stored) == bytes(&upright), "{}: {field} by {augment:?}", case.name);
                }
            }
        }
    }
}

#[test]
fn reading_annotations_directly_checks_the_annotated_size() {
    let sample = |size: &str| {
        let sample = OwnedSample::new("a").field("boxes.txt", "0 0 4 3").field("boxes.image_size.txt", size);
        Annotations::read(&sample.as_sample().unwrap(), Size::new(20, 10))
    };
    assert_eq!(sample("20 10").unwrap().boxes, [[0.0, 0.0, 4.0, 3.0]]);
    let e = sample("40 20").unwrap_err();
    assert_eq!(e.cause(), "field \"boxes.txt\": annotations are for 40x20 pixels, but the image has 20x10");
    for size in ["", "20", "20 10 3", "20 x", "0 10", "-1 5"] {
        let e = sample(size).unwrap_err();
        assert!(e.cause().contains("expected width and height in pixels"), "{size:?}: {e}");
    }
}
