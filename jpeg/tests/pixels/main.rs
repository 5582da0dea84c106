//! Checks decoded pixels, and files written by `repack`, against libjpeg and other decoders.

#[path = "../libjpeg/mod.rs"]
mod libjpeg;

mod crop;
mod repack;
mod whole;
