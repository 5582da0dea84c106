//! Reads unencoded pixels. They take more space than encoded images, but reading them is only a
//! copy.
//!
//! The pixels are `u8` RGB in HWC order, without padding between rows. There are two formats:
//!
//! - An `.npy` file ([NumPy's format 1.0 to
//!   3.0](https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html)) in C order, with
//!   the shape (height, width, 3) and the type `|u1`. `numpy.save` writes such a file for a
//!   C-contiguous array, and `warpfeed pack --raw` writes such files to the `rgb.npy` field. In
//!   Python, read this field with `numpy.load(io.BytesIO(value))`.
//! - Pixels without a header, if all images have the same size. See [`RawRgb`].

use warpfeed_sources::format::{self, Format};

use crate::decode::{Codec, EncodedImage, Pixels, Rect, Size};
use crate::error::{Error, Result};
use crate::source::Npy as NpyFile;

/// Length of [`npy_header`] in bytes. NumPy aligns the data to 64 bytes, so the length is a
/// multiple of 64.
const HEADER_BYTES: usize = 128;

/// Returns the header of an `.npy` file of `u8` pixels of shape (height, width, 3). The pixels
/// follow directly after the header.
pub fn npy_header(size: Size) -> [u8; HEADER_BYTES] {
    let mut header = [b' '; HEADER_BYTES];
    let Size { width, height } = size;
    let text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({height}, {width}, 3), }}");
    header[..6].copy_from_slice(b"\x93NUMPY");
    header[6..10].copy_from_slice(&[1, 0, (HEADER_BYTES - 10) as u8, 0]);
    header[10..10 + text.len()].copy_from_slice(text.as_bytes());
    header[HEADER_BYTES - 1] = b'\n';
    header
}

fn read_npy_size(bytes: &[u8]) -> Result<Size> {
    let npy = NpyFile::read(bytes)?;
    let size = match npy.shape.as_deref() {
        Some([height, width, 3]) if (npy.kind, npy.item_size, npy.fortran_order) == (b'u', 1, false) => {
            u32::try_from(*width).ok().zip(u32::try_from(*height).ok())
        }
        _ => None,
    };
    let (width, height) = size.ok_or_else(|| not_an_image(&npy))?;
    let size = Size::new(width, height);
    check_length("npy", npy.data, size, npy.data_offset).map(|()| size)
}

fn not_an_image(npy: &NpyFile<'_>) -> Error {
    let element = match npy.kind {
        b'f' => Some("float"),
        b'i' => Some("int"),
        b'u' => Some("uint"),
        _ => None,
    };
    let description = match element.zip(npy.shape.as_ref()) {
        Some((element, shape)) => {
            let axes: Vec<_> = shape.iter().map(usize::to_string).collect();
            let order = if npy.fortran_order { " in Fortran order" } else { "" };
            format!("type {element}{} and shape ({}){order}", npy.item_size.saturating_mul(8), axes.join(", "))
        }
        None => npy.header_for_message(),
    };
    let advice = match (npy.kind, npy.shape.as_deref()) {
        (b'f', _) => "multiply values from 0 to 1 by 255 and convert them to uint8",
        (b'u', Some([3, _, _])) => "move the channels to the last axis",
        _ => "convert the array",
    };
    Error::decode(format!(
        "the image is an array of {description}: expected uint8 and (height, width, 3) in C order; {advice}, or read \
         the array with the field type NdArray or DenseMap"
    ))
}

/// Checks that `pixels` has the right length. `start` is the offset of `pixels` in the file.
fn check_length(kind: &str, pixels: &[u8], size: Size, start: usize) -> Result<()> {
    let claimed = size.area().saturating_mul(3);
    if size.area() == 0 {
        return Err(Error::decode(format!("{kind} is empty: {}x{} pixels", size.width, size.height)));
    }
    if pixels.len() as u64 != claimed {
        return Err(Error::decode(format!(
            "{kind} of {}x{} pixels needs {claimed} bytes starting at byte {start}, found {}",
            size.width,
            size.height,
            pixels.len()
        )));
    }
    Ok(())
}

