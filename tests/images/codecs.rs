//! Tests that a custom codec can add a format or replace a built-in one. Folders must include files
//! with the extensions of an added format, and each image must be opened only once.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use warpfeed::decode::{Codec, Codecs, Condition, EncodedImage, Info, Job, Pixels, RawRgb, Rect, Size, decode_group};
use warpfeed::format::{self, Format};
use warpfeed::source::{Folder, Memory, Options, OwnedSample, Source, Tar};
use warpfeed::{Augment, Error, ErrorKind, Loader, Result};

use crate::files::member;
use crate::support::exit_on_hang;

const SIDE: u32 = 24;

/// A codec for Netpbm's PPM, as a user would implement it. A file consists of `P6`, the width, the
/// height and 255 as text, then RGB pixels.
#[derive(Clone, Default)]
struct Ppm {
    opened: Arc<AtomicUsize>,
    decoded: Arc<AtomicUsize>,
}

const PPM: Format =
    Format { name: "ppm", field: "ppm", extensions: &["ppm", "pnm"], matches: |bytes| bytes.starts_with(b"P6") };

struct Start(usize);

impl Codec for Ppm {
    fn format(&self) -> Format {
        PPM
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        self.opened.fetch_add(1, SeqCst);
        let cut = || Error::decode("ppm header is cut short");
        let (mut numbers, mut offset) = ([0u32; 3], 3);
        for number in &mut numbers {
            let digits = bytes[offset..].iter().position(u8::is_ascii_whitespace).ok_or_else(cut)?;
            let text = std::str::from_utf8(&bytes[offset..offset + digits]).ok().and_then(|text| text.parse().ok());
            *number = text.ok_or_else(cut)?;
            offset += digits + 1;
        }
        let size = Size::new(numbers[0], numbers[1]);
        if bytes.len() as u64 != offset as u64 + 3 * size.area() {
            return Err(Error::decode(format!("ppm of {} bytes", bytes.len())));
        }
        Ok(EncodedImage::new(bytes, size).with_header(Start(offset)))
    }

    fn decode(&self, original: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        self.decoded.fetch_add(1, SeqCst);
        let &Start(start) = original.header().expect("this codec opened it");
        let stride = 3 * original.size().width as usize;
        let rows = original.bytes()[start..].chunks_exact(stride).skip(region.y as usize);
        let (left, length) = (3 * region.x as usize, 3 * region.width as usize);
        for (to, from) in out.reset(region.size()).chunks_exact_mut(length).zip(rows) {
            to.copy_from_slice(&from[left..left + length]);
        }
        out.set_origin(region.x, region.y);
        Ok(())
    }
}

fn rgb(seed: u32, width: u32, height: u32) -> Vec<u8> {
    (0..3 * width * height).map(|i| (i * (7 + seed) / 5 % 251) as u8).collect()
}

fn ppm(seed: u32, width: u32, height: u32) -> Vec<u8> {
    [format!("P6 {width} {height} 255\n").as_bytes(), &rgb(seed, width, height)].concat()
}

fn encoded(seed: u32, width: u32, height: u32, format: image::ImageFormat) -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    image::RgbImage::from_raw(width, height, rgb(seed, width, height)).unwrap().write_to(&mut file, format).unwrap();
    file.into_inner()
}

fn jpeg(seed: u32, width: u32, height: u32) -> Vec<u8> {
    encoded(seed, width, height, image::ImageFormat::Jpeg)
}

fn decode_whole(codecs: &Codecs, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut out = Pixels::new();
    let mut original = codecs.open(bytes)?;
    original.decode(Rect::full(original.size()), &mut out)?;
    Ok(out.data().to_vec())
}

