//! Tests packing to LMDB and tar files, with every way to recode images. Packing must either copy
//! all samples or leave the target unchanged.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::before_read::BeforeRead;
use crate::process::child;
use image::{ImageFormat, RgbImage};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use warpfeed::decode::{Codec, Codecs, EncodedImage, Pixels, Rect, Size};
use warpfeed::format::Format;
use warpfeed::pack::{Pack, Progress, RawSize, Recode};
use warpfeed::source::{CancelToken, Memory, OwnedSample, Sample, Source, is_stopped, open};
use warpfeed::{Error, ErrorKind, Result};

fn image(seed: u32, width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        let edge = if (x / 11 + y / 17 + seed).is_multiple_of(3) { 90 } else { 0 };
        image::Rgb([(x * 2 + edge) as u8, (y * 3 + seed * 7) as u8, (x + y + edge + x * y % 5) as u8])
    })
}

fn jpeg(seed: u32, width: u16, height: u16, progressive: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 80 + (seed % 20) as u8);
    encoder.set_sampling_factor(if seed.is_multiple_of(2) { SamplingFactor::F_2_2 } else { SamplingFactor::F_1_1 });
    encoder.set_progressive(progressive);
    encoder.encode(&image(seed, width.into(), height.into()), width, height, ColorType::Rgb).unwrap();
    bytes
}

fn png(seed: u32, width: u32, height: u32) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    image(seed, width, height).write_to(&mut bytes, ImageFormat::Png).unwrap();
    bytes.into_inner()
}

fn folder(folder: &Path) -> Arc<dyn Source> {
    for i in 0..24 {
        let class = folder.join(["ant", "bee", "cat"][i % 3]);
        fs::create_dir_all(&class).unwrap();
        let (name, bytes) = match i {
            7 => (format!("{i:02}.png"), png(7, 60, 44)),
            _ => (format!("{i:02}.jpg"), jpeg(i as u32, 90 + 13 * i as u16, 70 + 7 * i as u16, i % 5 == 0)),
        };
        fs::write(class.join(name), bytes).unwrap();
    }
    fs::write(folder.join("bee/zz.jpg"), "no image").unwrap();
    open(folder).unwrap()
}

fn read_all(source: &dyn Source) -> Vec<OwnedSample> {
    let mut scratch = Vec::new();
    (0..source.len()).map(|i| OwnedSample::try_from(&source.read(i, &mut scratch).unwrap()).unwrap()).collect()
}

fn decoded(bytes: &[u8]) -> Result<(Size, Vec<u8>)> {
    let mut pixels = Pixels::new();
    let codecs = Codecs::new();
    let mut image = codecs.open(bytes)?;
    let size = image.size();
    image.decode(Rect::full(size), &mut pixels)?;
    Ok((size, pixels.data().to_vec()))
}

type Decoded = (String, Option<i64>, Option<(Size, Vec<u8>)>);

fn pixels(source: &dyn Source) -> Vec<Decoded> {
    let pixels_of = |sample: &OwnedSample| {
        let sample = sample.as_sample().unwrap();
        let image = decoded(sample.image().unwrap().1).ok();
        (sample.key().to_owned(), sample.label().unwrap(), image)
    };
    read_all(source).iter().map(pixels_of).collect()
}

fn images(source: &dyn Source) -> Vec<(String, Vec<u8>)> {
    let image_of = |s: &OwnedSample| {
        s.as_sample().unwrap().image().map(|(name, bytes)| (name.to_owned(), bytes.to_vec())).unwrap()
    };
    read_all(source).iter().map(image_of).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn folder_to_lmdb_to_tar_to_lmdb_keeps_every_pixel() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    let folder = folder(&path("images"));
    let report = Pack::new(&*folder).keep_undecodable(true).to(path("a.lmdb")).unwrap();
    assert_eq!(
        (report.samples, report.repacked_jpegs, report.unchanged, report.not_recoded_count),
        (25, 23, 1, 1),
        "{report:?}"
    );
    assert_eq!((report.undecodable_count, report.damaged_count), (1, 0));
    let a = open(path("a.lmdb")).unwrap();
    assert_eq!(a.kind(), "lmdb");
    assert!(pixels(&*a) == pixels(&*folder), "repacked");
    assert_ne!(images(&*a), images(&*folder));

    // Packing again saves no space, so the bytes do not change.
    let shards = Pack::new(&*a).keep_undecodable(true).shard_size(60_000).to(path("shards/b.tar")).unwrap();
    assert!(shards.written.paths.len() > 2, "{shards:?}");
    assert_eq!(shards.written.paths[0].file_name().unwrap(), "b-000000.tar");
    let b = open(path("shards")).unwrap();
    assert_eq!((b.kind(), read_all(&*b)), ("tar", read_all(&*a)));
    Pack::new(&*b).keep_undecodable(true).to(path("c.lmdb")).unwrap();
    let c = open(path("c.lmdb")).unwrap();
    assert_eq!(read_all(&*c), read_all(&*a));
    for set in [a, b, c] {
        assert_eq!(set.classes(), ["ant", "bee", "cat"]);
    }
    assert_eq!(names(root.path()), ["a.lmdb", "c.lmdb", "images", "shards"]);
}

