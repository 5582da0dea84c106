//! [`CongestionControl`]: determines how many requests to keep in flight, roughly the smallest
//! number that saturates the link. Callers pass in all timestamps, so tests do not need a clock.
//!
//! The search uses hill climbing. A trial uses more or fewer requests, and compares the resulting
//! rate with the best rate so far. Fewer requests are tried because the initial number may be too
//! high: requests beyond the bandwidth-delay product queue up in a router's buffer. When this
//! buffer overflows, lost bytes are retransmitted seconds later, and the loader waits for the
//! sample to which they belong.
//!
//! Each request has a **weight**, because a large request fills the link like several small ones.
//! The **window** is the total weight that may be in flight. A **round** ends when the weight of
//! the responses since its start has reached the window, which takes about one round trip.
//!
//! At first, the window is just large enough for the first batch, and grows with each response
//! (**ramp**). With the initial window of the search, the first batch would share the link with
//! samples that are needed much later.

use std::time::Duration;

/// Number of bytes in a request of weight 1.
const BYTES_PER_WEIGHT: u64 = 256 << 10;
/// Weight that may be in flight after the ramp. A first batch of 256 samples of up to 256 KiB then
/// takes two round trips.
const INITIAL_WINDOW: f64 = 128.0;
const MIN_FIRST_WINDOW: f64 = 8.0;
/// Weight that each response adds to the window during the ramp. If the first batch has few
/// samples, the window reaches [`INITIAL_WINDOW`] two or three round trips after the first
/// response.
const RAMP_STEP: f64 = 4.0;
const MIN_WINDOW: f64 = 16.0;
/// No further request is sent once this weight is in flight, which corresponds to 512 MiB.
const MAX_WINDOW: f64 = 2048.0;
/// Maximum number of requests in flight. With HTTP/1, each request needs a connection, and many
/// systems limit a process to 1,024 open files.
const MAX_REQUESTS: usize = 512;
/// Factor by which a trial raises or lowers the window.
const STEP: f64 = 1.4;
/// Factor by which the first trial after the longest pause raises the window. After so many failed
/// trials, the link is probably saturated.
const SMALL_STEP: f64 = 1.2;
/// A trial with more requests succeeds if the rate is at least this multiple of the best rate.
const FASTER_RATIO: f64 = 1.08;
/// A trial with fewer requests succeeds if the rate is at least this fraction of the best rate.
const AS_FAST_RATIO: f64 = 0.97;
/// After a successful trial, the window is raised again only if the rate grew by at least this
/// fraction of the window's growth. Otherwise, the link is saturated.
const MIN_SCALING: f64 = 0.6;
/// Number of warm-up rounds before a trial measures the rate. On a new connection, the first three
/// responses are slow, because each takes several round trips.
const WARM_UP_ROUNDS: u32 = 8;
/// Number of warm-up rounds of a trial with fewer requests, which opens no new connections.
const WARM_UP_ROUNDS_FEWER: u32 = 3;
const MEASURED_ROUNDS: u32 = 2;
/// Number of rounds between the last trial with more requests and a trial with fewer. The rate over
/// the second half of these rounds becomes the new best rate.
const SHORT_PAUSE_ROUNDS: u32 = 16;
/// Initial and minimum number of rounds before a trial with more requests is repeated. Each failed
/// trial with more requests doubles this pause. The pause is short at first, because a trial that
/// opens connections may fail by chance.
const MIN_PAUSE_ROUNDS: u32 = 8;
const MAX_PAUSE_ROUNDS: u32 = 128;
const MIN_RESPONSES: u32 = 8;
/// Maximum time between the first refusal and later refusals of the same overload.
const OVERLOAD_DURATION: Duration = Duration::from_secs(1);
const MAX_LATENCIES: usize = 256;
/// Number of latencies that must be known before a request can be late.
const MIN_LATENCIES: usize = 32;
/// Maximum fraction of requests that are hedged: sent again because the first attempt is late.
const MAX_HEDGED_RATIO: f64 = 0.05;
/// A request is late after this multiple of the 95th percentile of the latencies, but not before
/// [`MIN_LATE_AFTER`].
const LATE_FACTOR: f64 = 2.0;
const MIN_LATE_AFTER: Duration = Duration::from_millis(50);

