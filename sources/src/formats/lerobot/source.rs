//! [`LeRobot`]: a source in which each frame of a robot episode is a sample.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::choice;
use super::content::key;
use super::dataset_folder::DatasetFolder;
use super::episodes::{self, Episodes};
use super::features::{self, Feature, Kind, TASK};
use super::frames::FrameIndex;
use super::info::Info;
use super::options::LeRobotOptions;
use super::packed::{PackedInfo, PackedReader};
use super::read::{CHECKED_COLUMNS, ParquetReader};
use super::split_frames;
use super::stats::{self, FeatureStats};
use crate::error::{Error, Result};
use crate::model::sample::are_same_field;
use crate::model::{Lookahead, Prefetcher, Sample, Source, SplitEpisodes, VideoInfo};
use crate::options::Options;
use crate::stats::NetworkStats;
use crate::storage::DatasetLocation;

/// The frames of a LeRobot dataset (version 2.0, 2.1 or 3.0), either local or in an object store.
///
/// ```no_run
/// use warpfeed_sources::{LeRobot, LeRobotOptions, Options};
///
/// let options = LeRobotOptions::new().delta_indices("action", 0..16);
/// let set = LeRobot::open_with("aloha", &options, &Options::new())?;
/// let action = &set.stats()?["action"];
/// println!("mean {:?}, standard deviation {:?}", action.mean, action.std);
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
///
/// Each frame of an episode is a sample. Samples are in episode order, with keys such as
/// `episode_000000/frame_000000`.
///
/// | feature | field of the sample |
/// |---|---|
/// | numbers and `bool` | `<feature>.npy`, with the type of the data files (or the type in `meta/info.json` for nested lists) and the shape in `meta/info.json`; a feature of shape (1) is a scalar |
/// | `image` | `<feature>`, the encoded image |
/// | `string` | `<feature>.txt` |
/// | the task of the frame | `task.txt`, its text |
/// | `video` | `<feature>`, a frame of the video that a codec decodes like an image; with the `video` Cargo feature |
///
/// **Several frames.** With [deltas](LeRobotOptions::delta_timestamps), a feature of T frames has
/// the shape (T, ...). The `<feature>_is_pad.npy` field, u8 of shape (T), is 1 for frames outside
/// the episode. Such frames repeat the first or the last frame of the episode, as in the `lerobot`
/// library.
///
/// **Checks.** Opening compares the number of rows in the data files of the selected episodes with
/// the metadata. Reading a sample checks the episode and the frame of its row against the metadata,
/// and the time between its first and its last frame against `fps`.
///
/// **Videos.** A sample contains the video frame with the time of the row. The sample table of the
/// file lists the presentation time of each frame, which may differ from the row's time by up to
/// `tolerance_s`. If there is no such frame, reading the sample fails. The frame is returned as the
/// packets that are needed to decode it, starting with the packet of a key frame.
///
/// **Memory.** The metadata of the opened data files and the list of the selected episodes stay in
/// memory. For each video feature, the sample tables of the most recently used files stay in
/// memory, up to about 30 MB. The pages of the data files are cached as [`Parquet`](crate::Parquet)
/// describes.
pub struct LeRobot {
    root: DatasetFolder,
    frames: Arc<FrameIndex>,
    reader: FrameReader,
}

enum FrameReader {
    Parquet(Box<ParquetReader>),
    Packed(PackedReader),
}

macro_rules! dispatch {
    ($reader:expr, $name:ident($($arg:expr),*)) => {
        match $reader {
            FrameReader::Parquet(reader) => reader.$name($($arg),*),
            FrameReader::Packed(reader) => reader.$name($($arg),*),
        }
    };
}

