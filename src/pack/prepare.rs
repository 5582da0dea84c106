//! [`Preparer`] reads, recodes and checks one sample.

use std::ops::Range;

use warpfeed_sources::format;

use super::bad_images::ImageProblem;
use super::recode::{Recode, RecodeOutcome};
use super::renumber::renumber;
use crate::decode::{Codecs, Oriented, Size};
use crate::error::{Error, ErrorKind, Result, append, guarded};
use crate::source::{self, Frames, Npy, Sample, Source, is_stopped};

/// A sample that is ready to be written. The memory is reused for later samples.
#[derive(Default)]
pub(super) struct PreparedSample {
    pub(super) key: String,
    pub(super) label: Option<i64>,
    /// The name of each field, and its range in `bytes`.
    fields: Vec<(String, Range<usize>)>,
    pub(super) bytes: Vec<u8>,
    pub(super) images: Vec<PreparedImage>,
    /// One buffer per attempt. An attempt that failed may still borrow its buffer.
    scratch: Vec<Vec<u8>>,
}

pub(super) struct PreparedImage {
    /// What was done to the image, or `None` if it was stored unchanged because recoding failed or
    /// because it cannot be decoded.
    pub(super) outcome: Option<RecodeOutcome>,
    pub(super) problem: Option<ImageProblem>,
    /// Size in bytes before recoding.
    pub(super) bytes_in: usize,
    /// Size in bytes after recoding.
    pub(super) bytes_out: usize,
}

impl PreparedSample {
    pub(super) fn sample(&self) -> Result<Sample<'_>> {
        let mut sample = Sample::new(&self.key);
        if let Some(label) = self.label {
            sample = sample.with_label(label);
        }
        for (name, range) in &self.fields {
            sample.push(name, &self.bytes[range.clone()])?;
        }
        Ok(sample)
    }

    fn fill(&mut self, preparer: Preparer<'_>, index: usize) -> Result<()> {
        let Preparer { source, codecs, images, retries, .. } = preparer;
        self.scratch.resize_with(retries + 1, Vec::new);
        let (mut buffers, may_retry) = (self.scratch.iter_mut(), || !is_stopped());
        let read_sample = || source.read(index, buffers.next().expect("there is a buffer for every attempt"));
        self.key.clear();
        let sample = source::retried(retries, index as u64, may_retry, read_sample)?;
        self.key.push_str(sample.key());
        self.label = sample.label()?;
        self.fields.clear();
        self.bytes.clear();
        self.images.clear();
        let main_image = codecs.image(&sample).map(|(name, _)| name);
        for &(name, value) in sample.fields() {
            let bytes = &*value.encoded(name);
            let start = self.bytes.len();
            let mut stored_name = name.to_owned();
            if Some(name) == main_image {
                preparer.recode_image(&sample, bytes, &mut self.bytes, &mut self.images)?;
                let outcome = self.images.last().and_then(|image| image.outcome);
                if let Some(format) = outcome.and_then(RecodeOutcome::format) {
                    format.field.clone_into(&mut stored_name);
                }
            } else if images.iter().any(|image| is_image_field(name, image)) {
                // The field keeps its name, because programs read it by name, and an image's format
                // is detected from its first bytes.
                let first_image = self.images.len();
                preparer.recode_field(&sample, bytes, &mut self.bytes, &mut self.images)?;
                for image in &mut self.images[first_image..] {
                    image.problem = image.problem.take().map(|problem| problem.in_field(name));
                }
            } else {
                append(&mut self.bytes, bytes)?;
                renumber(&sample, name, &mut self.bytes, start)?;
            }
            self.fields.push((stored_name, start..self.bytes.len()));
        }
        Ok(())
    }
}

/// Returns whether `name` is the image field `requested`, which may omit the extension of an image
/// format.
pub(super) fn is_image_field(name: &str, requested: &str) -> bool {
    let suffix = name.strip_prefix(requested);
    suffix.is_some_and(|suffix| suffix.is_empty() || suffix.strip_prefix('.').is_some_and(format::is_image_field))
}

/// Returns whether a field contains an image, an array or a clip of the size `original`. The size may
/// be that of the stored or the upright image.
fn has_size_of(original: Oriented, codecs: &Codecs, bytes: &[u8]) -> bool {
    let is_equal = |size| size == original.size() || original.frame(Some(size)).is_ok();
    if Npy::matches(bytes) {
        let shape = Npy::read(bytes).ok().and_then(|npy| npy.shape).unwrap_or_default();
        let is_equal_side = |axes: &[usize]| match [axes[1], axes[0]].map(u32::try_from) {
            [Ok(width), Ok(height)] => is_equal(Size::new(width, height)),
            _ => false,
        };
        return shape.windows(2).any(is_equal_side);
    }
    if Frames::matches(bytes) {
        let frames = Frames::read(bytes);
        return frames
            .is_ok_and(|frames| frames.iter().next().is_some_and(|frame| has_size_of(original, codecs, frame)));
    }
    codecs.open(bytes).is_ok_and(|image| is_equal(image.size()))
}

#[derive(Clone, Copy)]
pub(super) struct Preparer<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) codecs: &'a Codecs,
    pub(super) recode: Recode,
    /// Fields with images in addition to the main image.
    pub(super) images: &'a [String],
    pub(super) retries: usize,
}

