//! [`ClipsOptions`]: selects the frames of a clip.

use crate::error::{Error, Result};

/// Options for [`Clips`](crate::Clips): the number of clips per video, and the frames of a clip.
///
/// ```
/// use warpfeed_sources::ClipsOptions;
///
/// // Eight frames, two frames apart, from a new random start in each epoch.
/// let options = ClipsOptions::new(8).stride(2).start_jitter(usize::MAX);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ClipsOptions {
    pub(super) frames: usize,
    stride: Option<usize>,
    fps: Option<f64>,
    pub(super) clips_per_video: usize,
    pub(super) start_jitter: usize,
    pub(super) can_pad: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    Frames(usize),
    Rate(f64),
}

const MAX_FRAMES: usize = 1 << 16;

impl Default for ClipsOptions {
    /// Creates the options for clips of 8 consecutive frames.
    fn default() -> Self {
        Self::new(8)
    }
}

impl ClipsOptions {
    /// Creates the options for clips of `frames` consecutive frames, and one clip per video.
    pub fn new(frames: usize) -> Self {
        ClipsOptions { frames, stride: None, fps: None, clips_per_video: 1, start_jitter: 0, can_pad: true }
    }

    /// Sets the number of frames of a clip.
    #[must_use]
    pub fn frames(mut self, frames: usize) -> Self {
        self.frames = frames;
        self
    }

    /// Sets the distance between consecutive frames of a clip, in frames of the video. The default
    /// is 1.
    #[must_use]
    pub fn stride(mut self, frames: usize) -> Self {
        self.stride = Some(frames);
        self
    }

    /// Sets the frame rate of a clip in frames per second, instead of a
    /// [`stride`](ClipsOptions::stride). Frame k of a clip, counted from 0, is the frame of the
    /// video that is nearest to k / `fps` seconds after the start of the clip.
    #[must_use]
    pub fn fps(mut self, fps: f64) -> Self {
        self.fps = Some(fps);
        self
    }

    /// Sets the number of clips of each video. Each clip is a sample. The clips are evenly spaced:
    /// the first one starts with the video, and the last one ends with it. A single clip, the
    /// default, is in the middle. In a video that is shorter than a clip, all clips start at the
    /// first frame.
    #[must_use]
    pub fn clips_per_video(mut self, clips: usize) -> Self {
        self.clips_per_video = clips;
        self
    }

    /// Sets how far a loader may move the start of a clip to either side, in frames of the video.
    /// The default is 0.
    ///
    /// For each sample, a loader draws a random start. All starts in this range at which the clip
    /// lies inside the video are equally likely. With `usize::MAX`, a clip may start anywhere.
    ///
    /// In a loader, a sample contains only the frames of the drawn clip. In contrast,
    /// [`Source::read`](crate::Source::read) returns the frames for every possible start, as
    /// [choices](crate::Frames::choices).
    #[must_use]
    pub fn start_jitter(mut self, frames: usize) -> Self {
        self.start_jitter = frames;
        self
    }

    /// Sets whether a video that is shorter than a clip repeats its last frame. The default is
    /// `true`. With `false`, reading such a sample fails.
    #[must_use]
    pub fn pad_short_videos(mut self, can_pad: bool) -> Self {
        self.can_pad = can_pad;
        self
    }

    pub(super) fn step(&self) -> Step {
        self.fps.map_or(Step::Frames(self.stride.unwrap_or(1)), Step::Rate)
    }

    pub(super) fn check(&self) -> Result<()> {
        let Self { frames, clips_per_video, .. } = *self;
        if self.stride.is_some() && self.fps.is_some() {
            return Err(Error::config("a clip has a stride and a frame rate: set only one of stride and fps"));
        }
        if !(1..=MAX_FRAMES).contains(&frames) {
            return Err(Error::config(format!("frames={frames}: expected 1 to {MAX_FRAMES}")));
        }
        match self.step() {
            Step::Frames(0) => return Err(Error::config("stride=0: expected 1 or more frames")),
            Step::Rate(fps) if !(fps.is_finite() && fps > 0.0) => {
                return Err(Error::config(format!("fps={fps}: expected a finite number above 0")));
            }
            _ => {}
        }
        match clips_per_video {
            0 => Err(Error::config("clips_per_video=0: expected 1 or more clips")),
            _ => Ok(()),
        }
    }
}
