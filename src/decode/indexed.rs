//! Pictures of formats other than PNG as one number per pixel: the content of masks. A palette
//! gives its indices, as Pillow does, and grey its values. On request each pixel is its color.

use std::borrow::Cow;
use std::io::Cursor;

use image::ImageDecoder;
use image::codecs::bmp::BmpDecoder;

use super::standard::standard;
use super::{ONE_NUMBER, Pixels, Rect, Size, Stored};
use crate::error::{Error, Result, guarded};
use crate::format;

/// A picture whose header has been read.
pub(crate) struct Indexed<'a> {
    bytes: &'a [u8],
    form: Form<'a>,
    size: Size,
}

enum Form<'a> {
    /// Decoded as an image of RGB. Each pixel is its color, or one of three equal channels.
    Colors {
        colors: bool,
    },
    Gif(Box<gif::Decoder<Cursor<&'a [u8]>>>),
    Bmp(Box<BmpDecoder<Cursor<&'a [u8]>>>),
    /// A TIFF with values, or with its palette declared as grey.
    Tiff(Cow<'a, [u8]>),
}

impl<'a> Indexed<'a> {
    /// Whether `bytes` start like a picture of a known format.
    pub(crate) fn matches(bytes: &[u8]) -> bool {
        format::of(bytes).is_some()
    }

    /// Reads the header. With `colors`, each pixel is its color, red in the upper of 24 bits.
    ///
    /// # Errors
    /// If the header is damaged, or the format does not keep values.
    pub(crate) fn open(bytes: &'a [u8], colors: bool) -> Result<Self> {
        let is = |of: format::Format| (of.matches)(bytes);
        if is(format::JPEG) || (is(format::WEBP) && is_lossy(bytes)) {
            let name = if is(format::JPEG) { "jpeg" } else { "lossy webp" };
            return Err(Error::decode(format!("{name} does not keep the values of a mask; store it as PNG")));
        }
        let (form, size) = if colors || is(format::WEBP) {
            (Form::Colors { colors }, standard().open(bytes)?.size())
        } else if is(format::GIF) {
            let reader = gif::Decoder::new(Cursor::new(bytes)).map_err(gif_error)?;
            let size = Size::new(reader.width().into(), reader.height().into());
            (Form::Gif(Box::new(reader)), size)
        } else if is(format::BMP) {
            let mut reader = BmpDecoder::new(Cursor::new(bytes)).map_err(bmp_error)?;
            if reader.get_palette().is_none() {
                return Err(Error::decode(format!("bmp of RGB: {ONE_NUMBER}")));
            }
            // The decoder returns no indices of run lengths. Their compression is 1 or 2.
            if bytes.get(30..34).is_some_and(|compression| compression != [0; 4]) {
                return Err(Error::decode("bmp of run lengths: store the mask without compression, or as PNG"));
            }
            reader.set_indexed_color(true);
            let (width, height) = reader.dimensions();
            (Form::Bmp(Box::new(reader)), Size::new(width, height))
        } else if is(format::TIFF) {
            let grey = without_palette(bytes).map_or(Cow::Borrowed(bytes), Cow::Owned);
            let stored = Stored::open(&grey)?;
            let (channels, size) = (stored.channels(), stored.size());
            if channels != 1 {
                return Err(Error::decode(format!("tiff of {channels} channels: {ONE_NUMBER}")));
            }
            (Form::Tiff(grey), size)
        } else {
            let start = String::from_utf8_lossy(&bytes[..bytes.len().min(16)]);
            return Err(Error::decode(format!("begins with {start:?}, which is no format of masks")));
        };
        Ok(Indexed { bytes, form, size })
    }

    /// Size of the picture.
    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// Bytes of memory that [`read`](Indexed::read) takes, with the values.
    pub(crate) fn memory(&self) -> u64 {
        // The largest decoder holds eight bytes per pixel beside RGB, and a value takes four.
        self.size.area().saturating_mul(4 + 3 + 8).saturating_add(self.bytes.len() as u64)
    }

    /// Replaces the content of `to` by the values, row by row.
    ///
    /// # Errors
    /// If the data is damaged, or a pixel is not one number.
    pub(crate) fn read(self, to: &mut Vec<u32>) -> Result<()> {
        let Indexed { bytes, form, size } = self;
        let area = size.area() as usize;
        to.clear();
        match form {
            Form::Colors { colors } => {
                let (mut picture, mut pixels) = (standard().open(bytes)?, Pixels::new());
                picture.decode(Rect::full(size), &mut pixels)?;
                let color = |&[red, green, blue]: &[u8; 3]| u32::from_be_bytes([0, red, green, blue]);
                let all = pixels.data().as_chunks::<3>().0;
                if colors {
                    to.extend(all.iter().map(color));
                } else if let Some([red, green, blue]) = all.iter().find(|[r, g, b]| r != g || g != b) {
                    return Err(Error::decode(format!("a pixel of the color ({red}, {green}, {blue}): {ONE_NUMBER}")));
                } else {
                    to.extend(all.iter().map(|pixel| u32::from(pixel[0])));
                }
            }
            Form::Gif(mut reader) => {
                let frame = reader.read_next_frame().map_err(gif_error)?;
                let frame = frame.ok_or_else(|| Error::decode("gif: has no frame"))?;
                if (frame.left, frame.top) != (0, 0)
                    || (frame.width.into(), frame.height.into()) != (size.width, size.height)
                {
                    let Size { width, height } = size;
                    return Err(Error::decode(format!(
                        "gif: the first frame, of {}x{}, does not cover the picture of {width}x{height}",
                        frame.width, frame.height
                    )));
                }
                to.extend(frame.buffer.iter().map(|&index| u32::from(index)));
            }
            Form::Bmp(reader) => {
                let mut indices = vec![0; usize::try_from(reader.total_bytes()).unwrap_or(usize::MAX)];
                // Some damaged files may make the decoder panic.
                guarded(|| reader.read_image(&mut indices).map_err(bmp_error))?;
                to.extend(indices.into_iter().map(u32::from));
            }
            Form::Tiff(grey) => {
                let (mut values, stored) = (Vec::new(), Stored::open(&grey)?);
                guarded(|| stored.read(&mut values))?;
                if let Some(value) =
                    values.iter().find(|value| value.fract() != 0.0 || !(0.0..16_777_216.0).contains(*value))
                {
                    return Err(Error::decode(format!(
                        "tiff: the value {value}; a mask holds integers from 0 to 16777215"
                    )));
                }
                to.extend(values.into_iter().map(|value| value as u32));
            }
        }
        if to.len() != area {
            return Err(Error::decode(format!("{} pixels, its header claims {area}", to.len())));
        }
        Ok(())
    }
}

/// Whether a WebP has lossy pictures.
fn is_lossy(bytes: &[u8]) -> bool {
    let mut at = 12;
    while let Some(head) = bytes.get(at..at + 8) {
        match &head[..4] {
            b"VP8L" => return false,
            b"VP8 " => return true,
            // The first chunk of a frame's content follows its header of 16 bytes.
            b"ANMF" => at += 8 + 16,
            _ => {
                let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
                at = at.saturating_add(8).saturating_add(len.next_multiple_of(2));
            }
        }
    }
    false
}

/// A copy of a TIFF whose first page has a palette, with that page declared as grey, so that its
/// values are the indices. `None` for all others.
fn without_palette(bytes: &[u8]) -> Option<Vec<u8>> {
    const PHOTOMETRIC: u16 = 262;
    const PALETTE: u16 = 3;
    let little = bytes.starts_with(b"II*\0");
    if !little && !bytes.starts_with(b"MM\0*") {
        return None;
    }
    let short = |at: usize| {
        let bytes = *bytes.get(at..)?.first_chunk::<2>()?;
        Some(if little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    let first = *bytes.get(4..)?.first_chunk::<4>()?;
    let page = (if little { u32::from_le_bytes(first) } else { u32::from_be_bytes(first) }) as usize;
    let entries = usize::from(short(page)?);
    let entry = (0..entries).map(|entry| page + 2 + 12 * entry).find(|&at| short(at) == Some(PHOTOMETRIC))?;
    if short(entry + 8)? != PALETTE {
        return None;
    }
    let (mut grey, black_is_zero) = (bytes.to_vec(), 1_u16);
    let value = if little { black_is_zero.to_le_bytes() } else { black_is_zero.to_be_bytes() };
    grey[entry + 8..][..2].copy_from_slice(&value);
    Some(grey)
}

fn gif_error(e: gif::DecodingError) -> Error {
    Error::decode(format!("gif: {e}"))
}

fn bmp_error(e: image::ImageError) -> Error {
    Error::decode(format!("bmp: {e}"))
}
