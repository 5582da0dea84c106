//! Tests that `inspect` counts boxes, masks and points, `verify` checks them, `preview` draws them,
//! and `pack` preserves them.

use std::fs;

use tempfile::TempDir;

use crate::support::{json, ok, text, warpfeed};

#[test]
fn annotated_sets_are_counted_checked_and_drawn() {
    let dir = TempDir::new().unwrap();
    for layout in ["coco", "voc"] {
        ok(
            dir.path(),
            &["synth", "--out", layout, "--layout", layout, "--images", "20", "--classes", "3", "--side", "64"],
        );
    }
    let coco = "coco/annotations/instances_train.json";
    let voc = "voc/ImageSets/Segmentation/train.txt";
    ok(dir.path(), &["pack", coco, "coco.lmdb"]);
    ok(dir.path(), &["pack", voc, "voc.tar"]);
    let count = |path: &str| json(&ok(dir.path(), &["inspect", path, "--json"]))["annotated"].clone();
    for (path, packed) in [(coco, "coco.lmdb"), (voc, "voc.tar")] {
        let counted = count(path);
        assert_eq!(count(packed), counted, "{path}");
        assert!(counted["boxes"].as_u64().unwrap() > 20 && counted["samples"] == 16, "{counted}");
        let shown = ok(dir.path(), &["inspect", packed]);
        assert!(shown.contains(&format!("boxes        {} in 16 samples, up to ", counted["boxes"])), "{shown}");
        assert!(shown.contains("\nlabel    boxes  class\n"), "{shown}");
        assert_eq!(warpfeed(dir.path(), &["verify", packed]).status.code(), Some(0));
        let sheet = |path: &str, out: &str| {
            ok(dir.path(), &["preview", path, "--out", out, "--images", "9", "--size", "96"]);
            image::open(dir.path().join(out)).unwrap().into_rgb8()
        };
        assert_eq!(sheet(path, "a.png"), sheet(packed, "b.png"));
    }
    // The same images without annotations must give a different sheet.
    let sheet = |path: &str| {
        ok(dir.path(), &["preview", path, "--out", "x.png", "--images", "16", "--size", "64", "--augment", "eval"]);
        image::open(dir.path().join("x.png")).unwrap().into_rgb8()
    };
    assert_ne!(sheet(coco), sheet("coco/train"));
    assert!(count(coco)["labeled_points"].as_u64().unwrap() > 60 && count(coco)["mask_values"] == json("{}"));
    assert!(count(voc)["mask_values"]["0"].as_u64().unwrap() > 10_000 && count(voc)["masks"] == 16);

    let mask = dir.path().join("voc/SegmentationClass/000001.png");
    image::GrayImage::new(5, 5).save(&mask).unwrap();
    let verified = warpfeed(dir.path(), &["verify", voc]);
    let out = text(&verified.stdout);
    assert!(
        verified.status.code() == Some(1)
            && out.contains("field \"mask.png\": annotations are for 5x5 pixels, but the image has "),
        "{out}"
    );
    let path = dir.path().join(coco);
    let original = fs::read_to_string(&path).unwrap();
    let mut resized = json(&original);
    (resized["images"][0]["width"], resized["images"][0]["height"]) = (640.into(), 480.into());
    fs::write(&path, resized.to_string()).unwrap();
    let verified = warpfeed(dir.path(), &["verify", coco]);
    let out = text(&verified.stdout);
    assert_eq!((verified.status.code(), out.lines().count()), (Some(1), 1), "{out}");
    assert!(out.contains("annotations are for 640x480 pixels, but the image has "), "{out}");
    fs::create_dir(dir.path().join("turned")).unwrap();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/orientation/3.jpg");
    fs::copy(fixture, dir.path().join("turned/a.jpg")).unwrap();
    let turned = r#"{"images": [{"id": 1, "file_name": "a.jpg", "width": 48, "height": 32}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5]}],
        "categories": [{"id": 1, "name": "cat"}]}"#;
    fs::write(dir.path().join("turned/x.json"), turned).unwrap();
    let verified = warpfeed(dir.path(), &["verify", "turned/x.json"]);
    let out = text(&verified.stdout);
    assert!(verified.status.code() == Some(1) && out.contains("--annotations-follow stored or upright"), "{out}");
    for image in ["stored", "upright"] {
        let good = warpfeed(dir.path(), &["verify", "turned/x.json", "--annotations-follow", image]);
        assert_eq!(good.status.code(), Some(0), "{}", text(&good.stdout));
        let counted = json(&ok(dir.path(), &["inspect", "turned/x.json", "--json", "--annotations-follow", image]));
        assert_eq!(counted["annotated"]["boxes"], 1);
        ok(dir.path(), &["preview", "turned/x.json", "--out", "t.png", "--annotations-follow", image]);
    }
    let mut changed = json(&original);
    changed["annotations"][0]["category_id"] = 9.into();
    changed["annotations"][7]["bbox"] = serde_json::json!([0, 0, 999, 5]);
    fs::write(&path, changed.to_string()).unwrap();
    let verified = warpfeed(dir.path(), &["verify", coco]);
    let out = text(&verified.stdout);
    assert_eq!((verified.status.code(), out.lines().count()), (Some(1), 2), "{out}");
    assert!(out.contains("annotation 1: unknown category 9: expected the id of one of the 3 categories"), "{out}");
    assert!(out.contains("annotation 8: x ranges from 0 to 999, but the image is "), "{out}");
}
