use crate::decode::{Frame, Oriented, Rect, Size};
use crate::error::Result;
use crate::transform::geometry;
use crate::transform::interpolation::Resampling;
use crate::transform::ops::{AnyValueEffect, Erase, SampleEffects, Warp};
use crate::transform::{Border, ImageMut, Interpolation, Window};

/// The transformation of the image of one sample, as decided by
/// [`Augment::plan`](crate::transform::Augment::plan) before the image is decoded.
///
/// A plan moves the pixels in five steps:
/// 1. The area [`crop`](Plan::crop) of the image is resized to [`resized`](Plan::resized).
/// 2. A section of the resized area, which begins at [`offset`](Plan::offset), is copied to the
///    area [`target`](Plan::target) of the output.
/// 3. The output outside the target is filled with the fill color or with a border.
/// 4. The output is mirrored.
/// 5. Geometric operations such as a rotation move the pixels of the output.
///
/// A custom [`FieldType`](crate::field::FieldType) can use a plan to map positions in the source
/// image to the output.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// Size of the upright source image.
    pub image_size: Size,
    /// EXIF orientation of the stored image and of its annotations.
    pub oriented: Oriented,
    /// Area of the image that is decoded. It contains all pixels that the resize filter reads.
    pub region: Rect,
    /// Area of the image that the target shows, in fractional pixels. The area is inside `region`.
    pub window: Window,
    /// Area of the image that is resized.
    pub crop: Rect,
    /// Size to which `crop` is resized.
    pub resized: Size,
    /// Upper left corner (column, row) of the section of the resized area that the target shows.
    pub offset: (u32, u32),
    /// Area of the output that shows the image, before flips and geometric operations.
    pub target: Rect,
    /// Fill color (red, green, blue) of the output outside `target`.
    pub fill: [u8; 3],
    /// Content of the output outside `target`.
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
    /// Whether a box is dropped if its center is outside the crop
    /// ([`Augment::iou_crop`](crate::transform::Augment::iou_crop)).
    pub requires_center: bool,
    /// Whether the area outside `target` is a border of the image
    /// ([`Augment::random_crop`](crate::transform::Augment::random_crop)).
    pub(crate) is_bordered: bool,
    pub(crate) effects: SampleEffects,
}

/// A box in the output, returned by [`Plan::clip_box`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClippedBox {
    /// (x1, y1, x2, y2) in pixels of the output.
    pub corners: [f64; 4],
    /// Fraction of the box's area that remains, from 0 to 1. A geometric operation multiplies this
    /// fraction by the fraction of the moved box that is inside the output.
    pub visible_fraction: f64,
}

impl ClippedBox {
    /// Returns the smallest box around the four corners after `warp`, clipped to the output, or
    /// `None` if that box is empty.
    fn warped(self, warp: &Warp, output: Size) -> Option<Self> {
        let [x1, y1, x2, y2] = self.corners;
        let corners = [(x1, y1), (x2, y1), (x2, y2), (x1, y2)].map(|corner| warp.source_to_output(corner, output));
        let bounds = |coordinates: [f64; 4], length: u32| {
            let (low, high) =
                coordinates.into_iter().fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
            let clip = |v: f64| v.clamp(0.0, f64::from(length));
            (clip(low), clip(high), high - low)
        };
        let (left, right, width) = bounds(corners.map(|(x, _)| x), output.width);
        let (top, bottom, height) = bounds(corners.map(|(_, y)| y), output.height);
        let visible_fraction = self.visible_fraction * (right - left) * (bottom - top) / (width * height);
        (left < right && top < bottom).then_some(ClippedBox { corners: [left, top, right, bottom], visible_fraction })
    }
}

