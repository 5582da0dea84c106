use crate::error::{Error, Result};

/// Field names that hold an encoded image, in WebDataset's manner: the lower-case file extension.
pub const IMAGE_FIELDS: [&str; 10] = ["jpg", "jpeg", "png", "webp", "bmp", "tif", "tiff", "gif", "img", "image"];

/// How many fields a sample can have.
const MAX_FIELDS: usize = 16;

/// One sample: a key and a few named byte fields, borrowed from its source.
///
/// Field names are lower-case WebDataset extensions: `jpg`, `png`, `cls`, `json`, `emb.npy`.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    key: &'a str,
    fields: [(&'a str, &'a [u8]); MAX_FIELDS],
    len: usize,
    label: Label,
}

/// Where a sample's label comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Label {
    /// The sample has none.
    None,
    /// The source knows it (a class folder, an integer in a MessagePack map).
    Class(i64),
    /// It stands as decimal text in the field `cls`.
    Text,
}

impl<'a> Sample<'a> {
    /// A sample without fields. `key` is its path in the data set without the extension, such as `n01440764/n01440764_10026`.
    pub fn new(key: &'a str) -> Self {
        Sample { key, fields: [("", &[]); MAX_FIELDS], len: 0, label: Label::None }
    }

    /// The sample with one more field. The field `cls` is taken as the label in decimal text unless a label is already set.
    ///
    /// # Errors
    /// If the sample has 16 fields already, or one of this name.
    pub fn with_field(mut self, name: &'a str, bytes: &'a [u8]) -> Result<Self> {
        if self.field(name).is_some() {
            return Err(Error::source(format!("field {name:?} occurs twice")));
        }
        let Some(slot) = self.fields.get_mut(self.len) else {
            return Err(Error::source(format!("more than {MAX_FIELDS} fields; {name:?} is one too many")));
        };
        *slot = (name, bytes);
        self.len += 1;
        if name == "cls" && self.label == Label::None {
            self.label = Label::Text;
        }
        Ok(self)
    }

    /// The sample with the label `class`.
    #[must_use]
    pub fn with_label(mut self, class: i64) -> Self {
        self.label = Label::Class(class);
        self
    }

    /// The key.
    pub fn key(&self) -> &'a str {
        self.key
    }

    /// All fields in the order of the source.
    pub fn fields(&self) -> &[(&'a str, &'a [u8])] {
        &self.fields[..self.len]
    }

    /// The bytes of field `name`.
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        self.fields().iter().find(|(n, _)| *n == name).map(|(_, bytes)| *bytes)
    }

    /// Name and bytes of the image: the first field whose name is in [`IMAGE_FIELDS`].
    pub fn image(&self) -> Option<(&'a str, &'a [u8])> {
        self.fields().iter().find(|(n, _)| IMAGE_FIELDS.contains(n)).copied()
    }

    /// The label, if the sample has one.
    ///
    /// # Errors
    /// If the field `cls` is not a decimal number that fits an `i64`.
    pub fn label(&self) -> Result<Option<i64>> {
        match self.label {
            Label::None => Ok(None),
            Label::Class(class) => Ok(Some(class)),
            Label::Text => {
                let bytes = self.field("cls").unwrap_or_default();
                let text = std::str::from_utf8(bytes).map(str::trim).ok();
                text.and_then(|t| t.parse().ok()).map(Some).ok_or_else(|| {
                    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
                    Error::source(format!("field \"cls\" is no number: {shown:?}"))
                })
            }
        }
    }
}
