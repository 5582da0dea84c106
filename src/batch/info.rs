use std::sync::Arc;

use super::Role;
use crate::decode::Rect;
use crate::error::{Error, Result};
use crate::sampler::Entry;
use crate::source::BatchIndex;
use crate::transform::Mixing;

/// Record of a batch: its samples and their errors.
///
/// [`HostBatch`](crate::HostBatch) and batches in device memory dereference to it.
#[derive(Debug, Default)]
pub struct BatchInfo {
    pub(crate) header: Header,
    /// One element for each row of the largest possible batch. Elements are reused from batch to
    /// batch.
    pub(crate) samples: Vec<SampleInfo>,
}

/// Metadata of the whole batch. The coordinator sets it, except where noted.
#[derive(Debug, Default)]
pub(crate) struct Header {
    /// Sequence number of the run, set by `Engine::start`. Parts of older runs are cancelled.
    pub(crate) run: u64,
    /// Index of the batch within its run.
    pub(crate) turn: u64,
    pub(crate) epoch: u64,
    /// Index of the batch within its epoch.
    pub(crate) number: u64,
    /// Position of the next batch in the run, or `None` if this batch is the last. After the last
    /// batch of an epoch, this is the first batch of the next epoch, even though it is not yet
    /// known whether that epoch can be prepared.
    pub(crate) next: Option<BatchIndex>,
    /// Index of the batch's schema in the loader's schemas. It depends only on the epoch.
    pub(crate) form: usize,
    pub(crate) entries: Vec<Entry>,
    /// How the batch is mixed, if at all. On the host, the last worker mixes the images. On a
    /// device, the conversion kernel does.
    pub(crate) mixing: Option<Mixing>,
    /// Whether the labels may be read. Set by the worker that finishes last.
    pub(crate) labeled: bool,
    /// Launch sizes for each image field that a device may decode, in the order of the fields.
    /// `None` if the device does not decode this field for any sample. Set by the worker that
    /// finishes last.
    pub(crate) largest: Vec<Option<Largest>>,
}

/// Metadata of one sample.
#[derive(Debug, Default)]
pub(crate) struct SampleInfo {
    pub(crate) key: String,
    pub(crate) labeled: bool,
    /// Advice to include in the error message if the samples have no labels.
    pub(crate) advice: Option<Arc<str>>,
    /// Part of the output image that shows the source image.
    pub(crate) shown: Rect,
    /// Error of a sample that could not be delivered.
    pub(crate) fault: Option<Error>,
    /// Source index of the failed sample that this one replaces, if any.
    pub(crate) replaced: Option<u64>,
    /// Number of the sample's images that were decoded despite damage.
    pub(crate) damaged: u32,
    /// The sample's texts, as pairs of field name and text. Their memory is reused from batch to
    /// batch.
    texts: Vec<(String, String)>,
}

/// Maximum size of a text whose memory is kept for reuse, in bytes.
const KEPT: usize = 1 << 16;

impl SampleInfo {
    /// Clears the texts that an earlier sample left in this entry.
    pub(crate) fn clear_texts(&mut self) {
        for (_, text) in &mut self.texts {
            text.clear();
            text.shrink_to(KEPT);
        }
    }

    pub(crate) fn set_text(&mut self, name: &str, text: &str) {
        match self.texts.iter_mut().find(|(known, _)| known == name) {
            Some((_, of)) => text.clone_into(of),
            None => self.texts.push((name.to_owned(), text.to_owned())),
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.texts.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
    }

    /// Copies the texts of the sample that replaces this one.
    pub(crate) fn replace_texts(&mut self, donor: &[(String, String)]) {
        self.clear_texts();
        donor.iter().for_each(|(name, text)| self.set_text(name, text));
    }

    pub(crate) fn texts(&self) -> &[(String, String)] {
        &self.texts
    }
}

/// Maxima over the images of a batch that a device decodes. They determine the launch sizes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Largest {
    /// Number of segments in an image.
    pub(crate) segments: u32,
    /// Size of a segment in bytes.
    pub(crate) longest: u32,
    /// Width of an image's region in pixels.
    pub(crate) columns: u32,
    /// Index one past the last image's last block.
    pub(crate) blocks: usize,
    /// Whether at least one image must be rotated upright.
    pub(crate) turned: bool,
    /// Whether at least one record is a copy that replaces a failed sample.
    pub(crate) copied: bool,
}

impl BatchInfo {
    /// Creates an empty record for up to `batch` samples.
    pub(crate) fn new(batch: usize) -> Self {
        let header = Header { entries: Vec::with_capacity(batch), ..Header::default() };
        BatchInfo { header, samples: (0..batch).map(|_| SampleInfo::default()).collect() }
    }

