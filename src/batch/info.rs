//! The metadata of a batch.

use std::sync::Arc;

use super::Role;
use crate::decode::Rect;
use crate::error::{Error, Result};
use crate::sampler::Entry;
use crate::source::BatchIndex;
use crate::transform::Mixing;

/// Metadata of a batch, such as the keys, indices and errors of its samples.
///
/// [`HostBatch`](crate::HostBatch) and batches in device memory dereference to this type.
#[derive(Debug, Default)]
pub struct BatchInfo {
    pub(crate) header: BatchHeader,
    /// One element for each row of a full batch. Elements are reused from batch to batch.
    pub(crate) samples: Vec<SampleInfo>,
}

/// Metadata of the batch as a whole. The coordinator thread, which assigns samples to free slots,
/// sets the fields, except where noted.
#[derive(Debug, Default)]
pub(crate) struct BatchHeader {
    /// ID of the run that requested the batch. Threads stop working on the batch if this is no
    /// longer the current run.
    pub(crate) run: u64,
    /// Index within the run, starting at 0.
    pub(crate) seq: u64,
    pub(crate) epoch: u64,
    /// Index within the epoch.
    pub(crate) batch_index: u64,
    /// Position of the run's next batch, or `None` if the run ends after this batch. After the last
    /// batch of an epoch, the next batch is the first batch of the next epoch. Its position is set
    /// even if preparing that epoch fails later.
    pub(crate) next: Option<BatchIndex>,
    /// Index of the batch's schema. A loader has one schema for each combination of image sizes.
    /// The index depends only on `epoch` and `batch_index`.
    pub(crate) variant: usize,
    /// One entry per sample. The worker that finishes the batch changes the entries of failed
    /// samples.
    pub(crate) entries: Vec<Entry>,
    /// `None` if the samples are not mixed.
    pub(crate) mixing: Option<Mixing>,
    /// True if a sample that did not fail has a label, or if the loader delivers missing labels as
    /// -1. Set by the worker that finishes the batch.
    pub(crate) has_labels: bool,
    /// For each image field that a device may decode, the statistics that determine the launch
    /// sizes of the decode kernels. `None` if the device decodes no sample of the field. Set by the
    /// worker that finishes the batch.
    pub(crate) launch_stats: Vec<Option<LaunchStats>>,
    /// For each array whose first axis is not the batch axis ([`Role::is_packed`]): the index of
    /// its span in the schema, and the length of its first axis. Set by the worker that finishes
    /// the batch.
    pub(crate) packed: Vec<(usize, usize)>,
}

#[derive(Debug, Default)]
pub(crate) struct SampleInfo {
    pub(crate) key: String,
    pub(crate) has_label: bool,
    /// Cause of the error if the batch has no labels, instead of the default. Only the cause of the
    /// batch's first sample is reported.
    pub(crate) missing_label_cause: Option<Arc<str>>,
    /// The part of the output image that shows the source image.
    pub(crate) image_area: Rect,
    pub(crate) fault: Option<Error>,
    /// Source index of the failed sample that this sample replaces.
    pub(crate) replaced_sample: Option<u64>,
    pub(crate) damaged_images: u32,
    /// Number of damaged images outside the image fields, such as in patches. `damaged_images` is
    /// reset to this number if a worker decodes the image fields again because a device could not:
    /// the worker does not decode the other fields a second time.
    pub(crate) damaged_field_images: u32,
    /// Pairs of field name and text. Allocations are reused from batch to batch.
    texts: Vec<(String, String)>,
}

/// Maximum size of an allocation that is retained for reuse, in bytes.
const MAX_RETAINED_TEXT_BYTES: usize = 1 << 16;

impl SampleInfo {
    pub(crate) fn clear_texts(&mut self) {
        for (_, text) in &mut self.texts {
            text.clear();
            text.shrink_to(MAX_RETAINED_TEXT_BYTES);
        }
    }

    pub(crate) fn set_text(&mut self, name: &str, text: &str) {
        match self.texts.iter_mut().find(|(key, _)| key == name) {
            Some((_, out)) => text.clone_into(out),
            None => self.texts.push((name.to_owned(), text.to_owned())),
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.texts.iter().find(|(key, _)| key == name).map(|(_, text)| text.as_str())
    }

    pub(crate) fn replace_texts(&mut self, donor: &[(String, String)]) {
        self.clear_texts();
        donor.iter().for_each(|(name, text)| self.set_text(name, text));
    }

    pub(crate) fn texts(&self) -> &[(String, String)] {
        &self.texts
    }
}

/// Statistics of the images in a batch that a device decodes. They determine the kernels' launch
/// sizes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LaunchStats {
    pub(crate) max_segments: u32,
    /// Size of the longest restart segment, in bytes.
    pub(crate) max_segment_bytes: u32,
    /// Maximum width of a decoded region, in pixels.
    pub(crate) max_columns: u32,
    /// Highest end offset of an image in the scratch memory for coefficients, in blocks.
    pub(crate) end_block: usize,
    /// Total encoded size in bytes of JPEGs of at least `DecodeOps::LARGE_BYTES`.
    pub(crate) large_bytes: usize,
    /// Total number of blocks in images of at least `DecodeOps::LARGE_BLOCKS`.
    pub(crate) large_blocks: usize,
    pub(crate) has_turned: bool,
    /// True if a sample is a copy that replaces a failed sample.
    pub(crate) has_copies: bool,
}

impl BatchInfo {
    pub(crate) fn new(batch: usize) -> Self {
        let header = BatchHeader { entries: Vec::with_capacity(batch), ..BatchHeader::default() };
        BatchInfo { header, samples: (0..batch).map(|_| SampleInfo::default()).collect() }
    }

