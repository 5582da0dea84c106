//! Writing data sets.

#[path = "../libjpeg/mod.rs"]
mod libjpeg;
#[path = "../support/process.rs"]
mod process;

mod repack;
mod writers;
