//! Tests loaders on a simulated device, with kernels that are plain Rust functions.

use std::collections::VecDeque;
use std::pin::Pin;
#[cfg(target_os = "linux")]
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{self, Poll, Waker};
use std::time::Duration;

use jpeg_encoder::SamplingFactor::{F_1_1, F_1_2, F_1_4, F_2_1, F_2_2, F_4_1};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use super::*;
use crate::batch::{Feed, RunPlan, Wait};
use crate::decode::{CacheFormat, Condition, check};
use crate::device::Variant;
use crate::device::tests::coded::oriented;
use crate::device::tests::sim::{Mistake, Sim, converted};
use crate::engine::{Batches, Decoder, OnError};
use crate::error::ErrorKind;
use crate::libjpeg::with_bytes_after_segment;
use crate::loader::DecoderBuilder;
use crate::sampler::Rng;
use crate::source::{Memory as Samples, OwnedSample};
use crate::transform::{Augment, Border, ColorJitter, ImageMut, Interpolation, Mosaic, RandomAffine};
use crate::warnings::Warnings;

mod batches;
mod clips;
mod datasets;
mod epoch_boundaries;
mod failures;
mod float_images;
mod joins;
mod memory;
mod patches;
mod ranks;
mod repairs;
mod sizes;
mod split;
mod texts;
#[cfg(feature = "video")]
mod videos;

fn jpeg(number: u64, sampling: SamplingFactor, quality: u8) -> Vec<u8> {
    let mut rng = Rng::new(number, 1, 1);
    let (width, height) = (40 + rng.below(90) as u16, 40 + rng.below(90) as u16);
    let mut rgb = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let noise = rng.below(24) as u16;
            rgb.extend([x * 3 + noise, y * 2 + noise, (x ^ y) + noise].map(|v| v.min(255) as u8));
        }
    }
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, quality);
    encoder.set_sampling_factor(sampling);
    if number.is_multiple_of(3) {
        encoder.set_restart_interval(1 + number as u16 % 7);
    }
    encoder.set_progressive(number % 11 == 10);
    encoder.encode(&rgb, width, height, ColorType::Rgb).unwrap();
    bytes
}

/// Returns 48 JPEGs. The device cannot decode some of them, for example the progressive ones.
fn originals(damaged: bool) -> Vec<Vec<u8>> {
    let subsamplings = [F_1_1, F_2_1, F_2_2, F_1_2, F_4_1, F_1_4];
    let original = |n: u64| {
        let mut bytes = jpeg(n, subsamplings[n as usize % subsamplings.len()], 60 + n as u8 % 40);
        if n % 7 == 6 {
            bytes = oriented(&bytes, 1 + (n / 7 + 4) as u8 % 8);
        }
        if damaged && n % 5 == 4 {
            // The decoder loses synchronization.
            let offset = bytes.len() * 2 / 3;
            bytes[offset..offset + 6].copy_from_slice(&[0x12, 0xef, 0x55, 0xaa, 0x31, 0x77]);
        }
        bytes
    };
    (0..48).map(original).collect()
}

fn loader(originals: &[Vec<u8>]) -> Loader {
    let sample = |(n, bytes): (usize, &Vec<u8>)| {
        OwnedSample::new(format!("{n}")).field("jpg", bytes.clone()).label(n as i64 % 7)
    };
    let samples = Samples::new(originals.iter().enumerate().map(sample).collect());
    Loader::source(samples).batch_size(8).shuffle(3).workers(2).prefetch(2).augment(Augment::train(32))
}

impl<G: Gpu, B: From<ConsumerBatch<G>>> DeviceLoader<G, B> {
    fn start(&mut self, epoch: u64, first: u64) {
        self.ring.start(RunPlan::one_epoch(epoch, first..self.shared.schedule.num_batches(epoch)));
    }
}

/// Returns the pixels of each batch, and the number of images that were sent to the device.
fn on_device(loader: Loader, epoch: u64, first: u64) -> Result<(Vec<Vec<u8>>, u64)> {
    field_on_device(loader, epoch, first, None)
}

fn field_on_device(loader: Loader, epoch: u64, first: u64, name: Option<&str>) -> Result<(Vec<Vec<u8>>, u64)> {
    let sim = Sim::new(Mistake::None, 20);
    let consumer = sim.stream()?;
    let mut opened = loader.open_device::<_, ConsumerBatch<Sim>>(sim.clone(), consumer)?;
    opened.start(epoch, first);
    let mut batches = Vec::new();
    while let Some(batch) = opened.ring.next(&mut Wait::begins(&mut || Some(Duration::from_millis(100)))) {
        batches.push(pixels_of(&sim, &batch?, name));
    }
    let decoded = opened.shared.runtime.counters.stats().images_sent_to_device;
    Ok((batches, decoded))
}

fn pixels(sim: &Sim, batch: &ConsumerBatch<Sim>) -> Vec<u8> {
    pixels_of(sim, batch, None)
}

fn pixels_of(sim: &Sim, batch: &ConsumerBatch<Sim>, name: Option<&str>) -> Vec<u8> {
    sim.synchronize(&batch.shared.consumer).unwrap();
    arrived(batch, name)
}

