//! Compares all backends with each other. `tests/fuzz/jpeg.rs` covers damaged files.

mod hostile;
mod rest;
mod small;

use super::fuzz::{damage, random_jpeg};
use super::kernels::Backend;
use super::libjpeg::{Options, encode};
use crate::decode::side_by_side::Group;
use crate::decode::{Job, Pixels, Rect, Size, standard};
use crate::error::Result;
use crate::fuzz::Random;

pub(super) fn decode(group: &mut Group, jpeg: &[u8], region: Rect, out: &mut Pixels) -> Result<()> {
    let mut jobs = [Job::new(standard().open(jpeg)?, region, out)];
    group.decode(&mut jobs);
    let [job] = jobs;
    job.result
}

pub(super) fn groups() -> Vec<Group> {
    Backend::available().into_iter().map(Group::new).collect()
}

#[test]
fn a_group_gives_each_job_what_it_gets_alone() {
    for mut group in groups() {
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
                .filter(|jpeg| standard().open(jpeg).is_ok_and(|picture| picture.size().area() < 1 << 20))
                .collect();
            let regions: Vec<Rect> = files
                .iter()
                .map(|jpeg| {
                    let Size { width, height } = standard().open(jpeg).unwrap().size();
                    let (x, y) = (random.below(width as usize) as u32, random.below(height as usize) as u32);
                    let part = |random: &mut Random, left: u32| 1 + random.below(left as usize) as u32;
                    Rect::new(x, y, part(random, width - x), part(random, height - y))
                })
                .collect();
            let alone: Vec<_> = files
                .iter()
                .zip(&regions)
                .map(|(jpeg, &region)| {
                    let mut out = Pixels::new();
                    decode(&mut Group::new(Backend::scalar()), jpeg, region, &mut out).map(|()| out.data().to_vec())
                })
                .collect();
            let mut outs = vec![Pixels::new(); files.len()];
            let mut jobs: Vec<Job<'_>> = files
                .iter()
                .zip(&regions)
                .zip(&mut outs)
                .map(|((bytes, &region), out)| Job::new(standard().open(bytes).unwrap(), region, out))
                .collect();
            group.decode(&mut jobs);
            for (i, (job, alone)) in jobs.iter().zip(&alone).enumerate() {
                match (&job.result, alone) {
                    (Ok(()), Ok(alone)) => assert!(job.out.data() == alone, "seed {seed}, job {i}"),
                    (Err(a), Err(b)) => assert_eq!(a.to_string(), b.to_string(), "seed {seed}, job {i}"),
                    (a, b) => panic!("seed {seed}, job {i}: {a:?}, alone {:?}", b.is_ok()),
                }
            }
        }
    }
}

#[test]
fn a_truncated_file_says_where_it_ends() {
    let pixels: Vec<u8> = (0..100 * 80 * 3).map(|i| (i * i / 7) as u8).collect();
    for options in [Options::new(90, 2, 2), Options { restart: 3, ..Options::new(90, 1, 1) }] {
        let jpeg = encode(&pixels, 100, 80, 3, &options);
        for keep in [jpeg.len() / 2, jpeg.len() * 2 / 3] {
            let mut out = Pixels::new();
            let mut picture = standard().open(&jpeg[..keep]).unwrap();
            let e = picture.decode(Rect::new(0, 0, 100, 80), &mut out).unwrap_err();
            assert!(e.to_string().starts_with(&format!("decode: jpeg ends at byte {keep}")), "{e}");
        }
    }
}

#[test]
fn a_huge_picture_of_few_bytes_is_refused() {
    let mut jpeg = encode(&[128; 64], 8, 8, 1, &Options::new(50, 1, 1));
    let sof = (0..jpeg.len()).find(|&i| jpeg[i..].starts_with(&[0xff, 0xc0])).unwrap();
    for (side, text) in [(16000u16, "blocks need at least"), (60000, "the limit is 268435456")] {
        jpeg[sof + 5..sof + 7].copy_from_slice(&side.to_be_bytes());
        jpeg[sof + 7..sof + 9].copy_from_slice(&side.to_be_bytes());
        let mut out = Pixels::new();
        let region = Rect::new(0, 0, side.into(), side.into());
        let opened = standard().open(&jpeg);
        let e = opened.and_then(|mut picture| picture.decode(region, &mut out)).unwrap_err();
        assert!(e.to_string().contains(text), "{e}");
    }
}

#[test]
fn a_kind_that_is_not_decoded_is_named() {
    let jpeg = encode(&[128; 64 * 3], 8, 8, 3, &Options::new(50, 1, 1));
    let sof = (0..jpeg.len()).find(|&i| jpeg[i..].starts_with(&[0xff, 0xc0])).unwrap();
    let with = |at: usize, value: u8| {
        let mut jpeg = jpeg.clone();
        jpeg[at] = value;
        standard().open(&jpeg).unwrap_err().to_string()
    };
    for (marker, kind) in [
        (0xc3, "a lossless"),
        (0xc5, "a hierarchical"),
        (0xc9, "an arithmetic-coded"),
        (0xca, "an arithmetic-coded"),
        (0xcb, "an arithmetic-coded, lossless"),
        (0xcd, "an arithmetic-coded, hierarchical"),
    ] {
        assert_eq!(with(sof + 1, marker), format!("decode: {kind} JPEG, which is not supported"));
    }
    assert_eq!(with(sof + 4, 12), "decode: a 12-bit JPEG, which is not supported");
    let uneven = "decode: a JPEG with sampling factors 1x1 next to 3x2, which is not supported";
    let mut odd = jpeg.clone();
    (odd[sof + 11], odd[sof + 14]) = (0x31, 0x22);
    assert!(standard().open(&odd).unwrap_err().to_string().contains("next to 3x2"), "{uneven}");
}
