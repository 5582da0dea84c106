use std::cell::RefCell;
use std::ops::Range;

use super::coefficients::Coefficients;
use super::header::Header;
use super::kernels::{self, Kernels};
use super::layout::{Layout, Window};
use super::orientation::Orientation;
use super::rows::{Blocks, Rows};
use crate::decode::{Decode, Pixels, Size, Want};
use crate::error::{Error, Result};

/// The JPEG decoder.
///
/// It takes Huffman-coded files of 8 bits a sample, sequential or progressive, of one component (grey) or three (YCbCr, or RGB with an
/// Adobe marker), with any whole ratio of sampling factors. Pixels are those of libjpeg-turbo with its default settings, byte for
/// byte. The picture is delivered upright, and exactly the region asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Jpeg;

impl Jpeg {
    /// Whether `bytes` are a JPEG of a kind that this decoder leaves to a general one: arithmetic, lossless, 12 bits, CMYK. A header
    /// that makes no sense is not foreign, but an error of [`Decode::size`].
    #[allow(dead_code)]
    pub(crate) fn is_foreign(bytes: &[u8]) -> bool {
        Header::read(bytes).is_ok_and(|header| Layout::new(&header).is_err())
    }
}

impl Decode for Jpeg {
    fn size(&self, bytes: &[u8]) -> Result<Size> {
        let (header, layout) = open(bytes)?;
        Ok(Orientation::new(header.orientation).size(layout.size))
    }

    fn decode(&self, bytes: &[u8], want: Want, out: &mut Pixels) -> Result<()> {
        SCRATCH.with_borrow_mut(|scratch| scratch.decode(bytes, want, out))
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Memory that a thread keeps from one picture to the next.
#[derive(Default)]
struct Scratch {
    coefficients: Coefficients,
    rows: Rows,
    /// A picture before it is turned upright.
    stored: Vec<u8>,
}

impl Scratch {
    fn decode(&mut self, bytes: &[u8], want: Want, out: &mut Pixels) -> Result<()> {
        let (header, layout) = open(bytes)?;
        let orientation = Orientation::new(header.orientation);
        let size = orientation.size(layout.size);
        if !want.region.fits(size) {
            let Size { width, height } = size;
            return Err(Error::decode(format!(
                "region {:?} is not inside the picture of {width}x{height}",
                want.region
            )));
        }
        let window = Window::new(&layout, orientation.region(want.region, layout.size));
        self.coefficients.decode(bytes, &header)?;
        let rgb = out.reset(want.region.size());
        if orientation.is_upright() {
            self.render(kernels::best(), &layout, &window, rgb);
        } else {
            let mut stored = std::mem::take(&mut self.stored);
            stored.resize(rgb.len(), 0);
            self.render(kernels::best(), &layout, &window, &mut stored);
            orientation.turn(&stored, window.region.size(), rgb);
            self.stored = stored;
        }
        out.place(want.region.x, want.region.y, 0);
        Ok(())
    }

    fn render(&mut self, kernels: &Kernels, layout: &Layout, window: &Window, rgb: &mut [u8]) {
        let planes = self.coefficients.planes();
        let quant = std::array::from_fn(|i| planes.get(i).map_or([0; 64], |plane| plane.quant));
        self.rows.begin(layout, window);
        for row in window.rows.clone() {
            self.rows.mcu_row(kernels, layout, window, &quant, row, &self.coefficients, rgb);
        }
    }
}

impl Blocks for Coefficients {
    fn locate(&self, index: usize, row: u32, columns: Range<u32>, offsets: &mut Vec<u32>) -> &[i16] {
        let plane = &self.planes()[index];
        offsets.extend(columns.map(|column| (row * plane.wide as u32 + column) * 64));
        &plane.data
    }
}

/// Reads the header of a file that this decoder takes.
fn open(bytes: &[u8]) -> Result<(Header, Layout)> {
    let header = Header::read(bytes)?;
    let layout = Layout::new(&header).map_err(|what| Error::decode(format!("jpeg with {what} is not supported")))?;
    Ok((header, layout))
}
