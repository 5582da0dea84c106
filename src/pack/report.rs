//! [`Report`], the result of packing a dataset, and [`Progress`].

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};

use super::Written;
use super::bad_images::{ImageIssue, ImageProblem, push_limited};
use super::prepare::{PreparedImage, PreparedSample};
use super::recode::RecodeOutcome;

pub(super) type Callback<'a> = Box<dyn FnMut(&Progress) + 'a>;

/// Progress of a [`Pack`](crate::pack::Pack).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Progress {
    /// Number of samples that were processed, including samples that an earlier, interrupted run
    /// packed.
    pub samples: u64,
    /// Number of samples to pack in total.
    pub total: u64,
    /// Total size of the processed samples' images before packing, in bytes.
    pub bytes_in: u64,
    /// Total size of the processed samples' images after packing, in bytes.
    pub bytes_out: u64,
}

/// The peak signal-to-noise ratios of images that were encoded as JPEGs, in dB. Each image is
/// compared with the pixels that were passed to the encoder, so the ratios do not include the
/// effect of shrinking. Identical images count as 100 dB.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Psnr {
    /// Mean over all images.
    pub mean: f64,
    /// Lowest ratio of any image.
    pub lowest: f64,
    /// Key of the sample that contains the image with the lowest ratio.
    pub lowest_key: String,
}

/// Result of a [`Pack`](crate::pack::Pack).
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Report {
    /// Number of samples that were stored.
    pub samples: u64,
    /// Size in bytes of all images before packing.
    pub bytes_in: u64,
    /// Size in bytes of all images after packing.
    pub bytes_out: u64,
    /// Number of JPEGs that were rewritten losslessly with
    /// [`repack_jpeg`](crate::pack::repack_jpeg).
    pub repacked_jpegs: u64,
    /// Number of images that were decoded and encoded again.
    pub reencoded: u64,
    /// Number of images that were stored as arrays.
    pub raw: u64,
    /// Number of images that were stored unchanged, either on request or because they are not
    /// JPEGs, plus the number of samples without an image. Images in `not_recoded_count` are not
    /// included.
    ///
    /// If no sample has several images, the sum of `repacked_jpegs`, `reencoded`, `raw`,
    /// `unchanged` and `not_recoded_count` is `samples`.
    pub unchanged: u64,
    /// How much the images in `reencoded` have changed, or `None` if no images were encoded.
    pub psnr: Option<Psnr>,
    /// Number of images that were stored unchanged because recoding failed or because they cannot
    /// be decoded.
    pub not_recoded_count: u64,
    /// The first 10,000 images in `not_recoded_count`, and the reasons.
    pub not_recoded: Vec<ImageIssue>,
    /// Number of images in `not_recoded_count` that cannot be decoded. The number is 0 unless
    /// [`keep_undecodable`](crate::pack::Pack::keep_undecodable) was set when these images were
    /// packed.
    pub undecodable_count: u64,
    /// Number of images that can be decoded but are damaged. They were stored nevertheless.
    pub damaged_count: u64,
    /// The first 10,000 damaged images, and descriptions of the damage.
    pub damaged: Vec<ImageIssue>,
    /// Number of samples with the same key as an earlier sample of this run. They are stored
    /// nevertheless. Keys of other parts and of earlier runs are not compared.
    pub duplicate_keys: u64,
    /// Files that contain the packed samples, including shards that an earlier run completed.
    pub written: Written,
}

/// The counts of a report, for one or more shards.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Counts {
    pub(super) samples: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) repacked: u64,
    pub(super) encoded: u64,
    pub(super) raw: u64,
    pub(super) kept: u64,
    /// Sum of the signal-to-noise ratios of the encoded images, in hundredths of dB.
    #[serde(default)]
    pub(super) psnr_sum: u64,
    #[serde(default)]
    pub(super) lowest_psnr: Option<(u32, String)>,
    pub(super) not_recoded_count: u64,
    pub(super) not_recoded: Vec<ImageIssue>,
    pub(super) undecodable_count: u64,
    pub(super) damaged_count: u64,
    pub(super) damaged: Vec<ImageIssue>,
}

