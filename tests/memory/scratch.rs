//! Tests the workers' scratch memory. The memory plan must include this memory. Only an image that
//! is larger than the shared memory may exceed the plan, and is then decoded alone. Memory for an
//! unusually large image must be freed afterward, except for each worker's share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::counting::{LIVE, PEAK};
use crate::process::serial;
use crate::support::{self, BatchContent, NumberCodec, NumberSource, exit_on_hang, reference_epoch};
use crate::tiff::tiff;
use warpfeed::decode::{Codec, Codecs, Condition, EncodedImage, Pixels, Rect, Size, check};
use warpfeed::field::{Boxes, DenseMap, Image, Patches};
use warpfeed::format::Format;
use warpfeed::source::{Memory, OwnedSample, Sample, Source};
use warpfeed::transform::{Mix, RandomErasing};
use warpfeed::{Augment, CacheFormat, Loader, Result};

pub(crate) fn peak<T>(body: impl FnOnce() -> T) -> (usize, T) {
    let before = LIVE.load(SeqCst);
    PEAK.store(before, SeqCst);
    let result = body();
    (PEAK.load(SeqCst) - before, result)
}

pub(crate) const MIB: usize = 1 << 20;
const LARGE: (u16, u16) = (6000, 4000);
const LARGE_BYTES: usize = 6000 * 4000 * 3;

fn jpeg((width, height): (u16, u16), progressive: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let pixels: Vec<u8> = (0..usize::from(width) * usize::from(height) * 3).map(|i| (i / 97 % 251) as u8).collect();
    let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 90);
    encoder.set_progressive(progressive);
    encoder.encode(&pixels, width, height, jpeg_encoder::ColorType::Rgb).unwrap();
    bytes
}

fn memory(samples: impl IntoIterator<Item = Vec<u8>>) -> Memory {
    let samples = samples.into_iter().enumerate();
    Memory::new(samples.map(|(i, bytes)| OwnedSample::new(i.to_string()).field("jpg", bytes)).collect())
}

#[derive(Clone, Default)]
struct Huge {
    decoding: Arc<AtomicUsize>,
    max_decoding: Arc<AtomicUsize>,
}

impl Codec for Huge {
    fn format(&self) -> Format {
        Format::any("huge")
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        Ok(EncodedImage::new(bytes, Size::new(LARGE.0.into(), LARGE.1.into())))
    }

    fn decode(&self, image: &mut EncodedImage<'_>, _: Rect, out: &mut Pixels) -> Result<()> {
        self.max_decoding.fetch_max(self.decoding.fetch_add(1, SeqCst) + 1, SeqCst);
        out.reset(image.size());
        std::thread::sleep(Duration::from_millis(2));
        self.decoding.fetch_sub(1, SeqCst);
        Ok(())
    }
}

/// The memory plan includes images that are split into patches.
#[test]
fn large_images_of_patches_fit_the_plan() {
    let _serial = serial();
    exit_on_hang(|| {
        let decoder = Huge::default();
        let patches = Patches::naflex().source_field("jpg").max_patches(16);
        let loader = Loader::source(memory((0..64).map(|_| vec![7; 16]))).codec(decoder.clone()).drop_field("image");
        let loader = loader.field("p", patches).batch_size(16).workers(8).memory_limit(300 * MIB);
        let (peak, plan) = peak(|| {
            let mut batches = loader.host().unwrap();
            assert_eq!(batches.epoch(0).map(|batch| batch.unwrap().len()).sum::<usize>(), 64);
            batches.memory_plan()
        });
        let (margin, max_decoding) =
            (LARGE_BYTES.saturating_sub(plan.shared_scratch_bytes), decoder.max_decoding.load(SeqCst));
        let limit = plan.host_bytes + plan.scratch_bytes + margin + 24 * MIB;
        assert!(peak <= limit && peak >= LARGE_BYTES, "{} MiB taken, {} MiB planned: {plan}", peak / MIB, limit / MIB);
        assert!(
            max_decoding <= (plan.shared_scratch_bytes / LARGE_BYTES).max(1),
            "{max_decoding} images at once: {plan}"
        );
    });
}

