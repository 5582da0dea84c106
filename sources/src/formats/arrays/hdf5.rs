//! Reads HDF5 files. The `hdf5_pure` crate parses the metadata and reads compact arrays. The
//! elements of all other arrays are read directly from the file.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hdf5_pure::{Dataset, Datatype, DatatypeByteOrder, File, FormatError, Group, Layout, Source};

use super::chunks::ChunkedArray;
use super::column::{ArraySelector, Column, Heap, Storage};
use super::filters::Filter;
use crate::error::{Error, Result};
use crate::storage::OpenFile;
use crate::values::elements::Dtype;

const MAX_DEPTH: usize = 8;
const MAX_ARRAYS: usize = 4096;
const MAX_METADATA_BYTES: usize = 256 << 20;

struct MetadataReader(Arc<OpenFile>);

impl Source for MetadataReader {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), FormatError> {
        let failed = |e: Error| FormatError::Source(e.cause().to_owned());
        if out.len() > MAX_METADATA_BYTES {
            return Err(FormatError::Source(format!(
                "a metadata block has {} bytes, more than the limit of 256 MiB",
                out.len()
            )));
        }
        let mut scratch = Vec::new();
        let bytes = self.0.get(offset, out.len() as u64, &mut scratch).map_err(failed)?;
        if bytes.len() != out.len() {
            return Err(FormatError::UnexpectedEof { expected: out.len(), available: bytes.len() });
        }
        out.copy_from_slice(bytes);
        Ok(())
    }
}

/// Returns the arrays that `selector` selects. The name of an array is its path, such as
/// `group/images`. A panic of the parser becomes an error.
pub(super) fn columns(file: &Arc<OpenFile>, file_index: usize, selector: ArraySelector<'_>) -> Result<Vec<Column>> {
    let parsed = catch_unwind(AssertUnwindSafe(|| read_columns(file, file_index, selector)));
    parsed.unwrap_or_else(|_| Err(Error::in_source("HDF5: the file is damaged")))
}

fn read_columns(file: &Arc<OpenFile>, file_index: usize, selector: ArraySelector<'_>) -> Result<Vec<Column>> {
    let opened = File::from_source(MetadataReader(file.clone())).map_err(library_error)?;
    let (declared_len, len) = (opened.superblock().eof_address, file.len());
    if declared_len > len {
        return Err(Error::in_source(format!(
            "HDF5: truncated file: {len} of {declared_len} bytes; copy the file again"
        )));
    }
    let mut paths = Vec::new();
    list_arrays(&opened.root(), "", 0, &mut paths)?;
    // Sort, because the order in the file depends on the version of the HDF5 library that wrote it.
    paths.sort();
    let selected = selector(&paths)?;
    let column = |(index, name): (usize, String)| {
        let dataset = opened.dataset(&paths[index]).map_err(library_error)?;
        read_column(&opened, &dataset, name.clone(), file_index, file.len())
            .map_err(|e| Error::in_source(format!("array {name:?}: {}", e.cause())))
    };
    selected.into_iter().map(column).collect()
}

fn list_arrays(group: &Group, path: &str, depth: usize, paths: &mut Vec<String>) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(Error::in_source(format!("HDF5: groups are nested more than {MAX_DEPTH} deep")));
    }
    let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
    paths.extend(group.datasets().map_err(library_error)?.iter().map(|name| join(name)));
    if paths.len() > MAX_ARRAYS {
        return Err(Error::in_source(format!("HDF5: more than {MAX_ARRAYS} arrays")));
    }
    for name in group.groups().map_err(library_error)? {
        list_arrays(&group.group(&name).map_err(library_error)?, &join(&name), depth + 1, paths)?;
    }
    Ok(())
}

fn library_error(e: hdf5_pure::Error) -> Error {
    let cause = e.to_string();
    let advice = match cause.contains("data layout version: 5") {
        true => {
            "; HDF5 2.0 writes this layout for libver=\"latest\": rewrite the file with libver=(\"v108\", \"v114\")"
        }
        false => "",
    };
    Error::in_source(format!("HDF5: {cause}{advice}"))
}

