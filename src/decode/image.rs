//! [`ImageCodec`]: decodes PNG, WebP, BMP, TIFF and GIF to RGB.
//!
//! Pixels are converted as in `torchvision.io.decode_image(mode="RGB")`: gray is repeated in three
//! channels, and alpha is dropped. There are three differences: the EXIF orientation is always
//! applied, an option can set a background color to blend transparent pixels with, and channels of
//! more than 8 bits are rejected unless an option allows the lossy conversion.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use warpfeed_jpeg::Orientation;
use warpfeed_sources::format::{self, Format};

use crate::decode::decoder::{BoxedDecoder, ChannelType, Decoder, OpenFn, OpenedImage, PixelFormat};
use crate::decode::formats;
use crate::decode::{FloatImage, Options};
use crate::error::{Error, Result, resize};

/// Minimum memory limit of a decoder in bytes, even if the limit on pixels is small.
const MIN_ALLOCATION_LIMIT: u64 = 64 << 20;

pub(super) const DECODERS: [(Format, OpenFn); 5] = [
    (format::PNG, formats::png),
    (format::WEBP, formats::webp),
    (format::GIF, formats::gif),
    (format::BMP, formats::bmp),
    (format::TIFF, formats::tiff),
];

#[derive(Debug, Clone)]
pub(super) struct ImageCodec {
    pub(super) format: Format,
    pub(super) open: OpenFn,
    /// `max_pixels` also limits the decoder's memory.
    pub(super) options: Options,
}

impl ImageCodec {
    pub(super) fn read_header<'a>(&self, bytes: &'a [u8]) -> Result<OpenedImage<'a>> {
        let decoder = match self.open_decoder(bytes) {
            Ok(decoder) => decoder,
            Err(e) => return self.read_map_header(bytes).ok_or(e),
        };
        let (stored_size, orientation) = (decoder.size(), Orientation::new(decoder.orientation()));
        let scratch_bytes = scratch_bytes(&*decoder, orientation);
        Ok(OpenedImage { decoder: Some(decoder), scratch_bytes, check_memory: 0, stored_size, orientation })
    }

    /// Opens a TIFF that only a dense map can read, such as a TIFF with six bands. The image can be
    /// checked for damage, but decoding it to RGB fails.
    fn read_map_header<'a>(&self, bytes: &'a [u8]) -> Option<OpenedImage<'a>> {
        let map = self.open_float_image(bytes)?;
        let check_memory = map.check_memory().max(1);
        let orientation = map.orientation().map_or(Orientation::default(), |turned| turned.orientation());
        Some(OpenedImage { decoder: None, scratch_bytes: 0, check_memory, stored_size: map.size(), orientation })
    }

    fn open_float_image<'a>(&self, bytes: &'a [u8]) -> Option<FloatImage<'a>> {
        if self.format.name == format::TIFF.name { FloatImage::open(bytes).ok() } else { None }
    }

    pub(super) fn decode<'a>(
        &self,
        bytes: &'a [u8],
        opened: &mut OpenedImage<'a>,
        options: Options,
        out: &mut [u8],
    ) -> Result<()> {
        let OpenedImage { decoder, stored_size, orientation, .. } = opened;
        let decoder = match decoder.take() {
            Some(decoder) => decoder,
            None => self.open_decoder(bytes).map_err(|e| {
                let hint =
                    if self.open_float_image(bytes).is_some() { "; field::DenseMap reads its values" } else { "" };
                Error::decode(format!("{}{hint}", e.cause()))
            })?,
        };
        let pixel_format = decoder.pixel_format();
        if !options.convert_to_u8 {
            self.check_channel_type(pixel_format.channel_type)?;
        }
        if pixel_format == PixelFormat::RGB8 && orientation.is_upright() {
            return self.read_image(bytes, decoder, out);
        }
        SCRATCH.with_borrow_mut(|[raw, rgb]| {
            let raw = first_bytes(raw, stored_size.area().saturating_mul(pixel_format.bytes_per_pixel()))?;
            self.read_image(bytes, decoder, raw)?;
            if orientation.is_upright() {
                options.convert(raw, pixel_format, out);
                return Ok(());
            }
            let rgb = first_bytes(rgb, stored_size.area() * 3)?;
            options.convert(raw, pixel_format, rgb);
            orientation.apply(rgb, *stored_size, out);
            Ok(())
        })
    }

    fn check_channel_type(&self, channel_type: ChannelType) -> Result<()> {
        let (kind, advice) = match channel_type {
            ChannelType::U8 => return Ok(()),
            ChannelType::U16 => ("16-bit", "keeps the upper 8 bits"),
            ChannelType::F32 => ("float", "maps the range 0 to 1 to 0 to 255"),
        };
        Err(Error::decode(format!(
            "a {kind} {} is not converted to 8 bits by default: field::DenseMap reads its values unchanged, \
             convert_to_u8(true) {advice}",
            self.format.name.to_uppercase()
        )))
    }

    fn open_decoder<'a>(&self, bytes: &'a [u8]) -> Result<BoxedDecoder<'a>> {
        (self.open)(bytes, allocation_limit(self.options.max_pixels)).map_err(|e| self.decode_error(bytes, &e))
    }

    /// Decodes the pixels, and turns a panic in the decoder into an error.
    fn read_image(&self, bytes: &[u8], decoder: BoxedDecoder<'_>, out: &mut [u8]) -> Result<()> {
        catch_unwind(AssertUnwindSafe(|| decoder.read(out)))
            .unwrap_or_else(|_| Err(format!("the {} decoder panicked", self.format.name)))
            .map_err(|e| self.decode_error(bytes, &e))
    }

    fn decode_error(&self, bytes: &[u8], e: &str) -> Error {
        Error::decode(format!("{} of {} bytes: {e}", self.format.name, bytes.len()))
    }
}

