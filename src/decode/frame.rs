use warpfeed_jpeg::Orientation;

use super::Size;
use crate::error::{Error, Result};

/// Whether annotations refer to the stored pixels of an image, or to the image after its EXIF
/// orientation has been applied.
///
/// [`Loader::annotations_follow`](crate::Loader::annotations_follow) explains when this setting is
/// needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnnotationFrame {
    /// The pixels as stored in the file. Use this variant if the annotation tool ignored the EXIF
    /// orientation.
    Stored,
    /// The image as displayed, after the EXIF orientation has been applied.
    Upright,
}

/// The EXIF orientation of an image, and its size after the orientation has been applied (the
/// upright size). A [`Size`] converts to this type, for images that are stored upright.
///
/// ```
/// use warpfeed::decode::{AnnotationFrame, Oriented, Size};
///
/// // A file contains 60 x 40 pixels, and EXIF rotates them by 90 degrees.
/// let image = Oriented::new(Size::new(40, 60), 6);
/// let frame = image.frame(Some(Size::new(60, 40)))?; // the stored image was annotated
/// assert_eq!(frame.corners([0.0, 0.0, 10.0, 5.0]), [35.0, 0.0, 40.0, 10.0]);
/// let frame = image.annotated(Some(AnnotationFrame::Upright)).frame(None)?;
/// assert_eq!(frame.corners([0.0, 0.0, 10.0, 5.0]), [0.0, 0.0, 10.0, 5.0]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oriented {
    size: Size,
    orientation: Orientation,
    annotated: Option<AnnotationFrame>,
}

impl From<Size> for Oriented {
    fn from(size: Size) -> Self {
        Oriented::new(size, 1)
    }
}

impl Oriented {
    /// Creates an `Oriented` from an upright size and an EXIF orientation from 1 to 8. Other values
    /// of `exif` are treated as 1 (stored upright).
    pub fn new(size: Size, exif: u8) -> Self {
        Self::with_orientation(size, Orientation::new(exif))
    }

    pub(super) fn with_orientation(size: Size, orientation: Orientation) -> Self {
        Oriented { size, orientation, annotated: None }
    }

    #[cfg(feature = "formats")]
    pub(super) fn orientation(self) -> Orientation {
        self.orientation
    }

    /// Sets which version of the image was annotated. The setting is needed only if the annotations
    /// contain no image size, or a size that fits both versions.
    #[must_use]
    pub fn annotated(mut self, frame: Option<AnnotationFrame>) -> Self {
        self.annotated = frame;
        self
    }

    /// Returns the size of the upright image.
    pub fn size(self) -> Size {
        self.size
    }

    /// Returns the coordinate frame of annotations. `declared` is the image size that the
    /// annotations contain, if any.
    ///
    /// # Errors
    /// - If neither the stored nor the upright image has the declared size.
    /// - If the frame is ambiguous: the image is not stored upright, the declared size is missing
    ///   or fits both versions, and [`annotated`](Oriented::annotated) has not set the version.
    pub fn frame(self, declared: Option<Size>) -> Result<Frame> {
        let Oriented { size: upright, orientation, annotated } = self;
        // `Orientation::size` is its own inverse, so it converts the upright size to the stored
        // size.
        let stored = orientation.size(upright);
        let is_expected = |size: Size| declared.is_none_or(|declared| declared == size);
        let frame_kind = match (is_expected(stored), is_expected(upright)) {
            (_, true) if orientation.is_upright() => AnnotationFrame::Upright,
            (true, true) => annotated.ok_or_else(|| self.ambiguity_error())?,
            (true, false) => AnnotationFrame::Stored,
            (false, true) => AnnotationFrame::Upright,
            (false, false) => {
                let Size { width, height } = declared.unwrap_or(upright);
                let stored_text = match stored == upright {
                    true => String::new(),
                    false => format!(", or {}x{} before EXIF rotates it", stored.width, stored.height),
                };
                return Err(Error::in_source(format!(
                    "annotations are for {width}x{height} pixels, but the image has {}x{}{stored_text}",
                    upright.width, upright.height
                )));
            }
        };
        Ok(match frame_kind {
            AnnotationFrame::Stored => Frame { size: stored, upright, orientation },
            AnnotationFrame::Upright => Frame { size: upright, upright, orientation: Orientation::default() },
        })
    }

