//! Tests that the device decodes images to the same bits as the host, with the same errors and
//! replacements, however the images are divided between the two.
//!
//! `WARPFEED_PHOTOS=PATH[:PATH..]` adds datasets to compare, and `WARPFEED_BATCHES=10000` sets how
//! many batches of each are compared. `WARPFEED_DAMAGED=FOLDER` names a folder with damaged files.
//! `WARPFEED_SANITIZE=1`, for `benches/sanitize.sh`, uses fewer images and skips a long test.
#![cfg(feature = "cuda")]
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use crate::device::{noisy_gradient, stream};
use jpeg_encoder::SamplingFactor::{F_1_1, F_1_2, F_1_4, F_2_1, F_2_2, F_4_1};
use jpeg_encoder::{ColorType, Encoder};
use warpfeed::cuda::cudarc::driver::CudaStream;
use warpfeed::pack::repack_jpeg;
use warpfeed::sampler::Rng;
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::transform::{ColorJitter, ImageMut, Mix, RandomErasing};
use warpfeed::{Augment, Batches, CudaBatch, DecodeOn, Dtype, Layout, Loader, Normalize, OnError};

fn random_jpegs(count: u64, damaged: bool) -> Vec<Vec<u8>> {
    let original = |n: u64| {
        let mut rng = Rng::new(n, 7, 7);
        let (width, height) = (1 + rng.below(300) as u16, 1 + rng.below(300) as u16);
        let pixels = noisy_gradient(&mut rng, width, height);
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, 30 + (n % 70) as u8);
        encoder.set_sampling_factor([F_1_1, F_2_1, F_2_2, F_1_2, F_4_1, F_1_4][n as usize % 6]);
        encoder.set_optimized_huffman_tables(n % 4 == 1);
        if n.is_multiple_of(2) {
            encoder.set_restart_interval(1 + rng.below(20) as u16);
        }
        encoder.set_progressive(n % 23 == 22);
        let gray = n % 13 == 12;
        let pixels = if gray { pixels.chunks(3).map(|p| p[0]).collect() } else { pixels };
        let colors = if gray { ColorType::Luma } else { ColorType::Rgb };
        encoder.encode(&pixels, width, height, colors).unwrap();
        if n % 5 == 2 {
            let entry = [0x12, 1, 3, 0, 1, 0, 0, 0, 1 + (n / 5 % 8) as u8, 0, 0, 0];
            let body = [&b"Exif\0\0II*\0\x08\0\0\0\x01\0"[..], &entry, &[0; 4]].concat();
            let marker = [&[0xff, 0xe1], &(body.len() as u16 + 2).to_be_bytes()[..], &body].concat();
            bytes.splice(2..2, marker);
        }
        // Damage the entropy-coded data, so that a decoder loses synchronization.
        let data = bytes.windows(2).position(|marker| marker == [0xff, 0xda]).unwrap() + 14;
        let offset = data + (bytes.len() - data) * 3 / 4;
        if damaged && n % 4 == 3 && offset + 8 < bytes.len() {
            bytes[offset..offset + 4].copy_from_slice(&[0x12, 0xef, 0x55, 0xaa]);
        }
        bytes
    };
    (0..count).map(original).collect()
}

fn loader(images: &[Vec<u8>]) -> Loader {
    let sample = |(n, bytes): (usize, &Vec<u8>)| OwnedSample::new(format!("{n}")).field("jpg", bytes.clone()).label(1);
    let samples = Memory::new(images.iter().enumerate().map(sample).collect());
    Loader::source(samples).batch_size(32).shuffle(3)
}

/// Compares two epochs with the host. Returns how many images the workers sent to the device,
/// including images prefetched for later epochs.
fn compare(loader: &Loader, stream: &Arc<CudaStream>, decode_on: DecodeOn, what: &str) -> u64 {
    compared(loader, stream, decode_on, what).stats().images_sent_to_device
}

