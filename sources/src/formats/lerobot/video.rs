//! [`Video`]: the video files of a feature. [`NeededFrames`]: the frames to prefetch.
//!
//! The sample table of a video file is read when the file is used, unless the file is cached.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::sync::Arc;

use warpfeed_video::Track;

use super::dataset_folder::DatasetFolder;
use super::episodes::{Episode, VideoLocation, video_locations};
use super::frames::FrameIndex;
use super::info::{Info, Version};
use crate::error::{Error, Result, push};
use crate::model::{Lookahead, Object, Prefetcher, VideoInfo};
use crate::stats::NetworkStats;
use crate::storage::Storage;
use crate::storage::prefetch::max_prefetch_bytes;
use crate::values::video::{PacketReader, VideoFile, VideoFileCache};
use crate::values::video_prefetch::{VideoSamples, prefetcher};

/// Maximum number of files per feature from which frames are prefetched. The prefetcher identifies
/// a file by a number that encodes the feature and the index of the file.
const MAX_FILES: u32 = 1 << 24;
const MAX_VIDEOS: u32 = 1 << 8;

pub(super) struct Video {
    root: DatasetFolder,
    feature_index: u32,
    files: Vec<PathBuf>,
    /// For each selected episode with frames, the index of its file, and the time in the file at
    /// which the episode starts, in seconds.
    episodes: HashMap<u64, (usize, f64)>,
    open_files: VideoFileCache,
}

impl Video {
    /// Finds the files of the feature `name`, which has the index `feature_index`, for the
    /// `selected` episodes, and opens the first file to check its codec.
    pub(super) fn open(
        root: &DatasetFolder,
        info: &Info,
        (feature_index, name): (usize, &str),
        selected: &[Episode],
    ) -> Result<Self> {
        let locations = match info.version()? {
            Version::Two => None,
            Version::Three => Some(video_locations(root, name)?),
        };
        let (mut files, mut indices, mut episodes) = (Vec::new(), HashMap::new(), HashMap::new());
        for episode in selected.iter().filter(|episode| episode.len > 0) {
            let location = match &locations {
                None => VideoLocation { file: (0, episode.index), start: 0.0 },
                Some(locations) => *locations.get(&episode.index).ok_or_else(|| {
                    Error::in_source(format!(
                        "the metadata lists no file of the video {name:?} for episode {}",
                        episode.index
                    ))
                })?,
            };
            let index = match indices.entry(location.file) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    push(&mut files, root.path_of(&info.video_file_path(name, episode.index, location.file)?))?;
                    *entry.insert(files.len() - 1)
                }
            };
            episodes.insert(episode.index, (index, location.start));
        }
        let feature_index = u32::try_from(feature_index).unwrap_or(u32::MAX);
        let video =
            Video { root: root.clone(), feature_index, files, episodes, open_files: VideoFileCache::new(usize::MAX) };
        if !video.files.is_empty() {
            video.file(0)?;
        }
        Ok(video)
    }

    /// Describes the frames of the first file. Returns `None` if the file cannot be opened.
    pub(super) fn info(&self) -> Option<VideoInfo> {
        self.file(0).ok().map(|file| file.info())
    }

    fn file(&self, index: usize) -> Result<Arc<VideoFile>> {
        self.open_files.get(index, || {
            let path = &self.files[index];
            let name = path.strip_prefix(&self.root.path).unwrap_or(path).display().to_string();
            Ok(VideoFile::new(self.root.storage.open(path)?, name)?.with_number(self.file_number(index)))
        })
    }

    /// Returns the number that identifies the file to the prefetcher, or `None` if [`MAX_FILES`] or
    /// [`MAX_VIDEOS`] is exceeded.
    fn file_number(&self, index: usize) -> Option<u32> {
        let index = u32::try_from(index).ok().filter(|index| *index < MAX_FILES && self.feature_index < MAX_VIDEOS);
        Some(self.feature_index * MAX_FILES + index?)
    }

    pub(super) fn open_episode(&self, episode: u64) -> Result<EpisodeVideo> {
        let &(index, start) = self.episodes.get(&episode).ok_or_else(|| {
            Error::in_source(format!("the dataset has no video for episode {episode}")).at_path(&self.root.path)
        })?;
        let file = self.file(index)?;
        Ok(EpisodeVideo { packets: file.packet_reader(), file, start })
    }

    fn object(&self, index: usize) -> Option<&Object> {
        let Storage::Store { listed, .. } = &self.root.storage else { return None };
        let url = self.files[index].to_str()?;
        listed.binary_search_by(|object| object.url.as_str().cmp(url)).ok().map(|index| &listed[index])
    }

    pub(super) fn prefetch_bytes(&self) -> usize {
        max_prefetch_bytes((0..self.files.len()).filter_map(|index| Some(self.object(index)?.len)))
    }

    pub(super) fn network_stats(&self) -> Option<NetworkStats> {
        let Storage::Store { remote, .. } = &self.root.storage else { return None };
        Some(remote.network_stats())
    }

    pub(super) fn check(&self) -> Result<()> {
        self.open_files.check()
    }
}

