//! Reads, plans, decodes, transforms and writes samples, and completes batches, without threads.
//! Everything random depends only on (seed, epoch, variant, sample) and on the sampler, from which
//! the other samples of a combined image are drawn.

mod augments;
mod damage;
mod partners;
#[allow(clippy::module_inception)]
mod recipe;
mod sample_image;

pub(crate) use augments::Augments;
pub(crate) use damage::DamageLog;
pub(crate) use partners::{Partners, draw_partners};
pub(crate) use recipe::{Recipe, frame_error, image_buffer_bytes};
pub(crate) use sample_image::{SampleImage, count_damaged_frames, count_damaged_images, share_decoding};
