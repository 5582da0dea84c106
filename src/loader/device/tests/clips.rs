//! Tests that clips on a device are bit-identical to clips on the host, whether the device or a
//! worker decodes the frames.

use super::*;
use crate::decode::Codecs;
use crate::field::{Boxes, Image, Mask};
use crate::source::Frames;

fn clips(originals: &[Vec<u8>], count: usize) -> Loader {
    let sample = |(n, bytes): (usize, &Vec<u8>)| {
        let mirrored = oriented(bytes, 2);
        let list: Vec<&[u8]> = (0..count).map(|frame| if frame % 2 == 0 { &bytes[..] } else { &mirrored }).collect();
        OwnedSample::new(format!("{n}")).field("clip", Frames::encode(&list)).field("jpg", bytes.clone()).label(0)
    };
    let samples = Samples::new(originals.iter().enumerate().map(sample).collect());
    let loader = Loader::source(samples).batch_size(8).shuffle(3).workers(2).prefetch(2).augment(Augment::train(32));
    loader.field("clip", Image::from_field("clip").frames(count))
}

fn field_on_host(loader: Loader, epoch: u64, name: &str) -> Vec<Vec<u8>> {
    let mut batches = loader.host().unwrap();
    batches.epoch(epoch).map(|batch| batch.unwrap().field(name).unwrap().bytes().to_vec()).collect()
}

#[test]
fn clips_and_images_of_a_sample_match_the_host() {
    for damaged in [false, true] {
        let loader = clips(&upright(damaged), 3).field("image", Image::from_field("jpg"));
        for decode_on in [DecodeOn::Cpu, DecodeOn::Gpu, DecodeOn::Auto] {
            for name in ["clip", "image"] {
                let expected = field_on_host(loader.clone(), 1, name);
                let (found, decoded) = field_on_device(loader.clone().decode_on(decode_on), 1, 0, Some(name)).unwrap();
                assert!(found == expected, "{name} {decode_on:?}, damaged {damaged}");
                assert_eq!(decoded > 0, decode_on != DecodeOn::Cpu, "the device decoded {decoded} images");
            }
        }
    }
}

#[test]
fn a_device_runs_the_effects_on_each_frame() {
    let originals = &originals(false)[..6];
    let jitter = ColorJitter::new().brightness(0.4).contrast(0.4).saturation(0.4).hue(0.1);
    let augment = Augment::train(32).jitter(jitter);
    for count in [1, 2, 9] {
        let loader = clips(originals, count).drop_field("image").augment(augment.clone()).batch_size(4);
        let expected = field_on_host(loader.clone(), 1, "clip").into_iter().map(all_converted).collect::<Vec<_>>();
        let (found, decoded) = field_on_device(loader.decode_on(DecodeOn::Gpu), 1, 0, Some("clip")).unwrap();
        assert!(found == expected && decoded > 0, "{count} frames, {decoded} on the device");
    }
}

#[test]
fn annotations_of_each_frame_match_the_host() {
    let originals = upright(false);
    let sample = |(n, bytes): (usize, &Vec<u8>)| {
        let size = Codecs::new().open(bytes).unwrap().size();
        let mask = |frame: usize| {
            let values: Vec<u8> = (0..size.area()).map(|at| (at % 251) as u8 ^ frame as u8).collect();
            let shape = format!("({}, {})", size.height, size.width);
            let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}");
            [b"\x93NUMPY\x01\x00\x76\x00", format!("{header:<117}\n").as_bytes(), &values].concat()
        };
        OwnedSample::new(format!("{n}"))
            .field("clip", Frames::encode(&[bytes; 3]))
            .field("mask", Frames::encode(&[mask(0), mask(1), mask(2)]))
            .field("boxes.json", "[[[0, 0, 9, 9]], [], [[1, 1, 8, 9], [2, 2, 5, 6]]]")
            .label(0)
    };
    let loader = Loader::source(Samples::new(originals.iter().enumerate().map(sample).collect()));
    let loader = loader.batch_size(8).shuffle(3).workers(2).augment(Augment::train(32)).drop_field("image");
    let loader =
        loader.field("clip", Image::from_field("clip").frames(3)).field("mask", Mask::new(Dtype::U8).frames(3));
    let loader = loader.field("boxes", Boxes::new(2).frames(3));
    for name in ["clip", "mask", "boxes", "boxes.count"] {
        let expected = field_on_host(loader.clone(), 1, name);
        let (found, decoded) = field_on_device(loader.clone().decode_on(DecodeOn::Gpu), 1, 0, Some(name)).unwrap();
        assert!(found == expected && decoded > 0, "{name}, {decoded} on the device");
    }
}

