use crate::decode::Size;

/// A mutable view of one RGB image: `u8`, HWC, rows without padding, in the batch's image size.
#[derive(Debug)]
pub struct ImageMut<'a> {
    data: &'a mut [u8],
    size: Size,
}

impl<'a> ImageMut<'a> {
    /// Views `data` as an image.
    ///
    /// # Panics
    /// If `data` is not `width * height * 3` bytes long.
    pub fn new(data: &'a mut [u8], width: u32, height: u32) -> Self {
        let size = Size::new(width, height);
        assert_eq!(data.len() as u64, size.area() * 3, "bytes of a {width}x{height} RGB image");
        ImageMut { data, size }
    }

    /// Number of pixels in a row.
    pub fn width(&self) -> u32 {
        self.size.width
    }

    /// Number of rows.
    pub fn height(&self) -> u32 {
        self.size.height
    }

    /// Width and height.
    pub fn size(&self) -> Size {
        self.size
    }

    /// All bytes of the image, `height * width * 3`.
    pub fn data(&self) -> &[u8] {
        self.data
    }

    /// All bytes of the image, mutable.
    pub fn data_mut(&mut self) -> &mut [u8] {
        self.data
    }

    /// The pixels from left to right and top to bottom, each as red, green, blue.
    pub fn pixels_mut(&mut self) -> impl Iterator<Item = &mut [u8; 3]> {
        self.data.as_chunks_mut::<3>().0.iter_mut()
    }

    /// The rows from top to bottom, `width * 3` bytes each.
    pub fn rows_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.data.chunks_exact_mut(self.size.width as usize * 3)
    }
}
