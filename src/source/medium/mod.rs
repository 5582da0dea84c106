//! Where the files of a data set lie.
//!
//! 1. `file`: [`HeldFile`], a file that stays open.

mod file;

pub(super) use file::{Held, HeldFile, are_unchanged};