pub(super) fn weight(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(BYTES_PER_WEIGHT)).unwrap_or(usize::MAX).max(1)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    First,
    More,
    Fewer,
    /// Waits before the next trial, which may succeed if the network has changed. That trial uses
    /// more requests if `try_more` is true, and fewer if not.
    Pause {
        try_more: bool,
    },
}

impl Trial {
    /// Returns the numbers of warm-up rounds and of all rounds.
    fn rounds(self, pause_rounds: u32) -> (u32, u32) {
        match self {
            Trial::Pause { try_more: false } => (SHORT_PAUSE_ROUNDS / 2, SHORT_PAUSE_ROUNDS),
            Trial::Pause { try_more: true } => (pause_rounds / 2, pause_rounds),
            Trial::Fewer => (WARM_UP_ROUNDS_FEWER, WARM_UP_ROUNDS_FEWER + MEASURED_ROUNDS),
            Trial::First | Trial::More => (WARM_UP_ROUNDS, WARM_UP_ROUNDS + MEASURED_ROUNDS),
        }
    }
}

#[derive(Default)]
struct Responses {
    count: u32,
    /// Number of responses that arrived while more requests were queued.
    saturated_count: u32,
    weight: f64,
    /// The weight in flight when a response arrived, summed over the responses.
    in_flight_weight: f64,
    /// The weight of a response times its latency in seconds, summed over the responses.
    weighted_latency: f64,
}

impl Responses {
    fn add(&mut self, other: &Responses) {
        self.count += other.count;
        self.saturated_count += other.saturated_count;
        self.weight += other.weight;
        self.in_flight_weight += other.in_flight_weight;
        self.weighted_latency += other.weighted_latency;
    }

    /// Returns the weight per second by Little's law: the mean weight in flight divided by the mean
    /// latency. A count of responses would depend on when counting starts, because responses arrive
    /// in bursts at first.
    fn rate(&self) -> f64 {
        self.in_flight_weight / f64::from(self.count.max(1)) * self.weight / self.weighted_latency.max(1e-6)
    }
}

pub(super) struct CongestionControl {
    window: f64,
    best_window: f64,
    best_rate: f64,
    trial: Trial,
    pause_rounds: u32,
    rounds: u32,
    measured_responses: Responses,
    round_responses: Responses,
    /// Start of the last overload. After the first overload, there are no more trials, and the
    /// window grows slowly.
    last_overload: Option<Duration>,
    /// The last latencies, in seconds.
    latencies: Vec<f64>,
    next_latency_index: usize,
    sent: u64,
    hedges: u64,
}

impl CongestionControl {
    pub(super) fn new() -> Self {
        CongestionControl {
            window: INITIAL_WINDOW,
            best_window: INITIAL_WINDOW,
            best_rate: 0.0,
            trial: Trial::First,
            pause_rounds: MIN_PAUSE_ROUNDS,
            rounds: 0,
            measured_responses: Responses::default(),
            round_responses: Responses::default(),
            last_overload: None,
            latencies: Vec::new(),
            next_latency_index: 0,
            sent: 0,
            hedges: 0,
        }
    }

    /// Starts the ramp, unless requests have been sent before. `first_batch_weight` returns the
    /// total weight of the requests for the first batch.
    pub(super) fn start_ramp(&mut self, first_batch_weight: impl FnOnce() -> usize) {
        if self.sent == 0 {
            self.window = (first_batch_weight() as f64).clamp(MIN_FIRST_WINDOW, INITIAL_WINDOW);
        }
    }

    fn is_ramping(&self) -> bool {
        self.trial == Trial::First && self.window < self.best_window && self.last_overload.is_none()
    }

    pub(super) fn may_send(&self, requests: usize, weight: usize) -> bool {
        requests == 0 || requests < MAX_REQUESTS && weight < self.window as usize
    }

