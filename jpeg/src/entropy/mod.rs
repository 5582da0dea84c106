//! Huffman decoding of many segments side by side.
//!
//! Decoding a symbol is a chain of dependent steps, so a single segment leaves most of a core idle.
//! Restart segments and the streams of different images are independent. Each gets a **lane**,
//! and lanes advance in turn.
//!
//! 1. `table`: lookup tables that return runs and values of one or two symbols in one step.
//! 2. `lanes`: the positions of the lanes, and the memory that they access.
//! 3. `scalar`: one to three lanes in plain registers.
//! 4. `avx512`: sixteen lanes in vectors.
//! 5. `backend`: [`Backend`], the choice between them.
//! 6. `machine`: [`Machine`], the lanes and all of their memory.
//!
//! 64-bit Arm decodes with `scalar`. NEON cannot load from sixteen addresses at once, so a lookup
//! would move each address out of a vector and each entry back. Such a CPU has 31 registers for the
//! 24 numbers of three lanes.

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
