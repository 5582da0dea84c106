//! Tests that the cache of decoded images changes neither batches nor errors nor damage counts. It
//! must stay within its size, and a changed image must be decoded again.

use std::collections::BTreeSet;
use std::fs;
use std::io::Cursor;
use std::sync::Arc;

use warpfeed::decode::{Codecs, Condition, check};
use warpfeed::field::{Boxes, Image, Mask};
use warpfeed::sampler::Rng;
use warpfeed::source::{Frames, Memory, OwnedSample, Sample, Source};
use warpfeed::transform::{CopyPaste, ImageMut, Mix, Mosaic};
use warpfeed::{Augment, Batches, CacheFormat, Dtype, ErrorKind, HostBatch, Loader, OnError, Result};

use crate::views::originals;

const ALL: usize = 64 << 20;

fn others() -> Vec<Vec<u8>> {
    use image::{DynamicImage, ImageFormat};
    let (width, height) = (90, 70);
    let rgba: Vec<u8> = (0..width * height * 4).map(|i: u32| (i.wrapping_mul(i) / 29) as u8).collect();
    let rgba = DynamicImage::from(image::RgbaImage::from_raw(width, height, rgba).unwrap());
    let encode = |image: DynamicImage, format| {
        let mut bytes = Cursor::new(Vec::new());
        image.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    };
    let rgb = DynamicImage::from(rgba.to_rgb8());
    vec![
        encode(rgba.clone(), ImageFormat::Png),
        encode(rgba.clone(), ImageFormat::WebP),
        encode(DynamicImage::from(rgba.to_rgba8()), ImageFormat::Gif),
        encode(DynamicImage::from(rgba.to_luma8()), ImageFormat::Png),
        encode(DynamicImage::from(rgba.to_luma_alpha8()), ImageFormat::Png),
        encode(DynamicImage::from(rgba.to_luma8()), ImageFormat::Jpeg),
        encode(DynamicImage::from(rgba.to_rgb16()), ImageFormat::Png),
        encode(DynamicImage::from(rgba.to_luma16()), ImageFormat::Tiff),
        encode(rgb.clone(), ImageFormat::Bmp),
        encode(rgb, ImageFormat::Tiff),
    ]
}

fn dataset() -> Arc<Memory> {
    let files = originals().into_iter().map(|(_, file)| file).chain(others());
    let sample = |(number, file): (usize, Vec<u8>)| {
        OwnedSample::new(number.to_string()).field("img", file).label(number as i64 % 3)
    };
    Arc::new(Memory::new(files.enumerate().map(sample).collect()))
}

fn sound(count: usize) -> Arc<Memory> {
    let sample = |number: usize| {
        let (width, height) = (60 + number as u16 * 3, 110 - number as u16);
        let jpeg = |seed: u64| {
            let mut rng = Rng::new(number as u64, seed, 1);
            let rgb: Vec<u8> = (0..u32::from(width) * u32::from(height) * 3)
                .map(|i| (i / 13 + number as u32 * 40) as u8 ^ rng.below(16) as u8)
                .collect();
            crate::jpeg(&rgb, (width, height), number % 3 == 2, number as u16 % 4)
        };
        let mask = image::GrayImage::from_fn(width.into(), height.into(), |x, y| image::Luma([(x ^ y) as u8 / 16]));
        let mut png = Cursor::new(Vec::new());
        mask.write_to(&mut png, image::ImageFormat::Png).unwrap();
        OwnedSample::new(number.to_string())
            .field("jpg", jpeg(1))
            .field("depth.jpg", jpeg(2))
            .field("mask.png", png.into_inner())
            .field("boxes.txt", "4 4 40 40")
            .field("boxes.masks.json", "[[[4,4,40,4,40,40,4,40]]]")
            .label(number as i64 % 3)
    };
    Arc::new(Memory::new((0..count).map(sample).collect()))
}

type Content = std::result::Result<(Vec<Vec<u8>>, Vec<String>, Vec<bool>), String>;

fn content(batch: Result<HostBatch>) -> Content {
    let batch = batch.map_err(|e| e.to_string())?;
    let names: Vec<String> = batch.fields().map(|field| field.name.clone()).collect();
    let bytes = |name: &String| batch.field(name).unwrap().bytes().to_vec();
    Ok((names.iter().map(bytes).collect(), batch.sample_keys().map(str::to_owned).collect(), batch.valid().collect()))
}

