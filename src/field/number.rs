//! Converts a number to the element type of a batch.

use half::{bf16, f16};

use crate::batch::Dtype;

#[derive(Debug, Clone, Copy)]
pub(super) enum Number<'a> {
    Whole(i128),
    Float(f64),
    Text(&'a str),
}

impl Number<'_> {
    /// Reads the little-endian number in `word`, which has at most 8 bytes. `kind` is NumPy's
    /// character code: `b` for booleans, `u` or `i` for integers, and `f` for floats.
    pub(super) fn from_bytes(kind: u8, word: &[u8]) -> Self {
        let mut padded_word = [0; 8];
        padded_word[..word.len()].copy_from_slice(word);
        let bits = u64::from_le_bytes(padded_word);
        let unused_bits = 64 - 8 * word.len() as u32;
        match (kind, word.len()) {
            (b'b', _) => Number::Whole((bits != 0).into()),
            (b'u', _) => Number::Whole(bits.into()),
            (b'i', _) => Number::Whole((((bits << unused_bits) as i64) >> unused_bits).into()),
            (_, 2) => Number::Float(f16::from_bits(bits as u16).into()),
            (_, 4) => Number::Float(f32::from_bits(bits as u32).into()),
            _ => Number::Float(f64::from_bits(bits)),
        }
    }
}

/// Converts `number` to `dtype`, and appends its bytes to `out` in native byte order. The error
/// text is a fragment for the caller's message, such as `256, which uint8 cannot hold`.
pub(super) fn append_number(number: Number<'_>, dtype: Dtype, out: &mut impl Extend<u8>) -> Result<(), String> {
    match dtype {
        Dtype::U8 => out.extend([to_integer::<u8>(number, dtype)?]),
        Dtype::I16 => out.extend(to_integer::<i16>(number, dtype)?.to_ne_bytes()),
        Dtype::I32 => out.extend(to_integer::<i32>(number, dtype)?.to_ne_bytes()),
        Dtype::I64 => out.extend(to_integer::<i64>(number, dtype)?.to_ne_bytes()),
        Dtype::U16 => out.extend(to_integer::<u16>(number, dtype)?.to_ne_bytes()),
        Dtype::F32 => out.extend(to_f32(number)?.to_ne_bytes()),
        Dtype::F64 => out.extend(to_f64(number)?.to_ne_bytes()),
        Dtype::F16 => out.extend(f16::from_f64(to_f64(number)?).to_ne_bytes()),
        Dtype::Bf16 => out.extend(bf16::from_f64(to_f64(number)?).to_ne_bytes()),
    }
    Ok(())
}

/// Maximum absolute value of a float that is checked for exactness. A larger float may be the
/// rounded value of several integers.
const MAX_EXACT_INTEGER: f64 = (1_u64 << 53) as f64;

/// Checks that the float type `dtype` preserves `number`. Integers must be exact in 32-bit and
/// 64-bit floats, and finite numbers must remain finite. Fractions may be rounded, as may integers
/// in 16-bit floats. Integer types need no check, because [`append_number`] rejects numbers that do
/// not fit.
pub(super) fn check_exact(number: Number<'_>, dtype: Dtype) -> Result<(), String> {
    let (rounded, wider_type): (fn(f64) -> f64, _) = match dtype {
        Dtype::F32 => (|number| (number as f32).into(), "float64, or an integer type"),
        Dtype::F64 => (|number| number, "an integer type"),
        Dtype::F16 => (|number| f16::from_f64(number).into(), "float32"),
        Dtype::Bf16 => (|number| bf16::from_f64(number).into(), "float32"),
        _ => return Ok(()),
    };
    let (float, integer) = match number {
        Number::Whole(integer) => (integer as f64, Some(integer)),
        Number::Float(float) => (float, None),
        Number::Text(text) => match (text.parse::<i128>(), text.parse::<f64>()) {
            (Ok(integer), _) => (integer as f64, Some(integer)),
            // Text such as 1e999 is finite, but parses as infinity.
            (_, Ok(float)) if float.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) => {
                return Err(does_not_fit(number, dtype));
            }
            (_, Ok(float)) => (float, None),
            _ => return Ok(()),
        },
    };
    let integer =
        integer.or_else(|| (float.trunc() == float && float.abs() <= MAX_EXACT_INTEGER).then_some(float as i128));
    let must_be_exact = matches!(dtype, Dtype::F32 | Dtype::F64);
    match integer {
        _ if float.is_finite() && rounded(float).is_infinite() => Err(does_not_fit(number, dtype)),
        Some(integer) if must_be_exact && rounded(float) as i128 != integer => {
            Err(format!("{integer}, which {} cannot hold exactly (read it as {wider_type})", dtype.name()))
        }
        _ => Ok(()),
    }
}

fn to_integer<T: TryFrom<i128>>(number: Number<'_>, dtype: Dtype) -> Result<T, String> {
    // No integer type of a batch holds floats beyond 2^64, and an i128 holds all smaller integers.
    let float_to_integer =
        |float: f64| (float.trunc() == float && float.abs() <= 2f64.powi(64)).then_some(float as i128);
    let integer = match number {
        Number::Whole(integer) => Some(integer),
        Number::Float(float) => float_to_integer(float),
        Number::Text(text) => {
            text.parse().ok().or_else(|| parse_bool(text)).or_else(|| float_to_integer(text.parse().ok()?))
        }
    };
    integer.and_then(|integer| T::try_from(integer).ok()).ok_or_else(|| does_not_fit(number, dtype))
}

fn to_f32(number: Number<'_>) -> Result<f32, String> {
    match number {
        Number::Whole(integer) => Ok(integer as f32),
        Number::Float(float) => Ok(float as f32),
        Number::Text(text) => {
            text.parse().ok().or_else(|| Some(parse_bool(text)? as f32)).ok_or_else(|| not_a_number(text))
        }
    }
}

fn to_f64(number: Number<'_>) -> Result<f64, String> {
    match number {
        Number::Whole(integer) => Ok(integer as f64),
        Number::Float(float) => Ok(float),
        Number::Text(text) => {
            text.parse().ok().or_else(|| Some(parse_bool(text)? as f64)).ok_or_else(|| not_a_number(text))
        }
    }
}

fn parse_bool(text: &str) -> Option<i128> {
    match text {
        "true" | "True" | "TRUE" => Some(1),
        "false" | "False" | "FALSE" => Some(0),
        _ => None,
    }
}

fn does_not_fit(number: Number<'_>, dtype: Dtype) -> String {
    let name = dtype.name();
    match number {
        Number::Whole(integer) => format!("{integer}, which {name} cannot hold"),
        Number::Float(float) => format!("{float:?}, which {name} cannot hold"),
        Number::Text(text) if text.parse::<f64>().is_ok() => format!("{text}, which {name} cannot hold"),
        Number::Text(text) => not_a_number(text),
    }
}

fn not_a_number(text: &str) -> String {
    let excerpt: String = text.chars().take(40).collect();
    format!("{excerpt:?}, which is not a number")
}
