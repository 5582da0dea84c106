//! Fuzzes the readers of `.npy`, `.npz`, safetensors, `.pt` and HDF5 files.

use std::fs;

use super::Arrays;
use crate::Source;
use crate::fuzz::{self, Random};

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

/// Byte sequences that mutations insert: signatures and message types of HDF5.
#[cfg(feature = "hdf5")]
const HDF5_WORDS: [&[u8]; 16] = [
    b"\x89HDF\r\n\x1a\n",
    b"TREE",
    b"SNOD",
    b"HEAP",
    b"GCOL",
    b"OHDR",
    b"OCHK",
    b"FRHP",
    b"BTHD",
    b"FAHD",
    b"EAHD",
    &[0xff; 8],
    &[0; 8],
    // These are the headers of messages that contain a dataspace, a layout and filters.
    &[1, 0, 8, 0],
    &[8, 0, 24, 0],
    &[11, 0, 16, 0],
];

struct Files {
    kind: &'static str,
    files: Vec<Vec<u8>>,
    /// The last [`END_LEN`] bytes of each file.
    ends: Vec<Vec<u8>>,
    words: &'static [&'static [u8]],
}

impl Files {
    fn new(kind: &'static str, files: Vec<Vec<u8>>) -> Self {
        let ends = files.iter().map(|file| file[file.len().saturating_sub(END_LEN)..].to_vec()).collect();
        Files { kind, files, ends, words: &WORDS }
    }
}

/// Number of bytes at the end of a file that are mutated more often, because an archive's central
/// directory is there.
const END_LEN: usize = 2000;

fn fixture(name: &str) -> Vec<u8> {
    fs::read(fuzz::fixtures().join("arrays").join(name)).expect("a fixture")
}

#[cfg(feature = "hdf5")]
fn hdf5() -> Files {
    let names = ["growing-v114", "growing-earliest", "gzip-v114", "lzf-v114", "rows-v114", "split", "refused"];
    let files = names.map(|name| fixture(&format!("../hdf5/{name}.h5"))).to_vec();
    Files { words: &HDF5_WORDS, ..Files::new("hdf5", files) }
}

fn npy() -> Files {
    let npy = |shape: &str, descr: &str, bytes: usize| {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        file.extend(format!("{header:<117}\n").bytes());
        file.extend((0..bytes).map(|byte| byte as u8));
        file
    };
    Files::new("npy", vec![npy("(2, 5, 6, 3)", "|u1", 180), npy("(3, 2)", ">f4", 24), npy("(4,)", "<f2", 8)])
}

fn npz() -> Files {
    Files::new("npz", vec![fixture("stored.npz"), fixture("splits.npz")])
}

fn safetensors() -> Files {
    let tensors = br#"{"image":{"dtype":"U8","shape":[2,3,5,6],"data_offsets":[0,180]},"label":{"dtype":"I64","shape":[2],"data_offsets":[180,196]}}"#;
    let mut file = (tensors.len() as u64).to_le_bytes().to_vec();
    file.extend(tensors);
    file.extend([7; 196]);
    Files::new("safetensors", vec![file])
}

fn torch() -> Files {
    Files::new("torch", vec![fixture("tuple.pt"), fixture("dict.pth"), fixture("view.pt")])
}

/// Damages a file and reads three samples. Checks that reading does not panic, and that `label`
/// agrees with `read`. Returns whether the file can be opened.
fn case(from: &Files, seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let bytes = match random.below(3) {
        0 => random.mutated(&from.files, from.words),
        _ => {
            let file = &from.files[random.below(from.files.len())];
            [&file[..file.len().saturating_sub(END_LEN)], &random.mutated(&from.ends, from.words)].concat()
        }
    };
    let part = (from.kind == "npz" && random.below(2) == 0).then_some("train");
    let Ok(source) = Arrays::in_memory(bytes, from.kind, part) else { return false };
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
fn npy_files() {
    let files = npy();
    fuzz::run(files.kind, |seed| case(&files, seed));
}

#[test]
fn npz_files() {
    let files = npz();
    fuzz::run(files.kind, |seed| case(&files, seed));
}

#[test]
fn safetensors_files() {
    let files = safetensors();
    fuzz::run(files.kind, |seed| case(&files, seed));
}

#[test]
fn torch_files() {
    let files = torch();
    fuzz::run(files.kind, |seed| case(&files, seed));
}

#[cfg(feature = "hdf5")]
#[test]
fn hdf5_files() {
    let files = hdf5();
    fuzz::run(files.kind, |seed| case(&files, seed));
}