fn folder() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for class in ["a", "b"] {
        fs::create_dir(root.path().join(class)).unwrap();
    }
    for i in 0..6 {
        fs::write(root.path().join(format!("a/{i}.jpg")), jpeg(i, SIDE, SIDE)).unwrap();
        let extension = ["ppm", "PPM", "pnm"][i as usize % 3];
        fs::write(root.path().join(format!("b/{i}.{extension}")), ppm(i, SIDE, SIDE)).unwrap();
    }
    root
}

#[test]
fn files_of_an_added_codec_are_found_in_a_folder_with_jpegs() {
    exit_on_hang(|| {
        let (root, codec) = (folder(), Ppm::default());
        assert_eq!(Folder::open(root.path()).unwrap().len(), 6);
        let source = Options::new().formats([PPM]).open(root.path()).unwrap();
        assert_eq!(source.len(), 12);
        let mut scratch = Vec::new();
        for i in 6..12 {
            let sample = source.read(i, &mut scratch).unwrap();
            assert!(sample.field("ppm").is_some() && sample.image().is_none());
            assert_eq!(Codecs::new().with(codec.clone()).image(&sample).unwrap().0, "ppm");
        }

        let loader =
            Loader::new(root.path()).codec(codec.clone()).augment(Augment::pass_through(SIDE, SIDE)).batch_size(12);
        let batch = loader.shuffle(3).workers(2).into_iter().next().unwrap().unwrap();
        let image = 3 * (SIDE * SIDE) as usize;
        let mut seen = 0;
        for (place, (key, &label)) in batch.sample_keys().zip(batch.labels().unwrap()).enumerate() {
            let seed: u32 = key[2..].parse().unwrap();
            let file = if label == 0 { jpeg(seed, SIDE, SIDE) } else { ppm(seed, SIDE, SIDE) };
            let expected =
                if label == 0 { decode_whole(&Codecs::new(), &file).unwrap() } else { rgb(seed, SIDE, SIDE) };
            let actual = &batch.images().as_u8().unwrap()[place * image..][..image];
            assert!(actual == expected, "{key}");
            seen |= 1 << (label * 6 + i64::from(seed));
        }
        assert_eq!(seen, (1 << 12) - 1, "every file is loaded once");
        assert_eq!((codec.opened.load(SeqCst), codec.decoded.load(SeqCst)), (6, 6), "each image is opened once");
    });
}

#[test]
fn a_tar_and_a_mixture_find_the_files_of_an_added_codec() {
    exit_on_hang(|| {
        let root = tempfile::tempdir().unwrap();
        let mut tar = Vec::new();
        for i in 0..4 {
            tar.extend(member(&format!("x/{i}.ppm"), b'0', &ppm(i, SIDE, SIDE), |_| {}));
        }
        tar.extend([0; 1024]);
        let shard = root.path().join("set.tar");
        fs::write(&shard, tar).unwrap();
        for mapped in [true, false] {
            let loader = Loader::new(&shard).mmap(mapped).codec(Ppm::default());
            let batch =
                loader.augment(Augment::pass_through(SIDE, SIDE)).batch_size(4).into_iter().next().unwrap().unwrap();
            let expected: Vec<u8> = (0..4).flat_map(|seed| rgb(seed, SIDE, SIDE)).collect();
            assert!(batch.images().as_u8().unwrap() == expected);
        }
        assert_eq!(Tar::open(&shard).unwrap().len(), 4);

        let set = folder();
        let mixture = Loader::mixture([(set.path(), 0.5), (set.path(), 0.5)]).codec(Ppm::default());
        let batches = mixture.augment(Augment::pass_through(SIDE, SIDE)).batch_size(6).shuffle(1).into_iter();
        assert_eq!(batches.map(|batch| batch.unwrap().len()).sum::<usize>(), 24);
    });
}

struct Takeover(u8);

impl Codec for Takeover {
    fn format(&self) -> Format {
        format::JPEG
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        Ok(EncodedImage::new(bytes, Size::new(SIDE, SIDE)))
    }

    fn decode(&self, _: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        out.reset(region.size()).fill(self.0);
        out.set_origin(region.x, region.y);
        Ok(())
    }
}

