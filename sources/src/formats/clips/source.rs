//! [`Clips`]: a source of fixed-length clips from a folder of videos.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::options::{ClipsOptions, Step};
use super::plan::ClipPlan;
use crate::error::{Error, Result, append, reserve};
use crate::formats::folder::{FileKind, Listing, select_samples};
use crate::machine::bytes::grow_to;
use crate::model::sample::are_same_field;
use crate::model::value::Element;
use crate::model::{Choices, Frames, Lookahead, Numbers, Object, Prefetcher, Sample, Source, Value, VideoInfo};
use crate::options::Options;
use crate::stats::NetworkStats;
use crate::storage::prefetch::{Remote, hash_objects, max_prefetch_bytes};
use crate::storage::{DatasetLocation, OpenFile, Storage};
use crate::values::video::{VideoFile, VideoFileCache};
use crate::values::video_prefetch::{VideoSamples, prefetcher, whole_file_key};

const VIDEO_FIELD: &str = "video";
const PAD_FIELD: &str = "video_is_pad.npy";
const MAX_OPEN_FILES: usize = 64;
/// Maximum size of a video that is read from an object store in one piece, in bytes. From a larger
/// video, only the groups of pictures that a clip needs are read.
const MAX_WHOLE_BYTES: u64 = 16 << 20;

/// Clips of the videos in a folder, either local or in an object store.
///
/// ```no_run
/// use warpfeed_sources::{Clips, ClipsOptions, Options};
///
/// // Eight frames, four frames apart, from three positions in each video.
/// let options = ClipsOptions::new(8).stride(4).clips_per_video(3);
/// let set = Clips::open_with("kinetics/val", &options, &Options::new())?;
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
/// | `video` | the frames, for `Image::from_field("video").frames(T)` |
/// | `video_is_pad.npy` | u8 of shape (T); 1 for frames after the end of the video, which repeat its last frame |
///
/// **Keys.** The key of a sample is the path of its video without the extension, followed by the
/// frame at which the clip would start without jitter: `archery/a/frame_000012`.
///
/// **Frames.** [`ClipsOptions`] selects the frames. Frames are numbered in presentation order,
/// without those that an edit list hides. In a sample, a frame is stored as the packets that are
/// needed to decode it. The frames of a group of pictures share these packets, so each packet of a
/// sample is read and decoded once.
///
/// **Errors.** Reading a sample fails if the file is damaged or has no frames, or if it is shorter
/// than a clip and [padding](ClipsOptions::pad_short_videos) is off. If a frame cannot be decoded,
/// the error names the file and the index of the frame in the video.
///
/// **Stores.** Videos of up to 16 MiB are read in one piece. For larger videos, only the groups of
/// pictures that a clip needs are read. A loader prefetches the bytes in both cases.
pub struct Clips {
    videos: Arc<Videos>,
    has_frames: bool,
    has_padding: bool,
}

struct Videos {
    path: PathBuf,
    listing: Listing,
    options: ClipsOptions,
    storage: Storage,
    /// Index of each video's object among the listed objects. Empty for a local folder.
    object_indices: Vec<u32>,
    open_videos: VideoFileCache,
}

impl Clips {
    /// Opens the local folder `path`.
    ///
    /// # Errors
    /// If the folder cannot be listed, if it contains no videos, or if an option is invalid.
    pub fn open(path: impl AsRef<Path>, options: &ClipsOptions) -> Result<Self> {
        Self::open_with(path, options, &Options::new())
    }

    /// Opens a local folder, or a URL for which `open_options` registers a store.
    ///
    /// # Errors
    /// See [`open`](Clips::open).
    pub fn open_with(path: impl AsRef<Path>, options: &ClipsOptions, open_options: &Options) -> Result<Self> {
        let path = path.as_ref();
        Self::open_at(open_options.locate(path)?, options)
            .map_err(|e| if e.path().is_some() { e } else { e.at_path(path) })
    }

