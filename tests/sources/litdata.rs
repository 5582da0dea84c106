//! LitData's chunks, written by its library: `tests/fixtures/formats/lit.py`.

use std::fs;

use warpfeed::source::{Options, TableOptions, open};

use crate::formats::{agrees, copy, fixture};

#[test]
fn litdata_chunks_give_the_batches_of_the_folder() {
    agrees(fixture("litdata"), |loader| loader);
    agrees(fixture("litdata"), |loader| loader.mmap(false));
    assert_eq!(open(fixture("litdata/index.json")).unwrap().kind(), "litdata");
}

#[test]
fn compressed_litdata_chunks_are_decompressed_once_next_to_them() {
    let folder = copy("litdata_zstd");
    // A tuple has no name for its label.
    agrees(folder.path(), |loader| loader.table(TableOptions::new().label("1")));
    assert!(open(folder.path()).unwrap().label(0, &mut Vec::new()).unwrap().is_none());
    let chunk = folder.path().join("chunk-0-0.bin");
    let modified = || fs::metadata(&chunk).unwrap().modified().unwrap();
    let first = modified();
    open(folder.path()).unwrap();
    assert_eq!(modified(), first);
    fs::remove_file(&chunk).unwrap();
    fs::write(folder.path().join("chunk-0-0.zstd.bin"), b"damaged").unwrap();
    let e = open(folder.path()).err().unwrap();
    assert!(e.path().unwrap().ends_with("chunk-0-0.zstd.bin") && e.cause().contains("cannot be decompressed"), "{e}");
}

#[test]
fn litdata_values_are_those_that_were_written() {
    for mapped in [true, false] {
        let source = Options::new().mmap(mapped).open(fixture("litdata_values")).unwrap();
        assert_eq!(source.classes(), ["cat", "dog"]);
        let mut scratch = Vec::new();
        for n in 0..2 {
            let sample = source.read(n, &mut scratch).unwrap();
            assert_eq!(sample.label().unwrap(), Some(1 - n as i64));
            let (name, picture) = sample.image().unwrap();
            let pixels: Vec<u8> = (0..24).map(|i| i + n as u8).collect();
            assert_eq!((name, &picture[128..]), ("rgb.npy", &pixels[..]));
            assert_eq!(&*sample.field("raw.bin").unwrap(), [1, 2, n as u8]);
            let text =
                |name: &str| String::from_utf8(sample.value(name).unwrap().encoded("x.txt").into_owned()).unwrap();
            let shape = |name: &str| match sample.value(name).unwrap() {
                warpfeed::source::Value::Numbers(numbers) => numbers.shape(),
                other => panic!("{other:?}"),
            };
            for (name, side, expected) in [
                ("score.npy", &[][..], format!("{}", 0.5 + n as f64)),
                ("flag.npy", &[], n.to_string()),
                ("count.npy", &[], ((1_u64 << 40) + n as u64).to_string()),
                ("array.npy", &[1, 2, 3], ["0 1 2 3 4 5", "1 2 3 4 5 6"][n].into()),
                ("flat.npy", &[2], format!("1.5 {n}")),
                ("half.npy", &[2], ["0.5 -0", "0.5 -1"][n].replace("-0", "0")),
                ("tensor.npy", &[2, 2], ["0 1 2 3", "1 2 3 4"][n].into()),
                ("long.npy", &[2], format!("7 {n}")),
                ("half_tensor.npy", &[2], ["1.5 0", "1.5 -1"][n].into()),
                ("one.npy", &[], (3 + n).to_string()),
            ] {
                assert_eq!((shape(name), text(name)), (side.to_vec(), expected), "{name}");
            }
        }
    }
}

#[test]
fn litdata_that_is_not_read_is_refused_by_name() {
    let path = fixture("litdata_refused/pickle");
    let e = open(&path).err().unwrap();
    assert!(e.cause().contains("column \"meta\": the serializer \"pickle\" can run any code"), "{e}");
    let columns = TableOptions::new().columns(["raw"]);
    let source = Options::new().table(columns).open(&path).unwrap();
    assert_eq!(&*source.read(0, &mut Vec::new()).unwrap().field("raw.bin").unwrap(), b"abc");
    let e = open(fixture("litdata_refused/arrow")).err().unwrap();
    assert!(e.cause().contains("the samples are rows in Arrow, which are not read"), "{e}");
    let e = open(fixture("litdata_refused/framed")).err().unwrap();
    assert!(e.cause().contains("compression_level=\"batch\", which are not read; write the data set with"), "{e}");
}

#[test]
fn damaged_litdata_chunks_are_errors_with_the_file() {
    let folder = copy("litdata");
    let path = folder.path().join("chunk-0-1.bin");
    let bytes = fs::read(&path).unwrap();
    let number = |at: usize, number: u32| {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        bytes
    };
    for (damaged, cause) in [
        (bytes[..bytes.len() - 1].to_vec(), "but index.json says"),
        (number(0, 9), "the file has 9 samples, but index.json says 3"),
        (number(8, u32::MAX), "offset 4294967295 of sample 1"),
    ] {
        fs::write(&path, damaged).unwrap();
        let e = open(folder.path()).err().unwrap();
        assert!(e.path() == Some(&*path) && e.cause().contains(cause), "{cause}: {e}");
    }
    let first = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
    fs::write(&path, number(first, 7)).unwrap();
    let source = open(folder.path()).unwrap();
    let e = source.read(3, &mut Vec::new()).unwrap_err();
    assert!(e.path() == Some(&*path) && e.cause().contains("the columns have 23 bytes, but the sample has"), "{e}");
    source.read(4, &mut Vec::new()).unwrap();
}
