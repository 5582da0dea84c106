//! All backends against each other and against libjpeg, over sound files and damaged ones.

use super::coefficients::Coefficients;
use super::group::Group;
use super::header::{Coding, Header};
use super::kernels::Backend;
use super::libjpeg::{self, Options, encode};
use crate::decode::jpeg::Jpeg;
use crate::decode::{Decode, Job, Pixels, Rect, Size, Want};
use crate::error::Result;

/// A small generator, so that a failing case is named by its seed alone (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

fn random_jpeg(random: &mut Random, longest: usize) -> Vec<u8> {
    let (width, height) = (1 + random.below(longest), 1 + random.below(longest));
    let channels = random.pick(&[1, 3, 3, 3]);
    let (h, v) = random.pick(&[(1, 1), (1, 1), (2, 1), (1, 2), (2, 2), (2, 2), (4, 1), (4, 2)]);
    let options = Options {
        restart: random.pick(&[0, 0, 1, 2, 3, 4, 7, 30]),
        optimise: random.below(2) == 0,
        progressive: random.below(6) == 0,
        rgb: random.below(12) == 0,
        ..Options::new(1 + random.below(100) as u8, h, v)
    };
    let (noise, slope) = (random.pick(&[1, 4, 30, 256]), random.below(5));
    let pixels: Vec<u8> = (0..width * height * channels).map(|i| (i * slope / 7 + random.below(noise)) as u8).collect();
    encode(&pixels, width as u32, height as u32, channels, &options)
}

