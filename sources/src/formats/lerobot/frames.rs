//! [`FrameIndex`]: the frames of the selected episodes, as samples and as rows of Parquet files.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::sync::Arc;

use super::episodes::{Episode, Episodes, data_path};
use super::info::Info;
use super::text::DatasetFolder;
use crate::error::{Error, Result, counted, push};
use crate::formats::parquet::{Rows, SampleRows};
use crate::machine::hash::Hash;

#[derive(Debug, Clone, Copy)]
pub(super) struct EpisodeRows {
    pub(super) episode: u64,
    /// Row of the episode's first frame.
    pub(super) first: usize,
    pub(super) len: usize,
}

#[derive(Debug)]
pub(super) struct FrameIndex {
    episodes: Vec<EpisodeRows>,
    /// For each episode, the index of its last sample plus one.
    ends: Vec<usize>,
    /// Indices into `episodes`, sorted by the row of the first frame.
    by_row: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) episode: EpisodeRows,
    pub(super) frame: usize,
}

impl Frame {
    pub(super) fn row(self) -> usize {
        self.episode.first + self.frame
    }

    /// Returns the row of the frame that is `delta` frames later. If that frame is outside the
    /// episode, returns the episode's first or last row, and true.
    pub(super) fn at(self, delta: i64) -> (usize, bool) {
        let target = (self.frame as i64).saturating_add(delta);
        let nearest = target.clamp(0, self.episode.len as i64 - 1);
        (self.episode.first + nearest as usize, nearest != target)
    }
}

impl FrameIndex {
    /// Only columns for which `uses` returns true can be read. Fails if the metadata lists a
    /// different number of frames.
    pub(super) fn open(
        root: &DatasetFolder,
        info: &Info,
        (episodes, chosen): (&Episodes, &[Episode]),
        uses: impl Fn(&str) -> bool,
    ) -> Result<(Rows, Self)> {
        let (mut files, mut starts) = (Vec::<((u64, u64), PathBuf)>::new(), HashMap::new());
        for episode in chosen.iter().filter(|episode| episode.len > 0) {
            if let Entry::Vacant(entry) = starts.entry(episode.file) {
                entry.insert(0_usize);
                push(&mut files, (episode.file, root.file(&data_path(info, episode)?)))?;
            }
        }
        if files.is_empty() {
            return Err(Error::in_source("the selected episodes have no frames").at_path(&root.path));
        }
        let paths: Vec<PathBuf> = files.iter().map(|(_, path)| path.clone()).collect();
        let rows = Rows::open(&root.path, &root.storage, &paths, uses)?;
        let mut start = 0_usize;
        for ((file, _), (path, actual)) in files.iter().zip(rows.files()) {
            let listed = episodes.rows.get(file).copied().unwrap_or(0);
            if listed != actual {
                return Err(Error::in_source(format!(
                    "the file has {}, but the metadata lists {} for its episodes; download the dataset again",
                    counted(actual, "row", "rows"),
                    counted(listed, "frame", "frames")
                ))
                .at_path(path));
            }
            starts.insert(*file, start);
            start += actual as usize;
        }
        let first = |episode: &Episode| starts[&episode.file] + episode.first as usize;
        Ok((rows, Self::of(chosen, first)?))
    }

    /// `first` returns the row of an episode's first frame.
    pub(super) fn of(chosen: &[Episode], first: impl Fn(&Episode) -> usize) -> Result<Self> {
        let mut index = FrameIndex { episodes: Vec::new(), ends: Vec::new(), by_row: Vec::new() };
        let mut end = 0;
        for episode in chosen.iter().filter(|episode| episode.len > 0) {
            let len = episode.len as usize;
            end += len;
            push(&mut index.episodes, EpisodeRows { episode: episode.index, first: first(episode), len })?;
            push(&mut index.ends, end)?;
        }
        index.by_row = (0..index.episodes.len()).collect();
        index.by_row.sort_unstable_by_key(|&number| index.episodes[number].first);
        Ok(index)
    }

    pub(super) fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    pub(super) fn episodes(&self) -> &[EpisodeRows] {
        &self.episodes
    }

    pub(super) fn locate(&self, index: usize) -> Frame {
        let number = self.ends.partition_point(|&end| end <= index);
        let episode = self.episodes[number];
        Frame { episode, frame: index - (self.ends[number] - episode.len) }
    }

    /// Returns the sample with its frame in `row`, or `None` if the row's episode is not selected.
    fn sample_of(&self, row: usize) -> Option<(usize, Frame)> {
        let after = self.by_row.partition_point(|&index| self.episodes[index].first <= row);
        let index = self.by_row[after.checked_sub(1)?];
        let episode = self.episodes[index];
        let frame = row - episode.first;
        (frame < episode.len).then(|| (self.ends[index] - episode.len + frame, Frame { episode, frame }))
    }

