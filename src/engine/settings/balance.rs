//! Divides JPEG decoding between the workers and the device.
//!
//! With [`DecodeOn::Auto`], the device decodes unless a worker has time to do so, because the
//! device is faster. But every part that a worker decodes leaves the device more time for the
//! consumer's own work. So a worker decodes a part if it can finish long before the consumer needs
//! the batch, and if the workers have time to spare after copying data for the device. Without
//! these two conditions, all workers would start decoding at once whenever batches are waiting for
//! the consumer, and the device would run out of batches. As an exception, if no worker has decoded
//! a part for two seconds, a worker decodes the next part to measure the time.
//!
//! The time until the consumer needs a batch is estimated from the number of batches before it, on
//! the device and in host memory, and from the average time between two batches.
//!
//! Each decision of [`DecodeOn::Auto`] takes a lock and a few arithmetic operations.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where JPEGs are decoded for batches in device memory. The pixels are bit-identical either way.
///
/// If the device decodes, a worker only copies the compressed bytes that the crop needs, and the
/// device decodes, crops and resizes the image. This reduces the worker's time per sample to about
/// a tenth, and costs a few microseconds of device time. See
/// [`Loader::decode_on`](crate::Loader::decode_on).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecodeOn {
    /// Workers decode.
    #[default]
    Cpu,
    /// The device decodes all images that it supports, as far as its buffers and
    /// [`Loader::decode_share`](crate::Loader::decode_share) permit. Workers decode the other
    /// images.
    Gpu,
    /// The device decodes the images that it supports and that the workers have no time to decode.
    Auto,
}

/// Decides for each part of a batch whether a worker or the device decodes it.
#[derive(Debug)]
pub(crate) struct Balance {
    decode_on: DecodeOn,
    /// Number of batches on the device that the consumer has not taken; 0 at the start of a run.
    batches_ahead: AtomicUsize,
    auto_state: Mutex<AutoState>,
    allowance: Option<Mutex<Allowance>>,
}

/// The state of [`DecodeOn::Auto`]. All times are in ns. Spare time works like a token bucket: it
/// accumulates as time passes, up to a limit, and each part consumes some of it. So the workers
/// together decode about as much as they have time for after copying data for the device.
#[derive(Debug)]
struct AutoState {
    workers: f64,
    /// Sequence number of the next batch that the device will take.
    next_seq: u64,
    last_batch_time: Option<Instant>,
    /// Average time between two batches that the device takes.
    batch_interval: f64,
    decode_ns: f64,
    /// Average time that a worker takes to copy a part for the device.
    copy_ns: f64,
    /// Spare time of all workers together, as of `update_time`.
    spare_ns: f64,
    update_time: Instant,
    last_decode_time: Option<Instant>,
}

impl AutoState {
    /// Usable fraction of the workers' time. The remainder is slack for other threads and delays.
    const USABLE_FRACTION: f64 = 0.9;
    /// Maximum spare time, in parts per worker: about a worker's share of a batch.
    const MAX_SPARE_PARTS: f64 = 4.0;
    /// Minimum time until the batch is needed, as a multiple of the time to decode a part. The
    /// factor exceeds 1 because the last parts of a batch start later than the first.
    const MARGIN: f64 = 2.0;
    /// If no worker has decoded a part for this time while batches on the device wait for the
    /// consumer, a worker decodes the next part, to update the average decoding time.
    const PROBE_INTERVAL: Duration = Duration::from_secs(2);

    fn new(workers: usize, now: Instant) -> Self {
        AutoState {
            workers: workers as f64,
            next_seq: 0,
            last_batch_time: None,
            batch_interval: 0.0,
            decode_ns: 0.0,
            copy_ns: 0.0,
            spare_ns: 0.0,
            update_time: now,
            last_decode_time: None,
        }
    }

    fn begin(&mut self) {
        (self.next_seq, self.last_batch_time) = (0, None);
    }

    fn record_batch(&mut self, seq: u64, now: Instant) {
        if let Some(previous) = self.last_batch_time.replace(now) {
            let interval = now.saturating_duration_since(previous).as_nanos() as f64;
            // Clamp the time, so that a pause of the program does not distort the average.
            let max_interval = if self.batch_interval > 0.0 { 4.0 * self.batch_interval } else { f64::INFINITY };
            self.batch_interval = moving_average(self.batch_interval, interval.min(max_interval));
        }
        self.next_seq = seq + 1;
    }

