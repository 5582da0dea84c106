//! Fuzzes the decoder, and compares it with libjpeg.

use super::coefficients::Coefficients;
use super::header::{Coding, Header};
use super::libjpeg::{self, Options, encode};
use super::tests::{decode, decoders, size};
use crate::decoder::Decoder;
use crate::error::Result;
use crate::fuzz::{self, Random};
use crate::jpeg::Jpeg;
use crate::pixels::{Pixels, Rect};

pub(crate) fn random_jpeg(random: &mut Random, longest: usize) -> Vec<u8> {
    let (width, height) = (1 + random.below(longest), 1 + random.below(longest));
    let channels = random.pick(&[1, 3, 3, 3, 3, 3, 4]);
    // With a fourth (K) component, factors of 4x2 would exceed the limit of ten blocks per MCU.
    let factors = [(1, 1), (1, 1), (2, 1), (1, 2), (2, 2), (2, 2), (4, 1), (3, 1), (4, 2)];
    let (h, v) = random.pick(&factors[..factors.len() - usize::from(channels == 4)]);
    let options = Options {
        restart: random.pick(&[0, 0, 1, 2, 3, 4, 7, 30]),
        optimize: random.below(2) == 0,
        progressive: random.below(6) == 0,
        rgb: random.below(12) == 0,
        ..Options::new(1 + random.below(100) as u8, h, v)
    };
    let (noise, slope) = (random.pick(&[1, 4, 30, 256]), random.below(5));
    let pixels: Vec<u8> = (0..width * height * channels).map(|i| (i * slope / 7 + random.below(noise)) as u8).collect();
    encode(&pixels, width as u32, height as u32, channels, &options)
}

pub(crate) fn damage(random: &mut Random, jpeg: &mut Vec<u8>) {
    let data = Header::read(jpeg).map_or(2, |h| h.scan.data_offset);
    for _ in 0..1 + random.below(3) {
        if jpeg.len() < 4 {
            return;
        }
        let offset = match random.below(4) {
            0 => random.below(jpeg.len()),
            1 => random.below(data.min(jpeg.len())),
            _ => (data + random.below(jpeg.len() - data.min(jpeg.len()))).min(jpeg.len() - 1),
        };
        match random.below(12) {
            0 => jpeg.truncate(offset.max(4)),
            1 => jpeg[offset] = 0xff,
            2 => jpeg[offset] = 0,
            3 => jpeg[offset] ^= 1 << random.below(8),
            4 => jpeg[offset] = random.next() as u8,
            5 => drop(jpeg.drain(offset..(offset + 1 + random.below(40)).min(jpeg.len()))),
            6 => drop(jpeg.splice(offset..offset, [0xff, 0xd0 + random.below(10) as u8])),
            7 => drop(jpeg.splice(offset..offset, vec![random.pick(&[0, 0xff, 0x55]); 1 + random.below(30)])),
            8 => {
                let piece = jpeg[offset..(offset + random.below(200)).min(jpeg.len())].to_vec();
                let dest = random.below(jpeg.len());
                jpeg.splice(dest..dest, piece);
            }
            9 | 10 => {
                if let Some(sof) = (0..data.min(jpeg.len())).find(|&i| jpeg[i..].starts_with(&[0xff, 0xc0])) {
                    let field = (sof + 4 + random.below(15)).min(jpeg.len() - 1);
                    let any = random.next() as u8;
                    jpeg[field] = random.pick(&[0, 1, 2, 0x11, 0x22, 0x41, 0xff, any]);
                }
            }
            _ => {
                let interval = [0xff, 0xdd, 0, 4, 0, random.below(9) as u8];
                jpeg.splice(2..2, interval);
            }
        }
    }
    jpeg.truncate(1 << 20);
}

pub(crate) fn find_damage(jpeg: &[u8]) -> Result<Option<String>> {
    Decoder::new().damage(&Jpeg::open(jpeg)?)
}

/// Returns whether the coefficients are so small that libjpeg's C and SIMD code certainly agree on
/// them. Far outside -512..=511, values wrap around in the C code but saturate in the SIMD code.
pub(crate) fn is_tame(coefficients: &Coefficients) -> bool {
    coefficients.planes().iter().all(|plane| {
        plane.coefficients.chunks_exact(64).all(|block| {
            block.iter().zip(&plane.quant).map(|(&c, &q)| i64::from(c).abs() * i64::from(q)).sum::<i64>() < 1800
        })
    })
}

