//! Tests that decoding from the coefficients of an earlier decode gives the pixels of the file.

use std::sync::Arc;

use super::{decode_all, decoders, size};
use crate::decoder::{Decoder, Job};
use crate::fuzz::Random;
use crate::fuzz_jpeg::{damage, random_jpeg};
use crate::jpeg::Jpeg;
use crate::libjpeg::{Options, encode};
use crate::pixels::{Pixels, Rect, Size};

fn region(random: &mut Random, size: Size) -> Rect {
    let (x, y) = (random.below(size.width as usize) as u32, random.below(size.height as usize) as u32);
    let part = |random: &mut Random, limit: u32| 1 + random.below(limit as usize) as u32;
    Rect::new(x, y, part(random, size.width - x), part(random, size.height - y))
}

fn with_orientation(jpeg: &[u8], exif: u8) -> Vec<u8> {
    let entry = [0x12, 0x01, 3, 0, 1, 0, 0, 0, exif, 0, 0, 0];
    let body = [&b"Exif\0\0II*\0\x08\0\0\0\x01\0"[..], &entry, &[0; 4]].concat();
    [&jpeg[..2], &[0xff, 0xe1], &(body.len() as u16 + 2).to_be_bytes(), &body, &jpeg[2..]].concat()
}

/// Decodes the whole image, and keeps its coefficients if they take at most `max_bytes` bytes.
/// Returns the image with these coefficients, the pixels, and whether decoding succeeded.
fn decode_and_keep<'a>(decoder: &mut Decoder, file: &'a [u8], max_bytes: usize) -> (Option<Jpeg<'a>>, Pixels, bool) {
    let (mut jpeg, mut out) = (Jpeg::open(file).unwrap(), Pixels::new());
    let mut jobs = [Job::new(&jpeg, Rect::full(jpeg.size()), &mut out).keep_coefficients(max_bytes)];
    decoder.decode_group(&mut jobs);
    let [Job { result, coefficients, .. }] = jobs;
    assert!(coefficients.as_ref().is_none_or(|coefficients| coefficients.bytes() <= max_bytes));
    let kept_jpeg = coefficients.map(|coefficients| {
        jpeg.set_coefficients(Arc::new(coefficients));
        jpeg
    });
    (kept_jpeg, out, result.is_ok())
}

/// Compares decoding from coefficients with decoding from `file`, for the whole image and `region`.
/// Returns whether coefficients were kept, as they must be for undamaged files.
fn check_against_file(decoder: &mut Decoder, file: &[u8], region: Rect, what: &str) -> bool {
    let (jpeg, whole, is_ok) = decode_and_keep(decoder, file, usize::MAX);
    assert_eq!(jpeg.is_some(), is_ok && whole.damage().is_none(), "{what}");
    let Some(jpeg) = jpeg else { return false };
    let (full, mut actual, mut expected) = (Rect::full(jpeg.size()), Pixels::new(), Pixels::new());
    decoder.decode(&Jpeg::open(file).unwrap(), full, &mut expected).unwrap();
    assert!(whole.data() == expected.data(), "{what}: keeping coefficients changes the pixels");
    decoder.decode(&jpeg, full, &mut actual).unwrap();
    assert!(actual.data() == expected.data(), "{what}");
    decoder.decode(&Jpeg::open(file).unwrap(), region, &mut expected).unwrap();
    decoder.decode(&jpeg, region, &mut actual).unwrap();
    assert!(actual.data() == expected.data() && actual.origin() == expected.origin(), "{what}: {region:?}");
    assert_eq!((actual.damage(), decoder.damage(&jpeg).unwrap()), (None, None), "{what}");
    let mut rows = vec![0; region.size().area() as usize * 3];
    assert!(decoder.decode_rows(&jpeg, region, &mut rows) && rows == expected.data(), "{what}: {region:?}");
    assert!(jpeg.memory(full) <= Jpeg::open(file).unwrap().memory(full) && jpeg.decode_cost(full) < u64::MAX);
    true
}

