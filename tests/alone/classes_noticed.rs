//! Promise: the loader warns, once, if two data sets number a class differently, unless a list
//! numbers them.
//!
//! Loaders of other tests would displace these sets from the memory of recent sets.

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
fn two_sets_that_number_a_class_differently_cause_one_warning() {
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
    let place = format!("class \"noticed-b\" is 1 in {} and 0 in {}; ", train.display(), val.display());
    assert!(texts.len() == 1 && texts[0].starts_with(&place) && texts[0].contains("Loader::classes_file"), "{texts:?}");
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
}
