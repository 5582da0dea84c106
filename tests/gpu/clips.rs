//! Tests that the frames of a clip are bit-identical on a device and on the host.
#![cfg(feature = "cuda")]

use jpeg_encoder::{ColorType, Encoder};
use warpfeed::field::Image;
use warpfeed::sampler::Rng;
use warpfeed::source::{Frames, Memory, OwnedSample};
use warpfeed::transform::{ColorJitter, RandomErasing};
use warpfeed::{Augment, DecodeOn, Dtype, Loader, Normalize};

use crate::device::noise::{DTYPES, LAYOUTS, random_bytes};
use crate::device::stream;

fn clips(count: usize) -> Loader {
    let sample = |clip: u64| {
        let (width, height) = (40 + clip as u16, 60 - clip as u16);
        let frame = |number: usize| {
            let pixels =
                random_bytes(&mut Rng::new(3, clip, number as u64), usize::from(width) * usize::from(height) * 3);
            let mut bytes = Vec::new();
            Encoder::new(&mut bytes, 80).encode(&pixels, width, height, ColorType::Rgb).unwrap();
            bytes
        };
        let frames: Vec<_> = (0..count).map(frame).collect();
        OwnedSample::new(clip.to_string()).field("clip", Frames::encode(&frames)).field("jpg", frame(0)).label(0)
    };
    let loader = Loader::source(Memory::new((0..20).map(sample).collect())).batch_size(8).shuffle(3).workers(2);
    loader.field("clip", Image::from_field("clip").frames(count)).field("image", Image::from_field("jpg"))
}

#[test]
fn device_clips_equal_host_clips() {
    let Some(stream) = stream() else { return };
    let jitter = ColorJitter::new().brightness(0.4).contrast(0.4).saturation(0.4).hue(0.1);
    let augments = [Augment::train(32), Augment::train(33).jitter(jitter).erase(RandomErasing::new(0.6))];
    for (augment, dtype) in augments.iter().flat_map(|augment| DTYPES.map(|dtype| (augment, dtype))) {
        for (layout, count) in LAYOUTS.into_iter().flat_map(|layout| [1, 3, 9].map(|count| (layout, count))) {
            let loader = clips(count).augment(augment.clone()).dtype(dtype).layout(layout).decode_on(DecodeOn::Gpu);
            let loader = if dtype == Dtype::U8 { loader } else { loader.normalize(Normalize::IMAGENET) };
            let mut host = loader.clone().host().unwrap();
            let mut device = loader.cuda(&stream).unwrap();
            let mut expected = host.epoch(1);
            for batch in device.epoch(1) {
                let (batch, expected) = (batch.unwrap(), expected.next().unwrap().unwrap());
                for name in ["clip", "image"] {
                    let (actual, expected) = (batch.field(name).unwrap(), expected.field(name).unwrap());
                    assert_eq!(actual.shape(), &*expected.shape());
                    assert!(actual.download().unwrap() == expected.bytes(), "{name} {count} {dtype:?} {layout:?}");
                }
            }
            assert!(expected.next().is_none());
            let decoded = device.stats().images_sent_to_device;
            assert!(decoded >= 20 * (count as u64 + 1), "the device decoded {decoded} images");
        }
    }
}