fn compared(loader: &Loader, stream: &Arc<CudaStream>, decode_on: DecodeOn, what: &str) -> Batches<CudaBatch> {
    let mut host = loader.clone().host().unwrap();
    let mut device = loader.clone().decode_on(decode_on).cuda(stream).unwrap();
    for epoch in 0..2 {
        let mut count = 0;
        for (a, b) in host.epoch(epoch).zip(device.epoch(epoch)) {
            let (a, b) = (a.unwrap(), b.unwrap());
            let (expected, actual) = (a.images().bytes(), b.images().download().unwrap());
            if expected != actual {
                let each = expected.len() / a.len();
                let keys: Vec<_> = (0..a.len())
                    .filter(|i| expected[i * each..][..each] != actual[i * each..][..each])
                    .map(|i| a.sample_keys().nth(i).unwrap().to_owned())
                    .collect();
                panic!("{what}, {decode_on:?}, batch {count} of epoch {epoch}: samples {keys:?} differ");
            }
            assert!(a.valid().eq(b.valid()) && a.sample_keys().eq(b.sample_keys()), "{what}");
            count += 1;
        }
        assert!(count > 0);
    }
    device
}

/// Returns the mean number of images per epoch that the workers decode, if an epoch is one batch.
/// Waits for prefetching to stop, because until then a batch may be partly counted.
fn decoded_by_workers(device: &Batches<CudaBatch>, batch: u64) -> u64 {
    let mut stats = device.stats();
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = device.stats();
        if now.prepared_samples == stats.prepared_samples {
            break;
        }
        stats = now;
    }
    let epochs = stats.prepared_samples / batch;
    assert!(
        epochs >= 2 && stats.prepared_samples == epochs * batch,
        "{} samples of batches of {batch}",
        stats.prepared_samples
    );
    (stats.prepared_samples - stats.images_sent_to_device).div_ceil(epochs)
}

const DTYPES: [Dtype; 4] = [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::Bf16];

fn sanitize() -> bool {
    std::env::var_os("WARPFEED_SANITIZE").is_some()
}

fn augments() -> [(&'static str, Augment); 5] {
    [
        ("train", Augment::train(96)),
        ("flips", Augment::train(61).vertical_flip(0.5)),
        ("eval", Augment::eval(128, 112)),
        ("letterbox", Augment::letterbox(150, 90).fill([9, 80, 7])),
        ("resize", Augment::resize(40, 300)),
    ]
}

#[test]
fn every_jpeg_type_decodes_to_equal_bits_on_device_and_host() {
    let Some(stream) = stream() else { return };
    for damaged in [false, true] {
        let images = random_jpegs(if sanitize() { 48 } else { 192 }, damaged);
        for (name, augment) in augments().into_iter().take(if sanitize() { 2 } else { 5 }) {
            let loader = loader(&images).augment(augment);
            for decode_on in [DecodeOn::Gpu, DecodeOn::Auto] {
                let decoded = compare(&loader, &stream, decode_on, name);
                let (total, min_decoded) = (2 * images.len() as u64, 2 * images.len() as u64 / 3);
                assert!(
                    decode_on == DecodeOn::Auto || decoded > min_decoded,
                    "{name}: the device decoded {decoded} of {total}"
                );
            }
        }
    }
}

fn large() -> Vec<u8> {
    let (width, height) = (6000, 4000);
    let noise = |i: u32| (i.wrapping_mul(2_654_435_761) >> 28) as u8;
    let pixel = |i: u32| [(i % width / 40) as u8 + noise(i), (i / width / 30) as u8 + noise(i + 1), noise(i / 7) * 5];
    let pixels: Vec<u8> = (0..width * height).flat_map(pixel).collect();
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 80);
    encoder.set_sampling_factor(F_2_2);
    encoder.encode(&pixels, width as u16, height as u16, ColorType::Rgb).unwrap();
    bytes
}

