use crate::decode::Rect;
use crate::transform::Mixing;

/// What the convert kernel does to one sample besides normalising: one record a sample, copied to
/// the device with its batch.
///
/// The order is fixed: normalise, erase, then mix with a partner that was normalised and erased by
/// its own record. The bytes of a record are those of `SampleOps` in `kernels/convert.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SampleOps {
    flags: u32,
    partner: u32,
    weight: f32,
    erase: [u32; 4],
    cut: [u32; 4],
    fill: [f32; 3],
}

impl SampleOps {
    /// Bytes of a record.
    pub const BYTES: usize = 64;

    const ERASE: u32 = 1;
    const MIX: u32 = 2;
    const CUT: u32 = 4;

    /// Nothing but normalisation.
    pub fn new() -> Self {
        Self::default()
    }

    /// `rect` filled with `value`, in units of the output (normalised, or 0 to 255 for bytes).
    #[must_use]
    pub fn erase(mut self, rect: Rect, value: [f32; 3]) -> Self {
        self.flags |= Self::ERASE;
        (self.erase, self.fill) = (corners(rect), value);
        self
    }

    /// `weight * this + (1 - weight) * partner` (mixup; Zhang et al. 2017). `partner` is the other
    /// sample's place in this batch.
    #[must_use]
    pub fn mix(mut self, partner: usize, weight: f32) -> Self {
        self.flags = self.flags & !Self::CUT | Self::MIX;
        (self.partner, self.weight) = (partner as u32, weight);
        self
    }

    /// `rect` taken from the partner (cutmix; Yun et al. 2019). `weight` is what the label keeps: 1
    /// less the rectangle's share of the area.
    #[must_use]
    pub fn cut(mut self, partner: usize, rect: Rect, weight: f32) -> Self {
        self.flags = self.flags & !Self::MIX | Self::CUT;
        (self.partner, self.cut, self.weight) = (partner as u32, corners(rect), weight);
        self
    }

    /// Enters `mixing` with `partner` into a record that was written.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) fn write_mixing(record: &mut [u8; Self::BYTES], partner: usize, mixing: &Mixing) {
        let mut word = |i: usize, value: u32| record[i * 4..][..4].copy_from_slice(&value.to_ne_bytes());
        let ops = match mixing.cut {
            Some(rect) => Self::new().cut(partner, rect, mixing.weight),
            None => Self::new().mix(partner, mixing.weight),
        };
        word(1, ops.partner);
        word(2, ops.weight.to_bits());
        ops.cut.into_iter().enumerate().for_each(|(i, edge)| word(8 + i, edge));
        let flags = u32::from_ne_bytes(*record.first_chunk().expect("a record has a first word"));
        record[..4].copy_from_slice(&(flags & !(Self::MIX | Self::CUT) | ops.flags).to_ne_bytes());
    }

    /// Writes the record as the kernel reads it.
    pub fn write(&self, to: &mut [u8; Self::BYTES]) {
        let SampleOps { flags, partner, weight, erase, cut, fill: [r, g, b] } = *self;
        let head = [flags, partner, weight.to_bits(), 0];
        let fill = [r, g, b, 0.0].map(f32::to_bits);
        let words = head.into_iter().chain(erase).chain(cut).chain(fill);
        for (to, word) in to.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *to = word.to_ne_bytes();
        }
    }
}

/// x0, y0, x1, y1.
fn corners(rect: Rect) -> [u32; 4] {
    [rect.x, rect.y, rect.x + rect.width, rect.y + rect.height]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_layout_of_the_kernel_source() {
        let source = include_str!("kernels/convert.cu");
        assert!(source.contains("enum { ERASE = 1, MIX = 2, CUT = 4 };"));
        let ops =
            SampleOps::new().erase(Rect::new(1, 2, 3, 4), [0.5, 0.25, 2.0]).cut(7, Rect::new(10, 20, 30, 40), 0.75);
        let mut bytes = [0; SampleOps::BYTES];
        ops.write(&mut bytes);
        let word = |i: usize| u32::from_ne_bytes(bytes[i * 4..][..4].try_into().unwrap());
        assert_eq!([0, 1, 2, 3].map(word), [1 | 4, 7, 0.75f32.to_bits(), 0]);
        assert_eq!([4, 5, 6, 7].map(word), [1, 2, 4, 6], "erase");
        assert_eq!([8, 9, 10, 11].map(word), [10, 20, 40, 60], "cut");
        assert_eq!([12, 13, 14, 15].map(word), [0.5f32.to_bits(), 0.25f32.to_bits(), 2f32.to_bits(), 0], "fill");
        assert_eq!(SampleOps::BYTES, 16 * 4, "and that is all");

        let mut mixed = bytes;
        SampleOps::write_mixing(&mut mixed, 3, &Mixing { weight: 0.25, cut: None });
        let mut expected = [0; SampleOps::BYTES];
        SampleOps { cut: [0; 4], ..ops }.mix(3, 0.25).write(&mut expected);
        assert_eq!(mixed, expected, "mixing is entered into a record without touching the rest");
    }

    #[test]
    fn a_sample_is_mixed_or_cut_but_not_both() {
        let rect = Rect::new(0, 0, 1, 1);
        assert_eq!(SampleOps::new().cut(1, rect, 0.9).mix(2, 0.5).flags, SampleOps::MIX);
        let cut = SampleOps::new().mix(2, 0.5).cut(1, rect, 0.9);
        assert_eq!((cut.flags, cut.partner, cut.weight), (SampleOps::CUT, 1, 0.9));
    }
}
