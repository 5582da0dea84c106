//! Tests damaged, truncated and malicious tar and LMDB files. Contradictions in headers, sizes and
//! values must cause an error that names the location. Truncation must not lose a sample silently,
//! and no change may cause a panic or a hang.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::files::{BLOCK, member, seal};
use proptest::prelude::*;
use warpfeed::source::{Lmdb, MsgPack, Options, OwnedSample, Source, Tar, ValueFormat, open};
use warpfeed::{Error, ErrorKind, Result};

fn fixture(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)).unwrap()
}

fn write_file(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn read_all(source: &dyn Source) -> Result<Vec<OwnedSample>> {
    let mut scratch = Vec::new();
    (0..source.len()).map(|i| OwnedSample::try_from(&source.read(i, &mut scratch)?)).collect()
}

// ---- tar

fn file(name: &str, data: &[u8]) -> Vec<u8> {
    member(name, b'0', data, |_| {})
}

fn tar(members: &[Vec<u8>]) -> Vec<u8> {
    [members.concat(), vec![0; 2 * BLOCK]].concat()
}

fn open_tar(bytes: &[u8]) -> Result<Vec<OwnedSample>> {
    let root = tempfile::tempdir().unwrap();
    let path = write_file(&root, "x.tar", bytes);
    let mapped = Tar::open(&path).and_then(|source| read_all(&source));
    let unmapped = Tar::open_unmapped(&path).and_then(|source| read_all(&source));
    match (&mapped, &unmapped) {
        (Ok(a), Ok(b)) => assert!(a == b, "mapped and unmapped samples differ"),
        (Err(a), Err(b)) => assert_eq!(a.to_string(), b.to_string()),
        _ => panic!("mapped: {:?}, unmapped: {:?}", mapped.as_ref().err(), unmapped.as_ref().err()),
    }
    mapped
}

#[test]
fn a_tar_truncated_before_its_end_fails() {
    let archive = fixture("pax.tar");
    let expected = open_tar(&archive).unwrap();
    let end = archive.iter().rposition(|&byte| byte != 0).unwrap().next_multiple_of(BLOCK);
    let lengths = (0..archive.len()).filter(|len| len % 101 == 0 || len % BLOCK < 2 || len % BLOCK == BLOCK - 1);
    for len in lengths {
        match open_tar(&archive[..len]) {
            Ok(samples) => assert!(samples == expected && len >= end + BLOCK, "cut at {len}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Source, "cut at {len}: {error}");
                assert!(error.cause().contains("offset"), "cut at {len}: {error}");
                assert!(error.path().is_some());
            }
        }
    }
}

#[test]
fn contradictory_tar_sizes_fail_with_their_offset() {
    let first = file("a.jpg", b"first");
    let cause = |members: &[Vec<u8>]| open_tar(&tar(members)).unwrap_err().cause().to_owned();
    let size =
        |text: &'static [u8]| member("b.jpg", b'0', b"second", move |h| h[124..124 + text.len()].copy_from_slice(text));
    assert_eq!(
        cause(&[first.clone(), size(b"00000021450\0")]),
        "tar header at offset 1024: claims 9000 bytes, but 1536 remain in the file"
    );
    // GNU tar writes sizes above 8 GiB in base 256.
    assert!(
        cause(&[first.clone(), size(b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff")])
            .contains("claims 9223372036854775807 bytes")
    );
    assert!(cause(&[first.clone(), size(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")]).contains("size"));
    assert!(
        cause(&[first.clone(), size(b"0000000000x\0")])
            .contains("tar header at offset 1024: size \"0000000000x\\0\" is not a number")
    );
    let ok = open_tar(&tar(&[first.clone(), size(b"\x80\0\0\0\0\0\0\0\0\0\0\x06")])).unwrap();
    assert_eq!(ok[1], OwnedSample::new("b").field("jpg", *b"second"));

    let mut damaged = file("b.jpg", b"second");
    damaged[3] ^= 1;
    assert!(cause(&[first.clone(), damaged]).starts_with("tar header at offset 1024: the checksum is"));

    let hole = [first.clone(), vec![0; 3 * BLOCK], file("b.jpg", b"second")];
    assert!(cause(&hole).contains("1536 zero bytes at offset 1024"), "{}", cause(&hole));
    let unfinished = [first.clone(), file("b.jpg", b"second")].concat();
    assert!(open_tar(&unfinished).unwrap_err().cause().contains("at offset 2048, but the file has 2048 bytes"));
}

#[test]
fn invalid_tar_members_are_refused() {
    let cause = |members: &[Vec<u8>]| open_tar(&tar(members)).unwrap_err().cause().to_owned();
    let pax = |data: &[u8]| vec![member("pax", b'x', data, |_| {}), file("a.jpg", b"1")];
    for (records, expected) in [
        (&b"path=x\n"[..], "no length"),
        (b"99 path=x\n", "claims 99 bytes, but 10 remain"),
        (b"3 a\n", "does not end with a line feed"),
        (b"18446744073709551616 path=x\n", "length is not a number"),
        (b"10 size=x\n", "size is not a number"),
        (b"8 pathx\n", "no equals sign"),
        (b"21 GNU.sparse.major=1\n", "does not end with a line feed"),
        (b"22 GNU.sparse.major=1\n", "sparse files are not supported"),
        (b"20 size=99999999999\n", "claims 99999999999 bytes"),
    ] {
        assert!(
            cause(&pax(records)).contains(expected),
            "{}: {}",
            String::from_utf8_lossy(records),
            cause(&pax(records))
        );
    }
    assert!(cause(&[member("a.jpg", b'S', b"", |_| {})]).contains("sparse"));
    assert!(cause(&[member("a.jpg", b'0', b"", |h| h[0] = 0xff)]).contains("not UTF-8"));
    assert!(cause(&[file("__classes__", b"[1, 2")]).contains("is not a JSON array"));
    assert!(cause(&[file("folder/", b""), file("README", b"x"), file(".hidden.jpg", b"x")]).starts_with("no samples"));
    let two = [file("__classes__", b"[\"x\"]"), file("a.jpg", b"1"), file("b.jpg", b"1"), file("b.cls", b"three")];
    let error = open_tar(&tar(&two)).unwrap_err();
    assert_eq!(error.cause(), "field \"cls\" is not a number: \"three\"");
}

#[test]
fn one_bad_tar_sample_leaves_the_others_valid() {
    let root = tempfile::tempdir().unwrap();
    let many = |n: usize| (0..n).map(|i| file(&format!("b.{i}"), b"x")).collect::<Vec<_>>();
    for (bad_entry, words) in [
        (vec![file("b.jpg", b"1"), file("b.jpeg", b"2")], "field \"jpg\" occurs twice"),
        (vec![file("b.cls", b"1"), file("b.cls", b"2")], "field \"cls\" occurs twice"),
        (many(17), "more than 16 fields"),
        (many(1000), "more than 16 fields"),
    ] {
        let path = write_file(
            &root,
            "x.tar",
            &tar(&[vec![file("a.jpg", b"1")], bad_entry, vec![file("c.jpg", b"3")]].concat()),
        );
        for source in [Tar::open(&path).unwrap(), Tar::open_unmapped(&path).unwrap()] {
            let mut scratch = Vec::new();
            assert_eq!(source.len(), 3);
            assert_eq!(source.read(0, &mut scratch).unwrap().field("jpg").as_deref(), Some(&b"1"[..]));
            assert_eq!(source.read(2, &mut scratch).unwrap().field("jpg").as_deref(), Some(&b"3"[..]));
            let error = source.read(1, &mut scratch).unwrap_err();
            assert!(error.path() == Some(&path) && error.cause().contains(words), "{error}");
        }
    }
    let path = write_file(&root, "x.tar", &tar(&[many(16), vec![file("b.cls", b"4")]].concat()));
    for source in [Tar::open(&path).unwrap(), Tar::open_unmapped(&path).unwrap()] {
        let mut scratch = Vec::new();
        let sample = source.read(0, &mut scratch).unwrap();
        assert_eq!((sample.fields().len(), sample.label().unwrap()), (16, Some(4)));
    }
}

#[test]
fn shards_that_disagree_or_are_missing_are_named() {
    let root = tempfile::tempdir().unwrap();
    write_file(&root, "t-0.tar", &tar(&[file("__classes__", b"[\"x\"]"), file("a.jpg", b"1")]));
    write_file(&root, "t-1.tar", &tar(&[file("b.jpg", b"1")]));
    write_file(&root, "t-2.tar", &tar(&[]));
    assert_eq!(
        read_all(&*open(root.path()).unwrap()).unwrap().len(),
        2,
        "an empty shard among others must be accepted"
    );
    let other = write_file(&root, "t-3.tar", &tar(&[file("__classes__", b"[\"y\"]"), file("c.jpg", b"1")]));
    let error = open(root.path()).err().unwrap();
    assert!(error.path() == Some(&other) && error.cause().contains("t-0.tar"), "{error}");
    assert_eq!(open(root.path().join("t-{2..5}.tar")).err().unwrap().path(), Some(&*root.path().join("t-4.tar")));
    let gzip = write_file(&root, "x.tar.gz", b"\x1f\x8b\x08");
    assert!(open(gzip).err().unwrap().cause().contains("gzip"));
}

/// With Linux 5.14 or newer, truncating the tar between opening and reading must not kill the
/// process. (Truncating it while a sample is in use still kills the process; see
/// `tests/README.md`.)
#[cfg(target_os = "linux")]
#[test]
fn a_mapped_tar_that_shrinks_while_open_fails() {
    let root = tempfile::tempdir().unwrap();
    for size in [3_000, 300_000] {
        let members: Vec<_> = (0..8).map(|i| file(&format!("{i}.jpg"), &vec![i; size])).collect();
        let path = write_file(&root, "x.tar", &tar(&members));
        let source = Tar::open(&path).unwrap();
        assert!(read_all(&source).is_ok());
        File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
        let error = source.read(7, &mut Vec::new()).unwrap_err();
        // Before Linux 5.14, this read kills the process, because `MADV_POPULATE_READ` does not
        // exist.
        assert!(error.path() == Some(&path) && error.cause().contains("truncated"), "{error}");
    }
}

#[test]
fn an_unmapped_tar_that_shrinks_while_open_fails() {
    let root = tempfile::tempdir().unwrap();
    let members: Vec<_> = (0..8).map(|i| file(&format!("{i}.jpg"), &vec![i; 3000])).collect();
    let path = write_file(&root, "x.tar", &tar(&members));
    let source = Tar::open_unmapped(&path).unwrap();
    assert!(read_all(&source).unwrap() == read_all(&Tar::open(&path).unwrap()).unwrap());
    let shard = File::options().write(true).open(&path).unwrap();
    for (len, sound) in [(3 * 3584 + 1000, 3), (512 + 2999, 0), (0, 0)] {
        shard.set_len(len).unwrap();
        for i in 0..8 {
            match source.read(i, &mut Vec::new()) {
                Ok(_) => assert!(i < sound, "sample {i} of a file of {len} bytes"),
                Err(e) => {
                    assert!(i >= sound && e.path() == Some(&path), "{e}");
                    assert!(e.cause().contains("3000 bytes from offset") && e.cause().contains("truncated"), "{e}");
                }
            }
        }
    }
}

#[test]
fn an_lmdb_without_mmap_is_refused_with_an_alternative() {
    let root = tempfile::tempdir().unwrap();
    let path = write_file(&root, "x.mdb", &fixture("bare.mdb"));
    let e = Options::new().mmap(false).open(&path).err().unwrap();
    assert!(e.kind() == ErrorKind::Config && e.path() == Some(&path) && e.cause().contains("tar shards"), "{e}");
    let e = warpfeed::Loader::new(&path).mmap(false).host().unwrap_err();
    assert!(e.cause().contains("tar shards"), "{e}");
}

#[test]
fn a_stale_or_damaged_index_is_rebuilt() {
    let root = tempfile::tempdir().unwrap();
    // An index is written only for shards of at least 1 MiB.
    let large = vec![7; 17 << 20];
    let path = write_file(&root, "x.tar", &tar(&[file("a.jpg", &large), file("b.jpg", b"1")]));
    let index = root.path().join("x.tar.index");
    let count = || read_all(&Tar::open(&path).unwrap()).unwrap().len();
    let first = |source: &Tar| source.read(0, &mut Vec::new()).unwrap().key().to_owned();
    assert_eq!(count(), 2);
    let written = fs::read(&index).unwrap();
    assert_eq!(count(), 2);
    assert_eq!(fs::read(&index).unwrap(), written, "a valid index must be used unchanged");

    fs::write(&index, &written[..written.len() / 2]).unwrap();
    assert_eq!(count(), 2);
    assert_eq!(fs::read(&index).unwrap(), written, "a damaged index must be rewritten");

    write_file(&root, "x.tar", &tar(&[file("c.jpg", &large), file("d.jpg", b"1")]));
    assert_eq!(first(&Tar::open(&path).unwrap()), "c", "a changed tar must be read again");
    assert_ne!(fs::read(&index).unwrap(), written);

    fs::remove_file(&index).unwrap();
    fs::create_dir(&index).unwrap();
    assert_eq!(first(&Tar::open(&path).unwrap()), "c");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2, "no temporary file may remain");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// `seal_again` corrects the checksums of changed `ustar` headers, so that the reader does not
    /// stop at a wrong checksum.
    #[test]
    fn a_changed_tar_gives_samples_or_an_error(
        format in prop::sample::select(vec!["gnu.tar", "pax.tar", "ustar.tar"]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        seal_again in any::<bool>(),
    ) {
        let mut bytes = fixture(format);
        for (at, byte) in changes {
            let index = at.index(bytes.len());
            bytes[index] = byte;
            let block = index / BLOCK * BLOCK;
            if seal_again && bytes[block + 257..].starts_with(b"ustar") {
                seal(&mut bytes[block..block + BLOCK]);
            }
        }
        let _ = open_tar(&bytes);
    }

    #[test]
    fn a_changed_messagepack_value_is_a_sample_or_an_error(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        len in any::<prop::sample::Index>(),
    ) {
        let mut value = b"\x85\xa7__key__\xa4c0/1\xa3jpg\xc4\x05bytes\xa3cls\x07\xa3box\x92\x01\x81\xa1a\xc0\xa4text\xd9\x02hi".to_vec();
        for (at, byte) in changes {
            let index = at.index(value.len());
            value[index] = byte;
        }
        let cut = &value[..len.index(value.len() + 1)];
        if let Ok(sample) = MsgPack.sample("k", cut) {
            for bytes in sample.fields().iter().map(|(_, value)| value.as_bytes()) {
                prop_assert!(cut.as_ptr_range().contains(&bytes.as_ptr()) || bytes.is_empty());
            }
        }
    }
}

// ---- lmdb

fn open_lmdb(bytes: &[u8]) -> Result<Lmdb> {
    let root = tempfile::tempdir().unwrap();
    Lmdb::open(write_file(&root, "x.mdb", bytes))
}

#[test]
fn an_lmdb_file_truncated_anywhere_fails() {
    let file = fixture("bare.mdb");
    assert_eq!(open_lmdb(&file).unwrap().len(), 11);
    let lengths = (0..file.len()).filter(|len| len % 997 == 0 || len % 4096 < 2 || len % 4096 == 4095 || *len < 200);
    for len in lengths {
        let error = open_lmdb(&file[..len]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Source, "cut at {len}: {error}");
        assert!(error.cause().contains(&len.to_string()), "cut at {len}: {error}");
    }
}

#[test]
fn damaged_lmdb_meta_pages_are_an_error_with_their_position() {
    let file = fixture("bare.mdb");
    let changed = |offset: usize, bytes: &[u8]| {
        let mut changed = file.clone();
        changed[offset..offset + bytes.len()].copy_from_slice(bytes);
        open_lmdb(&changed).unwrap_err().cause().to_owned()
    };
    assert!(changed(16, b"abcd").contains("the magic number is missing at byte 16"));
    assert!(changed(16, &0xDEC0_EFBE_u32.to_ne_bytes()).contains("different byte order"));
    assert!(changed(20, &999_u32.to_ne_bytes()).contains("data version 999 at byte 20"));
    assert!(changed(40, &3000_u32.to_ne_bytes()).contains("page size 3000 at byte 40"));
    assert!(changed(40, &0_u32.to_ne_bytes()).contains("page size 0"));
    assert!(changed(40, &0x8000_0000_u32.to_ne_bytes()).contains("page size 2147483648"));
    assert!(changed(4096 + 16, b"abcd").contains("at byte 4112"));
    assert!(changed(4096 + 136, &u64::MAX.to_ne_bytes()).contains("truncated"));
    let root = tempfile::tempdir().unwrap();
    assert_eq!(Lmdb::open(root.path()).unwrap_err().path(), Some(&*root.path().join("data.mdb")));
    assert_eq!(Lmdb::open(root.path().join("absent")).unwrap_err().kind(), ErrorKind::Io);
    assert!(open(write_file(&root, "x.lmdb", b"hello")).err().unwrap().cause().contains("file has 5 bytes"));
}

fn handmade(page_size: usize, records: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut file = vec![0; 3 * page_size];
    let mut write = |offset: usize, bytes: &[u8]| file[offset..offset + bytes.len()].copy_from_slice(bytes);
    for number in 0..2 {
        let offset = number * page_size;
        write(offset, &(number as u64).to_ne_bytes());
        write(offset + 10, &8_u16.to_ne_bytes()); // P_META
        write(offset + 16, &0xBEEF_C0DE_u32.to_ne_bytes());
        write(offset + 20, &1_u32.to_ne_bytes());
        write(offset + 32, &(1_u64 << 20).to_ne_bytes()); // mm_mapsize
        write(offset + 40, &(page_size as u32).to_ne_bytes());
        write(offset + 80, &u64::MAX.to_ne_bytes()); // no free list
        write(offset + 94, &1_u16.to_ne_bytes()); // md_depth of the main database
        write(offset + 104, &1_u64.to_ne_bytes()); // md_leaf_pages
        write(offset + 120, &(records.len() as u64).to_ne_bytes());
        write(offset + 128, &2_u64.to_ne_bytes()); // md_root
        write(offset + 136, &2_u64.to_ne_bytes()); // mm_last_pg
        write(offset + 144, &(number as u64 + 1).to_ne_bytes()); // mm_txnid
    }
    let mut upper = page_size;
    for (i, (key, value)) in records.iter().enumerate() {
        upper -= (8 + key.len() + value.len()).next_multiple_of(2);
        let node = 2 * page_size + upper;
        write(node, &(value.len() as u16).to_ne_bytes());
        write(node + 6, &(key.len() as u16).to_ne_bytes());
        write(node + 8, key);
        write(node + 8 + key.len(), value);
        write(2 * page_size + 16 + 2 * i, &(upper as u16).to_ne_bytes());
    }
    let page = 2 * page_size;
    write(page, &2_u64.to_ne_bytes());
    write(page + 10, &2_u16.to_ne_bytes()); // P_LEAF
    write(page + 12, &(16 + 2 * records.len() as u16).to_ne_bytes());
    write(page + 14, &(upper as u16).to_ne_bytes());
    file
}

#[test]
fn a_database_with_a_different_page_size_reads_the_same() {
    for page_size in [1024, 4096, 16384, 32768] {
        let source = open_lmdb(&handmade(
            page_size,
            &[(b"0", b"\x81\xa3jpg\xc4\x01x"), (b"1", b"\x82\xa3jpg\xc4\x01y\xa3cls\x05")],
        ))
        .unwrap();
        let expected = [OwnedSample::new("0").field("jpg", *b"x"), OwnedSample::new("1").field("jpg", *b"y").label(5)];
        assert_eq!(read_all(&source).unwrap(), expected, "{page_size}");
    }
}

#[test]
fn an_invalid_value_fails_with_its_key() {
    let good: &[u8] = b"\x81\xa3jpg\xc4\x01x";
    let error = |value: &[u8]| -> Error {
        let source = open_lmdb(&handmade(4096, &[(b"000", good), (b"001", value), (b"002", good)])).unwrap();
        let mut scratch = Vec::new();
        assert!(
            source.read(0, &mut scratch).is_ok() && source.read(2, &mut scratch).is_ok(),
            "the neighboring samples must be valid"
        );
        source.read(1, &mut scratch).unwrap_err()
    };
    for (value, expected) in [
        (&b"\x93\x01\x02\x03"[..], "key \"001\": value is not a MessagePack map"),
        (b"", "key \"001\": messagepack: value claims 1 byte at byte 0, but the input ends at byte 0"),
        (
            b"\x81\xa3jpg\xc4\x09x",
            "key \"001\": messagepack: value claims 9 bytes at byte 7, but the input ends at byte 8",
        ),
        (b"\x81\x01\xc4\x01x", "key \"001\": messagepack: field name at byte 1 is not text"),
        (b"\x81\xa1\xff\xc4\x01x", "key \"001\": messagepack: field name at byte 1 is not UTF-8"),
        (
            b"\x81\xa3cls\xcb\0\0\0\0\0\0\0\0",
            "key \"001\": field \"cls\" at byte 5: expected an integer or decimal text",
        ),
        (
            b"\x81\xa3jpg\xc4\x01xx",
            "key \"001\": messagepack: unexpected data after the map, which ends at byte 8 of 9",
        ),
        (b"\x82\xa1a\xa1b\xa1a\xa1b", "key \"001\": field \"a\" occurs twice"),
        (
            b"\xdf\xff\xff\xff\xff",
            "key \"001\": messagepack: value claims 1 byte at byte 5, but the input ends at byte 5",
        ),
    ] {
        let error = error(value);
        assert_eq!(error.cause(), expected);
        assert!(error.kind() == ErrorKind::Source && error.path().is_some());
    }
}

#[test]
fn a_database_without_samples_or_of_an_unknown_kind_is_refused() {
    let cause = |records: &[(&[u8], &[u8])]| open_lmdb(&handmade(4096, records)).unwrap_err().cause().to_owned();
    assert_eq!(cause(&[(b"__len__", b"\x05")]), "lmdb database contains no samples");
    assert!(cause(&[(b"0", b"what?")]).contains("key \"0\": unrecognized value of 5 bytes, which begins with"));
    assert!(
        cause(&[(b"0", b"\x80"), (b"__classes__", b"\x05")])
            .contains("key \"__classes__\": class names: expected a MessagePack array")
    );
    // If decimal keys have a gap, the source must store the keys instead of computing them from the
    // index, so that no sample is lost.
    let source = open_lmdb(&handmade(4096, &[(b"00", b"\x80"), (b"01", b"\x80"), (b"03", b"\x80")])).unwrap();
    let keys: Vec<_> = (0..source.len()).map(|i| source.read(i, &mut Vec::new()).unwrap().key().to_owned()).collect();
    assert_eq!(keys, ["00", "01", "03"]);
}
