//! Crop, antialiased bilinear resize and flip in one pass.

use super::axis::{Axis, Key};
use super::kernels::Kernels;
use super::scalar;
use super::table::Table;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::decode::Pixels;
use crate::error::{Error, ErrorKind, Result};
use crate::transform::Plan;

/// Crops, resizes (antialiased bilinear) and flips images, reusing its scratch memory.
///
/// The filter is the triangle that Pillow and torchvision (`antialias=True`) use. The pixels equal
/// those of `fast_image_resize` bit for bit on every CPU.
#[derive(Debug)]
pub struct Resizer {
    across: Axis,
    down: Axis,
    /// One row between the two sums, with padding for loads that reach past its end.
    row: Vec<u8>,
    /// Horizontal taps, laid out for `kernels`.
    table: Table,
    /// The vector code; `None` means `scalar`.
    kernels: Option<Kernels>,
}

/// The vector code that this CPU can run, best first.
fn kernels() -> impl Iterator<Item = Kernels> {
    #[cfg(target_arch = "x86_64")]
    let all = [avx512::kernels(), avx2::kernels()];
    #[cfg(not(target_arch = "x86_64"))]
    let all = [None; 0];
    all.into_iter().flatten()
}

impl Default for Resizer {
    fn default() -> Self {
        Self::with(kernels().next())
    }
}

impl Resizer {
    /// Creates a resizer with empty scratch memory. Each worker has its own.
    pub fn new() -> Self {
        Self::default()
    }

    fn with(kernels: Option<Kernels>) -> Self {
        Resizer { across: Axis::default(), down: Axis::default(), row: Vec::new(), table: Table::default(), kernels }
    }

    /// Transforms `pixels` as `plan` says and writes them to `dst`: `u8`, HWC, `plan.output.width *
    /// plan.output.height * 3` bytes. All of `dst` is overwritten, and nothing is read from it.
    ///
    /// # Errors
    /// If `pixels` does not cover `plan.region`, the length of `dst` is wrong, the plan's window is
    /// empty, or its target is not inside the output.
    pub fn run(&mut self, pixels: &Pixels, plan: &Plan, dst: &mut [u8]) -> Result<()> {
        let region = pixels.locate(plan.region)?;
        let expected = plan.output.area() * 3;
        if dst.len() as u64 != expected || expected == 0 {
            let (found, output) = (dst.len(), plan.output);
            return Err(Error::new(
                ErrorKind::Transform,
                format!("{found} bytes for an image of {}x{}, which needs {expected}", output.width, output.height),
            ));
        }
        let Some((across, down)) = plan.filter() else {
            let cause = format!("an empty window: {:?} in {:?}", plan.window, plan.region);
            return Err(Error::new(ErrorKind::Transform, cause));
        };
        if !plan.target.fits(plan.output) {
            let (target, output) = (plan.target, plan.output);
            let cause = format!("a target of {target:?} in an output of {}x{}", output.width, output.height);
            return Err(Error::new(ErrorKind::Transform, cause));
        }
        let changed = self.across.prepare(Key {
            length: region.width,
            window: across,
            outputs: plan.target.width,
            mirrored: plan.flip,
        });
        if let Some(kernels) = self.kernels.filter(|_| changed && !self.across.is_copy()) {
            self.table.build(&self.across, kernels.lanes);
        }
        self.down.prepare(Key {
            length: region.height,
            window: down,
            outputs: plan.target.height,
            mirrored: plan.vertical_flip,
        });
        let stride = pixels.size().width as usize * 3;
        let source = &pixels.data()[region.y as usize * stride + region.x as usize * 3..];
        self.rows(source, stride, fill_around(plan, dst));
        Ok(())
    }

    /// Writes the target's rows to `outs`. `source` starts with the region's first pixel.
    fn rows<'a>(&mut self, source: &[u8], stride: usize, outs: impl Iterator<Item = &'a mut [u8]>) {
        let columns = self.across.span();
        let (first, length) = (columns.start * 3, columns.len() * 3);
        let copy = self.across.is_copy();
        if self.row.len() < self.table.reach.max(length) {
            self.row.resize(self.table.reach.max(length), 0);
        }
        let precision = self.down.precision();
        for (output, out) in outs.enumerate() {
            let (start, taps) = self.down.taps(output);
            let rows = &source[start * stride + first..];
            let sum = if copy { &mut *out } else { &mut self.row[..length] };
            match taps {
                [_] => sum.copy_from_slice(&rows[..length]),
                _ => match self.kernels {
                    Some(kernels) => (kernels.vertical)(rows, stride, taps, precision, sum),
                    None => scalar::vertical(rows, stride, taps, precision, sum),
                },
            }
            match self.kernels {
                _ if copy => {}
                Some(kernels) => (kernels.horizontal)(&self.row, &self.table, out),
                None => scalar::horizontal(&self.row, &self.across, out),
            }
        }
    }
}

