//! [`Video`]: the video files of a feature.
//!
//! The sample table of a file maps the time of a frame to the packets of the frame's group of
//! pictures. The packets become a [record](warpfeed_video::record), which a codec decodes like an
//! image. A table is read when its file is first used. Tables stay in memory until the tables of
//! the feature exceed [`MAX_PACKETS`] packets.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use warpfeed_video::{ErrorKind, Input, Track, record};

use super::episodes::{Episode, VideoPlace, video_places};
use super::info::{Info, Version};
use super::text::DatasetFolder;
use crate::error::{Error, Result, append, push};
use crate::storage::OpenFile;

/// Maximum number of packets in the tables of a feature that stay in memory. A packet takes 28
/// bytes. The tables of files that are being read may exceed this maximum.
const MAX_PACKETS: usize = 1 << 20;

/// The video files of a feature.
pub(super) struct Video {
    root: DatasetFolder,
    files: Vec<PathBuf>,
    /// For each selected episode, the index of its file, and its start time in that file, in
    /// seconds.
    episodes: HashMap<u64, (usize, f64)>,
    open: Mutex<OpenFiles>,
}

/// An open file and its sample table.
struct VideoFile {
    file: OpenFile,
    track: Track,
    /// Path of the file relative to the dataset, for messages.
    name: String,
}

/// The open files of a feature.
#[derive(Default)]
struct OpenFiles {
    /// Each open file, and when it was last used.
    files: HashMap<usize, (Arc<VideoFile>, u64)>,
    uses: u64,
    packets: usize,
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
        let video = Video { root: root.clone(), files, episodes, open: Mutex::default() };
        if !video.files.is_empty() {
            video.file(0)?;
        }
        Ok(video)
    }

    /// Returns an open file.
    fn file(&self, index: usize) -> Result<Arc<VideoFile>> {
        let locked = || self.open.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut open = locked();
            open.uses += 1;
            let now = open.uses;
            if let Some((file, used)) = open.files.get_mut(&index) {
                *used = now;
                return Ok(file.clone());
            }
        }
        // Do not hold the lock while a table is read. Two threads may therefore read the same
        // table.
        let file = Arc::new(self.read(&self.files[index])?);
        let mut open = locked();
        let open = &mut *open;
        if let Some((file, _)) = open.files.get(&index) {
            return Ok(file.clone());
        }
        open.packets += file.track.packets().len();
        open.files.insert(index, (file.clone(), open.uses));
        while open.packets > MAX_PACKETS && open.files.len() > 1 {
            let oldest = open.files.iter().filter(|(at, _)| **at != index).min_by_key(|(_, (_, used))| *used);
            let Some((&oldest, _)) = oldest else { break };
            if let Some((file, _)) = open.files.remove(&oldest) {
                open.packets -= file.track.packets().len();
            }
        }
        Ok(file)
    }

    /// Opens the file at `path`, and reads its sample table.
    fn read(&self, path: &Path) -> Result<VideoFile> {
        let file = self.root.storage.open(path)?;
        let track = warpfeed_video::open(&Ranges(&file)).map_err(|e| of_video(e).at_path(path))?;
        warpfeed_video::check(track.config().codec).map_err(|e| Error::in_source(e.to_string()).at_path(path))?;
        let name = path.strip_prefix(&self.root.path).unwrap_or(path).display().to_string();
        Ok(VideoFile { file, track, name })
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
        own.append(start + seconds, tolerance_s, to).map_err(|e| e.at_path(&own.file.path))
    }

    /// Checks that the open files are unchanged.
    pub(super) fn check(&self) -> Result<()> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.files.values().try_for_each(|(own, _)| own.file.check())
    }
}

impl VideoFile {
    fn append(&self, wanted: f64, tolerance_s: f64, to: &mut Vec<u8>) -> Result<()> {
        self.file.check()?;
        let track = &self.track;
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
        let packets = track.needed(frame);
        let label = format!("{}: frame {frame} at {found} s", self.name);
        let count = packets.len() as u32;
        record::start(track.config(), track.orientation(), &label, count, to).map_err(of_video)?;
        let mut page = Vec::new();
        // Packets of a video are often adjacent, so that a single read suffices.
        let end = |packet: &warpfeed_video::Packet| packet.offset.saturating_add(packet.size.into());
        for run in packets.chunk_by(|a, b| end(a) == b.offset) {
            let range = run[0].offset..end(&run[run.len() - 1]);
            let mut rest = self.bytes(range, frame, &mut page)?;
            for packet in run {
                let (bytes, next) = rest.split_at(packet.size as usize);
                append(to, &packet.size.to_le_bytes())?;
                append(to, bytes)?;
                rest = next;
            }
        }
        Ok(())
    }

    /// Reads the bytes in `range`. `frame` is the frame that they contain, for messages.
    fn bytes<'a>(&'a self, range: Range<u64>, frame: usize, page: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let len = self.file.len();
        if range.end > len {
            return Err(Error::in_source(format!(
                "frame {frame} ends at byte {}, but the file has only {len} bytes: it is truncated",
                range.end
            )));
        }
        page.clear();
        self.file.get(range.start, range.end - range.start, page)
    }
}

/// Reads ranges of a file.
struct Ranges<'a>(&'a OpenFile);

impl Input for Ranges<'_> {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> std::io::Result<()> {
        let end = offset.checked_add(to.len() as u64).filter(|&end| end <= self.0.len());
        end.ok_or(std::io::ErrorKind::UnexpectedEof)?;
        self.0.fill(offset, to).map_err(std::io::Error::other)
    }
}

/// Converts an error of the video crate. Storage errors are returned unchanged.
fn of_video(e: warpfeed_video::Error) -> Error {
    let (kind, text) = (e.kind(), e.to_string());
    if kind == ErrorKind::Io
        && let Some(Ok(e)) = e.into_io().map(|e| e.downcast::<Error>())
    {
        return e;
    }
    match kind {
        ErrorKind::Memory => Error::new(crate::error::ErrorKind::Memory, text),
        _ => Error::in_source(text),
    }
}
