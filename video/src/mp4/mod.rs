//! Reads the sample tables of MP4 and QuickTime files (ISO/IEC 14496-12), including fragmented
//! files.
//!
//! **Idea.** For each track, the `moov` box lists the size of each packet, the file chunk that
//! contains the packet, and the time. A fragmented file has several such lists in
//! `moof` boxes. The reader combines all lists into one [`Track`](crate::Track), and does not read
//! the packets.
//!
//! **Cost.** The reader reads the headers of the top-level boxes up to `moov`, or of all top-level
//! boxes if the file is fragmented, and makes one pass over the tables. A packet takes about 28
//! bytes of memory, in addition to the tables while they are parsed. The file size limits every
//! allocation: a table must fit in its box, and a box must fit in the file. If all packets have the
//! same size, the file does not list their sizes, so the number of packets is limited separately.
//!
//! **Edit lists.** Empty edits delay the start. They may precede one edit with media at normal
//! speed. Frames before the start of this edit, or at or after its end, are not shown. In a file with
//! an edit list, the first shown frame has the time at which the empty edits end, or 0 if there are
//! none, as in FFmpeg. Other edit lists are rejected.

mod atoms;
mod entry;
mod fragments;
mod movie;
mod read;
mod tables;

pub use read::{matches, read};
