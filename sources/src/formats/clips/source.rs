//! [`Clips`]: a source of fixed-length clips cut from a folder of videos.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::options::{ClipsOptions, Step};
use super::plan::ClipPlan;
use crate::error::{Error, Result, append, reserve};
use crate::formats::folder::{Listing, Wanted, select};
use crate::machine::bytes::grow_to;
use crate::model::sample::are_one;
use crate::model::value::Element;
use crate::model::{Choices, Frames, Lookahead, Numbers, Object, Prefetcher, Sample, Source, Value, VideoInfo};
use crate::options::Options;
use crate::stats::NetworkStats;
use crate::storage::ahead::{Remote, identity, max_prefetch_bytes};
use crate::storage::{DatasetLocation, OpenFile, Storage};
use crate::values::video::{VideoFile, VideoFiles};
use crate::values::video_ahead::{VideoSamples, prefetcher, whole_file_key};

const FIELD: &str = "video";
const PAD: &str = "video_is_pad.npy";
/// Maximum number of local files that are kept open.
const MAX_FILES: usize = 64;
/// Maximum size of a video that is read from an object store in one piece. From a larger video,
/// only the groups of pictures that a clip needs are read.
const MAX_WHOLE: u64 = 16 << 20;

/// Clips of the videos in a folder, either local or in an object store.
///
/// ```no_run
/// use warpfeed_sources::{Clips, ClipsOptions, Options};
///
/// // Eight frames, four frames apart, from three positions in each video.
/// let options = ClipsOptions::new(8).stride(4).per_video(3);
/// let set = Clips::with("kinetics/val", &options, &Options::new())?;
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
///
/// Classes, labels and the order of the videos are the same as for images in a
/// [`Folder`](crate::Folder). Videos are the files with the extension `mp4`, `m4v`, `mov`, `mkv` or
/// `webm`. The clips of a video are consecutive samples. Opening a folder only lists its files; no
/// video is read.
///
/// | field of the sample | content |
/// |---|---|
/// | `video` | the frames, for `Image::of("video").frames(T)` |
/// | `video_is_pad.npy` | u8 of shape (T); 1 for frames after the end of the video, which repeat its last frame |
///
/// **Keys.** The key of a sample is the path of its video without the extension, and the frame at
/// which the clip would start without jitter: `archery/a/frame_000012`.
///
/// **Frames.** [`ClipsOptions`] selects the frames. Frames are numbered in presentation order,
/// without those that an edit list hides. In a sample, a frame is stored as the packets that are
/// needed to decode it. The frames of a group of pictures share these packets, so each packet is
/// read and decoded once.
///
/// **Errors.** Reading a sample fails if the file is damaged or has no frames. If a frame cannot be
/// decoded, the error names the file and the index of the frame in the video.
///
/// **Stores.** Videos of up to 16 MiB are read in one piece. For larger videos, only the groups of
/// pictures that a clip needs are read. In both cases, the bytes are prefetched.
pub struct Clips {
    videos: Arc<Videos>,
    /// First, whether samples contain the field `video`. Second, whether they contain the field
    /// that marks padding.
    has: (bool, bool),
}

struct Videos {
    path: PathBuf,
    names: Listing,
    options: ClipsOptions,
    storage: Storage,
    /// Index of each video's object among the listed objects. Empty for a local folder.
    object_indices: Vec<u32>,
    open: VideoFiles,
}

impl Clips {
    /// Opens the local folder `path`.
    ///
    /// # Errors
    /// If the folder cannot be listed, if it contains no videos, or if an option is invalid.
    pub fn open(path: impl AsRef<Path>, options: &ClipsOptions) -> Result<Self> {
        Self::with(path, options, &Options::new())
    }

    /// Opens a local folder, or a URL for which `opening` registers a store.
    ///
    /// # Errors
    /// See [`open`](Clips::open).
    pub fn with(path: impl AsRef<Path>, options: &ClipsOptions, opening: &Options) -> Result<Self> {
        let path = path.as_ref();
        Self::at(opening.at(path)?, options).map_err(|e| if e.path().is_some() { e } else { e.at_path(path) })
    }

