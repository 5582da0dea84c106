//! [`Concat`]: joins several datasets, one after the other.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::classes::category_ids;
use super::relabel::Relabel;
use super::{BatchIndex, Lookahead, Prefetcher, Sample, Source, VideoInfo};
use crate::error::{Error, Result, counted};
use crate::machine::hash::Hash;
use crate::stats::NetworkStats;

/// Several datasets as one: the samples of the first dataset, followed by the samples of the
/// second, and so on.
///
/// ```no_run
/// use warpfeed_sources::{Concat, open};
///
/// let both = Concat::match_labels_by_name(vec![open("photos.lmdb")?, open("sketches")?])?;
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
///
/// Samples keep their keys and their fields. [`dataset_index`](Source::dataset_index) returns the
/// index of the dataset that contains a sample.
///
/// **Labels.** Label 0 may mean a cat in one folder and a car in another. There are three ways to
/// join labels:
///
/// | | labels | class names |
/// |---|---|---|
/// | [`new`](Concat::new) | unchanged; fails if the class names disagree | the longest list |
/// | [`match_labels_by_name`](Concat::match_labels_by_name) | one new label per class name | all names, sorted |
/// | [`keep_labels`](Concat::keep_labels) | unchanged | the longest list, or none if they disagree |
///
/// The class names of two datasets agree if every label that has a name in both has the same name
/// in both. For example, `cat, dog` and `cat, dog, fox` agree. A dataset without class names agrees
/// with every other dataset.
///
/// `sampler::Mixture` samples from the joined datasets in given proportions. `Loader::mixture`
/// joins datasets and samples from them.
pub struct Concat {
    datasets: Vec<Arc<dyn Source>>,
    /// For each dataset, the index after its last sample.
    ends: Vec<usize>,
    classes: Vec<String>,
    /// For each dataset, the mapping from old to new labels. Empty if labels are unchanged.
    relabel: Vec<Relabel>,
}

/// How the labels of datasets are joined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Join {
    /// Labels are unchanged. Joining fails if the class names disagree.
    #[default]
    Same,
    /// Each class name gets a new label.
    ByClassName,
    /// Labels are unchanged, even if the class names disagree.
    KeepLabels,
}

impl Concat {
    /// Joins `datasets`, in this order. Labels are unchanged.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if a label has different class names in two
    /// datasets, or if the total number of samples overflows.
    pub fn new(datasets: Vec<Arc<dyn Source>>) -> Result<Self> {
        Self::join(datasets, Join::Same)
    }

    /// Joins `datasets`, in this order, with one label per class name. The label is the
    /// index of the name in the sorted list of all names, as in a [`Folder`](crate::Folder) that
    /// contains the class folders of all datasets.
    ///
    /// Reading a sample fails if its label has no class name or is not a number.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if a dataset has samples but no class names,
    /// or if the total number of samples overflows.
    pub fn match_labels_by_name(datasets: Vec<Arc<dyn Source>>) -> Result<Self> {
        Self::join(datasets, Join::ByClassName)
    }

    /// Joins `datasets`, in this order. Labels are unchanged. Use this function if labels
    /// have the same meaning but different class names, such as `cat` and `Katze`. If the names
    /// disagree, the joined dataset has no class names.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the total number of samples overflows.
    pub fn keep_labels(datasets: Vec<Arc<dyn Source>>) -> Result<Self> {
        Self::join(datasets, Join::KeepLabels)
    }

    #[doc(hidden)]
    pub fn join(datasets: Vec<Arc<dyn Source>>, join: Join) -> Result<Self> {
        let mut ends = Vec::with_capacity(datasets.len());
        for dataset in &datasets {
            let end = ends.last().copied().unwrap_or(0usize).checked_add(dataset.len());
            ends.push(end.ok_or_else(|| Error::config("concat: the number of samples overflows"))?);
        }
        let (classes, relabel) = match (join, common_names(&datasets)) {
            (Join::ByClassName, _) => labels_by_name(&datasets)?,
            (_, Ok(longest)) => (longest, Vec::new()),
            (Join::KeepLabels, Err(_)) => (Vec::new(), Vec::new()),
            (Join::Same, Err(disagree)) => return Err(disagree),
        };
        Ok(Concat { datasets, ends, classes, relabel })
    }

    /// Returns the number of samples in each dataset.
    pub fn lens(&self) -> Vec<usize> {
        self.datasets.iter().map(|dataset| dataset.len()).collect()
    }

    /// Returns the index of the dataset, and of the sample within it.
    fn locate(&self, index: usize) -> (usize, usize) {
        let dataset = self.ends.partition_point(|&end| end <= index);
        (dataset, if dataset == 0 { index } else { index - self.ends[dataset - 1] })
    }

