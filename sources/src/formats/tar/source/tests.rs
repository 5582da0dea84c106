//! Tests that an epoch detects changes to the shards that it reads.

use std::fs;

use super::*;

fn shard(index: usize) -> Vec<u8> {
    let mut tar = Vec::new();
    for (name, data) in [("jpg", &b"image"[..]), ("cls", b"0")] {
        let mut block = [0; 512];
        let path = format!("{index}.{name}");
        block[..path.len()].copy_from_slice(path.as_bytes());
        block[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
        block[156] = b'0';
        block[257..265].copy_from_slice(b"ustar\x0000");
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar.extend_from_slice(&block);
        tar.extend_from_slice(data);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

#[test]
fn epoch_checks_only_the_shards_it_reads() {
    let root = tempfile::tempdir().unwrap();
    for index in 0..100 {
        fs::write(root.path().join(format!("{index:02}.tar")), shard(index)).unwrap();
    }
    // The pattern lists each of the 100 files a hundred times.
    let tar = Tar::open(root.path().join(format!("{{00..99}}{{{}}}.tar", ",".repeat(99)))).unwrap();
    assert_eq!(tar.shards.entries().len(), 10_000);
    let checked_in = |epoch| tar.shards.entries().filter(|(file, ..)| file.checked() == epoch).count();
    for epoch in 1..3 {
        tar.check().unwrap();
        assert_eq!(checked_in(epoch), 0, "the start of an epoch checks no shard");
        let mut scratch = Vec::new();
        for index in (0..64).map(|i| i * 157 % 10_000).chain(0..8) {
            assert_eq!(tar.read(index, &mut scratch).unwrap().key(), (index / 100).to_string());
        }
        assert_eq!(checked_in(epoch), 64 + 7, "64 shards, and 7 new shards among the next 8");
    }
}

#[test]
fn each_epoch_checks_a_shard_and_a_changed_shard_keeps_failing() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.tar");
    fs::write(&path, shard(0)).unwrap();
    let tar = Tar::open(&path).unwrap();
    let read = || tar.read(0, &mut Vec::new()).map(|sample| sample.fields().len());
    tar.check().unwrap();
    assert_eq!(read().unwrap(), 1);
    fs::OpenOptions::new().append(true).open(&path).unwrap().set_len(4096).unwrap();
    assert_eq!(read().unwrap(), 1, "the shard was already checked in this epoch");
    for _ in 0..2 {
        tar.check().unwrap();
        let error = read().unwrap_err();
        assert!(error.path() == Some(&path) && error.cause().contains("was written to while open"), "{error}");
        assert!(read().is_err());
    }
}
