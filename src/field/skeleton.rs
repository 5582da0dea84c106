//! [`Skeleton`] reads sets of keypoints, and transforms them together with the image.

use super::encoded;
use crate::decode::Frame;
use crate::error::{Error, Result};
use crate::source::Sample;
use crate::source::Shape;
use crate::transform::Plan;

#[derive(Debug, Clone, Default, serde::Deserialize)]
pub(super) struct Skeleton {
    pub(super) count: usize,
    pub(super) pairs: Vec<(usize, usize)>,
}

impl Skeleton {
    pub(super) fn check(&self) -> Result<(), String> {
        let count = self.count;
        if count == 0 {
            return Err("0 points: expected at least 1".into());
        }
        let mut is_paired = vec![false; count];
        for &(a, b) in &self.pairs {
            if a >= count || b >= count {
                return Err(format!("the flip pair ({a}, {b}): expected points from 0 to {}", count - 1));
            }
            if a == b || std::mem::replace(&mut is_paired[a], true) || std::mem::replace(&mut is_paired[b], true) {
                return Err(format!("the flip pair ({a}, {b}): a point can be in only one pair"));
            }
        }
        Ok(())
    }

    /// Reads `sets` sets of points from the sample's field `name` into `numbers`. `None` stands for
    /// a single set without an axis for sets. Each point has `columns` numbers, starting with x and
    /// y. These two are multiplied by `x_unit` and `y_unit`, which gives pixels of `frame`, and are
    /// then transformed to the upright image.
    pub(super) fn read(
        &self,
        name: &str,
        sample: &Sample<'_>,
        sets: Option<usize>,
        columns: usize,
        (frame, (x_unit, y_unit)): (Frame, (f64, f64)),
        numbers: &mut Vec<f32>,
    ) -> Result<()> {
        let field = encoded::find(sample, name)?;
        numbers.clear();
        let shape = encoded::read_numbers(sample, name, numbers)?;
        let expected: Shape = sets.into_iter().chain([self.count, columns]).collect();
        if numbers.len() != expected.iter().product::<usize>() || (shape.len() > 1 && shape != expected) {
            return Err(field.error(format_args!("has the shape {shape:?}: expected {expected:?}")));
        }
        for (index, point) in numbers.chunks_exact_mut(columns).enumerate() {
            if !point.iter().all(|v| v.is_finite()) {
                let (set, index) = (index / self.count, index % self.count);
                return Err(field.at_field(&Error::in_source(format!(
                    "point {index} of set {set} is {point:?}: expected finite numbers"
                ))));
            }
            let (x, y) = frame.point((f64::from(point[0]) * x_unit, f64::from(point[1]) * y_unit));
            (point[0], point[1]) = (x as f32, y as f32);
        }
        Ok(())
    }

    /// Writes a set of points (x, y, visibility) to `out`. Points that are unlabeled or outside the
    /// area that [shows](Plan::shows) the image become (0, 0, 0).
    pub(super) fn write_points(&self, stored_points: &[f32], plan: &Plan, frame: Frame, out: &mut [f32]) {
        let (stored_points, to) = (stored_points.as_chunks::<3>().0, out.as_chunks_mut::<3>().0);
        for (&[x, y, visibility], to) in stored_points.iter().zip(&mut *to) {
            let (x, y) = plan.point(x.into(), y.into());
            let (x, y) = (x as f32, y as f32);
            let is_visible = visibility > 0.0 && plan.shows(x.into(), y.into());
            *to = if is_visible { [x, y, visibility] } else { [0.0; 3] };
        }
        self.swap_pairs(plan, frame, to);
    }

    /// Swaps the pairs if the plan and the EXIF orientation together mirror the image.
    pub(super) fn swap_pairs<T>(&self, plan: &Plan, frame: Frame, points: &mut [T]) {
        if plan.flip ^ plan.vertical_flip ^ frame.is_mirrored() {
            self.pairs.iter().for_each(|&(a, b)| points.swap(a, b));
        }
    }
}
