//! Fuzzes the readers of tar headers, of the sidecar index of a shard, and of manifests.

use std::collections::BTreeMap;

use super::header::BLOCK_BYTES;
use super::index::Index;
use super::manifest::Manifest;
use super::sidecar;
use crate::error::Result;
use crate::fuzz::{self, Random};
use crate::machine::bytes::Bytes;

const WORDS: [&[u8]; 18] = [
    b"ustar\x0000",
    b"ustar  \0",
    b"path=",
    b"size=",
    b"20 size=99999999999\n",
    b"28 size=18446744073709551615\n",
    b"12 path=a.b\n",
    b"GNU.sparse.major=1",
    b"WARPFEED.key=",
    b"__classes__",
    b"77777777777\0",
    b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
    b"././@LongLink",
    b"../../../../etc/passwd",
    b"/etc/passwd.jpg",
    b"[\"a\", \"b\"]",
    &[0; BLOCK_BYTES],
];

fn shards() -> Vec<Vec<u8>> {
    let mut shards: Vec<Vec<u8>> = [
        &include_bytes!("../fixtures/gnu.tar")[..],
        include_bytes!("../fixtures/pax.tar"),
        include_bytes!("../fixtures/ustar.tar"),
    ]
    .map(|tar| {
        // Remove the zeros that pad the file to a tape record, or most mutations would hit them.
        let end = tar.iter().rposition(|&byte| byte != 0).map_or(0, |index| index + 1).next_multiple_of(BLOCK_BYTES);
        tar[..end + 2 * BLOCK_BYTES].to_vec()
    })
    .into();
    let member = |name: &str, kind: u8, data: &[u8]| {
        let mut block = vec![0; BLOCK_BYTES];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
        block[156] = kind;
        block[257..265].copy_from_slice(b"ustar\x0000");
        block.extend_from_slice(data);
        block.resize(block.len().next_multiple_of(BLOCK_BYTES), 0);
        block
    };
    let link = |name: &str, kind: u8, target: &str| {
        let mut block = member(name, kind, b"");
        block[157..157 + target.len()].copy_from_slice(target.as_bytes());
        block
    };
    let small = [
        member("__classes__", b'0', b"[\"cat\", \"dog\"]"),
        member("x", b'x', b"20 path=dir/a.b.jpg\n10 size=5\n"),
        member("a.jpg", b'0', b"12345"),
        member("long", b'L', b"folder/name.png\0"),
        member("b.png", b'0', b""),
        member("b.cls", b'0', b"7"),
        member("link.jpg", b'2', b""),
        link("b.jpg", b'1', "folder/name.png"),
        link("c.jpg", b'2', "b.jpg"),
        vec![0; 2 * BLOCK_BYTES],
    ];
    shards.push(small.concat());
    shards
}

/// Corrects the checksum of every block that looks like a header, because the reader stops at a
/// wrong checksum.
fn fix_checksums(tar: &mut [u8]) {
    for block in tar.chunks_exact_mut(BLOCK_BYTES).filter(|block| block[257..].starts_with(b"ustar")) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}

/// Bytes that cannot be borrowed, as in a file that is not mapped.
struct Unmapped<'t>(&'t [u8]);

impl Bytes for Unmapped<'_> {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn get<'a>(&'a self, offset: u64, len: usize, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        scratch.splice(.., self.0[offset as usize..][..len].iter().copied());
        Ok(scratch)
    }
}

/// Damages a shard. Scanning it must either fail or return an index with ranges inside the shard.
/// Encoding and decoding must not change an index that has entries. Returns whether the shard is
/// valid.
fn index(shards: &[Vec<u8>], seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let mut tar = random.mutated(shards, &WORDS);
    if random.below(8) > 0 {
        fix_checksums(&mut tar);
    }
    let index = Index::scan(&&tar[..]);
    let read = Index::scan(&Unmapped(&tar));
    assert_eq!(
        index.as_ref().map_err(ToString::to_string),
        read.as_ref().map_err(ToString::to_string),
        "mapped and unmapped"
    );
    let Ok(index) = index else { return false };
    check(&index, tar.len() as u64);
    let written = sidecar::encode(&index, tar.len() as u64, 5);
    let read = sidecar::decode(&written, tar.len() as u64, 5);
    assert!(read.as_ref() == Some(&index) || index.len() == 0, "decoding changes the index");
    true
}

