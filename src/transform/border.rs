use crate::decode::{Rect, Size};

/// Content of the border around a randomly cropped image: torchvision's `padding_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Border {
    /// The [fill color](crate::Augment::fill).
    #[default]
    Constant,
    /// The pixel at the image's edge.
    Edge,
    /// The image mirrored at its edge, without repeating the edge pixels.
    Reflect,
    /// The image mirrored at its edge, with the edge pixels repeated.
    Symmetric,
}

impl Border {
    /// Returns how many pixels the image must have along an axis to fill a border of `width`
    /// pixels.
    pub(super) fn needs(self, width: u32) -> u64 {
        match self {
            Border::Constant | Border::Edge => 1,
            Border::Reflect => u64::from(width) + 1,
            Border::Symmetric => u64::from(width),
        }
    }

    /// Returns the name of the setting in error messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Border::Constant => "constant",
            Border::Edge => "edge",
            Border::Reflect => "reflect",
            Border::Symmetric => "symmetric",
        }
    }

    /// Returns the position inside `start..start + length` whose pixel is repeated at position
    /// `at`.
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

    /// Extends the content of the area `shown` to the edges of an RGB image of size `output`. A
    /// flipped image needs no special case. Where the area does not reach the edge of the image, it
    /// ends at an edge of the source image, and extending it from there gives the same result if
    /// the image is flipped first.
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

    /// Extends the pixels 1 to 4 of seven pixels, and compares the result with that of `numpy.pad`.
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
