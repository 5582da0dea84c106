//! Tests that a class list determines the class indices in folders, LMDB databases and tars, and
//! wherever labels are used. A class that is not in the list must make opening fail with an error
//! that names the class, or have its samples skipped.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::files::folder;
use warpfeed::batch::Field;
use warpfeed::field::{FieldType, Input, RowMut};
use warpfeed::pack::{Pack, Recode};
use warpfeed::source::{Classes, Concat, Memory, Options, OwnedSample, Source, open};
use warpfeed::{Augment, Dtype, Error, ErrorKind, HostBatch, Loader, OnError, Result};

const LIST: [&str; 4] = ["dog", "axolotl", "cat", "zebra"];

fn place(class: &str) -> i64 {
    LIST.iter().position(|&name| name == class).unwrap() as i64
}

fn small(loader: Loader) -> Loader {
    loader.augment(Augment::pass_through(8, 8)).batch_size(4).workers(2)
}

fn labels(loader: Loader) -> Vec<(String, i64)> {
    let batches: Vec<HostBatch> = small(loader).prefetch(32).into_iter().collect::<Result<_>>().unwrap();
    let labels_of = |batch: &HostBatch| {
        batch.sample_keys().map(str::to_owned).zip(batch.labels().unwrap().to_vec()).collect::<Vec<_>>()
    };
    batches.iter().flat_map(labels_of).collect()
}

fn follow_the_list(labels: &[(String, i64)]) -> bool {
    !labels.is_empty() && labels.iter().all(|(key, label)| place(key.split('/').next().unwrap()) == *label)
}

fn open_error(loader: Loader) -> Error {
    loader.host().unwrap_err()
}

#[test]
fn the_list_determines_labels_in_every_format() {
    let root = tempfile::tempdir().unwrap();
    let train = folder(root.path(), "train", &[("axolotl", 3), ("cat", 5), ("dog", 2), ("zebra", 1)]);
    let val = folder(root.path(), "val", &[("cat", 2), ("zebra", 3)]);
    let file = root.path().join("classes.txt");
    fs::write(&file, LIST.join("\r\n") + "\r\n").unwrap();
    let (lmdb, tar) = (root.path().join("val.lmdb"), root.path().join("val.tar"));
    for target in [&lmdb, &tar] {
        Pack::new(&*open(&val).unwrap()).recode(Recode::KeepBytes).to(target).unwrap();
    }
    let loaders: [fn(&Path) -> Loader; 2] = [|path| Loader::new(path), |path| Loader::source(open(path).unwrap())];
    for path in [&train, &val, &lmdb, &tar] {
        for new in loaders {
            assert!(follow_the_list(&labels(new(path).classes(LIST))), "{}", path.display());
            assert!(follow_the_list(&labels(new(path).classes_file(&file))), "{}", path.display());
            assert_eq!(small(new(path).classes(LIST)).host().unwrap().classes(), LIST);
        }
    }
    assert!(!follow_the_list(&labels(Loader::new(&val))));
    let mixture = Loader::mixture([(&train, 0.5), (&val, 0.5)]).classes(LIST);
    assert!(follow_the_list(&labels(mixture)));
}

#[test]
fn the_list_applies_before_the_first_batch() {
    let root = tempfile::tempdir().unwrap();
    let set = folder(root.path(), "set", &[("axolotl", 4), ("cat", 40), ("dog", 8)]);
    let loader = || Loader::new(&set).classes(LIST);
    let [one, other] = loader().split_stratified([0.5, 0.5], 3).unwrap();
    let halves = [labels(one), labels(other)];
    for half in &halves {
        assert!(follow_the_list(half));
        let mut counts = HashMap::<i64, usize>::new();
        half.iter().for_each(|(_, label)| *counts.entry(*label).or_default() += 1);
        assert_eq!(counts, HashMap::from([(place("axolotl"), 2), (place("cat"), 20), (place("dog"), 4)]));
    }
    let balanced = labels(loader().balanced().seed(1));
    assert!(follow_the_list(&balanced));
    assert!(balanced.iter().filter(|(_, label)| *label == place("cat")).count() < 30, "52 draws, a third of them cats");
}