    pub(crate) fn open_at(mut location: DatasetLocation, options: &ClipsOptions) -> Result<Self> {
        options.check()?;
        location.list()?;
        let path = location.path.clone();
        let (listing, object_indices) = match &location.storage {
            Storage::Machine { .. } => (Listing::videos(&path)?, Vec::new()),
            Storage::Store { listed, .. } => {
                select_samples(location.url(), listed, FileKind::Videos).map_err(|e| e.at_path(&path))?
            }
        };
        if listing.len().checked_mul(options.clips_per_video).is_none() {
            return Err(Error::config(format!(
                "clips_per_video={}: the number of clips overflows",
                options.clips_per_video
            )));
        }
        let videos = Videos {
            path,
            listing,
            options: options.clone(),
            open_videos: VideoFileCache::new(if location.storage.is_store() { usize::MAX } else { MAX_OPEN_FILES }),
            storage: location.storage,
            object_indices,
        };
        Ok(Clips { videos: Arc::new(videos), has_frames: true, has_padding: true })
    }

    /// `draw` selects the start of the clip. If it is `None`, the sample has the frames of every
    /// start.
    fn read_clip<'a>(&'a self, index: usize, draw: Option<u64>, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        scratch.clear();
        let Videos { options, listing, .. } = &*self.videos;
        let file = self.videos.file(index, true)?;
        let plan = self.videos.plan(index, &file)?;
        write!(scratch, "{}", self.videos.key_of(index, &plan)).expect("writing to a Vec succeeds");
        let key_end = scratch.len();
        if self.has_frames {
            self.videos.append_frames(&plan, draw, &file, scratch).map_err(|e| e.at_path(file.path()))?;
        }
        let frames_end = scratch.len();
        if self.has_padding {
            for frame in 0..options.frames {
                append(scratch, &[plan.is_pad(frame, file.track(), options).into()])?;
            }
        }
        let scratch = &*scratch;
        let mut sample = Sample::new(std::str::from_utf8(&scratch[..key_end]).expect("paths are UTF-8"));
        if self.has_frames {
            sample.push(VIDEO_FIELD, Value::Bytes(&scratch[key_end..frames_end]))?;
        }
        if self.has_padding {
            let pad = Numbers::from_element(&scratch[frames_end..], Element::U8, &[options.frames]);
            sample.push(PAD_FIELD, Value::Numbers(pad.expect("one byte for each frame")))?;
        }
        Ok(match listing.labels.get(self.videos.video_and_clip(index).0) {
            Some(&label) => sample.with_label(label.into()),
            None => sample,
        })
    }
}

impl Videos {
    fn video_and_clip(&self, index: usize) -> (usize, usize) {
        (index / self.options.clips_per_video, index % self.options.clips_per_video)
    }

    fn name(&self, video: usize) -> Result<&str> {
        let name = self.listing.path(video);
        if self.listing.invalid_names.binary_search(&video).is_ok() {
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
            None => self.path.join(self.listing.path(video)),
        }
    }

    /// `is_next` is true if the whole sample is being read, and false if only its key is read. The
    /// bytes of the whole sample may have been prefetched.
    fn file(&self, index: usize, is_next: bool) -> Result<Arc<VideoFile>> {
        let (video, _) = self.video_and_clip(index);
        match self.object(video).zip(file_number(video)) {
            Some(((remote, object), file)) if is_next && object.len <= MAX_WHOLE_BYTES => {
                let (name, mut bytes) = (self.name(video)?, Vec::new());
                remote.read(whole_file_key(file), object, 0, grow_to(&mut bytes, object.len)?)?;
                let file = OpenFile::in_memory(self.path_of(video), bytes);
                VideoFile::new(file, name.to_owned()).map(Arc::new)
            }
            _ => self.open_video(video),
        }
    }