#[test]
fn the_files_do_not_depend_on_the_number_of_workers() {
    let root = tempfile::tempdir().unwrap();
    let folder = folder(&root.path().join("images"));
    let pack = |workers: usize| {
        let target = root.path().join(format!("{workers}.tar"));
        let report = Pack::new(&*folder).keep_undecodable(true).workers(workers).to(&target).unwrap();
        let bytes = fs::read(target).unwrap();
        assert_eq!(report.written.bytes, bytes.len() as u64);
        bytes
    };
    let single_worker = pack(1);
    assert!(single_worker == pack(3) && single_worker == pack(16));
}

#[test]
fn keep_bytes_stores_files_unchanged() {
    let root = tempfile::tempdir().unwrap();
    let folder = folder(&root.path().join("images"));
    let report =
        Pack::new(&*folder).recode(Recode::KeepBytes).keep_undecodable(true).to(root.path().join("kept.tar")).unwrap();
    assert_eq!((report.unchanged, report.not_recoded_count, report.bytes_in), (24, 1, report.bytes_out));
    assert_eq!(read_all(&*open(root.path().join("kept.tar")).unwrap()), read_all(&*folder));
}

#[test]
fn a_broken_jpeg_is_stored_unchanged_and_listed() {
    let original = jpeg(1, 64, 64, false);
    let cut = original[..original.len() / 2].to_vec();
    let set = Memory::new(vec![
        OwnedSample::new("good").field("jpg", original),
        OwnedSample::new("cut").field("jpg", cut.clone()).field("json", "{}").label(3),
        OwnedSample::new("good").field("txt", "no image at all"),
    ]);
    let root = tempfile::tempdir().unwrap();
    for recode in [Recode::Lossless, Recode::Raw(RawSize::Shorter(32)), Recode::Quality { quality: 50, max_side: None }]
    {
        let pack = Pack::new(&set).recode(recode).force(true).keep_undecodable(true);
        let report = pack.to(root.path().join("x.lmdb")).unwrap();
        let [image] = &report.not_recoded[..] else { panic!("{report:?}") };
        assert_eq!((image.index, &*image.key, report.not_recoded_count), (1, "cut", 1));
        assert!(image.reason.starts_with("jpeg "), "{image:?}");
        assert_eq!(report.duplicate_keys, 1, "two samples have the key \"good\"");
        let packed = open(root.path().join("x.lmdb")).unwrap();
        let expected = OwnedSample::new("cut").field("jpg", cut.clone()).field("json", "{}").label(3);
        assert_eq!(read_all(&*packed)[1], expected);
    }
}

fn four_samples_two_bad() -> Memory {
    let original = jpeg(1, 64, 64, false);
    Memory::new(vec![
        OwnedSample::new("good").field("jpg", original.clone()),
        OwnedSample::new("text").field("jpg", "I am no image"),
        OwnedSample::new("cut").field("jpg", original[..original.len() / 2].to_vec()),
        OwnedSample::new("png").field("png", png(3, 20, 20)),
    ])
}

