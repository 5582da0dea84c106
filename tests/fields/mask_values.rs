//! Tests class indices in masks. If classes are renumbered or datasets are joined, the values of
//! Pascal VOC masks must change like the classes of boxes, before and after packing. A map assigns
//! class indices to values or colors, and the error for a value outside the map must contain this
//! value. A mask must have the same values in every lossless format.

use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::sync::Arc;

use crate::annotated::{expect_error, write_files};
use crate::reference_fields::{image, npy};
use crate::support::exit_on_hang;
use warpfeed::decode::Size;
use warpfeed::field::{Annotations, Boxes, Mask};
use warpfeed::pack::Pack;
use warpfeed::sampler::Rng;
use warpfeed::source::{Classes, Concat, Memory, OwnedSample, Source, open};
use warpfeed::{Augment, Dtype, Loader, OnError, Result};

const SIDES: (u32, u32) = (20, 10);
const SIZE: Size = Size { width: 20, height: 10 };

/// Encodes an 8-bit PNG with a palette, in which index i has the color (i, 2i, 3i).
fn palette_png(values: &[u8], (width, height): (u32, u32)) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_palette((0..=255_u8).flat_map(|i| [i, i.wrapping_mul(2), i.wrapping_mul(3)]).collect::<Vec<_>>());
    encoder.write_header().unwrap().write_image_data(values).unwrap();
    out
}

fn values(classes: u8, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed, 3, 3);
    let value = |rng: &mut Rng| match rng.below(u64::from(classes) + 2) as u8 {
        last if last == classes + 1 => 255,
        value => value,
    };
    (0..SIDES.0 * SIDES.1).map(|_| value(&mut rng)).collect()
}

fn voc(names: &[&str], images: usize, seed: u64) -> (tempfile::TempDir, Vec<Vec<u8>>) {
    let mut files = Vec::new();
    for (image, name) in (0..images).map(|image| (image, names[image % names.len()])) {
        files.push((format!("JPEGImages/{image}.png"), String::new()));
        let object = format!(
            "<object><name>{name}</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object>"
        );
        files.push((format!("Annotations/{image}.xml"), format!("<annotation>\n{object}</annotation>")));
    }
    let root = write_files(&files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect::<Vec<_>>());
    fs::create_dir(root.path().join("SegmentationClass")).unwrap();
    let masks: Vec<_> = (0..images).map(|image| values(names.len() as u8, seed + image as u64)).collect();
    for (image, mask) in masks.iter().enumerate() {
        let file = root.path().join(format!("SegmentationClass/{image}.png"));
        fs::write(file, palette_png(mask, SIDES)).unwrap();
    }
    (root, masks)
}

fn delivered(loader: Loader) -> Result<Vec<(i64, Vec<i64>)>> {
    let loader = loader.drop_field("label").augment(Augment::pass_through(SIDES.0, SIDES.1)).batch_size(3);
    let loader = loader.field("boxes", Boxes::new(1).column("class", Dtype::I64));
    let mut masks_by_key = Vec::new();
    for batch in loader.field("mask", Mask::new(Dtype::I64)) {
        let batch = batch?;
        let classes = batch.field("boxes.class").unwrap().as_i64().unwrap().to_vec();
        let masks = batch.field("mask").unwrap().as_i64().unwrap();
        masks_by_key.extend(classes.into_iter().zip(masks.chunks(200).map(<[i64]>::to_vec)));
    }
    Ok(masks_by_key)
}

fn renumbered(mask: &[u8], old: &[&str], new: &[&str]) -> Vec<i64> {
    let number = |value: &u8| match *value {
        0 | 255 => i64::from(*value),
        value => new.iter().position(|name| *name == old[usize::from(value) - 1]).unwrap() as i64 + 1,
    };
    mask.iter().map(number).collect()
}

const SORTED: [&str; 3] = ["ant", "bee", "fox"];

#[test]
fn renumbered_classes_agree_in_masks_and_boxes() {
    exit_on_hang(|| {
        let (root, masks) = voc(&SORTED, 7, 0);
        let list = ["fox", "zebra", "bee", "ant"];
        let expected: Vec<_> = masks
            .iter()
            .enumerate()
            .map(|(index, mask)| {
                let class = list.iter().position(|name| *name == SORTED[index % 3]).unwrap() as i64;
                (class, renumbered(mask, &SORTED, &list))
            })
            .collect();
        let plain = delivered(Loader::new(root.path())).unwrap();
        assert!(plain.iter().zip(&masks).all(|((_, actual), mask)| *actual == renumbered(mask, &SORTED, &SORTED)));
        assert_eq!(delivered(Loader::new(root.path()).classes(list)).unwrap(), expected);
        let source = open(root.path()).unwrap();
        let numbered = Classes::new(list).unwrap().relabel(source.clone()).unwrap();
        for target in ["set.lmdb", "set.tar"] {
            let target = root.path().join(target);
            Pack::new(&*numbered).force(true).to(&target).unwrap();
            assert_eq!(delivered(Loader::new(&target)).unwrap(), expected, "{}", target.display());
            Pack::new(&*source).force(true).to(&target).unwrap();
            assert_eq!(delivered(Loader::new(&target)).unwrap(), plain, "{}", target.display());
            assert_eq!(delivered(Loader::new(&target).classes(list)).unwrap(), expected, "{}", target.display());
        }
    });
}

