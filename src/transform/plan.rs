use crate::decode::{Rect, Size};
use crate::transform::{Erase, Window};

/// What happens to one sample. [`Augment::plan`](crate::transform::Augment::plan) decides it before
/// decoding.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// The part of the picture that is decoded. The resize filter reads only this part.
    pub region: Rect,
    /// The part of the picture that becomes the output. It lies in the region.
    pub window: Window,
    /// Size of the result.
    pub output: Size,
    /// Mirror left and right.
    pub flip: bool,
    /// Mirror top and bottom.
    pub vertical_flip: bool,
    /// The rectangle to be filled after normalisation.
    pub erase: Option<Erase>,
}
