//! Tests that joining datasets with conflicting class names fails with advice, unless the program
//! chooses how to number the classes. Matching by name must give every sample the label of its
//! class name.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::folder;
use crate::support::refused;
use warpfeed::source::{Concat, Memory, OwnedSample, Source, open};
use warpfeed::{Augment, ErrorKind, Loader};

fn sets(root: &Path) -> [PathBuf; 2] {
    [
        folder(root, "photos", &[("cat", 30), ("dog", 10)]),
        folder(root, "sketches", &[("axolotl", 5), ("cat", 20), ("zebra", 5)]),
    ]
}

fn class_of(key: &str) -> &str {
    key.split('/').next().unwrap()
}

#[test]
fn conflicting_label_names_are_refused_with_both_names() {
    let root = tempfile::tempdir().unwrap();
    let [photos, sketches] = sets(root.path());
    let parts = || vec![open(&photos).unwrap(), open(&sketches).unwrap()];
    let concat = Concat::new(parts()).unwrap_err();
    let mixture = Loader::mixture([(&photos, 0.5), (&sketches, 0.5)]).host().unwrap_err();
    let open = Loader::mixture(parts().into_iter().map(|part| (part, 1.0))).host().unwrap_err();
    for e in [concat, mixture, open] {
        assert_eq!(e.kind(), ErrorKind::Config, "{e}");
        for words in
            ["label 0 is \"cat\" in dataset 0 and \"axolotl\" in dataset 1", "match_labels_by_name", "keep_labels"]
        {
            assert!(e.cause().contains(words), "{e}");
        }
    }
}

#[test]
fn joined_by_name_every_sample_has_the_label_of_its_class() {
    let root = tempfile::tempdir().unwrap();
    let [photos, sketches] = sets(root.path());
    let joined = Concat::match_labels_by_name(vec![open(&photos).unwrap(), open(&sketches).unwrap()]).unwrap();
    assert_eq!(joined.classes(), ["axolotl", "cat", "dog", "zebra"]);
    let mut scratch = Vec::new();
    for index in 0..joined.len() {
        let label = joined.label(index, &mut scratch).unwrap().unwrap();
        let sample = joined.read(index, &mut scratch).unwrap();
        assert_eq!(sample.label().unwrap(), Some(label));
        assert_eq!(class_of(sample.key()), joined.classes()[label as usize], "{}", sample.key());
    }
    let merged = folder(root.path(), "merged", &[("axolotl", 1), ("cat", 1), ("dog", 1), ("zebra", 1)]);
    assert_eq!(joined.classes(), open(merged).unwrap().classes());
}

#[test]
fn a_mixture_by_name_delivers_the_labels_of_its_classes() {
    let root = tempfile::tempdir().unwrap();
    let [photos, sketches] = sets(root.path());
    let loader = Loader::mixture([(&photos, 0.5), (&sketches, 0.5)]).match_labels_by_name();
    let mut batches = loader.augment(Augment::pass_through(8, 8)).batch_size(10).workers(2).host().unwrap();
    let classes = batches.classes().to_vec();
    assert_eq!(classes, ["axolotl", "cat", "dog", "zebra"]);
    for batch in batches.epoch(0) {
        let batch = batch.unwrap();
        for (key, &label) in batch.sample_keys().zip(batch.labels().unwrap()) {
            assert_eq!(class_of(key), classes[label as usize]);
        }
    }
}

/// The `cat` class is in both datasets, so its weight must come from both counts together.
#[test]
fn balanced_draws_classes_of_joined_datasets_equally() {
    let root = tempfile::tempdir().unwrap();
    let [photos, sketches] = sets(root.path());
    let joined = Concat::match_labels_by_name(vec![open(&photos).unwrap(), open(&sketches).unwrap()]).unwrap();
    let loader =
        Loader::source(joined).augment(Augment::pass_through(8, 8)).batch_size(10).workers(2).balanced().seed(4);
    let mut batches = loader.host().unwrap();
    let mut drawn = HashMap::<i64, usize>::new();
    for epoch in 0..40 {
        for batch in batches.epoch(epoch) {
            batch.unwrap().labels().unwrap().iter().for_each(|&label| *drawn.entry(label).or_default() += 1);
        }
    }
    // The 2,800 draws should contain each of the four classes 700 times, with a standard deviation
    // of 23.
    assert_eq!(drawn.len(), 4);
    assert!(drawn.values().all(|n| (600..800).contains(n)), "{drawn:?}");
}

#[test]
fn kept_labels_do_not_change_and_conflicting_names_are_dropped() {
    let root = tempfile::tempdir().unwrap();
    let [photos, sketches] = sets(root.path());
    let joined = Concat::keep_labels(vec![open(&photos).unwrap(), open(&sketches).unwrap()]).unwrap();
    assert!(joined.classes().is_empty());
    let mut scratch = Vec::new();
    let labels: Vec<_> = (0..joined.len()).map(|i| joined.label(i, &mut scratch).unwrap().unwrap()).collect();
    assert_eq!([labels[0], labels[39], labels[40], labels[69]], [0, 1, 0, 2]);
    let mixture = Loader::mixture([(&photos, 0.5), (&sketches, 0.5)]).keep_labels().host().unwrap();
    assert!(mixture.classes().is_empty());
}

fn memory(labels: &[i64], classes: &[&str]) -> Arc<dyn Source> {
    let sample = |&label: &i64| OwnedSample::new(format!("{label}")).field("cls", label.to_string());
    Arc::new(Memory::new(labels.iter().map(sample).collect()).with_classes(classes.iter().copied()))
}

#[test]
fn matching_by_name_needs_names_for_all_labels() {
    let joined = Concat::match_labels_by_name(vec![memory(&[0, 2, -1], &["b", "a"]), memory(&[0], &["a"])]).unwrap();
    let label = |index| joined.label(index, &mut Vec::new());
    assert_eq!((label(0).unwrap(), label(3).unwrap()), (Some(1), Some(0)));
    for (index, words) in [(1, "label 2 has no name: dataset 0 names 2"), (2, "label -1 has no name")] {
        assert!(label(index).unwrap_err().cause().contains(words));
        assert!(joined.read(index, &mut Vec::new()).unwrap_err().cause().contains(words));
    }
    let e = Concat::match_labels_by_name(vec![memory(&[0], &["a"]), memory(&[0], &[])]).unwrap_err();
    assert!(e.kind() == ErrorKind::Config && e.cause().contains("set 1 (memory, 1 sample) has no class names"), "{e}");
    // Lists that are empty or a prefix of the longest list agree with it.
    let joined = Concat::new(vec![memory(&[0], &["a"]), memory(&[5], &[]), memory(&[1], &["a", "b"])]).unwrap();
    assert_eq!(joined.classes(), ["a", "b"]);
}

#[test]
fn join_options_are_refused_without_a_join_or_when_given_twice() {
    let mixture = || Loader::mixture([(memory(&[0], &["a"]), 1.0)]);
    refused(mixture().match_labels_by_name().keep_labels(), "match_labels_by_name and keep_labels cannot be combined");
    refused(Loader::source(memory(&[0], &["a"])).match_labels_by_name(), "require a mixture");
    refused(Loader::source(memory(&[0], &["a"])).keep_labels(), "require a mixture");
}
