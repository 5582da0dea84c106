//! Datasets for the format writers in `tests/equivalence`.
#![allow(dead_code, unreachable_pub)] // the shared files define more than this file uses

#[path = "../equivalence/bytes.rs"]
mod bytes;
#[path = "../equivalence/formats.rs"]
mod formats;
#[path = "../equivalence/random_dataset.rs"]
mod random_dataset;

use std::io::Cursor;

pub(crate) use formats::FORMATS;
pub(crate) use random_dataset::Kind;
use random_dataset::{RandomDataset, SampleData};

/// With this many samples, even the allocation of a list with four bytes per sample can fail.
const MANY: usize = 6000;

pub(crate) fn many(kind: Kind) -> RandomDataset {
    dataset(kind, MANY)
}

pub(crate) fn small(kind: Kind) -> RandomDataset {
    dataset(kind, 12)
}

fn dataset(kind: Kind, count: usize) -> RandomDataset {
    let size = (16, 8);
    let pixels: Vec<u8> = (0..size.0 * size.1 * 3).map(|index| index as u8).collect();
    let mut encoded = Vec::new();
    let image = image::RgbImage::from_raw(size.0, size.1, pixels.clone()).unwrap();
    image.write_to(&mut Cursor::new(&mut encoded), image::ImageFormat::Jpeg).unwrap();
    let samples = (0..count).map(|n| {
        let (encoded, pixels, class) = (encoded.clone(), pixels.clone(), n * 3 / count);
        let boxes = vec![([1, 2, 9, 7], class)];
        SampleData {
            name: format!("p{n:05}"),
            class,
            extension: "jpg",
            encoded,
            size,
            pixels,
            boxes,
            ..SampleData::default()
        }
    });
    let classes = ["a", "b", "c"].map(str::to_owned).to_vec();
    RandomDataset { kind, classes, has_class_names: false, variant: 0, samples: samples.collect(), target: size }
}
