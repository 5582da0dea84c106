//! Tests files with bits after the last MCU of a segment. Such bits do not change any pixel, and
//! libjpeg only warns about them. Every backend detects such bits in the segments that it decodes
//! to the end.

use super::{decode, decoders};
use crate::coefficients::Coefficients;
use crate::fuzz::Random;
use crate::jpeg::Jpeg;
use crate::layout::Window;
use crate::libjpeg::{self, Options, encode, with_bytes_after_segment};
use crate::pixels::{Pixels, Rect};

fn images() -> Vec<(Vec<u8>, (u32, u32), u32)> {
    let random = &mut Random::new(23);
    let mut list = Vec::new();
    for (h, v) in [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)] {
        for restart in [0, 1, 3, 5, 40] {
            let (width, height) = (17 + random.below(90), 17 + random.below(60));
            let noise = random.pick(&[1, 8, 256]);
            let pixels: Vec<u8> = (0..width * height * 3).map(|i| (i / 5 + random.below(noise)) as u8).collect();
            let options = Options { restart, optimize: random.below(2) == 0, ..Options::new(80, h, v) };
            let (width, height) = (width as u32, height as u32);
            list.push((encode(&pixels, width, height, 3, &options), (width, height), restart));
        }
    }
    list
}

/// Returns the damage that the coefficient decoder finds. This decoder has no backends.
fn plain(jpeg: &[u8]) -> Option<String> {
    let mut coefficients = Coefficients::default();
    coefficients.decode(jpeg, &Jpeg::open(jpeg).unwrap().header).unwrap();
    coefficients.damage()
}

fn decode_with_all(jpeg: &[u8], region: Rect) -> (Vec<u8>, Option<String>) {
    let results = decoders().into_iter().map(|mut decoder| {
        let mut out = Pixels::new();
        decode(&mut decoder, jpeg, region, &mut out).unwrap();
        (out.data().to_vec(), out.damage().map(str::to_owned))
    });
    let results: Vec<_> = results.collect();
    assert!(results.iter().all(|result| *result == results[0]), "backends differ");
    results.into_iter().next().unwrap()
}

#[test]
fn every_backend_finds_a_byte_after_the_last_mcu() {
    for (jpeg, (width, height), restart) in images() {
        let full_area = Rect::new(0, 0, width, height);
        let (pixels, none) = decode_with_all(&jpeg, full_area);
        assert_eq!((none, plain(&jpeg)), (None, None));
        let layout = Jpeg::open(&jpeg).unwrap().layout;
        let last = (layout.mcus_per_row * layout.mcu_rows - 1).checked_div(restart).unwrap_or(0) as usize;
        let random = &mut Random::new(u64::from(restart));
        let noise: Vec<u8> = (0..3000).map(|_| random.below(255) as u8).collect();
        for number in [0, last / 2, last] {
            for rest in [&[0][..], &[0x55], &[0xff, 0], &[0xff, 0xff, 0], &[0x12, 0x34], &[0; 300], &noise] {
                let longer = with_bytes_after_segment(&jpeg, number, rest);
                let (actual, damage) = decode_with_all(&longer, full_area);
                let what = format!("{} extra bytes in segment {number} of {last}, restart {restart}", rest.len());
                assert!(actual == pixels, "{what}");
                assert!(damage.as_ref().is_some_and(|text| text.contains("in MCU")), "{what}");
                assert_eq!(damage, plain(&longer), "{what}");
                assert!(libjpeg::decode(&longer).unwrap().rgb == pixels, "{what}");
            }
            let filled = with_bytes_after_segment(&jpeg, number, &[0xff; 3]);
            assert_eq!(decode_with_all(&filled, full_area), (pixels.clone(), None));
        }
    }
}

#[test]
fn a_crop_finds_bits_after_a_segment_that_it_completes() {
    let (random, mut counts) = (&mut Random::new(5), [0; 2]);
    for (jpeg, (width, height), restart) in images() {
        let opened = Jpeg::open(&jpeg).unwrap();
        let (mcus_per_row, mcu_rows) = (opened.layout.mcus_per_row, opened.layout.mcu_rows);
        let interval = if restart == 0 { mcus_per_row * mcu_rows } else { restart };
        for _ in 0..8 {
            let (x, y) = (random.below(width as usize) as u32, random.below(height as usize) as u32);
            let mut part = |limit: u32| 1 + random.below(limit as usize) as u32;
            let region = Rect::new(x, y, part(width - x), part(height - y));
            let number = random.below((mcus_per_row * mcu_rows).div_ceil(interval) as usize);
            let window = Window::new(&opened.layout, region);
            let last = ((number as u32 + 1) * interval).min(mcus_per_row * mcu_rows) - 1;
            let decoded =
                window.rows.contains(&(last / mcus_per_row)) && window.columns.contains(&(last % mcus_per_row));
            counts[usize::from(decoded)] += 1;
            let (pixels, damage) = decode_with_all(&with_bytes_after_segment(&jpeg, number, &[0x55, 0x55]), region);
            assert_eq!(damage.is_some(), decoded, "segment {number}, {region:?}, restart {restart}");
            assert_eq!((pixels, None), decode_with_all(&jpeg, region));
        }
    }
    assert!(counts.iter().all(|&count| count > 20), "segments outside and inside the crop: {counts:?}");
}
