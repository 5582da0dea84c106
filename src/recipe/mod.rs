//! Processes samples and complete batches, without threads or counters. The result for a sample
//! depends only on (seed, epoch, variant, sample) and on the sampler, from which other samples of
//! the epoch are drawn.
//!
//! 1. `recipe`: [`Recipe`], the steps that read, plan, decode, transform and write a sample.
//! 2. `sample_image`: the images of a sample with their plans, and which of them are decoded
//!    together.
//! 3. `partners`: the other samples that are combined with a sample into one image.
//! 4. `augments`: the augmentation of each sample.
//! 5. `damage`: logs the names of samples with damaged images.

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
