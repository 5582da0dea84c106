//! The subcommands, with their arguments and output.

pub(crate) mod bench;
#[cfg(feature = "stores")]
pub(crate) mod cache;
pub(crate) mod doctor;
mod doctor_gpu;
pub(crate) mod inspect;
pub(crate) mod occupancy;
mod overlay;
pub(crate) mod pack;
pub(crate) mod preview;
pub(crate) mod report;
mod requests;
pub(crate) mod synth;
pub(crate) mod verify;
