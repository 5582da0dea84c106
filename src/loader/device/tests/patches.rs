//! Tests that device batches contain the packed patches of the host, also if the device cannot
//! decode an image of the batch and a worker repairs it.

use super::*;
use crate::field::Patches;

const ARRAYS: [&str; 5] = ["p", "p.grid_thw", "p.cu_seqlens", "p.count", "p.images"];

#[test]
fn device_patches_equal_host_patches() {
    for (damaged, images) in [(false, false), (true, false), (true, true)] {
        let originals = originals(damaged);
        let patches = Patches::qwen2_vl().patch(8).min_pixels(256).max_pixels(4096);
        let loader = loader(&originals).drop_field("image").field("p", patches);
        let loader = if images { loader.field("image", crate::field::Image::new()) } else { loader };
        let loader = loader.on_error(OnError::Skip { max_skipped: 1000 });
        for name in ARRAYS {
            let mut batches = loader.clone().host().unwrap();
            let here: Vec<_> =
                batches.epoch(1).map(|batch| batch.unwrap().field(name).unwrap().bytes().to_vec()).collect();
            let decode_on = if images { DecodeOn::Gpu } else { DecodeOn::Cpu };
            let (there, _) = field_on_device(loader.clone().decode_on(decode_on), 1, 0, Some(name)).unwrap();
            assert!(there == here, "{name}, damaged {damaged}, images {images}");
        }
    }
}