#[test]
fn whole_images_of_24_megapixels_are_decoded_on_the_device() {
    let Some(stream) = stream() else { return };
    if sanitize() {
        return crate::require::missing("quick", "the test takes minutes under a sanitizer");
    }
    let (large, mut packed) = (large(), Vec::new());
    repack_jpeg(&large, &mut packed).unwrap();
    let mut images = random_jpegs(200, false);
    let loader_of = |images: &[Vec<u8>]| loader(images).batch_size(images.len()).augment(Augment::resize(224, 224));
    let small = decoded_by_workers(&compared(&loader_of(&images), &stream, DecodeOn::Gpu, "small"), 200);
    images.extend([large, packed]);
    let large = decoded_by_workers(&compared(&loader_of(&images), &stream, DecodeOn::Gpu, "large"), 202);
    // A loader of large images reserves more space for encoded bytes, so more small images may fit.
    assert!(large <= small, "workers decode {large} images of an epoch, but only {small} without the large images");
    compare(&loader_of(&images), &stream, DecodeOn::Auto, "large");
}

#[test]
fn device_decoded_images_are_erased_mixed_and_normalized() {
    let Some(stream) = stream() else { return };
    let images = random_jpegs(128, true);
    for dtype in DTYPES {
        for layout in [Layout::Nhwc, Layout::Nchw] {
            let augment = Augment::train(64).erase(RandomErasing::new(0.5)).mix(Mix::either(0.4, 1.0));
            let loader = loader(&images).augment(augment).soft_labels(10, 0.0).dtype(dtype).layout(layout);
            let loader = if dtype == Dtype::U8 { loader } else { loader.normalize(Normalize::IMAGENET) };
            compare(&loader, &stream, DecodeOn::Gpu, &format!("{dtype:?} {layout:?}"));
            let erased = loader.augment(Augment::train(64).erase(RandomErasing::new(0.5)));
            compare(&erased, &stream, DecodeOn::Gpu, &format!("erased, {dtype:?} {layout:?}"));
        }
    }
}

#[test]
fn the_device_jitters_colors_wherever_an_image_was_decoded() {
    let Some(stream) = stream() else { return };
    let images = random_jpegs(if sanitize() { 48 } else { 128 }, true);
    let jitter = ColorJitter::new().brightness(0.4).contrast(0.4).saturation(0.4).hue(0.1);
    for (dtype, layout) in DTYPES.into_iter().flat_map(|d| [(d, Layout::Nhwc), (d, Layout::Nchw)]) {
        let augment = Augment::train(65).jitter(jitter.clone());
        let erased = augment.clone().erase(RandomErasing::new(0.5)).mix(Mix::either(0.4, 1.0));
        for augment in [augment, erased] {
            let loader = loader(&images).augment(augment).soft_labels(10, 0.0).dtype(dtype).layout(layout);
            let loader = if dtype == Dtype::U8 { loader } else { loader.normalize(Normalize::IMAGENET) };
            for decode_on in [DecodeOn::Cpu, DecodeOn::Gpu, DecodeOn::Auto] {
                let decoded = compare(&loader, &stream, decode_on, &format!("{dtype:?} {layout:?}"));
                assert_eq!(decoded > 0, decode_on != DecodeOn::Cpu);
            }
        }
    }
}

