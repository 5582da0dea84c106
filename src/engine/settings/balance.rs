use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where JPEGs of device batches are decoded. The pixels are the same, bit for bit.
///
/// A worker hands the device the compressed bytes that a crop needs. The device decodes, crops and
/// resizes them. So a sample costs a worker about a tenth of the time, and the device some
/// microseconds. See [`Loader::decode_on`](crate::Loader::decode_on).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecodeOn {
    /// On the workers.
    #[default]
    Cpu,
    /// On the device, if it can decode the image.
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
    pace: Mutex<Pace>,
    /// Device time that decoding may take, if it is limited.
    allowance: Option<Mutex<Allowance>>,
}

/// The time that workers have for decoding, with [`DecodeOn::Auto`]. All times are in ns.
///
/// A worker may decode a part if the part's batch is needed later than the worker is done, and if
/// the workers have time to spare. The time to spare grows with the clock, and shrinks by the time
/// of each part. So workers that copy for the device at the rate of the device decode in the rest
/// of their time, and never all of them at once.
#[derive(Debug)]
struct Pace {
    workers: f64,
    /// Number of the next batch of the run that the device takes, when it took the one before, and
    /// the average time between two.
    next: u64,
    taken: Option<Instant>,
    between: f64,
    /// Average times of a part that a worker decodes, and of one that it copies for the device.
    decoding: f64,
    copying: f64,
    /// Time to spare, as of `at`.
    spare: f64,
    at: Instant,
    /// When a worker last decoded a part.
    decoded: Option<Instant>,
}

impl Pace {
    /// Share of the workers' time that may be planned. The rest is for other threads and for
    /// delays.
    const USED: f64 = 0.9;
    /// Number of parts of each worker for which time may accumulate.
    const MOST: f64 = 2.0;
    /// Interval at which a worker decodes a part in any case, so that its time stays known.
    const PROBE: Duration = Duration::from_secs(2);

    fn new(workers: usize, now: Instant) -> Self {
        Pace {
            workers: workers as f64,
            next: 0,
            taken: None,
            between: 0.0,
            decoding: 0.0,
            copying: 0.0,
            spare: 0.0,
            at: now,
            decoded: None,
        }
    }

    /// Notes that a run begins.
    fn begin(&mut self) {
        (self.next, self.taken) = (0, None);
    }

    /// Notes that the device took batch `turn` of the run.
    fn took(&mut self, turn: u64, now: Instant) {
        if let Some(before) = self.taken.replace(now) {
            let between = now.saturating_duration_since(before).as_nanos() as f64;
            // A pause of the program says nothing about its pace.
            let most = if self.between > 0.0 { 4.0 * self.between } else { f64::INFINITY };
            self.between = average(self.between, between.min(most));
        }
        self.next = turn + 1;
    }

    /// Notes that a worker needed `ns` for a part.
    fn worked(&mut self, on_device: bool, ns: f64) {
        let known = if on_device { &mut self.copying } else { &mut self.decoding };
        *known = average(*known, ns);
    }

    /// Whether a worker should decode a part of batch `turn`. Counts the time of the part in both
    /// cases.
    fn worker_decodes(&mut self, turn: u64, supplied: bool, now: Instant) -> bool {
        let grown = now.saturating_duration_since(self.at).as_nanos() as f64 * self.workers * Self::USED;
        self.at = self.at.max(now);
        let most = Self::MOST * self.workers * self.decoding.max(self.copying);
        self.spare = (self.spare + grown - self.copying).clamp(-most, most);
        let more = (self.decoding - self.copying).max(0.0);
        // The device holds batches too, so this is the least time.
        let left = turn.saturating_sub(self.next) as f64 * self.between;
        let due = self.decoded.is_none_or(|last| now.saturating_duration_since(last) >= Self::PROBE);
        let decodes = supplied && (due || (left > self.decoding && self.spare >= more));
        if decodes {
            self.spare -= more;
            self.decoded = Some(now);
        }
        decodes
    }
}

/// The moving average `known`, or 0 if nothing is known, with one more value.
fn average(known: f64, value: f64) -> f64 {
    if known > 0.0 { known + (value - known) / 8.0 } else { value }
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
        (self.at, self.taken) = (self.at.max(now), self.taken.max(taken));
        self.left > 0.0
    }
}

