//! [`Schedule`] selects the batches to trace.

use crate::error::{Error, Result};

/// Selects the batches to trace, like `torch.profiler.schedule`. A cycle has `wait + warmup +
/// active` batches, and the last `active` batches of each cycle are written to the trace. There are
/// `repeat` cycles.
///
/// Batches are counted over the lifetime of the loader, starting with the first batch of its first
/// epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Number of batches per cycle that are not traced.
    pub wait: u64,
    /// Number of batches per cycle that are traced but not written, so that the trace excludes the
    /// start-up cost of tracing.
    pub warmup: u64,
    /// Number of batches per cycle that are written to the trace. It must be at least 1.
    pub active: u64,
    /// Number of cycles. If it is 0, tracing continues until the loader is closed.
    pub repeat: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Off,
    Warmup,
    /// The batch is traced, and the trace is written. Contains the index of the cycle.
    Active(u64),
}

impl Schedule {
    pub(super) fn check(&self) -> Result<()> {
        match self.wait.checked_add(self.warmup).and_then(|sum| sum.checked_add(self.active)) {
            Some(_) if self.active > 0 => Ok(()),
            _ => Err(Error::config(format!(
                "trace: {self:?}: active must be at least 1, and wait + warmup + active must fit into 64 bits"
            ))),
        }
    }

    pub(super) fn phase(&self, batch: u64) -> Phase {
        let period = self.wait + self.warmup + self.active;
        let (cycle, step) = (batch / period, batch % period);
        match () {
            () if self.repeat > 0 && cycle >= self.repeat => Phase::Off,
            () if step < self.wait => Phase::Off,
            () if step < self.wait + self.warmup => Phase::Warmup,
            () => Phase::Active(cycle),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_follow_each_other_as_in_torch() {
        let schedule = Schedule { wait: 1, warmup: 1, active: 2, repeat: 2 };
        let phases: Vec<_> = (0..10).map(|batch| schedule.phase(batch)).collect();
        let (off, warm, active) = (Phase::Off, Phase::Warmup, Phase::Active);
        assert_eq!(phases, [off, warm, active(0), active(0), off, warm, active(1), active(1), off, off]);
        let always = Schedule { wait: 0, warmup: 0, active: 1, repeat: 0 };
        assert_eq!([0, 1, 1000].map(|batch| always.phase(batch)), [active(0), active(1), active(1000)]);
        assert!(Schedule { active: 0, ..schedule }.check().is_err());
        assert!(Schedule { wait: u64::MAX, ..schedule }.check().is_err());
    }
}
