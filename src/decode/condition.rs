use crate::error::Error;

/// The result of [`check`](super::check()).
#[derive(Debug, Clone)]
pub enum Condition {
    /// The image decodes, and no damage was found.
    Sound,
    /// The image decodes but is damaged. The string, in lower case, describes the damage and its
    /// position.
    Tolerated(String),
    /// The image cannot be decoded. The error is the decoder's.
    Damaged(Error),
}