/// Omits the rotated images, to which `oriented` would add a second EXIF segment.
fn upright(damaged: bool) -> Vec<Vec<u8>> {
    let originals = originals(damaged).into_iter().enumerate();
    originals.filter(|(n, _)| n % 7 != 6).map(|(_, bytes)| bytes).collect()
}

#[test]
fn the_device_decodes_every_frame_of_a_clip() {
    // Skip rotated images, rare subsamplings and progressive files, because workers decode some of
    // them.
    let originals = originals(false).into_iter().enumerate();
    let originals = originals.filter(|(n, _)| n % 7 != 6 && n % 6 < 3 && n % 11 != 10);
    let originals: Vec<_> = originals.map(|(_, bytes)| bytes).collect();
    for count in [1, 3, 11] {
        let loader = clips(&originals, count).drop_field("image").epochs(0);
        let expected = field_on_host(loader.clone(), 0, "clip");
        let (found, decoded) = field_on_device(loader.decode_on(DecodeOn::Gpu), 0, 0, Some("clip")).unwrap();
        assert!(found == expected, "{count} frames");
        assert_eq!(decoded, (originals.len() * count) as u64);
    }
}

#[test]
fn clips_with_different_numbers_of_frames_match_the_host() {
    for damaged in [false, true] {
        let view = Image::from_field("clip").frames(4).augment(Augment::train(24));
        let loader = clips(&upright(damaged), 4).field("image", Image::from_field("jpg")).field("view", view);
        for (name, first) in [("clip", 0), ("image", 2), ("view", 3)] {
            let expected = field_on_host(loader.clone(), 2, name);
            let (found, _) = field_on_device(loader.clone().decode_on(DecodeOn::Gpu), 2, first, Some(name)).unwrap();
            assert!(found == expected[first as usize..], "{name}, damaged {damaged}");
        }
    }
}

/// The device cannot decode one frame in seven. Some other frames are truncated.
fn with_failures() -> Loader {
    let originals = upright(false);
    let sample = |(n, bytes): (usize, &Vec<u8>)| {
        let frame = |frame: usize| {
            let mut bytes = oriented(bytes, 1 + frame as u8 % 2);
            let middle = bytes.len() * 2 / 3;
            match n * 3 + frame {
                at if at % 7 == 4 => bytes[middle..middle + 12].copy_from_slice(&[0xff, 0].repeat(6)),
                at if at % 31 == 8 => bytes.truncate(middle),
                _ => {}
            }
            bytes
        };
        let frames: Vec<_> = (0..3).map(frame).collect();
        OwnedSample::new(format!("{n}")).field("clip", Frames::encode(&frames)).field("jpg", bytes.clone()).label(0)
    };
    let samples = Samples::new(originals.iter().enumerate().map(sample).collect());
    let loader = Loader::source(samples).batch_size(8).shuffle(3).workers(2).augment(Augment::train(32)).epochs(0);
    loader.field("clip", Image::from_field("clip").frames(3)).on_error(OnError::Skip { max_skipped: 48 })
}

#[test]
fn damaged_frames_and_replaced_clips_match_the_host() {
    let mut host = with_failures().host().unwrap();
    let expected: Vec<_> = host.epoch(0).map(|batch| batch.unwrap().field("clip").unwrap().bytes().to_vec()).collect();
    let sim = Sim::new(Mistake::None, 20);
    let consumer = sim.stream().unwrap();
    let device = with_failures().decode_on(DecodeOn::Gpu);
    let DeviceLoader { ring, shared } = device.open_device::<_, ConsumerBatch<Sim>>(sim.clone(), consumer).unwrap();
    let mut device = Batches::new(ring, &shared);
    let found: Vec<_> = device.epoch(0).map(|batch| pixels_of(&sim, &batch.unwrap(), Some("clip"))).collect();
    assert!(found == expected);
    let [replaced, expected] = [device.sample_errors().len(), host.sample_errors().len()];
    assert!(expected > 2 && replaced == expected, "{replaced} and {expected}");
    let (host, device) = (host.stats(), device.stats());
    assert!(
        host.damaged_images > 10 && device.damaged_images == host.damaged_images,
        "{} and {}",
        device.damaged_images,
        host.damaged_images
    );
    assert!(device.device_failed_samples > 5 && device.images_sent_to_device > 60);
}
