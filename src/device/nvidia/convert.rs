//! Loads and launches the kernels of `kernels/convert.cu` and `kernels/retouch.cu`.
//!
//! **Invariants**
//! 1. Each launch passes its parameters in the order and with the sizes that the source of the
//!    entry point declares. `tests/gpu/ptx.rs` checks that the PTX is compiled from this source,
//!    and `tests/gpu/kernels.rs` compares every entry point with the host.
//! 2. Addresses come from `DeviceBuffer::at`, which checks that all bytes that the kernel accesses
//!    for `count` samples are inside the buffer. If a sample is mixed, the kernel also reads the
//!    sample's mixing partner. The caller of a launch guarantees that the index of each partner is
//!    below `count`.

#![allow(unsafe_code)]

use std::ffi::c_void;

use arrayvec::ArrayVec;

use super::driver::Context;
use super::kernel::{Grid, Kernel};
use super::memory::DeviceBuffer;
use super::stream::Stream;
use crate::batch::SampleOps;
use crate::batch::{Dtype, Layout, Normalize};
use crate::error::{Error, Result};

/// Maximum number of threads per block. Must not exceed `__launch_bounds__` in `convert.cu`.
const MAX_BLOCK: u32 = 128;

/// Threads per block of the `retouch` kernel. Must equal `RETOUCH_THREADS` in `retouch.cu`.
const RETOUCH_THREADS: u32 = 512;

/// Arguments of a launch. Offsets are bytes in the [`DeviceBuffer`], and must be multiples of 16.
#[derive(Debug, Clone, Copy)]
pub struct Launch {
    pub input_offset: usize,
    pub output_offset: usize,
    /// Offset of the [`SampleOps`] records, one per sample. `None` for kernels without records.
    pub records_offset: Option<usize>,
    /// Number of samples.
    pub count: usize,
}

/// The kernel that converts u8 images of shape (N, H, W, 3) to model input. A kernel supports one
/// dtype, layout and image size.
///
/// The results are bit-identical to the host's, because both compute the same operations in the
/// same order, with the same rounding.
pub struct Convert {
    kernel: Kernel,
    dtype: Dtype,
    pixels: usize,
    height: u32,
    width: u32,
    block: u32,
    pixels_per_block: u32,
    normalize: ScaleBias,
}

/// Has the layout of the `Normalize` struct in `convert.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ScaleBias {
    scale: [f32; 3],
    bias: [f32; 3],
}

impl Convert {
    /// Loads the kernel for images of `height` by `width` pixels. `normalize` is ignored for
    /// [`Dtype::U8`]. Set `with_ops` if launches pass records. Without it, the kernel is faster.
    ///
    /// The first time on a machine, the driver compiles this entry point, which takes tens of
    /// milliseconds.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if no kernel supports the dtype or the size,
    /// or if the images need no conversion.
    pub fn load(
        context: &Context,
        dtype: Dtype,
        layout: Layout,
        (height, width): (usize, usize),
        normalize: Normalize,
        with_ops: bool,
    ) -> Result<Self> {
        let pixels = height * width;
        if pixels == 0 || pixels > (1 << 30) {
            return Err(Error::config(format!(
                "the device cannot convert images of {width}x{height} pixels: expected 1 to 2^30 pixels in total"
            )));
        }
        // Without records, the position of a pixel does not matter, so the image is treated as one
        // row.
        let (height, width) = if with_ops { (height, width) } else { (1, pixels) };
        let EntryPoint { name, pixels_per_group, groups_per_thread } =
            EntryPoint::find(dtype, layout, width, with_ops)?;
        let kernel = Kernel::load(context, name)?;
        let threads = (pixels / pixels_per_group).div_ceil(groups_per_thread) as u32;
        let block = kernel.best_block(MAX_BLOCK)?.min(threads.next_multiple_of(32));
        let (scale, bias) = if dtype == Dtype::U8 { ([1.0; 3], [0.0; 3]) } else { normalize.scale_bias() };
        Ok(Convert {
            kernel,
            dtype,
            pixels,
            height: height as u32,
            width: width as u32,
            pixels_per_block: block * (pixels_per_group * groups_per_thread) as u32,
            block,
            normalize: ScaleBias { scale, bias },
        })
    }

