//! Tests that Matroska and WebM files have the packets of the MP4 files that they were made from.
//! Truncated files must be rejected, unless their size is unknown. Damage must not cause a panic or
//! large allocations.

use crate::record::record;
use crate::support::{Random, bytes};
use warpfeed_video::record::Record;
use warpfeed_video::{Codec, ErrorKind, Input, Track, open};

/// The files, and the MP4 files with the same packets. In `live.webm`, the size of the segment is
/// unknown.
const FILES: [(&str, &str); 9] = [
    ("g2.mkv", "g2"),
    ("long.mkv", "long"),
    ("vfr.mkv", "vfr"),
    ("ten.mkv", "ten"),
    ("bt709.mkv", "bt709"),
    ("h264.mkv", "h264"),
    ("hevc.mkv", "hevc"),
    ("vp9.webm", "vp9"),
    ("live.webm", "g2"),
];

fn expected_packets(name: &str) -> Vec<(i64, u32, bool)> {
    let text = String::from_utf8(bytes(&format!("{name}.packets"))).unwrap();
    let parse = |line: &str| {
        let parts: Vec<&str> = line.split(',').collect();
        let [time, size, _, flags] = parts[..4] else { panic!("{line}") };
        (time.parse().unwrap(), size.parse().unwrap(), flags.starts_with('K'))
    };
    text.lines().map(parse).collect()
}

fn packets<'a>(file: &'a [u8], track: &Track) -> Vec<&'a [u8]> {
    let packets = track.packets().iter();
    packets.map(|packet| &file[packet.offset as usize..][..packet.size as usize]).collect()
}

#[test]
fn packets_are_those_of_ffprobe_and_of_the_mp4_file() {
    for (name, mp4_name) in FILES {
        let (file, mp4) = (bytes(name), bytes(&format!("{mp4_name}.mp4")));
        let (track, expected) = (open(&file).unwrap_or_else(|e| panic!("{name}: {e}")), open(&mp4).unwrap());
        let found = track.packets().iter().map(|packet| (packet.pts, packet.size, packet.is_key));
        assert_eq!(found.collect::<Vec<_>>(), expected_packets(name), "{name}");
        assert!(packets(&file, &track) == packets(&mp4, &expected), "{name}");
        assert_eq!((track.len(), track.ticks_per_second()), (expected.len(), 1000), "{name}");
        let (config, other) = (track.config(), expected.config());
        assert_eq!((config.codec, config.width, config.height), (other.codec, other.width, other.height), "{name}");
        if config.codec != Codec::Vp9 {
            assert_eq!(config.record, other.record, "{name}");
        }
        for frame in 0..track.len() {
            assert!((track.time(frame).seconds() - expected.time(frame).seconds()).abs() < 6e-4, "{name} {frame}");
            assert_eq!(track.start_packet(frame), expected.start_packet(frame), "{name} {frame}");
            assert_eq!(track.packet_index(frame), expected.packet_index(frame), "{name} {frame}");
        }
    }
    assert_eq!(open(&bytes("bt709.mkv")).unwrap().config().color, Some((1, 1, 1, false)));
}

#[cfg(feature = "av1")]
#[test]
fn frames_are_those_of_the_mp4_file_bit_for_bit() {
    use warpfeed_video::av1::Decoder;
    let mut decoder = Decoder::new(1 << 20).unwrap();
    let mut compared = 0;
    for (name, mp4_name) in FILES {
        let mut crcs = |file: &[u8], track: &Track| {
            let crc = |frame: usize| {
                decoder.flush();
                let mut last = None;
                for packet in track.packets_for(frame) {
                    let packet = &file[packet.offset as usize..][..packet.size as usize];
                    decoder.decode(packet, |picture| last = Some(picture)).unwrap();
                }
                crate::support::crc(&last.unwrap().planes().unwrap())
            };
            (0..track.len()).map(crc).collect::<Vec<_>>()
        };
        let (file, mp4) = (bytes(name), bytes(&format!("{mp4_name}.mp4")));
        let (track, expected) = (open(&file).unwrap(), open(&mp4).unwrap());
        if track.config().codec != Codec::Av1 {
            continue;
        }
        assert_eq!(crcs(&file, &track), crcs(&mp4, &expected), "{name}");
        compared += track.len();
    }
    assert!(compared > 50, "{compared}");
}

