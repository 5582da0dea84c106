//! [`FrameIndex`]: the frames of the selected episodes, as samples and as rows of Parquet files.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::sync::Arc;

use super::dataset_folder::DatasetFolder;
use super::episodes::{Episode, Episodes, data_path};
use super::info::Info;
use crate::error::{Error, Result, counted, push};
use crate::formats::parquet::{Rows, SampleRows};
use crate::machine::hash::Hash;

#[derive(Debug, Clone, Copy)]
pub(super) struct EpisodeRows {
    pub(super) index: u64,
    pub(super) first_row: usize,
    pub(super) len: usize,
}

#[derive(Debug)]
pub(super) struct FrameIndex {
    episodes: Vec<EpisodeRows>,
    /// For each episode, the index of its last sample plus one.
    sample_ends: Vec<usize>,
    /// Indices into `episodes`, sorted by the row of the first frame.
    by_row: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) episode: EpisodeRows,
    pub(super) frame_index: usize,
}

impl Frame {
    pub(super) fn row(self) -> usize {
        self.episode.first_row + self.frame_index
    }

    /// Returns the row of the frame that is `delta` frames after this one, and `false`. If there is
    /// no such frame in the episode, returns the nearest row of the episode, and `true`.
    pub(super) fn row_at(self, delta: i64) -> (usize, bool) {
        let target = (self.frame_index as i64).saturating_add(delta);
        let nearest = target.clamp(0, self.episode.len as i64 - 1);
        (self.episode.first_row + nearest as usize, nearest != target)
    }
}

impl FrameIndex {
    /// Opens the data files of the `selected` episodes. Only columns for which `is_needed` returns
    /// true can be read. Fails if a file and the metadata have different numbers of frames, or if
    /// there are no frames.
    pub(super) fn open(
        root: &DatasetFolder,
        info: &Info,
        (episodes, selected): (&Episodes, &[Episode]),
        is_needed: impl Fn(&str) -> bool,
    ) -> Result<(Rows, Self)> {
        let (mut files, mut starts) = (Vec::<((u64, u64), PathBuf)>::new(), HashMap::new());
        for episode in selected.iter().filter(|episode| episode.len > 0) {
            if let Entry::Vacant(entry) = starts.entry(episode.file) {
                entry.insert(0_usize);
                push(&mut files, (episode.file, root.path_of(&data_path(info, episode)?)))?;
            }
        }
        if files.is_empty() {
            return Err(Error::in_source("the selected episodes have no frames").at_path(&root.path));
        }
        let paths: Vec<PathBuf> = files.iter().map(|(_, path)| path.clone()).collect();
        let rows = Rows::open(&root.path, &root.storage, &paths, is_needed)?;
        let mut start = 0_usize;
        for ((file, _), (path, actual)) in files.iter().zip(rows.files()) {
            let listed = episodes.frame_counts.get(file).copied().unwrap_or(0);
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
        let first_row = |episode: &Episode| starts[&episode.file] + episode.first_row as usize;
        Ok((rows, Self::new(selected, first_row)?))
    }

    pub(super) fn new(selected: &[Episode], first_row: impl Fn(&Episode) -> usize) -> Result<Self> {
        let mut index = FrameIndex { episodes: Vec::new(), sample_ends: Vec::new(), by_row: Vec::new() };
        let mut end = 0;
        for episode in selected.iter().filter(|episode| episode.len > 0) {
            let len = episode.len as usize;
            end += len;
            push(&mut index.episodes, EpisodeRows { index: episode.index, first_row: first_row(episode), len })?;
            push(&mut index.sample_ends, end)?;
        }
        index.by_row = (0..index.episodes.len()).collect();
        index.by_row.sort_unstable_by_key(|&position| index.episodes[position].first_row);
        Ok(index)
    }

    pub(super) fn len(&self) -> usize {
        self.sample_ends.last().copied().unwrap_or(0)
    }

    pub(super) fn episodes(&self) -> &[EpisodeRows] {
        &self.episodes
    }

    pub(super) fn locate(&self, index: usize) -> Frame {
        let position = self.sample_ends.partition_point(|&end| end <= index);
        let episode = self.episodes[position];
        Frame { episode, frame_index: index - (self.sample_ends[position] - episode.len) }
    }

    /// Returns the sample whose own frame is in `row`, and this frame. Returns `None` if the row
    /// belongs to no selected episode.
    fn sample_with_row(&self, row: usize) -> Option<(usize, Frame)> {
        let after = self.by_row.partition_point(|&index| self.episodes[index].first_row <= row);
        let index = self.by_row[after.checked_sub(1)?];
        let episode = self.episodes[index];
        let frame_index = row - episode.first_row;
        let sample = || self.sample_ends[index] - episode.len + frame_index;
        (frame_index < episode.len).then(|| (sample(), Frame { episode, frame_index }))
    }

    pub(super) fn hash(&self) -> u64 {
        let add = |hash: Hash, rows: &EpisodeRows| hash.number(rows.index).number(rows.len as u64);
        self.episodes.iter().fold(Hash::default(), add).finish()
    }
}

/// The rows that each sample needs, for prefetching.
pub(super) struct NeededRows {
    frames: Arc<FrameIndex>,
    /// The deltas of each column, keyed by leaf index. Columns without an entry have the single
    /// delta 0.
    deltas: HashMap<usize, Vec<i64>>,
}

impl NeededRows {
    /// `column_deltas` lists the needed frames of each column, relative to the sample's own frame.
    pub(super) fn new(frames: Arc<FrameIndex>, rows: &Rows, column_deltas: Vec<(usize, Vec<i64>)>) -> Self {
        let mut deltas = HashMap::<usize, Vec<i64>>::new();
        for (column, offsets) in column_deltas {
            deltas.entry(column).or_default().extend(offsets);
        }
        let by_leaf = deltas.into_iter().filter_map(|(column, mut deltas)| {
            deltas.sort_unstable();
            deltas.dedup();
            Some((rows.leaf_index(column)?, deltas))
        });
        NeededRows { frames, deltas: by_leaf.collect() }
    }

