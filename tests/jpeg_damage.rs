//! Promise: a JPEG that ends early is an error whatever a crop needs of it, in every source, and
//! always the same one.

use std::fs;
use std::path::Path;

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use warpfeed::decode::{Codecs, Condition, Pixels, Rect, check};
use warpfeed::pack::{Pack, Recode, repack_jpeg};
use warpfeed::source::{Source, open};
use warpfeed::{Augment, Error, Loader, Result};

const SIDE: u16 = 160;

fn encoded(progressive: bool, interval: u16) -> Vec<u8> {
    let pixels: Vec<u8> = (0..usize::from(SIDE) * usize::from(SIDE) * 3).map(|i| (i * i / 31 + i / 5) as u8).collect();
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 85);
    encoder.set_sampling_factor(SamplingFactor::F_2_2);
    encoder.set_progressive(progressive);
    if interval > 0 {
        encoder.set_restart_interval(interval);
    }
    encoder.encode(&pixels, SIDE, SIDE, ColorType::Rgb).unwrap();
    bytes
}

fn packed(jpeg: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    repack_jpeg(jpeg, &mut packed).unwrap();
    packed
}

/// The kinds of file: plain, packed, progressive, and with a thumbnail in its EXIF segment that has
/// an EOI of its own.
fn files() -> [(&'static str, Vec<u8>); 4] {
    let plain = encoded(false, 0);
    let thumbnail = [b"Exif\0\0", &encoded(false, 0)[..9000.min(plain.len())], &[0xff, 0xd9]].concat();
    let length = (thumbnail.len() as u16 + 2).to_be_bytes();
    let with_thumbnail = [&plain[..2], &[0xff, 0xe1], &length, &thumbnail, &plain[2..]].concat();
    [("plain", plain.clone()), ("packed", packed(&plain)), ("progressive", encoded(true, 0)), ("exif", with_thumbnail)]
}

/// The first byte of entropy-coded data of the last SOS.
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
fn a_file_that_ends_early_is_the_same_error_for_every_region() {
    for (name, whole) in files() {
        let from = data(&whole);
        for keep in (from..whole.len() - 3).step_by(97) {
            let cut = &whole[..keep];
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
fn what_follows_a_whole_picture_does_not_matter() {
    for (name, whole) in files() {
        let expected = decode(&whole, TOP).unwrap();
        let second = encoded(false, 0);
        let trailers = [&b"\0"[..], &[0; 3000], b"some text behind the picture", &[0xff], &second[..second.len() / 2]];
        for trailer in trailers {
            let longer = [&whole, trailer].concat();
            assert!(decode(&longer, TOP).unwrap() == expected, "{name}");
            assert!(decode(&longer, WHOLE).unwrap() == decode(&whole, WHOLE).unwrap(), "{name}");
            assert!(matches!(check(&longer), Condition::Sound), "{name}: {:?}", check(&longer));
        }
    }
}

#[test]
fn a_file_without_its_last_marker_has_its_pixels_and_is_told_of() {
    for (name, whole) in files() {
        let cut = &whole[..whole.len() - 2];
        for region in [TOP, WHOLE] {
            assert!(decode(cut, region).unwrap() == decode(&whole, region).unwrap(), "{name}");
        }
        assert!(matches!(check(cut), Condition::Tolerated(what) if what.contains("EOI")), "{name}");
    }
}

/// A set of one whole picture and one that is cut at 60 % of its bytes, in a folder and what is
/// packed from it.
fn sets(root: &Path, whole: &[u8]) -> [std::sync::Arc<dyn Source>; 3] {
    fs::create_dir_all(root.join("set/a")).unwrap();
    fs::write(root.join("set/a/cut.jpg"), &whole[..whole.len() * 6 / 10]).unwrap();
    fs::write(root.join("set/a/whole.jpg"), whole).unwrap();
    let folder = open(root.join("set")).unwrap();
    for name in ["x.lmdb", "x.tar"] {
        Pack::new(&*folder).recode(Recode::KeepBytes).keep_bad(true).to(root.join(name)).unwrap();
    }
    ["set", "x.lmdb", "x.tar"].map(|name| open(root.join(name)).unwrap())
}

#[test]
fn a_truncated_jpeg_is_an_error_in_every_epoch_and_every_source() {
    for (name, whole) in files() {
        let root = tempfile::tempdir().unwrap();
        let mut causes = Vec::new();
        for source in sets(root.path(), &whole) {
            // Evaluation at 256 reads the centre; at 16 the loader needs a line or two.
            for augment in [Augment::eval(256, 16), Augment::eval(256, 224), Augment::train(64)] {
                let loader = Loader::shared_source(source.clone()).augment(augment).batch_size(1).shuffle(7).workers(2);
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
        assert!(causes[0].starts_with(&format!("jpeg ends at byte {}", whole.len() * 6 / 10)), "{causes:?}");
    }
}

/// As a failing disk leaves it: 200 zero bytes inside the data.
fn with_zeros(jpeg: &[u8], at: usize) -> Vec<u8> {
    let mut damaged = jpeg.to_vec();
    damaged[at..at + 200].fill(0);
    damaged
}

#[test]
fn zeros_inside_are_tolerated_and_found() {
    for (name, whole) in files() {
        let from = data(&whole);
        for at in (from + 100..whole.len() - 300).step_by(501) {
            let damaged = with_zeros(&whole, at);
            match check(&damaged) {
                Condition::Tolerated(what) => assert!(what.contains("damaged in MCU"), "{name} at {at}: {what}"),
                other => panic!("{name} at {at}: {other:?}"),
            }
            decode(&damaged, WHOLE).unwrap();
            assert!(repack_jpeg(&damaged, &mut Vec::new()).is_err(), "{name} at {at}");
        }
    }
}

#[test]
fn data_left_over_behind_the_last_mcu_are_found() {
    for (name, whole) in [("plain", encoded(false, 0)), ("restarts", encoded(false, 7))] {
        let mut longer = whole.clone();
        longer.splice(whole.len() - 2..whole.len() - 2, [0x12; 30]);
        assert!(matches!(check(&longer), Condition::Tolerated(_)), "{name}: {:?}", check(&longer));
        assert!(decode(&longer, WHOLE).unwrap() == decode(&whole, WHOLE).unwrap(), "{name}");
    }
}
