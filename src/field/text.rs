//! [`Text`], one string per sample.

use super::encoded;
use super::{FieldType, Input, RowMut};
use crate::batch::Field;
use crate::decode::Size;
use crate::error::Result;
use crate::source::Value;

/// One string per sample, such as a caption. [`BatchInfo::texts`](crate::BatchInfo::texts) returns
/// the strings, because the field is not an array.
///
/// The sample's field is UTF-8 text of any length, such as `caption.txt` or a column of a table.
/// The text is delivered as stored, including a trailing line break. A sample fails if its field is
/// not valid UTF-8. [Typed numbers](crate::source::Numbers) become decimal text if the name of the
/// sample's field ends in `.txt`. If the name has a different suffix, the numbers are an array, and
/// the sample fails. The augmentation does not change the text. Strings remain on the host, even
/// for batches on a device.
///
/// ```no_run
/// use warpfeed::Loader;
/// use warpfeed::field::Text;
///
/// let mut batches = Loader::new("captions.tar").drop_field("label").field("caption", Text::new()).host()?;
/// for batch in batches.epoch(0) {
///     let batch = batch?;
///     let captions: Vec<&str> = batch.texts("caption").expect("added above").collect();
/// }
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// To deliver the bytes of text as an array, use [`Ragged::bytes`](super::Ragged::bytes).
#[derive(Debug, Clone, Default, serde::Deserialize)]
pub struct Text {
    source_field: Option<String>,
}

impl Text {
    /// Reads the sample's field with the same name as the batch field.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the sample's field `name` instead of the field with the same name as the batch field.
    /// Datasets for text recognition use `label.txt`, for example.
    #[must_use]
    pub fn source_field(mut self, name: impl Into<String>) -> Self {
        self.source_field = Some(name.into());
        self
    }
}

impl FieldType for Text {
    fn describe_arrays(&self, _name: &str, _output_size: Size) -> Result<Vec<Field>> {
        Ok(Vec::new())
    }

    fn required_fields(&self, name: &str) -> Vec<String> {
        vec![self.source_field.clone().unwrap_or_else(|| name.to_owned())]
    }

    fn write_is_cheap(&self) -> bool {
        true
    }

    fn write(&self, input: &Input<'_>, row: &mut RowMut<'_>) -> Result<()> {
        let field = encoded::find(input.sample, self.source_field.as_deref().unwrap_or(input.name))?;
        if matches!(field.value, Value::Numbers(_)) && !field.name.ends_with(".txt") {
            return Err(field.error("is an array, not text"));
        }
        let bytes = field.value.encoded(field.name);
        let text = std::str::from_utf8(&bytes).map_err(|e| {
            let offset = e.valid_up_to();
            field.error(format_args!("has invalid UTF-8 at byte {offset}, so it is not text"))
        })?;
        row.set_text(input.name, text);
        Ok(())
    }
}
