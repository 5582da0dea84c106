use super::header::{Coding, Header, unsupported};
use super::layout::{Color, Layout};
use super::markers::is_closed;
use crate::error::Result;
use crate::orientation::Orientation;
use crate::pixels::{Rect, Size};

/// Bytes per pixel.
const RGB: u64 = 3;
/// Bytes per column for rows and bands: two bands of one row of MCUs, and two rows of samples.
const COLUMN: u64 = 256;

/// A JPEG whose header has been read. All information about the file comes from this handle, so its
/// header is read once.
///
/// It is a few hundred bytes, because tables are stored as offsets into the file.
#[derive(Clone)]
pub struct Jpeg<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) header: Header,
    pub(crate) layout: Layout,
    /// Whether a marker follows the first scan's data.
    pub(crate) closed: bool,
}

impl<'a> Jpeg<'a> {
    /// Reads the header of a file, from SOI to the first SOS. Allocates nothing.
    ///
    /// # Errors
    /// That name the marker and its byte offset, or the kind of JPEG that is not supported.
    pub fn open(bytes: &'a [u8]) -> Result<Self> {
        let header = Header::read(bytes)?;
        let layout = Layout::new(&header).map_err(|kind| unsupported(&kind))?;
        let closed = is_closed(bytes, header.scan.data);
        Ok(Jpeg { bytes, header, layout, closed })
    }

    /// Ignores what the file says about colors and EXIF, for a JPEG inside a container that says
    /// it, such as a TIFF. Three components are RGB, or are converted from YCbCr.
    pub fn as_stored(&mut self, from_ycbcr: bool) {
        self.header.orientation = 1;
        if self.header.frame.components().len() == 3 {
            self.layout.color = if from_ycbcr { Color::YCbCr } else { Color::Rgb };
        }
    }

    /// All bytes of the file.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The EXIF orientation, which decoding applies.
    #[inline]
    pub fn orientation(&self) -> Orientation {
        Orientation::new(self.header.orientation)
    }

    /// Size of the upright image.
    #[inline]
    pub fn size(&self) -> Size {
        self.orientation().size(self.layout.size)
    }

    /// Size before the image is turned upright.
    #[inline]
    pub fn stored_size(&self) -> Size {
        self.layout.size
    }

    /// Number of color components, one, three or four.
    pub fn components(&self) -> usize {
        self.header.frame.components().len()
    }

    /// The usual name of the chroma subsampling: `4:4:4`, `4:2:2`, `4:4:0`, `4:2:0`, `4:1:1`,
    /// `gray`, `cmyk` (four components), or `other`.
    pub fn chroma(&self) -> &'static str {
        self.header.frame.chroma()
    }

    /// Whether the file is progressive. A progressive JPEG is decoded in full for any crop.
    pub fn is_progressive(&self) -> bool {
        self.header.frame.coding == Coding::Progressive
    }

    /// Number of MCUs between restart markers, or 0 without markers. Markers let a decoder start in
    /// the middle.
    #[inline]
    pub fn restart_interval(&self) -> u32 {
        self.header.restart_interval
    }

    /// The time that decoding `region` takes, in pixels: those whose codes are read, and those that
    /// are rendered. Both take about as long. The region lies inside the image.
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

    /// Number of bytes needed to decode `region`, for pixels and scratch together: an estimate on
    /// the high side.
    pub fn memory(&self, region: Rect) -> u64 {
        let Jpeg { bytes, header, layout, closed } = self;
        let frame = &header.frame;
        // An image that must be turned is decoded into a separate buffer first.
        let pixels = region.size().area() * RGB * if self.orientation().is_upright() { 1 } else { 2 };
        // The lanes decode a copy of the data, in memory that is a quarter larger.
        let data = bytes.len() as u64 * 5 / 4;
        let columns = u64::from(layout.size.width.max(layout.size.height)) * COLUMN;
        let (across, down) = frame.mcus();
        let blocks: u64 = frame.components().iter().map(|c| u64::from(c.h) * u64::from(c.v)).sum();
        // The plain decoder keeps all coefficients until the last scan, 64 of two bytes per block.
        // It decodes files with several scans, and files that lack EOI. It also decodes damaged
        // files, which cannot be recognized from the header.
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

    /// Eight images are moved per group.
    #[test]
    fn an_opened_jpeg_is_small_enough_to_be_moved() {
        assert!(size_of::<Jpeg<'_>>() <= 592, "{}", size_of::<Jpeg<'_>>());
    }
}