#[test]
fn undecodable_images_are_named_and_nothing_is_packed() {
    let set = four_samples_two_bad();
    let root = tempfile::tempdir().unwrap();
    for recode in [Recode::Lossless, Recode::KeepBytes, Recode::MaxSide(32), Recode::Raw(RawSize::Shorter(8))] {
        for name in ["x.lmdb", "x.tar"] {
            let mut seen = 0;
            let pack = Pack::new(&set).recode(recode).workers(2).progress(|progress| seen = progress.samples);
            let e = pack.to(root.path().join(name)).unwrap_err();
            assert_eq!((e.kind(), seen), (ErrorKind::Decode, 4), "all samples are checked: {e}");
            assert!(
                e.cause()
                    .starts_with("2 of 4 images cannot be decoded, so the pack was not finished: sample 1 (text): "),
                "{e}"
            );
            assert!(
                e.cause().contains("; sample 2 (cut): jpeg ends at byte ")
                    && e.cause().contains("keep_undecodable(true)"),
                "{e}"
            );
            assert!(names(root.path()).is_empty(), "{:?}", names(root.path()));
        }
    }
    let sound = Memory::new(vec![OwnedSample::new("a").field("jpg", jpeg(0, 50, 50, false))]);
    Pack::new(&sound).to(root.path().join("x.tar")).unwrap();
    Pack::new(&set).force(true).to(root.path().join("x.tar")).unwrap_err();
    assert_eq!(open(root.path().join("x.tar")).unwrap().len(), 1);
}

#[test]
fn keep_undecodable_keeps_and_counts_bad_images() {
    let set = four_samples_two_bad();
    let root = tempfile::tempdir().unwrap();
    for recode in [Recode::Lossless, Recode::KeepBytes, Recode::Quality { quality: 70, max_side: None }] {
        let pack = Pack::new(&set).recode(recode).force(true).keep_undecodable(true).strict(true);
        let r = pack.to(root.path().join("x.tar")).unwrap();
        assert_eq!(r.samples, r.repacked_jpegs + r.reencoded + r.raw + r.unchanged + r.not_recoded_count, "{r:?}");
        assert_eq!((r.samples, r.not_recoded_count, r.undecodable_count, r.damaged_count), (4, 2, 2, 0), "{r:?}");
        let keys: Vec<&str> = r.not_recoded.iter().map(|image| &*image.key).collect();
        assert_eq!(keys, ["text", "cut"]);
        assert_eq!(images(&*open(root.path().join("x.tar")).unwrap())[1..3], images(&set)[1..3]);
    }
}

#[test]
fn tolerated_damage_is_listed_or_an_error_when_strict() {
    let mut zeros = jpeg(1, 120, 120, false);
    let middle = zeros.len() / 2;
    zeros[middle..middle + 200].fill(0);
    let set = Memory::new(vec![
        OwnedSample::new("good").field("jpg", jpeg(2, 64, 64, false)),
        OwnedSample::new("zeros").field("jpg", zeros),
    ]);
    let root = tempfile::tempdir().unwrap();
    for (recode, refused) in [(Recode::Lossless, 1), (Recode::KeepBytes, 0), (Recode::Raw(RawSize::Shorter(8)), 0)] {
        let pack = || Pack::new(&set).recode(recode).force(true);
        let report = pack().to(root.path().join("x.tar")).unwrap();
        assert_eq!((report.damaged_count, report.not_recoded_count, report.undecodable_count), (1, refused, 0));
        assert!(report.damaged[0].key == "zeros" && report.damaged[0].reason.contains("damaged in MCU"), "{report:?}");
        let e = pack().strict(true).to(root.path().join("strict.tar")).unwrap_err();
        assert!(
            e.cause().starts_with("1 of 2 images are damaged, so the pack was not finished: sample 1 (zeros): "),
            "{e}"
        );
        assert_eq!(names(root.path()), ["x.tar"]);
    }
}

