//! Writes the files of small annotated datasets. A COCO dataset is included.
#![allow(dead_code, unreachable_pub)] // not every test uses all of it

use std::fs;

use serde_json::json;
use warpfeed::{Error, Result};

/// Writes (name, content) pairs to a temporary folder. If the content of a `.png` file is empty,
/// writes a 20x10 image.
pub fn write_files(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match (text.is_empty(), path.extension().is_some_and(|end| end == "png")) {
            (true, true) => image::RgbImage::new(20, 10).save(path).unwrap(),
            _ => fs::write(path, text).unwrap(),
        }
    }
    root
}

pub fn expect_error<T>(result: Result<T>) -> Error {
    result.err().expect("the result is an error")
}

pub fn coco() -> serde_json::Value {
    json!({
        "info": {"year": 2017},
        "images": [
            {"id": 9, "file_name": "b.png", "width": 20, "height": 10, "coco_url": "x"},
            {"id": 2, "file_name": "deep/a.c.png", "width": 20, "height": 10},
            {"id": 30, "file_name": "empty.png", "width": 20, "height": 10},
        ],
        "annotations": [
            {"id": 100, "image_id": 9, "category_id": 90, "bbox": [1.5, 2, 3, 4], "iscrowd": 0, "area": 12.0,
             "segmentation": [[1.5, 2, 4.5, 2, 4.5, 6.25]], "keypoints": [1, 2, 2, 0, 0, 0], "num_keypoints": 1},
            {"id": 101, "image_id": 2, "category_id": 1, "bbox": [0, 0, 20, 10], "iscrowd": 1,
             "segmentation": {"counts": [50, 150], "size": [10, 20]}},
            {"id": 102, "image_id": 9, "category_id": 7, "bbox": [0, 0, 1, 1], "segmentation": []},
        ],
        "categories": [
            {"id": 90, "name": "brush", "supercategory": "x"},
            {"id": 1, "name": "person", "keypoints": ["nose", "ear"]},
            {"id": 7, "name": "train"},
        ],
    })
}

pub fn coco_dataset(json: &serde_json::Value) -> tempfile::TempDir {
    let text = serde_json::to_string_pretty(json).unwrap();
    write_files(&[
        ("annotations/instances_val.json", &text),
        ("val/b.png", ""),
        ("val/deep/a.c.png", ""),
        ("val/empty.png", ""),
    ])
}
