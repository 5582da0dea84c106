//! [`BeforeRead`]: a source with reads that wait, fail or panic.
#![allow(unreachable_pub)] // shared by test programs

use std::path::PathBuf;

use warpfeed::Result;
use warpfeed::source::{Sample, Source};

/// A source that calls a function with the index of the sample before each read. It hides the
/// prefetcher and the stored bytes of the inner source, so that the loader reads each sample.
pub struct BeforeRead<S, F>(pub S, pub F);

impl<S: Source, F: Fn(usize) -> Result<()> + Send + Sync> Source for BeforeRead<S, F> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        (self.1)(index)?;
        self.0.read(index, scratch)
    }

    fn classes(&self) -> &[String] {
        self.0.classes()
    }

    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    fn key(&self, index: usize, scratch: &mut Vec<u8>) -> Result<String> {
        self.0.key(index, scratch)
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        self.0.path(index)
    }

    fn fingerprint(&self) -> Option<u64> {
        self.0.fingerprint()
    }
}
