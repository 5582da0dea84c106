use std::cell::RefCell;

use super::group::Group;
use super::header::{Header, unsupported};
use super::layout::Layout;
use crate::decode::cost;
use crate::decode::orientation::Orientation;
use crate::decode::{Decode, Job, MAX_PIXELS, Pixels, Size, Want, check_size};
use crate::error::Result;

/// The JPEG decoder.
///
/// It takes Huffman-coded files of 8 bits a sample, sequential or progressive, with any whole ratio
/// of sampling factors. A file has one component (grey), three (YCbCr, or RGB with an Adobe marker)
/// or four (CMYK, or YCCK with an Adobe marker). Pixels of grey, YCbCr and RGB are those of
/// libjpeg-turbo with its default settings, byte for byte. CMYK is taken to be inverted, as Adobe
/// writes it, and becomes the RGB of Pillow's `convert("RGB")`, without a look at its ICC profile.
/// The picture is delivered upright, and exactly the region asked for.
///
/// A file that ends early is an error whatever the region. Damage inside that libjpeg tolerates
/// gives libjpeg's pixels, and [`check`](crate::decode::check) finds it. A file that lacks nothing
/// but EOI is such a file. A file of another kind is an error that names the kind:
/// arithmetic-coded, lossless, hierarchical, 12-bit. So is one that claims more than 2^28 pixels;
/// [`Auto`](crate::decode::Auto) has another limit on request.
///
/// Restart segments are decoded side by side, and so are the pictures of one
/// [`Decode::decode_group`] call. Only the segments that the region needs are decoded; without
/// restart markers, all of the stream up to the region's last row.
#[derive(Debug, Clone, Copy, Default)]
pub struct Jpeg;

/// [`Jpeg`] for pictures of up to so many pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Within(pub(crate) u64);

impl Decode for Jpeg {
    fn size(&self, bytes: &[u8]) -> Result<Size> {
        Within(MAX_PIXELS).size(bytes)
    }

    fn decode(&self, bytes: &[u8], want: Want, out: &mut Pixels) -> Result<()> {
        Within(MAX_PIXELS).decode(bytes, want, out)
    }

    fn memory(&self, bytes: &[u8], size: Size, want: Want) -> u64 {
        Within(MAX_PIXELS).memory(bytes, size, want)
    }

    fn decode_group(&self, jobs: &mut [Job<'_>]) {
        Within(MAX_PIXELS).decode_group(jobs);
    }
}

impl Decode for Within {
    fn size(&self, bytes: &[u8]) -> Result<Size> {
        let (header, layout) = open(bytes, self.0)?;
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
        GROUP.with_borrow_mut(|group| group.decode(jobs, self.0));
    }
}

/// Gives back what the calling thread keeps of pictures before, if it is more than `limit` bytes.
/// Returns what it keeps then.
pub(crate) fn keep(limit: usize) -> usize {
    GROUP.with_borrow_mut(|group| group.keep(limit))
}

/// Gives back the memory that the calling thread decodes with.
pub(crate) fn release() {
    GROUP.take();
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Reads the header of a file that this decoder takes, of `max_pixels` or fewer.
pub(super) fn open(bytes: &[u8], max_pixels: u64) -> Result<(Header, Layout)> {
    let header = Header::read(bytes)?;
    check_size("jpeg", header.frame.size, max_pixels)?;
    let layout = Layout::new(&header).map_err(|kind| unsupported(&kind))?;
    Ok((header, layout))
}

/// The header alone.
pub(crate) fn open_header(bytes: &[u8], max_pixels: u64) -> Result<Header> {
    open(bytes, max_pixels).map(|(header, _)| header)
}
