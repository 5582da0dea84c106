//! Draws the annotations of images: masks, boxes with the names of their classes, and points.

use font8x8::{BASIC_FONTS, LATIN_FONTS, UnicodeFonts as _};
use warpfeed::field::{Annotations, Mask};
use warpfeed::source::Source;
use warpfeed::{Dtype, HostBatch, Loader};

use crate::canvas::{Canvas, Color};
use crate::data::AnnotationFrameArgs;

/// Side of a letter in font pixels. The last column is empty in almost all letters, and the last
/// row in letters without a descender.
pub(super) const LETTER_SIDE: u32 = 8;
const MAX_BOXES: usize = 64;
/// Number of samples that are read to find out which annotations a dataset has.
const MAX_EXAMINED_SAMPLES: usize = 64;
/// Mask value of pixels outside the image, and of pixels without a class in Pascal VOC.
const NO_CLASS: i64 = 255;
const POINT_RADIUS: i64 = 1;

pub(super) struct Overlay {
    annotations: Annotations,
    draws_box_masks: bool,
    draws_mask: bool,
}

impl Overlay {
    /// Examines the first samples, except those that cannot be read. Masks are drawn if each
    /// examined sample has a mask. Box masks are drawn if each examined sample with boxes has box
    /// masks.
    pub(super) fn of(source: &dyn Source, annotation_frame: AnnotationFrameArgs) -> Self {
        let mut overlay = Overlay { annotations: Annotations::default(), draws_box_masks: true, draws_mask: true };
        let mut scratch = Vec::new();
        let mut examined_count = 0;
        for index in 0..source.len().min(MAX_EXAMINED_SAMPLES) {
            let Ok(sample) = source.read(index, &mut scratch) else { continue };
            let Some(info) = sample.image().and_then(|(_, bytes)| warpfeed::decode::Info::read(bytes).ok()) else {
                continue;
            };
            let Ok(annotations) = Annotations::read(&sample, info.oriented.annotated(annotation_frame.choice())) else {
                continue;
            };
            examined_count += 1;
            overlay.draws_mask &= annotations.mask_pixel_counts.is_some();
            overlay.draws_box_masks &= annotations.has_masks || annotations.boxes.is_empty();
            let total = &mut overlay.annotations;
            total.has_boxes |= annotations.has_boxes;
            total.has_masks |= annotations.has_masks;
            total.points_per_box = total.points_per_box.max(annotations.points_per_box);
            if total.classes.is_empty() {
                total.classes = annotations.classes;
            }
        }
        overlay.draws_mask &= examined_count > 0;
        overlay
    }

    pub(super) fn fields(&self, mut loader: Loader) -> Loader {
        if self.draws_mask {
            loader = loader.field("mask", Mask::new(Dtype::I64).fill(NO_CLASS));
        }
        if self.annotations.has_boxes {
            loader = loader.field("boxes", self.annotations.boxes_field(MAX_BOXES, self.draws_box_masks));
        }
        loader
    }

    /// Draws the annotations of sample `row` of the batch onto its image, which has `side` by
    /// `side` pixels and its upper left corner at `corner` (x, y).
    pub(super) fn draw(
        &self,
        sheet: &mut Canvas,
        batch: &HostBatch,
        row: usize,
        corner: (u32, u32),
        side: u32,
        classes: &[String],
    ) {
        let mut tile = Tile { sheet, corner, side: i64::from(side) };
        let area = (side * side) as usize;
        if let Some(mask) = batch.field("mask").and_then(|mask| mask.as_i64()) {
            for (pixel, &class) in mask[row * area..][..area].iter().enumerate() {
                if class != 0 && class != NO_CLASS {
                    tile.tint(pixel, class_color(class - 1));
                }
            }
        }
        let (Some(boxes), Some(counts)) =
            (batch.field("boxes").and_then(|boxes| boxes.as_f32()), batch.counts("boxes"))
        else {
            return;
        };
        let count = counts[row] as usize;
        let class = |number: usize| {
            let class_numbers = batch.field("boxes.class")?.as_i64()?;
            Some(class_numbers[row * MAX_BOXES + number])
        };
        let masks = batch.field("boxes.masks").map(|masks| masks.bytes());
        for number in 0..count {
            let color = class_color(class(number).unwrap_or(number as i64));
            if let Some(masks) = masks {
                let mask = &masks[(row * MAX_BOXES + number) * area..][..area];
                mask.iter()
                    .enumerate()
                    .filter(|(_, is_inked)| **is_inked == 1)
                    .for_each(|(pixel, _)| tile.tint(pixel, color));
            }
        }
        for number in 0..count {
            let corners = &boxes[(row * MAX_BOXES + number) * 4..][..4];
            let class = class(number);
            let name = class.map(|class| match usize::try_from(class).ok().and_then(|class| classes.get(class)) {
                Some(name) => name.clone(),
                None => class.to_string(),
            });
            tile.outline(corners, class_color(class.unwrap_or(number as i64)), name.as_deref().unwrap_or(""));
        }
        if let Some(points) = batch.field("boxes.points").and_then(|points| points.as_f32()) {
            let points_per_sample = MAX_BOXES * self.annotations.points_per_box * 3;
            for point in
                points[row * points_per_sample..][..count * self.annotations.points_per_box * 3].as_chunks::<3>().0
            {
                tile.draw_point(*point);
            }
        }
    }
}

struct Tile<'a> {
    sheet: &'a mut Canvas,
    corner: (u32, u32),
    side: i64,
}

