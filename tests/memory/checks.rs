//! Tests that checking a TIFF with many channels takes no more memory than estimated, and detects
//! damage.

use crate::process::serial;
use crate::scratch::{MIB, peak};
use crate::tiff::tiff;
use warpfeed::decode::{Codecs, Condition, Rect, Size, check};

/// With twelve 16-bit channels, a pixel takes 24 bytes, compared with 3 bytes in 8-bit RGB.
const SIZE: Size = Size { width: 1024, height: 1024 };
const VALUES: usize = 1024 * 1024 * 24;

#[test]
fn a_check_of_many_channels_takes_the_memory_of_one_strip() {
    let _serial = serial();
    let (data, codecs) = (vec![7; VALUES], Codecs::new());
    for (planes, rows) in [(1, 1024), (1, 64), (12, 1024), (12, 64)] {
        let file = tiff((SIZE, rows), &data, 12, (16, 1), planes, 1);
        let (opening, image) = peak(|| codecs.open(&file).unwrap());
        let (took, condition) = peak(|| check(&file));
        assert!(matches!(condition, Condition::Sound), "{condition:?}");
        let strip = VALUES * rows as usize / 1024 / usize::from(planes);
        assert!(opening < MIB, "reading the header took {opening} bytes");
        assert!(
            (strip..strip + MIB).contains(&took),
            "checking took {took} bytes: expected {strip} to {}",
            strip + MIB
        );
        assert!(
            strip as u64 <= image.decode_memory(Rect::full(SIZE)),
            "a strip has {strip} bytes, more than the estimate"
        );
    }
}

#[test]
fn damage_in_the_last_strip_is_detected() {
    let _serial = serial();
    let data = vec![7; VALUES];
    for (planes, rows) in [(1, 64), (12, 64)] {
        let file = tiff((SIZE, rows), &data, 12, (16, 1), planes, 1);
        let strip = (VALUES * rows as usize / 1024 / usize::from(planes)) as u32;
        let strips = VALUES as u32 / strip;
        // No data follows the last strip.
        let last = (8 + (strips - 1) * strip).to_le_bytes();
        let entry = file.windows(4).rposition(|bytes| bytes == last).unwrap();
        let mut damaged = file.clone();
        damaged[entry..entry + 4].copy_from_slice(&(file.len() as u32 - 5).to_le_bytes());
        assert!(matches!(check(&file), Condition::Sound));
        assert!(matches!(check(&damaged), Condition::Damaged(_)), "{planes} planes");
    }
}

#[test]
fn a_strip_larger_than_the_largest_allowed_image_is_rejected() {
    let _serial = serial();
    let data = vec![7; VALUES];
    let codecs = Codecs::new().max_pixels(SIZE.area());
    let file = tiff((SIZE, 1024), &data, 12, (16, 1), 1, 1);
    let (took, condition) = peak(|| codecs.open(&file).unwrap().check().unwrap());
    let Condition::Damaged(e) = condition else { panic!("{condition:?}") };
    let expected = "tiff header claims a strip or tile of 25165824 bytes, but the limit is 11534336";
    assert_eq!(e.cause(), expected);
    assert!(took < MIB, "{took} bytes");
    let file = tiff((SIZE, 64), &data, 12, (16, 1), 1, 1);
    assert!(matches!(codecs.open(&file).unwrap().check().unwrap(), Condition::Sound));
}
