//! The effects one pixel after the other, with which the fast paths are compared bit by bit.

use super::arithmetic::fused;
use super::blur::Blur;
use super::effect::{PixelEffect, Scratch};
use super::sharpen::Sharpen;
use super::tint::Tint;
use super::tone::Tone;
use super::warp::{Affine, Sampling, Warp};
use crate::decode::Size;
use crate::order::Rng;
use crate::transform::ImageMut;

type Image = Vec<[u8; 3]>;

fn grey([r, g, b]: [u8; 3]) -> u8 {
    fused(f32::from(b), 0.114, fused(f32::from(g), 0.587, f32::from(r) * 0.2989)) as u8
}

fn blend(value: u8, other: f32, factor: f64) -> u8 {
    fused(other, (1.0 - factor) as f32, f32::from(value) * factor as f32).clamp(0.0, 255.0) as u8
}

/// Replaces each level.
fn each(image: &Image, f: impl Fn(u8) -> u8) -> Image {
    image.iter().map(|pixel| pixel.map(&f)).collect()
}

fn contrast(image: &Image, factor: f64) -> Image {
    let sum: u64 = image.iter().map(|pixel| u64::from(grey(*pixel))).sum();
    let mean = (sum as f64 / image.len() as f64) as f32;
    each(image, |v| blend(v, mean, factor))
}

fn saturation(image: &Image, factor: f64) -> Image {
    image.iter().map(|pixel| pixel.map(|v| blend(v, f32::from(grey(*pixel)), factor))).collect()
}

/// Converts to HSV, turns the hue, and converts back.
fn turn_hue(pixel: [u8; 3], turn: f32) -> [u8; 3] {
    let [r, g, b] = pixel.map(|v| f32::from(v) / 255.0);
    let (max, min) = (r.max(g).max(b), r.min(g).min(b));
    if max == min {
        return pixel;
    }
    let range = max - min;
    let saturation = range / max;
    let [rc, gc, bc] = [(max - r) / range, (max - g) / range, (max - b) / range];
    let sector = if max == r {
        bc - gc
    } else if max == g {
        2.0 + rc - bc
    } else {
        4.0 + gc - rc
    };
    let h = (sector / 6.0 + 1.0) % 1.0 + turn;
    let h6 = (h - h.floor()) * 6.0;
    let whole = h6.floor();
    let f = h6 - whole;
    let p = (max * (1.0 - saturation)).clamp(0.0, 1.0);
    let q = (max * (1.0 - saturation * f)).clamp(0.0, 1.0);
    let t = (max * (1.0 - saturation * (1.0 - f))).clamp(0.0, 1.0);
    let turned = match whole as u32 % 6 {
        0 => [max, t, p],
        1 => [q, max, p],
        2 => [p, max, t],
        3 => [p, q, max],
        4 => [t, p, max],
        _ => [max, p, q],
    };
    turned.map(|v| (v * 255.999) as u8)
}

fn sharpen(image: &Image, size: Size, factor: f64) -> Image {
    let (width, height) = (size.width as usize, size.height as usize);
    let value = |x: usize, y: usize, c: usize| i32::from(image[y * width + x][c]);
    let mut out = image.clone();
    for (y, x) in (1..height.max(1) - 1).flat_map(|y| (1..width.max(1) - 1).map(move |x| (y, x))) {
        for (c, level) in out[y * width + x].iter_mut().enumerate() {
            let around: i32 =
                (y - 1..=y + 1).flat_map(|y| (x - 1..=x + 1).map(move |x| (x, y))).map(|(x, y)| value(x, y, c)).sum();
            let own = value(x, y, c);
            let smooth = (2 * (around + 4 * own) + 13) / 26;
            let share = (1.0 - factor) as f32;
            *level = fused((smooth - own) as f32, share, own as f32).clamp(0.0, 255.0) as u8;
        }
    }
    out
}

/// The place after reflections about the first and the last one, step by step.
fn reflected(mut at: i64, length: i64) -> usize {
    if length == 1 {
        return 0;
    }
    while !(0..length).contains(&at) {
        at = if at < 0 { -at } else { 2 * (length - 1) - at };
    }
    at as usize
}