#[test]
fn joined_datasets_number_mask_classes_by_name() {
    exit_on_hang(|| {
        let (sets, join): ([&[&str]; 2], _) = ([&["ant", "bee"], &["bee", "fox"]], ["ant", "bee", "fox"]);
        let roots = [voc(sets[0], 4, 10), voc(sets[1], 4, 20)];
        let parts: Vec<Arc<dyn Source>> = roots.iter().map(|(root, _)| open(root.path()).unwrap()).collect();
        let actual = delivered(Loader::source(Concat::match_labels_by_name(parts).unwrap())).unwrap();
        let expected = roots
            .iter()
            .zip(sets)
            .flat_map(|((_, masks), names)| masks.iter().map(move |mask| renumbered(mask, names, &join)));
        assert!(actual.iter().map(|(_, mask)| mask.clone()).eq(expected));
        let target = roots[0].0.path().join("joined.tar");
        let parts: Vec<Arc<dyn Source>> = roots.iter().map(|(root, _)| open(root.path()).unwrap()).collect();
        let joined = Concat::match_labels_by_name(parts).unwrap();
        Pack::new(&joined).to(&target).unwrap();
        let (packed, mut scratch) = (open(&target).unwrap(), Vec::new());
        let sample = packed.read(4, &mut scratch).unwrap();
        let image = image::load_from_memory(&sample.field("mask.png").unwrap()).unwrap().to_rgb8();
        let old = &roots[1].1[0];
        assert!(image.pixels().zip(old).all(|(color, &old)| color.0[0] == old), "packing changed the colors");
        assert_eq!(delivered(Loader::new(&target)).unwrap(), actual);
    });
}

#[test]
fn unlisted_mask_classes_fail_and_unnamed_masks_stay_unchanged() {
    exit_on_hang(|| {
        let (root, masks) = voc(&SORTED, 3, 30);
        let loader = || Loader::new(root.path()).drop_field("label").augment(Augment::pass_through(SIDES.0, SIDES.1));
        let only = loader().classes(["ant", "bee"]).on_error(OnError::Skip { max_skipped: 3 });
        let mut batches = only.field("mask", Mask::new(Dtype::I64)).batch_size(3).host().unwrap();
        drop(batches.epoch(0).next());
        let fault = batches.sample_errors()[0].error.to_string();
        assert!(fault.contains("class \"fox\" is not in the list of classes") && fault.contains("mask.png"), "{fault}");
        // A class list changes the label indices, but not the masks of this dataset.
        let sample = OwnedSample::new("a").label(1).field("rgb.npy", image(SIZE));
        let sample = sample.field("mask.png", palette_png(&masks[0], SIDES));
        let set = Memory::new(vec![sample]).with_classes(["cat", "dog"]);
        let loader = Loader::source(set).classes(["dog", "cat"]).augment(Augment::pass_through(SIDES.0, SIDES.1));
        let batch = loader.field("mask", Mask::new(Dtype::U8)).into_iter().next().unwrap().unwrap();
        assert_eq!(batch.labels().unwrap(), [0]);
        assert_eq!(batch.field("mask").unwrap().bytes(), masks[0]);
    });
}

fn deliver_one(name: &str, mask: Vec<u8>, kind: Mask) -> Result<Vec<i64>> {
    let sample = OwnedSample::new("deep/x").field("rgb.npy", image(SIZE));
    let loader = Loader::source(Memory::new(vec![sample.field(name, mask)])).drop_field("label");
    let loader = loader.augment(Augment::pass_through(SIDES.0, SIDES.1)).field("mask", kind);
    let batch = loader.into_iter().next().unwrap()?;
    Ok(batch.field("mask").unwrap().as_i64().unwrap().to_vec())
}

