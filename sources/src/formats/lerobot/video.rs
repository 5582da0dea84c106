//! [`Video`]: the video files of a feature.
//!
//! The table of a file is read when the file is first used.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::sync::Arc;

use super::episodes::{Episode, VideoPlace, video_places};
use super::info::{Info, Version};
use super::text::DatasetFolder;
use crate::error::{Error, Result, push};
use crate::values::video::{VideoFile, VideoFiles};

/// The video files of a feature.
pub(super) struct Video {
    root: DatasetFolder,
    files: Vec<PathBuf>,
    /// For each selected episode, the index of its file, and its start time in that file, in
    /// seconds.
    episodes: HashMap<u64, (usize, f64)>,
    open: VideoFiles,
}

impl Video {
    /// Finds the files of the feature `name` for the `chosen` episodes, and opens the first file.
    ///
    /// # Errors
    /// If a path cannot be determined, if the first file is damaged, or if its codec is not
    /// supported.
    pub(super) fn open(root: &DatasetFolder, info: &Info, name: &str, chosen: &[Episode]) -> Result<Self> {
        let places = match info.version()? {
            Version::Two => None,
            Version::Three => Some(video_places(root, name)?),
        };
        let (mut files, mut indices, mut episodes) = (Vec::new(), HashMap::new(), HashMap::new());
        for episode in chosen.iter().filter(|episode| episode.len > 0) {
            let place = match &places {
                None => VideoPlace { file: (0, episode.index), start: 0.0 },
                Some(places) => *places.get(&episode.index).ok_or_else(|| {
                    Error::in_source(format!(
                        "the metadata lists no file of the video {name:?} for episode {}",
                        episode.index
                    ))
                })?,
            };
            let index = match indices.entry(place.file) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    push(&mut files, root.file(&info.video_file(name, episode.index, place.file)?))?;
                    *entry.insert(files.len() - 1)
                }
            };
            episodes.insert(episode.index, (index, place.start));
        }
        let video = Video { root: root.clone(), files, episodes, open: VideoFiles::new(usize::MAX) };
        if !video.files.is_empty() {
            video.file(0)?;
        }
        Ok(video)
    }

    /// Returns an open file.
    fn file(&self, index: usize) -> Result<Arc<VideoFile>> {
        self.open.get(index, || {
            let path = &self.files[index];
            let name = path.strip_prefix(&self.root.path).unwrap_or(path).display().to_string();
            VideoFile::new(self.root.storage.open(path)?, name)
        })
    }

    /// Appends the record of the frame that is `seconds` after the start of an episode.
    ///
    /// # Errors
    /// If no frame is within `tolerance_s` of this time, or if the packets cannot be read.
    pub(super) fn frame(&self, episode: u64, seconds: f64, tolerance_s: f64, to: &mut Vec<u8>) -> Result<()> {
        let &(index, start) = self.episodes.get(&episode).ok_or_else(|| {
            Error::in_source(format!("the dataset has no video for episode {episode}")).at_path(&self.root.path)
        })?;
        let own = self.file(index)?;
        append(&own, start + seconds, tolerance_s, to).map_err(|e| e.at_path(own.path()))
    }

    /// Checks that the open files are unchanged.
    pub(super) fn check(&self) -> Result<()> {
        self.open.check()
    }
}

/// Appends the record of the frame at `wanted` seconds.
fn append(own: &VideoFile, wanted: f64, tolerance_s: f64, to: &mut Vec<u8>) -> Result<()> {
    let track = own.track();
    let frame = track.nearest(wanted).ok_or_else(|| Error::in_source("the video has no frames"))?;
    let found = track.time(frame).seconds();
    // The times in the data files are rounded to f32.
    let rounding = 2.0 * f64::from(f32::EPSILON) * wanted.abs();
    let is_near = (found - wanted).abs() <= tolerance_s + rounding;
    if !is_near {
        return Err(Error::in_source(format!(
            "no frame at {wanted} s: the nearest is frame {frame} at {found} s, which is not within \
             tolerance_s={tolerance_s}"
        )));
    }
    own.append(frame, to)
}
