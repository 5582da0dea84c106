//! Interleaved Huffman decoding of many segments.
//!
//! Huffman decoding is a chain of dependent steps, because each lookup needs the position after the
//! previous code. A single segment therefore leaves most of a core idle. Each restart segment is
//! decoded in a **lane**, and the lanes are interleaved, so that one lane computes while other
//! lanes wait for memory.
//!
//! On 64-bit Arm, `scalar` is used. NEON has no gather instruction, so each lookup would move an
//! address out of a vector and an entry back.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod backend;
mod lane_decoder;
mod lanes;
mod scalar;
mod table;

pub(crate) use backend::Backend;
pub(super) use lane_decoder::ImageSlot;
pub(crate) use lane_decoder::{LaneDecoder, MAX_RETAINED_BYTES};
