//! Reads the sample tables of MP4 and QuickTime files (ISO/IEC 14496-12), including fragmented
//! files.
//!
//! **Idea.** For each track, the box `moov` lists the size of each packet, the chunk of the file
//! that contains it, and its presentation time. In a fragmented file, such lists are in boxes
//! `moof`, which are spread over the file. The reader combines all lists into one
//! [`Track`](crate::Track), and does not read the packets.
//!
//! **Cost.** One read for each top-level box of the file (most files have four), and one pass over
//! the tables. The memory is about 28 bytes per packet, plus the tables while they are parsed. No
//! allocation is larger than the file justifies: a table must fit in its box, a box must fit in the
//! file, and the number of packets without an entry in a table is limited.
//!
//! **Edit lists.** Edits without media delay the start. Such edits may precede one edit with media
//! at normal speed. Frames before the start or after the end of this edit are not shown, and the
//! first shown frame has the time 0, as in FFmpeg. Longer edit lists are rejected.

mod atoms;
mod entry;
mod fragments;
mod movie;
mod read;
mod tables;

pub use read::{matches, read};