fn element(id: u32, content: &[u8]) -> Vec<u8> {
    let size = (1 << 56) | content.len() as u64;
    [id_bytes(id), size.to_be_bytes().to_vec(), content.to_vec()].concat()
}

fn element_of_unknown_size(id: u32, content: &[u8]) -> Vec<u8> {
    [id_bytes(id), vec![0xff], content.to_vec()].concat()
}

fn id_bytes(id: u32) -> Vec<u8> {
    let bytes = id.to_be_bytes();
    bytes[id.leading_zeros() as usize / 8..].to_vec()
}

fn integer(id: u32, value: u64) -> Vec<u8> {
    element(id, &value.to_be_bytes())
}

/// Returns a block element of type `id`. The tuple contains the track number, the time relative to
/// the cluster, and the flags.
fn block(id: u32, (track, time, flags): (u8, i16, u8), packet: &[u8]) -> Vec<u8> {
    let [high, low] = time.to_be_bytes();
    element(id, &[&[0x80 | track, high, low, flags], packet].concat())
}

/// The parts of a file with an audio track, and a video track with number 2.
struct FileParts {
    info: Vec<u8>,
    entry: Vec<u8>,
    video: Vec<u8>,
    clusters: Vec<u8>,
}

impl FileParts {
    fn new() -> Self {
        let video = [integer(0xb0, 96), integer(0xba, 64)].concat();
        let entry = [integer(0xd7, 2), integer(0x83, 1), element(0x86, b"V_VP9\0")].concat();
        FileParts { info: Vec::new(), entry, video, clusters: Vec::new() }
    }

    fn cluster(mut self, time: u64, blocks: &[Vec<u8>]) -> Self {
        self.clusters.extend(element(0x1f43_b675, &[integer(0xe7, time), blocks.concat()].concat()));
        self
    }

    fn tracks(&self) -> Vec<u8> {
        let audio = element(0xae, &[integer(0xd7, 1), integer(0x83, 2)].concat());
        let entry = element(0xae, &[&self.entry[..], &element(0xe0, &self.video)].concat());
        element(0x1654_ae6b, &[audio, entry].concat())
    }

    fn file(&self) -> Vec<u8> {
        let segment = [element(0x1549_a966, &self.info), self.tracks(), self.clusters.clone()].concat();
        [element(0x1a45_dfa3, b""), element(0xec, b"void"), element(0x1853_8067, &segment)].concat()
    }
}

const SIMPLE: u32 = 0xa3;
const GROUP: u32 = 0xa0;
const BLOCK: u32 = 0xa1;

pub(crate) fn remux(mp4: &[u8]) -> Vec<u8> {
    let track = open(&mp4.to_vec()).unwrap();
    let config = track.config();
    let codec: &[u8] = match config.codec {
        Codec::H264 => b"V_MPEG4/ISO/AVC",
        Codec::Hevc => b"V_MPEGH/ISO/HEVC",
        _ => b"V_VP9",
    };
    let private = element(0x63a2, if config.codec == Codec::Vp9 { b"" } else { &config.record });
    let mut parts = FileParts {
        entry: [integer(0xd7, 2), integer(0x83, 1), element(0x86, codec), private].concat(),
        video: [integer(0xb0, config.width.into()), integer(0xba, config.height.into())].concat(),
        ..FileParts::new()
    };
    for (packet, bytes) in track.packets().iter().zip(packets(mp4, &track)) {
        let milliseconds = packet.pts as f64 * 1000.0 / track.ticks_per_second() as f64;
        let flags = if packet.is_key { 0x80 } else { 0 };
        parts = parts.cluster(milliseconds.round() as u64, &[block(SIMPLE, (2, 0, flags), bytes)]);
    }
    parts.file()
}

