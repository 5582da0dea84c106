//! [`Sample`]: one sample, borrowed from its source.

use std::borrow::Cow;
use std::sync::Arc;

use super::relabel::Relabel;
use super::value::Value;
use crate::error::{Error, Result};
use crate::format;

pub(crate) const MAX_FIELDS: usize = 16;

/// Suffix of the field that stores the value of the first class in a mask.
const FIRST_CLASS_OF_MASK: &str = ".first_class.txt";

/// Value of mask pixels without a class.
const VOID: u8 = 255;

/// Maximum number of nested sources that map the labels of a sample to new labels.
const MAX_RELABELS: usize = 4;

/// One sample, borrowed from its source: a key, a few named fields, and an optional label.
///
/// Field names are lower-case WebDataset extensions: `jpg`, `png`, `json`, `emb.npy`. A field
/// contains bytes or a typed [`Value`]. The label is not a field: a `cls` field becomes the
/// [`label`](Sample::label), so an image in a class folder and an image with a `cls` file next to
/// it result in the same sample.
///
/// ```
/// use warpfeed_sources::Sample;
///
/// let sample = Sample::new("cat/1").with_field("jpg", b"...")?.with_label(0);
/// assert_eq!(sample.field("jpg").as_deref(), Some(&b"..."[..]));
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    key: &'a str,
    fields: [(&'a str, Value<'a>); MAX_FIELDS],
    field_count: usize,
    label: Label<'a>,
    /// The mappings, in the order in which they are applied.
    relabels: [Option<&'a Relabel>; MAX_RELABELS],
    /// Number of leading `relabels` that do not apply to the label, because it was set later.
    skipped_relabels: usize,
    hints: Option<&'a MessageHints>,
}

/// Text for the error messages about samples without an image or without a label.
#[derive(Debug, Default, Clone)]
pub(crate) struct MessageHints {
    /// Name of the image column.
    pub(crate) image: Option<String>,
    /// Advice on how to get or omit the label, if there is any.
    pub(crate) label: Option<Arc<str>>,
    /// Names of the fields that a view created by
    /// [`Source::select_fields`](crate::Source::select_fields) omits.
    pub(crate) omitted_fields: Vec<String>,
}

impl MessageHints {
    /// Returns advice for a dataset without a label column. `candidates` are the columns with
    /// integers. Returns `None` if there are none.
    pub(crate) fn label_hint(candidates: &[&str]) -> Option<Arc<str>> {
        let first_candidate = candidates.first()?;
        let (names, have) = (candidates.join("\", \""), if candidates.len() == 1 { "has" } else { "have" });
        Some(
            format!(
                "no label column was found; \"{names}\" {have} integers: select one with \
                 TableOptions::label({first_candidate:?}), or read -1 with unlabeled(true)"
            )
            .into(),
        )
    }
}

#[derive(Debug, Clone, Copy)]
enum Label<'a> {
    None,
    /// The source sets the label, for example from a class folder or from an integer in a
    /// MessagePack map.
    Class(i64),
    /// The label is decimal text in the `cls` field. The text is parsed only when the label is
    /// requested, so that the field may have any content if labels are not used.
    Text(&'a [u8]),
}

impl<'a> Sample<'a> {
    /// Creates a sample without fields. `key` is the sample's path in the dataset without the
    /// extension, such as `n01440764/n01440764_10026`.
    pub fn new(key: &'a str) -> Self {
        let (fields, relabels) = ([("", Value::Bytes(&[])); MAX_FIELDS], [None; MAX_RELABELS]);
        Sample { key, fields, field_count: 0, label: Label::None, relabels, skipped_relabels: 0, hints: None }
    }

    pub(crate) fn with_hints(mut self, hints: &'a MessageHints) -> Self {
        self.hints = Some(hints);
        self
    }

