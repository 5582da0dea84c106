//! [`Frame`]: a decoded frame in host memory.

use crate::error::{Result, reserve};
use crate::frame::{Coding, Layout, Plane, Planes};

/// A decoded frame in host memory: luma, and chroma with half the width and half the height.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// Bits of a sample. Samples of 8 bits take one byte. All others take two bytes in little
    /// endian order, of which the upper bits are used.
    pub bit_depth: u8,
    /// Luma, by rows without padding.
    pub luma: &'a [u8],
    /// Cb and Cr in turns, by rows without padding. If the width or the height is odd, the last
    /// column or row of chroma belongs to a single column or row of luma.
    pub chroma: &'a [u8],
    /// Whether samples use the full range.
    pub full_range: bool,
    /// Matrix coefficients as in ISO/IEC 23091-2.
    pub matrix: u8,
}

/// Memory that [`Frame::planes`] reuses.
#[derive(Debug, Default)]
pub struct Scratch {
    bytes: [Vec<u8>; 2],
    words: [Vec<u16>; 3],
}

impl Frame<'_> {
    /// Separates the planes of chroma.
    ///
    /// # Errors
    /// If an allocation fails.
    pub fn planes<'a>(&'a self, scratch: &'a mut Scratch) -> Result<Planes<'a>> {
        let chroma_width = self.width.div_ceil(2);
        let planes = if self.bit_depth == 8 {
            let [u, v] = &mut scratch.bytes;
            separate(self.chroma.chunks_exact(2).map(|pair| [pair[0], pair[1]]), u, v)?;
            [Plane::Bits8(self.luma, self.width), Plane::Bits8(u, chroma_width), Plane::Bits8(v, chroma_width)]
        } else {
            let shift = 16 - u32::from(self.bit_depth);
            let sample = |bytes: [u8; 2]| u16::from_le_bytes(bytes) >> shift;
            let [y, u, v] = &mut scratch.words;
            y.clear();
            reserve(y, self.luma.len() / 2)?;
            y.extend(self.luma.chunks_exact(2).map(|bytes| sample([bytes[0], bytes[1]])));
            let pairs = self.chroma.chunks_exact(4);
            separate(pairs.map(|pair| [sample([pair[0], pair[1]]), sample([pair[2], pair[3]])]), u, v)?;
            [Plane::Bits16(y, self.width), Plane::Bits16(u, chroma_width), Plane::Bits16(v, chroma_width)]
        };
        // 0 stands for RGB, which is never subsampled, so it means that nothing is specified.
        let matrix = if self.matrix == 0 { 2 } else { self.matrix.into() };
        let coding = Coding { matrix, is_full_range: self.full_range, bits: self.bit_depth };
        Ok(Planes { width: self.width, height: self.height, layout: Layout::Yuv420, coding, planes })
    }
}

fn separate<S>(pairs: impl ExactSizeIterator<Item = [S; 2]>, u: &mut Vec<S>, v: &mut Vec<S>) -> Result<()> {
    u.clear();
    v.clear();
    reserve(u, pairs.len())?;
    reserve(v, pairs.len())?;
    for [first, second] in pairs {
        u.push(first);
        v.push(second);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_have_the_samples_of_the_frame() {
        let (luma, chroma) = ([1, 2, 3, 4, 5, 6, 7, 8, 9], [10, 20, 11, 21, 12, 22, 13, 23]);
        let frame =
            Frame { width: 3, height: 3, bit_depth: 8, luma: &luma, chroma: &chroma, full_range: true, matrix: 0 };
        let mut scratch = Scratch::default();
        let planes = frame.planes(&mut scratch).unwrap();
        assert_eq!(planes.coding, Coding { matrix: 2, is_full_range: true, bits: 8 });
        assert_eq!([planes.sample(0, 1, 2), planes.sample(1, 1, 0), planes.sample(2, 0, 1)], [8, 11, 22]);

        let wide = |bytes: &[u8]| bytes.iter().flat_map(|&b| (u16::from(b) << 6).to_le_bytes()).collect::<Vec<u8>>();
        let (luma, chroma) = (wide(&luma), wide(&chroma));
        let frame = Frame { bit_depth: 10, luma: &luma, chroma: &chroma, full_range: false, matrix: 9, ..frame };
        let planes = frame.planes(&mut scratch).unwrap();
        assert_eq!(planes.coding, Coding { matrix: 9, is_full_range: false, bits: 10 });
        assert_eq!([planes.sample(0, 1, 2), planes.sample(1, 1, 0), planes.sample(2, 0, 1)], [8, 11, 22]);
    }
}
