//! Tests that packing reduces 16-bit images to 8 bits only on request, and blends transparent
//! pixels with the requested background. The manifest must record both.

use std::io::Cursor;
use std::path::Path;

use image::{DynamicImage, ImageBuffer, ImageFormat, Luma, Rgba};
use serde_json::{Value, json};
use warpfeed::decode::{Codecs, Pixels, Rect, Size};
use warpfeed::pack::{Pack, RawSize, Recode, Report};
use warpfeed::source::{Memory, OwnedSample, open};
use warpfeed::{ErrorKind, Result};

fn deep(width: u32, height: u32) -> Vec<u8> {
    encoded(ImageBuffer::from_fn(width, height, |x, y| Luma([(((x + y) << 8) | ((x * 91 + y * 57) % 256)) as u16])))
}

fn transparent(width: u32, height: u32) -> Vec<u8> {
    encoded(ImageBuffer::from_fn(width, height, |x, _| Rgba([200_u8, 0, 0, if x < width / 2 { 0 } else { 255 }])))
}

fn encoded(image: impl Into<DynamicImage>) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.into().write_to(&mut bytes, ImageFormat::Png).unwrap();
    bytes.into_inner()
}

fn samples() -> Memory {
    Memory::new(vec![
        OwnedSample::new("large").field("png", deep(120, 80)),
        OwnedSample::new("small").field("png", deep(50, 40)),
        OwnedSample::new("clear").field("png", transparent(100, 100)),
    ])
}

fn images(target: &Path) -> Vec<(String, Vec<u8>)> {
    let source = open(target).unwrap();
    let mut scratch = Vec::new();
    let image = |index| {
        let sample = source.read(index, &mut scratch).unwrap();
        let (name, bytes) = Codecs::new().image(&sample).unwrap();
        (name.to_owned(), bytes.to_vec())
    };
    (0..source.len()).map(image).collect()
}

fn decoded(codecs: &Codecs, bytes: &[u8]) -> Result<(Size, Vec<u8>)> {
    let mut original = codecs.open(bytes)?;
    let (size, mut pixels) = (original.size(), Pixels::new());
    original.decode(Rect::full(size), &mut pixels)?;
    Ok((size, pixels.data().to_vec()))
}

fn treatment(folder: &Path) -> Value {
    let manifest = std::fs::read(folder.join("set.manifest.json")).unwrap();
    serde_json::from_slice::<Value>(&manifest).unwrap()["plan"]["recode"].take()
}

#[test]
fn images_of_16_bits_are_kept_and_listed_by_default() {
    let set = samples();
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("set.tar");
    let pack = |convert: bool| -> Report {
        let pack = Pack::new(&set).recode(Recode::MaxSide(60)).shard_samples(10).convert_to_u8(convert).force(true);
        pack.to(&target).unwrap()
    };
    let shard = root.path().join("set-000000.tar");
    let report = pack(false);
    assert_eq!((report.reencoded, report.unchanged, report.not_recoded_count), (1, 1, 1));
    assert!(report.not_recoded[0].reason.contains("convert_to_u8(true) keeps the upper 8"), "{:?}", report.not_recoded);
    assert_eq!(images(&shard)[0].1, deep(120, 80), "the image is packed unchanged");
    assert_eq!(treatment(root.path()), json!({"how": "max_side", "max_side": 60}));

    let report = pack(true);
    assert_eq!((report.reencoded, report.unchanged, report.not_recoded_count), (2, 1, 0));
    let packed = images(&shard);
    let (size, pixels) = decoded(&Codecs::new(), &packed[0].1).unwrap();
    assert_eq!((&*packed[0].0, size), ("jpg", Size::new(60, 40)));
    // Except for JPEG's loss, the pixel equals the mean of the upper bytes.
    let middle = pixels[(20 * 60 + 30) * 3];
    assert!(middle.abs_diff(100) < 6, "{middle}");
    assert_eq!(packed[1].1, deep(50, 40), "an image that is not shrunk keeps its bits");
    assert_eq!(treatment(root.path()), json!({"how": "max_side", "max_side": 60, "convert_to_u8": true}));
}

#[test]
fn arrays_hold_the_upper_bytes_and_the_background() {
    let set = samples();
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("set.tar");
    let raw = Recode::Raw(RawSize::Exact(Size::new(100, 100)));
    let pack = Pack::new(&set).recode(raw).shard_samples(10).convert_to_u8(true).background([9, 200, 30]);
    assert_eq!(pack.to(&target).unwrap().raw, 3);
    let codecs = Codecs::new().convert_to_u8(true).background([9, 200, 30]);
    let packed = images(&root.path().join("set-000000.tar"));
    let clear = decoded(&Codecs::new(), &packed[2].1).unwrap();
    assert!(clear == decoded(&codecs, &transparent(100, 100)).unwrap());
    assert_eq!((&clear.1[..3], &clear.1[99 * 3..100 * 3]), (&[9, 200, 30][..], &[200, 0, 0][..]));
    let expected =
        json!({"how": "raw", "width": 100, "height": 100, "convert_to_u8": true, "background": [9, 200, 30]});
    assert_eq!(treatment(root.path()), expected);
}

#[test]
fn conversion_without_decoding_is_refused_before_writing() {
    let set = samples();
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("set.lmdb");
    for recode in [Recode::Lossless, Recode::KeepBytes] {
        let pack = || Pack::new(&set).recode(recode);
        for (pack, option) in
            [(pack().convert_to_u8(true), "convert_to_u8(true)"), (pack().background([0; 3]), "background")]
        {
            let e = pack.to(&target).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Config);
            let expected =
                "has no effect, because no image is decoded: remove it, or recode as quality, max_side or raw";
            assert_eq!(e.cause(), format!("{option} {expected}"));
        }
    }
    assert!(!target.exists());
}
