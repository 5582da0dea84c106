use std::sync::Arc;

use super::compact::CompactCoefficients;
use super::header::{Coding, Header, unsupported};
use super::layout::{Color, Layout};
use super::markers::is_followed_by_marker;
use crate::error::Result;
use crate::orientation::Orientation;
use crate::pixels::{Rect, Size};

const BYTES_PER_PIXEL: u64 = 3;
/// Memory per image column during decoding: two bands of coefficients, each for one MCU row, and
/// the samples of two MCU rows.
const BYTES_PER_COLUMN: u64 = 256;

/// A JPEG whose header has been read. Decoding takes this handle instead of the bytes, so that the
/// header is read only once.
#[derive(Clone)]
pub struct Jpeg<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) header: Header,
    pub(crate) layout: Layout,
    /// True if a marker follows the data of the first scan. Otherwise, the file may be truncated.
    pub(crate) has_eoi: bool,
    /// The coefficients from which the image is decoded, or `None` to decode the bytes.
    pub(crate) coefficients: Option<Arc<CompactCoefficients>>,
}

impl<'a> Jpeg<'a> {
    /// Reads the header of a file, from SOI to the first SOS. Allocates memory only for an error.
    ///
    /// # Errors
    /// If the header is invalid, or if this kind of JPEG is not supported. For an invalid segment,
    /// the message states the marker and its byte offset.
    pub fn open(bytes: &'a [u8]) -> Result<Self> {
        let header = Header::read(bytes)?;
        let layout = Layout::new(&header).map_err(|kind| unsupported(&kind))?;
        let has_eoi = is_followed_by_marker(bytes, header.scan.data_offset);
        Ok(Jpeg { bytes, header, layout, has_eoi, coefficients: None })
    }

    /// Ignores the EXIF orientation and the color space that the file declares. Three components
    /// are interpreted as YCbCr if `from_ycbcr` is true, and as RGB otherwise. Call this method for
    /// a JPEG in a container that specifies the color space and the orientation, such as a TIFF.
    pub fn as_stored(&mut self, from_ycbcr: bool) {
        self.header.orientation = 1;
        if self.header.frame.components().len() == 3 {
            self.layout.color = if from_ycbcr { Color::YCbCr } else { Color::Rgb };
        }
    }

    /// Decodes the image from `coefficients` instead of from the file. This is faster and gives the
    /// same pixels. The coefficients must come from a file with the same bytes.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use warpfeed_jpeg::{Decoder, Jpeg, Job, Pixels, Rect};
    ///
    /// # let mut bytes = Vec::new();
    /// # use jpeg_encoder::{ColorType, Encoder};
    /// # Encoder::new(&mut bytes, 90).encode(&[99; 96 * 64 * 3], 96, 64, ColorType::Rgb).unwrap();
    /// let (mut jpeg, mut pixels) = (Jpeg::open(&bytes)?, Pixels::new());
    /// let (whole, mut decoder) = (Rect::full(jpeg.size()), Decoder::new());
    /// let mut jobs = [Job::new(&jpeg, whole, &mut pixels).keep_coefficients(1 << 20)];
    /// decoder.decode_group(&mut jobs);
    /// let coefficients = jobs[0].coefficients.take().expect("the file is not damaged");
    ///
    /// jpeg.set_coefficients(Arc::new(coefficients));
    /// let mut again = Pixels::new();
    /// decoder.decode(&jpeg, whole, &mut again)?;
    /// assert!(again.data() == pixels.data());
    /// # Ok::<(), warpfeed_jpeg::Error>(())
    /// ```
    pub fn set_coefficients(&mut self, coefficients: Arc<CompactCoefficients>) {
        self.coefficients = Some(coefficients);
    }

    /// Returns the coefficients from which the image is decoded, if any.
    #[inline]
    pub fn coefficients(&self) -> Option<&Arc<CompactCoefficients>> {
        self.coefficients.as_ref()
    }

    /// Returns all bytes of the file.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the EXIF orientation, which decoding applies.
    #[inline]
    pub fn orientation(&self) -> Orientation {
        Orientation::new(self.header.orientation)
    }

    /// Returns the size of the upright image.
    #[inline]
    pub fn size(&self) -> Size {
        self.orientation().size(self.layout.size)
    }