    fn record_part(&mut self, on_device: bool, ns: f64) {
        let mean = if on_device { &mut self.copy_ns } else { &mut self.decode_ns };
        *mean = moving_average(*mean, ns);
    }

    /// Returns whether a worker should decode a part of batch `seq`, and deducts the estimated time
    /// for the part from the spare time. `batches_ahead` is `Balance::batches_ahead`.
    fn should_worker_decode(&mut self, seq: u64, batches_ahead: usize, now: Instant) -> bool {
        let new_spare_ns =
            now.saturating_duration_since(self.update_time).as_nanos() as f64 * self.workers * Self::USABLE_FRACTION;
        self.update_time = self.update_time.max(now);
        let max_spare_ns = Self::MAX_SPARE_PARTS * self.workers * self.decode_ns.max(self.copy_ns);
        self.spare_ns = (self.spare_ns + new_spare_ns - self.copy_ns).clamp(-max_spare_ns, max_spare_ns);
        let extra_ns = (self.decode_ns - self.copy_ns).max(0.0);
        // The consumer takes the batches on the device first.
        let batches = seq.saturating_sub(self.next_seq) as f64 + batches_ahead as f64;
        let elapsed = self.last_batch_time.map_or(0, |previous| now.saturating_duration_since(previous).as_nanos());
        let remaining_ns = batches * self.batch_interval - elapsed as f64;
        let must_probe =
            self.last_decode_time.is_none_or(|time| now.saturating_duration_since(time) >= Self::PROBE_INTERVAL);
        let should_decode = batches_ahead > 0
            && (must_probe || (remaining_ns > Self::MARGIN * self.decode_ns && self.spare_ns >= extra_ns));
        if should_decode {
            self.spare_ns -= extra_ns;
            self.last_decode_time = Some(now);
        }
        should_decode
    }
}

/// Updates a moving average. An average of 0 means that there is no value yet.
fn moving_average(mean: f64, value: f64) -> f64 {
    if mean > 0.0 { mean + (value - mean) / 8.0 } else { value }
}

/// Token bucket for device decoding. Passing time fills the bucket, and reported decoding time
/// empties it.
#[derive(Debug)]
struct Allowance {
    /// Maximum fraction of the device's time for decoding, less than 1.
    max_share: f64,
    /// Decoding time that is left, in ns, as of `update_time`.
    budget_ns: f64,
    update_time: Instant,
    /// Total decoding time in ns, as of `update_time`.
    spent_ns: u64,
}

impl Allowance {
    /// Maximum time for which the budget grows, so that only a short burst of decoding follows a
    /// pause.
    const MAX_GROWTH: Duration = Duration::from_millis(250);

    /// Returns whether the device has decoding time left. `device_time` is the total decoding time
    /// so far, in ns.
    fn has_budget(&mut self, now: Instant, device_time: u64) -> bool {
        let new_budget_ns = now.saturating_duration_since(self.update_time).as_nanos() as f64 * self.max_share;
        self.budget_ns += new_budget_ns - device_time.saturating_sub(self.spent_ns) as f64;
        self.budget_ns = self.budget_ns.min(Self::MAX_GROWTH.as_nanos() as f64 * self.max_share);
        // Workers may report out of order, and no time may be counted twice.
        (self.update_time, self.spent_ns) = (self.update_time.max(now), self.spent_ns.max(device_time));
        self.budget_ns > 0.0
    }
}

impl Balance {
    /// `max_share` is the maximum fraction of device time for decoding, from 0 to 1.
    pub(crate) fn new(decode_on: DecodeOn, max_share: f64, workers: usize) -> Self {
        let now = Instant::now();
        let allowance = Allowance { max_share, budget_ns: 0.0, update_time: now, spent_ns: 0 };
        Balance {
            decode_on,
            batches_ahead: AtomicUsize::new(0),
            auto_state: Mutex::new(AutoState::new(workers, now)),
            allowance: (max_share < 1.0).then(|| Mutex::new(allowance)),
        }
    }

    fn auto_state(&self) -> MutexGuard<'_, AutoState> {
        self.auto_state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current time if parts are timed. Call this before locking `auto_state`, so that
    /// waiting for the lock does not shift the timestamp.
    pub(crate) fn clock(&self) -> Option<Instant> {
        (self.decode_on == DecodeOn::Auto).then(Instant::now)
    }

    pub(crate) fn begin(&self) {
        if self.decode_on == DecodeOn::Auto {
            self.set_batches_ahead(0);
            self.auto_state().begin();
        }
    }