/// Returns the size of the buffers that [`ImageCodec::decode`] uses in addition to its output, in
/// bytes.
fn scratch_bytes(decoder: &dyn Decoder, orientation: Orientation) -> u64 {
    let (area, format) = (decoder.size().area(), decoder.pixel_format());
    let is_direct = format == PixelFormat::RGB8 && orientation.is_upright();
    let raw_bytes_per_pixel = if is_direct { 0 } else { format.bytes_per_pixel() };
    let turned_bytes_per_pixel = if orientation.is_upright() { 0 } else { 3 };
    area.saturating_mul(raw_bytes_per_pixel + turned_bytes_per_pixel).saturating_add(decoder.scratch_bytes())
}

/// Returns the memory limit of a decoder: eight bytes per pixel of the largest allowed image, but
/// at least [`MIN_ALLOCATION_LIMIT`].
pub(super) fn allocation_limit(max_pixels: u64) -> usize {
    let limit = max_pixels.saturating_mul(8).max(MIN_ALLOCATION_LIMIT);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Frees the scratch memory of the calling thread if it exceeds `max_bytes` bytes.
pub(super) fn trim_to(max_bytes: usize) {
    if SCRATCH.with_borrow(|scratch| scratch.iter().map(Vec::capacity).sum::<usize>()) > max_bytes {
        release();
    }
}

pub(super) fn release() {
    SCRATCH.take();
}

thread_local! {
    /// The output of the decoder, and RGB pixels before the EXIF orientation is applied.
    static SCRATCH: RefCell<[Vec<u8>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

fn first_bytes(buffer: &mut Vec<u8>, bytes: u64) -> Result<&mut [u8]> {
    let bytes = usize::try_from(bytes)
        .map_err(|_| Error::decode(format!("{bytes} bytes of pixels exceed the address space")))?;
    if buffer.len() < bytes {
        resize(buffer, bytes, 0);
    }
    Ok(&mut buffer[..bytes])
}

impl Options {
    fn convert(self, source: &[u8], pixel_format: PixelFormat, out: &mut [u8]) {
        match pixel_format.channel_type {
            ChannelType::U8 => self.convert_values(source, pixel_format.channels, out, |[value]: [u8; 1]| value),
            ChannelType::U16 => {
                self.convert_values(source, pixel_format.channels, out, |value| (u16::from_ne_bytes(value) >> 8) as u8)
            }
            ChannelType::F32 => self
                .convert_values(source, pixel_format.channels, out, |b| (f32::from_ne_bytes(b) * 255.0).round() as u8),
        }
    }

    /// Converts pixels with `channels` channels to RGB. `narrow` converts a value of `N` bytes to 8
    /// bits.
    fn convert_values<const N: usize>(
        self,
        source: &[u8],
        channels: u8,
        out: &mut [u8],
        narrow: impl Fn([u8; N]) -> u8,
    ) {
        let (source, target) = (source.as_chunks::<N>().0, out.as_chunks_mut().0);
        match channels {
            1 => source.iter().zip(target).for_each(|(&gray, target)| *target = [narrow(gray); 3]),
            2 => {
                let pixels = source.as_chunks().0.iter().zip(target);
                pixels.for_each(|(&[gray, alpha], out)| *out = self.blend([narrow(gray); 3], narrow(alpha)));
            }
            3 => source.as_chunks().0.iter().zip(target).for_each(|(pixel, target)| *target = pixel.map(&narrow)),
            _ => {
                let pixels = source.as_chunks().0.iter().zip(target);
                pixels.for_each(|(&[r, g, b, alpha], out)| *out = self.blend([r, g, b].map(&narrow), narrow(alpha)));
            }
        }
    }

    /// Blends a color with the background, and rounds like Pillow's `paste`. Without a background,
    /// returns the color unchanged.
    fn blend(self, color: [u8; 3], alpha: u8) -> [u8; 3] {
        let Some(background) = self.background else { return color };
        let alpha = u32::from(alpha);
        std::array::from_fn(|c| {
            let sum = u32::from(color[c]) * alpha + u32::from(background[c]) * (255 - alpha);
            ((sum + 127) / 255) as u8
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use image::{DynamicImage, ExtendedColorType, ImageEncoder, ImageFormat};

    use super::*;
    use crate::decode::{Codecs, Pixels, Rect, Size, standard};

    const W: u32 = 13;
    const H: u32 = 9;

    fn rgb() -> Vec<u8> {
        (0..H).flat_map(|y| (0..W).flat_map(move |x| [x * 19, y * 28, (x + y) * 11].map(|v| v as u8))).collect()
    }

    fn encode(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
        let mut out = Cursor::new(Vec::new());
        image.write_to(&mut out, format).unwrap();
        out.into_inner()
    }

    fn original() -> DynamicImage {
        image::RgbImage::from_raw(W, H, rgb()).unwrap().into()
    }

    fn decode(bytes: &[u8]) -> Result<Pixels> {
        decode_by(standard(), bytes)
    }

    fn decode_by(codecs: &Codecs, bytes: &[u8]) -> Result<Pixels> {
        let mut original = codecs.open(bytes)?;
        let size = original.size();
        let mut out = Pixels::new();
        original.decode(Rect::full(size), &mut out)?;
        assert_eq!(out.size(), size, "the size must equal the size in the header");
        Ok(out)
    }

    #[test]
    fn lossless_formats_round_trip() {
        for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp, ImageFormat::Tiff] {
            assert_eq!(decode(&encode(&original(), format)).unwrap().data(), rgb(), "{format:?}");
        }
    }

    #[test]
    fn gray_is_repeated_and_alpha_dropped() {
        let gray: Vec<u8> = (0..W * H).map(|v| v as u8 * 2).collect();
        let repeated: Vec<u8> = gray.iter().flat_map(|&v| [v; 3]).collect();
        let image = DynamicImage::from(image::GrayImage::from_raw(W, H, gray.clone()).unwrap());
        assert_eq!(decode(&encode(&image, ImageFormat::Png)).unwrap().data(), repeated);
        let with_alpha = gray.iter().flat_map(|&v| [v, 255 - v]).collect();
        let image = DynamicImage::from(image::GrayAlphaImage::from_raw(W, H, with_alpha).unwrap());
        assert_eq!(decode(&encode(&image, ImageFormat::Png)).unwrap().data(), repeated);
        let rgba = rgb().as_chunks::<3>().0.iter().enumerate().flat_map(|(i, p)| [p[0], p[1], p[2], i as u8]).collect();
        let image = DynamicImage::from(image::RgbaImage::from_raw(W, H, rgba).unwrap());
        assert_eq!(decode(&encode(&image, ImageFormat::Png)).unwrap().data(), rgb());
        assert_eq!(decode(&encode(&image, ImageFormat::WebP)).unwrap().data(), rgb());
    }

    #[test]
    fn transparent_pixels_are_blended_with_a_background() {
        let codecs = Codecs::new().background([200, 0, 255]);
        let rgba: Vec<u8> =
            rgb().as_chunks::<3>().0.iter().enumerate().flat_map(|(i, p)| [p[0], p[1], p[2], (i * 2) as u8]).collect();
        // This is the rounding of Pillow's `paste`.
        let blended = |value: u8, alpha: u8, under: u8| {
            let sum = u32::from(value) * u32::from(alpha) + u32::from(under) * u32::from(255 - alpha) + 128;
            ((sum + (sum >> 8)) >> 8) as u8
        };
        let expected: Vec<u8> = rgba
            .as_chunks::<4>()
            .0
            .iter()
            .flat_map(|p| [blended(p[0], p[3], 200), blended(p[1], p[3], 0), blended(p[2], p[3], 255)])
            .collect();
        let image = DynamicImage::from(image::RgbaImage::from_raw(W, H, rgba).unwrap());
        for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Tiff] {
            assert_eq!(decode_by(&codecs, &encode(&image, format)).unwrap().data(), expected, "{format:?}");
        }
        let gray = image::GrayAlphaImage::from_pixel(W, H, image::LumaA([90, 0]));
        let bytes = encode(&gray.into(), ImageFormat::Png);
        assert_eq!(decode_by(&codecs, &bytes).unwrap().data()[..3], [200, 0, 255]);
        assert_eq!(decode_by(&codecs, &encode(&original(), ImageFormat::Png)).unwrap().data(), rgb(), "without alpha");
    }

    #[test]
    fn deep_channels_fail_unless_converted() {
        let wide: Vec<u16> = rgb().iter().map(|&v| u16::from(v) << 8 | 0xc7).collect();
        let image = DynamicImage::from(image::ImageBuffer::<image::Rgb<u16>, _>::from_raw(W, H, wide).unwrap());
        let floats: Vec<f32> = rgb().iter().map(|&v| f32::from(v) / 255.0).collect();
        let floats = DynamicImage::from(image::Rgb32FImage::from_raw(W, H, floats).unwrap());
        let narrow = Codecs::new().convert_to_u8(true);
        for (image, format, error) in [
            (
                &image,
                ImageFormat::Png,
                "a 16-bit PNG is not converted to 8 bits by default: field::DenseMap reads its values unchanged, \
                 convert_to_u8(true) keeps the upper 8 bits",
            ),
            (
                &image,
                ImageFormat::Tiff,
                "a 16-bit TIFF is not converted to 8 bits by default: field::DenseMap reads its values unchanged, \
                 convert_to_u8(true) keeps the upper 8 bits",
            ),
            (
                &floats,
                ImageFormat::Tiff,
                "a float TIFF is not converted to 8 bits by default: field::DenseMap reads its values unchanged, \
                 convert_to_u8(true) maps the range 0 to 1 to 0 to 255",
            ),
        ] {
            let bytes = encode(image, format);
            assert_eq!(decode(&bytes).unwrap_err().cause(), error);
            assert!(
                matches!(crate::decode::check(&bytes), crate::decode::Condition::Sound),
                "an image with deep channels is not damaged"
            );
            assert_eq!(decode_by(&narrow, &bytes).unwrap().data(), rgb());
        }
        let gray: Vec<u16> = (0..(W * H) as u16).map(|v| v * 500).collect();
        let upper: Vec<u8> = gray.iter().flat_map(|&v| [(v >> 8) as u8; 3]).collect();
        let gray = DynamicImage::from(image::ImageBuffer::<image::Luma<u16>, _>::from_raw(W, H, gray).unwrap());
        let bytes = encode(&gray, ImageFormat::Png);
        assert!(decode(&bytes).is_err());
        assert_eq!(decode_by(&narrow, &bytes).unwrap().data(), upper);
    }

    #[test]
    fn gifs_decode_to_their_first_frame() {
        let frame = |value| image::Frame::new(image::RgbaImage::from_pixel(4, 4, image::Rgba([value, 0, 0, 255])));
        let mut bytes = Vec::new();
        image::codecs::gif::GifEncoder::new(&mut bytes).encode_frames([frame(200), frame(10)]).unwrap();
        assert_eq!(decode(&bytes).unwrap().data()[..3], [200, 0, 0]);
    }

    #[test]
    fn the_exif_orientation_is_applied() {
        // A little-endian TIFF directory with tag 274 (orientation) and the value 6: rotate by 90
        // degrees clockwise.
        let exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0".to_vec();
        let mut png = Vec::new();
        let mut encoder = image::codecs::png::PngEncoder::new(&mut png);
        encoder.set_exif_metadata(exif.clone()).unwrap();
        encoder.write_image(&rgb(), W, H, ExtendedColorType::Rgb8).unwrap();
        let out = decode(&png).unwrap();
        assert_eq!(out.size(), Size::new(H, W));
        assert_eq!(
            out.data()[..3],
            rgb()[(H as usize - 1) * W as usize * 3..][..3],
            "the upper left pixel must come from the lower left corner"
        );
        for prefix in [&b""[..], b"Exif\0\0"] {
            let mut webp = Vec::new();
            let mut encoder = image::codecs::webp::WebPEncoder::new_lossless(&mut webp);
            encoder.set_exif_metadata([prefix, &exif].concat()).unwrap();
            encoder.write_image(&rgb(), W, H, ExtendedColorType::Rgb8).unwrap();
            assert_eq!(decode(&webp).unwrap().data(), out.data(), "prefix {prefix:?}");
        }
        let mut jpeg = Vec::new();
        let mut encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut jpeg, 100);
        encoder.set_exif_metadata(exif).unwrap();
        encoder.write_image(&rgb(), W, H, ExtendedColorType::Rgb8).unwrap();
        assert_eq!(decode(&jpeg).unwrap().size(), Size::new(H, W));
    }

    #[test]
    fn headers_that_claim_too_many_pixels_fail() {
        let mut bmp = encode(&original(), ImageFormat::Bmp);
        bmp[18..22].copy_from_slice(&60_000u32.to_le_bytes());
        bmp[22..26].copy_from_slice(&60_000u32.to_le_bytes());
        let e = decode(&bmp).unwrap_err();
        assert_eq!(e.cause(), "bmp header claims 60000x60000 = 3600000000 pixels, but the limit is 268435456");
        let mut jpeg = encode(&original(), ImageFormat::Jpeg);
        let sof = jpeg.windows(2).position(|w| w == [0xff, 0xc0]).unwrap();
        jpeg[sof + 5..sof + 9].copy_from_slice(&[0xea, 0x60, 0xea, 0x60]);
        let e = decode(&jpeg).unwrap_err();
        assert!(e.cause().contains("60000x60000") && e.cause().contains("268435456"), "{e}");
        let png = encode(&original(), ImageFormat::Png);
        let codecs = Codecs::new().max_pixels(100);
        let small = codecs.open(&png).unwrap_err();
        assert_eq!(small.cause(), "png header claims 13x9 = 117 pixels, but the limit is 100");
    }

    #[test]
    fn errors_show_the_start_of_unknown_bytes() {
        assert_eq!(decode(b"").unwrap_err().cause(), "the image is empty (0 bytes)");
        assert_eq!(
            decode(b"hello, this is a text file\n").unwrap_err().cause(),
            "no known image format starts with \"hello, this is a\" (27 bytes in total)"
        );
    }

    #[test]
    fn panics_of_decoders_fail() {
        struct Panics;
        impl crate::decode::decoder::Decoder for Panics {
            fn size(&self) -> Size {
                Size::new(1, 1)
            }
            fn pixel_format(&self) -> PixelFormat {
                PixelFormat::RGB8
            }
            fn orientation(&self) -> u8 {
                1
            }
            fn read(self: Box<Self>, _: &mut [u8]) -> std::result::Result<(), String> {
                // Unlike `panic!`, this does not print a message.
                std::panic::resume_unwind(Box::new("out of bounds"));
            }
        }
        let image = ImageCodec { format: format::WEBP, open: |_, _| Ok(Box::new(Panics)), options: Options::default() };
        let e = decode_by(&Codecs::only(image), b"RIFF\0\0\0\0WEBP").unwrap_err();
        assert_eq!(e.cause(), "webp of 12 bytes: the webp decoder panicked");
    }

    #[test]
    fn truncated_files_fail() {
        for format in [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp, ImageFormat::Tiff] {
            let file = encode(&original(), format);
            let pixels = decode(&file).unwrap();
            for end in 0..file.len() - 1 {
                // The trailer contains no pixels.
                if let Ok(cut) = decode(&file[..end]) {
                    let trailer = [(ImageFormat::Png, 12), (ImageFormat::Jpeg, 2)]
                        .iter()
                        .any(|&(f, n)| f == format && end + n >= file.len());
                    assert!(trailer, "{format:?} cut at {end} of {}", file.len());
                    assert_eq!(cut.data(), pixels.data());
                }
            }
        }
        let jpeg = encode(&original(), ImageFormat::Jpeg);
        let e = decode(&jpeg[..jpeg.len() - 20]).unwrap_err();
        assert!(e.cause().starts_with(&format!("jpeg ends at byte {}", jpeg.len() - 20)), "{e}");
    }
}
