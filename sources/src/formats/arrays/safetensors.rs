//! Reads safetensors files: an 8-byte header length, a JSON header, and the tensors.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::column::{Choose, Column};
use crate::error::{Error, Result};
use crate::machine::bytes::Bytes;
use crate::values::elements::Dtype;

/// Maximum size of a header, in bytes, as in the reference implementation.
const MAX_HEADER: u64 = 100_000_000;

#[derive(Deserialize)]
struct Tensor {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

/// Returns the tensors that `choose` selects, sorted by name. Tensors with unsupported element
/// types are included, so that opening the dataset can report them.
pub(super) fn columns(bytes: &dyn Bytes, file_index: usize, choose: Choose<'_>) -> Result<Vec<Column>> {
    let error = |cause: String| Error::in_source(format!("safetensors: {cause}"));
    let len = bytes.len();
    if len < 8 {
        return Err(error(format!(
            "the file has only {len} bytes: expected at least the 8 bytes of the header length"
        )));
    }
    let mut scratch = Vec::new();
    let length = bytes.get(0, 8, &mut scratch)?;
    let length = u64::from_le_bytes(*length.first_chunk().expect("`get` returned 8 bytes"));
    if length > MAX_HEADER || length > len - 8 {
        return Err(error(format!(
            "the header claims {length} bytes in a file of {len} bytes: expected at most {MAX_HEADER} bytes, inside \
             the file"
        )));
    }
    let start = 8 + length;
    let header = bytes.get(8, length as usize, &mut scratch)?;
    // Parse the entries later: `__metadata__` is not a tensor.
    let mut header: BTreeMap<String, &RawValue> =
        serde_json::from_slice(header).map_err(|e| error(format!("the header is not JSON: {e}")))?;
    header.remove("__metadata__");
    let names: Vec<String> = header.keys().cloned().collect();
    let mut columns = Vec::new();
    for (index, name) in choose(&names)? {
        let tensor = header[&names[index]];
        let Tensor { dtype, shape, data_offsets: [from, to] } =
            serde_json::from_str(tensor.get()).map_err(|e| error(format!("tensor {name:?}: {e}")))?;
        if from > to || to > len - start {
            let data_bytes = len - start;
            return Err(error(format!(
                "tensor {name:?} claims bytes {from} to {to}, but the file has {data_bytes} bytes of data: it is \
                 damaged or truncated"
            )));
        }
        columns.push(Column::in_file(name, dtype_named(&dtype), shape, file_index, start + from, to - from)?);
    }
    Ok(columns)
}

/// Returns the element type called `name`. Types that NumPy lacks have the kind `V`, which is not
/// supported.
fn dtype_named(name: &str) -> Dtype {
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