    /// Opens the video and reads its sample table, but no packets.
    fn open_video(&self, video: usize) -> Result<Arc<VideoFile>> {
        self.open_videos.get(video, || {
            let name = self.name(video)?.to_owned();
            Ok(VideoFile::new(self.storage.open(&self.path_of(video))?, name)?.with_number(file_number(video)))
        })
    }

    fn plan(&self, index: usize, file: &VideoFile) -> Result<ClipPlan> {
        ClipPlan::new(file.track(), self.video_and_clip(index).1, &self.options).map_err(|e| e.at_path(file.path()))
    }

    fn key_of(&self, index: usize, plan: &ClipPlan) -> String {
        let path = self.listing.path(self.video_and_clip(index).0);
        format!("{}/frame_{:06}", path.rsplit_once('.').map_or(path, |(name, _)| name), plan.base_start)
    }

    fn append_frames(
        &self,
        plan: &ClipPlan,
        draw: Option<u64>,
        file: &Arc<VideoFile>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let track = file.track();
        let frames = match draw {
            Some(draw) => plan.frames(plan.drawn_start(draw), track, &self.options).collect(),
            None => plan.all_frames(track, &self.options)?,
        };
        // Store the frames of a group of pictures in packet order. In this order, the packets of
        // each frame are a prefix of the packets of the next frame in the group.
        let mut stored_frames: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for &frame in &frames {
            stored_frames.entry((track.start_packet(frame), track.packet_index(frame))).or_insert(frame);
        }
        let (groups, stored_frames): (Vec<_>, Vec<usize>) = stored_frames.into_iter().unzip();
        let mut frame_indices = Vec::new();
        reserve(&mut frame_indices, frames.len())?;
        for &frame in &frames {
            let position = groups.binary_search(&(track.start_packet(frame), track.packet_index(frame)));
            frame_indices.push(position.expect("all frames are stored") as u32);
        }
        let choices = Choices {
            frames: self.options.frames,
            default: if draw.is_some() { 0 } else { plan.base_start - plan.starts.start() },
            table: &frame_indices,
            stored: &stored_frames,
        };
        let mut packets = file.packet_reader();
        let (mut start, mut next) = (0, None);
        Frames::append_choices(out, &choices, |index, out| {
            let (group_start, packet) = groups[index];
            let first_packet = match next.filter(|&(next_start, _)| next_start == group_start) {
                Some((_, next_packet)) => next_packet,
                None => {
                    start = out.len();
                    packets.start_group(out)?;
                    let group_end = groups.partition_point(|&(other, _)| other <= group_start);
                    packets.fetch(group_start..groups[group_end - 1].1 + 1, stored_frames[index])?;
                    group_start
                }
            };
            next = Some((group_start, packet + 1));
            packets.append(first_packet..packet + 1, stored_frames[index], out)?;
            Ok(start)
        })
    }
}

/// Returns the prefetch number of a video, or `None` if its index does not fit in a `u32`.
fn file_number(video: usize) -> Option<u32> {
    u32::try_from(video).ok()
}

struct ReadVideos {
    videos: Arc<Videos>,
    has_frames: bool,
}

impl VideoSamples for ReadVideos {
    fn for_each_file(&self, sample: u64, visit: &mut dyn FnMut(u32)) {
        file_number(self.videos.video_and_clip(sample as usize).0).into_iter().for_each(visit);
    }

    fn object(&self, file: u32) -> Option<(u32, Option<u64>)> {
        let len = self.videos.object(file as usize)?.1.len;
        Some((self.videos.object_indices[file as usize], (len <= MAX_WHOLE_BYTES).then_some(len)))
    }

    fn for_each_file_cache(&self, visit: &mut dyn FnMut(&VideoFileCache)) {
        visit(&self.videos.open_videos);
    }

    fn find(&self, file: u32) -> Option<Arc<VideoFile>> {
        self.videos.open_videos.find(file as usize)
    }

    fn open(&self, file: u32) -> Result<Arc<VideoFile>> {
        self.videos.open_video(file as usize)
    }

