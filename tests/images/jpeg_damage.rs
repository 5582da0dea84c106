//! Tests damaged JPEGs. A truncated one must fail with the same error for every crop and in every
//! source, unless it lacks only its EOI. Other damage is counted and reported, and is an error in a
//! strict loader.

use std::fs;
use std::path::Path;

use warpfeed::decode::{Codecs, Condition, Pixels, Rect, check};
use warpfeed::pack::{Pack, Recode, repack_jpeg};
use warpfeed::source::{Memory, OwnedSample, Source, open};
use warpfeed::{Augment, Decoder, Error, Loader, OnError, Result};

const SIDE: u16 = 160;

fn encoded(progressive: bool, interval: u16) -> Vec<u8> {
    let pixels: Vec<u8> = (0..usize::from(SIDE) * usize::from(SIDE) * 3).map(|i| (i * i / 31 + i / 5) as u8).collect();
    crate::jpeg(&pixels, (SIDE, SIDE), progressive, interval)
}

fn packed(jpeg: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    repack_jpeg(jpeg, &mut packed).unwrap();
    packed
}

/// The thumbnail in the EXIF segment of the last file contains a second EOI.
fn files() -> [(&'static str, Vec<u8>); 4] {
    let plain = encoded(false, 0);
    let thumbnail = [b"Exif\0\0", &encoded(false, 0)[..9000.min(plain.len())], &[0xff, 0xd9]].concat();
    let length = (thumbnail.len() as u16 + 2).to_be_bytes();
    let with_thumbnail = [&plain[..2], &[0xff, 0xe1], &length, &thumbnail, &plain[2..]].concat();
    [("plain", plain.clone()), ("packed", packed(&plain)), ("progressive", encoded(true, 0)), ("exif", with_thumbnail)]
}

fn data(jpeg: &[u8]) -> usize {
    jpeg.windows(2).rposition(|w| w == [0xff, 0xda]).unwrap() + 14
}

fn decode(bytes: &[u8], region: Rect) -> Result<Vec<u8>> {
    let mut out = Pixels::new();
    Codecs::new().open(bytes)?.decode(region, &mut out)?;
    Ok(out.data().to_vec())
}

const WHOLE: Rect = Rect { x: 0, y: 0, width: SIDE as u32, height: SIDE as u32 };
const TOP: Rect = Rect { x: 3, y: 0, width: 20, height: 1 };

#[test]
fn a_truncated_file_causes_the_same_error_for_every_region() {
    for (name, file) in files() {
        let from = data(&file);
        for keep in (from..file.len() - 3).step_by(97) {
            let cut = &file[..keep];
            let full = decode(cut, WHOLE).expect_err(name).to_string();
            assert!(full.starts_with(&format!("decode: jpeg ends at byte {keep}")), "{name}: {full}");
            for region in [TOP, Rect::new(0, 0, 1, 1), Rect::new(40, 40, 16, 16)] {
                assert_eq!(decode(cut, region).expect_err(name).to_string(), full, "{name} cut at {keep}");
            }
            assert!(matches!(check(cut), Condition::Damaged(e) if e.to_string() == full), "{name}");
        }
    }
}

#[test]
fn bytes_after_a_complete_image_are_ignored() {
    for (name, file) in files() {
        let expected = decode(&file, TOP).unwrap();
        let second = encoded(false, 0);
        let trailers = [&b"\0"[..], &[0; 3000], b"some text behind the image", &[0xff], &second[..second.len() / 2]];
        for trailer in trailers {
            let longer = [&file, trailer].concat();
            assert!(decode(&longer, TOP).unwrap() == expected, "{name}");
            assert!(decode(&longer, WHOLE).unwrap() == decode(&file, WHOLE).unwrap(), "{name}");
            assert!(matches!(check(&longer), Condition::Sound), "{name}: {:?}", check(&longer));
        }
    }
}

#[test]
fn a_file_without_its_last_marker_decodes_and_is_reported() {
    for (name, file) in files() {
        let cut = &file[..file.len() - 2];
        for region in [TOP, WHOLE] {
            assert!(decode(cut, region).unwrap() == decode(&file, region).unwrap(), "{name}");
        }
        assert!(matches!(check(cut), Condition::Tolerated(what) if what.contains("EOI")), "{name}");
    }
}

fn sets(root: &Path, file: &[u8]) -> [std::sync::Arc<dyn Source>; 3] {
    fs::create_dir_all(root.join("set/a")).unwrap();
    fs::write(root.join("set/a/cut.jpg"), &file[..file.len() * 6 / 10]).unwrap();
    fs::write(root.join("set/a/whole.jpg"), file).unwrap();
    let folder = open(root.join("set")).unwrap();
    for name in ["x.lmdb", "x.tar"] {
        Pack::new(&*folder).recode(Recode::KeepBytes).keep_undecodable(true).to(root.join(name)).unwrap();
    }
    ["set", "x.lmdb", "x.tar"].map(|name| open(root.join(name)).unwrap())
}

#[test]
fn a_truncated_jpeg_fails_in_every_epoch_and_every_source() {
    for (name, file) in files() {
        let root = tempfile::tempdir().unwrap();
        let mut causes = Vec::new();
        for source in sets(root.path(), &file) {
            // An evaluation reads only the center of the image. For a 16-pixel crop, the loader
            // needs only one or two rows of MCUs.
            for augment in [Augment::eval(256, 16), Augment::eval(256, 224), Augment::train(64)] {
                let loader = Loader::source(source.clone()).augment(augment).batch_size(1).shuffle(7).workers(2);
                let mut batches = loader.host().unwrap();
                for epoch in 0..20 {
                    let errors: Vec<Error> = batches.epoch(epoch).filter_map(Result::err).collect();
                    let [e] = &errors[..] else { panic!("{name}, epoch {epoch}: {errors:?}") };
                    assert_eq!(e.key(), Some("a/cut"));
                    causes.push(e.cause().to_owned());
                }
            }
        }
        causes.dedup();
        assert_eq!(causes.len(), 1, "{name}: {causes:?}");
        assert!(causes[0].starts_with(&format!("jpeg ends at byte {}", file.len() * 6 / 10)), "{causes:?}");
    }
}

fn with_wrong_marker(jpeg: &[u8]) -> Vec<u8> {
    spliced(jpeg, data(jpeg) + 40, 2, b"\xff\xd4")
}

fn with_zeros(jpeg: &[u8], offset: usize) -> Vec<u8> {
    let mut damaged = jpeg.to_vec();
    damaged[offset..offset + 200].fill(0);
    damaged
}

#[test]
fn zeroed_data_is_tolerated_and_found_by_check() {
    for (name, file) in files() {
        let from = data(&file);
        for offset in (from + 100..file.len() - 300).step_by(501) {
            let damaged = with_zeros(&file, offset);
            match check(&damaged) {
                Condition::Tolerated(what) => assert!(what.contains("damaged in MCU"), "{name} at {offset}: {what}"),
                other => panic!("{name} at {offset}: {other:?}"),
            }
            decode(&damaged, WHOLE).unwrap();
            assert!(repack_jpeg(&damaged, &mut Vec::new()).is_err(), "{name} at {offset}");
        }
    }
}

#[test]
fn data_after_the_last_mcu_is_reported() {
    for (name, file) in [("plain", encoded(false, 0)), ("restarts", encoded(false, 7))] {
        let mut longer = file.clone();
        longer.splice(file.len() - 2..file.len() - 2, [0x12; 30]);
        assert!(matches!(check(&longer), Condition::Tolerated(_)), "{name}: {:?}", check(&longer));
        assert!(decode(&longer, WHOLE).unwrap() == decode(&file, WHOLE).unwrap(), "{name}");
    }
}

fn spliced(jpeg: &[u8], offset: usize, count: usize, bytes: &[u8]) -> Vec<u8> {
    let mut changed = jpeg.to_vec();
    changed.splice(offset..offset + count, bytes.iter().copied());
    changed
}

/// The documentation of `warpfeed_jpeg` lists the types of damage. Two rows of its table are not
/// tested here: progressive scans out of order, and the last row, which is not always detected.
#[test]
fn each_documented_kind_of_damage_is_found_where_the_table_says() {
    let (plain, restarts, progressive) = (encoded(false, 0), encoded(false, 7), encoded(true, 0));
    let find =
        |jpeg: &[u8], from: usize, marker: [u8; 2]| from + jpeg[from..].windows(2).position(|w| w == marker).unwrap();
    let (from, second) = (data(&plain) + 40, find(&restarts, data(&restarts), [0xff, 0xd1]));
    let scan =
        (0..progressive.len()).filter(|&offset| progressive[offset..].starts_with(&[0xff, 0xda])).nth(3).unwrap();
    let stuffed = find(&plain, data(&plain), [0xff, 0]);
    let early = "a segment that ends before its last MCU, including an EOI in the middle of the data";
    let late = "eight or more bits after the last MCU of a segment";
    let kinds = [
        ("a code that does not exist", spliced(&plain, from, 8, b"\xff\0\xff\0\xff\0\xff\0")),
        (early, spliced(&restarts, second - 9, 9, b"")),
        (early, spliced(&plain, plain.len() / 2, 0, b"\xff\xd9")),
        ("an unexpected restart marker", spliced(&restarts, second, 2, b"\xff\xd4")),
        ("no EOI at the end", plain[..plain.len() - 2].to_vec()),
        (
            "missing progressive scans of the first ten coefficients",
            spliced(&progressive, scan, progressive.len() - scan, b"\xff\xd9"),
        ),
        ("fill bytes inside the data", spliced(&plain, stuffed, 0, b"\xff")),
        (late, spliced(&restarts, second, 0, b"\x12")),
        (late, spliced(&plain, plain.len() - 2, 0, b"\x12")),
    ];
    let table = include_str!("../../jpeg/src/lib.rs");
    for (kind, damaged) in kinds {
        let row = table.lines().find(|line| line.starts_with(&format!("//! | {kind} |"))).expect(kind);
        assert!(row.ends_with("| yes |"), "{row}");
        assert!(matches!(check(&damaged), Condition::Tolerated(_)), "{kind}: {:?}", check(&damaged));
        let mut pixels = Pixels::new();
        Codecs::new().open(&damaged).unwrap().decode(WHOLE, &mut pixels).unwrap();
        assert!(pixels.damage().is_some(), "{kind}");
        let image = Augment::resize(u32::from(SIDE), u32::from(SIDE));
        let mut batches = loader(&[damaged, plain.clone()]).augment(image).batch_size(2).epochs(1).host().unwrap();
        batches.epoch(0).for_each(|batch| drop(batch.unwrap()));
        assert_eq!(batches.stats().damaged_images, 1, "{kind}");
    }
    let version = find(&plain, 0, *b"JF") + 5;
    for sound in [spliced(&plain, 2, 0, b"\0\x12"), spliced(&plain, version, 1, b"\x09")] {
        assert!(matches!(check(&sound), Condition::Sound), "{:?}", check(&sound));
    }
}

fn with_noise(jpeg: &[u8], seed: u64) -> Vec<u8> {
    let (mut damaged, from, mut state) = (jpeg.to_vec(), data(jpeg), seed);
    for _ in 0..40 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let index = from + (state >> 33) as usize % (jpeg.len() - 2 - from);
        damaged[index] = (state >> 20) as u8;
    }
    damaged
}

