//! [`Nodes`]: the values in a pickle.

use std::borrow::Cow;
use std::ops::Index;

use crate::values::elements::Dtype;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Id(pub(super) u32);

/// A value in a pickle. Bytes and text are borrowed from the pickle, unless they are stored in an
/// escaped form or were converted by a call.
#[derive(Debug)]
pub(crate) enum Node<'a> {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Bytes(Cow<'a, [u8]>),
    Text(Cow<'a, str>),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// An array or a scalar of NumPy. A scalar has no axes.
    Array(Array),
    Tensor(Box<Tensor>),
    Callable(Callable),
    Dtype(Dtype),
    UnbuiltArray,
    /// A PyTorch storage: a file in a `.pt` archive with the elements of one or more tensors. `key`
    /// is a text node with the name of the file.
    Storage {
        key: Id,
        dtype: Dtype,
        elements: u64,
    },
}

/// A NumPy array in C order.
#[derive(Debug, Clone)]
pub(crate) struct Array {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    /// Node with the bytes of the elements. The number of bytes matches the shape.
    pub(crate) data: Id,
}

/// A PyTorch tensor. Its elements are in a separate file of the archive.
#[derive(Debug, Clone)]
pub(crate) struct Tensor {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<usize>,
    /// Index of the first element in the storage.
    pub(crate) offset: u64,
    /// Text node with the name of the storage.
    pub(crate) storage: Id,
    /// Number of elements in the storage.
    pub(crate) elements: u64,
}

/// A function or class that a pickle of plain data may call. It is recognized by name and never
/// called: the arguments are interpreted as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Callable {
    /// `_codecs.encode`, which protocols 0 to 2 call to represent bytes.
    Encode,
    Bytes,
    ByteArray,
    OrderedDict,
    NdArray,
    Reconstruct,
    FromBuffer,
    Scalar,
    Dtype,
    RebuildTensor,
    RebuildParameter,
    Size,
    /// A PyTorch storage class, such as `FloatStorage`.
    Storage(Dtype),
}

#[derive(Debug)]
pub(crate) struct Nodes<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    pub(super) root: Id,
}

impl<'a> Nodes<'a> {
    pub(crate) fn root(&self) -> &Node<'a> {
        &self[self.root]
    }

    pub(crate) fn root_id(&self) -> Id {
        self.root
    }

    /// Returns the text in a node. Accepts text that is stored as bytes, because Python 2 wrote
    /// names as bytes.
    pub(crate) fn text(&self, id: Id) -> Option<&str> {
        match &self[id] {
            Node::Text(text) => Some(text),
            Node::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    pub(crate) fn bytes(&self, array: &Array) -> &[u8] {
        match &self[array.data] {
            Node::Bytes(bytes) => bytes,
            _ => unreachable!("checked when the array was created"),
        }
    }
}

impl<'a> Index<Id> for Nodes<'a> {
    type Output = Node<'a>;

    fn index(&self, id: Id) -> &Node<'a> {
        &self.nodes[id.0 as usize]
    }
}

impl Node<'_> {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Node::None => "None",
            Node::Bool(_) => "a bool",
            Node::Int(_) => "an int",
            Node::Float(_) => "a float",
            Node::Bytes(_) => "bytes",
            Node::Text(_) => "a str",
            Node::Tuple(_) => "a tuple",
            Node::List(_) => "a list",
            Node::Dict(_) => "a dict",
            Node::Array(_) => "an array",
            Node::Tensor(_) => "a tensor",
            Node::Callable(_) => "a function or class",
            Node::Dtype(_) => "a dtype",
            Node::UnbuiltArray => "an array without content",
            Node::Storage { .. } => "a storage",
        }
    }
}
