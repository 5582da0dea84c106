use std::cell::RefCell;

use super::side_by_side::{Group, opened};
use crate::decode::jpeg::Opened;
use crate::decode::picture::Header;
use crate::decode::{Codec, Job, Picture, Pixels, Rect};
use crate::error::Result;
use crate::format::{self, Format};

/// The codec of JPEGs: what it takes is listed at the top of [`decode`](crate::decode).
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::decode) struct Jpeg;

impl Codec for Jpeg {
    fn format(&self) -> Format {
        format::JPEG
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<Picture<'a>> {
        let opened = Opened::read(bytes)?;
        Ok(Picture::with(bytes, opened.size(), Header::Jpeg(opened)))
    }

    fn memory(&self, picture: &Picture<'_>, region: Rect) -> u64 {
        opened(picture).memory(picture.bytes().len(), region)
    }

    fn decode(&self, picture: &mut Picture<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        let header = Header::Jpeg(opened(picture).clone());
        let mut job = Job::new(Picture::with(picture.bytes(), picture.size(), header), region, out);
        self.decode_group(std::slice::from_mut(&mut job));
        job.result
    }

    fn decode_group(&self, jobs: &mut [Job<'_>]) {
        GROUP.with_borrow_mut(|group| group.decode(jobs));
    }

    fn damage(&self, picture: &mut Picture<'_>) -> Result<Option<String>> {
        GROUP.with_borrow_mut(|group| group.damage(picture))
    }
}

/// Gives back what the calling thread keeps of pictures before, if it is more than `limit` bytes.
/// Returns what it keeps then.
pub(in crate::decode) fn keep(limit: usize) -> usize {
    GROUP.with_borrow_mut(|group| group.keep(limit))
}

/// Gives back the memory that the calling thread decodes with.
pub(in crate::decode) fn release() {
    GROUP.take();
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}