    pub(crate) fn record_batch(&self, seq: u64) {
        if let Some(now) = self.clock() {
            self.auto_state().record_batch(seq, now);
        }
    }

    /// Records that a worker has finished a part. `start` is the value of [`clock`](Balance::clock)
    /// at its start, and `on_device` is the result of
    /// [`should_device_decode`](Balance::should_device_decode).
    pub(crate) fn record_part(&self, on_device: bool, start: Option<Instant>) {
        if let Some(start) = start {
            let ns = start.elapsed().as_nanos() as f64;
            self.auto_state().record_part(on_device, ns);
        }
    }

    /// Returns the average times in which a worker decodes a part and copies a part, in ns.
    #[cfg(all(test, feature = "_device"))]
    pub(crate) fn mean_part_times(&self) -> [f64; 2] {
        let auto_state = self.auto_state();
        [auto_state.decode_ns, auto_state.copy_ns]
    }

    /// Sets the number of batches on the device that the consumer has not taken. Called each time
    /// the device takes a batch, which itself does not count. The number is not updated when the
    /// consumer takes a batch.
    pub(crate) fn set_batches_ahead(&self, batches: usize) {
        self.batches_ahead.store(batches, Ordering::Relaxed);
    }

    /// Returns whether the device should decode the next part, which belongs to batch `seq`.
    /// `device_time` is the device's total decoding time so far, in ns.
    pub(crate) fn should_device_decode(&self, seq: u64, device_time: u64) -> bool {
        let may_decode = match self.decode_on {
            DecodeOn::Cpu => false,
            DecodeOn::Gpu => true,
            DecodeOn::Auto => {
                let (batches_ahead, now) = (self.batches_ahead.load(Ordering::Relaxed), Instant::now());
                !self.auto_state().should_worker_decode(seq, batches_ahead, now)
            }
        };
        may_decode && self.is_allowed(device_time)
    }

    /// Returns whether the device may decode the very large images of a part that a worker decodes.
    /// On the worker, a single such image would delay its batch.
    pub(crate) fn may_device_decode_large(&self, device_time: u64) -> bool {
        self.decode_on == DecodeOn::Auto && self.is_allowed(device_time)
    }

