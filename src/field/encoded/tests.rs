//! Tests that all encodings of the same numbers give the same result, and tests the error messages.

use std::fmt::Write as _;

use half::f16;
use proptest::prelude::*;

use super::*;

fn field(name: &str, bytes: &[u8]) -> (String, Vec<u8>) {
    (name.to_owned(), bytes.to_owned())
}

fn read<T: Element>(fields: &[(String, Vec<u8>)]) -> Result<(Vec<T>, Vec<usize>)> {
    let sample = fields.iter().try_fold(Sample::new("s"), |sample, (name, bytes)| sample.with_field(name, bytes))?;
    let mut out = Vec::new();
    let shape = read_numbers(&sample, "x", &mut out)?;
    Ok((out, shape.to_vec()))
}

fn read_one<T: Element>(name: &str, bytes: impl AsRef<[u8]>) -> Result<(Vec<T>, Vec<usize>)> {
    read(&[field(name, bytes.as_ref())])
}

fn cause<T: Element + std::fmt::Debug>(name: &str, bytes: impl AsRef<[u8]>) -> String {
    read_one::<T>(name, bytes).unwrap_err().cause().to_owned()
}

fn npy(descr: &str, shape: &[usize], data: &[u8]) -> Vec<u8> {
    let mut axes = String::new();
    shape.iter().for_each(|axis| write!(axes, "{axis}, ").unwrap());
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}\n", axes.trim_end());
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

#[test]
fn the_four_encodings_give_the_same_numbers() {
    let raw: Vec<u8> = [1.5_f32, -2.0, 3.0, 4.25].iter().flat_map(|x| x.to_le_bytes()).collect();
    let expected = vec![1.5_f32, -2.0, 3.0, 4.25];
    assert_eq!(read_one::<f32>("x", &raw).unwrap(), (expected.clone(), vec![4]));
    assert_eq!(read_one::<f32>("x.npy", npy("<f4", &[2, 2], &raw)).unwrap(), (expected.clone(), vec![2, 2]));
    assert_eq!(read_one::<f32>("x.json", "[[1.5, -2], [3, 4.25]]").unwrap(), (expected.clone(), vec![2, 2]));
    assert_eq!(read_one::<f32>("x.txt", " 1.5 -2, 3,4.25\n").unwrap(), (expected, vec![4]));
}

#[test]
fn a_field_without_a_suffix_has_precedence() {
    let fields =
        [field("x.txt", b"3"), field("x.json", b"2"), field("x.npy", &npy("|u1", &[], &[1])), field("x", &[0])];
    for (from, expected) in [(0, 0), (1, 1), (2, 2), (3, 3)] {
        let fields = &fields[..4 - from];
        assert_eq!(read::<u8>(fields).unwrap().0, [expected]);
    }
    let sample = fields.iter().try_fold(Sample::new("s"), |sample, (name, bytes)| sample.with_field(name, bytes));
    let sample = sample.unwrap();
    let mut out: Vec<i64> = Vec::new();
    read_numbers(&sample, "x.json", &mut out).unwrap();
    read_numbers(&sample, "x.txt", &mut out).unwrap();
    assert_eq!(out, [2, 3]);
    assert!(
        has_field(&sample, "x") && has_field(&sample, "x.npy") && !has_field(&sample, "y") && !has_field(&sample, "")
    );
    let e =
        read_numbers::<u8>(&Sample::new("s").with_field("xx.txt", b"1").unwrap(), "x", &mut Vec::new()).unwrap_err();
    assert_eq!(e.cause(), "no field \"x\" among [\"xx.txt\"]");
}

#[test]
fn encoding_names_and_array_headers_are_recognized() {
    let array = npy("<f4", &[2], &[1.5_f32, -2.0].map(f32::to_le_bytes).concat());
    for (name, bytes) in [("npy", &array[..]), ("json", b"[1.5, -2]"), ("txt", b"1.5 -2"), ("anything", &array)] {
        let sample = Sample::new("s").with_field(name, bytes).unwrap();
        let mut out = Vec::<f32>::new();
        let shape = read_numbers(&sample, name, &mut out).unwrap();
        assert_eq!((&out[..], &shape[..]), (&[1.5, -2.0][..], &[2][..]), "{name}");
    }
    // These eight bytes could also be two 32-bit numbers, but the name says JSON.
    let sample = Sample::new("s").with_field("json", &b"[1,2.50]"[..]).unwrap();
    let mut out = Vec::<f32>::new();
    read_numbers(&sample, "json", &mut out).unwrap();
    assert_eq!(out, [1.0, 2.5]);
}