impl Tile<'_> {
    fn pixel(&mut self, x: i64, y: i64) -> Option<&mut Color> {
        let is_inside = (0..self.side).contains(&x) && (0..self.side).contains(&y);
        is_inside.then(|| self.sheet.pixel(self.corner.0 + x as u32, self.corner.1 + y as u32))
    }

    fn tint(&mut self, pixel: usize, color: Color) {
        let (x, y) = (pixel as i64 % self.side, pixel as i64 / self.side);
        if let Some(pixel) = self.pixel(x, y) {
            *pixel = std::array::from_fn(|c| pixel[c].midpoint(color[c]));
        }
    }

    /// Fills a rectangle. `columns` and `rows` are half-open ranges of pixels in the tile. Ignores
    /// pixels outside the tile.
    fn fill(&mut self, columns: (i64, i64), rows: (i64, i64), color: Color) {
        for (x, y) in (columns.0..columns.1).flat_map(|x| (rows.0..rows.1).map(move |y| (x, y))) {
            if let Some(pixel) = self.pixel(x, y) {
                *pixel = color;
            }
        }
    }

    /// Draws a box with its name. `corners` is (x1, y1, x2, y2) in pixels of the tile.
    fn outline(&mut self, corners: &[f32], color: Color, name: &str) {
        let [x1, y1] = [corners[0], corners[1]].map(|edge| edge.round() as i64);
        let [x2, y2] = [corners[2], corners[3]].map(|edge| edge.round() as i64 - 1);
        for (columns, rows) in [
            ((x1, x2 + 1), (y1, y1 + 1)),
            ((x1, x2 + 1), (y2, y2 + 1)),
            ((x1, x1 + 1), (y1, y2 + 1)),
            ((x2, x2 + 1), (y1, y2 + 1)),
        ] {
            self.fill(columns, rows, color);
        }
        let name = truncate(name, (self.side - 1) as u32 / LETTER_SIDE);
        let (text_width, text_height) = (name.chars().count() as i64 * i64::from(LETTER_SIDE), i64::from(LETTER_SIDE));
        if text_width > 0 && text_height < self.side {
            let [x, y] =
                [(x1, text_width), (y1, text_height)].map(|(start, length)| start.min(self.side - length - 1).max(0));
            self.fill((x, x + text_width + 1), (y, y + text_height + 1), color);
            let corner = (self.corner.0 + x as u32 + 1, self.corner.1 + y as u32 + 1);
            draw_text(self.sheet, &name, corner, text_width as u32, 1, contrasting_color(color));
        }
    }

    /// Draws a point, (x, y, visibility) with x and y in pixels of the tile. A visible point
    /// (visibility 2) is white with a dark rim, and a hidden point (1) is dark. A point without a
    /// label (0) is not drawn.
    fn draw_point(&mut self, [x, y, visibility]: [f32; 3]) {
        if visibility > 0.0 {
            let (x, y) = (x.floor() as i64, y.floor() as i64);
            let rim = POINT_RADIUS + 1;
            self.fill((x - rim, x + rim + 1), (y - rim, y + rim + 1), [20; 3]);
            if visibility > 1.0 {
                self.fill((x - POINT_RADIUS, x + POINT_RADIUS + 1), (y - POINT_RADIUS, y + POINT_RADIUS + 1), [255; 3]);
            }
        }
    }
}

/// Returns the color of a class. The colors repeat after ten classes, and consecutive classes have
/// very different colors.
fn class_color(class: i64) -> Color {
    const COLORS: [[u8; 3]; 10] = [
        [230, 60, 50],
        [50, 140, 240],
        [60, 190, 80],
        [240, 190, 30],
        [170, 80, 220],
        [20, 190, 190],
        [245, 130, 40],
        [235, 90, 170],
        [150, 110, 60],
        [150, 200, 30],
    ];
    COLORS[class.rem_euclid(10) as usize]
}

fn contrasting_color([r, g, b]: Color) -> Color {
    let luma = (299 * u32::from(r) + 587 * u32::from(g) + 114 * u32::from(b)) / 1000;
    if luma > 140 { [20; 3] } else { [255; 3] }
}

/// Returns `text`, shortened to at most `letters` characters. A shortened text ends in `..`, as far
/// as the dots fit.
pub(super) fn truncate(text: &str, letters: u32) -> String {
    let letters = letters as usize;
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    let letters_shown = text.chars().take(letters.saturating_sub(2));
    letters_shown.chain("..".chars()).take(letters).collect()
}

/// Draws `text` with its upper left corner at `corner`, scaled so that each font pixel covers
/// `dot_side` x `dot_side` pixels. Text wider than `width` is truncated.
pub(super) fn draw_text(sheet: &mut Canvas, text: &str, corner: (u32, u32), width: u32, dot_side: u32, ink: Color) {
    for (letter, left) in text.chars().zip((0..width).step_by((LETTER_SIDE * dot_side) as usize)) {
        let rows = BASIC_FONTS.get(letter).or_else(|| LATIN_FONTS.get(letter)).or_else(|| BASIC_FONTS.get('?'));
        let rows = rows.unwrap_or_default();
        for (x, y) in (0..LETTER_SIDE * dot_side).flat_map(|x| (0..LETTER_SIDE * dot_side).map(move |y| (x, y))) {
            let is_inked = rows[(y / dot_side) as usize] >> (x / dot_side) & 1 == 1;
            if is_inked && left + x < width {
                *sheet.pixel(corner.0 + left + x, corner.1 + y) = ink;
            }
        }
    }
}
