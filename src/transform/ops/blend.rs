use super::effect::{PixelEffect, Scratch};
use crate::error::resize;
use crate::transform::{ImageMut, record};

record! {
    /// Adds the image to a mixture of chains of effects, as torchvision's `AugMix` does. The first
    /// of a sample begins the mixture with the original image, and the last gives the mixture.
    pub(crate) struct Blend {
        /// BEGIN, NEXT or END.
        part: u32,
        /// Share of the image as it is now.
        weight: f32,
    }
}

impl Blend {
    const BEGIN: u32 = 0;
    const NEXT: u32 = 1;
    const END: u32 = 2;

    /// Begins the mixture with `weight` of the original image.
    pub(super) fn begin(weight: f32) -> Self {
        Blend { part: Self::BEGIN, weight }
    }

    /// Adds the chain that ends here. The next chain, if any, starts from the original image.
    pub(super) fn chain(weight: f32, last: bool) -> Self {
        Blend { part: if last { Self::END } else { Self::NEXT }, weight }
    }
}

impl PixelEffect for Blend {
    // The sums of floats need more memory than the device has next to an image.
    const DEVICE: Option<&'static str> = None;

    fn run(&self, image: &mut ImageMut<'_>, scratch: &mut Scratch) {
        let Scratch { original, sum, .. } = scratch;
        if self.part == Self::BEGIN {
            original.clear();
            original.extend_from_slice(image.data());
            sum.clear();
            resize(sum, original.len(), 0.0);
        }
        sum.iter_mut().zip(image.data()).for_each(|(sum, &v)| *sum += self.weight * f32::from(v));
        match self.part {
            Self::NEXT => image.data_mut().copy_from_slice(original),
            Self::END => image.data_mut().iter_mut().zip(sum).for_each(|(to, sum)| *to = *sum as u8),
            _ => {}
        }
    }
}