    /// Returns the name of the image column, if the dataset has one, for the message about a sample
    /// without an image.
    #[doc(hidden)]
    pub fn image_column(&self) -> Option<&'a str> {
        self.hints?.image.as_deref()
    }

    /// Returns the names of all fields of the sample in the dataset, including fields that were not
    /// read because the loader does not need them. Messages about a missing field list these names.
    #[doc(hidden)]
    pub fn available_fields(&self) -> Vec<&'a str> {
        let omitted = self.hints.map_or(&[] as &[String], |hints| &hints.omitted_fields);
        self.names().into_iter().chain(omitted.iter().map(String::as_str)).collect()
    }

    /// Returns advice for the message about a sample without a label, if there is any.
    #[doc(hidden)]
    pub fn label_hint(&self) -> Option<&'a Arc<str>> {
        self.hints?.label.as_ref()
    }

    /// Adds a field. The value is anything that converts to a [`Value`], such as bytes or text. The
    /// `cls` field, which contains decimal text, sets the label instead, unless the label is
    /// already set.
    ///
    /// # Errors
    ///
    /// If the sample already has 16 fields or a field called `name`, or if the value cannot be
    /// stored in a file of this name.
    pub fn with_field(mut self, name: &'a str, value: impl Into<Value<'a>>) -> Result<Self> {
        self.push(name, value)?;
        Ok(self)
    }

    /// Adds a field in place. In the inner loop of a source, [`with_field`](Sample::with_field)
    /// would be slow, because it moves the sample for every field.
    pub fn push(&mut self, name: &'a str, value: impl Into<Value<'a>>) -> Result<()> {
        let value = value.into();
        value.check_name(name)?;
        if name == "cls" {
            match self.label {
                Label::None => {
                    (self.label, self.skipped_relabels) = (Label::Text(value.as_bytes()), self.relabel_count())
                }
                Label::Class(_) => {}
                Label::Text(_) => return Err(Error::in_source("field \"cls\" occurs twice")),
            }
            return Ok(());
        }
        if self.value(name).is_some() {
            return Err(Error::in_source(format!("field {name:?} occurs twice")));
        }
        let Some(slot) = self.fields.get_mut(self.field_count) else {
            return Err(Error::in_source(format!("more than {MAX_FIELDS} fields: cannot add {name:?}")));
        };
        *slot = (name, value);
        self.field_count += 1;
        Ok(())
    }

    /// Replaces the value of the field with the given index in [`fields`](Sample::fields).
    #[doc(hidden)]
    pub fn replace(&mut self, index: usize, value: Value<'a>) {
        self.fields[index].1 = value;
    }

    /// Sets the label to `class`.
    #[must_use]
    pub fn with_label(mut self, class: i64) -> Self {
        (self.label, self.skipped_relabels) = (Label::Class(class), self.relabel_count());
        self
    }

    /// Applies `relabel` to the label, and to the results of [`class`](Sample::class). Fails if
    /// four mappings already apply.
    pub(crate) fn relabeled(mut self, relabel: &'a Relabel) -> Result<Self> {
        let times = self.relabel_count();
        let slot = self.relabels.get_mut(times).ok_or_else(|| {
            Error::in_source(format!("more than {MAX_RELABELS} nested sources map labels to new labels"))
        })?;
        *slot = Some(relabel);
        Ok(self)
    }

    fn relabel_count(&self) -> usize {
        self.relabels.iter().flatten().count()
    }

    /// Returns whether [`class`](Sample::class) may return a number that differs from its argument.
    #[doc(hidden)]
    pub fn is_relabeled(&self) -> bool {
        self.relabels[0].is_some()
    }

    /// Converts a class index in a field, such as the class of a box, to the loader's label.
    /// `Loader::classes` or the class names of joined datasets determine the labels. If neither
    /// applies, returns `number` unchanged.
    ///
    /// # Errors
    /// If the class has no label. The message contains the name or the index of the class.
    pub fn class(&self, number: i64) -> Result<i64> {
        self.relabel_class(number, 0)
    }

    /// Returns the pixel value of the first class in the mask `stem`, such as 1 in Pascal VOC.
    /// Returns `None` if pixel values are not class indices of the source.
    ///
    /// # Errors
    /// If the field that stores this value does not contain a number from 0 to 255.
    #[doc(hidden)]
    pub fn first_class_of_mask(&self, stem: &str) -> Result<Option<i64>> {
        let matches = |name: &str| name.strip_prefix(stem) == Some(FIRST_CLASS_OF_MASK);
        let Some((name, value)) = self.fields().iter().find(|(name, _)| matches(name)) else { return Ok(None) };
        let text = std::str::from_utf8(value.as_bytes()).ok();
        let number =
            text.and_then(|text| text.trim().parse().ok()).filter(|first| (0..=i64::from(VOID)).contains(first));
        number.map(Some).ok_or_else(|| Error::in_source(format!("field {name:?} is not a number from 0 to {VOID}")))
    }

    /// Converts a pixel value of a mask to the loader's labels, as [`class`](Sample::class) does
    /// for class indices. `first` is the pixel value of the first class. Smaller values, and 255,
    /// are not classes and are returned unchanged.
    ///
    /// # Errors
    /// Fails like [`class`](Sample::class), and if the new value would be 255.
    #[doc(hidden)]
    pub fn mask_value(&self, value: i64, first: i64) -> Result<i64> {
        if value < first || value == i64::from(VOID) {
            return Ok(value);
        }
        let new_value = self.class(value - first)?.saturating_add(first);
        if new_value == i64::from(VOID) {
            let class = new_value - first;
            return Err(Error::in_source(format!(
                "class {class} would have the mask value {VOID}, which is reserved for pixels without a class"
            )));
        }
        Ok(new_value)
    }

    fn relabel_class(&self, number: i64, skipped: usize) -> Result<i64> {
        self.relabels[skipped..].iter().flatten().try_fold(number, |number, relabel| relabel.new_label(number))
    }

    /// Replaces the key.
    #[must_use]
    pub fn with_key(mut self, key: &'a str) -> Self {
        self.key = key;
        self
    }

    /// Returns the key.
    pub fn key(&self) -> &'a str {
        self.key
    }

    /// Returns all fields, in the order of the source.
    pub fn fields(&self) -> &[(&'a str, Value<'a>)] {
        &self.fields[..self.field_count]
    }

    /// Returns the names of all fields, in the order of the source.
    pub fn names(&self) -> Vec<&'a str> {
        self.fields().iter().map(|field| field.0).collect()
    }

    /// Returns the value of field `name`, or `None` if there is no such field.
    pub fn value(&self, name: &str) -> Option<Value<'a>> {
        self.fields().iter().find(|(n, _)| *n == name).map(|(_, value)| *value)
    }

    /// Returns the [encoded](Value::encoded) content of field `name`. Only numbers and lists are
    /// copied.
    pub fn field(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        self.value(name).map(|value| value.encoded(name))
    }

    /// Returns the name and the bytes of the first field that contains bytes and has a name for
    /// which `matches` returns true.
    #[doc(hidden)]
    pub fn bytes_named(&self, matches: impl Fn(&str) -> bool) -> Option<(&'a str, &'a [u8])> {
        self.fields().iter().find_map(|&(name, value)| match value {
            Value::Bytes(bytes) if matches(name) => Some((name, bytes)),
            _ => None,
        })
    }

    /// Returns the total size of the fields in memory, in bytes.
    pub fn total_bytes(&self) -> usize {
        self.fields().iter().map(|(_, value)| value.as_bytes().len()).sum()
    }

    /// Returns the name and the bytes of the image. The image is the first field that contains
    /// bytes and that is called `img` or `image`, or has the [name of a built-in
    /// format](format::is_image_field).
    ///
    /// `Codecs::image` also finds images in the formats of your own codecs.
    pub fn image(&self) -> Option<(&'a str, &'a [u8])> {
        self.bytes_named(format::is_image_field)
    }

    /// Returns the text of the label, or `None` unless the `cls` field determines the label.
    pub(crate) fn label_text(&self) -> Option<&'a [u8]> {
        if let Label::Text(text) = self.label { Some(text) } else { None }
    }

    /// Returns the label, or `None` if the sample has no label.
    ///
    /// # Errors
    /// If the `cls` field is not a decimal number that fits in an `i64`, or if the class is not in
    /// the list of classes.
    pub fn label(&self) -> Result<Option<i64>> {
        let label = match self.label {
            Label::None => return Ok(None),
            Label::Class(class) => class,
            Label::Text(bytes) => {
                let text = std::str::from_utf8(bytes).map(str::trim).ok();
                text.and_then(|t| t.parse().ok()).ok_or_else(|| {
                    let excerpt = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
                    Error::in_source(format!("field \"cls\" is not a number: {excerpt:?}"))
                })?
            }
        };
        self.relabel_class(label, self.skipped_relabels).map(Some)
    }
}

