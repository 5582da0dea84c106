//! Rewrites packets of MP4 and Matroska files in the format that the driver's parser expects.
//!
//! - **H.264 and HEVC**: the files store the length of each NAL unit before it, and parameter sets
//!   outside the packets. The parser expects start codes instead (Annex B of ISO/IEC 14496-10 and
//!   23008-2), and the parameter sets before the first packet.
//! - **VP9**: packets are not changed.

use crate::codec::{Codec, CodecConfig};
use crate::error::{Error, Result, reserve};

const START_CODE: [u8; 4] = [0, 0, 0, 1];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bitstream {
    codec: Codec,
    /// Size in bytes of the length prefix of each NAL unit, for H.264 and HEVC.
    length_bytes: usize,
    /// The parameter sets, with start codes.
    parameter_sets: Vec<u8>,
}

/// What the parser should find in an H.264 or HEVC packet. For VP9, whose packets are not parsed
/// here, `image_count` is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PacketContent {
    pub(super) image_count: usize,
    /// True if this packet may start an open group of pictures. Later packets may then contain
    /// leading pictures, which cannot be decoded if they depend on pictures before this packet.
    pub(super) may_be_open_group: bool,
}

impl Bitstream {
    pub(super) fn new(config: &CodecConfig) -> Result<Self> {
        let record = &config.record[..];
        let (length_bytes, parameter_sets) = match config.codec {
            Codec::H264 => parse_avcc(record)?,
            Codec::Hevc => parse_hvcc(record)?,
            Codec::Vp9 => (0, Vec::new()),
            codec => {
                return Err(Error::unsupported(format!(
                    "{codec} cannot be decoded on the GPU: expected H.264, HEVC or VP9"
                )));
            }
        };
        Ok(Bitstream { codec: config.codec, length_bytes, parameter_sets })
    }

    pub(super) fn codec(&self) -> Codec {
        self.codec
    }

    /// Replaces the content of `out` with the rewritten packet. `is_first` says whether decoding
    /// starts with this packet.
    pub(super) fn rewrite(&self, packet: &[u8], is_first: bool, out: &mut Vec<u8>) -> Result<PacketContent> {
        out.clear();
        reserve(out, self.parameter_sets.len() + packet.len() + packet.len() / 8 + 64)?;
        if is_first {
            out.extend_from_slice(&self.parameter_sets);
        }
        if self.codec == Codec::Vp9 {
            out.extend_from_slice(packet);
            return Ok(PacketContent { image_count: 0, may_be_open_group: false });
        }
        self.insert_start_codes(packet, out)
    }

    fn insert_start_codes(&self, packet: &[u8], out: &mut Vec<u8>) -> Result<PacketContent> {
        let (mut rest, mut slice_count, mut skippable_count, mut may_be_open_group) =
            (packet, 0, 0, self.codec == Codec::H264);
        while !rest.is_empty() {
            let offset = packet.len() - rest.len();
            let length = rest.split_at_checked(self.length_bytes).map(|(length, after)| {
                rest = after;
                length.iter().fold(0, |value, &byte| value << 8 | usize::from(byte))
            });
            let unit = length.and_then(|length| rest.split_at_checked(length));
            let (Some((unit, after)), Some(length)) = (unit, length) else {
                return Err(Error::damaged(match length {
                    Some(length) => format!(
                        "the NAL unit at byte {offset} of the packet claims {length} bytes, but {} follow",
                        rest.len()
                    ),
                    None => format!("the packet ends at byte {}, inside the length prefix of a NAL unit", packet.len()),
                }));
            };
            if length == 0 {
                return Err(Error::damaged(format!("the NAL unit at byte {offset} of the packet is empty")));
            }
            rest = after;
            match NalUnit::parse(self.codec, unit) {
                NalUnit::Slice { is_random_access } => {
                    slice_count += 1;
                    may_be_open_group &= !is_random_access;
                }
                NalUnit::Skippable => skippable_count += 1,
                NalUnit::Other => {}
            }
            reserve(out, START_CODE.len() + unit.len())?;
            out.extend_from_slice(&START_CODE);
            out.extend_from_slice(unit);
        }
        if slice_count + skippable_count == 0 {
            return Err(Error::damaged(format!("the packet of {} bytes contains no image", packet.len())));
        }
        Ok(PacketContent { image_count: usize::from(slice_count > 0), may_be_open_group })
    }
}

