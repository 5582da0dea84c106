//! Parses the description of the video track.

use super::elements::{
    CODEC_DELAY, CODEC_ID, CODEC_PRIVATE, COLOR, CONTENT_ENCODINGS, CROPS, Elements, HEIGHT, MATRIX, POSES, PRIMARIES,
    PROJECTION, RANGE, TRACK_ENTRY, TRACK_NUMBER, TRACK_TIMESTAMP_SCALE, TRACK_TYPE, TRANSFER, VIDEO, WIDTH,
    parse_float, parse_unsigned,
};
use crate::codec::{Codec, CodecConfig};
use crate::error::{Error, Result, reserve};

const VIDEO_TYPE: u64 = 1;

#[derive(Debug)]
pub(super) struct VideoTrack {
    /// Track number, which the blocks of the track contain.
    pub(super) number: u64,
    pub(super) config: CodecConfig,
}

impl VideoTrack {
    /// Finds the first video track in the content of the `Tracks` element. Fails if there is none,
    /// or if it uses a feature that is not supported.
    pub(super) fn find(tracks: &[u8]) -> Result<Self> {
        let mut track_count = 0;
        for element in Elements(tracks) {
            let (id, entry) = element?;
            if id != TRACK_ENTRY {
                continue;
            }
            for element in Elements(entry) {
                let (id, content) = element?;
                if id == TRACK_TYPE && parse_unsigned(id, content)? == VIDEO_TYPE {
                    return Self::parse(entry);
                }
            }
            track_count += 1;
        }
        Err(Error::unsupported(format!("none of the {track_count} tracks of the file is a video")))
    }

    fn parse(entry: &[u8]) -> Result<Self> {
        let (mut number, mut codec_id, mut codec_private, mut video) = (None, None, &[][..], None);
        for element in Elements(entry) {
            let (id, content) = element?;
            match id {
                TRACK_NUMBER => number = Some(parse_unsigned(id, content)?),
                CODEC_ID => codec_id = Some(content),
                CODEC_PRIVATE => codec_private = content,
                VIDEO => video = Some(content),
                CONTENT_ENCODINGS => {
                    return Err(unsupported("the packets of the video are compressed or encrypted by the container"));
                }
                CODEC_DELAY if parse_unsigned(id, content)? != 0 => {
                    return Err(unsupported("the video track has a codec delay"));
                }
                // The default value is 1.
                TRACK_TIMESTAMP_SCALE if !content.is_empty() && parse_float(id, content)? != 1.0 => {
                    return Err(unsupported("the video track has its own time scale"));
                }
                _ => {}
            }
        }
        let missing_error = |what: &str| Error::damaged(format!("the video track has no {what}"));
        let codec_id = codec_id.ok_or_else(|| missing_error("codec"))?;
        let (codec, has_record) = parse_codec_id(codec_id)?;
        let (width, height, color) = parse_video(video.ok_or_else(|| missing_error("size"))?)?;
        let mut record = Vec::new();
        if has_record {
            reserve(&mut record, codec_private.len())?;
            record.extend_from_slice(codec_private);
        }
        let number = number.ok_or_else(|| missing_error("number"))?;
        Ok(VideoTrack { number, config: CodecConfig { codec, width, height, record, color } })
    }
}

fn unsupported(what: &str) -> Error {
    Error::unsupported(format!("{what}: rewrite the file, for example with `ffmpeg -i in.mkv -c copy out.mp4`"))
}

/// Returns the codec, and whether the track contains the same configuration record as an MP4 file.
fn parse_codec_id(codec_id: &[u8]) -> Result<(Codec, bool)> {
    // Zeros may follow a name.
    let end = codec_id.iter().position(|&byte| byte == 0).unwrap_or(codec_id.len());
    Ok(match &codec_id[..end] {
        b"V_AV1" => (Codec::Av1, true),
        b"V_MPEG4/ISO/AVC" => (Codec::H264, true),
        b"V_MPEGH/ISO/HEVC" => (Codec::Hevc, true),
        b"V_VP8" => (Codec::Vp8, false),
        b"V_VP9" => (Codec::Vp9, false),
        other => {
            return Err(Error::unsupported(format!(
                "the video is encoded with \"{}\", which is not supported: re-encode it, for example with `ffmpeg -i \
                 in.mkv -c:v libsvtav1 -g 2 -crf 30 out.mp4`",
                other[..other.len().min(64)].escape_ascii()
            )));
        }
    })
}

type Color = (u16, u16, u16, bool);

fn parse_video(video: &[u8]) -> Result<(u32, u32, Option<Color>)> {
    let (mut size, mut color) = ([0; 2], None);
    for element in Elements(video) {
        let (id, content) = element?;
        match id {
            WIDTH | HEIGHT => {
                let pixels = parse_unsigned(id, content)?;
                size[usize::from(id == HEIGHT)] = u32::try_from(pixels)
                    .map_err(|_| Error::damaged(format!("the video claims to be {pixels} pixels wide or high")))?;
            }
            COLOR => color = Some(parse_color(content)?),
            PROJECTION => {
                for element in Elements(content) {
                    let (id, content) = element?;
                    if POSES.contains(&id) && parse_float(id, content)? != 0.0 {
                        return Err(unsupported("the video is rotated"));
                    }
                }
            }
            _ if CROPS.contains(&id) && parse_unsigned(id, content)? != 0 => {
                return Err(unsupported("the container crops the video"));
            }
            _ => {}
        }
    }
    Ok((size[0], size[1], color))
}

/// Returns the primaries, the transfer function, the matrix and whether values use the full range.
/// 2 means that a property is unspecified.
fn parse_color(color: &[u8]) -> Result<Color> {
    let (mut colors, mut is_full_range) = ([2_u16; 3], false);
    for element in Elements(color) {
        let (id, content) = element?;
        let index = match id {
            PRIMARIES => 0,
            TRANSFER => 1,
            MATRIX => 2,
            RANGE => {
                is_full_range = parse_unsigned(id, content)? == 2;
                continue;
            }
            _ => continue,
        };
        colors[index] = u16::try_from(parse_unsigned(id, content)?).unwrap_or(2);
    }
    Ok((colors[0], colors[1], colors[2], is_full_range))
}
