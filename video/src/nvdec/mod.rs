//! Decodes H.264, HEVC and VP9 on the video engines of an NVIDIA GPU (NVDEC).
//!
//! The libraries of the driver are opened at run time: neither building nor running needs a CUDA
//! toolkit or FFmpeg.

mod bitstream;
mod decoder;
mod device;
mod ffi;
mod frame;
mod frames;
mod images;
mod pool;
#[cfg(test)]
mod simulation;
mod vp9;

use crate::codec::Codec;
use crate::error::{Error, Result};

pub use frames::FrameDecoder;

/// Checks that the driver is installed, without initializing it.
///
/// # Errors
/// If the driver is missing or too old. The message names the codec and says what to do.
pub fn check(codec: Codec) -> Result<()> {
    device::Driver::get()
        .map(|_| ())
        .map_err(|e| Error::new(e.kind(), format!("the video is encoded with {codec}, and {e}")))
}

const ALTERNATIVES: &str = "re-encode the videos as AV1, which needs no GPU (`ffmpeg -i in.mp4 -c:v libsvtav1 -g 2 -crf 30 out.mp4`), \
     or convert the dataset to images once with `warpfeed pack --frames`";
