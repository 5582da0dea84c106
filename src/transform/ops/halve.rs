//! Halves the levels of every other sample, on the host only. For tests of operations without
//! device code.

use super::operation::{Operation, PixelEffect};
use crate::decode::Size;
use crate::error::Result;
use crate::order::Rng;
use crate::transform::{ImageMut, record};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Halve;

record! {
    /// Nothing is random.
    pub(crate) struct Halved {
        unused: u32,
    }
}

impl Operation for Halve {
    type Effect = Halved;
    const DEVICE: Option<&'static str> = None;

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn draw(&self, _: Size, rng: &mut Rng) -> Option<Halved> {
        rng.chance(0.5).then_some(Halved { unused: 0 })
    }
}

impl PixelEffect for Halved {
    fn run(&self, image: &mut ImageMut<'_>) {
        image.data_mut().iter_mut().for_each(|level| *level /= 2);
    }
}
