//! Reads the archives that `torch.save` writes: zip files with a pickle and one member per storage.

use super::column::{ArraySelector, Column};
use super::zip::{self, Member};
use crate::error::{Error, Result};
use crate::machine::bytes::Bytes;
use crate::values::elements::Dtype;
use crate::values::pickle::{self, Id, Node, Nodes, Tensor};

/// Maximum size of the pickle, in bytes. Tensor elements are in other members of the archive.
const MAX_PICKLE_BYTES: u64 = 256 << 20;

pub(super) fn columns(bytes: &dyn Bytes, file_index: usize, selector: ArraySelector<'_>) -> Result<Vec<Column>> {
    let start = bytes.get(0, bytes.len().min(4) as usize, &mut Vec::new())?.to_vec();
    if !start.starts_with(b"PK") {
        return Err(Error::in_source(
            "not a torch.save archive: the file was written by PyTorch before 1.6 or by a different program; load it \
             and save it again with a current version",
        ));
    }
    let members = zip::list_members(bytes)?;
    let find_member =
        |end: &str| members.iter().find(|member| member.name.split_once('/').is_some_and(|(_, rest)| rest == end));
    let missing = || Error::in_source("not a torch.save archive: data.pkl is missing");
    let pickle = zip::read_member(bytes, find_member("data.pkl").ok_or_else(missing)?, MAX_PICKLE_BYTES)?;
    let nodes = pickle::read_torch(&pickle)?;
    let big_endian = match find_member("byteorder") {
        Some(order) => zip::read_member(bytes, order, 64)?.starts_with(b"big"),
        None => false,
    };
    let archive = Archive { nodes: &nodes, members: &members, file_index, big_endian };
    let mut verify_budget = zip::MAX_VERIFIED_BYTES;
    // Verify storages rather than tensors, because tensors may share a storage.
    for member in members.iter().filter(|member| !member.is_deflated && is_storage(member)) {
        if let Some(rest) = verify_budget.checked_sub(member.compressed_len) {
            verify_budget = rest;
            zip::verify_checksum(bytes, member)?;
        }
    }
    let (names, ids): (Vec<String>, Vec<Id>) = archive.names()?.into_iter().unzip();
    selector(&names)?.into_iter().map(|(index, name)| archive.column(name, ids[index])).collect()
}

fn is_storage(member: &Member) -> bool {
    member.name.split_once('/').is_some_and(|(_, rest)| rest.starts_with("data/"))
}

struct Archive<'a> {
    nodes: &'a Nodes<'a>,
    members: &'a [Member],
    file_index: usize,
    big_endian: bool,
}