#[test]
fn integers_stay_exact_and_fractions_are_rounded() {
    let converted = |name: &str, bytes: &[u8], dtype| {
        let sample = Sample::new("s").with_field(name, bytes).unwrap();
        let read = find(&sample, name).unwrap().with_exact_numbers(dtype, |bytes, _| Ok(bytes.to_vec()));
        read.map_err(|e| e.cause().to_owned())
    };
    let f64s = |numbers: &[f64]| npy("<f8", &[numbers.len()], bytemuck::cast_slice::<_, u8>(numbers));
    let i64s = |numbers: &[i64]| npy("<i8", &[numbers.len()], bytemuck::cast_slice::<_, u8>(numbers));
    let bytes = |numbers: &[f32]| bytemuck::cast_slice::<_, u8>(numbers).to_vec();
    let large = 1_i64 << 24;
    assert_eq!(converted("x.npy", &i64s(&[large, -3]), Dtype::F32), Ok(bytes(&[16_777_216.0, -3.0])));
    assert_eq!(
        converted("x.npy", &f64s(&[0.1, 1e30, f64::INFINITY]), Dtype::F32),
        Ok(bytes(&[0.1, 1e30, f32::INFINITY]))
    );
    assert_eq!(converted("x.txt", b"0.1 -inf 1e-60", Dtype::F32), Ok(bytes(&[0.1, f32::NEG_INFINITY, 0.0])));
    assert!(converted("x.npy", &f64s(&[f64::NAN]), Dtype::F32).is_ok());
    for (name, data) in [
        ("x.npy", i64s(&[1, large + 1])),
        ("x.npy", f64s(&[1.0, (large + 1) as f64])),
        ("x.json", b"[1, 16777217]".to_vec()),
        ("x.txt", b"1 16777217".to_vec()),
    ] {
        let e = converted(name, &data, Dtype::F32).unwrap_err();
        let expected = "is 16777217, which float32 cannot hold exactly (read it as float64, or an integer type)";
        assert!(e.contains(expected) && e.contains("element 1 is"), "{e}");
        let wide = converted(name, &data, Dtype::F64).unwrap();
        assert_eq!(bytemuck::pod_collect_to_vec::<u8, f64>(&wide), [1.0, 16_777_217.0]);
    }
    for (name, data) in [("x.npy", f64s(&[1e300])), ("x.json", b"1e300".to_vec()), ("x.txt", b"1e300".to_vec())] {
        assert!(converted(name, &data, Dtype::F32).unwrap_err().contains("which float32 cannot hold"));
        assert_eq!(converted(name, &data, Dtype::F64), Ok(1e300_f64.to_ne_bytes().to_vec()));
    }
    assert!(converted("x.txt", b"1e999", Dtype::F64).is_err());
    assert!(
        converted("x.npy", &i64s(&[(1 << 53) + 1]), Dtype::F64).unwrap_err().contains("read it as an integer type")
    );
    assert!(converted("x.npy", &f64s(&[70_000.0]), Dtype::F16).is_err());
    assert!(converted("x.npy", &i64s(&[2049]), Dtype::F16).is_ok(), "16 bits are rounded");
}

#[test]
fn numbers_that_do_not_fit_into_an_integer_are_rejected() {
    assert_eq!(cause::<i64>("x.txt", "7 1.5"), "field \"x.txt\": element 1 is 1.5, which int64 cannot hold");
    assert_eq!(cause::<u8>("x.txt", "256"), "field \"x.txt\": element 0 is 256, which uint8 cannot hold");
    assert_eq!(cause::<i64>("x.txt", "cat"), "field \"x.txt\": element 0 is \"cat\", which is not a number");
    assert!(cause::<u8>("x.json", "[1, -1]").contains("element 1 is -1, which uint8 cannot hold"));
    assert!(cause::<i64>("x.json", "[0.5]").contains("element 0 is 0.5, which int64 cannot hold"));
    let floats: Vec<u8> = [1.0_f64, f64::NAN].iter().flat_map(|x| x.to_le_bytes()).collect();
    assert!(cause::<i64>("x.npy", npy("<f8", &[2], &floats)).contains("element 1 is NaN, which int64 cannot hold"));
    let large = npy("<u8", &[1], &u64::MAX.to_le_bytes());
    assert!(cause::<i64>("x.npy", large).contains("18446744073709551615, which int64 cannot hold"));
    assert_eq!(read_one::<i64>("x.txt", "1e3 -4.0 true False").unwrap().0, [1000, -4, 1, 0]);
    assert_eq!(read_one::<i64>("x.txt", "9223372036854775807 -9223372036854775808").unwrap().0, [i64::MAX, i64::MIN]);
    assert!(cause::<i64>("x.txt", "9223372036854775808").contains("cannot hold"));
}

