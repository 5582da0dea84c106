//! Reads values that are pickles. A few samples of the database determine the columns.

use std::borrow::Cow;

use crate::error::{Error, Result, counted};
use crate::format;
use crate::model::Classes;
use crate::model::Sample;
use crate::model::value::Element;
use crate::options::ColumnChoice;
use crate::storage::RowBytes;
use crate::values::pickle::{self, Array, Id, Node, Nodes, append_json};
use crate::values::pixels::Colors;
use crate::values::record::{ColumnValue, NamedCell, RowConverter, Survey};

pub(super) const MAX_SURVEYED_SAMPLES: usize = 64;

#[derive(Debug)]
pub(super) struct Pickled {
    /// Column names of the items. Empty unless values are tuples or lists.
    item_names: Vec<String>,
    row_converter: RowConverter,
}

pub(super) fn is_pickle(value: &[u8]) -> bool {
    match value {
        [0x80, 2..=5, .., b'.'] => true,
        // Pickles of protocols 0 and 1 have no header, so parse the whole value.
        [b'(' | b']' | b'}', .., b'.'] => pickle::read(value).is_ok(),
        _ => false,
    }
}

impl Pickled {
    /// Determines the columns from `values`, the first of which must be readable. Later values that
    /// cannot be read are skipped, because reading their samples fails anyway.
    pub(super) fn new<'a>(values: impl Iterator<Item = Result<&'a [u8]>>, choice: &ColumnChoice) -> Result<Self> {
        let (mut item_names, mut survey, mut buffer) = (Vec::new(), Survey::default(), Vec::new());
        for (index, value) in values.enumerate() {
            let row = value.and_then(|value| {
                let nodes = pickle::read(value)?;
                if index == 0 {
                    item_names = name_items(&nodes);
                }
                buffer.clear();
                read_row(&nodes, &item_names, &mut buffer)
            });
            match row {
                Ok(row) => survey.add_row(&row, &buffer)?,
                Err(e) if index == 0 => return Err(e),
                Err(_) => {}
            }
        }
        Ok(Pickled { item_names, row_converter: survey.finish(choice)? })
    }

    /// Assigns a class index to each label if the labels are text. `values` iterates over the
    /// values of all samples. Fails if a label is not in `classes`, unless `classes` is `None` or
    /// `defer_unknown_classes` is true.
    pub(super) fn learn_labels<'a>(
        &mut self,
        values: impl Iterator<Item = Result<&'a [u8]>>,
        classes: Option<&Classes>,
        defer_unknown_classes: bool,
    ) -> Result<()> {
        let (item_names, mut buffer) = (&self.item_names, Vec::new());
        self.row_converter.learn_labels(classes, defer_unknown_classes, |label, visit| {
            for (index, value) in values.enumerate() {
                buffer.clear();
                // Ignore a value that cannot be read: reading its sample reports the error.
                let Ok(nodes) = value.and_then(pickle::read) else { continue };
                let Ok(row) = read_row(&nodes, item_names, &mut buffer) else { continue };
                for NamedCell { name, content } in row {
                    if let (true, ColumnValue::Text(value)) = (name == label, content)
                        && let Ok(text) = std::str::from_utf8(value.resolve(&buffer))
                    {
                        visit(index, text);
                    }
                }
            }
            Ok(())
        })
    }

    /// Sets the color order of pixel arrays. Returns `false` if the images are not pixel arrays.
    pub(super) fn set_colors(&mut self, colors: Colors) -> bool {
        self.row_converter.set_colors(colors)
    }

    pub(super) fn classes(&self) -> &[String] {
        self.row_converter.classes()
    }

    /// Converts `value` to a sample. Data that cannot be borrowed from `value` is appended to
    /// `buffer`, of which `key` may be a range.
    pub(super) fn sample<'a>(
        &'a self,
        key: RowBytes<'a>,
        value: &'a [u8],
        buffer: &'a mut Vec<u8>,
    ) -> Result<Sample<'a>> {
        let row = read_row(&pickle::read(value)?, &self.item_names, buffer)?;
        self.row_converter.sample(key, row, buffer)
    }
}

fn items<'n>(node: &'n Node<'_>) -> Option<&'n [Id]> {
    match node {
        Node::Tuple(items) | Node::List(items) => Some(items),
        _ => None,
    }
}

/// Names the items of the tuple or list at the root. The only encoded image is called `image`, or
/// else the only array with several axes if its elements are `uint8`, or else the only bytes. The
/// only integer is called `label`. All other items are named by their index. If the root is not a
/// tuple or list, there are no items to name.
fn name_items(nodes: &Nodes<'_>) -> Vec<String> {
    let Some(items) = items(nodes.root()) else { return Vec::new() };
    let only_item = |matches: &dyn Fn(&Node<'_>) -> bool| {
        let mut matching = (0..items.len()).filter(|&index| matches(&nodes[items[index]]));
        matching.next().filter(|_| matching.next().is_none())
    };
    // Count arrays of all element types. If the image is an array of floats, a `uint8` mask next to
    // it must not be mistaken for the image.
    let is_array = |node: &Node<'_>| matches!(node, Node::Array(Array { shape, .. }) if shape.len() >= 2);
    let is_pixels = |&index: &usize| match &nodes[items[index]] {
        Node::Array(Array { dtype, .. }) => dtype.element().is_ok_and(|element| element == Element::U8),
        _ => false,
    };
    let image = only_item(&|node| matches!(node, Node::Bytes(bytes) if format::detect(bytes).is_some()));
    let image = image
        .or_else(|| only_item(&is_array).filter(is_pixels))
        .or_else(|| only_item(&|node| matches!(node, Node::Bytes(_))));
    let label = only_item(&|node| match node {
        Node::Int(_) => true,
        Node::Array(array) => array.shape.is_empty() && matches!(array.dtype.kind, b'i' | b'u'),
        _ => false,
    });
    let name = |index| match index {
        index if Some(index) == image => "image".to_owned(),
        index if Some(index) == label => "label".to_owned(),
        index => index.to_string(),
    };
    (0..items.len()).map(name).collect()
}

