//! Tests that COCO, YOLO and Pascal VOC datasets return the images, boxes, classes, masks and
//! keypoints in their files. Errors must name the file, and errors in an annotation also its line
//! or id.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::annotated::{coco, coco_dataset, expect_error, write_files};
use crate::objects::Objects;
use crate::warnings::Warnings;
use serde_json::json;
use warpfeed::field::Boxes;
use warpfeed::pack::Pack;
use warpfeed::source::{Coco, Options, OwnedSample, Source, Voc, Yolo, open};
use warpfeed::{Augment, Dtype, ErrorKind, Loader};

fn sample(source: &dyn Source, index: usize) -> OwnedSample {
    OwnedSample::try_from(&source.read(index, &mut Vec::new()).unwrap()).unwrap()
}

fn samples(source: &dyn Source) -> Vec<OwnedSample> {
    (0..source.len()).map(|index| sample(source, index)).collect()
}

fn names(sample: &OwnedSample) -> Vec<String> {
    sample.as_sample().unwrap().fields().iter().map(|(name, _)| (*name).to_owned()).collect()
}

fn text(sample: &OwnedSample, field: &str) -> String {
    String::from_utf8(sample.as_sample().unwrap().field(field).unwrap().to_vec()).unwrap()
}

fn array(sample: &OwnedSample, field: &str) -> (String, Vec<f64>) {
    let sample = sample.as_sample().unwrap();
    let bytes = sample.field(field).unwrap_or_else(|| panic!("no {field} among {:?}", sample.fields().len()));
    let end = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    let header = String::from_utf8(bytes[10..end].to_vec()).unwrap();
    assert!(bytes.starts_with(b"\x93NUMPY\x01\x00") && end.is_multiple_of(64) && header.ends_with('\n'), "{header:?}");
    let descr = header.split('\'').nth(3).unwrap();
    let shape: Vec<usize> = {
        let inner = &header[header.find('(').unwrap() + 1..header.find(')').unwrap()];
        inner.split(',').map(str::trim).filter(|side| !side.is_empty()).map(|side| side.parse().unwrap()).collect()
    };
    let data = &bytes[end..];
    let numbers: Vec<f64> = match descr {
        "<f4" => data.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b).into()).collect(),
        "<i8" => data.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b) as f64).collect(),
        "|u1" => data.iter().map(|b| f64::from(*b)).collect(),
        other => panic!("{other}"),
    };
    assert_eq!(numbers.len(), shape.iter().product::<usize>());
    (format!("{descr} {shape:?}"), numbers)
}