    pub(crate) fn at(mut location: DatasetLocation, options: &ClipsOptions) -> Result<Self> {
        options.check()?;
        location.list()?;
        let path = location.path.clone();
        let (names, object_indices) = match &location.storage {
            Storage::Machine { .. } => (Listing::videos(&path)?, Vec::new()),
            Storage::Store { listed, .. } => {
                select(location.url(), listed, Wanted::Videos).map_err(|e| e.at_path(&path))?
            }
        };
        if names.len().checked_mul(options.per_video).is_none() {
            return Err(Error::config(format!("per_video={}: the number of clips overflows", options.per_video)));
        }
        let videos = Videos {
            path,
            names,
            options: options.clone(),
            open: VideoFiles::new(if location.storage.is_store() { usize::MAX } else { MAX_FILES }),
            storage: location.storage,
            object_indices,
        };
        Ok(Clips { videos: Arc::new(videos), has: (true, true) })
    }

    /// The random number `draw` selects the start of the clip. If `draw` is `None`, the sample
    /// contains the frames for every possible start.
    fn read_clip<'a>(&'a self, index: usize, draw: Option<u64>, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        scratch.clear();
        let Videos { options, names, .. } = &*self.videos;
        let file = self.videos.file(index, true)?;
        let plan = self.videos.plan(index, &file)?;
        write!(scratch, "{}", self.videos.key_of(index, &plan)).expect("writing to a Vec succeeds");
        let key_end = scratch.len();
        if self.has.0 {
            self.videos.append_frames(&plan, draw, &file, scratch).map_err(|e| e.at_path(file.path()))?;
        }
        let frames_end = scratch.len();
        if self.has.1 {
            for frame in 0..options.frames {
                append(scratch, &[plan.is_pad(frame, file.track(), options).into()])?;
            }
        }
        let scratch = &*scratch;
        let mut sample = Sample::new(std::str::from_utf8(&scratch[..key_end]).expect("paths are UTF-8"));
        if self.has.0 {
            sample.push(FIELD, Value::Bytes(&scratch[key_end..frames_end]))?;
        }
        if self.has.1 {
            let pad = Numbers::from_element(&scratch[frames_end..], Element::U8, &[options.frames]);
            sample.push(PAD, Value::Numbers(pad.expect("one byte for each frame")))?;
        }
        Ok(match names.labels.get(self.videos.place(index).0) {
            Some(&label) => sample.with_label(label.into()),
            None => sample,
        })
    }
}

impl Videos {
    /// Returns the index of the video, and the index of the clip in the video.
    fn place(&self, index: usize) -> (usize, usize) {
        (index / self.options.per_video, index % self.options.per_video)
    }

    fn name(&self, video: usize) -> Result<&str> {
        let name = self.names.path(video);
        if self.names.invalid_names.binary_search(&video).is_ok() {
            let cause = format!("the name {name:?} is not UTF-8: rename the file or folder");
            return Err(Error::in_source(cause).at_path(&self.path));
        }
        Ok(name)
    }

    fn object(&self, video: usize) -> Option<(&Arc<Remote>, &Object)> {
        let Storage::Store { remote, listed } = &self.storage else { return None };
        Some((remote, &listed[self.object_indices[video] as usize]))
    }

    fn path_of(&self, video: usize) -> PathBuf {
        match self.object(video) {
            Some((_, object)) => object.url.clone().into(),
            None => self.path.join(self.names.path(video)),
        }
    }

    /// `is_next` is true when a loader reads the sample, so that its bytes may be prefetched, and
    /// false if only the key is needed.
    fn file(&self, index: usize, is_next: bool) -> Result<Arc<VideoFile>> {
        let (video, _) = self.place(index);
        match self.object(video).zip(number(video)) {
            Some(((remote, object), file)) if is_next && object.len <= MAX_WHOLE => {
                let (name, mut bytes) = (self.name(video)?, Vec::new());
                remote.read(whole_file_key(file), object, 0, grow_to(&mut bytes, object.len)?)?;
                let file = OpenFile::in_memory(self.path_of(video), bytes);
                VideoFile::new(file, name.to_owned()).map(Arc::new)
            }
            _ => self.table(video),
        }
    }

