//! [`MultiHot`], several labels per sample.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserializer as _, Error as _, SeqAccess, Visitor};

use super::encoded::{self, Encoded, Encoding};
use super::number::{Number, append_number};
use super::{FieldType, Input, RowMut};
use crate::batch::{Dtype, Field};
use crate::decode::Size;
use crate::error::{Error, Result};

/// Several labels per sample, as the target of a binary cross-entropy loss. The array has the shape
/// (N, classes), with 1 for each label of a sample and 0 elsewhere.
///
/// The sample's field lists the labels: text separated by commas (or a different
/// [`separator`](MultiHot::separator)), a JSON list, or an array of integers. An array without a
/// header contains i64. In text and JSON, a label is either the name of a class or its index, and
/// in an array, the index. The augmentation does not change the labels. For batches on a device,
/// the array is copied to the device unchanged.
///
/// ```no_run
/// use warpfeed::Loader;
/// use warpfeed::field::MultiHot;
///
/// // path,tags
/// // 1.jpg,"cat,indoors"
/// let tags = MultiHot::new(["cat", "dog", "indoors"]); // (N, 3) f32
/// let batches = Loader::new("train.csv").drop_field("label").field("tags", tags).host()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// To deliver the indices of the labels instead, use [`Ragged`](super::Ragged) with an integer
/// type.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(from = "SerializedOptions")]
pub struct MultiHot {
    classes: usize,
    indices: HashMap<String, usize>,
    dtype: Dtype,
    one_bytes: Vec<u8>,
    separator: Option<char>,
    duplicate: Option<String>,
}

#[derive(serde::Deserialize)]
struct SerializedOptions {
    classes: Classes,
    dtype: Dtype,
    separator: Option<char>,
}

#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "the number of classes, or their names")]
enum Classes {
    Number(usize),
    Names(Vec<String>),
}

impl From<SerializedOptions> for MultiHot {
    fn from(SerializedOptions { classes, dtype, separator }: SerializedOptions) -> Self {
        let hot = match classes {
            Classes::Number(count) => Self::numbered(count),
            Classes::Names(names) => Self::new(names),
        };
        MultiHot { separator, ..hot.dtype(dtype) }
    }
}

impl MultiHot {
    /// Creates a field for the listed classes. A label is a class name or an index in the list.
    pub fn new(classes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let (mut indices, mut count, mut duplicate) = (HashMap::new(), 0, None);
        for name in classes {
            let name = name.into();
            if indices.contains_key(&name) {
                duplicate = Some(name.clone());
            }
            indices.insert(name, count);
            count += 1;
        }
        let one_bytes = 1_f32.to_ne_bytes().to_vec();
        MultiHot { classes: count, indices, dtype: Dtype::F32, one_bytes, separator: None, duplicate }
    }

    /// Creates a field for classes without names. A label is an index from 0 to `classes - 1`.
    pub fn numbered(classes: usize) -> Self {
        MultiHot { classes, ..Self::new([""; 0]) }
    }

    /// Sets the element type. The default is f32.
    #[must_use]
    pub fn dtype(mut self, dtype: Dtype) -> Self {
        self.dtype = dtype;
        self.one_bytes.clear();
        append_number(Number::Whole(1), dtype, &mut self.one_bytes).expect("1 fits into every type");
        self
    }

    /// Sets the character that separates labels in text, such as `'|'` or `';'`. `' '` stands for
    /// any whitespace. By default, names are separated by commas, and indices by commas or
    /// whitespace.
    #[must_use]
    pub fn separator(mut self, separator: char) -> Self {
        self.separator = Some(separator);
        self
    }

    fn class_index(&self, text: &str) -> Result<usize, String> {
        let classes = self.classes;
        match (self.indices.get(text), text.parse::<i64>()) {
            (Some(&index), _) => Ok(index),
            (None, Ok(label)) => self.to_index(label),
            (None, Err(_)) => {
                let advice = self.find_separator(text).map_or(String::new(), |separator| {
                    format!("; if {separator:?} separates labels, use MultiHot::separator({separator:?})")
                });
                Err(match self.indices.is_empty() {
                    true => format!("has the label {text:?}, which is not a number{advice}"),
                    false => format!("has the class {text:?}, which is not in the list of {classes} classes{advice}"),
                })
            }
        }
    }

