//! Rebuilds the results of calls to a fixed list of functions and classes, without running Python.
//! Errors have no location; the caller adds it.

use std::borrow::Cow;

use super::nodes::{Array, Callable, Id, Node, Nodes, Tensor};
use crate::values::elements::Dtype;

impl Callable {
    /// Returns the callable `module.name`, if it is on the list. The list contains PyTorch's names
    /// only if `allows_torch` is true.
    pub(super) fn find(module: &str, name: &str, allows_torch: bool) -> Option<Self> {
        let builtins = ["builtins", "__builtin__"];
        // NumPy 2 renamed `core` to `_core`.
        let numpy = |part: &str| {
            module.strip_prefix("numpy.").is_some_and(|rest| {
                rest.strip_prefix("_core.").or(rest.strip_prefix("core.")).is_some_and(|rest| rest == part)
            })
        };
        Some(match name {
            "encode" if module == "_codecs" => Callable::Encode,
            "bytes" if builtins.contains(&module) => Callable::Bytes,
            "bytearray" if builtins.contains(&module) => Callable::ByteArray,
            "OrderedDict" if module == "collections" => Callable::OrderedDict,
            "ndarray" if module == "numpy" => Callable::NdArray,
            "dtype" if module == "numpy" => Callable::Dtype,
            "_reconstruct" if numpy("multiarray") => Callable::Reconstruct,
            "scalar" if numpy("multiarray") => Callable::Scalar,
            "_frombuffer" if numpy("numeric") => Callable::FromBuffer,
            "_rebuild_tensor_v2" if allows_torch && module == "torch._utils" => Callable::RebuildTensor,
            "_rebuild_parameter" if allows_torch && module == "torch._utils" => Callable::RebuildParameter,
            "Size" if allows_torch && module == "torch" => Callable::Size,
            name if allows_torch && module == "torch" => Callable::Storage(storage_dtype(name)?),
            _ => return None,
        })
    }

    fn python_name(self) -> &'static str {
        match self {
            Callable::Encode => "_codecs.encode",
            Callable::Bytes => "bytes",
            Callable::ByteArray => "bytearray",
            Callable::OrderedDict => "collections.OrderedDict",
            Callable::NdArray => "numpy.ndarray",
            Callable::Dtype => "numpy.dtype",
            Callable::Reconstruct => "numpy._core.multiarray._reconstruct",
            Callable::Scalar => "numpy._core.multiarray.scalar",
            Callable::FromBuffer => "numpy._core.numeric._frombuffer",
            Callable::RebuildTensor => "torch._utils._rebuild_tensor_v2",
            Callable::RebuildParameter => "torch._utils._rebuild_parameter",
            Callable::Size => "torch.Size",
            Callable::Storage(_) => "a torch storage class",
        }
    }
}

fn storage_dtype(name: &str) -> Option<Dtype> {
    let (kind, size) = match name {
        "ByteStorage" => (b'u', 1),
        "CharStorage" => (b'i', 1),
        "ShortStorage" => (b'i', 2),
        "IntStorage" => (b'i', 4),
        "LongStorage" => (b'i', 8),
        "HalfStorage" => (b'f', 2),
        "FloatStorage" => (b'f', 4),
        "DoubleStorage" => (b'f', 8),
        "BoolStorage" => (b'b', 1),
        _ => return None,
    };
    Some(Dtype::little(kind, size))
}

/// Evaluates a call to `function`.
pub(super) fn call<'a>(nodes: &Nodes<'a>, function: Callable, arguments: &[Id]) -> Result<Node<'a>, String> {
    let error = || Err(format!("unexpected arguments for {}", function.python_name()));
    Ok(match (function, arguments) {
        (Callable::Bytes | Callable::ByteArray, []) => Node::Bytes(Cow::Borrowed(b"")),
        (Callable::Encode | Callable::ByteArray, &[text, coding]) => {
            let (Node::Text(text), Some("latin1" | "latin-1")) = (&nodes[text], nodes.text(coding)) else {
                return error();
            };
            let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(c).ok()).collect();
            let Some(bytes) = bytes else { return Err("text is not latin-1".to_owned()) };
            Node::Bytes(Cow::Owned(bytes))
        }
        (Callable::Bytes | Callable::ByteArray, &[bytes]) => match &nodes[bytes] {
            Node::Bytes(bytes) => Node::Bytes(bytes.clone()),
            _ => return error(),
        },
        (Callable::OrderedDict, []) => Node::Dict(Vec::new()),
        (Callable::Reconstruct, &[class, ..]) if matches!(nodes[class], Node::Callable(Callable::NdArray)) => {
            Node::UnbuiltArray
        }
        (Callable::Dtype, &[name, ..]) => match nodes.text(name).and_then(parse_dtype) {
            Some(dtype) => Node::Dtype(dtype),
            None => return error(),
        },
        (Callable::Scalar, &[dtype, data]) => build_array(nodes, dtype, Vec::new(), data)?,
        (Callable::FromBuffer, &[data, dtype, shape, order]) => {
            let shape = array_shape(nodes, shape)?;
            check_order(nodes.text(order) == Some("F"), &shape)?;
            build_array(nodes, dtype, shape, data)?
        }
        (Callable::Size, &[lengths]) => match &nodes[lengths] {
            Node::Tuple(lengths) if lengths.len() <= MAX_AXES => Node::Tuple(lengths.clone()),
            _ => return error(),
        },
        (Callable::RebuildParameter, &[tensor, ..]) => match &nodes[tensor] {
            Node::Tensor(tensor) => Node::Tensor(tensor.clone()),
            _ => return error(),
        },
        (Callable::RebuildTensor, &[storage, offset, shape, strides, ..]) => {
            // The seventh argument may contain metadata that marks the tensor as negated.
            let plain = |id: &Id| match &nodes[*id] {
                Node::None => true,
                Node::Dict(pairs) => pairs.is_empty(),
                _ => false,
            };
            if !arguments.get(6).is_none_or(plain) {
                return Err("a tensor has metadata and may be a negated view: store tensor.clone() instead".to_owned());
            }
            let (Node::Storage { key, dtype, elements }, &Node::Int(offset)) = (&nodes[storage], &nodes[offset]) else {
                return error();
            };
            let (Some(shape), Some(strides)) = (read_lengths(nodes, shape), read_lengths(nodes, strides)) else {
                return error();
            };
            let Ok(offset) = u64::try_from(offset) else { return error() };
            Node::Tensor(Box::new(Tensor { dtype: *dtype, shape, strides, offset, storage: *key, elements: *elements }))
        }
        _ => return error(),
    })
}