#[test]
fn floats_are_rounded_to_the_nearest() {
    assert_eq!(read_one::<f32>("x.txt", "0.1 16777217 nan").unwrap().0[..2], [0.1_f32, 16_777_216.0]);
    assert!(read_one::<f32>("x.txt", "NaN").unwrap().0[0].is_nan());
    assert_eq!(read_one::<f32>("x.npy", npy("<f8", &[1], &0.1_f64.to_le_bytes())).unwrap().0, [0.1_f32]);
    assert_eq!(read_one::<f16>("x.json", "[0.1]").unwrap().0, [f16::from_f64(0.1)]);
    assert_eq!(
        read_one::<f32>("x.npy", npy("<f2", &[1], &f16::from_f64(0.1).to_le_bytes())).unwrap().0,
        [0.099975586_f32]
    );
}

#[test]
fn numpy_types_are_read_in_either_byte_order() {
    macro_rules! both {
        ($($descr:literal: $type:ty),*) => {$({
            let values: [$type; 3] = [0 as $type, 1 as $type, 100 as $type];
            let little: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            let big: Vec<u8> = values.iter().flat_map(|v| v.to_be_bytes()).collect();
            let expected = (vec![0_i64, 1, 100], vec![3]);
            assert_eq!(read_one::<i64>("x.npy", npy(concat!("<", $descr), &[3], &little)).unwrap(), expected);
            assert_eq!(read_one::<i64>("x.npy", npy(concat!(">", $descr), &[3], &big)).unwrap(), expected);
        })*};
    }
    both!("u1": u8, "u2": u16, "u4": u32, "u8": u64, "i1": i8, "i2": i16, "i4": i32, "i8": i64, "f4": f32, "f8": f64);
    let minus: Vec<u8> = (-3_i16).to_le_bytes().to_vec();
    assert_eq!(read_one::<i64>("x.npy", npy("<i2", &[1, 1], &minus)).unwrap(), (vec![-3], vec![1, 1]));
    assert_eq!(read_one::<u8>("x.npy", npy("|b1", &[2], &[0, 1])).unwrap().0, [0, 1]);
    assert_eq!(read_one::<f32>("x.npy", npy("<f4", &[0, 4], &[])).unwrap(), (vec![], vec![0, 4]));
}

#[test]
fn damaged_arrays_are_rejected() {
    let good = npy("<f4", &[2, 2], &[0; 16]);
    assert!(cause::<f32>("x.npy", &good[..good.len() - 1]).ends_with("found 15"));
    assert!(cause::<f32>("x.npy", [&good[..], b"x"].concat()).ends_with("found 17"));
    for end in 0..good.len() {
        read_one::<f32>("x.npy", &good[..end]).unwrap_err();
    }
    assert!(cause::<f32>("x.npy", npy("<c8", &[1], &[0; 8])).contains("booleans, integers or floats in C order"));
    let fortran = String::from_utf8_lossy(&good[10..]).replace("False", "True ");
    let fortran = [&good[..10], fortran.as_bytes()].concat();
    assert!(cause::<f32>("x.npy", fortran).contains("in C order"));
    assert!(cause::<f32>("x.npy", npy("<f4", &[usize::MAX, 2], &[])).contains("which is too large"));
    assert_eq!(cause::<i64>("x", [0; 9]), "field \"x\" has 9 bytes: expected a multiple of 8");
}