/// Returns whether two names refer to the same field. Either name may omit the extension.
pub fn are_same_field(existing: &str, requested: &str) -> bool {
    let extends = |long: &str, short: &str| long.strip_prefix(short).is_some_and(|end| end.starts_with('.'));
    existing == requested || extends(existing, requested) || extends(requested, existing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_name_may_omit_the_extension() {
        assert!(
            are_same_field("age.txt", "age")
                && are_same_field("mask", "mask.npy")
                && are_same_field("age.txt", "age.txt")
        );
        assert!(!are_same_field("ages.txt", "age") && !are_same_field("age", "ages"));
    }

    #[test]
    fn cls_is_the_label_and_not_a_field() {
        let sample = Sample::new("a").with_field("jpg", b"x").unwrap().with_field("cls", b" 17\n").unwrap();
        assert_eq!(sample.label().unwrap(), Some(17));
        assert_eq!(sample.fields(), [("jpg", b"x".into())]);
        let named = Sample::new("a").with_field("cls", b"cat").unwrap();
        assert!(named.label().unwrap_err().to_string().contains("\"cat\""));
    }

    #[test]
    fn too_many_or_duplicate_fields_are_rejected() {
        let names: Vec<String> = (0..17).map(|i| i.to_string()).collect();
        let full = names[..16].iter().try_fold(Sample::new("a"), |s, name| s.with_field(name, b"")).unwrap();
        assert!(full.with_field(&names[16], b"").unwrap_err().to_string().contains("more than 16"));
        assert!(full.with_field("3", b"").unwrap_err().to_string().contains("occurs twice"));
    }
}
