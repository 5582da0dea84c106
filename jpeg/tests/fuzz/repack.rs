//! Fuzzes `repack`, and compares the pixels with libjpeg.

use super::repack;
use crate::fuzz::{self, Random};
use crate::fuzz_jpeg::{damage, find_damage, random_jpeg};
use crate::libjpeg;

const SAMPLE_JPEG: &[u8] = include_bytes!("../fixtures/triangle.jpg");

/// Repacks one random file, which may be damaged. A file in which [`find_damage`] finds damage must
/// be rejected without any output. Any other file must be rewritten with the same pixels, unless
/// its MCUs have too many blocks. Rewriting the result again must not change it. Returns whether
/// the file was rewritten.
fn check_repacked(seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let mut jpeg = match random.below(64) {
        0 => SAMPLE_JPEG.to_vec(),
        _ => random_jpeg(random, 48),
    };
    if random.below(3) > 0 {
        damage(random, &mut jpeg);
    }
    let mut packed = b"before".to_vec();
    let condition = find_damage(&jpeg);
    if let Err(e) = repack(&jpeg, &mut packed) {
        assert!(packed == b"before", "seed {seed}: the output changed after an error");
        let unfit = e.to_string().contains("blocks in an MCU");
        assert!(unfit || !matches!(condition, Ok(None)), "seed {seed}: a valid file was not rewritten: {e}");
        return false;
    }
    assert!(matches!(condition, Ok(None)), "seed {seed}: a damaged file was rewritten: {condition:?}");
    let packed = packed.split_off(6);
    if let Ok(expected) = libjpeg::decode(&jpeg) {
        let actual = libjpeg::decode(&packed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(actual.rgb == expected.rgb, "seed {seed}: pixels differ");
        assert!(actual.warnings <= expected.warnings, "seed {seed}: rewriting caused damage");
    }
    let mut again = Vec::new();
    repack(&packed, &mut again).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    assert!(again == packed, "seed {seed}: a second rewrite changes the file");
    true
}

#[test]
fn damaged_files_are_refused_or_keep_their_pixels() {
    fuzz::run("repack", check_repacked);
}
