//! Tests the warning about classes with different indices. It must be logged once per opening if a
//! sibling split, or a dataset in the same folder that the process has opened recently, assigns a
//! different index to a class. An explicit class list must silence it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::serial;
use crate::warnings::Warnings;
use warpfeed::pack::Pack;
use warpfeed::{Augment, Loader, source};

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
fn conflicting_class_indices_warn_once_per_opening() {
    let _serial = serial();
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
    // With a class list, both splits have the same indices.
    let train = folder(root.path(), "listed/train", &["listed-a", "listed-b"]);
    let val = folder(root.path(), "listed/val", &["listed-b"]);
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        for set in [&train, &val] {
            small(Loader::new(set).classes(["listed-b", "listed-a"])).host().unwrap();
        }
    });
    assert!(warnings.0.lock().unwrap().is_empty());
    // Folders that only share a class name are unrelated datasets.
    let pets = folder(root.path(), "other/pets", &["cat-noticed", "dog-noticed"]);
    folder(root.path(), "other/cars", &["car-noticed", "dog-noticed"]);
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || drop(small(Loader::new(&pets)).host().unwrap()));
    assert!(warnings.0.lock().unwrap().is_empty());
}

#[test]
fn conflicting_class_indices_warn_in_packs_and_tables() {
    let _serial = serial();
    let root = tempfile::tempdir().unwrap();
    let packed = |name: &str, classes: &[&str]| {
        let source = source::open(folder(root.path(), name, classes)).unwrap();
        let target = root.path().join(format!("{name}.tar"));
        Pack::new(&*source).to(&target).unwrap();
        target
    };
    let train = packed("first", &["packed-a", "packed-b", "packed-c"]);
    let same = packed("second", &["packed-a", "packed-b", "packed-c"]);
    let val = packed("third", &["packed-b", "packed-c"]);
    let table = root.path().join("rows.csv");
    fs::write(&table, "path,label\nthird/packed-c/0.png,packed-c\nthird/packed-b/0.png,packed-x\n").unwrap();
    let warnings_of = |loader: Loader| {
        let warnings = Warnings::default();
        tracing::subscriber::with_default(warnings.clone(), || drop(small(loader).host().unwrap()));
        std::mem::take(&mut *warnings.0.lock().unwrap())
    };
    assert!(warnings_of(Loader::new(&train)).is_empty() && warnings_of(Loader::new(&same)).is_empty());
    let [text] = &*warnings_of(Loader::new(&val)) else { panic!("one warning") };
    let (second, third) = (same.display(), val.display());
    assert!(text.starts_with(&format!("class \"packed-b\" is 0 in {third} and 1 in {second}; ")), "{text}");
    let [text] = &*warnings_of(Loader::new(&table)) else { panic!("one warning") };
    assert!(text.starts_with("class \"packed-c\" is 0 in ") && text.contains("rows.csv and 1 in "), "{text}");
    // The classes of a source that the program opens itself are compared, too.
    let [text] = &*warnings_of(Loader::source(source::open(&train).unwrap())) else { panic!("one warning") };
    assert!(text.starts_with("class \"packed-c\" is 2 in "), "{text}");
    assert!(warnings_of(Loader::new(&val).classes(["packed-a", "packed-b", "packed-c"])).is_empty());
    // The same file in a different folder is an unrelated dataset.
    let elsewhere = root.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::copy(&val, elsewhere.join("third.tar")).unwrap();
    assert!(warnings_of(Loader::new(elsewhere.join("third.tar"))).is_empty());
}
