//! Which sample next.
//!
//! 1. [`Rng`]: the random numbers of one sample, a pure function of (seed, epoch, sample).
//! 2. [`Sequential`], [`Shuffled`] and [`Windowed`]: every sample once an epoch, as a pure function
//!    of (seed, epoch, position).
//! 3. [`Weighted`] and [`Mixture`]: samples drawn by weight, or from several sources in
//!    proportions; as pure.
//! 4. [`Subset`], [`Repeat`] and [`Skip`]: orders made of another one.
//! 5. [`Rank`]: which of several processes this is, by word or by the launcher's environment.
//! 6. `schedule`: an order cut into batches, and those into the ranks' shares.
//!
//! Nothing here keeps state between calls: any batch of any epoch is found in constant time and
//! memory, so a run resumes in mid-epoch without replaying anything.

mod mixture;
mod permutation;
mod rank;
mod repeat;
mod rng;
mod schedule;
mod split;
mod subset;
mod weighted;
mod windowed;

use std::sync::Arc;

pub use mixture::Mixture;
pub use permutation::Shuffled;
pub use rank::Rank;
pub use repeat::{Repeat, Skip};
pub use rng::Rng;
pub use schedule::LastBatch;
pub(crate) use schedule::{Pick, Schedule};
pub use split::{split, split_by_class};
pub use subset::Subset;
pub use weighted::Weighted;
pub use windowed::Windowed;

/// The order of an epoch.
///
/// Implement it for an order of your own; it must answer the same for the same arguments, whenever
/// and from whichever thread it is asked.
pub trait Order: Send + Sync {
    /// Number of samples in `epoch`.
    fn len(&self, epoch: u64) -> u64;

    /// Index in the source of the sample at `position` of `epoch`; `position` is less than
    /// [`len`](Order::len).
    fn index(&self, epoch: u64, position: u64) -> u64;

    /// The sample at `position` of `epoch` with its variant: [`index`](Order::index) and `epoch`,
    /// unless the order says otherwise.
    ///
    /// `epoch` is right where a sample comes once an epoch. Where it comes more often, each time
    /// should have a variant of its own, or it is augmented alike each time. An order made of
    /// another one passes that one's variant on.
    fn at(&self, epoch: u64, position: u64) -> Draw {
        Draw { index: self.index(epoch, position), variant: epoch }
    }
}

/// What an [`Order`] has at one position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Draw {
    /// Index of the sample in the source.
    pub index: u64,
    /// What stands for the epoch in the sample's random numbers: they are a function of (seed,
    /// variant, index).
    pub variant: u64,
}

impl<O: Order + ?Sized> Order for Arc<O> {
    fn len(&self, epoch: u64) -> u64 {
        (**self).len(epoch)
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        (**self).index(epoch, position)
    }

    fn at(&self, epoch: u64, position: u64) -> Draw {
        (**self).at(epoch, position)
    }
}

/// Every sample once, in the source's order, in each epoch.
#[derive(Debug, Clone, Copy)]
pub struct Sequential(u64);

impl Sequential {
    /// The order of a source of `len` samples.
    pub fn new(len: u64) -> Self {
        Sequential(len)
    }
}

impl Order for Sequential {
    fn len(&self, _epoch: u64) -> u64 {
        self.0
    }

    fn index(&self, _epoch: u64, position: u64) -> u64 {
        position
    }
}