    /// Queues the conversion of `args.count` samples.
    ///
    /// # Safety
    /// The records must be valid [`SampleOps`], with partner indices below `args.count`. The ranges
    /// of memory must not overlap. The caller must use streams or events to order this work
    /// relative to all other accesses to these ranges. `self` must not be dropped before the work
    /// is done.
    pub unsafe fn launch(&self, stream: &Stream, memory: &DeviceBuffer, args: Launch) -> Result<()> {
        let values = self.pixels * 3;
        let (mut height, mut width, mut normalize) = (self.height, self.width, self.normalize);
        let extra = [(&raw mut height).cast(), (&raw mut width).cast(), (&raw mut normalize).cast()];
        let blocks = (self.pixels as u32).div_ceil(self.pixels_per_block);
        let bytes = SampleBytes { input: values, output: values * self.dtype.bytes() };
        // SAFETY: guaranteed by the caller, and invariant 1. The last three parameters of the
        // kernel are `extra`: height, width and normalization.
        unsafe { launch(&self.kernel, stream, memory, args, bytes, (blocks, self.block), extra) }
    }
}

/// The kernel that applies effects to pixels in place, on u8 images of shape (N, H, W, 3).
pub struct Retouch {
    kernel: Kernel,
    height: u32,
    width: u32,
}

impl Retouch {
    /// Loads the kernel for images of `height` by `width` pixels.
    pub fn load(context: &Context, (height, width): (usize, usize)) -> Result<Self> {
        let kernel = Kernel::load(context, "retouch".into())?;
        Ok(Retouch { kernel, height: height as u32, width: width as u32 })
    }

    /// Queues the effects, which modify the `args.count` images at `args.input_offset` in place.
    /// Effects that read neighboring pixels use the memory at `args.output_offset` as scratch
    /// memory.
    ///
    /// # Safety
    /// See [`Convert::launch`].
    pub unsafe fn launch(&self, stream: &Stream, memory: &DeviceBuffer, args: Launch) -> Result<()> {
        let (mut height, mut width) = (self.height, self.width);
        let extra = [(&raw mut height).cast(), (&raw mut width).cast()];
        let image = self.height as usize * self.width as usize * 3;
        let bytes = SampleBytes { input: image, output: image };
        // SAFETY: guaranteed by the caller, and invariant 1: `extra` is height and width. The
        // kernel reads and writes both ranges, with one block per sample.
        unsafe { launch(&self.kernel, stream, memory, args, bytes, (1, RETOUCH_THREADS), extra) }
    }
}

/// The kernel that computes and mixes f32 soft labels.
pub struct SoftLabels {
    kernel: Kernel,
    classes: u32,
    smoothing: f32,
}

impl SoftLabels {
    /// Loads the kernel for `classes` classes. `smoothing`, from 0 to 1, is the share of each label
    /// that the kernel spreads evenly over all classes.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if `classes` is 0 or exceeds 2^32 - 1.
    pub fn load(context: &Context, classes: usize, smoothing: f32) -> Result<Self> {
        let error =
            || Error::config(format!("soft_labels: the number of classes is {classes}, but must be 1 to 2^32 - 1"));
        let classes = u32::try_from(classes).ok().filter(|&c| c > 0).ok_or_else(error)?;
        Ok(SoftLabels { kernel: Kernel::load(context, "soft_labels".into())?, classes, smoothing })
    }

    /// Queues the kernel, which computes one soft label for each of `args.count` i64 labels.
    ///
    /// # Safety
    /// See [`Convert::launch`].
    pub unsafe fn launch(&self, stream: &Stream, memory: &DeviceBuffer, args: Launch) -> Result<()> {
        let (mut classes, mut smoothing) = (self.classes, self.smoothing);
        let extra = [(&raw mut classes).cast(), (&raw mut smoothing).cast()];
        let bytes = SampleBytes { input: size_of::<i64>(), output: self.classes as usize * size_of::<f32>() };
        let size = (classes.div_ceil(MAX_BLOCK), MAX_BLOCK);
        // SAFETY: guaranteed by the caller, and invariant 1: `extra` is classes and smoothing.
        unsafe { launch(&self.kernel, stream, memory, args, bytes, size, extra) }
    }
}

#[derive(Debug)]
struct EntryPoint {
    name: String,
    /// Number of adjacent pixels that a thread reads and writes together.
    pixels_per_group: usize,
    groups_per_thread: usize,
}

