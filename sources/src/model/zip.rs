//! [`Zip`]: joins the fields of several datasets with the same samples.

use std::cell::Cell;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::concat::Prefetchers;
use super::{Lookahead, Prefetcher, Sample, Source, Value, VideoInfo};
use crate::error::{Error, Result, counted};
use crate::machine::hash::Hash;
use crate::stats::NetworkStats;

/// Datasets with the same samples in the same order, as one dataset: sample `i` has the fields of
/// sample `i` of every dataset. Use `Zip` for images with embeddings, masks or depth maps that are
/// stored in a separate dataset.
///
/// ```no_run
/// use warpfeed_sources::{Zip, open};
///
/// let both = Zip::new(vec![open("photos.lmdb")?, open("embeddings.tar")?])?;
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
///
/// **Keys.** Reading a sample fails if its keys differ, because the datasets then have different
/// orders, or one of them lacks a sample. [`by_index`](Zip::by_index) disables the check, for
/// datasets in which the same sample has different keys, such as the row numbers of an array.
///
/// **Fields.** Reading a sample fails if two datasets have a field of the same name.
/// [`with_prefix`](Zip::with_prefix) adds a prefix to the fields of a dataset.
///
/// The first dataset determines the key and the class names. The label comes from the first dataset
/// in which the sample has a label. The content of each sample is copied once in memory.
pub struct Zip {
    datasets: Vec<PrefixedDataset>,
    len: usize,
    /// Whether keys must be the same in all datasets.
    checks_keys: bool,
}

struct PrefixedDataset {
    source: Arc<dyn Source>,
    /// Prefix of the field names, with a trailing period. The prefix may be empty.
    prefix: String,
}

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A range of bytes in the copy of a sample.
type Span = Range<usize>;

/// Describes a copied sample with the fields of all datasets. The bytes are in a separate buffer.
#[derive(Default)]
struct SampleCopy {
    key: Span,
    label: Option<Label>,
    /// Name, content and type of each field.
    fields: Vec<(Span, Span, Value<'static>)>,
}

enum Label {
    Class(i64),
    Text(Span),
}

impl Zip {
    /// Zips `datasets`. Reading a sample fails if its keys differ.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if there are no datasets, or if their
    /// numbers of samples differ.
    pub fn new(datasets: Vec<Arc<dyn Source>>) -> Result<Self> {
        let Some(len) = datasets.first().map(|dataset| dataset.len()) else {
            return Err(Error::config("zip: no datasets; pass at least one"));
        };
        if let Some(dataset) = datasets.iter().position(|dataset| dataset.len() != len) {
            let mismatched = &datasets[dataset];
            return Err(Error::config(format!(
                "zip: dataset {dataset} ({}) has {}, but dataset 0 ({}) has {len}; all need the same samples in \
                 the same order",
                mismatched.kind(),
                counted(mismatched.len(), "sample", "samples"),
                datasets[0].kind()
            )));
        }
        let datasets = datasets.into_iter().map(|source| PrefixedDataset { source, prefix: String::new() }).collect();
        Ok(Zip { datasets, len, checks_keys: true })
    }

    /// Zips `datasets` without comparing keys. Samples are matched by index.
    ///
    /// # Errors
    /// See [`new`](Zip::new).
    pub fn by_index(datasets: Vec<Arc<dyn Source>>) -> Result<Self> {
        Ok(Zip { checks_keys: false, ..Self::new(datasets)? })
    }

    /// Adds a prefix to the names of the fields of the dataset with index `dataset`: with the
    /// prefix `depth`, `png` becomes `depth.png`, and `emb.npy` becomes `depth.emb.npy`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if there is no such dataset, or if the
    /// prefix is empty.
    pub fn with_prefix(mut self, dataset: usize, prefix: &str) -> Result<Self> {
        let datasets = self.datasets.len();
        match self.datasets.get_mut(dataset) {
            Some(dataset) if !prefix.is_empty() => dataset.prefix = format!("{prefix}."),
            Some(_) => {
                return Err(Error::config(
                    "zip: the prefix is empty: a dataset without a prefix keeps its field names",
                ));
            }
            None => {
                return Err(Error::config(format!(
                    "zip: there is no dataset {dataset}; the {datasets} datasets are numbered from 0"
                )));
            }
        }
        Ok(self)
    }