/// Evaluates the opcode `BUILD`, which sets the state of `target`.
pub(super) fn build<'a>(nodes: &Nodes<'a>, target: Id, state: Id) -> Result<Node<'a>, String> {
    let state = match &nodes[state] {
        Node::Tuple(state) => &state[..],
        _ => &[],
    };
    match (&nodes[target], state) {
        (&Node::Dtype(dtype), &[_version, order, ..]) => match nodes.text(order) {
            Some(order @ ("<" | ">" | "|" | "=")) => Ok(Node::Dtype(Dtype { big_endian: order == ">", ..dtype })),
            Some(order) => Err(format!("the byte order of a NumPy type is {order:?}: expected <, >, | or =")),
            None => Err(format!("the byte order of a NumPy type is {}: expected text", nodes[order].kind())),
        },
        (Node::UnbuiltArray, &[_version, shape, dtype, fortran, data]) => {
            let shape = array_shape(nodes, shape)?;
            check_order(!matches!(nodes[fortran], Node::Bool(false) | Node::Int(0)), &shape)?;
            build_array(nodes, dtype, shape, data)
        }
        (node, _) => Err(format!("cannot set the state of {}", node.kind())),
    }
}

/// Returns the storage with the persistent ID `id`.
pub(super) fn storage_of<'a>(nodes: &Nodes<'a>, id: Id) -> Result<Node<'a>, String> {
    let Node::Tuple(parts) = &nodes[id] else { return Err("a persistent ID is not a tuple".to_owned()) };
    let &[tag, class, key, _device, elements] = &parts[..] else {
        return Err(format!("a persistent ID has {} parts: expected 5", parts.len()));
    };
    let (Some("storage"), Node::Callable(Callable::Storage(dtype)), Some(_), &Node::Int(elements)) =
        (nodes.text(tag), &nodes[class], nodes.text(key), &nodes[elements])
    else {
        return Err("a persistent ID does not denote a storage".to_owned());
    };
    let elements = u64::try_from(elements).map_err(|_| "a storage has a negative length".to_owned())?;
    Ok(Node::Storage { key, dtype: *dtype, elements })
}

/// Rejects Fortran order if more than one side differs from 1.
fn check_order(fortran: bool, shape: &[usize]) -> Result<(), String> {
    if fortran && shape.iter().filter(|&&side| side != 1).count() > 1 {
        return Err("an array is in Fortran order: store numpy.ascontiguousarray(array) instead".to_owned());
    }
    Ok(())
}

fn build_array<'a>(nodes: &Nodes<'a>, dtype: Id, shape: Vec<usize>, data: Id) -> Result<Node<'a>, String> {
    let Node::Dtype(dtype) = nodes[dtype] else { return Err("an array has no element type".to_owned()) };
    if dtype.kind == b'O' {
        return Err("an array contains Python objects".to_owned());
    }
    let Node::Bytes(bytes) = &nodes[data] else {
        return Err(format!("the content of an array is {}: expected bytes", nodes[data].kind()));
    };
    let claimed = shape.iter().try_fold(dtype.size, |size, &side| size.checked_mul(side));
    if claimed != Some(bytes.len()) {
        return Err(format!(
            "an array of shape {shape:?} with {} bytes per element has {} bytes of data",
            dtype.size,
            bytes.len()
        ));
    }
    Ok(Node::Array(Array { dtype, shape, data }))
}

/// Maximum number of axes of an array, a tensor or a `torch.Size` in a pickle.
const MAX_AXES: usize = 8;

fn array_shape(nodes: &Nodes<'_>, shape: Id) -> Result<Vec<usize>, String> {
    read_lengths(nodes, shape).ok_or_else(|| {
        format!("the shape of an array is {}: expected a tuple of at most {MAX_AXES} lengths", nodes[shape].kind())
    })
}

fn read_lengths(nodes: &Nodes<'_>, tuple: Id) -> Option<Vec<usize>> {
    let Node::Tuple(axes) = &nodes[tuple] else { return None };
    let length = |&axis: &Id| match nodes[axis] {
        Node::Int(length) => usize::try_from(length).ok(),
        _ => None,
    };
    (axes.len() <= MAX_AXES).then(|| axes.iter().map(length).collect())?
}

/// Parses the name of a simple type, such as `f4` or `|u1`.
fn parse_dtype(name: &str) -> Option<Dtype> {
    let plain = name.trim_start_matches(['<', '>', '|', '=']);
    let kind = *plain.as_bytes().first().filter(|kind| kind.is_ascii_alphabetic())?;
    let size: usize = plain[1..].parse().ok()?;
    // The size of a `U` type is the number of characters, each of which takes four bytes.
    let size = if kind == b'U' { size.checked_mul(4)? } else { size };
    Some(Dtype { kind, size, big_endian: name.starts_with('>') })
}
