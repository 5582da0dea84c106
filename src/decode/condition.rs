use crate::error::Error;

/// The result of [`check`](super::check()).
#[derive(Debug, Clone)]
pub enum Condition {
    /// The image decodes, and no damage was found.
    Sound,
    /// The image decodes but is damaged. The text says where and how, in lower case.
    Tolerated(String),
    /// The image does not decode. The error comes from the decoder.
    Damaged(Error),
}
