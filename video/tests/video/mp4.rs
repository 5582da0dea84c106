//! Tests that MP4 sample tables equal ffprobe's. A truncated file must be rejected, or
//! have only packets of the complete file. Damage must not cause a panic or large allocations.

use crate::support::{Random, bytes, videos};
use warpfeed_video::{Codec, ErrorKind, Input, Track, open};

/// The offset, the size and the presentation time of a packet, whether it is a key frame, and
/// whether it is shown.
type PacketFields = (u64, u32, i64, bool, bool);

fn expected_packets(name: &str) -> Vec<PacketFields> {
    let text = String::from_utf8(bytes(&format!("{name}.packets"))).unwrap();
    let parse = |line: &str| {
        let parts: Vec<&str> = line.split(',').collect();
        let [time, size, offset, flags] = parts[..4] else { panic!("{line}") };
        let (is_key, is_shown) = (flags.starts_with('K'), !flags.contains('D'));
        (offset.parse().unwrap(), size.parse().unwrap(), time.parse().unwrap(), is_key, is_shown)
    };
    text.lines().map(parse).collect()
}

fn actual_packets(track: &Track) -> Vec<PacketFields> {
    let packets = track.packets().iter();
    packets.map(|packet| (packet.offset, packet.size, packet.pts, packet.is_key, packet.is_shown)).collect()
}

#[test]
fn tables_equal_those_of_ffprobe() {
    for name in videos() {
        let track = open(&bytes(&format!("{name}.mp4"))).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(actual_packets(&track), expected_packets(&name), "{name}");
        let shown = track.packets().iter().filter(|packet| packet.is_shown).count();
        assert_eq!(track.len(), shown, "{name}");
    }
}

#[test]
fn frames_are_found_by_their_exact_time() {
    for name in videos() {
        let track = open(&bytes(&format!("{name}.mp4"))).unwrap();
        for frame in 0..track.len() {
            let time = track.time(frame);
            assert_eq!(track.frame_at(time.seconds(), 0.0), Some(frame), "{name} {frame}");
            assert_eq!(track.nearest(time.seconds() + 1e-4), Some(frame), "{name} {frame}");
            assert_eq!(track.frame_at(time.seconds() + 2e-4, 1e-4), None, "{name} {frame}");
            let needed = track.packets_for(frame);
            assert!(needed[0].is_key, "{name} {frame}");
            assert_eq!(needed.last().unwrap().pts, time.ticks);
            assert!(frame == 0 || track.time(frame - 1).ticks < time.ticks);
        }
        assert_eq!(track.frame_at(1e9, 1.0), None);
        assert_eq!(track.frame_at(f64::NAN, 1.0), None);
    }
}

#[test]
fn frames_need_at_most_two_packets_if_every_second_is_a_key_frame() {
    let track = open(&bytes("g2.mp4")).unwrap();
    let needed: Vec<usize> = (0..track.len()).map(|frame| track.packets_for(frame).len()).collect();
    assert_eq!(needed, [1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2]);
    assert_eq!(track.config().codec, Codec::Av1);
    assert_eq!((track.config().width, track.config().height), (96, 64));
    assert_eq!(track.config().record[0], 0x81, "a configuration record of AV1 starts with its version");
}

#[test]
fn codecs_are_named() {
    for (name, codec, first_byte) in [("h264", "H.264", 1), ("hevc", "HEVC", 1), ("vp9", "VP9", 1)] {
        let track = open(&bytes(&format!("{name}.mp4"))).unwrap();
        assert_eq!(track.config().codec.to_string(), codec);
        assert_eq!(track.config().record[0], first_byte, "{name}");
    }
    assert_eq!(Codec::Other(*b"ap\xffn").to_string(), r#""ap\\xffn""#);
}

#[test]
fn the_color_of_the_container_is_read() {
    let color = |name: &str| open(&bytes(name)).unwrap().config().color;
    assert_eq!(color("bt709.mp4"), Some((1, 1, 1, false)));
    assert_eq!(color("g2.mp4"), None);
}

struct CountingInput<'a>(&'a [u8], std::cell::Cell<u64>);

impl Input for CountingInput<'_> {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.1.set(self.1.get() + out.len() as u64);
        self.0.read_at(offset, out)
    }
}

#[test]
fn only_the_tables_are_read() {
    let file = bytes("g2.mp4");
    let input = CountingInput(&file, 0.into());
    open(&input).unwrap();
    let packets: u64 = expected_packets("g2").iter().map(|packet| u64::from(packet.1)).sum();
    assert!(input.1.get() < file.len() as u64 - packets + 100, "{} of {}", input.1.get(), file.len());
}

