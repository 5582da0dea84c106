//! Tests samples that cannot be loaded, and user code that panics. A bad sample must fail with an
//! error that names it, or be skipped and listed. A panic must become an error. The loader must
//! stay usable.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{
    BatchContent, BeforeRead, NumberCodec, NumberSource, exit_on_hang, loader, refused, silence_panics,
};
use warpfeed::decode::{Codec, EncodedImage, Pixels, Rect};
use warpfeed::field::NdArray;
use warpfeed::format::Format;
use warpfeed::pack::{Pack, Recode};
use warpfeed::sampler::{Rng, Sampler, Sequential};
use warpfeed::source::{Concat, Memory, OwnedSample, Sample, Source};
use warpfeed::transform::ImageMut;
use warpfeed::{Augment, Error, ErrorKind, LastBatch, Loader, OnError, Result};

struct Faulty {
    is_bad: fn(u64) -> bool,
    panic: bool,
}

impl Codec for Faulty {
    fn format(&self) -> Format {
        Format::any("faulty")
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        NumberCodec.open(bytes)
    }

    fn decode(&self, original: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        let n = NumberCodec::number(original.bytes())?;
        if (self.is_bad)(n) {
            assert!(!self.panic, "cannot draw {n}");
            return Err(Error::decode(format!("{n} is bad")));
        }
        NumberCodec.decode(original, region, out)
    }
}

#[test]
fn the_first_bad_sample_in_order_is_named_for_any_workers() {
    exit_on_hang(|| {
        for workers in [1, 4] {
            for _ in 0..20 {
                let faulty = Faulty { is_bad: |n| n == 25 || n == 26 || n == 30, panic: false };
                let mut batches = loader(NumberSource::new(60)).codec(faulty).workers(workers).host().unwrap();
                let mut epoch = batches.epoch(0);
                for _ in 0..3 {
                    epoch.next().unwrap().unwrap();
                }
                let e = epoch.next().unwrap().unwrap_err();
                assert_eq!(e.to_string(), "sample 25 (class5/000025): decode: 25 is bad");
                assert_eq!((e.kind(), e.sample(), e.key()), (ErrorKind::Decode, Some(25), Some("class5/000025")));
                drop(epoch);
                assert!(batches.epoch_from(0, 5).all(|b| b.is_ok()), "a batch after the failed one fails");
            }
        }
    });
}

/// If the caller stops at the error, the checkpoint must resume at the bad sample's batch.
#[test]
fn every_other_batch_arrives_after_a_bad_sample() {
    exit_on_hang(|| {
        let reference: Vec<_> =
            loader(NumberSource::new(60)).into_iter().map(|b| BatchContent::from(&b.unwrap())).collect();
        for (workers, prefetch) in [(1, 1), (3, 4)] {
            // These samples are in batches 0, 3, 4 and 8. Batch 8 is the last one.
            let faulty = || Faulty { is_bad: |n| [2, 25, 26, 30, 59].contains(&n), panic: false };
            let open = || loader(NumberSource::new(60)).codec(faulty()).workers(workers).prefetch(prefetch);
            let mut batches = open().host().unwrap();
            for epoch in 0..2 {
                let (mut came, mut failed) = (Vec::new(), Vec::new());
                let mut items = batches.epoch(epoch);
                let mut number = 0;
                while let Some(item) = items.next() {
                    let checkpoint = items.checkpoint();
                    match item {
                        Ok(batch) => {
                            assert_eq!(batch.batch_index(), number);
                            came.push(BatchContent::from(&batch));
                        }
                        Err(e) => {
                            failed.push(e.sample().unwrap());
                            assert_eq!((checkpoint.epoch(), checkpoint.batch()), (epoch, number), "the failed batch");
                            let mut resumed = open().resume(checkpoint).host().unwrap();
                            let again = resumed.epoch(epoch).next().unwrap().unwrap_err();
                            assert_eq!(again.to_string(), e.to_string());
                        }
                    }
                    number += 1;
                }
                assert!(items.next().is_none(), "the epoch continues after its end");
                assert_eq!((number, failed), (9, vec![2, 25, 30, 59]));
                let sound = |n: &usize| ![0, 3, 4, 8].contains(n);
                let expected: Vec<_> = (0..9).filter(sound).map(|n| reference[n].ids.clone()).collect();
                assert_eq!(came.iter().map(|batch| batch.ids.clone()).collect::<Vec<_>>(), expected);
                drop(items);
                let end = batches.checkpoint();
                assert_eq!((end.epoch(), end.batch()), (epoch + 1, 0), "a failed last batch ends the epoch");
            }
            assert_eq!(batches.stats().batches, 10, "a failed batch is not counted");
        }
    });
}

