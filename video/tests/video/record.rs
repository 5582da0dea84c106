//! Tests records, which are self-contained encodings of one video frame.

use warpfeed_video::record::{Record, write_header};
use warpfeed_video::{Codec, Track, open};

use crate::support::{Random, bytes};

pub(crate) fn record(file: &[u8], track: &Track, frame: usize) -> Vec<u8> {
    let needed = track.packets_for(frame);
    let mut record = Vec::new();
    write_header(
        track.config(),
        track.orientation(),
        &format!("clip.mp4: frame {frame}"),
        needed.len() as u32,
        &mut record,
    )
    .unwrap();
    for packet in needed {
        record.extend(packet.size.to_le_bytes());
        let from = packet.offset as usize;
        record.extend(&file[from..from + packet.size as usize]);
    }
    record
}

#[test]
fn records_contain_the_packets() {
    for name in ["g2", "h264", "vfr"] {
        let file = bytes(&format!("{name}.mp4"));
        let track = open(&file).unwrap();
        for frame in 0..track.len() {
            let bytes = record(&file, &track, frame);
            let parsed = Record::parse(&bytes).unwrap();
            assert_eq!((parsed.width, parsed.height, parsed.orientation), (96, 64, 1));
            assert_eq!(parsed.config, track.config().record);
            assert_eq!(parsed.label, format!("clip.mp4: frame {frame}"));
            let packets = track.packets_for(frame).iter();
            let packets = packets.map(|packet| &file[packet.offset as usize..][..packet.size as usize]);
            assert!(parsed.packets().eq(packets), "{name} {frame}");
            assert_eq!(parsed.packet_count(), track.packets_for(frame).len());
        }
    }
}

#[test]
fn truncated_records_fail_and_damaged_records_stay_consistent() {
    let file = bytes("g2.mp4");
    let complete = record(&file, &open(&file).unwrap(), 1);
    for end in 0..complete.len() {
        Record::parse(&complete[..end]).unwrap_err();
    }
    let mut random = Random(0x0dd_ba11);
    let mut parsed = 0;
    for _ in 0..10_000 {
        let mut bytes = complete.clone();
        for _ in 0..=random.below(3) {
            let end = if random.below(2) == 0 { 60 } else { bytes.len() };
            let offset = random.below(end);
            bytes[offset] = random.next() as u8;
        }
        if let Ok(record) = Record::parse(&bytes) {
            parsed += 1;
            assert_eq!(record.packets().count(), record.packet_count());
            assert!(record.packets().map(<[u8]>::len).sum::<usize>() < bytes.len());
        }
    }
    assert!(parsed > 1000, "{parsed}");
}

#[test]
fn codecs_without_a_decoder_are_named() {
    let config = |codec| warpfeed_video::CodecConfig { codec, width: 2, height: 2, record: Vec::new(), color: None };
    let error = write_header(&config(Codec::Other(*b"apcn")), 1, "", 1, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("\"apcn\"") && error.to_string().contains("libsvtav1"), "{error}");
}