enum NalUnit {
    /// A slice of a picture. If `is_random_access` is true, the picture is an IDR picture (H.264)
    /// or an IRAP picture (HEVC): decoding may start with it, and later pictures do not refer to
    /// earlier ones, except HEVC's RASL pictures, which are `Skippable`.
    Slice {
        is_random_access: bool,
    },
    /// A slice of an HEVC picture that may refer to pictures before the preceding key frame.
    /// Decoders skip the picture if decoding starts at that key frame.
    Skippable,
    Other,
}

impl NalUnit {
    fn parse(codec: Codec, unit: &[u8]) -> Self {
        match (codec, unit[0]) {
            (Codec::H264, byte) if matches!(byte & 31, 1..=5) => NalUnit::Slice { is_random_access: byte & 31 == 5 },
            // RASL_N and RASL_R.
            (Codec::Hevc, byte) if matches!(byte >> 1 & 63, 8 | 9) => NalUnit::Skippable,
            // All other slices. Types 16 to 23 are IRAP pictures (BLA, IDR and CRA). Types 24 to 31
            // are reserved.
            (Codec::Hevc, byte) if byte >> 1 & 63 < 32 => NalUnit::Slice { is_random_access: byte >> 1 & 63 >= 16 },
            _ => NalUnit::Other,
        }
    }
}

struct RecordReader<'a> {
    name: &'static str,
    record: &'a [u8],
    remaining: &'a [u8],
}

impl<'a> RecordReader<'a> {
    fn read_bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let (content, rest) = self.remaining.split_at_checked(count).ok_or_else(|| {
            let offset = self.record.len() - self.remaining.len();
            Error::damaged(format!(
                "the box {} has {} bytes: expected {count} more bytes at byte {offset}",
                self.name,
                self.record.len()
            ))
        })?;
        self.remaining = rest;
        Ok(content)
    }

    fn read_u8(&mut self) -> Result<u8> {
        Ok(self.read_bytes(1)?[0])
    }

    fn read_u16(&mut self) -> Result<usize> {
        self.read_bytes(2).map(|bytes| usize::from(bytes[0]) << 8 | usize::from(bytes[1]))
    }

    fn copy_sets(&mut self, count: usize, out: &mut Vec<u8>) -> Result<()> {
        for _ in 0..count {
            let length = self.read_u16()?;
            let set = self.read_bytes(length)?;
            reserve(out, START_CODE.len() + set.len())?;
            out.extend_from_slice(&START_CODE);
            out.extend_from_slice(set);
        }
        Ok(())
    }
}

/// Returns the size in bytes of the length prefix of a NAL unit, and the parameter sets with start
/// codes.
fn parse_avcc(record: &[u8]) -> Result<(usize, Vec<u8>)> {
    let mut reader = RecordReader { name: "avcC", record, remaining: record };
    let length_bytes = usize::from(reader.read_bytes(5)?[4] & 3) + 1;
    let mut sets = Vec::new();
    let sps_count = usize::from(reader.read_u8()? & 31);
    reader.copy_sets(sps_count, &mut sets)?;
    let pps_count = usize::from(reader.read_u8()?);
    reader.copy_sets(pps_count, &mut sets)?;
    Ok((length_bytes, sets))
}