fn huge(decoder: &Huge, workers: usize) -> Loader {
    let samples = (0..8 * workers).map(|_| vec![7; 16]);
    Loader::source(memory(samples))
        .codec(decoder.clone())
        .augment(Augment::center_crop(8))
        .batch_size(4 * workers)
        .workers(workers)
}

#[test]
fn images_of_24_megapixels_with_64_workers_fit_the_plan() {
    let _serial = serial();
    exit_on_hang(|| {
        for limit in [None, Some(256 * MIB), Some(100 * MIB)] {
            let decoder = Huge::default();
            let loader = huge(&decoder, 64);
            let loader = if let Some(limit) = limit { loader.memory_limit(limit) } else { loader };
            let (peak, plan) = peak(|| {
                let mut batches = loader.host().unwrap();
                assert_eq!(batches.epoch(0).map(|batch| batch.unwrap().len()).sum::<usize>(), 512);
                batches.memory_plan()
            });
            let max_decoding = decoder.max_decoding.load(SeqCst);
            if let Some(limit) = limit {
                assert!(plan.host_bytes + plan.scratch_bytes <= limit, "{plan}");
            }
            // An image that exceeds the shared memory is decoded alone. 24 MiB cover threads,
            // channels, counters and keys.
            let margin = LARGE_BYTES.saturating_sub(plan.shared_scratch_bytes);
            let limit = plan.host_bytes + plan.scratch_bytes + margin + 24 * MIB;
            assert!(peak <= limit, "{} MiB taken, {} MiB planned: {plan}", peak / MIB, limit / MIB);
            assert!(
                max_decoding <= (plan.shared_scratch_bytes / LARGE_BYTES).max(1),
                "{max_decoding} images at once: {plan}"
            );
            assert!(peak >= LARGE_BYTES, "the images were not decoded");
        }
    });
}

#[test]
fn large_jpegs_stay_within_the_limit_and_their_memory_is_freed() {
    let _serial = serial();
    exit_on_hang(|| {
        let large = jpeg(LARGE, false);
        let small = jpeg((64, 48), false);
        // Without the limit, the 64 workers would decode all eight large images at once.
        let samples = (0..16).map(|i| if i % 2 == 0 { large.clone() } else { small.clone() });
        let loader =
            Loader::source(memory(samples)).augment(Augment::resize(16, 16)).batch_size(16).workers(64).prefetch(1);
        let limit = 256 * MIB;
        // Run a single epoch, so that no later epoch is prepared during the measurement.
        let mut batches = loader.memory_limit(limit).epochs(1).host().unwrap();
        let before = LIVE.load(SeqCst);
        let (peak, count) = peak(|| batches.epoch(0).map(|batch| batch.unwrap().len()).sum::<usize>());
        assert_eq!(count, 16);
        assert!(
            (LARGE_BYTES..limit).contains(&peak),
            "{} MiB taken, limit {} MiB: {}",
            peak / MIB,
            limit / MIB,
            batches.memory_plan()
        );
        let allocated = LIVE.load(SeqCst) - before;
        assert!(allocated < 24 * MIB, "{} MiB are still allocated after the large images", allocated / MIB);
    });
}

#[test]
fn small_views_of_a_large_jpeg_skip_the_area_between_them() {
    let _serial = serial();
    exit_on_hang(|| {
        let mut large = Vec::new();
        let encoder = jpeg_encoder::Encoder::new(&mut large, 90);
        encoder.encode(&vec![90; LARGE_BYTES], LARGE.0, LARGE.1, jpeg_encoder::ColorType::Rgb).unwrap();
        let views = vec![Augment::train(8).scale(0.001, 0.001); 8];
        let loader = Loader::source(memory([large])).views(views).batch_size(1).workers(1).prefetch(1);
        let limit = 24 * MIB;
        let mut batches = loader.unlabeled(true).memory_limit(limit).host().unwrap();
        let (peak, count) =
            peak(|| (0..3).map(|epoch| batches.epoch(epoch).map(|b| b.unwrap().len()).sum::<usize>()).sum::<usize>());
        assert_eq!(count, 3);
        assert!(peak < limit, "{} MiB taken, limit {} MiB: {}", peak / MIB, limit / MIB, batches.memory_plan());
    });
}

