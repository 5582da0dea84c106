//! Fuzzes decoders of formats other than JPEG: PNG, WebP, GIF, BMP, TIFF and `.npy` arrays. The
//! reference for PNG masks is the `png` crate.

use std::io::Cursor;

use image::{DynamicImage, ImageFormat, RgbImage};

#[cfg(feature = "formats")]
use super::IndexedImage;
use super::raw::npy_header;
use super::{Codecs, FloatImage, Pass, Pixels, Png, PngScratch, Rect, Size, standard};
use crate::fuzz::{self, Random};

const MAX_PIXELS: u64 = 1 << 16;

const WORDS: [&[u8]; 18] = [
    b"IHDR",
    b"PLTE",
    b"IDAT",
    b"tRNS",
    b"eXIf",
    b"VP8L",
    b"VP8X",
    b"ALPH",
    b"II*\0",
    b"MM\0*",
    b"Exif\0\0",
    b"\x2c\0\0\0\0",
    b"\x21\xf9\x04\x01",
    b"BM",
    b"II+\0\x08\0\0\0",
    // TIFF tags: compression, tile width, predictor.
    b"\x03\x01\x03\0\x01\0\0\0",
    b"\x42\x01\x03\0\x01\0\0\0\x10\0",
    b"\x3d\x01\x03\0\x01\0\0\0\x02\0",
];

fn originals() -> Vec<Vec<u8>> {
    let (w, h) = (13, 9);
    let rgb: Vec<u8> = (0..w * h * 3).map(|i| (i * i / 7) as u8).collect();
    let rgb = DynamicImage::from(RgbImage::from_raw(w, h, rgb).expect("the buffer has the right size"));
    let forms = [
        (
            rgb.clone(),
            &[ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp, ImageFormat::Tiff, ImageFormat::Gif][..],
        ),
        (rgb.to_rgba8().into(), &[ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp, ImageFormat::Tiff]),
        (rgb.to_luma8().into(), &[ImageFormat::Png, ImageFormat::Bmp, ImageFormat::Tiff]),
        (rgb.to_rgb16().into(), &[ImageFormat::Png, ImageFormat::Tiff]),
        (rgb.to_luma_alpha16().into(), &[ImageFormat::Png]),
        (rgb.to_rgb32f().into(), &[ImageFormat::Tiff]),
    ];
    let mut files = Vec::new();
    for (image, formats) in &forms {
        for &format in *formats {
            let mut file = Cursor::new(Vec::new());
            image.write_to(&mut file, format).expect("the format supports these pixels");
            files.push(file.into_inner());
        }
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/images");
    let mut others: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder of images exists")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    others.retain(|path| path.extension().is_some_and(|end| end == "tif" || end == "bmp" || end == "gif"));
    // Sort the files, because the order of a directory listing depends on the file system.
    others.sort();
    files.extend(others.iter().map(|path| std::fs::read(path).expect("an image")));
    files
}

/// Recomputes the checksums of the PNG chunks, up to the first incomplete chunk. Decoders stop at a
/// wrong checksum.
fn seal(png: &mut [u8]) {
    let mut offset = 8;
    while let Some(length) = png.get(offset..offset + 4) {
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
        let Some(end) = (offset + 8).checked_add(length).filter(|&end| end + 4 <= png.len()) else { return };
        let crc = png[offset + 4..end].iter().fold(!0u32, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
        });
        png[end..end + 4].copy_from_slice(&(!crc).to_be_bytes());
        offset = end + 4;
    }
}

/// A damaged image must fail or have the size in its header.
fn image(originals: &[Vec<u8>], seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let mut file = random.mutated(originals, &WORDS);
    if file.starts_with(b"\x89PNG\r\n\x1a\n") && random.below(8) > 0 {
        seal(&mut file);
    }
    if let Ok(stored) = FloatImage::open(&file)
        && stored.size().area().saturating_mul(stored.channels() as u64) <= MAX_PIXELS
    {
        let (values, mut out) = (stored.size().area() as usize * stored.channels(), Vec::new());
        assert!(stored.read(&mut out).is_err() || out.len() == values, "seed {seed}");
    }
    let codecs = Codecs::new().max_pixels(MAX_PIXELS);
    let Ok(mut image) = codecs.open(&file) else { return false };
    let size = image.size();
    assert!((1..=MAX_PIXELS).contains(&size.area()), "{size:?}");
    let mut out = Pixels::new();
    if image.decode(Rect::full(size), &mut out).is_err() {
        return false;
    }
    assert_eq!(out.size(), size);
    true
}

fn arrays() -> Vec<Vec<u8>> {
    let array = |text: &str, version: &[u8], pixels: usize| {
        [b"\x93NUMPY", version, text.as_bytes(), &vec![7; pixels][..]].concat()
    };
    let tight = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3, 3)}\n";
    let (low, long) = (tight.len() as u8, [2, 0, tight.len() as u8, 0, 0, 0]);
    vec![
        [&npy_header(Size::new(5, 4))[..], &[9; 60]].concat(),
        array(tight, &[1, 0, low, 0], 18),
        array(tight, &long, 18),
        array(&tight.replace("(2, 3, 3)", "(4294967295, 4294967295, 3)"), &[1, 0, low + 18, 0], 18),
    ]
}