/// `len` is the length of the file in bytes.
fn read_column(file: &File, dataset: &Dataset, name: String, file_index: usize, len: u64) -> Result<Column> {
    let sides = dataset.shape().map_err(library_error)?;
    let too_large = |_| Error::in_source(format!("shape {sides:?} exceeds the address space of this machine"));
    let shape: Vec<usize> =
        sides.iter().map(|&side| usize::try_from(side)).collect::<Result<_, _>>().map_err(too_large)?;
    let (dtype, heap) = element_type(file, &dataset.datatype().map_err(library_error)?)?;
    let mut column = match dataset.layout().map_err(library_error)? {
        // Scalars are ignored later, so their values are not read.
        _ if shape.is_empty() => Column::in_memory(name, dtype, shape, vec![0; dtype.size])?,
        Layout::Contiguous { address: Some(address), size } => {
            if address.checked_add(size).is_none_or(|end| end > len) {
                return Err(Error::in_source(format!(
                    "its {size} bytes of data at byte {address} extend past the end of the file ({len} bytes): the \
                     file is truncated"
                )));
            }
            Column::in_file(name, dtype, shape, file_index, address, size)?
        }
        Layout::Compact { .. } => {
            let bytes = dataset.read_raw().map_err(library_error)?;
            Column::in_memory(name, dtype, shape, bytes)?
        }
        Layout::Chunked { chunk_shape, .. } => {
            let filters: Vec<_> = dataset
                .filter_pipeline()
                .iter()
                .map(|filter| Filter::from_id(filter.id, &filter.client_data))
                .collect::<Result<_>>()?;
            let chunk_records = dataset.chunks().map_err(library_error)?;
            let chunk_records = chunk_records
                .into_iter()
                .map(|chunk| (chunk.offset, chunk.address, chunk.storage_size, chunk.filter_mask));
            let chunks = ChunkedArray::new(file_index, len, &shape, dtype.size, &chunk_shape, filters, chunk_records)?;
            Column { name, dtype, shape, storage: Storage::ChunkedArray(chunks), heap: None }
        }
        Layout::Virtual => {
            return Err(Error::in_source(
                "virtual datasets are not supported, because they refer to other files: store the data in this file",
            ));
        }
        _ => return Err(Error::in_source("its elements were never written")),
    };
    column.heap = heap;
    if column.heap.is_some() && column.shape.len() != 1 {
        return Err(Error::in_source(format!(
            "variable-length values in an array of shape {:?}: expected one axis",
            column.shape
        )));
    }
    Ok(column)
}

/// Returns the element type. For variable-length values, also returns the heaps that contain them.
fn element_type(file: &File, datatype: &Datatype) -> Result<(Dtype, Option<Heap>)> {
    let dtype = |kind: u8, size: u32, order: &DatatypeByteOrder| {
        let big_endian = *order == DatatypeByteOrder::BigEndian;
        (Dtype { kind, size: size as usize, big_endian }, None)
    };
    let uses_all_bits = |offset: u16, precision: u16, size: u32| offset == 0 && u32::from(precision) == 8 * size;
    Ok(match datatype {
        Datatype::FixedPoint { size, byte_order, layout }
            if uses_all_bits(layout.bit_offset, layout.bit_precision, *size) =>
        {
            dtype(if layout.signed { b'i' } else { b'u' }, *size, byte_order)
        }
        Datatype::FloatingPoint { size, byte_order, layout }
            if uses_all_bits(layout.bit_offset, layout.bit_precision, *size)
                && matches!((size, layout.exponent_size), (2, 5) | (4, 8) | (8, 11)) =>
        {
            dtype(b'f', *size, byte_order)
        }
        Datatype::Enumeration { base_type, .. } => element_type(file, base_type)?,
        Datatype::VariableLength { is_string, base_type, .. }
            if *is_string || matches!(**base_type, Datatype::FixedPoint { size: 1, .. }) =>
        {
            let superblock = file.superblock();
            let (offset, length) = (usize::from(superblock.offset_size), usize::from(superblock.length_size));
            if offset != 8 || length != 8 {
                return Err(Error::in_source(format!(
                    "variable-length values with {offset}-byte addresses and {length}-byte lengths: expected 8 bytes \
                     each"
                )));
            }
            // Each element is a reference: a length, a heap address and an index (see `Heap::read_value`).
            let heap = Heap { is_text: *is_string, base_offset: superblock.base_address.get() };
            (Dtype::little(b'V', 4 + offset + 4), Some(heap))
        }
        Datatype::String { size, .. } => dtype(b'S', *size, &DatatypeByteOrder::LittleEndian),
        Datatype::Compound { size, .. } | Datatype::Opaque { size, .. } => {
            dtype(b'V', *size, &DatatypeByteOrder::LittleEndian)
        }
        _ => (Dtype::little(b'V', 1), None),
    })
}
