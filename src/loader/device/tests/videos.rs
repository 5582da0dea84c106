//! Tests that a device and workers convert video frames to the same RGB pixels.

use super::*;
use crate::batch::SlotMemory;
use crate::device::tests::coded::video_records;
use crate::engine::memory_after_fill;
use crate::field::{DecodeSpace, Image};
use crate::source::Frames;

/// A video of 96x64 pixels in which every other frame is a key frame.
const VIDEO: &[u8] = include_bytes!("../../../../video/tests/fixtures/g2.mp4");

/// With `damaged`, the second half of every fifth clip's last frame is overwritten.
fn samples(count: usize, damaged: bool) -> Vec<OwnedSample> {
    let sample = |n: usize| {
        let records = video_records(VIDEO, 1 + n as u8 % 4);
        let mut frames: Vec<_> = (0..count).map(|frame| records[(n + frame) % records.len()].clone()).collect();
        if damaged && n % 5 == 2 {
            let middle = frames[count - 1].len() / 2;
            frames[count - 1][middle..].fill(0x55);
        }
        let (rgb, mut jpeg) = (vec![n as u8 * 5; 96 * 64 * 3], Vec::new());
        Encoder::new(&mut jpeg, 90).encode(&rgb, 96, 64, ColorType::Rgb).unwrap();
        OwnedSample::new(format!("{n}"))
            .field("clip", Frames::encode(&frames))
            .field("frame", frames[0].clone())
            .field("jpg", jpeg)
            .label(0)
    };
    (0..30).map(sample).collect()
}

fn loader(samples: Vec<OwnedSample>, count: usize) -> Loader {
    let loader = Loader::source(Samples::new(samples)).batch_size(8).shuffle(3).workers(2).prefetch(2);
    loader
        .augment(Augment::train(32).vertical_flip(0.5))
        .field("clip", Image::from_field("clip").frames(count))
        .epochs(0)
}

fn on_host(loader: Loader, name: &str) -> Vec<Vec<u8>> {
    let mut batches = loader.host().unwrap();
    batches.epoch(0).map(|batch| batch.unwrap().field(name).unwrap().bytes().to_vec()).collect()
}

#[test]
fn a_device_converts_all_frames_of_a_video_clip() {
    for count in [1, 4, 9] {
        let loader = loader(samples(count, false), count).drop_field("image");
        let expected = on_host(loader.clone(), "clip");
        for (decode_on, first) in [(DecodeOn::Cpu, 0), (DecodeOn::Gpu, 0), (DecodeOn::Gpu, 2), (DecodeOn::Auto, 0)] {
            let (found, converted) =
                field_on_device(loader.clone().decode_on(decode_on), 0, first, Some("clip")).unwrap();
            assert!(found == expected[first as usize..], "{count} frames, {decode_on:?} from batch {first}");
            match decode_on {
                DecodeOn::Cpu => assert_eq!(converted, 0),
                DecodeOn::Gpu if first == 0 => assert_eq!(converted, 30 * count as u64),
                _ => assert!(converted > 0),
            }
        }
    }
}

#[test]
fn single_video_frames_and_jpegs_of_a_sample_match_the_host() {
    let jitter = ColorJitter::new().brightness(0.4).hue(0.1);
    let loader = loader(samples(3, false), 3).augment(Augment::train(32).jitter(jitter)).batch_size(4);
    let loader = loader.field("frame", Image::from_field("frame")).field("image", Image::from_field("jpg"));
    for name in ["clip", "frame", "image"] {
        let expected: Vec<_> = on_host(loader.clone(), name).into_iter().map(all_converted).collect();
        let (found, converted) = field_on_device(loader.clone().decode_on(DecodeOn::Gpu), 0, 0, Some(name)).unwrap();
        assert!(found == expected, "{name}");
        assert_eq!(converted, 30 * 5);
    }
}

#[test]
fn damaged_video_frames_fail_on_a_device_as_on_the_host() {
    for strict in [false, true] {
        let loader = loader(samples(3, true), 3).drop_field("image").strict(strict);
        let loader = loader.on_error(OnError::Skip { max_skipped: 10 });
        let mut host = loader.clone().host().unwrap();
        let expected: Vec<_> =
            host.epoch(0).map(|batch| batch.unwrap().field("clip").unwrap().bytes().to_vec()).collect();
        let sim = Sim::new(Mistake::None, 20);
        let consumer = sim.stream().unwrap();
        let device = loader.decode_on(DecodeOn::Gpu);
        let DeviceLoader { ring, shared } = device.open_device::<_, ConsumerBatch<Sim>>(sim.clone(), consumer).unwrap();
        let mut device = Batches::new(ring, &shared);
        let found: Vec<_> = device.epoch(0).map(|batch| pixels_of(&sim, &batch.unwrap(), Some("clip"))).collect();
        assert!(found == expected, "strict {strict}");
        let messages = |errors: Vec<crate::SampleError>| {
            let mut messages: Vec<_> = errors.iter().map(|error| format!("{error:?}")).collect();
            messages.sort();
            messages
        };
        let (of_host, of_device) = (messages(host.sample_errors()), messages(device.sample_errors()));
        assert_eq!(of_host, of_device, "strict {strict}");
        assert!(!of_host.is_empty() && of_host[0].contains("frame 2"), "{of_host:?}");
        assert!(device.stats().images_sent_to_device > 60);
    }
}

#[test]
fn workers_convert_video_frames_that_do_not_fit() {
    let loader = loader(samples(1, false), 1).drop_field("image").augment(Augment::resize(96, 64)).batch_size(8);
    let host = loader.images.format(Layout::Nhwc).unwrap();
    for (frames, expected) in [(3, 3), (100, 8)] {
        let space = DecodeSpace { images: 1, bytes: (frames * (96 * 64 * 3 / 2 + 64_usize)).div_ceil(8), blocks: 4096 };
        let split = DeviceSplit { on_device: true, decode: Some(space), retouches: false, has_records: false };
        let parts = loader.clone().open(loader.fields().unwrap(), host, split, |_, _| 0).unwrap();
        let slot = FreeSlot::new(&parts.schemas, SlotMemory::heap(parts.schemas.bytes()).unwrap());
        let (converted, ..) = memory_after_fill(&parts.shared, slot, 8);
        assert_eq!(converted, expected, "with space for {frames} frames");
    }
}

#[test]
fn space_for_video_frames_is_limited() {
    let reserved = |pixels| {
        let mut space = DecodeSpace { images: 4, bytes: 256 << 10, blocks: 1 };
        (space.reserve_for_video(pixels), space.bytes)
    };
    assert_eq!([0, 96 * 64].map(reserved), [(false, 256 << 10); 2]);
    let (has_changed, bytes) = reserved(640 * 480);
    assert!(has_changed && (640 * 480 * 3 / 2 + 64..640 * 480 * 2).contains(&bytes), "{bytes}");
    assert_eq!([1920 * 1080, u64::MAX].map(reserved), [(true, 1 << 20); 2]);
}