    fn label_of(&self, dataset: usize, label: Option<i64>) -> Result<Option<i64>> {
        let (Some(label), Some(relabel)) = (label, self.relabel.get(dataset)) else { return Ok(label) };
        relabel.new_label(label).map(Some)
    }
}

/// Returns the longest list of class names. Fails unless every other list is a prefix of it.
fn common_names(datasets: &[Arc<dyn Source>]) -> Result<Vec<String>> {
    let longest = (0..datasets.len()).rev().max_by_key(|&dataset| datasets[dataset].classes().len());
    let Some(longest) = longest else { return Ok(Vec::new()) };
    let names = datasets[longest].classes();
    for (index, dataset) in datasets.iter().enumerate() {
        let Some(label) = dataset.classes().iter().zip(names).position(|(name, other)| name != other) else { continue };
        let (first, second) = (index.min(longest), index.max(longest));
        return Err(Error::config(format!(
            "joined datasets: label {label} is {:?} in dataset {first} and {:?} in dataset {second}: use \
             match_labels_by_name to join labels by class name, or keep_labels to leave them unchanged",
            datasets[first].classes()[label],
            datasets[second].classes()[label]
        )));
    }
    Ok(names.to_vec())
}

/// Returns all class names, sorted, and for each dataset the mapping from old to new labels.
fn labels_by_name(datasets: &[Arc<dyn Source>]) -> Result<(Vec<String>, Vec<Relabel>)> {
    if let Some(dataset) = datasets.iter().position(|dataset| dataset.classes().is_empty() && !dataset.is_empty()) {
        let samples = counted(datasets[dataset].len(), "sample", "samples");
        return Err(Error::config(format!(
            "joined datasets: dataset {dataset} ({}, {samples}) has no class names, so its labels cannot be \
             joined by class name: use keep_labels to leave them unchanged",
            datasets[dataset].kind()
        )));
    }
    let names: BTreeSet<&String> = datasets.iter().flat_map(|dataset| dataset.classes()).collect();
    let labels: HashMap<&String, i64> = names.iter().copied().zip(0..).collect();
    let relabel = datasets.iter().enumerate().map(|(index, dataset)| {
        let classes = dataset.classes().iter().map(|name| (name.clone(), Some(labels[name]))).collect();
        Relabel::Named { classes, dataset: format!("dataset {index}"), numbering: "joined by class name" }
    });
    let relabel = relabel.collect();
    Ok((names.into_iter().cloned().collect(), relabel))
}

impl Concat {
    fn relabeled<'a>(&'a self, dataset: usize, sample: Sample<'a>) -> Result<Sample<'a>> {
        let Some(relabel) = self.relabel.get(dataset) else { return Ok(sample) };
        let sample = sample.relabeled(relabel)?;
        sample.label()?;
        Ok(sample)
    }
}