#[test]
fn lists_of_different_lengths_or_depths_are_rejected() {
    for (json, says) in [
        ("[[1, 2], [3]]", "a list of length 1 at the same level as a list of length 2"),
        ("[1, [2]]", "unexpected list at depth 1: expected a number"),
        ("[[1], 2]", "number 1 is at depth 1, but other elements are nested deeper"),
        ("[[], 2]", "number 0 is at depth 1"),
        ("[[[[[[[[[1]]]]]]]]]", "unexpected list at depth 8"),
        ("[1, \"two\"]", "invalid type: string \"two\", expected a number or a list of numbers at line 1 column 9"),
        ("[1, null]", "invalid type: null"),
        ("{\"a\": 1}", "invalid type: map"),
        ("[1, 2", "EOF while parsing"),
        ("[1] 2", "trailing characters"),
        ("", "EOF while parsing"),
    ] {
        let cause = cause::<f32>("x.json", json);
        assert!(
            cause.starts_with("field \"x.json\" is not a valid JSON list of numbers: ") && cause.contains(says),
            "{json}: {cause}"
        );
    }
    assert_eq!(read_one::<u8>("x.json", "[]").unwrap(), (vec![], vec![0]));
    assert_eq!(read_one::<u8>("x.json", "[[], []]").unwrap(), (vec![], vec![2, 0]));
    assert_eq!(read_one::<u8>("x.json", "[true, false]").unwrap().0, [1, 0]);
    assert_eq!(read_one::<u8>("x.json", "5").unwrap(), (vec![5], vec![]));
}

#[test]
fn text_is_separated_by_spaces_or_single_commas() {
    assert_eq!(read_one::<i64>("x.txt", "\t1 2\r\n3 ,4").unwrap(), (vec![1, 2, 3, 4], vec![4]));
    assert_eq!(read_one::<i64>("x.txt", "").unwrap(), (vec![], vec![0]));
    for (text, index) in [("1,,2", 1), ("1,", 1), (",", 0), (",1", 0), ("1 2,,3", 2)] {
        let expected = format!("has no number at index {index}: expected one before and after each comma");
        assert_eq!(cause::<i64>("x.txt", text), format!("field \"x.txt\" {expected}"));
    }
    assert_eq!(cause::<i64>("x.txt", b"1 \xff"), "field \"x.txt\" has invalid UTF-8 at byte 2");
}

proptest! {
    #[test]
    fn numbers_round_trip_through_every_encoding(values in prop::collection::vec(any::<i64>(), 0..40), columns in 1..5_usize) {
        let values = &values[..values.len() / columns * columns];
        let rows: Vec<&[i64]> = values.chunks(columns).collect();
        let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let text: Vec<String> = values.iter().map(i64::to_string).collect();
        prop_assert_eq!(read_one::<i64>("x", &raw).unwrap().0, values);
        let shape = [rows.len(), columns];
        prop_assert_eq!(read_one::<i64>("x.npy", npy("<i8", &shape, &raw)).unwrap(), (values.to_vec(), shape.to_vec()));
        let json = read_one::<i64>("x.json", serde_json::to_string(&rows).unwrap()).unwrap();
        prop_assert_eq!(&json.0, values);
        prop_assert!(rows.is_empty() || json.1 == shape);
        prop_assert_eq!(read_one::<i64>("x.txt", text.join(" ")).unwrap().0, values);
        // Rust's `as` rounds to the nearest float.
        let floats: Vec<f32> = values.iter().map(|&v| v as f32).collect();
        prop_assert_eq!(read_one::<f32>("x.npy", npy("<i8", &shape, &raw)).unwrap().0, floats.clone());
        prop_assert_eq!(read_one::<f32>("x.txt", text.join(", ")).ok(), (!text.is_empty()).then(|| (floats, vec![values.len()])).or(Some((vec![], vec![0]))));
    }

    #[test]
    fn arbitrary_bytes_are_numbers_or_an_error(name in "x(\\.npy|\\.json|\\.txt)?", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_one::<f32>(&name, &bytes);
        let _ = read_one::<i64>(&name, [b"\x93NUMPY\x01\x00\x10\x00", &bytes[..]].concat());
    }
}

#[test]
fn arrays_without_a_header_are_little_endian_on_every_host() {
    let expected = vec![258_i32, -2];
    let bytes: Vec<u8> = expected.iter().flat_map(|number| number.to_le_bytes()).collect();
    assert_eq!(read_one::<i32>("x", &bytes).unwrap().0, expected);
    // A big-endian host swaps the bytes of each element.
    let swapped: Vec<u8> = expected.iter().flat_map(|number| number.to_be_bytes()).collect();
    assert_eq!(*little_endian(&bytes, 4, true), swapped);
    assert_eq!(*little_endian(&bytes, 4, false), bytes);
}
