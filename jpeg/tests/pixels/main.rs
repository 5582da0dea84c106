//! Checks decoded pixels against libjpeg, and files written by `repack` against libjpeg and the
//! decoder of the `image` crate.

#[path = "../libjpeg/mod.rs"]
mod libjpeg;

mod crop;
mod repack;
mod whole;
