//! Compares the decoder's pixels with libjpeg's byte for byte, for whole and cropped random images.

use crate::libjpeg::{Options, decode, encode};
use warpfeed_jpeg::{Decoder, Jpeg, Pixels, Rect, Size};

/// A splitmix64 generator, so that a seed reproduces a failing case.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn within(&mut self, low: u32, high: u32) -> u32 {
        low + (self.next() % u64::from(high - low + 1)) as u32
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.within(0, from.len() as u32 - 1) as usize]
    }
}

fn image(random: &mut Random, width: u32, height: u32, channels: u32) -> Vec<u8> {
    let (roughness, slope) = (random.pick(&[0, 1, 8, 60, 255]), [random.within(0, 9), random.within(0, 9)]);
    let mut pixels = Vec::new();
    for y in 0..height {
        for x in 0..width {
            for channel in 0..channels {
                let edge = if (x / 13 + y / 7) % 2 == 0 { 60 } else { 0 };
                let smooth = x * slope[0] / 2 + y * slope[1] / 3 + 40 * channel + edge;
                pixels.push((smooth + random.within(0, roughness)) as u8);
            }
        }
    }
    pixels
}

fn random_jpeg(random: &mut Random, longest: u32) -> (Vec<u8>, String) {
    let (width, height) = (random.within(1, longest), random.within(1, longest));
    let channels = random.pick(&[1, 3, 3, 3, 4]);
    let luma = random.pick(&[(1, 1), (2, 1), (1, 2), (2, 2), (2, 2), (4, 1), (1, 4), (4, 2)]);
    let sampling = match random.within(0, 9) {
        0 if channels < 4 => [(2, 2), (2, 1), (1, 2)],
        1 => [(1, 1), (2, 2), (1, 2)],
        2 if channels < 4 => [random.pick(&[(3, 1), (1, 3), (3, 2)]), (1, 1), (1, 1)],
        // K uses Y's sampling factors, and an MCU has at most ten blocks, so Y may have only four.
        _ if channels == 4 && luma.0 * luma.1 > 4 => [(2, 2), (1, 1), (1, 1)],
        _ => [luma, (1, 1), (1, 1)],
    };
    let options = Options {
        quality: random.within(1, 100) as u8,
        sampling,
        restart: random.pick(&[0, 0, 1, 2, 3, 5, 8, 40]),
        optimize: random.within(0, 1) == 1,
        progressive: random.within(0, 4) == 0,
        rgb: random.within(0, 9) == 0,
    };
    let pixels = image(random, width, height, channels);
    let jpeg = encode(&pixels, width, height, channels as usize, &options);
    (jpeg, format!("{width}x{height}x{channels} {options:?}"))
}

fn random_region(random: &mut Random, size: Size) -> Rect {
    let (x, y) = (random.within(0, size.width - 1), random.within(0, size.height - 1));
    Rect::new(x, y, random.within(1, size.width - x), random.within(1, size.height - y))
}

fn crop_rgb(rgb: &[u8], width: u32, region: Rect) -> Vec<u8> {
    let row = |y: u32| ((y * width + region.x) as usize * 3, region.width as usize * 3);
    (region.y..region.y + region.height).map(row).flat_map(|(start, len)| rgb[start..start + len].to_vec()).collect()
}

#[test]
fn pixels_equal_libjpeg_pixels_byte_for_byte() {
    let (mut decoder, mut out) = (Decoder::new(), Pixels::new());
    for seed in 0..400 {
        let random = &mut Random(seed);
        let (jpeg, description) = random_jpeg(random, if seed % 4 == 0 { 300 } else { 70 });
        let expected = decode(&jpeg).unwrap();
        let file = Jpeg::open(&jpeg).unwrap();
        let size = file.size();
        assert_eq!(size, Size::new(expected.width, expected.height));
        let full_area = Rect::full(size);
        for region in [full_area, random_region(random, size), random_region(random, size)] {
            decoder.decode(&file, region, &mut out).unwrap_or_else(|e| panic!("seed {seed}: {description}: {e}"));
            let part = out.locate(region).unwrap();
            let actual = crop_rgb(out.data(), out.size().width, part);
            let same = actual == crop_rgb(&expected.rgb, expected.width, region);
            assert!(same, "seed {seed}: {description}: {region:?} differs");
        }
    }
}