impl Plan {
    /// Creates a plan that resizes `crop`, an area of an image of size `original`, to the area
    /// `target` of the output, on a black background.
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
            requires_center: false,
            is_bordered: false,
            effects: SampleEffects::default(),
        }
    }

    /// Resizes an image to `resized`, and copies the area `section` of the result to the upper left
    /// corner of the output.
    pub(super) fn section_of_resized(
        original: Size,
        resized: Size,
        section: Rect,
        output: Size,
        resampling: Resampling,
    ) -> Self {
        let window = geometry::source_window(original, resized, section);
        let full_plan = Self::resized_crop(original, Rect::full(original), output, Rect::full(section.size()));
        let region = geometry::support_region(original, window, section.size(), resampling);
        Plan { region, window, resized, offset: (section.x, section.y), ..full_plan }.with_resampling(resampling)
    }

    /// Sets the filter of the resize. The region must already contain all pixels that the new
    /// filter reads.
    pub(super) fn with_resampling(self, Resampling { filter, antialias }: Resampling) -> Self {
        Plan { interpolation: filter, antialias, ..self }
    }

    pub(super) fn resampling(&self) -> Resampling {
        Resampling { filter: self.interpolation, antialias: self.antialias }
    }

    /// Returns the coordinate frame of annotations. `declared` is the image size in the
    /// annotations, if any. A custom [`FieldType`](crate::field::FieldType) maps annotations to the
    /// upright image with this frame before it calls the other methods.
    ///
    /// # Errors
    /// Same as [`Oriented::frame`].
    pub fn frame(&self, declared: Option<Size>) -> Result<Frame> {
        self.oriented.frame(declared)
    }

    /// Returns the number of output pixels per source pixel, horizontally and vertically, before
    /// geometric operations.
    pub fn scale(&self) -> (f64, f64) {
        let ratio = |resized: u32, crop: u32| f64::from(resized) / f64::from(crop);
        (ratio(self.resized.width, self.crop.width), ratio(self.resized.height, self.crop.height))
    }

    /// Maps the position (`x`, `y`) of the image to the output before flips. The result may be
    /// outside the output.
    fn to_unflipped_output(&self, x: f64, y: f64) -> (f64, f64) {
        let Plan { crop, resized, offset, target, .. } = self;
        // Dividing last maps the edges of the crop exactly to the edges of the target.
        let map_axis = |v: f64, [start, from, to, offset, target]: [u32; 5]| {
            (v - f64::from(start)) * f64::from(to) / f64::from(from) - f64::from(offset) + f64::from(target)
        };
        (
            map_axis(x, [crop.x, crop.width, resized.width, offset.0, target.x]),
            map_axis(y, [crop.y, crop.height, resized.height, offset.1, target.y]),
        )
    }

    /// Returns the columns and the rows that the resize maps to the target, each as (start, end),
    /// relative to the upper left corner of the region. Returns `None` if the window is empty or
    /// not finite.
    pub(crate) fn source_spans(&self) -> Option<((f64, f64), (f64, f64))> {
        let Window { x, y, width, height } = self.window;
        let clip_span = |start: f64, length: f64, origin: u32, limit: u32| {
            let start = (start - f64::from(origin)).max(0.0);
            (start, start + length.min(f64::from(limit) - start))
        };
        let columns = clip_span(x, width, self.region.x, self.region.width);
        let rows = clip_span(y, height, self.region.y, self.region.height);
        let is_finite = [x, y, width, height].iter().all(|v| v.is_finite());
        (is_finite && columns.0 < columns.1 && rows.0 < rows.1).then_some((columns, rows))
    }

    /// Runs the effects on pixels, such as color jitter. `image` is the resized image, and must
    /// have the size of the output.
    pub fn retouch(&self, image: &mut ImageMut<'_>) {
        self.effects.run(image);
    }

    /// Returns the rectangle that is erased after normalization, if any. For noise, `value` is the
    /// mean of the noise. Erasing does not change masks, boxes and points, as in torchvision's
    /// `RandomErasing`.
    pub fn erased(&self) -> Option<Erase> {
        self.effects.values.first().map(AnyValueEffect::erased)
    }

    /// Returns the area of the output that custom transforms may change. Usually, this is the image
    /// without the fill around it. The area is the whole output if the fill is a border of the
    /// image, if geometric operations have moved the image, or if the output combines several
    /// images (`combines_images`).
    pub(crate) fn changeable_area(&self, combines_images: bool) -> Rect {
        if combines_images || self.is_bordered || self.is_warped() {
            Rect::full(self.output)
        } else {
            self.image_area()
        }
    }

    /// Returns the area of the output that shows the image, after flips and before geometric
    /// operations.
    pub fn image_area(&self) -> Rect {
        let Rect { mut x, mut y, width, height } = self.target;
        if self.flip {
            x = self.output.width - x - width;
        }
        if self.vertical_flip {
            y = self.output.height - y - height;
        }
        Rect::new(x, y, width, height)
    }

    /// Maps the point (`x`, `y`) of the image to the output. A point outside the crop is mapped to
    /// a position outside the area that [shows](Plan::shows) the image.
    ///
    /// Coordinates are pixel centers, as in COCO and in torchvision's `KeyPoints`: (0, 0) is the
    /// center of the first pixel, and a flip maps `x` to `width - 1 - x`. Geometric operations move
    /// a point together with its pixel. In torchvision's `affine`, however, (0, 0) is the corner of
    /// the first pixel, so that a rotation by 180 degrees moves a point one pixel too far.
    pub fn point(&self, x: f64, y: f64) -> (f64, f64) {
        let (mut x, mut y) = self.to_unflipped_output(x, y);
        if self.flip {
            x = f64::from(self.output.width) - 1.0 - x;
        }
        if self.vertical_flip {
            y = f64::from(self.output.height) - 1.0 - y;
        }
        self.effects.warps().fold((x, y), |(x, y), warp| {
            let (x, y) = warp.source_to_output((x + 0.5, y + 0.5), self.output);
            (x - 0.5, y - 0.5)
        })
    }

    /// Returns whether the point (`x`, `y`) of the output, as returned by [`point`](Plan::point),
    /// is in the area that shows the image. As in torchvision's `SanitizeKeyPoints`, this includes
    /// the left and upper edges, but not the right and lower ones.
    pub fn shows(&self, x: f64, y: f64) -> bool {
        let is_inside = |(x, y): (f64, f64), Rect { x: left, y: top, width, height }: Rect| {
            let contains = |v: f64, start: u32, length: u32| (0.0..f64::from(length)).contains(&(v - f64::from(start)));
            contains(x, left, width) && contains(y, top, height)
        };
        // The point must be inside the output before and after each operation.
        let mut point = (x, y);
        for warp in self.effects.warps().rev() {
            if !is_inside(point, Rect::full(self.output)) {
                return false;
            }
            let (x, y) = warp.output_to_source((point.0 + 0.5, point.1 + 0.5), self.output);
            point = (x - 0.5, y - 0.5);
        }
        is_inside(point, self.image_area())
    }

    /// Returns whether geometric operations move the pixels of the output. If so,
    /// [`column`](Plan::column) and [`row`](Plan::row) refer to the output before these operations.
    pub fn is_warped(&self) -> bool {
        self.effects.warps().next().is_some()
    }

    /// Returns the number of pixels that a geometric operation on annotations copies.
    pub(crate) fn warped_area(&self) -> u64 {
        if self.is_warped() { self.output.area() } else { 0 }
    }

    /// Returns the column and row of the source pixel that the output shows at (`x`, `y`), after
    /// all geometric operations, using nearest-neighbor sampling. Returns `None` if the output
    /// shows the fill color or a border there.
    pub fn pixel(&self, x: u32, y: u32) -> Option<(u32, u32)> {
        let mut warps = self.effects.warps().rev();
        let (x, y) = warps.try_fold((x, y), |(x, y), warp| warp.nearest_source(x, y, self.output))?;
        Some((self.column(x)?, self.row(y)?))
    }

    /// Applies the geometric operations to a plane of the output with `channels` values per pixel,
    /// using nearest-neighbor sampling. An output pixel whose source is outside the plane gets the
    /// values of `fill`, which are repeated if there are more channels. `copy` is scratch memory.
    pub(crate) fn warp_nearest<T: Copy>(&self, plane: &mut [T], channels: usize, fill: &[T], copy: &mut Vec<T>) {
        self.effects.warps().for_each(|warp| warp.move_nearest(plane, (self.output, channels), fill, copy));
    }

    /// Applies the geometric operations to a map with `channels` values per pixel, with the same
    /// interpolation as for the image. `fill` is the value outside the map, and `copy` is scratch
    /// memory.
    pub(crate) fn warp_floats(&self, map: &mut [f32], channels: usize, fill: f32, copy: &mut Vec<f32>) {
        for warp in self.effects.warps() {
            if warp.is_bilinear() {
                warp.move_bilinear(map, (self.output, channels), fill, copy);
            } else {
                warp.move_nearest(map, (self.output, channels), &[fill], copy);
            }
        }
    }

    /// Applies the geometric operations to an optical flow: the displacement (right, down) of each
    /// pixel of the output. [`warp_floats`](Plan::warp_floats) must already have moved the
    /// displacements to their new pixels. Displacements of filled pixels do not change.
    pub(crate) fn warp_flow(&self, flow: &mut [f32]) {
        if !self.is_warped() {
            return;
        }
        for (flow, pixel) in flow.as_chunks_mut::<2>().0.iter_mut().zip(0..) {
            let (x, y) = (pixel % self.output.width, pixel / self.output.width);
            if self.pixel(x, y).is_none() {
                continue;
            }
            let mut end = (f64::from(x) + 0.5, f64::from(y) + 0.5);
            let source = self.effects.warps().rev().fold(end, |end, warp| warp.output_to_source(end, self.output));
            let start = end;
            end = (source.0 + f64::from(flow[0]), source.1 + f64::from(flow[1]));
            end = self.effects.warps().fold(end, |end, warp| warp.source_to_output(end, self.output));
            *flow = [(end.0 - start.0) as f32, (end.1 - start.1) as f32];
        }
    }

    /// Maps the box (x1, y1, x2, y2) of the image to the output, and clips it to the area that
    /// shows the image. Returns `None` if the clipped box is empty, if it is empty after a
    /// geometric operation, or if [`requires_center`](Plan::requires_center) drops the box.
    ///
    /// Coordinates are pixel edges: a box from 0 to `width` contains all columns, and a flip maps
    /// `x` to `width - x`. Each geometric operation replaces the box with the smallest box around
    /// its four moved corners, clipped to the output, as in torchvision.
    pub fn clip_box(&self, [x1, y1, x2, y2]: [f64; 4]) -> Option<ClippedBox> {
        if self.requires_center && !geometry::contains_center(self.crop, [x1, y1, x2, y2]) {
            return None;
        }
        let ((left, top), (right, bottom)) = (self.to_unflipped_output(x1, y1), self.to_unflipped_output(x2, y2));
        let clip = |from: f64, to: f64, start: u32, length: u32, mirrored_width: Option<u32>| {
            let (start, end) = (f64::from(start), f64::from(start) + f64::from(length));
            let (from, to) = (from.clamp(start, end), to.clamp(start, end));
            match mirrored_width {
                Some(width) => (f64::from(width) - to, f64::from(width) - from),
                None => (from, to),
            }
        };
        let Rect { x, y, width, height } = self.target;
        let (a, c) = clip(left, right, x, width, self.flip.then_some(self.output.width));
        let (b, d) = clip(top, bottom, y, height, self.vertical_flip.then_some(self.output.height));
        let visible_fraction = (c - a) * (d - b) / ((right - left) * (bottom - top));
        let clipped = (a < c && b < d).then_some(ClippedBox { corners: [a, b, c, d], visible_fraction })?;
        self.warp_box(clipped)
    }

    /// Applies the geometric operations to a box. Returns `None` if the box leaves the output.
    pub(crate) fn warp_box(&self, clipped: ClippedBox) -> Option<ClippedBox> {
        self.effects.warps().try_fold(clipped, |clipped, warp| clipped.warped(warp, self.output))
    }

    /// Returns the column of the image that column `x` of the output shows, using nearest-neighbor
    /// sampling. Returns `None` if the column is outside the area that shows the image. Unlike
    /// [`pixel`](Plan::pixel), this method ignores geometric operations.
    ///
    /// The rounding equals torchvision's for masks (`InterpolationMode.NEAREST`): column `i` of the
    /// resized image shows column `floor(i * (from / to))` of the source, where `from` and `to` are
    /// the widths before and after the resize. The expression is computed with 32-bit floats.
    pub fn column(&self, x: u32) -> Option<u32> {
        let steps = (self.crop.x, self.crop.width, self.resized.width, self.offset.0);
        nearest_source(x, self.output.width, self.flip, (self.target.x, self.target.width), steps)
    }

    /// Returns the row of the image that row `y` of the output shows, like
    /// [`column`](Plan::column).
    pub fn row(&self, y: u32) -> Option<u32> {
        let steps = (self.crop.y, self.crop.height, self.resized.height, self.offset.1);
        nearest_source(y, self.output.height, self.vertical_flip, (self.target.y, self.target.height), steps)
    }
}

/// Maps `position` of the output back to the image, along one axis. `output` is the length of the
/// output. The target begins at `target` and has the length `length`. The crop begins at `start`
/// and has the length `from`. `to` is the length of the resized crop, and `offset` is the start of
/// the target's section in the resized crop. Returns `None` outside the target.
fn nearest_source(
    position: u32,
    output: u32,
    is_mirrored: bool,
    (target, length): (u32, u32),
    (start, from, to, offset): (u32, u32, u32, u32),
) -> Option<u32> {
    let position = if is_mirrored { output - 1 - position } else { position };
    let position = position.checked_sub(target).filter(|&position| position < length)? + offset;
    let source_position = (position as f32 * (from as f32 / to as f32)).floor();
    Some(start + (source_position as u32).min(from - 1))
}
