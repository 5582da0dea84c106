//! Halves the levels of every other sample, on the host only. For tests of operations without
//! device code.

use super::effect::{PixelEffect, Scratch};
use crate::transform::{ImageMut, record};

record! {
    /// Nothing is random.
    pub(crate) struct Halved {
        pub(super) unused: u32,
    }
}

impl PixelEffect for Halved {
    const DEVICE: Option<&'static str> = None;

    fn run(&self, image: &mut ImageMut<'_>, _: &mut Scratch) {
        image.data_mut().iter_mut().for_each(|level| *level /= 2);
    }
}
