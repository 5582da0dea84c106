//! Limits the memory of a worker's buffers: estimates the memory for decoding, and frees buffers
//! before they exceed the worker's share.

use super::filler::{PartFiller, ReadSample};
use crate::decode::{self, EncodedImage, MAX_GROUP, Pixels, Rect};
use crate::engine::settings::Share;
use crate::recipe::SampleImage;

/// For decoded images of up to this size in bytes, only the pixels count as memory use. For larger
/// images, or if memory is scarce, decoders estimate the memory that they need, including their
/// scratch memory.
const SMALL_IMAGE_BYTES: u64 = 1 << 20;

/// Returns how many samples at the start of `samples` fit into a worker's own share.
pub(super) fn fitting(samples: &[ReadSample<'_>], share: Share) -> usize {
    let mut sum = 0_usize;
    samples
        .iter()
        .take_while(|sample| {
            sum = sum.saturating_add(sample.memory);
            sum <= share.decode
        })
        .count()
}

impl PartFiller<'_> {
    /// Returns the memory in bytes for decoding `region` of an image.
    pub(super) fn decoding_memory(&self, encoded: &EncodedImage<'_>, region: Rect) -> usize {
        let pixel_bytes = encoded.size().area().saturating_mul(3);
        let memory = if self.counts_pixels(pixel_bytes) { pixel_bytes } else { encoded.memory(region) };
        let memory = if self.recipe.strict { memory.saturating_add(encoded.check_memory()) } else { memory };
        usize::try_from(memory).unwrap_or(usize::MAX)
    }

    /// Returns whether only the pixels of an image of `bytes` bytes count as memory use. The
    /// codecs' scratch memory matters only for large images or if memory is scarce.
    pub(super) fn counts_pixels(&self, bytes: u64) -> bool {
        let ample = self.run.scratch.share().decode as u64 >= SMALL_IMAGE_BYTES * MAX_GROUP as u64;
        ample && bytes <= SMALL_IMAGE_BYTES
    }

    pub(super) fn release(&mut self) {
        self.pixels.iter_mut().for_each(Pixels::release);
        self.bitstream.keep(0);
        decode::release();
    }

    /// Frees all pixel buffers if decoding `samples` into them would exceed the worker's own share.
    pub(super) fn free_buffers(&mut self, samples: &[ReadSample<'_>]) {
        let capacity = |pixels: &[Pixels]| pixels.iter().map(Pixels::capacity).sum::<usize>();
        let (mut sum, mut rest) = (0_usize, &self.pixels[..]);
        for sample in samples {
            let needed = if self.recipe.any_fields().has_clips() { rest.len() } else { sample.image_count };
            let (in_use, others) = rest.split_at(needed);
            sum = sum.saturating_add(capacity(in_use).max(sample.memory));
            rest = others;
        }
        if sum.saturating_add(capacity(rest)) > self.run.scratch.share().decode {
            self.pixels.iter_mut().for_each(Pixels::release);
        }
    }

    /// Frees the buffers of frames if decoding `opened` into them could exceed both `memory`, which
    /// was reserved for the sample, and the worker's own share.
    pub(super) fn free_frame_buffers(
        &mut self,
        opened: &[EncodedImage<'_>],
        memory: usize,
        sample_image: &SampleImage<'_>,
        used: usize,
    ) {
        let region = self.largest_region(sample_image);
        let needed = |index: usize| opened.get(index).map_or(0, |encoded| self.decoding_memory(encoded, region));
        let (other, frames) = self.pixels.split_at(used);
        let other: usize = other.iter().map(Pixels::capacity).sum();
        let frames = frames.iter().enumerate().map(|(index, pixels)| pixels.capacity().max(needed(index)));
        if frames.fold(other, usize::saturating_add) > memory.max(self.run.scratch.share().decode) {
            self.pixels[used..].iter_mut().for_each(Pixels::release);
        }
    }
}
