//! [`Frames`]: several encoded images in one field of a sample.

use crate::error::{Error, reserve};

/// The signature, which precedes a byte with the version.
const SIGNATURE: [u8; 7] = *b"\x93FRAMES";
/// Version of a list of frames that are stored one after the other.
const LIST_VERSION: u8 = 1;
/// Version of a list that contains alternative clips.
const CHOICES_VERSION: u8 = 2;
/// Size of the header in bytes: the signature, the version and one number.
const HEADER_BYTES: usize = SIGNATURE.len() + 1 + 4;
const END_BYTES: usize = size_of::<u64>();
/// Size of a stored frame's entry in a list of choices, in bytes.
const STORED_FRAME_BYTES: usize = 3 * size_of::<u64>();
/// Size of the three numbers after the header of a list of choices, in bytes.
const COUNTS_BYTES: usize = 3 * size_of::<u32>();

/// The frames of a clip: several encoded images in one field of a sample. `field::Image::frames` in
/// the `warpfeed` crate reads such a field.
///
/// The field contains, in this order and with little-endian numbers:
///
/// | bytes | content |
/// |---|---|
/// | 8 | the signature, `\x93FRAMES`, and the version, 1 |
/// | 4 | T, the number of frames, as a `u32` |
/// | 8 T | for each frame, the position of its end, as a `u64`; 0 is the start of the first frame |
/// | | the encoded images, one after the other, without gaps |
///
/// A clip of a video states the index of each frame in the video, and may have several
/// [choices](Frames::choices), of which a loader draws one. Stored frames may overlap, because a
/// frame of a video contains the packets of earlier frames:
///
/// | bytes | content |
/// |---|---|
/// | 8 | the signature, `\x93FRAMES`, and the version, 2 |
/// | 4 | T, the number of frames of a choice, as a `u32` |
/// | 4, 4, 4 | the number of choices C, the index of the default choice, and the number of stored frames S, as `u32` |
/// | 24 S | for each stored frame, its start and its end in the stored frames, and its index in the video, as `u64` |
/// | 4 C T | for each choice, the indices of its stored frames, as `u32` |
/// | | the stored frames |
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
    table: Table<'a>,
    data: &'a [u8],
}

#[derive(Debug, Clone, Copy)]
enum Table<'a> {
    /// The end position of each frame.
    List(&'a [[u8; END_BYTES]]),
    Choices {
        stored: &'a [[u8; STORED_FRAME_BYTES]],
        /// For each frame of the selected choice, the index of its stored frame.
        selected: &'a [[u8; 4]],
        /// The same indices for all choices, one after the other.
        all: &'a [[u8; 4]],
    },
}

/// The alternative clips in a list of frames.
pub(crate) struct Choices<'a> {
    /// Number of frames of each choice.
    pub(crate) frames: usize,
    pub(crate) default: usize,
    /// For each choice, the indices of its stored frames.
    pub(crate) table: &'a [u32],
    /// For each stored frame, its index in the video.
    pub(crate) stored: &'a [usize],
}

/// Returns the index of the choice that the random number `draw` selects.
pub(crate) fn drawn_choice(choices: usize, draw: u64) -> usize {
    ((u128::from(draw) * choices as u128) >> 64) as usize
}

impl<'a> Frames<'a> {
    /// Returns the content of a field that contains the encoded images `frames`.
    ///
    /// # Panics
    /// If there are more than `u32::MAX` frames.
    pub fn encode<B: AsRef<[u8]>>(frames: &[B]) -> Vec<u8> {
        let bytes: usize = frames.iter().map(|frame| frame.as_ref().len()).sum();
        let mut out = Vec::with_capacity(HEADER_BYTES + frames.len() * END_BYTES + bytes);
        let added = Self::append(&mut out, frames.len(), |frame, out| {
            out.extend(frames[frame].as_ref());
            Ok::<(), std::convert::Infallible>(())
        });
        let Ok(()) = added;
        out
    }

