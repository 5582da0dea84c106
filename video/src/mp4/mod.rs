//! Reads the sample tables of MP4 and QuickTime files (ISO/IEC 14496-12), also of fragmented files.
//!
//! **Idea.** The box `moov` lists for each track how many bytes each packet has, which chunk of the
//! file contains it, and when it is shown. A fragmented file has such lists in boxes `moof`, which
//! are spread over the file. The reader combines the lists into one [`Track`](crate::Track), and reads
//! nothing else: not the packets.
//!
//! **Cost.** A read for each box of the file's top level (most files have four), and a pass over the
//! tables. The memory is about 28 bytes for each packet, plus the tables while they are parsed. No
//! allocation is larger than the file justifies: a table must fit into its box, a box must fit into
//! the file, and packets without an entry of their own in a table are limited in number.
//!
//! **Edit lists.** Edits without media delay the start. They may precede one edit with media at
//! normal speed. Frames before its start or after its end are
//! not shown, and the first frame that is shown has the time 0, as in FFmpeg. Longer edit lists are
//! rejected.

mod atoms;
mod entry;
mod fragments;
mod movie;
mod read;
mod tables;

pub use read::{matches, read};