    /// Reads a sample with the fields of all datasets. `draw` is the sample's random number, or
    /// `None` if the caller is not a loader.
    fn read_all<'a>(&'a self, index: usize, draw: Option<u64>, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        scratch.clear();
        let mut buffer = BUFFER.take();
        let copy = self.copy(index, draw, &mut buffer, scratch);
        BUFFER.set(buffer);
        let (SampleCopy { key, label, fields }, scratch) = (copy?, &*scratch);
        let text =
            |span: Span| std::str::from_utf8(&scratch[span]).map_err(|_| Error::in_source("zip: a name is not UTF-8"));
        let mut sample = Sample::new(text(key)?);
        sample = match label {
            Some(Label::Class(class)) => sample.with_label(class),
            Some(Label::Text(span)) => sample.with_field("cls", &scratch[span])?,
            None => sample,
        };
        for (name, span, kind) in fields {
            let name = text(name)?;
            if sample.value(name).is_some() {
                return Err(Error::in_source(format!(
                    "zip: two datasets have the field {name:?}; add a prefix to one of them with Zip::with_prefix"
                )));
            }
            sample.push(name, kind.with_bytes(&scratch[span])?)?;
        }
        Ok(sample)
    }

    fn copy(&self, index: usize, draw: Option<u64>, buffer: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<SampleCopy> {
        let mut copy = SampleCopy::default();
        for (number, dataset) in self.datasets.iter().enumerate() {
            let sample = match draw {
                Some(draw) => dataset.source.read_drawn(index, draw, buffer)?,
                None => dataset.source.read(index, buffer)?,
            };
            if sample.is_relabeled() {
                return Err(Error::in_source(format!(
                    "zip: dataset {number} renumbers classes; join datasets or set classes after zipping, not before"
                )));
            }
            if number == 0 {
                copy.key = append_all(out, &[sample.key().as_bytes()]);
            } else if self.checks_keys && out[copy.key.clone()] != *sample.key().as_bytes() {
                return Err(Error::in_source(format!(
                    "zip: sample {index} has the key {:?} in dataset 0 ({}) and {:?} in dataset {number} ({}); the \
                     datasets need the same samples in the same order, or use Zip::by_index if only the keys differ",
                    String::from_utf8_lossy(&out[copy.key.clone()]),
                    self.datasets[0].source.kind(),
                    sample.key(),
                    dataset.source.kind()
                )));
            }
            if copy.label.is_none() {
                copy.label = match sample.label_text() {
                    Some(text) => Some(Label::Text(append_all(out, &[text]))),
                    None => sample.label()?.map(Label::Class),
                };
            }
            for (name, value) in sample.fields() {
                let name = append_all(out, &[dataset.prefix.as_bytes(), name.as_bytes()]);
                copy.fields.push((name, append_all(out, &[value.as_bytes()]), value.with_bytes(&[])?));
            }
        }
        Ok(copy)
    }
}

fn append_all(out: &mut Vec<u8>, slices: &[&[u8]]) -> Span {
    let start = out.len();
    slices.iter().for_each(|bytes| out.extend_from_slice(bytes));
    start..out.len()
}

impl Source for Zip {
    fn len(&self) -> usize {
        self.len
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.read_all(index, None, scratch)
    }

    fn read_drawn<'a>(&'a self, index: usize, draw: u64, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.read_all(index, Some(draw), scratch)
    }

