//! Tests that clips on a device are bit-identical to clips on the host. Workers decode the frames.

use super::*;
use crate::field::Image;
use crate::source::Frames;

/// Returns a loader of samples that contain a clip and a single image. All images of a sample have
/// the same size.
fn clips(originals: &[Vec<u8>], count: usize) -> Loader {
    let sample = |(n, bytes): (usize, &Vec<u8>)| {
        let mirrored = oriented(bytes, 2);
        let list: Vec<&[u8]> = (0..count).map(|frame| if frame % 2 == 0 { &bytes[..] } else { &mirrored }).collect();
        OwnedSample::new(format!("{n}")).field("clip", Frames::encode(&list)).field("jpg", bytes.clone()).label(0)
    };
    let samples = Samples::new(originals.iter().enumerate().map(sample).collect());
    let loader = Loader::source(samples).batch_size(8).shuffle(3).workers(2).prefetch(2).augment(Augment::train(32));
    loader.field("clip", Image::of("clip").frames(count))
}

fn field_on_host(loader: Loader, epoch: u64, name: &str) -> Vec<Vec<u8>> {
    let mut batches = loader.host().unwrap();
    batches.epoch(epoch).map(|batch| batch.unwrap().field(name).unwrap().bytes().to_vec()).collect()
}

#[test]
fn clips_match_the_host_while_the_device_decodes_other_images() {
    for damaged in [false, true] {
        // `oriented` would add a second EXIF segment to the rotated files, so they are left out.
        let originals: Vec<_> = originals(damaged).into_iter().enumerate().filter(|(n, _)| n % 7 != 6).collect();
        let originals: Vec<_> = originals.into_iter().map(|(_, bytes)| bytes).collect();
        let loader = clips(&originals, 3).field("image", Image::of("jpg"));
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
        assert!(found == expected && decoded == 0, "{count} frames");
    }
}

#[test]
fn a_loader_reports_that_workers_decode_clips() {
    let said = |loader: Loader| {
        let warnings = Warnings::default();
        tracing::subscriber::with_default(warnings.clone(), || drop(on_device(loader, 0, 0).unwrap()));
        std::mem::take(&mut *warnings.0.lock().unwrap())
    };
    let loader = clips(&originals(false)[..6], 2).drop_field("image");
    let text = "workers decode the frames of field \"clip\", because a device decodes only single images";
    assert_eq!(said(loader.clone().decode_on(DecodeOn::Gpu)), [text]);
    assert!(said(loader.decode_on(DecodeOn::Cpu)).is_empty());
}
