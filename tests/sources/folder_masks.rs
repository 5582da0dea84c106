//! Tests that masks in a separate folder are matched to images by name, at any depth. The error for
//! a missing mask must name its file, a warning must count masks without an image, and packing must
//! keep the masks.

use std::fs;
use std::path::Path;

use crate::warnings::Warnings;
use warpfeed::field::Mask;
use warpfeed::pack::Pack;
use warpfeed::source::{Options, Source, open};
use warpfeed::{Augment, Dtype, Loader, OnError, Result};

fn image(path: &Path, value: u8) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    image::GrayImage::from_pixel(6, 4, image::Luma([value])).save(path).unwrap();
}

fn delivered(loader: Loader) -> Vec<(String, i64, u8)> {
    let loader = loader.augment(Augment::pass_through(6, 4)).unlabeled(true).batch_size(2);
    let mut delivered_rows = Vec::new();
    for batch in loader.field("mask", Mask::new(Dtype::U8)) {
        let batch = batch.unwrap();
        let masks = batch.field("mask").unwrap().bytes();
        assert!(masks.chunks(24).all(|mask| mask.iter().all(|value| *value == mask[0])));
        let rows = batch.sample_keys().zip(batch.labels().unwrap()).zip(masks.chunks(24));
        delivered_rows.extend(rows.map(|((key, &label), mask)| (key.to_owned(), label, mask[0])));
    }
    delivered_rows
}

#[test]
fn masks_match_images_by_name_in_flat_and_class_folders() {
    let root = tempfile::tempdir().unwrap();
    let path_of = |name: &str| root.path().join(name);
    for (name, value) in [("a", 1), ("b.c", 2)] {
        image(&path_of(&format!("flat/train/{name}.png")), 0);
        image(&path_of(&format!("flat/trainannot/{name}.png")), value);
        fs::create_dir_all(path_of("flat/others")).unwrap();
        fs::write(path_of(&format!("flat/others/{name}_mask.gif")), "GIF89a").unwrap();
    }
    for (name, value) in [("cat/1", 3), ("dog/deep/2", 4)] {
        image(&path_of(&format!("deep/images/{name}.png")), 0);
        image(&path_of(&format!("deep/labels/{name}.BMP")), value);
    }
    let row = |key: &str, label, value| (key.to_owned(), label, value);
    let flat = || Loader::new(path_of("flat/train"));
    assert_eq!(delivered(flat().masks("trainannot")), [row("a", -1, 1), row("b.c", -1, 2)]);
    assert_eq!(delivered(flat().masks(path_of("flat/trainannot"))), [row("a", -1, 1), row("b.c", -1, 2)]);
    // Without the option, these folders would open as a YOLO dataset.
    let deep = Loader::new(path_of("deep/images")).masks("labels");
    assert_eq!(delivered(deep), [row("cat/1", 0, 3), row("dog/deep/2", 1, 4)]);
    let options = Options::new().masks("labels");
    let source = options.open(path_of("deep/images")).unwrap();
    assert_eq!(source.classes(), ["cat", "dog"]);
    let plain = Options::new().format("folder").open(path_of("deep/images")).unwrap();
    assert_ne!(source.fingerprint(), plain.fingerprint(), "the fingerprint includes the masks");
    for target in ["set.tar", "set.lmdb"] {
        Pack::new(&*source).to(path_of(target)).unwrap();
        assert_eq!(delivered(Loader::new(path_of(target))), [row("cat/1", 0, 3), row("dog/deep/2", 1, 4)], "{target}");
    }
    let starred = Options::new().masks("others/*_mask").open(path_of("flat/train")).unwrap();
    let mut scratch = Vec::new();
    assert!((0..2).all(|index| starred.read(index, &mut scratch).unwrap().value("mask.gif").is_some()));
}

#[test]
fn a_missing_mask_is_named_and_surplus_masks_are_counted() {
    let root = tempfile::tempdir().unwrap();
    let path_of = |name: &str| root.path().join(name);
    for name in ["a", "b", "c"] {
        image(&path_of(&format!("train/{name}.png")), 0);
    }
    for name in ["a", "c", "x", "y"] {
        image(&path_of(&format!("masks/{name}.png")), 7);
    }
    let loader =
        || Loader::new(path_of("train")).masks("masks").drop_field("label").augment(Augment::pass_through(6, 4));
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        Options::new().masks("masks").open(path_of("train")).unwrap()
    });
    let logged = warnings.0.lock().unwrap();
    assert!(logged.iter().any(|text| text.contains("ignored 2 masks without an image, such as x.png")), "{logged:?}");
    let e = loader().field("mask", Mask::new(Dtype::U8)).into_iter().find_map(Result::err).unwrap();
    assert_eq!((e.cause(), e.path(), e.sample()), ("the mask is missing", Some(&*path_of("masks/b.png")), Some(1)));
    let skips = loader().field("mask", Mask::new(Dtype::U8)).on_error(OnError::Skip { max_skipped: 1 });
    let batch = skips.into_iter().next().unwrap().unwrap();
    assert_eq!(batch.valid().collect::<Vec<_>>(), [true, false, true]);
    let refused = |options: Options, path: &str| options.open(path_of(path)).err().unwrap().to_string();
    let e = refused(Options::new().masks("mask"), "train");
    assert!(e.contains("masks: no such folder: expected an absolute path, or one relative to the parent"), "{e}");
    fs::create_dir(path_of("none")).unwrap();
    let e = refused(Options::new().masks("none"), "train");
    assert!(e.contains("masks: no image has a mask; looked for a.png among 0 files"), "{e}");
    fs::write(path_of("masks/a.npy"), "").unwrap();
    let e = refused(Options::new().masks("masks"), "train");
    assert!(e.contains("masks: \"a.npy\" and \"a.png\" belong to the same image"), "{e}");
    fs::write(path_of("set.csv"), "path\ntrain/a.png\n").unwrap();
    let e = refused(Options::new().masks("masks"), "set.csv");
    assert!(e.contains("require a folder of images"), "{e}");
    let e = Loader::source(open(path_of("train")).unwrap()).masks("masks").host().unwrap_err();
    assert!(e.cause().contains("the dataset is already open"), "{e}");
}

#[test]
fn a_folder_with_masks_can_be_split() {
    let root = tempfile::tempdir().unwrap();
    let path_of = |name: &str| root.path().join(name);
    for value in 0..4 {
        image(&path_of(&format!("train/{value}.png")), 0);
        image(&path_of(&format!("trainannot/{value}.png")), value);
    }
    let parts = Loader::new(path_of("train")).masks("trainannot").split([0.5, 0.5], 3).unwrap();
    let mut delivered: Vec<_> = parts.into_iter().flat_map(delivered).map(|(key, _, mask)| (key, mask)).collect();
    delivered.sort();
    let expected: Vec<_> = (0..4).map(|value| (value.to_string(), value)).collect();
    assert_eq!(delivered, expected);
}