    fn ambiguity_error(self) -> Error {
        let Size { width, height } = self.size;
        Error::in_source(format!(
            "EXIF rotates or mirrors the image (upright {width}x{height}), and the size in the annotations is missing or \
             fits both the stored and the upright image: set Loader::annotations_follow(AnnotationFrame::Stored) or \
             (AnnotationFrame::Upright)"
        ))
    }
}

/// The coordinate frame of annotations: the size of the annotated image, and its transformation to
/// the upright image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    size: Size,
    upright: Size,
    orientation: Orientation,
}

impl Frame {
    /// Returns the size of the image that was annotated.
    pub fn size(self) -> Size {
        self.size
    }

    /// Returns whether the upright image is a mirror image of the annotated image. In a mirror
    /// image, a left hand looks like a right hand.
    pub fn is_mirrored(self) -> bool {
        let Orientation { transposed, mirrored, flipped } = self.orientation;
        transposed ^ mirrored ^ flipped
    }

    /// Returns whether the columns of the annotated image become the rows of the upright image.
    pub fn is_transposed(self) -> bool {
        self.orientation.transposed
    }

    /// Maps the box (x1, y1, x2, y2) to the upright image. Coordinates are pixel edges: a box from
    /// 0 to the width contains all columns.
    pub fn corners(self, [x1, y1, x2, y2]: [f64; 4]) -> [f64; 4] {
        let [a, b, c, d] = if self.orientation.transposed { [y1, x1, y2, x2] } else { [x1, y1, x2, y2] };
        let turn = |from: f64, to: f64, is_flipped: bool, side: u32| {
            if is_flipped { (f64::from(side) - to, f64::from(side) - from) } else { (from, to) }
        };
        let (a, c) = turn(a, c, self.orientation.mirrored, self.upright.width);
        let (b, d) = turn(b, d, self.orientation.flipped, self.upright.height);
        [a, b, c, d]
    }

    /// Maps the point (x, y) to the upright image. Coordinates are pixel centers, as in
    /// [`Plan::point`](crate::transform::Plan::point): (0, 0) is the center of the first pixel.
    pub fn point(self, (x, y): (f64, f64)) -> (f64, f64) {
        let (x, y) = if self.orientation.transposed { (y, x) } else { (x, y) };
        let turn = |v: f64, is_flipped: bool, side: u32| if is_flipped { f64::from(side) - 1.0 - v } else { v };
        (turn(x, self.orientation.mirrored, self.upright.width), turn(y, self.orientation.flipped, self.upright.height))
    }

    /// Maps the displacement (horizontal, vertical) to the upright image.
    pub fn displacement(self, (x, y): (f32, f32)) -> (f32, f32) {
        let (x, y) = if self.orientation.transposed { (y, x) } else { (x, y) };
        let turn = |v: f32, is_flipped: bool| if is_flipped { -v } else { v };
        (turn(x, self.orientation.mirrored), turn(y, self.orientation.flipped))
    }

    /// Maps column `x` of the upright image to the column of the annotated image that it shows. If
    /// the frame is [transposed](Frame::is_transposed), the result is a row.
    pub fn unmirror_x(self, x: u32) -> u32 {
        if self.orientation.mirrored { self.upright.width - 1 - x } else { x }
    }

    /// Maps row `y` of the upright image to the row of the annotated image that it shows. If the
    /// frame is [transposed](Frame::is_transposed), the result is a column.
    pub fn unflip_y(self, y: u32) -> u32 {
        if self.orientation.flipped { self.upright.height - 1 - y } else { y }
    }