#[test]
fn records_of_videos_for_gpus_are_those_of_the_mp4_file() {
    for name in ["gpu-h264", "gpu-hevc", "gpu-vp9"] {
        let mp4 = bytes(&format!("{name}.mp4"));
        let file = remux(&mp4);
        let (track, expected) = (open(&file).unwrap(), open(&mp4).unwrap());
        assert_eq!((track.len(), track.config().codec), (expected.len(), expected.config().codec), "{name}");
        for frame in 0..track.len() {
            let [actual, reference] =
                [(&file, &track), (&mp4, &expected)].map(|(file, track)| record(file, track, frame));
            let [actual, reference] = [&actual, &reference].map(|bytes| Record::parse(bytes).unwrap());
            assert_eq!(
                (actual.codec, actual.width, actual.height),
                (reference.codec, reference.width, reference.height)
            );
            assert!(actual.config == reference.config || actual.codec == Codec::Vp9, "{name}");
            assert!(actual.packets().eq(reference.packets()), "{name}: frame {frame}");
        }
    }
}

/// The content of a packet, its time, whether it is a key frame, and whether it is shown.
type PacketFields = (Vec<u8>, i64, bool, bool);

fn actual_packets(file: &[u8]) -> (u64, Vec<PacketFields>) {
    let track = open(&file.to_vec()).unwrap();
    let bytes = packets(file, &track).into_iter().map(<[u8]>::to_vec);
    let found = bytes.zip(track.packets());
    let found = found.map(|(bytes, packet)| (bytes, packet.pts, packet.is_key, packet.is_shown)).collect();
    (track.ticks_per_second(), found)
}

#[test]
fn blocks_of_all_kinds_are_found() {
    let group = |flags, packet: &[u8], more: &[u8]| {
        element(GROUP, &[&block(BLOCK, (2, 3, flags), packet)[..], &integer(0x9b, 40), more].concat())
    };
    let parts = FileParts::new()
        .cluster(
            100,
            &[
                block(SIMPLE, (2, -7, 0x80), b"key"),
                block(SIMPLE, (1, 0, 0x86), b"laced audio"),
                block(SIMPLE, (2, 2, 0), b"inner"),
                group(0, b"group key", b""),
            ],
        )
        .cluster(
            200,
            &[
                element(0xab, b"previous size"),
                group(0, b"group inner", &integer(0xfb, 1)),
                block(SIMPLE, (2, 9, 0x88), b"hidden"),
                block(SIMPLE, (2, 10, 0), b""),
            ],
        );
    let expected: Vec<PacketFields> = vec![
        (b"key".to_vec(), 93, true, true),
        (b"inner".to_vec(), 102, false, true),
        (b"group key".to_vec(), 103, true, true),
        (b"group inner".to_vec(), 203, false, true),
        (b"hidden".to_vec(), 209, true, false),
        (b"".to_vec(), 210, false, true),
    ];
    assert_eq!(actual_packets(&parts.file()), (1000, expected.clone()));
    // Units that do not divide a second are converted to nanoseconds.
    for (scale, per_second, factor) in [(100_000, 10_000, 1), (1, 1_000_000_000, 1), (333_333, 1_000_000_000, 333_333)]
    {
        let info = integer(0x2a_d7b1, scale);
        let scaled: Vec<PacketFields> =
            expected.iter().map(|(bytes, time, key, shown)| (bytes.clone(), time * factor, *key, *shown)).collect();
        assert_eq!(
            actual_packets(&FileParts { info, clusters: parts.clusters.clone(), ..FileParts::new() }.file()),
            (per_second, scaled)
        );
    }
    let open_cluster = |time, packet: &[u8]| {
        element_of_unknown_size(0x1f43_b675, &[integer(0xe7, time), block(SIMPLE, (2, 0, 0x80), packet)].concat())
    };
    let tags = element(0x1254_c367, b"");
    let segment = [parts.tracks(), open_cluster(5, b"a"), open_cluster(6, b"b"), tags, open_cluster(7, b"c")].concat();
    let file = [element(0x1a45_dfa3, b""), element_of_unknown_size(0x1853_8067, &segment)].concat();
    let times: Vec<_> = actual_packets(&file).1.into_iter().map(|(bytes, time, ..)| (bytes, time)).collect();
    assert_eq!(times, [(b"a".to_vec(), 5), (b"b".to_vec(), 6), (b"c".to_vec(), 7)]);
    assert_eq!(actual_packets(&[file.clone(), file].concat()).1.len(), 3);
}