#[test]
fn a_panic_in_user_code_fails_with_the_sample() {
    silence_panics();
    exit_on_hang(|| {
        let faulty = Faulty { is_bad: |n| n == 13, panic: true };
        let mut batches = loader(NumberSource::new(60)).codec(faulty).workers(3).host().unwrap();
        for _ in 0..3 {
            let e = batches.epoch(0).find_map(Result::err).unwrap();
            assert_eq!(e.to_string(), "sample 13 (class3/000013): panic: cannot draw 13");
        }
        let transform = |_: &mut ImageMut<'_>, _: &mut Rng| -> Result<()> { panic!("no transform today") };
        let e = loader(NumberSource::new(60)).transform(transform).into_iter().find_map(Result::err).unwrap();
        assert_eq!((e.kind(), e.cause(), e.sample()), (ErrorKind::Panic, "no transform today", Some(0)));
    });
}

#[test]
fn skipped_samples_are_listed_and_replaced_by_valid_ones() {
    let faulty = || Faulty { is_bad: |n| n % 10 == 0, panic: false };
    let policy = OnError::Skip { max_skipped: 1000 };
    let reference: Vec<_> =
        loader(NumberSource::new(60)).into_iter().map(|b| BatchContent::from(&b.unwrap())).collect();
    let image = 16 * 16 * 3;
    for workers in [1, 3] {
        let mut batches =
            loader(NumberSource::new(60)).codec(faulty()).on_error(policy).workers(workers).host().unwrap();
        for (batch, expected) in batches.epoch(0).zip(&reference) {
            let batch = batch.unwrap();
            assert_eq!(batch.len(), expected.ids.len(), "the batch keeps its shape");
            let (pixels, valid) = (batch.images().as_u8().unwrap(), batch.valid().collect::<Vec<_>>());
            for place in 0..batch.len() {
                assert_eq!(valid[place], expected.ids[place] % 10 != 0);
                let donor = (0..batch.len()).map(|d| (place + d) % batch.len()).find(|&p| valid[p]).unwrap();
                assert_eq!(pixels[place * image..][..image], expected.images[donor * image..][..image]);
                assert_eq!(batch.labels().unwrap()[place], expected.labels[donor]);
                assert_eq!(batch.ids().nth(place), Some(expected.ids[donor]), "the id matches the pixels");
                let key =
                    NumberSource::new(60).read(expected.ids[donor] as usize, &mut Vec::new()).unwrap().key().to_owned();
                assert_eq!(batch.sample_keys().nth(place), Some(&*key), "the key matches the pixels");
                assert_eq!(batch.error(place).and_then(Error::sample), (!valid[place]).then_some(expected.ids[place]));
            }
        }
        let faults = batches.sample_errors();
        assert_eq!(faults.iter().map(|f| f.error.sample().unwrap()).collect::<Vec<_>>(), [0, 10, 20, 30, 40, 50]);
        assert_eq!(faults[1].batch, 1);
        assert_eq!(faults[1].error.to_string(), "sample 10 (class0/000010): decode: 10 is bad");
    }
}