/// Returns the image array of `batch`, or the array called `name`. The device must have finished
/// `batch`.
fn arrived(batch: &ConsumerBatch<Sim>, name: Option<&str>) -> Vec<u8> {
    let (slot, shared) = (batch.slot(), &batch.shared);
    let Variant { spec, layout, .. } = shared.variant(&slot.info);
    let images = name.map_or_else(|| spec.image_index(), |name| spec.index_of(name)).unwrap();
    let (field, (len, row)) = (&spec.arrays[images].field, spec.shape(images, &slot.info));
    let bytes = len * row.iter().product::<usize>() * field.dtype.bytes();
    let offset = slot.offset + layout.arrays[images];
    shared.memory[offset..offset + bytes].iter().map(|byte| byte.load(Relaxed)).collect()
}

fn on_host(loader: Loader, epoch: u64) -> Vec<Vec<u8>> {
    let mut batches = loader.host().unwrap();
    batches.epoch(epoch).map(|batch| batch.unwrap().images().bytes().to_vec()).collect()
}

#[test]
fn device_decoding_is_bit_identical_to_the_host() {
    for damaged in [false, true] {
        let originals = originals(damaged);
        for augment in [
            Augment::train(32),
            Augment::train(48).vertical_flip(0.5),
            Augment::eval(40, 36),
            Augment::letterbox(50, 30).fill([9, 8, 7]),
            Augment::resize(20, 70),
            Augment::random_crop(60).padding(20).pad_if_needed().fill([9, 8, 7]).flip(0.5),
            Augment::random_resize(48, 24, 90).vertical_flip(0.5),
            Augment::shortest_size(&[20, 30], 48).flip(0.5),
            Augment::pad_to(132, 131).flip(0.5),
            Augment::pad_to(50, 60).shrink_larger().vertical_flip(0.5),
        ] {
            let loader = loader(&originals).augment(augment);
            let expected = on_host(loader.clone(), 2);
            for decode_on in [DecodeOn::Cpu, DecodeOn::Gpu, DecodeOn::Auto] {
                let (batches, decoded) = on_device(loader.clone().decode_on(decode_on), 2, 0).unwrap();
                assert!(batches == expected, "{decode_on:?}, damaged {damaged}");
                match decode_on {
                    DecodeOn::Cpu => assert_eq!(decoded, 0),
                    // Workers decode the progressive images. They also decode the images with 4:1
                    // or 1:4 sampling, which are a third of all images and have one scan per
                    // component.
                    DecodeOn::Gpu => assert!(decoded > 24, "the device decoded only {decoded} of 48 images"),
                    DecodeOn::Auto => assert!(decoded > 0),
                }
            }
        }
    }
}

#[test]
fn workers_decode_images_that_only_the_host_can_resize() {
    let originals = originals(false);
    let resized_by = |filter| Augment::train(32).interpolation(filter);
    let border = |shows| Augment::random_crop(40).padding(8).padding_mode(shows).pad_if_needed();
    for (augment, host_only) in [
        (resized_by(Interpolation::BilinearExact), true),
        (resized_by(Interpolation::Bicubic), true),
        (resized_by(Interpolation::Lanczos), true),
        (resized_by(Interpolation::Nearest), true),
        (resized_by(Interpolation::Bilinear).antialias(false), true),
        (resized_by(Interpolation::Bicubic).antialias(false), true),
        (border(Border::Reflect), false),
        (border(Border::Edge), false),
        (resized_by(Interpolation::Bicubic).from_epoch(1, Augment::train(32)), false),
        (Augment::train(32).antialias(false).from_epoch(1, Augment::train(32)), false),
    ] {
        let loader = loader(&originals).augment(augment.clone());
        let expected = on_host(loader.clone(), 2);
        for decode_on in [DecodeOn::Gpu, DecodeOn::Auto] {
            let (batches, decoded) = on_device(loader.clone().decode_on(decode_on), 2, 0).unwrap();
            assert!(batches == expected, "{decode_on:?} {augment:?}");
            assert!(
                if host_only { decoded == 0 } else { decoded > 0 },
                "the device decoded {decoded} images with {augment:?}"
            );
        }
    }
}

#[test]
fn device_color_jitter_is_bit_identical_to_the_host() {
    let originals = originals(true);
    let jitter = ColorJitter::new().brightness(0.4).contrast(0.4).saturation(0.4).hue(0.1);
    let loader = loader(&originals).augment(Augment::train(32).jitter(jitter));
    let expected: Vec<Vec<u8>> = on_host(loader.clone(), 1).into_iter().map(all_converted).collect();
    for decode_on in [DecodeOn::Cpu, DecodeOn::Gpu, DecodeOn::Auto] {
        let (batches, decoded) = on_device(loader.clone().decode_on(decode_on), 1, 0).unwrap();
        assert!(batches == expected, "{decode_on:?}");
        assert!(if decode_on == DecodeOn::Gpu { decoded > 24 } else { (decoded > 0) == (decode_on != DecodeOn::Cpu) });
    }
}

