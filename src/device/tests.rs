//! A simulated device, and images for it to decode.

pub(crate) mod coded;
pub(crate) mod sim;
