//! The iterator of a loader that is used directly in a `for` loop.

use super::batches::{Batches, POLL_INTERVAL};
use crate::batch::HostBatch;
use crate::error::{Error, Result};

/// One pass over a [`Loader`](crate::Loader) that is used directly in a `for` loop. If opening the
/// loader fails, the error is the only item.
///
/// [`Epoch`](crate::Epoch) lists the possible errors and explains how to continue after each error.
#[derive(Debug)]
pub struct IntoIter(std::result::Result<Box<Batches<HostBatch>>, Option<Error>>);

impl IntoIter {
    pub(crate) fn new(batches_or_error: Result<Batches<HostBatch>>) -> Self {
        let begun_batches = batches_or_error.map(|mut batches| {
            batches.begin(batches.first_epoch());
            Box::new(batches)
        });
        IntoIter(begun_batches.map_err(Some))
    }
}

impl Iterator for IntoIter {
    type Item = Result<HostBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Ok(batches) => batches.next_interruptible(&mut || Some(POLL_INTERVAL)),
            Err(error) => error.take().map(Err),
        }
    }
}
