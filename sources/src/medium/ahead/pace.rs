//! Chooses how many requests to keep in flight: roughly the smallest number that saturates the
//! link. Callers pass in all timestamps, so tests do not need a clock.
//!
//! The search is a hill climb. Each trial uses more or fewer requests and compares the resulting
//! rate with the best rate so far. The search also tries fewer requests, because the initial number
//! may be too high: requests beyond the bandwidth-delay product queue up in a router's buffer. When
//! that buffer overflows, the lost bytes are retransmitted seconds later, and the loader waits for
//! the sample that contains them.
//!
//! Each request has a **weight**, because a large request fills the link like several small ones.
//! The window is the total weight that may be in flight.

use std::time::Duration;

/// Number of bytes in a request of weight 1. Smaller requests also have weight 1.
const UNIT: u64 = 256 << 10;
/// Initial window. With this window, the first batch (256 samples) takes two round trips.
const FIRST: f64 = 128.0;
/// Minimum window that a trial uses.
const LEAST: f64 = 16.0;
/// Maximum window: 512 MiB.
const HEAVIEST: f64 = 2048.0;
/// Maximum number of requests in flight. With HTTP/1, each needs a connection, and many systems
/// limit a process to 1,024 open files.
const MOST: usize = 512;
/// Factor by which a trial raises or lowers the window.
const STEP: f64 = 1.4;
/// Factor by which a trial raises the window after the longest waiting period, when the link is
/// more likely to be full than at the start.
const SMALL_STEP: f64 = 1.2;
/// A trial with more requests succeeds if the rate is at least this multiple of the best rate.
const FASTER: f64 = 1.08;
/// A trial with fewer requests succeeds if the rate is at least this fraction of the best rate.
const AS_FAST: f64 = 0.97;
/// The window is raised again if the rate grew by at least this fraction of the window's growth.
/// Smaller growth means that the link is full.
const MOST_OF_IT: f64 = 0.6;
/// Number of warm-up rounds before a trial starts to measure. The first three responses over a new
/// connection are slow: each takes several round trips.
const SETTLE: u32 = 8;
/// Number of warm-up rounds of a trial with fewer requests, which opens no connections.
const SETTLE_FEWER: u32 = 3;
/// Number of rounds that a trial measures.
const COMPARED: u32 = 2;
/// Number of rounds between a failed trial with more requests and a trial with fewer. The rate over
/// the second half of these rounds becomes the new reference.
const SHORT_REST: u32 = 16;
/// Minimum number of rounds until more requests are tried again. Each failed trial doubles the
/// waiting period. The period starts small, because a trial that opens connections may fail by
/// chance.
const LEAST_REST: u32 = 8;
/// Maximum number of rounds until more requests are tried again.
const REST: u32 = 128;
/// Minimum number of responses per round.
const ANSWERS: u32 = 8;
/// Refusals that are less than this apart belong to one overload.
const PAUSE: Duration = Duration::from_secs(1);
/// Number of recent latencies that are kept.
const TIMES: usize = 256;
/// Minimum number of latency samples before a request can count as late.
const KNOWN: usize = 32;
/// Maximum fraction of requests that are hedged.
const HEDGED: f64 = 0.05;
/// A request counts as late after this multiple of the 95th percentile of the latencies, but not
/// before [`SOON`].
const LATE: f64 = 2.0;
/// Minimum latency before a request can count as late.
const SOON: Duration = Duration::from_millis(50);

/// Returns the weight of a request for this many bytes.
pub(super) fn weight(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(UNIT)).unwrap_or(usize::MAX).max(1)
}

/// What the current window is being used to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    /// Measures the rate with the initial window.
    First,
    /// Measures the rate with a larger window.
    More,
    /// Measures the rate with a smaller window.
    Fewer,
    /// Keeps the window for a while. Then tries again, because the network may have changed: with
    /// more requests if `more` is true, and with fewer otherwise.
    Rest { more: bool },
}

impl Trial {
    /// Returns the number of warm-up rounds and the total number of rounds. `rest` is the number of
    /// rounds until more requests are tried.
    fn rounds(self, rest: u32) -> (u32, u32) {
        match self {
            Trial::Rest { more: false } => (SHORT_REST / 2, SHORT_REST),
            Trial::Rest { more: true } => (rest / 2, rest),
            Trial::Fewer => (SETTLE_FEWER, SETTLE_FEWER + COMPARED),
            Trial::First | Trial::More => (SETTLE, SETTLE + COMPARED),
        }
    }
}

/// Statistics of the responses in one or more rounds.
#[derive(Default)]
struct Answers {
    /// Number of responses.
    number: u32,
    /// Number of responses that arrived while more requests were queued.
    full: u32,
    /// Total weight of the responses.
    weight: f64,
    /// Weight in flight, summed over all responses.
    flying: f64,
    /// Product of weight and latency in seconds, summed over all responses.
    spent: f64,
}