impl LeRobot {
    /// Opens the dataset in the folder `path`, with all episodes. Features of unsupported types,
    /// and videos that cannot be opened, are skipped with a log message.
    ///
    /// # Errors
    /// If a file is missing or damaged, if the version is not supported, or if the files contradict
    /// each other.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &LeRobotOptions::new(), &Options::new())
    }

    /// Opens the dataset at `path`, which is a local folder, or a URL in a store that
    /// `open_options` registers.
    ///
    /// # Errors
    /// Fails like [`open`](LeRobot::open), and if `options` are invalid or do not match the
    /// dataset. For example, an episode, a split or a feature may not exist, a selected video may
    /// be unreadable, or a time in `delta_timestamps` may not coincide with a frame.
    pub fn open_with(path: impl AsRef<Path>, options: &LeRobotOptions, open_options: &Options) -> Result<Self> {
        let path = path.as_ref();
        Self::open_at(open_options.locate(path)?, options)
            .map_err(|e| if e.path().is_some() { e } else { e.at_path(path) })
    }

    pub(crate) fn open_at(location: DatasetLocation, options: &LeRobotOptions) -> Result<Self> {
        let root = DatasetFolder::new(location);
        let (info, all_episodes, packed) = read_metadata(&root)?;
        let selected = features::select_features(&info, options)?;
        let tasks = match selected.iter().any(|feature| feature.is_task()) {
            true => episodes::tasks(&root, &info)?,
            false => BTreeMap::new(),
        };
        let episodes = choice::choose_episodes(&all_episodes, &info, &root, options)?;
        let timing = (info.fps, options.tolerance_s);
        if let Some(packed) = packed {
            let frames = FrameIndex::new(&episodes, |episode| episode.first_row as usize)?;
            let rows = all_episodes.list.iter().map(|episode| episode.len as usize).sum();
            let features = selected.into_iter().map(|feature| feature.into_feature(0)).collect();
            let reader = PackedReader::open(&root, (&packed, rows), features, tasks, timing)?;
            return Ok(LeRobot { root, frames: Arc::new(frames), reader: FrameReader::Packed(reader) });
        }
        let is_needed =
            |name: &str| CHECKED_COLUMNS.contains(&name) || selected.iter().any(|feature| feature.column() == name);
        let (rows, frames) = FrameIndex::open(&root, &info, (&all_episodes, &episodes), is_needed)?;
        let videos = root.with_separate_requests();
        let dataset = (&videos, &info, &*episodes);
        let bound_features =
            selected.into_iter().enumerate().map(|(index, feature)| feature.bind(&rows, (index, dataset)));
        let features = bound_features.filter_map(Result::transpose).collect::<Result<Vec<_>>>()?;
        let reader = ParquetReader::new(rows, features, tasks, timing)?;
        Ok(LeRobot { root, frames: Arc::new(frames), reader: FrameReader::Parquet(Box::new(reader)) })
    }

    /// Reads the statistics of all features, including videos, for normalization. Version 2.1
    /// stores statistics for each episode, and this method combines the statistics of the selected
    /// episodes. In the other versions, the statistics describe the whole dataset.
    ///
    /// # Errors
    /// If the dataset has no statistics, or if they are damaged.
    pub fn stats(&self) -> Result<BTreeMap<String, FeatureStats>> {
        let indices: HashSet<u64> = self.frames.episodes().iter().map(|episode| episode.index).collect();
        stats::read(&self.root, |index| indices.contains(&index))
    }

    /// Like [`stats`](LeRobot::stats), but opens only the metadata of the dataset at `path`.
    ///
    /// # Errors
    /// Fails like [`stats`](LeRobot::stats), if other metadata is missing or damaged, or if an
    /// episode or a split does not exist.
    pub fn stats_at(
        path: impl AsRef<Path>,
        options: &LeRobotOptions,
        open_options: &Options,
    ) -> Result<BTreeMap<String, FeatureStats>> {
        let root = DatasetFolder::new(open_options.locate(path.as_ref())?);
        let (info, all_episodes, _) = read_metadata(&root)?;
        let selected = choice::choose_episodes(&all_episodes, &info, &root, options)?;
        let indices: HashSet<u64> = selected.iter().map(|episode| episode.index).collect();
        stats::read(&root, |index| indices.contains(&index))
    }

    fn features(&self) -> &[Feature] {
        match &self.reader {
            FrameReader::Parquet(reader) => &reader.features,
            FrameReader::Packed(reader) => &reader.features,
        }
    }

    /// Returns the number of frames per second.
    pub fn fps(&self) -> f64 {
        dispatch!(&self.reader, fps())
    }

    /// Returns the task texts of each selected episode that has frames, in order of first
    /// occurrence. Reads the task of every frame.
    ///
    /// # Errors
    /// If the dataset has no tasks, if the `task` feature is not selected, or if a frame cannot be
    /// read.
    pub fn tasks(&self) -> Result<Vec<Vec<String>>> {
        let has_tasks = self.features().iter().any(|feature| feature.kind == Kind::Task);
        let view = self.select_fields(&[TASK.to_owned()]).filter(|_| has_tasks);
        let view = view.ok_or_else(|| {
            Error::config(format!(
                "the samples have no feature {TASK:?}: either the dataset has no tasks, or this feature is not among \
                 the features that were selected with LeRobotOptions::features"
            ))
        })?;
        let (field, mut scratch) = (format!("{TASK}.txt"), Vec::new());
        let tasks = self.episodes().map(|(_, samples)| {
            let mut tasks = Vec::<String>::new();
            for index in samples {
                let sample = view.read(index, &mut scratch)?;
                let text = sample.field(&field).unwrap_or_default();
                if !tasks.iter().any(|known| known.as_bytes() == &*text) {
                    tasks.push(String::from_utf8_lossy(&text).into_owned());
                }
            }
            Ok(tasks)
        });
        tasks.collect()
    }

    /// Returns the index of each selected episode, and the range of its samples. Omits episodes
    /// without frames.
    pub fn episodes(&self) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
        let mut start = 0;
        self.frames.episodes().iter().map(move |episode| {
            let samples = start..start + episode.len;
            start = samples.end;
            (episode.index, samples)
        })
    }
}