impl Source for Concat {
    fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let (dataset, index) = self.locate(index);
        self.relabeled(dataset, self.datasets[dataset].read(index, scratch)?)
    }

    fn read_drawn<'a>(&'a self, index: usize, draw: u64, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let (dataset, index) = self.locate(index);
        self.relabeled(dataset, self.datasets[dataset].read_drawn(index, draw, scratch)?)
    }

    /// Divides the byte budget in proportion to [`prefetch_bytes`](Source::prefetch_bytes).
    fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        let requested_bytes = |dataset: &Arc<dyn Source>| dataset.prefetch_bytes() as u128;
        let (total_bytes, mut first_sample) = (self.datasets.iter().map(requested_bytes).sum::<u128>().max(1), 0);
        // Scale the requested bytes to at most 2^64, so that the product fits in 128 bits.
        let unit = total_bytes.div_ceil(1 << 64);
        let share = |bytes: u128| (bytes / unit * order.budget_bytes() as u128 / total_bytes.div_ceil(unit)) as usize;
        let mut prefetchers = Vec::new();
        for (dataset, &end) in self.datasets.iter().zip(&self.ends) {
            prefetchers.extend(
                dataset.prefetcher(order.restricted(share(requested_bytes(dataset)), first_sample as u64..end as u64)),
            );
            first_sample = end;
        }
        (!prefetchers.is_empty()).then(|| Box::new(Prefetchers(prefetchers)) as Box<dyn Prefetcher>)
    }

    fn prefetch_bytes(&self) -> usize {
        self.datasets.iter().fold(0, |total_bytes, dataset| total_bytes.saturating_add(dataset.prefetch_bytes()))
    }

    fn video_info(&self) -> Option<VideoInfo> {
        self.datasets.iter().filter_map(|dataset| dataset.video_info()).reduce(VideoInfo::join)
    }

    fn select_fields(&self, fields: &[String]) -> Option<Arc<dyn Source>> {
        let views: Vec<_> = self.datasets.iter().map(|dataset| dataset.select_fields(fields)).collect();
        if views.iter().all(Option::is_none) {
            return None;
        }
        let datasets =
            views.into_iter().zip(&self.datasets).map(|(view, dataset)| view.unwrap_or_else(|| dataset.clone()));
        Some(Arc::new(Concat {
            datasets: datasets.collect(),
            ends: self.ends.clone(),
            classes: self.classes.clone(),
            relabel: self.relabel.clone(),
        }))
    }

    fn network_stats(&self) -> Option<NetworkStats> {
        let datasets = self.datasets.iter().filter_map(|dataset| dataset.network_stats());
        datasets.reduce(|all, dataset| all.plus(&dataset))
    }

    fn check(&self) -> Result<()> {
        self.datasets.iter().try_for_each(|dataset| dataset.check())
    }

    fn verify(&self, samples: Range<usize>, found: &mut dyn FnMut(Error)) {
        let mut first_sample = 0;
        for (dataset, &end) in self.datasets.iter().zip(&self.ends) {
            let index_in_dataset = |index: usize| index.clamp(first_sample, end) - first_sample;
            dataset.verify(index_in_dataset(samples.start)..index_in_dataset(samples.end), found);
            first_sample = end;
        }
    }

    fn is_unchanged(&self) -> bool {
        self.datasets.iter().all(|dataset| dataset.is_unchanged())
    }

    fn label(&self, index: usize, scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        let (dataset, index) = self.locate(index);
        self.label_of(dataset, self.datasets[dataset].label(index, scratch)?)
    }

    fn key(&self, index: usize, scratch: &mut Vec<u8>) -> Result<String> {
        let (dataset, index) = self.locate(index);
        self.datasets[dataset].key(index, scratch)
    }

    fn fingerprint(&self) -> Option<u64> {
        let add = |hash: Hash, dataset: &Arc<dyn Source>| {
            Some(hash.number(dataset.fingerprint()?).number(dataset.len() as u64))
        };
        self.datasets.iter().try_fold(Hash::default(), add).map(Hash::finish)
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        let (dataset, index) = self.locate(index);
        self.datasets[dataset].path(index)
    }

    fn dataset_index(&self, index: usize) -> usize {
        self.locate(index).0
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Returns whether the datasets have images. Returns `None` if the answers of the datasets
    /// differ or are unknown.
    fn has_images(&self) -> Option<bool> {
        let mut has_images = self.datasets.iter().map(|dataset| dataset.has_images());
        let has_images_in_first = has_images.next()??;
        has_images.all(|other| other == Some(has_images_in_first)).then_some(has_images_in_first)
    }

    fn images(&self) -> Vec<String> {
        let names: BTreeSet<String> = self.datasets.iter().flat_map(|dataset| dataset.images()).collect();
        names.into_iter().collect()
    }

    fn category_ids(&self) -> Vec<i64> {
        category_ids(&self.classes, self.datasets.iter())
    }

    /// Returns the fields of all datasets, or `None` if the fields of one are unknown.
    fn fields(&self) -> Option<Vec<String>> {
        let mut names = Vec::new();
        for dataset in &self.datasets {
            for name in dataset.fields()? {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        Some(names)
    }

    fn kind(&self) -> &'static str {
        "concat"
    }
}

pub(crate) struct Prefetchers(pub(crate) Vec<Box<dyn Prefetcher>>);

impl Prefetcher for Prefetchers {
    fn start(&self, batch: BatchIndex) {
        self.0.iter().for_each(|prefetcher| prefetcher.start(batch));
    }

    fn done(&self, batch: BatchIndex) {
        self.0.iter().for_each(|prefetcher| prefetcher.done(batch));
    }

    fn stop(&self) {
        self.0.iter().for_each(|prefetcher| prefetcher.stop());
    }
}

impl std::fmt::Debug for Concat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds = self.datasets.iter().map(|dataset| (dataset.kind(), dataset.len()));
        f.debug_list().entries(kinds).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::model::{Memory, OwnedSample};

    fn set(name: &str, len: usize, classes: &[&str]) -> Arc<dyn Source> {
        let sample = |i: usize| {
            let key = format!("{name}/{i}");
            OwnedSample::new(key.clone()).label(i as i64).field("note.txt", key.into_bytes())
        };
        Arc::new(Memory::new((0..len).map(sample).collect()).with_classes(classes.iter().copied()))
    }

    /// Requests the largest possible prefetch budget and records the granted budget.
    struct Greedy(Arc<Mutex<Vec<usize>>>);

    impl Source for Greedy {
        fn len(&self) -> usize {
            1
        }
        fn read<'a>(&'a self, _: usize, _: &'a mut Vec<u8>) -> Result<Sample<'a>> {
            Ok(Sample::new(""))
        }
        fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
            self.0.lock().unwrap().push(order.budget_bytes());
            None
        }
        fn prefetch_bytes(&self) -> usize {
            usize::MAX
        }
    }

    #[test]
    fn datasets_share_the_prefetch_budget() {
        let granted = Arc::new(Mutex::new(Vec::new()));
        let all = Concat::new((0..3).map(|_| Arc::new(Greedy(granted.clone())) as Arc<dyn Source>).collect()).unwrap();
        assert!(all.prefetcher(Lookahead::new(300, |_| 0, |_| None)).is_none());
        assert_eq!(*granted.lock().unwrap(), [100; 3]);
    }

    #[test]
    fn samples_keep_their_content_and_dataset_index() {
        let all = Concat::new(vec![set("a", 2, &[]), set("none", 0, &[]), set("b", 3, &["x", "y"])]).unwrap();
        let mut scratch = Vec::new();
        let mut seen = Vec::new();
        for i in 0..all.len() {
            let label = all.label(i, &mut scratch).unwrap().unwrap();
            let sample = all.read(i, &mut scratch).unwrap();
            assert_eq!(sample.label().unwrap(), Some(label));
            assert_eq!(sample.field("note.txt").as_deref(), Some(sample.key().as_bytes()));
            seen.push((sample.key().to_owned(), label, all.dataset_index(i)));
        }
        let expected = [("a/0", 0, 0), ("a/1", 1, 0), ("b/0", 0, 2), ("b/1", 1, 2), ("b/2", 2, 2)];
        assert_eq!(seen, expected.map(|(key, label, dataset)| (key.to_owned(), label, dataset)));
        assert_eq!((all.lens(), all.classes()), (vec![2, 0, 3], &["x".to_owned(), "y".to_owned()][..]));
        assert!(Concat::new(vec![]).unwrap().is_empty());
    }

    #[test]
    fn each_dataset_prefetches_its_own_samples_in_order() {
        type Calls = Arc<Mutex<Vec<String>>>;
        struct Fetches(usize, Calls);
        struct Recorder(Lookahead, Calls);
        impl Prefetcher for Recorder {
            fn start(&self, batch: BatchIndex) {
                let samples: Vec<_> = self.0.batches_from(batch).take(2).map(|(_, samples)| samples).collect();
                self.1.lock().unwrap().push(format!("{samples:?} within {}", self.0.budget_bytes()));
            }

            fn done(&self, batch: BatchIndex) {
                self.1.lock().unwrap().push(format!("done {batch:?}"));
            }

            fn stop(&self) {
                self.1.lock().unwrap().push("stop".to_owned());
            }
        }
        impl Source for Fetches {
            fn len(&self) -> usize {
                3
            }

            fn read<'a>(&'a self, _: usize, _: &'a mut Vec<u8>) -> Result<Sample<'a>> {
                Ok(Sample::new("fetched"))
            }

            fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
                Some(Box::new(Recorder(order, self.1.clone())))
            }

            fn prefetch_bytes(&self) -> usize {
                self.0
            }
        }
        let calls: [Calls; 2] = Default::default();
        let dataset = |index: usize| Arc::new(Fetches(100 * (index + 1), calls[index].clone()));
        let all = Concat::new(vec![dataset(0), set("between", 2, &[]), dataset(1)]).unwrap();
        assert_eq!(all.prefetch_bytes(), 300);
        let order = Lookahead::new(30, |_| 1, |at| Some(if at.epoch == 0 { vec![7, 2, 4, 0, 6, 2] } else { vec![5] }));
        let batch = BatchIndex::default();
        let prefetcher = all.prefetcher(order).unwrap();
        prefetcher.start(batch);
        prefetcher.done(batch);
        prefetcher.stop();
        let others = [format!("done {batch:?}"), "stop".to_owned()];
        for (calls, first) in calls.iter().zip(["[[2, 0, 2], []] within 10", "[[2, 1], [0]] within 20"]) {
            assert_eq!(*calls.lock().unwrap(), [&[first.to_owned()][..], &others].concat());
        }
        assert!(set("none", 1, &[]).prefetcher(Lookahead::new(0, |_| 0, |_| None)).is_none());
    }

    #[test]
    fn a_list_of_names_agrees_with_its_prefix() {
        let all = Concat::new(vec![set("a", 1, &["x"]), set("b", 1, &[]), set("c", 1, &["x", "y"])]).unwrap();
        assert_eq!(all.classes(), ["x", "y"]);
        let e = Concat::new(vec![set("a", 1, &["x"]), set("b", 1, &["x", "z"]), set("c", 1, &["x", "y"])]).unwrap_err();
        assert!(e.cause().contains("label 1 is \"z\" in dataset 1 and \"y\" in dataset 2"), "{e}");
    }
}