impl Balance {
    /// `share` is the maximum share of device time for decoding, from 0 to 1.
    pub(crate) fn new(on: DecodeOn, share: f64, workers: usize) -> Self {
        let now = Instant::now();
        let allowance = Allowance { share, left: 0.0, at: now, taken: 0 };
        Balance {
            on,
            supplied: AtomicBool::new(false),
            pace: Mutex::new(Pace::new(workers, now)),
            allowance: (share < 1.0).then(|| Mutex::new(allowance)),
        }
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time, if the pace is measured. Locks are taken after it, so that waiting for them is not
    /// measured.
    pub(crate) fn clock(&self) -> Option<Instant> {
        (self.on == DecodeOn::Auto).then(Instant::now)
    }

    /// Notes that a run begins.
    pub(crate) fn begin(&self) {
        if self.on == DecodeOn::Auto {
            self.pace().begin();
        }
    }

    /// Notes that the consumer, or the device, took batch `turn` of the run.
    pub(crate) fn took(&self, turn: u64) {
        if let Some(now) = self.clock() {
            self.pace().took(turn, now);
        }
    }

    /// Notes that a worker has finished a part that it began at `since`, a time of the
    /// [`clock`](Balance::clock). `on_device` is what [`device_now`](Balance::device_now) returned
    /// for the part.
    pub(crate) fn worked(&self, on_device: bool, since: Option<Instant>) {
        if let Some(since) = since {
            let ns = since.elapsed().as_nanos() as f64;
            self.pace().worked(on_device, ns);
        }
    }

    /// Average times of a part that a worker decodes, and of one that it copies for the device.
    #[cfg(all(test, feature = "_device"))]
    pub(crate) fn times(&self) -> [f64; 2] {
        let pace = self.pace();
        [pace.decoding, pace.copying]
    }

    /// Reports whether every batch slot of the device is filled.
    pub(crate) fn supplied(&self, supplied: bool) {
        self.supplied.store(supplied, Ordering::Relaxed);
    }

    /// Whether the device decodes the next part, which belongs to batch `turn` of the run. `taken`
    /// is the device time in ns that decoding has taken so far.
    pub(crate) fn device_now(&self, turn: u64, taken: u64) -> bool {
        let wanted = match self.on {
            DecodeOn::Cpu => false,
            DecodeOn::Gpu => true,
            // If the device is supplied, either the consumer is slower and needs the device, or the
            // device is decoding as fast as it can.
            DecodeOn::Auto => {
                let (supplied, now) = (self.supplied.load(Ordering::Relaxed), Instant::now());
                !self.pace().worker_decodes(turn, supplied, now)
            }
        };
        let allowed = |allowance: &Mutex<Allowance>| {
            let now = Instant::now();
            let mut allowance = allowance.lock().unwrap_or_else(PoisonError::into_inner);
            allowance.is_left(now, taken)
        };
        wanted && self.allowance.as_ref().is_none_or(allowed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, VecDeque};

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
        assert!(Balance::new(DecodeOn::Gpu, 1.0, 2).device_now(0, u64::MAX));
        assert!(!Balance::new(DecodeOn::Cpu, 1.0, 2).device_now(0, 0));
        let auto = Balance::new(DecodeOn::Auto, 1.0, 2);
        assert!(auto.device_now(0, 0));
        auto.supplied(true);
        assert!(!auto.device_now(0, 0), "the time of a worker is not known yet");
        assert!(auto.device_now(0, 0), "the batch is needed at once");
        assert!(!Balance::new(DecodeOn::Gpu, 0.0, 2).device_now(0, 0), "a share of zero decodes nothing on the device");
    }

    /// A machine on which batches are made. Times are in us.
    #[derive(Clone, Copy)]
    struct Machine {
        workers: usize,
        /// The device's time to decode a batch, and to convert it.
        decodes: u64,
        converts: u64,
        /// The consumer's step.
        step: u64,
        /// Batches in host memory and on the device.
        slots: u64,
    }

    const PARTS: u64 = 32;
    const DECODING: u64 = 4500;
    const COPYING: u64 = 300;
    const DEVICE_SLOTS: u64 = 3;

    /// Outcome of a run: batches in a second, and the share of parts that the device decoded.
    struct Outcome {
        rate: f64,
        on_device: f64,
    }

    /// Runs the machine for `batches` batches. `decodes(turn, supplied, us)` chooses the workers
    /// for a part, and `took` and `worked` report batches that the device takes and parts.
    fn run(machine: Machine, batches: u64, choose: &mut dyn Choice) -> Outcome {
        let Machine { workers, decodes, converts, step, slots } = machine;
        // Workers are busy until then, with a part of a batch; `None` if they wait.
        let mut busy: Vec<Option<(u64, u64, bool)>> = vec![None; workers];
        let mut queue = VecDeque::new();
        let (mut begun, mut free) = (0, slots);
        // For each batch: parts that are left, and parts that the device decodes.
        let mut parts = HashMap::<u64, (u64, u64)>::new();
        // Batches on the device, with the time when each is ready.
        let mut ring = VecDeque::<(u64, bool)>::new();
        let (mut taken, mut device_free, mut consumer_free, mut on_device) = (0, 0, 0, 0);
        let (mut delivered, mut now, mut steps) = (0, 0, VecDeque::<u64>::new());
        while delivered < batches {
            // Host slots return when the device has decoded.
            for (ready, host) in ring.iter_mut().filter(|(ready, host)| *ready <= now && *host) {
                let _ = ready;
                (*host, free) = (false, free + 1);
            }
            // The consumer takes a batch that is ready once its step is over, and then keeps it for
            // a step.
            if consumer_free <= now && ring.front().is_some_and(|(ready, host)| *ready <= now && !host) {
                ring.pop_front();
                delivered += 1;
                consumer_free = now + step;
                steps.push_back(consumer_free);
            }
            while steps.front().is_some_and(|end| *end <= now) {
                steps.pop_front();
            }
            let full = ring.len() as u64 + steps.len() as u64 >= DEVICE_SLOTS;
            let whole = parts.get(&taken).is_some_and(|(left, _)| *left == 0);
            let supplied = full && whole;
            if whole && !full {
                let (_, device) = parts.remove(&taken).unwrap();
                device_free = device_free.max(now) + decodes * device / PARTS + converts;
                ring.push_back((device_free, true));
                choose.took(taken, now);
                taken += 1;
            }
            while free > 0 {
                free -= 1;
                parts.insert(begun, (PARTS, 0));
                queue.extend(std::iter::repeat_n(begun, PARTS as usize));
                begun += 1;
            }
            for worker in &mut busy {
                if let Some((end, turn, device)) = *worker
                    && end <= now
                {
                    let (left, of_device) = parts.get_mut(&turn).unwrap();
                    (*left, *of_device) = (*left - 1, *of_device + u64::from(device));
                    choose.worked(device, if device { COPYING } else { DECODING });
                    *worker = None;
                }
                if worker.is_none()
                    && let Some(turn) = queue.pop_front()
                {
                    let device = !choose.worker_decodes(turn, supplied, now);
                    on_device += u64::from(device);
                    *worker = Some((now + if device { COPYING } else { DECODING }, turn, device));
                }
            }
            now += 20;
        }
        Outcome { rate: delivered as f64 * 1e6 / now as f64, on_device: on_device as f64 / (begun * PARTS) as f64 }
    }

    /// Chooses where parts are decoded.
    trait Choice {
        fn worker_decodes(&mut self, turn: u64, supplied: bool, us: u64) -> bool;
        fn took(&mut self, _turn: u64, _us: u64) {}
        fn worked(&mut self, _on_device: bool, _us: u64) {}
    }

    struct Always(bool);

    impl Choice for Always {
        fn worker_decodes(&mut self, _: u64, _: bool, _: u64) -> bool {
            self.0
        }
    }

    /// The rule without times: workers decode while the device is supplied.
    struct WhileSupplied;

    impl Choice for WhileSupplied {
        fn worker_decodes(&mut self, _: u64, supplied: bool, _: u64) -> bool {
            supplied
        }
    }

    struct Paced(Pace, Instant);

    impl Choice for Paced {
        fn worker_decodes(&mut self, turn: u64, supplied: bool, us: u64) -> bool {
            self.0.worker_decodes(turn, supplied, self.1 + Duration::from_micros(us))
        }
        fn took(&mut self, turn: u64, us: u64) {
            self.0.took(turn, self.1 + Duration::from_micros(us));
        }
        fn worked(&mut self, on_device: bool, us: u64) {
            self.0.worked(on_device, 1e3 * us as f64);
        }
    }

    const PHOTOGRAPHS: Machine = Machine { workers: 16, decodes: 850, converts: 150, step: 0, slots: 18 };

    fn paced(machine: Machine, batches: u64) -> Outcome {
        let now = Instant::now();
        run(machine, batches, &mut Paced(Pace::new(machine.workers, now), now))
    }

    #[test]
    fn alone_workers_and_device_are_as_fast_as_the_faster_of_them() {
        for slots in [4, 8, 18] {
            for workers in [1, 2, 4, 8, 16, 32] {
                let machine = Machine { workers, slots, ..PHOTOGRAPHS };
                let cpu = run(machine, 20, &mut Always(true)).rate;
                let gpu = run(machine, 200, &mut Always(false)).rate;
                let rate = paced(machine, 200).rate;
                assert!(rate > 0.97 * cpu.max(gpu), "{workers} workers, {slots} slots: {rate} of {cpu} and {gpu}");
            }
        }
        // The simulation shows something only if the simpler rule loses what it lost on a device.
        let simple = run(PHOTOGRAPHS, 400, &mut WhileSupplied).rate;
        let gpu = run(PHOTOGRAPHS, 400, &mut Always(false)).rate;
        assert!(simple < 0.92 * gpu, "{simple} of {gpu}");
    }

    #[test]
    fn a_device_that_slower_steps_need_is_spared_as_far_as_workers_are_fast_enough() {
        for (workers, most) in [(1, 1.0), (4, 0.65), (8, 0.15), (16, 0.15)] {
            let machine = Machine { workers, step: 20_000, ..PHOTOGRAPHS };
            let Outcome { rate, on_device } = paced(machine, 200);
            let gpu = run(machine, 200, &mut Always(false)).rate;
            assert!(rate > 0.97 * gpu && on_device <= most, "{workers} workers: {rate} of {gpu}, {on_device}");
        }
    }
}