#[test]
fn device_effects_are_bit_identical_to_the_host() {
    let originals = originals(true);
    let train = || Augment::train(32);
    let affine = RandomAffine::new().rotate(-40.0, 40.0).scale(0.7, 1.4).interpolation(Interpolation::Bilinear);
    for (augment, mostly_on_device) in [
        (train().rand_augment(3, 15), true),
        (train().trivial_augment_wide().solarize(100.0, 0.5), true),
        (train().timm("rand-m9-mstd0.5-inc1"), true),
        (train().three_augment().affine(affine.fill([9, 80, 200])).perspective(0.5, 0.7), true),
        (train().simclr().invert(0.3).permute_channels(0.5), true),
        (train().aug_mix(), false),
    ] {
        let loader = loader(&originals).augment(augment);
        let expected: Vec<Vec<u8>> = on_host(loader.clone(), 1).into_iter().map(all_converted).collect();
        for decode_on in [DecodeOn::Cpu, DecodeOn::Gpu] {
            let (batches, decoded) = on_device(loader.clone().decode_on(decode_on), 1, 0).unwrap();
            assert!(batches == expected, "{decode_on:?}");
            assert_eq!(decoded > 24, decode_on == DecodeOn::Gpu && mostly_on_device, "{decoded} images");
        }
    }
}

#[test]
fn device_views_are_bit_identical_to_the_host() {
    let originals = originals(true);
    let dino = Augment::dino_views(20, 12, 1);
    let plain = vec![Augment::train(32), Augment::resize(20, 70), Augment::eval(40, 36).flip(0.5)];
    let one = vec![Augment::train(24), Augment::train(16).invert(0.5)];
    for (views, converts) in [(dino, true), (plain, false), (one, true)] {
        let loader = loader(&originals).views(views.clone());
        for view in 0..views.len() {
            let name = format!("views.{view}");
            let mut batches = loader.clone().host().unwrap();
            let bytes = |batch: Result<crate::batch::HostBatch>| batch.unwrap().field(&name).unwrap().bytes().to_vec();
            let expected: Vec<Vec<u8>> = batches.epoch(1).map(bytes).collect();
            let expected = if converts { expected.into_iter().map(all_converted).collect() } else { expected };
            for decode_on in [DecodeOn::Cpu, DecodeOn::Gpu] {
                let result = field_on_device(loader.clone().decode_on(decode_on), 1, 0, Some(&name));
                let (batches, decoded) = result.unwrap();
                assert!(batches == expected, "{name} {decode_on:?}");
                assert_eq!(decoded > 24, decode_on == DecodeOn::Gpu, "{decoded} images");
            }
        }
    }
}

#[test]
fn the_device_applies_the_exif_orientation() {
    let subsamplings = [F_1_1, F_2_1, F_2_2, F_1_2, F_4_1, F_1_4];
    let upright = (0..48).filter(|n| n % 11 != 10).map(|n| jpeg(n, subsamplings[n as usize % 6], 80));
    let turned = upright.zip(0..).map(|(bytes, n)| oriented(&bytes, 2 + n % 7));
    let originals: Vec<Vec<u8>> = turned.collect();
    let loader = loader(&originals).decode_on(DecodeOn::Gpu);
    for augment in [Augment::train(48).vertical_flip(0.5), Augment::resize(20, 70), Augment::eval(40, 36)] {
        let loader = loader.clone().augment(augment);
        let (batches, decoded) = on_device(loader.clone(), 0, 0).unwrap();
        assert!(batches == on_host(loader, 0));
        assert!(decoded > 24, "{decoded}");
    }
}

fn all_converted(batch: Vec<u8>) -> Vec<u8> {
    batch.into_iter().map(|byte| converted(byte, 0)).collect()
}

#[test]
fn workers_decode_samples_with_host_only_operations() {
    let originals = originals(false);
    let plain = loader(&originals).decode_on(DecodeOn::Gpu);
    let (_, all_decoded) = on_device(plain.clone(), 0, 0).unwrap();
    let halved = plain.augment(Augment::train(32).halve(0.5).jitter(ColorJitter::new().hue(0.3)));
    let expected: Vec<Vec<u8>> = on_host(halved.clone(), 0).into_iter().map(all_converted).collect();
    let (batches, decoded) = on_device(halved, 0, 0).unwrap();
    assert!(batches == expected);
    assert!(
        decoded > 8 && decoded + 8 < all_decoded,
        "the device decoded {decoded} images, and {all_decoded} without the effect"
    );
}

#[test]
fn workers_decode_mosaics_and_the_device_decodes_the_rest() {
    let originals = originals(false);
    let plain = loader(&originals).decode_on(DecodeOn::Gpu).drop_field("label");
    let augment = || Augment::train(32).vertical_flip(0.5).jitter(ColorJitter::new().hue(0.3));
    let (_, all_decoded) = on_device(plain.clone().augment(augment()), 0, 0).unwrap();
    for (probability, range) in [(0.5, 8..all_decoded - 8), (1.0, 0..1)] {
        let mosaics = plain.clone().augment(augment().mosaic(Mosaic::new().probability(probability)));
        let expected: Vec<Vec<u8>> = on_host(mosaics.clone(), 0).into_iter().map(all_converted).collect();
        let (batches, decoded) = on_device(mosaics, 0, 0).unwrap();
        assert!(batches == expected);
        assert!(
            range.contains(&decoded),
            "the device decoded {decoded} images at {probability}, and {all_decoded} without mosaics"
        );
    }
}

