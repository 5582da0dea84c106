//! Tests that each dataset of a mixture gets its own augmentation on the device, as on the host.

use super::*;
use crate::transform::{Mix, RandomErasing};

fn mixture(originals: &[Vec<u8>]) -> Loader {
    let samples = |images: &[Vec<u8>]| {
        let sample = |(n, bytes): (usize, &Vec<u8>)| {
            OwnedSample::new(format!("{n}")).field("jpg", bytes.clone()).label(n as i64 % 7)
        };
        let source: Arc<dyn crate::source::Source> =
            Arc::new(Samples::new(images.iter().enumerate().map(sample).collect()));
        source
    };
    let (first, second) = originals.split_at(originals.len() / 2);
    let loader = Loader::mixture([(samples(first), 0.5), (samples(second), 0.5)]).keep_labels();
    loader.seed(3).batch_size(8).workers(2).prefetch(2)
}

#[test]
fn the_device_uses_the_augmentation_of_each_dataset() {
    let jitter = || ColorJitter::new().brightness(0.4).hue(0.1);
    let plain = |augment: Augment| (Augment::train(32), augment, false);
    for damaged in [false, true] {
        let images = originals(damaged);
        for (common, augment, is_converted) in [
            plain(Augment::letterbox(32, 32)),
            plain(Augment::resize(32, 32).interpolation(Interpolation::Bicubic)),
            (Augment::train(32), Augment::train(32).jitter(jitter()), true),
            (Augment::train(32).jitter(jitter()), Augment::eval(40, 32), true),
        ] {
            let loader = mixture(&images).augment(common).augment_for(1, augment);
            let mut expected = on_host(loader.clone(), 0);
            if is_converted {
                expected.iter_mut().flatten().for_each(|byte| *byte = converted(*byte, 0));
            }
            for decode_on in [DecodeOn::Cpu, DecodeOn::Gpu, DecodeOn::Auto] {
                let (actual, decoded) = on_device(loader.clone().decode_on(decode_on), 0, 0).unwrap();
                assert!(actual == expected, "{decode_on:?}, damaged {damaged}");
                assert!(if decode_on == DecodeOn::Cpu { decoded == 0 } else { decoded > 0 }, "{decoded} images");
            }
        }
    }
}

#[test]
fn every_batch_of_datasets_with_different_effects_arrives() {
    let images = originals(false);
    let mixed = |augment: Augment| augment.mix(Mix::mixup(0.4));
    let loader = mixture(&images).augment(mixed(Augment::train(32))).soft_labels(7, 0.0);
    let loader = loader.augment_for(1, mixed(Augment::train(32).erase(RandomErasing::new(0.9))));
    let expected = on_host(loader.clone(), 0);
    let (actual, _) = on_device(loader.decode_on(DecodeOn::Cpu), 0, 0).unwrap();
    assert_eq!(actual.len(), expected.len());
}