struct Same(Vec<u8>);

impl Source for Same {
    fn len(&self) -> usize {
        20_000
    }

    fn read<'a>(&'a self, _: usize, _: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        Sample::new("").with_field("bmp", &self.0)
    }
}

/// Effects on pixel values, such as erasing, need memory until the batch is complete and mixed.
#[test]
fn effects_that_wait_for_mixing_are_in_the_plan() {
    let _serial = serial();
    exit_on_hang(|| {
        let mut bmp = b"BM\x3e\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x02\0\0\0\x01\0\0\0\x01\0\x18\0".to_vec();
        bmp.extend([0; 32]);
        let augment = Augment::resize(4, 4).erase(RandomErasing::new(0.5)).mix(Mix::mixup(0.2));
        let loader = Loader::source(Same(bmp)).drop_field("label").augment(augment).batch_size(10_000);
        let before = LIVE.load(SeqCst);
        let mut batches = loader.prefetch(2).workers(2).memory_limit(48 * MIB).host().unwrap();
        let plan = batches.memory_plan();
        (0..2).for_each(|epoch| batches.epoch(epoch).for_each(|batch| assert!(batch.unwrap().mixing().is_some())));
        let held_bytes = LIVE.load(SeqCst) - before;
        // A sample's metadata (entry, key, error) is not part of the plan.
        let metadata = plan.slots * 10_000 * 128 + 2 * MIB;
        assert!(held_bytes <= plan.host_bytes + metadata, "{} MiB are held: {plan}", held_bytes / MIB);
    });
}

fn npy([height, width, channels]: [usize; 3]) -> Vec<u8> {
    let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({height}, {width}, {channels}), }}");
    let mut bytes = [&b"\x93NUMPY\x01\x00\x76\x00"[..], format!("{header:<117}\n").as_bytes()].concat();
    bytes.resize(128 + height * width * channels, 1);
    bytes
}