#[test]
fn a_custom_transform_sends_all_samples_to_the_workers() {
    let originals = originals(false);
    let invert = |image: &mut ImageMut<'_>, _: &mut Rng| {
        image.data_mut().iter_mut().for_each(|v| *v = 255 - *v);
        Ok(())
    };
    let loader = loader(&originals).augment(Augment::train(32).jitter(ColorJitter::new().contrast(0.5)));
    let loader = loader.transform(invert).decode_on(DecodeOn::Gpu);
    let (batches, decoded) = on_device(loader.clone(), 0, 0).unwrap();
    assert!(batches == on_host(loader, 0));
    assert_eq!(decoded, 0);
}

#[cfg(target_os = "linux")]
fn niceness() -> i64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // The second field is a name in parentheses, which may contain spaces.
    let fields = stat.rsplit_once(')').unwrap().1;
    fields.split_whitespace().nth(16).unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn device_workers_have_low_priority_except_on_one_core() {
    let originals = originals(false);
    let (before, seen) = (niceness(), Arc::new(Mutex::new(Vec::new())));
    let notes = seen.clone();
    let note = move |_: &mut ImageMut<'_>, _: &mut Rng| {
        notes.lock().unwrap().push(niceness());
        Ok(())
    };
    let loader = loader(&originals).transform(note);
    on_host(loader.clone(), 0);
    let host = std::mem::take(&mut *seen.lock().unwrap());
    assert!(!host.is_empty() && host.iter().all(|nice| *nice == before), "{host:?}");
    on_device(loader.clone(), 0, 0).unwrap();
    let device = std::mem::take(&mut *seen.lock().unwrap());
    let several = std::thread::available_parallelism().unwrap().get() > 1;
    let want = if several { (before + 10).min(19) } else { before };
    assert!(!device.is_empty() && device.iter().all(|nice| *nice == want), "{device:?}");
    assert_eq!(niceness(), before, "only the workers have a lower priority");
}

