use super::axis::{Axis, AxisKey};
use crate::decode::Rect;
use crate::error::resize;
use crate::transform::interpolation::Resampling;
use crate::transform::{Interpolation, Plan};

/// Resizes maps with the bilinear filter of [`Resizer`](super::Resizer), but with float weights,
/// like a float image in torchvision's `resize`.
#[derive(Debug, Default)]
pub(crate) struct MapResizer {
    x_axis: Axis,
    y_axis: Axis,
    row: Vec<f32>,
}

impl MapResizer {
    /// Transforms a map according to `plan`, and writes it to `out`, which has the shape (H, W,
    /// `channels`) of the output. `pixel(x, y, c)` returns channel `c` of the source pixel at
    /// column `x` and row `y`. Values of `out` outside the plan's target stay unchanged.
    ///
    /// The window of the plan must not be empty. An [`Augment`](crate::transform::Augment) creates
    /// only plans with a nonempty window.
    pub(crate) fn run(
        &mut self,
        plan: &Plan,
        channels: usize,
        pixel: impl Fn(usize, usize, usize) -> f32,
        out: &mut [f32],
    ) {
        let Rect { x, y, width, height } = plan.region;
        let clip_span = |start: f64, length: f64, origin: u32, limit: u32| {
            let start = (start - f64::from(origin)).max(0.0);
            (start, start + length.min(f64::from(limit) - start))
        };
        let Plan { window, target, .. } = plan;
        let columns = clip_span(window.x, window.width, x, width);
        let rows = clip_span(window.y, window.height, y, height);
        let resampling = Resampling { filter: Interpolation::Bilinear, antialias: plan.antialias };
        let key = |length, window, outputs, is_mirrored| AxisKey {
            length,
            window,
            outputs,
            is_mirrored,
            resampling,
            full_resize: None,
        };
        self.x_axis.prepare(key(width, columns, target.width, plan.flip));
        self.y_axis.prepare(key(height, rows, target.height, plan.vertical_flip));
        let (x, y, span, image_area) = (x as usize, y as usize, self.x_axis.span(), plan.image_area());
        resize(&mut self.row, span.len() * channels, 0.0);
        let stride = plan.output.width as usize * channels;
        let rows = out.chunks_exact_mut(stride).skip(image_area.y as usize).take(image_area.height as usize);
        for (output, out) in rows.enumerate() {
            let (first, weights) = self.y_axis.weights(output);
            for (index, sum) in self.row.iter_mut().enumerate() {
                let (column, channel) = (x + span.start + index / channels, index % channels);
                let value = |(tap, weight): (usize, &f64)| weight * f64::from(pixel(column, y + first + tap, channel));
                *sum = weights.iter().enumerate().map(value).sum::<f64>() as f32;
            }
            let out = out.chunks_exact_mut(channels).skip(image_area.x as usize).take(image_area.width as usize);
            for (output, out) in out.enumerate() {
                let (first, weights) = self.x_axis.weights(output);
                let sums = &self.row[(first - span.start) * channels..];
                for (channel, out) in out.iter_mut().enumerate() {
                    let value = |(tap, weight): (usize, &f64)| weight * f64::from(sums[tap * channels + channel]);
                    *out = weights.iter().enumerate().map(value).sum::<f64>() as f32;
                }
            }
        }
    }
}
