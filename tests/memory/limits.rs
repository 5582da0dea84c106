//! Tests files with false headers. Declared sizes must be checked before memory is allocated, and
//! paths in files must never be opened.

use std::fs;
use std::path::Path;

use crate::files::member;
use crate::process::serial;
use warpfeed::decode::{Codec, Codecs, EncodedImage, Pixels, Rect, Size};
use warpfeed::format::Format;
use warpfeed::source::{Memory, OwnedSample, Source, Tar};
use warpfeed::{Augment, ErrorKind, Loader, OnError, Result};

fn image(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    image::RgbImage::new(width, height).write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    bytes.into_inner()
}

fn jpeg(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let pixels = vec![99; usize::from(width) * usize::from(height) * 3];
    jpeg_encoder::Encoder::new(&mut bytes, 90).encode(&pixels, width, height, jpeg_encoder::ColorType::Rgb).unwrap();
    bytes
}

fn loader(samples: &[(&str, Vec<u8>)]) -> Loader {
    let samples = samples.iter().enumerate();
    let samples = samples.map(|(i, (field, bytes))| OwnedSample::new(i.to_string()).field(*field, bytes.clone()));
    Loader::source(Memory::new(samples.collect())).augment(Augment::resize(8, 8)).batch_size(1).workers(1)
}

fn error(loader: Loader) -> warpfeed::Error {
    loader.into_iter().find_map(Result::err).unwrap()
}

#[test]
fn an_image_above_the_pixel_limit_is_a_failed_sample() {
    let _serial = serial();
    let npy = [&warpfeed::decode::raw::npy_header(Size::new(30, 20))[..], &[7; 1800]].concat();
    for (field, bytes) in [("png", image(30, 20)), ("jpg", jpeg(30, 20)), ("rgb.npy", npy)] {
        assert!(loader(&[(field, bytes.clone())]).max_pixels(600).into_iter().all(|batch| batch.is_ok()));
        let e = error(loader(&[(field, bytes)]).max_pixels(599));
        assert_eq!(e.kind(), ErrorKind::Decode);
        let kind = match field {
            "jpg" => "jpeg",
            "png" => "png",
            _ => "npy",
        };
        let cause = format!("{kind} header claims 30x20 = 600 pixels, but the limit is 599");
        assert_eq!(e.to_string(), format!("sample 0 (0): decode: {cause}"));
    }
}

/// Returns a file with a header that declares 20,000 x 20,000 pixels, more than 2^28.
fn boasting(field: &str) -> Vec<u8> {
    match field {
        "jpg" => {
            let mut bytes = jpeg(30, 20);
            let sof = bytes.windows(2).position(|w| w == [0xff, 0xc0]).unwrap();
            bytes[sof + 5..sof + 9].copy_from_slice(&[0x4e, 0x20, 0x4e, 0x20]);
            bytes
        }
        "bmp" => {
            let mut bytes = std::io::Cursor::new(Vec::new());
            image::RgbImage::new(3, 2).write_to(&mut bytes, image::ImageFormat::Bmp).unwrap();
            let mut bytes = bytes.into_inner();
            bytes[18..22].copy_from_slice(&20_000u32.to_le_bytes());
            bytes[22..26].copy_from_slice(&20_000u32.to_le_bytes());
            bytes
        }
        _ => unreachable!(),
    }
}

#[test]
fn a_limit_above_the_default_admits_larger_images() {
    let _serial = serial();
    for field in ["jpg", "bmp"] {
        let bytes = boasting(field);
        let e = Codecs::new().open(&bytes).unwrap_err();
        assert!(e.cause().ends_with("header claims 20000x20000 = 400000000 pixels, but the limit is 268435456"), "{e}");
        let codecs = Codecs::new().max_pixels(1 << 30);
        assert_eq!(codecs.open(&bytes).unwrap().size(), Size::new(20_000, 20_000));
        // With a higher limit, the decoder fails because the file contains too few pixels.
        let e = error(loader(&[(field, bytes.clone())]));
        assert!(e.cause().contains("the limit is 268435456"), "{e}");
        let e = error(loader(&[(field, bytes)]).max_pixels(1 << 30));
        assert!(!e.cause().contains("limit"), "{field}: {e}");
    }
}

