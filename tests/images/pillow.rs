//! Tests that images other than JPEG decode to the pixels of Pillow's `convert("RGB")` or of the
//! `image` crate. A TIFF with several pages must fail.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use image::{DynamicImage, ImageFormat};
use warpfeed::decode::{Codecs, Condition, Pixels, Rect, Size, check};
use warpfeed::field::DenseMap;
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::{Augment, Loader, Result};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/images")
}

fn decoded(codecs: &Codecs, bytes: &[u8]) -> Result<(Size, Vec<u8>)> {
    let (mut image, mut out) = (codecs.open(bytes)?, Pixels::new());
    let size = image.size();
    image.decode(Rect::full(size), &mut out)?;
    Ok((size, out.data().to_vec()))
}

#[test]
fn images_have_the_pixels_of_pillow() {
    let (codecs, mut count) = (Codecs::new(), 0);
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let expected = PathBuf::from(format!("{}.png", path.display()));
        if !expected.exists() {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let actual = decoded(&codecs, &bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let expected = decoded(&codecs, &fs::read(expected).unwrap()).unwrap();
        assert!(actual == expected, "{}: {:?}, Pillow has {:?}", path.display(), actual.0, expected.0);
        assert!(matches!(check(&bytes), Condition::Sound), "{}", path.display());
        count += 1;
    }
    assert!(count >= 28, "{count} images");
}

#[test]
fn planes_in_tiles_that_overhang_the_image_are_read() {
    // The file contains consecutive numbers, modulo 256, in three planes of 40x24 pixels.
    let (size, actual) = decoded(&Codecs::new(), &fs::read(folder().join("tiled_planes.tif")).unwrap()).unwrap();
    let area = 24 * 40;
    let expected: Vec<u8> = (0..area).flat_map(|i| [i, i + area, i + 2 * area].map(|value| value as u8)).collect();
    assert!(size == Size::new(40, 24) && actual == expected);
}

#[test]
fn images_and_maps_reject_a_tiff_of_several_pages() {
    let pages = fs::read(folder().join("pages.tif")).unwrap();
    let message = "3 pages, but a sample has one: write each page to a file of its own";
    let e = decoded(&Codecs::new(), &pages).unwrap_err();
    assert!(e.cause().contains(message), "{e}");
    assert!(matches!(check(&pages), Condition::Damaged(e) if e.cause().contains(message)));
    let source = Memory::new(vec![OwnedSample::new("a").field("tif", pages).label(0)]);
    let loader =
        Loader::source(source).augment(Augment::resize(8, 8)).field("image", DenseMap::with_channels(3).image());
    let e = loader.batch_size(1).into_iter().next().unwrap().unwrap_err();
    assert!(e.to_string().contains(message), "{e}");
}

fn expected_pixels(channels: usize) -> Vec<u8> {
    (0..61 * 45 * channels).map(|i| (i * i / 7 + i / 61) as u8).collect()
}

#[test]
fn every_format_has_the_pixels_of_the_crate_image() {
    let (w, h) = (61, 45);
    let rgb = DynamicImage::from(image::RgbImage::from_raw(w, h, expected_pixels(3)).unwrap());
    let rgba = DynamicImage::from(image::RgbaImage::from_raw(w, h, expected_pixels(4)).unwrap());
    let gray = DynamicImage::from(image::GrayImage::from_raw(w, h, expected_pixels(1)).unwrap());
    let gray_alpha = DynamicImage::from(image::GrayAlphaImage::from_raw(w, h, expected_pixels(2)).unwrap());
    let deep = DynamicImage::from(rgb.to_rgb16());
    let floats = DynamicImage::from(rgb.to_rgb32f());
    let (png, webp, bmp) = (ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp);
    let (gif, tiff) = (ImageFormat::Gif, ImageFormat::Tiff);
    let codecs = Codecs::new().convert_to_u8(true);
    for (image, formats) in [
        (rgb, &[png, webp, bmp, gif, tiff][..]),
        (rgba, &[png, webp, bmp, tiff]),
        (gray, &[png, bmp, gif, tiff]),
        (gray_alpha, &[png]),
        (deep, &[png, tiff]),
        (floats, &[tiff]),
    ] {
        for &format in formats {
            let mut file = Cursor::new(Vec::new());
            image
                .write_to(&mut file, format)
                .or_else(|_| DynamicImage::from(image.to_rgba8()).write_to(&mut file, format))
                .unwrap();
            let file = file.into_inner();
            // Like this library, `into_rgb8` drops the alpha channel.
            let expected = image::load_from_memory_with_format(&file, format).unwrap().into_rgb8().into_raw();
            let (size, actual) = decoded(&codecs, &file).unwrap();
            assert!(size == Size::new(w, h) && actual == expected, "{format:?} of {:?}", image.color());
        }
    }
}
