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
    /// On the device, as far as it can.
    Gpu,
    /// On the device while the workers alone are too slow for the consumer.
    Auto,
}

/// Decides between workers and device, a part of a batch at a time.
#[derive(Debug)]
pub(crate) struct Balance {
    on: DecodeOn,
    /// Whether the device has all the batches that it has room for.
    supplied: AtomicBool,
    /// What decoding may take of the device's time, if it may not take all.
    allowance: Option<Mutex<Allowance>>,
}

/// Time of the device that decoding may still take. It grows with time, and shrinks by what decoding
/// took, as soon as that is known.
#[derive(Debug)]
struct Allowance {
    /// The part of the device's time, below 1.
    share: f64,
    /// In ns, for what is known to be taken at `at`.
    left: f64,
    at: Instant,
    taken: u64,
}

impl Allowance {
    /// It grows to what this time gives, at most: decoding that paused does not make up for that.
    const MOST: Duration = Duration::from_millis(250);

    /// Whether some is left, when decoding took `taken` ns so far.
    fn is_left(&mut self, now: Instant, taken: u64) -> bool {
        let grown = now.saturating_duration_since(self.at).as_nanos() as f64 * self.share;
        self.left += grown - taken.saturating_sub(self.taken) as f64;
        self.left = self.left.min(Self::MOST.as_nanos() as f64 * self.share);
        // A worker may come late with what it read: nothing is counted twice.
        (self.at, self.taken) = (now, self.taken.max(taken));
        self.left > 0.0
    }
}

impl Balance {
    /// `share` is the most of the device's time that decoding may take, from 0 to 1.
    pub(crate) fn new(on: DecodeOn, share: f64) -> Self {
        let allowance = Allowance { share, left: 0.0, at: Instant::now(), taken: 0 };
        Balance { on, supplied: AtomicBool::new(false), allowance: (share < 1.0).then(|| Mutex::new(allowance)) }
    }

    /// The device has all the batches that it has room for, or not any more.
    pub(crate) fn supplied(&self, supplied: bool) {
        self.supplied.store(supplied, Ordering::Relaxed);
    }

    /// Whether the next part of a batch is left to the device, of whose time decoding took `taken` ns
    /// so far.
    pub(crate) fn device_now(&self, taken: u64) -> bool {
        let wanted = match self.on {
            DecodeOn::Cpu => false,
            DecodeOn::Gpu => true,
            // Either the consumer is the slower one, and needs its device for better things, or the
            // device decodes as fast as it can.
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
        // A batch takes 2 ms of the device; what it took is known 7 ms later. One is asked for each
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
        // A pause is not made up for.
        at += Duration::from_secs(3600);
        assert!(allowance.is_left(at, known));
        assert!(!allowance.is_left(at, known + 20_000_000), "250 ms give 12.5 ms");
        // What a worker read earlier changes nothing.
        let left = allowance.left;
        allowance.is_left(at, known);
        allowance.is_left(at, known + 20_000_000);
        assert_eq!(allowance.left, left);
    }

    #[test]
    fn without_a_share_the_choice_is_the_users() {
        assert!(Balance::new(DecodeOn::Gpu, 1.0).device_now(u64::MAX));
        assert!(!Balance::new(DecodeOn::Cpu, 1.0).device_now(0));
        let auto = Balance::new(DecodeOn::Auto, 1.0);
        assert!(auto.device_now(0));
        auto.supplied(true);
        assert!(!auto.device_now(0));
        assert!(!Balance::new(DecodeOn::Gpu, 0.0).device_now(0), "no share is no decoding there");
    }
}
