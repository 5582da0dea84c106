//! Tests what the next epoch reads if a dataset is modified, replaced or removed while a loader
//! runs.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use warpfeed::pack::{DatasetWriter, LmdbWriter, TarWriter, WriteOptions};
use warpfeed::source::OwnedSample;
use warpfeed::{Augment, Batches, ErrorKind, HostBatch, Loader};

fn write(mut writer: Box<dyn DatasetWriter>, gray: u8) {
    for i in 0..4 {
        let mut png = std::io::Cursor::new(Vec::new());
        image::RgbImage::from_pixel(8, 8, image::Rgb([gray; 3])).write_to(&mut png, image::ImageFormat::Png).unwrap();
        let sample = OwnedSample::new(format!("{i}")).field("png", png.into_inner()).label(i);
        writer.put(&sample.as_sample().unwrap()).unwrap();
    }
    writer.finish().unwrap();
}

pub(crate) fn tar(path: &Path, gray: u8) {
    write(Box::new(TarWriter::create(path, &WriteOptions { force: true, ..Default::default() }).unwrap()), gray);
}

fn lmdb(path: &Path, gray: u8) {
    write(Box::new(LmdbWriter::create(path, &WriteOptions { force: true, ..Default::default() }).unwrap()), gray);
}

fn open(path: &Path) -> Batches<HostBatch> {
    Loader::new(path).augment(Augment::pass_through(8, 8)).batch_size(2).workers(1).host().unwrap()
}

fn gray(batches: &mut Batches<HostBatch>, epoch: u64) -> u8 {
    let mut pixels = Vec::new();
    for batch in batches.epoch(epoch) {
        pixels.extend_from_slice(batch.unwrap().images().as_u8().unwrap());
    }
    assert_eq!(pixels.len(), 4 * 8 * 8 * 3);
    assert!(pixels.iter().all(|&byte| byte == pixels[0]));
    pixels[0]
}

#[test]
fn a_replaced_dataset_is_still_read_as_it_was_opened() {
    for (name, write) in [("x.tar", tar as fn(&Path, u8)), ("x.lmdb", lmdb)] {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(name);
        write(&path, 10);
        let mut old = open(&path);
        assert_eq!(gray(&mut old, 0), 10);
        write(&path, 200);
        assert_eq!(gray(&mut old, 1), 10, "{name}: an open dataset keeps its state");
        assert_eq!(gray(&mut open(&path), 0), 200, "{name}: reopened");
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap()
        } else {
            fs::remove_file(&path).unwrap()
        }
        assert_eq!(gray(&mut old, 2), 10, "{name}: removed");
    }
}

#[test]
fn a_modified_shard_fails_the_next_epoch() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.tar");
    tar(&path, 10);
    let mut batches = open(&path);
    assert_eq!(gray(&mut batches, 0), 10);
    let mut file = File::options().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(600)).unwrap();
    file.write_all(b"other bytes").unwrap();
    file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(2)).unwrap();
    let mut epoch = batches.epoch(1);
    let error = epoch.next().unwrap().unwrap_err();
    assert!(error.kind() == ErrorKind::Source && error.path() == Some(&path), "{error}");
    assert!(error.cause().starts_with("the file was written to while open: its modification time was 1"), "{error}");
    assert!(!error.cause().contains(" bytes"), "its length has not changed: {error}");
    assert!(epoch.all(|batch| batch.is_err()));
    drop(epoch);
    // The error persists. Unconsumed errors must not block later epochs.
    for epoch in 2..50 {
        drop(batches.epoch(epoch));
    }
    assert!(batches.epoch(50).next().unwrap().is_err());
}

#[test]
fn error_says_whether_length_or_mtime_changed() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.tar");
    tar(&path, 10);
    let old = fs::metadata(&path).unwrap().len();
    let next = |batches: &mut Batches<HostBatch>| batches.epoch(0).next().unwrap().unwrap_err().cause().to_owned();
    let time = |seconds| std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    let file = File::options().append(true).open(&path).unwrap();
    file.set_modified(time(1_700_000_000)).unwrap();
    let mut batches = open(&path);
    file.set_modified(time(1_700_000_005)).unwrap();
    let cause = next(&mut batches);
    assert!(
        cause.contains(
            "its modification time was 1700000000.000000000 when it was opened and is 1700000005.000000000 now"
        ),
        "{cause}"
    );
    let mut batches = open(&path);
    (&file).write_all(&[0; 512]).unwrap();
    let cause = next(&mut batches);
    assert!(cause.contains(&format!("it had {old} bytes when it was opened and has {} now", old + 512)), "{cause}");
}

/// In each epoch, the first worker that uses a shard checks it.
#[test]
fn a_modified_shard_fails_where_it_is_first_read() {
    let root = tempfile::tempdir().unwrap();
    let [first, second] = ["0.tar", "1.tar"].map(|name| root.path().join(name));
    tar(&first, 10);
    tar(&second, 20);
    let mut batches = open(root.path());
    assert_eq!(batches.epoch(0).filter(|batch| batch.is_ok()).count(), 4);
    let file = File::options().append(true).open(&second).unwrap();
    (&file).write_all(&[0; 512]).unwrap();
    for epoch in 1..3 {
        let mut epoch = batches.epoch(epoch);
        assert!((0..2).all(|_| epoch.next().unwrap().is_ok()), "the first shard has not changed");
        let error = epoch.next().unwrap().unwrap_err();
        assert!(error.path() == Some(&second) && error.cause().contains("written to while open"), "{error}");
        assert!(epoch.all(|batch| batch.is_err()));
    }
}

#[test]
fn no_sample_of_a_modified_shard_is_delivered() {
    let root = tempfile::tempdir().unwrap();
    let [first, second] = ["0.tar", "1.tar"].map(|name| root.path().join(name));
    tar(&first, 10);
    tar(&second, 20);
    let skip = warpfeed::OnError::Skip { max_skipped: 100 };
    let loader = Loader::new(root.path())
        .augment(Augment::pass_through(8, 8))
        .batch_size(2)
        .workers(2)
        .shuffle(3)
        .on_error(skip);
    let mut batches = loader.host().unwrap();
    assert_eq!(batches.epoch(0).filter(|batch| batch.is_ok()).count(), 4);
    let file = File::options().append(true).open(&second).unwrap();
    (&file).write_all(&[0; 512]).unwrap();
    for epoch in 1..20 {
        // A batch without a valid sample fails and ends the epoch.
        for batch in batches.epoch(epoch).flatten() {
            assert!(batch.images().as_u8().unwrap().iter().all(|&gray| gray == 10));
        }
    }
    assert_eq!(batches.sample_errors().len(), 4);
}
