//! A source of random images, a loader for it, and helpers for device tests.

use std::sync::Arc;

use warpfeed::sampler::Rng;
use warpfeed::source::{Sample, Source};
use warpfeed::{Augment, Dtype, Layout, Loader, Result};

pub(crate) const DTYPES: [Dtype; 4] = [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::Bf16];
pub(crate) const LAYOUTS: [Layout; 2] = [Layout::Nhwc, Layout::Nchw];

pub(crate) fn random_bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

pub(crate) struct NoiseImages {
    pub(crate) bmps: Vec<Vec<u8>>,
}

impl NoiseImages {
    pub(crate) fn new(len: usize, side: u32) -> Self {
        let image_at = |i: usize| {
            let mut rng = Rng::new(5, 0, i as u64);
            let mut bytes = b"BM".to_vec();
            let size = side * side * 3;
            for word in [54 + size, 0, 54, 40, side, side, 1 | 24 << 16, 0, size, 2835, 2835, 0, 0] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(random_bytes(&mut rng, size as usize));
            bytes
        };
        NoiseImages { bmps: (0..len).map(image_at).collect() }
    }
}

impl Source for NoiseImages {
    fn len(&self) -> usize {
        self.bmps.len()
    }
    fn read<'a>(&'a self, index: usize, _scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        Ok(Sample::new("image").with_field("bmp", &self.bmps[index])?.with_label(index as i64 % 10))
    }
}

pub(crate) fn loader(source: &Arc<NoiseImages>, augment: Augment) -> Loader {
    let source: Arc<dyn Source> = source.clone();
    Loader::source(source).batch_size(16).shuffle(3).augment(augment).workers(2).prefetch(3)
}

pub(crate) fn integers(bytes: Vec<u8>) -> Vec<i64> {
    bytes.as_chunks().0.iter().map(|v| i64::from_ne_bytes(*v)).collect()
}
