//! Reads the positions and times of packets from Matroska and WebM files (RFC 9559).
//!
//! **Idea.** A Matroska file has no table of packets. Clusters contain blocks, and the header of a
//! block states the track and the time. A flag in this header, or an element next to the block,
//! states whether the packet is a key frame. The reader reads these headers and skips the packets.
//! It ignores the file's index (`Cues`), which lists only key frames.
//!
//! **Cost.** The reader makes one pass over the file in reads of up to 16 KiB, and skips the rest
//! of larger packets. One more read gets the description of the tracks. A packet takes about 28
//! bytes of memory and at least six bytes in the file, so the size of the file limits the memory.
//!
//! **Rejected.** The reader rejects rotated and cropped videos, tracks that are described after
//! their packets, and elements that extend past the end of the file. It also rejects video tracks
//! that use lacing, compression, encryption, a codec delay, or a time scale of their own.

mod elements;
mod read;
mod track;
mod window;

pub use read::{matches, read};