#[test]
fn the_last_codec_added_for_a_format_is_used() {
    let codecs = Codecs::new().with(Takeover(1)).with(Takeover(2));
    assert_eq!(decode_whole(&codecs, &jpeg(0, 9, 9)).unwrap(), vec![2; 3 * (SIDE * SIDE) as usize]);
    let png = encoded(5, 9, 7, image::ImageFormat::Png);
    assert_eq!(decode_whole(&codecs, &png).unwrap(), rgb(5, 9, 7), "other formats keep their codecs");

    let sample = |i: u32, field, bytes| OwnedSample::new(i.to_string()).field(field, bytes);
    let set = Memory::new(vec![
        sample(0, "jpg", jpeg(0, SIDE, SIDE)),
        sample(1, "png", encoded(1, SIDE, SIDE, image::ImageFormat::Png)),
        sample(2, "img", jpeg(2, SIDE, SIDE)),
    ]);
    let loader = Loader::source(set).codec(Takeover(7)).augment(Augment::pass_through(SIDE, SIDE)).batch_size(3);
    let batch = loader.into_iter().next().unwrap().unwrap();
    let image = 3 * (SIDE * SIDE) as usize;
    let images = batch.images().as_u8().unwrap();
    assert!(images[..image].iter().chain(&images[2 * image..]).all(|&sample| sample == 7));
    assert!(images[image..2 * image] == rgb(1, SIDE, SIDE));
}

#[test]
fn a_registry_contains_only_its_own_codecs() {
    let codecs = Codecs::only(Ppm::default());
    assert_eq!(decode_whole(&codecs, &ppm(3, 5, 4)).unwrap(), rgb(3, 5, 4));
    assert_eq!(
        codecs.open(&jpeg(0, 9, 9)).unwrap_err().cause(),
        "jpeg images are not supported; convert them, for example to PNG, or add a custom codec"
    );
    assert!(codecs.open(b"text").unwrap_err().cause().starts_with("no known image format starts with"));
    let raw = Codecs::new().with(RawRgb::new(5, 4));
    assert_eq!(decode_whole(&raw, &rgb(3, 5, 4)).unwrap(), rgb(3, 5, 4));
    assert!(raw.open(&jpeg(0, 9, 9)).unwrap_err().cause().starts_with("raw image of 5x4 pixels needs 60 bytes"));
}

#[test]
fn a_group_may_contain_images_of_several_codecs() {
    let codec = Ppm::default();
    let codecs = Codecs::new().with(codec.clone());
    let files = [
        jpeg(1, 40, 30),
        jpeg(2, 31, 33),
        ppm(3, 20, 21),
        ppm(4, 12, 13),
        encoded(5, 22, 23, image::ImageFormat::Png),
        encoded(6, 22, 23, image::ImageFormat::Bmp),
        jpeg(7, 50, 60),
    ];
    let region = Rect::new(3, 2, 8, 9);
    let mut outs = vec![Pixels::new(); files.len()];
    let jobs = files.iter().zip(&mut outs);
    let mut jobs: Vec<Job<'_>> = jobs.map(|(bytes, out)| Job::new(codecs.open(bytes).unwrap(), region, out)).collect();
    decode_group(&mut jobs);
    for (job, bytes) in jobs.iter().zip(&files) {
        job.result.as_ref().unwrap();
        let full = decode_whole(&codecs, bytes).unwrap();
        let (width, part) = (job.image.size().width, job.out.locate(region).unwrap());
        for row in 0..region.height {
            let offset_of = |x: u32, y: u32, width: u32| 3 * (y * width + x) as usize;
            let actual = &job.out.data()[offset_of(part.x, part.y + row, job.out.size().width)..][..24];
            assert_eq!(actual, &full[offset_of(region.x, region.y + row, width)..][..24]);
        }
    }
}