#[test]
fn a_loader_reports_host_decoding_once() {
    let originals = originals(false);
    let warnings_of = |loader: Loader| {
        let warnings = Warnings::default();
        tracing::subscriber::with_default(warnings.clone(), || drop(on_device(loader, 0, 0).unwrap()));
        std::mem::take(&mut *warnings.0.lock().unwrap())
    };
    let gpu = loader(&originals).decode_on(DecodeOn::Gpu);
    let halved = Augment::train(32).halve(0.5).jitter(ColorJitter::new().hue(0.3));
    let with_transform = |loader: Loader| loader.transform(|_: &mut ImageMut<'_>, _: &mut Rng| Ok(()));
    let operation = "workers decode some images, because these operations do not run on a device: halve";
    assert_eq!(warnings_of(gpu.clone().augment(halved.clone())), [operation]);
    let transform = "workers decode all images, because a custom transform runs on the host";
    assert_eq!(warnings_of(with_transform(gpu.clone().augment(halved.clone()))), [transform]);
    let jitter = Augment::train(32).jitter(ColorJitter::new().hue(0.3));
    for quiet in [gpu.clone().augment(jitter), with_transform(gpu.clone().augment(halved).decode_on(DecodeOn::Cpu))] {
        assert!(warnings_of(quiet).is_empty());
    }
}

/// Returns the number of damaged images, and the number of images that were sent to the device.
fn damaged_on_device(loader: Loader) -> (u64, u64) {
    let sim = Sim::new(Mistake::None, 20);
    let consumer = sim.stream().unwrap();
    let DeviceLoader { ring, shared } = loader.open_device::<_, ConsumerBatch<Sim>>(sim, consumer).unwrap();
    let mut batches = Batches::new(ring, &shared);
    batches.epoch(0).for_each(|batch| drop(batch.unwrap()));
    let stats = batches.stats();
    (stats.damaged_images, stats.images_sent_to_device)
}

#[test]
fn only_images_that_workers_decode_use_the_cache() {
    let mut originals = originals(true);
    originals.truncate(20);
    for n in 0..10 {
        let pixels = image::RgbImage::from_fn(70 + n, 50, |x, y| image::Rgb([x as u8, y as u8, (x * n) as u8]));
        let mut png = std::io::Cursor::new(Vec::new());
        pixels.write_to(&mut png, image::ImageFormat::Png).unwrap();
        originals.push(png.into_inner());
    }
    let loader = loader(&originals).cache_decoded(1 << 24).epochs(0);
    let expected = [0, 1, 2].map(|epoch| on_host(loader.clone().cache_decoded(0), epoch));
    let decoders = [(DecodeOn::Cpu, false), (DecodeOn::Gpu, true), (DecodeOn::Auto, true)];
    let formats = [CacheFormat::Pixels, CacheFormat::Coefficients];
    for ((decode_on, on_device), format) in decoders.into_iter().flat_map(|on| formats.map(|format| (on, format))) {
        let sim = Sim::new(Mistake::None, 20);
        let consumer = sim.stream().unwrap();
        let loader = loader.clone().decode_on(decode_on).cache_format(format);
        let DeviceLoader { ring, shared } = loader.open_device::<_, ConsumerBatch<Sim>>(sim.clone(), consumer).unwrap();
        let mut batches = Batches::new(ring, &shared);
        for (epoch, expected) in (0..).zip(&expected) {
            let actual: Vec<_> = batches.epoch(epoch).map(|batch| pixels(&sim, &batch.unwrap())).collect();
            assert!(actual == *expected, "{decode_on:?}, epoch {epoch}");
        }
        let stats = batches.stats();
        let cache = stats.decoded_cache.unwrap();
        assert_eq!(stats.images_sent_to_device > 0, on_device, "{decode_on:?}");
        assert!(cache.hits >= 2 * 10, "{decode_on:?}: {cache:?}");
        if decode_on == DecodeOn::Gpu {
            assert_eq!(cache, crate::trace::DecodedCacheStats { hits: 20, misses: 10, images: 10, ..cache });
        }
    }
}

#[test]
fn images_that_workers_decode_for_the_device_are_counted() {
    let stats = |originals: &[Vec<u8>]| {
        let sim = Sim::new(Mistake::None, 20);
        let consumer = sim.stream().unwrap();
        let loader = loader(originals).augment(Augment::resize(70, 70)).decode_on(DecodeOn::Gpu).epochs(1);
        let DeviceLoader { ring, shared } = loader.open_device::<_, ConsumerBatch<Sim>>(sim, consumer).unwrap();
        let mut batches = Batches::new(ring, &shared);
        batches.epoch(0).for_each(|batch| drop(batch.unwrap()));
        batches.stats()
    };
    let sound = stats(&originals(false));
    assert_eq!((sound.device_failed_samples, sound.device_full_images), (0, 0));
    let damaged = stats(&originals(true));
    assert!(
        damaged.device_failed_samples > 0 && damaged.device_failed_samples <= damaged.damaged_images,
        "{damaged:?}"
    );
    assert_eq!(damaged.device_full_images, 0);
    // One image needs more memory than is reserved for the whole batch.
    let mut rng = Rng::new(1, 1, 1);
    let rgb: Vec<u8> = (0..1500 * 1500 * 3).map(|_| rng.next_u64() as u8).collect();
    let mut large = Vec::new();
    Encoder::new(&mut large, 95).encode(&rgb, 1500, 1500, ColorType::Rgb).unwrap();
    assert!(large.len() > 8 * ENCODED_BYTES_PER_IMAGE);
    let mut originals = originals(false);
    originals[5] = large;
    let full = stats(&originals);
    assert_eq!((full.device_failed_samples, full.device_full_images), (0, 1), "{full:?}");
}

#[test]
fn workers_and_the_device_report_the_same_damage_count() {
    let mut originals = originals(true);
    // End a segment early, which a full decode always detects.
    for n in [3, 8, 14] {
        let start = originals[n].windows(2).rposition(|marker| marker == [0xff, 0xda]).unwrap() + 14;
        let offset = start + (originals[n].len() - start) / 3;
        originals[n][offset..offset + 2].copy_from_slice(&[0xff, 0xd9]);
    }
    // A byte after the last MCU does not change the pixels.
    for n in [1, 7, 12] {
        assert!(matches!(check(&originals[n]), Condition::Sound));
        originals[n] = with_bytes_after_segment(&originals[n], 0, &[0x55]);
    }
    for augment in [Augment::train(32), Augment::resize(20, 70), Augment::eval(40, 36)] {
        let loader = loader(&originals).augment(augment).epochs(1);
        let mut batches = loader.clone().host().unwrap();
        batches.epoch(0).for_each(|batch| drop(batch.unwrap()));
        let expected = batches.stats().damaged_images;
        assert!(expected > 3, "{expected}");
        for decode_on in [DecodeOn::Cpu, DecodeOn::Gpu, DecodeOn::Auto] {
            let (damaged, decoded) = damaged_on_device(loader.clone().decode_on(decode_on));
            assert_eq!(damaged, expected, "{decode_on:?}");
            assert_eq!(decoded > 0, decode_on != DecodeOn::Cpu);
        }
        // A strict loader delivers no damaged image, because it replaces damaged samples.
        let skip = loader.strict(true).on_error(OnError::Skip { max_skipped: 48 });
        let mut host = skip.clone().host().unwrap();
        host.epoch(0).for_each(|batch| drop(batch.unwrap()));
        assert!(host.sample_errors().len() as u64 >= expected);
        assert_eq!(
            damaged_on_device(skip.decode_on(DecodeOn::Gpu)).0,
            0,
            "a strict loader does not let the device decode damaged images"
        );
    }
}

#[test]
fn errors_do_not_depend_on_where_images_are_decoded() {
    let mut originals = originals(true);
    for n in [5, 23, 30] {
        let half = originals[n].len() / 2;
        originals[n].truncate(half);
    }
    let loader = loader(&originals);
    let mut host = loader.clone().host().unwrap();
    let expected = host.epoch(0).find_map(Result::err).unwrap();
    let skipping = loader.clone().on_error(OnError::Skip { max_skipped: 3 });
    let replaced = on_host(skipping.clone(), 0);
    for decode_on in [DecodeOn::Gpu, DecodeOn::Auto] {
        let actual = on_device(loader.clone().decode_on(decode_on), 0, 0).unwrap_err();
        assert_eq!(actual.to_string(), expected.to_string());
        let (batches, decoded) = on_device(skipping.clone().decode_on(decode_on), 0, 0).unwrap();
        assert!(
            batches == replaced && decoded > 0,
            "{decode_on:?}: a failed sample has the image of the sample that replaced it"
        );
    }
}

#[test]
fn resumed_and_abandoned_epochs_keep_the_pixels() {
    let originals = originals(true);
    let loader = loader(&originals).decode_on(DecodeOn::Gpu);
    let expected = on_host(loader.clone(), 1);
    let (rest, _) = on_device(loader.clone(), 1, 4).unwrap();
    assert!(rest == expected[4..], "batches 4 and later are the same");
    let sim = Sim::new(Mistake::None, 200);
    let mut opened = loader.open_device::<_, ConsumerBatch<Sim>>(sim.clone(), sim.stream().unwrap()).unwrap();
    for epoch in 0..20 {
        opened.start(epoch, 0);
        for _ in 0..epoch % 4 {
            opened.ring.next(&mut Wait::begins(&mut || Some(Duration::from_millis(100)))).unwrap().unwrap();
        }
    }
}

#[test]
fn images_that_the_device_decodes_are_not_uploaded() {
    let originals: Vec<_> = (0..48).map(|n| jpeg(n, F_2_2, 80)).collect();
    let loader = loader(&originals).augment(Augment::eval(256, 224));
    let decoded_and_copied = |decode_on| {
        let sim = Sim::new(Mistake::None, 20);
        let loader = loader.clone().decode_on(decode_on);
        let mut opened = loader.open_device::<_, ConsumerBatch<Sim>>(sim.clone(), sim.stream().unwrap()).unwrap();
        opened.start(0, 0);
        while let Some(batch) = opened.ring.next(&mut Wait::begins(&mut || Some(Duration::from_millis(100)))) {
            batch.unwrap();
        }
        (
            opened.shared.runtime.counters.stats().images_sent_to_device,
            opened.ring.device_counters().stats().copied_bytes,
        )
    };
    let pixel_bytes = 48 * 224 * 224 * 3;
    let (decoded, copied) = decoded_and_copied(DecodeOn::Gpu);
    assert!(decoded >= 40 && copied < pixel_bytes / 2, "{decoded} images, {copied} of {pixel_bytes} bytes");
    let (decoded, copied) = decoded_and_copied(DecodeOn::Cpu);
    assert!(decoded == 0 && copied >= pixel_bytes, "{decoded} images, {copied} of {pixel_bytes} bytes");
}

#[test]
fn workers_decode_images_that_do_not_fit_on_the_device() {
    let mut rgb = vec![0; 1200 * 1200 * 3];
    let mut rng = Rng::new(1, 1, 1);
    rgb.iter_mut().for_each(|value| *value = rng.next_u64() as u8);
    let mut large = Vec::new();
    Encoder::new(&mut large, 90).encode(&rgb, 1200, 1200, ColorType::Rgb).unwrap();
    let mut originals = originals(false);
    originals[7] = large;
    let loader = loader(&originals).augment(Augment::eval(256, 224)).batch_size(4);
    let expected = on_host(loader.clone(), 0);
    let (batches, decoded) = on_device(loader.decode_on(DecodeOn::Gpu), 0, 0).unwrap();
    assert!(batches == expected);
    assert!((1..48).contains(&decoded), "{decoded}");
}

fn decoder(sim: &Sim) -> Decoder<ConsumerBatch<Sim>> {
    decoder_with(sim, |options| options)
}

fn decoder_with(sim: &Sim, with: impl Fn(DecoderBuilder) -> DecoderBuilder) -> Decoder<ConsumerBatch<Sim>> {
    open_decoder(sim, with).unwrap()
}

fn open_decoder(sim: &Sim, with: impl Fn(DecoderBuilder) -> DecoderBuilder) -> Result<Decoder<ConsumerBatch<Sim>>> {
    let options = Decoder::builder().batch_size(8).workers(2).augment(Augment::eval(40, 36));
    let (loader, requests) = with(options).loader()?;
    let DeviceLoader { ring, shared, .. } = loader.open_device::<_, ConsumerBatch<Sim>>(sim.clone(), sim.stream()?)?;
    Decoder::new(requests, Batches::new(ring, &shared))
}

#[test]
fn a_device_decoder_matches_the_host_and_reports_bad_images() {
    let mut originals = originals(true);
    let expected =
        on_host(Loader { sampling: Default::default(), ..loader(&originals) }.augment(Augment::eval(40, 36)), 0);
    let sim = Sim::new(Mistake::None, 20);
    let decoder = decoder(&sim);
    let ask = |originals: &[Vec<u8>]| -> Vec<_> {
        originals.chunks(8).map(|request| decoder.submit(request.to_vec()).unwrap()).collect()
    };
    for _ in 0..3 {
        for (answer, expected) in ask(&originals).into_iter().zip(&expected) {
            let batch = answer.wait().unwrap();
            assert!(pixels(&sim, &batch) == *expected && (0..8).all(|place| batch.slot().info.error(place).is_none()));
        }
    }
    let decoded = decoder.stats().images_sent_to_device;
    assert!(decoded > 3 * 24, "the device decoded only {decoded} of 144 images");
    for place in (2..48).step_by(5) {
        originals[place].truncate(200);
    }
    for (number, (answer, expected)) in ask(&originals).into_iter().zip(&expected).enumerate() {
        let batch = answer.wait().unwrap();
        let (actual, each) = (pixels(&sim, &batch), expected.len() / 8);
        let info = &batch.slot().info;
        for place in 0..8 {
            let (actual, error) = (&actual[place * each..][..each], info.error(place));
            if (8 * number + place) % 5 == 2 {
                assert!(actual.iter().all(|value| *value == 0), "a bad image is black");
                assert!(error.unwrap().to_string().starts_with(&format!("sample {place}: decode: ")));
            } else {
                assert!(error.is_none() && *actual == expected[place * each..][..each]);
            }
        }
    }
}

#[test]
fn small_requests_overlap_and_match_the_host() {
    let originals = originals(true);
    let expected =
        on_host(Loader { sampling: Default::default(), ..loader(&originals) }.augment(Augment::eval(40, 36)), 0);
    let expected = expected.concat();
    let each = expected.len() / originals.len();
    let mut rng = Rng::new(5, 0, 0);
    for (batch, sizes) in [(1, &[1][..]), (40, &[1, 1, 1, 2, 10, 11, 40])] {
        let sim = Sim::new(Mistake::None, 300);
        let decoder = decoder_with(&sim, |options| options.batch_size(batch).max_in_flight(5));
        let mut pending = VecDeque::new();
        for _ in 0..60 {
            let size = sizes[rng.below(sizes.len() as u64) as usize];
            let first = rng.below((originals.len() - size + 1) as u64) as usize;
            pending.push_back((first, decoder.submit(originals[first..first + size].to_vec()).unwrap()));
            if pending.len() > 5 {
                let (first, answer) = pending.pop_front().unwrap();
                let found = pixels(&sim, &answer.wait().unwrap());
                assert!(found == expected[first * each..][..found.len()], "{} images from {first}", found.len() / each);
            }
        }
        drop(pending);
        assert!(decoder.stats().images_sent_to_device > 20);
        assert!((2..=4).contains(&sim.most_decoding()), "{} batches at the same time", sim.most_decoding());
    }
}

#[test]
fn a_response_can_be_received_after_a_capture() {
    let originals = originals(false);
    let expected =
        on_host(Loader { sampling: Default::default(), ..loader(&originals) }.augment(Augment::eval(40, 36)), 0);
    let sim = Sim::new(Mistake::None, 20);
    let decoder = decoder(&sim);
    let stream = decoder.decode(originals[..8].to_vec()).unwrap().shared.clone();
    let mut answers: Vec<_> =
        originals.chunks(8).take(2).map(|request| decoder.submit(request.to_vec()).unwrap()).collect();
    stream.consumer.capturing.store(true, Relaxed);
    for _ in 0..3 {
        let capturing = answers[0].wait().map(drop).unwrap_err();
        assert_eq!(capturing.kind(), ErrorKind::Capturing);
        let mut context = task::Context::from_waker(Waker::noop());
        assert!(answers[1].is_ready_within(Duration::from_secs(30)));
        let Poll::Ready(Err(capturing)) = Pin::new(&mut answers[1]).poll(&mut context) else {
            panic!("the response is ready")
        };
        assert_eq!(capturing.kind(), ErrorKind::Capturing);
    }
    stream.consumer.capturing.store(false, Relaxed);
    for (answer, expected) in answers.iter().zip(&expected) {
        assert!(pixels(&sim, &answer.wait().unwrap()) == *expected);
        assert!(answer.wait().map(drop).unwrap_err().to_string().contains("has already been taken"));
    }
}

/// The program drops all batches during a capture. No further batch can be taken or dropped, so a
/// request must release them.
#[test]
fn requests_continue_after_all_batches_were_dropped_during_a_capture() {
    let (originals, sim) = (originals(false), Sim::new(Mistake::None, 5));
    let decoder =
        decoder_with(&sim, |options| options.max_in_flight(2).held_batches_timeout(Duration::from_millis(300)));
    let request = || originals[..8].to_vec();
    let batches: Vec<_> = (0..3).map(|_| decoder.decode(request()).unwrap()).collect();
    let shared = batches[0].shared.clone();
    shared.consumer.capturing.store(true, Relaxed);
    drop(batches);
    // `Capturing` would mean that the response can still be received.
    let error = decoder.decode(request()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let text = error.to_string();
    assert!(text.contains("the request waited") && text.contains("max_in_flight"), "{text}");
    assert!(text.contains("3 device slots of batches that the program has dropped"), "{text}");

    let pending = decoder.submit(request()).unwrap();
    shared.consumer.capturing.store(false, Relaxed);
    // The capture ends after the request was submitted, so the wait releases the slots.
    drop(pending.wait().unwrap());
    for _ in 0..4 {
        drop(decoder.decode(request()).unwrap());
    }
}

#[test]
fn the_device_decodes_a_request_of_one_large_image() {
    let mut large = Vec::new();
    let rgb: Vec<u8> = (0..1000 * 1000 * 3_u32).map(|i| (i / 3000 * 7 + i % 3000) as u8).collect();
    Encoder::new(&mut large, 80).encode(&rgb, 1000, 1000, ColorType::Rgb).unwrap();
    let sim = Sim::new(Mistake::None, 20);
    let (loader, requests) = Decoder::builder().batch_size(1).workers(1).loader().unwrap();
    let DeviceLoader { ring, shared, .. } =
        loader.open_device::<_, ConsumerBatch<Sim>>(sim.clone(), sim.stream().unwrap()).unwrap();
    let decoder = Decoder::new(requests, Batches::new(ring, &shared)).unwrap();
    let samples = Samples::new(vec![OwnedSample::new("x").field("jpg", large.clone())]);
    let expected = on_host(Loader::source(samples), 0);
    assert!(pixels(&sim, &decoder.decode([large]).unwrap()) == expected[0]);
    assert_eq!(decoder.stats().images_sent_to_device, 1, "a batch of one image has space for a large image");
}

#[derive(Clone)]
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        self.1.fetch_add(1, Relaxed);
        &self.0
    }
}

