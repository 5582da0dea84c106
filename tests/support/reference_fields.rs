//! A naive reference implementation of field transforms. It crops, resizes, pads and flips a whole
//! array, one step at a time.
#![allow(dead_code, unreachable_pub)] // not every test uses all of it

use warpfeed::batch::Field;
use warpfeed::decode::Size;
use warpfeed::field::{FieldType, Input, RowMut};
use warpfeed::transform::{Interpolation, Plan};
use warpfeed::{Augment, Dtype, Result};

pub fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(format!("{header:<117}\n").as_bytes());
    bytes.extend(data);
    bytes
}

pub fn image(size: Size) -> Vec<u8> {
    let shape = format!("({}, {}, 3)", size.height, size.width);
    npy("|u1", &shape, &vec![77; size.area() as usize * 3])
}

/// A field type that writes the plan as 14 integers: crop (4), resized size (2), offset (2), target
/// (4) and flips (2).
#[derive(Debug)]
pub struct PlanRecord;

impl FieldType for PlanRecord {
    fn describe_arrays(&self, name: &str, _: Size) -> Result<Vec<Field>> {
        Ok(vec![Field { name: name.to_owned(), dtype: Dtype::I64, shape: vec![14] }])
    }

    fn write(&self, input: &Input<'_>, row: &mut RowMut<'_>) -> Result<()> {
        let plan = input.plan.unwrap();
        let Plan { crop, resized, offset, target, .. } = plan;
        let numbers = [crop.x, crop.y, crop.width, crop.height, resized.width, resized.height, offset.0, offset.1];
        let numbers = numbers.into_iter().chain([target.x, target.y, target.width, target.height]);
        let flips = [plan.flip, plan.vertical_flip].map(u32::from);
        let bytes: Vec<u8> = numbers.chain(flips).flat_map(|v| i64::from(v).to_ne_bytes()).collect();
        row.bytes(0).copy_from_slice(&bytes);
        Ok(())
    }
}

/// A two-dimensional array, such as a mask.
#[derive(Clone)]
pub struct Plane {
    pub width: usize,
    pub height: usize,
    pub values: Vec<i64>,
}

impl Plane {
    pub fn from_fn(width: usize, height: usize, value: impl Fn(usize, usize) -> i64) -> Self {
        let values = (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| value(x, y)).collect();
        Plane { width, height, values }
    }

    pub fn value_at(&self, x: usize, y: usize) -> i64 {
        self.values[y * self.width + x]
    }

    pub fn crop(&self, x: usize, y: usize, width: usize, height: usize) -> Self {
        Plane::from_fn(width, height, |i, j| self.value_at(x + i, y + j))
    }

    /// Resizes like torch's `interpolate(mode="nearest")`: computes source positions in f32, and
    /// rounds them down.
    pub fn resize(&self, width: usize, height: usize) -> Self {
        let source_index = |i: usize, length: usize, target: usize| {
            ((i as f32 * (length as f32 / target as f32)).floor() as usize).min(length - 1)
        };
        Plane::from_fn(width, height, |i, j| {
            self.value_at(source_index(i, self.width, width), source_index(j, self.height, height))
        })
    }

    pub fn pad(&self, x: usize, y: usize, width: usize, height: usize, fill: i64) -> Self {
        Plane::from_fn(width, height, |i, j| match (i.checked_sub(x), j.checked_sub(y)) {
            (Some(i), Some(j)) if i < self.width && j < self.height => self.value_at(i, j),
            _ => fill,
        })
    }

    pub fn flip(&self, horizontal: bool, vertical: bool) -> Self {
        let flip_index = |i: usize, length: usize, is_flipped: bool| if is_flipped { length - 1 - i } else { i };
        Plane::from_fn(self.width, self.height, |i, j| {
            self.value_at(flip_index(i, self.width, horizontal), flip_index(j, self.height, vertical))
        })
    }

    /// Applies a plan, as encoded by [`PlanRecord`], one step at a time.
    pub fn apply_plan(&self, plan: &[i64], output: Size, fill: i64) -> Self {
        let n: Vec<usize> = plan.iter().map(|&v| v as usize).collect();
        let resized = self.crop(n[0], n[1], n[2], n[3]).resize(n[4], n[5]);
        let part = resized.crop(n[6], n[7], n[10], n[11]);
        let padded = part.pad(n[8], n[9], output.width as usize, output.height as usize, fill);
        padded.flip(n[12] == 1, n[13] == 1)
    }
}

pub fn augments() -> [Augment; 11] {
    [
        Augment::train(37),
        Augment::train(24).with_output_size(50, 31).vertical_flip(0.5),
        Augment::eval(40, 32).flip(0.5),
        Augment::center_crop(18),
        Augment::resize(60, 45).vertical_flip(1.0),
        Augment::letterbox(48, 40).flip(0.5).vertical_flip(0.5),
        Augment::scale_jitter(40, 0.2, 3.0).flip(0.5),
        Augment::random_crop(40).padding(7).pad_if_needed().flip(0.5).vertical_flip(0.5),
        Augment::random_resize(40, 20, 90).flip(0.5).vertical_flip(0.5),
        Augment::shortest_size(&[20, 30], 48).flip(0.5),
        Augment::train(32).interpolation(Interpolation::Bicubic),
    ]
}