#[test]
fn the_pixel_limit_of_a_registry_applies_to_every_format() {
    let _serial = serial();
    let npy = [&warpfeed::decode::raw::npy_header(Size::new(30, 20))[..], &[7; 1800]].concat();
    for bytes in [image(30, 20), jpeg(30, 20), npy] {
        let decode = |limit| {
            let codecs = Codecs::new().max_pixels(limit);
            let mut image = codecs.open(&bytes)?;
            image.decode(Rect::new(0, 0, 1, 1), &mut Pixels::new())
        };
        decode(600).unwrap();
        let e = decode(599).unwrap_err();
        assert!(e.cause().ends_with(" header claims 30x20 = 600 pixels, but the limit is 599"), "{e}");
    }
}

/// A custom codec may declare any size, which the loader must check before it requests pixels.
#[test]
fn the_pixel_limit_applies_to_user_defined_codecs() {
    let _serial = serial();
    struct Boaster;
    impl Codec for Boaster {
        fn format(&self) -> Format {
            Format::any("boast")
        }
        fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
            Ok(EncodedImage::new(bytes, Size::new(u32::MAX, u32::MAX)))
        }
        fn decode(&self, _: &mut EncodedImage<'_>, _: Rect, _: &mut Pixels) -> Result<()> {
            unreachable!("the header was refused")
        }
    }
    let e = error(loader(&[("img", vec![1])]).codec(Boaster));
    assert!(e.cause().contains("4294967295x4294967295") && e.cause().contains("the limit is 268435456"), "{e}");
}

#[test]
fn a_sample_above_the_byte_limit_is_refused_or_skipped() {
    let _serial = serial();
    let (small, large) = (image(4, 4), [image(4, 4), vec![0; 10_000]].concat());
    let e = error(loader(&[("png", small.clone()), ("png", large.clone())]).max_sample_bytes(5000));
    let len = large.len();
    assert_eq!(
        e.to_string(),
        format!("sample 1 (1): source: the sample has {len} bytes, but max_sample_bytes is 5000")
    );
    let mut batches = loader(&[("png", small), ("png", large)])
        .batch_size(2)
        .max_sample_bytes(5000)
        .on_error(OnError::Skip { max_skipped: 1 })
        .host()
        .unwrap();
    assert!(batches.epoch(0).all(|batch| batch.is_ok()));
    assert_eq!(batches.sample_errors().len(), 1);
}

#[test]
fn a_file_above_the_byte_limit_of_a_sample_is_the_same_kind_of_error_as_a_value() {
    let _serial = serial();
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.png");
    fs::write(&path, [image(4, 4), vec![0; 10_000]].concat()).unwrap();
    let loader = Loader::new(root.path()).augment(Augment::resize(8, 8)).unlabeled(true).max_sample_bytes(5000);
    let e = error(loader);
    assert_eq!((e.kind(), e.is_transient()), (ErrorKind::Source, false));
    assert!(e.cause().ends_with(" bytes, but max_sample_bytes is 5000"), "{e}");
}

