//! Fuzzes the readers of MP4 and of Matroska files. If a file is accepted, the times of its frames
//! must ascend, and reading each of the first 20 frames must either fail or return a record with
//! the packets of the file.

use std::path::Path;
use std::sync::Arc;

use warpfeed_video::record::Record;

use super::{MAX_GROUP_BYTES, VideoFile};
use crate::fuzz::{self, Random};
use crate::storage::OpenFile;

const MP4: [&str; 8] =
    ["g2.mp4", "long.mp4", "vfr.mp4", "cut.mp4", "delay.mp4", "frag.mp4", "frag-old.mp4", "h264-frag.mp4"];

const MP4_WORDS: [&[u8]; 18] = [
    b"moov",
    b"trak",
    b"stsd",
    b"stts",
    b"ctts",
    b"stsc",
    b"stsz",
    b"stco",
    b"co64",
    b"stss",
    b"elst",
    b"moof",
    b"traf",
    b"tfhd",
    b"trun",
    b"trex",
    b"\0\0\0\x01stco\xff\xff\xff\xff",
    b"\0\0\0\x08free",
];

const MATROSKA: [&str; 7] = ["g2.mkv", "long.mkv", "vfr.mkv", "ten.mkv", "live.webm", "h264.mkv", "vp9.webm"];

const MATROSKA_WORDS: [&[u8]; 16] = [
    b"\x1a\x45\xdf\xa3",
    b"\x18\x53\x80\x67\x01\xff\xff\xff\xff\xff\xff\xff",
    b"\x15\x49\xa9\x66",
    b"\x2a\xd7\xb1\x84\0\0\0\0",
    b"\x16\x54\xae\x6b",
    b"\xae\x80",
    b"\x83\x81\x01",
    b"\x86\x85V_AV1",
    b"\x63\xa2\x80",
    b"\xe0\xff",
    b"\x1f\x43\xb6\x75\x01\xff\xff\xff\xff\xff\xff\xff",
    b"\xe7\x81\0",
    b"\xa3\x84\x81\0\0\x80",
    b"\xa0\x86\xa1\x84\x81\0\0\0",
    b"\xec\x40\x10",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
];

fn seeds(names: &[&str]) -> Vec<Vec<u8>> {
    let folder = fuzz::fixtures().join("video");
    let read = |name: &&str| std::fs::read(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    names.iter().map(read).collect()
}

fn open(file: &[u8]) -> Option<Arc<VideoFile>> {
    let file = OpenFile::in_memory(Path::new("a video").to_owned(), file.to_vec());
    VideoFile::new(file, "a video".to_owned()).ok().map(Arc::new)
}

fn case(files: &[Vec<u8>], words: &[&[u8]], seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let file = random.mutated(files, words);
    let Some(video) = open(&file) else { return false };
    let track = video.track();
    assert_eq!(Some(track), open(&file).as_ref().map(|again| again.track()));
    let times: Vec<i64> = (0..track.len()).map(|frame| track.time(frame).ticks).collect();
    assert!(times.is_sorted_by(|a, b| a < b));
    let (mut packets, mut record) = (video.packet_reader(), Vec::new());
    let mut is_read = false;
    for frame in (0..track.len()).take(20) {
        record.clear();
        let needed = track.packets_for(frame);
        if packets.append_record(frame, &mut record).is_err() {
            continue;
        }
        is_read = true;
        let parsed = Record::parse(&record).expect("a record that was just written");
        assert_eq!(parsed.packet_count(), needed.len());
        for (packet, bytes) in needed.iter().zip(parsed.packets()) {
            assert!(&file[packet.offset as usize..][..packet.size as usize] == bytes);
        }
        for (first, range) in video.groups(&[frame]) {
            assert!(range.end <= file.len() as u64 && range.end - range.start <= MAX_GROUP_BYTES);
            assert!(range.contains(&track.packets()[first].offset) || track.packets()[first].size == 0);
        }
    }
    is_read
}

#[test]
fn mp4_files() {
    let seeds = seeds(&MP4);
    fuzz::run("mp4", |seed| case(&seeds, &MP4_WORDS, seed));
}

#[test]
fn matroska_files() {
    let seeds = seeds(&MATROSKA);
    fuzz::run("matroska", |seed| case(&seeds, &MATROSKA_WORDS, seed));
}
