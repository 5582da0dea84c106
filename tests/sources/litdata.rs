//! Tests LitData chunks that `litdata` wrote (see `tests/fixtures/formats/lit.py`).

use std::fs;

use warpfeed::source::{Options, TableOptions, open};

use crate::formats::{assert_matches_reference, copy, fixture};

#[test]
fn litdata_chunks_give_the_batches_of_the_folder() {
    assert_matches_reference(fixture("litdata"), |loader| loader);
    assert_matches_reference(fixture("litdata"), |loader| loader.mmap(false));
    assert_eq!(open(fixture("litdata/index.json")).unwrap().kind(), "litdata");
}

#[test]
fn compressed_litdata_chunks_are_decompressed_once_next_to_them() {
    let folder = copy("litdata_zstd");
    // A tuple's elements have no names, so select the label by its position.
    assert_matches_reference(folder.path(), |loader| loader.table(TableOptions::new().label("1")));
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
fn litdata_returns_the_written_values() {
    for mapped in [true, false] {
        let source = Options::new().mmap(mapped).open(fixture("litdata_values")).unwrap();
        assert_eq!(source.classes(), ["cat", "dog"]);
        let mut scratch = Vec::new();
        for n in 0..2 {
            let sample = source.read(n, &mut scratch).unwrap();
            assert_eq!(sample.label().unwrap(), Some(1 - n as i64));
            let (name, image) = sample.image().unwrap();
            let pixels: Vec<u8> = (0..24).map(|i| i + n as u8).collect();
            assert_eq!((name, &image[128..]), ("rgb.npy", &pixels[..]));
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
                ("half.npy", &[2], ["0.5 0", "0.5 -1"][n].into()),
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
fn litdata_rows_of_bytes_give_the_batches_of_the_folder() {
    for mapped in [true, false] {
        assert_matches_reference(fixture("litdata_bytes"), |loader| loader.mmap(mapped));
    }
    assert_eq!(open(fixture("litdata_bytes")).unwrap().kind(), "litdata");
}

#[test]
fn litdata_returns_the_written_rows() {
    for mapped in [true, false] {
        let source = Options::new().mmap(mapped).open(fixture("litdata_rows")).unwrap();
        assert_eq!((source.len(), source.classes()), (3, &["cat".to_owned(), "dog".to_owned()][..]));
        let mut scratch = Vec::new();
        for n in 0..3 {
            let sample = source.read(n, &mut scratch).unwrap();
            assert_eq!(sample.label().unwrap(), Some(i64::from(n == 0)));
            assert_eq!(&*sample.field("raw.bin").unwrap(), [1, 2, n as u8]);
            let text = |name: &str| {
                let value = sample.value(name)?;
                Some(String::from_utf8(value.encoded("x.txt").into_owned()).unwrap())
            };
            for (name, expected) in [
                ("score.npy", (0.5 + n as f64).to_string()),
                ("flag.npy", u8::from(n == 1).to_string()),
                ("count.npy", ((1_u64 << 40) + n as u64).to_string()),
                ("list.npy", format!("{n} 2")),
                ("nested.json", format!("[[1],[{n},2]]")),
                ("meta.size.npy", n.to_string()),
                ("meta.name.txt", "é".to_owned()),
            ] {
                assert_eq!(text(name), Some(expected), "{name}");
            }
            assert_eq!(text("none.npy"), (n != 1).then(|| n.to_string()));
        }
    }
}

#[test]
fn the_chunks_of_litdata_optimize_are_read() {
    let source = open(fixture("litdata_optimized")).unwrap();
    let mut scratch = Vec::new();
    let mut samples: Vec<(Vec<u8>, i64)> = (0..source.len())
        .map(|index| {
            let sample = source.read(index, &mut scratch).unwrap();
            (sample.field("raw.bin").unwrap().to_vec(), sample.label().unwrap().unwrap())
        })
        .collect();
    // The workers of `litdata` wrote the rows in arbitrary order.
    samples.sort();
    assert_eq!(samples, (0..6).map(|n| (vec![1, 2, n], i64::from(n) % 3)).collect::<Vec<_>>());
}

#[test]
fn damaged_litdata_rows_fail_with_the_file() {
    let folder = copy("litdata_rows");
    let path = folder.path().join("chunk-0-1.bin");
    let bytes = fs::read(&path).unwrap();
    let len = bytes.len();
    let length = |number: u32| [&bytes[..len - 12], &number.to_le_bytes(), &bytes[len - 8..]].concat();
    let inside = u32::from_le_bytes(bytes[len - 12..len - 8].try_into().unwrap());
    for (damaged, cause) in [
        ([&bytes[..len - 1], b"X"].concat(), "neither samples nor Arrow rows"),
        (length(u32::MAX), "neither samples nor Arrow rows"),
        (length(inside + 13), "neither samples nor Arrow rows"),
        (length(0), "the file is truncated"),
        (length(inside - 16), "not valid Arrow at byte "),
    ] {
        fs::write(&path, damaged).unwrap();
        let e = open(folder.path()).err().unwrap();
        assert!(e.path() == Some(&*path) && e.cause().contains(cause), "{cause}: {e}");
    }
    fs::write(&path, &bytes).unwrap();
    let index = folder.path().join("index.json");
    let text = fs::read_to_string(&index).unwrap();
    // The offset table agrees with the index, but not with the rows.
    let more = [&2_u32.to_le_bytes()[..], &16_u32.to_le_bytes().repeat(3), &bytes[12..]].concat();
    let len_of = format!("\"chunk_bytes\": {}", more.len());
    fs::write(&path, &more).unwrap();
    let claimed = text.replace("\"chunk_size\": 1,", "\"chunk_size\": 2,");
    fs::write(&index, claimed.replace(&format!("\"chunk_bytes\": {len}"), &len_of)).unwrap();
    let e = open(folder.path()).err().unwrap();
    assert!(e.path() == Some(&*path) && e.cause() == "the Arrow data has 1 rows, but the index claims 2", "{e}");
    fs::write(&index, text).unwrap();
    let items = [&1_u32.to_le_bytes()[..], &12_u32.to_le_bytes(), &(len as u32).to_le_bytes(), &bytes[12..]].concat();
    fs::write(&path, items).unwrap();
    let e = open(folder.path()).err().unwrap();
    assert!(e.cause().contains("the chunk contains Arrow rows, but") && e.cause().contains("chunk-0-1.bin"), "{e}");
}

#[test]
fn unsupported_litdata_is_refused_by_name() {
    let path = fixture("litdata_refused/pickle");
    let e = open(&path).err().unwrap();
    assert!(e.cause().contains("column \"meta\": serializer \"pickle\" can execute arbitrary code"), "{e}");
    let columns = TableOptions::new().columns(["raw"]);
    let source = Options::new().table(columns).open(&path).unwrap();
    assert_eq!(&*source.read(0, &mut Vec::new()).unwrap().field("raw.bin").unwrap(), b"abc");
    let e = open(fixture("litdata_refused/arrow")).err().unwrap();
    assert!(e.cause().contains("compressed batches do not support random access: write the file without"), "{e}");
    assert!(e.path().unwrap().ends_with("litdata_refused/arrow/chunk-0-0.bin"), "{e}");
    let e = open(fixture("litdata_refused/json")).err().unwrap();
    assert!(e.cause().contains("column \"meta\": serializer \"json\" is not supported"), "{e}");
    let e = open(fixture("litdata_refused/framed")).err().unwrap();
    assert!(e.cause().contains("compression_level=\"batch\" are not supported: write the dataset with"), "{e}");
}

#[test]
fn damaged_litdata_chunks_fail_with_the_file() {
    let folder = copy("litdata");
    let path = folder.path().join("chunk-0-1.bin");
    let bytes = fs::read(&path).unwrap();
    let number = |offset: usize, number: u32| {
        let mut bytes = bytes.clone();
        bytes[offset..offset + 4].copy_from_slice(&number.to_le_bytes());
        bytes
    };
    for (damaged, cause) in [
        (bytes[..bytes.len() - 1].to_vec(), "but index.json claims"),
        (number(0, 9), "the file has 9 samples, but index.json lists 3"),
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