    /// Returns the number of samples, N.
    #[allow(clippy::len_without_is_empty)] // a batch has at least one sample
    pub fn len(&self) -> usize {
        self.header.entries.len()
    }

    /// Returns the epoch of the batch.
    pub fn epoch(&self) -> u64 {
        self.header.epoch
    }

    /// Returns the index of the batch within its epoch, starting at 0.
    pub fn number(&self) -> u64 {
        self.header.number
    }

    /// Returns the source index of each sample. The row of a skipped sample contains the index of
    /// its [replacement](crate::OnError::Skip), as it contains the replacement's pixels and fields.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.header.entries.iter().map(|entry| entry.sample)
    }

    /// Returns the key of each sample, such as `n01440764/n01440764_10026`. The row of a skipped
    /// sample contains the key of its replacement.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> + '_ {
        self.samples[..self.len()].iter().map(|sample| sample.key.as_str())
    }

    /// Returns the text of each sample in the field `name`, if it is a [`Text`](crate::field::Text)
    /// field. A failed sample without a replacement has an empty text.
    pub fn texts<'a>(&'a self, name: &'a str) -> Option<impl ExactSizeIterator<Item = &'a str>> {
        let samples = &self.samples[..self.len()];
        let is_known = samples.iter().any(|sample| sample.text(name).is_some());
        is_known.then(|| samples.iter().map(move |sample| sample.text(name).unwrap_or_default()))
    }

    /// Returns whether each sample is valid. The value is false for padding
    /// ([`LastBatch::Pad`](crate::LastBatch::Pad)), for replacements of skipped samples
    /// ([`OnError::Skip`](crate::OnError::Skip)), and for bad images of a
    /// [`Decoder`](crate::Decoder).
    pub fn valid(&self) -> impl ExactSizeIterator<Item = bool> + '_ {
        self.header.entries.iter().map(|entry| entry.valid)
    }

    /// Returns the part of each output image that shows its source image, before geometric effects.
    /// The part is smaller than the output image if source images keep their own sizes
    /// ([`Augment::own_size`](crate::Augment::own_size)), and with other augmentations that pad the
    /// image. It refers to the first image field without a separate augmentation. It is the whole
    /// image if the image combines several source images, or if a
    /// [`Transform`](crate::transform::Transform) received the whole image. It is empty for a
    /// failed sample without a replacement, and in a loader without images.
    pub fn shown(&self) -> impl ExactSizeIterator<Item = Rect> + '_ {
        self.samples[..self.len()].iter().map(|sample| sample.shown)
    }

    /// Returns the error of the sample in row `place`, if any. In a batch of a
    /// [`Decoder`](crate::Decoder), the failed image is black. With
    /// [`OnError::Skip`](crate::OnError::Skip), a different sample replaces the failed one.
    pub fn error(&self, place: usize) -> Option<&Error> {
        self.samples[..self.len()].get(place)?.fault.as_ref()
    }

    /// Returns the source indices and errors of the failed samples.
    pub(crate) fn failed(&self) -> impl Iterator<Item = (u64, &Error)> {
        let entries = self.header.entries.iter().zip(&self.samples);
        entries.filter_map(|(entry, sample)| Some((sample.replaced.unwrap_or(entry.sample), sample.fault.as_ref()?)))
    }

    /// Returns the number of images in the batch that were decoded despite damage.
    pub(crate) fn damaged(&self) -> u64 {
        let sound = self.samples[..self.len()].iter().filter(|sample| sample.fault.is_none());
        sound.map(|sample| u64::from(sample.damaged)).sum()
    }

    /// Returns how the samples were mixed with each other ([`Augment::mix`](crate::Augment::mix)),
    /// or `None` if they were not.
    pub fn mixing(&self) -> Option<&Mixing> {
        self.header.mixing.as_ref()
    }

    /// Returns whether the batch lacks the field of `role` although the loader has one. Only labels
    /// can be missing, namely if no sample has one.
    pub(crate) fn hides(&self, role: Role) -> bool {
        role == Role::Label && !self.header.labeled
    }

    /// Returns `field`, the position of the labels, if the samples have labels.
    ///
    /// # Errors
    /// If the loader has no such field, or the samples have no labels.
    pub(crate) fn labels(&self, field: Option<usize>) -> Result<usize> {
        let field = field.ok_or_else(|| Error::config("labels: the loader was opened with drop_field(\"label\")"))?;
        if self.header.labeled {
            return Ok(field);
        }
        let usual = "no label, like all samples of its batch: remove labels with drop_field(\"label\"), read -1 with \
                     unlabeled(true), or name the column or array with labels with \
                     TableOptions::label";
        let cause = self.samples[0].advice.as_deref().unwrap_or(usual);
        Err(Error::in_source(cause).at_sample(self.header.entries[0].sample, &self.samples[0].key))
    }
}
