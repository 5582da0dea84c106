//! Orders: which sample comes next.
//!
//! 1. [`Rng`]: the random numbers of one sample, a function of (seed, epoch, sample).
//! 2. [`Sampler`]: maps a position in an epoch to a sample. The next three items are orders.
//! 3. [`Sequential`], [`Shuffled`] and [`Windowed`]: every sample once per epoch, as a function of
//!    (seed, epoch, position).
//! 4. [`Weighted`] and [`Mixture`]: samples drawn by weight, or from several sources in
//!    proportions. They, too, are functions of (seed, epoch, position).
//! 5. [`Bucketed`]: samples of similar lengths together. [`Subset`] and [`Repeat`]: orders built
//!    from another order.
//! 6. [`split()`] and [`split_by_class`]: random parts of a dataset.
//! 7. [`Rank`]: which of several processes this is, given explicitly or by the launcher's
//!    environment.
//! 8. [`LastBatch`]: treatment of a last batch that is not full.
//!
//! Nothing here keeps state between calls. Finding any batch of any epoch takes constant time and
//! memory, so a run resumes in the middle of an epoch without replaying anything.

// Internal: `schedule` cuts an order into batches, and batches into the ranks' shares. `within_subset` keeps
// a user's order within a subset.

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
