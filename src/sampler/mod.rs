//! Sample orders, which determine which sample comes next.
//!
//! 1. [`Rng`]: the random numbers of a sample, which are a function of (seed, epoch, sample).
//! 2. [`Sampler`]: maps a position in an epoch to a sample. Items 3 to 5 are orders.
//! 3. [`Sequential`], [`Shuffled`] and [`Windowed`]: orders that contain every sample once per
//!    epoch. The sample is a function of (seed, epoch, position).
//! 4. [`Weighted`] and [`Mixture`]: orders that draw samples by weight, or from several sources in
//!    given proportions. The sample is also a function of (seed, epoch, position).
//! 5. [`Bucketed`]: an order whose batches contain samples of similar lengths. [`Subset`] and
//!    [`Repeat`]: wrappers around another order.
//! 6. [`split()`] and [`split_by_class`]: random parts of a dataset.
//! 7. [`Rank`]: the rank of this process, set explicitly or by the launcher's environment.
//! 8. [`LastBatch`]: policy for an incomplete last batch.
//!
//! Nothing in this module keeps state between calls. Any batch of any epoch can be computed in
//! constant time and memory, so a run can resume in the middle of an epoch without replaying
//! anything.

// Internal modules: `schedule` splits an order into batches, and each batch into the shares of the
// ranks. `within_subset` restricts a custom order to a subset.

mod bucketed;
mod mixture;
mod permutation;
mod rank;
mod repeat;
mod rng;
#[allow(clippy::module_inception)]
mod sampler;
mod schedule;
mod sequential;
mod split;
mod subset;
mod weighted;
mod windowed;
mod within_subset;

pub use bucketed::Bucketed;
pub use mixture::Mixture;
pub use permutation::Shuffled;
pub use rank::Rank;
pub use repeat::Repeat;
pub use rng::Rng;
pub use sampler::{Occurrence, Position, Sampler};
pub use schedule::LastBatch;
pub(crate) use schedule::{Entry, Schedule};
pub use sequential::Sequential;
pub use split::{split, split_by_class};
pub use subset::Subset;
pub use weighted::Weighted;
pub use windowed::Windowed;
pub(crate) use within_subset::Within;
