//! Tests that datasets in the formats of other libraries give the same batches, bit for bit, as a
//! folder with the same images. `tests/fixtures/formats` contains a small dataset in each format.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use warpfeed::source::{Memory, OwnedSample, Source, open};
use warpfeed::{Augment, Loader};

use crate::support::{BatchContent, exit_on_hang};

const PER_CLASS: usize = 3;

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/formats").join(name)
}

pub(crate) fn copy(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture(name)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    folder
}

pub(crate) fn owned(source: &dyn Source) -> Vec<OwnedSample> {
    let mut scratch = Vec::new();
    (0..source.len()).map(|i| OwnedSample::try_from(&source.read(i, &mut scratch).unwrap()).unwrap()).collect()
}

/// The reference dataset: a folder with the first three JPEGs of each class in `datasets/mini`.
pub(crate) fn reference() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let mini = Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets/mini");
        let listed = |folder: &Path| {
            let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            paths.sort();
            paths
        };
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("formats-reference");
        for class in listed(&mini).into_iter().filter(|path| path.is_dir()) {
            let copy = target.join(class.file_name().unwrap());
            fs::create_dir_all(&copy).unwrap();
            let jpegs = listed(&class).into_iter().filter(|path| path.extension().is_some_and(|end| end == "jpg"));
            for jpeg in jpegs.take(PER_CLASS) {
                // Processes may create the same folder concurrently, so each complete file is
                // renamed into place.
                let (name, partial) = (jpeg.file_name().unwrap(), copy.join(format!("{}.partial", std::process::id())));
                fs::copy(&jpeg, &partial).unwrap();
                fs::rename(partial, copy.join(name)).unwrap();
            }
        }
        target
    });
    &FOLDER
}

fn batches(loader: Loader, epochs: impl IntoIterator<Item = u64>) -> Vec<BatchContent> {
    let mut batches = loader.host().unwrap();
    let mut contents = Vec::new();
    for epoch in epochs {
        contents.extend(
            batches.epoch(epoch).map(|batch| BatchContent { keys: Vec::new(), ..BatchContent::from(&batch.unwrap()) }),
        );
    }
    contents
}

type Way = (&'static str, fn(Loader) -> Vec<BatchContent>);

const WAYS: [Way; 6] = [
    ("in order", |loader| batches(loader, 0..1)),
    ("two epochs, shuffled", |loader| batches(loader.shuffle(7), 0..2)),
    ("rank 0 of 2", |loader| batches(loader.shuffle(7).rank(0, 2), 0..2)),
    ("rank 1 of 2", |loader| batches(loader.shuffle(7).rank(1, 2), 0..2)),
    ("a shuffle within windows", |loader| batches(loader.shuffle_window(6).seed(3), 0..2)),
    ("the second half of an epoch", |loader| {
        let mut batches = loader.shuffle(7).host().unwrap();
        batches
            .epoch_from(1, 2)
            .map(|batch| BatchContent { keys: Vec::new(), ..BatchContent::from(&batch.unwrap()) })
            .collect()
    }),
];

fn resumed(make: &dyn Fn() -> Loader) -> Vec<BatchContent> {
    let mut first = make().shuffle(7).host().unwrap();
    let mut epoch = first.epoch(0);
    (0..2).for_each(|_| drop(epoch.next().unwrap().unwrap()));
    let state = epoch.checkpoint();
    drop(epoch);
    batches(make().shuffle(7).resume(state), 0..2)
}

/// Checks that the dataset at `path` gives the batches of [`reference`] in all [`WAYS`], with one
/// worker and with three. `with` adds the options that the format needs.
pub(crate) fn assert_matches_reference(path: impl AsRef<Path>, with: impl Fn(Loader) -> Loader) {
    let path = path.as_ref();
    loads_as_reference(&path.display().to_string(), &|| with(Loader::new(path)));
}

pub(crate) fn loads_as_reference(name: &str, make: &dyn Fn() -> Loader) {
    loads_alike(name, make, &|| Loader::new(reference()));
}

pub(crate) fn loads_alike(name: &str, make: &dyn Fn() -> Loader, reference: &dyn Fn() -> Loader) {
    exit_on_hang(|| {
        let with = |loader: Loader, workers| loader.augment(Augment::train(48)).batch_size(5).workers(workers);
        let loader_of_format = |workers| with(make(), workers);
        let other = |workers| with(reference(), workers);
        for workers in [1, 3] {
            for (way, load) in WAYS {
                let (actual, expected) = (load(loader_of_format(workers)), load(other(1)));
                assert!(!expected.is_empty() && actual == expected, "{name}: {way}, {workers} workers");
            }
            let (actual, expected) = (resumed(&|| loader_of_format(workers)), resumed(&|| other(1)));
            assert!(!expected.is_empty() && actual == expected, "{name}: resumed, {workers} workers");
        }
    });
}

fn samples() -> Vec<OwnedSample> {
    owned(&*open(reference()).unwrap())
}

#[test]
fn the_reference_has_the_samples_of_the_fixtures() {
    let samples = samples();
    assert_eq!(samples.len(), 12);
    assert_matches_reference(reference(), |loader| loader);
    let fixture_samples = samples.clone();
    loads_as_reference("memory", &|| Loader::source(Memory::new(fixture_samples.clone())));
}

#[test]
fn a_dataset_with_other_samples_does_not_agree() {
    let fixture_samples = samples();
    let mut swapped = fixture_samples.clone();
    swapped.swap(1, 2); // two images of one class
    let mut labeled = fixture_samples.clone();
    labeled[11] = std::mem::replace(&mut labeled[11], OwnedSample::new("")).label(0);
    for (what, other) in [("swapped", swapped), ("labeled", labeled), ("shorter", fixture_samples[..11].to_vec())] {
        let check = || loads_as_reference(what, &|| Loader::source(Memory::new(other.clone())));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).is_err(), "{what}");
    }
}
