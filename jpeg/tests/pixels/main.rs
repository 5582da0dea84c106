//! Compares pixels and files with libjpeg and other decoders.

#[path = "../libjpeg/mod.rs"]
mod libjpeg;

mod crop;
mod repack;
mod whole;