#[test]
fn quality_recodes_every_image_as_a_smaller_jpeg() {
    let root = tempfile::tempdir().unwrap();
    let folder = folder(&root.path().join("images"));
    let target = root.path().join("small.lmdb");
    let smaller = Recode::Quality { quality: 60, max_side: Some(128) };
    let report = Pack::new(&*folder).recode(smaller).keep_undecodable(true).to(&target).unwrap();
    assert_eq!((report.reencoded, report.not_recoded_count), (24, 1));
    assert!(report.bytes_out < report.bytes_in / 2, "{report:?}");
    let small = open(&target).unwrap();
    let (before, after) = (pixels(&*folder), pixels(&*small));
    for (before, (after, (name, bytes))) in before.iter().zip(after.iter().zip(images(&*small))) {
        assert_eq!((&before.0, before.1), (&after.0, after.1));
        let (Some((from, _)), Some((to, _))) = (&before.2, &after.2) else {
            assert_eq!(bytes, b"no image");
            continue;
        };
        assert_eq!(name, "jpg");
        let longer = from.width.max(from.height);
        assert_eq!(to.width.max(to.height), longer.min(128));
        assert!(bytes.windows(4).any(|w| w == [0xff, 0xdd, 0, 4]), "restart markers");
    }
}

#[test]
fn max_side_keeps_the_pixels_of_smaller_images() {
    let set = Memory::new(vec![
        OwnedSample::new("small").field("jpg", jpeg(3, 100, 80, false)),
        OwnedSample::new("large").field("jpg", jpeg(4, 200, 150, false)),
        OwnedSample::new("png").field("png", png(5, 90, 90)),
        OwnedSample::new("large png").field("png", png(6, 50, 101)),
    ]);
    let root = tempfile::tempdir().unwrap();
    let report = Pack::new(&set).recode(Recode::MaxSide(100)).to(root.path().join("x.tar")).unwrap();
    assert_eq!((report.repacked_jpegs, report.reencoded, report.unchanged), (1, 2, 1));
    let (before, after) = (pixels(&set), pixels(&*open(root.path().join("x.tar")).unwrap()));
    assert!(before[0] == after[0] && before[2] == after[2]);
    let sizes: Vec<Size> = after.iter().map(|s| s.2.as_ref().unwrap().0).collect();
    assert_eq!((sizes[1], sizes[3]), (Size::new(100, 75), Size::new(50, 100)));
}

#[test]
fn raw_arrays_hold_the_decoded_pixels() {
    let set = Memory::new(vec![
        OwnedSample::new("a").field("jpg", jpeg(3, 120, 80, true)),
        OwnedSample::new("b").field("png", png(4, 64, 64)),
    ]);
    let root = tempfile::tempdir().unwrap();
    let pack = |size| {
        let report = Pack::new(&set).recode(Recode::Raw(size)).force(true).to(root.path().join("x.lmdb")).unwrap();
        assert_eq!((report.raw, report.not_recoded_count), (2, 0));
        let packed = open(root.path().join("x.lmdb")).unwrap();
        assert!(images(&*packed).iter().all(|(name, _)| name == "rgb.npy"));
        pixels(&*packed).into_iter().map(|s| s.2.unwrap()).collect::<Vec<_>>()
    };
    let original_pixels = pixels(&set);
    let same_size = pack(RawSize::Shorter(64));
    assert!(same_size[1] == *original_pixels[1].2.as_ref().unwrap(), "an image of that size is not resized");
    assert_eq!(same_size[0].0, Size::new(96, 64));
    let exact = pack(RawSize::Exact(Size::new(48, 40)));
    assert!(exact.iter().all(|(size, pixels)| *size == Size::new(48, 40) && pixels.len() == 48 * 40 * 3));
}

#[test]
fn existing_files_are_replaced_only_with_force() {
    let root = tempfile::tempdir().unwrap();
    let set = |n: i64| Memory::new(vec![OwnedSample::new("a").field("jpg", jpeg(0, 50, 50, false)).label(n)]);
    for name in ["x.lmdb", "x.tar"] {
        let target = root.path().join(name);
        let label = || read_all(&*open(&target).unwrap())[0].as_sample().unwrap().label().unwrap();
        Pack::new(&set(1)).to(&target).unwrap();
        let refused = Pack::new(&set(2)).to(&target).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Config);
        assert!(refused.to_string().contains(name) && refused.cause().contains("exists"), "{refused}");
        assert!(refused.cause().contains("force(true)"), "{refused}");
        assert_eq!(label(), Some(1));
        Pack::new(&set(2)).force(true).to(&target).unwrap();
        assert_eq!(label(), Some(2));
    }
    assert_eq!(names(root.path()), ["x.lmdb", "x.tar"]);
}

