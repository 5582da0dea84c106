//! Writing data sets.

#[path = "../support/process.rs"]
mod process;

mod conversion;
mod killed;
mod overview;
mod parts;
mod stored;
mod twice;
mod writers;
