use crate::decode::{Frame, Oriented, Rect, Size};
use crate::error::Result;
use crate::transform::geometry;
use crate::transform::interpolation::Resampling;
use crate::transform::ops::{Drawn, Erase, OnValues, Warp};
use crate::transform::{Border, ImageMut, Interpolation, Window};

/// The transformation of one sample. [`Augment::plan`](crate::transform::Augment::plan) decides it
/// before decoding.
///
/// In whole pixels: [`crop`](Plan::crop) of the image is resized to [`resized`](Plan::resized).
/// The part that starts at [`offset`](Plan::offset) and fits into [`target`](Plan::target) is
/// copied there. The rest of the output is filled. Then the output is mirrored. Geometric
/// operations, such as a rotation, move the pixels of the output last.
///
/// The methods map positions in the image to positions in the output, for your own
/// [`Kind`](crate::field::Kind).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// Size of the upright image.
    pub image_size: Size,
    /// EXIF orientation of the stored image, and the orientation of its annotations.
    pub oriented: Oriented,
    /// The part of the image that is decoded, which is all that the resize filter reads.
    pub region: Rect,
    /// The part of the image that becomes the target, in fractional pixels, inside the region.
    pub window: Window,
    /// The part of the image that is resized.
    pub crop: Rect,
    /// Size of `crop` after the resize.
    pub resized: Size,
    /// Column and row of the resized part at which the target begins.
    pub offset: (u32, u32),
    /// The part of the output that shows the image, before flips.
    pub target: Rect,
    /// Red, green and blue of the rest of the output.
    pub fill: [u8; 3],
    /// What the rest of the output shows.
    pub border: Border,
    /// Filter of the resize.
    pub interpolation: Interpolation,
    /// Whether the filter widens as the image shrinks.
    pub antialias: bool,
    /// Size of the output.
    pub output: Size,
    /// Whether left and right are mirrored.
    pub flip: bool,
    /// Whether top and bottom are mirrored.
    pub vertical_flip: bool,
    /// Whether boxes are dropped if their center lies outside the crop
    /// ([`Augment::iou_crop`](crate::transform::Augment::iou_crop)).
    pub centerd: bool,
    /// Whether the rest of the output is a border of the image
    /// ([`Augment::random_crop`](crate::transform::Augment::random_crop)).
    pub(crate) bordered: bool,
    /// Effects after the resize.
    pub(crate) drawn: Drawn,
}

/// A box in the output, returned by [`Plan::clip_box`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clipped {
    /// (x1, y1, x2, y2) in pixels of the output.
    pub corners: [f64; 4],
    /// Share of the box's area that remains, 0 to 1.
    pub visible: f64,
}

impl Clipped {
    /// The box around the moved corners, clipped to the output.
    fn warped(self, warp: &Warp, output: Size) -> Option<Self> {
        let [x1, y1, x2, y2] = self.corners;
        let corners = [(x1, y1), (x2, y1), (x2, y2), (x1, y2)].map(|corner| warp.forward(corner, output));
        let around = |of: [f64; 4], length: u32| {
            let (low, high) = of.into_iter().fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
            let clip = |v: f64| v.clamp(0.0, f64::from(length));
            (clip(low), clip(high), high - low)
        };
        let (left, right, width) = around(corners.map(|(x, _)| x), output.width);
        let (top, bottom, height) = around(corners.map(|(_, y)| y), output.height);
        let visible = self.visible * (right - left) * (bottom - top) / (width * height);
        (left < right && top < bottom).then_some(Clipped { corners: [left, top, right, bottom], visible })
    }
}

impl Plan {
    /// Plans to resize `crop` of an image of size `original` to `target`, a part of the output.
    /// Nothing is mirrored, and the rest is black.
    pub fn resized_crop(original: Size, crop: Rect, output: Size, target: Rect) -> Self {
        Plan {
            image_size: original,
            oriented: original.into(),
            region: crop,
            window: crop.into(),
            crop,
            resized: target.size(),
            offset: (0, 0),
            target,
            fill: [0; 3],
            border: Border::Constant,
            interpolation: Interpolation::Bilinear,
            antialias: true,
            output,
            flip: false,
            vertical_flip: false,
            centerd: false,
            bordered: false,
            drawn: Drawn::default(),
        }
    }