fn blur(image: &Image, size: Size, taps: u32, weights: &[f32]) -> Image {
    let (width, height, radius) = (i64::from(size.width), i64::from(size.height), i64::from(taps / 2));
    let sum = |x: i64, y: i64, c: usize| {
        (-radius..=radius).fold(0.0, |sum, tap| {
            let row = reflected(y + tap, height);
            sum + weights[tap.unsigned_abs() as usize] * f32::from(image[row * width as usize + x as usize][c])
        })
    };
    let value = |x: i64, y: i64, c: usize| -> f32 {
        (-radius..=radius).fold(0.0, |value, tap| {
            value + weights[tap.unsigned_abs() as usize] * sum(reflected(x + tap, width) as i64, y, c)
        })
    };
    let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    places.map(|(x, y)| [0, 1, 2].map(|c| value(x, y, c).round_ties_even() as u8)).collect()
}

fn warp(image: &Image, size: Size, warp: &Warp, fill: [u8; 3]) -> Image {
    let places = (0..size.height).flat_map(|y| (0..size.width).map(move |x| (x, y)));
    let pixel = |(x, y): (u32, u32)| image[y as usize * size.width as usize + x as usize];
    places.map(|(x, y)| warp.nearest_source(x, y, size).map_or(fill, pixel)).collect()
}

fn bilinear(image: &Image, size: Size, warp: &Warp, fill: Option<[u8; 3]>) -> Image {
    let pixel = |x: f32, y: f32| {
        let inside = x >= 0.0 && y >= 0.0 && x < size.width as f32 && y < size.height as f32;
        inside.then(|| image[y as usize * size.width as usize + x as usize])
    };
    let value = |x: u32, y: u32| {
        let (x, y) = warp.source(x, y, size);
        let (left, top) = (x.floor(), y.floor());
        let (right, below) = (x - left, y - top);
        let corners = [
            (pixel(left, top), (1.0 - right) * (1.0 - below)),
            (pixel(left + 1.0, top), right * (1.0 - below)),
            (pixel(left, top + 1.0), (1.0 - right) * below),
            (pixel(left + 1.0, top + 1.0), right * below),
        ];
        let sum = |value: &dyn Fn([u8; 3]) -> f32| {
            let [a, b, c, d] = corners.map(|(pixel, weight)| pixel.map_or(0.0, |pixel| value(pixel) * weight));
            a + b + c + d
        };
        std::array::from_fn(|c| {
            let mut value = sum(&|pixel| f32::from(pixel[c]));
            if let Some(fill) = fill {
                let fill = f32::from(fill[c]);
                value = (value - fill) * sum(&|_| 1.0) + fill;
            }
            value.round_ties_even() as u8
        })
    };
    (0..size.height).flat_map(|y| (0..size.width).map(move |x| (x, y))).map(|(x, y)| value(x, y)).collect()
}

/// Every kind of pixel: a colour, a grey, and two equal channels.
#[test]
fn the_hue_of_every_kind_of_pixel_turns_as_in_a_loop() {
    let mut rng = Rng::new(1, 2, 3);
    for turn in [0.0, 0.5, -0.5, 0.25, 1.0 / 6.0, -1.0 / 3.0, 0.0999, -1e-8] {
        let steps = (0..=255_u8).step_by(17);
        let all = steps.clone().flat_map(|r| steps.clone().map(move |g| (r, g)));
        let grid = all.flat_map(|(r, g)| (0..=255_u8).step_by(17).map(move |b| [r, g, b]));
        let image: Image = grid.chain((0..20_000).map(|_| std::array::from_fn(|_| rng.next_u64() as u8))).collect();
        let mut found = image.as_flattened().to_vec();
        Tint::hue(turn).run(&mut ImageMut::new(&mut found, image.len() as u32, 1), &mut Scratch::default());
        for (from, found) in image.iter().zip(found.as_chunks::<3>().0) {
            assert_eq!(*found, turn_hue(*from, turn as f32), "{from:?} turned by {turn}");
        }
    }
}

