use std::sync::Arc;

use super::Role;
use crate::decode::Rect;
use crate::error::{Error, Result};
use crate::sampler::Entry;
use crate::source::BatchIndex;
use crate::transform::Mixing;

/// Record of a batch: which samples it holds, and their errors.
///
/// [`HostBatch`](crate::HostBatch) and batches in device memory dereference to it.
#[derive(Debug, Default)]
pub struct BatchInfo {
    pub(crate) header: Header,
    /// One entry per place of the largest batch. Entries are reused from batch to batch.
    pub(crate) samples: Vec<SampleInfo>,
}

/// Metadata of the batch as a whole. The coordinator sets it, except where noted.
#[derive(Debug, Default)]
pub(crate) struct Header {
    /// Number of the run, counted by `Engine::start`. Parts of older runs are cancelled.
    pub(crate) run: u64,
    /// Number of the batch in its run.
    pub(crate) turn: u64,
    pub(crate) epoch: u64,
    /// Number of the batch in its epoch.
    pub(crate) number: u64,
    /// The batch after it in the run. `None` if the run ends here. After the last batch of an
    /// epoch, this is the first batch of the next one, although nobody knows yet whether that epoch
    /// can be prepared.
    pub(crate) next: Option<BatchIndex>,
    /// Number of the batch's schema among those of the loader, a function of the epoch.
    pub(crate) form: usize,
    pub(crate) entries: Vec<Entry>,
    /// Mixing of the batch, if any. The last worker mixes on the host, and the conversion kernel on
    /// a device.
    pub(crate) mixing: Option<Mixing>,
    /// Whether the labels may be read. The last worker sets it.
    pub(crate) labeled: bool,
    /// Launch sizes for each image that a device may decode, in the order of the fields. `None`
    /// if the device decodes that image for none of the samples. The last worker sets them.
    pub(crate) largest: Vec<Option<Largest>>,
}

/// Metadata of one sample.
#[derive(Debug, Default)]
pub(crate) struct SampleInfo {
    pub(crate) key: String,
    pub(crate) labeled: bool,
    /// Advice if the samples have no labels.
    pub(crate) advice: Option<Arc<str>>,
    /// The part of the image that shows the image.
    pub(crate) shown: Rect,
    /// The sample's error, if it could not be delivered.
    pub(crate) fault: Option<Error>,
    /// The failed sample that this one replaces.
    pub(crate) replaced: Option<u64>,
    /// Number of its images that were decoded although they are damaged.
    pub(crate) damaged: u32,
    /// Its texts by the name of the field. They keep their memory from batch to batch.
    texts: Vec<(String, String)>,
}

/// Maximum memory of a text, in bytes, that is kept for the next batch.
const KEPT: usize = 1 << 16;

impl SampleInfo {
    /// Forgets the texts of an earlier sample.
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

    /// Takes the texts of the sample that replaces this one.
    pub(crate) fn replace_texts(&mut self, donor: &[(String, String)]) {
        self.clear_texts();
        donor.iter().for_each(|(name, text)| self.set_text(name, text));
    }

    pub(crate) fn texts(&self) -> &[(String, String)] {
        &self.texts
    }
}

/// Maxima over the images of a batch that a device decodes, which determine the launch sizes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Largest {
    /// Segments of an image.
    pub(crate) segments: u32,
    /// Bytes of a segment.
    pub(crate) longest: u32,
    /// Columns of an image's region.
    pub(crate) columns: u32,
    /// End of the last image's blocks.
    pub(crate) blocks: usize,
    /// Whether an image is turned upright.
    pub(crate) turned: bool,
    /// Whether a record is a copy, which replaces a failed sample.
    pub(crate) copied: bool,
}

impl BatchInfo {
    /// An empty record with room for `batch` samples.
    pub(crate) fn new(batch: usize) -> Self {
        let header = Header { entries: Vec::with_capacity(batch), ..Header::default() };
        BatchInfo { header, samples: (0..batch).map(|_| SampleInfo::default()).collect() }
    }

    /// Number of samples, N.
    #[allow(clippy::len_without_is_empty)] // a batch has at least one sample
    pub fn len(&self) -> usize {
        self.header.entries.len()
    }

    /// Epoch of the batch.
    pub fn epoch(&self) -> u64 {
        self.header.epoch
    }

