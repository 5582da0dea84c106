//! Images of formats other than PNG as one number per pixel: the content of masks. A palette
//! gives its indices, as Pillow does, and gray its values. On request each pixel is its color.

use warpfeed_sources::format;

use super::decoder::{AnyDecoder, Open};
use super::formats;
use super::image::allocation;
use super::standard::standard;
use super::{ONE_NUMBER, Pixels, Rect, Size, Stored};
use crate::error::{Error, Result, guarded};

/// An image whose header has been read.
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
    Indices(AnyDecoder<'a>),
    /// A TIFF of gray with more than 8 bits.
    Values(Box<Stored<'a>>),
}

impl<'a> Indexed<'a> {
    /// Whether `bytes` start like an image of a known format.
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
        let readers: [(format::Format, Open); 3] =
            [(format::GIF, formats::gif), (format::BMP, formats::bmp), (format::TIFF, formats::tiff)];
        if colors || is(format::WEBP) {
            let size = standard().open(bytes)?.size();
            return Ok(Indexed { bytes, form: Form::Colors { colors }, size });
        }
        let Some((found, open)) = readers.into_iter().find(|(of, _)| (of.matches)(bytes)) else {
            let start = String::from_utf8_lossy(&bytes[..bytes.len().min(16)]);
            return Err(Error::decode(format!("begins with {start:?}, which is no format of masks")));
        };
        let name = found.name;
        let reader = match guarded(|| Ok(open(bytes, allocation(standard().most_pixels()))))? {
            Ok(reader) if reader.is_indexed() => {
                let size = reader.size();
                return Ok(Indexed { bytes, form: Form::Indices(reader), size });
            }
            reader => reader,
        };
        if !is(format::TIFF) {
            return Err(Error::decode(match reader {
                Ok(_) => format!("{name} of RGB: {ONE_NUMBER}"),
                Err(e) => format!("{name}: {e}"),
            }));
        }
        let stored = Stored::open(bytes)?;
        if stored.channels() != 1 {
            return Err(Error::decode(format!("tiff of {} channels: {ONE_NUMBER}", stored.channels())));
        }
        let size = stored.size();
        Ok(Indexed { bytes, form: Form::Values(Box::new(stored)), size })
    }

    /// Size of the image.
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
                let (mut image, mut pixels) = (standard().open(bytes)?, Pixels::new());
                image.decode(Rect::full(size), &mut pixels)?;
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
            Form::Indices(reader) => {
                let mut indices = vec![0; area];
                // A damaged file may make a decoder panic.
                guarded(|| reader.read_indices(&mut indices).map_err(Error::decode))?;
                to.extend(indices.into_iter().map(u32::from));
            }
            Form::Values(stored) => {
                let mut values = Vec::new();
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

/// Whether a WebP has lossy images.
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
