//! [`Orientation`] is the EXIF orientation. It maps a region of the upright image to the stored
//! image, and turns stored pixels upright.

use crate::pixels::{Rect, Size};

/// The EXIF orientation (tag 0x0112), as the steps that make the stored image upright. The steps
/// are applied in the order of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orientation {
    /// Whether rows and columns are swapped.
    pub transposed: bool,
    /// Whether left and right are swapped.
    pub mirrored: bool,
    /// Whether top and bottom are swapped.
    pub flipped: bool,
}

impl Default for Orientation {
    fn default() -> Self {
        Orientation::new(1)
    }
}

impl Orientation {
    /// Creates the orientation from the tag's value, 1 to 8. Any other value is treated as 1
    /// (upright).
    #[inline]
    pub fn new(tag: u8) -> Self {
        let (transposed, mirrored, flipped) = match tag {
            2 => (false, true, false),
            3 => (false, true, true),
            4 => (false, false, true),
            5 => (true, false, false),
            6 => (true, true, false),
            7 => (true, true, true),
            8 => (true, false, true),
            _ => (false, false, false),
        };
        Orientation { transposed, mirrored, flipped }
    }

    /// Returns the value of the orientation tag in EXIF data, for example from the EXIF chunk of a
    /// PNG or WebP. The data may start with the prefix `Exif\0\0`. Returns `None` if the data has no
    /// orientation tag with a value from 1 to 8.
    pub fn tag_in(exif: &[u8]) -> Option<u8> {
        exif_orientation(exif.strip_prefix(PREFIX).unwrap_or(exif))
    }

    /// Returns the value of the tag, 1 to 8.
    pub fn tag(self) -> u8 {
        (1..=8).find(|&tag| Orientation::new(tag) == self).expect("each orientation has a value")
    }

    /// Returns whether the stored image is already upright.
    #[inline]
    pub fn is_upright(self) -> bool {
        self == Orientation::new(1)
    }

    /// Returns the size of the upright image.
    #[inline]
    pub fn size(self, stored: Size) -> Size {
        if self.transposed { Size::new(stored.height, stored.width) } else { stored }
    }

    /// Returns the region of the stored image that becomes `region` in the upright image. `region`
    /// must be inside the upright image.
    #[inline]
    pub fn stored_region(self, region: Rect, stored: Size) -> Rect {
        let upright = self.size(stored);
        let Rect { mut x, mut y, width, height } = region;
        if self.mirrored {
            x = upright.width - x - width;
        }
        if self.flipped {
            y = upright.height - y - height;
        }
        if self.transposed { Rect::new(y, x, height, width) } else { Rect::new(x, y, width, height) }
    }

    /// Rotates and mirrors `stored`, an RGB image of size `size`, and writes the upright image to
    /// `upright`.
    pub fn apply(self, stored: &[u8], size: Size, upright: &mut [u8]) {
        let Size { width, height } = self.size(size);
        let (stride, width, height) = (size.width as usize * 3, width as usize, height as usize);
        for (y, row) in upright.chunks_exact_mut(width * 3).enumerate() {
            let y = if self.flipped { height - 1 - y } else { y };
            for (x, pixel) in row.chunks_exact_mut(3).enumerate() {
                let x = if self.mirrored { width - 1 - x } else { x };
                let offset = if self.transposed { x * stride + y * 3 } else { y * stride + x * 3 };
                pixel.copy_from_slice(&stored[offset..offset + 3]);
            }
        }
    }
}

const PREFIX: &[u8] = b"Exif\0\0";

/// Returns the orientation tag in the body of an APP1 segment, or `None` if the segment contains no
/// EXIF data.
pub(crate) fn segment_orientation(body: &[u8]) -> Option<u8> {
    exif_orientation(body.strip_prefix(PREFIX)?)
}

/// Returns tag 0x0112 from the first directory of a TIFF structure (EXIF 2.3, 4.6.4), if its value
/// is 1 to 8.
fn exif_orientation(tiff: &[u8]) -> Option<u8> {
    let big = match tiff.get(..4)? {
        b"II\x2a\0" => false,
        b"MM\0\x2a" => true,
        _ => return None,
    };
    let u16_at = |offset: usize| {
        let b: [u8; 2] = tiff.get(offset..offset.checked_add(2)?)?.try_into().ok()?;
        Some(if big { u16::from_be_bytes(b) } else { u16::from_le_bytes(b) })
    };
    let offset_bytes: [u8; 4] = tiff.get(4..8)?.try_into().ok()?;
    let directory = (if big { u32::from_be_bytes(offset_bytes) } else { u32::from_le_bytes(offset_bytes) }) as usize;
    let entries = usize::from(u16_at(directory)?);
    let entry = (0..entries).map(|i| directory + 2 + 12 * i).find(|&offset| u16_at(offset) == Some(0x0112))?;
    let value = u16_at(entry + 8)?;
    (1..=8).contains(&value).then_some(value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests every tag value on the image 0 1 / 2 3 / 4 5. `expected` contains its upright version
    /// for each tag value, according to the EXIF standard.
    #[test]
    fn every_tag_rotates_as_in_the_exif_standard() {
        let size = Size::new(2, 3);
        let stored: Vec<u8> = (0..6).flat_map(|i| [i; 3]).collect();
        let expected: [&[u8]; 8] = [
            &[0, 1, 2, 3, 4, 5],
            &[1, 0, 3, 2, 5, 4],
            &[5, 4, 3, 2, 1, 0],
            &[4, 5, 2, 3, 0, 1],
            &[0, 2, 4, 1, 3, 5],
            &[4, 2, 0, 5, 3, 1],
            &[5, 3, 1, 4, 2, 0],
            &[1, 3, 5, 0, 2, 4],
        ];
        for (tag, expected) in (1..).zip(expected) {
            let orientation = Orientation::new(tag);
            assert_eq!(orientation.tag(), tag);
            let mut upright = vec![0; 18];
            orientation.apply(&stored, size, &mut upright);
            let actual: Vec<u8> = upright.chunks(3).map(|p| p[0]).collect();
            assert_eq!(actual, expected, "tag {tag}");

            let upright = orientation.size(size);
            for (i, value) in (0..).zip(expected) {
                let raw = orientation.stored_region(Rect::new(i % upright.width, i / upright.width, 1, 1), size);
                assert_eq!((raw.y * 2 + raw.x) as u8, *value, "tag {tag}, pixel {i}");
            }
        }
    }
}