    /// Divides the byte budget in proportion to [`prefetch_bytes`](Source::prefetch_bytes).
    fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        let total_bytes =
            self.datasets.iter().map(|dataset| dataset.source.prefetch_bytes() as u128).sum::<u128>().max(1);
        let share = |dataset: &PrefixedDataset| {
            (order.budget_bytes() as u128 * dataset.source.prefetch_bytes() as u128 / total_bytes) as usize
        };
        let datasets = self.datasets.iter();
        let prefetchers: Vec<_> = datasets
            .filter_map(|dataset| dataset.source.prefetcher(order.restricted(share(dataset), 0..self.len as u64)))
            .collect();
        (!prefetchers.is_empty()).then(|| Box::new(Prefetchers(prefetchers)) as Box<dyn Prefetcher>)
    }

    fn prefetch_bytes(&self) -> usize {
        self.datasets.iter().fold(0, |all, dataset| all.saturating_add(dataset.source.prefetch_bytes()))
    }

    fn video_info(&self) -> Option<VideoInfo> {
        self.datasets.iter().filter_map(|dataset| dataset.source.video_info()).reduce(VideoInfo::join)
    }

    fn network_stats(&self) -> Option<NetworkStats> {
        self.datasets
            .iter()
            .filter_map(|dataset| dataset.source.network_stats())
            .reduce(|all, dataset| all.plus(&dataset))
    }

    fn check(&self) -> Result<()> {
        self.datasets.iter().try_for_each(|dataset| dataset.source.check())
    }

    fn verify(&self, samples: Range<usize>, found: &mut dyn FnMut(Error)) {
        self.datasets.iter().for_each(|dataset| dataset.source.verify(samples.clone(), found));
    }

    fn is_unchanged(&self) -> bool {
        self.datasets.iter().all(|dataset| dataset.source.is_unchanged())
    }

    fn label(&self, index: usize, scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        for dataset in &self.datasets {
            if let Some(label) = dataset.source.label(index, scratch)? {
                return Ok(Some(label));
            }
        }
        Ok(None)
    }

    fn key(&self, index: usize, scratch: &mut Vec<u8>) -> Result<String> {
        self.datasets[0].source.key(index, scratch)
    }

    fn fingerprint(&self) -> Option<u64> {
        let add = |hash: Hash, dataset: &PrefixedDataset| Some(hash.number(dataset.source.fingerprint()?));
        self.datasets.iter().try_fold(Hash::default(), add).map(Hash::finish)
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        self.datasets.iter().find_map(|dataset| dataset.source.path(index))
    }

    fn classes(&self) -> &[String] {
        self.datasets[0].source.classes()
    }

    fn category_ids(&self) -> Vec<i64> {
        self.datasets[0].source.category_ids()
    }

    /// Returns whether any dataset has images. Images in a dataset with a prefix count, although
    /// they may be ordinary fields there.
    fn has_images(&self) -> Option<bool> {
        let has_images: Vec<_> = self.datasets.iter().map(|dataset| dataset.source.has_images()).collect();
        match has_images.contains(&Some(true)) {
            true => Some(true),
            false => has_images.iter().all(|answer| *answer == Some(false)).then_some(false),
        }
    }

    /// Returns the fields of all datasets. Returns `None` if the fields of a dataset are unknown,
    /// or if a dataset with a prefix may have images, because the names of the image fields are
    /// then unknown.
    fn fields(&self) -> Option<Vec<String>> {
        let mut names = Vec::new();
        for PrefixedDataset { source, prefix } in &self.datasets {
            if !prefix.is_empty() && source.has_images() != Some(false) {
                return None;
            }
            names.extend(source.fields()?.iter().map(|name| format!("{prefix}{name}")));
        }
        Some(names)
    }

    fn images(&self) -> Vec<String> {
        let prefixed_names = |dataset: &PrefixedDataset| {
            dataset.source.images().into_iter().map(|name| format!("{}{name}", dataset.prefix)).collect()
        };
        self.datasets.iter().flat_map::<Vec<String>, _>(prefixed_names).collect()
    }

    fn kind(&self) -> &'static str {
        "zip"
    }
}

