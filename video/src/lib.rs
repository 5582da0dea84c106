//! Finds and decodes video frames by their exact presentation time.
//!
//! 1. [`Input`]: random access to the bytes of a file.
//! 2. [`Track`]: the sample table of a video. It maps a presentation time to a frame, and a frame to
//!    the [packets](Packet) that must be decoded for it.
//! 3. [`CodecConfig`]: the codec, and the data that a decoder needs in addition to the packets.
//! 4. [`open`] reads the table of a file. [`mp4`] parses MP4 containers, and [`mkv`] Matroska and
//!    WebM containers.
//! 5. [`record`]: a self-contained encoding of one frame.
//! 6. `av1`: decodes AV1 on the CPU, with the `av1` feature.
//! 7. `nvdec`: decodes H.264, HEVC and VP9 on a GPU, with the `nvdec` feature.
//! 8. [`FrameDecoder`]: decodes records with the decoder for their codec.
//! 9. [`rgb`]: converts decoded [`Planes`] to RGB.
//!
//! ```no_run
//! let file = std::fs::File::open("episode_000000.mp4")?;
//! let track = warpfeed_video::open(&file)?;
//! let frame = track.frame_at(1.5, 1e-4).expect("a frame at 1.5 s");
//! for packet in track.packets_for(frame) {
//!     println!("{} bytes from byte {}", packet.size, packet.offset);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "av1")]
pub mod av1;
mod codec;
mod error;
mod frame;
mod frames;
mod input;
pub mod mkv;
pub mod mp4;
#[cfg(feature = "nvdec")]
pub mod nvdec;
pub mod record;
pub mod rgb;
mod track;

pub use codec::{Codec, CodecConfig};
pub use error::{Error, ErrorKind, Result};
pub use frame::{Coding, Layout, Plane, Planes};
pub use frames::{FrameDecoder, check};
pub use input::Input;
pub use track::{Packet, Time, Track};

/// Reads the sample table of the first video track of a file.
///
/// # Errors
/// If reading fails, if the file is damaged or has no video track, or if the container, or a
/// feature of it that the track uses, is not supported.
pub fn open(input: &dyn Input) -> Result<Track> {
    let mut prefix = [0; 12];
    let len = input.len().min(12) as usize;
    input.read_at(0, &mut prefix[..len])?;
    if mkv::matches(&prefix[..len]) {
        return mkv::read(input);
    }
    if !mp4::matches(&prefix[..len]) {
        return Err(Error::unsupported("unsupported video file: expected MP4, Matroska or WebM"));
    }
    mp4::read(input)
}
