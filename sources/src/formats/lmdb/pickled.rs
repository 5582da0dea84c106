//! Pickled values in an LMDB database. The columns are determined from a few samples.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::format;
use crate::medium::Part;
use crate::model::Classes;
use crate::model::Sample;
use crate::model::value::Element;
use crate::options::Wanted;
use crate::values::pickle::{self, Array, Id, Node, Nodes, append_json};
use crate::values::pixels::Colors;
use crate::values::record::{Found, Named, Rows, Survey};

/// Maximum number of samples that are read on opening to find the columns.
pub(super) const SURVEYED: usize = 64;

/// Values that are pickles of plain data: dicts, tuples and lists.
#[derive(Debug)]
pub(super) struct Pickled {
    /// Column names for the items of a tuple or list.
    places: Vec<String>,
    rows: Rows,
}

/// Returns whether a value looks like a pickle.
pub(super) fn is_pickle(value: &[u8]) -> bool {
    match value {
        [0x80, 2..=5, .., b'.'] => true,
        // Pickles in protocols 0 and 1 have no header, so parse the whole value.
        [b'(' | b']' | b'}', .., b'.'] => pickle::read(value).is_ok(),
        _ => false,
    }
}

impl Pickled {
    /// Finds the columns in `values`. A damaged first value is an error. Other damaged values are
    /// skipped, and fail only when they are read.
    ///
    /// # Errors
    /// If the first value is not plain data, or the columns do not form samples.
    pub(super) fn new<'a>(values: impl Iterator<Item = Result<&'a [u8]>>, wanted: &Wanted) -> Result<Self> {
        let (mut places, mut survey, mut page) = (Vec::new(), Survey::default(), Vec::new());
        for (number, value) in values.enumerate() {
            let row = value.and_then(|value| {
                let nodes = pickle::read(value)?;
                if number == 0 {
                    places = names_of_places(&nodes);
                }
                page.clear();
                row(&nodes, &places, &mut page)
            });
            match row {
                Ok(row) => survey.see(&row, &page)?,
                Err(e) if number == 0 => return Err(e),
                Err(_) => {}
            }
        }
        Ok(Pickled { places, rows: survey.finish(wanted)? })
    }

    /// Assigns a class index to each label if labels are text. `values` iterates over all values of
    /// the database.
    ///
    /// # Errors
    /// If `classes` is given and does not contain a label, unless `lenient` is set.
    pub(super) fn learn<'a>(
        &mut self,
        values: impl Iterator<Item = Result<&'a [u8]>>,
        classes: Option<&Classes>,
        lenient: bool,
    ) -> Result<()> {
        let (places, mut page) = (&self.places, Vec::new());
        self.rows.learn(classes, lenient, |label, see| {
            for (number, value) in values.enumerate() {
                page.clear();
                // Skip damaged values here. They fail when they are read.
                let Ok(nodes) = value.and_then(pickle::read) else { continue };
                let Ok(row) = row(&nodes, places, &mut page) else { continue };
                for Named { name, content } in row {
                    if let (true, Found::Text(part)) = (name == label, content)
                        && let Ok(text) = std::str::from_utf8(part.of(&page))
                    {
                        see(number, text);
                    }
                }
            }
            Ok(())
        })
    }

    /// Sets the color order of pixel arrays. Returns `false` if the images are not pixel arrays.
    pub(super) fn set_colors(&mut self, colors: Colors) -> bool {
        self.rows.set_colors(colors)
    }

    /// Returns the class names if the labels are text.
    pub(super) fn classes(&self) -> &[String] {
        self.rows.classes()
    }

    /// Returns the sample in `value`. `key` refers to `page` or borrows its bytes.
    pub(super) fn sample<'a>(&'a self, key: Part<'a>, value: &'a [u8], page: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let row = row(&pickle::read(value)?, &self.places, page)?;
        self.rows.sample(key, row, page)
    }
}

/// Returns the items of a tuple or list, or `None` for any other node.
fn items<'n>(node: &'n Node<'_>) -> Option<&'n [Id]> {
    match node {
        Node::Tuple(items) | Node::List(items) => Some(items),
        _ => None,
    }
}