#[test]
fn more_failures_than_allowed_are_an_error() {
    let faulty = Faulty { is_bad: |n| n % 10 == 0, panic: false };
    let mut batches =
        loader(NumberSource::new(60)).codec(faulty).on_error(OnError::Skip { max_skipped: 2 }).host().unwrap();
    let results: Vec<_> = batches.epoch(0).collect();
    let e = results[2].as_ref().unwrap_err();
    assert_eq!((results.iter().position(Result::is_err), e.kind()), (Some(2), ErrorKind::TooManySkipped));
    assert!(e.to_string().contains("more than 2 samples failed") && e.to_string().contains("sample 20"), "{e}");

    let every_sample_fails = Faulty { is_bad: |_| true, panic: false };
    let e = loader(NumberSource::new(60))
        .codec(every_sample_fails)
        .on_error(OnError::Skip { max_skipped: 1000 })
        .into_iter()
        .next()
        .unwrap()
        .unwrap_err();
    assert!(e.to_string().contains("all 7 samples of batch 0 of epoch 0 failed"), "{e}");
}

#[test]
fn an_invalid_order_fails_and_does_not_hang() {
    silence_panics();
    struct Wild(bool);
    impl Sampler for Wild {
        fn len(&self, _: u64) -> u64 {
            40
        }
        fn index(&self, _: u64, position: u64) -> u64 {
            assert!(!self.0 || position < 14, "lost");
            position + 20
        }
    }
    exit_on_hang(|| {
        let last = |panics| {
            loader(NumberSource::new(50)).sampler(Wild(panics)).workers(2).into_iter().last().unwrap().unwrap_err()
        };
        assert_eq!(
            last(false).to_string(),
            "config: the sampler returned sample 50 in batch 4 of epoch 0; the source has only 50 samples"
        );
        assert_eq!(last(true).to_string(), "panic: the sampler panicked in epoch 0, batch 2: lost");
    });
}

/// The loader calls the sampler early, but must report its error in place of the affected batch.
#[test]
fn an_error_of_the_order_is_reported_in_sequence() {
    silence_panics();
    struct Wild(bool);
    impl Sampler for Wild {
        fn len(&self, _: u64) -> u64 {
            140
        }
        fn index(&self, _: u64, position: u64) -> u64 {
            assert!(!self.0 || position != 73, "lost");
            if position == 73 { 5000 } else { position }
        }
    }
    exit_on_hang(|| {
        for (panics, words) in [(false, "sample 5000 in batch 10 of epoch 0"), (true, "panicked in epoch 0, batch 10")]
        {
            for (workers, prefetch) in [(1, 1), (1, 8), (4, 2), (4, 8), (0, 0)] {
                let order = loader(NumberSource::new(140)).sampler(Wild(panics)).workers(workers).prefetch(prefetch);
                let mut batches = order.host().unwrap();
                let mut epoch = batches.epoch(0);
                for number in 0..10 {
                    let batch = epoch.next().unwrap();
                    let batch = batch.unwrap_or_else(|e| panic!("batch {number} with prefetch {prefetch}: {e}"));
                    assert_eq!(batch.batch_index(), number);
                }
                let e = epoch.next().unwrap().unwrap_err();
                assert!(e.to_string().contains(words), "{e}");
                assert!(epoch.next().is_none(), "the epoch continues after the error");
                assert_eq!((epoch.checkpoint().epoch(), epoch.checkpoint().batch()), (0, 10));
                drop(epoch);
                assert_eq!(batches.epoch_from(0, 11).map(|b| b.unwrap().batch_index()).collect::<Vec<_>>().len(), 9);
            }
        }
    });
}

