//! The images of the benchmark: photographs, or generated images. Each image has three forms:
//! plain; with restart markers ("packed"); and, for decoders that cannot skip restart intervals,
//! cut to the crop, which means that the file contains only the restart intervals that the crop
//! needs.

use std::path::{Path, PathBuf};

use warpfeed::decode::{Codecs, Rect, Size};

use super::libjpeg;

pub(super) struct Image {
    pub(super) plain: Vec<u8>,
    pub(super) packed: Vec<u8>,
    pub(super) size: Size,
    pub(super) crop: Rect,
    /// A JPEG of only the restart intervals that the crop needs, and its size in pixels.
    pub(super) cropped: (Vec<u8>, Size),
}

/// Returns at most 160 baseline photographs from the folder `WARPFEED_PHOTOS`, or generated
/// images if the variable is not set.
pub(super) fn all_images() -> Vec<Image> {
    let mut random = Random(1);
    let mut files = Vec::new();
    match std::env::var_os("WARPFEED_PHOTOS") {
        Some(folder) => {
            let mut paths = Vec::new();
            list_files(folder.as_ref(), &mut paths);
            paths.sort();
            let step = paths.len().div_ceil(160).max(1);
            let read = |path| std::fs::read(path).expect("the file can be read");
            files.extend(paths.iter().step_by(step).map(read));
        }
        None => files.extend((0..24).map(|_| generate(&mut random))),
    }
    let images: Vec<Image> = files.into_iter().filter_map(|plain| Image::new(plain, &mut random)).collect();
    assert!(!images.is_empty(), "no baseline JPEGs found");
    let mean = |size_of: fn(&Image) -> usize| images.iter().map(size_of).sum::<usize>() / images.len();
    println!(
        "{} images; mean bytes: {} plain, {} packed, {} cut to the crop",
        images.len(),
        mean(|p| p.plain.len()),
        mean(|p| p.packed.len()),
        mean(|p| p.cropped.0.len())
    );
    images
}

fn list_files(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() { list_files(&path, paths) } else { paths.push(path) }
    }
}

/// Returns a JPEG of shapes and noise, with about as many bytes per pixel as a photograph.
fn generate(random: &mut Random) -> Vec<u8> {
    let (width, height) = (500, 375);
    let mut pixels = vec![0; width * height * 3];
    for (i, sample) in pixels.iter_mut().enumerate() {
        let (x, y) = (i / 3 % width, i / 3 / width);
        *sample = ((x / 3 + y / 2 + (x / 40 * y / 50) * 70) as f64 + 22.0 * random.unit()) as u8;
    }
    libjpeg::encode(&pixels, width as u32, height as u32, 3, &libjpeg::Options::new(92, 1, 1))
}

impl Image {
    fn new(plain: Vec<u8>, random: &mut Random) -> Option<Image> {
        let size = Codecs::new().open(&plain).ok()?.size();
        let with_markers = libjpeg::with_restarts(&plain, 1, false).ok()?;
        let sof = marker_offset(&with_markers, 0xc0)?;
        let stored_size = Size::new(u16_at(&with_markers, sof + 7), u16_at(&with_markers, sof + 5));
        let components = usize::from(with_markers[sof + 9]);
        let factor = |i: usize| if components == 1 { 0x11 } else { with_markers[sof + 11 + 3 * i] };
        let mcu = (0..components).fold((8, 8), |m, i| (m.0.max(8 * (factor(i) >> 4)), m.1.max(8 * (factor(i) & 15))));
        let mcu = (u32::from(mcu.0), u32::from(mcu.1));
        let mcus_per_row = size.width.div_ceil(mcu.0);
        let is_valid = |k: &u32| mcus_per_row.is_multiple_of(*k) && (3..=8).contains(&(mcus_per_row / k));
        let interval = (1..=mcus_per_row).find(is_valid).unwrap_or(mcus_per_row);
        let packed = libjpeg::with_restarts(&plain, interval, false).ok()?;
        // The crop below refers to the stored image, so skip images whose orientation swaps the
        // width and the height.
        if stored_size != size {
            return None;
        }
        let crop = random.crop(size);
        let cropped = cut_to_crop(&packed, sof, size, mcu, interval, crop);
        Some(Image { plain, packed, size, crop, cropped })
    }
}