    /// Opens the video and reads its sample table, but no packets.
    fn table(&self, video: usize) -> Result<Arc<VideoFile>> {
        self.open.get(video, || {
            let name = self.name(video)?.to_owned();
            Ok(VideoFile::new(self.storage.open(&self.path_of(video))?, name)?.with_number(number(video)))
        })
    }

    fn plan(&self, index: usize, file: &VideoFile) -> Result<ClipPlan> {
        ClipPlan::new(file.track(), self.place(index).1, &self.options).map_err(|e| e.at_path(file.path()))
    }

    fn key_of(&self, index: usize, plan: &ClipPlan) -> String {
        let path = self.names.path(self.place(index).0);
        format!("{}/frame_{:06}", path.rsplit_once('.').map_or(path, |(name, _)| name), plan.base)
    }

    /// If `draw` is `None`, the field contains the frames for every possible start.
    fn append_frames(&self, plan: &ClipPlan, draw: Option<u64>, file: &Arc<VideoFile>, to: &mut Vec<u8>) -> Result<()> {
        let track = file.track();
        let frames = match draw {
            Some(draw) => plan.frames(plan.drawn_start(draw), track, &self.options).collect(),
            None => plan.all_frames(track, &self.options)?,
        };
        // Store the frames of a group of pictures in packet order. The packets that each frame
        // needs are then a prefix of those that the next frame needs.
        let mut stored: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for &frame in &frames {
            stored.entry((track.start_of(frame), track.packet_of(frame))).or_insert(frame);
        }
        let (groups, stored): (Vec<_>, Vec<usize>) = stored.into_iter().unzip();
        let mut table = Vec::new();
        reserve(&mut table, frames.len())?;
        for &frame in &frames {
            let found = groups.binary_search(&(track.start_of(frame), track.packet_of(frame)));
            table.push(found.expect("all frames are stored") as u32);
        }
        let choices = Choices {
            frames: self.options.frames,
            default: if draw.is_some() { 0 } else { plan.base - plan.starts.start() },
            table: &table,
            stored: &stored,
        };
        let mut packets = file.packets();
        let (mut start, mut next) = (0, None);
        Frames::append_choices(to, &choices, |index, to| {
            let (first, packet) = groups[index];
            let from = match next.filter(|&(group, _)| group == first) {
                Some((_, after)) => after,
                None => {
                    start = to.len();
                    packets.start_group(to)?;
                    let after = groups.partition_point(|&(group, _)| group <= first);
                    packets.fetch(first..groups[after - 1].1 + 1, stored[index])?;
                    first
                }
            };
            next = Some((first, packet + 1));
            packets.append(from..packet + 1, stored[index], to)?;
            Ok(start)
        })
    }
}

/// Returns the number that identifies a video in the prefetcher, or `None` if its index does not
/// fit in a `u32`.
fn number(video: usize) -> Option<u32> {
    u32::try_from(video).ok()
}

struct ReadVideos {
    videos: Arc<Videos>,
    has_frames: bool,
}

impl VideoSamples for ReadVideos {
    fn files(&self, sample: u64, with: &mut dyn FnMut(u32)) {
        number(self.videos.place(sample as usize).0).into_iter().for_each(with);
    }

    fn object(&self, file: u32) -> Option<(u32, Option<u64>)> {
        let len = self.videos.object(file as usize)?.1.len;
        Some((self.videos.object_indices[file as usize], (len <= MAX_WHOLE).then_some(len)))
    }

    fn each_table(&self, with: &mut dyn FnMut(&VideoFiles)) {
        with(&self.videos.open);
    }

    fn find(&self, file: u32) -> Option<Arc<VideoFile>> {
        self.videos.open.find(file as usize)
    }