/// Copies `region` to `out`. The pixels are at the end of the image's bytes.
fn copy_region(image: &EncodedImage<'_>, region: Rect, out: &mut Pixels) {
    let (bytes, size) = (image.bytes(), image.size());
    let pixels = &bytes[bytes.len() - size.area() as usize * 3..];
    let stride = size.width as usize * 3;
    let rows = pixels.chunks_exact(stride).skip(region.y as usize);
    let (left, length) = (region.x as usize * 3, region.width as usize * 3);
    for (to, from) in out.reset(region.size()).chunks_exact_mut(length).zip(rows) {
        to.copy_from_slice(&from[left..left + length]);
    }
    out.set_origin(region.x, region.y);
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NpyCodec;

impl Codec for NpyCodec {
    fn format(&self) -> Format {
        format::NPY
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        read_npy_size(bytes).map(|size| EncodedImage::new(bytes, size))
    }

    fn decode(&self, image: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        copy_region(image, region, out);
        Ok(())
    }

    fn decode_memory(&self, _image: &EncodedImage<'_>, region: Rect) -> u64 {
        region.size().area().saturating_mul(3)
    }
}

/// A codec for pixels without a header, in images of one size. The codec matches any bytes, so a
/// loader [with this codec](crate::Loader::codec) uses it for all images that do not match a codec
/// added later. Opening an image fails if its number of bytes does not match the size.
#[derive(Debug, Clone, Copy)]
pub struct RawRgb {
    size: Size,
}

impl RawRgb {
    /// Creates a codec for images of `width * height * 3` bytes.
    pub fn new(width: u32, height: u32) -> Self {
        RawRgb { size: Size::new(width, height) }
    }
}

impl Codec for RawRgb {
    fn format(&self) -> Format {
        Format::any("raw")
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        check_length("raw image", bytes, self.size, 0).map(|()| EncodedImage::new(bytes, self.size))
    }

    fn decode(&self, image: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        copy_region(image, region, out);
        Ok(())
    }

    fn decode_memory(&self, _image: &EncodedImage<'_>, region: Rect) -> u64 {
        region.size().area().saturating_mul(3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Codecs;

    fn image(size: Size) -> Vec<u8> {
        (0..size.area() * 3).map(|i| (i * 7 % 251) as u8).collect()
    }

    #[test]
    fn decoding_a_region_equals_cropping_the_image() {
        let size = Size::new(7, 5);
        let pixels = image(size);
        let file = [&npy_header(size)[..], &pixels].concat();
        let decode = |codecs: Codecs, bytes: &[u8]| {
            let mut image = codecs.open(bytes).unwrap();
            assert_eq!(image.size(), size);
            let mut out = Pixels::new();
            image.decode(Rect::new(2, 1, 4, 3), &mut out).unwrap();
            out
        };
        let (a, b) = (decode(Codecs::new(), &file), decode(Codecs::only(RawRgb::new(7, 5)), &pixels));
        assert_eq!((a.origin(), a.size()), ((2, 1), Size::new(4, 3)));
        assert_eq!(a.data(), b.data());
        for y in 0..3 {
            assert_eq!(a.data()[y * 12..][..12], pixels[((y + 1) * 7 + 2) * 3..][..12]);
        }
    }

    #[test]
    fn headers_written_by_numpy_are_read() {
        let mut file =
            b"\x93NUMPY\x01\x00\x76\x00{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2, 3), }".to_vec();
        file.resize(127, b' ');
        file.extend(b"\n\0\0\0\0\0\0");
        assert_eq!(read_npy_size(&file).unwrap(), Size::new(2, 1));
    }

    #[test]
    fn damaged_files_are_rejected() {
        let size = Size::new(4, 4);
        let file = [&npy_header(size)[..], &image(size)].concat();
        let cause = |bytes: &[u8]| read_npy_size(bytes).unwrap_err().cause().to_owned();
        assert_eq!(cause(&file[..150]), "npy of 4x4 pixels needs 48 bytes starting at byte 128, found 22");
        assert_eq!(cause(&file[..60]), "npy header claims to end at byte 128, but the file ends at byte 60");
        assert_eq!(cause(&file[..8]), "npy header is truncated at byte 8");
        for end in 0..file.len() {
            read_npy_size(&file[..end]).unwrap_err();
        }
        let mut floats = file.clone();
        let start = floats.windows(3).position(|text| text == b"|u1").unwrap();
        floats[start..start + 3].copy_from_slice(b"<f4");
        assert_eq!(
            cause(&floats),
            "the image is an array of type float32 and shape (4, 4, 3): expected uint8 and (height, width, 3) in C order; \
             multiply values from 0 to 1 by 255 and convert them to uint8, or read the array with the field type \
             NdArray or DenseMap"
        );
        let huge = [&npy_header(Size::new(u32::MAX, u32::MAX))[..], &[0; 9]].concat();
        assert!(cause(&huge).contains("found 9"));
        assert!(RawRgb::new(4, 4).open(&[0; 47]).is_err());
    }
}
