//! [`Task`]: reads, recodes and checks one sample.

use std::ops::Range;

use super::bad_images::Remark;
use super::recode::{Recode, Treatment};
use super::renumber::renumber;
use crate::decode::Codecs;
use crate::error::{Error, ErrorKind, Result, append, guarded};
use crate::source::{self, Sample, Source, is_stopped};

/// A sample that was read and recoded. Its memory is reused for later samples.
#[derive(Default)]
pub(super) struct Prepared {
    pub(super) key: String,
    pub(super) label: Option<i64>,
    /// The name of each field, and the range of its content in `bytes`.
    fields: Vec<(String, Range<usize>)>,
    pub(super) bytes: Vec<u8>,
    pub(super) treatment: Option<Treatment>,
    pub(super) refused: bool,
    pub(super) remark: Option<Remark>,
    pub(super) image_in: usize,
    pub(super) image_out: usize,
    /// A buffer for each attempt to read the sample. An attempt that failed may still borrow its
    /// buffer.
    scratch: Vec<Vec<u8>>,
}

impl Prepared {
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

    fn fill(&mut self, task: Task<'_>, index: usize) -> Result<()> {
        let Task { source, codecs, recode, retries } = task;
        self.scratch.resize_with(retries + 1, Vec::new);
        let (mut buffers, may_retry) = (self.scratch.iter_mut(), || !is_stopped());
        let read = || source.read(index, buffers.next().expect("there is a buffer for every attempt"));
        self.key.clear();
        let sample = source::retried(retries, index as u64, may_retry, read)?;
        self.key.push_str(sample.key());
        self.label = sample.label()?;
        self.fields.clear();
        self.bytes.clear();
        (self.treatment, self.refused, self.remark) = (None, false, None);
        (self.image_in, self.image_out) = (0, 0);
        let image = codecs.image(&sample).map(|(name, _)| name);
        for &(name, value) in sample.fields() {
            let bytes = &*value.encoded(name);
            let start = self.bytes.len();
            let mut stored_as = name;
            if Some(name) == image {
                match recode.apply(codecs, bytes, &mut self.bytes) {
                    Ok((treatment, renamed)) => {
                        if matches!(treatment, Treatment::Encoded | Treatment::Raw) {
                            check_annotations(codecs, &sample, bytes, &self.bytes[start..])?;
                        }
                        self.treatment = Some(treatment);
                        stored_as = renamed.unwrap_or(name);
                        // An image that was repacked is valid. Check all others.
                        if treatment != Treatment::Repacked {
                            self.remark = Remark::of(codecs, bytes, None)?;
                            self.refused = matches!(self.remark, Some(Remark::Undecodable(_)));
                        }
                    }
                    // If memory ran out, the image is not the cause.
                    Err(e) if e.kind() == ErrorKind::Memory => return Err(e),
                    Err(e) => {
                        self.bytes.truncate(start);
                        append(&mut self.bytes, bytes)?;
                        (self.remark, self.refused) = (Remark::of(codecs, bytes, Some(e))?, true);
                    }
                }
                (self.image_in, self.image_out) = (bytes.len(), self.bytes.len() - start);
            } else {
                append(&mut self.bytes, bytes)?;
                renumber(&sample, name, &mut self.bytes, start)?;
            }
            self.fields.push((stored_as.to_owned(), start..self.bytes.len()));
        }
        Ok(())
    }
}

/// Checks that annotations in pixels remain valid if `image` is replaced with `recoded`.
///
/// # Errors
/// If the size of the image changes, and the sample has boxes, points or a mask in pixels of the
/// original.
fn check_annotations(codecs: &Codecs, sample: &Sample<'_>, image: &[u8], recoded: &[u8]) -> Result<()> {
    let relative = sample.field("boxes.units.txt").is_some_and(|text| text.trim_ascii() == b"relative");
    let in_pixels = |name: &str| match name.split('.').next() {
        Some("boxes") => !relative,
        Some("mask" | "points") => true,
        _ => false,
    };
    let Some((name, _)) = sample.fields().iter().find(|(name, _)| in_pixels(name)) else { return Ok(()) };
    let (was, is) = (codecs.open(image)?.size(), codecs.open(recoded)?.size());
    if was == is {
        return Ok(());
    }
    Err(Error::in_source(format!(
        "the image would become {}x{} instead of {}x{}, but the field {name:?} refers to pixels of the original: pack without resizing",
        is.width, is.height, was.width, was.height
    )))
}

/// A source, and the options for recoding its samples.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) codecs: &'a Codecs,
    pub(super) recode: Recode,
    pub(super) retries: usize,
}

impl Task<'_> {
    /// Reads and recodes sample `index`. A panic in the source or in a codec is converted to an
    /// error.
    pub(super) fn prepare(self, index: usize, mut prepared: Prepared) -> Result<Prepared> {
        let filled = guarded(|| prepared.fill(self, index));
        filled.map_err(|e| source::sample_error(self.source, index, &prepared.key, e))?;
        Ok(prepared)
    }
}