#[test]
fn invalid_options_are_refused_before_anything_is_written() {
    let root = tempfile::tempdir().unwrap();
    let set = Memory::new(vec![OwnedSample::new("a").field("jpg", "x")]);
    let refused = |recode: Recode, name: &str| {
        let e = Pack::new(&set).recode(recode).to(root.path().join(name)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Config);
        e.cause().to_owned()
    };
    assert!(refused(Recode::Lossless, "x.zip").contains("must end in .lmdb or .tar"));
    assert!(refused(Recode::Quality { quality: 101, max_side: None }, "x.tar").contains("1 to 100"));
    assert!(refused(Recode::Quality { quality: 90, max_side: Some(0) }, "x.tar").contains("0 pixels"));
    assert!(refused(Recode::MaxSide(0), "x.tar").contains("0 pixels"));
    assert!(refused(Recode::Raw(RawSize::Shorter(0)), "x.lmdb").contains("0 pixels"));
    assert!(Pack::new(&Memory::new(vec![])).to(root.path().join("x.lmdb")).is_err(), "no samples");
    let e = Pack::new(&set).samples([0]).keys(["a"]).to(root.path().join("x.tar")).unwrap_err();
    assert_eq!((e.kind(), e.cause()), (ErrorKind::Config, "samples and keys are both set: set only one of them"));
    assert!(names(root.path()).is_empty());
}

struct Fails {
    position: usize,
    panics: bool,
}

impl Source for Fails {
    fn len(&self) -> usize {
        100
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        if index == self.position {
            assert!(!self.panics, "sample {index} is cursed");
            return Err(Error::in_source("the disk is gone"));
        }
        *scratch = png(index as u32, 20, 20);
        Sample::new("some/key").with_field("png", scratch)
    }
}

#[test]
fn an_unreadable_sample_ends_packing_and_leaves_nothing_behind() {
    let root = tempfile::tempdir().unwrap();
    for (name, panics) in [("x.lmdb", false), ("x.tar", false), ("x.lmdb", true), ("x.tar", true)] {
        let mut last = Progress::default();
        let e =
            Pack::new(&Fails { position: 60, panics }).progress(|p| last = *p).to(root.path().join(name)).unwrap_err();
        let (kind, cause) =
            if panics { (ErrorKind::Panic, "sample 60 is cursed") } else { (ErrorKind::Source, "the disk is gone") };
        assert_eq!((e.sample(), e.kind(), e.cause()), (Some(60), kind, cause));
        assert_eq!((last.samples, last.total), (60, 100), "the samples before it were written");
        assert!(names(root.path()).is_empty(), "{:?}", names(root.path()));
    }
}

/// A source with so many slow samples that packing does not end during the test. It counts its
/// reads.
struct Slow(AtomicUsize);

impl Source for Slow {
    fn len(&self) -> usize {
        1_000_000
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
        *scratch = vec![index as u8; 200_000];
        Sample::new("k").with_field("img", scratch)
    }
}

#[test]
fn packing_that_is_killed_leaves_no_file_with_the_target_name() {
    const TARGET: &str = "WARPFEED_TEST_PACK_TARGET";
    if let Some(target) = std::env::var_os(TARGET) {
        let slow = Slow(AtomicUsize::new(0));
        let pack = Pack::new(&slow).keep_undecodable(true);
        // An LMDB has no shards.
        let shards = target.to_str().is_some_and(|target| target.ends_with(".tar"));
        let _ = if shards { pack.shard_size(2_000_000) } else { pack }.to(target);
        return;
    }
    let root = tempfile::tempdir().unwrap();
    for name in ["x.lmdb", "x.tar"] {
        let folder = root.path().join(name.replace('.', "-"));
        fs::create_dir(&folder).unwrap();
        let target = folder.join(name);
        let mut child = child!(packing_that_is_killed_leaves_no_file_with_the_target_name)
            .env(TARGET, &target)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // 40 MB are more than one LMDB commit or shard.
        let begun = Instant::now();
        let written = || -> u64 {
            let files = names(&folder).into_iter().flat_map(|n| {
                let path = folder.join(n);
                if path.is_dir() { names(&path).iter().map(|n| path.join(n)).collect() } else { vec![path] }
            });
            files.filter_map(|path| fs::metadata(path).ok()).map(|m| m.len()).sum()
        };
        while written() < 40_000_000 && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(written() > 0, "the child wrote nothing");
        let names = names(&folder);
        assert!(names.iter().all(|name| name.ends_with(".partial")), "{names:?}");

        let set = Memory::new(vec![OwnedSample::new("a").field("jpg", jpeg(0, 50, 50, false))]);
        Pack::new(&set).to(&target).unwrap();
        assert_eq!(open(&target).unwrap().len(), 1);
    }
}

