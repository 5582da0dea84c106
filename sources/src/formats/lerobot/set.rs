//! The source [`LeRobot`]. Each frame of a robot episode is a sample.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::choice;
use super::episodes::{self, Episodes};
use super::features;
use super::frames::{FrameIndex, NeededRows};
use super::info::Info;
use super::options::LeRobotOptions;
use super::read::{CHECKED, Reader, key};
use super::stats::{self, FeatureStats};
use super::text::Home;
use crate::error::Result;
use crate::formats::parquet::SampleRows;
use crate::model::sample::are_one;
use crate::model::{Lookahead, Prefetcher, Sample, Source};
use crate::options::Options;
use crate::stats::NetworkStats;
use crate::storage::DatasetLocation;

/// The frames of a LeRobot dataset (version 2.0, 2.1 or 3.0), either local or in an object store.
///
/// ```no_run
/// use warpfeed_sources::{LeRobot, LeRobotOptions, Options};
///
/// let options = LeRobotOptions::new().delta_indices("action", 0..16);
/// let set = LeRobot::with("aloha", &options, &Options::new())?;
/// let action = &set.stats()?["action"];
/// println!("mean {:?}, standard deviation {:?}", action.mean, action.std);
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
///
/// Each frame of an episode is a sample. Samples are in the order of the episodes, and their keys
/// are `episode_000000/frame_000000` and so on.
///
/// | feature | field of the sample |
/// |---|---|
/// | numbers and `bool` | `<feature>.npy`, with the type of the data files and the shape in `meta/info.json`; a feature of shape (1) is a scalar |
/// | `image` | `<feature>`, the encoded image |
/// | `string` | `<feature>.txt` |
/// | the task of the frame | `task.txt`, its text |
/// | `video` | `<feature>`, a frame of the video that a codec decodes like an image; with the Cargo feature `video` |
///
/// **Several frames.** With [deltas](LeRobotOptions::delta_timestamps), a feature of T frames has
/// the shape (T, ...), and the field `<feature>_is_pad.npy`, u8 of shape (T), is 1 for frames
/// outside the episode. These repeat the first or the last frame of the episode, as in the library
/// `lerobot`.
///
/// **Checks.** Opening compares the number of rows of each data file with the metadata. Reading a
/// sample checks the episode and the frame of its row against the metadata. It also checks the time
/// between its first and last frame against `fps`.
///
/// **Videos.** The frame of a video is the frame whose presentation time is the time of the row, as the
/// sample table of the file says, within `tolerance_s`. Otherwise, reading the sample is an error that
/// names both times. The frame is returned with the packets from its key frame on.
///
/// **Memory.** The metadata of all data files and the list of episodes stay in memory. For each video
/// feature, the sample tables of the files that were used last stay in memory, up to 46 MB. The pages of
/// the data files are cached as [`Parquet`](crate::Parquet) describes.
pub struct LeRobot {
    home: Home,
    frames: Arc<FrameIndex>,
    reader: Reader,
}

