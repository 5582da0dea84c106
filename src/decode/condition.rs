use crate::error::Error;

/// The result of [`check`](super::check()).
#[derive(Debug, Clone)]
pub enum Condition {
    /// All values of the image can be read, and no damage was found.
    Sound,
    /// The whole image can be decoded, but is damaged. The string describes the damage, usually
    /// with its position.
    Tolerated(String),
    /// The image cannot be decoded completely. Contains the error of the decoder. If the kind of
    /// the error is [`ErrorKind::Memory`](crate::ErrorKind::Memory), memory ran out, and the image
    /// may be intact.
    Damaged(Error),
}
