//! Tests the RGB conversion against the H.273 formulas, evaluated in double precision.

use warpfeed_video::rgb::{Scratch, to_rgb};
use warpfeed_video::{Coding, Layout, Plane, Planes};

use crate::support::Random;

fn oracle(frame: &Planes<'_>, x: usize, y: usize) -> [f64; 3] {
    let Coding { matrix, is_full_range, bits } = frame.coding;
    let (scale, max_value) = (f64::from(1 << (bits - 8)), f64::from((1 << bits) - 1));
    let luma = |sample: u16| match is_full_range {
        true => f64::from(sample) / max_value,
        false => (f64::from(sample) - 16.0 * scale) / (219.0 * scale),
    };
    let chroma = |sample: u16| match is_full_range {
        true => (f64::from(sample) - 128.0 * scale) / max_value,
        false => (f64::from(sample) - 128.0 * scale) / (224.0 * scale),
    };
    if matrix == 0 {
        return [2, 0, 1].map(|plane| luma(frame.sample(plane, x, y)));
    }
    let e = luma(frame.sample(0, x, y));
    let Some((x_shift, y_shift)) = frame.layout.shifts() else { return [e; 3] };
    let [u, v] = [1, 2].map(|plane| chroma(frame.sample(plane, x >> x_shift, y >> y_shift)));
    let (red, blue) = match matrix {
        1 => (0.2126, 0.0722),
        9 => (0.2627, 0.0593),
        _ => (0.299, 0.114),
    };
    let (r, b) = (e + 2.0 * (1.0 - red) * v, e + 2.0 * (1.0 - blue) * u);
    [r, (e - red * r - blue * b) / (1.0 - red - blue), b]
}

#[test]
fn pixels_round_the_results_of_the_formulas() {
    let mut random = Random(0xfeed_beef_1234_5671);
    let (mut exact, mut total) = (0_u64, 0_u64);
    let layouts = [Layout::Gray, Layout::Yuv420, Layout::Yuv422, Layout::Yuv444, Layout::Nv12];
    let mut scratch = Scratch::default();
    for round in 0..500 {
        let (width, height) = (1 + random.below(70), 1 + random.below(20));
        let layout = layouts[round % 5];
        let matrix = if layout == Layout::Yuv444 && round % 3 == 0 { 0 } else { [1, 2, 6, 9][random.below(4)] };
        let coding = Coding { matrix, is_full_range: random.below(2) == 0, bits: [8, 10, 12][random.below(3)] };
        let coding = if layout == Layout::Nv12 { Coding { bits: 8, ..coding } } else { coding };
        let stride = width + 1 + random.below(9);
        let wide: [Vec<u16>; 3] = std::array::from_fn(|_| {
            (0..stride * height).map(|_| (random.next() & ((1 << coding.bits) - 1)) as u16).collect()
        });
        let narrow = wide.each_ref().map(|plane| plane.iter().map(|&sample| sample as u8).collect::<Vec<u8>>());
        let planes: [Plane<'_>; 3] = std::array::from_fn(|plane| match coding.bits {
            8 => Plane::Bits8(&narrow[plane], stride),
            _ => Plane::Bits16(&wide[plane], stride),
        });
        let frame = Planes { width, height, layout, coding, planes };
        let (left, top) = (random.below(width), random.below(height));
        let area = (left, top, 1 + random.below(width - left), 1 + random.below(height - top));
        let mut out = vec![0; area.2 * area.3 * 3];
        to_rgb(&frame, area, &mut scratch, &mut out).unwrap();
        for (index, actual) in out.chunks_exact(3).enumerate() {
            let (x, y) = (left + index % area.2, top + index / area.2);
            for (actual, expected) in actual.iter().zip(oracle(&frame, x, y)) {
                let expected = (expected * 255.0).clamp(0.0, 255.0);
                assert!(
                    (f64::from(*actual) - expected).abs() < 0.501,
                    "{coding:?} {layout:?} {x} {y}: {actual} {expected}"
                );
                exact += u64::from(f64::from(*actual) == expected.round());
                total += 1;
            }
        }
    }
    assert!(exact * 1000 > total * 999, "{exact} of {total}");
}

#[test]
fn black_gray_and_white_keep_their_values() {
    for (is_full_range, bits, black, white) in
        [(false, 8, 16, 235), (true, 8, 0, 255), (false, 10, 64, 940), (true, 10, 0, 1023)]
    {
        for (luma, expected) in [(black, 0), (white, 255)] {
            let samples = [vec![luma], vec![1 << (bits - 1)], vec![1 << (bits - 1)]];
            let narrow = samples.each_ref().map(|plane: &Vec<u16>| [plane[0] as u8]);
            let planes = std::array::from_fn(|plane| match bits {
                8 => Plane::Bits8(&narrow[plane], 1),
                _ => Plane::Bits16(&samples[plane], 1),
            });
            let coding = Coding { matrix: 2, is_full_range, bits };
            let frame = Planes { width: 1, height: 1, layout: Layout::Yuv420, coding, planes };
            let mut out = [7; 3];
            to_rgb(&frame, (0, 0, 1, 1), &mut Scratch::default(), &mut out).unwrap();
            assert_eq!(out, [expected; 3], "{coding:?}");
        }
    }
}

#[test]
fn unknown_matrices_fail() {
    let planes = [Plane::Bits8(&[128], 1); 3];
    let coding = Coding { matrix: 8, is_full_range: false, bits: 8 };
    let frame = Planes { width: 1, height: 1, layout: Layout::Yuv444, coding, planes };
    let error = to_rgb(&frame, (0, 0, 1, 1), &mut Scratch::default(), &mut [0; 3]).unwrap_err();
    assert!(error.to_string().contains("matrix_coefficients=8"), "{error}");
}