fn loader(images: &[Vec<u8>]) -> Loader {
    let sample = |(n, bytes): (usize, &Vec<u8>)| OwnedSample::new(format!("image{n}")).field("jpg", bytes.clone());
    let samples = Memory::new(images.iter().enumerate().map(sample).collect());
    Loader::source(samples).unlabeled(true).batch_size(4).workers(2)
}

#[test]
fn damage_found_while_decoding_is_counted() {
    let (_, file) = files()[0].clone();
    let whole_image = Augment::resize(u32::from(SIDE), u32::from(SIDE));
    for (name, file) in files() {
        // Damage at the beginning of a scan affects every crop. The third file lacks its last
        // marker.
        let images = [file.clone(), with_wrong_marker(&file), file[..file.len() - 2].to_vec(), file.clone()];
        for (augment, crops) in [(whole_image.clone(), false), (Augment::train(32), true)] {
            let mut batches = loader(&images).augment(augment).epochs(2).host().unwrap();
            (0..2).for_each(|epoch| batches.epoch(epoch).for_each(|batch| drop(batch.unwrap())));
            let damaged = batches.stats().damaged_images;
            if crops && name == "packed" {
                // A crop without the first segment must not read the damage.
                assert!((2..=4).contains(&damaged), "{damaged}");
                continue;
            }
            assert_eq!(damaged, 2 * 2, "{name}: an image counts each time it is decoded");
            let (now, before) = (batches.stats(), batches.stats());
            assert_eq!(now.since(&before).damaged_images, 0);
            assert!(now.to_string().contains("4 damaged images were decoded"), "{now}");
        }
    }
    let mut sound = loader(&vec![file; 8]).augment(whole_image).host().unwrap();
    sound.epoch(0).for_each(|batch| drop(batch.unwrap()));
    assert_eq!(sound.stats().damaged_images, 0);
}

