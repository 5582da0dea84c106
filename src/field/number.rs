//! Converts one number to the element type of a batch.

use half::{bf16, f16};

use crate::batch::Dtype;

/// One number, before its conversion.
#[derive(Debug, Clone, Copy)]
pub(super) enum Number<'a> {
    Whole(i128),
    Float(f64),
    Text(&'a str),
}

impl Number<'_> {
    /// Creates the number from the little-endian bytes of an array element. `kind` is NumPy's code
    /// of the element type.
    pub(super) fn of_bytes(kind: u8, word: &[u8]) -> Self {
        let mut wide = [0; 8];
        wide[..word.len()].copy_from_slice(word);
        let bits = u64::from_le_bytes(wide);
        let unused = 64 - 8 * word.len() as u32;
        match (kind, word.len()) {
            (b'b', _) => Number::Whole((bits != 0).into()),
            (b'u', _) => Number::Whole(bits.into()),
            (b'i', _) => Number::Whole((((bits << unused) as i64) >> unused).into()),
            (_, 2) => Number::Float(f16::from_bits(bits as u16).into()),
            (_, 4) => Number::Float(f32::from_bits(bits as u32).into()),
            _ => Number::Float(f64::from_bits(bits)),
        }
    }
}

/// Appends `number` as an element of `dtype`.
///
/// # Errors
/// If the type cannot hold the number, or if the text is not a number.
pub(super) fn put(number: Number<'_>, dtype: Dtype, to: &mut impl Extend<u8>) -> Result<(), String> {
    match dtype {
        Dtype::U8 => to.extend([whole::<u8>(number, dtype)?]),
        Dtype::I16 => to.extend(whole::<i16>(number, dtype)?.to_ne_bytes()),
        Dtype::I32 => to.extend(whole::<i32>(number, dtype)?.to_ne_bytes()),
        Dtype::I64 => to.extend(whole::<i64>(number, dtype)?.to_ne_bytes()),
        Dtype::U16 => to.extend(whole::<u16>(number, dtype)?.to_ne_bytes()),
        Dtype::F32 => to.extend(single(number)?.to_ne_bytes()),
        Dtype::F64 => to.extend(double(number)?.to_ne_bytes()),
        Dtype::F16 => to.extend(f16::from_f64(double(number)?).to_ne_bytes()),
        Dtype::Bf16 => to.extend(bf16::from_f64(double(number)?).to_ne_bytes()),
    }
    Ok(())
}

/// Up to this value, all integers can be distinguished as 64-bit floats. Larger floats are
/// approximate anyway.
const MOST_WHOLE: f64 = (1_u64 << 53) as f64;

/// Checks that `dtype` preserves `number`: an integer must be exact as a 32-bit or 64-bit float,
/// and a finite number must stay finite. Fractions may be rounded, and 16-bit floats may round
/// integers.
///
/// # Errors
/// If `dtype` does not preserve the number. The error is the number as text, worded to fit into the
/// same message as the error of [`put`].
pub(super) fn check_kept(number: Number<'_>, dtype: Dtype) -> Result<(), String> {
    let (kept, wide): (fn(f64) -> f64, _) = match dtype {
        Dtype::F32 => (|number| (number as f32).into(), "float64, or an integer type"),
        Dtype::F64 => (|number| number, "an integer type"),
        Dtype::F16 => (|number| f16::from_f64(number).into(), "float32"),
        Dtype::Bf16 => (|number| bf16::from_f64(number).into(), "float32"),
        _ => return Ok(()),
    };
    let (float, whole) = match number {
        Number::Whole(whole) => (whole as f64, Some(whole)),
        Number::Float(float) => (float, None),
        Number::Text(text) => match (text.parse::<i128>(), text.parse::<f64>()) {
            (Ok(whole), _) => (whole as f64, Some(whole)),
            // Text such as 1e999 denotes a finite number, although it parses as infinity.
            (_, Ok(float)) if float.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) => {
                return Err(unfit(number, dtype));
            }
            (_, Ok(float)) => (float, None),
            _ => return Ok(()),
        },
    };
    let whole = whole.or_else(|| (float.trunc() == float && float.abs() <= MOST_WHOLE).then_some(float as i128));
    let is_exact = matches!(dtype, Dtype::F32 | Dtype::F64);
    match whole {
        _ if float.is_finite() && kept(float).is_infinite() => Err(unfit(number, dtype)),
        Some(whole) if is_exact && kept(float) as i128 != whole => {
            Err(format!("{whole}, which {} cannot hold exactly (read it as {wide}),", dtype.name()))
        }
        _ => Ok(()),
    }
}

/// Converts `number` to an integer. Accepts floats whose value is integral.
fn whole<T: TryFrom<i128>>(number: Number<'_>, dtype: Dtype) -> Result<T, String> {
    // Floats beyond 2^64 do not fit into any of the types, and all others fit into an i128.
    let of_float = |float: f64| (float.trunc() == float && float.abs() <= 2f64.powi(64)).then_some(float as i128);
    let whole = match number {
        Number::Whole(whole) => Some(whole),
        Number::Float(float) => of_float(float),
        Number::Text(text) => text.parse().ok().or_else(|| truth(text)).or_else(|| of_float(text.parse().ok()?)),
    };
    whole.and_then(|whole| T::try_from(whole).ok()).ok_or_else(|| unfit(number, dtype))
}

/// Converts `number` to the nearest 32-bit float.
fn single(number: Number<'_>) -> Result<f32, String> {
    match number {
        Number::Whole(whole) => Ok(whole as f32),
        Number::Float(float) => Ok(float as f32),
        Number::Text(text) => text.parse().ok().or_else(|| Some(truth(text)? as f32)).ok_or_else(|| not_a_number(text)),
    }
}

fn double(number: Number<'_>) -> Result<f64, String> {
    match number {
        Number::Whole(whole) => Ok(whole as f64),
        Number::Float(float) => Ok(float),
        Number::Text(text) => text.parse().ok().or_else(|| Some(truth(text)? as f64)).ok_or_else(|| not_a_number(text)),
    }
}

/// Parses `true` as 1 and `false` as 0, in the spellings that common programs write.
fn truth(text: &str) -> Option<i128> {
    match text {
        "true" | "True" | "TRUE" => Some(1),
        "false" | "False" | "FALSE" => Some(0),
        _ => None,
    }
}

fn unfit(number: Number<'_>, dtype: Dtype) -> String {
    let name = dtype.name();
    match number {
        Number::Whole(whole) => format!("{whole}, which {name} cannot hold,"),
        Number::Float(float) => format!("{float:?}, which {name} cannot hold,"),
        Number::Text(text) if text.parse::<f64>().is_ok() => format!("{text}, which {name} cannot hold,"),
        Number::Text(text) => not_a_number(text),
    }
}

fn not_a_number(text: &str) -> String {
    let shown: String = text.chars().take(40).collect();
    format!("{shown:?}, which is not a number,")
}
