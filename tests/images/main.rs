//! Tests of image formats and augmentation.

#[path = "../support/files.rs"]
mod files;
#[path = "../support/mod.rs"]
mod support;

mod codecs;
mod decoded_cache;
mod jpeg_damage;
mod jpeg_kinds;
mod pillow;
mod transform_parity;
mod views;

/// Encodes RGB pixels with 4:2:0 sampling and a restart marker every `interval` MCUs, or none if 0.
fn jpeg(pixels: &[u8], (width, height): (u16, u16), progressive: bool, interval: u16) -> Vec<u8> {
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 85);
    encoder.set_sampling_factor(SamplingFactor::F_2_2);
    encoder.set_progressive(progressive);
    if interval > 0 {
        encoder.set_restart_interval(interval);
    }
    encoder.encode(pixels, width, height, ColorType::Rgb).unwrap();
    bytes
}
