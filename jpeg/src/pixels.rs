use crate::error::{Error, Result, resize};

/// A width and a height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Size {
    /// Number of pixels in a row.
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

    /// Number of pixels.
    #[inline]
    pub fn area(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }
}

/// A rectangle of whole pixels, `x` to the right and `y` down from the upper left corner.
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
    /// Creates the rectangle with its upper left corner at (`x`, `y`).
    #[inline]
    pub fn new(x: u32, y: u32, width: u32, height: u32) -> Self {
        Rect { x, y, width, height }
    }

    /// The whole of an image of `size`.
    #[inline]
    pub fn full(size: Size) -> Self {
        Rect { x: 0, y: 0, width: size.width, height: size.height }
    }

    /// The smallest rectangle that contains both.
    #[inline]
    pub fn around(self, other: Rect) -> Self {
        let (x, y) = (self.x.min(other.x), self.y.min(other.y));
        let right = (self.x + self.width).max(other.x + other.width);
        let bottom = (self.y + self.height).max(other.y + other.height);
        Rect::new(x, y, right - x, bottom - y)
    }

    /// Width and height.
    #[inline]
    pub fn size(self) -> Size {
        Size { width: self.width, height: self.height }
    }

    /// Returns an error that names both, unless the rectangle is non-empty and lies inside an
    /// image of `size`.
    ///
    /// # Errors
    /// If it does not.
    pub fn within(self, size: Size) -> Result<()> {
        if self.fits(size) {
            return Ok(());
        }
        let Rect { x, y, width, height } = self;
        Err(Error::new(format!(
            "a region of {width}x{height} at ({x}, {y}) is not inside an image of {}x{}",
            size.width, size.height
        )))
    }

    /// Whether `self` is non-empty and lies inside an image of `size`.
    #[inline]
    pub fn fits(self, size: Size) -> bool {
        self.width > 0
            && self.height > 0
            && u64::from(self.x) + u64::from(self.width) <= u64::from(size.width)
            && u64::from(self.y) + u64::from(self.height) <= u64::from(size.height)
    }
}

/// Decoded RGB pixels: `u8`, HWC, rows without padding. The memory is reused from sample to sample.
/// A loader frees it after an unusually large image.
///
/// The pixels may be only a part of the image; see [`origin`](Pixels::origin).
#[derive(Debug, Default, Clone)]
pub struct Pixels {
    data: Vec<u8>,
    width: u32,
    height: u32,
    origin: (u32, u32),
    /// Damage that the decoder tolerated.
    damage: Option<String>,
}

impl Pixels {
    /// Creates an empty buffer.
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// Allocates `size` pixels and returns them for writing. They contain old values; overwrite all
    /// of them.
    ///
    /// # Panics
    /// If there is no memory, with an [`Error`]. In a loader it becomes an error of the sample.
    pub fn reset(&mut self, size: Size) -> &mut [u8] {
        let bytes = size.area() as usize * 3;
        if self.data.len() < bytes {
            // Growing the vector would copy bytes that are never read, and might allocate twice the
            // memory that is needed.
            self.data = Vec::new();
            resize(&mut self.data, bytes, 0);
        }
        (self.width, self.height, self.origin) = (size.width, size.height, (0, 0));
        self.damage = None;
        &mut self.data[..bytes]
    }

    /// Damage that the decoder met and tolerated, as libjpeg does, with its place in the file.
    /// `None` if it met none.
    ///
    /// Decoding reads only what the region needs, so a crop may miss damage elsewhere in the file.
    /// A check of the whole file ([`Decoder::damage`](crate::Decoder::damage)) reads all of it.
    #[inline]
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Sets the damage that was tolerated.
    pub(crate) fn damaged(&mut self, damage: Option<String>) {
        self.damage = damage;
    }

    /// Sets the position of the first pixel: column `x`, row `y` of the image.
    #[inline]
    pub fn place(&mut self, x: u32, y: u32) {
        self.origin = (x, y);
    }

    /// Frees the memory and drops the pixels.
    pub fn release(&mut self) {
        *self = Pixels::default();
    }

    /// Number of bytes allocated.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.data.capacity()
    }

    /// Size of the stored part.
    #[inline]
    pub fn size(&self) -> Size {
        Size { width: self.width, height: self.height }
    }

    /// Position of the first stored pixel in the image, as column and row.
    #[inline]
    pub fn origin(&self) -> (u32, u32) {
        self.origin
    }

    /// The stored pixels, `height * width * 3` bytes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        &self.data[..self.size().area() as usize * 3]
    }

    /// The stored pixels, mutable.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let bytes = self.size().area() as usize * 3;
        &mut self.data[..bytes]
    }

    /// Converts `region` from pixels of the image to pixels of the stored part.
    ///
    /// # Errors
    /// If the stored part does not cover the region, which is a bug in the codec.
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