    /// Plans to resize an image of size `original` to `resized` by `by`, and to move `part` of the
    /// result to the upper left corner of the output.
    pub(super) fn part_of_resized(original: Size, resized: Size, part: Rect, output: Size, by: Resampling) -> Self {
        let window = geometry::window_of(original, resized, part);
        let whole = Self::resized_crop(original, Rect::full(original), output, Rect::full(part.size()));
        let region = geometry::support_of(original, window, part.size(), by);
        Plan { region, window, resized, offset: (part.x, part.y), ..whole }.by(by)
    }

    /// The same plan with another filter. Its region must be all that the filter reads.
    pub(super) fn by(self, Resampling { filter, antialias }: Resampling) -> Self {
        Plan { interpolation: filter, antialias, ..self }
    }

    /// The filter of the resize.
    pub(super) fn resampling(&self) -> Resampling {
        Resampling { filter: self.interpolation, antialias: self.antialias }
    }

    /// The frame of annotations that were made on an image of size `declared`, or `None` if they
    /// declare no size. A [`Kind`](crate::field::Kind) of your own maps its annotations with this
    /// frame before it calls the other methods.
    ///
    /// # Errors
    /// Those of [`Oriented::frame`].
    pub fn frame(&self, declared: Option<Size>) -> Result<Frame> {
        self.oriented.frame(declared)
    }

    /// Output pixels per image pixel, across and down.
    pub fn scale(&self) -> (f64, f64) {
        let ratio = |resized: u32, crop: u32| f64::from(resized) / f64::from(crop);
        (ratio(self.resized.width, self.crop.width), ratio(self.resized.height, self.crop.height))
    }