    pub(super) fn hash(&self) -> u64 {
        let add = |hash: Hash, range: &EpisodeRows| hash.number(range.episode).number(range.len as u64);
        self.episodes.iter().fold(Hash::default(), add).end()
    }
}

/// The rows that each sample needs, for prefetching.
pub(super) struct NeededRows {
    frames: Arc<FrameIndex>,
    /// The deltas of each leaf column. Columns without an entry have the single delta 0.
    deltas: HashMap<usize, Vec<i64>>,
}

impl NeededRows {
    /// For each column, `needed` contains the offsets of the needed frames from the sample's own
    /// frame.
    pub(super) fn new(frames: Arc<FrameIndex>, rows: &Rows, needed: Vec<(usize, Vec<i64>)>) -> Self {
        let mut deltas = HashMap::<usize, Vec<i64>>::new();
        for (place, offsets) in needed {
            deltas.entry(place).or_default().extend(offsets);
        }
        let by_leaf = deltas.into_iter().filter_map(|(place, mut deltas)| {
            deltas.sort_unstable();
            deltas.dedup();
            Some((rows.leaf(place)?, deltas))
        });
        NeededRows { frames, deltas: by_leaf.collect() }
    }

    fn deltas(&self, leaf: usize) -> &[i64] {
        self.deltas.get(&leaf).map_or(&[0], |deltas| deltas)
    }
}

impl SampleRows for NeededRows {
    fn rows(&self, sample: u64, leaf: usize, with: &mut dyn FnMut(usize)) {
        let frame = self.frames.locate(sample as usize);
        let mut last = None;
        for &delta in self.deltas(leaf) {
            let (row, _) = frame.at(delta);
            if last.replace(row) != Some(row) {
                with(row);
            }
        }
    }

    /// Omits samples that need the row only as a substitute for a frame outside the episode.
    fn samples(&self, row: usize, leaf: usize, with: &mut dyn FnMut(u64)) {
        let Some((sample, frame)) = self.frames.sample_of(row) else { return };
        for &delta in self.deltas(leaf) {
            let position = frame.frame as i64 - delta;
            if (0..frame.episode.len as i64).contains(&position) {
                with((sample as i64 - delta) as u64);
            }
        }
    }

    fn most_samples(&self, leaf: usize) -> usize {
        self.deltas(leaf).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an index of three episodes with 3, 1 and 4 frames. The last episode comes first in
    /// the files.
    fn index() -> Arc<FrameIndex> {
        let episodes = [(0, 4, 3), (1, 9, 1), (2, 0, 4)];
        let episodes = episodes.map(|(episode, first, len)| EpisodeRows { episode, first, len });
        Arc::new(FrameIndex { episodes: episodes.into(), ends: vec![3, 4, 8], by_row: vec![2, 0, 1] })
    }

    #[test]
    fn needed_rows_and_samples_are_inverse() {
        let deltas = [-2, 0, 1, 3];
        let needed = NeededRows { frames: index(), deltas: HashMap::from([(5, deltas.to_vec())]) };
        let rows = [4, 5, 6, 9, 0, 1, 2, 3];
        let of_episode = [0, 0, 0, 1, 2, 2, 2, 2];
        let mut inverse = vec![Vec::new(); 10];
        for (sample, &row) in rows.iter().enumerate() {
            let mut actual = Vec::new();
            needed.rows(sample as u64, 5, &mut |row| actual.push(row));
            let mut expected = Vec::new();
            for delta in deltas {
                let same = |other: &usize| of_episode[*other] == of_episode[sample];
                let (first, last) = ((0..8).find(same).unwrap(), (0..8).rfind(same).unwrap());
                let target = sample as i64 + delta;
                expected.push(rows[target.clamp(first as i64, last as i64) as usize]);
                if (first as i64..=last as i64).contains(&target) {
                    inverse[rows[target as usize]].push(sample as u64);
                }
            }
            expected.dedup();
            assert_eq!(actual, expected, "sample {sample}");
            actual.clear();
            needed.rows(sample as u64, 6, &mut |row| actual.push(row));
            assert_eq!(actual, [row], "a column without deltas");
        }
        for (row, mut expected) in inverse.into_iter().enumerate() {
            let mut actual = Vec::new();
            needed.samples(row, 5, &mut |sample| actual.push(sample));
            actual.sort_unstable();
            expected.sort_unstable();
            assert_eq!(actual, expected, "row {row}");
        }
        assert_eq!((needed.most_samples(5), needed.most_samples(6)), (4, 1));
    }
}
