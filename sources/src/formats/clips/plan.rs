//! [`ClipPlan`]: computes the frames of a clip.
//!
//! Let R be the last frame at which a clip can start and still fit into the video, or 0 if the
//! video is too short. Clip k of n, counted from 0, has the base start B = k R / (n - 1), rounded,
//! or R / 2 if it is the only clip. A *choice* is a frame at which the clip may start: with jitter
//! J, each frame from B - J to B + J that is not before frame 0 or after frame R. Only a video that
//! is too short is padded, by repeating its last frame. It has a single choice, so the padding does
//! not depend on the choice.

use std::ops::RangeInclusive;

use warpfeed_video::Track;

use super::options::{ClipsOptions, Step};
use crate::error::{Error, Result, reserve};
use crate::model::drawn_choice;

/// Maximum difference in seconds between times that count as equal.
const TOLERANCE_S: f64 = 1e-6;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClipPlan {
    pub(super) starts: RangeInclusive<usize>,
    /// The first frame if the start is not jittered.
    pub(super) base_start: usize,
    last_frame: usize,
}

impl ClipPlan {
    /// `clip` is the index of the clip in its video. Fails if the video has no frames, or if it is
    /// shorter than a clip and padding is off.
    pub(super) fn new(track: &Track, clip: usize, options: &ClipsOptions) -> Result<Self> {
        let last = track.len().checked_sub(1).ok_or_else(|| Error::in_source("the video has no frames"))?;
        let max_start = last_start(track, last, options);
        if max_start.is_none() && !options.can_pad {
            let (len, frames) = (track.len(), options.frames);
            let step = match options.step() {
                Step::Frames(stride) => format!("stride={stride}"),
                Step::Rate(fps) => format!("fps={fps}"),
            };
            return Err(Error::in_source(format!(
                "the video is shorter than a clip: it has {len} frames, the last at {} s, but a clip needs {frames} \
                 frames at {step}; allow padding, or exclude the video with a subset",
                track.time(last).seconds()
            )));
        }
        let max_start = max_start.unwrap_or(0);
        let base_start = match options.clips_per_video {
            1 => max_start / 2,
            clips => ((clip as u128 * max_start as u128 + (clips as u128 - 1) / 2) / (clips as u128 - 1)) as usize,
        };
        let starts = base_start.saturating_sub(options.start_jitter)
            ..=base_start.saturating_add(options.start_jitter).min(max_start);
        Ok(ClipPlan { starts, base_start, last_frame: last })
    }

    pub(super) fn choice_count(&self) -> usize {
        self.starts.end() - self.starts.start() + 1
    }

    pub(super) fn drawn_start(&self, draw: u64) -> usize {
        self.starts.start() + drawn_choice(self.choice_count(), draw)
    }

    /// Yields the frames of a clip that starts at frame `start`.
    pub(super) fn frames(&self, start: usize, track: &Track, options: &ClipsOptions) -> impl Iterator<Item = usize> {
        let (last, step) = (self.last_frame, options.step());
        (0..options.frames).map(move |index| match step {
            Step::Frames(stride) => start.saturating_add(index.saturating_mul(stride)).min(last),
            Step::Rate(fps) => {
                let seconds = track.time(start).seconds() + index as f64 / fps;
                // The nearest frame may be before `start`, but a clip never goes back.
                track.nearest(seconds).unwrap_or(start).max(start)
            }
        })
    }

    pub(super) fn all_frames(&self, track: &Track, options: &ClipsOptions) -> Result<Vec<usize>> {
        let mut frames = Vec::new();
        reserve(&mut frames, self.choice_count().saturating_mul(options.frames))?;
        self.starts.clone().for_each(|start| frames.extend(self.frames(start, track, options)));
        Ok(frames)
    }

    /// Returns whether frame `index` of the clip is after the end of the video.
    pub(super) fn is_pad(&self, index: usize, track: &Track, options: &ClipsOptions) -> bool {
        match options.step() {
            Step::Frames(stride) => index.saturating_mul(stride) > self.last_frame - self.starts.start(),
            Step::Rate(fps) => {
                let first = track.time(*self.starts.start()).seconds();
                first + index as f64 / fps > track.time(self.last_frame).seconds() + TOLERANCE_S
            }
        }
    }
}

/// Returns the last frame at which a clip can start and still fit into the video, or `None` if the
/// video is too short. `last` is the last frame of the video.
fn last_start(track: &Track, last: usize, options: &ClipsOptions) -> Option<usize> {
    let steps = options.frames - 1;
    match options.step() {
        Step::Frames(stride) => last.checked_sub(steps.checked_mul(stride)?),
        Step::Rate(fps) => {
            let end = track.time(last).seconds() + TOLERANCE_S - steps as f64 / fps;
            // Times ascend, so use binary search.
            let (mut start, mut after) = (0, last + 1);
            while start < after {
                let middle = start + (after - start) / 2;
                match track.time(middle).seconds() <= end {
                    true => start = middle + 1,
                    false => after = middle,
                }
            }
            start.checked_sub(1)
        }
    }
}
