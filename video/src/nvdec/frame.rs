//! [`Frame`]: a decoded frame in host memory.

use crate::error::{Result, reserve};
use crate::frame::{Coding, Layout, Plane, Planes};

/// A decoded frame in host memory, with 4:2:0 chroma. Its memory is reused for the next frame.
#[derive(Debug)]
pub(super) struct Frame {
    size: (usize, usize),
    coding: Coding,
    /// Used if samples have 8 bits.
    bytes: [Vec<u8>; 3],
    /// Used if samples have more bits.
    words: [Vec<u16>; 3],
}

impl Default for Frame {
    fn default() -> Self {
        let coding = Coding { matrix: 2, is_full_range: false, bits: 8 };
        Frame { size: (0, 0), coding, bytes: Default::default(), words: Default::default() }
    }
}

impl Frame {
    /// Replaces the frame. `luma` and `chroma` are rows without padding, and `chroma` contains Cb
    /// and Cr alternately. A sample of more than 8 bits is stored in the upper bits of two bytes.
    pub(super) fn set(&mut self, size: (usize, usize), coding: Coding, luma: &[u8], chroma: &[u8]) -> Result<()> {
        self.size = size;
        // Matrix 0 stands for RGB, which is never subsampled, so 0 means that the matrix is
        // unspecified.
        self.coding = Coding { matrix: if coding.matrix == 0 { 2 } else { coding.matrix }, ..coding };
        if coding.bits == 8 {
            let [y, u, v] = &mut self.bytes;
            replace(y, luma.iter().copied())?;
            replace(u, chroma.chunks_exact(2).map(|pair| pair[0]))?;
            replace(v, chroma.chunks_exact(2).map(|pair| pair[1]))
        } else {
            let shift = 16 - u32::from(coding.bits);
            let sample = |low: u8, high: u8| u16::from_le_bytes([low, high]) >> shift;
            let [y, u, v] = &mut self.words;
            replace(y, luma.chunks_exact(2).map(|pair| sample(pair[0], pair[1])))?;
            replace(u, chroma.chunks_exact(4).map(|pair| sample(pair[0], pair[1])))?;
            replace(v, chroma.chunks_exact(4).map(|pair| sample(pair[2], pair[3])))
        }
    }

    pub(super) fn planes(&self) -> Planes<'_> {
        let (width, height) = self.size;
        let strides = [width, width.div_ceil(2), width.div_ceil(2)];
        let planes = std::array::from_fn(|index| match self.coding.bits {
            8 => Plane::Bits8(&self.bytes[index], strides[index]),
            _ => Plane::Bits16(&self.words[index], strides[index]),
        });
        Planes { width, height, layout: Layout::Yuv420, coding: self.coding, planes }
    }
}

fn replace<S>(plane: &mut Vec<S>, samples: impl ExactSizeIterator<Item = S>) -> Result<()> {
    plane.clear();
    reserve(plane, samples.len())?;
    plane.extend(samples);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_have_the_samples_of_the_engine() {
        let (luma, chroma) = ([1, 2, 3, 4, 5, 6, 7, 8, 9], [10, 20, 11, 21, 12, 22, 13, 23]);
        let samples = |frame: &Frame| {
            let planes = frame.planes();
            [planes.sample(0, 1, 2), planes.sample(1, 1, 0), planes.sample(2, 0, 1)]
        };
        let mut frame = Frame::default();
        let coding = Coding { matrix: 0, is_full_range: true, bits: 8 };
        frame.set((3, 3), coding, &luma, &chroma).unwrap();
        assert_eq!(frame.planes().coding, Coding { matrix: 2, ..coding });
        assert_eq!(samples(&frame), [8, 11, 22]);

        let wide = |bytes: &[u8]| bytes.iter().flat_map(|&b| (u16::from(b) << 6).to_le_bytes()).collect::<Vec<u8>>();
        let coding = Coding { matrix: 9, is_full_range: false, bits: 10 };
        frame.set((3, 3), coding, &wide(&luma), &wide(&chroma)).unwrap();
        assert_eq!(frame.planes().coding, coding);
        assert_eq!(samples(&frame), [8, 11, 22]);
    }
}