#[test]
fn an_unmapped_mask_value_fails_with_its_coordinates() {
    let mask = values(3, 40);
    let stored = || palette_png(&mask, SIDES);
    let kind = || Mask::new(Dtype::I64);
    let map = BTreeMap::from([(0_i64, 7_i64), (1, 0), (2, 7), (3, 1), (255, 255)]);
    let expected: Vec<i64> = mask.iter().map(|&value| map[&i64::from(value)]).collect();
    assert_eq!(deliver_one("mask.png", stored(), kind().map(map.clone())).unwrap(), expected);
    let ignored: Vec<i64> = mask.iter().map(|&value| if value == 1 { 0 } else { 255 }).collect();
    assert_eq!(deliver_one("mask.png", stored(), kind().map([(1, 0)]).ignore(255)).unwrap(), ignored);
    let e = deliver_one("mask.png", stored(), kind().map([(0, 0), (1, 1), (3, 2), (255, 255)])).unwrap_err();
    let index = mask.iter().position(|&value| value == 2).unwrap();
    let place = format!("field \"mask.png\": column {}, row {}: the value 2 is not in the map", index % 20, index / 20);
    assert!(e.cause().starts_with(&place) && e.to_string().contains("deep/x"), "{e}");
    // With a known number of classes, the ignored value 255 need not be the fill value.
    assert!(deliver_one("mask.png", stored(), kind().classes(4).ignore(255)).is_ok());
    assert!(deliver_one("mask.png", stored(), kind().classes(4)).unwrap_err().cause().contains("the value 255"));
    let array = npy("|u1", "(10, 20)", &mask);
    assert_eq!(deliver_one("mask.npy", array, kind().map(map.clone())).unwrap(), expected);
    for (kind, words) in [
        (kind().map([(0, 9)]).classes(3), "the value 0 is mapped to 9, which the mask cannot hold"),
        (Mask::new(Dtype::U8).map([(0, 256)]), "is mapped to 256"),
        (Mask::new(Dtype::U8).ignore(-1), "ignore=-1 does not fit into uint8"),
        (kind().map([(0, 0), (0, 1)]), "the value 0 is mapped twice"),
        (kind().map([(0, 0)]).colors([([0; 3], 0)]), "a map cannot contain both values and colors"),
    ] {
        let e = deliver_one("mask.png", stored(), kind).unwrap_err();
        assert!(e.cause().contains(words), "{e}");
    }
}

#[test]
fn colors_map_to_classes_in_every_color_format() {
    let mask = values(3, 50);
    let color = |value: u8| [value.wrapping_mul(40), 128, value];
    let mut rgb = image::RgbImage::new(SIDES.0, SIDES.1);
    rgb.pixels_mut().zip(&mask).for_each(|(pixel, &value)| pixel.0 = color(value));
    let expected: Vec<i64> = mask.iter().map(|&value| if value == 255 { 9 } else { i64::from(value) }).collect();
    let kind = || Mask::new(Dtype::I64).colors([0, 1, 2, 3].map(|value| (color(value), value.into())));
    let encoded = |format| {
        let mut out = Cursor::new(Vec::new());
        rgb.write_to(&mut out, format).unwrap();
        out.into_inner()
    };
    use image::ImageFormat::{Bmp, Png, Tiff, WebP};
    for (name, format) in [("mask.png", Png), ("mask.bmp", Bmp), ("mask.tif", Tiff), ("mask.webp", WebP)] {
        assert_eq!(deliver_one(name, encoded(format), kind().ignore(9)).unwrap(), expected, "{name}");
        let e = deliver_one(name, encoded(format), kind()).unwrap_err();
        let unmapped = color(255);
        let words = format!("the color ({}, {}, {}) is not in the map", unmapped[0], unmapped[1], unmapped[2]);
        assert!(e.cause().contains(&words), "{e}");
        let sample = OwnedSample::new("x").field(name, encoded(format));
        let actual = Annotations::read(&sample.as_sample().unwrap(), SIZE).unwrap();
        assert!(actual.mask_pixel_counts.is_none(), "{name}: without a map, colors are not read as classes");
        let e = deliver_one(name, encoded(format), Mask::new(Dtype::I64)).unwrap_err();
        assert!(e.cause().contains("to read other masks, use Mask::colors"), "{name}: {e}");
    }
    let by_color = Mask::new(Dtype::I64)
        .colors([0, 1, 2, 3, 255].map(|i: u8| ([i, i.wrapping_mul(2), i.wrapping_mul(3)], i64::from(i) + 1)));
    let expected: Vec<i64> = mask.iter().map(|&value| i64::from(value) + 1).collect();
    assert_eq!(deliver_one("mask.png", palette_png(&mask, SIDES), by_color).unwrap(), expected);
}