/// A damaged array must fail or consist of the bytes after its header.
fn array(arrays: &[Vec<u8>], seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let words: [&[u8]; 12] = [
        b"'descr'",
        b"'shape'",
        b"'fortran_order'",
        b"True",
        b"(",
        b")",
        b", 3",
        b"'|u1'",
        b"'<f4'",
        b"4294967296",
        b"18446744073709551616",
        b"-1",
    ];
    let file = random.mutated(arrays, &words);
    let Ok(mut image) = standard().open(&file) else { return false };
    let size = image.size();
    let pixels = &file[file.len() - size.area() as usize * 3..];
    let (x, y) = (random.below(size.width as usize) as u32, random.below(size.height as usize) as u32);
    let region = Rect::new(x, y, size.width - x, size.height - y);
    let mut out = Pixels::new();
    image.decode(region, &mut out).expect("an image with a size can be read");
    let stride = size.width as usize * 3;
    let rows = pixels.chunks_exact(stride).skip(y as usize).flat_map(|row| &row[x as usize * 3..]);
    assert!(rows.eq(out.data()), "seed {seed}: bytes differ");
    true
}

fn masks() -> Vec<Vec<u8>> {
    let (width, height) = (13, 9);
    let mut files = Vec::new();
    for (depth, bits) in [
        (png::BitDepth::One, 1),
        (png::BitDepth::Two, 2),
        (png::BitDepth::Four, 4),
        (png::BitDepth::Eight, 8),
        (png::BitDepth::Sixteen, 16),
    ] {
        for filter in [png::Filter::NoFilter, png::Filter::Adaptive] {
            let mut file = Vec::new();
            let mut encoder = png::Encoder::new(&mut file, width, height);
            encoder.set_color(png::ColorType::Grayscale);
            encoder.set_depth(depth);
            encoder.set_filter(filter);
            let data: Vec<u8> = (0..(width * bits).div_ceil(8) * height).map(|i| (i * i / 5) as u8).collect();
            encoder.write_header().and_then(|mut writer| writer.write_image_data(&data)).expect("a valid image");
            files.push(file);
        }
    }
    // The encoder does not support interlacing. For a single pixel, changing the header is enough,
    // because all seven passes together contain one row.
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 1, 1);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.write_header().and_then(|mut writer| writer.write_image_data(&[77])).expect("a valid image");
    file[28] = 1;
    seal(&mut file);
    files.push(file);
    files
}

fn values_of(file: &[u8]) -> Option<(Size, Vec<u16>)> {
    let mut scratch = PngScratch::default();
    let mut mask = Png::open(file, &mut scratch).ok()?;
    let size = mask.size();
    if size.area() > MAX_PIXELS {
        return None;
    }
    let mut values = vec![0; size.area() as usize];
    let passes: Vec<Pass> = mask.passes().collect();
    for pass in passes {
        mask.begin_pass(pass);
        for row in 0..pass.rows(size) {
            mask.read_rows(1).ok()?;
            let wide = mask.is_wide();
            for (place, column) in (pass.x..size.width).step_by(pass.column_step as usize).enumerate() {
                let bytes = mask.values();
                let value = match wide {
                    true => u16::from_be_bytes([bytes[2 * place], bytes[2 * place + 1]]),
                    false => u16::from(bytes[place]),
                };
                values[((pass.y + row * pass.row_step) * size.width + column) as usize] = value;
            }
        }
    }
    Some((size, values))
}

fn values_by_png(file: &[u8]) -> Option<(Size, Vec<u16>)> {
    let mut decoder = png::Decoder::new(Cursor::new(file));
    decoder.set_transformations(png::Transformations::IDENTITY);
    let mut reader = decoder.read_info().ok()?;
    let mut out = vec![0; reader.output_buffer_size()?];
    let info = reader.next_frame(&mut out).ok()?;
    let bits = info.bit_depth as usize;
    let value = |row: &[u8], column: usize| match bits {
        16 => u16::from_be_bytes([row[2 * column], row[2 * column + 1]]),
        _ => u16::from(row[column * bits / 8]) >> (8 - bits - column * bits % 8) & ((1 << bits) - 1),
    };
    let rows = out.chunks_exact(info.line_size).take(info.height as usize);
    let values = rows.flat_map(|row| (0..info.width as usize).map(move |column| value(row, column))).collect();
    Some((Size::new(info.width, info.height), values))
}

/// A damaged mask must fail or have the values that the `png` crate decodes. If the `png` crate
/// rejects the file, any values are accepted.
fn mask(masks: &[Vec<u8>], seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let mut file = random.mutated(masks, &WORDS);
    if random.below(8) > 0 {
        seal(&mut file);
    }
    let Some(actual) = values_of(&file) else { return false };
    // The `png` crate rejects some damage that does not affect values, for example in a palette.
    if let Some(expected) = values_by_png(&file) {
        assert_eq!(actual, expected, "seed {seed}");
    }
    true
}

/// A damaged mask in a format other than PNG must fail or have the size in its header.
#[cfg(feature = "formats")]
fn indexed(originals: &[Vec<u8>], seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let file = random.mutated(originals, &WORDS);
    let Ok(mask) = IndexedImage::open(&file, random.below(2) == 0) else { return false };
    let (size, mut values) = (mask.size(), vec![7]);
    if size.area() > MAX_PIXELS || mask.read(&mut values).is_err() {
        return false;
    }
    assert_eq!(values.len() as u64, size.area());
    true
}

#[cfg(feature = "formats")]
#[test]
fn indexed_masks() {
    let originals = originals();
    fuzz::run("indexed_masks", |seed| indexed(&originals, seed));
}

#[test]
fn masks_of_every_depth_have_the_values_of_the_crate_png() {
    for file in masks() {
        assert_eq!(values_of(&file).unwrap(), values_by_png(&file).unwrap());
    }
}

#[test]
fn png_masks() {
    let masks = masks();
    fuzz::run("png_masks", |seed| mask(&masks, seed));
}

#[test]
fn images() {
    let originals = originals();
    fuzz::run("images", |seed| image(&originals, seed));
}

#[test]
fn npy() {
    let arrays = arrays();
    fuzz::run("npy", |seed| array(&arrays, seed));
}
