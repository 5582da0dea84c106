//! [`Report`]: the result of a pack, and [`Progress`].

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};

use super::Written;
use super::bad_images::{Refused, Remark, push_limited};
use super::prepare::Prepared;
use super::recode::Treatment;

/// A callback that receives the progress of packing.
pub(super) type Callback<'a> = Box<dyn FnMut(&Progress) + 'a>;

/// Progress of a [`Pack`](crate::pack::Pack).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Progress {
    /// Number of samples that were packed, including those that an earlier run packed before it was
    /// interrupted.
    pub samples: u64,
    /// Number of samples to pack in total.
    pub total: u64,
    /// Size in bytes of the images of the packed samples, before packing.
    pub bytes_in: u64,
    /// Size in bytes of the images of the packed samples, after packing.
    pub bytes_out: u64,
}

/// Result of a [`Pack`](crate::pack::Pack).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Report {
    /// Number of samples that were stored.
    pub samples: u64,
    /// Size in bytes of all images before packing.
    pub bytes_in: u64,
    /// Size in bytes of all images after packing.
    pub bytes_out: u64,
    /// Number of JPEGs that were rewritten losslessly.
    pub repacked: u64,
    /// Number of images that were decoded and encoded again.
    pub encoded: u64,
    /// Number of images that were stored as arrays.
    pub raw: u64,
    /// Number of images that were stored unchanged as requested or because they are not JPEGs, plus
    /// the number of samples without an image. Does not include images in `refused_count`.
    ///
    /// The sum of `repacked`, `encoded`, `raw`, `kept` and `refused_count` is `samples`.
    pub kept: u64,
    /// Number of images that were stored unchanged because they could not be recoded or decoded.
    pub refused_count: u64,
    /// The first 10,000 images that `refused_count` includes, and the reasons.
    pub refused: Vec<Refused>,
    /// Number of images in `refused_count` that cannot be decoded. This is 0 unless
    /// [`keep_bad`](crate::pack::Pack::keep_bad) is set.
    pub undecodable_count: u64,
    /// Number of images that can be decoded but are damaged.
    pub damaged_count: u64,
    /// The first 10,000 damaged images, and descriptions of the damage.
    pub damaged: Vec<Refused>,
    /// Number of samples with the same key as an earlier sample. They are stored like all other
    /// samples. Keys are compared only among the samples that this run packed, and not with other
    /// parts or an earlier run.
    pub duplicate_keys: u64,
    /// Files that were written.
    pub written: Written,
}

/// The counts and lists of a report.
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
    pub(super) refused_count: u64,
    pub(super) refused: Vec<Refused>,
    pub(super) undecodable_count: u64,
    pub(super) damaged_count: u64,
    pub(super) damaged: Vec<Refused>,
}

impl Counts {
    /// Adds sample `index`.
    pub(super) fn add(&mut self, index: u64, done: &Prepared) {
        self.samples += 1;
        self.bytes_in += done.image_in as u64;
        self.bytes_out += done.image_out as u64;
        if let Some(Remark::Damaged(how)) = &done.remark {
            self.damaged_count += 1;
            push_limited(&mut self.damaged, index, &done.key, how);
        }
        if done.refused {
            self.refused_count += 1;
            self.undecodable_count += u64::from(matches!(done.remark, Some(Remark::Undecodable(_))));
            push_limited(&mut self.refused, index, &done.key, done.remark.as_ref().map_or("", Remark::reason));
        } else {
            match done.treatment {
                Some(Treatment::Repacked) => self.repacked += 1,
                Some(Treatment::Encoded) => self.encoded += 1,
                Some(Treatment::Raw) => self.raw += 1,
                Some(Treatment::Kept) | None => self.kept += 1,
            }
        }
    }

    /// Adds the counts and lists of later samples.
    pub(super) fn join(&mut self, later: &Counts) {
        self.samples += later.samples;
        self.bytes_in += later.bytes_in;
        self.bytes_out += later.bytes_out;
        self.repacked += later.repacked;
        self.encoded += later.encoded;
        self.raw += later.raw;
        self.kept += later.kept;
        self.refused_count += later.refused_count;
        self.undecodable_count += later.undecodable_count;
        self.damaged_count += later.damaged_count;
        later.refused.iter().for_each(|r| push_limited(&mut self.refused, r.index, &r.key, &r.reason));
        later.damaged.iter().for_each(|r| push_limited(&mut self.damaged, r.index, &r.key, &r.reason));
    }

    /// Returns whether a pack with the given options would store all of these images.
    pub(super) fn allowed(&self, keep_bad: bool, strict: bool) -> bool {
        keep_bad || self.undecodable_count == 0 && (self.damaged_count == 0 || !strict)
    }

    pub(super) fn report(self, duplicate_keys: u64, written: Written) -> Report {
        Report {
            samples: self.samples,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            repacked: self.repacked,
            encoded: self.encoded,
            raw: self.raw,
            kept: self.kept,
            refused_count: self.refused_count,
            refused: self.refused,
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
    /// Hashes of all keys. A hash takes only eight bytes.
    keys: HashSet<u64>,
    pub(super) duplicate_keys: u64,
}

impl<'a> Tally<'a> {
    pub(super) fn new(total: u64, callback: Option<Callback<'a>>) -> Self {
        Tally { progress: Progress { total, ..Progress::default() }, callback, keys: HashSet::new(), duplicate_keys: 0 }
    }

    /// Adds samples that an earlier run packed.
    pub(super) fn done(&mut self, counts: &Counts) {
        self.progress.samples += counts.samples;
        self.progress.bytes_in += counts.bytes_in;
        self.progress.bytes_out += counts.bytes_out;
        self.report_progress();
    }

    pub(super) fn add(&mut self, done: &Prepared) {
        let mut hasher = DefaultHasher::new();
        done.key.hash(&mut hasher);
        self.duplicate_keys += u64::from(!self.keys.insert(hasher.finish()));
        self.progress.samples += 1;
        self.progress.bytes_in += done.image_in as u64;
        self.progress.bytes_out += done.image_out as u64;
        self.report_progress();
    }

    fn report_progress(&mut self) {
        if let Some(callback) = &mut self.callback {
            callback(&self.progress);
        }
    }
}
