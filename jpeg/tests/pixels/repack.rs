//! Tests that a repacked JPEG has the same pixels as the original, and has the restart markers that
//! make crops faster to decode.

use crate::libjpeg;
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use proptest::prelude::*;
use warpfeed_jpeg::{Decoder, Jpeg, Pixels, Rect, Size, repack};

#[derive(Debug, Clone)]
struct TestImage {
    width: u16,
    height: u16,
    color: ColorType,
    sampling: SamplingFactor,
    quality: u8,
    progressive: bool,
    restart: u16,
    optimized: bool,
}

const PLAIN: TestImage = TestImage {
    width: 100,
    height: 80,
    color: ColorType::Rgb,
    sampling: SamplingFactor::F_1_1,
    quality: 90,
    progressive: false,
    restart: 0,
    optimized: false,
};

impl TestImage {
    /// Edges, slopes and noise produce coefficients of all sizes and long runs of zeros.
    fn pixels(&self) -> Vec<u8> {
        let channels = self.channels();
        let (w, h) = (usize::from(self.width), usize::from(self.height));
        let mut state = 12345u32;
        let value = |i: usize| {
            let (x, y, c) = (i / channels % w, i / channels / w, i % channels);
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            let noise = if (x / 24 + y / 40) % 3 == 0 { state >> 26 } else { state >> 31 };
            let edge = if (x + 2 * y) % 97 < 13 { 140 } else { 0 };
            (x * (c + 1) + y * 2 + edge + noise as usize) as u8
        };
        (0..w * h * channels).map(value).collect()
    }

    fn channels(&self) -> usize {
        match self.color {
            ColorType::Luma => 1,
            ColorType::Rgb => 3,
            _ => 4,
        }
    }

    fn encoder<'a>(&self, out: &'a mut Vec<u8>) -> Encoder<&'a mut Vec<u8>> {
        let mut encoder = Encoder::new(out, self.quality);
        encoder.set_sampling_factor(self.sampling);
        encoder.set_progressive(self.progressive);
        encoder.set_optimized_huffman_tables(self.optimized);
        if self.restart > 0 {
            encoder.set_restart_interval(self.restart);
        }
        encoder
    }

    fn jpeg(&self) -> Vec<u8> {
        let mut jpeg = Vec::new();
        self.encoder(&mut jpeg).encode(&self.pixels(), self.width, self.height, self.color).unwrap();
        jpeg
    }
}

fn repacked(jpeg: &[u8]) -> Vec<u8> {
    let mut out = b"before".to_vec();
    repack(jpeg, &mut out).unwrap();
    assert_eq!(out.drain(..6).as_slice(), b"before", "the JPEG is appended");
    out
}

fn decoded(jpeg: &[u8]) -> Vec<u8> {
    let mut pixels = Pixels::new();
    let jpeg = Jpeg::open(jpeg).unwrap();
    Decoder::new().decode(&jpeg, Rect::full(jpeg.size()), &mut pixels).unwrap();
    pixels.data().to_vec()
}

/// Checks with libjpeg that repacking does not change coefficients and pixels, and that the result
/// is baseline. Repacking the result again must not change it. Returns the result.
fn check(jpeg: &[u8]) -> Vec<u8> {
    let packed = repacked(jpeg);
    assert_eq!(libjpeg::coefficients(jpeg).unwrap(), libjpeg::coefficients(&packed).unwrap());
    let pixels = libjpeg::decode(&packed).unwrap();
    assert!(libjpeg::decode(jpeg).unwrap() == pixels);
    assert_eq!(pixels.warnings, 0);
    assert!(decoded(&packed) == pixels.rgb);
    assert!(packed.windows(2).any(|w| w == [0xff, 0xc0]), "not baseline");
    assert_eq!(repacked(&packed), packed);
    packed
}

/// Returns the restart interval in DRI and the number of RSTn markers, which must count up modulo
/// 8.
fn restarts(jpeg: &[u8]) -> (usize, usize) {
    let dri = jpeg.windows(4).position(|w| w == [0xff, 0xdd, 0, 4]).expect("DRI") + 4;
    let marks: Vec<u8> =
        jpeg.windows(2).filter(|w| w[0] == 0xff && (0xd0..0xd8).contains(&w[1])).map(|w| w[1]).collect();
    assert!(marks.iter().zip((0..8).cycle()).all(|(&mark, n)| mark == 0xd0 + n), "{marks:x?}");
    (usize::from(jpeg[dri]) << 8 | usize::from(jpeg[dri + 1]), marks.len())
}