#[test]
fn prepared_responses_are_kept_while_every_batch_is_held() {
    let (originals, reads, sim) = (originals(false), Arc::new(AtomicUsize::new(0)), Sim::new(Mistake::None, 5));
    let expected =
        on_host(Loader { sampling: Default::default(), ..loader(&originals) }.augment(Augment::eval(40, 36)), 0);
    let decoder =
        decoder_with(&sim, |options| options.max_in_flight(2).held_batches_timeout(Duration::from_millis(400)));
    assert_eq!(decoder.memory_plan().device_slots, 3);
    let batches: Vec<_> = (0..3).map(|_| decoder.decode(originals[..8].to_vec()).unwrap()).collect();
    let counted: Vec<_> = originals[..8].iter().map(|bytes| Counted(bytes.clone(), reads.clone())).collect();
    let first = decoder.submit(counted.clone()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let behind = [(); 2].map(|()| decoder.submit(counted.clone()).unwrap());
    let error = first.wait().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("the program holds all 3 batches of the decoder"), "{error}");
    drop(batches);
    for answer in behind {
        assert!(pixels(&sim, &answer.wait().unwrap()) == expected[0]);
    }
    // One access checks the length, and one reads the bytes.
    assert_eq!(reads.load(Relaxed), 3 * 8 * 2);
}

