//! Tests of the decoder. `tests/fuzz/jpeg.rs` tests more damaged files.

mod hostile;
mod kept;
mod small;
mod trailing_bits;

use super::fuzz_jpeg::{damage, random_jpeg};
use super::kernels::Backend;
use super::libjpeg::{Options, encode};
use crate::bitstream::Bitstream;
use crate::decoder::{Decoder, Job};
use crate::error::Result;
use crate::fuzz::Random;
use crate::jpeg::Jpeg;
use crate::pixels::{Pixels, Rect, Size};

pub(super) fn decode(decoder: &mut Decoder, jpeg: &[u8], region: Rect, out: &mut Pixels) -> Result<()> {
    decoder.decode(&Jpeg::open(jpeg)?, region, out)
}

pub(super) fn decoders() -> Vec<Decoder> {
    Backend::available().into_iter().map(Decoder::with_backend).collect()
}

pub(super) fn size(jpeg: &[u8]) -> Option<Size> {
    Some(Jpeg::open(jpeg).ok()?.size())
}

pub(super) fn decode_all(decoder: &mut Decoder, files: &[Vec<u8>], regions: &[Rect]) -> Vec<Result<Vec<u8>>> {
    let mut outs = vec![Pixels::new(); files.len()];
    let opened: Vec<Jpeg<'_>> = files.iter().map(|bytes| Jpeg::open(bytes).unwrap()).collect();
    let job = |((jpeg, &region), out)| Job::new(jpeg, region, out);
    let mut jobs: Vec<Job<'_>> = opened.iter().zip(regions).zip(&mut outs).map(job).collect();
    decoder.decode_group(&mut jobs);
    jobs.into_iter().map(|job| job.result.map(|()| job.out.data().to_vec())).collect()
}

#[test]
fn a_job_has_the_same_result_in_a_group_as_alone() {
    for mut decoder in decoders() {
        for seed in 0..40 {
            let random = &mut Random::new(seed);
            let files: Vec<Vec<u8>> = (0..1 + random.below(40))
                .map(|_| {
                    let mut jpeg = random_jpeg(random, 90);
                    if random.below(5) == 0 {
                        damage(random, &mut jpeg);
                    }
                    jpeg
                })
                .filter(|jpeg| size(jpeg).is_some_and(|size| size.area() < 1 << 20))
                .collect();
            let regions: Vec<Rect> = files
                .iter()
                .map(|jpeg| {
                    let Size { width, height } = size(jpeg).unwrap();
                    let (x, y) = (random.below(width as usize) as u32, random.below(height as usize) as u32);
                    let part = |random: &mut Random, limit: u32| 1 + random.below(limit as usize) as u32;
                    Rect::new(x, y, part(random, width - x), part(random, height - y))
                })
                .collect();
            let single_results: Vec<_> = files
                .iter()
                .zip(&regions)
                .map(|(jpeg, &region)| {
                    let mut out = Pixels::new();
                    decode(&mut Decoder::with_backend(Backend::scalar()), jpeg, region, &mut out)
                        .map(|()| out.data().to_vec())
                })
                .collect();
            for (i, (actual, expected)) in
                decode_all(&mut decoder, &files, &regions).iter().zip(&single_results).enumerate()
            {
                assert!(actual == expected, "seed {seed}, job {i}: {:?}, alone {:?}", actual.is_ok(), expected.is_ok());
            }
        }
    }
}

#[test]
fn an_error_states_where_a_truncated_file_ends() {
    let pixels: Vec<u8> = (0..100 * 80 * 3).map(|i| (i * i / 7) as u8).collect();
    for options in [Options::new(90, 2, 2), Options { restart: 3, ..Options::new(90, 1, 1) }] {
        let jpeg = encode(&pixels, 100, 80, 3, &options);
        for keep in [jpeg.len() / 2, jpeg.len() * 2 / 3] {
            let mut out = Pixels::new();
            let e = decode(&mut Decoder::new(), &jpeg[..keep], Rect::new(0, 0, 100, 80), &mut out).unwrap_err();
            assert!(e.to_string().starts_with(&format!("jpeg ends at byte {keep}")), "{e}");
        }
    }
}

#[test]
fn a_huge_image_with_too_few_bytes_is_refused() {
    let mut jpeg = encode(&[128; 64], 8, 8, 1, &Options::new(50, 1, 1));
    let sof = (0..jpeg.len()).find(|&i| jpeg[i..].starts_with(&[0xff, 0xc0])).unwrap();
    for side in [16000u16, 60000] {
        jpeg[sof + 5..sof + 7].copy_from_slice(&side.to_be_bytes());
        jpeg[sof + 7..sof + 9].copy_from_slice(&side.to_be_bytes());
        let mut out = Pixels::new();
        let region = Rect::new(0, 0, side.into(), side.into());
        let e = decode(&mut Decoder::new(), &jpeg, region, &mut out).unwrap_err();
        assert!(e.to_string().contains("blocks need at least"), "{e}");
        assert_eq!(out.capacity(), 0);
    }
}

#[test]
fn an_unsupported_coding_is_named_in_the_error() {
    let jpeg = encode(&[128; 64 * 3], 8, 8, 3, &Options::new(50, 1, 1));
    let sof = (0..jpeg.len()).find(|&i| jpeg[i..].starts_with(&[0xff, 0xc0])).unwrap();
    let with = |offset: usize, value: u8| {
        let mut jpeg = jpeg.clone();
        jpeg[offset] = value;
        Jpeg::open(&jpeg).unwrap_err().to_string()
    };
    for (marker, kind) in [
        (0xc3, "a lossless"),
        (0xc5, "a hierarchical"),
        (0xc9, "an arithmetic-coded"),
        (0xca, "an arithmetic-coded"),
        (0xcb, "an arithmetic-coded, lossless"),
        (0xcd, "an arithmetic-coded, hierarchical"),
    ] {
        assert_eq!(with(sof + 1, marker), format!("{kind} JPEG is not supported"));
    }
    assert_eq!(with(sof + 4, 12), "a 12-bit JPEG is not supported");
    let mut odd = jpeg.clone();
    (odd[sof + 11], odd[sof + 14]) = (0x31, 0x22);
    let uneven = Jpeg::open(&odd).unwrap_err().to_string();
    assert!(uneven.contains("do not divide 3x2"), "{uneven}");
}

#[test]
fn a_region_that_is_empty_or_outside_the_image_is_refused() {
    let bytes = encode(&[128; 64 * 3], 8, 8, 3, &Options::new(50, 1, 1));
    let (jpeg, mut stream) = (Jpeg::open(&bytes).unwrap(), Bitstream::default());
    for region in [Rect::new(0, 0, 9, 8), Rect::new(8, 0, 1, 1), Rect::new(2, 2, 0, 3), Rect::new(u32::MAX, 0, 2, 2)] {
        let e = Decoder::new().decode(&jpeg, region, &mut Pixels::new()).unwrap_err();
        let Rect { x, y, width, height } = region;
        let cause = if width == 0 { "is empty: expected at least 1x1" } else { "is not inside an image of 8x8" };
        assert_eq!(e.to_string(), format!("a region of {width}x{height} at ({x}, {y}) {cause}"));
        assert_eq!(stream.extract(&jpeg, region, usize::MAX), None);
        assert_eq!(Bitstream::memory_for(&jpeg, region, usize::MAX), 0);
    }
}
