use crate::error::Error;

/// The result of [`check`](super::check()).
#[derive(Debug, Clone)]
pub enum Condition {
    /// The picture decodes, and no damage was found.
    Sound,
    /// The picture decodes but is damaged. The text says where and how, in lower case.
    Tolerated(String),
    /// The picture does not decode. The error comes from the decoder.
    Damaged(Error),
}
