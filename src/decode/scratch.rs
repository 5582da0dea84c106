//! What the codecs of a thread keep from one picture to the next.

use super::{codecs, image};

/// Limits the scratch that the codecs of the calling thread keep to `limit` bytes.
pub(crate) fn keep(limit: usize) {
    image::keep(limit - codecs::keep(limit));
}

/// Frees the scratch that the codecs of the calling thread keep from one picture to the next.
pub(crate) fn release() {
    codecs::release();
    image::release();
}
