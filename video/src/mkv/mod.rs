//! Reads the positions and times of packets from Matroska and WebM files (RFC 9559).
//!
//! **Idea.** A Matroska file has no table of packets. Clusters contain blocks, and a block's header
//! states the track, the time and whether the packet is a key frame. The reader reads these headers
//! and skips the packets. It ignores the file's index (`Cues`), which lists only key frames.
//!
//! **Cost.** The reader makes one pass over the file, with reads of up to 16 KiB, and skips larger
//! packets. A packet takes about 28 bytes of memory and at least six bytes in the file, so the size
//! of the file limits the table.
//!
//! **Rejected.** The reader rejects lacing and compression of video tracks, rotated and cropped
//! videos, and elements that extend past the end of the file.

mod elements;
mod read;
mod track;
mod window;

pub use read::{matches, read};
