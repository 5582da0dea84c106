//! Memory that the codecs of a thread keep between pictures.

use super::{codecs, image};

/// Limits the memory that the codecs of the calling thread keep to `limit` bytes.
pub(crate) fn keep(limit: usize) {
    image::keep(limit - codecs::keep(limit));
}

/// Frees the memory that the codecs of the calling thread keep.
pub(crate) fn release() {
    codecs::release();
    image::release();
}
