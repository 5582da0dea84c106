//! Limits the memory of a worker's buffers: estimates the memory for decoding, and frees buffers
//! before they exceed the worker's share.

use super::filler::{PartFiller, ReadSample};
use crate::decode::{self, EncodedImage, MAX_GROUP, Pixels, Rect};
use crate::engine::settings::Share;
use crate::recipe::SampleImage;

/// For decoded images of up to this size in bytes, only the pixels count as memory use. For larger
/// images, or if memory is scarce, decoders estimate the memory that they need, including their
/// scratch memory. A strict loader adds the memory of the check for damage in both cases.
const SMALL_IMAGE_BYTES: u64 = 1 << 20;

/// Returns how many samples at the start of `samples` fit into a worker's own share.
pub(super) fn count_fitting(samples: &[ReadSample<'_>], share: Share) -> usize {
    let mut sum = 0_usize;
    samples
        .iter()
        .take_while(|sample| {
            sum = sum.saturating_add(sample.memory);
            sum <= share.decode_bytes
        })
        .count()
}

impl PartFiller<'_> {
    pub(super) fn decoding_memory(&self, encoded: &EncodedImage<'_>, region: Rect) -> usize {
        let pixel_bytes = encoded.size().area().saturating_mul(3);
        let memory = if self.counts_only_pixels(pixel_bytes) { pixel_bytes } else { encoded.decode_memory(region) };
        let memory = if self.recipe.is_strict { memory.saturating_add(encoded.check_memory()) } else { memory };
        usize::try_from(memory).unwrap_or(usize::MAX)
    }

    /// Returns whether only the pixels of an image, which take `bytes` bytes, count as memory use;
    /// see [`SMALL_IMAGE_BYTES`].
    pub(super) fn counts_only_pixels(&self, bytes: u64) -> bool {
        let has_ample_memory = self.runtime.scratch.share().decode_bytes as u64 >= SMALL_IMAGE_BYTES * MAX_GROUP as u64;
        has_ample_memory && bytes <= SMALL_IMAGE_BYTES
    }

    pub(super) fn release(&mut self) {
        self.buffers.pixels.iter_mut().for_each(Pixels::release);
        self.buffers.bitstream.trim_to(0);
        decode::release_scratch();
    }

    /// Frees all pixel buffers if decoding `samples` into them would exceed the worker's own share.
    pub(super) fn free_buffers(&mut self, samples: &[ReadSample<'_>]) {
        let capacity = |pixels: &[Pixels]| pixels.iter().map(Pixels::capacity).sum::<usize>();
        let (mut sum, mut remaining_buffers) = (0_usize, &self.buffers.pixels[..]);
        for sample in samples {
            let buffer_count =
                if self.recipe.any_fields().has_clips() { remaining_buffers.len() } else { sample.image_count };
            let (sample_buffers, later_buffers) = remaining_buffers.split_at(buffer_count);
            sum = sum.saturating_add(capacity(sample_buffers).max(sample.memory));
            remaining_buffers = later_buffers;
        }
        if sum.saturating_add(capacity(remaining_buffers)) > self.runtime.scratch.share().decode_bytes {
            self.buffers.pixels.iter_mut().for_each(Pixels::release);
        }
    }

    /// Frees the buffers of frames if decoding `encoded_frames` into them could exceed both
    /// `memory`, the estimate for the sample, and the worker's own share.
    pub(super) fn free_frame_buffers(
        &mut self,
        encoded_frames: &[EncodedImage<'_>],
        memory: usize,
        sample_image: &SampleImage<'_>,
        used_buffers: usize,
    ) {
        let region = self.largest_region(sample_image);
        let needed_bytes =
            |index: usize| encoded_frames.get(index).map_or(0, |encoded| self.decoding_memory(encoded, region));
        let (other_buffers, frames) = self.buffers.pixels.split_at(used_buffers);
        let other_buffers: usize = other_buffers.iter().map(Pixels::capacity).sum();
        let frames = frames.iter().enumerate().map(|(index, pixels)| pixels.capacity().max(needed_bytes(index)));
        if frames.fold(other_buffers, usize::saturating_add) > memory.max(self.runtime.scratch.share().decode_bytes) {
            self.buffers.pixels[used_buffers..].iter_mut().for_each(Pixels::release);
        }
    }
}