#[test]
fn samples_ahead_of_the_writer_are_bounded() {
    let slow = Slow(AtomicUsize::new(0));
    struct Refuses(usize);
    impl warpfeed::pack::DatasetWriter for Refuses {
        fn put(&mut self, _sample: &Sample<'_>) -> Result<()> {
            self.0 += 1;
            std::thread::sleep(Duration::from_millis(if self.0 == 20 { 300 } else { 0 }));
            if self.0 == 20 { Err(Error::in_source("disk full")) } else { Ok(()) }
        }
        fn finish(self: Box<Self>) -> Result<warpfeed::pack::Written> {
            unreachable!("packing fails earlier")
        }
    }
    let e = Pack::new(&slow).workers(2).keep_undecodable(true).to_writer(Box::new(Refuses(0))).unwrap_err();
    assert_eq!((e.sample(), e.key(), e.cause()), (Some(19), Some("k"), "disk full"));
    let read = slow.0.load(Ordering::Relaxed);
    assert!(read <= 20 + 2 * 8, "{read} samples were read for 20 that were written");
}

#[test]
fn a_bad_image_leaves_a_custom_writer_unfinished() {
    struct Counts<'a>(&'a AtomicUsize);
    impl warpfeed::pack::DatasetWriter for Counts<'_> {
        fn put(&mut self, _sample: &Sample<'_>) -> Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        fn finish(self: Box<Self>) -> Result<warpfeed::pack::Written> {
            unreachable!("two images are bad")
        }
    }
    let writes = AtomicUsize::new(0);
    let e = Pack::new(&four_samples_two_bad()).to_writer(Box::new(Counts(&writes))).unwrap_err();
    assert!(
        e.cause().starts_with("2 of 4 images cannot be decoded, so the pack was not finished: sample 1 (text): "),
        "{e}"
    );
    assert_eq!(writes.load(Ordering::Relaxed), 1);
}

/// A codec of gray images: one byte each for width and height, then one byte per pixel.
struct Tiny;

impl Codec for Tiny {
    fn format(&self) -> Format {
        let matches = |bytes: &[u8]| bytes.starts_with(b"TINY");
        Format { name: "tiny", field: "tiny", extensions: &["tiny"], matches }
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        let (Some(&width), Some(&height)) = (bytes.get(4), bytes.get(5)) else {
            return Err(Error::decode("tiny has no header"));
        };
        Ok(EncodedImage::new(bytes, Size::new(width.into(), height.into())))
    }

    fn decode(&self, image: &mut EncodedImage<'_>, _: Rect, out: &mut Pixels) -> Result<()> {
        let (gray, size) = (&image.bytes()[6..], image.size());
        if gray.len() as u64 != size.area() {
            return Err(Error::decode(format!("tiny has {} of {} pixels", gray.len(), size.area())));
        }
        let pixels = out.reset(size).as_chunks_mut().0;
        pixels.iter_mut().zip(gray).for_each(|(rgb, &gray)| *rgb = [gray; 3]);
        Ok(())
    }
}

fn tiny(pixels: u8) -> Vec<u8> {
    [&b"TINY\x04\x05"[..], &vec![pixels; usize::from(pixels)]].concat()
}