    fn is_allowed(&self, device_time: u64) -> bool {
        self.allowance.as_ref().is_none_or(|allowance| {
            let now = Instant::now();
            let mut allowance = allowance.lock().unwrap_or_else(PoisonError::into_inner);
            allowance.has_budget(now, device_time)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, VecDeque};

    use super::*;

    #[test]
    fn decoding_stays_within_its_share_of_device_time() {
        let mut now = Instant::now();
        let mut allowance = Allowance { max_share: 0.05, budget_ns: 0.0, update_time: now, spent_ns: 0 };
        // A batch per ms takes 2 ms of device time, which the device reports after 7 ms.
        let (mut reported_time, mut reports, mut device_time) = (0, std::collections::VecDeque::new(), 0);
        for ms in 0..10_000 {
            now += Duration::from_millis(1);
            while reports.front().is_some_and(|&report_time| report_time <= ms) {
                reports.pop_front();
                reported_time += 2_000_000;
            }
            if allowance.has_budget(now, reported_time) {
                reports.push_back(ms + 7);
                device_time += 2_000_000_u64;
            }
        }
        let share = device_time as f64 / 10e9;
        assert!((0.045..0.055).contains(&share), "{share}");
        // Decoding does not catch up after a pause.
        now += Duration::from_secs(3600);
        assert!(allowance.has_budget(now, reported_time));
        assert!(!allowance.has_budget(now, reported_time + 20_000_000), "the budget of 250 ms is 12.5 ms");
        let budget_before = allowance.budget_ns;
        allowance.has_budget(now, reported_time);
        allowance.has_budget(now, reported_time + 20_000_000);
        assert_eq!(allowance.budget_ns, budget_before);
    }

    #[test]
    fn without_a_limit_decode_on_decides() {
        assert!(Balance::new(DecodeOn::Gpu, 1.0, 2).should_device_decode(0, u64::MAX));
        assert!(!Balance::new(DecodeOn::Cpu, 1.0, 2).should_device_decode(0, 0));
        let auto = Balance::new(DecodeOn::Auto, 1.0, 2);
        assert!(auto.should_device_decode(0, 0));
        auto.set_batches_ahead(2);
        assert!(!auto.should_device_decode(0, 0), "no worker has been measured yet");
        assert!(auto.should_device_decode(0, 0), "the batch is needed immediately");
        let takes_large = |decode_on, share| Balance::new(decode_on, share, 2).may_device_decode_large(0);
        assert!(takes_large(DecodeOn::Auto, 1.0) && !takes_large(DecodeOn::Auto, 0.0));
        assert!(!takes_large(DecodeOn::Cpu, 1.0), "workers decode everything");
        assert!(
            !Balance::new(DecodeOn::Gpu, 0.0, 2).should_device_decode(0, 0),
            "with a share of 0, the device decodes nothing"
        );
    }

    /// A simulated machine. Times are in µs.
    #[derive(Clone, Copy)]
    struct Machine {
        workers: usize,
        /// Time to decode a batch on the device.
        decode_us: u64,
        /// Time to convert a batch on the device.
        convert_us: u64,
        step_us: u64,
        slots: u64,
    }

    const PARTS_PER_BATCH: u64 = 32;
    const DECODE_US: u64 = 4500;
    const COPY_US: u64 = 300;
    const DEVICE_SLOTS: u64 = 3;

    struct Simulation {
        rate: f64,
        on_device: f64,
    }

    /// Simulates `batches` batches. `rule` decides where each part is decoded. The consumer
    /// queues its steps without waiting for the device. It therefore returns a device slot before
    /// the step that reads it has run, and the next upload to that slot waits for the step.
    fn simulate(machine: Machine, batches: u64, rule: &mut dyn Rule) -> Simulation {
        let Machine { workers, decode_us, convert_us, step_us, slots } = machine;
        // For each worker: the time at which it finishes its current part, the batch of the part,
        // and whether the device decodes the part. `None` if the worker is idle.
        let mut worker_tasks: Vec<Option<(u64, u64, bool)>> = vec![None; workers];
        let mut queue = VecDeque::new();
        let (mut begun_batches, mut free_slots) = (0, slots);
        // For each batch: the number of remaining parts, and of parts that the device decodes.
        let mut parts = HashMap::<u64, (u64, u64)>::new();
        // Batches on the device that the consumer has not taken: when each is ready, and whether it
        // still occupies a host slot.
        let mut ring = VecDeque::<(u64, bool)>::new();
        // The batch that waits for a device slot, and the end of the step of each batch.
        let (mut waiting, mut step_ends) = (None, Vec::<u64>::new());
        let (mut taken_batches, mut sent_batches, mut batches_ahead, mut device_free, mut on_device) = (0, 0, 0, 0, 0);
        let mut now = 0;
        while (step_ends.len() as u64) < batches || step_ends.last().is_some_and(|end| *end > now) {
            // A host slot is free again once the device has decoded its batch.
            for (ready, host) in ring.iter_mut().filter(|(ready, host)| *ready <= now && *host) {
                let _ = ready;
                (*host, free_slots) = (false, free_slots + 1);
            }
            if (step_ends.len() as u64) < batches && ring.front().is_some_and(|(ready, host)| *ready <= now && !host) {
                ring.pop_front();
                step_ends.push(step_ends.last().map_or(now, |end| now.max(*end)) + step_us);
            }
            if waiting.is_none() && parts.get(&taken_batches).is_some_and(|(parts_left, _)| *parts_left == 0) {
                waiting = parts.remove(&taken_batches).map(|(_, device)| device);
                rule.record_batch(taken_batches, now);
                (taken_batches, batches_ahead) = (taken_batches + 1, ring.len());
            }
            // The consumer has freed all batches that it has taken, except for the last one.
            let full = sent_batches - (step_ends.len() as u64).saturating_sub(1) >= DEVICE_SLOTS;
            if let Some(device) = waiting
                && !full
            {
                let used_until = sent_batches.checked_sub(DEVICE_SLOTS).map_or(0, |before| step_ends[before as usize]);
                device_free = device_free.max(now).max(used_until) + decode_us * device / PARTS_PER_BATCH + convert_us;
                ring.push_back((device_free, true));
                (waiting, sent_batches) = (None, sent_batches + 1);
            }
            while free_slots > 0 {
                free_slots -= 1;
                parts.insert(begun_batches, (PARTS_PER_BATCH, 0));
                queue.extend(std::iter::repeat_n(begun_batches, PARTS_PER_BATCH as usize));
                begun_batches += 1;
            }
            for worker in &mut worker_tasks {
                if let Some((end, seq, device)) = *worker
                    && end <= now
                {
                    let (parts_left, of_device) = parts.get_mut(&seq).unwrap();
                    (*parts_left, *of_device) = (*parts_left - 1, *of_device + u64::from(device));
                    rule.record_part(device, if device { COPY_US } else { DECODE_US });
                    *worker = None;
                }
                if worker.is_none()
                    && let Some(seq) = queue.pop_front()
                {
                    let device = !rule.should_worker_decode(seq, batches_ahead, now);
                    on_device += u64::from(device);
                    *worker = Some((now + if device { COPY_US } else { DECODE_US }, seq, device));
                }
            }
            now += 20;
        }
        Simulation {
            rate: batches as f64 * 1e6 / now as f64,
            on_device: on_device as f64 / (begun_batches * PARTS_PER_BATCH) as f64,
        }
    }

    trait Rule {
        fn should_worker_decode(&mut self, seq: u64, batches_ahead: usize, us: u64) -> bool;
        fn record_batch(&mut self, _turn: u64, _us: u64) {}
        fn record_part(&mut self, _on_device: bool, _us: u64) {}
    }

    struct Always(bool);

    impl Rule for Always {
        fn should_worker_decode(&mut self, _: u64, _: usize, _: u64) -> bool {
            self.0
        }
    }

    /// Workers decode whenever batches on the device are waiting for the consumer.
    struct WhileBatchesAhead;

    impl Rule for WhileBatchesAhead {
        fn should_worker_decode(&mut self, _: u64, batches_ahead: usize, _: u64) -> bool {
            batches_ahead > 0
        }
    }

    struct Auto(AutoState, Instant);

    impl Rule for Auto {
        fn should_worker_decode(&mut self, seq: u64, batches_ahead: usize, us: u64) -> bool {
            self.0.should_worker_decode(seq, batches_ahead, self.1 + Duration::from_micros(us))
        }
        fn record_batch(&mut self, seq: u64, us: u64) {
            self.0.record_batch(seq, self.1 + Duration::from_micros(us));
        }
        fn record_part(&mut self, on_device: bool, us: u64) {
            self.0.record_part(on_device, 1e3 * us as f64);
        }
    }

    const PHOTOGRAPHS: Machine = Machine { workers: 16, decode_us: 850, convert_us: 150, step_us: 0, slots: 18 };

    fn simulate_auto(machine: Machine, batches: u64) -> Simulation {
        let now = Instant::now();
        simulate(machine, batches, &mut Auto(AutoState::new(machine.workers, now), now))
    }

    #[test]
    fn auto_is_as_fast_as_the_faster_of_workers_and_device() {
        for slots in [4, 8, 18] {
            for workers in [1, 2, 4, 8, 16, 32] {
                let machine = Machine { workers, slots, ..PHOTOGRAPHS };
                let cpu = simulate(machine, 20, &mut Always(true)).rate;
                let gpu = simulate(machine, 200, &mut Always(false)).rate;
                let rate = simulate_auto(machine, 200).rate;
                assert!(
                    rate > 0.97 * cpu.max(gpu),
                    "{workers} workers, {slots} slots: {rate}, with workers only {cpu}, with the device only {gpu}"
                );
            }
        }
        // The simulation reproduces an observation on a real device: the simpler rule is slower
        // than the device alone.
        let simple = simulate(PHOTOGRAPHS, 400, &mut WhileBatchesAhead).rate;
        let gpu = simulate(PHOTOGRAPHS, 400, &mut Always(false)).rate;
        assert!(simple < 0.92 * gpu, "{simple} with the simpler rule, {gpu} with the device only");
    }

    #[test]
    fn workers_decode_during_slow_steps() {
        // With four host slots, the device has taken every batch except the one that workers fill.
        for slots in [4, 18] {
            for (workers, max_share) in [(1, 1.0), (4, 0.65), (8, 0.15), (16, 0.15)] {
                let machine = Machine { workers, slots, step_us: 20_000, ..PHOTOGRAPHS };
                let Simulation { rate, on_device } = simulate_auto(machine, 200);
                let gpu = simulate(machine, 200, &mut Always(false)).rate;
                assert!(
                    rate > 0.97 * gpu && on_device <= max_share,
                    "{workers} workers, {slots} slots: {rate}, with the device only {gpu}, \
                     decoded on the device: {on_device}"
                );
            }
        }
    }
}
