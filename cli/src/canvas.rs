//! An RGB image that can be drawn on and encoded as PNG.

use png::{ColorType, Compression, Encoder, EncodingError, Filter};

pub(crate) type Color = [u8; 3];

pub(crate) struct Canvas {
    width: u32,
    pixels: Vec<Color>,
}

impl Canvas {
    pub(crate) fn new(width: u32, height: u32, color: Color) -> Self {
        Canvas { width, pixels: vec![color; width as usize * height as usize] }
    }

    pub(crate) fn width(&self) -> u32 {
        self.width
    }

    pub(crate) fn height(&self) -> u32 {
        (self.pixels.len() / self.width as usize) as u32
    }

    pub(crate) fn pixel(&mut self, x: u32, y: u32) -> &mut Color {
        debug_assert!(x < self.width, "x is outside the row");
        &mut self.pixels[y as usize * self.width as usize + x as usize]
    }

    pub(crate) fn png(&self) -> Result<Vec<u8>, EncodingError> {
        png(self.pixels.as_flattened(), (self.width, self.height()), ColorType::Rgb)
    }
}

pub(crate) fn png(pixels: &[u8], (width, height): (u32, u32), color: ColorType) -> Result<Vec<u8>, EncodingError> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, width, height);
    encoder.set_color(color);
    encoder.set_compression(Compression::Fast);
    encoder.set_filter(Filter::Adaptive);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(bytes)
}
