//! Fuzzing of JPEG rewriting, compared with libjpeg.

use super::repack;
use crate::fuzz::{self, Random};
use crate::fuzz_jpeg::{condition, damage, random_jpeg};
use crate::libjpeg;

const FROM_A_SET: &[u8] = include_bytes!("../fixtures/triangle.jpg");

/// Checks that a damaged file is refused without output, or rewritten to a file with the same
/// pixels that does not change when it is rewritten again.
fn repacked(seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let mut jpeg = match random.below(64) {
        0 => FROM_A_SET.to_vec(),
        _ => random_jpeg(random, 48),
    };
    // Damaged data is usually refused, so a third of the cases stay valid.
    if random.below(3) > 0 {
        damage(random, &mut jpeg);
    }
    let mut packed = b"before".to_vec();
    let condition = condition(&jpeg);
    if let Err(e) = repack(&jpeg, &mut packed) {
        assert!(packed == b"before", "seed {seed}: something was written");
        let unfit = e.to_string().contains("blocks in an MCU");
        assert!(unfit || !matches!(condition, Ok(None)), "seed {seed}: a valid file was not rewritten: {e}");
        return false;
    }
    assert!(matches!(condition, Ok(None)), "seed {seed}: rewritten, but {condition:?}");
    let packed = packed.split_off(6);
    if let Ok(expected) = libjpeg::decode(&jpeg) {
        let found = libjpeg::decode(&packed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(found.rgb == expected.rgb, "seed {seed}: pixels differ");
        assert!(found.warnings <= expected.warnings, "seed {seed}: damaged by rewriting");
    }
    let mut again = Vec::new();
    repack(&packed, &mut again).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    assert!(again == packed, "seed {seed}: rewriting changes it again");
    true
}

#[test]
fn damaged_files_are_refused_or_keep_their_pixels() {
    fuzz::briefly("repack", repacked);
}

#[test]
#[ignore = "runs for WARPFEED_FUZZ_SECONDS"]
fn repack_for_long() {
    fuzz::for_long("repack", repacked);
}