#[test]
fn unsupported_and_damaged_files_fail_with_the_reason() {
    let good = || FileParts::new().cluster(0, &[block(SIMPLE, (2, 0, 0x80), b"x")]);
    assert_eq!(actual_packets(&good().file()).1.len(), 1);
    let entry = |more: Vec<u8>| FileParts { entry: [FileParts::new().entry, more].concat(), ..good() };
    let video = |more: Vec<u8>| FileParts { video: [FileParts::new().video, more].concat(), ..good() };
    let blocks = |blocks: &[Vec<u8>]| FileParts::new().cluster(0, blocks);
    let without_time = element(0x1f43_b675, &block(SIMPLE, (2, 0, 0x80), b"x"));
    let roll = element(0x7675, &90_f32.to_be_bytes());
    for (parts, expected_text) in [
        (entry(element(0x6d80, b"")), "compressed or encrypted"),
        (entry(integer(0x56aa, 5)), "codec delay"),
        (entry(element(0x23_314f, &2_f64.to_be_bytes())), "its own time scale"),
        (video(integer(0x54cc, 4)), "crops the video"),
        (video(element(0x7670, &roll)), "rotated"),
        (blocks(&[block(SIMPLE, (2, 0, 0x82), b"xx")]), "lacing"),
        (blocks(&[element(0xaf, b"x")]), "encrypted"),
        (blocks(&[element(SIMPLE, b"\x82\0")]), "ends before its header"),
        (blocks(&[element_of_unknown_size(GROUP, b"")]), "an unknown size"),
        (blocks(&[block(SIMPLE, (2, 1, 0x80), b"x"), block(SIMPLE, (2, 1, 0), b"y")]), "the same presentation time"),
        (FileParts { clusters: without_time, ..good() }, "has no time"),
        (FileParts { info: integer(0x2a_d7b1, 0), ..good() }, "0 nanoseconds"),
        (
            FileParts { entry: [integer(0xd7, 2), integer(0x83, 1), element(0x86, b"V_THEORA")].concat(), ..good() },
            "V_THEORA",
        ),
        (FileParts { entry: [integer(0xd7, 2), integer(0x83, 2)].concat(), ..good() }, "none of the 2 tracks"),
        (FileParts { entry: [integer(0x83, 1), element(0x86, b"V_AV1")].concat(), ..good() }, "has no number"),
    ] {
        let e = open(&parts.file()).unwrap_err();
        assert!(e.to_string().contains(expected_text), "{expected_text:?}: {e}");
    }
    let parts = good();
    let backward = [parts.clusters.clone(), parts.tracks()].concat();
    let file = [element(0x1a45_dfa3, b""), element(0x1853_8067, &backward)].concat();
    assert!(open(&file).unwrap_err().to_string().contains("tracks after its packets"));
    let no_tracks = [element(0x1a45_dfa3, b""), element(0x1853_8067, b"")].concat();
    assert!(open(&no_tracks).unwrap_err().to_string().contains("does not describe its tracks"));
    assert!(open(&element(0x1a45_dfa3, b"")).unwrap_err().to_string().contains("no segment"));
}

