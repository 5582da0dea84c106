//! Helpers that several tests use. `fixtures/make.sh` creates the fixtures.

use std::path::{Path, PathBuf};

#[cfg(any(feature = "av1", feature = "nvdec"))]
use warpfeed_video::{Plane, Planes};

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

pub(crate) fn bytes(name: &str) -> Vec<u8> {
    let path = fixture(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub(crate) fn videos() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(fixture(""))
        .expect("the folder of fixtures exists")
        .filter_map(|entry| Some(entry.ok()?.file_name().into_string().ok()?.strip_suffix(".mp4")?.to_owned()))
        .collect();
    names.sort();
    assert!(names.len() > 15, "{names:?}");
    names
}

/// Returns the CRC-32 of all samples, in the order and the format of FFmpeg.
#[cfg(any(feature = "av1", feature = "nvdec"))]
pub(crate) fn crc(planes: &Planes<'_>) -> u32 {
    let mut crc = !0_u32;
    let mut add = |byte: u8| {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    };
    // Like AV1, FFmpeg orders the planes of RGB as green, blue, red.
    for plane in 0..3 {
        let (width, height) = planes.size(plane);
        for y in 0..height {
            for x in 0..width {
                let sample = planes.sample(plane, x, y);
                add(sample as u8);
                if matches!(planes.planes[plane], Plane::Bits16(..)) {
                    add((sample >> 8) as u8);
                }
            }
        }
    }
    !crc
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub(crate) fn mutate(&mut self, file: &mut Vec<u8>, offset: usize) {
        match self.below(4) {
            0 => file[offset] ^= 1 << self.below(8),
            1 => file[offset] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
            2 => file.truncate(offset.max(1)),
            _ => {
                let end = file.len().min(offset + 4);
                file[offset..end].fill([0, 0x7f, 0xff][self.below(3)]);
            }
        }
    }
}