    /// Maps (`x`, `y`) of the image to the output, before flips. The result may lie outside.
    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let Plan { crop, resized, offset, target, .. } = self;
        // Divides last, so that an edge of the crop maps exactly to an edge of the target.
        let along = |v: f64, [start, from, to, offset, target]: [u32; 5]| {
            (v - f64::from(start)) * f64::from(to) / f64::from(from) - f64::from(offset) + f64::from(target)
        };
        (
            along(x, [crop.x, crop.width, resized.width, offset.0, target.x]),
            along(y, [crop.y, crop.height, resized.height, offset.1, target.y]),
        )
    }

    /// The spans that the resize filter reads, across and down, counted from the region's corner.
    /// `None` if the window is empty.
    pub(crate) fn filter(&self) -> Option<((f64, f64), (f64, f64))> {
        let Window { x, y, width, height } = self.window;
        let within = |start: f64, length: f64, origin: u32, limit: u32| {
            let start = (start - f64::from(origin)).max(0.0);
            (start, start + length.min(f64::from(limit) - start))
        };
        let across = within(x, width, self.region.x, self.region.width);
        let down = within(y, height, self.region.y, self.region.height);
        let finite = [x, y, width, height].iter().all(|v| v.is_finite());
        (finite && across.0 < across.1 && down.0 < down.1).then_some((across, down))
    }

    /// Runs the effects on pixels, such as color jitter, on the resized `image`, which has the
    /// batch's size.
    pub fn retouch(&self, image: &mut ImageMut<'_>) {
        self.drawn.run(image);
    }

    /// The rectangle that is filled after normalization, if any. If it is filled with noise, its
    /// value is the mean of the noise. Masks, boxes and points do not change, as in torchvision's
    /// `RandomErasing`.
    pub fn erased(&self) -> Option<Erase> {
        self.drawn.values.first().map(OnValues::erased)
    }

    /// The part of the output that the user's own steps change: the image without the fill around
    /// it. It is the whole output if that has a border of the image, if geometric operations have
    /// moved the image, and if the image `joins` several images.
    pub(crate) fn changeable(&self, joins: bool) -> Rect {
        if joins || self.bordered || self.is_warped() { Rect::full(self.output) } else { self.shown() }
    }

    /// The target's place in the output, after flips.
    pub fn shown(&self) -> Rect {
        let Rect { mut x, mut y, width, height } = self.target;
        if self.flip {
            x = self.output.width - x - width;
        }
        if self.vertical_flip {
            y = self.output.height - y - height;
        }
        Rect::new(x, y, width, height)
    }

    /// Maps the point (`x`, `y`) of the image to the output. The result lies outside the output
    /// if the crop excludes the point.
    ///
    /// Coordinates are those of pixels, as in COCO and in torchvision's `KeyPoints`: (0, 0) is the
    /// first pixel, and a flip maps x to width - 1 - x. Geometric operations move a point with its
    /// pixel. torchvision's `affine` takes (0, 0) as the corner of the first pixel instead, so that
    /// a point that it rotates by 180 degrees is off by one pixel.
    pub fn point(&self, x: f64, y: f64) -> (f64, f64) {
        let (mut x, mut y) = self.place(x, y);
        if self.flip {
            x = f64::from(self.output.width) - 1.0 - x;
        }
        if self.vertical_flip {
            y = f64::from(self.output.height) - 1.0 - y;
        }
        self.drawn.warps().fold((x, y), |(x, y), warp| {
            let (x, y) = warp.forward((x + 0.5, y + 0.5), self.output);
            (x - 0.5, y - 0.5)
        })
    }

    /// Whether a [`point`](Plan::point) of the output lies where the image is shown. As with
    /// torchvision's `SanitizeKeyPoints`, the left and upper edges are included, and the right and
    /// lower edges are not.
    pub fn shows(&self, x: f64, y: f64) -> bool {
        let inside = |(x, y): (f64, f64), Rect { x: left, y: top, width, height }: Rect| {
            let within = |v: f64, start: u32, length: u32| (0.0..f64::from(length)).contains(&(v - f64::from(start)));
            within(x, left, width) && within(y, top, height)
        };
        // A point must be inside after each of them.
        let mut point = (x, y);
        for warp in self.drawn.warps().rev() {
            if !inside(point, Rect::full(self.output)) {
                return false;
            }
            let (x, y) = warp.backward((point.0 + 0.5, point.1 + 0.5), self.output);
            point = (x - 0.5, y - 0.5);
        }
        inside(point, self.shown())
    }

    /// Whether geometric operations move the pixels of the output. [`column`](Plan::column) and
    /// [`row`](Plan::row) then describe the output before they do.
    pub fn is_warped(&self) -> bool {
        self.drawn.warps().next().is_some()
    }

    /// Pixels of a copy of the output, which geometric operations on annotations need; 0 without
    /// them.
    pub(crate) fn warped_area(&self) -> u64 {
        if self.is_warped() { self.output.area() } else { 0 }
    }

    /// The pixel of the image that pixel (`x`, `y`) of the output shows by nearest-neighbor
    /// sampling, after all geometric operations. `None` where the output is filled.
    pub fn pixel(&self, x: u32, y: u32) -> Option<(u32, u32)> {
        let mut warps = self.drawn.warps().rev();
        let (x, y) = warps.try_fold((x, y), |(x, y), warp| warp.nearest_source(x, y, self.output))?;
        Some((self.column(x)?, self.row(y)?))
    }

    /// Moves the values of a plane of the output with the geometric operations, each from the
    /// nearest pixel, which has `channels` values. Those from outside become the values of `fill`,
    /// which repeats. `copy` is scratch.
    pub(crate) fn warp_nearest<T: Copy>(&self, plane: &mut [T], channels: usize, fill: &[T], copy: &mut Vec<T>) {
        self.drawn.warps().for_each(|warp| warp.move_nearest(plane, (self.output, channels), fill, copy));
    }

    /// Moves the values of a map of the output with `channels` values for each pixel, as the pixels
    /// of the image are moved.
    pub(crate) fn warp_floats(&self, map: &mut [f32], channels: usize, fill: f32, copy: &mut Vec<f32>) {
        for warp in self.drawn.warps() {
            if warp.is_bilinear() {
                warp.move_floats(map, (self.output, channels), fill, copy);
            } else {
                warp.move_nearest(map, (self.output, channels), &[fill], copy);
            }
        }
    }

    /// Turns displacements of pixels of the output, (right, down), with the geometric operations.
    /// They are in their places already. Where the nearest pixel is filled, there is no
    /// displacement to turn.
    pub(crate) fn warp_flow(&self, flow: &mut [f32]) {
        if !self.is_warped() {
            return;
        }
        for (flow, at) in flow.as_chunks_mut::<2>().0.iter_mut().zip(0..) {
            let (x, y) = (at % self.output.width, at / self.output.width);
            if self.pixel(x, y).is_none() {
                continue;
            }
            let mut end = (f64::from(x) + 0.5, f64::from(y) + 0.5);
            let from = self.drawn.warps().rev().fold(end, |end, warp| warp.backward(end, self.output));
            let start = end;
            end = (from.0 + f64::from(flow[0]), from.1 + f64::from(flow[1]));
            end = self.drawn.warps().fold(end, |end, warp| warp.forward(end, self.output));
            *flow = [(end.0 - start.0) as f32, (end.1 - start.1) as f32];
        }
    }

    /// Maps the box (x1, y1, x2, y2) of the image to the output, clipped to the shown part.
    /// `None` if the width or height that remains is 0.
    ///
    /// Coordinates are those of edges: a flip maps x to the width minus x, and 0 to the width spans
    /// all pixels. Each geometric operation gives the box around the moved corners, clipped to the
    /// output, as torchvision's does.
    pub fn clip_box(&self, [x1, y1, x2, y2]: [f64; 4]) -> Option<Clipped> {
        if self.centerd && !geometry::holds_center(self.crop, [x1, y1, x2, y2]) {
            return None;
        }
        let ((left, top), (right, bottom)) = (self.place(x1, y1), self.place(x2, y2));
        let clip = |from: f64, to: f64, start: u32, length: u32, mirrored: Option<u32>| {
            let (start, end) = (f64::from(start), f64::from(start) + f64::from(length));
            let (from, to) = (from.clamp(start, end), to.clamp(start, end));
            match mirrored {
                Some(all) => (f64::from(all) - to, f64::from(all) - from),
                None => (from, to),
            }
        };
        let Rect { x, y, width, height } = self.target;
        let (a, c) = clip(left, right, x, width, self.flip.then_some(self.output.width));
        let (b, d) = clip(top, bottom, y, height, self.vertical_flip.then_some(self.output.height));
        let visible = (c - a) * (d - b) / ((right - left) * (bottom - top));
        let clipped = (a < c && b < d).then_some(Clipped { corners: [a, b, c, d], visible })?;
        self.warp_box(clipped)
    }

    /// Moves a box of the output with the geometric operations.
    pub(crate) fn warp_box(&self, clipped: Clipped) -> Option<Clipped> {
        self.drawn.warps().try_fold(clipped, |of, warp| of.warped(warp, self.output))
    }

    /// The column of the image that provides column `x` of the output by nearest-neighbor
    /// resizing. `None` where the output is filled.
    ///
    /// Geometric operations are not part of it; [`pixel`](Plan::pixel) includes them.
    ///
    /// The rule is that of torchvision's masks (`InterpolationMode.NEAREST`): column `i` of a
    /// resize is column `floor(i * (from / to))` in 32-bit floats.
    pub fn column(&self, x: u32) -> Option<u32> {
        let steps = (self.crop.x, self.crop.width, self.resized.width, self.offset.0);
        nearest(x, self.output.width, self.flip, (self.target.x, self.target.width), steps)
    }

    /// The row of the image for row `y` of the output, like [`column`](Plan::column).
    pub fn row(&self, y: u32) -> Option<u32> {
        let steps = (self.crop.y, self.crop.height, self.resized.height, self.offset.1);
        nearest(y, self.output.height, self.vertical_flip, (self.target.y, self.target.height), steps)
    }
}

/// Maps position `at` of the output back to the image, along one axis. `steps` are start and
/// length of the crop, the length after the resize, and the offset in the resized part.
fn nearest(
    at: u32,
    output: u32,
    mirrored: bool,
    (target, length): (u32, u32),
    (start, from, to, offset): (u32, u32, u32, u32),
) -> Option<u32> {
    let at = if mirrored { output - 1 - at } else { at };
    let at = at.checked_sub(target).filter(|&at| at < length)? + offset;
    let scaled = (at as f32 * (from as f32 / to as f32)).floor();
    Some(start + (scaled as u32).min(from - 1))
}