impl Preparer<'_> {
    /// Reads and recodes a sample. A panic in the source or in a codec becomes an error.
    pub(super) fn prepare(self, index: usize, mut prepared: PreparedSample) -> Result<PreparedSample> {
        let result = guarded(|| prepared.fill(self, index));
        result.map_err(|e| source::sample_error(self.source, index, &prepared.key, e))?;
        Ok(prepared)
    }

    /// Fails if recoding changes the size of the image, and the sample has boxes, points or a mask in
    /// pixels of the original image, or a different field that has the size of the original image
    /// and would keep it.
    fn check_other_fields(self, sample: &Sample<'_>, image: &[u8], recoded: &[u8]) -> Result<()> {
        let codecs = self.codecs;
        let (original, recoded_size) = (codecs.open(image)?.oriented(), codecs.open(recoded)?.size());
        if original.size() == recoded_size {
            return Ok(());
        }
        let is_relative = sample.field("boxes.units.txt").is_some_and(|text| text.trim_ascii() == b"relative");
        let is_in_pixels = |name: &str| match name.split('.').next() {
            Some("boxes") => !is_relative,
            Some("mask" | "points") => true,
            _ => false,
        };
        let main_image = codecs.image(sample).map(|(name, _)| name);
        let is_recoded =
            |name: &str| Some(name) == main_image || self.images.iter().any(|image| is_image_field(name, image));
        let sizes = |name: &str, problem: &str| {
            let original = original.size();
            Error::in_source(format!(
                "the image would become {}x{} instead of {}x{}, but the field {name:?} {problem}",
                recoded_size.width, recoded_size.height, original.width, original.height
            ))
        };
        for &(name, value) in sample.fields() {
            if is_in_pixels(name) {
                return Err(sizes(name, "refers to pixels of the original: pack without resizing"));
            }
            if !is_recoded(name) && has_size_of(original, codecs, &value.encoded(name)) {
                let problem = "has the size of the original and would keep it: pack without resizing, or, if the field \
                               contains photographs and not masks or maps, name it in the option images";
                return Err(sizes(name, problem));
            }
        }
        Ok(())
    }

    /// Recodes the image, or each of the [`Frames`], in a field, and appends the result to `out`.
    /// An image that cannot be recoded is appended unchanged. Fails if memory runs out, if the
    /// image would no longer match a different field, or if the frames are invalid or have jitter.
    fn recode_field(
        self,
        sample: &Sample<'_>,
        bytes: &[u8],
        out: &mut Vec<u8>,
        images: &mut Vec<PreparedImage>,
    ) -> Result<()> {
        if !Frames::matches(bytes) {
            return self.recode_image(sample, bytes, out, images);
        }
        let frames = Frames::read(bytes)?;
        if frames.choices() > 1 {
            return Err(Error::config("clips with jitter cannot be packed: set start_jitter to 0"));
        }
        let (start, first_image) = (out.len(), images.len());
        frames.append_mapped(out, |frame, out| self.recode_image(sample, frame, out, images))?;
        let images = &mut images[first_image..];
        let is_unchanged = |image: &PreparedImage| matches!(image.outcome, None | Some(RecodeOutcome::Kept));
        // The frames of a video share packets, which a list of separate frames would repeat.
        if out.len() - start > bytes.len() && images.iter().all(is_unchanged) {
            out.truncate(start);
            append(out, bytes)?;
            let (count, len) = (images.len(), bytes.len());
            for (index, image) in images.iter_mut().enumerate() {
                let share = len * (index + 1) / count - len * index / count;
                (image.bytes_in, image.bytes_out) = (share, share);
            }
        }
        Ok(())
    }

    fn recode_image(
        self,
        sample: &Sample<'_>,
        bytes: &[u8],
        out: &mut Vec<u8>,
        images: &mut Vec<PreparedImage>,
    ) -> Result<()> {
        let start = out.len();
        let (outcome, problem) = match self.recode.apply(self.codecs, bytes, out) {
            Ok(outcome) => {
                let problem = match outcome {
                    // Repacking has already checked the image.
                    RecodeOutcome::Repacked => None,
                    RecodeOutcome::Kept => ImageProblem::find(self.codecs, bytes, None)?,
                    RecodeOutcome::Encoded(_) | RecodeOutcome::Raw => {
                        self.check_other_fields(sample, bytes, &out[start..])?;
                        match self.codecs.open(bytes)?.is_checked_by_decoding() {
                            true => None,
                            false => ImageProblem::find(self.codecs, bytes, None)?,
                        }
                    }
                };
                let is_undecodable = matches!(problem, Some(ImageProblem::Undecodable(_)));
                if is_undecodable {
                    out.truncate(start);
                    append(out, bytes)?;
                }
                (Some(outcome).filter(|_| !is_undecodable), problem)
            }
            // If memory ran out, the image itself may be valid.
            Err(e) if e.kind() == ErrorKind::Memory => return Err(e),
            Err(e) => {
                out.truncate(start);
                append(out, bytes)?;
                (None, ImageProblem::find(self.codecs, bytes, Some(e))?)
            }
        };
        images.push(PreparedImage { outcome, problem, bytes_in: bytes.len(), bytes_out: out.len() - start });
        Ok(())
    }
}