    /// Maps pixel (x, y) of the upright image to the pixel (column, row) of the annotated image
    /// that it shows.
    pub fn pixel(self, x: u32, y: u32) -> (u32, u32) {
        let (x, y) = (self.unmirror_x(x), self.unflip_y(y));
        if self.orientation.transposed { (y, x) } else { (x, y) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORED: Size = Size { width: 6, height: 4 };

    fn oriented(tag: u8) -> Oriented {
        Oriented::with_orientation(Orientation::new(tag).size(STORED), Orientation::new(tag))
    }

    #[test]
    fn the_declared_size_determines_the_frame() {
        let upright = Size::new(4, 6);
        for tag in 5..=8 {
            assert_eq!(oriented(tag).frame(Some(STORED)).unwrap().size(), STORED, "tag {tag}");
            assert!(oriented(tag).frame(Some(STORED)).unwrap().is_transposed());
            assert_eq!(oriented(tag).frame(Some(upright)).unwrap(), Oriented::from(upright).frame(None).unwrap());
        }
        assert_eq!(oriented(1).frame(Some(STORED)).unwrap(), oriented(1).frame(None).unwrap());
        let e = oriented(1).frame(Some(upright)).unwrap_err();
        assert_eq!(e.cause(), "annotations are for 4x6 pixels, but the image has 6x4");
        let e = oriented(6).annotated(Some(AnnotationFrame::Stored)).frame(Some(Size::new(3, 2))).unwrap_err();
        assert_eq!(e.cause(), "annotations are for 3x2 pixels, but the image has 4x6, or 6x4 before EXIF rotates it");
    }

    #[test]
    fn ambiguous_sizes_require_the_option() {
        for (tag, declared) in [(2, Some(STORED)), (3, Some(STORED)), (4, Some(STORED)), (3, None), (6, None)] {
            let e = oriented(tag).frame(declared).unwrap_err();
            assert!(e.cause().contains("Loader::annotations_follow(AnnotationFrame::Stored)"), "{e}");
            let frame = |frame| oriented(tag).annotated(Some(frame)).frame(declared).unwrap();
            assert_eq!(frame(AnnotationFrame::Stored).size(), STORED);
            assert_eq!(frame(AnnotationFrame::Upright), Oriented::from(oriented(tag).size()).frame(None).unwrap());
            assert_ne!(frame(AnnotationFrame::Stored), frame(AnnotationFrame::Upright));
        }
    }

    /// Compares annotations with `Orientation::apply`, which moves the pixels.
    #[test]
    fn annotations_move_with_their_pixels() {
        let stored: Vec<u8> = (0..24).flat_map(|i| [i; 3]).collect();
        for tag in 1..=8 {
            let frame = oriented(tag).annotated(Some(AnnotationFrame::Stored)).frame(None).unwrap();
            let (upright, mut turned) = (oriented(tag).size(), vec![0; 72]);
            Orientation::new(tag).apply(&stored, STORED, &mut turned);
            for (i, pixel) in (0..).zip(turned.as_chunks::<3>().0) {
                let (x, y) = (i % upright.width, i / upright.width);
                let (from_x, from_y) = frame.pixel(x, y);
                assert_eq!(from_y * 6 + from_x, u32::from(pixel[0]), "tag {tag}, pixel {i}");
                let [x, y, from_x, from_y] = [x, y, from_x, from_y].map(f64::from);
                assert_eq!(frame.point((from_x, from_y)), (x, y));
                let corners = frame.corners([from_x, from_y, from_x + 1.0, from_y + 1.0]);
                assert_eq!(corners, [x, y, x + 1.0, y + 1.0]);
            }
            assert_eq!(frame.is_mirrored(), [2, 4, 5, 7].contains(&tag));
            let (x, y) = frame.point((3.0, 1.0));
            let (right, below) = frame.point((4.0, 2.0));
            assert_eq!(frame.displacement((1.0, 1.0)), ((right - x) as f32, (below - y) as f32));
        }
    }
}
