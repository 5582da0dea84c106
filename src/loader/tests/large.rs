//! Tests that several workers decode a large image together if the other images are small.

use crate::decode::{BANDED_REGIONS, Codec, EncodedImage, Pixels, Rect, Size, standard};
use crate::error::Result;
use crate::format::{self, Format};
use crate::libjpeg::{Options, encode};
use crate::loader::Loader;
use crate::pack::repack_jpeg;
use crate::source::{Memory, OwnedSample};
use crate::transform::Augment;

/// Like the default codec, but never decodes in bands.
struct Whole;

impl Codec for Whole {
    fn format(&self) -> Format {
        format::JPEG
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        Ok(EncodedImage::new(bytes, standard().open(bytes)?.size()))
    }

    fn decode(&self, image: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        standard().open(image.bytes())?.decode(region, out)
    }
}

fn packed(size: Size) -> Vec<u8> {
    let noise = |i: u32| (i.wrapping_mul(2_654_435_761) >> 27) as u8;
    let pixel = |i: u32| [(i % size.width / 40) as u8 + noise(i), (i / size.width / 30) as u8, noise(i / 9)];
    let pixels: Vec<u8> = (0..size.area() as u32).flat_map(pixel).collect();
    let (jpeg, mut out) = (encode(&pixels, size.width, size.height, 3, &Options::new(80, 2, 2)), Vec::new());
    repack_jpeg(&jpeg, &mut out).unwrap();
    out
}

fn batches(images: &[Vec<u8>], with: impl Fn(Loader) -> Loader) -> Vec<Vec<u8>> {
    let sample = |(n, bytes): (usize, &Vec<u8>)| OwnedSample::new(format!("{n}")).field("jpg", bytes.clone()).label(0);
    let source = Memory::new(images.iter().enumerate().map(sample).collect());
    let loader = Loader::source(source).batch_size(8).augment(Augment::train(32)).workers(3);
    let mut batches = with(loader).host().unwrap();
    let mut contents = Vec::new();
    for epoch in 0..2 {
        contents.extend(batches.epoch(epoch).map(|batch| batch.unwrap().images().bytes().to_vec()));
    }
    contents
}

fn is_banded(within: Size) -> bool {
    let banded = BANDED_REGIONS.lock().unwrap();
    banded.iter().any(|region| region.width > 1000 && *region == Rect::full(within))
}

#[test]
fn large_images_decoded_in_bands_have_the_same_pixels() {
    let (small, large) = (packed(Size::new(70, 50)), Size::new(2011, 1777));
    let mut images = vec![small; 60];
    images.extend([packed(large), packed(large)]);
    // One of the two images is damaged, so it is decoded again without bands.
    let middle = images[61].len() / 2;
    images[61][middle..middle + 40].fill(0x3f);
    let resized = |loader: Loader| loader.augment(Augment::resize(40, 40));
    let banded = batches(&images, resized);
    assert!(is_banded(large));
    assert!(banded == batches(&images, |loader| resized(loader).codec(Whole)));
    assert!(batches(&images, |loader| loader) == batches(&images, |loader| loader.codec(Whole)), "random crops");
}

#[test]
fn images_of_equal_size_are_not_divided() {
    let size = Size::new(1801, 1501);
    batches(&vec![packed(size); 9], |loader| loader.augment(Augment::resize(40, 40)));
    assert!(!is_banded(size));
}
