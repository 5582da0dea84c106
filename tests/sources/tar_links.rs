//! Tests that links inside a tar resolve to members of that tar, for local and remote tars. Links
//! that leave the tar or have no target must be skipped, and one warning must count them. A hard
//! link that has data must be read as a file.

use std::fs;
use std::sync::Arc;

use warpfeed::Loader;
use warpfeed::source::{Options, OwnedSample, Source, Tar};

use crate::files;
use crate::objects::Objects;
use crate::stores::samples;
use crate::warnings::Warnings;

fn member(name: &str, kind: u8, link: &str, data: &[u8]) -> Vec<u8> {
    files::member(name, kind, data, |header| header[157..157 + link.len()].copy_from_slice(link.as_bytes()))
}

/// Returns a tar with every type of link. It is larger than 1 MiB, so that its index is stored.
fn tar() -> Vec<u8> {
    let file = |name: &str, data: &[u8]| member(name, b'0', "", data);
    let long = format!("{}/1.jpg", "a-long-folder/".repeat(9));
    let pax = format!("linkpath={long}\n");
    let pax = format!("{} {pax}", pax.len() + 4);
    let long_pax = format!("path={long}\n");
    let long_pax = format!("{} {long_pax}", long_pax.len() + 4);
    [
        file("a/1.jpg", b"one"),
        file("a/1.cls", b"3"),
        member("a/2.jpg", b'1', "a/1.jpg", b""),
        file("a/2.cls", b"4"),
        member("./a/3.jpg", b'2', "../blobs/x", b""),
        member("a/4.jpg", b'1', "a/2.jpg", b""),
        member("a/4.cls", b'2', "1.cls", b""),
        member("a/5.jpg", b'2', "/etc/passwd", b""),
        member("a/6.jpg", b'2', "none.jpg", b""),
        file("a/6.cls", b"5"),
        file("a/big.bin", &vec![7; 1 << 20]),
        member("folder", b'5', "", b""),
        member("last", b'2', "a", b""),
        file("blobs/x", b"the blob"),
        member("pax", b'x', "", long_pax.as_bytes()),
        file("cut.jpg", b"long"),
        member("pax", b'x', "", pax.as_bytes()),
        member("a/7.jpg", b'1', "cut.jpg", b""),
        member("././@LongLink", b'K', "", format!("{long}\0").as_bytes()),
        member("a/8.jpg", b'1', "cut.jpg", b""),
        vec![0; 1024],
    ]
    .concat()
}

fn expected() -> Vec<OwnedSample> {
    let long = format!("{}/1", "a-long-folder/".repeat(9));
    vec![
        OwnedSample::new("a/1").field("jpg", *b"one").label(3),
        OwnedSample::new("a/2").field("jpg", *b"one").label(4),
        OwnedSample::new("a/3").field("jpg", *b"the blob"),
        OwnedSample::new("a/4").field("jpg", *b"one").label(3),
        OwnedSample::new("a/6").label(5),
        OwnedSample::new("a/big").field("bin", vec![7; 1 << 20]),
        OwnedSample::new(long).field("jpg", *b"long"),
        OwnedSample::new("a/7").field("jpg", *b"long"),
        OwnedSample::new("a/8").field("jpg", *b"long"),
    ]
}

#[test]
fn links_read_their_targets_and_broken_ones_are_counted() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.tar");
    fs::write(&path, tar()).unwrap();
    for has_index in [false, true] {
        assert_eq!(root.path().join("x.tar.index").exists(), has_index);
        let warnings = Warnings::default();
        let source = tracing::subscriber::with_default(warnings.clone(), || Tar::open(&path).unwrap());
        assert_eq!(samples(&source), expected());
        let labels: Vec<_> = (0..4).map(|i| source.label(i, &mut Vec::new()).unwrap()).collect();
        assert_eq!(labels, [Some(3), Some(4), None, Some(3)]);
        let logged = warnings.0.lock().unwrap().clone();
        assert!(
            logged.len() == 1 && logged[0].contains("ignored 2 links") && logged[0].contains("a/5.jpg"),
            "{logged:?}"
        );
    }
    assert_eq!(samples(&Tar::open_unmapped(&path).unwrap()), expected());
}

#[test]
fn links_resolve_in_remote_shards() {
    let store = Objects::default();
    store.put("mem://links/x.tar", tar());
    let options = Options::new().store("mem", Arc::new(store.clone()));
    let source = options.open("mem://links/x.tar").unwrap();
    assert_eq!(samples(&*source), expected());
    let labels: Vec<_> = (0..4).map(|i| source.label(i, &mut Vec::new()).unwrap()).collect();
    assert_eq!(labels, [Some(3), Some(4), None, Some(3)]);
    let loader = Loader::new("mem://links/x.tar").store("mem", store).drop_field("image");
    let loader = loader.subset([3, 0, 1]).batch_size(3);
    let batches: Vec<_> = loader.into_iter().map(|batch| batch.unwrap().labels().unwrap().to_vec()).collect();
    assert_eq!(batches, [[3, 3, 4]]);
}

/// Writes a tar that consists of `parts` and an end marker, and returns its samples.
fn read_parts(parts: &[Vec<u8>]) -> Vec<OwnedSample> {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.tar");
    fs::write(&path, [parts.concat(), vec![0; 1024]].concat()).unwrap();
    samples(&Tar::open(&path).unwrap())
}

#[test]
fn hard_links_with_data_are_read_as_files() {
    let file = |name: &str, data: &[u8]| member(name, b'0', "", data);
    // `size` in a PAX header precedes the data even if the data begin like a header.
    let inner = file("inner.jpg", b"inner");
    let size = member("pax", b'x', "", b"13 size=1024\n");
    let parts = [
        file("1.jpg", b"one"),
        member("2.jpg", b'1', "1.jpg", b"two"),
        member("3.jpg", b'1', "elsewhere.jpg", &[3; 700]),
        member("4.jpg", b'2', "3.jpg", b""),
        size,
        member("5.tar", b'1', "1.jpg", &inner),
        file("6.jpg", b"six"),
    ];
    let sample = |key: &str, data: &[u8]| OwnedSample::new(key).field("jpg", data);
    let expected = [
        sample("1", b"one"),
        sample("2", b"two"),
        sample("3", &[3; 700]),
        sample("4", &[3; 700]),
        OwnedSample::new("5").field("tar", inner),
        sample("6", b"six"),
    ];
    assert_eq!(read_parts(&parts), expected);
}

#[test]
fn size_of_a_hard_link_without_data_is_ignored() {
    // Each link consists of its header only, which states the size of the target.
    let link = |name: &str| member(name, b'1', "1.jpg", b"one")[..512].to_vec();
    let parts = [member("1.jpg", b'0', "", b"one"), link("2.jpg"), link("3.jpg")];
    let expected = ["1", "2", "3"].map(|key| OwnedSample::new(key).field("jpg", *b"one"));
    assert_eq!(read_parts(&parts), expected);
}
