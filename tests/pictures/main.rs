//! Pictures: the JPEG decoder, other formats, and the augmentation.

#[path = "../support/files.rs"]
mod files;
#[path = "../libjpeg/mod.rs"]
mod libjpeg;
#[path = "../support/mod.rs"]
mod support;

mod codecs;
mod jpeg_crop;
mod jpeg_damage;
mod jpeg_decoder;
mod jpeg_kinds;
mod transform_parity;
mod views;