impl Counts {
    pub(super) fn add(&mut self, index: u64, sample: &PreparedSample) {
        self.samples += 1;
        self.kept += u64::from(sample.images.is_empty());
        for PreparedImage { outcome, problem, bytes_in, bytes_out } in &sample.images {
            self.bytes_in += *bytes_in as u64;
            self.bytes_out += *bytes_out as u64;
            if let Some(ImageProblem::Damaged(description)) = problem {
                self.damaged_count += 1;
                push_limited(&mut self.damaged, index, &sample.key, description);
            }
            match outcome {
                Some(RecodeOutcome::Repacked) => self.repacked += 1,
                Some(RecodeOutcome::Encoded(psnr)) => {
                    self.encoded += 1;
                    self.psnr_sum += u64::from(psnr.0);
                    self.add_lowest(psnr.0, &sample.key);
                }
                Some(RecodeOutcome::Raw) => self.raw += 1,
                Some(RecodeOutcome::Kept) => self.kept += 1,
                None => {
                    self.not_recoded_count += 1;
                    self.undecodable_count += u64::from(matches!(problem, Some(ImageProblem::Undecodable(_))));
                    push_limited(
                        &mut self.not_recoded,
                        index,
                        &sample.key,
                        problem.as_ref().map_or("", ImageProblem::reason),
                    );
                }
            }
        }
    }

    fn add_lowest(&mut self, psnr: u32, key: &str) {
        if self.lowest_psnr.as_ref().is_none_or(|(lowest, _)| psnr < *lowest) {
            self.lowest_psnr = Some((psnr, key.to_owned()));
        }
    }

    pub(super) fn add_all(&mut self, other: &Counts) {
        self.samples += other.samples;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.repacked += other.repacked;
        self.encoded += other.encoded;
        self.raw += other.raw;
        self.kept += other.kept;
        self.psnr_sum += other.psnr_sum;
        if let Some((psnr, key)) = &other.lowest_psnr {
            self.add_lowest(*psnr, key);
        }
        self.not_recoded_count += other.not_recoded_count;
        self.undecodable_count += other.undecodable_count;
        self.damaged_count += other.damaged_count;
        other
            .not_recoded
            .iter()
            .for_each(|image| push_limited(&mut self.not_recoded, image.index, &image.key, &image.reason));
        other.damaged.iter().for_each(|image| push_limited(&mut self.damaged, image.index, &image.key, &image.reason));
    }

    /// Returns whether these options permit all counted images to be stored.
    pub(super) fn is_allowed(&self, keep_undecodable: bool, strict: bool) -> bool {
        keep_undecodable || self.undecodable_count == 0 && (self.damaged_count == 0 || !strict)
    }

    pub(super) fn into_report(self, duplicate_keys: u64, written: Written) -> Report {
        let psnr = self.lowest_psnr.map(|(lowest, lowest_key)| Psnr {
            mean: self.psnr_sum as f64 / self.encoded as f64 / 100.0,
            lowest: f64::from(lowest) / 100.0,
            lowest_key,
        });
        Report {
            samples: self.samples,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            repacked_jpegs: self.repacked,
            reencoded: self.encoded,
            raw: self.raw,
            unchanged: self.kept,
            psnr,
            not_recoded_count: self.not_recoded_count,
            not_recoded: self.not_recoded,
            undecodable_count: self.undecodable_count,
            damaged_count: self.damaged_count,
            damaged: self.damaged,
            duplicate_keys,
            written,
        }
    }
}

/// Counts the samples of a run, and calls the progress callback.
pub(super) struct Tally<'a> {
    progress: Progress,
    callback: Option<Callback<'a>>,
    /// Hashes of the keys passed to [`add`](Tally::add), which take less memory than the keys.
    keys: HashSet<u64>,
    pub(super) duplicate_keys: u64,
}

impl<'a> Tally<'a> {
    pub(super) fn new(total: u64, callback: Option<Callback<'a>>) -> Self {
        Tally { progress: Progress { total, ..Progress::default() }, callback, keys: HashSet::new(), duplicate_keys: 0 }
    }

    pub(super) fn add_counts(&mut self, counts: &Counts) {
        self.progress.samples += counts.samples;
        self.progress.bytes_in += counts.bytes_in;
        self.progress.bytes_out += counts.bytes_out;
        self.report_progress();
    }

    pub(super) fn add(&mut self, sample: &PreparedSample) {
        let mut hasher = DefaultHasher::new();
        sample.key.hash(&mut hasher);
        self.duplicate_keys += u64::from(!self.keys.insert(hasher.finish()));
        self.progress.samples += 1;
        for image in &sample.images {
            self.progress.bytes_in += image.bytes_in as u64;
            self.progress.bytes_out += image.bytes_out as u64;
        }
        self.report_progress();
    }

    fn report_progress(&mut self) {
        if let Some(callback) = &mut self.callback {
            callback(&self.progress);
        }
    }
}