#[test]
fn an_order_that_panics_in_len_fails() {
    silence_panics();
    struct Short;
    impl Sampler for Short {
        fn len(&self, epoch: u64) -> u64 {
            assert!(epoch != 1, "epoch 1 has no length");
            20
        }
        fn index(&self, _: u64, position: u64) -> u64 {
            position
        }
    }
    exit_on_hang(|| {
        let mut batches = loader(NumberSource::new(20)).sampler(Short).host().unwrap();
        assert_eq!(batches.epoch(0).map(Result::unwrap).count(), 3);
        assert_eq!(batches.checkpoint().epoch(), 1, "taking a checkpoint does not panic either");
        for first in [0, 2] {
            let mut epoch = batches.epoch_from(1, first);
            let e = epoch.next().unwrap().unwrap_err();
            assert_eq!(
                e.to_string(),
                "panic: the sampler panicked while computing the length of epoch 1: epoch 1 has no length"
            );
            assert!(epoch.next().is_none(), "the epoch continues after the error");
            assert_eq!((epoch.checkpoint().epoch(), epoch.checkpoint().batch()), (1, first));
        }
        assert_eq!(batches.epoch(2).map(Result::unwrap).count(), 3, "the loader stays usable");
    });
}

#[test]
fn a_bad_sample_counts_once_however_often_it_occurs() {
    exit_on_hang(|| {
        let faulty = Faulty { is_bad: |n| n == 13, panic: false };
        let policy = OnError::Skip { max_skipped: 1 };
        let mut batches = loader(NumberSource::new(60))
            .shuffle(3)
            .repeat(2)
            .batch_size(8)
            .codec(faulty)
            .on_error(policy)
            .host()
            .unwrap();
        for epoch in 0..5 {
            let invalid =
                batches.epoch(epoch).map(|b| b.unwrap().valid().filter(|valid| !valid).count()).sum::<usize>();
            assert_eq!((invalid, batches.sample_errors().len()), (2, 1), "epoch {epoch}");
        }
        let faults = batches.sample_errors();
        assert_eq!(
            (faults[0].epoch, faults[0].error.sample()),
            (0, Some(13)),
            "the sample is listed at its first occurrence"
        );
    });
}

#[test]
fn the_list_of_skipped_samples_is_bounded() {
    exit_on_hang(|| {
        let faulty = Faulty { is_bad: |n| n % 3 == 0, panic: false };
        let mut batches =
            loader(NumberSource::new(60)).codec(faulty).on_error(OnError::Skip { max_skipped: 4 }).host().unwrap();
        for epoch in 0..3 {
            for first in 0..9 {
                let _ = batches.epoch_from(epoch, first).count();
            }
            let listed: Vec<_> = batches.sample_errors().iter().map(|f| f.error.sample().unwrap()).collect();
            assert_eq!(listed, [0, 3, 6, 9, 12], "the list has the permitted number of samples, and one more");
        }
        let e = batches.epoch(5).next().unwrap().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::TooManySkipped, "the error remains: {e}");
    });
}

#[test]
fn a_loader_without_a_batch_is_refused_with_advice() {
    let refused = |loader: Loader, words: &[&str]| {
        let e = loader.host().map(|_| "opened").unwrap_err();
        assert!(e.kind() == ErrorKind::Config && words.iter().all(|w| e.to_string().contains(w)), "{e}");
    };
    let make = || loader(NumberSource::new(500));
    refused(
        make().batch_size(1000).last_batch(LastBatch::Drop),
        &["500 samples", "1000", "lower batch_size", "LastBatch::Keep"],
    );
    refused(make().batch_size(200).rank(1, 3).last_batch(LastBatch::Drop), &["500 samples", "batch of 600", "3 ranks"]);
    refused(make().sampler(Sequential::new(0)), &["the order has no samples in epoch 0"]);
    assert!(make().batch_size(500).last_batch(LastBatch::Drop).host().is_ok());

    struct Once;
    impl Sampler for Once {
        fn len(&self, epoch: u64) -> u64 {
            if epoch == 0 { 10 } else { 0 }
        }
        fn index(&self, _: u64, position: u64) -> u64 {
            position
        }
    }
    let mut batches = make().sampler(Once).host().unwrap();
    assert_eq!((batches.epoch(0).count(), batches.epoch(1).count()), (2, 0), "later epochs may be empty");
    let state = batches.checkpoint();
    assert_eq!(make().sampler(Once).resume(state).into_iter().count(), 0, "a run may resume in an empty epoch");
    silence_panics();
    struct Lost;
    impl Sampler for Lost {
        fn len(&self, _: u64) -> u64 {
            panic!("no list")
        }
        fn index(&self, _: u64, position: u64) -> u64 {
            position
        }
    }
    let e = make().sampler(Lost).host().map(|_| "opened").unwrap_err();
    assert_eq!(e.to_string(), "panic: the sampler panicked while computing the length of epoch 0: no list");
}

