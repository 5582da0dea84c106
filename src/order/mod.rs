//! Which sample next.
//!
//! 1. [`Rng`]: the random numbers of one sample, a pure function of (seed, epoch, sample).

mod rng;

pub use rng::Rng;
