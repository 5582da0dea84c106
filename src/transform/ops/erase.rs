use super::effect::ValueEffect;
use crate::decode::Rect;
use crate::transform::record;

record! {
    /// A rectangle of the output that is filled with one color.
    pub struct Erase {
        /// The rectangle, in pixels of the output.
        pub rect: Rect,
        /// Red, green and blue in the batch's units: normalized floats, or 0 to 255 for `u8`.
        pub value: [f32; 3],
    }
}

impl ValueEffect for Erase {
    const DEVICE: &'static str = "erase.cuh";

    fn area(&self) -> Rect {
        self.rect
    }

    fn value(&self, _: u32, _: u32, _: [f32; 3]) -> [f32; 3] {
        self.value
    }
}
