//! `sim`: a simulated device. `coded`: encoded images for tests of the decode kernels and their
//! model.

pub(crate) mod coded;
pub(crate) mod sim;
