//! Code shared by the device tests: a stream, the kernels of `examples/kernels/probe.cu`, and
//! images whose pixels are a function of the sample index.
//!
//! **Invariant.** Every launch passes the parameters that `probe.cu` declares, and a view of at
//! least as many bytes as the kernel reads.
#![allow(dead_code, unsafe_code)] // not every test uses every item; launching kernels is unsafe

pub(crate) mod noise;

use std::sync::Arc;

use warpfeed::cuda::cudarc::driver::{CudaFunction, CudaStream, CudaView, CudaViewMut, LaunchConfig, PushKernelArg};
use warpfeed::decode::{Codec, EncodedImage, Pixels, Rect, Size};
use warpfeed::format::Format;
use warpfeed::sampler::Rng;
use warpfeed::source::{Sample, Source};
use warpfeed::{Augment, Loader, Result};

const PROBE: &str = include_str!("../../../examples/kernels/probe.ptx");
/// Width and height of the images in pixels.
pub(crate) const SIDE: u32 = 64;

pub(crate) fn stream() -> Option<Arc<CudaStream>> {
    match warpfeed::cuda::stream(0) {
        Ok(stream) => Some(stream),
        Err(e) => {
            crate::require::missing("cuda", e);
            None
        }
    }
}

pub(crate) struct Probe {
    spin: CudaFunction,
    checksum: CudaFunction,
}

impl Probe {
    pub(crate) fn new(stream: &Arc<CudaStream>) -> Self {
        let ptx = warpfeed::cuda::cudarc::nvrtc::Ptx::from_src(PROBE);
        let module = stream.context().load_module(ptx).unwrap();
        let load = |name| module.load_function(name).unwrap();
        Probe { spin: load("spin"), checksum: load("checksum") }
    }

    pub(crate) fn spin(&self, stream: &Arc<CudaStream>, nanoseconds: u64) {
        let mut launch = stream.launch_builder(&self.spin);
        launch.arg(&nanoseconds);
        // SAFETY: the invariant. `spin` takes one `u64`.
        unsafe { launch.launch(LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 }) }
            .unwrap();
    }

    pub(crate) fn checksum(&self, stream: &Arc<CudaStream>, bytes: &CudaView<'_, u8>, sum: &mut CudaViewMut<'_, u64>) {
        let words = (bytes.len() / 4) as u64;
        let mut launch = stream.launch_builder(&self.checksum);
        launch.arg(bytes).arg(&words).arg(sum);
        // SAFETY: the invariant. `checksum` takes a pointer, a count of words, and a pointer to one
        // `u64`.
        unsafe { launch.launch(LaunchConfig { grid_dim: (64, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 }) }
            .unwrap();
    }
}

#[derive(Clone, Copy)]
pub(crate) struct NumberedImages(pub(crate) usize);

impl Source for NumberedImages {
    fn len(&self) -> usize {
        self.0
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        scratch.clear();
        scratch.extend_from_slice(&(index as u64).to_le_bytes());
        Ok(Sample::new("numbered").with_field("img", scratch)?.with_label(0))
    }
}

impl Codec for NumberedImages {
    fn format(&self) -> Format {
        Format::any("numbered")
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        Ok(EncodedImage::new(bytes, Size::new(SIDE, SIDE)))
    }

    fn decode(&self, image: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        let bytes = image.bytes();
        out.reset(region.size());
        let mut rng = Rng::new(u64::from_le_bytes(bytes.try_into().expect("eight bytes")), 1, 2);
        out.set_origin(region.x, region.y);
        out.data_mut().chunks_mut(8).for_each(|to| to.copy_from_slice(&rng.next_u64().to_le_bytes()[..to.len()]));
        Ok(())
    }
}

pub(crate) fn loader(samples: usize) -> Loader {
    let source = NumberedImages(samples);
    Loader::source(source).codec(source).augment(Augment::pass_through(SIDE, SIDE))
}

/// Returns the number of batches in a test: `WARPFEED_BATCHES`, or `default_count` if it is not
/// set.
pub(crate) fn batches(default_count: usize) -> usize {
    std::env::var("WARPFEED_BATCHES").ok().and_then(|n| n.parse().ok()).unwrap_or(default_count)
}

pub(crate) fn noisy_gradient(rng: &mut Rng, width: u16, height: u16) -> Vec<u8> {
    let mut pixels = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let noise = rng.below(60) as u16;
            pixels.extend([x + noise, y + noise, (x ^ y) + noise].map(|v| v.min(255) as u8));
        }
    }
    pixels
}