impl LeRobot {
    /// Opens the dataset in the folder `path`: all episodes, and all features. Leaves out videos that
    /// cannot be read.
    ///
    /// # Errors
    /// If a file is missing or damaged, if the version is not supported, or if the files contradict
    /// each other.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::with(path, &LeRobotOptions::new(), &Options::new())
    }

    /// Opens the dataset at `path`, a folder or, with a store in `opening`, a URL.
    ///
    /// # Errors
    /// As for [`open`](LeRobot::open), and if an episode, a split or a feature does not exist, if a
    /// chosen video cannot be read, or if a delta is not a multiple of the duration of a frame.
    pub fn with(path: impl AsRef<Path>, options: &LeRobotOptions, opening: &Options) -> Result<Self> {
        let path = path.as_ref();
        Self::at(opening.at(path)?, options).map_err(|e| if e.path().is_some() { e } else { e.at_path(path) })
    }

    pub(crate) fn at(location: DatasetLocation, options: &LeRobotOptions) -> Result<Self> {
        let home = Home::of(location);
        let info = Info::read(&home)?;
        let chosen = features::chosen(&info, options)?;
        let all = Episodes::read(&home, &info)?;
        let tasks = match chosen.iter().any(|feature| feature.is_task()) {
            true => episodes::tasks(&home, &info)?,
            false => BTreeMap::new(),
        };
        let episodes = choice::chosen(&all, &info, &home, options)?;
        let uses = |name: &str| CHECKED.contains(&name) || chosen.iter().any(|feature| feature.column() == name);
        let (rows, frames) = FrameIndex::open(&home, &info, (&all, &episodes), uses)?;
        let bound = chosen.into_iter().map(|feature| feature.bound(&rows, (&home, &info, &episodes)));
        let features = bound.filter_map(Result::transpose).collect::<Result<Vec<_>>>()?;
        let reader = Reader::new(rows, features, tasks, (info.fps, options.tolerance_s))?;
        Ok(LeRobot { home, frames: Arc::new(frames), reader })
    }

    /// Reads the statistics of all features, including videos, for normalization. Version 2.1
    /// stores statistics for each episode, and the result combines the statistics of the chosen
    /// episodes. For the other versions, the result contains the statistics of the whole dataset.
    ///
    /// # Errors
    /// If the dataset has no statistics, or if they are damaged.
    pub fn stats(&self) -> Result<BTreeMap<String, FeatureStats>> {
        let chosen: HashSet<u64> = self.frames.episodes().iter().map(|own| own.episode).collect();
        stats::read(&self.home, |index| chosen.contains(&index))
    }

    /// Like [`stats`](LeRobot::stats), but opens only the metadata of the dataset at `path`.
    ///
    /// # Errors
    /// As for [`stats`](LeRobot::stats), and if an episode or a split does not exist.
    pub fn stats_at(
        path: impl AsRef<Path>,
        options: &LeRobotOptions,
        opening: &Options,
    ) -> Result<BTreeMap<String, FeatureStats>> {
        let home = Home::of(opening.at(path.as_ref())?);
        let info = Info::read(&home)?;
        let chosen = choice::chosen(&Episodes::read(&home, &info)?, &info, &home, options)?;
        let chosen: HashSet<u64> = chosen.iter().map(|episode| episode.index).collect();
        stats::read(&home, |index| chosen.contains(&index))
    }

    /// Returns the number of frames per second.
    pub fn fps(&self) -> f64 {
        self.reader.fps()
    }

    /// Returns the index of each chosen episode, and the range of its samples.
    pub fn episodes(&self) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
        let mut start = 0;
        self.frames.episodes().iter().map(move |own| {
            let samples = start..start + own.len;
            start = samples.end;
            (own.episode, samples)
        })
    }
}

impl Source for LeRobot {
    fn len(&self) -> usize {
        self.frames.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.reader.read(self.frames.locate(index), scratch)
    }

    fn follow(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        let needed = NeededRows::new(self.frames.clone(), &self.reader.rows, self.reader.needed());
        Some(self.reader.rows.follow(&order, &(Arc::new(needed) as Arc<dyn SampleRows>)))
    }

    fn ahead_bytes(&self) -> usize {
        self.reader.rows.ahead_bytes()
    }

    fn check(&self) -> Result<()> {
        self.reader.check()
    }

    fn is_unchanged(&self) -> bool {
        self.reader.rows.is_unchanged()
    }

    fn network(&self) -> Option<NetworkStats> {
        self.reader.rows.network()
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
        Some(self.reader.rows.path(self.frames.locate(index).row()).to_owned())
    }

    /// Returns false, because a dataset may have several cameras. Programs name the images that
    /// they read.
    fn has_images(&self) -> Option<bool> {
        Some(false)
    }

    fn fields(&self) -> Option<Vec<String>> {
        Some(self.reader.field_names())
    }

    fn only(&self, fields: &[String]) -> Option<Arc<dyn Source>> {
        let is_wanted = |field: &str| fields.iter().any(|wanted| are_one(field, wanted));
        let mut features = self.reader.features.clone();
        for feature in &mut features {
            feature.has = (is_wanted(&feature.field), feature.deltas.is_some() && is_wanted(&feature.pad));
        }
        features.retain(|feature| feature.has.0 || feature.has.1);
        let reader = self.reader.selecting(features).ok()?;
        Some(Arc::new(LeRobot { home: self.home.clone(), frames: self.frames.clone(), reader }))
    }

    fn kind(&self) -> &'static str {
        "lerobot"
    }
}

impl std::fmt::Debug for LeRobot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeRobot")
            .field("path", &self.home.path)
            .field("samples", &self.len())
            .field("fields", &self.reader.field_names())
            .finish_non_exhaustive()
    }
}
