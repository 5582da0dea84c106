use std::path::PathBuf;
use std::sync::Arc;

use super::{Sample, Source};
use crate::error::{Error, Result};

/// Several data sets as one: the samples of the first, then those of the second, and so on.
///
/// Samples keep their keys, fields and labels. [`part`](Source::part) says which data set a sample comes from. The classes have names if all the sets
/// that name theirs have the same.
///
/// With [`order::Mixture`](crate::order::Mixture) they are drawn from in proportions; [`Loader::mixture`](crate::Loader::mixture) is the two together.
pub struct Concat {
    parts: Vec<Arc<dyn Source>>,
    /// Index after the last sample of each.
    ends: Vec<usize>,
    classes: Vec<String>,
}

impl Concat {
    /// The data sets `parts`, in this order.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if they have more samples than can be counted.
    pub fn new(parts: Vec<Arc<dyn Source>>) -> Result<Self> {
        let mut ends = Vec::with_capacity(parts.len());
        for part in &parts {
            let end = ends.last().copied().unwrap_or(0usize).checked_add(part.len());
            ends.push(end.ok_or_else(|| Error::config("concat: more samples than can be counted"))?);
        }
        let mut named = parts.iter().map(|part| part.classes()).filter(|names| !names.is_empty());
        let first = named.next().unwrap_or(&[]);
        let classes = if named.all(|names| names == first) { first.to_vec() } else { Vec::new() };
        Ok(Concat { parts, ends, classes })
    }

    /// Number of samples of each part.
    pub fn lens(&self) -> Vec<usize> {
        self.parts.iter().map(|part| part.len()).collect()
    }

    /// The part that sample `index` is in, and its index there.
    fn locate(&self, index: usize) -> (usize, usize) {
        let part = self.ends.partition_point(|&end| end <= index);
        (part, if part == 0 { index } else { index - self.ends[part - 1] })
    }
}

impl Source for Concat {
    fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let (part, index) = self.locate(index);
        self.parts[part].read(index, scratch)
    }

    fn check(&self) -> Result<()> {
        self.parts.iter().try_for_each(|part| part.check())
    }

    fn label(&self, index: usize, scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        let (part, index) = self.locate(index);
        self.parts[part].label(index, scratch)
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        let (part, index) = self.locate(index);
        self.parts[part].path(index)
    }

    fn part(&self, index: usize) -> usize {
        self.locate(index).0
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn kind(&self) -> &'static str {
        "concat"
    }
}

impl std::fmt::Debug for Concat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds = self.parts.iter().map(|part| (part.kind(), part.len()));
        f.debug_list().entries(kinds).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Memory, OwnedSample};

    fn set(name: &str, len: usize, classes: &[&str]) -> Arc<dyn Source> {
        let samples = (0..len).map(|i| OwnedSample::new(format!("{name}/{i}")).label(i as i64)).collect();
        Arc::new(Memory::new(samples).with_classes(classes.iter().copied()))
    }

    #[test]
    fn samples_stay_what_they_are_and_their_part_is_known() {
        let all = Concat::new(vec![set("a", 2, &[]), set("none", 0, &[]), set("b", 3, &["x", "y"])]).unwrap();
        let mut scratch = Vec::new();
        let mut seen = Vec::new();
        for i in 0..all.len() {
            let label = all.label(i, &mut scratch).unwrap().unwrap();
            let sample = all.read(i, &mut scratch).unwrap();
            assert_eq!(sample.label().unwrap(), Some(label));
            seen.push((sample.key().to_owned(), label, all.part(i)));
        }
        let expected = [("a/0", 0, 0), ("a/1", 1, 0), ("b/0", 0, 2), ("b/1", 1, 2), ("b/2", 2, 2)];
        assert_eq!(seen, expected.map(|(key, label, part)| (key.to_owned(), label, part)));
        assert_eq!((all.lens(), all.classes()), (vec![2, 0, 3], &["x".to_owned(), "y".to_owned()][..]));
        let other = Concat::new(vec![set("a", 2, &["x"]), set("b", 3, &["y"])]).unwrap();
        assert!(other.classes().is_empty(), "names that differ name nothing");
        assert!(Concat::new(vec![]).unwrap().is_empty());
    }
}
