//! Fuzzes the reader of LMDB databases: values, class names and meta pages.

use super::datum::Datum;
use super::layout::{MsgPack, ValueFormat, classes, detect};
use super::pickled::{self, Pickled};
use super::{RawValues, header};
use crate::fuzz::{self, Random};
use crate::options::ColumnChoice;
use crate::storage::RowBytes;
use crate::values::pixels::Colors;

const WORDS: [&[u8]; 16] = [
    b"\xa7__key__",
    b"\xa3cls",
    b"\xa3jpg",
    b"\xa4jpeg",
    b"\xc4\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xdc\xff\xff",
    b"\xc9\xff\xff\xff\xff\x01",
    b"\x91\x91\x91\x91\x91\x91\x91\x91",
    b"\x81\xc0\x81\xc0\x81\xc0\x81\xc0",
    b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xd3\x80\0\0\0\0\0\0\0",
    b"\xff\xd8\xff",
    b"\x89PNG",
];

fn values() -> Vec<Vec<u8>> {
    let mut values = vec![vec![0x80], b"\x91\xa3cat".to_vec(), b"\xff\xd8\xff\xe0".to_vec()];
    let mut value = Vec::new();
    let text = |out: &mut Vec<u8>, text: &str| rmp::encode::write_str(out, text).expect("writing to a Vec cannot fail");
    rmp::encode::write_map_len(&mut value, 6).expect("writing to a Vec cannot fail");
    text(&mut value, "__key__");
    text(&mut value, "n014/x");
    text(&mut value, "jpg");
    rmp::encode::write_bin(&mut value, &[7; 40]).expect("writing to a Vec cannot fail");
    text(&mut value, "cls");
    rmp::encode::write_sint(&mut value, 3).expect("writing to a Vec cannot fail");
    text(&mut value, "json");
    text(&mut value, "{}");
    text(&mut value, "list");
    value.extend(b"\x93\xcb\0\0\0\0\0\0\0\0\xc0\x82\xa1a\xc3\xa1b\x92\x01\x02");
    text(&mut value, "time");
    value.extend(b"\xd6\xff\0\0\0\0");
    values.push(value);
    // These are a Caffe datum with raw pixels, and one with floats.
    values.push([&b"\x08\x03\x10\x02\x18\x03\x22\x12"[..], &[9; 18], b"\x28\x07"].concat());
    values.push(b"\x08\x01\x10\x01\x18\x02\x32\x08\0\0\x80\x3f\0\0\0\x40\x38\0".to_vec());
    let mut names = vec![0x9a];
    (0..10).for_each(|i| text(&mut names, &format!("class {i}")));
    values.push(names);
    // This is a map with sixteen fields, the maximum for a sample.
    let mut full = vec![0xde, 0, 16];
    (0..16).for_each(|i| {
        text(&mut full, &format!("f{i}"));
        full.extend(b"\xc4\x01x");
    });
    values.push(full);
    values
}

/// Damages a value. Reading it must either fail or return fields inside the value. Returns whether
/// any layout reads the value as a sample with a valid label.
fn value(values: &[Vec<u8>], seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let value = random.mutated(values, &WORDS);
    let inside = |part: &[u8]| {
        let bounds = value.as_ptr_range();
        part.is_empty() || (bounds.contains(&part.as_ptr()) && part.as_ptr_range().end <= bounds.end)
    };
    let mut accepted = false;
    for layout in [&MsgPack as &dyn ValueFormat, &RawValues] {
        let Ok(sample) = layout.sample("key", &value) else { continue };
        assert!(sample.fields().iter().all(|(_, value)| inside(value.as_bytes())));
        accepted |= sample.label().is_ok() && sample.fields().len() > 1;
    }
    if let Ok(datum) = Datum::read(&value) {
        let mut page = b"key".to_vec();
        let sample = datum.sample(RowBytes::Page(0..3), Some(Colors::Bgr), &mut page);
        accepted |= sample.is_ok_and(|sample| sample.label().is_ok());
    }
    if let Ok(names) = classes(&value) {
        assert!(names.iter().map(String::len).sum::<usize>() <= value.len());
    }
    drop(detect(&value));
    accepted
}

