use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserializer as _, Error as _, SeqAccess, Visitor};

use super::encoded::{self, Encoded, Encoding};
use super::number::{Number, put};
use super::{FieldType, Input, RowMut};
use crate::batch::{Dtype, Field};
use crate::decode::Size;
use crate::error::{Error, Result};

/// Several labels per sample, as a row that contains 1 for each label and 0 elsewhere, (N,
/// classes). This is the target of a binary cross-entropy loss.
///
/// The sample's field lists the labels: text separated by commas (or a different
/// [`separator`](MultiHot::separator)), a JSON list, or an array of integers. A label is either the
/// name of a class or its index. The augmentation does not change the rows, and they are copied to
/// a device unchanged.
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
/// To deliver the indices themselves with their count, use [`Ragged`](super::Ragged) with an
/// integer type.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(from = "Given")]
pub struct MultiHot {
    classes: usize,
    numbers: HashMap<String, usize>,
    dtype: Dtype,
    /// The bytes of the number 1 in the element type.
    one: Vec<u8>,
    separator: Option<char>,
    twice: Option<String>,
}

/// Serialized form of the options.
#[derive(serde::Deserialize)]
struct Given {
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

impl From<Given> for MultiHot {
    fn from(Given { classes, dtype, separator }: Given) -> Self {
        let hot = match classes {
            Classes::Number(count) => Self::numbered(count),
            Classes::Names(names) => Self::new(names),
        };
        MultiHot { separator, ..hot.dtype(dtype) }
    }
}

impl MultiHot {
    /// Creates rows for named classes. A label is a name in the list, or its index.
    pub fn new(classes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let (mut numbers, mut count, mut twice) = (HashMap::new(), 0, None);
        for name in classes {
            let name = name.into();
            if numbers.contains_key(&name) {
                twice = Some(name.clone());
            }
            numbers.insert(name, count);
            count += 1;
        }
        let one = 1_f32.to_ne_bytes().to_vec();
        MultiHot { classes: count, numbers, dtype: Dtype::F32, one, separator: None, twice }
    }

    /// Creates rows for unnamed classes. Labels are indices from 0 to `classes` - 1.
    pub fn numbered(classes: usize) -> Self {
        MultiHot { classes, ..Self::new([""; 0]) }
    }

    /// Sets the element type of the rows. The default is f32.
    #[must_use]
    pub fn dtype(mut self, dtype: Dtype) -> Self {
        self.dtype = dtype;
        self.one.clear();
        put(Number::Whole(1), dtype, &mut self.one).expect("every type has a 1");
        self
    }

    /// Sets the character that separates labels in a text, such as `'|'` or `';'`. A space stands
    /// for any whitespace. By default, names are separated by commas, and numbers by commas or
    /// whitespace.
    #[must_use]
    pub fn separator(mut self, separator: char) -> Self {
        self.separator = Some(separator);
        self
    }

    /// Returns the index of the class that `text` stands for, by name or number.
    fn place(&self, text: &str) -> Result<usize, String> {
        let classes = self.classes;
        match (self.numbers.get(text), text.parse::<i64>()) {
            (Some(&place), _) => Ok(place),
            (None, Ok(number)) => self.number(number),
            (None, Err(_)) => {
                let advice = self.other_separator(text).map_or(String::new(), |separator| {
                    format!("; if {separator:?} separates labels, use MultiHot::separator({separator:?})")
                });
                Err(match self.numbers.is_empty() {
                    true => format!("has the label {text:?}, which is not a number{advice}"),
                    false => format!("has the class {text:?}, which is not in the list of {classes} classes{advice}"),
                })
            }
        }
    }

    /// Returns a character that would split `text`, which is not a label, into valid labels.
    fn other_separator(&self, text: &str) -> Option<char> {
        let is_label = |part: &str| self.numbers.contains_key(part.trim()) || part.trim().parse::<i64>().is_ok();
        ['|', ';', ',', '/', ' '].into_iter().find(|&separator| {
            Some(separator) != self.separator && text.contains(separator) && text.split(separator).all(is_label)
        })
    }

