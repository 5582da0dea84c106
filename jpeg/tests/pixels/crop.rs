//! Tests that a crop has the same pixels as a full decode by libjpeg, with many samplings, sizes
//! and restart intervals. Most crops are decoded in a group with other regions of the image.

use std::ops::RangeInclusive;

use crate::libjpeg::{self, Decoded, Options};
use proptest::prelude::*;
use warpfeed_jpeg::{Decoder, Job, Jpeg, Pixels, Rect, Size, repack};

/// 4:4:4, 4:2:2, 4:4:0, 4:2:0, 4:1:1 and its vertical counterpart, and samplings that cameras do
/// not use.
const SAMPLINGS: [[(u8, u8); 3]; 10] = [
    [(1, 1), (1, 1), (1, 1)],
    [(2, 1), (1, 1), (1, 1)],
    [(1, 2), (1, 1), (1, 1)],
    [(2, 2), (1, 1), (1, 1)],
    [(4, 1), (1, 1), (1, 1)],
    [(1, 4), (1, 1), (1, 1)],
    [(4, 2), (1, 1), (1, 1)],
    [(2, 2), (2, 1), (1, 2)],
    [(1, 1), (2, 2), (1, 2)],
    [(2, 1), (2, 1), (2, 1)],
];

/// Gradients plus noise, clipped to stay away from 0 and 255, so that all decoders round and clamp
/// in the same way.
fn pixels(width: u32, height: u32, channels: u32, noise: u32) -> Vec<u8> {
    let position = |i: u32| (i / channels % width, i / channels / width, i % channels);
    let sample = |i: u32| {
        let ((x, y, channel), random) = (position(i), i.wrapping_mul(2_654_435_761) >> 16);
        (40 + x % 97 + y % 61 + 20 * channel + random % (noise + 1)).min(235) as u8
    };
    (0..width * height * channels).map(sample).collect()
}

fn region(size: Size, [x, y, width, height]: [u16; 4]) -> Rect {
    let part = |side: u32, number: u16| (side * u32::from(number)) >> 16;
    let (x, y) = (part(size.width, x), part(size.height, y));
    Rect::new(x, y, part(size.width - x, width) + 1, part(size.height - y, height) + 1)
}

fn cropped(image: &Decoded, region: Rect) -> Vec<u8> {
    let rows = image.rgb.chunks_exact(3 * image.width as usize);
    let (from, count) = (3 * region.x as usize, 3 * region.width as usize);
    rows.skip(region.y as usize)
        .take(region.height as usize)
        .flat_map(|row| &row[from..from + count])
        .copied()
        .collect()
}

fn decoded(jpeg: &[u8], regions: &[Rect]) -> Vec<Vec<u8>> {
    let jpeg = Jpeg::open(jpeg).unwrap();
    let mut outs = vec![Pixels::new(); regions.len()];
    let job = |(&region, out)| Job::new(&jpeg, region, out);
    let mut jobs: Vec<Job<'_>> = regions.iter().zip(&mut outs).map(job).collect();
    Decoder::new().decode_group(&mut jobs);
    jobs.iter().for_each(|job| assert_eq!(job.result.as_ref().err().map(ToString::to_string), None));
    drop(jobs);
    outs.iter().map(|out| out.data().to_vec()).collect()
}

fn check(jpeg: &[u8], boxes: &[[u16; 4]]) {
    let image = libjpeg::decode(jpeg).unwrap();
    let size = Size::new(image.width, image.height);
    let mut regions = vec![Rect::full(size)];
    regions.extend(boxes.iter().map(|&numbers| region(size, numbers)));
    for (actual, region) in decoded(jpeg, &regions).iter().zip(&regions) {
        assert!(*actual == cropped(&image, *region), "{region:?} of {size:?} differs");
    }
}

