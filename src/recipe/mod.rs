//! The steps that process samples and complete batches, without threads: reading, planning,
//! decoding, transforming and writing.
//!
//! The random numbers of a sample depend only on the seed, the sample and the
//! [variant](crate::sampler::Occurrence::variant) of its occurrence, which is usually the epoch.
//! A mosaic, or an image with pasted objects, combines the images of several samples. The choice of
//! the additional samples also depends on the sampler, because they are drawn by their positions in
//! an epoch. The random numbers for mixing whole batches depend only on the seed, the epoch and the
//! batch.

mod augments;
mod damage;
mod partners;
#[allow(clippy::module_inception)]
mod recipe;
mod sample_image;

pub(crate) use augments::Augments;
pub(crate) use damage::DamageLog;
pub(crate) use partners::{Partners, draw_partners};
pub(crate) use recipe::{Recipe, check_sample_size, frame_error, image_buffer_bytes};
pub(crate) use sample_image::{SampleImage, count_damaged_frames, count_damaged_images, share_decoding};
