//! Tests that decoded AV1 frames equal dav1d's, even if the decoder has decoded other frames or
//! damaged packets before.

use warpfeed_video::av1::{Decoder, FrameDecoder};
use warpfeed_video::open;
use warpfeed_video::record::Record;

use crate::support::{Random, bytes, crc, videos};

fn expected(name: &str) -> Option<Vec<u32>> {
    let path = crate::support::fixture(&format!("{name}.frames"));
    let text = std::fs::read_to_string(path).ok()?;
    let line = |line: &str| {
        let (time, crc) = line.split_once(' ').unwrap();
        (!time.starts_with('-')).then(|| u32::from_str_radix(crc, 16).unwrap())
    };
    Some(text.lines().filter_map(line).collect())
}

#[test]
fn frames_are_equal_to_dav1d_bit_for_bit() {
    let mut compared = 0;
    let mut decoder = Decoder::new(1 << 20).unwrap();
    for name in videos() {
        let Some(expected) = expected(&name) else { continue };
        let file = bytes(&format!("{name}.mp4"));
        let track = open(&file).unwrap();
        assert_eq!(track.len(), expected.len(), "{name}");
        // Start with the last frame, to test that each frame can be decoded alone.
        for frame in (0..track.len()).rev() {
            decoder.flush();
            let mut last = None;
            for packet in track.packets_for(frame) {
                let start = packet.offset as usize;
                decoder.decode(&file[start..start + packet.size as usize], |picture| last = Some(picture)).unwrap();
            }
            let picture = last.unwrap();
            assert_eq!(crc(&picture.planes().unwrap()), expected[frame], "{name}: frame {frame}");
            compared += 1;
        }
    }
    assert!(compared > 90, "{compared}");
}

#[test]
fn damaged_packets_fail_or_give_frames() {
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut decoder = Decoder::new(1 << 16).unwrap();
    let names: Vec<String> = videos().into_iter().filter(|name| expected(name).is_some()).collect();
    let (mut errors, mut frames) = (0, 0);
    let rounds: usize = std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000);
    for round in 0..rounds {
        let file = bytes(&format!("{}.mp4", names[round % names.len()]));
        let track = open(&file).unwrap();
        decoder.flush();
        let needed = track.packets_for(track.len() - 1);
        let mutated = random.below(needed.len());
        for (index, packet) in needed.iter().enumerate() {
            let start = packet.offset as usize;
            let mut bytes = file[start..start + packet.size as usize].to_vec();
            if index == mutated {
                for _ in 0..=random.below(3) {
                    let first = if random.below(2) == 0 { bytes.len().min(40) } else { bytes.len() };
                    let byte = random.below(first);
                    match random.below(4) {
                        0 => bytes[byte] ^= 1 << random.below(8),
                        1 => bytes[byte] = random.next() as u8,
                        2 if bytes.len() > 1 => bytes.truncate(byte.max(1)),
                        _ => {
                            let end = bytes.len().min(byte + 8);
                            bytes[byte..end].fill(random.next() as u8);
                        }
                    }
                }
            }
            match decoder.decode(&bytes, |picture| frames += usize::from(picture.planes().is_ok())) {
                Ok(()) => {}
                Err(_) => errors += 1,
            }
        }
    }
    assert!(errors > rounds / 10 && frames > rounds / 10, "{errors} errors, {frames} frames");
}

#[test]
fn each_packet_of_a_clip_is_decoded_once() {
    let file = bytes("g2.mp4");
    let track = open(&file).unwrap();
    let expected = expected("g2").unwrap();
    let mut decoder = FrameDecoder::new(1 << 20);
    let mut show = |frame: usize| {
        let bytes = crate::record::record(&file, &track, frame);
        let crc = decoder.decode(&Record::parse(&bytes).unwrap(), |planes| Ok(crc(planes))).unwrap();
        assert_eq!(crc, expected[frame], "frame {frame}");
        decoder.decoded_packets()
    };
    // These are eight frames from four groups of pictures.
    assert_eq!((0..8).map(&mut show).last(), Some(8));
    // Frames are repeated, as at the end of an episode.
    assert_eq!([7, 7, 6, 7].map(&mut show), [8; 4]);
    assert_eq!([1, 0, 3].map(&mut show), [10, 10, 12]);
}

#[test]
fn a_decoder_shows_the_same_frames_in_any_order() {
    let mut random = Random(0x5eed_5eed_5eed);
    let mut decoder = FrameDecoder::new(1 << 20);
    let names: Vec<String> = videos().into_iter().filter(|name| expected(name).is_some()).collect();
    let files: Vec<_> = names.iter().map(|name| bytes(&format!("{name}.mp4"))).collect();
    let tracks: Vec<_> = files.iter().map(|file| open(file).unwrap()).collect();
    let expected: Vec<_> = names.iter().map(|name| expected(name).unwrap()).collect();
    for _ in 0..300 {
        let video = random.below(names.len());
        let frame = random.below(tracks[video].len());
        // Decode the next frames as well, because frames are often followed by their neighbors.
        for frame in frame..tracks[video].len().min(frame + 1 + random.below(3)) {
            let mut bytes = crate::record::record(&files[video], &tracks[video], frame);
            let actual = decoder.decode(&Record::parse(&bytes).unwrap(), |planes| Ok(crc(planes))).unwrap();
            assert_eq!(Some(&actual), expected[video].get(frame), "{} frame {frame}", names[video]);
            if random.below(8) == 0 {
                let offset = bytes.len() - 1 - random.below(bytes.len() / 2);
                bytes[offset] ^= 0x55;
                if let Ok(record) = Record::parse(&bytes) {
                    let _ = decoder.decode(&record, |planes| Ok(crc(planes)));
                }
            }
        }
    }
}

#[test]
fn errors_name_the_file_and_the_frame() {
    let file = bytes("g2.mp4");
    let mut bytes = crate::record::record(&file, &open(&file).unwrap(), 3);
    let len = bytes.len();
    bytes[len - 300..].fill(0xff);
    let mut decoder = FrameDecoder::new(1 << 20);
    let error = decoder.decode(&Record::parse(&bytes).unwrap(), |_| Ok(())).unwrap_err();
    assert!(error.to_string().starts_with("clip.mp4: frame 3: packet 2 of 2: AV1"), "{error}");

    let h264 = self::bytes("h264.mp4");
    let bytes = crate::record::record(&h264, &open(&h264).unwrap(), 0);
    let error = decoder.decode(&Record::parse(&bytes).unwrap(), |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("H.264, but only AV1 is decoded"), "{error}");
}

#[test]
fn frames_larger_than_the_file_claims_fail() {
    let file = bytes("g2.mp4");
    let mut bytes = crate::record::record(&file, &open(&file).unwrap(), 0);
    bytes[12] = 90;
    let error = FrameDecoder::new(1 << 20).decode(&Record::parse(&bytes).unwrap(), |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("up to 96x64 pixels, but the file claims 90x64"), "{error}");
}
