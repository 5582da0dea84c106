use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Where JPEGs of device batches are decoded. The pixels are the same, bit for bit.
///
/// A worker hands the device the compressed bytes that a crop needs. The device decodes, crops and
/// resizes them. So a sample costs a worker about a tenth of the time, and the device some
/// microseconds. See [`Loader::decode_on`](crate::Loader::decode_on).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DecodeOn {
    /// On the workers.
    #[default]
    Cpu,
    /// On the device, if it can decode the picture.
    Gpu,
    /// On the device while the workers alone are too slow for the consumer.
    Auto,
}

/// Decides between workers and device for each part of a batch.
#[derive(Debug)]
pub(crate) struct Balance {
    on: DecodeOn,
    /// Whether every batch slot of the device is filled.
    supplied: AtomicBool,
    /// Device time that decoding may take, if it is limited.
    allowance: Option<Mutex<Allowance>>,
}

/// Device time that decoding may still take. It grows with time, and shrinks when decoding reports
/// the time that it took.
#[derive(Debug)]
struct Allowance {
    /// Share of the device's time, below 1.
    share: f64,
    /// Remaining ns, as of `at`.
    left: f64,
    at: Instant,
    taken: u64,
}

impl Allowance {
    /// Maximum time that can accumulate, so decoding does not catch up after a pause.
    const MOST: Duration = Duration::from_millis(250);

    /// Whether time is left after decoding has taken `taken` ns.
    fn is_left(&mut self, now: Instant, taken: u64) -> bool {
        let grown = now.saturating_duration_since(self.at).as_nanos() as f64 * self.share;
        self.left += grown - taken.saturating_sub(self.taken) as f64;
        self.left = self.left.min(Self::MOST.as_nanos() as f64 * self.share);
        // Workers may report out of order. Nothing is counted twice.
        (self.at, self.taken) = (now, self.taken.max(taken));
        self.left > 0.0
    }
}

impl Balance {
    /// `share` is the maximum share of device time for decoding, from 0 to 1.
    pub(crate) fn new(on: DecodeOn, share: f64) -> Self {
        let allowance = Allowance { share, left: 0.0, at: Instant::now(), taken: 0 };
        Balance { on, supplied: AtomicBool::new(false), allowance: (share < 1.0).then(|| Mutex::new(allowance)) }
    }

    /// Reports whether every batch slot of the device is filled.
    pub(crate) fn supplied(&self, supplied: bool) {
        self.supplied.store(supplied, Ordering::Relaxed);
    }

    /// Whether the device decodes the next part of a batch. `taken` is the device time in ns that
    /// decoding has taken so far.
    pub(crate) fn device_now(&self, taken: u64) -> bool {
        let wanted = match self.on {
            DecodeOn::Cpu => false,
            DecodeOn::Gpu => true,
            // If the device is supplied, either the consumer is slower and needs the device, or the
            // device is decoding as fast as it can.
            DecodeOn::Auto => !self.supplied.load(Ordering::Relaxed),
        };
        let allowed = |allowance: &Mutex<Allowance>| {
            let mut allowance = allowance.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            allowance.is_left(Instant::now(), taken)
        };
        wanted && self.allowance.as_ref().is_none_or(allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_takes_its_share_of_the_devices_time_on_average() {
        let mut at = Instant::now();
        let mut allowance = Allowance { share: 0.05, left: 0.0, at, taken: 0 };
        // A batch takes 2 ms of the device, which is known 7 ms later. One batch is requested per
        // ms.
        let (mut known, mut under_way, mut taken) = (0, std::collections::VecDeque::new(), 0);
        for ms in 0..10_000 {
            at += Duration::from_millis(1);
            while under_way.front().is_some_and(|&done| done <= ms) {
                under_way.pop_front();
                known += 2_000_000;
            }
            if allowance.is_left(at, known) {
                under_way.push_back(ms + 7);
                taken += 2_000_000_u64;
            }
        }
        let share = taken as f64 / 10e9;
        assert!((0.045..0.055).contains(&share), "{share}");
        // Decoding does not catch up after a pause.
        at += Duration::from_secs(3600);
        assert!(allowance.is_left(at, known));
        assert!(!allowance.is_left(at, known + 20_000_000), "250 ms give 12.5 ms");
        // An older reading of a worker changes nothing.
        let left = allowance.left;
        allowance.is_left(at, known);
        allowance.is_left(at, known + 20_000_000);
        assert_eq!(allowance.left, left);
    }

    #[test]
    fn without_a_share_the_users_choice_holds() {
        assert!(Balance::new(DecodeOn::Gpu, 1.0).device_now(u64::MAX));
        assert!(!Balance::new(DecodeOn::Cpu, 1.0).device_now(0));
        let auto = Balance::new(DecodeOn::Auto, 1.0);
        assert!(auto.device_now(0));
        auto.supplied(true);
        assert!(!auto.device_now(0));
        assert!(!Balance::new(DecodeOn::Gpu, 0.0).device_now(0), "no share is no decoding there");
    }
}