struct Copies(usize, Vec<(&'static str, Vec<u8>)>);

impl Source for Copies {
    fn len(&self) -> usize {
        self.0
    }

    fn read<'a>(&'a self, _: usize, _: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.1.iter().try_fold(Sample::new("copy"), |sample, (name, bytes)| sample.with_field(name, bytes))
    }
}

/// A dense map of bytes is converted to floats before it is cropped.
#[test]
fn maps_that_are_converted_stay_within_the_plan() {
    let _serial = serial();
    exit_on_hang(|| {
        // The images need little memory, and decoding is slow, so only the memory for maps can keep
        // the workers from decoding concurrently.
        let decoder = Claims { side: 600, wait: Duration::from_millis(50), ..Claims::default() };
        let fields = vec![("jpg", 1000_u64.to_le_bytes().to_vec()), ("depth.npy", npy([600, 600, 8]))];
        let loader = Loader::source(Copies(32, fields)).codec(decoder.clone()).drop_field("label");
        let loader = loader.augment(Augment::center_crop(8)).field("depth", DenseMap::with_channels(8));
        let loader = loader.batch_size(32).workers(16).prefetch(1).memory_limit(64 * MIB);
        let mut batches = loader.host().unwrap();
        let (peak, count) = peak(|| batches.epoch(0).map(|batch| batch.unwrap().len()).sum::<usize>());
        let (plan, converted, max_decoding) =
            (batches.memory_plan(), 600 * 600 * 8 * 4, decoder.huge.max_decoding.load(SeqCst));
        assert_eq!(count, 32);
        assert!(peak + MIB >= converted, "no map was converted");
        assert!(peak <= plan.scratch_bytes + 24 * MIB, "the peak is {} MiB: {plan}", peak / MIB);
        assert!(max_decoding * converted <= plan.shared_scratch_bytes, "{max_decoding} maps at a time: {plan}");
    });
}

/// The second mask of this sample is invalid, so the sample fails after its first mask has been
/// drawn at the size of the image.
#[test]
fn an_invalid_outline_leaks_no_memory() {
    let _serial = serial();
    exit_on_hang(|| {
        let masks = "[[[0, 0, 2999, 0, 2999, 1999]], {\"size\": [7, 7], \"counts\": [49]}]";
        let fields = vec![
            ("rgb.npy", npy([2000, 3000, 3])),
            ("boxes.json", b"[[0, 0, 2999, 1999], [0, 0, 2999, 1999]]".to_vec()),
            ("boxes.masks.json", masks.into()),
        ];
        let loader = Loader::source(Copies(16, fields)).augment(Augment::resize(8, 8)).drop_field("label");
        let loader = loader.field("image", Image::from_field("rgb.npy")).field("boxes", Boxes::new(2).masks());
        let mut batches = loader.batch_size(16).workers(8).prefetch(1).host().unwrap();
        let before = LIVE.load(SeqCst);
        let e = batches.epoch(0).next().unwrap().unwrap_err();
        assert!(e.to_string().contains("the run lengths are for 7x7 pixels"), "{e}");
        // Other workers may still be drawing.
        let allocated = || LIVE.load(SeqCst).saturating_sub(before);
        while allocated() >= 24 * MIB {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn an_image_larger_than_the_shared_scratch_decodes_alone() {
    let _serial = serial();
    exit_on_hang(|| {
        let decoder = Huge::default();
        let mut batches = huge(&decoder, 8).memory_limit(MIB).host().unwrap();
        assert!(batches.memory_plan().shared_scratch_bytes < LARGE_BYTES, "{}", batches.memory_plan());
        assert_eq!(batches.epoch(0).filter(|batch| batch.is_ok()).count(), 2);
        assert_eq!(decoder.max_decoding.load(SeqCst), 1);
        // Canceling an epoch must not wait for workers that are queued for shared memory.
        drop(batches.epoch(1).next());
        drop(batches);
        support::wait_for_threads(0);
    });
}

#[test]
fn batches_are_the_same_for_any_scratch_limit() {
    let _serial = serial();
    exit_on_hang(|| {
        let (samples, augment) = (200, Augment::train(16));
        let expected = reference_epoch(&NumberSource::new(samples), NumberCodec, &augment, Some(5), 0, 40);
        for spare in [0, 30_000, 1 << 30] {
            let loader =
                || support::loader(NumberSource::new(samples)).batch_size(40).shuffle(5).workers(3).prefetch(2);
            let plan = loader().host().unwrap().memory_plan();
            let min_limit = plan.host_bytes + 3 * 16 * 16 * 3;
            let mut batches = loader().memory_limit(min_limit + spare).host().unwrap();
            let scratch = batches.memory_plan().scratch_bytes;
            assert!(scratch <= spare + 3 * 16 * 16 * 3, "{}", batches.memory_plan());
            let actual: Vec<_> = batches.epoch(0).map(|batch| BatchContent::from(&batch.unwrap())).collect();
            assert_eq!(actual, expected, "with {scratch} bytes");
        }
    });
}

#[test]
fn the_cache_of_decoded_images_stays_within_its_size() {
    let _serial = serial();
    exit_on_hang(|| {
        // With small images, tables and allocations need a larger fraction of the cache.
        for (count, side) in [(200, 300), (4000, 24)] {
            let images: Vec<_> = (0..count)
                .map(|n: usize| {
                    let mut bytes = Vec::new();
                    let pixel = |i: usize| (i / 7 + n * 31) as u8 ^ (n >> 6) as u8;
                    let pixels: Vec<u8> = (0..side * side * 3).map(pixel).collect();
                    let encoder = jpeg_encoder::Encoder::new(&mut bytes, 80);
                    encoder.encode(&pixels, side as u16, side as u16, jpeg_encoder::ColorType::Rgb).unwrap();
                    bytes
                })
                .collect();
            let source = Arc::new(memory(images));
            let used = |format: CacheFormat, bytes: usize| {
                let loader = Loader::source(source.clone()).batch_size(20).augment(Augment::resize(16, 16));
                let loader = loader.drop_field("label").workers(2).prefetch(1).cache_format(format);
                let mut batches = loader.cache_decoded(bytes).host().unwrap();
                let (peak, ()) = peak(|| (0..3).for_each(|epoch| batches.epoch(epoch).for_each(|b| drop(b.unwrap()))));
                (peak, batches.stats().decoded_cache)
            };
            let (without, none) = used(CacheFormat::Pixels, 0);
            assert_eq!(none, None);
            let total = count * side * side * 3;
            for bytes in [total / 3, total / 2, 2 * total] {
                let (with, cache) = used(CacheFormat::Pixels, bytes);
                let cache = cache.unwrap();
                assert!(cache.bytes <= bytes as u64 && cache.hits > 0, "{cache:?}");
                assert!(cache.images as usize * side * side * 3 >= bytes.min(total) * 8 / 10, "{cache:?}");
                let slack = 8 * side * side * 3;
                assert!(with <= without + cache.bytes as usize + slack, "{with} with, {without} without, {cache:?}");
                let (with, compact) = used(CacheFormat::Coefficients, bytes);
                let compact = compact.unwrap();
                assert!(compact.bytes <= bytes as u64 && compact.images >= cache.images, "{compact:?}");
                assert!(
                    with <= without + compact.bytes as usize + 2 * slack,
                    "{with} with, {without} without, {compact:?}"
                );
            }
        }
    });
}

#[test]
fn estimates_cover_the_memory_that_decoders_use() {
    let _serial = serial();
    let size = (1600, 1200);
    let image = image::DynamicImage::ImageRgb8(image::RgbImage::new(size.0.into(), size.1.into()));
    let encode = |image: &image::DynamicImage, format| {
        let mut bytes = std::io::Cursor::new(Vec::new());
        image.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    };
    let png = image::ImageFormat::Png;
    let turned = |mut bytes: Vec<u8>| {
        let exif = b"\xff\xe1\0\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
        bytes.splice(2..2, exif.iter().copied());
        bytes
    };
    let mut without_eoi = jpeg(size, false);
    without_eoi.truncate(without_eoi.len() - 2);
    let mut of_four = Vec::new();
    let pixels = vec![90; usize::from(size.0) * usize::from(size.1) * 4];
    jpeg_encoder::Encoder::new(&mut of_four, 90)
        .encode(&pixels, size.0, size.1, jpeg_encoder::ColorType::Cmyk)
        .unwrap();
    let tiff_of_one_strip = |channels: u16, (bits, format): (u16, u16), photometric: u8, orientation: u16| {
        let strip_size = Size::new(size.0.into(), size.1.into());
        let values = vec![0; strip_size.area() as usize * usize::from(channels * bits / 8)];
        let mut file = tiff((strip_size, strip_size.height), &values, channels, (bits, format), 1, orientation);
        // The entry of tag 262 (PhotometricInterpretation): one value of 16 bits.
        let entry = file.windows(8).rposition(|bytes| bytes == [6, 1, 3, 0, 1, 0, 0, 0]).unwrap();
        file[entry + 8] = photometric;
        file
    };
    let kinds = [
        ("baseline", jpeg(size, false)),
        ("without EOI", without_eoi),
        ("with four components", of_four),
        ("progressive", jpeg(size, true)),
        ("turned", turned(jpeg(size, false))),
        ("progressive and turned", turned(jpeg(size, true))),
        ("png", encode(&image, png)),
        ("png with alpha", encode(&image.to_rgba8().into(), png)),
        ("16-bit png", encode(&image.to_rgba16().into(), png)),
        ("webp", encode(&image, image::ImageFormat::WebP)),
        ("gif", encode(&image, image::ImageFormat::Gif)),
        ("bmp", encode(&image, image::ImageFormat::Bmp)),
        ("tiff", encode(&image, image::ImageFormat::Tiff)),
        ("webp with alpha", encode(&image.to_rgba8().into(), image::ImageFormat::WebP)),
        ("float tiff", encode(&image.to_rgb32f().into(), image::ImageFormat::Tiff)),
        ("float tiff with alpha", encode(&image.to_rgba32f().into(), image::ImageFormat::Tiff)),
        ("float tiff in one strip", tiff_of_one_strip(3, (32, 3), 2, 1)),
        ("16-bit tiff in one strip", tiff_of_one_strip(3, (16, 1), 2, 1)),
        ("cmyk tiff in one strip", tiff_of_one_strip(4, (8, 1), 5, 1)),
        ("16-bit cmyk tiff in one strip", tiff_of_one_strip(4, (16, 1), 5, 1)),
        ("turned float tiff", tiff_of_one_strip(3, (32, 3), 2, 6)),
        ("turned 16-bit cmyk tiff", tiff_of_one_strip(4, (16, 1), 5, 6)),
    ];
    let codecs = Codecs::new().convert_to_u8(true);
    for (kind, bytes) in &kinds {
        let full = codecs.open(bytes).unwrap().size();
        for region in [Rect::full(full), Rect::new(500, 400, 600, 500)] {
            let estimate = codecs.open(bytes).unwrap().decode_memory(region) as usize;
            let decode = || {
                let mut out = Pixels::new();
                codecs.open(bytes).unwrap().decode(region, &mut out).unwrap();
                out.data().len()
            };
            // A new thread has no scratch memory yet, so all memory is counted. The margin covers
            // the thread.
            let (peak, pixels) = peak(|| std::thread::scope(|scope| scope.spawn(decode).join().unwrap()));
            assert!(
                peak >= pixels && peak <= estimate + 3 * MIB,
                "{kind}, {region:?}: {peak} bytes were allocated, but {estimate} were estimated"
            );
        }
    }
}

/// After damage is detected, the decoder keeps all coefficients until the whole image is decoded.
#[test]
fn a_damaged_image_leaves_at_most_a_workers_share_allocated() {
    let _serial = serial();
    exit_on_hang(|| {
        let mut damaged = jpeg((2400, 1800), false);
        let middle = damaged.len() / 2;
        damaged.splice(middle..middle, [0xff, 0xd0]);
        assert!(matches!(check(&damaged), Condition::Tolerated(_)), "the decoder does not tolerate the damage");
        let loader = Loader::source(memory((0..4).map(|_| damaged.clone()))).augment(Augment::resize(16, 16));
        let mut batches = loader.batch_size(2).workers(2).prefetch(1).host().unwrap();
        let (before, share) = (LIVE.load(SeqCst), batches.memory_plan().worker_scratch_bytes);
        assert_eq!(batches.epoch(0).filter(|batch| batch.is_ok()).count(), 2);
        let allocated = LIVE.load(SeqCst) - before;
        assert!(
            allocated <= 2 * share,
            "{} MiB are still allocated, but two shares are {} MiB",
            allocated / MIB,
            2 * share / MIB
        );
    });
}

/// Workers copy encoded bytes for the device, and the plan includes the copies.
#[cfg(feature = "cuda")]
#[test]
fn encoded_bytes_for_a_device_are_bounded_and_freed() {
    let _serial = serial();
    let stream = match warpfeed::cuda::stream(0) {
        Ok(stream) => stream,
        Err(e) => return crate::require::missing("cuda", e),
    };
    exit_on_hang(move || {
        let noise = |n: u32| n.wrapping_mul(2_654_435_761).rotate_left(9) as u8;
        let pixels: Vec<u8> = (0..2400 * 1600 * 3).map(noise).collect();
        let mut large = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut large, 95);
        encoder.set_restart_interval(300);
        encoder.encode(&pixels, 2400, 1600, jpeg_encoder::ColorType::Rgb).unwrap();
        assert!(large.len() > 4 * MIB, "{} bytes", large.len());
        let samples = vec![large; 64];
        let loader = Loader::source(memory(samples)).augment(Augment::resize(224, 224)).batch_size(64).workers(8);
        let mut batches = loader.prefetch(1).decode_on(warpfeed::DecodeOn::Gpu).cuda(&stream).unwrap();
        let (before, plan) = (LIVE.load(SeqCst), batches.memory_plan());
        let (peak, count) = peak(|| batches.epoch(0).map(|batch| batch.unwrap().len()).sum::<usize>());
        assert!(count == 64 && batches.stats().images_sent_to_device > 0);
        assert!(peak <= plan.scratch_bytes + 24 * MIB, "{} MiB taken: {plan}", peak / MIB);
        let allocated = LIVE.load(SeqCst) - before;
        assert!(allocated <= 8 * plan.worker_scratch_bytes + 8 * MIB, "{} MiB are kept: {plan}", allocated / MIB);
    });
}

/// A codec for samples that contain their own memory estimate.
#[derive(Clone, Default)]
struct Claims {
    side: u32,
    /// Decoding time, at least 2 ms.
    wait: Duration,
    huge: Huge,
    asked: Arc<AtomicUsize>,
}

impl Codec for Claims {
    fn format(&self) -> Format {
        Format::any("claims")
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        Ok(EncodedImage::new(bytes, Size::new(self.side, self.side)))
    }

    fn decode_memory(&self, image: &EncodedImage<'_>, _: Rect) -> u64 {
        self.asked.fetch_add(1, SeqCst);
        u64::from_le_bytes(image.bytes().try_into().unwrap())
    }

    fn decode(&self, image: &mut EncodedImage<'_>, _: Rect, out: &mut Pixels) -> Result<()> {
        self.huge.max_decoding.fetch_max(self.huge.decoding.fetch_add(1, SeqCst) + 1, SeqCst);
        out.reset(image.size());
        std::thread::sleep(self.wait.max(Duration::from_millis(2)));
        self.huge.decoding.fetch_sub(1, SeqCst);
        Ok(())
    }
}

fn claims(decoder: &Claims, claims: impl IntoIterator<Item = u64>) -> Loader {
    let source = memory(claims.into_iter().map(|bytes| bytes.to_le_bytes().to_vec()));
    Loader::source(source).codec(decoder.clone()).augment(Augment::center_crop(8)).batch_size(64).workers(4)
}

#[test]
fn an_estimate_may_be_the_maximum_integer() {
    let _serial = serial();
    exit_on_hang(|| {
        let decoder = Claims { side: 600, ..Claims::default() };
        let mut batches = claims(&decoder, (0..64).map(|i| if i % 3 == 0 { 1000 } else { u64::MAX })).host().unwrap();
        assert_eq!(batches.epoch(0).map(|batch| batch.unwrap().len()).sum::<usize>(), 64);
    });
}

#[test]
fn small_images_are_estimated_when_memory_is_scarce() {
    let _serial = serial();
    exit_on_hang(|| {
        let run = |limit: usize| {
            let decoder = Claims { side: 100, ..Claims::default() };
            let mut batches = claims(&decoder, [8 << 20; 64]).memory_limit(limit).epochs(1).host().unwrap();
            assert_eq!(batches.epoch(0).map(|batch| batch.unwrap().len()).sum::<usize>(), 64);
            (decoder.asked.load(SeqCst), decoder.huge.max_decoding.load(SeqCst), batches.memory_plan())
        };
        let (estimated, max_decoding, plan) = run(4 * MIB);
        assert!(
            (estimated, max_decoding) == (64, 1),
            "{estimated} of 64 images were estimated, {max_decoding} decoded at once: {plan}"
        );
        let (estimated, _, plan) = run(1 << 30);
        assert_eq!(estimated, 0, "eight small images fit in a worker's share: {plan}");
    });
}
