//! What tests of a device need: a simulated device, and images that a device decodes.

pub(crate) mod coded;
pub(crate) mod sim;
