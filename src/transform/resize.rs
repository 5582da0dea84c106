use crate::decode::Pixels;
use crate::error::{Error, ErrorKind, Result};
use crate::transform::Plan;

use fast_image_resize as fir;
use fir::images::{Image, ImageRef};

/// Crop, antialiased bilinear resize and flip of one image after the other; its scratch is kept.
#[derive(Debug, Default)]
pub struct Resizer {
    inner: fir::Resizer,
}

impl Resizer {
    /// A resizer without scratch yet; one a worker.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes what `plan` makes of `pixels` to `dst`: `u8`, HWC, `plan.output.width * plan.output.height * 3` bytes. All of `dst` is
    /// overwritten; what it held before does not matter.
    ///
    /// # Errors
    /// If `pixels` does not cover `plan.region`, or `dst` is of another length.
    pub fn run(&mut self, pixels: &Pixels, plan: &Plan, dst: &mut [u8]) -> Result<()> {
        let region = pixels.locate(plan.region)?;
        let expected = plan.output.area() * 3;
        if dst.len() as u64 != expected {
            return Err(Error::new(
                ErrorKind::Transform,
                format!(
                    "{} bytes for an image of {}x{}, which takes {expected}",
                    dst.len(),
                    plan.output.width,
                    plan.output.height
                ),
            ));
        }
        let fail = |e: &dyn std::fmt::Display| Error::new(ErrorKind::Transform, format!("resize: {e}"));
        let stored = pixels.size();
        let source =
            ImageRef::new(stored.width, stored.height, pixels.data(), fir::PixelType::U8x3).map_err(|e| fail(&e))?;
        let source = fir::images::CroppedImage::new(&source, region.x, region.y, region.width, region.height)
            .map_err(|e| fail(&e))?;
        let mut out = Image::from_slice_u8(plan.output.width, plan.output.height, dst, fir::PixelType::U8x3)
            .map_err(|e| fail(&e))?;
        // The window from the picture's pixels to those that are stored, counted from the region's corner.
        let unit = f64::from(1u32 << pixels.reduction());
        let (ox, oy) = pixels.origin();
        let left = (plan.window.x / unit - f64::from(ox + region.x)).max(0.0);
        let top = (plan.window.y / unit - f64::from(oy + region.y)).max(0.0);
        let width = (plan.window.width / unit).min(f64::from(region.width) - left);
        let height = (plan.window.height / unit).min(f64::from(region.height) - top);
        let options = fir::ResizeOptions::new()
            .crop(left, top, width, height)
            .resize_alg(fir::ResizeAlg::Convolution(fir::FilterType::Bilinear));
        self.inner.resize(&source, &mut out, &options).map_err(|e| fail(&e))?;
        let row = plan.output.width as usize * 3;
        if plan.flip {
            for line in dst.chunks_exact_mut(row) {
                line.as_chunks_mut::<3>().0.reverse();
            }
        }
        if plan.vertical_flip {
            let (mut top, mut bottom) = (0, plan.output.height as usize - 1);
            while top < bottom {
                let (head, tail) = dst.split_at_mut(bottom * row);
                head[top * row..(top + 1) * row].swap_with_slice(&mut tail[..row]);
                (top, bottom) = (top + 1, bottom - 1);
            }
        }
        Ok(())
    }
}
