use std::cell::RefCell;

use super::group::Group;
use super::header::Header;
use super::layout::Layout;
use crate::decode::cost;
use crate::decode::orientation::Orientation;
use crate::decode::{Decode, Job, Pixels, Size, Want};
use crate::error::{Error, Result};

/// The JPEG decoder.
///
/// It takes Huffman-coded files of 8 bits a sample, sequential or progressive, of one component (grey) or three (YCbCr, or RGB with an
/// Adobe marker), with any whole ratio of sampling factors. Pixels are those of libjpeg-turbo with its default settings, byte for
/// byte. The picture is delivered upright, and exactly the region asked for.
///
/// Restart segments are decoded side by side, and so are the pictures of one [`Decode::decode_group`] call. Only the segments that the
/// region needs are decoded; without restart markers, all of the stream up to the region's last row.
#[derive(Debug, Clone, Copy, Default)]
pub struct Jpeg;

impl Jpeg {
    /// Whether `bytes` are a JPEG of a kind that this decoder leaves to a general one: arithmetic, lossless, 12 bits, CMYK. A header
    /// that makes no sense is not foreign, but an error of [`Decode::size`].
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
        let mut job = Job { bytes, want, out, result: Ok(()) };
        self.decode_group(std::slice::from_mut(&mut job));
        job.result
    }

    fn memory(&self, bytes: &[u8], size: Size, want: Want) -> u64 {
        cost::memory(bytes, size, want)
    }

    fn decode_group(&self, jobs: &mut [Job<'_>]) {
        GROUP.with_borrow_mut(|group| group.decode(jobs));
    }
}

/// Gives back the memory that the calling thread decodes with.
pub(crate) fn release() {
    GROUP.take();
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Reads the header of a file that this decoder takes.
pub(super) fn open(bytes: &[u8]) -> Result<(Header, Layout)> {
    let header = Header::read(bytes)?;
    let layout = Layout::new(&header).map_err(|what| Error::decode(format!("jpeg with {what} is not supported")))?;
    Ok((header, layout))
}
