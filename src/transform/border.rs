use crate::decode::{Rect, Size};

/// What a random crop shows outside the image: torchvision's `padding_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Border {
    /// The [fill color](crate::Augment::fill).
    #[default]
    Constant,
    /// The pixel at the image's edge.
    Edge,
    /// The image mirrored at its edge, whose pixels are not repeated.
    Reflect,
    /// The image mirrored at its edge, whose pixels are repeated.
    Symmetric,
}

impl Border {
    /// Pixels of the image that a border of `width` pixels needs along an axis.
    pub(super) fn needs(self, width: u32) -> u64 {
        match self {
            Border::Constant | Border::Edge => 1,
            Border::Reflect => u64::from(width) + 1,
            Border::Symmetric => u64::from(width),
        }
    }

    /// The setting's name in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Border::Constant => "constant",
            Border::Edge => "edge",
            Border::Reflect => "reflect",
            Border::Symmetric => "symmetric",
        }
    }

    /// The position inside `start..start + length` that position `at` repeats.
    fn source(self, at: usize, start: usize, length: usize) -> usize {
        let end = start + length;
        let skipped = usize::from(self == Border::Reflect);
        match self {
            _ if (start..end).contains(&at) => at,
            Border::Constant | Border::Edge => at.clamp(start, end - 1),
            Border::Reflect | Border::Symmetric if at < start => (2 * start + skipped - at - 1).min(end - 1),
            Border::Reflect | Border::Symmetric => (2 * end - at - 1).saturating_sub(skipped).max(start),
        }
    }

    /// Continues the part `shown` of an RGB image of size `output` to its edges. The image may be
    /// flipped, because each edge of the part is an edge of the image or of the image.
    pub(super) fn extend(self, image: &mut [u8], shown: Rect, output: Size) {
        if self == Border::Constant || shown.size() == output {
            return;
        }
        let [x, y, width, height, columns, rows] =
            [shown.x, shown.y, shown.width, shown.height, output.width, output.height].map(|v| v as usize);
        let stride = columns * 3;
        for row in image.chunks_exact_mut(stride).skip(y).take(height) {
            let pixels = row.as_chunks_mut::<3>().0;
            (0..x).chain(x + width..columns).for_each(|at| pixels[at] = pixels[self.source(at, x, width)]);
        }
        for at in (0..y).chain(y + height..rows) {
            let from = self.source(at, y, height) * stride;
            image.copy_within(from..from + stride, at * stride);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part 1 to 4 of seven pixels, as `numpy.pad` continues it.
    #[test]
    fn a_border_repeats_the_pixels_of_numpy_pad() {
        let row = |border: Border| {
            let mut image: Vec<u8> = [0, 0, 1, 2, 3, 4, 0, 0].iter().flat_map(|v| [*v; 3]).collect();
            border.extend(&mut image, Rect::new(2, 0, 4, 1), Size::new(8, 1));
            image.as_chunks::<3>().0.iter().map(|v| v[0]).collect::<Vec<_>>()
        };
        assert_eq!(row(Border::Constant), [0, 0, 1, 2, 3, 4, 0, 0]);
        assert_eq!(row(Border::Edge), [1, 1, 1, 2, 3, 4, 4, 4]);
        assert_eq!(row(Border::Reflect), [3, 2, 1, 2, 3, 4, 3, 2]);
        assert_eq!(row(Border::Symmetric), [2, 1, 1, 2, 3, 4, 4, 3]);
    }
}
