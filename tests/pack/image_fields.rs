//! Tests that packing recodes the image fields that are named in the options like the main image of
//! a sample, and reports how much they have changed. Masks and other fields must not change.

use std::io::Cursor;

use image::{ImageFormat, RgbImage};
use warpfeed::decode::{Codec, Codecs, EncodedImage, Pixels, Rect, Size};
use warpfeed::format::Format;
use warpfeed::pack::{Pack, Recode};
use warpfeed::source::{Frames, Memory, OwnedSample, Sample, Source, open};
use warpfeed::{Error, ErrorKind, Result};

fn picture(seed: u32) -> RgbImage {
    RgbImage::from_fn(48, 40, |x, y| image::Rgb([(x * 5 + seed) as u8, (y * 6) as u8, (x * y * seed % 256) as u8]))
}

fn png(seed: u32) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    picture(seed).write_to(&mut bytes, ImageFormat::Png).unwrap();
    bytes.into_inner()
}

fn pixels(bytes: &[u8]) -> Vec<u8> {
    let codecs = Codecs::new();
    let (mut image, mut pixels) = (codecs.open(bytes).unwrap(), Pixels::default());
    image.decode(Rect::full(image.size()), &mut pixels).unwrap();
    pixels.data().to_vec()
}

fn psnr(one: &[u8], two: &[u8]) -> f64 {
    let squares: f64 = one.iter().zip(two).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum();
    10.0 * (255.0_f64.powi(2) / (squares / one.len() as f64)).log10()
}

fn dataset() -> Memory {
    let sample = |i: u32| {
        OwnedSample::new(i.to_string())
            .field("png", png(10 * i + 1))
            .field("left.png", png(10 * i + 2))
            .field("right", png(10 * i + 3))
            .field("clip", Frames::encode(&[png(10 * i + 4), png(10 * i + 5)]))
            .field("mask.png", png(10 * i + 6))
            .field("left.depth.png", png(10 * i + 7))
            .field("note.txt", "text")
    };
    Memory::new(vec![sample(0), sample(1)])
}

fn field(sample: &Sample<'_>, name: &str) -> Vec<u8> {
    sample.field(name).unwrap_or_else(|| panic!("no field {name} among {:?}", sample.names())).into_owned()
}

#[test]
fn named_image_fields_are_encoded_and_other_fields_are_not() {
    let root = tempfile::tempdir().unwrap();
    for target in ["a.tar", "a.lmdb"] {
        let path = root.path().join(target);
        let pack = Pack::new(&dataset())
            .images(["left", "right", "clip"])
            .recode(Recode::Quality { quality: 90, max_side: None })
            .to(&path);
        let report = pack.unwrap();
        assert_eq!((report.samples, report.reencoded, report.unchanged, report.not_recoded_count), (2, 10, 0, 0));
        let packed = open(&path).unwrap();
        let mut psnrs = Vec::new();
        for i in 0..2 {
            let mut scratch = Vec::new();
            let sample = packed.read(i, &mut scratch).unwrap();
            let seed = 10 * i as u32;
            assert_eq!(field(&sample, "mask.png"), png(seed + 6));
            assert_eq!(field(&sample, "left.depth.png"), png(seed + 7));
            assert_eq!(field(&sample, "note.txt"), b"text");
            assert!(sample.field("png").is_none());
            let clip = field(&sample, "clip");
            let clip: Vec<&[u8]> = Frames::read(&clip).unwrap().iter().collect();
            let images = [
                field(&sample, "jpg"),
                field(&sample, "left.png"),
                field(&sample, "right"),
                clip[0].to_vec(),
                clip[1].to_vec(),
            ];
            for (image, seed) in images.iter().zip(seed + 1..) {
                assert!(image.starts_with(b"\xff\xd8"));
                psnrs.push(psnr(picture(seed).as_raw(), &pixels(image)));
            }
        }
        let psnr = report.psnr.unwrap();
        let lowest = psnrs.iter().copied().fold(f64::INFINITY, f64::min);
        assert!((psnr.mean - psnrs.iter().sum::<f64>() / 10.0).abs() < 0.006, "{} {psnrs:?}", psnr.mean);
        assert!((psnr.lowest - lowest).abs() < 0.006 && (5.0..60.0).contains(&lowest), "{} {psnrs:?}", psnr.lowest);
        assert_eq!(psnr.lowest_key, if psnrs[..5].contains(&lowest) { "0" } else { "1" });
    }
}

#[test]
fn fields_that_are_not_named_stay_unchanged() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.tar");
    let report = Pack::new(&dataset()).recode(Recode::Quality { quality: 90, max_side: None }).to(&path).unwrap();
    assert_eq!(report.reencoded, 2);
    let packed = open(&path).unwrap();
    let mut scratch = Vec::new();
    let sample = packed.read(1, &mut scratch).unwrap();
    assert_eq!((field(&sample, "left.png"), field(&sample, "right")), (png(12), png(13)));
}

