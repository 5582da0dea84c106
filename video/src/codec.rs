//! [`Codec`] and [`CodecConfig`] describe the encoding of a track.

use std::fmt;

/// A video codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// AV1 (`av01`).
    Av1,
    /// H.264, which is also called AVC (`avc1`, `avc3`).
    H264,
    /// HEVC, which is also called H.265 (`hvc1`, `hev1`).
    Hevc,
    /// VP8 (`vp08`).
    Vp8,
    /// VP9 (`vp09`).
    Vp9,
    /// Any other codec, identified by its four-character code in the file.
    Other([u8; 4]),
}

impl Codec {
    /// Returns the codec with this four-character code in an MP4 file.
    pub fn from_mp4_code(name: [u8; 4]) -> Self {
        match &name {
            b"av01" => Codec::Av1,
            b"avc1" | b"avc3" => Codec::H264,
            b"hvc1" | b"hev1" => Codec::Hevc,
            b"vp08" => Codec::Vp8,
            b"vp09" => Codec::Vp9,
            _ => Codec::Other(name),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Codec::Av1 => f.write_str("AV1"),
            Codec::H264 => f.write_str("H.264"),
            Codec::Hevc => f.write_str("HEVC"),
            Codec::Vp8 => f.write_str("VP8"),
            Codec::Vp9 => f.write_str("VP9"),
            Codec::Other(name) => write!(f, "{:?}", name.escape_ascii().to_string()),
        }
    }
}

/// The data that a decoder of a track needs in addition to the packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodecConfig {
    /// The codec.
    pub codec: Codec,
    /// Width of the frames in pixels, according to the container.
    pub width: u32,
    /// Height of the frames in pixels, according to the container.
    pub height: u32,
    /// The codec's configuration record, which is the content of the `av1C`, `avcC`, `hvcC` or
    /// `vpcC` box of an MP4 file. Empty if there is none, as for VP8 and VP9 in a Matroska file.
    pub record: Vec<u8>,
    /// The container's color description, if any: primaries, transfer function and matrix as in
    /// ISO/IEC 23091-2, and whether values use the full range. The decoders of this crate use the
    /// description in the encoded video instead.
    pub color: Option<(u16, u16, u16, bool)>,
}