fn parse_hvcc(record: &[u8]) -> Result<(usize, Vec<u8>)> {
    let mut reader = RecordReader { name: "hvcC", record, remaining: record };
    let length_bytes = usize::from(reader.read_bytes(22)?[21] & 3) + 1;
    let mut sets = Vec::new();
    for _ in 0..reader.read_u8()? {
        reader.read_u8()?;
        let count = reader.read_u16()?;
        reader.copy_sets(count, &mut sets)?;
    }
    Ok((length_bytes, sets))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(codec: Codec, record: &[u8]) -> CodecConfig {
        CodecConfig { codec, width: 0, height: 0, record: record.to_vec(), color: None }
    }

    fn avcc(length_bytes: u8) -> Vec<u8> {
        vec![1, 100, 0, 30, 0xfc | (length_bytes - 1), 0xe1, 0, 3, 0x67, 1, 2, 2, 0, 2, 0x68, 3, 0, 1, 0x68]
    }

    fn hvcc() -> Vec<u8> {
        let mut record = vec![0; 21];
        record.push(0xf3);
        record.push(2);
        record.extend([0x20 | 0x80, 0, 1, 0, 2, 0x40, 1]);
        record.extend([0x21, 0, 2, 0, 1, 0x42, 0, 2, 0x42, 9]);
        record
    }

    #[test]
    fn parameter_sets_precede_the_first_packet_only() {
        let stream = Bitstream::new(&config(Codec::H264, &avcc(4))).unwrap();
        let packet = [0, 0, 0, 2, 0x06, 7, 0, 0, 0, 3, 0x65, 8, 9];
        let units = [0, 0, 0, 1, 0x06, 7, 0, 0, 0, 1, 0x65, 8, 9];
        let sets = [0, 0, 0, 1, 0x67, 1, 2, 0, 0, 0, 1, 0x68, 3, 0, 0, 0, 1, 0x68];
        let mut out = vec![1, 2, 3];
        assert_eq!(
            stream.rewrite(&packet, true, &mut out).unwrap(),
            PacketContent { image_count: 1, may_be_open_group: false }
        );
        assert_eq!(out, [&sets[..], &units].concat());
        stream.rewrite(&packet, false, &mut out).unwrap();
        assert_eq!(out, units);

        let stream = Bitstream::new(&config(Codec::Hevc, &hvcc())).unwrap();
        let packet = [0, 0, 0, 3, 0x26, 1, 5];
        stream.rewrite(&packet, true, &mut out).unwrap();
        let sets = [0, 0, 0, 1, 0x40, 1, 0, 0, 0, 1, 0x42, 0, 0, 0, 1, 0x42, 9];
        assert_eq!(out, [&sets[..], &[0, 0, 0, 1, 0x26, 1, 5]].concat());
    }

    #[test]
    fn lengths_of_one_to_four_bytes_become_start_codes() {
        for length_bytes in 1..=4 {
            let stream = Bitstream::new(&config(Codec::H264, &avcc(length_bytes))).unwrap();
            let mut packet = vec![0; usize::from(length_bytes) - 1];
            packet.extend([2, 0x41, 7]);
            let mut out = Vec::new();
            stream.rewrite(&packet, false, &mut out).unwrap();
            assert_eq!(out, [0, 0, 0, 1, 0x41, 7]);
        }
    }

    #[test]
    fn damaged_packets_fail_with_the_reason() {
        let stream = Bitstream::new(&config(Codec::H264, &avcc(4))).unwrap();
        let damage = |packet: &[u8]| stream.rewrite(packet, false, &mut Vec::new()).unwrap_err().to_string();
        assert_eq!(
            damage(&[0, 0, 0, 1, 0x06, 0, 0, 0, 9, 0x65, 1]),
            "the NAL unit at byte 5 of the packet claims 9 bytes, but 2 follow"
        );
        assert_eq!(
            damage(&[0, 0, 0, 1, 0x65, 0, 0]),
            "the packet ends at byte 7, inside the length prefix of a NAL unit"
        );
        assert_eq!(damage(&[0; 8]), "the NAL unit at byte 0 of the packet is empty");
        assert_eq!(damage(&[0, 0, 0, 1, 0x06]), "the packet of 5 bytes contains no image");
        assert_eq!(damage(&[]), "the packet of 0 bytes contains no image");
        assert_eq!(
            damage(&[255, 255, 255, 255, 0x65]),
            "the NAL unit at byte 0 of the packet claims 4294967295 bytes, but 1 follow"
        );
    }

    #[test]
    fn every_truncated_record_fails() {
        for (codec, record) in [(Codec::H264, avcc(4)), (Codec::Hevc, hvcc())] {
            Bitstream::new(&config(codec, &record)).unwrap();
            for end in 0..record.len() {
                let error = Bitstream::new(&config(codec, &record[..end])).unwrap_err().to_string();
                assert!(error.contains(&format!("has {end} bytes: expected")), "{error}");
            }
        }
    }

    #[test]
    fn pictures_that_decoders_skip_after_a_key_frame_are_not_expected() {
        let stream = Bitstream::new(&config(Codec::Hevc, &hvcc())).unwrap();
        let image_count =
            |kind: u8| stream.rewrite(&[0, 0, 0, 2, kind << 1, 1], false, &mut Vec::new()).unwrap().image_count;
        assert_eq!([image_count(0), image_count(1), image_count(8), image_count(9), image_count(21)], [1, 1, 0, 0, 1]);
    }

    #[test]
    fn other_codecs_are_refused_by_name() {
        let error = Bitstream::new(&config(Codec::Other(*b"mp4v"), &[])).unwrap_err().to_string();
        assert_eq!(error, "\"mp4v\" cannot be decoded on the GPU: expected H.264, HEVC or VP9");
    }
}