    pub(super) fn record_request(&mut self) {
        self.sent += 1;
    }

    /// Records a response. `in_flight_weight` is the total weight in flight before the response,
    /// and `is_saturated` is true if further requests were waiting to be sent.
    pub(super) fn record_response(
        &mut self,
        latency: Duration,
        bytes: u64,
        in_flight_weight: usize,
        is_saturated: bool,
    ) {
        if self.latencies.len() < MAX_LATENCIES {
            self.latencies.push(latency.as_secs_f64());
        } else {
            self.latencies[self.next_latency_index] = latency.as_secs_f64();
        }
        self.next_latency_index = (self.next_latency_index + 1) % MAX_LATENCIES;
        if self.is_ramping() {
            self.window = (self.window + RAMP_STEP).min(self.best_window);
            return;
        }
        let weight = weight(bytes) as f64;
        // A few very late responses to requests from an earlier window must not dominate the sum.
        let capped_latency = self.late_threshold().map_or(latency, |late_threshold| latency.min(late_threshold));
        let (in_flight_weight, weighted_latency) = (in_flight_weight as f64, weight * capped_latency.as_secs_f64());
        self.round_responses.add(&Responses {
            count: 1,
            saturated_count: u32::from(is_saturated),
            weight,
            in_flight_weight,
            weighted_latency,
        });
        if self.round_responses.weight < self.window || self.round_responses.count < MIN_RESPONSES {
            return;
        }
        let round_responses = std::mem::take(&mut self.round_responses);
        if 10 * round_responses.saturated_count >= 9 * round_responses.count {
            self.end_round(&round_responses);
        } else if self.trial == Trial::More && self.last_overload.is_none() {
            // Too few requests were queued, so the round is not informative. Either the loader does
            // not need more requests, or it is waiting for a sample that a router lost.
            self.end_failed_trial();
        }
    }

    fn end_round(&mut self, round_responses: &Responses) {
        if self.last_overload.is_some() {
            self.window = (self.window + 1.0).min(MAX_WINDOW);
            return;
        }
        self.rounds += 1;
        let (warm_up_rounds, all_rounds) = self.trial.rounds(self.pause_rounds);
        if self.rounds > warm_up_rounds {
            self.measured_responses.add(round_responses);
        }
        if self.rounds < all_rounds {
            return;
        }
        let rate = self.measured_responses.rate();
        let next = match self.trial {
            Trial::First | Trial::Pause { try_more: true } => {
                self.best_rate = rate;
                Trial::More
            }
            Trial::Pause { try_more: false } => {
                self.best_rate = rate;
                Trial::Fewer
            }
            Trial::More if rate >= FASTER_RATIO * self.best_rate => {
                let min_scaling = 1.0 + MIN_SCALING * (self.window / self.best_window - 1.0);
                let next =
                    if rate >= min_scaling * self.best_rate { Trial::More } else { Trial::Pause { try_more: false } };
                (self.best_window, self.best_rate, self.pause_rounds) = (self.window, rate, MIN_PAUSE_ROUNDS);
                next
            }
            Trial::More => return self.end_failed_trial(),
            Trial::Fewer if rate >= AS_FAST_RATIO * self.best_rate => {
                // Compare with the best rate, so that small decreases cannot add up.
                (self.best_window, self.best_rate) = (self.window, rate.max(self.best_rate));
                Trial::Fewer
            }
            Trial::Fewer => Trial::Pause { try_more: true },
        };
        self.start_trial(next);
    }

    fn end_failed_trial(&mut self) {
        self.pause_rounds = (2 * self.pause_rounds).min(MAX_PAUSE_ROUNDS);
        self.start_trial(Trial::Pause { try_more: false });
    }