#[test]
fn videos_without_pixels_are_rejected() {
    let sized = |video: &[Vec<u8>]| {
        FileParts { video: video.concat(), ..FileParts::new() }.cluster(0, &[block(SIMPLE, (2, 0, 0x80), b"x")]).file()
    };
    assert_eq!(open(&sized(&[integer(0xb0, 1), integer(0xba, 1)])).unwrap().len(), 1);
    let mp4 = |[width, height]: [u8; 2]| {
        let mut file = bytes("g2.mp4");
        let stsd = file.windows(4).position(|name| name == b"stsd").unwrap();
        file[stsd + 44..][..4].copy_from_slice(&[0, width, 0, height]);
        file
    };
    assert!(open(&mp4([96, 64])).is_ok());
    for (file, size) in [
        (sized(&[integer(0xb0, 0), integer(0xba, 64)]), "0x64"),
        (sized(&[integer(0xb0, 96), integer(0xba, 0)]), "96x0"),
        (sized(&[integer(0xb0, 96)]), "96x0"),
        (sized(&[]), "0x0"),
        (mp4([0, 64]), "0x64"),
        (mp4([96, 0]), "96x0"),
    ] {
        let e = open(&file).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Damaged);
        assert!(e.to_string().contains(&format!("the size of the video is {size}: expected")), "{size}: {e}");
    }
}

struct CountingInput<'a>(&'a [u8], std::cell::Cell<usize>);

impl Input for CountingInput<'_> {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> std::io::Result<()> {
        self.1.set(self.1.get() + to.len());
        self.0.read_at(offset, to)
    }
}

#[test]
fn large_packets_are_not_read() {
    let packet = vec![7; 1 << 20];
    let blocks: Vec<_> = (0..8).map(|time| block(SIMPLE, (2, time, 0x80), &packet)).collect();
    let file = FileParts::new().cluster(0, &blocks).file();
    let input = CountingInput(&file, 0.into());
    assert_eq!(open(&input).unwrap().len(), 8);
    assert!(input.1.get() < 10 * (16 << 10), "{}", input.1.get());
}

#[test]
fn truncated_files_fail_unless_their_size_is_unknown() {
    for (name, _) in FILES {
        let file = bytes(name);
        let complete = open(&file).unwrap();
        for end in (0..file.len()).step_by(7) {
            match open(&file[..end].to_vec()) {
                // Only a file of unknown size may end after any packet.
                Ok(track) => {
                    assert!(name == "live.webm" && complete.packets().starts_with(track.packets()), "{name} {end}")
                }
                Err(e) => assert!(!e.to_string().is_empty() && e.kind() != ErrorKind::Memory, "{name} {end}: {e}"),
            }
        }
    }
}

#[test]
fn ten_thousand_mutations_neither_panic_nor_allocate_much() {
    let files: Vec<Vec<u8>> = FILES.iter().map(|(name, _)| bytes(name)).collect();
    let blocks_of =
        |file: &Vec<u8>| open(file).unwrap().packets().iter().map(|packet| packet.offset as usize).collect();
    let blocks: Vec<Vec<usize>> = files.iter().map(blocks_of).collect();
    let mut random = Random(0x1357_9bdf_0246_8ace);
    let (mut opened, mut failed) = (0, 0);
    for round in 0..10_000 {
        let mut file = files[round % files.len()].clone();
        for _ in 0..=random.below(4) {
            // The descriptions are at the start of the file. The headers of blocks are before the
            // packets.
            let blocks = &blocks[round % files.len()];
            let offset = match random.below(3) {
                0 => random.below(file.len()),
                1 => random.below(700.min(file.len())),
                _ => blocks[random.below(blocks.len())].saturating_sub(1 + random.below(12)).min(file.len() - 1),
            };
            random.mutate(&mut file, offset);
        }
        match open(&file) {
            Ok(track) => {
                opened += 1;
                assert!(track.packets().len() <= file.len() / 6);
                for packet in track.packets() {
                    assert!(packet.offset + u64::from(packet.size) <= file.len() as u64);
                }
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
