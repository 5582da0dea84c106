use std::collections::HashMap;
use std::ops::Range;

use rayon::prelude::*;

use crate::error::{Error, ErrorKind, Result};
use crate::source::{self, Source, Stop, retried};

/// Asks a source for labels.
pub(super) struct Labels<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) workers: usize,
    /// Number of retries after a transient error.
    pub(super) retries: usize,
    /// The option that needs the labels, for messages.
    pub(super) asked_by: &'static str,
}

impl Labels<'_> {
    /// Weights of the samples of `range`, or of `subset`, that make the classes equally frequent.
    pub(super) fn balanced(&self, range: &Range<u64>, subset: Option<&[u64]>) -> Result<Vec<f64>> {
        let labels = self.of(range, subset)?;
        let mut counts = HashMap::<i64, u32>::new();
        labels.iter().for_each(|label| *counts.entry(*label).or_default() += 1);
        Ok(labels.iter().map(|label| 1.0 / f64::from(counts[label])).collect())
    }

    pub(super) fn of(&self, range: &Range<u64>, subset: Option<&[u64]>) -> Result<Vec<i64>> {
        let Labels { source, workers, retries, asked_by } = *self;
        let label = |scratch: &mut Vec<u8>, place: usize| {
            let index = subset.map_or(range.start + place as u64, |indices| indices[place]);
            let label = || {
                // Sources need not look at the stop, and there may be millions of samples.
                source::check_stop()?;
                source.label(index as usize, scratch)
            };
            let label = retried(retries, index, || !source::is_stopped(), label)
                .and_then(|label| label.ok_or_else(|| Error::in_source(format!("no label, which {asked_by}() needs"))));
            label.map_err(|e| {
                // A sample that cannot be read has no key.
                let key = || match e.kind() {
                    ErrorKind::Io | ErrorKind::Panic => Ok(String::new()),
                    _ => Ok(source.read(index as usize, scratch)?.key().to_owned()),
                };
                let key = retried(0, index, || false, key).unwrap_or_default();
                source::sample_error(source, index as usize, &key, e)
            })
        };
        let stop = Stop::current();
        let places = subset.map_or((range.end - range.start) as usize, <[u64]>::len);
        // This pool is dropped before the loader's pool starts.
        source::Pool::start(rayon::ThreadPoolBuilder::new(), workers)?
            .install(|| {
                let label = |scratch: &mut Vec<u8>, place| source::during(stop.clone(), || label(scratch, place));
                (0..places).into_par_iter().map_init(Vec::new, label).collect::<Vec<_>>()
            })
            // In order, so that the reported bad sample does not depend on the speed of the
            // threads.
            .into_iter()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::source::Sample;

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
    fn a_stop_ends_the_reading_of_labels_between_two_samples() {
        let read = Arc::new(AtomicUsize::new(0));
        let source = Counted(read.clone());
        let labels = Labels { source: &source, workers: 2, retries: 3, asked_by: "balanced" };
        assert_eq!(labels.of(&(0..1000), None).unwrap(), (0..1000).collect::<Vec<_>>());
        read.store(0, Ordering::SeqCst);
        let stop = Stop::new({
            let read = read.clone();
            move || read.load(Ordering::SeqCst) >= 8
        });
        let error = stop.during(|| labels.of(&(0..1000), None)).unwrap_err();
        assert!(error.to_string().contains("the read was cancelled"), "{error}");
        // Each thread may be past its look at the stop.
        assert!((8..8 + 2).contains(&read.load(Ordering::SeqCst)), "{read:?}");
    }
}
