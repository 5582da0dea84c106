//! Delivers the samples in the order of the source.

use super::sampler::{Position, Sampler};

/// A sampler that delivers all samples once per epoch, in the order of the source.
#[derive(Debug, Clone, Copy)]
pub struct Sequential(u64);

impl Sequential {
    /// Creates the sampler for a source of `len` samples.
    pub fn new(len: u64) -> Self {
        Sequential(len)
    }
}

impl Sampler for Sequential {
    fn len(&self, _epoch: u64) -> u64 {
        self.0
    }

    fn index(&self, _epoch: u64, position: u64) -> u64 {
        position
    }

    fn position(&self, _epoch: u64, index: u64, from: u64) -> Position {
        if index < self.0 { Position::not_before(index, from) } else { Position::Absent }
    }
}
