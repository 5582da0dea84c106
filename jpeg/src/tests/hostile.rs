//! Tests files with restart markers that are missing, extra, out of order or inconsistent with the
//! headers, and files with truncated scans or changed heights. If the file can be decoded, and all
//! variants of libjpeg decode it to the same pixels (`is_tame`), decoding must produce these
//! pixels. An error is allowed only if libjpeg warns or fails. If libjpeg only warns, the error
//! must contain a byte position. All backends must agree.

use proptest::prelude::*;

use super::{decode, decoders, size};
use crate::coefficients::Coefficients;
use crate::fuzz_jpeg::is_tame;
use crate::header::Header;
use crate::libjpeg::{self, Options, encode};
use crate::pixels::{Pixels, Rect};

/// A change to a JPEG. The index of a restart marker in the scan wraps around at the number of
/// restart markers.
#[derive(Debug, Clone, Copy)]
enum Edit {
    Remove(usize),
    Repeat(usize),
    Swap(usize, usize),
    Renumber(usize, u8),
    /// Inserts a restart marker at this fraction of the scan's length, in units of 1/65536. The
    /// second number selects the marker.
    Insert(u16, u8),
    /// Sets the restart interval in the header, in MCUs.
    Interval(u16),
    Rows(i16),
    /// Truncates the scan at this fraction of its length, in units of 1/65536.
    Cut(u16),
}

fn edit() -> impl Strategy<Value = Edit> {
    let n = 0usize..64;
    prop_oneof![
        n.clone().prop_map(Edit::Remove),
        n.clone().prop_map(Edit::Repeat),
        (n.clone(), n.clone()).prop_map(|(a, b)| Edit::Swap(a, b)),
        (n, 0u8..10).prop_map(|(n, marker)| Edit::Renumber(n, marker)),
        (any::<u16>(), 0u8..10).prop_map(|(part, number)| Edit::Insert(part, number)),
        (0u16..50).prop_map(Edit::Interval),
        (-40i16..40).prop_map(Edit::Rows),
        any::<u16>().prop_map(Edit::Cut),
    ]
}

impl Edit {
    fn apply(self, jpeg: &mut Vec<u8>) {
        let data = Header::read(jpeg).unwrap().scan.data_offset;
        let marker_offsets: Vec<usize> =
            (data..jpeg.len() - 1).filter(|&i| jpeg[i] == 0xff && (0xd0..0xd8).contains(&jpeg[i + 1])).collect();
        let marker_offset = |n: usize| marker_offsets[n % marker_offsets.len()];
        let inside = |part: u16| data + (jpeg.len() - data) * usize::from(part) / 65536;
        let field = |marker: u8| (0..data).find(|&i| jpeg[i] == 0xff && jpeg[i + 1] == marker).unwrap();
        match self {
            Edit::Remove(_) | Edit::Repeat(_) | Edit::Swap(..) | Edit::Renumber(..) if marker_offsets.is_empty() => {}
            Edit::Remove(n) => drop(jpeg.drain(marker_offset(n)..marker_offset(n) + 2)),
            Edit::Repeat(n) => {
                let copy = [0xff, jpeg[marker_offset(n) + 1]];
                drop(jpeg.splice(marker_offset(n)..marker_offset(n), copy));
            }
            Edit::Swap(a, b) => jpeg.swap(marker_offset(a) + 1, marker_offset(b) + 1),
            Edit::Renumber(n, marker) => jpeg[marker_offset(n) + 1] = 0xd0 + marker,
            Edit::Insert(part, number) => {
                let offset = inside(part);
                drop(jpeg.splice(offset..offset, [0xff, 0xd0 + number]));
            }
            Edit::Interval(mcus) => {
                let offset = field(0xdd) + 4;
                jpeg[offset..offset + 2].copy_from_slice(&mcus.to_be_bytes());
            }
            Edit::Rows(more) => {
                let offset = field(0xc0) + 5;
                let rows = i16::from_be_bytes([jpeg[offset], jpeg[offset + 1]]) + more;
                jpeg[offset..offset + 2].copy_from_slice(&rows.max(1).to_be_bytes());
            }
            Edit::Cut(part) => jpeg.truncate(inside(part)),
        }
    }
}

fn crop(rgb: &[u8], width: u32, region: Rect) -> Vec<u8> {
    let rows = rgb.chunks_exact(3 * width as usize).skip(region.y as usize).take(region.height as usize);
    rows.flat_map(|row| &row[3 * region.x as usize..][..3 * region.width as usize]).copied().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wrong_restart_markers_give_libjpeg_pixels_or_an_error(
        (h, v) in prop::sample::select(vec![(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)]),
        restart in 1u32..30, gray in any::<bool>(), width in 1usize..90, height in 1usize..70,
        edits in prop::collection::vec(edit(), 0..3), part in any::<[u16; 4]>(),
    ) {
        let channels = if gray { 1 } else { 3 };
        let pixels: Vec<u8> = (0..width * height * channels).map(|i| (80 + i % 97 / 3 + i / 31 % 60 / 2) as u8).collect();
        let options = Options { restart, ..Options::new(80, h, v) };
        let mut jpeg = encode(&pixels, width as u32, height as u32, channels, &options);
        for edit in &edits {
            if Header::read(&jpeg).is_ok_and(|header| header.scan.data_offset + 2 < jpeg.len()) {
                edit.apply(&mut jpeg);
            }
        }
        let Some(size) = size(&jpeg) else { return Ok(()) };
        let expected = libjpeg::decode(&jpeg);
        let mut coefficients = Coefficients::default();
        let tame = coefficients.decode(&jpeg, &Header::read(&jpeg).unwrap()).is_ok() && is_tame(&coefficients);
        let (x, y) = ((size.width * u32::from(part[0])) >> 16, (size.height * u32::from(part[1])) >> 16);
        let length = |limit: u32, part: u16| ((limit * u32::from(part)) >> 16) + 1;
        let inner = Rect::new(x, y, length(size.width - x, part[2]), length(size.height - y, part[3]));
        for region in [Rect::full(size), inner] {
            let mut first = None;
            for decoder in &mut decoders() {
                let mut out = Pixels::new();
                let actual = decode(decoder, &jpeg, region, &mut out).map(|()| out.data().to_vec());
                match (&actual, &expected) {
                    (Ok(rgb), Ok(expected)) if tame => {
                        prop_assert!(*rgb == crop(&expected.rgb, expected.width, region), "{region:?} differs");
                    }
                    (Ok(_), _) => {}
                    (Err(e), Ok(expected)) => {
                        prop_assert!(expected.warnings > 0, "libjpeg gives no warnings: {e}");
                        let text = e.to_string();
                        prop_assert!(text.starts_with("jpeg ") && text.contains("byte"), "{text}");
                    }
                    (Err(_), Err(_)) => {}
                }
                let actual = actual.map_err(|e| e.to_string());
                prop_assert!(*first.get_or_insert_with(|| actual.clone()) == actual, "backends differ");
            }
        }
    }
}