fn run(batches: &mut Batches<HostBatch>, epochs: u64) -> (Vec<Content>, Vec<String>, u64) {
    let contents = (0..epochs).flat_map(|epoch| batches.epoch(epoch).map(content).collect::<Vec<_>>()).collect();
    let mut errors: Vec<_> = batches.sample_errors().iter().map(|failed| failed.error.to_string()).collect();
    errors.sort();
    (contents, errors, batches.stats().damaged_images)
}

/// Asserts that caches of several sizes and both formats change nothing in three epochs. Every
/// cache of more than one byte must also be used.
fn assert_unchanged(loader: &Loader, name: &str) {
    let expected = run(&mut loader.clone().workers(1).host().unwrap(), 3);
    let caches = [(1, ALL), (3, ALL), (3, 300_000), (2, 1)].map(|cache| (CacheFormat::Pixels, cache));
    let compact = [(1, ALL), (3, ALL), (3, 300_000)].map(|cache| (CacheFormat::Coefficients, cache));
    for (format, (workers, bytes)) in caches.into_iter().chain(compact) {
        let loader = loader.clone().workers(workers).cache_decoded(bytes).cache_format(format);
        let mut batches = loader.host().unwrap();
        let actual = run(&mut batches, 3);
        assert!(actual == expected, "{name}: {workers} workers, {bytes} bytes of {format:?}");
        let cache = batches.stats().decoded_cache.unwrap();
        assert!(cache.bytes <= bytes as u64 && cache.capacity_bytes == bytes as u64, "{name}: {cache:?}");
        assert_eq!(cache.hits > 0, bytes > 1, "{name}: {cache:?}");
        assert!(cache.misses > 0, "{name}: {cache:?}");
    }
}

#[test]
fn a_cache_of_decoded_images_changes_neither_batches_nor_faults() {
    let skip = OnError::Skip { max_skipped: 1000 };
    let loader = Loader::source(dataset()).batch_size(7).shuffle(3).seed(9).on_error(skip);
    for (name, augment) in [
        ("crops", Augment::train(40)),
        ("small crops", Augment::train(24).scale(0.02, 0.2)),
        ("whole images", Augment::resize(33, 31)),
        ("padding", Augment::random_crop(36).padding(6).pad_if_needed().rotate(20.0)),
    ] {
        let loader = loader.clone().augment(augment);
        assert_unchanged(&loader, name);
        assert_unchanged(&loader.clone().convert_to_u8(true).background([9, 200, 3]).channels(1), name);
        assert_unchanged(&loader.strict(true), name);
    }
}

#[test]
fn ranks_with_caches_make_the_same_batches() {
    for rank in 0..2 {
        let loader = Loader::source(sound(20)).batch_size(3).shuffle(3).augment(Augment::train(40)).rank(rank, 2);
        assert_unchanged(&loader, "ranks");
    }
}

#[test]
fn only_sound_compressed_images_are_cached() {
    let loader = Loader::source(dataset()).batch_size(1).on_error(OnError::Skip { max_skipped: 1000 });
    let loader = loader.augment(Augment::resize(40, 40)).convert_to_u8(true).cache_decoded(ALL);
    let fill = |format| {
        let mut batches = loader.clone().cache_format(format).host().unwrap();
        run(&mut batches, 3);
        batches.stats().decoded_cache.unwrap()
    };
    let cache = fill(CacheFormat::Pixels);
    let files: BTreeSet<_> = originals().into_iter().map(|(_, file)| file).chain(others()).collect();
    let is_sound = |file: &Vec<u8>| matches!(check(file), Condition::Sound);
    let size = |file: &Vec<u8>| Codecs::new().open(file).map_or(0, |image| image.size().area() * 3);
    let sound = files.iter().filter(|file| is_sound(file)).count();
    let cached = files.iter().filter(|file| is_sound(file) && (file.len() as u64) < size(file)).count();
    assert!(cached < sound && sound + 9 < files.len());
    assert_eq!(cache.images as usize, cached, "{cache:?}");
    assert!(cache.hits >= 2 * cache.images, "{cache:?}");
    let compact = fill(CacheFormat::Coefficients);
    assert!(compact.bytes < cache.bytes, "{compact:?}, {cache:?}");
    assert_eq!(compact.images, cache.images);
}

