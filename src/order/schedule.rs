use std::sync::Arc;

use super::Order;

/// What happens to an epoch's last batch when the samples do not fill it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Last {
    /// It is delivered short. PyTorch's `drop_last=False`.
    #[default]
    Keep,
    /// It is left out. PyTorch's `drop_last=True`.
    Drop,
    /// It is filled with samples from the epoch's start, marked as not valid (see [`HostBatch::valid`](crate::HostBatch::valid)).
    Pad,
}

/// One place of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pick {
    /// Index in the source.
    pub(crate) sample: u64,
    /// False for padding.
    pub(crate) valid: bool,
}

/// An order cut into batches.
#[derive(Clone)]
pub(crate) struct Schedule {
    order: Arc<dyn Order>,
    batch: u64,
    last: Last,
}

impl Schedule {
    pub(crate) fn new(order: Arc<dyn Order>, batch: usize, last: Last) -> Self {
        Schedule { order, batch: batch as u64, last }
    }

    /// Number of batches in `epoch`.
    pub(crate) fn batches(&self, epoch: u64) -> u64 {
        match self.last {
            Last::Drop => self.order.len(epoch) / self.batch,
            Last::Keep | Last::Pad => self.order.len(epoch).div_ceil(self.batch),
        }
    }

    /// Puts the places of batch `number` of `epoch` into `picks`.
    pub(crate) fn fill(&self, epoch: u64, number: u64, picks: &mut Vec<Pick>) {
        let len = self.order.len(epoch);
        let (first, end) = (number * self.batch, (number + 1) * self.batch);
        picks.clear();
        picks.extend((first..end.min(len)).map(|p| Pick { sample: self.order.index(epoch, p), valid: true }));
        if self.last == Last::Pad {
            picks.extend((len..end).map(|p| Pick { sample: self.order.index(epoch, p % len), valid: false }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Sequential;

    fn batches(len: u64, last: Last) -> Vec<Vec<(u64, bool)>> {
        let schedule = Schedule::new(Arc::new(Sequential::new(len)), 4, last);
        let mut picks = Vec::new();
        (0..schedule.batches(0))
            .map(|b| {
                schedule.fill(0, b, &mut picks);
                picks.iter().map(|p| (p.sample, p.valid)).collect()
            })
            .collect()
    }

    #[test]
    fn the_last_batch_is_kept_dropped_or_padded() {
        let ids = |batch: &[(u64, bool)]| batch.iter().map(|p| p.0).collect::<Vec<_>>();
        assert_eq!(ids(&batches(6, Last::Keep)[1]), [4, 5]);
        assert_eq!(batches(6, Last::Drop).len(), 1);
        assert_eq!(batches(6, Last::Pad)[1], [(4, true), (5, true), (0, false), (1, false)]);
        assert_eq!(batches(3, Last::Pad)[0], [(0, true), (1, true), (2, true), (0, false)]);
        assert_eq!(batches(8, Last::Pad), batches(8, Last::Keep));
        assert!(batches(3, Last::Drop).is_empty());
    }
}