/// Decodes one damaged file. Decoding must not panic. If the image has at most 2^20 pixels, all
/// backends must agree. If decoding succeeds, the pixels must also equal libjpeg's, unless libjpeg
/// fails, smooths the image, may produce pixels that depend on the CPU (see [`is_tame`]), or
/// ignores the file's EXIF orientation. Returns whether the image was decoded as a whole.
fn check_damaged(seed: u64, decoders: &mut [Decoder], counts: &mut [u64; 4]) -> bool {
    let random = &mut Random::new(seed);
    let intact = random_jpeg(random, 48);
    let mut jpeg = intact.clone();
    damage(random, &mut jpeg);
    let Some(size) = size(&jpeg) else { return false };
    counts[0] += 1;
    if size.area() > 1 << 20 {
        let region = Rect::new(size.width / 2, size.height / 2, 1, 1);
        decoders.iter_mut().for_each(|decoder| drop(decode(decoder, &jpeg, region, &mut Pixels::new())));
        return false;
    }
    let (x, y) = (random.below(size.width as usize) as u32, random.below(size.height as usize) as u32);
    let mut part = |limit: u32| 1 + random.below(limit as usize) as u32;
    let region = decode_with_all(seed, decoders, &jpeg, Rect::new(x, y, part(size.width - x), part(size.height - y)));
    let result = decode_with_all(seed, decoders, &jpeg, Rect::full(size));
    // Damage must produce the same error for every region. The exception is a DC coefficient that
    // exceeds 32 bits, because decoding a region may not reach it.
    match (&region, &result) {
        (Err(region), Err(result)) => assert_eq!(region.to_string(), result.to_string(), "seed {seed}"),
        (Ok(_), Err(result)) => assert!(result.to_string().contains("exceeds 32 bits"), "seed {seed}: {result}"),
        (Err(region), Ok(_)) => panic!("seed {seed}: the whole image can be decoded, but a region cannot: {region}"),
        (Ok(_), Ok(_)) => {}
    }
    match (find_damage(&jpeg), &result) {
        (Err(a), Err(b)) => assert_eq!(a, *b, "seed {seed}"),
        (Ok(_), Ok((_, None))) => {}
        (Ok(Some(a)), Ok((_, Some(b)))) => assert_eq!(a, *b, "seed {seed}"),
        (condition, result) => {
            panic!("seed {seed}: `damage()` returned {condition:?}, but decoding returned {:?}", result.as_ref().err())
        }
    }
    let Ok((rgb, damage)) = result else { return false };
    counts[1] += 1;
    let header = Header::read(&jpeg).unwrap();
    let mut coefficients = Coefficients::default();
    if let Err(e) = coefficients.decode(&jpeg, &header) {
        panic!("seed {seed}: decoding in lanes accepted a file that the plain decoder rejects: {e}");
    }
    let is_smoothed = header.frame.coding == Coding::Progressive && coefficients.is_unfinished();
    let is_turned = header.orientation != 1;
    if let (Ok(expected), true, false, false) = (libjpeg::decode(&jpeg), is_tame(&coefficients), is_smoothed, is_turned)
    {
        counts[2] += 1;
        counts[3] += u64::from(expected.warnings > 0);
        // If the header is intact, decoding must report damage whenever libjpeg warns.
        let same_header = intact.starts_with(&jpeg[..header.scan.data_offset]);
        assert!(
            damage.is_some() || expected.warnings == 0 || !same_header,
            "seed {seed}: libjpeg warned {} times",
            expected.warnings
        );
        assert!(
            rgb == expected.rgb,
            "seed {seed}: the pixels differ from libjpeg's, which warned {} times",
            expected.warnings
        );
    }
    true
}

fn decode_with_all(
    seed: u64,
    decoders: &mut [Decoder],
    jpeg: &[u8],
    region: Rect,
) -> Result<(Vec<u8>, Option<String>)> {
    let mut results = decoders.iter_mut().map(|decoder| {
        let mut out = Pixels::new();
        decode(decoder, jpeg, region, &mut out).map(|()| (out.data().to_vec(), out.damage().map(str::to_owned)))
    });
    let first = results.next().expect("the scalar backend always exists");
    for other in results {
        match (&first, &other) {
            (Ok(a), Ok(b)) => assert!(a == b, "seed {seed}: backends differ"),
            (Err(a), Err(b)) => assert_eq!(a.to_string(), b.to_string(), "seed {seed}"),
            (a, b) => panic!("seed {seed}: backends differ: {:?} {:?}", a.is_ok(), b.is_ok()),
        }
    }
    first
}

#[test]
fn damaged_files_give_an_error_or_libjpeg_pixels() {
    let (mut decoders, mut counts) = (decoders(), [0; 4]);
    (0..3000).for_each(|seed| {
        check_damaged(seed, &mut decoders, &mut counts);
    });
    assert!(counts.iter().all(|&n| n > 100), "too few cases reach each stage: {counts:?}");
}

#[test]
fn damaged_files() {
    let (mut decoders, mut counts) = (decoders(), [0; 4]);
    fuzz::run("jpeg", |seed| check_damaged(seed, &mut decoders, &mut counts));
    println!("fuzz jpeg: files with a readable header, decoded, compared with libjpeg, and damaged: {counts:?}");
}