    /// Finds a separator that splits `text` into several labels, to suggest in the error message.
    fn find_separator(&self, text: &str) -> Option<char> {
        let is_label = |part: &str| self.indices.contains_key(part.trim()) || part.trim().parse::<i64>().is_ok();
        ['|', ';', ',', '/', ' '].into_iter().find(|&separator| {
            Some(separator) != self.separator && text.contains(separator) && text.split(separator).all(is_label)
        })
    }

    fn to_index(&self, label: i64) -> Result<usize, String> {
        let index = usize::try_from(label).ok().filter(|&index| index < self.classes);
        index.ok_or_else(|| format!("has the label {label}: expected 0 to {}", self.classes - 1))
    }

    fn mark_text(&self, text: &str, mut mark: impl FnMut(usize)) -> Result<(), String> {
        if text.trim().is_empty() {
            return Ok(());
        }
        let has_only_indices = || text.split_whitespace().all(|part| part.parse::<i64>().is_ok());
        if self.separator.is_none() && !text.contains(',') && has_only_indices() {
            return text.split_whitespace().try_for_each(|part| self.class_index(part).map(&mut mark));
        }
        if self.separator == Some(' ') {
            return text.split_whitespace().try_for_each(|part| self.class_index(part).map(&mut mark));
        }
        text.split(self.separator.unwrap_or(',')).try_for_each(|part| self.class_index(part.trim()).map(&mut mark))
    }

    fn mark(&self, field: &Encoded<'_>, mut mark: impl FnMut(usize)) -> Result<()> {
        match field.encoding {
            Encoding::Text => {
                let text = std::str::from_utf8(field.bytes).map_err(|_| field.error("is not UTF-8"))?;
                self.mark_text(text, mark).map_err(|cause| field.error(cause))
            }
            Encoding::Json => {
                let mut json = serde_json::Deserializer::from_slice(field.bytes);
                let list = List { field_type: self, mark };
                let result = json.deserialize_any(list).and_then(|()| json.end());
                result.map_err(|e| field.error(format_args!("is not a list of labels: {e}")))
            }
            Encoding::Raw | Encoding::Npy | Encoding::Typed => field.with_numbers(Dtype::I64, |bytes, _| {
                let (labels, remainder) = bytes.as_chunks::<8>();
                if !remainder.is_empty() {
                    let actual = bytes.len();
                    return Err(field.error(format_args!("has {actual} bytes: expected 8 bytes for each label")));
                }
                let mut labels = labels.iter().map(|label| self.to_index(i64::from_ne_bytes(*label)));
                labels.try_for_each(|index| index.map(&mut mark)).map_err(|cause| field.error(cause))
            }),
        }
    }
}

struct List<'k, F> {
    field_type: &'k MultiHot,
    mark: F,
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Item<'a> {
    Number(i64),
    Name(#[serde(borrow)] Cow<'a, str>),
}

impl<'a, F: FnMut(usize)> Visitor<'a> for List<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of names or indices of classes")
    }

    fn visit_seq<A: SeqAccess<'a>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(item) = list.next_element::<Item<'a>>()? {
            let index = match item {
                Item::Number(label) => self.field_type.to_index(label),
                Item::Name(name) => self.field_type.class_index(&name),
            };
            (self.mark)(index.map_err(A::Error::custom)?);
        }
        Ok(())
    }
}

impl FieldType for MultiHot {
    fn describe_arrays(&self, name: &str, _output_size: Size) -> Result<Vec<Field>> {
        if let Some(duplicate) = &self.duplicate {
            return Err(Error::config(format!("field {name:?}: class {duplicate:?} is listed twice")));
        }
        if self.classes == 0 {
            return Err(Error::config(format!("field {name:?}: expected at least one class")));
        }
        Ok(vec![Field { name: name.to_owned(), dtype: self.dtype, shape: vec![self.classes] }])
    }

    fn required_fields(&self, name: &str) -> Vec<String> {
        vec![name.to_owned()]
    }

    fn write_is_cheap(&self) -> bool {
        true
    }

    fn write(&self, input: &Input<'_>, row: &mut RowMut<'_>) -> Result<()> {
        let (field, out) = (encoded::find(input.sample, input.name)?, row.bytes(0));
        out.fill(0);
        let size = self.dtype.bytes();
        self.mark(&field, |class| out[class * size..][..size].copy_from_slice(&self.one_bytes))
    }
}