impl Archive<'_> {
    /// Returns the name and the ID of each array. In a dict, the key is the name. A single tensor
    /// is called `image`. In a tuple or list, a tensor is called `image` if it is the only one with
    /// more than two axes. A tensor with one axis, or a list, is called `label` if it is the only
    /// such item. All other items are named by their index.
    fn names(&self) -> Result<Vec<(String, Id)>> {
        let nodes = self.nodes;
        match nodes.root() {
            Node::Dict(pairs) => pairs
                .iter()
                .map(|&(key, value)| match (nodes.text(key), &nodes[key]) {
                    (Some(name), _) => Ok((name.to_owned(), value)),
                    (None, Node::Int(int)) => Ok((int.to_string(), value)),
                    (None, key) => Err(Error::in_source(format!(
                        "a dict has {} as a key: expected a string or an integer",
                        key.kind()
                    ))),
                })
                .collect(),
            Node::Tuple(items) | Node::List(items) => {
                let axes = |&id: &Id| match &nodes[id] {
                    Node::Tensor(tensor) => Some(tensor.shape.len()),
                    Node::List(_) => Some(1),
                    _ => None,
                };
                let only_item = |matches: &dyn Fn(usize) -> bool| {
                    let mut actual = items.iter().enumerate().filter(|(_, id)| axes(id).is_some_and(matches));
                    actual.next().filter(|_| actual.next().is_none()).map(|(index, _)| index)
                };
                let (image, label) = (only_item(&|axes| axes > 2), only_item(&|axes| axes == 1));
                let name = |index| match index {
                    index if Some(index) == image => "image".to_owned(),
                    index if Some(index) == label => "label".to_owned(),
                    index => index.to_string(),
                };
                Ok(items.iter().enumerate().map(|(index, &id)| (name(index), id)).collect())
            }
            Node::Tensor(_) => Ok(vec![("image".to_owned(), nodes.root_id())]),
            other => {
                let cause = format!(
                    "the file contains {}: expected a tensor, or a dict, list or tuple of tensors",
                    other.kind()
                );
                Err(Error::in_source(cause))
            }
        }
    }

    fn column(&self, name: String, id: Id) -> Result<Column> {
        match &self.nodes[id] {
            Node::Tensor(tensor) => self.tensor(name, tensor),
            Node::List(items) | Node::Tuple(items) => {
                let ints = items.iter().map(|&id| match self.nodes[id] {
                    Node::Int(int) => Some(int),
                    Node::Bool(truth) => Some(i64::from(truth)),
                    _ => None,
                });
                let Some(ints) = ints.collect::<Option<Vec<i64>>>() else {
                    let cause = format!("{name:?} is a list with items other than integers: save it as a tensor");
                    return Err(Error::in_source(cause));
                };
                let bytes = ints.iter().flat_map(|int| int.to_ne_bytes()).collect();
                let dtype = Dtype { big_endian: cfg!(target_endian = "big"), ..Dtype::little(b'i', 8) };
                Column::in_memory(name, dtype, vec![ints.len()], bytes)
            }
            other => {
                let kind = other.kind();
                Err(Error::in_source(format!(
                    "{name:?} is {kind}: expected a tensor; select the columns with TableOptions::columns"
                )))
            }
        }
    }

    fn tensor(&self, name: String, tensor: &Tensor) -> Result<Column> {
        let Tensor { dtype, shape, strides, offset, elements, .. } = tensor;
        let mut expected = 1_usize;
        let is_contiguous = shape.len() == strides.len()
            && shape.iter().zip(strides).rev().all(|(&side, &stride)| {
                let fits = side == 1 || stride == expected;
                expected = expected.saturating_mul(side);
                fits
            });
        if !is_contiguous && !shape.contains(&0) {
            let cause = format!(
                "tensor {name:?} of shape {shape:?} is not contiguous (strides {strides:?}): save tensor.contiguous() \
                 instead"
            );
            return Err(Error::in_source(cause));
        }
        let key = self.nodes.text(tensor.storage).unwrap_or_default();
        let end = format!("data/{key}");
        let member =
            self.members.iter().find(|member| member.name.split_once('/').is_some_and(|(_, rest)| rest == end));
        let Some(member) = member.filter(|member| !member.is_deflated) else {
            return Err(Error::in_source(format!("tensor {name:?}: the archive has no uncompressed member {end:?}")));
        };
        let size = dtype.size as u64;
        let length = shape.iter().try_fold(size, |length, &side| length.checked_mul(side as u64));
        let start = offset.checked_mul(size);
        let is_in_member = elements.checked_mul(size) == Some(member.len)
            && start
                .zip(length)
                .and_then(|(start, length)| start.checked_add(length))
                .is_some_and(|end| end <= member.len);
        let (Some(start), Some(length), true) = (start, length, is_in_member) else {
            let actual = member.len;
            return Err(Error::in_source(format!(
                "tensor {name:?} of shape {shape:?}, which starts at element {offset}, extends past the end of its \
                 storage ({actual} bytes)"
            )));
        };
        let dtype = Dtype { big_endian: self.big_endian, ..*dtype };
        Column::in_file(name, dtype, shape.clone(), self.file_index, member.offset + start, length)
    }
}