#[test]
fn the_error_for_a_damaged_image_names_its_field() {
    let root = tempfile::tempdir().unwrap();
    let damaged = png(3)[..200].to_vec();
    let damaged_source = Memory::new(vec![OwnedSample::new("a").field("png", png(1)).field("left", damaged.clone())]);
    let pack = |keep: bool, name: &str| {
        let pack = Pack::new(&damaged_source).images(["left"]).keep_undecodable(keep);
        pack.recode(Recode::Quality { quality: 90, max_side: None }).to(root.path().join(name))
    };
    let e = pack(false, "a.tar").unwrap_err().to_string();
    assert!(e.contains("1 of 2 images cannot be decoded") && e.contains("field \"left\""), "{e}");
    let report = pack(true, "b.tar").unwrap();
    assert_eq!((report.reencoded, report.not_recoded_count, report.undecodable_count), (1, 1, 1));
    let packed = open(root.path().join("b.tar")).unwrap();
    let mut scratch = Vec::new();
    assert_eq!(field(&packed.read(0, &mut scratch).unwrap(), "left"), damaged);
}

/// Otherwise, the field would no longer match the image.
#[test]
fn an_image_is_not_shrunk_next_to_a_field_that_would_keep_its_size() {
    let root = tempfile::tempdir().unwrap();
    let array = |header: &str, bytes: usize| {
        let mut file =
            [b"\x93NUMPY\x01\0".as_slice(), &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
        file.resize(file.len() + bytes, 0);
        file
    };
    let flow = array("{'descr': '<f4', 'fortran_order': False, 'shape': (40, 48, 2), }\n", 40 * 48 * 8);
    let embedding = array("{'descr': '<f4', 'fortran_order': False, 'shape': (48, 40), }\n", 40 * 48 * 4);
    let pack = |name: &str, value: Vec<u8>, images: &[&str]| {
        let sample = OwnedSample::new("a").field("png", png(1)).field(name, value);
        let source = Memory::new(vec![sample]);
        let pack = Pack::new(&source).images(images.iter().copied()).recode(Recode::MaxSide(24)).force(true);
        pack.to(root.path().join("a.tar"))
    };
    for (name, value) in
        [("depth.png", png(2)), ("seg", png(3)), ("flow.npy", flow), ("seg", Frames::encode(&[png(4), png(5)]))]
    {
        let e = pack(name, value, &[]).unwrap_err();
        let expected = format!(
            "the image would become 24x20 instead of 48x40, but the field {name:?} has the size of the original and \
             would keep it: pack without resizing, or, if the field contains photographs and not masks or maps, name \
             it in the option images"
        );
        assert_eq!((e.cause(), e.sample()), (&*expected, Some(0)));
    }
    assert_eq!(pack("left", png(2), &["left"]).unwrap().reencoded, 2);
    assert_eq!(pack("embedding.npy", embedding, &[]).unwrap().reencoded, 1);
}

#[test]
fn a_field_that_no_sample_has_is_refused_as_an_image_field() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.tar");
    let (few, many) = (dataset(), Memory::new(vec![OwnedSample::new("a").field("png", png(1)); 1_001]));
    for (source, shards) in [(&few, false), (&few, true), (&many, false)] {
        let pack = Pack::new(source).images(["png", "lft"]);
        let e = if shards { pack.shard_samples(1) } else { pack }.to(&path).unwrap_err();
        let (searched, fields) = match source.len() {
            2 => ("no sample", r#"["png", "left.png", "right", "clip", "mask.png", "left.depth.png", "note.txt"]"#),
            _ => ("none of 1000 samples", r#"["png"]"#),
        };
        assert_eq!(e.cause(), format!("images: {searched} has the field \"lft\"; the fields are {fields}"));
        assert_eq!((e.kind(), std::fs::read_dir(root.path()).unwrap().count()), (ErrorKind::Config, 0));
    }
    let some = Memory::new(vec![
        OwnedSample::new("a").field("png", png(1)),
        OwnedSample::new("b").field("png", png(1)).field("left.png", png(2)),
    ]);
    assert_eq!(Pack::new(&some).images(["left"]).to(&path).unwrap().samples, 2);
}

/// Decodes any bytes that begin with `BAD` to one gray pixel, and then reports that they are
/// damaged.
struct Unsound;

impl Codec for Unsound {
    fn format(&self) -> Format {
        Format { name: "bad", field: "bad", extensions: &["bad"], matches: |bytes| bytes.starts_with(b"BAD") }
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        Ok(EncodedImage::new(bytes, Size::new(1, 1)))
    }

    fn decode(&self, _: &mut EncodedImage<'_>, _: Rect, out: &mut Pixels) -> Result<()> {
        out.reset(Size::new(1, 1)).fill(77);
        Ok(())
    }

    fn damage(&self, _: &mut EncodedImage<'_>) -> Result<Option<String>> {
        Err(Error::decode("the checksum is wrong"))
    }
}

#[test]
fn an_image_that_fails_its_check_is_stored_unchanged_although_it_decodes() {
    let root = tempfile::tempdir().unwrap();
    let source = Memory::new(vec![OwnedSample::new("a").field("bad", "BAD image").label(1)]);
    let pack = Pack::new(&source).codec(Unsound).recode(Recode::Quality { quality: 90, max_side: None });
    let path = root.path().join("a.tar");
    let report = pack.keep_undecodable(true).to(&path).unwrap();
    assert_eq!((report.undecodable_count, report.reencoded), (1, 0));
    let packed = open(&path).unwrap();
    assert_eq!(field(&packed.read(0, &mut Vec::new()).unwrap(), "bad"), b"BAD image");
}
