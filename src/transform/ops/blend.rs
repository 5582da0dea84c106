use super::effect::{PixelEffect, Scratch};
use crate::error::resize;
use crate::transform::{ImageMut, record};

record! {
    /// Adds the image, multiplied by a weight, to a mixture, as in torchvision's `AugMix`. A
    /// mixture is the weighted sum of the original image and of the results of several chains of
    /// effects. The first blend of a mixture adds the original image, and the last blend replaces
    /// the image with the mixture.
    pub(crate) struct Blend {
        /// Position of the blend in the mixture: BEGIN, NEXT or END.
        position: u32,
        weight: f32,
    }
}

impl Blend {
    const BEGIN: u32 = 0;
    const NEXT: u32 = 1;
    const END: u32 = 2;

    pub(super) fn begin(weight: f32) -> Self {
        Blend { position: Self::BEGIN, weight }
    }

    /// Creates the blend after a chain. The blend adds the current image to the mixture. It then
    /// restores the original image for the next chain, or, if `is_last` is true, replaces the image
    /// with the mixture.
    pub(super) fn chain(weight: f32, is_last: bool) -> Self {
        Blend { position: if is_last { Self::END } else { Self::NEXT }, weight }
    }
}

impl PixelEffect for Blend {
    // There is no device code, because the sum of floats would need four times the scratch memory
    // that the kernel has for each image.
    const DEVICE: Option<&'static str> = None;

    fn run(&self, image: &mut ImageMut<'_>, scratch: &mut Scratch) {
        let Scratch { original, sum, .. } = scratch;
        if self.position == Self::BEGIN {
            original.clear();
            original.extend_from_slice(image.data());
            sum.clear();
            resize(sum, original.len(), 0.0);
        }
        sum.iter_mut().zip(image.data()).for_each(|(sum, &v)| *sum += self.weight * f32::from(v));
        match self.position {
            Self::NEXT => image.data_mut().copy_from_slice(original),
            Self::END => image.data_mut().iter_mut().zip(sum).for_each(|(out, sum)| *out = *sum as u8),
            _ => {}
        }
    }
}