#[test]
fn a_decoder_on_a_device_may_be_dropped_at_any_point() {
    let originals = originals(true);
    for turn in 0..20 {
        let sim = Sim::new(Mistake::None, 200);
        let decoder = decoder(&sim);
        let batch = decoder.decode(originals[..8].to_vec()).unwrap();
        let before = pixels(&sim, &batch);
        let pending: Vec<_> = originals.chunks(8).map(|request| decoder.submit(request.to_vec()).unwrap()).collect();
        std::thread::sleep(Duration::from_micros(turn * 300));
        drop(decoder);
        for answer in pending {
            if let Err(e) = answer.wait() {
                assert!(e.to_string().contains("the decoder was dropped"), "{e}");
            }
        }
        assert!(pixels(&sim, &batch) == before, "a batch that the program holds does not change");
    }
}

#[test]
fn decode_share_limits_decoding_on_the_device() {
    let loader = loader(&originals(false)).decode_on(DecodeOn::Gpu);
    let decoded = |share: f64| {
        let sim = Sim::new(Mistake::None, 20);
        let consumer = sim.stream().unwrap();
        let mut opened =
            loader.clone().decode_share(share).open_device::<_, ConsumerBatch<Sim>>(sim, consumer).unwrap();
        for epoch in 0..20 {
            opened.start(epoch, 0);
            while let Some(batch) = opened.ring.next(&mut Wait::begins(&mut || Some(Duration::from_millis(100)))) {
                batch.unwrap();
            }
        }
        opened.shared.runtime.counters.stats().images_sent_to_device
    };
    let (unlimited, some) = (decoded(1.0), decoded(0.0001));
    assert!(unlimited > 20 * 24, "the device decoded only {unlimited} of 960 images without a limit");
    assert!(some > 0 && some < unlimited / 3, "the device decoded {some} of {unlimited} images with a limit of 0.01%");
}
