//! Promise: when any one call of the system fails while a loader opens and runs, the batches are the
//! same, or an error names the place. Nothing is left behind, and the next loader works.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use warpfeed::source::{Sample, Source};
use warpfeed::{Augment, HostBatch, Loader, OnError, Result};
use warpfeed_synth::Synth;

use crate::attempt::{Done, End, attempt};
use crate::process::{alone, own_process};
use crate::sweep::{Case, Table};

/// The samples of a batch, a line each, which ends in whether the sample is its own.
fn described(batch: &HostBatch) -> String {
    let images = batch.images().as_u8().unwrap();
    let labels = batch.labels().map(<[i64]>::to_vec).unwrap_or_default();
    let mut lines = String::new();
    let entries = batch.ids().zip(batch.keys()).zip(batch.valid());
    for (place, (((id, key), valid), image)) in entries.zip(images.chunks(images.len() / batch.len())).enumerate() {
        let label = labels.get(place);
        lines.push_str(&format!("{id} {key} {label:?} {:08x} {valid}\n", crc32fast::hash(image)));
    }
    lines
}

/// An epoch of a loader, or its first error. After the samples come the faults.
fn epoch(loader: Loader) -> Result<String> {
    let mut batches = loader.host()?;
    let mut text = String::new();
    for batch in batches.epoch(0) {
        text.push_str(&described(&batch?));
    }
    for fault in batches.faults() {
        let sample = fault.error.sample().expect("a fault has a sample");
        text.push_str(&format!("fault {sample} {}\n", fault.error));
    }
    Ok(text)
}

/// Whether `text` is an epoch in which samples were replaced, and its faults name them.
fn is_replaced(text: &str, expected: &str) -> bool {
    let (mut lines, mut named) = (Vec::new(), Vec::new());
    for line in text.lines() {
        match line.strip_prefix("fault ") {
            Some(fault) => named.extend(fault.split(' ').next()),
            None => lines.push(line),
        }
    }
    let same = |(line, expected): (&&str, &str)| {
        *line == expected || line.ends_with(" false") && named.iter().any(|id| expected.split(' ').next() == Some(id))
    };
    !named.is_empty() && lines.len() == expected.lines().count() && lines.iter().zip(expected.lines()).all(same)
}

/// Whether an error says where it happened.
pub(crate) fn names_a_place(error: &warpfeed::Error) -> bool {
    let text = error.to_string();
    let options = ["workers", "batch_size", "prefetch", "memory_limit", "thread"];
    error.path().is_some() || error.sample().is_some() || options.iter().any(|option| text.contains(option))
}

/// Runs an epoch of a new loader. After an error, a second loader must deliver what the first one
/// should have.
fn twice(loader: &dyn Fn() -> Result<Loader>, expected: Option<&str>) -> std::result::Result<String, String> {
    match loader().and_then(epoch) {
        Ok(text) if expected.is_some_and(|expected| is_replaced(&text, expected)) => Err(text),
        Ok(text) => Ok(text),
        Err(e) if !names_a_place(&e) => Err(format!("wrong: no place: {e}")),
        Err(e) => match loader().and_then(epoch) {
            Ok(text) if expected.is_none_or(|expected| text == expected) => Err(e.to_string()),
            Ok(text) => Err(format!("wrong: after {e}: {text}")),
            Err(again) => Err(format!("wrong: after {e}, again: {again}")),
        },
    }
}

fn with(loader: Loader) -> Loader {
    loader.augment(Augment::train(32)).batch_size(4).shuffle(7).workers(2).prefetch(2)
}

fn loader(path: &Path) -> Loader {
    with(Loader::new(path))
}

pub(crate) struct Data {
    root: tempfile::TempDir,
}

