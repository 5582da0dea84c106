//! Stacks the images of several frames in one field.

use crate::error::Result;

/// Appends encoded images to `to`, as one field.
pub(super) fn encode(images: &[&[u8]], to: &mut Vec<u8>) -> Result<()> {
    for image in images {
        to.extend_from_slice(&(image.len() as u64).to_le_bytes());
        to.extend_from_slice(image);
    }
    Ok(())
}