#[test]
fn a_run_with_cached_coefficients_resumes() {
    let loader = Loader::source(sound(20)).batch_size(3).shuffle(3).augment(Augment::train(40)).workers(2);
    let expected = run(&mut loader.clone().host().unwrap(), 3).0;
    let loader = loader.cache_decoded(ALL).cache_format(CacheFormat::Coefficients);
    let mut batches = loader.clone().host().unwrap();
    let mut contents: Vec<_> = batches.epoch(0).map(content).collect();
    contents.extend(batches.epoch(1).take(2).map(content));
    let mut batches = loader.host().unwrap();
    contents.extend(batches.epoch_from(1, 2).map(content));
    contents.extend(batches.epoch(2).map(content));
    assert!(contents == expected);
}

/// Idle workers help to decode a large image.
#[test]
fn a_large_packed_image_is_cached_as_coefficients() {
    let large: Vec<u8> = (0..2600 * 1800 * 3).map(|i: u32| (i / 7 % 251) as u8 ^ (i % 3) as u8).collect();
    let large = crate::jpeg(&large, (2600, 1800), false, 4);
    let files: Vec<_> = (0..40).map(|n| if n == 30 { large.clone() } else { originals()[0].1.clone() }).collect();
    let sample = |(n, file)| OwnedSample::new(format!("{n}")).field("jpg", file).label(1);
    let source = Arc::new(Memory::new(files.into_iter().enumerate().map(sample).collect()));
    let loader = Loader::source(source).batch_size(4).augment(Augment::train(40));
    assert_unchanged(&loader, "a large image");
    let mut batches = loader.workers(3).cache_decoded(ALL).cache_format(CacheFormat::Coefficients).host().unwrap();
    run(&mut batches, 2);
    let cache = batches.stats().decoded_cache.unwrap();
    assert_eq!(cache.images, 2, "{cache:?}");
    assert!(cache.bytes < 2600 * 1800 * 2, "{cache:?}");
}

fn invert(image: &mut ImageMut<'_>, rng: &mut Rng) -> Result<()> {
    image.data_mut().iter_mut().for_each(|v| *v = (255 - *v) ^ rng.below(2) as u8);
    Ok(())
}

#[test]
fn all_uses_of_images_work_with_a_cache() {
    let loader = Loader::source(sound(20)).batch_size(6).shuffle(3).augment(Augment::train(40));
    let masked = loader.clone().field("mask", Mask::new(Dtype::I64));
    let boxes = Boxes::new(4).masks();
    let pasted = loader.clone().drop_field("label").field("boxes", boxes);
    let pasted = pasted.augment(Augment::scale_jitter(32, 0.8, 1.5).copy_paste(CopyPaste::new()));
    let local = || Augment::train(24).scale(0.02, 0.2);
    for (name, loader) in [
        ("two image fields", masked.clone().field("depth", Image::from_field("depth.jpg"))),
        ("masks", masked),
        ("views", loader.clone().views([Augment::train(40), local(), local(), local()])),
        ("mosaics", loader.clone().drop_field("label").augment(Augment::letterbox(32, 32).mosaic(Mosaic::new()))),
        ("pasted objects", pasted),
        ("mixing", loader.clone().soft_labels(3, 0.1).augment(Augment::train(40).mix(Mix::mixup(0.2)))),
        ("custom transforms", loader.clone().transform(invert)),
        ("a subset", loader.clone().subset((0..9).collect::<Vec<_>>())),
        ("weights", loader.clone().weights((0..20).map(|id| f64::from(id % 3)))),
        ("repetitions", loader.repeat(3)),
    ] {
        assert_unchanged(&loader, name);
    }
}

