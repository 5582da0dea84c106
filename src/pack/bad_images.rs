use serde::{Deserialize, Serialize};

use crate::decode::{Codecs, Condition};
use crate::error::{Error, ErrorKind, Result};

/// Maximum length of the lists [`Report::refused`](super::Report::refused) and
/// [`Report::damaged`](super::Report::damaged).
pub(super) const MAX_LISTED: usize = 10_000;
/// Maximum number of bad images that an error names.
const NAMED: usize = 10;

/// An image that a [`Pack`](super::Pack) could not recode, or in which it found damage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Refused {
    /// Index of the sample.
    pub index: u64,
    /// Its key.
    pub key: String,
    /// The reason for the refusal, or the damage.
    pub reason: String,
}

/// Problem of one image.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Remark {
    /// It is sound but cannot be recoded as asked. It is stored unchanged.
    Unfit(String),
    /// It decodes, but is damaged.
    Damaged(String),
    /// It does not decode.
    Undecodable(String),
}

impl Remark {
    /// Checks the image `bytes`. `refusal` is the error if it could not be recoded. Returns `None`
    /// if the image is sound and was recoded.
    ///
    /// # Errors
    /// If memory runs out, which says nothing about the image.
    pub(super) fn of(codecs: &Codecs, bytes: &[u8], refusal: Option<Error>) -> Result<Option<Remark>> {
        let condition = codecs.open(bytes).map_or_else(Condition::Damaged, |mut image| image.check());
        Ok(match condition {
            Condition::Damaged(e) if e.kind() == ErrorKind::Memory => return Err(e),
            Condition::Damaged(e) => Some(Remark::Undecodable(e.cause().to_owned())),
            Condition::Tolerated(what) => Some(Remark::Damaged(what)),
            Condition::Sound => refusal.map(|e| Remark::Unfit(e.cause().to_owned())),
        })
    }

    pub(super) fn reason(&self) -> &str {
        let (Remark::Unfit(reason) | Remark::Damaged(reason) | Remark::Undecodable(reason)) = self;
        reason
    }

    /// Whether the pack fails because of it, unless bad images are kept.
    pub(super) fn is_bad(&self, strict: bool) -> bool {
        match self {
            Remark::Unfit(_) => false,
            Remark::Damaged(_) => strict,
            Remark::Undecodable(_) => true,
        }
    }
}

/// Appends to a report's list unless the list is full.
pub(super) fn list(to: &mut Vec<Refused>, index: u64, key: &str, reason: &str) {
    if to.len() < MAX_LISTED {
        to.push(Refused { index, key: key.to_owned(), reason: reason.to_owned() });
    }
}

/// The images that prevent a pack from finishing. After the first of them, the writer receives no
/// more samples.
#[derive(Default)]
pub(super) struct Bad {
    count: u64,
    undecodable: u64,
    first: Vec<Refused>,
}

impl Bad {
    pub(super) fn add(&mut self, index: u64, key: &str, remark: &Remark) {
        self.count += 1;
        self.undecodable += u64::from(matches!(remark, Remark::Undecodable(_)));
        if self.first.len() < NAMED {
            list(&mut self.first, index, key, remark.reason());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// # Errors
    /// If there are such images. The error names them and the option that keeps them.
    pub(super) fn check(&self, samples: u64) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let what = if self.undecodable == self.count { "do not decode" } else { "are damaged" };
        let named = self.first.iter().map(|Refused { index, key, reason }| format!("sample {index} ({key}): {reason}"));
        let more = match self.count - self.first.len() as u64 {
            0 => String::new(),
            n => format!("; and {n} more"),
        };
        Err(Error::new(
            ErrorKind::Decode,
            format!(
                "{} of {samples} images {what}, so the pack was not finished: {}{more}; use keep_bad(true) to pack such images \
                 unchanged",
                self.count,
                named.collect::<Vec<_>>().join("; ")
            ),
        ))
    }
}
