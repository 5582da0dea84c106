//! Records that tell a device which effects to run on each image, and how to mix the image with a
//! different one.

use arrayvec::ArrayVec;

use crate::decode::Rect;
use crate::transform::{
    AnyPixelEffect, AnyValueEffect, Effect, MAX_PIXEL_EFFECTS, MAX_VALUE_EFFECTS, Mixing, Record, SampleEffects, record,
};

record! {
    /// The operations on one image in addition to normalization. There is one record per image, and
    /// for a clip one record per frame. The records are copied to the device together with the
    /// batch. If the host mixes the batch, the host reads the effects on values from the record.
    ///
    /// The order of the operations is fixed: effects on pixels, normalization, effects on values,
    /// and mixing. An image is mixed with the image of one other sample, its partner, which has its
    /// own record.
    pub struct SampleOps align 16 {
        /// Kind of mixing: 0 (none), MIX or CUT.
        mixing: u32,
        /// Row of the partner in the batch.
        partner: u32,
        /// MIX: weight of this sample. CUT: weight of this sample's label.
        weight: f32,
        /// Number of effects on pixels in bits 0 to 15, and number of effects on values in bits 16
        /// to 31.
        effects: u32,
        /// CUT: the rectangle of the output that shows the partner, in pixels.
        cut: Rect,
        values: [Effect; MAX_VALUE_EFFECTS],
        pixels: [Effect; MAX_PIXEL_EFFECTS],
    }
}

impl SampleOps {
    /// Size of a record in bytes.
    pub const BYTES: usize = 4 * Self::WORDS;

    pub(crate) const MIX: u32 = 1;
    pub(crate) const CUT: u32 = 2;
    /// Index of the first word of `cut`.
    const CUT_WORD: usize = 4;

    /// Creates a record with the effects on values. If `retouches` is true, the record also
    /// contains the effects on pixels.
    pub(crate) fn new(effects: &SampleEffects, retouches: bool) -> Self {
        let pixels = if retouches { &effects.pixels[..] } else { &[] };
        let mut ops = SampleOps {
            mixing: 0,
            partner: 0,
            weight: 0.0,
            effects: (pixels.len() | effects.values.len() << 16) as u32,
            cut: Rect::new(0, 0, 0, 0),
            values: [Effect::NONE; MAX_VALUE_EFFECTS],
            pixels: [Effect::NONE; MAX_PIXEL_EFFECTS],
        };
        ops.values
            .iter_mut()
            .zip(effects.values.iter().map(AnyValueEffect::encode))
            .for_each(|(out, effect)| *out = effect);
        ops.pixels.iter_mut().zip(pixels.iter().map(AnyPixelEffect::encode)).for_each(|(out, effect)| *out = effect);
        ops
    }

    /// Creates a record that runs all effects of `plan` on the device.
    pub fn from_plan(plan: &crate::transform::Plan) -> Self {
        Self::new(&plan.effects, true)
    }

    /// Adds mixing with the sample in row `partner`.
    #[must_use]
    pub fn mix(self, partner: usize, mixing: &Mixing) -> Self {
        let (weight, partner) = (mixing.weight, partner as u32);
        match mixing.cutmix_area {
            Some(cut) => SampleOps { mixing: Self::CUT, partner, weight, cut, ..self },
            None => SampleOps { mixing: Self::MIX, partner, weight, ..self },
        }
    }

    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) fn write_mixing(record: &mut [u8; Self::BYTES], partner: usize, mixing: &Mixing) {
        let mut mixed = [0; Self::BYTES];
        Self::new(&SampleEffects::default(), false).mix(partner, mixing).write(&mut mixed);
        for range in [0..3, Self::CUT_WORD..Self::CUT_WORD + 4] {
            let bytes = range.start * 4..range.end * 4;
            record[bytes.clone()].copy_from_slice(&mixed[bytes]);
        }
    }

    /// Serializes the record for the kernels.
    pub fn write(&self, out: &mut [u8; Self::BYTES]) {
        let mut words = [0; Self::WORDS];
        self.write_words(&mut words);
        for (out, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *out = word.to_ne_bytes();
        }
    }

    fn read(record: &[u8; Self::BYTES]) -> Self {
        let mut words = [0; Self::WORDS];
        words.iter_mut().zip(record.as_chunks().0).for_each(|(word, bytes)| *word = u32::from_ne_bytes(*bytes));
        Self::read_words(&words)
    }

    pub(crate) fn read_values(record: &[u8; Self::BYTES]) -> ArrayVec<AnyValueEffect, MAX_VALUE_EFFECTS> {
        Self::read(record).values.iter().map_while(AnyValueEffect::from_effect).collect()
    }

    #[cfg(test)]
    pub(crate) fn read_pixels(record: &[u8; Self::BYTES]) -> Vec<AnyPixelEffect> {
        Self::read(record).pixels.iter().map_while(AnyPixelEffect::from_effect).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Size;
    use crate::sampler::Rng;
    use crate::transform::{Augment, ColorJitter, RandomErasing};

    #[test]
    fn write_mixing_leaves_the_effects_unchanged() {
        let jitter = ColorJitter::new().brightness(0.4).hue(0.1);
        let augment = Augment::resize(40, 30).jitter(jitter).erase(RandomErasing::new(1.0));
        let plan = augment.plan(Size::new(50, 50), &mut Rng::new(1, 2, 3)).unwrap();
        let ops = SampleOps::from_plan(&plan);
        assert_eq!(ops.effects, 2 | 1 << 16);
        let (sum, cut) = (
            Mixing { weight: 0.25, cutmix_area: None },
            Mixing { weight: 0.75, cutmix_area: Some(Rect::new(9, 2, 4, 7)) },
        );
        for mixing in [sum, cut] {
            let (mut actual, mut expected) = ([0; SampleOps::BYTES], [0; SampleOps::BYTES]);
            ops.write(&mut actual);
            SampleOps::write_mixing(&mut actual, 3, &mixing);
            ops.mix(3, &mixing).write(&mut expected);
            assert_eq!(actual, expected);
            assert_eq!(SampleOps::read_pixels(&actual), plan.effects.pixels[..]);
            assert_eq!(SampleOps::read_values(&actual), plan.effects.values);
        }
    }
}