impl Answers {
    fn add(&mut self, other: &Answers) {
        self.number += other.number;
        self.full += other.full;
        self.weight += other.weight;
        self.flying += other.flying;
        self.spent += other.spent;
    }

    /// Returns the rate in weight per second by Little's law: the mean weight in flight divided by
    /// the mean latency. Counting responses directly would depend on when the count starts, because
    /// responses arrive in bursts at first.
    fn rate(&self) -> f64 {
        self.flying / f64::from(self.number.max(1)) * self.weight / self.spent.max(1e-6)
    }
}

pub(super) struct Pace {
    /// Maximum weight in flight.
    window: f64,
    /// Best window so far.
    base: f64,
    /// Rate that was measured with the best window.
    best: f64,
    trial: Trial,
    /// Length in rounds of the next waiting period before more requests are tried.
    rest: u32,
    /// Number of rounds since the window changed.
    rounds: u32,
    /// Responses of the measured rounds.
    counted: Answers,
    /// Responses of the current round.
    round: Answers,
    /// Time of the last refusal. After a refusal, trials end and the window grows slowly.
    refused: Option<Duration>,
    /// Recent latencies in seconds.
    times: Vec<f64>,
    /// Index in `times` of the next latency to replace.
    next: usize,
    /// Number of requests that have been sent.
    sent: u64,
    /// Number of requests that have been hedged.
    hedges: u64,
}

impl Pace {
    pub(super) fn new() -> Self {
        Pace {
            window: FIRST,
            base: FIRST,
            best: 0.0,
            trial: Trial::First,
            rest: LEAST_REST,
            rounds: 0,
            counted: Answers::default(),
            round: Answers::default(),
            refused: None,
            times: Vec::new(),
            next: 0,
            sent: 0,
            hedges: 0,
        }
    }

    /// Returns whether another request may be sent while `requests` requests with the total weight
    /// `weight` are in flight.
    pub(super) fn has_room(&self, requests: usize, weight: usize) -> bool {
        requests == 0 || requests < MOST && weight < self.window as usize
    }

    /// Records that a request was sent.
    pub(super) fn sent(&mut self) {
        self.sent += 1;
    }

    /// Records a response of `bytes` bytes with latency `took`. `flying` is the total weight that
    /// was in flight before this response. `full` is true if more requests were queued.
    pub(super) fn answered(&mut self, took: Duration, bytes: u64, flying: usize, full: bool) {
        if self.times.len() < TIMES {
            self.times.push(took.as_secs_f64());
        } else {
            self.times[self.next] = took.as_secs_f64();
        }
        self.next = (self.next + 1) % TIMES;
        let weight = weight(bytes) as f64;
        // Cap the latency: a few very late responses would dominate the sum, and their requests may
        // have been sent with an earlier window.
        let typical = self.late().map_or(took, |late| took.min(late));
        let (flying, spent) = (flying as f64, weight * typical.as_secs_f64());
        self.round.add(&Answers { number: 1, full: u32::from(full), weight, flying, spent });
        // A round ends once a full window of responses has arrived, which takes one round trip.
        if self.round.weight < self.window || self.round.number < ANSWERS {
            return;
        }
        let round = std::mem::take(&mut self.round);
        if 10 * round.full >= 9 * round.number {
            self.turn(&round);
        } else if self.trial == Trial::More {
            // Too few requests were queued, so the round says nothing about the network. Either the
            // loader does not need more requests, or it is waiting for a sample whose bytes were
            // lost in an overload.
            self.failed();
        }
    }

    /// Ends a round in which enough requests were queued.
    fn turn(&mut self, round: &Answers) {
        if self.refused.is_some() {
            self.window = (self.window + 1.0).min(HEAVIEST);
            return;
        }
        self.rounds += 1;
        let (settled, last) = self.trial.rounds(self.rest);
        if self.rounds > settled {
            self.counted.add(round);
        }
        if self.rounds < last {
            return;
        }
        let rate = self.counted.rate();
        let next = match self.trial {
            Trial::First | Trial::Rest { more: true } => {
                self.best = rate;
                Trial::More
            }
            Trial::Rest { more: false } => {
                self.best = rate;
                Trial::Fewer
            }
            Trial::More if rate >= FASTER * self.best => {
                let most = 1.0 + MOST_OF_IT * (self.window / self.base - 1.0);
                let next = if rate >= most * self.best { Trial::More } else { Trial::Rest { more: false } };
                (self.base, self.best, self.rest) = (self.window, rate, LEAST_REST);
                next
            }
            Trial::More => return self.failed(),
            Trial::Fewer if rate >= AS_FAST * self.best => {
                // Compare with the best rate, not the previous one, so that small losses cannot add
                // up.
                (self.base, self.best) = (self.window, rate.max(self.best));
                Trial::Fewer
            }
            Trial::Fewer => Trial::Rest { more: true },
        };
        self.start(next);
    }