    /// Returns the size before the EXIF orientation is applied.
    #[inline]
    pub fn stored_size(&self) -> Size {
        self.layout.size
    }

    /// Returns the number of color components: one, three or four.
    pub fn components(&self) -> usize {
        self.header.frame.components().len()
    }

    /// Returns the usual name of the chroma subsampling: `4:4:4`, `4:2:2`, `4:4:0`, `4:2:0`,
    /// `4:1:1`, `gray`, `cmyk` (four components), or `other`.
    pub fn chroma(&self) -> &'static str {
        self.header.frame.chroma()
    }

    /// Returns whether the file is progressive. A progressive file must be decoded completely, even
    /// for a small crop.
    pub fn is_progressive(&self) -> bool {
        self.header.frame.coding == Coding::Progressive
    }

    /// Returns the number of MCUs between restart markers, or 0 if there are none.
    #[inline]
    pub fn restart_interval(&self) -> u32 {
        self.header.restart_interval
    }

    /// Returns whether the JPEG is sequential, with at least one restart marker per row of MCUs. If
    /// it has only one scan, decoding can start at any row without decoding most of the earlier
    /// rows.
    #[inline]
    pub fn is_divisible(&self) -> bool {
        !self.is_progressive() && (1..=self.layout.mcus_per_row).contains(&self.header.restart_interval)
    }

    /// Estimates the cost of decoding `region`, which must be inside the image. Entropy-decoding a
    /// pixel costs one unit, and so does rendering a pixel.
    pub fn decode_cost(&self, region: Rect) -> u64 {
        let (size, interval) = (self.layout.size, u64::from(self.header.restart_interval));
        let region = self.orientation().stored_region(region, size);
        let mcus_per_row = self.layout.mcus_per_row.into();
        let decoded_pixels = if self.coefficients.is_some() {
            0
        } else if self.header.frame.coding == Coding::Progressive {
            size.area()
        } else if interval == 0 {
            u64::from(size.width) * u64::from(region.y + region.height)
        } else if interval >= mcus_per_row {
            u64::from(size.width) * u64::from(region.height)
        } else {
            region.size().area()
        };
        decoded_pixels + region.size().area()
    }

    /// Estimates how much memory decoding `region` needs, in bytes, including the decoded pixels.
    /// In practice, the estimate is an upper bound, except for damaged files.
    pub fn memory(&self, region: Rect) -> u64 {
        let Jpeg { bytes, header, layout, has_eoi, coefficients: compact } = self;
        let frame = &header.frame;
        let pixel_bytes = region.size().area() * BYTES_PER_PIXEL * if self.orientation().is_upright() { 1 } else { 2 };
        // The lanes decode a copy of the data in a buffer that is a quarter larger.
        let data_bytes = bytes.len() as u64 * 5 / 4;
        let data_bytes = if compact.is_some() { 0 } else { data_bytes };
        let column_bytes = u64::from(layout.size.width.max(layout.size.height)) * BYTES_PER_COLUMN;
        let (mcus_per_row, mcu_rows) = frame.mcus();
        let blocks: u64 = frame.components().iter().map(|c| u64::from(c.h) * u64::from(c.v)).sum();
        // The plain decoder stores 64 coefficients of two bytes per block. Damaged files also need
        // this memory, but the header does not reveal the damage.
        let is_in_order = header.scan.components().iter().map(|c| usize::from(c.index)).eq(0..frame.components().len());
        let is_lane_decodable = frame.coding != Coding::Progressive && is_in_order && blocks <= 10 && *has_eoi;
        let coefficient_bytes = if is_lane_decodable || compact.is_some() {
            0
        } else {
            u64::from(mcus_per_row) * u64::from(mcu_rows) * blocks * 128
        };
        pixel_bytes + data_bytes + column_bytes + coefficient_bytes
    }
}

impl std::fmt::Debug for Jpeg<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jpeg").field("bytes", &self.bytes.len()).field("size", &self.size()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jpeg_handle_is_cheap_to_move() {
        assert!(size_of::<Jpeg<'_>>() <= 600, "{}", size_of::<Jpeg<'_>>());
    }
}
