//! Collects images that could not be re-encoded, or that are damaged.

use serde::{Deserialize, Serialize};

use crate::decode::{Codecs, Condition};
use crate::error::{Error, ErrorKind, Result};

/// Maximum length of the lists [`Report::not_recoded`](super::Report::not_recoded) and
/// [`Report::damaged`](super::Report::damaged).
pub(super) const MAX_LISTED: usize = 10_000;
const MAX_IMAGES_IN_MESSAGE: usize = 10;

/// An image that a [`Pack`](super::Pack) could not re-encode, or that is damaged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ImageIssue {
    /// Index of the sample.
    pub index: u64,
    /// Key of the sample.
    pub key: String,
    /// The reason why the image could not be re-encoded, or a description of the damage.
    pub reason: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ImageProblem {
    /// The image is valid, but cannot be recoded as requested, so it is stored unchanged.
    Unfit(String),
    Damaged(String),
    Undecodable(String),
}

impl ImageProblem {
    /// Checks an image. `refusal` is the error if the image could not be recoded. Returns `None` if
    /// the image is valid and there is no such error. Fails only if memory runs out.
    pub(super) fn find(codecs: &Codecs, bytes: &[u8], refusal: Option<Error>) -> Result<Option<ImageProblem>> {
        let condition = codecs.open(bytes).and_then(|mut image| image.check()).unwrap_or_else(Condition::Damaged);
        Ok(match condition {
            Condition::Damaged(e) if e.kind() == ErrorKind::Memory => return Err(e),
            Condition::Damaged(e) => Some(ImageProblem::Undecodable(e.cause().to_owned())),
            Condition::Tolerated(description) => Some(ImageProblem::Damaged(description)),
            Condition::Sound => refusal.map(|e| ImageProblem::Unfit(e.cause().to_owned())),
        })
    }

    pub(super) fn in_field(self, name: &str) -> Self {
        let add_name = |reason: String| format!("field {name:?}: {reason}");
        match self {
            ImageProblem::Unfit(reason) => ImageProblem::Unfit(add_name(reason)),
            ImageProblem::Damaged(reason) => ImageProblem::Damaged(add_name(reason)),
            ImageProblem::Undecodable(reason) => ImageProblem::Undecodable(add_name(reason)),
        }
    }

    pub(super) fn reason(&self) -> &str {
        let (ImageProblem::Unfit(reason) | ImageProblem::Damaged(reason) | ImageProblem::Undecodable(reason)) = self;
        reason
    }

    /// Returns whether this image makes packing fail when `keep_undecodable` is off. `strict` also
    /// rejects damaged images that can be decoded.
    pub(super) fn is_bad(&self, strict: bool) -> bool {
        match self {
            ImageProblem::Unfit(_) => false,
            ImageProblem::Damaged(_) => strict,
            ImageProblem::Undecodable(_) => true,
        }
    }
}

pub(super) fn push_limited(out: &mut Vec<ImageIssue>, index: u64, key: &str, reason: &str) {
    if out.len() < MAX_LISTED {
        out.push(ImageIssue { index, key: key.to_owned(), reason: reason.to_owned() });
    }
}

/// The images that make packing fail. After the first such image, the writer receives no more
/// samples.
#[derive(Default)]
pub(super) struct BadImages {
    /// Number of all images, including valid ones. A sample without an image counts as one.
    image_count: u64,
    bad_count: u64,
    undecodable_count: u64,
    first_images: Vec<ImageIssue>,
}

impl BadImages {
    /// Counts the images of a sample.
    pub(super) fn count_images(&mut self, sample_images: usize) {
        self.image_count += sample_images.max(1) as u64;
    }

    pub(super) fn add(&mut self, index: u64, key: &str, problem: &ImageProblem) {
        self.bad_count += 1;
        self.undecodable_count += u64::from(matches!(problem, ImageProblem::Undecodable(_)));
        if self.first_images.len() < MAX_IMAGES_IN_MESSAGE {
            push_limited(&mut self.first_images, index, key, problem.reason());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bad_count == 0
    }

    /// Fails if there are bad images. The error names the first ten, and the option that packs
    /// them anyway.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let problem_text = if self.undecodable_count == self.bad_count { "cannot be decoded" } else { "are damaged" };
        let descriptions = self
            .first_images
            .iter()
            .map(|ImageIssue { index, key, reason }| format!("sample {index} ({key}): {reason}"));
        let rest_text = match self.bad_count - self.first_images.len() as u64 {
            0 => String::new(),
            n => format!("; and {n} more"),
        };
        Err(Error::new(
            ErrorKind::Decode,
            format!(
                "{} of {} images {problem_text}, so the pack was not finished: {}{rest_text}; to pack them anyway, use \
                 keep_undecodable(true)",
                self.bad_count,
                self.image_count,
                descriptions.collect::<Vec<_>>().join("; ")
            ),
        ))
    }
}
