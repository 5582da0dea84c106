use super::header::{Coding, Header, unsupported};
#[cfg(feature = "formats")]
use super::layout::Colour;
use super::layout::Layout;
use super::markers::is_closed;
use crate::decode::orientation::Orientation;
use crate::decode::{Rect, Size};
use crate::error::Result;

/// Bytes per pixel.
const RGB: u64 = 3;
/// Bytes per column for rows and bands: two bands of one row of MCUs, and two rows of samples.
const COLUMN: u64 = 256;

/// A JPEG whose header has been read. A picture's handle stores it by value. It is a few hundred
/// bytes, because tables are stored as offsets into the file.
#[derive(Debug, Clone)]
pub(in crate::decode) struct Opened {
    pub(in crate::decode) header: Header,
    pub(in crate::decode) layout: Layout,
    /// Whether a marker follows the first scan's data.
    pub(in crate::decode) closed: bool,
}

impl Opened {
    /// Reads the header of a file that this decoder supports.
    pub(in crate::decode) fn read(bytes: &[u8]) -> Result<Opened> {
        let header = Header::read(bytes)?;
        let layout = Layout::new(&header).map_err(|kind| unsupported(&kind))?;
        let closed = is_closed(bytes, header.scan.data);
        Ok(Opened { header, layout, closed })
    }

    /// Ignores what the file says about colours and EXIF, for a JPEG inside a TIFF. Three components
    /// are RGB, or are converted from YCbCr.
    #[cfg(feature = "formats")]
    pub(in crate::decode) fn as_stored(&mut self, from_ycbcr: bool) {
        self.header.orientation = 1;
        if self.header.frame.components().len() == 3 {
            self.layout.colour = if from_ycbcr { Colour::YCbCr } else { Colour::Rgb };
        }
    }

    pub(in crate::decode) fn orientation(&self) -> Orientation {
        Orientation::new(self.header.orientation)
    }

    /// Size of the upright picture.
    pub(in crate::decode) fn size(&self) -> Size {
        self.orientation().size(self.layout.size)
    }

    /// The time that decoding `region` takes, in pixels: those whose codes are read, and those that
    /// are rendered. Both take about as long.
    pub(in crate::decode) fn cost(&self, region: Rect) -> u64 {
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

    /// Number of bytes needed to decode `region` of this file of `bytes` bytes: an estimate on the
    /// high side.
    pub(in crate::decode) fn memory(&self, bytes: usize, region: Rect) -> u64 {
        let Opened { header, layout, closed } = self;
        let frame = &header.frame;
        // A picture that must be turned is decoded into a separate buffer first.
        let pixels = region.size().area() * RGB * if self.orientation().is_upright() { 1 } else { 2 };
        // The lanes decode a copy of the data, in memory that is a quarter larger.
        let data = bytes as u64 * 5 / 4;
        let columns = u64::from(layout.size.width.max(layout.size.height)) * COLUMN;
        let (across, down) = frame.mcus();
        let blocks: u64 = frame.components().iter().map(|c| u64::from(c.h) * u64::from(c.v)).sum();
        // The plain decoder keeps all coefficients until the last scan, 64 of two bytes per block.
        // It decodes files with several scans, and files that lack EOI. It also decodes damaged
        // files, which cannot be recognised from the header.
        let in_order = header.scan.components().iter().map(|c| usize::from(c.index)).eq(0..frame.components().len());
        let in_lanes = frame.coding != Coding::Progressive && in_order && blocks <= 10 && *closed;
        let coefficients = if in_lanes { 0 } else { u64::from(across) * u64::from(down) * blocks * 128 };
        pixels + data + columns + coefficients
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Picture;

    /// Eight pictures are moved per group.
    #[test]
    fn an_opened_jpeg_is_small_enough_to_be_moved() {
        assert!(size_of::<Opened>() <= 576, "{}", size_of::<Opened>());
        assert!(size_of::<Picture<'_>>() <= 640, "{}", size_of::<Picture<'_>>());
    }
}
