//! Fuzzes the parsers of text and array fields: COCO segmentations and numbers.

use super::encoded;
use super::segments::Segments;
use crate::batch::Dtype;
use crate::decode::Size;
use crate::fuzz::{self, Random};
use crate::source::{Sample, Value};

const SEGMENTATIONS: [&[u8]; 16] = [
    b"[",
    b"]",
    b"[[",
    b"]]",
    b",",
    b"null",
    b"0,0,5,0,5,5",
    b"{\"size\": [20, 10], \"counts\": [",
    b"\"counts\": \"",
    b"\"size\": [4294967296, 4294967296]",
    b"1e300",
    b"-1e6",
    b"1e6",
    b"18446744073709551615",
    b"PPPPPPPP",
    b"ooooooooooooo",
];
const NUMBERS: [&[u8]; 16] = [
    b"[",
    b"]",
    b",",
    b"[[[[[[[[[",
    b"null",
    b"true",
    b"\"1\"",
    b"1e400",
    b"-1e-400",
    b"NaN",
    b"-9223372036854775809",
    b"256",
    b"0.1",
    b"\x93NUMPY\x01\x00",
    b"'shape': (18446744073709551615, 2), ",
    b"'descr': '>f8', ",
];

fn segmentations() -> Vec<Vec<u8>> {
    let texts = [
        "[[[0,0,5,0,5,5]], [[1.5,2,4.5,2,4.5,6.25], [10,1,19,1,19,9,10,9]]]",
        "[{\"size\": [10, 20], \"counts\": [50, 150]}, {\"counts\": [0, 200], \"size\": [10, 20]}]",
        "[{\"size\": [10, 20], \"counts\": \"b14N00O1\"}, [[-3,-3,30,-3,30,30]], null]",
        "[]",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

/// A mask must not depend on memory that earlier cases used.
fn segmentation(files: &[Vec<u8>], reused: &mut Segments, seed: u64) -> bool {
    let json = Random::new(seed).mutated(files, &SEGMENTATIONS);
    let mut new = Segments::default();
    let (count, again) = (new.read(Value::Bytes(&json)), reused.read(Value::Bytes(&json)));
    assert_eq!(count.as_ref().ok(), again.as_ref().ok());
    let Ok(count) = count else { return false };
    let mut drawn = 0;
    for index in 0..count.min(8) {
        let (mut mask, mut other) = (Vec::new(), vec![1; 7]);
        let size = Size::new(20, 10);
        let result = new.draw(index, size, (1.0, 1.0), &mut mask);
        assert_eq!(result.is_ok(), reused.draw(index, size, (1.0, 1.0), &mut other).is_ok());
        if result.is_ok() {
            assert!(mask == other && mask.len() == 200 && mask.iter().all(|&pixel| pixel < 2), "{index}");
            drawn += 1;
        }
    }
    drawn > 0
}

fn arrays() -> Vec<Vec<u8>> {
    let npy = |header: &str, data: &[u8]| {
        let header = format!("{{{header}, 'fortran_order': False, }}");
        [&b"\x93NUMPY\x01\x00\x76\x00"[..], format!("{header:<117}\n").as_bytes(), data].concat()
    };
    vec![
        npy("'descr': '<f4', 'shape': (2, 3)", &[1; 24]),
        npy("'descr': '|u1', 'shape': (4,)", &[1, 2, 3, 255]),
        npy("'descr': '>i8', 'shape': ()", &[0, 0, 0, 0, 0, 0, 0, 9]),
        b"[[1, 2.5], [3, -4e2]]".to_vec(),
        b"7".to_vec(),
        b"1 2 3\n4.5 -6".to_vec(),
        b"1, 2, 3".to_vec(),
        vec![0; 16],
    ]
}

fn numbers(files: &[Vec<u8>], seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let bytes = random.mutated(files, &NUMBERS);
    let name = random.pick(&["x.npy", "x.json", "x.txt", "x"]);
    let dtype =
        random.pick(&[Dtype::U8, Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I16, Dtype::I32, Dtype::I64, Dtype::U16]);
    let sample = Sample::new("x").with_field(name, &bytes[..]).unwrap();
    let read = encoded::find(&sample, "x").and_then(|field| {
        field.with_numbers(dtype, |numbers, shape| {
            let Some(shape) = shape else { return Ok(numbers == bytes) };
            assert_eq!(numbers.len(), shape.iter().product::<usize>() * dtype.bytes(), "{shape:?}");
            Ok(true)
        })
    });
    read.is_ok_and(|read| {
        assert!(read, "an array without a header was converted");
        name != "x"
    })
}

#[test]
fn segmentation_json() {
    let (files, mut reused) = (segmentations(), Segments::default());
    fuzz::run("segmentations", |seed| segmentation(&files, &mut reused, seed));
}

#[test]
fn number_fields() {
    let files = arrays();
    fuzz::run("numbers", |seed| numbers(&files, seed));
}
