//! Decodes the first frame of a GIF with the `gif` crate, and draws the frame on a canvas as Pillow
//! does.

use std::num::NonZeroU64;

use gif::{ColorOutput, DecodeOptions, MemoryLimit};

use crate::decode::Size;
use crate::decode::decoder::{BoxedDecoder, Decoder, PixelFormat};

struct Gif<'a> {
    decoder: gif::Decoder<&'a [u8]>,
    left: usize,
    top: usize,
    frame_size: Size,
    canvas_size: Size,
    transparent_index: Option<u8>,
}

pub(in crate::decode) fn open(bytes: &[u8], limit: usize) -> Result<BoxedDecoder<'_>, String> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    options.set_memory_limit(NonZeroU64::new(limit as u64).map_or(MemoryLimit::Unlimited, MemoryLimit::Bytes));
    let mut decoder = options.read_info(bytes).map_err(|e| e.to_string())?;
    let screen = Size::new(decoder.width().into(), decoder.height().into());
    let frame = decoder.next_frame_info().map_err(|e| e.to_string())?.ok_or("no frame before the end of the file")?;
    let (left, top) = (u32::from(frame.left), u32::from(frame.top));
    let (frame_size, transparent_index) = (Size::new(frame.width.into(), frame.height.into()), frame.transparent);
    // The frame may extend beyond the canvas size in the header.
    let canvas_size = Size::new(screen.width.max(left + frame_size.width), screen.height.max(top + frame_size.height));
    Ok(Box::new(Gif { decoder, left: left as usize, top: top as usize, frame_size, canvas_size, transparent_index }))
}

impl Decoder for Gif<'_> {
    fn size(&self) -> Size {
        self.canvas_size
    }

    fn pixel_format(&self) -> PixelFormat {
        PixelFormat::of_8_bits(if self.transparent_index.is_some() { 4 } else { 3 })
    }

    fn orientation(&self) -> u8 {
        1
    }

    /// Draws the first frame. Transparent pixels have the palette color of their index. Pixels
    /// outside the frame have the transparent index, or the index 0 if there is no transparent
    /// index.
    fn read(mut self: Box<Self>, out: &mut [u8]) -> Result<(), String> {
        let channels = usize::from(self.pixel_format().channels);
        let indices = self.read_canvas()?;
        let palette = self.decoder.palette().map_err(|e| e.to_string())?.as_chunks::<3>().0;
        for (out, index) in out.chunks_exact_mut(channels).zip(indices) {
            // As in Pillow, an index outside the palette is a gray value.
            let [red, green, blue] = palette.get(usize::from(index)).copied().unwrap_or([index; 3]);
            let alpha = if Some(index) == self.transparent_index { 0 } else { 255 };
            out.copy_from_slice(&[red, green, blue, alpha][..channels]);
        }
        Ok(())
    }

    fn is_indexed(&self) -> bool {
        true
    }

    fn read_indices(mut self: Box<Self>, out: &mut [u8]) -> Result<(), String> {
        out.copy_from_slice(&self.read_canvas()?);
        Ok(())
    }
}

impl Gif<'_> {
    fn read_canvas(&mut self) -> Result<Vec<u8>, String> {
        let mut frame = vec![0; self.frame_size.area() as usize];
        self.decoder.read_into_buffer(&mut frame).map_err(|e| e.to_string())?;
        if self.frame_size == self.canvas_size {
            return Ok(frame);
        }
        let (width, frame_width) = (self.canvas_size.width as usize, self.frame_size.width as usize);
        let mut canvas = vec![self.transparent_index.unwrap_or(0); self.canvas_size.area() as usize];
        for (y, row) in frame.chunks_exact(frame_width.max(1)).enumerate() {
            canvas[(self.top + y) * width + self.left..][..frame_width].copy_from_slice(row);
        }
        Ok(canvas)
    }
}