/// Small files declare the largest image that their format (JPEG, BMP) or the type `Size` (`.npy`)
/// allows.
#[test]
fn a_decompression_bomb_is_refused_by_its_header() {
    let _serial = serial();
    let mut jpeg = jpeg(8, 8);
    let sof = jpeg.windows(2).position(|w| w == [0xff, 0xc0]).unwrap();
    jpeg[sof + 5..sof + 9].fill(0xff);
    let mut bmp = std::io::Cursor::new(Vec::new());
    image::RgbImage::new(4, 4).write_to(&mut bmp, image::ImageFormat::Bmp).unwrap();
    let mut bmp = bmp.into_inner();
    bmp[18..26].copy_from_slice(&[0xff, 0xff, 0xff, 0x7f].repeat(2));
    let npy = [&warpfeed::decode::raw::npy_header(Size::new(u32::MAX, u32::MAX))[..], &[7; 99]].concat();
    for (field, bytes) in [("jpg", jpeg), ("bmp", bmp), ("rgb.npy", npy)] {
        let before = peak();
        let e = error(loader(&[(field, bytes)]));
        assert_eq!(e.kind(), ErrorKind::Decode, "{e}");
        assert!(peak() < before + (64 << 20), "{field} took {} MiB", (peak() - before) >> 20);
    }
}

fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

fn linked(name: &str, kind: u8, target: &str) -> Vec<u8> {
    member(name, kind, b"", |header| header[157..157 + target.len()].copy_from_slice(target.as_bytes()))
}

#[test]
fn no_path_in_a_tar_is_opened() {
    let _serial = serial();
    let root = tempfile::tempdir().unwrap();
    let secret = root.path().join("secret.png");
    fs::write(&secret, b"not for the batch").unwrap();
    let absolute = secret.to_str().unwrap();
    let names = [absolute, "../secret.png", "./../../etc/passwd.png", "/dev/zero.png", "a/../../secret.png"];
    let image = image(4, 4);
    let members = names.iter().flat_map(|name| {
        let stem = name.strip_suffix(".png").unwrap();
        [
            member(name, b'0', &image, |_| ()),
            linked(&format!("{stem}.soft.png"), b'2', name),
            linked(&format!("{stem}.hard.png"), b'1', name),
        ]
    });
    let tar = [members.collect::<Vec<_>>().concat(), vec![0; 1024]].concat();
    let folder = root.path().join("shards");
    fs::create_dir(&folder).unwrap();
    let path = folder.join("x.tar");
    fs::write(&path, tar).unwrap();
    fs::remove_file(&secret).unwrap();

    let source = Tar::open(&path).unwrap();
    assert_eq!(source.len(), names.len(), "links are fields of the samples");
    let (mut scratch, mut links) = (Vec::new(), 0);
    for i in 0..source.len() {
        let sample = source.read(i, &mut scratch).unwrap();
        assert_eq!(sample.field("png").unwrap(), image, "the field contains the bytes stored in the tar");
        for link in ["soft.png", "hard.png"].into_iter().filter_map(|name| sample.field(name)) {
            assert_eq!(link, image, "the field contains the bytes stored in the tar");
            links += 1;
        }
    }
    assert_eq!(links, 2, "the hard links to /dev/zero.png and to the absolute path resolve to members of the tar");
    let loader = Loader::source(source).augment(Augment::resize(8, 8)).batch_size(2);
    assert!(loader.into_iter().all(|batch| batch.is_ok()));
    assert!(!secret.exists() && files(root.path()) == 1, "a file was created");
}

fn files(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}

/// Database keys and `__key__` fields must not be opened as paths.
#[test]
fn no_path_in_a_database_is_opened() {
    let _serial = serial();
    use warpfeed::source::{MsgPack, ValueFormat};
    let root = tempfile::tempdir().unwrap();
    let secret = root.path().join("secret.png");
    let mut value = Vec::new();
    rmp::encode::write_map_len(&mut value, 2).unwrap();
    rmp::encode::write_str(&mut value, "__key__").unwrap();
    rmp::encode::write_str(&mut value, secret.to_str().unwrap()).unwrap();
    rmp::encode::write_str(&mut value, "png").unwrap();
    rmp::encode::write_bin(&mut value, b"bytes").unwrap();
    let sample = MsgPack.sample("../../etc/passwd", &value).unwrap();
    assert_eq!((sample.key(), sample.field("png").as_deref()), (secret.to_str().unwrap(), Some(&b"bytes"[..])));
    assert_eq!(files(root.path()), 0);
}
