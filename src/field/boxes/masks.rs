//! Draws the masks of [`Boxes`], which also define the pixels that copy-paste pastes.

use super::{Boxes, Placement, SCRATCH, Scratch, VisibleBox, join_name};
use crate::error::{Result, resize};
use crate::field::encoded;
use crate::field::pasted::{Objects, Pasted};
use crate::field::segments::Segments;
use crate::sampler::Rng;
use crate::source::Sample;
use crate::transform::{ClippedBox, Plan};

impl Boxes {
    pub(super) fn write_masks(
        name: &str,
        sample: &Sample<'_>,
        placement: Placement<'_>,
        (box_count, visible_boxes, cover): (usize, &[VisibleBox], Option<&Pasted>),
        (segments, source_mask): (&mut Segments, &mut Vec<u8>),
        out: &mut [u8],
    ) -> Result<()> {
        if box_count == 0 {
            return Ok(());
        }
        let plan = placement.plan;
        let field = read_masks(name, sample, box_count, segments)?;
        for (out, visible_box) in out.chunks_exact_mut(plan.output.area() as usize).zip(visible_boxes) {
            draw_mask(&field, visible_box.index, placement, (segments, source_mask), out)?;
            cover.into_iter().for_each(|pasted| pasted.clear_covered(out));
            plan.warp_nearest(out, 1, &[0], source_mask);
        }
        Ok(())
    }

    /// Drops boxes that pasted objects cover too much, and shrinks boxes that are partly covered.
    pub(super) fn remove_covered(
        &self,
        name: &str,
        sample: &Sample<'_>,
        placement: Placement<'_>,
        pasted: &Pasted,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let Scratch { corners, visible_boxes, name: name_buffer, segments, source_mask, output_mask, .. } = scratch;
        if visible_boxes.is_empty() || pasted.len() == 0 {
            return Ok(());
        }
        let plan = placement.plan;
        let field = read_masks(join_name(name_buffer, name, "masks.json"), sample, corners.len(), segments)?;
        resize(output_mask, plan.output.area() as usize, 0);
        let mut position = 0;
        while let Some(visible_box) = visible_boxes.get_mut(position) {
            draw_mask(&field, visible_box.index, placement, (segments, source_mask), output_mask)?;
            let visible_part = pasted.visible_part(output_mask, plan.output.width as usize);
            let is_visible = match visible_part.total_pixels {
                _ if visible_part.visible_pixels == 0 => false,
                total_pixels if total_pixels == visible_part.visible_pixels => true,
                total_pixels => {
                    let bounds = visible_part.bounds;
                    let corners = [bounds.x, bounds.y, bounds.x + bounds.width, bounds.y + bounds.height];
                    let visible_fraction =
                        visible_box.visible_fraction * visible_part.visible_pixels as f64 / total_pixels as f64;
                    let warped = plan.warp_box(ClippedBox { corners: corners.map(f64::from), visible_fraction });
                    warped.is_some_and(|warped| {
                        let [x1, y1, x2, y2] = warped.corners;
                        (visible_box.corners, visible_box.visible_fraction) = (warped.corners, visible_fraction);
                        visible_fraction >= self.min_visible && x2 - x1 >= self.min_size && y2 - y1 >= self.min_size
                    })
                }
            };
            if is_visible {
                position += 1;
            } else {
                visible_boxes.remove(position);
            }
        }
        Ok(())
    }
}

impl Objects for Boxes {
    fn select(
        &self,
        name: &str,
        sample: &Sample<'_>,
        plan: &Plan,
        (rng, margin): (&Rng, u32),
        pasted: &mut Pasted,
    ) -> Result<()> {
        pasted.clear(plan.output);
        SCRATCH.with_borrow_mut(|scratch| {
            let placement = self.select_visible(name, sample, plan, scratch)?;
            let Scratch { corners, visible_boxes, name: name_buffer, segments, source_mask, output_mask, .. } = scratch;
            if visible_boxes.is_empty() {
                return Ok(());
            }
            pasted.choose_objects(visible_boxes.iter().map(|visible_box| visible_box.index), rng);
            let field = read_masks(join_name(name_buffer, name, "masks.json"), sample, corners.len(), segments)?;
            resize(output_mask, plan.output.area() as usize, 0);
            for position in 0..pasted.len() {
                draw_mask(&field, pasted.box_index(position), placement, (segments, source_mask), output_mask)?;
                pasted.add_mask(output_mask);
            }
            pasted.dilate(margin, plan.output);
            Ok(())
        })
    }
}

fn read_masks<'a>(
    name: &str,
    sample: &Sample<'a>,
    box_count: usize,
    segments: &mut Segments,
) -> Result<encoded::Encoded<'a>> {
    let field = encoded::find(sample, name)?;
    let actual = segments.read(field.value).map_err(|e| field.at_field(&e))?;
    if actual != box_count {
        return Err(field.error(format_args!("has {actual} masks: expected {box_count}, one for each box")));
    }
    Ok(field)
}

/// Draws the mask of box `index` at the output size. Does not apply warps such as rotation.
fn draw_mask(
    field: &encoded::Encoded<'_>,
    index: usize,
    Placement { plan, frame, units }: Placement<'_>,
    (segments, source_mask): (&mut Segments, &mut Vec<u8>),
    out: &mut [u8],
) -> Result<()> {
    segments.draw(index, frame.size(), units, source_mask).map_err(|e| field.at_field(&e))?;
    // `source_mask` is column-major, in the coordinates of the annotated image.
    let (width, image_area, source_height) =
        (plan.output.width as usize, plan.image_area(), frame.size().height as usize);
    let (column_stride, row_stride) = if frame.is_transposed() { (1, source_height) } else { (source_height, 1) };
    out.fill(0);
    // A mask may extend beyond its box, so the whole visible area is copied.
    for x in image_area.x..image_area.x + image_area.width {
        let Some(column) = plan.column(x) else { continue };
        let column = frame.unmirror_x(column) as usize * column_stride;
        for y in image_area.y..image_area.y + image_area.height {
            let Some(row) = plan.row(y) else { continue };
            out[y as usize * width + x as usize] = source_mask[column + frame.unflip_y(row) as usize * row_stride];
        }
    }
    Ok(())
}