impl Data {
    pub(crate) fn new() -> Data {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().to_owned();
        let made = attempt(None, move || {
            let folder = path.join("folder");
            Synth::new().images(12).classes(3).side(96).write(&folder).unwrap();
            let source = warpfeed::source::open(&folder).unwrap();
            warpfeed::pack::Pack::new(&*source).workers(1).to(path.join("x.lmdb")).unwrap();
            warpfeed::pack::Pack::new(&*source).workers(1).shard_samples(4).to(path.join("x.tar")).unwrap();
            fs::create_dir(path.join("plain")).unwrap();
            warpfeed::pack::Pack::new(&*source).workers(1).to(path.join("plain/y.tar")).unwrap();
            let rows = (0..source.len()).map(|i| {
                let path = source.path(i).unwrap();
                format!("{},{}\n", path.strip_prefix(&folder).unwrap().display(), i % 3)
            });
            fs::write(folder.join("table.csv"), format!("file,label\n{}", rows.collect::<String>())).unwrap();
            Ok(String::new())
        });
        assert!(matches!(made.end, End::Done(Done { result: Ok(_), .. })), "{made:?}");
        Data { root }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }
}

/// A source whose reads wait, so that readers read for the workers.
struct Slow(Arc<dyn Source>);

impl Source for Slow {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        std::thread::sleep(Duration::from_millis(1));
        self.0.read(index, scratch)
    }
    fn path(&self, index: usize) -> Option<PathBuf> {
        self.0.path(index)
    }
}

fn sweep(cases: &[(&str, &dyn Fn() -> Result<Loader>)]) {
    let mut table = Table::default();
    for (name, loader) in cases {
        let run = Box::new(|_: &Path, expected: Option<&str>| twice(*loader, expected));
        table.sweep(&Case { name: (*name).into(), prepare: Box::new(|_| ()), run });
    }
    table.finish();
}

/// A copy of the data sets of other libraries, because loaders write indexes next to them.
fn fixtures() -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let to = to.join(path.file_name().unwrap());
            if path.is_dir() {
                copy(&path, &to)
            } else {
                fs::copy(&path, &to).unwrap();
            }
        }
    }
    let root = tempfile::tempdir().unwrap();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/formats"), root.path());
    root
}

#[test]
fn a_call_that_fails_gives_an_error_with_a_place_or_the_same_batches() {
    own_process!(a_call_that_fails_gives_an_error_with_a_place_or_the_same_batches);
    let _alone = alone();
    let data = Data::new();
    let open = |name: &str| Ok(loader(&data.path(name)).retries(0));
    let skip = OnError::Skip { max_skipped: 4 };
    sweep(&[
        ("folder", &|| open("folder")),
        ("folder, retried", &|| Ok(open("folder")?.retries(1))),
        ("folder, skipped", &|| Ok(open("folder")?.on_error(skip))),
        ("folder, one worker", &|| Ok(open("folder")?.workers(1))),
        ("folder, readers", &|| {
            let source = warpfeed::source::open(data.path("folder"))?;
            Ok(with(Loader::source(Slow(source))).epochs(1).prefetch(4).retries(0))
        }),
        ("tar", &|| open("plain/y.tar")),
        ("tar, read", &|| Ok(open("plain/y.tar")?.mmap(false))),
        ("shards", &|| open("x-{000000..000002}.tar")),
        ("shards, read and skipped", &|| Ok(open("x-{000000..000002}.tar")?.mmap(false).on_error(skip))),
        ("LMDB", &|| open("x.lmdb")),
        ("LMDB, skipped", &|| Ok(open("x.lmdb")?.on_error(skip))),
        ("table", &|| open("folder/table.csv")),
    ]);
}

#[test]
fn a_call_that_fails_gives_an_error_or_the_same_batches_in_every_format() {
    own_process!(a_call_that_fails_gives_an_error_or_the_same_batches_in_every_format);
    let _alone = alone();
    let fixtures = fixtures();
    let open = |name: &str| Ok(loader(&fixtures.path().join(name)).retries(0));
    sweep(&[
        ("Parquet", &|| open("parquet/hub/train")),
        ("Parquet, read", &|| Ok(open("parquet/hub/train")?.mmap(false))),
        ("Arrow", &|| open("arrow/saved")),
        ("Arrow, read", &|| Ok(open("arrow/saved")?.mmap(false))),
        ("MDS", &|| open("mds")),
        ("MDS, zstd", &|| open("mds_zstd")),
        ("LitData", &|| open("litdata")),
        ("FFCV", &|| open("beton/train.beton")),
        ("RecordIO", &|| open("recordio/train.rec")),
        ("TFRecord", &|| open("tfrecord")),
        ("NumPy", &|| open("arrays/npy")),
        ("HDF5", &|| open("hdf5/encoded-v114.h5")),
    ]);
}
