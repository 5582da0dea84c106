//! The test data of all adaptors. Each adaptor has a symlink to this file, because a package cannot
//! contain files outside its folder.

use warpfeed::source::{Memory, OwnedSample};
use warpfeed::{Augment, Loader};

/// Returns a 16x16 image as `.npy` bytes. The pixels depend on `n`.
pub(crate) fn image(n: u64) -> Vec<u8> {
    let header = format!("{:<117}\n", "{'descr': '|u1', 'fortran_order': False, 'shape': (16, 16, 3), }");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend((0..16 * 16 * 3).map(|i| (i * 7 + n * 31) as u8));
    bytes
}

/// Returns 50 samples. Sample `n` has `n % 5` tokens and, if `labeled` is set, the label `n % 3`.
pub(crate) fn source(labeled: bool) -> Memory {
    let sample = |n: u64| {
        let sample = OwnedSample::new(format!("s{n}"))
            .field("rgb.npy", image(n))
            .field("place", [n as f32, -0.5].map(f32::to_le_bytes).concat())
            .field("tokens", (0..n as i64 % 5).flat_map(|row| (10 * n as i64 + row).to_le_bytes()).collect::<Vec<_>>());
        if labeled { sample.label(n as i64 % 3) } else { sample }
    };
    Memory::new((0..50).map(sample).collect())
}

/// Returns a loader whose epochs have six batches of 8 samples and one of 2.
pub(crate) fn loader() -> Loader {
    Loader::source(source(true)).augment(Augment::train(8)).batch_size(8).shuffle(3)
}
