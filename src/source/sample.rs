use crate::error::{Error, Result};
use crate::format;

/// How many fields a sample can have.
pub(super) const MAX_FIELDS: usize = 16;

/// One sample, borrowed from its source: a key, a few named byte fields, and perhaps a label.
///
/// Field names are lower-case WebDataset extensions: `jpg`, `png`, `json`, `emb.npy`. The label is
/// not a field: `cls` becomes [`label`](Sample::label). So a picture in a class folder and a
/// picture with a `cls` beside it give the same sample.
///
/// ```
/// use warpfeed::source::Sample;
///
/// let sample = Sample::new("cat/1").with_field("jpg", b"...")?.with_label(0);
/// assert_eq!(sample.field("jpg"), Some(&b"..."[..]));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    key: &'a str,
    fields: [(&'a str, &'a [u8]); MAX_FIELDS],
    len: usize,
    label: Label<'a>,
}

/// Where a sample's label comes from.
#[derive(Debug, Clone, Copy)]
enum Label<'a> {
    /// The sample has none.
    None,
    /// The source knows it (a class folder, an integer in a MessagePack map).
    Class(i64),
    /// Decimal text in the field `cls`. It is parsed only when asked for, so training without
    /// labels ignores what it says.
    Text(&'a [u8]),
}

impl<'a> Sample<'a> {
    /// A sample without fields. `key` is its path in the data set without the extension, such as
    /// `n01440764/n01440764_10026`.
    pub fn new(key: &'a str) -> Self {
        Sample { key, fields: [("", &[]); MAX_FIELDS], len: 0, label: Label::None }
    }

    /// The sample with one more field. The field `cls` is the label in decimal text, unless a label
    /// is already set.
    ///
    /// # Errors
    /// If the sample already has 16 fields, or a field of this name.
    pub fn with_field(mut self, name: &'a str, bytes: &'a [u8]) -> Result<Self> {
        self.push(name, bytes)?;
        Ok(self)
    }

    /// [`with_field`](Sample::with_field) in place, for the inner loops of sources: moving a sample
    /// for every field would be slow.
    pub(crate) fn push(&mut self, name: &'a str, bytes: &'a [u8]) -> Result<()> {
        if name == "cls" {
            match self.label {
                Label::None => self.label = Label::Text(bytes),
                Label::Class(_) => {}
                Label::Text(_) => return Err(Error::in_source("field \"cls\" occurs twice")),
            }
            return Ok(());
        }
        if self.field(name).is_some() {
            return Err(Error::in_source(format!("field {name:?} occurs twice")));
        }
        let Some(slot) = self.fields.get_mut(self.len) else {
            return Err(Error::in_source(format!("more than {MAX_FIELDS} fields; {name:?} does not fit")));
        };
        *slot = (name, bytes);
        self.len += 1;
        Ok(())
    }

    /// The sample with the label `class`.
    #[must_use]
    pub fn with_label(mut self, class: i64) -> Self {
        self.label = Label::Class(class);
        self
    }

    /// The sample under another key.
    #[must_use]
    pub fn with_key(mut self, key: &'a str) -> Self {
        self.key = key;
        self
    }

    /// The key.
    pub fn key(&self) -> &'a str {
        self.key
    }

    /// All fields, in the order of the source.
    pub fn fields(&self) -> &[(&'a str, &'a [u8])] {
        &self.fields[..self.len]
    }

    /// The names of all fields, for messages.
    pub(crate) fn names(&self) -> Vec<&'a str> {
        self.fields().iter().map(|field| field.0).collect()
    }

    /// The bytes of field `name`.
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        self.fields().iter().find(|(n, _)| *n == name).map(|(_, bytes)| *bytes)
    }

    /// Name and bytes of the image: the first field that is [named after](format::is_picture) a
    /// built-in format, `img` or `image`.
    ///
    /// [`Codecs::image`](crate::decode::Codecs::image) also finds the formats of your own codecs.
    pub fn image(&self) -> Option<(&'a str, &'a [u8])> {
        self.fields().iter().find(|(name, _)| format::is_picture(name)).copied()
    }

    /// The label, if the sample has one.
    ///
    /// # Errors
    /// If the field `cls` is not a decimal number that fits an `i64`.
    pub fn label(&self) -> Result<Option<i64>> {
        match self.label {
            Label::None => Ok(None),
            Label::Class(class) => Ok(Some(class)),
            Label::Text(bytes) => {
                let text = std::str::from_utf8(bytes).map(str::trim).ok();
                text.and_then(|t| t.parse().ok()).map(Some).ok_or_else(|| {
                    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
                    Error::in_source(format!("field \"cls\" is not a number: {shown:?}"))
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cls_is_the_label_and_not_a_field() {
        let sample = Sample::new("a").with_field("jpg", b"x").unwrap().with_field("cls", b" 17\n").unwrap();
        assert_eq!(sample.label().unwrap(), Some(17));
        assert_eq!(sample.fields(), [("jpg", &b"x"[..])]);
        let named = Sample::new("a").with_field("cls", b"cat").unwrap();
        assert!(named.label().unwrap_err().to_string().contains("\"cat\""));
    }

    #[test]
    fn too_many_fields_and_fields_twice_are_errors() {
        let names: Vec<String> = (0..17).map(|i| i.to_string()).collect();
        let full = names[..16].iter().try_fold(Sample::new("a"), |s, name| s.with_field(name, b"")).unwrap();
        assert!(full.with_field(&names[16], b"").unwrap_err().to_string().contains("more than 16"));
        assert!(full.with_field("3", b"").unwrap_err().to_string().contains("occurs twice"));
    }
}