#[test]
fn an_image_may_be_decoded_more_than_once() {
    let codecs = Codecs::new().with(Ppm::default());
    let formats = [
        image::ImageFormat::Jpeg,
        image::ImageFormat::Png,
        image::ImageFormat::WebP,
        image::ImageFormat::Bmp,
        image::ImageFormat::Tiff,
    ];
    let files = formats.map(|format| encoded(9, 26, 17, format));
    for bytes in files.iter().chain([&ppm(9, 26, 17)]) {
        let (mut original, expected) = (codecs.open(bytes).unwrap(), decode_whole(&codecs, bytes).unwrap());
        for _ in 0..3 {
            let mut out = Pixels::new();
            original.decode(Rect::new(0, 0, 26, 17), &mut out).unwrap();
            assert!(out.data() == expected);
            assert!(matches!(original.check().unwrap(), Condition::Sound));
        }
    }
}

#[test]
fn every_codec_refuses_an_empty_region_and_one_outside() {
    let codecs = Codecs::new().with(Ppm::default());
    for bytes in [jpeg(0, 16, 9), encoded(0, 16, 9, image::ImageFormat::Png), ppm(0, 16, 9)] {
        let mut original = codecs.open(&bytes).unwrap();
        for region in [Rect::new(10, 0, 7, 9), Rect::new(0, 0, 0, 1), Rect::new(u32::MAX, 1, 2, 2)] {
            let e = original.decode(region, &mut Pixels::new()).unwrap_err();
            let cause =
                if region.width == 0 { "is empty: expected at least 1x1" } else { "is not inside an image of 16x9" };
            assert!(e.cause().ends_with(cause), "{e}");
        }
    }
}

#[test]
fn an_open_image_reports_its_header() {
    let codecs = Codecs::new().with(Ppm::default());
    let file = ppm(0, 16, 9);
    let info = codecs.open(&file).unwrap().info();
    assert_eq!((info.format, info.size, info.jpeg), ("ppm", Size::new(16, 9), None));
    let file = jpeg(0, 16, 9);
    assert_eq!(codecs.open(&file).unwrap().info(), Info::read(&file).unwrap());
    // Without a registry, the decoder does not know the codec of this image.
    let alone = Ppm::default();
    let file = ppm(0, 16, 9);
    let mut image = alone.open(&file).unwrap();
    for e in [image.decode(Rect::new(0, 0, 1, 1), &mut Pixels::new()).unwrap_err(), image.check().unwrap_err()] {
        assert!(e.kind() == ErrorKind::Config && e.cause().contains("`Codecs::open`"), "{e}");
    }
}

/// Adding a codec must require only one file and one line.
#[test]
fn formats_are_named_only_in_the_table_and_by_their_codecs() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let named = |path: &str| {
        let text = fs::read_to_string(root.join(path)).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap().lines();
        let code: Vec<_> = code.filter(|line| !line.trim_start().starts_with("//")).collect();
        ["\"jpg\"", "\"jpeg\"", "\"png\"", "\"webp\"", "\"tiff\"", "xff\\xd8", "NUMPY\""]
            .into_iter()
            .filter(|name| code.iter().any(|line| line.contains(name)))
            .collect::<Vec<_>>()
    };
    assert!(named("sources/src/format.rs").len() >= 6, "the search found too few formats");
    for path in [
        "sources/src/model/sample.rs",
        "sources/src/formats/folder/source.rs",
        "sources/src/formats/folder/listing.rs",
        "sources/src/open/open.rs",
        "sources/src/formats/tar/index.rs",
        "sources/src/formats/lmdb/layout.rs",
        "src/decode/codecs/registry.rs",
        "src/decode/codecs/image.rs",
        "src/decode/encoded.rs",
        "src/decode/image.rs",
        "src/decode/info.rs",
        "src/decode/standard.rs",
        "src/pack/recode.rs",
    ] {
        assert_eq!(named(path), [""; 0], "{path}");
    }
}