impl std::fmt::Debug for Zip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.datasets.iter().map(|dataset| (dataset.source.kind(), &dataset.prefix))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Memory, OwnedSample};

    fn set(name: &str, keys: &[&str], label: Option<i64>) -> Arc<dyn Source> {
        let sample = |key: &&str| {
            let sample = OwnedSample::new(*key).field(name, format!("{name} of {key}"));
            if let Some(label) = label { sample.label(label) } else { sample }
        };
        Arc::new(Memory::new(keys.iter().map(sample).collect()))
    }

    /// The key, the label and the fields of a sample.
    type Read = (String, Option<i64>, Vec<(String, String)>);

    fn read(zip: &Zip, index: usize) -> Result<Read> {
        let mut scratch = b"bytes of an earlier sample".to_vec();
        let sample = zip.read(index, &mut scratch)?;
        let fields = sample
            .fields()
            .iter()
            .map(|(name, value)| (name.to_string(), String::from_utf8(value.as_bytes().to_vec()).unwrap()));
        Ok((sample.key().to_owned(), sample.label()?, fields.collect()))
    }

    #[test]
    fn a_sample_has_the_fields_of_all_datasets() {
        let zip = Zip::new(vec![set("jpg", &["a", "b"], None), set("txt", &["a", "b"], Some(7))]).unwrap();
        let fields = [("jpg", "jpg of b"), ("txt", "txt of b")].map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(read(&zip, 1).unwrap(), ("b".to_owned(), Some(7), fields.to_vec()));
        assert_eq!((zip.len(), zip.label(0, &mut Vec::new()).unwrap()), (2, Some(7)));
        assert_eq!(zip.key(0, &mut Vec::new()).unwrap(), "a");
    }

    #[test]
    fn typed_values_are_equal_after_zipping() {
        struct Typed;
        impl Source for Typed {
            fn len(&self) -> usize {
                1
            }
            fn read<'a>(&'a self, _: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
                let lists = crate::Lists::write(scratch, &[2, 4], &[1.0, 2.0, 3.0, 4.5])?;
                let numbers = crate::Numbers::new(&[1.5f32, 2.0, -3.0, 0.0, 7.0, 9.0], &[2, 3])?;
                Sample::new("a").with_field("x.npy", numbers)?.with_field("l.json", lists)?.with_field("t", "é")
            }
        }
        let zip = Zip::new(vec![Arc::new(Typed), set("jpg", &["a"], None)]).unwrap();
        let (mut one, mut both) = (Vec::new(), Vec::new());
        let (one, both) = (Typed.read(0, &mut one).unwrap(), zip.read(0, &mut both).unwrap());
        assert_eq!(both.fields()[..3], *one.fields());
    }

    #[test]
    fn different_keys_fail_with_both_names() {
        let sets = || vec![set("jpg", &["a", "b"], None), set("txt", &["a", "c"], None)];
        let zip = Zip::new(sets()).unwrap();
        assert!(read(&zip, 0).is_ok());
        let e = read(&zip, 1).unwrap_err().to_string();
        assert!(e.contains("sample 1 has the key \"b\" in dataset 0 (memory) and \"c\" in dataset 1"), "{e}");
        assert_eq!(read(&Zip::by_index(sets()).unwrap(), 1).unwrap().0, "b");
    }

    #[test]
    fn fields_of_the_same_name_need_a_prefix() {
        let sets = || vec![set("jpg", &["a"], None), set("jpg", &["a"], None)];
        let e = read(&Zip::new(sets()).unwrap(), 0).unwrap_err().to_string();
        assert!(e.contains("two datasets have the field \"jpg\"") && e.contains("Zip::with_prefix"), "{e}");
        let fields = read(&Zip::new(sets()).unwrap().with_prefix(1, "depth").unwrap(), 0).unwrap().2;
        assert_eq!(fields.iter().map(|field| &*field.0).collect::<Vec<_>>(), ["jpg", "depth.jpg"]);
        assert!(Zip::new(sets()).unwrap().with_prefix(2, "depth").is_err());
        assert!(Zip::new(sets()).unwrap().with_prefix(1, "").is_err());
    }

    #[test]
    fn datasets_of_different_lengths_are_refused() {
        let e = Zip::new(vec![set("jpg", &["a", "b"], None), set("txt", &["a"], None)]).unwrap_err().to_string();
        assert!(e.contains("dataset 1 (memory) has 1 sample, but dataset 0 (memory) has 2"), "{e}");
        assert!(Zip::new(vec![]).is_err());
    }

    #[test]
    fn text_labels_are_parsed_only_on_request() {
        let sample = OwnedSample::new("a").field("cls", "no number").field("jpg", "x");
        let zip = Zip::new(vec![Arc::new(Memory::new(vec![sample])) as Arc<dyn Source>]).unwrap();
        let mut scratch = Vec::new();
        let sample = zip.read(0, &mut scratch).unwrap();
        assert!(sample.label().is_err() && sample.names() == ["jpg"]);
    }
}