    fn number(&self, number: i64) -> Result<usize, String> {
        let place = usize::try_from(number).ok().filter(|&place| place < self.classes);
        place.ok_or_else(|| format!("has the label {number}: expected 0 to {}", self.classes - 1))
    }

    /// Calls `mark` with the index of each label in a text.
    fn text(&self, text: &str, mut mark: impl FnMut(usize)) -> Result<(), String> {
        if text.trim().is_empty() {
            return Ok(());
        }
        let numbers = || text.split_whitespace().all(|part| part.parse::<i64>().is_ok());
        if self.separator.is_none() && !text.contains(',') && numbers() {
            return text.split_whitespace().try_for_each(|part| self.place(part).map(&mut mark));
        }
        if self.separator == Some(' ') {
            return text.split_whitespace().try_for_each(|part| self.place(part).map(&mut mark));
        }
        text.split(self.separator.unwrap_or(',')).try_for_each(|part| self.place(part.trim()).map(&mut mark))
    }

    fn mark(&self, field: &Encoded<'_>, mut mark: impl FnMut(usize)) -> Result<()> {
        match field.encoding {
            Encoding::Text => {
                let text = std::str::from_utf8(field.bytes).map_err(|_| field.error("is not UTF-8"))?;
                self.text(text, mark).map_err(|cause| field.error(cause))
            }
            Encoding::Json => {
                let mut json = serde_json::Deserializer::from_slice(field.bytes);
                let list = List { kind: self, mark };
                let read = json.deserialize_any(list).and_then(|()| json.end());
                read.map_err(|e| field.error(format_args!("is not a list of labels: {e}")))
            }
            Encoding::Raw | Encoding::Npy | Encoding::Typed => field.with_numbers(Dtype::I64, |bytes, _| {
                let (numbers, rest) = bytes.as_chunks::<8>();
                if !rest.is_empty() {
                    let found = bytes.len();
                    return Err(field.error(format_args!("has {found} bytes, which is not a multiple of 8")));
                }
                let mut places = numbers.iter().map(|number| self.number(i64::from_ne_bytes(*number)));
                places.try_for_each(|place| place.map(&mut mark)).map_err(|cause| field.error(cause))
            }),
        }
    }
}

/// Visitor for a JSON list of labels.
struct List<'k, F> {
    kind: &'k MultiHot,
    mark: F,
}

/// A label in JSON.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Item<'a> {
    Number(i64),
    Name(#[serde(borrow)] Cow<'a, str>),
}

impl<'a, F: FnMut(usize)> Visitor<'a> for List<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of names or numbers of classes")
    }

    fn visit_seq<A: SeqAccess<'a>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(item) = list.next_element::<Item<'a>>()? {
            let place = match item {
                Item::Number(number) => self.kind.number(number),
                Item::Name(name) => self.kind.place(&name),
            };
            (self.mark)(place.map_err(A::Error::custom)?);
        }
        Ok(())
    }
}

impl FieldType for MultiHot {
    fn arrays(&self, name: &str, _output: Size) -> Result<Vec<Field>> {
        if let Some(twice) = &self.twice {
            return Err(Error::config(format!("field {name:?}: class {twice:?} is listed twice")));
        }
        if self.classes == 0 {
            return Err(Error::config(format!("field {name:?}: expected at least one class")));
        }
        Ok(vec![Field { name: name.to_owned(), dtype: self.dtype, shape: vec![self.classes] }])
    }

    fn reads(&self, name: &str) -> Vec<String> {
        vec![name.to_owned()]
    }

    fn copies(&self) -> bool {
        true
    }

    fn write(&self, input: &Input<'_>, place: &mut RowMut<'_>) -> Result<()> {
        let (field, to) = (encoded::find(input.sample, input.name)?, place.bytes(0));
        to.fill(0);
        let size = self.dtype.bytes();
        self.mark(&field, |class| to[class * size..][..size].copy_from_slice(&self.one))
    }
}
