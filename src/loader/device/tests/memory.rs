//! Tests the memory that a worker uses for an image that the device decodes.

use super::*;
use crate::batch::SlotMemory;
use crate::engine::{DeviceImages, EngineConfig, images_left_to_device, memory_after_fill, redecode_memory};

/// A JPEG of random noise, about 3 MB in size.
fn noise() -> Vec<u8> {
    let mut rng = Rng::new(1, 1, 1);
    let rgb: Vec<u8> = (0..1000 * 1000 * 3).map(|_| rng.next_u64() as u8).collect();
    let mut noise = Vec::new();
    Encoder::new(&mut noise, 98).encode(&rgb, 1000, 1000, ColorType::Rgb).unwrap();
    noise
}

fn open(loader: Loader) -> EngineConfig {
    let host = loader.images.format(Layout::Nhwc).unwrap();
    let space = DecodeSpace { images: 1, bytes: ENCODED_BYTES_PER_IMAGE, blocks: BLOCKS_PER_IMAGE };
    let split = DeviceSplit { on_device: true, decode: Some(space), retouches: false, has_records: false };
    loader.clone().open(loader.fields().unwrap(), host, split, |_, _| 0).unwrap()
}

#[test]
fn encoded_bytes_for_the_device_fit_a_workers_share() {
    let noise = noise();
    assert!(noise.len() > 2 << 20);
    let sample = |n: u64| OwnedSample::new("x").field("jpg", if n < 4 { noise.clone() } else { jpeg(n, F_1_1, 80) });
    let loader = Loader::source(Samples::new((0..64).map(sample).collect())).batch_size(64).workers(1).prefetch(1);
    let loader = loader.augment(Augment::resize(224, 224));
    let ample = open(loader.clone());
    let scarce = open(loader.memory_limit(ample.shared.memory.host_bytes + (3 << 20)));
    for (parts, max_share) in [(ample, usize::MAX), (scarce, 2 << 20)] {
        let slot = FreeSlot::new(&parts.schemas, SlotMemory::heap(parts.schemas.bytes()).unwrap());
        let (images_left, kept_bytes, share) = memory_after_fill(&parts.shared, slot, 4);
        assert!(images_left > 1, "the device decodes {images_left} images");
        assert!(
            kept_bytes <= share && share <= max_share,
            "{kept_bytes} bytes are retained, a worker's share is {share}"
        );
    }
}

/// With [`DecodeOn::Auto`], a worker decodes some parts of a batch. A large image in such a part
/// would delay the batch, so it is sent to the device instead.
#[test]
fn a_large_image_in_a_workers_part_is_left_to_the_device() {
    let encode = |side: u16| {
        let rgb: Vec<u8> = (0..usize::from(side).pow(2) * 3).map(|i| (i / 900) as u8).collect();
        let mut jpeg = Vec::new();
        Encoder::new(&mut jpeg, 80).encode(&rgb, side, side, ColorType::Rgb).unwrap();
        jpeg
    };
    let (small, large) = (encode(60), encode(1500));
    let sample = |n| OwnedSample::new("x").field("jpg", if n == 12 { large.clone() } else { small.clone() });
    let loader = Loader::source(Samples::new((0..64).map(sample).collect())).batch_size(64).workers(1).prefetch(1);
    let parts = open(loader.augment(Augment::resize(224, 224)));
    for (samples, device_images, expected) in
        [(16, DeviceImages::Large, 1), (16, DeviceImages::None, 1), (16, DeviceImages::All, 17)]
    {
        let slot = FreeSlot::new(&parts.schemas, SlotMemory::heap(parts.schemas.bytes()).unwrap());
        assert_eq!(images_left_to_device(&parts.shared, slot, samples, device_images), expected, "{device_images:?}");
    }
}

#[test]
fn redecoding_counts_the_encoded_bytes() {
    let noise = noise();
    let bytes = noise.len();
    let samples = vec![OwnedSample::new("x").field("jpg", noise).label(0)];
    let loader = Loader::source(Samples::new(samples)).batch_size(1).workers(1).prefetch(1);
    let loader = loader.augment(Augment::resize(224, 224));
    let ample = open(loader.clone());
    let scarce = open(loader.memory_limit(ample.shared.memory.host_bytes + (3 << 20)));
    for (parts, is_taken) in [(ample, false), (scarce, true)] {
        let slot = FreeSlot::new(&parts.schemas, SlotMemory::heap(parts.schemas.bytes()).unwrap());
        let bytes_taken = redecode_memory(&parts.shared, slot);
        // The worker takes memory for the pixels, and for the source's buffer, which may have twice
        // the capacity of its content.
        let (min_bytes, max_bytes) = if is_taken { (3_000_000 + 2 * bytes, usize::MAX) } else { (0, 0) };
        assert!(
            (min_bytes..=max_bytes).contains(&bytes_taken),
            "{bytes_taken} bytes were taken for {bytes} encoded bytes"
        );
    }
}
