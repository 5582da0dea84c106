//! Which sample is next.
//!
//! 1. [`Rng`]: the random numbers of one sample, a function of (seed, epoch, sample).
//! 2. [`Sequential`], [`Shuffled`] and [`Windowed`]: every sample once an epoch, as a function of
//!    (seed, epoch, position).
//! 3. [`Weighted`] and [`Mixture`]: samples drawn by weight, or from several sources in
//!    proportions. They are functions of (seed, epoch, position) too.
//! 4. [`Subset`], [`Repeat`] and [`Skip`]: orders made of another order.
//! 5. [`split()`] and [`split_by_class`]: random parts of a data set.
//! 6. [`Rank`]: which of several processes this is, as given or by the launcher's environment.
//! 7. `schedule`: cuts an order into batches, and batches into the ranks' shares.
//!
//! Nothing here keeps state between calls. Any batch of any epoch is found in constant time and
//! memory. So a run resumes in the middle of an epoch and replays nothing.

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
/// Implement it for an order of your own. It must give the same answer for the same arguments, at
/// any time and on any thread.
///
/// ```
/// use warpfeed::order::Order;
///
/// /// All samples, backwards in every second epoch.
/// struct ThereAndBack(u64);
///
/// impl Order for ThereAndBack {
///     fn len(&self, _epoch: u64) -> u64 {
///         self.0
///     }
///
///     fn index(&self, epoch: u64, position: u64) -> u64 {
///         if epoch % 2 == 0 { position } else { self.0 - 1 - position }
///     }
/// }
/// # let loader = warpfeed::Loader::new("train").order(ThereAndBack(50_000));
/// ```
pub trait Order: Send + Sync {
    /// Number of samples in `epoch`.
    fn len(&self, epoch: u64) -> u64;

    /// The source index of the sample at `position` of `epoch`. `position` is less than
    /// [`len`](Order::len).
    fn index(&self, epoch: u64, position: u64) -> u64;

    /// The sample at `position` of `epoch`, with its variant. The default is
    /// [`index`](Order::index) and `epoch`.
    ///
    /// `epoch` is right if a sample comes once an epoch. If it comes more often, give each time a
    /// variant of its own; otherwise it is augmented alike each time. An order made of another
    /// order passes on that order's variant.
    fn at(&self, epoch: u64, position: u64) -> Draw {
        Draw { index: self.index(epoch, position), variant: epoch }
    }
}

/// What an [`Order`] returns for one position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Draw {
    /// Source index of the sample.
    pub index: u64,
    /// Stands for the epoch in the sample's random numbers: they are a function of (seed, variant,
    /// index).
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

/// Every sample once in each epoch, in the source's order.
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