#[test]
fn coco_returns_the_content_of_its_json() {
    let root = coco_dataset(&coco());
    let source = open(root.path().join("annotations/instances_val.json")).unwrap();
    assert_eq!(
        (source.kind(), source.len(), source.classes()),
        ("coco", 3, &["person", "train", "brush"].map(str::to_owned)[..])
    );
    let found_samples = samples(&*source);
    let keys: Vec<_> = found_samples.iter().map(|sample| sample.as_sample().unwrap().key().to_owned()).collect();
    assert_eq!(keys, ["deep/a.c", "b", "empty"], "images are sorted by id");
    for sample in &found_samples {
        assert_eq!(
            names(sample),
            [
                "boxes.npy",
                "boxes.class.npy",
                "boxes.crowd.npy",
                "boxes.area.npy",
                "boxes.points.npy",
                "boxes.masks.json",
                "boxes.image_size.txt",
                "image_id.txt",
                "png"
            ]
        );
        assert_eq!(sample.as_sample().unwrap().label().unwrap(), None);
        assert!(sample.as_sample().unwrap().image().unwrap().1.starts_with(b"\x89PNG"));
    }
    let (crowd, pair, empty) = (&found_samples[0], &found_samples[1], &found_samples[2]);
    assert_eq!(array(pair, "boxes.npy"), ("<f4 [2, 4]".to_owned(), vec![1.5, 2.0, 4.5, 6.0, 0.0, 0.0, 1.0, 1.0]));
    assert_eq!(array(pair, "boxes.class.npy"), ("<i8 [2]".to_owned(), vec![2.0, 1.0]));
    assert_eq!(array(pair, "boxes.crowd.npy"), ("|u1 [2]".to_owned(), vec![0.0, 0.0]));
    // Only the first annotation states an area, so the second area is the area of the box.
    assert_eq!(array(pair, "boxes.area.npy"), ("<f4 [2]".to_owned(), vec![12.0, 1.0]));
    assert_eq!(array(crowd, "boxes.area.npy").1, [200.0]);
    let points = vec![1.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    assert_eq!(array(pair, "boxes.points.npy"), ("<f4 [2, 2, 3]".to_owned(), points));
    let masks: serde_json::Value = serde_json::from_str(&text(pair, "boxes.masks.json")).unwrap();
    assert_eq!(masks, json!([[[1.5, 2, 4.5, 2, 4.5, 6.25]], null]));
    let masks: serde_json::Value = serde_json::from_str(&text(crowd, "boxes.masks.json")).unwrap();
    assert_eq!(masks, json!([{"counts": [50, 150], "size": [10, 20]}]));
    assert_eq!(array(crowd, "boxes.crowd.npy").1, [1.0]);
    assert_eq!(text(pair, "image_id.txt"), "9");
    for (field, shape) in
        [("boxes.npy", "<f4 [0, 4]"), ("boxes.class.npy", "<i8 [0]"), ("boxes.points.npy", "<f4 [0, 2, 3]")]
    {
        assert_eq!(array(empty, field), (shape.to_owned(), vec![]));
    }
    assert_eq!(text(empty, "boxes.masks.json"), "[]");
    assert_eq!(source.path(1).unwrap().canonicalize().unwrap(), root.path().join("val/b.png").canonicalize().unwrap());
    assert!(source.check().is_ok());
    fs::write(root.path().join("annotations/instances_val.json"), "{}").unwrap();
    assert!(source.check().unwrap_err().cause().contains("was written to while open"));
}

#[test]
fn coco_without_areas_masks_or_points_has_no_such_fields() {
    let mut json = coco();
    for annotation in json["annotations"].as_array_mut().unwrap() {
        annotation.as_object_mut().unwrap().remove("area");
        annotation.as_object_mut().unwrap().remove("keypoints");
        annotation["segmentation"] = json!([]);
    }
    json["categories"][1].as_object_mut().unwrap().remove("keypoints");
    let root = coco_dataset(&json);
    let source = Coco::open(root.path().join("annotations/instances_val.json")).unwrap();
    let fields = ["boxes.npy", "boxes.class.npy", "boxes.crowd.npy", "boxes.image_size.txt", "image_id.txt", "png"];
    assert!(samples(&source).iter().all(|sample| names(sample) == fields));
    // Test splits have no annotations.
    json.as_object_mut().unwrap().remove("annotations");
    let root = coco_dataset(&json);
    let source = Coco::open(root.path().join("annotations/instances_val.json")).unwrap();
    assert!(samples(&source).iter().all(|sample| array(sample, "boxes.npy").1.is_empty()));
}

#[test]
fn coco_finds_its_images_or_accepts_their_folder() {
    let json = json!({"images": [{"id": "x-1", "file_name": "a.png", "width": 20, "height": 10}]}).to_string();
    for (file, original) in [
        ("annotations/instances_val.json", "val/a.png"),
        ("annotations/instances_val.json", "images/val/a.png"),
        ("annotations/val.json", "val/a.png"),
        ("annotations/x.json", "images/a.png"),
        ("x.json", "images/a.png"),
        ("instances_train2017.json", "train2017/a.png"),
        ("x.json", "a.png"),
    ] {
        let root = write_files(&[(file, &json), (original, "")]);
        let source = Coco::open(root.path().join(file)).unwrap_or_else(|e| panic!("{file} {original}: {e}"));
        assert_eq!(text(&sample(&source, 0), "image_id.txt"), "x-1");
    }
    let root = write_files(&[("train/_annotations.coco.json", &json), ("train/a.png", "")]);
    assert_eq!(open(root.path().join("train")).unwrap().kind(), "coco");
    let root = write_files(&[("a.json", &json), ("far/away/a.png", "")]);
    let e = expect_error(Coco::open(root.path().join("a.json")));
    assert!(e.cause().contains("the first image, \"a.png\", was not found in "), "{e}");
    let source = Coco::with_images(root.path().join("a.json"), root.path().join("far/away")).unwrap();
    assert!(source.read(0, &mut Vec::new()).is_ok());
}

#[test]
fn an_image_folder_without_images_fails_on_opening() {
    let image = |name: &str| json!({"id": name, "file_name": name, "width": 20, "height": 10});
    let json = json!({"images": [image("a.png"), image("b.png")]}).to_string();
    let root = write_files(&[("a.json", &json), ("empty/x.txt", ""), ("part/b.png", "")]);
    let open = |folder: &str| Coco::with_images(root.path().join("a.json"), root.path().join(folder));
    let e = expect_error(open("nope"));
    assert!(e.cause().starts_with("the image folder ") && e.cause().ends_with("nope is not a folder"), "{e}");
    let e = expect_error(open("empty"));
    assert!(e.cause().starts_with("the first 2 images, such as \"a.png\", were not found in "), "{e}");
    assert_eq!(e.path(), Some(&*root.path().join("a.json")));
    // An invalid path is reported when its sample is read, and does not hide a wrong folder.
    let json = json!({"images": [image("../a.png"), image("b.png")]}).to_string();
    fs::write(root.path().join("invalid.json"), json).unwrap();
    let open_invalid = |folder: &str| Coco::with_images(root.path().join("invalid.json"), root.path().join(folder));
    let e = expect_error(open_invalid("empty"));
    assert!(e.cause().starts_with("the image \"b.png\" was not found in "), "{e}");
    assert!(open_invalid("part").is_ok());
    let source = open("part").unwrap();
    assert_eq!(expect_error(source.read(0, &mut Vec::new())).kind(), ErrorKind::Io);
    assert!(source.read(1, &mut Vec::new()).is_ok());
}

#[test]
fn annotations_of_unlisted_images_are_ignored_with_a_warning() {
    let mut json = coco();
    let of_77 = |id: i64| json!({"id": id, "image_id": 77, "category_id": 1, "bbox": [0, 0, 1, 1], "keypoints": [0, 0, 0, 0, 0, 0, 0, 0, 0]});
    let mut unlisted = coco();
    // Only annotations of listed images determine the number of keypoints.
    for json in [&mut json, &mut unlisted] {
        json["categories"][1].as_object_mut().unwrap().remove("keypoints");
    }
    json["annotations"].as_array_mut().unwrap().splice(0..0, [of_77(7), of_77(8)]);
    let (expected, root, warnings) = (coco_dataset(&unlisted), coco_dataset(&json), Warnings::default());
    let open = |root: &tempfile::TempDir| Coco::open(root.path().join("annotations/instances_val.json")).unwrap();
    let source = tracing::subscriber::with_default(warnings.clone(), || open(&root));
    assert_eq!(samples(&source), samples(&open(&expected)));
    let shown = warnings.0.lock().unwrap().join("\n");
    let cause = "the file does not list the images of 2 of its 5 annotations, such as image 77 of annotation 7; these \
                 annotations are ignored";
    assert!(shown.contains("instances_val.json: ") && shown.ends_with(cause), "{shown}");
}

#[test]
fn a_misspelled_box_column_fails_on_opening() {
    let root = coco_dataset(&coco());
    let path = root.path().join("annotations/instances_val.json");
    let open = |field: &str, boxes: Boxes| Loader::new(&path).unlabeled(true).field(field, boxes).host();
    assert!(open("boxes", Boxes::new(4).column("area", Dtype::F32).masks().points(2)).is_ok());
    let e = expect_error(open("boxes", Boxes::new(4).column("clas", Dtype::I64)));
    let words =
        "field \"boxes\": no field \"boxes.clas\" among [\"boxes\", \"boxes.class\", \"boxes.crowd\", \"boxes.area\"";
    assert!(e.cause().starts_with(words) && e.cause().ends_with("; did you mean \"boxes.class\"?"), "{e}");
    assert_eq!((e.kind(), e.path()), (ErrorKind::Config, Some(&*path)));
    let batch = Loader::new(&path).augment(Augment::resize(8, 8)).into_iter().next().unwrap().unwrap();
    let e = batch.labels().unwrap_err();
    assert!(e.cause().starts_with("no label: these images have one class per box"), "{e}");
    assert!(expect_error(open("box", Boxes::new(4))).cause().starts_with("no field \"box\" among "));
}

/// Without boxes, every sample would deliver an empty array, whatever the column is called.
#[test]
fn a_misspelled_box_column_of_a_coco_file_without_annotations_fails_on_opening() {
    let mut json = coco();
    json.as_object_mut().unwrap().remove("annotations");
    let root = coco_dataset(&json);
    let path = root.path().join("annotations/instances_val.json");
    let open = |boxes: Boxes| {
        Loader::new(&path).unlabeled(true).augment(Augment::resize(8, 8)).field("boxes", boxes.masks().points(2)).host()
    };
    let e = expect_error(open(Boxes::new(4).column("clas", Dtype::I64)));
    assert_eq!(
        e.cause(),
        "field \"boxes\": no field \"boxes.clas\" among [\"boxes\", \"boxes.class\", \"boxes.crowd\", \"boxes.area\", \
         \"boxes.points\", \"boxes.masks\", \"boxes.image_size\", \"image_id\"]; did you mean \"boxes.class\"?"
    );
    let mut columns = Boxes::new(4);
    for (column, dtype) in [("class", Dtype::I64), ("crowd", Dtype::U8), ("area", Dtype::F32)] {
        columns = columns.column(column, dtype);
    }
    assert!(open(columns).unwrap().epoch(0).all(|batch| batch.is_ok()));
}

#[test]
fn a_misspelled_box_column_of_yolo_or_voc_fails_on_opening() {
    let yolo = write_files(&[("images/a.png", ""), ("labels/a.txt", "0 0.5 0.5 1 1"), ("data.yaml", "names: [cat]")]);
    let voc = voc();
    let of_yolo = (yolo.path().to_owned(), "units", "[\"boxes\", \"boxes.class\", \"boxes.units\", \"boxes.masks\"]");
    let of_voc = (
        voc.path().join("VOC"),
        "difficult",
        "[\"boxes\", \"boxes.class\", \"boxes.difficult\", \"boxes.image_size\", \"mask.png\", \"mask.first_class\"]",
    );
    for (path, column, names) in [of_yolo, of_voc] {
        let open = |boxes: Boxes| Loader::new(&path).unlabeled(true).field("boxes", boxes).host();
        let opened = open(Boxes::new(4).column("class", Dtype::I64));
        assert!(opened.is_ok(), "{:?}", opened.err());
        let misspelled = format!("{column}x");
        let e = expect_error(open(Boxes::new(4).column(&misspelled, Dtype::I64)));
        let cause =
            format!("field \"boxes\": no field \"boxes.{misspelled}\" among {names}; did you mean \"boxes.{column}\"?");
        assert_eq!((e.kind(), e.cause()), (ErrorKind::Config, &*cause));
    }
}

#[test]
fn the_root_of_a_coco_dataset_does_not_open_as_class_folders() {
    let root = coco_dataset(&coco());
    let e = expect_error(open(root.path()));
    assert!(e.cause().contains("open its annotations, such as \"annotations/instances_val.json\""), "{e}");
    assert!(Options::new().format("folder").open(root.path()).is_ok());
}

#[test]
fn invalid_coco_json_fails_with_its_position() {
    let change = |pointer: &str, value: serde_json::Value| {
        let mut json = coco();
        *json.pointer_mut(pointer).unwrap() = value;
        coco_dataset(&json)
    };
    let path = "annotations/instances_val.json";
    for (pointer, value, words) in [
        ("/images/1/id", json!(9), "image id 9 is used by both "),
        ("/categories/1/id", json!(90), "category id 90 is used by both "),
        ("/annotations/0/bbox", json!([1, 2, 3]), "invalid length 3, expected an array of length 4 at line "),
        ("/annotations/0/bbox", json!("x"), "at line "),
        ("/annotations/0/iscrowd", json!(2), "expected 0, 1, true or false at line "),
        ("/annotations/0/image_id", json!(1.5), "expected an id: an integer or a string at line "),
        (
            "/annotations/0/keypoints",
            json!([1, 2, 2]),
            "annotation 100 has 3 keypoint values: expected 6 (x, y and visibility of 2 points)",
        ),
        ("/images", json!([]), "lists no images"),
        (
            "/images",
            json!([{"id": 5, "file_name": "b.png", "width": 20, "height": 10}]),
            "the file does not list the images of 3 of its 3 annotations, such as image 9 of annotation 100",
        ),
    ] {
        let root = change(pointer, value);
        let e = expect_error(Coco::open(root.path().join(path)));
        assert!(e.cause().contains(words), "{pointer}: {e}");
        assert_eq!((e.kind(), e.path()), (ErrorKind::Source, Some(&*root.path().join(path))));
    }
    for text in ["[]", "{}", "", "{\"images\": [", "\u{feff}{}"] {
        let root = write_files(&[("x.json", text)]);
        let e = expect_error(open(root.path().join("x.json")));
        assert!(
            e.cause().contains("JSON") || e.cause().contains("empty") || e.cause().contains("not a COCO file"),
            "{text}: {e}"
        );
    }
    for (pointer, value, words) in [
        (
            "/annotations/0/category_id",
            json!(5),
            "annotation 100: unknown category 5: expected the id of one of the 3 categories",
        ),
        (
            "/annotations/0/bbox",
            json!([10, 2, 30, 4]),
            "annotation 100: x ranges from 10 to 40, but the image is 20 wide",
        ),
        (
            "/annotations/0/bbox",
            json!([10, 2, -3, 4]),
            "annotation 100: x ranges from 10 to 7, but the image is 20 wide",
        ),
        (
            "/annotations/0/bbox",
            json!([10, -5, 3, 4]),
            "annotation 100: y ranges from -5 to -1, but the image is 10 high",
        ),
        ("/images/0/file_name", json!("../b.png"), "\"../b.png\" points outside the image folder"),
        ("/images/0/file_name", json!("/etc/passwd"), "points outside the image folder"),
    ] {
        let root = change(pointer, value);
        let source = Coco::open(root.path().join(path)).unwrap();
        let e = expect_error(source.read(1, &mut Vec::new()));
        assert!(e.cause().contains(words) && e.path() == Some(&*root.path().join(path)), "{pointer}: {e}");
        assert!([0, 2].iter().all(|&index| source.read(index, &mut Vec::new()).is_ok()));
    }
    let root = change("/images/0/file_name", json!("absent.png"));
    let e = expect_error(Coco::open(root.path().join(path)).unwrap().read(1, &mut Vec::new()));
    assert!(e.kind() == ErrorKind::Io && e.path().unwrap().ends_with("absent.png"), "{e}");
}

#[test]
fn yolo_returns_the_content_of_its_label_files() {
    let root = write_files(&[
        ("data.yaml", "path: .\ntrain: images/train\nval: [val.txt]\nnames:\n  0: cat\n  1: dog\n"),
        ("val.txt", "./images/val/z.png\nimages/val/y.png\n"),
        ("images/train/b.png", ""),
        ("images/train/a.png", ""),
        ("images/train/sub/none.png", ""),
        ("images/train/empty.png", ""),
        ("labels/train/a.txt", "1 0.5 0.5 0.5 0.4\n0 0.25 0.25 0.1 0.1\n"),
        ("labels/train/b.txt", "0 0.1 0.1 0.5 0.1 0.5 0.5\n1 0.5 0.5 1 1\n"),
        ("labels/train/empty.txt", ""),
        ("images/val/y.png", ""),
        ("images/val/z.png", ""),
        ("labels/val/y.txt", "1 0.5 0.5 1 1"),
        ("labels/val/z.txt", "0 0.5 0.5 1 1"),
    ]);
    let train = open(root.path().join("data.yaml")).unwrap();
    assert_eq!((train.kind(), train.len(), train.classes()), ("yolo", 4, &["cat", "dog"].map(str::to_owned)[..]));
    let found_samples = samples(&*train);
    let keys: Vec<_> = found_samples.iter().map(|sample| sample.as_sample().unwrap().key().to_owned()).collect();
    assert_eq!(keys, ["train/a", "train/b", "train/empty", "train/sub/none"]);
    assert_eq!(names(&found_samples[0]), ["boxes.units.txt", "boxes.npy", "boxes.class.npy", "png"]);
    assert_eq!(text(&found_samples[0], "boxes.units.txt"), "relative");
    let edges = [0.25, 0.3, 0.75, 0.7, 0.2, 0.2, 0.3, 0.3].map(|edge: f64| f64::from(edge as f32));
    assert_eq!(array(&found_samples[0], "boxes.npy"), ("<f4 [2, 4]".to_owned(), edges.to_vec()));
    assert_eq!(array(&found_samples[0], "boxes.class.npy"), ("<i8 [2]".to_owned(), vec![1.0, 0.0]));
    assert_eq!(text(&found_samples[1], "boxes.masks.json"), "[[[0.1,0.1,0.5,0.1,0.5,0.5]],null]");
    let around = [0.1, 0.1, 0.5, 0.5].map(|edge: f64| f64::from(edge as f32));
    assert_eq!(array(&found_samples[1], "boxes.npy").1[..4], around);
    for none in &found_samples[2..] {
        assert_eq!(array(none, "boxes.npy"), ("<f4 [0, 4]".to_owned(), vec![]));
    }
    // A list of images defines the split `val`, and a folder defines `train`.
    let val = Yolo::split(root.path().join("data.yaml"), "val").unwrap();
    let keys: Vec<_> = samples(&val).iter().map(|sample| sample.as_sample().unwrap().key().to_owned()).collect();
    assert_eq!(keys, ["val/z", "val/y"], "images are in the order of the list");
    assert_eq!(Yolo::open(root.path()).unwrap().len(), 6, "all images under the `images` folder");
    let folder = open(root.path().join("images/val")).unwrap();
    assert_eq!((folder.kind(), folder.len(), folder.classes()), ("yolo", 2, train.classes()));
    assert_eq!(samples(&*folder)[1], samples(&val)[0]);
    let e = expect_error(Yolo::split(root.path().join("data.yaml"), "test"));
    assert!(e.cause().contains("no split \"test\": expected one of [\"train\", \"val\"]"), "{e}");
    let e = expect_error(Yolo::split(root.path(), "val"));
    assert_eq!(e.cause(), "split \"val\": splits are defined in data.yaml, but this path is a folder");
}

#[test]
fn yolo_finds_the_folders_of_common_exporters() {
    let root = write_files(&[
        ("data.yaml", "train: ../train/images\nkpt_shape: [2, 3]\nnames: ['a']\n"),
        ("train/images/x.png", ""),
        ("train/labels/x.txt", "0 0.5 0.5 1 1 0.25 0.5 2 0 0 0"),
    ]);
    let source = Yolo::open(root.path().join("data.yaml")).unwrap();
    let x = sample(&source, 0);
    assert_eq!(array(&x, "boxes.points.npy"), ("<f4 [1, 2, 3]".to_owned(), vec![0.25, 0.5, 2.0, 0.0, 0.0, 0.0]));
    let folder = open(root.path().join("train")).unwrap();
    assert_eq!((folder.kind(), folder.classes()), ("yolo", source.classes()), "data.yaml is in the parent folder");
    assert_eq!(sample(&*folder, 0), x);
}

#[test]
fn invalid_yolo_files_fail_with_file_and_line() {
    let yaml = "train: images\nnames: [a, b]\n";
    let root = write_files(&[
        ("data.yaml", yaml),
        ("images/x.png", ""),
        ("images/y.png", ""),
        ("labels/x.txt", "0 0.5 0.5 1 1\n2 0.5 0.5 1 1"),
        ("labels/y.txt", "0 0.5 0.5 1 1"),
    ]);
    let source = Yolo::open(root.path().join("data.yaml")).unwrap();
    let e = expect_error(source.read(0, &mut Vec::new()));
    assert_eq!(
        (e.cause(), e.path()),
        ("line 2: class 2 is out of range: expected a class below 2", Some(&*root.path().join("labels/x.txt")))
    );
    assert!(source.read(1, &mut Vec::new()).is_ok());
    fs::remove_file(root.path().join("labels/y.txt")).unwrap();
    let e = expect_error(source.read(1, &mut Vec::new()));
    assert!(
        e.kind() == ErrorKind::Io && e.path().unwrap().ends_with("labels/y.txt"),
        "the file existed when the dataset was opened: {e}"
    );
    for (files, words) in [
        (vec![("data.yaml", yaml)], "train: \"images\" does not exist; looked for "),
        (
            vec![("data.yaml", yaml), ("images/x.png", "")],
            "no label files were found for 1 image: the first file was expected at ",
        ),
        (vec![("data.yaml", yaml), ("images/x.txt", "x")], "no images"),
        (vec![("data.yaml", "names: [a")], "not YAML: "),
        (vec![("data.yaml", "names: [a]")], "no split \"train\": expected one of []"),
    ] {
        let root = write_files(&files);
        let e = expect_error(open(root.path().join("data.yaml")));
        assert!(e.cause().contains(words) && e.path() == Some(&*root.path().join("data.yaml")), "{e}");
    }
}

fn voc_xml(objects: &str) -> String {
    format!("<annotation><size><width>20</width><height>10</height></size>\n{objects}</annotation>")
}

fn object(name: &str, difficult: u8, [x1, y1, x2, y2]: [u32; 4]) -> String {
    format!(
        "<object><name>{name}</name><difficult>{difficult}</difficult><bndbox><xmin>{x1}</xmin><ymin>{y1}</ymin><xmax>{x2}</xmax><ymax>{y2}</ymax></bndbox></object>\n"
    )
}

fn voc() -> tempfile::TempDir {
    let both = voc_xml(&(object("dog", 0, [1, 1, 20, 10]) + &object("cat", 1, [3, 4, 3, 4])));
    write_files(&[
        ("VOC/JPEGImages/a.png", ""),
        ("VOC/JPEGImages/b.png", ""),
        ("VOC/JPEGImages/c.png", ""),
        ("VOC/Annotations/a.xml", &both),
        ("VOC/Annotations/b.xml", &voc_xml("")),
        ("VOC/Annotations/c.xml", &voc_xml(&object("cat", 0, [15, 1, 40, 2]))),
        ("VOC/SegmentationClass/a.png", ""),
        ("VOC/ImageSets/Main/train.txt", "b\na\n"),
        ("VOC/ImageSets/Main/cat_train.txt", "b -1\na  1\n"),
        ("VOC/ImageSets/Segmentation/train.txt", "a\nb\n"),
    ])
}

#[test]
fn voc_returns_the_content_of_its_files() {
    let root = voc();
    let path_of = |name: &str| root.path().join("VOC").join(name);
    let train = open(path_of("ImageSets/Main/train.txt")).unwrap();
    assert_eq!((train.kind(), train.len(), train.classes().len()), ("voc", 2, 20));
    let (b, a) = (sample(&*train, 0), sample(&*train, 1));
    assert_eq!(names(&b), ["boxes.npy", "boxes.class.npy", "boxes.difficult.npy", "boxes.image_size.txt", "png"]);
    let fields = ["boxes.npy", "boxes.class.npy", "boxes.difficult.npy", "boxes.image_size.txt"];
    assert_eq!(names(&a), [&fields[..], &["mask.first_class.txt", "mask.png", "png"]].concat());
    assert_eq!(text(&a, "mask.first_class.txt"), "1");
    assert_eq!(array(&b, "boxes.npy"), ("<f4 [0, 4]".to_owned(), vec![]));
    // VOC counts pixels from 1, so 1 is subtracted from the left and the top edge.
    assert_eq!(array(&a, "boxes.npy"), ("<f4 [2, 4]".to_owned(), vec![0.0, 0.0, 20.0, 10.0, 2.0, 3.0, 3.0, 4.0]));
    assert_eq!(
        array(&a, "boxes.class.npy"),
        ("<i8 [2]".to_owned(), vec![11.0, 7.0]),
        "indices into the 20 standard classes"
    );
    assert_eq!(array(&a, "boxes.difficult.npy"), ("|u1 [2]".to_owned(), vec![0.0, 1.0]));
    assert_eq!((train.classes()[11].as_str(), train.classes()[7].as_str()), ("dog", "cat"));
    assert_eq!(samples(&*open(path_of("ImageSets/Main/cat_train.txt")).unwrap()), [b, a.clone()]);
    let dataset = Voc::open(path_of("")).unwrap();
    assert_eq!((dataset.len(), sample(&dataset, 0)), (3, a.clone()));
    let zero_based = sample(&Voc::zero_based(path_of("ImageSets/Main/train.txt")).unwrap(), 1);
    assert_eq!(array(&zero_based, "boxes.npy").1, [1.0, 1.0, 20.0, 10.0, 3.0, 4.0, 3.0, 4.0]);
    // If a name is not a standard class, the names in the files become the classes.
    fs::write(path_of("Annotations/b.xml"), voc_xml(&object("boat", 0, [1, 1, 2, 2]))).unwrap();
    fs::write(path_of("Annotations/unlisted.xml"), voc_xml(&object("zebra", 0, [1, 1, 2, 2]))).unwrap();
    assert_eq!(Voc::open(path_of("ImageSets/Main/train.txt")).unwrap().classes(), ["boat", "cat", "dog", "zebra"]);
    // The annotations are ambiguous if two images differ only in their extension.
    fs::copy(path_of("JPEGImages/a.png"), path_of("JPEGImages/a.bmp")).unwrap();
    let e = expect_error(Voc::open(path_of("")));
    assert!(e.cause().contains("\"a.bmp\" and \"a.png\" differ only in their extension"), "{e}");
    fs::remove_file(path_of("JPEGImages/a.bmp")).unwrap();
    fs::remove_dir_all(path_of("Annotations")).unwrap();
    let masks = Voc::open(path_of("")).unwrap();
    assert_eq!(names(&sample(&masks, 0)), ["mask.first_class.txt", "mask.png", "png"]);
}

#[test]
fn invalid_voc_files_fail_with_file_and_line() {
    let root = voc();
    let path_of = |name: &str| root.path().join("VOC").join(name);
    let dataset = open(path_of("")).unwrap();
    let e = expect_error(dataset.read(2, &mut Vec::new()));
    assert_eq!(
        (e.cause(), e.path()),
        ("line 2: the cat: x ranges from 14 to 40, but the image is 20 wide", Some(&*path_of("Annotations/c.xml")))
    );
    assert!([0, 1].iter().all(|&index| dataset.read(index, &mut Vec::new()).is_ok()));
    let masks = open(path_of("ImageSets/Segmentation/train.txt")).unwrap();
    assert!(masks.read(0, &mut Vec::new()).is_ok());
    let e = expect_error(masks.read(1, &mut Vec::new()));
    assert_eq!((e.cause(), e.path()), ("the mask is missing", Some(&*path_of("SegmentationClass/b.png"))));
    fs::write(path_of("ImageSets/Main/train.txt"), "a\nx\nb\n").unwrap();
    fs::remove_file(path_of("Annotations/b.xml")).unwrap();
    let train = open(path_of("ImageSets/Main/train.txt")).unwrap();
    let e = expect_error(train.read(1, &mut Vec::new()));
    assert_eq!(
        (e.cause(), e.path()),
        ("there is no image \"x\" in JPEGImages", Some(&*path_of("ImageSets/Main/train.txt")))
    );
    let e = expect_error(train.read(2, &mut Vec::new()));
    assert_eq!((e.cause(), e.path()), ("the annotation file is missing", Some(&*path_of("Annotations/b.xml"))));
    let e = expect_error(Voc::open(root.path()));
    assert!(e.cause().starts_with("not a Pascal VOC dataset: "), "{e}");
}

fn assert_packs_unchanged(source: &Arc<dyn Source>, folder: &Path) {
    let expected = samples(&**source);
    for target in ["set.lmdb", "set.tar"] {
        let path = folder.join(target);
        let report = Pack::new(&**source).to(&path).unwrap();
        assert_eq!(report.samples, expected.len() as u64);
        let packed = open(&path).unwrap();
        assert_eq!(packed.classes(), source.classes(), "{target}");
        // The order of the fields depends on the format.
        let sorted = |samples: &[OwnedSample]| -> Vec<_> {
            samples
                .iter()
                .map(|sample| {
                    let sample = sample.as_sample().unwrap();
                    let mut fields: Vec<_> = sample
                        .fields()
                        .iter()
                        .map(|(name, value)| (name.to_string(), value.encoded(name).into_owned()))
                        .collect();
                    fields.sort();
                    (sample.key().to_owned(), fields)
                })
                .collect()
        };
        assert!(sorted(&samples(&*packed)) == sorted(&expected), "{target}");
    }
}

#[test]
fn packing_keeps_every_field() {
    let root = coco_dataset(&coco());
    assert_packs_unchanged(&open(root.path().join("annotations/instances_val.json")).unwrap(), root.path());
    let root = write_files(&[
        ("data.yaml", "train: images\nnames: [a]\nkpt_shape: [1, 2]\n"),
        ("images/x.png", ""),
        ("images/y.png", ""),
        ("labels/x.txt", "0 0.5 0.5 1 1 0.5 0.5"),
    ]);
    assert_packs_unchanged(&open(root.path().join("data.yaml")).unwrap(), root.path());
    let root = voc();
    assert_packs_unchanged(&open(root.path().join("VOC/ImageSets/Main/train.txt")).unwrap(), root.path());
}

/// FNV-1a
fn hash(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap();
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[test]
fn packed_annotations_equal_earlier_versions() {
    let yolo = write_files(&[
        ("data.yaml", "train: images\nnames: [a, b]\n"),
        ("images/x.png", ""),
        ("images/y.png", ""),
        ("images/z.png", ""),
        ("labels/x.txt", "0 0.1 0.25 0.3 0.2 0.333333333 0.6\n1 0.5 0.5 1 1\n0 0 0 1 0 1 1 0.7 1"),
        ("labels/y.txt", "1 0.5 0.5 0.25 0.125"),
    ]);
    // The recorded hash of the COCO dataset is older than the field for areas.
    let mut json = coco();
    json["annotations"][0].as_object_mut().unwrap().remove("area");
    let (coco, voc) = (coco_dataset(&json), voc());
    for (path, expected) in [
        (yolo.path().join("data.yaml"), 14_715_297_234_080_773_763),
        (coco.path().join("annotations/instances_val.json"), 12_446_537_908_120_063_695),
        (voc.path().join("VOC/ImageSets/Main/train.txt"), 12_086_613_345_135_195_698),
    ] {
        let target = coco.path().join("set.tar");
        Pack::new(&*open(&path).unwrap()).force(true).to(&target).unwrap();
        assert_eq!(hash(&target), expected, "{}", path.display());
    }
}

/// Class folders would give the meaningless labels 0, 0, 1, ….
#[test]
fn annotated_dataset_roots_do_not_open_as_class_folders() {
    let yaml = "path: .\ntrain: train/images\nval: valid/images\nnames: [cat, dog]\n";
    let json = "{\"info\": {}, \"licenses\": [], \"images\": [";
    for (files, words) in [
        (
            &[("data.yaml", yaml), ("train/images/a.jpg", "x"), ("train/labels/a.txt", "0 0 0 1 1")][..],
            "open \"data.yaml\"",
        ),
        (&[("train/images/a.jpg", "x"), ("train/labels/a.txt", "0 0 0 1 1"), ("runs/p.png", "x")], "YOLO dataset"),
        (&[("VOC/VOC2012/JPEGImages/a.jpg", "x"), ("VOC/VOC2012/Annotations/a.xml", "<a/>")], "open \"VOC/VOC2012\""),
        (&[("images/a.jpg", "x"), ("Annotations/a.xml", "<a/>")], "\"Annotations/a.xml\""),
        (&[("data/images/a.jpg", "x"), ("data/annotations/a.xml", "<a/>")], "Pascal VOC"),
        (&[("images/a.jpg", "x"), ("train.json", json)], "open its annotations, such as \"train.json\""),
        (&[("val/a.jpg", "x"), ("annotations/val.json", "{}")], "such as \"annotations/val.json\""),
        (&[("train/a.jpg", "x"), ("train/_annotations.coco.json", "{}")], "open \"train\""),
    ] {
        let root = tempfile::tempdir().unwrap();
        let store = Objects::default();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            store.put(&format!("mem://set/{name}"), text.as_bytes().to_vec());
        }
        let options = || Options::new().store("mem", Arc::new(store.clone()));
        let place = root.path().to_str().unwrap();
        for place in [place, "mem://set"] {
            let e = options().open(place).err().unwrap_or_else(|| panic!("{place} with {files:?} opens"));
            assert!(e.cause().contains(words) && e.path() == Some(Path::new(place)), "{files:?}: {e}");
            assert!(!options().format("folder").open(place).unwrap().classes().is_empty(), "{files:?}");
        }
    }
    // These files may accompany class folders.
    let (root, store) = (tempfile::tempdir().unwrap(), Objects::default());
    let names = ["cat/images/a.jpg", "dog/b.jpg", "classes.json", "notes.yaml", "annotations.txt"];
    for name in names {
        fs::create_dir_all(root.path().join(name).parent().unwrap()).unwrap();
        fs::write(root.path().join(name), "{\"0\": [\"n01440764\", \"cat\"]}").unwrap();
        store.put(&format!("mem://set/{name}"), b"names: 7".to_vec());
    }
    assert_eq!(open(root.path()).unwrap().classes(), ["cat", "dog"]);
    assert_eq!(Options::new().store("mem", Arc::new(store)).open("mem://set").unwrap().classes(), ["cat", "dog"]);
}