#[test]
fn kept_coefficients_give_the_pixels_of_the_file() {
    for (number, decoder) in decoders().iter_mut().enumerate() {
        for seed in 0..400 {
            let random = &mut Random::new(seed);
            let mut file = random_jpeg(random, if seed % 4 == 0 { 250 } else { 70 });
            if seed % 3 == 0 {
                file = with_orientation(&file, 1 + random.below(8) as u8);
            }
            let region = region(random, size(&file).unwrap());
            assert!(
                check_against_file(decoder, &file, region, &format!("decoder {number}, seed {seed}")),
                "seed {seed}"
            );
            let without_eoi = &file[..file.len() - 2];
            assert!(
                !check_against_file(decoder, without_eoi, region, "without EOI"),
                "seed {seed}: a file without EOI counts as damaged"
            );
        }
    }
}

#[test]
fn coefficients_of_damaged_files_are_not_kept() {
    let (mut kept, mut refused) = (0, 0);
    for decoder in &mut decoders() {
        for seed in 0..1500 {
            let random = &mut Random::new(seed);
            let mut file = random_jpeg(random, 48);
            damage(random, &mut file);
            let Some(size) = size(&file).filter(|size| size.area() < 1 << 20) else { continue };
            // Damage that still gives a valid file cannot be detected.
            let is_kept = check_against_file(decoder, &file, region(random, size), &format!("seed {seed}"));
            *(if is_kept { &mut kept } else { &mut refused }) += 1;
        }
    }
    assert!(kept > 100 && refused > 1000, "{kept} kept, {refused} refused");
}

#[test]
fn kept_coefficients_mix_with_files_in_a_group() {
    for decoder in &mut decoders() {
        for seed in 0..40 {
            let random = &mut Random::new(seed);
            let files: Vec<_> = (0..1 + random.below(20)).map(|_| random_jpeg(random, 90)).collect();
            let regions: Vec<_> = files.iter().map(|file| region(random, size(file).unwrap())).collect();
            let expected: Vec<_> = decode_all(decoder, &files, &regions).into_iter().map(Result::unwrap).collect();
            let opened = files.iter().map(|file| match random.below(2) {
                0 => decode_and_keep(decoder, file, usize::MAX).0.unwrap(),
                _ => Jpeg::open(file).unwrap(),
            });
            let opened: Vec<_> = opened.collect();
            let mut outs = vec![Pixels::new(); files.len()];
            let job = |((jpeg, &region), out)| Job::new(jpeg, region, out);
            let mut jobs: Vec<Job<'_>> = opened.iter().zip(&regions).zip(&mut outs).map(job).collect();
            decoder.decode_group(&mut jobs);
            assert!(jobs.iter().all(|job| job.result.is_ok()) && jobs.len() == expected.len());
            drop(jobs);
            assert!(outs.iter().map(Pixels::data).eq(expected.iter().map(|rgb| &rgb[..])), "seed {seed}");
        }
    }
}

#[test]
fn coefficients_are_kept_only_of_whole_images_within_the_limit() {
    let noise: Vec<u8> = (0..200 * 100 * 3).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (quality, progressive) in [(100, false), (100, true), (30, false), (30, true)] {
        let options = Options { progressive, ..Options::new(quality, 2, 2) };
        let file = encode(&noise, 200, 100, 3, &options);
        for decoder in &mut decoders() {
            let (jpeg, ..) = decode_and_keep(decoder, &file, usize::MAX);
            let bytes = jpeg.unwrap().coefficients().unwrap().bytes();
            assert!(decode_and_keep(decoder, &file, bytes).0.is_some());
            let (refused, out, is_ok) = decode_and_keep(decoder, &file, bytes - 1);
            assert!(refused.is_none() && is_ok && out.size() == Size::new(200, 100));
            let (jpeg, mut out) = (Jpeg::open(&file).unwrap(), Pixels::new());
            let mut jobs = [Job::new(&jpeg, Rect::new(0, 0, 200, 99), &mut out).keep_coefficients(usize::MAX)];
            decoder.decode_group(&mut jobs);
            assert!(jobs[0].coefficients.is_none() && jobs[0].result.is_ok());
        }
    }
}
