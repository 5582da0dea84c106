//! [`Lengths`] contains the lengths of a file's restart segments. A packed file stores them in an
//! application segment of its header.
//!
//! Without the lengths, a decoder would have to search all data before a crop for restart markers.
//! The lengths may be wrong, so callers check that a marker follows each segment.
//!
//! An APP9 segment contains the identifier [`Lengths::ID`], and then one big-endian 16-bit number
//! for each restart segment except the last: its length in bytes, including stuffed zeros but not
//! the marker.

/// The lengths in a file, or an empty slice if the file contains none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lengths<'a>(&'a [[u8; 2]]);

impl<'a> Lengths<'a> {
    pub(crate) const MARKER: u8 = 0xe9;
    pub(crate) const ID: &'static [u8] = b"warpfeed\0";
    pub(crate) const MAX_COUNT: usize = (u16::MAX as usize - 2 - Self::ID.len()) / 2;

    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Lengths(bytes.as_chunks().0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(self, index: u32) -> Option<usize> {
        self.0.get(index as usize).map(|&length| u16::from_be_bytes(length).into())
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> + 'a {
        self.0.iter().map(|&length| u16::from_be_bytes(length).into())
    }
}
