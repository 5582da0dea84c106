//! Decodes groups of small images with six samplings: whole, cropped and damaged. They are encoded
//! without C code, so that Miri can check every memory access. Without Miri, the pixels of the
//! whole images are also compared with libjpeg's.
//!
//! ```bash
//! cargo +nightly miri test -p warpfeed-jpeg --lib tests::small
//! ```

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use super::{decode_all, decoders, size};
use crate::fuzz::Random;
use crate::fuzz_jpeg::damage;
use crate::pixels::{Rect, Size};

const SAMPLINGS: [SamplingFactor; 6] = [
    SamplingFactor::R_4_4_4,
    SamplingFactor::R_4_2_2,
    SamplingFactor::R_4_4_0,
    SamplingFactor::R_4_2_0,
    SamplingFactor::R_4_1_1,
    SamplingFactor::R_4_1_0,
];

fn images(random: &mut Random) -> Vec<Vec<u8>> {
    let mut list = Vec::new();
    for (i, sampling) in SAMPLINGS.into_iter().enumerate() {
        for restart in [0, 1, 3] {
            let (width, height) = (17 + random.below(30), 9 + random.below(30));
            let color = if i == 0 && restart == 1 { ColorType::Luma } else { ColorType::Rgb };
            let channels = if color == ColorType::Luma { 1 } else { 3 };
            let noise = random.pick(&[1, 8, 256]);
            let pixels: Vec<u8> = (0..width * height * channels).map(|i| (i / 5 + random.below(noise)) as u8).collect();
            let mut jpeg = Vec::new();
            let mut encoder = Encoder::new(&mut jpeg, random.pick(&[20, 85, 100]));
            encoder.set_sampling_factor(sampling);
            // The encoder panics if both options are set.
            match restart {
                0 => encoder.set_optimized_huffman_tables(random.below(2) == 0),
                n => encoder.set_restart_interval(n),
            }
            encoder.encode(&pixels, width as u16, height as u16, color).unwrap();
            list.push(jpeg);
        }
    }
    list
}

#[test]
fn a_crop_has_the_pixels_of_the_whole_image() {
    for mut decoder in decoders() {
        let random = &mut Random::new(7);
        let files = images(random);
        let sizes: Vec<Size> = files.iter().map(|jpeg| size(jpeg).unwrap()).collect();
        let full_areas: Vec<Rect> = sizes.iter().map(|s| Rect::new(0, 0, s.width, s.height)).collect();
        let parts: Vec<Rect> = sizes
            .iter()
            .map(|s| {
                let (x, y) = (random.below(s.width as usize) as u32, random.below(s.height as usize) as u32);
                let part = |random: &mut Random, limit: u32| 1 + random.below(limit as usize) as u32;
                Rect::new(x, y, part(random, s.width - x), part(random, s.height - y))
            })
            .collect();
        let images = decode_all(&mut decoder, &files, &full_areas);
        let crops = decode_all(&mut decoder, &files, &parts);
        for (i, (image, part)) in images.iter().zip(&crops).enumerate() {
            let (image, part, rect) = (image.as_ref().unwrap(), part.as_ref().unwrap(), parts[i]);
            #[cfg(not(miri))]
            assert!(*image == crate::libjpeg::decode(&files[i]).unwrap().rgb, "image {i}");
            let row = 3 * rect.width as usize;
            for (y, got) in part.chunks_exact(row).enumerate() {
                let offset = 3 * ((rect.y as usize + y) * sizes[i].width as usize + rect.x as usize);
                assert!(*got == image[offset..offset + row], "image {i}, row {y} of {rect:?}");
            }
            assert_eq!(part.len(), row * rect.height as usize);
        }
    }
}

#[test]
fn a_damaged_image_has_the_same_result_in_a_group_as_alone() {
    for (mut decoder, mut alone) in decoders().into_iter().zip(decoders()) {
        let random = &mut Random::new(8);
        let mut files = images(random);
        for jpeg in &mut files {
            damage(random, jpeg);
        }
        files.retain(|jpeg| size(jpeg).is_some_and(|size| size.area() < 4000));
        assert!(files.len() > 5, "{} images have a readable size", files.len());
        let full_areas: Vec<Rect> = files.iter().map(|jpeg| Rect::full(size(jpeg).unwrap())).collect();
        for (i, result) in decode_all(&mut decoder, &files, &full_areas).into_iter().enumerate() {
            let single = decode_all(&mut alone, &files[i..=i], &full_areas[i..=i]).remove(0);
            match (result, single) {
                (Ok(a), Ok(b)) => assert!(a == b, "image {i}"),
                (a, b) => assert_eq!(a.unwrap_err().to_string(), b.unwrap_err().to_string(), "image {i}"),
            }
        }
    }
}