#[test]
fn the_fast_path_of_each_effect_has_the_bits_of_a_loop_over_pixels() {
    let sizes = [(1, 1), (1, 9), (7, 1), (2, 3), (3, 3), (21, 5), (22, 6), (63, 2), (64, 4), (65, 3), (130, 3)];
    for (number, (width, height)) in (0..).zip(sizes) {
        let (size, mut rng) = (Size::new(width, height), Rng::new(number, 1, 1));
        // Dark, bright and mixed images.
        for shape in 0..3 {
            let mut value = || match shape {
                0 => rng.below(20) as u8,
                1 => 255 - rng.below(9) as u8,
                _ => rng.next_u64() as u8,
            };
            let image: Image = (0..size.area()).map(|_| std::array::from_fn(|_| value())).collect();
            let check = |name: &str, effect: &dyn Fn(&mut ImageMut<'_>, &mut Scratch), expected: Image| {
                let mut found = image.as_flattened().to_vec();
                effect(&mut ImageMut::new(&mut found, width, height), &mut Scratch::default());
                assert!(found == expected.as_flattened(), "{name} at {width}x{height}, image {shape}");
            };
            for factor in [0.0, 0.3, 0.999_999, 1.0, 1.7, 4.0, -0.5] {
                let scaled = |v: u8| (f32::from(v) * factor as f32).clamp(0.0, 255.0) as u8;
                check("brightness", &|to, scratch| Tone::brightness(factor).run(to, scratch), each(&image, scaled));
                check("contrast", &|to, scratch| Tone::contrast(factor).run(to, scratch), contrast(&image, factor));
                check(
                    "saturation",
                    &|to, scratch| Tint::saturation(factor).run(to, scratch),
                    saturation(&image, factor),
                );
                check("sharpness", &|to, scratch| Sharpen::by(factor).run(to, scratch), sharpen(&image, size, factor));
            }
            for turn in [0.0, 0.5, -0.5, 0.1] {
                let turned = image.iter().map(|pixel| turn_hue(*pixel, turn as f32)).collect();
                check("hue", &|to, scratch| Tint::hue(turn).run(to, scratch), turned);
            }
            for threshold in [0.0, 127.5, 128.0, 255.0, 256.0] {
                let inverted = |v: u8| if f64::from(v) >= threshold { 255 - v } else { v };
                check("solarize", &|to, scratch| Tone::solarize(threshold).run(to, scratch), each(&image, inverted));
            }
            for bits in 0..=8 {
                let kept = |v: u8| if bits == 0 { 0 } else { v >> (8 - bits) << (8 - bits) };
                check("posterize", &|to, scratch| Tone::posterize(bits).run(to, scratch), each(&image, kept));
            }
            let added = |v: u8| if v < 128 { v.saturating_add(90) } else { v };
            check("add", &|to, scratch| Tone::add(90).run(to, scratch), each(&image, added));
            check("invert", &|to, scratch| Tone::invert().run(to, scratch), each(&image, |v| 255 - v));
            let greys = image.iter().map(|pixel| [grey(*pixel); 3]).collect();
            check("greyscale", &|to, scratch| Tint::greyscale().run(to, scratch), greys);
            for (taps, sigma) in [(1, 0.5), (5, 0.1), (9, 1.3), (63, 9.0)] {
                let effect = Blur::new(taps, sigma);
                let expected = blur(&image, size, taps, &effect.weights());
                check("blur", &|to, scratch| effect.run(to, scratch), expected);
            }
            for (angle, scale, sheared) in [(0.0, 1.0, 0.0), (90.0, 1.0, 0.0), (33.0, 0.7, 12.0), (180.0, 1.4, -50.0)] {
                let affine = Affine { angle, scale, shear: [sheared, 3.0], translate: [2.0, -1.5], ..Affine::NONE };
                let sampling = Sampling { bilinear: false, fill: Some([9, 80, 200]) };
                let effect = Warp::affine(affine, size, sampling);
                check("affine", &|to, scratch| effect.run(to, scratch), warp(&image, size, &effect, [9, 80, 200]));
                for fill in [None, Some([9, 80, 200])] {
                    let effect = Warp::affine(affine, size, Sampling { bilinear: true, fill });
                    let expected = bilinear(&image, size, &effect, fill);
                    check("bilinear affine", &|to, scratch| effect.run(to, scratch), expected);
                }
            }
            let [w, h] = [width, height].map(f64::from);
            let from = [[0.0, 0.0], [w, 0.0], [w, h], [0.0, h]];
            let to = [[0.1 * w, 0.2 * h], [0.8 * w, 0.0], [w, 0.9 * h], [0.0, 0.7 * h]];
            let sampling = Sampling { bilinear: false, fill: None };
            let effect = Warp::perspective(from, to, size, sampling).unwrap();
            check("perspective", &|to, scratch| effect.run(to, scratch), warp(&image, size, &effect, [0; 3]));
        }
    }
}