    fn open(&self, file: u32) -> Result<Arc<VideoFile>> {
        self.videos.table(file as usize)
    }

    fn frames(&self, sample: u64, draw: u64, _file: u32, video: &VideoFile) -> Vec<usize> {
        let plan = self.videos.plan(sample as usize, video).ok().filter(|_| self.has_frames);
        let Some(plan) = plan else { return Vec::new() };
        plan.frames(plan.drawn_start(draw), video.track(), &self.videos.options).collect()
    }
}

impl Source for Clips {
    fn len(&self) -> usize {
        self.videos.names.len() * self.videos.options.per_video
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.read_clip(index, None, scratch)
    }

    fn read_drawn<'a>(&'a self, index: usize, draw: u64, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.read_clip(index, Some(draw), scratch)
    }

    fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        let Storage::Store { remote, listed } = &self.videos.storage else { return None };
        let samples = ReadVideos { videos: self.videos.clone(), has_frames: self.has.0 };
        prefetcher(Arc::new(samples), &order, remote, listed.clone())
    }

    fn prefetch_bytes(&self) -> usize {
        max_prefetch_bytes(
            (0..self.videos.object_indices.len()).filter_map(|video| Some(self.videos.object(video)?.1.len)),
        )
    }

    /// Describes the first video, which is opened for this purpose.
    fn video_info(&self) -> Option<VideoInfo> {
        if self.has.0 { self.videos.table(0).ok().map(|file| file.info()) } else { None }
    }

    fn check(&self) -> Result<()> {
        self.videos.open.check()
    }

    fn network_stats(&self) -> Option<NetworkStats> {
        let Storage::Store { remote, .. } = &self.videos.storage else { return None };
        Some(remote.network_stats())
    }

    fn label(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        Ok(self.videos.names.labels.get(self.videos.place(index).0).map(|&label| label.into()))
    }

    fn key(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<String> {
        let file = self.videos.file(index, false)?;
        Ok(self.videos.key_of(index, &self.videos.plan(index, &file)?))
    }

    fn fingerprint(&self) -> Option<u64> {
        let ClipsOptions { frames, per_video, jitter, pads, .. } = self.videos.options;
        let step = match self.videos.options.step() {
            Step::Frames(stride) => [0, stride as u64],
            Step::Rate(fps) => [1, fps.to_bits()],
        };
        let objects = (0..self.videos.object_indices.len()).filter_map(|video| Some(self.videos.object(video)?.1));
        let numbers =
            [frames as u64, per_video as u64, jitter as u64, pads.into(), step[0], step[1], identity(objects)];
        Some(numbers.into_iter().fold(self.videos.names.hash(), |hash, number| hash.number(number)).end())
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        Some(self.videos.path_of(self.videos.place(index).0))
    }

    fn classes(&self) -> &[String] {
        &self.videos.names.classes
    }

    /// Returns `Some(false)`, because the frames of a clip are not a single image.
    fn has_images(&self) -> Option<bool> {
        Some(false)
    }

    fn fields(&self) -> Option<Vec<String>> {
        let fields = [(FIELD, self.has.0), (PAD, self.has.1)];
        Some(fields.into_iter().filter(|field| field.1).map(|field| field.0.to_owned()).collect())
    }

    fn images(&self) -> Vec<String> {
        self.has.0.then(|| FIELD.to_owned()).into_iter().collect()
    }

    fn select_fields(&self, fields: &[String]) -> Option<Arc<dyn Source>> {
        let is_wanted = |field: &str| fields.iter().any(|wanted| are_one(field, wanted));
        let has = (self.has.0 && is_wanted(FIELD), self.has.1 && is_wanted(PAD));
        Some(Arc::new(Clips { videos: self.videos.clone(), has }))
    }

    fn kind(&self) -> &'static str {
        "clips"
    }
}

impl std::fmt::Debug for Clips {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clips").field("path", &self.videos.path).field("samples", &self.len()).finish_non_exhaustive()
    }
}