    /// Returns the number of samples in the batch.
    #[allow(clippy::len_without_is_empty)] // a batch has at least one sample
    pub fn len(&self) -> usize {
        self.header.entries.len()
    }

    /// Returns the epoch of the batch.
    pub fn epoch(&self) -> u64 {
        self.header.epoch
    }

    /// Returns the index of the batch within its epoch, starting at 0.
    pub fn batch_index(&self) -> u64 {
        self.header.batch_index
    }

    /// Returns the source index of each sample. For a skipped sample, this is the index of its
    /// [replacement](crate::OnError::Skip), which also provides the pixels and fields of the row.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.header.entries.iter().map(|entry| entry.sample)
    }

    /// Returns the key of each sample, such as `n01440764/n01440764_10026`. For a skipped sample,
    /// returns the key of its replacement.
    pub fn sample_keys(&self) -> impl ExactSizeIterator<Item = &str> + '_ {
        self.samples[..self.len()].iter().map(|sample| sample.key.as_str())
    }

    /// Returns the text that each sample has in the [`Text`](crate::field::Text) field `name`, or
    /// `None` if the loader has no such field. A failed sample without a replacement has an empty
    /// text. If all samples of the batch failed, the result may be `None`.
    pub fn texts<'a>(&'a self, name: &'a str) -> Option<impl ExactSizeIterator<Item = &'a str>> {
        let samples = &self.samples[..self.len()];
        let is_known = samples.iter().any(|sample| sample.text(name).is_some());
        is_known.then(|| samples.iter().map(move |sample| sample.text(name).unwrap_or_default()))
    }

    /// Returns whether each sample is valid. Padding at the end of an epoch
    /// ([`LastBatch`](crate::LastBatch)), replacements of skipped samples
    /// ([`OnError::Skip`](crate::OnError::Skip)), and bad images of a [`Decoder`](crate::Decoder)
    /// are not valid.
    pub fn valid(&self) -> impl ExactSizeIterator<Item = bool> + '_ {
        self.header.entries.iter().map(|entry| entry.valid)
    }

    /// Returns the area of each output image that shows the source image, before geometric effects
    /// are applied.
    ///
    /// The rectangle is smaller than the output image if images keep their own sizes
    /// ([`Augment::pad_to`](crate::Augment::pad_to)) or are padded by the augmentation. It is the
    /// whole output image if that image is a mosaic, or if a
    /// [`Transform`](crate::transform::Transform) that may move pixels received the whole image.
    ///
    /// If there are several image fields, the rectangle refers to the first image field without its
    /// own augmentation. It is empty if no field uses the loader's augmentation, for example in a
    /// loader without images. It has no meaning for a failed sample without a replacement.
    pub fn image_areas(&self) -> impl ExactSizeIterator<Item = Rect> + '_ {
        self.samples[..self.len()].iter().map(|sample| sample.image_area)
    }

    /// Returns the error of the sample in `row`, if the sample failed. In a batch of a
    /// [`Decoder`](crate::Decoder), the row of a failed sample contains a black image. With
    /// [`OnError::Skip`](crate::OnError::Skip), the row contains the replacement.
    pub fn error(&self, row: usize) -> Option<&Error> {
        self.samples[..self.len()].get(row)?.fault.as_ref()
    }

    pub(crate) fn failed(&self) -> impl Iterator<Item = (u64, &Error)> {
        let entries = self.header.entries.iter().zip(&self.samples);
        entries.filter_map(|(entry, sample)| {
            Some((sample.replaced_sample.unwrap_or(entry.sample), sample.fault.as_ref()?))
        })
    }

    pub(crate) fn damaged(&self) -> u64 {
        let delivered = self.samples[..self.len()].iter().filter(|sample| sample.fault.is_none());
        delivered.map(|sample| u64::from(sample.damaged_images)).sum()
    }

    /// Returns how the samples were mixed ([`Augment::mix`](crate::Augment::mix)), if they were.
    pub fn mixing(&self) -> Option<&Mixing> {
        self.header.mixing.as_ref()
    }

    /// Returns whether the batch omits the field with this role. Labels are omitted if no sample
    /// has a label and the loader does not deliver missing labels as -1.
    pub(crate) fn hides(&self, role: Role) -> bool {
        role == Role::Label && !self.header.has_labels
    }

    /// Returns the length of a span's first axis, and the lengths of its other axes. `row` is the
    /// shape of one sample.
    pub(crate) fn shape<'a>(&self, span: usize, row: &'a [usize]) -> (usize, &'a [usize]) {
        match self.header.packed.iter().find(|(packed, _)| *packed == span) {
            Some((_, len)) => (*len, &row[1..]),
            None => (self.len(), row),
        }
    }

    /// Returns `field`, the index of the label field, if the batch has labels. Fails if `field` is
    /// `None` or the batch has no labels.
    pub(crate) fn labels(&self, field: Option<usize>) -> Result<usize> {
        let field = field.ok_or_else(|| {
            Error::config("labels: the batch has no label field: remove drop_field(\"label\"); batches of a Decoder have no labels")
        })?;
        if self.header.has_labels {
            return Ok(field);
        }
        let default_cause = "no label, and no other sample of its batch has one: remove labels with drop_field(\"label\"), \
                     read -1 with unlabeled(true), or select the column or array of a table that contains the labels with \
                     TableOptions::label";
        let cause = self.samples[0].missing_label_cause.as_deref().unwrap_or(default_cause);
        Err(Error::in_source(cause).at_sample(self.header.entries[0].sample, &self.samples[0].key))
    }
}