fn read_row<'a>(nodes: &Nodes<'a>, item_names: &[String], buffer: &mut Vec<u8>) -> Result<Vec<NamedCell<'a>>> {
    if let Some(items) = items(nodes.root()) {
        if items.len() != item_names.len() {
            let (actual, first) = (counted(items.len(), "item", "items"), item_names.len());
            return Err(Error::in_source(format!(
                "the value is a tuple or list with {actual}: expected {first}, like the first sample"
            )));
        }
        let cell = |(name, &id): (&String, &Id)| read_cell(nodes, Cow::Owned(name.clone()), id, buffer);
        return item_names.iter().zip(items).map(cell).collect();
    }
    match nodes.root() {
        Node::Dict(pairs) => pairs
            .iter()
            .map(|&(key, value)| match (nodes.text(key), &nodes[key]) {
                (Some(name), _) => read_cell(nodes, Cow::Owned(name.to_owned()), value, buffer),
                (None, Node::Int(int)) => read_cell(nodes, Cow::Owned(int.to_string()), value, buffer),
                (None, key) => Err(Error::in_source(format!(
                    "pickle: a dict has {} as a key: expected a string or an integer",
                    key.kind()
                ))),
            })
            .collect(),
        Node::Bytes(_) | Node::Array(_) => Ok(vec![read_cell(nodes, Cow::Borrowed("image"), nodes.root_id(), buffer)?]),
        other => Err(Error::in_source(format!(
            "the value is a pickle that contains {}: expected a dict, a tuple, a list, bytes or an array",
            other.kind()
        ))),
    }
}

fn read_cell<'a>(nodes: &Nodes<'a>, name: Cow<'a, str>, id: Id, buffer: &mut Vec<u8>) -> Result<NamedCell<'a>> {
    let start = buffer.len();
    let number = |element, bytes: [u8; 8], buffer: &mut Vec<u8>| {
        buffer.extend_from_slice(&bytes);
        ColumnValue::number(element, RowBytes::page_tail(start, buffer))
    };
    let append_bytes = |bytes: &[u8], buffer: &mut Vec<u8>| {
        buffer.extend_from_slice(bytes);
        RowBytes::page_tail(start, buffer)
    };
    let with_name = |e: Error| Error::in_source(format!("{name:?}: {}", e.cause()));
    let content = match &nodes[id] {
        Node::None => ColumnValue::Null,
        Node::Bool(truth) => number(Element::I64, i64::from(*truth).to_ne_bytes(), buffer),
        Node::Int(int) => number(Element::I64, int.to_ne_bytes(), buffer),
        Node::Float(float) => number(Element::F64, float.to_ne_bytes(), buffer),
        Node::Bytes(Cow::Borrowed(bytes)) => ColumnValue::Bytes(RowBytes::Borrowed(bytes)),
        Node::Bytes(bytes) => ColumnValue::Bytes(append_bytes(bytes, buffer)),
        Node::Text(Cow::Borrowed(text)) => ColumnValue::Text(RowBytes::Borrowed(text.as_bytes())),
        Node::Text(text) => ColumnValue::Text(append_bytes(text.as_bytes(), buffer)),
        Node::Array(array) => {
            let element = array.dtype.element().map_err(with_name)?;
            let data = match &nodes[array.data] {
                Node::Bytes(Cow::Borrowed(bytes)) if array.dtype.is_native() => RowBytes::Borrowed(bytes),
                _ => {
                    array.dtype.convert(nodes.bytes(array), buffer);
                    RowBytes::page_tail(start, buffer)
                }
            };
            ColumnValue::array(element, &array.shape, data)
        }
        Node::Tuple(_) | Node::List(_) | Node::Dict(_) => {
            append_json(nodes, id, buffer).map_err(with_name)?;
            ColumnValue::Json(RowBytes::page_tail(start, buffer))
        }
        other => {
            return Err(with_name(Error::in_source(format!("pickle: {} is not supported as a value", other.kind()))));
        }
    };
    Ok(NamedCell { name, content })
}

/// Returns the strings in a pickled list or tuple of strings, or `None` if `value` is anything
/// else.
pub(super) fn classes(value: &[u8]) -> Option<Vec<String>> {
    let nodes = pickle::read(value).ok()?;
    items(nodes.root())?.iter().map(|&id| nodes.text(id).map(str::to_owned)).collect()
}