/// The loader must not take a source's `Timeout` error for its own timeout and continue to wait.
#[test]
fn a_source_timeout_fails_its_batch_like_any_error() {
    exit_on_hang(|| {
        let source = BeforeRead(NumberSource::new(60), |index| match index {
            20 => Err(Error::new(ErrorKind::Timeout, "no answer for 3 s")),
            _ => Ok(()),
        });
        let loader = Loader::source(source).codec(NumberCodec).augment(Augment::train(16)).batch_size(7);
        let mut batches = loader.host().unwrap();
        let mut epoch = batches.epoch(0);
        assert!(epoch.by_ref().take(2).all(|batch| batch.is_ok()));
        let e = epoch.next().unwrap().unwrap_err();
        assert_eq!((e.kind(), e.sample()), (ErrorKind::Timeout, Some(20)));
        assert_eq!(epoch.checkpoint().batch(), 2);
        assert_eq!(epoch.next().unwrap().unwrap().batch_index(), 3, "the failed batch is not repeated");
    });
}

#[test]
fn impossible_options_are_refused_when_opening() {
    use warpfeed::{Dtype, Normalize};
    let make = || loader(NumberSource::new(10));
    refused(make().batch_size(0), "batch_size(0)");
    refused(make().dtype(Dtype::I64), "int64");
    refused(make().dtype(Dtype::U8).normalize(Normalize::IMAGENET), "normalize needs dtype");
    refused(make().normalize(Normalize { mean: [0.0; 3], std: [1.0, 0.0, 1.0] }), "no std may be 0");
    let bytes = Normalize { mean: [123.0, 116.0, 103.0], std: [58.0, 57.0, 57.0] };
    refused(make().normalize(bytes), "mean [0.482, 0.455, 0.404] and std [0.227, 0.224, 0.224]");
    let twice = || NdArray::new(Dtype::F32, [1]);
    refused(make().field("emb", twice()).field("emb", twice()), "duplicate field");
    refused(make().drop_field("emb"), "drop_field(\"emb\")");
    refused(make().batch_size(usize::MAX), "larger than the address space");
    let nothing: [(&str, f64); 0] = [];
    refused(Loader::mixture(nothing), "mixture: expected at least one dataset");
    assert_eq!(
        loader(NumberSource::new(0)).host().unwrap_err().to_string(),
        "source: the custom source has no samples"
    );
}

fn jpeg() -> Vec<u8> {
    let mut bytes = Vec::new();
    jpeg_encoder::Encoder::new(&mut bytes, 90).encode(&[99; 3072], 32, 32, jpeg_encoder::ColorType::Rgb).unwrap();
    bytes
}

/// Writes images with ImageNet's file extension, one of them truncated, as a folder, a tar and an
/// LMDB. Returns the paths of the truncated image and of both packed files.
fn one_cut_short(root: &Path) -> [PathBuf; 3] {
    let set = root.join("set");
    for (name, bytes) in [("a/good.JPEG", jpeg()), ("a/trunc.JPEG", jpeg()), ("b/good.JPEG", jpeg())] {
        let path = set.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let cut = bytes.len() / if name.contains("trunc") { 2 } else { 1 };
        fs::write(path, &bytes[..cut]).unwrap();
    }
    let pack = |name: &str| {
        let source = warpfeed::source::open(&set).unwrap();
        let pack = Pack::new(&*source).recode(Recode::KeepBytes).keep_undecodable(true);
        pack.to(root.join(name)).unwrap().written.paths[0].clone()
    };
    [set.join("a/trunc.JPEG"), pack("x.tar"), pack("x.lmdb")]
}

