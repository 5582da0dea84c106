use super::header::{Coding, Header, unsupported};
use super::layout::{Color, Layout};
use super::markers::is_closed;
use crate::error::Result;
use crate::orientation::Orientation;
use crate::pixels::{Rect, Size};

/// Bytes per RGB pixel.
const RGB: u64 = 3;
/// Bytes of memory per image column for rows and bands: two bands of one MCU row each, and two rows
/// of samples.
const COLUMN: u64 = 256;

/// A JPEG whose header has been read. All information about the file comes from this handle, so the
/// header is read only once.
///
/// The handle takes only a few hundred bytes, because it stores the offsets of tables in the file
/// instead of the tables.
#[derive(Clone)]
pub struct Jpeg<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) header: Header,
    pub(crate) layout: Layout,
    /// Whether a marker follows the first scan's data.
    pub(crate) closed: bool,
}

impl<'a> Jpeg<'a> {
    /// Reads the header of a file, from SOI to the first SOS. Does not allocate.
    ///
    /// # Errors
    /// If the header is invalid; the message names the marker and its byte offset. Also if the kind
    /// of JPEG is not supported.
    pub fn open(bytes: &'a [u8]) -> Result<Self> {
        let header = Header::read(bytes)?;
        let layout = Layout::new(&header).map_err(|kind| unsupported(&kind))?;
        let closed = is_closed(bytes, header.scan.data);
        Ok(Jpeg { bytes, header, layout, closed })
    }

    /// Ignores the color space and the EXIF orientation in the file, for a JPEG inside a container
    /// that specifies them, such as a TIFF. Three components are taken as RGB, or converted from
    /// YCbCr if `from_ycbcr` is set.
    pub fn as_stored(&mut self, from_ycbcr: bool) {
        self.header.orientation = 1;
        if self.header.frame.components().len() == 3 {
            self.layout.color = if from_ycbcr { Color::YCbCr } else { Color::Rgb };
        }
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

    /// Returns whether the file is progressive. All data of a progressive JPEG must be decoded,
    /// even for a small crop.
    pub fn is_progressive(&self) -> bool {
        self.header.frame.coding == Coding::Progressive
    }

    /// Returns the number of MCUs between restart markers, or 0 without restart markers. Restart
    /// markers let a decoder start in the middle of the data.
    #[inline]
    pub fn restart_interval(&self) -> u32 {
        self.header.restart_interval
    }

    /// Estimates the cost of decoding `region`, in pixels: the number of pixels that are
    /// entropy-decoded plus the number of pixels that are rendered, because both steps take about
    /// equally long per pixel. The region must be inside the image.
    pub fn cost(&self, region: Rect) -> u64 {
        let (size, interval) = (self.layout.size, u64::from(self.header.restart_interval));
        let region = self.orientation().region(region, size);
        let row = self.layout.mcus.0.into();
        let read = if self.header.frame.coding == Coding::Progressive {
            size.area()
        } else if interval == 0 {
            u64::from(size.width) * u64::from(region.y + region.height)
        } else if interval >= row {
            u64::from(size.width) * u64::from(region.height)
        } else {
            region.size().area()
        };
        read + region.size().area()
    }

    /// Estimates how many bytes of memory decoding `region` needs, including the decoded pixels and
    /// scratch memory. In practice, the estimate is an upper bound.
    pub fn memory(&self, region: Rect) -> u64 {
        let Jpeg { bytes, header, layout, closed } = self;
        let frame = &header.frame;
        // An image with an EXIF orientation is first decoded into a separate buffer.
        let pixels = region.size().area() * RGB * if self.orientation().is_upright() { 1 } else { 2 };
        // The lanes decode a copy of the data, in a buffer that is a quarter larger.
        let data = bytes.len() as u64 * 5 / 4;
        let columns = u64::from(layout.size.width.max(layout.size.height)) * COLUMN;
        let (across, down) = frame.mcus();
        let blocks: u64 = frame.components().iter().map(|c| u64::from(c.h) * u64::from(c.v)).sum();
        // The plain decoder keeps all coefficients until the last scan, 64 of two bytes each per
        // block. It decodes files with several scans and files without EOI. It also decodes damaged
        // files, but the header does not reveal damage.
        let in_order = header.scan.components().iter().map(|c| usize::from(c.index)).eq(0..frame.components().len());
        let in_lanes = frame.coding != Coding::Progressive && in_order && blocks <= 10 && *closed;
        let coefficients = if in_lanes { 0 } else { u64::from(across) * u64::from(down) * blocks * 128 };
        pixels + data + columns + coefficients
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

    /// A group moves up to eight images, so the type must be cheap to move.
    #[test]
    fn an_opened_jpeg_is_small_enough_to_be_moved() {
        assert!(size_of::<Jpeg<'_>>() <= 592, "{}", size_of::<Jpeg<'_>>());
    }
}