/// Fills the area that the picture does not cover, and returns the rows of the target.
fn fill_around<'a>(plan: &Plan, dst: &'a mut [u8]) -> impl Iterator<Item = &'a mut [u8]> {
    let fill = plan.fill;
    let paint = move |bytes: &mut [u8]| bytes.as_chunks_mut().0.fill(fill);
    let shown = plan.shown();
    let [x, y, width, height, outputs] =
        [shown.x, shown.y, shown.width, shown.height, plan.output.width].map(|v| v as usize);
    let (above, rest) = dst.split_at_mut(y * outputs * 3);
    let (rows, below) = rest.split_at_mut(height * outputs * 3);
    paint(above);
    paint(below);
    rows.chunks_exact_mut(outputs * 3).map(move |row| {
        let (left, rest) = row.split_at_mut(x * 3);
        let (target, right) = rest.split_at_mut(width * 3);
        paint(left);
        paint(right);
        target
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Rect, Size};
    use crate::order::Rng;
    use crate::transform::{Augment, Window};

    /// One resizer for each vector backend of this CPU.
    fn backends() -> Vec<Resizer> {
        kernels().map(|kernels| Resizer::with(Some(kernels))).collect()
    }

    fn picture(size: Size, seed: u64) -> Pixels {
        let mut rng = Rng::new(seed, 0, 0);
        let mut pixels = Pixels::new();
        // Runs of one value between noise, so that clamping to black and to white is tested.
        let mut value = 0;
        for byte in pixels.reset(size) {
            let bits = rng.next_u64();
            value = [value, bits as u8, 0, 255][(bits >> 8 & 3) as usize];
            *byte = value;
        }
        pixels
    }

    fn plan(region: Rect, window: Window, output: Size) -> Plan {
        let mut plan = Augment::resize(output.width, output.height).plan(output, &mut Rng::new(0, 0, 0)).unwrap();
        (plan.region, plan.window) = (region, window);
        plan
    }

    fn assert_equal(pixels: &Pixels, plan: &Plan, resizers: &mut [Resizer]) {
        let mut expected = vec![0; plan.output.area() as usize * 3];
        Resizer::with(None).run(pixels, plan, &mut expected).unwrap();
        for resizer in resizers {
            let lanes = resizer.kernels.map(|kernels| kernels.lanes);
            // The bytes around the image in its batch must not change.
            let mut out = vec![0x5a; expected.len() + 64];
            resizer.run(pixels, plan, &mut out[32..][..expected.len()]).unwrap();
            assert!(
                out[..32].iter().chain(&out[expected.len() + 32..]).all(|&v| v == 0x5a),
                "{lanes:?} lanes wrote outside: {plan:?}"
            );
            let wrong = out[32..].iter().zip(&expected).position(|(a, b)| a != b);
            assert_eq!(wrong, None, "{lanes:?} lanes at byte {wrong:?}: {:?} {plan:?}", pixels.size());
        }
    }

    #[test]
    fn every_backend_equals_the_portable_one_bit_for_bit() {
        let mut resizers = backends();
        let mut rng = Rng::new(9, 9, 9);
        for case in 0..1500 {
            let most = [6, 40, 130][case % 3];
            let mut side = || rng.below(most) as u32 + 1;
            let (size, output) = (Size::new(side(), side()), Size::new(side(), side()));
            let pixels = picture(size, case as u64);
            let (w, h) = (rng.below(size.width.into()) as u32 + 1, rng.below(size.height.into()) as u32 + 1);
            let (x, y) =
                (rng.below(u64::from(size.width - w) + 1) as u32, rng.below(u64::from(size.height - h) + 1) as u32);
            let rect = Rect::new(x, y, w, h);
            let mut plan = plan(rect, rect.into(), output);
            if case % 2 == 1 {
                // A window with fractional edges, as in evaluation.
                let mut part = |start: u32, length: u32| {
                    let (start, length) = (f64::from(start), f64::from(length));
                    let from = rng.unit() * length * 0.7;
                    (start + from, (length - from) * rng.range(0.2, 1.0))
                };
                let ((x, width), (y, height)) = (part(x, w), part(y, h));
                plan.window = Window { x, y, width, height };
            }
            (plan.flip, plan.vertical_flip) = (rng.chance(0.5), rng.chance(0.3));
            assert_equal(&pixels, &plan, &mut resizers);
        }
    }

    #[test]
    fn backends_agree_on_extreme_shapes() {
        let mut resizers = backends();
        for (size, output) in [
            ((1, 1), (1, 1)),
            ((1, 1), (300, 200)),
            ((9000, 2), (1, 1)),
            ((2, 9000), (3, 7)),
            ((20_000, 1), (5, 1)),
            ((1, 700), (700, 1)),
            ((11, 11), (224, 224)),
            ((640, 480), (640, 480)),
            ((640, 480), (640, 100)),
            ((640, 480), (100, 480)),
        ] {
            let size = Size::new(size.0, size.1);
            let mut plan = plan(Rect::full(size), Rect::full(size).into(), Size::new(output.0, output.1));
            assert_equal(&picture(size, 1), &plan, &mut resizers);
            assert_equal(&picture(size, 3), &plan, &mut resizers);
            (plan.flip, plan.vertical_flip) = (true, true);
            assert_equal(&picture(size, 2), &plan, &mut resizers);
        }
    }

    #[test]
    fn an_impossible_plan_is_an_error() {
        let pixels = picture(Size::new(8, 8), 0);
        let mut plan = plan(Rect::new(0, 0, 8, 8), Rect::new(0, 0, 8, 8).into(), Size::new(4, 4));
        let e = Resizer::new().run(&pixels, &plan, &mut [0; 47]).unwrap_err();
        assert_eq!(e.cause(), "47 bytes for an image of 4x4, which needs 48");
        plan.window.width = 0.0;
        assert!(Resizer::new().run(&pixels, &plan, &mut [0; 48]).is_err());
        plan.window.width = f64::NAN;
        assert!(Resizer::new().run(&pixels, &plan, &mut [0; 48]).is_err());
        plan.region.width = 9;
        assert!(Resizer::new().run(&pixels, &plan, &mut [0; 48]).is_err());
    }
}