    /// Appends the content of a field that contains `count` frames to `out`. `add` appends the
    /// encoded image of the frame with the given index.
    ///
    /// # Errors
    /// The first error that `add` returns.
    ///
    /// # Panics
    /// If there are more than `u32::MAX` frames, or if `add` shortens its buffer.
    pub fn append<E>(
        out: &mut Vec<u8>,
        count: usize,
        mut add: impl FnMut(usize, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        out.extend(SIGNATURE);
        out.push(LIST_VERSION);
        out.extend(u32::try_from(count).expect("fewer than 2^32 frames").to_le_bytes());
        let table = out.len();
        let data = table + count * END_BYTES;
        out.resize(data, 0);
        for frame in 0..count {
            add(frame, out)?;
            let end = out.len().checked_sub(data).expect("`add` only appends") as u64;
            out[table + frame * END_BYTES..][..END_BYTES].copy_from_slice(&end.to_le_bytes());
        }
        Ok(())
    }

    /// Appends the content of a field that contains alternative clips. `add` appends the stored
    /// frame with the given index, and returns the position in its buffer at which this frame
    /// starts. A frame may start inside an earlier frame, and ends at the end of the buffer. Fails
    /// if `add` fails, if a count does not fit in 32 bits, or if memory cannot be allocated.
    pub(crate) fn append_choices(
        out: &mut Vec<u8>,
        choices: &Choices<'_>,
        mut add: impl FnMut(usize, &mut Vec<u8>) -> Result<usize, Error>,
    ) -> Result<(), Error> {
        let Choices { frames, default, table, stored } = *choices;
        let header = HEADER_BYTES + COUNTS_BYTES + stored.len() * STORED_FRAME_BYTES + table.len() * 4;
        reserve(out, header)?;
        out.extend(SIGNATURE);
        out.push(CHOICES_VERSION);
        for number in [frames, table.len() / frames.max(1), default, stored.len()] {
            let number = u32::try_from(number).map_err(|_| Error::in_source("the clip has 2^32 or more frames"))?;
            out.extend(number.to_le_bytes());
        }
        let positions = out.len();
        out.resize(positions + stored.len() * STORED_FRAME_BYTES, 0);
        out.extend(table.iter().flat_map(|index| index.to_le_bytes()));
        let data = out.len();
        for (index, &number) in stored.iter().enumerate() {
            let start = add(index, out)?;
            let numbers = [start - data, out.len() - data, number].map(|number| (number as u64).to_le_bytes());
            out[positions + index * STORED_FRAME_BYTES..][..STORED_FRAME_BYTES].copy_from_slice(numbers.as_flattened());
        }
        Ok(())
    }

    /// Appends a list of the same frames to `out`, with different images. `add` appends the new
    /// image for an encoded image of this list. If this list states the index of each frame in a
    /// video, so does the new list, which then contains only the selected
    /// [choice](Frames::choices), and stores a frame only once if it occurs several times in a row.
    ///
    /// # Errors
    /// The first error that `add` returns, or if memory runs out.
    pub fn append_mapped(
        &self,
        out: &mut Vec<u8>,
        mut add: impl FnMut(&'a [u8], &mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let image = |frame: usize| self.get(frame).expect("`read` checks the positions");
        let Table::Choices { selected, .. } = self.table else {
            return Self::append(out, self.len(), |frame, out| add(image(frame), out));
        };
        let is_new = |&frame: &usize| frame == 0 || selected[frame] != selected[frame - 1];
        let new_frames: Vec<usize> = (0..self.len()).filter(is_new).collect();
        let index = |&frame: &usize| self.index(frame).map_or(0, |index| index as usize);
        let indices: Vec<usize> = new_frames.iter().map(index).collect();
        let table: Vec<u32> =
            (0..self.len()).map(|frame| new_frames.partition_point(|&first| first <= frame) as u32 - 1).collect();
        let choices = Choices { frames: self.len(), default: 0, table: &table, stored: &indices };
        Self::append_choices(out, &choices, |stored, out| {
            let start = out.len();
            add(image(new_frames[stored]), out)?;
            Ok(start)
        })
    }

    /// Returns whether `bytes` starts with the signature of a list of frames.
    pub fn matches(bytes: &[u8]) -> bool {
        bytes.starts_with(&SIGNATURE)
    }

    /// Reads the header of a list of frames, and checks the position of every frame. If there are
    /// several [choices](Frames::choices), selects the default.
    ///
    /// # Errors
    /// If `bytes` does not start with the signature, has a different version, is truncated, has
    /// bytes after the last frame, contains an invalid position or index of a frame, or has choices
    /// without frames.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        if !Self::matches(bytes) {
            let shown = &bytes[..bytes.len().min(8)];
            return Err(Error::decode(format!(
                "not a list of frames: it starts with \"{}\"; expected the content that Frames::encode returns",
                shown.escape_ascii()
            )));
        }
        let cut = || Error::decode(format!("the list of frames is truncated in its header, at byte {}", bytes.len()));
        let (start, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(cut)?;
        let [.., version, a, b, c, d] = *start;
        let count = u32::from_le_bytes([a, b, c, d]);
        match version {
            LIST_VERSION => {}
            CHOICES_VERSION => {
                return Self::read_choices(count, rest).ok_or_else(|| {
                    Error::decode(format!(
                        "the list of frames with choices is damaged: it claims {count} frames, and has {} bytes",
                        bytes.len()
                    ))
                });
            }
            _ => {
                return Err(Error::decode(format!(
                    "version {version} of the list of frames is not supported: expected 1 or 2"
                )));
            }
        }
        let table = usize::try_from(u64::from(count) * END_BYTES as u64).ok();
        let (ends, data) = table.and_then(|table| rest.split_at_checked(table)).ok_or_else(|| {
            Error::decode(format!("the list of frames claims {count} frames, but is truncated at byte {}", bytes.len()))
        })?;
        let ends = ends.as_chunks::<END_BYTES>().0;
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
        Ok(Frames { table: Table::List(ends), data })
    }

    /// Reads a list of choices of `count` frames, without the header. Returns `None` if the list is
    /// damaged.
    fn read_choices(count: u32, bytes: &'a [u8]) -> Option<Self> {
        let (counts, rest) = bytes.split_first_chunk::<COUNTS_BYTES>()?;
        let [choices, default, stored] =
            [0, 4, 8].map(|at| u32::from_le_bytes([counts[at], counts[at + 1], counts[at + 2], counts[at + 3]]));
        let [count, choices, default, stored] =
            [count, choices, default, stored].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        let (stored, rest) = rest.split_at_checked(stored.checked_mul(STORED_FRAME_BYTES)?)?;
        let (all, data) = rest.split_at_checked(choices.checked_mul(count)?.checked_mul(4)?)?;
        let (stored, all) = (stored.as_chunks::<STORED_FRAME_BYTES>().0, all.as_chunks::<4>().0);
        let positions = stored.iter().map(positions);
        let ends = positions.clone().map(|(_, end)| end).max().unwrap_or(0);
        let are_in_bounds = positions.clone().all(|(start, end)| start <= end) && ends == data.len() as u64;
        let are_stored = all.iter().all(|index| (u32::from_le_bytes(*index) as usize) < stored.len());
        let selected = all.get(default.checked_mul(count)?..)?.get(..count)?;
        (count > 0 && are_in_bounds && are_stored)
            .then_some(Frames { table: Table::Choices { stored, selected, all }, data })
    }

    /// Returns the number of frames.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        match self.table {
            Table::List(ends) => ends.len(),
            Table::Choices { selected, .. } => selected.len(),
        }
    }

    /// Returns the number of alternative clips, of which a loader draws one for each sample. This
    /// is 1 unless the source has jitter.
    pub fn choices(&self) -> usize {
        match self.table {
            Table::List(_) => 1,
            Table::Choices { selected, all, .. } => all.len() / selected.len(),
        }
    }

    /// Selects the alternative clip with the index `choice`.
    ///
    /// # Panics
    /// If there is no such [choice](Frames::choices).
    #[must_use]
    pub fn choose(mut self, choice: usize) -> Self {
        assert!(choice < self.choices(), "choice {choice} of {}", self.choices());
        if let Table::Choices { selected, all, .. } = &mut self.table {
            *selected = &all[choice * selected.len()..][..selected.len()];
        }
        self
    }

    /// Selects an alternative clip with the random number `draw`. All clips are equally likely.
    #[must_use]
    pub fn draw(self, draw: u64) -> Self {
        self.choose(drawn_choice(self.choices(), draw))
    }

    fn stored(&self, frame: usize) -> Option<&'a [u8; STORED_FRAME_BYTES]> {
        let Table::Choices { stored, selected, .. } = self.table else { return None };
        stored.get(u32::from_le_bytes(*selected.get(frame)?) as usize)
    }

    /// Returns the index of frame `frame` in its video, if the list states the index.
    pub fn index(&self, frame: usize) -> Option<u64> {
        let [.., a, b, c, d, e, f, g, h] = *self.stored(frame)?;
        Some(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }

    /// Returns the encoded image of a frame, or `None` if there is no such frame.
    pub fn get(&self, frame: usize) -> Option<&'a [u8]> {
        let Table::List(ends) = self.table else {
            let (start, end) = positions(self.stored(frame)?);
            return self.data.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?);
        };
        let at = |frame: usize| ends.get(frame).and_then(|end| usize::try_from(u64::from_le_bytes(*end)).ok());
        let start = if frame == 0 { Some(0) } else { at(frame - 1) };
        self.data.get(start?..at(frame)?)
    }

    /// Iterates over the encoded images.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let frames = *self;
        (0..self.len()).map(move |frame| frames.get(frame).expect("`read` checks the positions"))
    }
}