    fn start_trial(&mut self, trial: Trial) {
        let trial = if trial == Trial::Fewer && self.best_window <= MIN_WINDOW {
            Trial::Pause { try_more: true }
        } else {
            trial
        };
        self.window = match trial {
            Trial::More if self.pause_rounds == MAX_PAUSE_ROUNDS && self.trial != Trial::More => {
                (SMALL_STEP * self.best_window).min(MAX_WINDOW)
            }
            Trial::More => (STEP * self.best_window).min(MAX_WINDOW),
            Trial::Fewer => (self.best_window / STEP).max(MIN_WINDOW),
            Trial::First | Trial::Pause { .. } => self.best_window,
        };
        (self.trial, self.rounds, self.measured_responses) = (trial, 0, Responses::default());
    }

    pub(super) fn record_refusal(&mut self, now: Duration) {
        if self.last_overload.is_none_or(|overload| now >= overload + OVERLOAD_DURATION) {
            self.last_overload = Some(now);
            self.window = (self.window / 2.0).max(1.0);
        }
    }

    pub(super) fn late_threshold(&self) -> Option<Duration> {
        if self.latencies.len() < MIN_LATENCIES {
            return None;
        }
        let mut latencies = self.latencies.clone();
        let rank = latencies.len() * 95 / 100;
        let (_, p95, _) = latencies.select_nth_unstable_by(rank, f64::total_cmp);
        Some(Duration::from_secs_f64(LATE_FACTOR * *p95).max(MIN_LATE_AFTER))
    }

