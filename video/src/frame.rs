//! [`Planes`] contains the samples of a decoded frame before the conversion to RGB.

/// How the planes of a frame are subsampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// The frame has luma and no chroma.
    Gray,
    /// Chroma has half the width and half the height.
    Yuv420,
    /// Like [`Yuv420`](Layout::Yuv420), but the second plane interleaves Cb and Cr, and the third
    /// plane is empty.
    Nv12,
    /// Chroma has half the width.
    Yuv422,
    /// Chroma is the same size as luma.
    Yuv444,
}

impl Layout {
    /// Returns the right shifts (x, y) that turn luma coordinates into chroma coordinates, or
    /// `None` if there is no chroma.
    pub fn shifts(self) -> Option<(u32, u32)> {
        match self {
            Layout::Gray => None,
            Layout::Yuv420 | Layout::Nv12 => Some((1, 1)),
            Layout::Yuv422 => Some((1, 0)),
            Layout::Yuv444 => Some((0, 0)),
        }
    }
}

/// How a frame's samples encode color.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Coding {
    /// The matrix coefficients as in ISO/IEC 23091-2, where 2 means unspecified.
    pub matrix: u16,
    /// True for full range, false for limited range. In 8-bit video, luma ranges from 0 to 255 in
    /// full range, and from 16 to 235 in limited range. More bits scale these ranges.
    pub is_full_range: bool,
    /// Number of bits per sample: 8, 10 or 12.
    pub bits: u8,
}

/// A row-major plane of samples.
#[derive(Debug, Clone, Copy)]
pub enum Plane<'a> {
    /// 8-bit samples, and the row stride in samples.
    Bits8(&'a [u8], usize),
    /// Samples of more than 8 bits, one per `u16`, and the row stride in samples.
    Bits16(&'a [u16], usize),
}

/// A decoded frame.
#[derive(Debug, Clone, Copy)]
pub struct Planes<'a> {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// How chroma is subsampled.
    pub layout: Layout,
    /// How the samples encode color.
    pub coding: Coding,
    /// Luma, Cb and Cr, or green, blue and red if the matrix is 0. In a gray frame, the chroma
    /// planes are empty. In [`Layout::Nv12`], the second plane contains Cb and Cr, and the third is
    /// empty.
    pub planes: [Plane<'a>; 3],
}

impl Planes<'_> {
    /// Returns the number of columns and rows of luma (0), Cb (1) or Cr (2).
    pub fn size(&self, plane: usize) -> (usize, usize) {
        if plane == 0 {
            return (self.width, self.height);
        }
        match self.layout.shifts() {
            Some((x, y)) => ((self.width + (1 << x) - 1) >> x, (self.height + (1 << y) - 1) >> y),
            None => (0, 0),
        }
    }

    /// Returns the sample at column `x` and row `y` of luma (0), Cb (1) or Cr (2). The position
    /// must be inside the plane; see [`size`](Planes::size). This method is slow, so use it only in
    /// tests and tools.
    ///
    /// # Panics
    /// May panic if the position is outside the plane. If it does not panic, it returns an
    /// unrelated sample.
    pub fn sample(&self, plane: usize, x: usize, y: usize) -> u16 {
        let (plane, x) = match (self.layout, plane) {
            (Layout::Nv12, 1 | 2) => (1, 2 * x + plane - 1),
            _ => (plane, x),
        };
        match self.planes[plane] {
            Plane::Bits8(samples, stride) => samples[y * stride + x].into(),
            Plane::Bits16(samples, stride) => samples[y * stride + x],
        }
    }
}