    /// Ends a trial in which more requests did not increase the rate.
    fn failed(&mut self) {
        self.rest = (2 * self.rest).min(REST);
        self.start(Trial::Rest { more: false });
    }

    fn start(&mut self, trial: Trial) {
        let trial = if trial == Trial::Fewer && self.base <= LEAST { Trial::Rest { more: true } } else { trial };
        self.window = match trial {
            Trial::More if self.rest == REST && self.trial != Trial::More => (SMALL_STEP * self.base).min(HEAVIEST),
            Trial::More => (STEP * self.base).min(HEAVIEST),
            Trial::Fewer => (self.base / STEP).max(LEAST),
            Trial::First | Trial::Rest { .. } => self.base,
        };
        (self.trial, self.rounds, self.counted) = (trial, 0, Answers::default());
    }

    /// Records that an overloaded server refused a request, and halves the window once per
    /// overload.
    pub(super) fn refused(&mut self, now: Duration) {
        if self.refused.is_none_or(|last| now >= last + PAUSE) {
            self.refused = Some(now);
            self.window = (self.window / 2.0).max(1.0);
        }
    }

    /// Returns the latency beyond which a request counts as late, or `None` until enough latencies
    /// have been recorded.
    pub(super) fn late(&self) -> Option<Duration> {
        if self.times.len() < KNOWN {
            return None;
        }
        let mut times = self.times.clone();
        let rank = times.len() * 95 / 100;
        let (_, p95, _) = times.select_nth_unstable_by(rank, f64::total_cmp);
        Some(Duration::from_secs_f64(LATE * *p95).max(SOON))
    }