fn check(index: &Index, len: u64) {
    for i in 0..index.len() {
        let (_, fields) = index.sample(i);
        assert!(!fields.is_empty());
        for field in fields {
            assert!(field.end() <= len && field.name() < index.names.len(), "{field:?}");
        }
    }
}

fn sidecars() -> Vec<Vec<u8>> {
    let scanned = shards().into_iter().map(|tar| Index::scan(&&tar[..]).unwrap_or_default());
    scanned.chain([sidecar::tests::index()]).map(|index| sidecar::encode(&index, 4096, 77)).collect()
}

/// Damages a sidecar and corrects its hash. The sidecar must either be rejected or contain only
/// ranges inside its tar. Returns whether it is accepted.
fn mutated_sidecar(sidecars: &[Vec<u8>], seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let mut bytes =
        random.mutated(sidecars, &[b"wfindex\x02", &4096u64.to_le_bytes(), &77u64.to_le_bytes(), "é".as_bytes()]);
    if random.below(16) > 0 && bytes.len() > 8 {
        // Usually restore the length and the time of the tar, because the sidecar is rejected at
        // once if they differ.
        let body = bytes.len() - 8;
        if body >= 24 && random.below(8) > 0 {
            bytes[8..16].copy_from_slice(&4096u64.to_le_bytes());
            bytes[16..24].copy_from_slice(&77u64.to_le_bytes());
        }
        let hash = crate::machine::hash::fnv1a(&bytes[..body]);
        bytes[body..].copy_from_slice(&hash.to_le_bytes());
    }
    let Some(index) = sidecar::decode(&bytes, 4096, 77) else { return false };
    check(&index, 4096);
    true
}

fn manifests() -> Vec<Vec<u8>> {
    let text = r#"{"warpfeed_set": 1, "samples": 5, "shards": [{"name": "a-000.tar", "samples": 3, "bytes": 10240},
        {"name": "a-001.tar", "samples": 2, "bytes": 4096}]}"#;
    vec![text.as_bytes().to_vec()]
}

/// Damages a manifest. It must either be rejected or list files in the folder with their actual
/// sizes. Returns whether it is accepted.
fn manifest(manifests: &[Vec<u8>], tars: &BTreeMap<String, u64>, seed: u64) -> bool {
    let words: [&[u8]; 8] = [
        b"\"name\": ",
        b"\"bytes\": ",
        b"../a-000.tar",
        b"/etc/passwd",
        b"null",
        b"-1",
        b"18446744073709551616",
        b"[[[[[[[[",
    ];
    let bytes = Random::new(seed).mutated(manifests, &words);
    let shards =
        Manifest::parse(&bytes).and_then(|manifest| manifest.into_checked_shards("a.manifest.json", tars, true));
    shards.is_ok_and(|shards| {
        assert!(shards.iter().all(|shard| tars.get(&shard.name) == Some(&shard.bytes)));
        true
    })
}

#[test]
fn set_manifest() {
    let (manifests, tars) = (manifests(), tars());
    fuzz::run("set manifest", |seed| manifest(&manifests, &tars, seed));
}

fn tars() -> BTreeMap<String, u64> {
    [("a-000.tar".to_owned(), 10240), ("a-001.tar".to_owned(), 4096)].into()
}

#[test]
fn tar_index() {
    let shards = shards();
    fuzz::run("tar index", |seed| index(&shards, seed));
}

#[test]
fn sidecar_index() {
    let sidecars = sidecars();
    fuzz::run("sidecar index", |seed| mutated_sidecar(&sidecars, seed));
}
