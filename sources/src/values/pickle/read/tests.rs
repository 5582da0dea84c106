//! Tests on the pickles in `tests/fixtures/formats/pickles`, which Python wrote in every protocol.

use std::path::Path;

use super::*;
use crate::values::pickle::append_json;

/// Returns the type, the name and protocol, the pickle, and the expected value of each fixture.
fn fixtures() -> Vec<(String, String, Vec<u8>, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/formats/pickles/pickles.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let row = |line: &str| {
        let [kind, protocol, name, hex, expected] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        (kind.to_owned(), format!("{name}, protocol {protocol}"), unhex(hex), expected.to_owned())
    };
    text.lines().map(row).collect()
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..][..2], 16).unwrap()).collect()
}

fn fixtures_of_kind(requested: &str) -> Vec<(String, Vec<u8>, String)> {
    let matching = fixtures().into_iter().filter(|(kind, ..)| kind == requested);
    let matching: Vec<_> = matching.map(|(_, name, pickle, expected)| (name, pickle, expected)).collect();
    assert!(!matching.is_empty());
    matching
}

fn cause(pickle: &[u8]) -> String {
    read(pickle).unwrap_err().cause().to_owned()
}

#[test]
fn plain_data_is_read_in_every_protocol() {
    for (name, pickle, expected) in fixtures_of_kind("plain") {
        let nodes = read(&pickle).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut json = Vec::new();
        append_json(&nodes, nodes.root_id(), &mut json).unwrap();
        let [actual, expected]: [serde_json::Value; 2] =
            [&json[..], expected.as_bytes()].map(|json| serde_json::from_slice(json).unwrap());
        assert_eq!(actual, expected, "{name}");
    }
}

#[test]
fn bytes_are_read_in_every_protocol_without_copies() {
    for (name, pickle, expected) in fixtures_of_kind("bytes") {
        let nodes = read(&pickle).unwrap_or_else(|e| panic!("{name}: {e}"));
        let Node::Bytes(bytes) = nodes.root() else { panic!("{name}") };
        assert_eq!(**bytes, unhex(&expected), "{name}");
        let is_unescaped = name.starts_with("bytes") && name.ends_with(['3', '4', '5']);
        assert!(!is_unescaped || matches!(bytes, Cow::Borrowed(_)), "{name}: copied");
    }
}

#[test]
fn arrays_are_read_in_every_protocol() {
    for (name, pickle, expected) in fixtures_of_kind("array") {
        let nodes = read(&pickle).unwrap_or_else(|e| panic!("{name}: {e}"));
        let Node::Array(array) = nodes.root() else { panic!("{name}") };
        let (shape, kind, size, hex): (Vec<usize>, char, usize, String) = serde_json::from_str(&expected).unwrap();
        assert_eq!((&array.shape, char::from(array.dtype.kind), array.dtype.size), (&shape, kind, size), "{name}");
        let mut native = Vec::new();
        array.dtype.convert(nodes.bytes(array), &mut native);
        assert_eq!(native, unhex(&hex), "{name}");
    }
}

#[test]
fn objects_other_than_plain_data_are_refused() {
    for (name, pickle, _) in fixtures_of_kind("refused") {
        let cause = cause(&pickle);
        assert!(cause.starts_with("pickle: ") && cause.contains(" at byte "), "{name}: {cause}");
    }
    let system = b"cos\nsystem\n(S'true'\ntR.";
    let expected = "pickle: GLOBAL at byte 0: os.system is refused: only plain data and arrays of numbers are read, and \
                    no code is executed";
    assert_eq!(cause(system), expected);
    for (opcode, name) in
        [(b"i", "INST"), (b"P", "PERSID"), (b"Q", "BINPERSID"), (b"\x82", "EXT1"), (b"\x81", "NEWOBJ")]
    {
        let refused = cause(&[b"\x80\x04N", &opcode[..], b"x\nx\n."].concat());
        assert!(refused.starts_with(&format!("pickle: {name} at byte 3: only plain data is supported")), "{refused}");
    }
    assert!(cause(b"\x80\x06.").contains("protocol 6"));
}

#[test]
fn hostile_pickles_use_little_memory() {
    assert!(cause(b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f").contains("claimed at byte 11"));
    assert!(cause(b"\x80\x04N\x72\xff\xff\xff\xff.").contains("the memo entry 4294967295"));
    assert!(cause(b"\x80\x04\x8b\xff\xff\xff\xff.").contains("claimed"));
    assert!(cause(b"\x80\x04(K\x01K\x02").contains("STOP is missing"));
    // A list that contains itself, and nested lists with 2^60 references to one list, can be read
    // but not converted to JSON.
    let cyclic = read(b"\x80\x04]\x94h\x00a.").unwrap();
    assert!(append_json(&cyclic, cyclic.root_id(), &mut Vec::new()).is_err());
    let mut wide = b"\x80\x04]\x94".to_vec();
    (0..60).for_each(|_| wide.extend(b"]q\x01(h\x00h\x00eq\x00"));
    wide.push(b'.');
    let wide = read(&wide).unwrap();
    assert!(append_json(&wide, wide.root_id(), &mut Vec::new()).unwrap_err().cause().contains("1048576 values"));
    let deep = [&b"]".repeat(100)[..], &b"a".repeat(99), b"."].concat();
    let deep = read(&deep).unwrap();
    assert!(append_json(&deep, deep.root_id(), &mut Vec::new()).unwrap_err().cause().contains("deep"));
    let mut repeated = b"c_codecs\nencode\nq\x00X\x00\x02\x00\x00".to_vec();
    repeated.extend([b'x'; 512]);
    repeated.extend(b"X\x06\x00\x00\x00latin1\x86q\x01");
    (0..1000).for_each(|_| repeated.extend(b"h\x00h\x01R"));
    repeated.push(b'.');
    assert!(cause(&repeated).contains("bytes of converted text exceed the"));
}
