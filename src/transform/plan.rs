use crate::decode::{Rect, Size};
use crate::transform::Erase;

/// A window of a picture in fractions of a pixel; (0, 0) is the upper left corner of the first
/// pixel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// From left to right edge.
    pub width: f64,
    /// From upper to lower edge.
    pub height: f64,
}

impl From<Rect> for Window {
    fn from(rect: Rect) -> Self {
        Window { x: rect.x.into(), y: rect.y.into(), width: rect.width.into(), height: rect.height.into() }
    }
}

/// What happens to one sample, decided by [`Augment::plan`](crate::transform::Augment::plan) before
/// it is decoded.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// The part of the picture that is decoded. The resize filter sees nothing outside it.
    pub region: Rect,
    /// The part of the picture that becomes the output; it lies in the region.
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