#[test]
fn each_epoch_has_its_size_wherever_an_image_was_decoded() {
    let Some(stream) = stream() else { return };
    let images = random_jpegs(if sanitize() { 48 } else { 128 }, true);
    let edits: [fn(Augment) -> Augment; 2] = [
        |plain| plain,
        |plain| {
            plain.jitter(ColorJitter::new().contrast(0.4)).erase(RandomErasing::new(0.5)).mix(Mix::either(0.4, 1.0))
        },
    ];
    for (dtype, layout) in DTYPES.into_iter().flat_map(|d| [(d, Layout::Nhwc), (d, Layout::Nchw)]) {
        for edit in edits {
            for (first, second) in
                [(Augment::train(64), Augment::resize(41, 190)), (Augment::train(65), Augment::eval(40, 32))]
            {
                let augment = edit(first.flip(0.5)).from_epoch(1, edit(second));
                let loader = loader(&images).augment(augment).soft_labels(10, 0.0).dtype(dtype).layout(layout);
                let loader = if dtype == Dtype::U8 { loader } else { loader.normalize(Normalize::IMAGENET) };
                for decode_on in [DecodeOn::Cpu, DecodeOn::Gpu, DecodeOn::Auto] {
                    let decoded = compare(&loader, &stream, decode_on, &format!("{dtype:?} {layout:?}"));
                    assert_eq!(decoded > 0, decode_on != DecodeOn::Cpu);
                }
            }
        }
    }
}

#[test]
fn a_decoding_gpu_leaves_one_of_16_cores_to_other_threads() {
    let Some(stream) = stream() else { return };
    let workers =
        |decode_on| loader(&random_jpegs(4, false)).decode_on(decode_on).cuda(&stream).unwrap().stats().workers;
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(workers(DecodeOn::Cpu), cores);
    assert_eq!([DecodeOn::Gpu, DecodeOn::Auto].map(workers), [cores - cores / 16; 2]);
}

#[test]
fn with_custom_transforms_workers_decode_and_log_the_reason() {
    let Some(stream) = stream() else { return };
    let images = random_jpegs(32, false);
    let invert = |image: &mut ImageMut<'_>, _: &mut Rng| {
        image.data_mut().iter_mut().for_each(|v| *v = 255 - *v);
        Ok(())
    };
    let loader = loader(&images).augment(Augment::train(64)).transform(invert);
    let warnings = crate::warnings::Warnings::default();
    let decoded =
        tracing::subscriber::with_default(warnings.clone(), || compare(&loader, &stream, DecodeOn::Gpu, "inverted"));
    let expected = "workers decode all images, because a custom transform runs on the host";
    assert_eq!((decoded, &warnings.0.lock().unwrap()[..]), (0, &[expected.to_owned()][..]));
}

#[test]
fn faults_and_replacements_equal_those_of_the_host() {
    let Some(stream) = stream() else { return };
    let mut images = random_jpegs(96, true);
    for n in [5, 40, 77] {
        let half = images[n].len() / 2;
        images[n].truncate(half);
    }
    let loader = loader(&images).augment(Augment::train(64));
    let error = |message: Option<warpfeed::Error>| message.expect("three files are truncated").to_string();
    let expected = error(loader.clone().host().unwrap().epoch(0).find_map(Result::err));
    let mut device = loader.clone().decode_on(DecodeOn::Gpu).cuda(&stream).unwrap();
    assert_eq!(error(device.epoch(0).find_map(Result::err)), expected);
    compare(&loader.on_error(OnError::Skip { max_skipped: 3 }), &stream, DecodeOn::Gpu, "skipped");
}

fn with_bytes_after_segment(jpeg: &[u8], first: bool, rest: &[u8]) -> Vec<u8> {
    let data = jpeg.windows(2).position(|marker| marker == [0xff, 0xda]).unwrap() + 2;
    let mut ends = (data..jpeg.len() - 1).filter(|&offset| jpeg[offset] == 0xff && jpeg[offset + 1] != 0);
    let offset = if first { ends.next() } else { ends.next_back() }.unwrap();
    [&jpeg[..offset], rest, &jpeg[offset..]].concat()
}

