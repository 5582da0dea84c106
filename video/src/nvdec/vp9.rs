//! Reads the headers of VP9 frames to find which image a packet shows and how its samples encode
//! color.
//!
//! A packet contains up to eight frames, of which one is shown. A frame replaces some of the eight
//! reference images, or shows one of them without encoding anything. The driver reports neither
//! shown reference images nor the matrix.
//!
//! **Source.** VP9 Bitstream & Decoding Process Specification, version 0.6, sections 6.2 and 7.2,
//! and annex B.

use crate::error::{Error, Result};

const SYNC_CODE: u32 = 0x49_83_42;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PacketImages {
    pub(super) image_count: usize,
    /// Index of the shown image among all encoded images since the key frame.
    pub(super) shown_image: usize,
}

#[derive(Debug, Default)]
pub(super) struct References {
    /// For each reference, the index of its image, counted from the key frame.
    reference_images: [Option<usize>; 8],
    /// Number of encoded images since the key frame.
    image_count: usize,
    /// Matrix coefficients as in ISO/IEC 23091-2, and whether samples have the full range,
    /// according to the last key frame.
    pub(super) color: (u8, bool),
}

pub(super) enum Header {
    /// The frame shows a reference image.
    ShowExisting(usize),
    Encoded {
        /// Bit `n` is set if reference `n` is replaced.
        refresh_mask: u32,
        is_shown: bool,
        /// Matrix and range, or `None` if this is not a key frame.
        key_color: Option<(u8, bool)>,
    },
}

impl References {
    /// Reads the headers in a packet, which must show exactly one frame. After an error, the
    /// references must not be used anymore.
    pub(super) fn add(&mut self, packet: &[u8]) -> Result<PacketImages> {
        let first_image = self.image_count;
        let mut shown_image = None;
        for_each_frame(packet, |frame| {
            let frame_image = match Header::parse(frame)? {
                Header::ShowExisting(index) => Some(self.reference_images[index].ok_or_else(|| {
                    Error::damaged(format!("a VP9 frame shows the reference image {index}, which does not exist"))
                })?),
                Header::Encoded { refresh_mask, is_shown, key_color } => {
                    if self.image_count == 0 && key_color.is_none() {
                        return Err(Error::damaged("the first VP9 frame is not a key frame"));
                    }
                    let image = self.image_count;
                    self.image_count += 1;
                    for (index, reference) in self.reference_images.iter_mut().enumerate() {
                        if refresh_mask >> index & 1 == 1 {
                            *reference = Some(image);
                        }
                    }
                    self.color = key_color.unwrap_or(self.color);
                    is_shown.then_some(image)
                }
            };
            if frame_image.is_some() && shown_image.is_some() {
                return Err(Error::damaged("the packet shows several VP9 frames"));
            }
            shown_image = shown_image.or(frame_image);
            Ok(())
        })?;
        let shown_image = shown_image.ok_or_else(|| Error::damaged("the packet shows no VP9 frame"))?;
        Ok(PacketImages { image_count: self.image_count - first_image, shown_image })
    }
}

/// Reads bits, starting with the highest bit of each byte.
struct BitReader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl BitReader<'_> {
    fn read_bits(&mut self, count: usize) -> Result<u32> {
        let mut value = 0;
        for _ in 0..count {
            let byte = self.bytes.get(self.position / 8).ok_or_else(|| {
                Error::damaged(format!("the VP9 frame ends after {} bytes, inside its header", self.bytes.len()))
            })?;
            value = value << 1 | u32::from(byte >> (7 - self.position % 8) & 1);
            self.position += 1;
        }
        Ok(value)
    }

    fn read_flag(&mut self) -> Result<bool> {
        Ok(self.read_bits(1)? == 1)
    }

    fn check_sync_code(&mut self) -> Result<()> {
        match self.read_bits(24)? {
            SYNC_CODE => Ok(()),
            other => {
                Err(Error::damaged(format!("a VP9 frame has the sync code {other:06x} instead of {SYNC_CODE:06x}")))
            }
        }
    }

    /// Reads the color description. Returns the matrix and the range.
    fn read_color(&mut self, profile: u32) -> Result<(u8, bool)> {
        if profile >= 2 {
            self.read_bits(1)?;
        }
        let matrix = match self.read_bits(3)? {
            1 => 5,
            2 => 1,
            3 => 6,
            4 => 7,
            5 => 9,
            7 => return Err(Error::unsupported("the VP9 frame is RGB: only 4:2:0 is supported on the GPU")),
            _ => 2,
        };
        let is_full_range = self.read_flag()?;
        if profile & 1 == 1 {
            self.read_bits(3)?;
        }
        Ok((matrix, is_full_range))
    }
}

impl Header {
    pub(super) fn parse(frame: &[u8]) -> Result<Self> {
        let mut reader = BitReader { bytes: frame, position: 0 };
        if reader.read_bits(2)? != 2 {
            return Err(Error::damaged("the packet contains no VP9 frame"));
        }
        let profile = reader.read_bits(1)? | reader.read_bits(1)? << 1;
        if profile == 3 && reader.read_flag()? {
            return Err(Error::damaged("a VP9 frame has an unknown profile"));
        }
        if reader.read_flag()? {
            return Ok(Header::ShowExisting(reader.read_bits(3)? as usize));
        }
        let is_key = !reader.read_flag()?;
        let is_shown = reader.read_flag()?;
        let is_resilient = reader.read_flag()?;
        if is_key {
            reader.check_sync_code()?;
            return Ok(Header::Encoded { refresh_mask: 0xff, is_shown, key_color: Some(reader.read_color(profile)?) });
        }
        let is_intra = !is_shown && reader.read_flag()?;
        if !is_resilient {
            reader.read_bits(2)?;
        }
        if is_intra {
            reader.check_sync_code()?;
            if profile > 0 {
                reader.read_color(profile)?;
            }
        }
        Ok(Header::Encoded { refresh_mask: reader.read_bits(8)?, is_shown, key_color: None })
    }
}

