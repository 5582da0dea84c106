//! Pixels and files, compared with those of libjpeg and of other decoders.

#[path = "../libjpeg/mod.rs"]
mod libjpeg;

mod crop;
mod repack;
mod whole;
