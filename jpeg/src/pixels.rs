use crate::error::{Error, Result, resize};

/// A width and a height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Size {
    /// Number of columns.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
}

impl Size {
    /// Creates a size of `width` by `height` pixels.
    #[inline]
    pub fn new(width: u32, height: u32) -> Self {
        Size { width, height }
    }

    /// Returns the number of pixels.
    #[inline]
    pub fn area(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }
}

/// A rectangle of whole pixels. `x` increases to the right and `y` downward, from the upper left
/// corner of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rect {
    /// First column.
    pub x: u32,
    /// First row.
    pub y: u32,
    /// Number of columns.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
}

impl Rect {
    /// Creates the rectangle of `width` by `height` pixels with its upper left corner at (`x`,
    /// `y`).
    #[inline]
    pub fn new(x: u32, y: u32, width: u32, height: u32) -> Self {
        Rect { x, y, width, height }
    }

    /// Creates the rectangle that covers an image of `size`.
    #[inline]
    pub fn full(size: Size) -> Self {
        Rect { x: 0, y: 0, width: size.width, height: size.height }
    }

    /// Returns the smallest rectangle that contains both rectangles.
    #[inline]
    pub fn union(self, other: Rect) -> Self {
        let (x, y) = (self.x.min(other.x), self.y.min(other.y));
        let right = (self.x + self.width).max(other.x + other.width);
        let bottom = (self.y + self.height).max(other.y + other.height);
        Rect::new(x, y, right - x, bottom - y)
    }

    /// Returns the width and height.
    #[inline]
    pub fn size(self) -> Size {
        Size { width: self.width, height: self.height }
    }

    /// Checks that the rectangle is not empty and is inside an image of `size`.
    ///
    /// # Errors
    /// If the rectangle is empty or not inside the image.
    pub fn check_within(self, size: Size) -> Result<()> {
        if self.is_within(size) {
            return Ok(());
        }
        let Rect { x, y, width, height } = self;
        let cause = match width == 0 || height == 0 {
            true => "is empty: expected at least 1x1".to_owned(),
            false => format!("is not inside an image of {}x{}", size.width, size.height),
        };
        Err(Error::new(format!("a region of {width}x{height} at ({x}, {y}) {cause}")))
    }

    /// Returns whether the rectangle is not empty and is inside an image of `size`.
    #[inline]
    pub fn is_within(self, size: Size) -> bool {
        self.width > 0
            && self.height > 0
            && u64::from(self.x) + u64::from(self.width) <= u64::from(size.width)
            && u64::from(self.y) + u64::from(self.height) <= u64::from(size.height)
    }
}

/// Decoded RGB pixels: `u8` in HWC order, without padding between rows.
///
/// The pixels may cover only a part of the image; see [`origin`](Pixels::origin).
#[derive(Debug, Default, Clone)]
pub struct Pixels {
    data: Vec<u8>,
    width: u32,
    height: u32,
    origin: (u32, u32),
    damage: Option<String>,
}

impl Pixels {
    /// Creates an empty buffer.
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// Resizes the buffer to `size` pixels and returns it, with unspecified values. Resets the origin
    /// and the damage.
    ///
    /// # Panics
    /// If the allocation fails. The panic payload is an [`Error`].
    pub fn reset(&mut self, size: Size) -> &mut [u8] {
        let bytes = size.area() as usize * 3;
        if self.data.len() < bytes {
            // Growing the old buffer would copy bytes that are never read, and briefly allocate
            // both buffers.
            self.data = Vec::new();
            resize(&mut self.data, bytes, 0);
        }
        (self.width, self.height, self.origin) = (size.width, size.height, (0, 0));
        self.damage = None;
        &mut self.data[..bytes]
    }

    /// Describes the first damage that the decoder noticed and tolerated, as libjpeg does.
    ///
    /// Decoding reads only the data that the region needs, so damage elsewhere in the file may
    /// remain undetected. [`Decoder::damage`](crate::Decoder::damage) reads the whole file.
    #[inline]
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    pub(crate) fn set_damage(&mut self, damage: Option<String>) {
        self.damage = damage;
    }

    /// Sets the [`origin`](Pixels::origin): the first stored pixel is at column `x` and row `y` of
    /// the image.
    #[inline]
    pub fn set_origin(&mut self, x: u32, y: u32) {
        self.origin = (x, y);
    }

    /// Frees the memory.
    pub fn release(&mut self) {
        *self = Pixels::default();
    }

    /// Returns the number of allocated bytes.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.data.capacity()
    }

    /// Returns the size of the stored area.
    #[inline]
    pub fn size(&self) -> Size {
        Size { width: self.width, height: self.height }
    }

    /// Returns the position of the first stored pixel in the image, as column and row.
    #[inline]
    pub fn origin(&self) -> (u32, u32) {
        self.origin
    }

    /// Returns the stored pixels, which have `height * width * 3` bytes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        &self.data[..self.size().area() as usize * 3]
    }

    /// Like [`data`](Pixels::data), but mutable.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let bytes = self.size().area() as usize * 3;
        &mut self.data[..bytes]
    }

    /// Converts `region` from pixels of the image to pixels of the stored area.
    ///
    /// # Errors
    /// If the stored area does not cover the region, which is a bug in the codec.
    pub fn locate(&self, region: Rect) -> Result<Rect> {
        let Rect { x, y, width, height } = region;
        let (ox, oy) = self.origin;
        if x < ox || y < oy || x + width > ox + self.width || y + height > oy + self.height {
            return Err(Error::new(format!(
                "the codec delivered {}x{} pixels from ({ox}, {oy}), which do not cover the region {width}x{height} at ({x}, {y})",
                self.width, self.height,
            )));
        }
        Ok(Rect::new(x - ox, y - oy, width, height))
    }
}
