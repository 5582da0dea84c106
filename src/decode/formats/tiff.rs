//! Decodes the first page of a TIFF to pixels.

use crate::decode::Size;
use crate::decode::decoder::{BoxedDecoder, ChannelType, Decoder, PixelFormat};
use crate::decode::tiff::{ExtraSamples, Photometric, SampleFormat, Tiff};

struct TiffPage<'a> {
    tiff: Tiff<'a>,
    pixel_format: PixelFormat,
    /// The colors of the palette. Empty if the image has no palette.
    palette: Vec<[u8; 3]>,
}

pub(in crate::decode) fn open(bytes: &[u8], limit: usize) -> Result<BoxedDecoder<'_>, String> {
    let tiff = Tiff::open(bytes)?;
    let channel_type = match (tiff.bits, tiff.sample_format) {
        (1 | 2 | 4 | 8, SampleFormat::Unsigned) => Some(ChannelType::U8),
        (16, SampleFormat::Unsigned) => Some(ChannelType::U16),
        (32, SampleFormat::Float) => Some(ChannelType::F32),
        _ => None,
    };
    let alpha = u8::from(matches!(tiff.extra_samples, ExtraSamples::Associated | ExtraSamples::Unassociated));
    let channels = match (tiff.photometric, tiff.channels) {
        (Photometric::Gray | Photometric::Inverted, 1) => Some(1),
        (Photometric::Gray | Photometric::Inverted, 2) if alpha == 1 && tiff.bits >= 8 => Some(2),
        (Photometric::Rgb, 3) => Some(3),
        // Like Pillow, drop unspecified channels.
        (Photometric::Rgb, 4..) if tiff.extra_samples != ExtraSamples::None => Some(3 + alpha),
        (Photometric::YCbCr, 3) if tiff.converts_ycbcr() => Some(3),
        (Photometric::Palette, 1) if channel_type == Some(ChannelType::U8) => Some(3),
        (Photometric::Cmyk, 4..) if channel_type != Some(ChannelType::F32) && tiff.bits >= 8 => Some(3),
        _ => None,
    };
    let Some((channel_type, channels)) = channel_type.zip(channels) else {
        return Err(format!("{} cannot be read as an image", tiff.description()));
    };
    let max_chunk_bytes = tiff.max_chunk_bytes();
    if max_chunk_bytes > limit as u64 {
        return Err(format!("the header claims a strip or tile of {max_chunk_bytes} bytes, but the limit is {limit}"));
    }
    let palette = if tiff.photometric == Photometric::Palette { tiff.palette()? } else { Vec::new() };
    Ok(Box::new(TiffPage { tiff, pixel_format: PixelFormat { channels, channel_type }, palette }))
}

impl Decoder for TiffPage<'_> {
    fn size(&self) -> Size {
        self.tiff.size
    }

    fn pixel_format(&self) -> PixelFormat {
        self.pixel_format
    }

    /// The buffers are a decoded strip or tile, its values if they have fewer than 8 bits, and the
    /// inks of a CMYK image.
    fn scratch_bytes(&self) -> u64 {
        let ink_bytes = match self.tiff.photometric {
            Photometric::Cmyk => self.tiff.size.area().saturating_mul(4 * self.tiff.value_bytes() as u64),
            _ => 0,
        };
        self.tiff.max_chunk_bytes().saturating_add(self.tiff.max_widened_bytes()).saturating_add(ink_bytes)
    }

    fn orientation(&self) -> u8 {
        self.tiff.orientation
    }

    fn read(self: Box<Self>, out: &mut [u8]) -> Result<(), String> {
        let TiffPage { tiff, pixel_format, palette } = *self;
        match tiff.photometric {
            Photometric::Palette => {
                let pixels = tiff.size.area() as usize;
                tiff.read(1, &mut out[..pixels])?;
                // Expand in place, from the last pixel to the first.
                for i in (0..pixels).rev() {
                    let color = palette[usize::from(out[i])];
                    out[3 * i..3 * i + 3].copy_from_slice(&color);
                }
            }
            Photometric::Cmyk => {
                let mut inks = vec![0; out.len() / 3 * 4];
                tiff.read(4, &mut inks)?;
                match pixel_format.channel_type {
                    ChannelType::U8 => {
                        let pixels = out.as_chunks_mut().0.iter_mut().zip(inks.as_chunks().0);
                        pixels.for_each(|(rgb, cmyk)| {
                            *rgb = cmyk_to_rgb(cmyk.map(u32::from), 255).map(|value| value as u8)
                        });
                    }
                    _ => {
                        let pixels = out.as_chunks_mut::<6>().0.iter_mut().zip(inks.as_chunks::<8>().0);
                        for (rgb, cmyk) in pixels {
                            let cmyk = [0, 2, 4, 6].map(|i| u16::from_ne_bytes([cmyk[i], cmyk[i + 1]]).into());
                            let values = cmyk_to_rgb(cmyk, 65535).map(|value| (value as u16).to_ne_bytes());
                            rgb.copy_from_slice(values.as_flattened());
                        }
                    }
                }
            }
            _ => {
                tiff.read(pixel_format.channels.into(), out)?;
                if tiff.bits < 8 {
                    let white = (1u8 << tiff.bits) - 1;
                    out.iter_mut().for_each(|value| *value *= 255 / white);
                }
                if tiff.photometric == Photometric::Inverted {
                    invert(pixel_format, out);
                }
                if tiff.extra_samples == ExtraSamples::Associated {
                    unpremultiply(pixel_format, out);
                }
            }
        }
        Ok(())
    }

    fn is_indexed(&self) -> bool {
        let is_single =
            matches!(self.tiff.photometric, Photometric::Palette | Photometric::Gray | Photometric::Inverted);
        is_single && self.tiff.channels == 1 && self.pixel_format.channel_type == ChannelType::U8
    }

    fn read_indices(self: Box<Self>, out: &mut [u8]) -> Result<(), String> {
        self.tiff.read(1, out)?;
        if self.tiff.photometric == Photometric::Inverted {
            let white = 255 >> (8 - self.tiff.bits);
            out.iter_mut().for_each(|value| *value = white - *value);
        }
        Ok(())
    }
}

