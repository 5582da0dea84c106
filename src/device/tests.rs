//! `sim`: a simulated device. `coded`: encoded images for it to decode.

pub(crate) mod coded;
pub(crate) mod sim;
