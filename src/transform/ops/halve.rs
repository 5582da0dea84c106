//! Halves all values. This effect is for tests of effects without device code.

use super::effect::{NaiveReference, PixelEffect, Scratch};
use super::random_effect::random_effect;
use crate::decode::Size;
use crate::transform::{ImageMut, record};

record! {
    pub(crate) struct Halved {
        unused: u32,
    }
}

impl PixelEffect for Halved {
    const DEVICE: Option<&'static str> = None;

    fn run(&self, image: &mut ImageMut<'_>, _: &mut Scratch) {
        image.data_mut().iter_mut().for_each(|level| *level /= 2);
    }
}

impl NaiveReference for Halved {
    fn naive(&self, image: &[[u8; 3]], _: Size) -> Vec<[u8; 3]> {
        image.iter().map(|pixel| pixel.map(|v| v / 2)).collect()
    }
}

random_effect! {
    /// Halves the levels with the given probability.
    halve: Halve -> Halved {}
    probability 0.5;
    draw |_, _| Halved { unused: 0 };
}