    /// Returns whether a late request may be hedged. If so, counts the hedge.
    pub(super) fn hedge(&mut self) -> bool {
        let may = self.refused.is_none() && (self.hedges + 1) as f64 <= HEDGED * self.sent as f64;
        self.hedges += u64::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// Simulates a bottleneck link behind a router. All requests have the same size and are served
    /// in order.
    struct Link {
        /// Bandwidth in bytes per second.
        rate: f64,
        /// Round-trip time in seconds.
        delay: f64,
        /// Size of the router's buffer in bytes.
        buffer: f64,
        /// Size of a request in bytes.
        size: u64,
    }

    /// Number of additional round trips before the first response over a new connection.
    const COLD: f64 = 3.0;
    /// Of the requests that overflow the router's buffer, one in this many loses bytes.
    const LOSES: u64 = 64;
    /// Delay in seconds until lost bytes are retransmitted.
    const AGAIN: f64 = 1.0;
    /// Number of bytes that can be prefetched beyond a sample that has not arrived yet.
    const AHEAD: u64 = 256 << 20;

    impl Link {
        /// Returns the utilization of the link over `seconds` seconds, after ten seconds of
        /// warm-up, and the best window.
        fn run(&self, seconds: f64) -> (f64, usize) {
            let at = |seconds: f64| Duration::from_secs_f64(seconds);
            let (mut pace, mut now, mut free, mut warm) = (Pace::new(), 0.0, 0.0f64, 0);
            // `flying` maps the arrival time of each response to its request. `open` contains the
            // requests without a response, oldest first.
            let (mut flying, mut open) = (BTreeMap::new(), BTreeSet::new());
            let (mut number, mut bytes, size) = (0, 0, self.size as f64);
            while now < 10.0 + seconds {
                let ahead = |number, open: &BTreeSet<u64>| (number - open.first().unwrap_or(&number)) * self.size;
                while pace.has_room(flying.len(), flying.len() * weight(self.size)) && ahead(number, &open) < AHEAD {
                    let cold = if flying.len() < warm { 0.0 } else { COLD * self.delay };
                    warm = warm.max(flying.len() + 1);
                    let begin = (now + self.delay + cold).max(free);
                    let waits = begin - (now + self.delay + cold);
                    let loses = waits * self.rate > self.buffer && number % LOSES == 0;
                    let lost = if loses { AGAIN } else { 0.0 };
                    // While a new connection is slow, other requests overtake it.
                    free = (now + self.delay).max(free) + size / self.rate;
                    let answer = free.max(begin + size / self.rate) + lost;
                    flying.insert((at(answer), number), at(now));
                    open.insert(number);
                    pace.sent();
                    number += 1;
                }
                let ((answer, request), sent) = flying.pop_first().unwrap();
                open.remove(&request);
                now = answer.as_secs_f64();
                bytes += if now > 10.0 { self.size } else { 0 };
                let full = ahead(number, &open) < AHEAD;
                let weighs = (flying.len() + 1) * weight(self.size);
                pace.answered(answer - sent, self.size, weighs, full);
            }
            (bytes as f64 / seconds / self.rate, pace.base as usize)
        }

        /// Returns the bandwidth-delay product, as a weight.
        fn product(&self) -> f64 {
            (self.rate * self.delay / self.size as f64 + 1.0) * weight(self.size) as f64
        }
    }

    #[test]
    fn the_window_fills_the_link_and_little_more() {
        let links = [(1.0, 0.03), (1.0, 0.2), (10.0, 0.03), (0.1, 0.2)].map(|of| (of, 110_000));
        let blocks = [(1.0, 0.03), (1.0, 0.2), (10.0, 0.03)].map(|of| (of, 2_000_000));
        for ((gbit, delay), size) in links.into_iter().chain(blocks) {
            let rate = gbit * 1.25e8;
            // The router's buffer is about one bandwidth-delay product.
            let link = Link { rate, delay, buffer: rate * delay, size };
            let (share, window) = link.run(100.0);
            let what = format!("{gbit} Gbit/s, {delay} s, {size} bytes: {share} of the link with {window}");
            assert!(share > 0.97, "{what}");
            assert!(window as f64 <= 2.0 * link.product().max(LEAST), "{what}");
        }
    }

    #[test]
    fn the_window_follows_a_changing_network() {
        let mut pace = Pace::new();
        let mut answers = |number: usize, seconds: &dyn Fn(usize) -> f64| {
            for _ in 0..number {
                let flying = (pace.window as usize).min(MOST);
                pace.answered(Duration::from_secs_f64(seconds(flying)), 1000, flying, true);
            }
            pace.base
        };
        // A saturated link: every request waits for all others in flight.
        assert_eq!(answers(20_000, &|flying| flying as f64 / 1000.0), LEAST);
        // A link with high latency and no queuing.
        assert!(answers(200_000, &|_| 0.1) >= MOST as f64);
        assert!(answers(200_000, &|flying| 0.1 + (flying.saturating_sub(100)) as f64 / 1000.0) < 250.0);
    }

    #[test]
    fn a_trial_that_fails_by_accident_repeats_soon() {
        let (mut pace, mut answers) = (Pace::new(), 0);
        // A link with high latency. The connections that the first trial opens are slow at first.
        while pace.base <= FIRST {
            let slow = pace.trial == Trial::More && answers < 5_000;
            let seconds = if slow { 0.3 } else { 0.2 };
            let flying = (pace.window as usize).min(MOST);
            pace.answered(Duration::from_secs_f64(seconds), 1000, flying, true);
            answers += 1;
        }
        assert!(answers < 12_000, "{answers} answers, {FIRST} of them per round trip");
    }

    #[test]
    fn large_requests_weigh_more_than_small_ones() {
        assert_eq!([0, 1, UNIT, UNIT + 1, 4 << 20].map(weight), [1, 1, 1, 2, 16]);
        let (pace, first) = (Pace::new(), FIRST as usize);
        assert!(pace.has_room(first - 1, first - 1) && !pace.has_room(first, first));
        assert!(pace.has_room(7, 7 * 16) && !pace.has_room(8, 8 * 16));
        assert!(pace.has_room(0, 0));
    }

    #[test]
    fn refusals_halve_the_requests_in_flight_once_per_overload() {
        let (mut pace, at) = (Pace::new(), Duration::from_secs_f64);
        (0..50).for_each(|_| pace.refused(at(1.0)));
        assert_eq!(pace.window, FIRST / 2.0);
        pace.refused(at(2.5));
        assert_eq!(pace.window, FIRST / 4.0);
        (0..10_000).for_each(|_| pace.answered(at(0.1), 1000, 1, true));
        assert!(pace.window > FIRST / 2.0, "{}", pace.window);
        (0..40).for_each(|n| pace.refused(at(20_000.0 + 2.0 * f64::from(n))));
        assert_eq!(pace.window, 1.0);
        assert!(pace.has_room(0, 0) && !pace.has_room(1, 1));
    }

    #[test]
    fn late_requests_are_detected_and_few_are_hedged() {
        let mut pace = Pace::new();
        assert_eq!(pace.late(), None);
        for n in 0..1000u64 {
            let took = if n % 50 == 0 { 9.0 } else { 0.1 };
            pace.sent();
            pace.answered(Duration::from_secs_f64(took), 10, 1, false);
        }
        assert_eq!(pace.late(), Some(Duration::from_millis(200)));
        assert_eq!((0..1000).filter(|_| pace.hedge()).count(), 50);
    }
}
