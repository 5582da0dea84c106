//! Tests that packed patches match the host, even if a worker has to decode an image.

use super::*;
use crate::batch::HostBatch;
use crate::field::Patches;
use crate::source::Frames;

/// If no sample of a batch has an image, no patches are copied to the device.
#[test]
fn device_batches_may_have_no_patches() {
    let sample = |n: usize| {
        let images = if n.is_multiple_of(3) { originals(false)[n..n + 2].to_vec() } else { Vec::new() };
        OwnedSample::new(n.to_string()).field("jpg", Frames::encode(&images)).label(0)
    };
    let patches = Patches::naflex().max_patches(30).images(2);
    let loader = Loader::source(Samples::new((0..7).map(sample).collect())).batch_size(1).drop_field("image");
    let loader = loader.field("p", patches);
    for name in ARRAYS {
        let host: Vec<_> = loader.clone().host().unwrap().epoch(0).map(|batch| bytes(&batch.unwrap(), name)).collect();
        let (there, _) = field_on_device(loader.clone(), 0, 0, Some(name)).unwrap();
        assert!(there == host && host.len() == 7, "{name}");
    }
}

fn bytes(batch: &HostBatch, name: &str) -> Vec<u8> {
    batch.field(name).unwrap().bytes().to_vec()
}

const ARRAYS: [&str; 5] = ["p", "p.grid_thw", "p.cu_seqlens", "p.count", "p.images"];

#[test]
fn device_patches_equal_host_patches() {
    for (damaged, images) in [(false, false), (true, false), (true, true)] {
        let originals = originals(damaged);
        let patches = Patches::qwen2_vl().patch(8).min_pixels(256).max_pixels(4096);
        let loader = loader(&originals).drop_field("image").field("p", patches);
        let loader = match images {
            true => loader.field("image", crate::field::Image::new()),
            false => loader.augment(Augment::eval(256, 224)),
        };
        let loader = loader.on_error(OnError::Skip { max_skipped: 1000 });
        for name in ARRAYS {
            let mut batches = loader.clone().host().unwrap();
            let host: Vec<_> = batches.epoch(1).map(|batch| bytes(&batch.unwrap(), name)).collect();
            let decode_on = if images { DecodeOn::Gpu } else { DecodeOn::Cpu };
            let (there, _) = field_on_device(loader.clone().decode_on(decode_on), 1, 0, Some(name)).unwrap();
            assert!(there == host, "{name}, damaged {damaged}, images {images}");
        }
    }
}
