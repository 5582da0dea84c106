//! Writes dataset files: class folders, and tar archives byte by byte.
#![allow(dead_code, unreachable_pub)] // not every test uses all of it

use std::fs;
use std::path::{Path, PathBuf};

pub const BLOCK: usize = 512;

/// Creates a folder of class folders, each with the given number of images.
pub fn folder(root: &Path, name: &str, classes: &[(&str, usize)]) -> PathBuf {
    for (class, images) in classes {
        let class = root.join(name).join(class);
        fs::create_dir_all(&class).unwrap();
        for i in 0..*images {
            image::RgbImage::new(8, 8).save(class.join(format!("{i}.png"))).unwrap();
        }
    }
    root.join(name)
}

/// Returns a tar member with a ustar header. `edit` may change the header before its checksum is
/// computed.
pub fn member(name: &str, kind: u8, data: &[u8], edit: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    edit(&mut block);
    seal(&mut block);
    block.extend_from_slice(data);
    block.resize(block.len().next_multiple_of(BLOCK), 0);
    block
}

pub fn seal(header: &mut [u8]) {
    header[148..156].fill(b' ');
    let sum: u32 = header[..BLOCK].iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}
