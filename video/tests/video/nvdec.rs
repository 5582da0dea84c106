//! Frames that a GPU decodes are equal to FFmpeg's. Without a GPU, the tests are skipped.

use warpfeed_video::nvdec::Device;
use warpfeed_video::record::Record;
use warpfeed_video::{Codec, FrameDecoder, check, open};

use crate::record::record;
use crate::require::missing;
use crate::support::{bytes, crc, fixture};

/// The videos, and the number of frames of each.
const VIDEOS: [(&str, usize); 3] = [("gpu-h264", 24), ("gpu-hevc", 24), ("gpu-vp9", 24)];

/// Returns whether there is a GPU. Otherwise says why the test is skipped.
fn has_gpu() -> bool {
    match Device::shared() {
        Ok(_) => true,
        Err(e) => {
            missing("cuda", e);
            false
        }
    }
}

/// Returns the CRC-32 of each frame that FFmpeg shows.
fn expected(name: &str) -> Vec<u32> {
    let text = std::fs::read_to_string(fixture(&format!("{name}.crc"))).unwrap();
    text.lines().map(|line| u32::from_str_radix(line.split_once(' ').unwrap().1, 16).unwrap()).collect()
}

/// Decodes frames of a video in some order, and returns their CRC-32.
fn decoded(decoder: &mut FrameDecoder, name: &str, frames: impl Iterator<Item = usize>) -> Vec<u32> {
    let file = bytes(&format!("{name}.mp4"));
    let track = open(&file).unwrap();
    let crc_of = |frame| {
        let bytes = record(&file, &track, frame);
        decoder.decode(&Record::parse(&bytes).unwrap(), |planes| Ok(crc(planes))).unwrap()
    };
    frames.map(crc_of).collect()
}

#[test]
fn frames_are_equal_to_ffmpeg_bit_for_bit() {
    if !has_gpu() {
        return;
    }
    for (name, count) in VIDEOS {
        let expected = expected(name);
        assert_eq!(expected.len(), count);
        assert_eq!(decoded(&mut FrameDecoder::new(1 << 20), name, 0..count), expected, "{name}");
        let reversed: Vec<u32> = expected.iter().rev().copied().collect();
        assert_eq!(decoded(&mut FrameDecoder::new(1 << 20), name, (0..count).rev()), reversed, "{name}, reversed");
    }
}

#[test]
fn a_decoder_changes_between_videos() {
    if !has_gpu() {
        return;
    }
    let mut decoder = FrameDecoder::new(1 << 20);
    for frame in 0..24 {
        for (name, _) in VIDEOS {
            let found = decoded(&mut decoder, name, std::iter::once(frame));
            assert_eq!(found, [expected(name)[frame]], "{name}: frame {frame}");
        }
    }
}

#[test]
fn threads_decode_at_the_same_time() {
    if !has_gpu() {
        return;
    }
    std::thread::scope(|scope| {
        for thread in 0..6 {
            scope.spawn(move || {
                let (name, count) = VIDEOS[thread % 3];
                let order = (0..count).map(|at| (at * 7 + thread) % count);
                let wanted: Vec<u32> = order.clone().map(|frame| expected(name)[frame]).collect();
                assert_eq!(decoded(&mut FrameDecoder::new(1 << 20), name, order), wanted, "{name}");
            });
        }
    });
}

#[test]
fn without_a_driver_the_error_names_the_codec_and_what_to_do() {
    let Err(e) = check(Codec::Hevc) else {
        return missing("no-driver", "this machine has one");
    };
    let text = e.to_string();
    assert!(text.starts_with("the video is encoded with HEVC, and decoding this video needs"), "{text}");
    assert!(text.contains("ffmpeg -i in.mp4 -c:v libsvtav1") && text.contains("warpfeed pack --frames"), "{text}");
    check(Codec::Av1).unwrap();
    let text = check(Codec::Vp8).unwrap_err().to_string();
    assert!(text.contains("VP8, but only AV1, H.264, HEVC and VP9 are decoded"), "{text}");
}