/// Returns the fixtures (dicts, tuples and lists) of less than 2000 bytes that parse as samples.
fn pickles() -> Vec<Vec<u8>> {
    let text = include_str!("../fixtures/formats/pickles/pickles.txt");
    let hex = |line: &str| line.split('\t').nth(3).expect("five columns").to_owned();
    let bytes = |hex: String| -> Vec<u8> {
        (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..][..2], 16).expect("hexadecimal")).collect()
    };
    let small = text.lines().map(hex).map(bytes).filter(|pickle| pickle.len() < 2000);
    small.filter(|pickle| Pickled::new([Ok(&pickle[..])].into_iter(), &ColumnChoice::default()).is_ok()).collect()
}

/// Damages a pickle. Reading it must either fail or return a sample that does not depend on the
/// content of the buffer. The pickle follows a valid value, or is the first value of the database.
/// Returns whether it can be read.
fn pickled(pickles: &[Vec<u8>], seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let value = random.mutated(pickles, &WORDS);
    let first = match random.below(2) {
        0 => &value,
        _ => &pickles[random.below(pickles.len())],
    };
    drop(pickled::classes(&value));
    let values = || [first, &value].map(|value| Ok(&value[..])).into_iter();
    let Ok(mut layout) = Pickled::new(values(), &ColumnChoice::default()) else { return false };
    if layout.learn_labels(values(), None, true).is_err() {
        return false;
    }
    let read = |page: &mut Vec<u8>| {
        let sample = layout.sample(RowBytes::Borrowed(b"key"), &value, page).ok()?;
        let fields = sample.fields().iter().map(|(name, value)| value.encoded(name).into_owned());
        Some((fields.collect::<Vec<_>>(), sample.label().ok()))
    };
    let (once, again) = (read(&mut Vec::new()), read(&mut vec![7; 40]));
    assert!(once == again, "the sample depends on the content of the buffer");
    once.is_some()
}

fn databases() -> Vec<Vec<u8>> {
    [&include_bytes!("../fixtures/bare.mdb")[..], include_bytes!("../fixtures/binary_keys.mdb")]
        .map(|file| file[..8192 + 200].to_vec())
        .into()
}

/// Damages meta pages, which must not cause a panic. Returns whether they are accepted.
fn meta(databases: &[Vec<u8>], seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let mut pages = databases[random.below(databases.len())].clone();
    for _ in 0..random.below(4) {
        let offset = random.pick(&[0, 4096, 4096]) + random.below(160);
        let number = 1u64.checked_shl(random.below(65) as u32).unwrap_or(0).wrapping_sub(random.below(2) as u64);
        match random.below(4) {
            0 => pages[offset] = random.next() as u8,
            1 => pages[offset..offset + 8].copy_from_slice(&number.to_ne_bytes()),
            2 => pages[offset & !3..(offset & !3) + 4].copy_from_slice(&(number as u32).to_ne_bytes()),
            _ => pages.truncate(offset),
        }
        if pages.len() < 8000 {
            break;
        }
    }
    let len = random.pick(&[pages.len() as u64, 12288, 65536, u64::MAX]).max(pages.len() as u64);
    let read = |offset: u64, page: &mut [u8]| {
        let start = usize::try_from(offset).expect("inside the file");
        let have = pages.get(start..).unwrap_or_default();
        let count = have.len().min(page.len());
        page[..count].copy_from_slice(&have[..count]);
        Ok(())
    };
    header::check_pages(len, read).is_ok()
}

#[test]
fn lmdb_value() {
    let values = values();
    fuzz::run("lmdb value", |seed| value(&values, seed));
}

#[test]
fn lmdb_pickled() {
    let pickles = pickles();
    fuzz::run("lmdb pickled", |seed| pickled(&pickles, seed));
}

#[test]
fn lmdb_meta() {
    let databases = databases();
    fuzz::run("lmdb meta", |seed| meta(&databases, seed));
}
