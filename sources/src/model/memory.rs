//! [`Memory`]: a dataset in memory.

use super::{Sample, Source, Value};
use crate::error::Result;
use crate::machine::hash::Hash;

/// A dataset in memory, for tests and for small generated datasets.
///
/// ```
/// use warpfeed_sources::{Memory, OwnedSample, Source};
///
/// let png = b"\x89PNG...".to_vec();
/// let sample = OwnedSample::new("cat/1").field("png", png).label(0);
/// let set = Memory::new(vec![sample]).with_classes(["cat"]);
/// assert_eq!(set.len(), 1);
/// assert_eq!(set.read(0, &mut Vec::new())?.label()?, Some(0));
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Memory {
    samples: Vec<OwnedSample>,
    classes: Vec<String>,
}

/// A [`Sample`] that owns its bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnedSample {
    key: String,
    fields: Vec<(String, Vec<u8>)>,
    label: Option<i64>,
}

impl OwnedSample {
    /// Creates a sample without fields and without a label.
    pub fn new(key: impl Into<String>) -> Self {
        OwnedSample { key: key.into(), ..Default::default() }
    }

    /// Adds a field. Reading the sample fails if two fields have the same name, or if there are
    /// more than 16 fields.
    #[must_use]
    pub fn field(mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        self.fields.push((name.into(), bytes.into()));
        self
    }

    /// Sets the label to `class`.
    #[must_use]
    pub fn label(mut self, class: i64) -> Self {
        self.label = Some(class);
        self
    }

    /// Borrows this sample as a [`Sample`].
    ///
    /// # Errors
    /// If there are more than 16 fields, or if two fields have the same name.
    pub fn as_sample(&self) -> Result<Sample<'_>> {
        let mut sample = Sample::new(&self.key);
        if let Some(class) = self.label {
            sample = sample.with_label(class);
        }
        for (name, bytes) in &self.fields {
            sample.push(name, &bytes[..])?;
        }
        Ok(sample)
    }
}

impl TryFrom<&Sample<'_>> for OwnedSample {
    type Error = crate::error::Error;

    /// Copies a sample. Typed values are encoded as the [bytes of a file](Value::encoded). The
    /// label is already converted to the loader's classes ([`Sample::label`]), but class indices
    /// inside fields stay as stored. Only [`Sample::class`] of the original sample converts them.
    ///
    /// # Errors
    /// Fails like [`Sample::label`].
    fn try_from(sample: &Sample<'_>) -> Result<Self> {
        let encoded = |&(name, value): &(&str, Value<'_>)| (name.to_owned(), value.encoded(name).into_owned());
        let fields = sample.fields().iter().map(encoded).collect();
        Ok(OwnedSample { key: sample.key().to_owned(), fields, label: sample.label()? })
    }
}

impl Memory {
    /// Creates a dataset of `samples`, in this order.
    pub fn new(samples: Vec<OwnedSample>) -> Self {
        Memory { samples, classes: Vec::new() }
    }

    /// Sets the class names. The index of a name is its label.
    #[must_use]
    pub fn with_classes(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.classes = names.into_iter().map(Into::into).collect();
        self
    }
}

impl Source for Memory {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn read<'a>(&'a self, index: usize, _scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.samples[index].as_sample()
    }

    fn key(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<String> {
        Ok(self.samples[index].key.clone())
    }

    fn fingerprint(&self) -> Option<u64> {
        let add = |hash: Hash, sample: &OwnedSample| {
            sample
                .fields
                .iter()
                .fold(hash.text(&sample.key), |hash, (name, bytes)| hash.text(name).number(bytes.len() as u64))
        };
        Some(self.samples.iter().fold(Hash::default(), add).finish())
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn kind(&self) -> &'static str {
        "memory"
    }
}