fn positions(stored: &[u8; STORED_FRAME_BYTES]) -> (u64, u64) {
    let numbers = stored.as_chunks::<8>().0;
    (u64::from_le_bytes(numbers[0]), u64::from_le_bytes(numbers[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: &[u8]) -> String {
        Frames::read(bytes).unwrap_err().to_string()
    }

    #[test]
    fn encoded_frames_are_read_back() {
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
        assert!(message(&with(7, &[3])).contains("version 3"));
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

    /// Returns a list of choices in which the stored frames are "a", "ab", "abc" and "x".
    fn choices() -> Vec<u8> {
        let table = [0, 1, 2, 3];
        let choices = Choices { frames: 2, default: 1, table: &table, stored: &[7, 8, 9, 20] };
        let mut bytes = b"before".to_vec();
        let mut start = 0;
        let added = Frames::append_choices(&mut bytes, &choices, |index, out| {
            if index % 3 == 0 {
                start = out.len();
            }
            out.push(b"abcx"[index]);
            Ok(start)
        });
        added.unwrap();
        bytes.split_off(6)
    }

    #[test]
    fn a_choice_selects_stored_frames() {
        let bytes = choices();
        let frames = Frames::read(&bytes).unwrap();
        assert_eq!((frames.len(), frames.choices()), (2, 2));
        assert_eq!(frames.iter().collect::<Vec<_>>(), [&b"abc"[..], b"x"]);
        assert_eq!([0, 1, 2].map(|frame| frames.index(frame)), [Some(9), Some(20), None]);
        let first = frames.choose(0);
        assert_eq!(first.iter().collect::<Vec<_>>(), [&b"a"[..], b"ab"]);
        assert_eq!((first.index(0), first.get(2), first.choices()), (Some(7), None, 2));
        let list = Frames::encode(&[b"one"]);
        let list = Frames::read(&list).unwrap();
        assert_eq!((list.choices(), list.choose(0).len(), list.index(0)), (1, 1, None));
    }

    #[test]
    fn mapped_lists_show_the_same_frames_of_the_video() {
        let table = [0, 1, 1, 2];
        let choices = Choices { frames: 4, default: 0, table: &table, stored: &[3, 6, 9] };
        let mut clip = Vec::new();
        Frames::append_choices(&mut clip, &choices, |index, out| {
            out.push(b"abc"[index]);
            Ok(out.len() - 1)
        })
        .unwrap();
        let clip = Frames::read(&clip).unwrap();
        let (mut mapped, mut calls) = (b"before".to_vec(), 0);
        let add = |image: &[u8], out: &mut Vec<u8>| {
            calls += 1;
            out.extend([image, b"!"].concat());
            Ok(())
        };
        clip.append_mapped(&mut mapped, add).unwrap();
        let mapped = Frames::read(&mapped[6..]).unwrap();
        assert_eq!(mapped.iter().collect::<Vec<_>>(), [b"a!", b"b!", b"b!", b"c!"]);
        assert!((0..4).map(|frame| mapped.index(frame)).eq([3, 6, 6, 9].map(Some)));
        assert_eq!((calls, mapped.choices()), (3, 1));

        let list = Frames::encode(&[b"one", b"one", b"two"]);
        let mut mapped = Vec::new();
        let add = |image: &[u8], out: &mut Vec<u8>| {
            out.extend(&image[1..]);
            Ok(())
        };
        Frames::read(&list).unwrap().append_mapped(&mut mapped, add).unwrap();
        assert_eq!(mapped, Frames::encode(&[b"ne", b"ne", b"wo"]));
        let add = |_: &[u8], _: &mut Vec<u8>| Err(Error::decode("no"));
        assert!(clip.append_mapped(&mut Vec::new(), add).unwrap_err().to_string().contains("no"));
    }

    #[test]
    fn damaged_choices_fail_or_give_frames() {
        let whole = choices();
        for end in 0..whole.len() {
            Frames::read(&whole[..end]).unwrap_err();
        }
        assert!(message(&[&whole[..], b"!"].concat()).contains("with choices is damaged: it claims 2 frames"));
        for at in 0..whole.len() {
            for byte in [0, 1, 2, 5, 127, 128, 255] {
                let mut changed = whole.clone();
                changed[at] = byte;
                if let Ok(frames) = Frames::read(&changed) {
                    (0..frames.choices()).for_each(|choice| drop(frames.choose(choice).iter().collect::<Vec<_>>()));
                }
            }
        }
    }
}
