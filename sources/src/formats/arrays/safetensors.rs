//! Reads safetensors files: an 8-byte header length, a JSON header, and the tensors.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::column::{ArraySelector, Column};
use crate::error::{Error, Result};
use crate::machine::bytes::Bytes;
use crate::values::elements::Dtype;

/// Maximum size of a header, in bytes, as in the reference implementation.
const MAX_HEADER_BYTES: u64 = 100_000_000;

#[derive(Deserialize)]
struct Tensor {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

/// Returns the tensors that `selector` selects, sorted by name. Tensors with unsupported element
/// types are included, so that opening the dataset can report them.
pub(super) fn columns(bytes: &dyn Bytes, file_index: usize, selector: ArraySelector<'_>) -> Result<Vec<Column>> {
    let error = |cause: String| Error::in_source(format!("safetensors: {cause}"));
    let len = bytes.len();
    if len < 8 {
        return Err(error(format!(
            "the file has only {len} bytes: expected at least the 8 bytes of the header length"
        )));
    }
    let mut scratch = Vec::new();
    let header_len = bytes.get(0, 8, &mut scratch)?;
    let header_len = u64::from_le_bytes(*header_len.first_chunk().expect("`get` returned 8 bytes"));
    if header_len > MAX_HEADER_BYTES || header_len > len - 8 {
        return Err(error(format!(
            "the header claims {header_len} bytes in a file of {len} bytes: expected at most {MAX_HEADER_BYTES} \
             bytes, inside the file"
        )));
    }
    let start = 8 + header_len;
    let header = bytes.get(8, header_len as usize, &mut scratch)?;
    // Parse the entries later: `__metadata__` is not a tensor.
    let mut header: BTreeMap<String, &RawValue> =
        serde_json::from_slice(header).map_err(|e| error(format!("the header is not JSON: {e}")))?;
    header.remove("__metadata__");
    let names: Vec<String> = header.keys().cloned().collect();
    let mut columns = Vec::new();
    for (index, name) in selector(&names)? {
        let tensor = header[&names[index]];
        let Tensor { dtype, shape, data_offsets: [data_start, data_end] } =
            serde_json::from_str(tensor.get()).map_err(|e| error(format!("tensor {name:?}: {e}")))?;
        if data_start > data_end || data_end > len - start {
            let data_bytes = len - start;
            return Err(error(format!(
                "tensor {name:?} claims bytes {data_start} to {data_end}, but the file has {data_bytes} bytes of \
                 data: it is damaged or truncated"
            )));
        }
        let Some(dtype) = dtype_from_name(&dtype) else {
            return Err(error(format!(
                "tensor {name:?} has elements of the type {dtype:?}, which is not supported: select other tensors \
                 with TableOptions::columns"
            )));
        };
        columns.push(Column::in_file(name, dtype, shape, file_index, start + data_start, data_end - data_start)?);
    }
    Ok(columns)
}

/// Returns the element type called `name`, or `None` if the type is not supported.
fn dtype_from_name(name: &str) -> Option<Dtype> {
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
        _ => return None,
    };
    Some(Dtype::little(kind, size))
}