pub(super) struct EpisodeVideo {
    file: Arc<VideoFile>,
    packets: PacketReader,
    /// Time in the file at which the episode starts, in seconds.
    start: f64,
}

impl EpisodeVideo {
    /// Appends the frame that is `seconds` after the episode's start. Fails if no frame is within
    /// `tolerance_s` seconds of this time.
    pub(super) fn append_record(&mut self, seconds: f64, tolerance_s: f64, out: &mut Vec<u8>) -> Result<()> {
        let frame = nearest_frame(self.file.track(), self.start + seconds, tolerance_s);
        frame.and_then(|frame| self.packets.append_record(frame, out)).map_err(|e| e.at_path(self.file.path()))
    }
}

fn nearest_frame(track: &Track, target: f64, tolerance_s: f64) -> Result<usize> {
    let frame = track.nearest(target).ok_or_else(|| Error::in_source("the video has no frames"))?;
    let actual = track.time(frame).seconds();
    // The times in the data files are rounded to f32.
    let rounding = 2.0 * f64::from(f32::EPSILON) * target.abs();
    let is_near = (actual - target).abs() <= tolerance_s + rounding;
    if !is_near {
        return Err(Error::in_source(format!(
            "no frame at {target} s: the nearest is frame {frame} at {actual} s, which is not within \
             tolerance_s={tolerance_s}"
        )));
    }
    Ok(frame)
}

pub(super) struct NeededFrames {
    frames: Arc<FrameIndex>,
    fps: f64,
    /// Each video, with the deltas of its frames.
    videos: Vec<(Arc<Video>, Vec<i64>)>,
    /// The object index of each file, by file number.
    object_indices: HashMap<u32, u32>,
}

impl NeededFrames {
    pub(super) fn prefetcher(
        frames: Arc<FrameIndex>,
        fps: f64,
        videos: Vec<(Arc<Video>, Vec<i64>)>,
        order: &Lookahead,
    ) -> Option<Box<dyn Prefetcher>> {
        let Storage::Store { remote, .. } = &videos.first()?.0.root.storage else { return None };
        let remote = remote.clone();
        let (mut object_indices, mut objects) = (HashMap::new(), Vec::new());
        for (video, _) in &videos {
            for index in 0..video.files.len() {
                if let Some((number, object)) = video.file_number(index).zip(video.object(index)) {
                    object_indices.insert(number, objects.len() as u32);
                    objects.push(object.clone());
                }
            }
        }
        let needed = NeededFrames { frames, fps, videos, object_indices };
        prefetcher(Arc::new(needed), order, &remote, objects.into())
    }

    /// Returns the video to which file number `file` belongs, the deltas of the video's frames, and
    /// the index of the file within the video.
    fn video(&self, file: u32) -> Option<(&Arc<Video>, &[i64], usize)> {
        let (video, deltas) = self.videos.iter().find(|(video, _)| video.feature_index == file / MAX_FILES)?;
        Some((video, deltas, (file % MAX_FILES) as usize))
    }
}

impl VideoSamples for NeededFrames {
    fn for_each_file(&self, sample: u64, visit: &mut dyn FnMut(u32)) {
        let episode = self.frames.locate(sample as usize).episode.index;
        for (video, _) in &self.videos {
            let index = video.episodes.get(&episode).map(|(index, _)| *index);
            index.and_then(|index| video.file_number(index)).into_iter().for_each(&mut *visit);
        }
    }

    fn object(&self, file: u32) -> Option<(u32, Option<u64>)> {
        Some((*self.object_indices.get(&file)?, None))
    }

    fn for_each_file_cache(&self, visit: &mut dyn FnMut(&VideoFileCache)) {
        self.videos.iter().for_each(|(video, _)| visit(&video.open_files));
    }

    fn find(&self, file: u32) -> Option<Arc<VideoFile>> {
        let (video, _, index) = self.video(file)?;
        video.open_files.find(index)
    }

    fn open(&self, file: u32) -> Result<Arc<VideoFile>> {
        let (video, _, index) = self.video(file).ok_or_else(|| Error::in_source("no such video"))?;
        video.file(index)
    }

    /// Returns the frames to prefetch for `sample`. Assumes that the frame times match the frame
    /// rate, because the actual times are in data files that may not have been read yet. A frame
    /// with a different time is read on demand.
    fn frames(&self, sample: u64, _draw: u64, file: u32, video: &VideoFile) -> Vec<usize> {
        let Some((feature_video, deltas, _)) = self.video(file) else { return Vec::new() };
        let frame = self.frames.locate(sample as usize);
        let Some((_, start)) = feature_video.episodes.get(&frame.episode.index) else { return Vec::new() };
        let seconds = |delta: &i64| start + (frame.row_at(*delta).0 - frame.episode.first_row) as f64 / self.fps;
        deltas.iter().filter_map(|delta| video.track().nearest(seconds(delta))).collect()
    }
}
