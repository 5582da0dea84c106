//! Converts the values of a pickle to JSON.

use super::nodes::{Id, Node, Nodes};
use crate::error::{Error, Result};

const MAX_JSON_DEPTH: usize = 64;

/// Maximum number of values in the JSON. Values may be shared, so a short pickle can expand to long
/// JSON.
const MAX_JSON_VALUES: usize = 1 << 20;

const MAX_JSON_BYTES: usize = 64 << 20;

/// Appends the value of a node as JSON. Fails if JSON cannot represent the value, or if the JSON
/// would be too large or nested too deeply.
pub(crate) fn append_json(nodes: &Nodes<'_>, id: Id, out: &mut Vec<u8>) -> Result<()> {
    let max_len = out.len() + MAX_JSON_BYTES;
    Writer { nodes, out, remaining_values: MAX_JSON_VALUES, max_len }.write_value(id, 0)
}

struct Writer<'a, 'n> {
    nodes: &'n Nodes<'a>,
    out: &'n mut Vec<u8>,
    remaining_values: usize,
    max_len: usize,
}

impl Writer<'_, '_> {
    fn write_value(&mut self, id: Id, depth: usize) -> Result<()> {
        self.remaining_values = self.remaining_values.checked_sub(1).ok_or_else(|| {
            Error::in_source(format!("pickle: a nested value contains more than {MAX_JSON_VALUES} values"))
        })?;
        if self.out.len() > self.max_len {
            return Err(Error::in_source(format!("pickle: a nested value exceeds {MAX_JSON_BYTES} bytes as JSON")));
        }
        if depth > MAX_JSON_DEPTH {
            return Err(Error::in_source(format!("pickle: values are nested more than {MAX_JSON_DEPTH} deep")));
        }
        let nodes = self.nodes;
        match &nodes[id] {
            Node::None => self.out.extend_from_slice(b"null"),
            Node::Bool(truth) => self.out.extend_from_slice(if *truth { b"true" } else { b"false" }),
            Node::Int(int) => self.out.extend_from_slice(int.to_string().as_bytes()),
            Node::Float(float) => self.write_float(*float)?,
            Node::Text(text) => self.write_text(text),
            Node::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => self.write_text(text),
                Err(_) => return Err(Error::in_source("pickle: a nested value contains bytes that are not UTF-8")),
            },
            Node::Tuple(items) | Node::List(items) => {
                self.out.push(b'[');
                for (index, &item) in items.iter().enumerate() {
                    if index > 0 {
                        self.out.push(b',');
                    }
                    self.write_value(item, depth + 1)?;
                }
                self.out.push(b']');
            }
            Node::Dict(pairs) => {
                self.out.push(b'{');
                for (index, &(key, value)) in pairs.iter().enumerate() {
                    if index > 0 {
                        self.out.push(b',');
                    }
                    match (&nodes[key], nodes.text(key)) {
                        (_, Some(text)) => self.write_text(text),
                        (Node::Int(int), _) => self.write_text(&int.to_string()),
                        (key, _) => {
                            return Err(Error::in_source(format!(
                                "pickle: a nested value has {} as a key",
                                key.kind()
                            )));
                        }
                    }
                    self.out.push(b':');
                    self.write_value(value, depth + 1)?;
                }
                self.out.push(b'}');
            }
            node => return Err(Error::in_source(format!("pickle: a nested value contains {}", node.kind()))),
        }
        Ok(())
    }

    fn write_float(&mut self, float: f64) -> Result<()> {
        if !float.is_finite() {
            return Err(Error::in_source(format!(
                "pickle: a nested value contains {float}, but JSON has only finite numbers"
            )));
        }
        serde_json::to_writer(&mut *self.out, &float).expect("writing to a Vec cannot fail");
        Ok(())
    }

    fn write_text(&mut self, text: &str) {
        serde_json::to_writer(&mut *self.out, text).expect("writing to a Vec cannot fail");
    }
}