#[test]
fn a_strict_loader_refuses_what_verify_finds_for_every_crop() {
    for (name, file) in files() {
        let images: Vec<_> = (0..24).map(|seed| with_noise(&file, seed)).chain([file.clone()]).collect();
        let is_damaged = |bytes: &&Vec<u8>| !matches!(check(bytes), Condition::Sound);
        let expected = images.iter().filter(is_damaged).count();
        assert!(expected >= 23, "{name}: the damage is found in only {expected} of 24 images");
        for augment in [Augment::train(16), Augment::eval(16, 16), Augment::eval(256, 224)] {
            let skip = OnError::Skip { max_skipped: 25 };
            let options = loader(&images).augment(augment).strict(true).on_error(skip).batch_size(25);
            let mut batches = options.host().unwrap();
            for epoch in 0..3 {
                batches.epoch(epoch).for_each(|batch| drop(batch.unwrap()));
            }
            let faults = batches.sample_errors();
            assert_eq!(faults.len(), expected, "{name}");
            assert_eq!(batches.stats().damaged_images, 0, "failed images are not counted as damaged");
            let words = faults.iter().filter(|fault| fault.error.to_string().contains("because strict is set"));
            assert!(words.count() > 10, "{name}: {faults:?}");
            assert!(faults[0].error.to_string().starts_with("sample 0 (image0): decode: jpeg "), "{:?}", faults[0]);
        }
    }
}