/// If the dataset is packed, the result contains only the packed episodes and features.
fn read_metadata(root: &DatasetFolder) -> Result<(Info, Episodes, Option<PackedInfo>)> {
    let mut info = Info::read(root)?;
    let mut all_episodes = Episodes::read(root, &info)?;
    let packed = PackedInfo::find(root)?;
    if let Some(packed) = &packed {
        packed.restrict(&mut info, &mut all_episodes, root)?;
    }
    Ok((info, all_episodes, packed))
}

impl Source for LeRobot {
    fn len(&self) -> usize {
        self.frames.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        dispatch!(&self.reader, read(self.frames.locate(index), scratch))
    }

    fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        dispatch!(&self.reader, prefetcher(&self.frames, &order))
    }

    fn prefetch_bytes(&self) -> usize {
        dispatch!(&self.reader, prefetch_bytes())
    }

    fn video_info(&self) -> Option<VideoInfo> {
        match &self.reader {
            FrameReader::Parquet(reader) => reader.video_info(),
            FrameReader::Packed(_) => None,
        }
    }

    fn check(&self) -> Result<()> {
        dispatch!(&self.reader, check())
    }

    fn is_unchanged(&self) -> bool {
        dispatch!(&self.reader, is_unchanged())
    }

    fn network_stats(&self) -> Option<NetworkStats> {
        dispatch!(&self.reader, network_stats())
    }

    fn label(&self, _index: usize, _scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        Ok(None)
    }

    fn key(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<String> {
        Ok(key(self.frames.locate(index)))
    }

    fn fingerprint(&self) -> Option<u64> {
        Some(self.frames.hash())
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        dispatch!(&self.reader, path(self.frames.locate(index).row()))
    }

    /// Returns `Some(false)`: a dataset may have several cameras, so programs must name the images
    /// that they read.
    fn has_images(&self) -> Option<bool> {
        Some(false)
    }

    fn fields(&self) -> Option<Vec<String>> {
        Some(dispatch!(&self.reader, field_names()))
    }

    fn select_fields(&self, fields: &[String]) -> Option<Arc<dyn Source>> {
        let is_wanted = |field: &str| fields.iter().any(|wanted| are_same_field(field, wanted));
        let mut features = self.features().to_vec();
        for feature in &mut features {
            feature.has_field = is_wanted(&feature.field);
            feature.has_pad_field = feature.deltas.is_some() && is_wanted(&feature.pad_field);
        }
        features.retain(|feature| feature.has_field || feature.has_pad_field);
        let reader = match &self.reader {
            FrameReader::Parquet(reader) => FrameReader::Parquet(Box::new(reader.with_features(features).ok()?)),
            FrameReader::Packed(reader) => FrameReader::Packed(reader.with_features(features)),
        };
        Some(Arc::new(LeRobot { root: self.root.clone(), frames: self.frames.clone(), reader }))
    }

    fn images(&self) -> Vec<String> {
        let cameras = self.features().iter().filter(|feature| feature.has_field && feature.kind.is_camera());
        cameras.map(|feature| feature.field.clone()).collect()
    }

    fn split_episodes(&self, packed: &str) -> Result<Option<SplitEpisodes>> {
        let episodes = self.frames.episodes().iter().map(|episode| episode.index).collect();
        split_frames::split_frames(self, (&self.root, self.features()), episodes, packed).map(Some)
    }

    fn kind(&self) -> &'static str {
        "lerobot"
    }
}

impl std::fmt::Debug for LeRobot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeRobot")
            .field("path", &self.root.path)
            .field("samples", &self.len())
            .field("fields", &self.fields())
            .finish_non_exhaustive()
    }
}
