use crate::decode::{Rect, Size};
use crate::error::Result;

/// A mutable view of an RGB image in `u8` HWC, without padding between rows.
#[derive(Debug)]
pub struct ImageMut<'a> {
    data: &'a mut [u8],
    size: Size,
}

impl<'a> ImageMut<'a> {
    /// Creates a view of `data` as an image.
    ///
    /// # Panics
    /// If `data` is not `width * height * 3` bytes long.
    pub fn new(data: &'a mut [u8], width: u32, height: u32) -> Self {
        let size = Size::new(width, height);
        assert_eq!(data.len() as u64, size.area() * 3, "`data` must have the length of a {width}x{height} RGB image");
        ImageMut { data, size }
    }

    /// Returns the number of pixels per row.
    pub fn width(&self) -> u32 {
        self.size.width
    }

    /// Returns the number of rows.
    pub fn height(&self) -> u32 {
        self.size.height
    }

    /// Returns the width and height.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns the `height * width * 3` bytes of the image.
    pub fn data(&self) -> &[u8] {
        self.data
    }

    /// Returns the `height * width * 3` bytes of the image, mutably.
    pub fn data_mut(&mut self) -> &mut [u8] {
        self.data
    }

    /// Returns the pixels from left to right and top to bottom, each as red, green and blue.
    pub fn pixels_mut(&mut self) -> impl Iterator<Item = &mut [u8; 3]> {
        self.data.as_chunks_mut::<3>().0.iter_mut()
    }

    /// Returns the rows from top to bottom, each with `width * 3` bytes.
    ///
    /// # Panics
    /// If the width is 0.
    pub fn rows_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.data.chunks_exact_mut(self.size.width as usize * 3)
    }

    /// Calls `edit` on the area `area`, which must be inside the image. Unless the area is the
    /// whole image, `edit` receives a copy in `buffer`, which is copied back if `edit` succeeds.
    /// `buffer` must have at least 3 bytes for each pixel of the area.
    pub(crate) fn edit_area(
        &mut self,
        area: Rect,
        buffer: &mut [u8],
        edit: impl FnOnce(&mut ImageMut<'_>) -> Result<()>,
    ) -> Result<()> {
        if area == Rect::full(self.size) {
            return edit(self);
        }
        let (y, left, row_bytes) = (area.y as usize, area.x as usize * 3, area.width as usize * 3);
        let buffer = &mut buffer[..area.size().area() as usize * 3];
        for (to, from) in buffer.chunks_exact_mut(row_bytes).zip(self.rows_mut().skip(y)) {
            to.copy_from_slice(&from[left..][..row_bytes]);
        }
        edit(&mut ImageMut::new(buffer, area.width, area.height))?;
        for (from, to) in buffer.chunks_exact(row_bytes).zip(self.rows_mut().skip(y)) {
            to[left..][..row_bytes].copy_from_slice(from);
        }
        Ok(())
    }
}