impl EntryPoint {
    fn find(dtype: Dtype, layout: Layout, width: usize, with_ops: bool) -> Result<EntryPoint> {
        if dtype == Dtype::U8 && layout == Layout::Nhwc && !with_ops {
            return Err(Error::config("u8 images of shape (N, H, W, 3) need no conversion kernel"));
        }
        let (kind, vector_pixels) = match dtype {
            Dtype::U8 => ("u8", 8),
            Dtype::F32 => ("f32", 4),
            Dtype::F16 => ("f16", 8),
            Dtype::Bf16 => ("bf16", 8),
            other => {
                return Err(Error::config(format!(
                    "the image dtype is {}, but must be u8, f32, f16 or bf16",
                    other.name()
                )));
            }
        };
        let layout = match layout {
            Layout::Nchw => "nchw",
            Layout::Nhwc => "nhwc",
        };
        Ok(match (width.is_multiple_of(vector_pixels), with_ops) {
            (false, _) => {
                EntryPoint { name: format!("{kind}_{layout}_any"), pixels_per_group: 1, groups_per_thread: 2 }
            }
            (true, true) => EntryPoint {
                name: format!("{kind}_{layout}_ops"),
                pixels_per_group: vector_pixels,
                groups_per_thread: 2,
            },
            (true, false) => EntryPoint {
                name: format!("{kind}_{layout}"),
                pixels_per_group: vector_pixels,
                groups_per_thread: if dtype == Dtype::F32 { 2 } else { 1 },
            },
        })
    }
}

struct SampleBytes {
    input: usize,
    output: usize,
}

/// Queues `blocks` thread blocks per sample, of `block` threads each. Each entry point takes the
/// output, the input, the records and the number of samples, followed by `extra`.
///
/// # Safety
/// See [`Convert::launch`]. `extra` must point to values of the types that the entry point
/// declares.
unsafe fn launch<const N: usize>(
    kernel: &Kernel,
    stream: &Stream,
    memory: &DeviceBuffer,
    Launch { input_offset, output_offset, records_offset, count }: Launch,
    bytes: SampleBytes,
    (blocks, block): (u32, u32),
    extra: [*mut c_void; N],
) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    assert!(
        [input_offset, output_offset, records_offset.unwrap_or(0)].iter().all(|offset| offset.is_multiple_of(16)),
        "device offsets {input_offset}, {output_offset} and {records_offset:?} must be multiples of 16"
    );
    let mut output = memory.at(output_offset, count * bytes.output);
    let mut input = memory.at(input_offset, count * bytes.input);
    let mut records = records_offset.map_or(0, |offset| memory.at(offset, count * SampleOps::BYTES));
    let mut samples = count as u32;
    let shared =
        [(&raw mut output).cast(), (&raw mut input).cast(), (&raw mut records).cast(), (&raw mut samples).cast()];
    let mut parameters: ArrayVec<*mut c_void, 8> = shared.into_iter().chain(extra).collect();
    let grid = Grid { blocks, block, count, shared: 0 };
    // SAFETY: invariants 1 and 2, and guaranteed by the caller.
    unsafe { kernel.queue(stream, memory, grid, &mut parameters) }
}

#[cfg(test)]
mod tests {
    use super::super::kernel::entry_text;
    use super::*;

    #[test]
    fn every_combination_has_an_entry_point() {
        for dtype in [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::Bf16] {
            for layout in [Layout::Nchw, Layout::Nhwc] {
                for width in [224, 225, 228, 300] {
                    for with_ops in [false, true] {
                        if (dtype, layout, with_ops) == (Dtype::U8, Layout::Nhwc, false) {
                            assert!(
                                EntryPoint::find(dtype, layout, width, with_ops).is_err(),
                                "u8 (N, H, W, 3) is copied"
                            );
                            continue;
                        }
                        let EntryPoint { name, pixels_per_group, .. } =
                            EntryPoint::find(dtype, layout, width, with_ops).unwrap();
                        assert_eq!(width % pixels_per_group, 0, "{name}");
                        let text = entry_text(&name).unwrap_or_else(|| panic!("{name} is not in the PTX"));
                        assert_eq!(text.matches(".visible .entry").count(), 1);
                        assert!(text.starts_with("//") && text.contains(".target sm_70"));
                        assert_eq!(text.matches('{').count(), text.matches('}').count(), "{name} is truncated");
                    }
                }
            }
        }
        assert!(EntryPoint::find(Dtype::I64, Layout::Nchw, 224, false).is_err());
        assert!(entry_text("soft_labels").is_some() && entry_text("f32").is_none());
    }
}