/// Calls `visit` for each frame in a packet. If a packet contains several frames, an index of their
/// lengths follows the frames.
pub(super) fn for_each_frame(packet: &[u8], mut visit: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let Some((lengths, length_bytes)) = frame_lengths(packet) else { return visit(packet) };
    let mut rest = packet;
    for length in lengths.chunks_exact(length_bytes) {
        let length = length.iter().rev().fold(0, |value, &byte| value << 8 | usize::from(byte));
        let (frame, after) = rest
            .split_at_checked(length)
            .ok_or_else(|| Error::damaged(format!("a VP9 frame claims {length} bytes, but {} follow", rest.len())))?;
        visit(frame)?;
        rest = after;
    }
    Ok(())
}

/// Returns the lengths of the frames in a packet, and the number of bytes of a length, or `None` if
/// the packet has no index. A single frame needs no index.
fn frame_lengths(packet: &[u8]) -> Option<(&[u8], usize)> {
    let last_byte = *packet.last()?;
    if last_byte >> 5 != 0b110 {
        return None;
    }
    let (frames, length_bytes) = (usize::from(last_byte & 7) + 1, usize::from(last_byte >> 3 & 3) + 1);
    let index = packet.get(packet.len().checked_sub(2 + frames * length_bytes)?..)?;
    (index[0] == last_byte).then(|| (&index[1..index.len() - 1], length_bytes))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn key(color_space: u8) -> Vec<u8> {
        // The bits are marker 2, profile 0, coded, key frame, shown and not resilient; then the
        // sync code; then the full range.
        bytes(&format!("10000010{SYNC_CODE:024b}{color_space:03b}1"))
    }

    pub(in super::super) fn inter(is_shown: bool, refresh: u8) -> Vec<u8> {
        let intra = if is_shown { "" } else { "0" };
        bytes(&format!("100001{}0{intra}00{refresh:08b}", u8::from(is_shown)))
    }

    pub(in super::super) fn existing(reference: u8) -> Vec<u8> {
        bytes(&format!("10001{reference:03b}"))
    }

    pub(in super::super) fn superframe(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut packet = frames.concat();
        let marker = 0b1100_0000 | (frames.len() as u8 - 1);
        packet.push(marker);
        packet.extend(frames.iter().map(|frame| frame.len() as u8));
        packet.push(marker);
        packet
    }

    fn bytes(bits: &str) -> Vec<u8> {
        let padded = format!("{bits}{}", "0".repeat(bits.len().next_multiple_of(8) - bits.len()));
        (0..padded.len() / 8).map(|byte| u8::from_str_radix(&padded[byte * 8..][..8], 2).unwrap()).collect()
    }

    fn shown_images(packets: &[Vec<u8>]) -> Result<Vec<(usize, usize)>> {
        let mut references = References::default();
        packets
            .iter()
            .map(|packet| references.add(packet).map(|content| (content.image_count, content.shown_image)))
            .collect()
    }

    #[test]
    fn a_packet_shows_its_visible_frame_or_an_earlier_one() {
        let packets = [
            key(1),
            inter(true, 1),
            // This packet has a hidden frame that replaces reference 2, and a visible frame.
            superframe(&[inter(false, 4), inter(true, 1)]),
            inter(true, 1),
            existing(2),
            existing(7),
        ];
        assert_eq!(shown_images(&packets).unwrap(), [(1, 0), (1, 1), (2, 3), (1, 4), (0, 2), (0, 0)]);
    }

    #[test]
    fn damaged_headers_fail() {
        let error = |packets: &[Vec<u8>]| shown_images(packets).unwrap_err().to_string();
        let start = key(1);
        assert_eq!(error(&[inter(true, 1)]), "the first VP9 frame is not a key frame");
        assert!(error(&[existing(3)]).contains("reference image 3, which does not exist"));
        assert_eq!(error(&[start.clone(), inter(false, 1)]), "the packet shows no VP9 frame");
        let twice = superframe(&[inter(true, 1), inter(true, 1)]);
        assert_eq!(error(&[start.clone(), twice]), "the packet shows several VP9 frames");
        assert_eq!(error(&[vec![0x42, 0, 0]]), "the packet contains no VP9 frame");
        let mut changed = start.clone();
        changed[2] ^= 1;
        assert_eq!(error(&[changed]), "a VP9 frame has the sync code 498242 instead of 498342");
        let mut longer = superframe(&[inter(false, 1), inter(true, 1)]);
        let offset = longer.len() - 2;
        longer[offset] = 99;
        assert!(error(&[start.clone(), longer]).contains("claims 99 bytes"));
        for end in 0..start.len() {
            shown_images(&[start[..end].to_vec()]).unwrap_err();
        }
    }

    #[test]
    fn the_matrix_and_the_range_of_a_key_frame_are_read() {
        for (color_space, matrix) in [(0, 2), (1, 5), (2, 1), (3, 6), (4, 7), (5, 9), (6, 2)] {
            let mut references = References::default();
            references.add(&key(color_space)).unwrap();
            references.add(&inter(true, 1)).unwrap();
            assert_eq!(references.color, (matrix, true));
        }
        assert!(References::default().add(&key(7)).unwrap_err().to_string().contains("RGB"));
    }
}
