//! Lets single system calls and large allocations fail while a loader opens or runs. The loader
//! must deliver correct batches, or return an error that names a file, a sample, an option or a
//! thread. If errors are skipped, it may also replace samples, which it must list. A failed
//! allocation may abort the process only in crates that cannot report it
//! (`sweep::ABORTING_CRATES`). Nothing may leak, and the next loader must work.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use warpfeed::field::{Boxes, Mask};
use warpfeed::{Augment, Dtype, Loader, OnError, Result};
use warpfeed_synth::Synth;

use crate::before_read::BeforeRead;
use crate::calls::Kind;
use crate::child::{Done, End, attempt};
use crate::datasets::{FORMATS, Kind as Content, many, small};
use crate::epoch::twice;
use crate::process::{own_process, serial};
use crate::sweep::{Case, Table};

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
        let attempted = attempt(None, move || {
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
            let drawn = Synth::new().images(10).classes(3).side(96);
            drawn.write_coco(path.join("coco"), |_| ()).unwrap();
            drawn.write_voc(path.join("voc"), |_| ()).unwrap();
            fs::create_dir(path.join("yolo")).unwrap();
            yolo(&folder, &path.join("yolo"));
            Ok(String::new())
        });
        assert!(matches!(attempted.end, End::Done(Done { result: Ok(_), .. })), "{attempted:?}");
        Data { root }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }
}

fn yolo(folder: &Path, dest: &Path) {
    let source = warpfeed::source::open(folder).unwrap();
    fs::create_dir_all(dest.join("images")).unwrap();
    fs::create_dir_all(dest.join("labels")).unwrap();
    let mut listed = String::new();
    for i in 0..source.len() {
        let path = source.path(i).unwrap();
        let name = format!("images/{i}.{}", path.extension().unwrap().display());
        fs::copy(&path, dest.join(&name)).unwrap();
        fs::write(dest.join(format!("labels/{i}.txt")), format!("{} 0.5 0.4 0.3 0.2\n", i % 3)).unwrap();
        listed.push_str(&format!("./{name}\n"));
    }
    fs::write(dest.join("listed.txt"), listed).unwrap();
    fs::write(dest.join("data.yaml"), "train: images\nnames: [a, b, c]\n").unwrap();
    fs::write(dest.join("listed.yaml"), "train: listed.txt\nnames: [a, b, c]\n").unwrap();
}

type Cases<'a> = [(&'a str, &'a dyn Fn() -> Result<Loader>)];

fn sweep(cases: &Cases<'_>) {
    let mut table = Table::default();
    for (name, loader) in cases {
        let run = Box::new(|_: &Path, expected: Option<&str>| twice(*loader, usize::MAX, expected));
        table.sweep(&Case { name: (*name).into(), prepare: Box::new(|_| ()), run, kinds: &Kind::ALL });
    }
    table.finish();
}

/// Copies the fixtures to a temporary folder, because loaders write index files next to the data.
fn fixtures() -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let dest = to.join(path.file_name().unwrap());
            if path.is_dir() {
                copy(&path, &dest)
            } else {
                fs::copy(&path, &dest).unwrap();
            }
        }
    }
    let root = tempfile::tempdir().unwrap();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/formats"), root.path());
    root
}

#[test]
fn a_failed_call_changes_no_batch_or_reports_its_file() {
    own_process!(a_failed_call_changes_no_batch_or_reports_its_file);
    let _serial = serial();
    let data = Data::new();
    let open = |name: &str| Ok(loader(&data.path(name)).retries(0));
    let skip = OnError::Skip { max_skipped: 4 };
    sweep(&[
        ("folder", &|| open("folder")),
        ("folder, retried", &|| Ok(open("folder")?.retries(1))),
        ("folder, skipped", &|| Ok(open("folder")?.on_error(skip))),
        ("folder, one worker", &|| Ok(open("folder")?.workers(1))),
        ("folder, readers", &|| {
            // Reads block, so the loader starts reader threads.
            let slow = BeforeRead(warpfeed::source::open(data.path("folder"))?, |_| {
                std::thread::sleep(Duration::from_millis(1));
                Ok(())
            });
            Ok(with(Loader::source(slow)).epochs(1).prefetch(4).retries(0))
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
fn a_failed_call_changes_nothing_or_fails_in_other_formats() {
    own_process!(a_failed_call_changes_nothing_or_fails_in_other_formats);
    let _serial = serial();
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

#[test]
fn a_failed_call_changes_no_box_or_is_reported() {
    own_process!(a_failed_call_changes_no_box_or_is_reported);
    let _serial = serial();
    let data = Data::new();
    let open = |name: &str| {
        let boxes = Boxes::new(20).column("class", Dtype::I64);
        Ok(loader(&data.path(name)).unlabeled(true).retries(0).field("boxes", boxes))
    };
    sweep(&[
        ("COCO", &|| open("coco/annotations/instances_train.json")),
        ("YOLO", &|| open("yolo/data.yaml")),
        ("YOLO, listed", &|| open("yolo/listed.yaml")),
        ("Pascal VOC", &|| open("voc")),
        ("Pascal VOC, masks", &|| {
            Ok(open("voc/ImageSets/Segmentation/train.txt")?.field("mask", Mask::new(Dtype::U8).fill(255)))
        }),
    ]);
}

#[test]
fn a_failed_allocation_for_many_samples_is_harmless_or_an_error() {
    own_process!(a_failed_allocation_for_many_samples_is_harmless_or_an_error);
    let _serial = serial();
    let mut table = Table::default();
    for content in [Content::Labeled, Content::Boxes, Content::Pixels] {
        let dataset = many(content);
        for format in FORMATS.iter().filter(|format| (format.holds)(&dataset)) {
            if content != Content::Labeled && (format.holds)(&small(Content::Labeled)) {
                continue;
            }
            let root = tempfile::tempdir().unwrap();
            let name = (format.write)(&dataset, root.path());
            let path = root.path().join(name);
            let open = || Ok(loader(&path).unlabeled(content == Content::Boxes).retries(0));
            let run = Box::new(|_: &Path, expected: Option<&str>| twice(&open, 2, expected));
            let name = format!("many, {}", format.name);
            table.sweep(&Case { name, prepare: Box::new(|_| ()), run, kinds: &[Kind::Allocation] });
        }
    }
    table.finish();
}
