//! Tests FFCV's `.beton` files. `tests/fixtures/formats/beton.py` wrote the fixtures with the
//! struct layouts of FFCV's writer.

use std::fs;

use warpfeed::source::{Options, open};

use crate::formats::{assert_matches_reference, copy, fixture};

#[test]
fn beton_files_give_the_batches_of_the_folder() {
    assert_matches_reference(fixture("beton/train.beton"), |loader| loader);
    assert_matches_reference(fixture("beton/train.beton"), |loader| loader.mmap(false));
    assert_eq!(open(fixture("beton/train.beton")).unwrap().kind(), "beton");
}

#[test]
fn beton_fields_have_the_values_that_were_written() {
    for mapped in [true, false] {
        let source = Options::new().mmap(mapped).open(fixture("beton_values/values.beton")).unwrap();
        let mut scratch = Vec::new();
        for n in 0..2 {
            let sample = source.read(n, &mut scratch).unwrap();
            assert_eq!((sample.key(), sample.label().unwrap()), (&*n.to_string(), Some(40 + n as i64)));
            let (name, image) = sample.image().unwrap();
            let pixels: Vec<u8> = (0..30).map(|i| i + n as u8).collect();
            assert_eq!((name, &image[128..]), ("rgb.npy", &pixels[..]));
            assert!(String::from_utf8_lossy(&image[..128]).contains("'shape': (2, 5, 3, )"));
            let text =
                |name: &str| String::from_utf8(sample.value(name).unwrap().encoded("x.txt").into_owned()).unwrap();
            assert_eq!(text("score.npy"), (0.5 + n as f64).to_string());
            assert_eq!(text("box.npy"), ["0 1 2 3", "1 2 3 4"][n]);
            assert_eq!(text("meta.json"), format!("{{\"a\": {n}}}"));
            assert_eq!(text("raw.bin"), ["", "abc"][n]);
            assert_eq!(source.label(n, &mut Vec::new()).unwrap(), Some(40 + n as i64));
        }
    }
}

#[test]
fn damaged_beton_files_fail_with_the_file() {
    let folder = copy("beton_values");
    let path = folder.path().join("values.beton");
    let bytes = fs::read(&path).unwrap();
    let changed = |place: usize, number: u64, size: usize| {
        let mut bytes = bytes.clone();
        bytes[place..place + size].copy_from_slice(&number.to_le_bytes()[..size]);
        bytes
    };
    let record = 24 + 6 * 1041;
    for (damaged, cause) in [
        (Vec::new(), "not a .beton file"),
        (bytes[..bytes.len() - 1].to_vec(), "the file is damaged or truncated"),
        (changed(0, 1, 2), "FFCV version 1"),
        (changed(2, 7, 2), "field 6"),
        (changed(8, u64::MAX, 8), "do not fit before byte"),
        (changed(16, 0, 8), "the writer did not finish the file"),
        (changed(16, 1 << 40, 8), "the allocation table at byte 1099511627776 is outside"),
        (changed(24, 255, 1), "field \"score\" has a custom type"),
        // Change the pointer to the image, which follows its mode, width and height.
        (changed(record + 8 + 5, 1, 8), "sample 0: field \"image\" points to byte 1, which is not an allocation"),
        (changed(record + 8 + 13 + 8, 1 << 30, 8), "sample 0: field \"raw\": 1073741824 bytes at byte"),
    ] {
        fs::write(&path, damaged).unwrap();
        for mapped in [true, false] {
            let e = Options::new().mmap(mapped).open(&path).err().unwrap();
            assert!(e.path() == Some(&*path) && e.cause().contains(cause), "{cause}: {e}");
        }
    }
    for (damaged, cause) in [
        (changed(record + 8, 7, 1), "column \"image\": image mode 7"),
        (changed(record + 9, 6, 2), "an image of 6x2 pixels has 30 bytes"),
    ] {
        fs::write(&path, damaged).unwrap();
        let source = open(&path).unwrap();
        let e = source.read(0, &mut Vec::new()).unwrap_err();
        assert!(e.path() == Some(&*path) && e.cause().contains(cause), "{cause}: {e}");
        source.read(1, &mut Vec::new()).unwrap();
    }
}