    fn deltas(&self, leaf: usize) -> &[i64] {
        self.deltas.get(&leaf).map_or(&[0], |deltas| deltas)
    }
}

impl SampleRows for NeededRows {
    fn rows(&self, sample: u64, leaf: usize, visit: &mut dyn FnMut(usize)) {
        let frame = self.frames.locate(sample as usize);
        let mut last = None;
        for &delta in self.deltas(leaf) {
            let (row, _) = frame.row_at(delta);
            if last.replace(row) != Some(row) {
                visit(row);
            }
        }
    }

    /// Omits samples that need the row only as a substitute for a frame outside the episode.
    fn samples(&self, row: usize, leaf: usize, visit: &mut dyn FnMut(u64)) {
        let Some((sample, frame)) = self.frames.sample_with_row(row) else { return };
        for &delta in self.deltas(leaf) {
            let position = frame.frame_index as i64 - delta;
            if (0..frame.episode.len as i64).contains(&position) {
                visit((sample as i64 - delta) as u64);
            }
        }
    }

    fn max_samples_per_row(&self, leaf: usize) -> usize {
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
        let episodes = episodes.map(|(index, first_row, len)| EpisodeRows { index, first_row, len });
        Arc::new(FrameIndex { episodes: episodes.into(), sample_ends: vec![3, 4, 8], by_row: vec![2, 0, 1] })
    }

    #[test]
    fn needed_rows_and_samples_are_inverse() {
        let deltas = [-2, 0, 1, 3];
        let needed = NeededRows { frames: index(), deltas: HashMap::from([(5, deltas.to_vec())]) };
        let rows = [4, 5, 6, 9, 0, 1, 2, 3];
        let sample_episodes = [0, 0, 0, 1, 2, 2, 2, 2];
        let mut inverse = vec![Vec::new(); 10];
        for (sample, &row) in rows.iter().enumerate() {
            let mut actual = Vec::new();
            needed.rows(sample as u64, 5, &mut |row| actual.push(row));
            let mut expected = Vec::new();
            for delta in deltas {
                let is_same_episode = |other: &usize| sample_episodes[*other] == sample_episodes[sample];
                let (first, last) = ((0..8).find(is_same_episode).unwrap(), (0..8).rfind(is_same_episode).unwrap());
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
        assert_eq!((needed.max_samples_per_row(5), needed.max_samples_per_row(6)), (4, 1));
    }
}