#[test]
fn images_of_a_user_defined_codec_are_checked_and_recoded() {
    let root = tempfile::tempdir().unwrap();
    let sample = |key: &str, bytes: Vec<u8>| OwnedSample::new(key).field("tiny", bytes).label(0);
    let originals = Memory::new(vec![sample("a", tiny(20)), sample("b", tiny(20))]);
    let path = root.path().join("whole.lmdb");
    let report = Pack::new(&originals).codec(Tiny).to(&path).unwrap();
    assert_eq!((report.samples, report.unchanged, report.not_recoded_count), (2, 2, 0));
    let read = read_all(&*open(&path).unwrap());
    assert_eq!(read[0].as_sample().unwrap().field("tiny").as_deref(), Some(&tiny(20)[..]));

    let cut = Memory::new(vec![sample("a", tiny(20)), sample("b", tiny(9))]);
    let error = Pack::new(&cut).codec(Tiny).to(root.path().join("cut.lmdb")).unwrap_err().to_string();
    assert!(error.contains("1 of 2 images cannot be decoded") && error.contains("tiny has 9 of 20 pixels"), "{error}");
    assert!(error.contains("sample 1 (b)"), "{error}");

    let path = root.path().join("raw.lmdb");
    let exact = Recode::Raw(RawSize::Exact(Size::new(4, 5)));
    assert_eq!(Pack::new(&originals).codec(Tiny).recode(exact).to(&path).unwrap().raw, 2);
    let read = read_all(&*open(&path).unwrap());
    let (size, pixels) = decoded(read[1].as_sample().unwrap().image().unwrap().1).unwrap();
    assert!((size.width, size.height) == (4, 5) && pixels == [20; 60]);
}

struct Shaky {
    inner: Memory,
    failures_left: AtomicUsize,
}

impl Source for Shaky {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let fails = |n: usize| n.checked_sub(1);
        if index == 1 && self.failures_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fails).is_ok() {
            scratch.resize(1000, 0xee);
            return Err(Error::in_source("the network drive is away").transient());
        }
        self.inner.read(index, scratch)
    }
}

#[test]
fn a_transient_read_error_does_not_end_packing() {
    let root = tempfile::tempdir().unwrap();
    let shaky = |failures: usize| {
        let sample = |n: u32| OwnedSample::new(format!("{n}")).field("jpg", jpeg(n, 40, 30, false)).label(0);
        Shaky { inner: Memory::new((0..4).map(sample).collect()), failures_left: AtomicUsize::new(failures) }
    };
    let path_of = |name: &str| root.path().join(name);
    assert_eq!(Pack::new(&shaky(3)).to(path_of("three.lmdb")).unwrap().samples, 4);
    let error = Pack::new(&shaky(4)).to(path_of("four.lmdb")).unwrap_err();
    assert!(error.to_string().starts_with("sample 1: ") && error.is_transient(), "{error}");
    assert_eq!(Pack::new(&shaky(1)).retries(1).to(path_of("one.lmdb")).unwrap().samples, 4);
    assert!(Pack::new(&shaky(1)).retries(0).to(path_of("none.lmdb")).is_err());
    let error = Pack::new(&shaky(0)).retries(1001).to(path_of("many.lmdb")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[test]
fn packing_stops_when_the_calling_thread_is_stopped() {
    let root = tempfile::tempdir().unwrap();
    let samples = (0..40).map(|i| OwnedSample::new(format!("{i}")).field("jpg", jpeg(i, 40, 30, false)));
    let stop = Arc::new(AtomicBool::new(false));
    let stuck = stop.clone();
    let source = BeforeRead(Memory::new(samples.collect()), move |index| {
        if index != 31 {
            return Ok(());
        }
        stuck.store(true, Ordering::SeqCst);
        while !is_stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(Error::new(ErrorKind::Io, "left").transient())
    });
    let pack = |target: &str, set: bool, change: fn(Pack<'_>) -> Pack<'_>| {
        stop.store(set, Ordering::SeqCst);
        let (stop, pack) = (stop.clone(), change(Pack::new(&source).workers(3).retries(1000)));
        let packed = CancelToken::new(move || stop.load(Ordering::SeqCst)).run(|| pack.to(root.path().join(target)));
        let e = packed.unwrap_err();
        assert!(e.kind() == ErrorKind::Io && ["left", "packing was stopped"].contains(&e.cause()), "{e}");
        fs::read_dir(root.path()).unwrap().count()
    };
    assert_eq!(pack("x.lmdb", false, |pack| pack), 0, "no file remains");
    assert_eq!(pack("x.tar", false, |pack| pack), 0);
    assert_eq!(pack("x.tar", true, |pack| pack.keys(["3"])), 0);
    pack("x.tar", false, |pack| pack.shard_samples(3));
    assert!(!root.path().join("x.manifest.json").exists());
}