/// Encodes an 8-bit BMP with palette colors that are unrelated to the indices.
fn palette_bmp(values: &[u8]) -> Vec<u8> {
    let start = 54 + 1024_u32;
    let mut out = b"BM".to_vec();
    out.extend((start + 200).to_le_bytes());
    out.extend([0; 4]);
    out.extend(start.to_le_bytes());
    out.extend([40, 0, 0, 0, 20, 0, 0, 0, 10, 0, 0, 0, 1, 0, 8, 0]);
    out.extend([0; 24]);
    out.extend((0..1024).map(|i| (i * 37) as u8));
    values.chunks(20).rev().for_each(|row| out.extend(row));
    out
}

fn palette_tiff(values: &[u8], little: bool) -> Vec<u8> {
    let short = |value: u16| if little { value.to_le_bytes() } else { value.to_be_bytes() };
    let long = |value: u32| if little { value.to_le_bytes() } else { value.to_be_bytes() };
    let entry = |tag: u16, kind: u16, count: u32, value: u32| {
        let value = if kind == 3 { [short(value as u16), [0; 2]].concat() } else { long(value).to_vec() };
        [&short(tag)[..], &short(kind), &long(count), &value].concat()
    };
    let colors: u32 = 8 + 2 + 9 * 12 + 4;
    let pixels = colors + 3 * 256 * 2;
    let mut out = if little { b"II*\0".to_vec() } else { b"MM\0*".to_vec() };
    out.extend(long(8));
    out.extend(short(9));
    for (tag, kind, count, value) in [
        (256, 4, 1, 20),
        (257, 4, 1, 10),
        (258, 3, 1, 8),
        (259, 3, 1, 1),
        (262, 3, 1, 3),
        (273, 4, 1, pixels),
        (278, 4, 1, 10),
        (279, 4, 1, 200),
    ] {
        out.extend(entry(tag, kind, count, value));
    }
    out.extend([&short(320)[..], &short(3), &long(768), &long(colors)].concat());
    out.extend(long(0));
    out.extend((0..768_u16).flat_map(|i| short(i * 85)));
    out.extend(values);
    out
}

#[test]
fn every_lossless_format_gives_the_same_mask() {
    exit_on_hang(|| {
        let mask = values(3, 60);
        let expected: Vec<i64> = mask.iter().map(|&value| value.into()).collect();
        let kind = || Mask::new(Dtype::I64);
        let encoded = |image: image::DynamicImage, format| {
            let mut out = Cursor::new(Vec::new());
            image.write_to(&mut out, format).unwrap();
            out.into_inner()
        };
        let gray = || image::DynamicImage::from(image::GrayImage::from_raw(20, 10, mask.clone()).unwrap());
        let deep =
            image::ImageBuffer::<image::Luma<u16>, _>::from_raw(20, 10, mask.iter().map(|&v| v.into()).collect());
        let mut gif = Vec::new();
        let palette: Vec<u8> = (0..768).map(|i| (i * 37) as u8).collect();
        let mut encoder = gif::Encoder::new(&mut gif, 20, 10, &palette).unwrap();
        let frame = gif::Frame { width: 20, height: 10, buffer: mask.clone().into(), ..gif::Frame::default() };
        encoder.write_frame(&frame).unwrap();
        drop(encoder);
        let masks = [
            ("mask.gif", gif.clone()),
            ("mask.bmp", palette_bmp(&mask)),
            ("mask.tif", encoded(gray(), image::ImageFormat::Tiff)),
            ("mask.tif", encoded(deep.unwrap().into(), image::ImageFormat::Tiff)),
            ("mask.tiff", palette_tiff(&mask, true)),
            ("mask.tif", palette_tiff(&mask, false)),
            ("mask.webp", encoded(gray().to_rgb8().into(), image::ImageFormat::WebP)),
            ("mask", gif),
        ];
        for (name, mask) in masks {
            assert_eq!(deliver_one(name, mask.clone(), kind()).unwrap(), expected, "{name}");
            // A truncated mask must fail or have the same size, and must not cause a hang.
            for cut in (0..mask.len().min(200)).chain([mask.len() - 1]) {
                if let Ok(actual) = deliver_one(name, mask[..cut].to_vec(), kind()) {
                    assert_eq!(actual.len(), 200, "{name} of {cut} bytes");
                }
            }
        }
        let jpeg = encoded(gray(), image::ImageFormat::Jpeg);
        let e = expect_error(deliver_one("mask", jpeg, kind()));
        assert!(e.cause().contains("jpeg does not preserve the values of a mask"), "{e}");
        let mut lossy = encoded(gray().to_rgb8().into(), image::ImageFormat::WebP);
        lossy[12..16].copy_from_slice(b"VP8 ");
        let e = expect_error(deliver_one("mask.webp", lossy, kind()));
        assert!(e.cause().contains("lossy webp does not preserve the values of a mask"), "{e}");
    });
}
