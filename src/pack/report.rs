use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};

use super::Written;
use super::bad_images::{Refused, Remark, list};
use super::prepare::Prepared;
use super::recode::Treatment;

/// Receives the progress of packing.
pub(super) type Callback<'a> = Box<dyn FnMut(&Progress) + 'a>;

/// The progress of a [`Pack`](crate::pack::Pack).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Progress {
    /// Samples given to the writer, now or by an interrupted run that this one continues.
    pub samples: u64,
    /// Samples to pack: those of the source, or of the part.
    pub total: u64,
    /// Bytes of these samples' images before packing.
    pub bytes_in: u64,
    /// Bytes of these samples' images as they are stored.
    pub bytes_out: u64,
}

/// The result of a [`Pack`](crate::pack::Pack).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Report {
    /// Samples stored: all samples of the source, or of the part.
    pub samples: u64,
    /// Bytes of the images before packing.
    pub bytes_in: u64,
    /// Bytes of the images as they are stored.
    pub bytes_out: u64,
    /// JPEGs rewritten with the same coefficients.
    pub repacked: u64,
    /// Images decoded and encoded again.
    pub encoded: u64,
    /// Images stored as arrays.
    pub raw: u64,
    /// Images stored unchanged by choice or because they are not JPEGs, plus samples without an
    /// image. Images of `refused_count` are not included.
    ///
    /// `repacked`, `encoded`, `raw`, `kept` and `refused_count` add up to `samples`.
    pub kept: u64,
    /// Images stored unchanged because they could not be recoded or do not decode.
    pub refused_count: u64,
    /// The first 10,000 of these images, with the reasons.
    pub refused: Vec<Refused>,
    /// Images of `refused_count` that do not decode; 0 unless
    /// [`keep_bad`](crate::pack::Pack::keep_bad) is set.
    pub undecodable_count: u64,
    /// Images that decode but are damaged.
    pub damaged_count: u64,
    /// The first 10,000 of these images, with the damage.
    pub damaged: Vec<Refused>,
    /// Samples that repeat the key of an earlier sample of the same run. They are stored like the
    /// others. Parts, and runs that continue an interrupted one, do not compare with earlier runs.
    pub duplicate_keys: u64,
    /// The files.
    pub written: Written,
}

/// Counts of samples, and the images that a report lists.
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

    /// Whether a pack with these options stores all these images.
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

/// Counts the samples of a run and tells the user.
pub(super) struct Tally<'a> {
    progress: Progress,
    callback: Option<Callback<'a>>,
    /// Hashes of all keys, eight bytes per sample; the keys would take far more memory.
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