    fn frames(&self, sample: u64, draw: u64, _file: u32, video: &VideoFile) -> Vec<usize> {
        let plan = self.videos.plan(sample as usize, video).ok().filter(|_| self.has_frames);
        let Some(plan) = plan else { return Vec::new() };
        plan.frames(plan.drawn_start(draw), video.track(), &self.videos.options).collect()
    }
}

impl Source for Clips {
    fn len(&self) -> usize {
        self.videos.listing.len() * self.videos.options.clips_per_video
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.read_clip(index, None, scratch)
    }

    fn read_drawn<'a>(&'a self, index: usize, draw: u64, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.read_clip(index, Some(draw), scratch)
    }

    fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        let Storage::Store { remote, listed } = &self.videos.storage else { return None };
        let samples = ReadVideos { videos: self.videos.clone(), has_frames: self.has_frames };
        prefetcher(Arc::new(samples), &order, remote, listed.clone())
    }

    fn prefetch_bytes(&self) -> usize {
        max_prefetch_bytes(
            (0..self.videos.object_indices.len()).filter_map(|video| Some(self.videos.object(video)?.1.len)),
        )
    }

    /// Describes the first video, which is opened for this purpose.
    fn video_info(&self) -> Option<VideoInfo> {
        if self.has_frames { self.videos.open_video(0).ok().map(|file| file.info()) } else { None }
    }

    fn check(&self) -> Result<()> {
        self.videos.open_videos.check()
    }

    fn network_stats(&self) -> Option<NetworkStats> {
        let Storage::Store { remote, .. } = &self.videos.storage else { return None };
        Some(remote.network_stats())
    }

    fn label(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        Ok(self.videos.listing.labels.get(self.videos.video_and_clip(index).0).map(|&label| label.into()))
    }

    fn key(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<String> {
        let file = self.videos.file(index, false)?;
        Ok(self.videos.key_of(index, &self.videos.plan(index, &file)?))
    }

    fn fingerprint(&self) -> Option<u64> {
        let ClipsOptions { frames, clips_per_video, start_jitter, can_pad, .. } = self.videos.options;
        let step = match self.videos.options.step() {
            Step::Frames(stride) => [0, stride as u64],
            Step::Rate(fps) => [1, fps.to_bits()],
        };
        let objects = (0..self.videos.object_indices.len()).filter_map(|video| Some(self.videos.object(video)?.1));
        let numbers = [
            frames as u64,
            clips_per_video as u64,
            start_jitter as u64,
            can_pad.into(),
            step[0],
            step[1],
            hash_objects(objects),
        ];
        Some(numbers.into_iter().fold(self.videos.listing.hash(), |hash, number| hash.number(number)).finish())
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        Some(self.videos.path_of(self.videos.video_and_clip(index).0))
    }

    fn classes(&self) -> &[String] {
        &self.videos.listing.classes
    }

    /// Returns `Some(false)`, because the frames of a clip are not a single image.
    fn has_images(&self) -> Option<bool> {
        Some(false)
    }

    fn fields(&self) -> Option<Vec<String>> {
        let fields = [(VIDEO_FIELD, self.has_frames), (PAD_FIELD, self.has_padding)];
        Some(fields.into_iter().filter(|field| field.1).map(|field| field.0.to_owned()).collect())
    }

    fn images(&self) -> Vec<String> {
        self.has_frames.then(|| VIDEO_FIELD.to_owned()).into_iter().collect()
    }

    fn select_fields(&self, fields: &[String]) -> Option<Arc<dyn Source>> {
        let is_wanted = |field: &str| fields.iter().any(|wanted| are_same_field(field, wanted));
        let (has_frames, has_padding) =
            (self.has_frames && is_wanted(VIDEO_FIELD), self.has_padding && is_wanted(PAD_FIELD));
        Some(Arc::new(Clips { videos: self.videos.clone(), has_frames, has_padding }))
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
