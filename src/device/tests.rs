//! Support for device tests: a simulated device, and images for a device to decode.

pub(crate) mod coded;
pub(crate) mod sim;
