//! [`Frame`] is a decoded frame in host memory.

use crate::error::{Result, reserve};
use crate::frame::{Coding, Layout, Plane, Planes};

/// A decoded frame with 4:2:0 chroma. If samples have 8 bits, the frame does not contain them: the
/// caller keeps them and passes them to [`planes`](Self::planes).
#[derive(Debug)]
pub(super) struct Frame {
    size: (usize, usize),
    coding: Coding,
    /// The planes, if samples have more than 8 bits.
    wide_planes: [Vec<u16>; 3],
}

impl Default for Frame {
    fn default() -> Self {
        let coding = Coding { matrix: 2, is_full_range: false, bits: 8 };
        Frame { size: (0, 0), coding, wide_planes: Default::default() }
    }
}

impl Frame {
    /// Returns the number of bytes of luma, and of luma and chroma together.
    pub(super) fn byte_counts((width, height): (usize, usize), bits: u8) -> (usize, usize) {
        let sample_bytes = if bits == 8 { 1 } else { 2 };
        let luma = width * height * sample_bytes;
        (luma, luma + width.next_multiple_of(2) * height.div_ceil(2) * sample_bytes)
    }

    /// Replaces the frame. `samples` are rows without padding: luma, and then Cb and Cr
    /// alternately. A sample of more than 8 bits is stored in the upper bits of two bytes.
    ///
    /// # Errors
    /// If an allocation fails.
    pub(super) fn set(&mut self, size: (usize, usize), coding: Coding, samples: &[u8]) -> Result<()> {
        self.size = size;
        // Matrix 0 stands for RGB, which is never subsampled, so replace it by 2, which stands for
        // an unspecified matrix.
        self.coding = Coding { matrix: if coding.matrix == 0 { 2 } else { coding.matrix }, ..coding };
        if coding.bits == 8 {
            return Ok(());
        }
        let (luma, chroma) = samples.split_at(Self::byte_counts(size, coding.bits).0);
        let shift = 16 - u32::from(coding.bits);
        let parse_sample = |low: u8, high: u8| u16::from_le_bytes([low, high]) >> shift;
        let [y, u, v] = &mut self.wide_planes;
        replace(y, luma.chunks_exact(2).map(|pair| parse_sample(pair[0], pair[1])))?;
        replace(u, chroma.chunks_exact(4).map(|pair| parse_sample(pair[0], pair[1])))?;
        replace(v, chroma.chunks_exact(4).map(|pair| parse_sample(pair[2], pair[3])))
    }

    /// Returns the planes. `samples` must be the bytes that were passed to [`set`](Self::set).
    pub(super) fn planes<'a>(&'a self, samples: &'a [u8]) -> Planes<'a> {
        let (width, height) = self.size;
        let chroma_width = width.div_ceil(2);
        let (layout, planes) = if self.coding.bits == 8 {
            let (luma, chroma) = samples.split_at(Self::byte_counts(self.size, 8).0);
            let planes = [Plane::Bits8(luma, width), Plane::Bits8(chroma, 2 * chroma_width), Plane::Bits8(&[], 0)];
            (Layout::Nv12, planes)
        } else {
            let [y, u, v] = &self.wide_planes;
            let planes = [(y, width), (u, chroma_width), (v, chroma_width)];
            (Layout::Yuv420, planes.map(|(samples, stride)| Plane::Bits16(samples, stride)))
        };
        Planes { width, height, layout, coding: self.coding, planes }
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
        let narrow = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 11, 21, 12, 22, 13, 23];
        let samples = |planes: Planes<'_>| [planes.sample(0, 1, 2), planes.sample(1, 1, 0), planes.sample(2, 0, 1)];
        let mut frame = Frame::default();
        let coding = Coding { matrix: 0, is_full_range: true, bits: 8 };
        frame.set((3, 3), coding, &narrow).unwrap();
        assert_eq!(frame.planes(&narrow).coding, Coding { matrix: 2, ..coding });
        assert_eq!(samples(frame.planes(&narrow)), [8, 11, 22]);

        let wide: Vec<u8> = narrow.iter().flat_map(|&sample| (u16::from(sample) << 6).to_le_bytes()).collect();
        let coding = Coding { matrix: 9, is_full_range: false, bits: 10 };
        frame.set((3, 3), coding, &wide).unwrap();
        assert_eq!(frame.planes(&wide).coding, coding);
        assert_eq!(samples(frame.planes(&wide)), [8, 11, 22]);
    }
}
