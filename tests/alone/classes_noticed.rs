//! Promise: each opening of a loader warns once if a split of the data set that is next to it
//! numbers a class differently, unless a list numbers the classes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::alone;
use crate::warnings::Warnings;
use warpfeed::{Augment, Loader};

/// A folder of class folders with one picture each.
fn folder(root: &Path, name: &str, classes: &[&str]) -> PathBuf {
    for class in classes {
        let class = root.join(name).join(class);
        fs::create_dir_all(&class).unwrap();
        image::RgbImage::new(8, 8).save(class.join("0.png")).unwrap();
    }
    root.join(name)
}

fn small(loader: Loader) -> Loader {
    loader.augment(Augment::pass_through(8, 8)).batch_size(4).workers(2)
}

#[test]
fn splits_that_number_a_class_differently_cause_one_warning_for_each_opening() {
    let _alone = alone();
    let root = tempfile::tempdir().unwrap();
    let train = folder(root.path(), "train", &["noticed-a", "noticed-b"]);
    let val = folder(root.path(), "val", &["noticed-b"]);
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        for _ in 0..2 {
            for set in [&train, &val] {
                small(Loader::new(set)).host().unwrap();
            }
        }
    });
    let texts = warnings.0.lock().unwrap().clone();
    let (train, val) = (train.display(), val.display());
    let of_train = format!("class \"noticed-b\" is 1 in {train} and 0 in {val}; ");
    let of_val = format!("class \"noticed-b\" is 0 in {val} and 1 in {train}; ");
    assert_eq!(texts.len(), 4, "{texts:?}");
    for (text, place) in texts.iter().zip([&of_train, &of_val, &of_train, &of_val]) {
        assert!(text.starts_with(place) && text.contains("Loader::classes_file"), "{text}");
    }
    // With a list they agree.
    let train = folder(root.path(), "listed/train", &["listed-a", "listed-b"]);
    let val = folder(root.path(), "listed/val", &["listed-b"]);
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        for set in [&train, &val] {
            small(Loader::new(set).classes(["listed-b", "listed-a"])).host().unwrap();
        }
    });
    assert!(warnings.0.lock().unwrap().is_empty());
    // Other folders with a class in common are other data sets.
    let pets = folder(root.path(), "other/pets", &["cat", "dog"]);
    folder(root.path(), "other/cars", &["car", "dog"]);
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || drop(small(Loader::new(&pets)).host().unwrap()));
    assert!(warnings.0.lock().unwrap().is_empty());
}
