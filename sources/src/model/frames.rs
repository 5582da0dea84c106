//! [`Frames`]: several encoded images in one field of a sample.

use crate::error::Error;

/// Signature and version of a list of frames.
const SIGNATURE: [u8; 8] = *b"\x93FRAMES\x01";
/// Size of the header in bytes: the signature, and the number of frames.
const HEADER: usize = SIGNATURE.len() + 4;
/// Size of the end position of a frame, in bytes.
const END: usize = size_of::<u64>();

/// The frames of a clip: several encoded images in one field of a sample. `field::Image::frames` in
/// the `warpfeed` crate reads such a field.
///
/// The field contains, in this order:
///
/// | bytes | content |
/// |---|---|
/// | 8 | the signature, `\x93FRAMES`, and the version, 1 |
/// | 4 | T, the number of frames, as a little-endian `u32` |
/// | 8 T | for each frame, the position of its end, as a little-endian `u64`; 0 is the start of the first frame |
/// | | the encoded images, one after the other, without gaps |
///
/// ```
/// use warpfeed_sources::Frames;
///
/// let clip = Frames::encode(&[b"\xff\xd8first".as_slice(), b"\xff\xd8second"]);
/// let frames = Frames::read(&clip)?;
/// assert_eq!((frames.len(), frames.get(1)), (2, Some(&b"\xff\xd8second"[..])));
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Frames<'a> {
    /// The end of each frame.
    ends: &'a [[u8; END]],
    /// The encoded images.
    data: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Returns the content of a field that contains the encoded images `frames`.
    ///
    /// # Panics
    /// If there are more than `u32::MAX` frames.
    pub fn encode<B: AsRef<[u8]>>(frames: &[B]) -> Vec<u8> {
        let bytes: usize = frames.iter().map(|frame| frame.as_ref().len()).sum();
        let mut to = Vec::with_capacity(HEADER + frames.len() * END + bytes);
        let added = Self::append(&mut to, frames.len(), |frame, to| {
            to.extend(frames[frame].as_ref());
            Ok::<(), std::convert::Infallible>(())
        });
        let Ok(()) = added;
        to
    }

    /// Appends the content of a field that contains `count` frames to `to`. `add` appends the
    /// encoded image of the frame with the given index.
    ///
    /// # Errors
    /// The first error that `add` returns.
    ///
    /// # Panics
    /// If there are more than `u32::MAX` frames, or if `add` shortens its buffer.
    pub fn append<E>(
        to: &mut Vec<u8>,
        count: usize,
        mut add: impl FnMut(usize, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        to.extend(SIGNATURE);
        to.extend(u32::try_from(count).expect("fewer than 2^32 frames").to_le_bytes());
        let table = to.len();
        let data = table + count * END;
        to.resize(data, 0);
        for frame in 0..count {
            add(frame, to)?;
            let end = to.len().checked_sub(data).expect("`add` only appends") as u64;
            to[table + frame * END..][..END].copy_from_slice(&end.to_le_bytes());
        }
        Ok(())
    }

    /// Returns whether `bytes` starts with the signature of a list of frames.
    pub fn matches(bytes: &[u8]) -> bool {
        bytes.starts_with(&SIGNATURE[..SIGNATURE.len() - 1])
    }

    /// Reads the header of a list of frames, and checks the position of every frame.
    ///
    /// # Errors
    /// If `bytes` does not start with the signature, has a different version, is truncated, has
    /// bytes after the last frame, or if a frame ends before it starts.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        if !Self::matches(bytes) {
            let shown = &bytes[..bytes.len().min(8)];
            return Err(Error::decode(format!(
                "not a list of frames: it starts with \"{}\"; expected the content that Frames::encode returns",
                shown.escape_ascii()
            )));
        }
        let cut = || Error::decode(format!("the list of frames is truncated in its header, at byte {}", bytes.len()));
        let (start, rest) = bytes.split_first_chunk::<HEADER>().ok_or_else(cut)?;
        let [.., version, a, b, c, d] = *start;
        if version != SIGNATURE[7] {
            return Err(Error::decode(format!("version {version} of the list of frames is not supported: expected 1")));
        }
        let count = u32::from_le_bytes([a, b, c, d]);
        let table = usize::try_from(u64::from(count) * END as u64).ok();
        let (ends, data) = table.and_then(|table| rest.split_at_checked(table)).ok_or_else(|| {
            Error::decode(format!("the list of frames claims {count} frames, but is truncated at byte {}", bytes.len()))
        })?;
        let ends = ends.as_chunks::<END>().0;
        let mut start = 0;
        for (frame, end) in ends.iter().enumerate() {
            let end = u64::from_le_bytes(*end);
            if end < start || end > data.len() as u64 {
                return Err(Error::decode(format!(
                    "frame {frame} claims bytes {start} to {end}, but there are only {} bytes of frames",
                    data.len()
                )));
            }
            start = end;
        }
        if start != data.len() as u64 {
            let more = data.len() as u64 - start;
            return Err(Error::decode(format!("unexpected data after the last frame: {more} bytes")));
        }
        Ok(Frames { ends, data })
    }

    /// Returns the number of frames.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the encoded image of a frame, or `None` if there is no such frame.
    pub fn get(&self, frame: usize) -> Option<&'a [u8]> {
        let at = |frame: usize| self.ends.get(frame).and_then(|end| usize::try_from(u64::from_le_bytes(*end)).ok());
        let start = if frame == 0 { Some(0) } else { at(frame - 1) };
        self.data.get(start?..at(frame)?)
    }

    /// Iterates over the encoded images.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let frames = *self;
        (0..self.len()).map(move |frame| frames.get(frame).expect("`read` checks the positions"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: &[u8]) -> String {
        Frames::read(bytes).unwrap_err().to_string()
    }

    #[test]
    fn frames_come_back() {
        let lists: [&[&[u8]]; 4] = [&[], &[b"one"], &[b"", b"two", b""], &[b"a", b"bc", b"def"]];
        for list in lists {
            let bytes = Frames::encode(list);
            let frames = Frames::read(&bytes).unwrap();
            assert_eq!(frames.iter().collect::<Vec<_>>(), list);
            assert_eq!((frames.len(), frames.get(list.len())), (list.len(), None));
        }
        assert!(Frames::read(&Frames::encode::<&[u8]>(&[])).unwrap().get(0).is_none());
    }

    #[test]
    fn truncated_lists_are_rejected() {
        let whole = Frames::encode(&[&b"first"[..], b"second"]);
        for end in 0..whole.len() {
            Frames::read(&whole[..end]).unwrap_err();
        }
        assert!(message(b"").contains("not a list of frames"));
        assert!(message(&whole[..9]).contains("truncated in its header, at byte 9"));
        assert!(message(&whole[..20]).contains("claims 2 frames, but is truncated at byte 20"));
        assert!(
            message(&whole[..whole.len() - 1]).contains("frame 1 claims bytes 5 to 11, but there are only 10 bytes")
        );
    }

    #[test]
    fn wrong_headers_are_rejected() {
        let whole = Frames::encode(&[&b"first"[..], b"second"]);
        let with = |at: usize, bytes: &[u8]| {
            let mut changed = whole.clone();
            changed[at..at + bytes.len()].copy_from_slice(bytes);
            changed
        };
        assert!(message(b"\xff\xd8\xff\xe0").contains(r"\xff\xd8\xff\xe0"));
        assert!(message(&with(7, &[2])).contains("version 2"));
        assert!(message(&with(8, &1_u32.to_le_bytes())).contains("unexpected data after the last frame: 14 bytes"));
        assert!(
            message(&with(8, &3_u32.to_le_bytes())).contains("frame 0 claims bytes 0 to 5, but there are only 3 bytes")
        );
        assert!(message(&with(8, &u32::MAX.to_le_bytes())).contains("claims 4294967295 frames"));
        assert!(message(&[&whole[..], b"!"].concat()).contains("unexpected data after the last frame: 1 bytes"));
    }

    #[test]
    fn huge_and_descending_positions_are_rejected() {
        let whole = Frames::encode(&[&b"first"[..], b"second"]);
        for end in [u64::MAX, 1 << 63, 12, 4] {
            let mut changed = whole.clone();
            changed[20..28].copy_from_slice(&end.to_le_bytes());
            assert!(Frames::read(&changed).is_err(), "{end}");
        }
        let mut changed = whole.clone();
        changed[12..20].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(
            message(&changed).contains("frame 0 claims bytes 0 to 18446744073709551615, but there are only 11 bytes")
        );
    }
}
