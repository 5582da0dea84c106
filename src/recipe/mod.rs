//! The work on a sample and on a complete batch, as a function of (seed, epoch, sample). The recipe
//! has no threads and no counters.
//!
//! 1. `recipe`: [`Recipe`]: read, plan, decode, transform, write.
//! 2. `shot`: the images of a sample with their plans, and which of them are decoded together.
//! 3. `partners`: the samples whose images become one image.
//! 4. `damage`: names the damaged images that were decoded in the log.

mod damage;
mod partners;
#[allow(clippy::module_inception)]
mod recipe;
mod shot;

pub(crate) use damage::Damaged;
pub(crate) use partners::{Partners, partners};
pub(crate) use recipe::{Recipe, image_room};
pub(crate) use shot::{Shot, damaged, share};
