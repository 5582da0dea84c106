//! Fuzzing of arrays: `.npy`, `.npz`, safetensors, `.pt` and HDF5.

use std::fs;
use std::path::Path;

use super::Arrays;
use crate::fuzz::{self, Random};
use crate::source::Source;

const WORDS: [&[u8]; 16] = [
    b"PK\x03\x04",
    b"PK\x01\x02",
    b"PK\x05\x06",
    b"PK\x06\x07",
    b"\x93NUMPY\x01\0",
    b"'shape': (2, 3), ",
    b"(99999999999,)",
    b"'<f2'",
    b"'>i8'",
    b"'|O'",
    b"\"data_offsets\":[0,8]",
    b"\"shape\":[]",
    b"\"dtype\":\"BF16\"",
    b"18446744073709551615",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch\nFloatStorage\n",
];

/// Small files of each format.
fn files() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let npy = |shape: &str, descr: &str, bytes: usize| {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        file.extend(format!("{header:<117}\n").bytes());
        file.extend((0..bytes).map(|byte| byte as u8));
        file
    };
    let tensors = br#"{"image":{"dtype":"U8","shape":[2,3,5,6],"data_offsets":[0,180]},"label":{"dtype":"I64","shape":[2],"data_offsets":[180,196]}}"#;
    let mut safetensors = (tensors.len() as u64).to_le_bytes().to_vec();
    safetensors.extend(tensors);
    safetensors.extend([7; 196]);
    let fixture = |name: &str| {
        fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/formats/arrays").join(name))
            .expect("a fixture")
    };
    #[cfg(feature = "hdf5")]
    let hdf5 = ["growing-v114", "rows-earliest", "split", "refused"].map(|name| fixture(&format!("../hdf5/{name}.h5")));
    vec![
        #[cfg(feature = "hdf5")]
        ("hdf5", hdf5.to_vec()),
        ("npy", vec![npy("(2, 5, 6, 3)", "|u1", 180), npy("(3, 2)", ">f4", 24), npy("(4,)", "<f2", 8)]),
        ("npz", vec![fixture("stored.npz"), fixture("splits.npz")]),
        ("safetensors", vec![safetensors]),
        ("torch", vec![fixture("tuple.pt"), fixture("dict.pth"), fixture("view.pt")]),
    ]
}

/// Changes the end of an archive, where its directory is, or any other part of a file.
fn mutated(random: &mut Random, from: &[Vec<u8>]) -> Vec<u8> {
    let whole = &from[random.below(from.len())];
    let start = match random.below(3) {
        0 => 0,
        _ => whole.len().saturating_sub(2000),
    };
    [&whole[..start], &random.mutated(&[whole[start..].to_vec()], &WORDS)].concat()
}

/// Checks that a damaged file is an error, or can be read.
fn case(files: &[(&'static str, Vec<Vec<u8>>)], seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let (kind, from) = &files[random.below(files.len())];
    let bytes = mutated(random, from);
    let part = (*kind == "npz" && random.below(2) == 0).then_some("train");
    let Ok(source) = Arrays::in_memory(bytes, kind, part) else { return false };
    let mut scratch = Vec::new();
    for index in [0, source.len() / 2, source.len() - 1] {
        let label = source.label(index, &mut Vec::new());
        if let Ok(sample) = source.read(index, &mut scratch) {
            assert_eq!(sample.label().ok(), label.ok(), "sample {index}");
        }
    }
    true
}

#[test]
fn array_files() {
    let files = files();
    fuzz::briefly("arrays", |seed| case(&files, seed));
}

#[test]
#[ignore = "runs for WARPFEED_FUZZ_SECONDS"]
fn array_files_for_long() {
    let files = files();
    fuzz::for_long("arrays", |seed| case(&files, seed));
}