#[test]
fn packing_stores_the_list_and_its_labels() {
    let root = tempfile::tempdir().unwrap();
    let set = folder(root.path(), "set", &[("cat", 2), ("zebra", 3)]);
    let listed = Options::new().classes(Classes::new(LIST).unwrap()).open(&set).unwrap();
    for name in ["set.lmdb", "set.tar"] {
        let packed = root.path().join(name);
        Pack::new(&*listed).to(&packed).unwrap();
        assert_eq!(open(&packed).unwrap().classes(), LIST);
        assert!(follow_the_list(&labels(Loader::new(&packed))));
    }
}

#[test]
fn an_unlisted_class_is_named_or_skipped() {
    let root = tempfile::tempdir().unwrap();
    let set = folder(root.path(), "set", &[("cat", 3), ("owl", 2), ("wolf", 1), ("zebra", 3)]);
    let e = open_error(Loader::new(&set).classes(LIST));
    assert_eq!((e.kind(), e.path()), (ErrorKind::Config, Some(&*set)));
    assert!(
        e.cause().contains("not in the list of 4 names: \"owl\", \"wolf\"; add them")
            && e.cause().contains("OnError::Skip"),
        "{e}"
    );
    let loader = small(Loader::new(&set).classes(LIST)).on_error(OnError::Skip { max_skipped: 3 }).batch_size(9);
    let mut batches = loader.host().unwrap();
    let batch = batches.epoch(0).next().unwrap().unwrap();
    let sound: Vec<bool> = batch.valid().collect();
    let names: Vec<&str> = batch.sample_keys().map(|key| key.split('/').next().unwrap()).collect();
    assert_eq!(sound.iter().filter(|valid| !**valid).count(), 3);
    for (name, label) in names.iter().zip(batch.labels().unwrap()) {
        assert!(LIST.contains(name) && *label == place(name), "{name}");
    }
    let faults = batches.sample_errors();
    let causes: Vec<&str> = faults.iter().map(|fault| fault.error.cause()).collect();
    assert_eq!(causes.len(), 3);
    assert!(causes.iter().all(|c| c.ends_with("is not in the list of classes")), "{causes:?}");
}

#[test]
fn without_class_names_labels_are_indices_into_the_list() {
    let set = |labels: &[i64]| {
        let sample =
            |&label: &i64| OwnedSample::new(format!("{label}")).field("x", vec![0]).field("cls", label.to_string());
        Loader::source(Memory::new(labels.iter().map(sample).collect()))
            .drop_field("image")
            .field("x", warpfeed::field::Ragged::bytes(1))
    };
    assert_eq!(labels(set(&[3, 0]).classes(LIST)), [("3".to_owned(), 3), ("0".to_owned(), 0)]);
    for label in [4, -1] {
        let e = set(&[1, label]).classes(LIST).into_iter().find_map(Result::err).unwrap();
        assert_eq!(e.cause(), format!("label {label} is outside the list of 4 classes, which are numbered from 0"));
    }
}

#[test]
fn an_invalid_list_is_refused_with_the_position() {
    let root = tempfile::tempdir().unwrap();
    let set = folder(root.path(), "set", &[("cat", 1)]);
    let cause = |names: &[&str]| open_error(Loader::new(&set).classes(names.iter().copied())).cause().to_owned();
    assert_eq!(cause(&[]), "classes: the list is empty");
    assert_eq!(cause(&["cat", "dog", "cat"]), "classes: \"cat\" occurs twice, at indices 0 and 2");
    assert_eq!(cause(&["cat", ""]), "classes: name 1 is empty");
    let file = root.path().join("classes.txt");
    for (text, expected) in [
        (&b"cat\n\ndog\n"[..], "classes: name 1 is empty"),
        (b"cat\n\xff\n", "line 2: the text is not UTF-8"),
        (b"", "classes: the list is empty"),
    ] {
        fs::write(&file, text).unwrap();
        let e = open_error(Loader::new(&set).classes_file(&file));
        assert_eq!((e.cause(), e.path()), (expected, Some(&*file)));
    }
    let e = open_error(Loader::new(&set).classes_file(root.path().join("none.txt")));
    assert_eq!(e.kind(), ErrorKind::Io);
    fs::write(&file, b"\xef\xbb\xbfcat\r\n dog \n\n\n").unwrap();
    assert_eq!(Classes::read(&file).unwrap().names(), ["cat", "dog"]);
    let json = root.path().join("classes.json");
    fs::write(&json, "[\"cat\", \"a\\nb\"]").unwrap();
    assert_eq!(Classes::read(&json).unwrap().names(), ["cat", "a\nb"]);
    fs::write(&json, "{\"cat\": 1}").unwrap();
    assert!(Classes::read(&json).unwrap_err().cause().starts_with("not a list of names"));
    let both = Loader::mixture([(&set, 1.0)]).match_labels_by_name().classes(["cat"]);
    assert!(open_error(both).cause().contains("remove match_labels_by_name and keep_labels"));
}