fn options(restart: RangeInclusive<u32>) -> impl Strategy<Value = Options> {
    let sampling = prop::sample::select(&SAMPLINGS[..]);
    (sampling, 5u8..=100, restart, any::<bool>()).prop_map(|(sampling, quality, restart, optimize)| Options {
        sampling,
        restart,
        optimize,
        ..Options::new(quality, 1, 1)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_crop_has_the_pixels_of_a_full_decode(
        options in options(0..=48),
        width in 1u32..160, height in 1u32..120, gray in any::<bool>(), noise in 0u32..120,
        boxes in prop::collection::vec(any::<[u16; 4]>(), 1..5),
    ) {
        let channels = if gray { 1 } else { 3 };
        let pixels = pixels(width, height, channels, noise);
        check(&libjpeg::encode(&pixels, width, height, channels as usize, &options), &boxes);
    }

    #[test]
    fn a_crop_of_a_packed_jpeg_has_the_same_pixels(
        options in options(0..=0), progressive in any::<bool>(),
        width in 100u32..400, height in 8u32..70, boxes in prop::collection::vec(any::<[u16; 4]>(), 1..4),
    ) {
        let options = Options { progressive, ..options };
        let plain = libjpeg::encode(&pixels(width, height, 3, 30), width, height, 3, &options);
        let mut packed = Vec::new();
        repack(&plain, &mut packed).unwrap();
        prop_assert!(libjpeg::decode(&packed).unwrap() == libjpeg::decode(&plain).unwrap());
        check(&packed, &boxes);
    }
}

#[test]
fn every_restart_interval_gives_the_same_pixels() {
    for sampling in SAMPLINGS {
        let (width, height) = (91, 75);
        let pixels = pixels(width, height, 3, 40);
        let options = Options { sampling, ..Options::new(88, 1, 1) };
        let expected = libjpeg::decode(&libjpeg::encode(&pixels, width, height, 3, &options)).unwrap();
        // Restart intervals range from one MCU to more MCUs than the image has (12 x 10 without
        // chroma subsampling).
        for restart in 1..=121 {
            let jpeg = libjpeg::encode(&pixels, width, height, 3, &Options { restart, ..options.clone() });
            let (middle, corner) = (Rect::new(37, 21, 30, 29), Rect::new(80, 60, 11, 15));
            for (actual, region) in decoded(&jpeg, &[middle, corner]).iter().zip([middle, corner]) {
                assert!(*actual == cropped(&expected, region), "{sampling:?}, every {restart} MCUs: {region:?}");
            }
        }
    }
}

#[test]
fn one_scan_per_component_gives_the_same_pixels() {
    for sampling in SAMPLINGS {
        for (width, height, restart) in [(91, 75, 0), (91, 75, 5), (17, 33, 1), (8, 8, 0), (1, 1, 0), (130, 9, 3)] {
            let options = Options { sampling, restart, ..Options::new(90, 1, 1) };
            let single_scan_jpeg = libjpeg::encode(&pixels(width, height, 3, 60), width, height, 3, &options);
            let multi_scan_jpeg = libjpeg::one_scan_per_component(&single_scan_jpeg, restart).unwrap();
            let scans = |jpeg: &[u8]| jpeg.windows(2).filter(|bytes| *bytes == [0xff, 0xda]).count();
            assert_eq!((scans(&single_scan_jpeg), scans(&multi_scan_jpeg)), (1, 3));
            assert!(libjpeg::decode(&multi_scan_jpeg).unwrap().rgb == libjpeg::decode(&single_scan_jpeg).unwrap().rgb);
            check(
                &multi_scan_jpeg,
                &[[20000, 30000, 20000, 30000], [60000, 60000, 65535, 65535], [0, 40000, 65535, 100]],
            );
        }
    }
}

/// The decoder first reserves memory for the average number of bytes per pixel, but this crop is
/// the only dense area of the file.
#[test]
fn a_crop_may_need_most_of_a_large_files_data() {
    let (size, dense) = (Size::new(2400, 1600), Rect::new(1600, 900, 800, 700));
    let value = |x: u32, y: u32, c: u32| {
        let noise = (x * 3 + y * 7919 + c * 31).wrapping_mul(2_654_435_761) >> 24;
        if x < dense.x || y < dense.y { 90 } else { 40 + noise as u8 % 180 }
    };
    let rows = (0..size.height).flat_map(|y| (0..size.width).flat_map(move |x| [0, 1, 2].map(|c| value(x, y, c))));
    let pixels: Vec<u8> = rows.collect();
    for restart in [0, 8, 300] {
        let options = Options { restart, ..Options::new(100, 1, 1) };
        let jpeg = libjpeg::encode(&pixels, size.width, size.height, 3, &options);
        let image = libjpeg::decode(&jpeg).unwrap();
        let mut packed = Vec::new();
        repack(&jpeg, &mut packed).unwrap();
        for file in [&jpeg, &packed] {
            assert!(file.len() > 1_600_000, "{} bytes", file.len());
            assert!(decoded(file, &[dense])[0] == cropped(&image, dense), "{restart} MCUs");
        }
    }
}

#[test]
fn rows_decoded_separately_match_libjpeg() {
    let size = Size::new(301, 203);
    for sampling in SAMPLINGS {
        let options = Options { restart: 3, sampling, ..Options::new(90, 1, 1) };
        let jpeg = libjpeg::encode(&pixels(size.width, size.height, 3, 30), size.width, size.height, 3, &options);
        let image = libjpeg::decode(&jpeg).unwrap();
        let (opened, mut decoder) = (Jpeg::open(&jpeg).unwrap(), Decoder::new());
        assert!(opened.is_divisible());
        let mut rgb = vec![0; image.rgb.len()];
        for (number, rows) in rgb.chunks_mut(301 * 3 * 50).enumerate() {
            let height = (rows.len() / (301 * 3)) as u32;
            assert!(decoder.decode_rows(&opened, Rect::new(0, 50 * number as u32, size.width, height), rows));
        }
        assert!(rgb == image.rgb, "{sampling:?}");
        // Without its last marker, a file may lack pixels anywhere.
        let cut = &jpeg[..jpeg.len() - 2];
        let region = Rect::new(0, 0, size.width, 50);
        assert!(!decoder.decode_rows(&Jpeg::open(cut).unwrap(), region, &mut rgb[..301 * 3 * 50]));
    }
    let marked = |restart| {
        let options = Options { restart, ..Options::new(90, 1, 1) };
        let jpeg = libjpeg::encode(&pixels(80, 40, 3, 30), 80, 40, 3, &options);
        Jpeg::open(&jpeg).unwrap().is_divisible()
    };
    assert_eq!([0, 1, 10, 11].map(marked), [false, true, true, false], "a row has 10 MCUs");
}
