use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::column::{Choose, Column};
use crate::error::{Error, Result};
use crate::machine::bytes::Bytes;
use crate::values::elements::Dtype;

/// Maximum length of a header, as in the original library.
const MOST_HEADER: u64 = 100_000_000;

/// A tensor in the header.
#[derive(Deserialize)]
struct Tensor {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

/// The tensors of file `number` that `choose` keeps, in the order of their names.
///
/// # Errors
/// If the header is damaged, or a tensor lies outside the file. Tensors of other types than numbers
/// keep their kind, which has no elements.
pub(super) fn columns(bytes: &dyn Bytes, number: usize, choose: Choose<'_>) -> Result<Vec<Column>> {
    let bad = |cause: String| Error::in_source(format!("safetensors: {cause}"));
    let all = bytes.len();
    if all < 8 {
        return Err(bad(format!("the file has {all} bytes, fewer than the length of its header takes")));
    }
    let mut scratch = Vec::new();
    let length = bytes.get(0, 8, &mut scratch)?;
    let length = u64::from_le_bytes(*length.first_chunk().expect("as long as was asked for"));
    if length > MOST_HEADER || length > all - 8 {
        return Err(bad(format!("a header of {length} bytes in a file of {all}; the limit is {MOST_HEADER}")));
    }
    let start = 8 + length;
    let header = bytes.get(8, length as usize, &mut scratch)?;
    // A map of the raw text keeps the metadata apart, which has another form.
    let mut header: BTreeMap<String, &RawValue> =
        serde_json::from_slice(header).map_err(|e| bad(format!("the header is not JSON: {e}")))?;
    header.remove("__metadata__");
    let names: Vec<String> = header.keys().cloned().collect();
    let mut columns = Vec::new();
    for (place, name) in choose(&names)? {
        let tensor = header[&names[place]];
        let Tensor { dtype, shape, data_offsets: [from, to] } =
            serde_json::from_str(tensor.get()).map_err(|e| bad(format!("tensor {name:?}: {e}")))?;
        if from > to || to > all - start {
            let held = all - start;
            return Err(bad(format!("tensor {name:?} lies at bytes {from} to {to} of {held}: the file is cut short")));
        }
        columns.push(Column::in_file(name, of(&dtype), shape, (number, start + from, to - from))?);
    }
    Ok(columns)
}

/// The type with this name. Types that samples cannot hold have the kind `V`.
fn of(name: &str) -> Dtype {
    let (kind, size) = match name {
        "BOOL" => (b'b', 1),
        "U8" => (b'u', 1),
        "I8" => (b'i', 1),
        "U16" => (b'u', 2),
        "I16" => (b'i', 2),
        "F16" => (b'f', 2),
        "U32" => (b'u', 4),
        "I32" => (b'i', 4),
        "F32" => (b'f', 4),
        "U64" => (b'u', 8),
        "I64" => (b'i', 8),
        "F64" => (b'f', 8),
        "C64" => (b'c', 8),
        "BF16" => (b'V', 2),
        _ => (b'V', 1),
    };
    Dtype::little(kind, size)
}
