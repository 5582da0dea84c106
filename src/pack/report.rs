use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};

use super::Written;
use super::bad_images::{Refused, Remark, list};
use super::prepare::Prepared;
use super::recode::Treatment;

/// A callback that receives the progress of packing.
pub(super) type Callback<'a> = Box<dyn FnMut(&Progress) + 'a>;

/// Progress of a [`Pack`](crate::pack::Pack).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Progress {
    /// Number of samples passed to the writer by this run, or by an interrupted run that this run
    /// continues.
    pub samples: u64,
    /// Number of samples to pack: all samples of the source, or of the part.
    pub total: u64,
    /// Size of these samples' images before packing, in bytes.
    pub bytes_in: u64,
    /// Size of these samples' images after packing, in bytes.
    pub bytes_out: u64,
}

/// Result of a [`Pack`](crate::pack::Pack).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Report {
    /// Number of stored samples: all samples of the source, or of the part.
    pub samples: u64,
    /// Size of the images before packing, in bytes.
    pub bytes_in: u64,
    /// Size of the images after packing, in bytes.
    pub bytes_out: u64,
    /// Number of JPEGs rewritten with the same coefficients.
    pub repacked: u64,
    /// Number of images decoded and encoded again.
    pub encoded: u64,
    /// Number of images stored as arrays.
    pub raw: u64,
    /// Number of images stored unchanged by choice or because they are not JPEGs, plus the number
    /// of samples without an image. The images counted in `refused_count` are excluded.
    ///
    /// The sum of `repacked`, `encoded`, `raw`, `kept` and `refused_count` is `samples`.
    pub kept: u64,
    /// Number of images stored unchanged because they could not be recoded or decoded.
    pub refused_count: u64,
    /// The first 10,000 images counted in `refused_count`, with the reasons.
    pub refused: Vec<Refused>,
    /// Number of images in `refused_count` that cannot be decoded. It is 0 unless
    /// [`keep_bad`](crate::pack::Pack::keep_bad) is set.
    pub undecodable_count: u64,
    /// Number of images that can be decoded but are damaged.
    pub damaged_count: u64,
    /// The first 10,000 damaged images, with descriptions of the damage.
    pub damaged: Vec<Refused>,
    /// Number of samples with the same key as an earlier sample of the same run. They are stored
    /// like other samples. Keys are not compared with the keys in other parts or in the interrupted
    /// run that this run continues.
    pub duplicate_keys: u64,
    /// Files that were written.
    pub written: Written,
}

/// Sample counts, and the images for the lists in a report.
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
            list(&mut self.damaged, index, &done.key, how);
        }
        if done.refused {
            self.refused_count += 1;
            self.undecodable_count += u64::from(matches!(done.remark, Some(Remark::Undecodable(_))));
            list(&mut self.refused, index, &done.key, done.remark.as_ref().map_or("", Remark::reason));
        } else {
            match done.treatment {
                Some(Treatment::Repacked) => self.repacked += 1,
                Some(Treatment::Encoded) => self.encoded += 1,
                Some(Treatment::Raw) => self.raw += 1,
                Some(Treatment::Kept) | None => self.kept += 1,
            }
        }
    }

    /// Adds the counts of later samples.
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
        later.refused.iter().for_each(|r| list(&mut self.refused, r.index, &r.key, &r.reason));
        later.damaged.iter().for_each(|r| list(&mut self.damaged, r.index, &r.key, &r.reason));
    }

    /// Returns whether a pack with these options would store all of these images.
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

/// Counts the samples of a run and reports progress.
pub(super) struct Tally<'a> {
    progress: Progress,
    callback: Option<Callback<'a>>,
    /// Hashes of all keys, which need only eight bytes per sample.
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
        self.tell();
    }

    pub(super) fn add(&mut self, done: &Prepared) {
        let mut hasher = DefaultHasher::new();
        done.key.hash(&mut hasher);
        self.duplicate_keys += u64::from(!self.keys.insert(hasher.finish()));
        self.progress.samples += 1;
        self.progress.bytes_in += done.image_in as u64;
        self.progress.bytes_out += done.image_out as u64;
        self.tell();
    }

    fn tell(&mut self) {
        if let Some(callback) = &mut self.callback {
            callback(&self.progress);
        }
    }
}
