//! [`labels`]: reads the labels of many samples.

use std::ops::Range;

use rayon::prelude::*;

use super::{Source, sample_error};
use crate::error::{Error, ErrorKind, Result};
use crate::machine::{CancelToken, Pool, RETRIES, check_stop, is_stopped, retried, run_with_token};

/// Reads the labels of `samples`, for example to compute class weights, and returns them in the
/// same order. Uses several threads, and does not read images if the source supports that.
///
/// To get the labels that a loader with a class list returns, use `LoaderHandle::labels`.
///
/// ```no_run
/// let source = warpfeed_sources::open("photos")?;
/// let labels = warpfeed_sources::labels(&*source, &(0..source.len() as u64).collect::<Vec<_>>())?;
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
///
/// # Errors
/// If a sample is out of range, cannot be read, or has no label.
pub fn labels(source: &dyn Source, samples: &[u64]) -> Result<Vec<i64>> {
    labels_retried(source, samples, RETRIES)
}

/// Like [`labels`], with up to `retries` retries after a transient error instead of the default.
pub fn labels_retried(source: &dyn Source, samples: &[u64], retries: usize) -> Result<Vec<i64>> {
    let count = source.len() as u64;
    if let Some(sample) = samples.iter().find(|&&sample| sample >= count) {
        return Err(out_of_range_error(*sample, count));
    }
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    LabelReader { source, workers, retries, missing_message: "no label" }.read(&(0..count), Some(samples))
}

/// Returns the error for the sample index `sample`, which is out of range in a dataset of `count`
/// samples.
pub fn out_of_range_error(sample: u64, count: u64) -> Error {
    Error::config(format!("sample {sample} is out of range: the dataset has samples 0 to {}", count.saturating_sub(1)))
}

/// Reads the labels of many samples on several threads, without the images if the source supports
/// that.
pub struct LabelReader<'a> {
    /// The dataset to read.
    pub source: &'a dyn Source,
    /// Number of threads.
    pub workers: usize,
    /// Number of retries after a transient error.
    pub retries: usize,
    /// The message for a sample without a label.
    pub missing_message: &'static str,
}

impl LabelReader<'_> {
    /// Returns the labels of the samples in `subset`, or in `range` if `subset` is `None`.
    pub fn read(&self, range: &Range<u64>, subset: Option<&[u64]>) -> Result<Vec<i64>> {
        let LabelReader { source, workers, retries, missing_message } = *self;
        let label = |scratch: &mut Vec<u8>, position: usize| {
            let index = subset.map_or(range.start + position as u64, |indices| indices[position]);
            let label = || {
                // There may be millions of samples, and sources need not check the token
                // themselves.
                check_stop()?;
                source.label(index as usize, scratch)
            };
            let label = retried(retries, index, || !is_stopped(), label)
                .and_then(|label| label.ok_or_else(|| Error::in_source(missing_message)));
            label.map_err(|e| {
                // After an I/O error or a panic, do not read the sample again to find its key.
                let key = || match e.kind() {
                    ErrorKind::Io | ErrorKind::Panic => Ok(String::new()),
                    _ => Ok(source.read(index as usize, scratch)?.key().to_owned()),
                };
                let key = retried(0, index, || false, key).unwrap_or_default();
                sample_error(source, index as usize, &key, e)
            })
        };
        let stop = CancelToken::current();
        let count = subset.map_or((range.end - range.start) as usize, <[u64]>::len);
        Pool::start(rayon::ThreadPoolBuilder::new(), workers)?
            .install(|| {
                let label = |scratch: &mut Vec<u8>, position| run_with_token(stop.clone(), || label(scratch, position));
                (0..count).into_par_iter().map_init(Vec::new, label).collect::<Vec<_>>()
            })
            // Collect in item order, so that the returned error does not depend on timing.
            .into_iter()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::model::Sample;

    struct Counted(Arc<AtomicUsize>);

    impl Source for Counted {
        fn len(&self) -> usize {
            1000
        }

        fn read<'a>(&'a self, index: usize, _: &'a mut Vec<u8>) -> Result<Sample<'a>> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(Sample::new("sample").with_label(index as i64))
        }
    }

    #[test]
    fn canceling_ends_label_reading_between_samples() {
        let read = Arc::new(AtomicUsize::new(0));
        let source = Counted(read.clone());
        let labels = LabelReader { source: &source, workers: 2, retries: 3, missing_message: "no label" };
        assert_eq!(labels.read(&(0..1000), None).unwrap(), (0..1000).collect::<Vec<_>>());
        assert_eq!(super::labels(&source, &[999, 3, 3]).unwrap(), [999, 3, 3]);
        let error = super::labels(&source, &[3, 1000]).unwrap_err().to_string();
        assert_eq!(error, "config: sample 1000 is out of range: the dataset has samples 0 to 999");
        read.store(0, Ordering::SeqCst);
        let stop = CancelToken::new({
            let read = read.clone();
            move || read.load(Ordering::SeqCst) >= 8
        });
        let error = stop.run(|| labels.read(&(0..1000), None)).unwrap_err();
        assert!(error.to_string().contains("the read was canceled"), "{error}");
        // One thread may read a ninth sample if it checked the token before the other thread read
        // the eighth.
        assert!((8..8 + 2).contains(&read.load(Ordering::SeqCst)), "{read:?}");
    }
}