    /// Number of the batch in its epoch, from 0.
    pub fn number(&self) -> u64 {
        self.header.number
    }

    /// Source index of each sample. In place of a skipped sample it is that of its
    /// [replacement](crate::OnError::Skip), whose pixels and fields are there.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.header.entries.iter().map(|entry| entry.sample)
    }

    /// Key of each sample, such as `n01440764/n01440764_10026`. In place of a skipped sample it is
    /// that of its replacement.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> + '_ {
        self.samples[..self.len()].iter().map(|sample| sample.key.as_str())
    }

    /// The text of each sample in the field `name`, if that is a field of
    /// [`Text`](crate::field::Text). The text of a failed sample that is not replaced is empty.
    pub fn texts<'a>(&'a self, name: &'a str) -> Option<impl ExactSizeIterator<Item = &'a str>> {
        let samples = &self.samples[..self.len()];
        let is_known = samples.iter().any(|sample| sample.text(name).is_some());
        is_known.then(|| samples.iter().map(move |sample| sample.text(name).unwrap_or_default()))
    }

    /// Whether each sample counts. False for padding ([`LastBatch::Pad`](crate::LastBatch::Pad)),
    /// for replacements of skipped samples ([`OnError::Skip`](crate::OnError::Skip)), and for bad
    /// images of a [`Decoder`](crate::Decoder).
    pub fn valid(&self) -> impl ExactSizeIterator<Item = bool> + '_ {
        self.header.entries.iter().map(|entry| entry.valid)
    }

    /// The part of each image that shows its image, before geometric effects: for images in
    /// their own sizes ([`Augment::own_size`](crate::Augment::own_size)), and for other beginnings
    /// that fill the rest of the image. It is that of the first image without an augmentation of
    /// its own. All of the image counts if it joins several images, and if a
    /// [`Transform`](crate::transform::Transform) got all of it. The part is empty for a failed sample
    /// that is not replaced, and in a loader without images.
    pub fn shown(&self) -> impl ExactSizeIterator<Item = Rect> + '_ {
        self.samples[..self.len()].iter().map(|sample| sample.shown)
    }

    /// The error of the sample at `place`, if any. In a batch of a [`Decoder`](crate::Decoder) the
    /// image is black there; with [`OnError::Skip`](crate::OnError::Skip) another sample
    /// replaces it.
    pub fn error(&self, place: usize) -> Option<&Error> {
        self.samples[..self.len()].get(place)?.fault.as_ref()
    }

    /// The samples that failed, by their index in the source, with their errors.
    pub(crate) fn failed(&self) -> impl Iterator<Item = (u64, &Error)> {
        let entries = self.header.entries.iter().zip(&self.samples);
        entries.filter_map(|(entry, sample)| Some((sample.replaced.unwrap_or(entry.sample), sample.fault.as_ref()?)))
    }

    /// Number of its images that were decoded although they are damaged.
    pub(crate) fn damaged(&self) -> u64 {
        let sound = self.samples[..self.len()].iter().filter(|sample| sample.fault.is_none());
        sound.map(|sample| u64::from(sample.damaged)).sum()
    }

    /// How the samples were mixed with each other ([`Augment::mix`](crate::Augment::mix)), or
    /// `None`.
    pub fn mixing(&self) -> Option<&Mixing> {
        self.header.mixing.as_ref()
    }

    /// Whether a field of `role` is missing from the batch although the loader has it. Only labels
    /// can be missing, if no sample has one.
    pub(crate) fn hides(&self, role: Role) -> bool {
        role == Role::Label && !self.header.labeled
    }

    /// Returns `field`, the position of the labels, if the samples have labels.
    ///
    /// # Errors
    /// If the loader has no such field, or the samples have no labels.
    pub(crate) fn labels(&self, field: Option<usize>) -> Result<usize> {
        let field = field.ok_or_else(|| Error::config("labels: the loader was opened without(\"label\")"))?;
        if self.header.labeled {
            return Ok(field);
        }
        let usual = "no label, like all samples of its batch; leave labels out with without(\"label\"), read -1 with \
                     unlabeled(true), or name the column or array of labels, if there is one, with \
                     TableOptions::label";
        let cause = self.samples[0].advice.as_deref().unwrap_or(usual);
        Err(Error::in_source(cause).at_sample(self.header.entries[0].sample, &self.samples[0].key))
    }
}
