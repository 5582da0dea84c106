//! [`Record`] is a self-contained encoding of one video frame.
//!
//! A record contains the packets from a key frame to the target frame. It can be stored, sent and
//! decoded like an encoded image.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | [`MAGIC`] |
//! | 1 | codec: 1 AV1, 2 H.264, 3 HEVC, 4 VP8, 5 VP9 |
//! | 1 | EXIF orientation |
//! | 2 | length of the label |
//! | 4, 4 | width and height of the stored frame |
//! | 4 | number of packets, or [`ALL_PACKETS`] if the packets extend to the end of the data |
//! | 4 | length of the codec's configuration record |
//! | | the label, UTF-8 text that names the file and the frame in messages |
//! | | the codec's configuration record |
//! | | for each packet: its length (4 bytes), and its bytes |
//!
//! Numbers are little-endian. The last packet contains the target frame. Records of later frames in
//! the same group of pictures start with the same packets, so a decoder that has decoded one record
//! can continue with the next one.

use crate::codec::{Codec, CodecConfig};
use crate::error::{Error, Result, reserve};

/// The first bytes of a record.
pub const MAGIC: &[u8; 8] = b"WFvideo\x01";

/// The packet count of a record that contains all packets up to its end.
///
/// Any prefix of such a record that ends after a packet is a valid record. The frames of a group of
/// pictures can therefore share the bytes of the longest record.
pub const ALL_PACKETS: u32 = u32::MAX;

const HEADER_LEN: usize = 28;

/// The codecs in the order of their codes, from 1.
const CODECS: [Codec; 5] = [Codec::Av1, Codec::H264, Codec::Hevc, Codec::Vp8, Codec::Vp9];

/// A self-contained encoding of one video frame.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The codec.
    pub codec: Codec,
    /// Width of the stored frame.
    pub width: u32,
    /// Height of the stored frame.
    pub height: u32,
    /// How the frame is rotated or mirrored for display, as an EXIF orientation from 1 to 8.
    pub orientation: u8,
    /// Text that names the file and the frame in messages.
    pub label: &'a str,
    /// The codec's configuration record.
    pub config: &'a [u8],
    packet_count: u32,
    /// The configuration record and the packets with their lengths.
    body: &'a [u8],
}

/// Appends the header, the label and the codec configuration of a record of `count` packets to
/// `out`. The caller appends the packets.
///
/// # Errors
///
/// If records do not support the codec, or if an allocation fails.
pub fn write_header(config: &CodecConfig, orientation: u8, label: &str, count: u32, out: &mut Vec<u8>) -> Result<()> {
    let codec = CODECS.iter().position(|codec| *codec == config.codec);
    let codec = codec.ok_or_else(|| Error::unsupported(unsupported_message(config.codec)))? as u8 + 1;
    // The label is only for messages, so a label of 2^16 bytes or more is truncated.
    let label_end =
        (0..=label.len().min(usize::from(u16::MAX))).rev().find(|&end| label.is_char_boundary(end)).unwrap_or(0);
    let label = &label[..label_end];
    reserve(out, HEADER_LEN + label.len() + config.record.len())?;
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&[codec, orientation]);
    out.extend_from_slice(&(label.len() as u16).to_le_bytes());
    for number in [config.width, config.height, count, config.record.len() as u32] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(label.as_bytes());
    out.extend_from_slice(&config.record);
    Ok(())
}

/// Returns the error message for a codec that cannot be decoded, with advice.
pub fn unsupported_message(codec: Codec) -> String {
    if codec == Codec::Av1 {
        return "the video is encoded with AV1: build with the Cargo feature \"av1\" to decode it".to_owned();
    }
    let (supported, alternative) = match codec {
        Codec::H264 | Codec::Hevc | Codec::Vp9 => {
            ("AV1 is", ", or build with the Cargo feature \"nvdec\" to decode it on an NVIDIA GPU")
        }
        _ if cfg!(feature = "nvdec") => ("AV1, H.264, HEVC and VP9 are", ""),
        _ => ("AV1 is", ""),
    };
    format!(
        "the video is encoded with {codec}, but only {supported} decoded: re-encode it, for example \
         with `ffmpeg -i in.mp4 \
         -c:v libsvtav1 -g 2 -crf 30 out.mp4`, or store its frames as images{alternative}"
    )
}

fn split_packet(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*len) as usize)
}

impl<'a> Record<'a> {
    /// Parses a record.
    ///
    /// # Errors
    ///
    /// If the record is damaged.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let damaged_record = |what: &str| Error::damaged(format!("damaged record of a video frame: {what}"));
        let header = bytes.get(..HEADER_LEN).filter(|header| header.starts_with(MAGIC));
        let header =
            header.ok_or_else(|| damaged_record("expected a header of 28 bytes that starts with \"WFvideo\""))?;
        let u32_at = |offset: usize| {
            u32::from_le_bytes([header[offset], header[offset + 1], header[offset + 2], header[offset + 3]])
        };
        let codec = usize::from(header[8]).checked_sub(1).and_then(|index| CODECS.get(index));
        let codec = *codec.ok_or_else(|| damaged_record(&format!("unknown codec {}", header[8])))?;
        let orientation = header[9];
        if !(1..=8).contains(&orientation) {
            return Err(damaged_record(&format!("the orientation is {orientation}: expected 1 to 8")));
        }
        let label_len = usize::from(u16::from_le_bytes([header[10], header[11]]));
        let (label, body) = bytes[HEADER_LEN..]
            .split_at_checked(label_len)
            .ok_or_else(|| damaged_record("the label extends past the end"))?;
        let label = std::str::from_utf8(label).map_err(|_| damaged_record("the label is not UTF-8"))?;
        let config =
            body.get(..u32_at(24) as usize).ok_or_else(|| damaged_record("the configuration extends past the end"))?;
        let listed_count = u32_at(20);
        let (mut rest, mut actual_count) = (&body[config.len()..], 0);
        while let Some((_, after)) = split_packet(rest) {
            (rest, actual_count) = (after, actual_count + 1);
        }
        let packet_count = if listed_count == ALL_PACKETS { actual_count } else { listed_count };
        if actual_count != packet_count || packet_count == 0 || !rest.is_empty() {
            return Err(damaged_record(&format!(
                "found {actual_count} complete packets, but the header lists {listed_count}"
            )));
        }
        let (width, height) = (u32_at(12), u32_at(16));
        if width == 0 || height == 0 {
            return Err(damaged_record(&format!("the frame has {width}x{height} pixels")));
        }
        Ok(Record { codec, width, height, orientation, label, config, packet_count, body })
    }

    /// Returns the number of packets.
    pub fn packet_count(&self) -> usize {
        self.packet_count as usize
    }

    /// Returns the packets in decoding order.
    pub fn packets(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = &self.body[self.config.len()..];
        std::iter::from_fn(move || {
            let (packet, after) = split_packet(rest)?;
            rest = after;
            Some(packet)
        })
    }

    /// Returns the configuration record and the packets with their lengths. If one record's body is
    /// a prefix of another's, their frames belong to the same group of pictures.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }
}
