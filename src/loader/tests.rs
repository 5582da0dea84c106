pub(super) mod mosaics;
mod pastes;