/// A field with a second class per sample, which the loader must map like the classes of boxes.
#[derive(Debug)]
struct Other;

impl FieldType for Other {
    fn describe_arrays(&self, name: &str, _: warpfeed::decode::Size) -> Result<Vec<Field>> {
        Ok(vec![Field { name: name.to_owned(), dtype: Dtype::I64, shape: vec![] }])
    }

    fn write(&self, input: &Input<'_>, place: &mut RowMut<'_>) -> Result<()> {
        let class = input.sample.class(input.sample.field(input.name).unwrap()[0].into())?;
        place.bytes(0).copy_from_slice(&class.to_ne_bytes());
        Ok(())
    }
}

fn pairs(classes: &[&str]) -> Arc<dyn Source> {
    let sample = |i| OwnedSample::new(format!("{i}")).field("other", [i as u8]).label(i as i64);
    Arc::new(Memory::new((0..classes.len()).map(sample).collect()).with_classes(classes.iter().copied()))
}

#[test]
fn other_classes_are_mapped_like_the_label() {
    let others = |loader: Loader| {
        let loader = loader.drop_field("image").field("other", Other).workers(1).batch_size(16);
        let batch = loader.into_iter().next().unwrap().unwrap();
        assert_eq!(batch.field("other").unwrap().as_i64().unwrap(), batch.labels().unwrap());
        batch.labels().unwrap().to_vec()
    };
    assert_eq!(others(Loader::source(pairs(&["cat", "dog"]))), [0, 1]);
    assert_eq!(others(Loader::source(pairs(&["cat", "dog"])).classes(LIST)), [2, 0]);
    let joined = || Concat::match_labels_by_name(vec![pairs(&["zebra", "cat"]), pairs(&["cat", "axolotl"])]).unwrap();
    assert_eq!(others(Loader::source(joined())), [2, 1, 1, 0]);
    assert_eq!(others(Loader::source(joined()).classes(LIST)), [3, 2, 2, 1]);
    let lists = (0..5).map(|i| Classes::new([["cat", "dog"], ["dog", "cat"]][(i + 1) % 2]).unwrap());
    let deep = lists.fold(pairs(&["cat", "dog"]), |source, list| list.relabel(source).unwrap());
    assert!(deep.read(0, &mut Vec::new()).unwrap_err().cause().contains("more than 4 nested sources map labels"));
}

fn npy(numbers: &[i64]) -> Vec<u8> {
    let header = format!("{{'descr': '<i8', 'fortran_order': False, 'shape': ({},), }}\n", numbers.len());
    let mut bytes = [&b"\x93NUMPY\x01\x00"[..], &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
    numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    bytes
}

#[test]
fn packing_renumbers_the_classes_of_boxes() {
    let root = tempfile::tempdir().unwrap();
    let sample =
        OwnedSample::new("a").field("boxes.class.npy", npy(&[1, -1, 0])).field("boxes.npy", npy(&[1, 0])).label(1);
    let set: Arc<dyn Source> = Arc::new(Memory::new(vec![sample]).with_classes(["cat", "dog"]));
    let listed = Classes::new(LIST).unwrap().relabel(set).unwrap();
    let packed = root.path().join("set.lmdb");
    Pack::new(&*listed).to(&packed).unwrap();
    let packed = open(&packed).unwrap();
    let mut scratch = Vec::new();
    let sample = packed.read(0, &mut scratch).unwrap();
    assert_eq!(*sample.field("boxes.class.npy").unwrap(), npy(&[0, -1, 2]));
    assert_eq!(*sample.field("boxes.npy").unwrap(), npy(&[1, 0]), "only columns of classes are numbered as classes");
    assert_eq!(sample.label().unwrap(), Some(0));
    let text = OwnedSample::new("a").field("boxes.class.txt", "1");
    let set: Arc<dyn Source> = Arc::new(Memory::new(vec![text]).with_classes(["cat", "dog"]));
    let e = Pack::new(&*Classes::new(LIST).unwrap().relabel(set).unwrap()).to(root.path().join("b.lmdb")).unwrap_err();
    assert!(e.cause().contains("only in npy arrays of int64") && e.key() == Some("a"), "{e}");
}