#[test]
fn bits_after_the_last_mcu_count_as_damage_on_device_and_host() {
    let Some(stream) = stream() else { return };
    let mut images = random_jpegs(96, false);
    for (n, original) in images.iter_mut().enumerate().filter(|(n, _)| n % 3 == 1) {
        let rest = [&[0x55][..], &[0xff, 0], &[0; 2000]][n / 3 % 3];
        *original = with_bytes_after_segment(original, n % 2 == 0, rest);
    }
    for (name, augment) in augments() {
        let loader = loader(&images).augment(augment);
        compare(&loader, &stream, DecodeOn::Gpu, name);
        let mut host = loader.clone().host().unwrap();
        host.epoch(0).for_each(|batch| drop(batch.unwrap()));
        let mut device = loader.decode_on(DecodeOn::Gpu).cuda(&stream).unwrap();
        device.epoch(0).for_each(|batch| drop(batch.unwrap()));
        let (expected, actual) = (host.stats().damaged_images, device.stats().damaged_images);
        assert!(actual == expected && actual > 5, "{name}: {actual} are damaged on the device, {expected} on the host");
    }
}

/// Half of the images are valid, so that no batch of the shuffled images is likely to fail
/// completely.
#[test]
fn files_given_by_the_environment_decode_as_on_the_host() {
    let Some(stream) = stream() else { return };
    let Ok(folder) = std::env::var("WARPFEED_DAMAGED") else {
        return crate::require::missing("damaged", "WARPFEED_DAMAGED is not set to a folder");
    };
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let files = files.iter().filter(|file| file.is_file()).take(if sanitize() { 64 } else { usize::MAX });
    let files: Vec<Vec<u8>> = files.map(|file| std::fs::read(file).unwrap()).collect();
    assert!(!files.is_empty(), "the folder has no files");
    let images: Vec<Vec<u8>> =
        random_jpegs(files.len() as u64, false).into_iter().zip(files).flat_map(<[_; 2]>::from).collect();
    let loader = loader(&images).on_error(OnError::Skip { max_skipped: u64::MAX });
    for (name, augment) in augments().into_iter().take(if sanitize() { 1 } else { 5 }) {
        assert!(compare(&loader.clone().augment(augment), &stream, DecodeOn::Gpu, name) > 0);
    }
}

#[test]
fn photographs_are_equal_for_every_device_share() {
    let Some(stream) = stream() else { return };
    let Ok(paths) = std::env::var("WARPFEED_PHOTOS") else {
        return crate::require::missing("photographs", "WARPFEED_PHOTOS is not set to a dataset");
    };
    let batches = std::env::var("WARPFEED_BATCHES").map_or(20, |n| n.parse().unwrap());
    for path in paths.split(':') {
        for (name, augment) in [("train", Augment::train(224)), ("eval", Augment::eval(256, 224))] {
            let passes = if name == "train" { batches * 64 / 500 + 1 } else { 1 };
            let loader = Loader::new(path).batch_size(64).shuffle(5).repeat(passes as u64).augment(augment);
            let mut host = loader.clone().host().unwrap();
            let open = |decode_on| loader.clone().decode_on(decode_on).cuda(&stream).unwrap();
            let (mut gpu, mut auto) = (open(DecodeOn::Gpu), open(DecodeOn::Auto));
            let mut count = 0;
            for ((a, b), c) in host.epoch(1).zip(gpu.epoch(1)).zip(auto.epoch(1)).take(batches) {
                let (a, b, c) = (a.unwrap(), b.unwrap(), c.unwrap());
                assert!(
                    b.images().download().unwrap() == a.images().bytes(),
                    "{path} {name}: batch {count} on the GPU"
                );
                assert!(c.images().download().unwrap() == a.images().bytes(), "{path} {name}: batch {count}, balanced");
                count += 1;
            }
            let (gpu, auto) = (gpu.stats(), auto.stats());
            println!(
                "{path} {name}: {count} batches of 64; {} of {} images on the device, balanced {} of {}",
                gpu.images_sent_to_device, gpu.prepared_samples, auto.images_sent_to_device, auto.prepared_samples
            );
            assert!(gpu.images_sent_to_device > 0);
        }
    }
}
