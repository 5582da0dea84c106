//! Number of requests in flight, found while they run: the smallest with which bytes arrive as fast
//! as with more. All times are given, so that tests need no clock.

use std::time::Duration;

/// Requests in flight at first. A first batch of 256 samples then takes two round trips.
const FIRST: f64 = 128.0;
/// Maximum number of requests in flight. With HTTP/1, each has a connection, and a process may
/// often have 1,024 files open.
const MOST: f64 = 512.0;
/// A trial with more requests keeps them if bytes arrive faster by this factor.
const FASTER: f64 = 1.08;
/// Growth of a trial.
const GROWTH: f64 = 1.5;
/// Rounds of a trial, and rounds until the next one.
const TRIAL: u32 = 3;
const REST: u32 = 32;
/// Pause after a refusal within which further ones belong to the same overload.
const PAUSE: Duration = Duration::from_secs(1);
/// Number of recent times of requests.
const TIMES: usize = 256;
/// Requests before the first late one can be told, and the maximum share of requests that are sent
/// twice.
const KNOWN: usize = 32;
const HEDGED: f64 = 0.05;
/// A request is late after this many times the 95th percentile, but not earlier than [`SOON`].
const LATE: f64 = 2.0;
const SOON: Duration = Duration::from_millis(50);

pub(super) struct Pace {
    window: f64,
    /// The last window that was worth its size, and its rate in bytes per second.
    base: f64,
    best: f64,
    /// Rounds since the last change.
    rounds: u32,
    /// Start, bytes and answers of this round, and whether as many requests as allowed were in
    /// flight.
    begun: Option<Duration>,
    bytes: u64,
    answers: u32,
    full: bool,
    /// Time of the last refusal, after which the window grows slowly.
    refused: Option<Duration>,
    times: Vec<f64>,
    next: usize,
    sent: u64,
    hedges: u64,
}

impl Pace {
    pub(super) fn new() -> Self {
        Pace {
            window: FIRST,
            base: FIRST,
            best: 0.0,
            rounds: 0,
            begun: None,
            bytes: 0,
            answers: 0,
            full: false,
            refused: None,
            times: Vec::new(),
            next: 0,
            sent: 0,
            hedges: 0,
        }
    }

    /// Number of requests that may be in flight.
    pub(super) fn window(&self) -> usize {
        self.window as usize
    }

    /// Counts a request that is sent.
    pub(super) fn sent(&mut self, now: Duration) {
        self.sent += 1;
        self.begun.get_or_insert(now);
    }

    /// Counts an answer of `bytes` after `took`. `full` says whether more requests were waiting to
    /// be sent.
    pub(super) fn answered(&mut self, now: Duration, took: Duration, bytes: u64, full: bool) {
        if self.times.len() < TIMES {
            self.times.push(took.as_secs_f64());
        } else {
            self.times[self.next] = took.as_secs_f64();
        }
        self.next = (self.next + 1) % TIMES;
        (self.bytes, self.answers, self.full) = (self.bytes + bytes, self.answers + 1, self.full | full);
        // As many answers as requests in flight take one round trip.
        if self.answers < self.window.max(8.0) as u32 {
            return;
        }
        let seconds = now.saturating_sub(self.begun.unwrap_or(now)).as_secs_f64().max(1e-6);
        let (rate, full) = (self.bytes as f64 / seconds, self.full);
        (self.begun, self.bytes, self.answers, self.full) = (Some(now), 0, 0, false);
        // A loader that wants no more says nothing about the network.
        if full {
            self.round(rate);
        }
    }

    fn round(&mut self, rate: f64) {
        if self.refused.is_some() {
            self.window = (self.window + 1.0).min(MOST);
            return;
        }
        self.rounds += 1;
        if rate > FASTER * self.best {
            (self.base, self.best, self.rounds) = (self.window, rate, 0);
            self.window = (GROWTH * self.window).min(MOST);
        } else if self.window > self.base {
            if self.rounds >= TRIAL {
                (self.window, self.rounds) = (self.base, 0);
            }
        } else if self.rounds >= REST {
            // The network may have become slower or faster.
            (self.best, self.rounds) = (rate, 0);
            self.window = (GROWTH * self.window).min(MOST);
        }
    }

