//! Worker memory for images that the device decodes.

use super::*;
use crate::batch::SlotMemory;
use crate::engine::{Parts, kept_after, taken_again};

/// Returns a JPEG of random noise with a size of about 3 MB.
fn noise() -> Vec<u8> {
    let mut rng = Rng::new(1, 1, 1);
    let rgb: Vec<u8> = (0..1000 * 1000 * 3).map(|_| rng.next_u64() as u8).collect();
    let mut noise = Vec::new();
    Encoder::new(&mut noise, 98).encode(&rgb, 1000, 1000, ColorType::Rgb).unwrap();
    noise
}

/// Opens `loader` for a device that decodes JPEGs.
fn open(loader: Loader) -> Parts {
    let host = loader.images.written(Layout::Nhwc).unwrap();
    let room = Room { bytes: ENCODED_BYTES, blocks: BLOCKS };
    let split = Split { there: true, decode: Some(room), retouch: false, records: false };
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
    for (parts, most) in [(ample, usize::MAX), (scarce, 2 << 20)] {
        let slot = Slots::make(&parts.schemas, SlotMemory::heap(parts.schemas.bytes()).unwrap());
        let (left, kept, share) = kept_after(&parts.shared, slot, 4);
        // All images that fit into the batch together must be left to the device.
        assert!(left > 1, "{left} images are left to the device");
        assert!(kept <= share && share <= most, "{kept} bytes are retained, a worker's share is {share}");
    }
}

#[test]
fn a_repaired_image_is_admitted_with_its_encoded_bytes() {
    let noise = noise();
    let bytes = noise.len();
    let samples = vec![OwnedSample::new("x").field("jpg", noise).label(0)];
    let loader = Loader::source(Samples::new(samples)).batch_size(1).workers(1).prefetch(1);
    let loader = loader.augment(Augment::resize(224, 224));
    let ample = open(loader.clone());
    let scarce = open(loader.memory_limit(ample.shared.memory.host_bytes + (3 << 20)));
    for (parts, is_taken) in [(ample, false), (scarce, true)] {
        let slot = Slots::make(&parts.schemas, SlotMemory::heap(parts.schemas.bytes()).unwrap());
        let taken = taken_again(&parts.shared, slot);
        // The pixels, plus a buffer of the source, whose capacity may be twice its content.
        let (least, most) = if is_taken { (3_000_000 + 2 * bytes, usize::MAX) } else { (0, 0) };
        assert!((least..=most).contains(&taken), "{taken} bytes were taken for {bytes} encoded bytes");
    }
}