#[test]
fn the_frames_of_clips_are_cached() {
    let images = originals();
    let clip =
        |first: usize| -> Vec<Vec<u8>> { images.iter().map(|(_, file)| file).skip(first).take(11).cloned().collect() };
    let clips = [clip(0), clip(8), clip(16), vec![images[0].1.clone(); 11]];
    let sample = |frames: &Vec<Vec<u8>>| OwnedSample::new("clip").field("top", Frames::encode(frames)).label(1);
    let source = Arc::new(Memory::new(clips.iter().map(sample).collect()));
    let loader = Loader::source(source).batch_size(1).field("image", Image::from_field("top").frames(11));
    let loader = loader.on_error(OnError::Skip { max_skipped: 9 });
    assert_unchanged(&loader.clone().augment(Augment::train(40)), "crops");
    assert_unchanged(&loader.clone().augment(Augment::resize(40, 40)), "whole frames");
    assert_unchanged(&loader.augment(Augment::train(40)).strict(true), "strict");
}

#[test]
fn a_changed_file_is_never_served_from_the_cache() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("class")).unwrap();
    let path = |number: usize| root.path().join(format!("class/{number}.jpg"));
    let source = sound(8);
    let mut scratch = Vec::new();
    let mut file = |number: usize, name: &str| {
        source.read(number, &mut scratch).unwrap().bytes_named(|have| have == name).unwrap().1.to_vec()
    };
    for number in 0..8 {
        fs::write(path(number), file(number, "jpg")).unwrap();
    }
    let loader = Loader::new(root.path()).batch_size(4).augment(Augment::train(40)).epochs(0);
    let mut batches = loader.clone().cache_decoded(ALL).host().unwrap();
    run(&mut batches, 2);
    // The sample's second image has the same size and a different content.
    for number in [2, 5] {
        fs::write(path(number), file(number, "depth.jpg")).unwrap();
    }
    assert!(run(&mut batches, 2).0 == run(&mut loader.host().unwrap(), 2).0);
    let cache = batches.stats().decoded_cache.unwrap();
    assert_eq!((cache.images, cache.misses), (10, 10), "{cache:?}");
}

struct Changes(Arc<Memory>, std::sync::atomic::AtomicUsize);

impl Source for Changes {
    fn len(&self) -> usize {
        4
    }

    fn read<'a>(&'a self, _: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let number = self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.0.read(number, scratch)
    }
}

#[test]
fn samples_that_change_without_notice_are_decoded_again() {
    let run = |bytes: usize| {
        let source = Changes(sound(12), 0.into());
        let loader = Loader::source(source).batch_size(4).augment(Augment::train(40)).workers(1).epochs(0);
        let loader = loader.drop_field("label").cache_decoded(bytes);
        run(&mut loader.host().unwrap(), 3).0
    };
    assert!(run(ALL) == run(0));
}

#[test]
fn the_cache_is_part_of_the_memory_plan() {
    let loader = || Loader::source(sound(9)).batch_size(3).augment(Augment::train(40));
    let plan = |loader: Loader| loader.host().unwrap().memory_plan();
    let (without, with) = (plan(loader()), plan(loader().cache_decoded(ALL)));
    assert_eq!((without.decoded_cache_bytes, with.decoded_cache_bytes), (0, ALL));
    assert_eq!(with.scratch_bytes, without.scratch_bytes + ALL);
    assert!(with.to_string().ends_with(", 64.0 MiB for decoded images"), "{with}");
    let e = loader().cache_decoded(ALL).memory_limit(32 << 20).workers(1).prefetch(1).host().expect_err("too large");
    assert_eq!(e.kind(), ErrorKind::Memory);
    let text = e.to_string();
    assert!(text.contains(", and 64.0 MiB for decoded images; memory_limit is 32.0 MiB: cache_decoded("), "{text}");
    let fits: usize = text.split(['(', ')']).nth(1).unwrap().parse().unwrap();
    let fits_cache = |bytes| loader().cache_decoded(bytes).memory_limit(32 << 20).workers(1).prefetch(1).host().is_ok();
    assert!(fits_cache(fits) && !fits_cache(fits + 1), "{text}");
}

#[test]
fn a_decoder_has_no_cache() {
    let decoder = Loader::source(sound(1)).cache_decoded(ALL).decoder().augment(Augment::train(16)).host().unwrap();
    assert_eq!(decoder.memory_plan().decoded_cache_bytes, 0);
    assert_eq!(decoder.stats().decoded_cache, None);
}