/// Removes the restart intervals that do not overlap `crop` from the file, except for a margin of
/// one MCU if chroma is subsampled. Returns the file and its size in pixels. `sof` is the offset of
/// the frame header, `mcu` is the width and height of an MCU in pixels, and `interval` is the
/// number of MCUs in a restart interval.
fn cut_to_crop(jpeg: &[u8], sof: usize, size: Size, mcu: (u32, u32), interval: u32, crop: Rect) -> (Vec<u8>, Size) {
    let scan = marker_offset(jpeg, 0xda).expect("a file has a scan");
    let scan_data = scan + 2 + u16_at(jpeg, scan + 2) as usize;
    let (mut intervals, mut interval_start) = (Vec::new(), scan_data);
    for offset in (scan_data..jpeg.len() - 1).filter(|&i| jpeg[i] == 0xff && jpeg[i + 1] != 0) {
        intervals.push(&jpeg[interval_start..offset]);
        interval_start = offset + 2;
    }
    let margin = u32::from(mcu != (8, 8));
    let mcu_range = |first: u32, count: u32, step: u32, side: u32| {
        ((first / step).saturating_sub(margin), ((first + count - 1) / step + 1 + margin).min(side.div_ceil(step)))
    };
    let (left, right) = mcu_range(crop.x, crop.width, mcu.0, size.width);
    let (top, bottom) = mcu_range(crop.y, crop.height, mcu.1, size.height);
    let (first, last) = (left / interval, (right - 1) / interval);
    let columns = size.width.div_ceil(mcu.0) / interval;
    let width = ((last + 1) * interval * mcu.0).min(size.width) - first * interval * mcu.0;
    let height = (bottom * mcu.1).min(size.height) - top * mcu.1;
    let mut out = jpeg[..scan_data].to_vec();
    out[sof + 5..sof + 7].copy_from_slice(&(height as u16).to_be_bytes());
    out[sof + 7..sof + 9].copy_from_slice(&(width as u16).to_be_bytes());
    let interval_indices = (top..bottom).flat_map(|row| (first..=last).map(move |column| row * columns + column));
    for (i, index) in interval_indices.enumerate() {
        if i > 0 {
            out.extend([0xff, 0xd0 + ((i - 1) % 8) as u8]);
        }
        out.extend(intervals[index as usize]);
    }
    out.extend([0xff, 0xd9]);
    (out, Size::new(width, height))
}

fn marker_offset(jpeg: &[u8], marker: u8) -> Option<usize> {
    let mut offset = 2;
    while jpeg.get(offset + 3).is_some() && jpeg[offset + 1] != marker {
        offset += 2 + u16_at(jpeg, offset + 2) as usize;
    }
    (jpeg.get(offset + 1) == Some(&marker)).then_some(offset)
}

fn u16_at(bytes: &[u8], offset: usize) -> u32 {
    u16::from_be_bytes([bytes[offset], bytes[offset + 1]]).into()
}

struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Chooses a crop like torchvision's RandomResizedCrop: 0.08 to 1 of the area, aspect ratio 3/4
    /// to 4/3.
    fn crop(&mut self, size: Size) -> Rect {
        for _ in 0..10 {
            let area = size.area() as f64 * (0.08 + 0.92 * self.unit());
            let ratio = ((4.0f64 / 3.0).ln() * (2.0 * self.unit() - 1.0)).exp();
            let (width, height) = ((area * ratio).sqrt().round() as u32, (area / ratio).sqrt().round() as u32);
            if (1..=size.width).contains(&width) && (1..=size.height).contains(&height) {
                let offset = |left: u32, unit: f64| ((left + 1) as f64 * unit) as u32;
                let (x, y) = (offset(size.width - width, self.unit()), offset(size.height - height, self.unit()));
                return Rect::new(x, y, width, height);
            }
        }
        Rect::full(size)
    }
}
