mod large;
pub(super) mod mosaics;
mod pastes;