    pub(super) fn try_hedge(&mut self) -> bool {
        let may_hedge = self.last_overload.is_none() && (self.hedges + 1) as f64 <= MAX_HEDGED_RATIO * self.sent as f64;
        self.hedges += u64::from(may_hedge);
        may_hedge
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// A slow link behind a router, which serves requests of one size in order.
    struct Link {
        /// Bandwidth in bytes per second.
        rate: f64,
        /// Round-trip time in seconds.
        delay: f64,
        /// Size of the router's buffer in bytes.
        buffer: f64,
        size: u64,
    }

    /// Additional round trips before the first response over a new connection.
    const CONNECT_ROUND_TRIPS: f64 = 3.0;
    /// One in this many requests that overflow the router's buffer loses bytes.
    const LOSS_INTERVAL: u64 = 64;
    /// Time until lost bytes are retransmitted, in seconds.
    const RETRANSMISSION: f64 = 1.0;
    /// Number of bytes that can be prefetched beyond the first sample that has not arrived yet.
    const MAX_AHEAD_BYTES: u64 = 256 << 20;

    impl Link {
        /// Returns the utilization of the link over `seconds` seconds, after ten seconds of
        /// warm-up, and the best window.
        fn run(&self, seconds: f64) -> (f64, usize) {
            let duration = |seconds: f64| Duration::from_secs_f64(seconds);
            let (mut congestion, mut now, mut link_free_at, mut open_connections) =
                (CongestionControl::new(), 0.0, 0.0f64, 0);
            // `in_flight` maps the arrival time and index of each request to its sending time.
            // `unanswered` is the indices of these requests, oldest first.
            let (mut in_flight, mut unanswered) = (BTreeMap::new(), BTreeSet::new());
            let (mut count, mut bytes, size) = (0, 0, self.size as f64);
            while now < 10.0 + seconds {
                let ahead_bytes =
                    |count, unanswered: &BTreeSet<u64>| (count - unanswered.first().unwrap_or(&count)) * self.size;
                while congestion.may_send(in_flight.len(), in_flight.len() * weight(self.size))
                    && ahead_bytes(count, &unanswered) < MAX_AHEAD_BYTES
                {
                    let connect_delay =
                        if in_flight.len() < open_connections { 0.0 } else { CONNECT_ROUND_TRIPS * self.delay };
                    open_connections = open_connections.max(in_flight.len() + 1);
                    let start = (now + self.delay + connect_delay).max(link_free_at);
                    let queue_delay = start - (now + self.delay + connect_delay);
                    let is_lost = queue_delay * self.rate > self.buffer && count % LOSS_INTERVAL == 0;
                    let loss_delay = if is_lost { RETRANSMISSION } else { 0.0 };
                    // Requests on other connections overtake a request on a new connection.
                    link_free_at = (now + self.delay).max(link_free_at) + size / self.rate;
                    let arrival = link_free_at.max(start + size / self.rate) + loss_delay;
                    in_flight.insert((duration(arrival), count), duration(now));
                    unanswered.insert(count);
                    congestion.record_request();
                    count += 1;
                }
                let ((arrival, request), sent) = in_flight.pop_first().unwrap();
                unanswered.remove(&request);
                now = arrival.as_secs_f64();
                bytes += if now > 10.0 { self.size } else { 0 };
                let is_saturated = ahead_bytes(count, &unanswered) < MAX_AHEAD_BYTES;
                let in_flight_weight = (in_flight.len() + 1) * weight(self.size);
                congestion.record_response(arrival - sent, self.size, in_flight_weight, is_saturated);
            }
            (bytes as f64 / seconds / self.rate, congestion.best_window as usize)
        }

        /// Returns the bandwidth-delay product plus one request, as a weight.
        fn product(&self) -> f64 {
            (self.rate * self.delay / self.size as f64 + 1.0) * weight(self.size) as f64
        }
    }

    #[test]
    fn the_window_fills_the_link_and_little_more() {
        let small = [(1.0, 0.03), (1.0, 0.2), (10.0, 0.03), (0.1, 0.2)].map(|link| (link, 110_000));
        let large = [(1.0, 0.03), (1.0, 0.2), (10.0, 0.03)].map(|link| (link, 2_000_000));
        for ((gbit, delay), size) in small.into_iter().chain(large) {
            let rate = gbit * 1.25e8;
            let link = Link { rate, delay, buffer: rate * delay, size };
            let (utilization, window) = link.run(100.0);
            let result =
                format!("{gbit} Gbit/s, {delay} s, {size} bytes: utilization {utilization} with window {window}");
            assert!(utilization > 0.97, "{result}");
            assert!(window as f64 <= 2.0 * link.product().max(MIN_WINDOW), "{result}");
        }
    }

    #[test]
    fn the_window_follows_a_changing_network() {
        let mut congestion = CongestionControl::new();
        let mut answers = |count: usize, seconds: &dyn Fn(usize) -> f64| {
            for _ in 0..count {
                let in_flight_weight = (congestion.window as usize).min(MAX_REQUESTS);
                congestion.record_response(
                    Duration::from_secs_f64(seconds(in_flight_weight)),
                    1000,
                    in_flight_weight,
                    true,
                );
            }
            congestion.best_window
        };
        // The link is saturated: every request waits for all other requests in flight.
        assert_eq!(answers(20_000, &|in_flight_weight| in_flight_weight as f64 / 1000.0), MIN_WINDOW);
        // The link has a high latency and no queue.
        assert!(answers(200_000, &|_| 0.1) >= MAX_REQUESTS as f64);
        assert!(
            answers(200_000, &|in_flight_weight| 0.1 + (in_flight_weight.saturating_sub(100)) as f64 / 1000.0) < 250.0
        );
    }

    #[test]
    fn a_trial_that_fails_by_chance_is_repeated_soon() {
        let (mut congestion, mut answers) = (CongestionControl::new(), 0);
        // The link has a high latency, and new connections are slow at first.
        while congestion.best_window <= INITIAL_WINDOW {
            let slow = congestion.trial == Trial::More && answers < 5_000;
            let seconds = if slow { 0.3 } else { 0.2 };
            let in_flight_weight = (congestion.window as usize).min(MAX_REQUESTS);
            congestion.record_response(Duration::from_secs_f64(seconds), 1000, in_flight_weight, true);
            answers += 1;
        }
        assert!(answers < 12_000, "the window grew only after {answers} responses, at {INITIAL_WINDOW} per round trip");
    }

    #[test]
    fn the_window_grows_from_the_first_batch() {
        let mut congestion = CongestionControl::new();
        congestion.start_ramp(|| 20);
        assert!(congestion.may_send(19, 19) && !congestion.may_send(20, 20));
        let second = Duration::from_secs(1);
        congestion.record_request();
        congestion.start_ramp(|| 64);
        (0..27).for_each(|n| {
            assert_eq!(congestion.window, 20.0 + RAMP_STEP * f64::from(n));
            congestion.record_response(second, 1000, 20, true);
        });
        (0..10).for_each(|_| congestion.record_response(second, 1000, 20, true));
        assert_eq!((congestion.window, congestion.trial), (INITIAL_WINDOW, Trial::First));
        // A batch larger than the initial window is requested as before.
        for (weight, window) in [(0, MIN_FIRST_WINDOW), (1000, INITIAL_WINDOW)] {
            let mut congestion = CongestionControl::new();
            congestion.start_ramp(|| weight);
            assert_eq!(congestion.window, window);
        }
        // After an overload, the window does not ramp up.
        let mut congestion = CongestionControl::new();
        congestion.start_ramp(|| 20);
        congestion.record_refusal(second);
        congestion.record_response(second, 1000, 20, true);
        assert_eq!(congestion.window, 10.0);
    }

    #[test]
    fn large_requests_weigh_more_than_small_ones() {
        assert_eq!([0, 1, BYTES_PER_WEIGHT, BYTES_PER_WEIGHT + 1, 4 << 20].map(weight), [1, 1, 1, 2, 16]);
        let (congestion, first) = (CongestionControl::new(), INITIAL_WINDOW as usize);
        assert!(congestion.may_send(first - 1, first - 1) && !congestion.may_send(first, first));
        assert!(congestion.may_send(7, 7 * 16) && !congestion.may_send(8, 8 * 16));
        assert!(congestion.may_send(0, 0));
    }

    #[test]
    fn refusals_halve_the_requests_in_flight_once_per_overload() {
        let (mut congestion, duration) = (CongestionControl::new(), Duration::from_secs_f64);
        (0..50).for_each(|_| congestion.record_refusal(duration(1.0)));
        assert_eq!(congestion.window, INITIAL_WINDOW / 2.0);
        congestion.record_refusal(duration(2.5));
        assert_eq!(congestion.window, INITIAL_WINDOW / 4.0);
        (0..10_000).for_each(|_| congestion.record_response(duration(0.1), 1000, 1, true));
        assert!(congestion.window > INITIAL_WINDOW / 2.0, "{}", congestion.window);
        (0..40).for_each(|n| congestion.record_refusal(duration(20_000.0 + 2.0 * f64::from(n))));
        assert_eq!(congestion.window, 1.0);
        assert!(congestion.may_send(0, 0) && !congestion.may_send(1, 1));
    }

    #[test]
    fn a_trial_during_which_the_server_refuses_requests_does_not_restore_the_window() {
        let mut congestion = CongestionControl::new();
        let respond = |congestion: &mut CongestionControl, is_saturated: bool| {
            let weight_in_flight = congestion.window as usize;
            congestion.record_response(Duration::from_millis(30), BYTES_PER_WEIGHT, weight_in_flight, is_saturated);
        };
        while congestion.trial != Trial::More {
            respond(&mut congestion, true);
        }
        congestion.record_refusal(Duration::from_secs(1));
        let halved_window = congestion.window;
        assert!(halved_window < congestion.best_window);
        (0..10_000).for_each(|_| respond(&mut congestion, false));
        assert!(congestion.window <= halved_window, "{} exceeds {halved_window}", congestion.window);
    }

    #[test]
    fn late_requests_are_detected_and_few_are_hedged() {
        let mut congestion = CongestionControl::new();
        assert_eq!(congestion.late_threshold(), None);
        for n in 0..1000u64 {
            let latency = if n % 50 == 0 { 9.0 } else { 0.1 };
            congestion.record_request();
            congestion.record_response(Duration::from_secs_f64(latency), 10, 1, false);
        }
        assert_eq!(congestion.late_threshold(), Some(Duration::from_millis(200)));
        assert_eq!((0..1000).filter(|_| congestion.try_hedge()).count(), 50);
    }
}
