//! Tests that mosaics and copy-paste match the host. Workers compose them even for device batches.

use super::*;
use crate::loader::tests::mosaics::{FILL, SIDE, loader};
use crate::transform::CopyPaste;

fn plain() -> Augment {
    Augment::scale_jitter(SIDE, 0.6, 1.8).fill(FILL).flip(0.5)
}

#[test]
fn combined_images_and_annotations_match_the_host() {
    let jitter = || plain().jitter(ColorJitter::new().hue(0.3));
    for augment in [jitter().copy_paste(CopyPaste::new()), jitter().mosaic(Mosaic::new().probability(0.7))] {
        let opened = || loader(augment.clone()).batch_size(5).decode_on(DecodeOn::Gpu);
        for name in ["image", "mask", "boxes", "boxes.class", "boxes.masks", "boxes.count"] {
            let mut batches = opened().host().unwrap();
            let bytes = |batch: Result<crate::batch::HostBatch>| batch.unwrap().field(name).unwrap().bytes().to_vec();
            let expected: Vec<Vec<u8>> = batches.epoch(1).map(bytes).collect();
            let expected: Vec<Vec<u8>> =
                if name == "image" { expected.into_iter().map(all_converted).collect() } else { expected };
            let (actual, decoded) = field_on_device(opened(), 1, 0, Some(name)).unwrap();
            assert!(actual == expected && decoded == 0, "{name} {augment:?}");
        }
    }
}

#[test]
fn a_loader_reports_that_workers_decode_combined_images() {
    let warnings_of = |loader: Loader| {
        let warnings = Warnings::default();
        tracing::subscriber::with_default(warnings.clone(), || drop(on_device(loader, 0, 0).unwrap()));
        std::mem::take(&mut *warnings.0.lock().unwrap())
    };
    for (augment, step) in
        [(plain().mosaic(Mosaic::new()), "mosaic"), (plain().copy_paste(CopyPaste::new()), "copy_paste")]
    {
        let loader = loader(augment);
        let text = format!("workers decode some images, because these operations do not run on a device: {step}");
        assert_eq!(warnings_of(loader.clone().decode_on(DecodeOn::Gpu)), [text]);
        assert!(warnings_of(loader.decode_on(DecodeOn::Cpu)).is_empty());
    }
}
