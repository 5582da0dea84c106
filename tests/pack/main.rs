//! Writing data sets.

#[path = "../libjpeg/mod.rs"]
mod libjpeg;
#[path = "../support/process.rs"]
mod process;

mod conversion;
mod killed;
mod overview;
mod parts;
mod repack;
mod stored;
mod twice;
mod writers;