const SAMPLINGS: [SamplingFactor; 11] = [
    SamplingFactor::F_1_1,
    SamplingFactor::F_2_1,
    SamplingFactor::F_1_2,
    SamplingFactor::F_2_2,
    SamplingFactor::F_4_1,
    SamplingFactor::F_4_2,
    SamplingFactor::F_1_4,
    // These factors are the same, but the file has one scan per component.
    SamplingFactor::R_4_4_4,
    SamplingFactor::R_4_2_2,
    SamplingFactor::R_4_4_0,
    SamplingFactor::R_4_2_0,
];

fn test_image() -> impl Strategy<Value = TestImage> {
    let color = prop::sample::select(vec![ColorType::Rgb, ColorType::Luma, ColorType::Cmyk, ColorType::CmykAsYcck]);
    let sampling = prop::sample::select(&SAMPLINGS[..]);
    // `jpeg_encoder` has a bug: with restart markers, its optimized Huffman tables lack some codes.
    let coding = prop_oneof![(0u16..40, Just(false)), Just((0, true))];
    (1u16..200, 1u16..200, color, sampling, 5u8..=100, any::<bool>(), coding).prop_map(
        |(width, height, color, sampling, quality, progressive, (restart, optimized))| TestImage {
            width,
            height,
            color,
            // With four components, K is sampled like Y, so these factors would exceed the limit of
            // ten blocks per MCU.
            sampling: if color == ColorType::Luma || color == ColorType::Rgb || sampling != SamplingFactor::F_4_2 {
                sampling
            } else {
                SamplingFactor::F_2_2
            },
            quality,
            progressive,
            restart,
            optimized,
        },
    )
}

