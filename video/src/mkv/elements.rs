//! EBML element IDs of Matroska files, and an iterator over the elements in a byte slice.

use super::window::{parse_header, parse_integer};
use crate::error::{Error, Result};

pub(super) const EBML: u32 = 0x1a45_dfa3;
pub(super) const SEGMENT: u32 = 0x1853_8067;
pub(super) const SEEK_HEAD: u32 = 0x114d_9b74;
pub(super) const INFO: u32 = 0x1549_a966;
pub(super) const TRACKS: u32 = 0x1654_ae6b;
pub(super) const CLUSTER: u32 = 0x1f43_b675;
pub(super) const CUES: u32 = 0x1c53_bb6b;
pub(super) const CHAPTERS: u32 = 0x1043_a770;
pub(super) const TAGS: u32 = 0x1254_c367;
pub(super) const ATTACHMENTS: u32 = 0x1941_a469;

pub(super) const TIMESTAMP_SCALE: u32 = 0x2a_d7b1;

pub(super) const CLUSTER_TIMESTAMP: u32 = 0xe7;
pub(super) const SIMPLE_BLOCK: u32 = 0xa3;
pub(super) const BLOCK_GROUP: u32 = 0xa0;
pub(super) const BLOCK: u32 = 0xa1;
pub(super) const REFERENCE_BLOCK: u32 = 0xfb;
pub(super) const ENCRYPTED_BLOCK: u32 = 0xaf;

pub(super) const TRACK_ENTRY: u32 = 0xae;
pub(super) const TRACK_NUMBER: u32 = 0xd7;
pub(super) const TRACK_TYPE: u32 = 0x83;
pub(super) const CODEC_ID: u32 = 0x86;
pub(super) const CODEC_PRIVATE: u32 = 0x63a2;
pub(super) const CODEC_DELAY: u32 = 0x56aa;
pub(super) const TRACK_TIMESTAMP_SCALE: u32 = 0x23_314f;
pub(super) const CONTENT_ENCODINGS: u32 = 0x6d80;
pub(super) const VIDEO: u32 = 0xe0;
pub(super) const WIDTH: u32 = 0xb0;
pub(super) const HEIGHT: u32 = 0xba;
/// IDs of the numbers of pixels to remove at the bottom, top, left and right.
pub(super) const CROPS: [u32; 4] = [0x54aa, 0x54bb, 0x54cc, 0x54dd];
pub(super) const COLOR: u32 = 0x55b0;
pub(super) const MATRIX: u32 = 0x55b1;
pub(super) const RANGE: u32 = 0x55b9;
pub(super) const TRANSFER: u32 = 0x55ba;
pub(super) const PRIMARIES: u32 = 0x55bb;
pub(super) const PROJECTION: u32 = 0x7670;
/// IDs of the yaw, pitch and roll of a projection, in degrees.
pub(super) const POSES: [u32; 3] = [0x7673, 0x7674, 0x7675];

/// Returns whether the element is a child of the segment. Such an element ends a cluster of unknown
/// size.
pub(super) fn is_in_segment(id: u32) -> bool {
    [SEEK_HEAD, INFO, TRACKS, CLUSTER, CUES, CHAPTERS, TAGS, ATTACHMENTS].contains(&id)
}

pub(super) struct Elements<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = Result<(u32, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.0);
        let parsed = parse_header(bytes).and_then(|(id, size, header_len)| {
            let size = usize::try_from(size?).ok()?;
            let (content, rest) = bytes[header_len..].split_at_checked(size)?;
            Some((id, content, rest))
        });
        let Some((id, content, rest)) = parsed else {
            let remaining = bytes.len();
            return Some(Err(Error::damaged(format!(
                "the description of the tracks is damaged {remaining} bytes before its end"
            ))));
        };
        self.0 = rest;
        Some(Ok((id, content)))
    }
}

pub(super) fn parse_unsigned(id: u32, content: &[u8]) -> Result<u64> {
    match content.len() {
        0..=8 => Ok(parse_integer(content)),
        len => Err(Error::damaged(format!("the integer {id:x} has {len} bytes: expected at most 8"))),
    }
}

pub(super) fn parse_float(id: u32, content: &[u8]) -> Result<f64> {
    match *content {
        [] => Ok(0.0),
        [a, b, c, d] => Ok(f32::from_be_bytes([a, b, c, d]).into()),
        [a, b, c, d, e, f, g, h] => Ok(f64::from_be_bytes([a, b, c, d, e, f, g, h])),
        _ => Err(Error::damaged(format!("the number {id:x} has {} bytes: expected 4 or 8", content.len()))),
    }
}
