//! The order in which samples are delivered, and the random numbers of each sample.
//!
//! 1. [`Rng`]: the per-sample random number generator. Its numbers are a function of (seed, epoch,
//!    sample).
//! 2. [`Sampler`]: the trait of all samplers. A sampler maps each position in an epoch to a sample.
//! 3. [`Sequential`], [`Shuffled`] and [`Windowed`]: samplers that deliver every sample once per
//!    epoch.
//! 4. [`Weighted`] and [`Mixture`]: samplers that draw samples by weight, or from several sources
//!    in given proportions.
//! 5. [`Bucketed`]: a sampler that puts samples of similar lengths into the same batch. [`Subset`]
//!    and [`Repeat`]: samplers that wrap another sampler.
//! 6. [`split()`] and [`split_stratified`]: divide a dataset at random.
//! 7. [`Rank`]: the rank of this process, set explicitly or by the launcher's environment.
//! 8. [`LastBatch`]: what happens to an incomplete last batch.
//!
//! The samplers in this module are functions of (seed, epoch, position) without state. They find
//! the sample at any position directly, so a run can resume in the middle of an epoch without
//! replaying anything.

// These modules are internal. `schedule` splits an order into batches, and each batch into the
// shares of the ranks. `batched` is the trait of orders that determine their own batches.
// `within_subset` restricts a custom order to a subset. `live_order` updates weights and
// proportions during a run. `quotas` computes the draws from each source of a mixture in each
// round.

mod batched;
mod bucketed;
mod live_order;
mod mixture;
mod mixture_options;
mod permutation;
mod quotas;
mod rank;
mod repeat;
mod rng;
#[allow(clippy::module_inception)]
mod sampler;
mod schedule;
mod sequential;
mod split;
mod subset;
#[cfg(test)]
mod tests;
mod weighted;
mod windowed;
mod within_subset;

pub(crate) use batched::BatchedOrder;
pub use bucketed::Bucketed;
pub(crate) use live_order::{History, LiveOrder, UpdatableOrder, Update, UpdateKind};
pub use mixture::Mixture;
pub(crate) use mixture_options::Clock;
pub use mixture_options::{At, MixtureOptions};
pub use permutation::Shuffled;
pub use rank::Rank;
pub use repeat::Repeat;
pub use rng::Rng;
pub use sampler::{Occurrence, Position, Sampler};
pub use schedule::LastBatch;
pub(crate) use schedule::{Entry, Schedule};
pub use sequential::Sequential;
pub use split::{split, split_stratified};
pub use subset::Subset;
pub use weighted::Weighted;
pub use windowed::Windowed;
pub(crate) use within_subset::WithinSubset;