/// Converts CMYK values from 0 to `white` with the formula of Pillow's `convert("RGB")`: each color
/// is `light - round(ink * light / white)`, where `light = white - black`. Pillow converts only
/// 8-bit values, for which `white` is 255.
fn cmyk_to_rgb([cyan, magenta, yellow, black]: [u32; 4], white: u32) -> [u32; 3] {
    let light = white - black;
    [cyan, magenta, yellow]
        .map(|ink| light - ((u64::from(ink) * u64::from(light) + u64::from(white) / 2) / u64::from(white)) as u32)
}

fn invert(pixel_format: PixelFormat, out: &mut [u8]) {
    let value_bytes = (pixel_format.bytes_per_pixel() / u64::from(pixel_format.channels)) as usize;
    for pixel in out.chunks_exact_mut(pixel_format.bytes_per_pixel() as usize) {
        let gray = &mut pixel[..value_bytes];
        match pixel_format.channel_type {
            ChannelType::U8 | ChannelType::U16 => gray.iter_mut().for_each(|byte| *byte = !*byte),
            ChannelType::F32 => {
                let value = 1.0 - f32::from_ne_bytes([gray[0], gray[1], gray[2], gray[3]]);
                gray.copy_from_slice(&value.to_ne_bytes());
            }
        }
    }
}

/// Divides premultiplied colors by alpha. Integers are rounded down, as in Pillow. If alpha is 0,
/// the colors become 0.
fn unpremultiply(pixel_format: PixelFormat, out: &mut [u8]) {
    let colors = usize::from(pixel_format.channels) - 1;
    match pixel_format.channel_type {
        ChannelType::U8 => {
            for pixel in out.chunks_exact_mut(colors + 1) {
                let alpha = u32::from(pixel[colors]);
                let divided = |value: u8| (u32::from(value) * 255).checked_div(alpha).unwrap_or(0).min(255) as u8;
                pixel[..colors].iter_mut().for_each(|value| *value = divided(*value));
            }
        }
        ChannelType::U16 => {
            for pixel in out.chunks_exact_mut(2 * (colors + 1)) {
                let alpha = u64::from(u16::from_ne_bytes([pixel[2 * colors], pixel[2 * colors + 1]]));
                for value in pixel[..2 * colors].as_chunks_mut().0 {
                    let numerator = u64::from(u16::from_ne_bytes(*value)) * 65535;
                    *value = (numerator.checked_div(alpha).unwrap_or(0).min(65535) as u16).to_ne_bytes();
                }
            }
        }
        ChannelType::F32 => {
            for pixel in out.as_chunks_mut::<4>().0.chunks_exact_mut(colors + 1) {
                let alpha = f32::from_ne_bytes(pixel[colors]);
                let divided = |value| if alpha > 0.0 { f32::from_ne_bytes(value) / alpha } else { 0.0 };
                pixel[..colors].iter_mut().for_each(|value| *value = divided(*value).to_ne_bytes());
            }
        }
    }
}
