//! Fuzzes the reader of pickles, both as values of a dataset and as the index of a `.pt` archive.

use super::{Node, append_json, read, read_torch};
use crate::fuzz::{self, Random};

const WORDS: [&[u8]; 24] = [
    b"\x80\x04",
    b"\x95\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x94",
    b"h\0",
    b"r\xff\xff\xff\xff",
    b"(",
    b"R",
    b"b",
    b"Q",
    b"e",
    b"u",
    b"s",
    b"\x85",
    b"\x86",
    b"\x87",
    b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"cnumpy\ndtype\n",
    b"cnumpy\nndarray\n",
    b"cnumpy.core.multiarray\n_reconstruct\n",
    b"c_codecs\nencode\n",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch\nFloatStorage\n",
    b"X\x06\0\0\0latin1",
    b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\xff",
];

fn pickles() -> Vec<Vec<u8>> {
    let text = include_str!("../fixtures/formats/pickles/pickles.txt");
    let hex = |line: &str| line.split('\t').nth(3).expect("five columns").to_owned();
    let bytes = |hex: String| -> Vec<u8> {
        (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..][..2], 16).expect("hexadecimal")).collect()
    };
    text.lines().map(hex).map(bytes).filter(|pickle| pickle.len() < 2000).collect()
}

/// Damages a pickle. Reading it must either fail or return plain data of bounded size. Returns
/// whether it can be read.
fn case(pickles: &[Vec<u8>], seed: u64) -> bool {
    let pickle = Random::new(seed).mutated(pickles, &WORDS);
    drop(read_torch(&pickle));
    let Ok(nodes) = read(&pickle) else { return false };
    let mut json = Vec::new();
    if append_json(&nodes, nodes.root_id(), &mut json).is_ok() {
        serde_json::from_slice::<serde_json::Value>(&json).expect("`append_json` writes valid JSON");
    }
    match nodes.root() {
        Node::Bytes(bytes) => assert!(bytes.len() <= pickle.len()),
        Node::Array(array) => {
            let elements: usize = array.shape.iter().product();
            assert_eq!(nodes.bytes(array).len(), elements * array.dtype.size);
        }
        _ => {}
    }
    true
}

#[test]
fn pickles_of_python() {
    let pickles = pickles();
    fuzz::run("pickle", |seed| case(&pickles, seed));
}
