use crate::decode::{Rect, Size};

/// Content of the border that [`Augment::random_crop`](crate::Augment::random_crop) adds around an
/// image before the crop, like torchvision's `padding_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Border {
    /// The [fill color](crate::Augment::fill).
    #[default]
    Constant,
    /// The nearest pixel at the edge of the image.
    Edge,
    /// The image mirrored at its edge, without repeating the edge pixels.
    Reflect,
    /// The image mirrored at its edge, with the edge pixels repeated.
    Symmetric,
}

impl Border {
    /// Returns the minimum number of pixels along an axis that an image needs for a border of
    /// `width` pixels.
    pub(super) fn min_image_side(self, width: u32) -> u64 {
        match self {
            Border::Constant | Border::Edge => 1,
            Border::Reflect => u64::from(width) + 1,
            Border::Symmetric => u64::from(width),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Border::Constant => "constant",
            Border::Edge => "edge",
            Border::Reflect => "reflect",
            Border::Symmetric => "symmetric",
        }
    }

    /// Returns the index of the pixel that is repeated at `index`. The image covers the indices
    /// `start..start + length`, which include the result.
    fn source_index(self, index: usize, start: usize, length: usize) -> usize {
        let end = start + length;
        let skipped_edge = usize::from(self == Border::Reflect);
        match self {
            _ if (start..end).contains(&index) => index,
            Border::Constant | Border::Edge => index.clamp(start, end - 1),
            Border::Reflect | Border::Symmetric if index < start => (2 * start + skipped_edge - index - 1).min(end - 1),
            Border::Reflect | Border::Symmetric => (2 * end - index - 1).saturating_sub(skipped_edge).max(start),
        }
    }

    /// Fills the border around `image_area`, an area of an RGB image of size `output`. A constant
    /// border is not written, because the resize fills it. Both ends of an axis are treated alike,
    /// so a flip before or after filling has the same result.
    pub(super) fn extend(self, image: &mut [u8], image_area: Rect, output: Size) {
        if self == Border::Constant || image_area.size() == output {
            return;
        }
        let [x, y, width, height, columns, rows] =
            [image_area.x, image_area.y, image_area.width, image_area.height, output.width, output.height]
                .map(|v| v as usize);
        let stride = columns * 3;
        for row in image.chunks_exact_mut(stride).skip(y).take(height) {
            let pixels = row.as_chunks_mut::<3>().0;
            (0..x)
                .chain(x + width..columns)
                .for_each(|column| pixels[column] = pixels[self.source_index(column, x, width)]);
        }
        for row in (0..y).chain(y + height..rows) {
            let source_start = self.source_index(row, y, height) * stride;
            image.copy_within(source_start..source_start + stride, row * stride);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_equal_numpy_pad() {
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
