//! Masks of boxes. For copy-paste, the masks define the pixels of the pasted objects.

use super::{Boxes, SCRATCH, Scratch, VisibleBox, join};
use crate::decode::Frame;
use crate::error::{Result, resize};
use crate::field::encoded;
use crate::field::pasted::{Objects, Pasted};
use crate::field::segments::Segments;
use crate::sampler::Rng;
use crate::source::Sample;
use crate::transform::{Clipped, Plan};

impl Boxes {
    /// Writes the masks of the boxes in `kept`, which are some of a sample's `all` boxes. Pixels
    /// that `hidden` covers are set to 0.
    pub(super) fn write_masks(
        name: &str,
        sample: &Sample<'_>,
        placed: (&Plan, Frame, (f64, f64)),
        (all, kept, hidden): (usize, &[VisibleBox], Option<&Pasted>),
        (segments, drawn): (&mut Segments, &mut Vec<u8>),
        to: &mut [u8],
    ) -> Result<()> {
        if all == 0 {
            return Ok(());
        }
        let plan = placed.0;
        let field = read_masks(name, sample, all, segments)?;
        for (to, kept) in to.chunks_exact_mut(plan.output.area() as usize).zip(kept) {
            paint(&field, kept.index, placed, (segments, drawn), to)?;
            hidden.into_iter().for_each(|pasted| pasted.hide(to));
            // Do not change `drawn`, which is reused for the next box.
            plan.warp_nearest(to, 1, &[0], drawn);
        }
        Ok(())
    }

    /// Drops boxes of which pasted objects cover too much, and shrinks the others to the part that
    /// stays visible.
    pub(super) fn hide(
        &self,
        name: &str,
        sample: &Sample<'_>,
        placed: (&Plan, Frame, (f64, f64)),
        pasted: &Pasted,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let Scratch { corners, kept, name: full, segments, drawn, plane, .. } = scratch;
        if kept.is_empty() || pasted.len() == 0 {
            return Ok(());
        }
        let plan = placed.0;
        let field = read_masks(join(full, name, "masks.json"), sample, corners.len(), segments)?;
        resize(plane, plan.output.area() as usize, 0);
        let mut place = 0;
        while let Some(of) = kept.get_mut(place) {
            paint(&field, of.index, placed, (segments, drawn), plane)?;
            let rest = pasted.rest(plane, plan.output.width as usize);
            let remains = match rest.before {
                _ if rest.after == 0 => false,
                before if before == rest.after => true,
                before => {
                    let around = rest.around;
                    let corners = [around.x, around.y, around.x + around.width, around.y + around.height];
                    let visible = of.visible * rest.after as f64 / before as f64;
                    let moved = plan.warp_box(Clipped { corners: corners.map(f64::from), visible });
                    moved.is_some_and(|moved| {
                        let [x1, y1, x2, y2] = moved.corners;
                        (of.corners, of.visible) = (moved.corners, visible);
                        visible >= self.min_visible && x2 - x1 >= self.min_size && y2 - y1 >= self.min_size
                    })
                }
            };
            if remains {
                place += 1;
            } else {
                kept.remove(place);
            }
        }
        Ok(())
    }
}

impl Objects for Boxes {
    fn paste(
        &self,
        name: &str,
        sample: &Sample<'_>,
        plan: &Plan,
        (rng, margin): (&Rng, u32),
        pasted: &mut Pasted,
    ) -> Result<()> {
        pasted.clear(plan.output);
        SCRATCH.with_borrow_mut(|scratch| {
            let (frame, units) = self.keep(name, sample, plan, scratch)?;
            let Scratch { corners, kept, name: full, segments, drawn, plane, .. } = scratch;
            if kept.is_empty() {
                return Ok(());
            }
            pasted.choose(kept.iter().map(|kept| kept.index), rng);
            let field = read_masks(join(full, name, "masks.json"), sample, corners.len(), segments)?;
            resize(plane, plan.output.area() as usize, 0);
            for place in 0..pasted.len() {
                paint(&field, pasted.object(place), (plan, frame, units), (segments, drawn), plane)?;
                pasted.add(plane);
            }
            pasted.widen(margin, plan.output);
            Ok(())
        })
    }
}

/// Reads the masks of a sample that has `all` boxes.
fn read_masks<'a>(
    name: &str,
    sample: &Sample<'a>,
    all: usize,
    segments: &mut Segments,
) -> Result<encoded::Encoded<'a>> {
    let field = encoded::find(sample, name)?;
    let found = segments.read(field.value).map_err(|e| field.at_field(&e))?;
    if found != all {
        return Err(field.error(format_args!("has {found} masks for {all} boxes")));
    }
    Ok(field)
}

/// Draws the mask with index `index` at the size of the output, before geometric operations.
fn paint(
    field: &encoded::Encoded<'_>,
    index: usize,
    (plan, frame, units): (&Plan, Frame, (f64, f64)),
    (segments, drawn): (&mut Segments, &mut Vec<u8>),
    to: &mut [u8],
) -> Result<()> {
    segments.draw(index, frame.size(), units, drawn).map_err(|e| field.at_field(&e))?;
    // Masks are stored column by column, in the frame on which they were annotated.
    let (width, shown, high) = (plan.output.width as usize, plan.shown(), frame.size().height as usize);
    let (across, down) = if frame.is_transposed() { (1, high) } else { (high, 1) };
    to.fill(0);
    // Go through the whole visible part, because a mask may extend beyond its box.
    for x in shown.x..shown.x + shown.width {
        let Some(column) = plan.column(x) else { continue };
        let column = frame.across(column) as usize * across;
        for y in shown.y..shown.y + shown.height {
            let Some(row) = plan.row(y) else { continue };
            to[y as usize * width + x as usize] = drawn[column + frame.down(row) as usize * down];
        }
    }
    Ok(())
}
