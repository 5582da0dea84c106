//! [`Order`]: maps a position to a sample.

use std::sync::Arc;

/// The order of the samples in each epoch.
///
/// Implement this trait for your own order. It must return the same answer for the same arguments,
/// at any time and on any thread.
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
    /// The variant `epoch` is right if each sample comes once per epoch. If a sample can come more
    /// often, return a different variant each time. Otherwise it is augmented the same way each
    /// time. An order built from another order passes on that order's variant.
    fn at(&self, epoch: u64, position: u64) -> Occurrence {
        Occurrence { index: self.index(epoch, position), variant: epoch }
    }
}

/// One occurrence of a sample in an [`Order`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Occurrence {
    /// Source index of the sample.
    pub index: u64,
    /// Takes the place of the epoch in the sample's random numbers, which are a function of (seed,
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

    fn at(&self, epoch: u64, position: u64) -> Occurrence {
        (**self).at(epoch, position)
    }
}
