//! The lengths of a file's restart segments, in an application segment of its header.
//!
//! A reader of crops would otherwise look for the restart markers in all bytes before them. The
//! lengths are hints, and callers check the markers.
//!
//! Format: APP9 with the identifier [`Lengths::ID`], then two bytes, big-endian, for each restart
//! segment but the last: its bytes in the file, with stuffed zeros and without its marker.

/// The lengths, as they are in the file. Empty if the file has none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lengths<'a>(&'a [[u8; 2]]);

impl<'a> Lengths<'a> {
    /// The marker's second byte.
    pub(crate) const MARKER: u8 = 0xe9;
    /// First bytes of the application segment.
    pub(crate) const ID: &'static [u8] = b"warpfeed\0";
    /// Maximum number of lengths in a file: those that fit into an application segment.
    pub(crate) const MOST: usize = (u16::MAX as usize - 2 - Self::ID.len()) / 2;

    /// Lengths in the bytes after the identifier.
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
