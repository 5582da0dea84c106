//! Interleaved Huffman decoding of many segments.
//!
//! Huffman decoding is a chain of dependent steps, because each lookup needs the position after the
//! previous code. A single segment therefore leaves most of a core idle. Each restart segment or
//! stream is decoded in a **lane**, and the lanes are interleaved: while some wait for memory,
//! another computes.
//!
//! 1. `table`: lookup tables that return the runs and values of one or two symbols in one step.
//! 2. `lanes`: the state of the lanes, and pointers to the memory that they access.
//! 3. `scalar`: decodes one to three lanes in plain registers.
//! 4. `avx512`: decodes up to sixteen lanes in vectors.
//! 5. `backend`: [`Backend`], which selects `scalar` or `avx512`.
//! 6. `machine`: [`Machine`], the lanes and all of their memory.
//!
//! On 64-bit Arm, `scalar` is used. NEON has no gather instruction, so each lookup would move an
//! address out of a vector and an entry back.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod backend;
mod lanes;
mod machine;
mod scalar;
mod table;

pub(crate) use backend::Backend;
pub(super) use machine::Slot;
pub(crate) use machine::{KEPT_BYTES, Machine};