    /// A server has refused a request because it has too much to do.
    pub(super) fn refused(&mut self, now: Duration) {
        if self.refused.is_none_or(|last| now >= last + PAUSE) {
            self.refused = Some(now);
            self.window = (self.window / 2.0).max(1.0);
        }
    }

    /// Time after which a request is late, if known.
    pub(super) fn late(&self) -> Option<Duration> {
        if self.times.len() < KNOWN {
            return None;
        }
        let mut times = self.times.clone();
        let rank = times.len() * 95 / 100;
        let (_, p95, _) = times.select_nth_unstable_by(rank, f64::total_cmp);
        Some(Duration::from_secs_f64(LATE * *p95).max(SOON))
    }

    /// Whether a late request may be sent a second time. Counts it if so.
    pub(super) fn hedge(&mut self) -> bool {
        let may = self.refused.is_none() && (self.hedges + 1) as f64 <= HEDGED * self.sent as f64;
        self.hedges += u64::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A link of `rate` bytes/s and `delay` seconds, with requests of 110 KB. Returns the share of
    /// the link over `seconds` after the first five, and the window.
    fn link(rate: f64, delay: f64, seconds: f64) -> (f64, usize) {
        const BYTES: f64 = 110e3;
        let (mut pace, mut now, mut free) = (Pace::new(), 0.0, 0.0f64);
        let (mut flying, mut bytes) = (VecDeque::new(), 0.0);
        while now < 5.0 + seconds {
            while flying.len() < pace.window() {
                free = (now + delay).max(free) + BYTES / rate;
                flying.push_back((now, free));
                pace.sent(Duration::from_secs_f64(now));
            }
            let (sent, arrived) = flying.pop_front().unwrap();
            now = arrived;
            bytes += if now > 5.0 { BYTES } else { 0.0 };
            pace.answered(Duration::from_secs_f64(now), Duration::from_secs_f64(now - sent), BYTES as u64, true);
        }
        (bytes / seconds / rate, pace.window())
    }

    #[test]
    fn as_many_requests_fly_as_fill_the_link_and_not_many_more() {
        for (gbit, delay) in [(1.0, 0.03), (1.0, 0.2), (10.0, 0.03), (0.1, 0.2)] {
            let rate = gbit * 1.25e8;
            let (share, window) = link(rate, delay, 20.0);
            let product = rate * delay / 110e3;
            assert!(share > 0.95, "{gbit} Gbit/s, {delay} s: {share} of the link with {window}");
            assert!((window as f64) < (4.0 * product).max(2.3 * FIRST), "{gbit} Gbit/s, {delay} s: {window}");
        }
    }

    #[test]
    fn refusals_halve_the_requests_in_flight_once_per_overload() {
        let (mut pace, at) = (Pace::new(), Duration::from_secs_f64);
        (0..50).for_each(|_| pace.refused(at(1.0)));
        assert_eq!(pace.window(), FIRST as usize / 2);
        pace.refused(at(2.5));
        assert_eq!(pace.window(), FIRST as usize / 4);
        (0..10_000).for_each(|n| pace.answered(at(3.0 + f64::from(n)), at(0.1), 1000, true));
        assert!(pace.window() > FIRST as usize / 2, "{}", pace.window());
        (0..40).for_each(|n| pace.refused(at(20_000.0 + 2.0 * f64::from(n))));
        assert_eq!(pace.window(), 1);
    }

    #[test]
    fn late_requests_are_known_and_few_are_sent_twice() {
        let mut pace = Pace::new();
        assert_eq!(pace.late(), None);
        for n in 0..1000u64 {
            let took = if n % 50 == 0 { 9.0 } else { 0.1 };
            pace.sent(Duration::ZERO);
            pace.answered(Duration::from_millis(n), Duration::from_secs_f64(took), 10, false);
        }
        assert_eq!(pace.late(), Some(Duration::from_millis(200)));
        assert_eq!((0..1000).filter(|_| pace.hedge()).count(), 50);
    }
}