/// Damages a file in one of the ways that files get damaged, or that somebody would think of.
fn damage(random: &mut Random, jpeg: &mut Vec<u8>) {
    let data = Header::read(jpeg).map_or(2, |h| h.scan.data);
    for _ in 0..1 + random.below(3) {
        if jpeg.len() < 4 {
            return;
        }
        let at = match random.below(4) {
            0 => random.below(jpeg.len()),
            1 => random.below(data.min(jpeg.len())),
            _ => (data + random.below(jpeg.len() - data.min(jpeg.len()))).min(jpeg.len() - 1),
        };
        match random.below(12) {
            0 => jpeg.truncate(at.max(4)),
            1 => jpeg[at] = 0xff,
            2 => jpeg[at] = 0,
            3 => jpeg[at] ^= 1 << random.below(8),
            4 => jpeg[at] = random.next() as u8,
            5 => drop(jpeg.drain(at..(at + 1 + random.below(40)).min(jpeg.len()))),
            6 => drop(jpeg.splice(at..at, [0xff, 0xd0 + random.below(10) as u8])),
            7 => drop(jpeg.splice(at..at, vec![random.pick(&[0, 0xff, 0x55]); 1 + random.below(30)])),
            8 => {
                let piece = jpeg[at..(at + random.below(200)).min(jpeg.len())].to_vec();
                let to = random.below(jpeg.len());
                jpeg.splice(to..to, piece);
            }
            // The fields of the frame header, and the restart interval.
            9 | 10 => {
                if let Some(sof) = (0..data.min(jpeg.len())).find(|&i| jpeg[i..].starts_with(&[0xff, 0xc0])) {
                    let field = (sof + 4 + random.below(15)).min(jpeg.len() - 1);
                    jpeg[field] = random.pick(&[0, 1, 2, 0x11, 0x22, 0x41, 0xff, random.0 as u8]);
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

fn decode(group: &mut Group, jpeg: &[u8], region: Rect, out: &mut Pixels) -> Result<()> {
    let mut jobs = [Job { bytes: jpeg, want: Want::exact(region), out, result: Ok(()) }];
    group.decode(&mut jobs);
    let [job] = jobs;
    job.result
}

/// Whether no sample leaves -512 to 511 by far, where libjpeg's C code wraps around and its SIMD code saturates.
fn is_tame(coefficients: &Coefficients) -> bool {
    coefficients.planes().iter().all(|plane| {
        plane.data.chunks_exact(64).all(|block| {
            block.iter().zip(&plane.quant).map(|(&c, &q)| i64::from(c).abs() * i64::from(q)).sum::<i64>() < 1800
        })
    })
}

/// One damaged file: no panic, the same from all backends, and what libjpeg makes of it where anything is made of it.
fn check_damaged(seed: u64, groups: &mut [Group], counts: &mut [u64; 4]) {
    let random = &mut Random(seed);
    let mut jpeg = random_jpeg(random, 48);
    damage(random, &mut jpeg);
    let Ok(size) = Jpeg.size(&jpeg) else { return };
    counts[0] += 1;
    if size.area() > 1 << 20 {
        // Only that it is refused or decoded in bounds, of a small region.
        let region = Rect::new(size.width / 2, size.height / 2, 1, 1);
        groups.iter_mut().for_each(|group| drop(decode(group, &jpeg, region, &mut Pixels::new())));
        return;
    }
    let full = Rect::full(size);
    let mut first: Option<Result<Vec<u8>>> = None;
    for group in groups.iter_mut() {
        let mut out = Pixels::new();
        let found = decode(group, &jpeg, full, &mut out).map(|()| out.data().to_vec());
        match (&first, &found) {
            (None, _) => first = Some(found),
            (Some(Ok(a)), Ok(b)) => assert!(a == b, "seed {seed}: backends differ"),
            (Some(Err(a)), Err(b)) => assert_eq!(a.to_string(), b.to_string(), "seed {seed}"),
            (Some(a), b) => panic!("seed {seed}: backends differ: {:?} {:?}", a.is_ok(), b.is_ok()),
        }
    }
    let Some(Ok(rgb)) = first else { return };
    counts[1] += 1;
    let header = Header::read(&jpeg).unwrap();
    let mut coefficients = Coefficients::default();
    if let Err(e) = coefficients.decode(&jpeg, &header) {
        panic!("seed {seed}: the lanes took what the plain decoder refuses: {e}");
    }
    let smoothed = header.frame.coding == Coding::Progressive && coefficients.is_unfinished();
    let turned = header.orientation != 1;
    if let (Ok(expected), true, false, false) = (libjpeg::decode(&jpeg), is_tame(&coefficients), smoothed, turned) {
        counts[2] += 1;
        counts[3] += u64::from(expected.warnings > 0);
        assert!(rgb == expected.rgb, "seed {seed}: differs from libjpeg, which warned {} times", expected.warnings);
    }
}

fn groups() -> Vec<Group> {
    Backend::available().into_iter().map(Group::new).collect()
}

#[test]
fn damaged_files_give_an_error_or_the_pixels_of_libjpeg() {
    let (mut groups, mut counts) = (groups(), [0; 4]);
    (0..3000).for_each(|seed| check_damaged(seed, &mut groups, &mut counts));
    assert!(counts.iter().all(|&n| n > 100), "too few cases reach each stage: {counts:?}");
}

/// The same for as long as `WARPFEED_FUZZ_SECONDS` says, from the seed `WARPFEED_FUZZ_SEED` on.
#[test]
#[ignore = "runs for minutes"]
fn damaged_files_for_long() {
    let number = |name: &str, default| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let (start, limit) = (std::time::Instant::now(), number("WARPFEED_FUZZ_SECONDS", 60));
    let (mut groups, mut counts) = (groups(), [0; 4]);
    let first = number("WARPFEED_FUZZ_SEED", 1 << 32);
    let mut seed = first;
    while start.elapsed().as_secs() < limit {
        check_damaged(seed, &mut groups, &mut counts);
        seed += 1;
    }
    println!("{} files; header read, decoded, compared with libjpeg, of them damaged: {counts:?}", seed - first);
}

#[test]
fn a_group_gives_each_job_what_it_gets_alone() {
    for mut group in groups() {
        for seed in 0..40 {
            let random = &mut Random(seed);
            let files: Vec<Vec<u8>> = (0..1 + random.below(40))
                .map(|_| {
                    let mut jpeg = random_jpeg(random, 90);
                    if random.below(5) == 0 {
                        damage(random, &mut jpeg);
                    }
                    jpeg
                })
                .filter(|jpeg| Jpeg.size(jpeg).is_ok_and(|size| size.area() < 1 << 20))
                .collect();
            let wants: Vec<Want> = files
                .iter()
                .map(|jpeg| {
                    let Size { width, height } = Jpeg.size(jpeg).unwrap();
                    let (x, y) = (random.below(width as usize) as u32, random.below(height as usize) as u32);
                    let part = |random: &mut Random, left: u32| 1 + random.below(left as usize) as u32;
                    Want::exact(Rect::new(x, y, part(random, width - x), part(random, height - y)))
                })
                .collect();
            let alone: Vec<_> = files
                .iter()
                .zip(&wants)
                .map(|(jpeg, want)| {
                    let mut out = Pixels::new();
                    decode(&mut Group::new(Backend::Scalar), jpeg, want.region, &mut out).map(|()| out.data().to_vec())
                })
                .collect();
            let mut outs = vec![Pixels::new(); files.len()];
            let mut jobs: Vec<Job<'_>> = files
                .iter()
                .zip(&wants)
                .zip(&mut outs)
                .map(|((bytes, &want), out)| Job { bytes, want, out, result: Ok(()) })
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
            let e = Jpeg.decode(&jpeg[..keep], Want::exact(Rect::new(0, 0, 100, 80)), &mut out).unwrap_err();
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
        let e = Jpeg.decode(&jpeg, Want::exact(region), &mut out).unwrap_err();
        assert!(e.to_string().contains(text), "{e}");
    }
}

#[test]
fn what_only_a_general_decoder_takes_is_foreign() {
    let mut jpeg = encode(&[128; 64 * 3], 8, 8, 3, &Options::new(50, 1, 1));
    assert!(!Jpeg::is_foreign(&jpeg));
    let sof = (0..jpeg.len()).find(|&i| jpeg[i..].starts_with(&[0xff, 0xc0])).unwrap();
    jpeg[sof + 1] = 0xc9;
    assert!(Jpeg::is_foreign(&jpeg));
    assert_eq!(Jpeg.size(&jpeg).unwrap_err().to_string(), "decode: jpeg with coding SOF9 is not supported");
    assert!(!Jpeg::is_foreign(b"\xff\xd8 nothing"));
}