fn mp4_box(kind: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let data = parts.concat();
    [&(data.len() as u32 + 8).to_be_bytes()[..], kind, &data].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns a `moof` box with `runs` runs of `count` packets each. All packets have the default size
/// `size`. The data starts after the header of the next box.
fn fragment(track: u32, runs: usize, count: u32, size: u32) -> Vec<u8> {
    let header = mp4_box(b"tfhd", &[&words(&[0x02_0038, track, 512, size, 0])]);
    let moof = |offset| {
        let run = mp4_box(b"trun", &[&words(&[1, count, offset])]);
        mp4_box(b"moof", &[&mp4_box(b"traf", &[&header, &run.repeat(runs)])])
    };
    moof(moof(0).len() as u32 + 8)
}

fn fragmented_header() -> Vec<u8> {
    let mut file = bytes("frag.mp4");
    let end = file.windows(4).position(|kind| kind == b"moof").unwrap() - 4;
    file.truncate(end);
    file
}

#[test]
fn a_fragment_may_have_a_single_packet() {
    let source = bytes("frag.mp4");
    let track = open(&source).unwrap();
    let mut file = fragmented_header();
    for packet in track.packets() {
        file.extend(fragment(1, 1, 1, packet.size));
        file.extend(mp4_box(b"mdat", &[&source[packet.offset as usize..][..packet.size as usize]]));
    }
    let found = open(&file).unwrap();
    assert_eq!(found.packets().len(), track.packets().len());
    for (found, packet) in found.packets().iter().zip(track.packets()) {
        let data = |file: &[u8], offset: u64| file[offset as usize..][..packet.size as usize].to_vec();
        assert_eq!((found.size, found.pts), (packet.size, packet.pts));
        assert_eq!(data(&file, found.offset), data(&source, packet.offset));
    }
}

#[test]
fn a_run_may_be_empty() {
    let source = bytes("frag.mp4");
    for track in [1, 2] {
        let file = [source.clone(), fragment(track, 1, 0, 0)].concat();
        assert_eq!(open(&file).unwrap().packets(), open(&source).unwrap().packets(), "track {track}");
    }
}

#[test]
fn other_tracks_may_have_millions_of_packets() {
    // For example, each packet of uncompressed audio is one sample.
    let (source, audio) = (bytes("frag.mp4"), mp4_box(b"mdat", &[&[0; 2 << 20]]));
    let file = [source.clone(), fragment(2, 1, 2 << 20, 1), audio].concat();
    assert_eq!(open(&file).unwrap().packets(), open(&source).unwrap().packets());
}

#[test]
fn fragments_without_listed_sizes_claim_at_most_as_many_bytes_as_the_file_has() {
    let text = |runs, count, size| {
        let file = [fragmented_header(), fragment(1, runs, count, size)].concat();
        open(&file).unwrap_err().to_string()
    };
    for (runs, count, size) in [(1, u32::MAX, 0), (1, u32::MAX, 1), (1, 1000, 1000), (40, 1000, 1), (40, 1000, 0)] {
        let text = text(runs, count, size);
        assert!(text.contains("whose sizes it does not list"), "{runs} {count} {size}: {text}");
    }
}

#[test]
fn truncated_files_fail_or_have_all_packets() {
    for name in ["g2", "frag", "h264", "vfr"] {
        let file = bytes(&format!("{name}.mp4"));
        let complete = open(&file).unwrap();
        for end in 0..file.len() {
            match open(&file[..end].to_vec()) {
                Ok(track) => assert!(complete.packets().starts_with(track.packets()), "{name} {end}"),
                Err(e) => assert!(!e.to_string().is_empty() && e.kind() != ErrorKind::Memory, "{name} {end}: {e}"),
            }
        }
    }
}

#[test]
fn ten_thousand_mutations_neither_panic_nor_allocate_much() {
    let names = videos();
    let files: Vec<Vec<u8>> = names.iter().map(|name| bytes(&format!("{name}.mp4"))).collect();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut opened, mut failed) = (0, 0);
    for round in 0..10_000 {
        let mut file = files[round % files.len()].clone();
        // Most files have their tables at the end.
        let tables = file.windows(4).rposition(|four| four == b"moov" || four == b"moof").unwrap_or(0);
        for _ in 0..=random.below(4) {
            let offset = if random.below(4) == 0 {
                random.below(file.len())
            } else {
                tables + random.below(file.len() - tables)
            };
            random.mutate(&mut file, offset);
            if file.len() <= tables {
                break;
            }
        }
        match open(&file) {
            Ok(track) => {
                opened += 1;
                // A damaged table can claim at most 2^20 packets of a common size. Any other packet
                // takes at least four bits of a table.
                assert!(track.packets().len() <= 1 << 20, "{}", names[round % names.len()]);
                for frame in (0..track.len()).take(20) {
                    assert!(!track.packets_for(frame).is_empty());
                }
            }
            Err(e) => {
                failed += 1;
                assert_ne!(e.kind(), ErrorKind::Memory, "{e}");
                assert!(e.to_string().len() > 8, "{e}");
            }
        }
    }
    assert!(opened > 1000 && failed > 1000, "{opened} opened, {failed} failed");
}
