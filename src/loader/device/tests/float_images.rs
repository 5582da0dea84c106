//! Tests dense maps on a device, and that a device refuses one channel.

use super::*;
use crate::field::DenseMap;

#[test]
fn device_maps_are_unchanged_and_one_channel_is_refused() {
    let scan = |seed: u32| {
        let image = image::ImageBuffer::from_fn(40, 30, |x, y| image::Luma([(x * 1409 + y * 727 + seed) as u16]));
        let mut bytes = std::io::Cursor::new(Vec::new());
        image::DynamicImage::from(image).write_to(&mut bytes, image::ImageFormat::Png).unwrap();
        OwnedSample::new("scan").field("png", bytes.into_inner()).label(0)
    };
    let scans = || {
        let loader = Loader::source(Samples::new((0..12).map(scan).collect())).batch_size(4).shuffle(3);
        loader.augment(Augment::train(16).rotate(15.0))
    };
    let map = || scans().field("image", DenseMap::with_channels(1).image());
    let (there, decoded) = field_on_device(map(), 1, 0, Some("image")).unwrap();
    let mut batches = map().host().unwrap();
    let host: Vec<_> = batches.epoch(1).map(|batch| batch.unwrap().field("image").unwrap().bytes().to_vec()).collect();
    assert_eq!((there.len(), decoded), (3, 0));
    assert!(there == host);
    let e = on_device(scans().channels(1), 0, 0).map(drop).unwrap_err();
    assert_eq!(e.cause(), "channels(1): a device supports only 3 channels; use .host() for 1");
}