#[test]
fn a_failed_sample_reports_its_file() {
    let root = tempfile::tempdir().unwrap();
    let files = one_cut_short(root.path());
    let sets = ["set", "x.tar", "x.lmdb"].map(|name| root.path().join(name));
    let open = |path: &PathBuf| warpfeed::source::open(path).unwrap();
    let check = |e: Error, sample, file: &PathBuf| {
        assert_eq!((e.kind(), e.sample(), e.key()), (ErrorKind::Decode, Some(sample), Some("a/trunc")));
        assert_eq!(e.path(), Some(&**file), "{e}");
        assert!(file.exists() && e.to_string().contains(file.to_str().unwrap()), "{e}");
    };
    for (set, file) in sets.iter().zip(&files) {
        check(Loader::new(set).augment(Augment::resize(8, 8)).into_iter().find_map(Result::err).unwrap(), 1, file);
    }
    // The error must name the file in the dataset that contains the sample.
    let joined = Concat::new(sets.iter().map(open).collect()).unwrap();
    let mut batches = Loader::source(joined)
        .augment(Augment::resize(8, 8))
        .on_error(OnError::Skip { max_skipped: 3 })
        .host()
        .unwrap();
    assert!(batches.epoch(0).all(|batch| batch.is_ok()));
    for ((fault, sample), file) in batches.sample_errors().into_iter().zip([1, 4, 7]).zip(&files) {
        check(fault.error, sample, file);
    }
}

#[test]
fn a_missing_label_is_named_with_key_and_file_when_balancing() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("x.jpg"), jpeg()).unwrap();
    let e = Loader::new(root.path()).balanced().host().unwrap_err();
    assert_eq!((e.sample(), e.key(), e.path()), (Some(0), Some("x"), Some(&*root.path().join("x.jpg"))), "{e}");
    let e =
        Loader::source(Memory::new(vec![OwnedSample::new("k").field("jpg", jpeg())])).balanced().host().unwrap_err();
    assert_eq!(e.to_string(), "sample 0 (k): source: no label, but balanced() requires one");
}

#[test]
fn a_source_that_panics_in_path_does_not_hide_the_error() {
    struct Lost;
    impl Source for Lost {
        fn len(&self) -> usize {
            1
        }
        fn read<'a>(&'a self, _: usize, _: &'a mut Vec<u8>) -> Result<Sample<'a>> {
            Err(Error::in_source("gone"))
        }
        fn path(&self, _: usize) -> Option<PathBuf> {
            panic!("no path")
        }
    }
    silence_panics();
    let e = Loader::source(Lost).into_iter().find_map(Result::err).unwrap();
    assert_eq!(e.to_string(), "sample 0: source: gone");
}

/// A sampler with a `len` that returns 60 for the first `self.1` calls, and 20 afterward.
struct Shrinks(AtomicU64, u64);

impl Sampler for Shrinks {
    fn len(&self, _epoch: u64) -> u64 {
        if self.0.fetch_add(1, Ordering::SeqCst) < self.1 { 60 } else { 20 }
    }

    fn index(&self, _epoch: u64, position: u64) -> u64 {
        position
    }
}

#[test]
fn an_order_that_shrinks_during_an_epoch_fails() {
    exit_on_hang(|| {
        let mut failures = 0;
        for times in 1..12 {
            for first in [0, 2] {
                let order = Shrinks(AtomicU64::new(0), times);
                let mut batches = loader(NumberSource::new(60)).batch_size(20).sampler(order).host().unwrap();
                let epoch = batches.epoch_from(0, first);
                let max_batches = epoch.size_hint().1.unwrap();
                let results: Vec<_> = epoch.collect();
                let failed = results.last().is_some_and(Result::is_err);
                assert!(
                    failed || results.len() == max_batches,
                    "asked {times} times, from {first}: {} of {max_batches}",
                    results.len()
                );
                failures += u32::from(failed);
            }
        }
        assert!(failures > 0);
    });
}