#[test]
fn a_decoder_counts_damage_and_a_strict_one_refuses_it() {
    let (_, file) = files()[0].clone();
    let damaged = with_wrong_marker(&file);
    let options = Decoder::builder().batch_size(2).workers(1).augment(Augment::eval(40, 32));
    let decoder = options.clone().host().unwrap();
    let batch = decoder.decode([damaged.clone(), file.clone()]).unwrap();
    assert!(batch.error(0).is_none());
    drop(batch);
    assert_eq!(decoder.stats().damaged_images, 1);
    let strict = options.strict(true).host().unwrap();
    let batch = strict.decode([damaged, file]).unwrap();
    assert!(batch.error(0).unwrap().to_string().contains("because strict is set"), "{:?}", batch.error(0));
    assert!(batch.error(1).is_none());
}

#[test]
fn damage_of_batches_that_are_not_delivered_does_not_count() {
    let images = vec![with_wrong_marker(&files()[0].1); 8];
    let mut batches = loader(&images).augment(Augment::resize(32, 32)).prefetch(2).host().unwrap();
    for (epoch, count_taken, count) in [(0, 1, 4), (0, 2, 12), (1, 0, 12), (5, 2, 20), (6, 1, 24)] {
        assert_eq!(batches.epoch(epoch).take(count_taken).filter(|batch| batch.is_ok()).count(), count_taken);
        // Meanwhile, the loader prepares later batches, which must not count.
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert_eq!(batches.stats().damaged_images, count, "{count_taken} batches of epoch {epoch}");
    }
}