fn options() -> impl Strategy<Value = libjpeg::Options> {
    let factors =
        prop_oneof![
            prop::sample::select(vec![(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (4, 2), (2, 4)])
                .prop_map(|luma| [luma, (1, 1), (1, 1)]),
            prop::sample::select(vec![[(2, 2), (2, 1), (1, 2)], [(1, 1), (2, 2), (1, 2)], [(2, 1), (2, 1), (2, 1)]]),
        ];
    let restart = prop_oneof![Just(0), 1u32..40];
    (factors, 1u8..=100, restart, any::<[bool; 3]>()).prop_map(|(sampling, quality, restart, flags)| libjpeg::Options {
        sampling,
        restart,
        optimize: flags[0],
        progressive: flags[1],
        rgb: flags[2] && quality % 2 == 0,
        ..libjpeg::Options::new(quality, 1, 1)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn repacking_keeps_pixels_and_coefficients(
        options in options(), width in 1u16..200, height in 1u16..200, gray in any::<bool>()
    ) {
        let (color, channels) = if gray { (ColorType::Luma, 1) } else { (ColorType::Rgb, 3) };
        let pixels = TestImage { width, height, color, ..PLAIN }.pixels();
        let jpeg = libjpeg::encode(&pixels, width.into(), height.into(), channels, &options);
        let packed = check(&jpeg);
        prop_assert!(decoded(&jpeg) == decoded(&packed));
    }

    #[test]
    fn a_file_from_a_second_encoder_keeps_its_pixels(image in test_image()) {
        check(&image.jpeg());
    }

    #[test]
    fn damaged_files_are_refused_or_keep_their_pixels(
        image in test_image(),
        hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in 0usize..400
    ) {
        let mut jpeg = TestImage { width: image.width.min(64), height: image.height.min(64), ..image }.jpeg();
        for (at, value) in hits {
            let offset = at.index(jpeg.len());
            jpeg[offset] = value;
        }
        jpeg.truncate(jpeg.len() - cut.saturating_sub(200));
        let mut packed = Vec::new();
        if repack(&jpeg, &mut packed).is_err() {
            prop_assert!(packed.is_empty());
        } else if let Ok(expected) = libjpeg::decode(&jpeg) {
            // libjpeg may still warn about a JFIF or Adobe segment that is newer than the versions
            // it supports.
            let actual = libjpeg::decode(&packed).unwrap();
            prop_assert!(actual.rgb == expected.rgb);
            prop_assert!(actual.warnings <= expected.warnings);
        }
    }
}

#[test]
fn every_sampling_and_coding_is_repacked() {
    for sampling in SAMPLINGS {
        for (progressive, restart) in [(false, 0), (false, 7), (true, 0), (true, 5)] {
            for color in [ColorType::Rgb, ColorType::Luma, ColorType::Cmyk] {
                let image = TestImage { width: 131, height: 77, sampling, progressive, restart, color, ..PLAIN };
                if color == ColorType::Cmyk && sampling == SamplingFactor::F_4_2 {
                    let refused = repack(&image.jpeg(), &mut Vec::new()).unwrap_err();
                    assert!(refused.to_string().contains("11 blocks in an MCU"), "{refused}");
                    continue;
                }
                check(&image.jpeg());
            }
        }
    }
}

#[test]
fn a_second_decoder_agrees() {
    for (sampling, progressive) in
        [(SamplingFactor::F_1_1, false), (SamplingFactor::F_2_2, false), (SamplingFactor::F_2_2, true)]
    {
        for color in [ColorType::Rgb, ColorType::Luma] {
            let jpeg = TestImage { width: 300, height: 211, sampling, progressive, color, ..PLAIN }.jpeg();
            let read = |jpeg: &[u8]| image::load_from_memory_with_format(jpeg, image::ImageFormat::Jpeg).unwrap();
            assert!(read(&jpeg) == read(&repacked(&jpeg)));
        }
    }
}

#[test]
fn segments_are_32_to_64_pixels_wide() {
    let restarts_of = |width, sampling| {
        let jpeg = TestImage { width, height: 40, sampling, ..PLAIN }.jpeg();
        restarts(&repacked(&jpeg))
    };
    // 500 pixels are 63 MCUs of 8 pixels each. The 315 MCUs in 5 rows are divided into segments of
    // 8 MCUs.
    assert_eq!(restarts_of(500, SamplingFactor::F_1_1), (8, 40 - 1));
    // 32 MCUs of 16 pixels each make 8 segments per row, in 3 rows.
    assert_eq!(restarts_of(500, SamplingFactor::F_2_2), (4, 8 * 3 - 1));
    // The 47 MCUs of a row are a prime number, so segments extend past the end of a row.
    assert_eq!(restarts_of(375, SamplingFactor::F_1_1), (6, 40 - 1));
    assert_eq!(restarts_of(4096, SamplingFactor::F_2_2), (4, 64 * 3 - 1));
    // A small image is not split into segments of a few pixels.
    assert_eq!(restarts_of(32, SamplingFactor::F_1_1), (4, 5 - 1));
    assert_eq!(restarts_of(64, SamplingFactor::F_1_1), (4, 2 * 5 - 1));
}

#[test]
fn huffman_tables_are_optimized_for_the_image() {
    let image = TestImage { width: 640, height: 480, ..PLAIN };
    let (standard, packed) = (image.jpeg(), repacked(&image.jpeg()));
    assert!(packed.len() < standard.len(), "{} bytes became {}", standard.len(), packed.len());
    let optimal = TestImage { optimized: true, ..image }.jpeg();
    let segments = restarts(&packed).1 + 1;
    assert!(packed.len() < optimal.len() + 8 * segments, "{} bytes became {}", optimal.len(), packed.len());
}

/// Building an optimized table takes longer than decoding the bytes that it saves in a small image.
#[test]
fn small_images_keep_the_standard_tables() {
    let tables = |jpeg: &[u8]| {
        let (mut offset, mut tables) = (2, Vec::new());
        while jpeg[offset + 1] != 0xda {
            let length = usize::from(jpeg[offset + 2]) << 8 | usize::from(jpeg[offset + 3]);
            if jpeg[offset + 1] == 0xc4 {
                tables.extend_from_slice(&jpeg[offset + 4..offset + 2 + length]);
            }
            offset += 2 + length;
        }
        tables
    };
    let pixels = |image: &TestImage| (image.pixels(), u32::from(image.width), u32::from(image.height));
    for sampling in [(1, 1), (2, 2)] {
        for (side, standard) in [(8, true), (64, true), (640, false)] {
            let (rgb, width, height) = pixels(&TestImage { width: side, height: side, ..PLAIN });
            let encode = |optimize| {
                let options = libjpeg::Options { optimize, ..libjpeg::Options::new(90, sampling.0, sampling.1) };
                libjpeg::encode(&rgb, width, height, 3, &options)
            };
            // The result must not depend on the tables of the original file.
            let [plain, optimized] = [encode(false), encode(true)];
            assert_eq!(repacked(&plain), repacked(&optimized));
            assert_eq!(tables(&repacked(&plain)) == tables(&plain), standard, "{side} pixels, {sampling:?}");
        }
    }
}

#[test]
fn only_segments_that_affect_pixels_are_kept() {
    let image = TestImage { width: 40, height: 24, ..PLAIN };
    // The TIFF structure is little-endian. Its second entry of three is the orientation, 6.
    let mut tiff = b"II\x2a\0\x08\0\0\0\x03\0".to_vec();
    for (tag, value) in [(0x0100u16, 40u16), (0x0112, 6), (0x0213, 1)] {
        tiff.extend([tag.to_le_bytes(), [3, 0], [1, 0], [0, 0], value.to_le_bytes(), [0, 0]].concat());
    }
    tiff.extend([0; 4]);
    let mut jpeg = Vec::new();
    let mut encoder = image.encoder(&mut jpeg);
    encoder.add_exif_metadata(&tiff).unwrap();
    encoder.add_icc_profile(b"profile").unwrap();
    encoder.add_app_segment(13, b"Photoshop 3.0\0 and more".to_vec()).unwrap();
    encoder.encode(&image.pixels(), 40, 24, ColorType::Rgb).unwrap();
    jpeg.extend(b"something after the image");

    let packed = repacked(&jpeg);
    let contains = |what: &[u8]| packed.windows(what.len()).any(|w| w == what);
    assert!(contains(b"JFIF\0") && contains(b"ICC_PROFILE\0\x01\x01profile"));
    assert!(!contains(b"Photoshop") && !contains(b"something after"));
    assert_eq!(Jpeg::open(&packed).unwrap().size(), Size::new(24, 40), "the EXIF orientation swaps width and height");
    assert!(decoded(&jpeg) == decoded(&packed));
}

#[test]
fn a_file_that_cannot_be_repacked_is_refused_with_the_reason() {
    let reason = |jpeg: &[u8]| repack(jpeg, &mut Vec::new()).unwrap_err().to_string();
    let jpeg = PLAIN.jpeg();
    let sof = jpeg.windows(2).position(|w| w == [0xff, 0xc0]).unwrap();
    let with = |offset: usize, value: u8| {
        let mut jpeg = jpeg.clone();
        jpeg[offset] = value;
        jpeg
    };
    assert!(reason(&with(sof + 1, 0xc9)).contains("an arithmetic-coded JPEG is not supported"));
    assert!(reason(&with(sof + 4, 12)).contains("a 12-bit JPEG is not supported"));
    assert!(reason(&with(sof + 11, 0x44)).contains("18 blocks in an MCU"));
    assert!(reason(&jpeg[..jpeg.len() / 2]).contains("damaged in MCU"));
    // Fill bytes that do not precede a marker are damage. libjpeg-turbo's two bit readers interpret
    // them differently.
    let sos = jpeg.windows(2).position(|w| w == [0xff, 0xda]).unwrap();
    let stuffed = sos + jpeg[sos..].windows(2).position(|w| w == [0xff, 0]).unwrap();
    let mut filled = jpeg.clone();
    filled.splice(stuffed..stuffed, [0xff; 3]);
    assert!(reason(&filled).contains("damaged in MCU"), "{}", reason(&filled));
    assert!(reason(b"\x89PNG").contains("does not start with the marker SOI"));
    for end in 0..jpeg.len() - 2 {
        assert!(!reason(&jpeg[..end]).is_empty());
    }
    assert!(reason(&jpeg[..jpeg.len() - 2]).contains("no EOI marker"));
}
