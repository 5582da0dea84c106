//! Tests that frames decoded on a GPU equal FFmpeg's. Without NVIDIA's driver, these tests are
//! skipped, and the error is tested instead.

use warpfeed_video::record::Record;
use warpfeed_video::{Codec, Coding, FrameDecoder, check, open};

use crate::mkv::remux;
use crate::record::record;
use crate::require::missing;
use crate::support::{Random, bytes, crc, fixture};

const FRAMES: usize = 24;

/// The videos, and how their samples encode color.
const VIDEOS: [(&str, Coding); 3] = [
    ("gpu-h264", Coding { matrix: 1, is_full_range: true, bits: 8 }),
    ("gpu-hevc", Coding { matrix: 2, is_full_range: false, bits: 10 }),
    ("gpu-vp9", Coding { matrix: 1, is_full_range: false, bits: 8 }),
];

fn decoder() -> Option<FrameDecoder> {
    match check(Codec::H264) {
        Ok(()) => Some(FrameDecoder::new(1 << 20, 0)),
        Err(e) => {
            missing("cuda", e);
            None
        }
    }
}

fn expected(name: &str) -> Vec<u32> {
    let text = std::fs::read_to_string(fixture(&format!("{name}.crc"))).unwrap();
    text.lines().map(|line| u32::from_str_radix(line.split_once(' ').unwrap().1, 16).unwrap()).collect()
}

/// Decodes frames in the given order, and compares their CRC-32.
fn compare(decoder: &mut FrameDecoder, video: (&str, Coding), frames: impl Iterator<Item = usize>) {
    compare_file(decoder, video, &bytes(&format!("{}.mp4", video.0)), frames);
}

fn compare_file(
    decoder: &mut FrameDecoder,
    (name, coding): (&str, Coding),
    file: &[u8],
    frames: impl Iterator<Item = usize>,
) {
    let expected = expected(name);
    assert_eq!(expected.len(), FRAMES);
    let track = open(&file.to_vec()).unwrap();
    for frame in frames {
        let bytes = record(file, &track, frame);
        let found = decoder.decode(&Record::parse(&bytes).unwrap(), &[], |planes| Ok((crc(planes), planes.coding)));
        assert_eq!(found.unwrap(), (expected[frame], coding), "{name}: frame {frame}");
    }
}

#[test]
fn frames_are_equal_to_ffmpeg_bit_for_bit() {
    for video in VIDEOS {
        let Some(mut decoder) = decoder() else { return };
        compare(&mut decoder, video, 0..FRAMES);
        compare(&mut decoder, video, (0..FRAMES).rev());
    }
}

#[test]
fn frames_of_matroska_files_are_those_of_the_mp4_files() {
    for video in VIDEOS {
        let Some(mut decoder) = decoder() else { return };
        let file = remux(&bytes(&format!("{}.mp4", video.0)));
        compare_file(&mut decoder, video, &file, 0..FRAMES);
        compare_file(&mut decoder, video, &file, (0..FRAMES).rev());
    }
}

#[test]
fn a_decoder_changes_between_videos() {
    let Some(mut decoder) = decoder() else { return };
    for frame in 0..FRAMES {
        for video in VIDEOS {
            compare(&mut decoder, video, std::iter::once(frame));
        }
    }
}

#[test]
fn many_threads_decode_the_frames_of_ffmpeg() {
    std::thread::scope(|scope| {
        for thread in 0..20 {
            scope.spawn(move || {
                let Some(mut decoder) = decoder() else { return };
                for frame in (0..FRAMES).map(|offset| (offset * 7 + thread) % FRAMES) {
                    compare(&mut decoder, VIDEOS[thread % 3], std::iter::once(frame));
                    decoder.release_gpu_decoder();
                }
            });
        }
    });
}

#[test]
fn damaged_packets_fail_or_give_frames_of_the_same_size() {
    let Some(mut decoder) = decoder() else { return };
    let mut random = Random(0x0dd_ba11);
    for video in VIDEOS {
        let file = bytes(&format!("{}.mp4", video.0));
        let track = open(&file).unwrap();
        let mut errors = 0;
        for _ in 0..60 {
            let mut bytes = record(&file, &track, random.below(FRAMES));
            let start = bytes.len() - Record::parse(&bytes).unwrap().body().len() + track.config().record.len();
            for _ in 0..=random.below(4) {
                let offset = start + random.below(bytes.len() - start);
                bytes[offset] = random.next() as u8;
            }
            let Ok(record) = Record::parse(&bytes) else { continue };
            let shown = decoder.decode(&record, &[], |planes| {
                assert_eq!((planes.width, planes.height), (178, 146));
                Ok(())
            });
            if let Err(e) = shown {
                let text = e.to_string();
                assert!(text.starts_with("clip.mp4: frame "), "{text}");
                errors += 1;
            }
        }
        assert!(video.0 == "gpu-vp9" || errors > 10, "{}: {errors}", video.0);
        compare(&mut decoder, video, 0..FRAMES);
    }
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