/// Names the items of the tuple or list at the root. If exactly one item is an image, it is called
/// `image`. If exactly one item is an integer, it is called `label`. Other items are named by their
/// position.
fn names_of_places(nodes: &Nodes<'_>) -> Vec<String> {
    let Some(items) = items(nodes.root()) else { return Vec::new() };
    let only = |is: &dyn Fn(&Node<'_>) -> bool| {
        let mut found = (0..items.len()).filter(|&place| is(&nodes[items[place]]));
        found.next().filter(|_| found.next().is_none())
    };
    // Consider only a single array, and only if its elements are bytes: next to an image of floats,
    // an array of bytes may be its mask.
    let array = |node: &Node<'_>| matches!(node, Node::Array(Array { shape, .. }) if shape.len() >= 2);
    let pixels = |&place: &usize| matches!(&nodes[items[place]], Node::Array(Array { dtype, .. }) if dtype.element().is_ok_and(|element| element == Element::U8));
    let image = only(&|node| matches!(node, Node::Bytes(bytes) if format::of(bytes).is_some()));
    let image = image.or_else(|| only(&array).filter(pixels)).or_else(|| only(&|node| matches!(node, Node::Bytes(_))));
    let label = only(&|node| match node {
        Node::Int(_) => true,
        Node::Array(array) => array.shape.is_empty() && matches!(array.dtype.kind, b'i' | b'u'),
        _ => false,
    });
    let name = |place| match place {
        place if Some(place) == image => "image".to_owned(),
        place if Some(place) == label => "label".to_owned(),
        place => place.to_string(),
    };
    (0..items.len()).map(name).collect()
}

/// Returns the columns of a sample, whose value is at the root of `nodes`.
fn row<'a>(nodes: &Nodes<'a>, places: &[String], page: &mut Vec<u8>) -> Result<Vec<Named<'a>>> {
    if let Some(items) = items(nodes.root()) {
        if items.len() != places.len() {
            let (found, first) = (items.len(), places.len());
            return Err(Error::in_source(format!("a tuple of {found} values: the first sample has {first}")));
        }
        let cell = |(name, &id): (&String, &Id)| cell(nodes, Cow::Owned(name.clone()), id, page);
        return places.iter().zip(items).map(cell).collect();
    }
    match nodes.root() {
        Node::Dict(pairs) => pairs
            .iter()
            .map(|&(key, value)| match (nodes.text(key), &nodes[key]) {
                (Some(name), _) => cell(nodes, Cow::Owned(name.to_owned()), value, page),
                (None, Node::Int(number)) => cell(nodes, Cow::Owned(number.to_string()), value, page),
                (None, key) => {
                    Err(Error::in_source(format!("pickle: a dict has {} as a key: expected text", key.kind())))
                }
            })
            .collect(),
        Node::Bytes(_) | Node::Array(_) => Ok(vec![cell(nodes, Cow::Borrowed("image"), nodes.root_id(), page)?]),
        other => Err(Error::in_source(format!(
            "the value is a pickle of {}: expected a dict, a tuple, a list, bytes or an array",
            other.kind()
        ))),
    }
}

fn cell<'a>(nodes: &Nodes<'a>, name: Cow<'a, str>, id: Id, page: &mut Vec<u8>) -> Result<Named<'a>> {
    let start = page.len();
    let number = |element, bytes: [u8; 8], page: &mut Vec<u8>| {
        page.extend_from_slice(&bytes);
        Found::number(element, Part::since(start, page))
    };
    let owned = |bytes: &[u8], page: &mut Vec<u8>| {
        page.extend_from_slice(bytes);
        Part::since(start, page)
    };
    let named = |e: Error| Error::in_source(format!("{name:?}: {}", e.cause()));
    let content = match &nodes[id] {
        Node::None => Found::Null,
        Node::Bool(truth) => number(Element::I64, i64::from(*truth).to_ne_bytes(), page),
        Node::Int(int) => number(Element::I64, int.to_ne_bytes(), page),
        Node::Float(float) => number(Element::F64, float.to_ne_bytes(), page),
        Node::Bytes(Cow::Borrowed(bytes)) => Found::Bytes(Part::Borrowed(bytes)),
        Node::Bytes(bytes) => Found::Bytes(owned(bytes, page)),
        Node::Text(Cow::Borrowed(text)) => Found::Text(Part::Borrowed(text.as_bytes())),
        Node::Text(text) => Found::Text(owned(text.as_bytes(), page)),
        Node::Array(array) => {
            let element = array.dtype.element().map_err(named)?;
            let data = match &nodes[array.data] {
                Node::Bytes(Cow::Borrowed(bytes)) if array.dtype.is_native() => Part::Borrowed(bytes),
                _ => {
                    array.dtype.convert(nodes.bytes(array), page);
                    Part::since(start, page)
                }
            };
            Found::array(element, &array.shape, data)
        }
        Node::Tuple(_) | Node::List(_) | Node::Dict(_) => {
            append_json(nodes, id, page).map_err(named)?;
            Found::Json(Part::since(start, page))
        }
        other => return Err(named(Error::in_source(format!("pickle: {}", other.kind())))),
    };
    Ok(Named { name, content })
}

/// Returns the class names if the value is a pickled list of text.
pub(super) fn classes(value: &[u8]) -> Option<Vec<String>> {
    let nodes = pickle::read(value).ok()?;
    items(nodes.root())?.iter().map(|&id| nodes.text(id).map(str::to_owned)).collect()
}
