use std::cell::RefCell;

use super::side_by_side::{Group, opened};
use crate::decode::jpeg::Opened;
use crate::decode::picture::Header;
use crate::decode::{Codec, Job, Picture, Pixels, Rect};
use crate::error::Result;
use crate::format::{self, Format};

/// The codec for JPEGs. The documentation of [`decode`](crate::decode) lists what it supports.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Jpeg;

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

/// Frees the calling thread's decoding memory if it exceeds `limit` bytes. Returns the number of
/// bytes that remain.
pub(super) fn keep(limit: usize) -> usize {
    GROUP.with_borrow_mut(|group| group.keep(limit))
}

/// Frees the memory that the calling thread decodes with.
pub(super) fn release() {
    GROUP.take();
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}
