//! Number of requests in flight, found while they run: about the smallest with which bytes arrive as
//! fast as with more. All times are given, so that tests need no clock.
//!
//! Trials with more and with fewer requests compare rates. The search goes down too, because the
//! first number may be too high: what a link cannot carry waits in the buffer of a router. When the
//! buffer overflows, the lost bytes come again after seconds, and the loader waits for the sample
//! that they belong to.
//!
//! Requests have a **weight**, because a large one fills the link as several small ones do. The
//! window is the weight that may be in flight.

use std::time::Duration;

/// Bytes of a request of weight 1. A smaller one weighs 1 too.
const UNIT: u64 = 256 << 10;
/// Weight in flight at first. A first batch of 256 samples then takes two round trips.
const FIRST: f64 = 128.0;
/// Smallest weight that a trial leaves in flight.
const LEAST: f64 = 16.0;
/// Maximum weight in flight: the bytes of 512 MiB.
const HEAVIEST: f64 = 2048.0;
/// Maximum number of requests in flight. With HTTP/1, each has a connection, and a process may
/// often have 1,024 files open.
const MOST: usize = 512;
/// Factor by which a trial has more or fewer requests; and by which it has more after a rest, when a
/// full link is more likely than at first.
const STEP: f64 = 1.4;
const SMALL_STEP: f64 = 1.2;
/// A trial with more requests keeps them if the rate grows by this factor, and one with fewer if
/// this part of the rate is left.
const FASTER: f64 = 1.08;
const AS_FAST: f64 = 0.97;
/// Another trial with more follows if the rate grew by this part of what the requests did. Less
/// means that the link is full.
const MOST_OF_IT: f64 = 0.6;
/// Rounds until a trial counts. The first three answers over a new connection take longer than the
/// others, each for several round trips. A trial with fewer requests opens none.
const SETTLE: u32 = 8;
const SETTLE_FEWER: u32 = 3;
/// Rounds after that, whose rate is compared.
const COMPARED: u32 = 2;
/// Rounds between a failed trial with more requests and one with fewer. The rate of the second half
/// is what the trial is compared with.
const SHORT_REST: u32 = 16;
/// Rounds until more requests are tried again: the minimum and the maximum. Each failure doubles
/// them, because a trial with new connections may fail by accident.
const LEAST_REST: u32 = 8;
const REST: u32 = 128;
/// Minimum answers of a round.
const ANSWERS: u32 = 8;
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

/// Weight of a request for this many bytes.
pub(super) fn weight(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(UNIT)).unwrap_or(usize::MAX).max(1)
}

/// What a window is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    /// Measures the rate of the first window.
    First,
    More,
    Fewer,
    /// Stays until the network may have changed, and tries more after that, or fewer.
    Rest {
        more: bool,
    },
}

impl Trial {
    /// Rounds that do not count, and all rounds. `rest` is the number of rounds until more is tried.
    fn rounds(self, rest: u32) -> (u32, u32) {
        match self {
            Trial::Rest { more: false } => (SHORT_REST / 2, SHORT_REST),
            Trial::Rest { more: true } => (rest / 2, rest),
            Trial::Fewer => (SETTLE_FEWER, SETTLE_FEWER + COMPARED),
            Trial::First | Trial::More => (SETTLE, SETTLE + COMPARED),
        }
    }
}

/// Answers of some rounds.
#[derive(Default)]
struct Answers {
    number: u32,
    /// Those after which more requests were waiting to be sent.
    full: u32,
    weight: f64,
    /// Weight in flight at each answer, as a sum.
    flying: f64,
    /// Weight times seconds from the request to the answer, as a sum.
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

    /// The weight that arrives in a second: by Little's law, what is in flight divided by the time
    /// that it takes. Answers that arrive in bursts, as they do at first, would make a count of them
    /// depend on when it begins.
    fn rate(&self) -> f64 {
        self.flying / f64::from(self.number.max(1)) * self.weight / self.spent.max(1e-6)
    }
}

pub(super) struct Pace {
    window: f64,
    /// The window that is best so far, and its rate.
    base: f64,
    best: f64,
    trial: Trial,
    /// Rounds of the next rest before more requests are tried.
    rest: u32,
    /// Rounds since the window has changed, the answers of those that count, and of this round.
    rounds: u32,
    counted: Answers,
    round: Answers,
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

    /// Whether another request may be sent while `requests` with this weight are in flight.
    pub(super) fn has_room(&self, requests: usize, weight: usize) -> bool {
        requests == 0 || requests < MOST && weight < self.window as usize
    }

    /// Counts a request that is sent.
    pub(super) fn sent(&mut self) {
        self.sent += 1;
    }

    /// Counts an answer of `bytes` after `took`, with `flying` in flight before it. `full` says
    /// whether more requests were waiting to be sent.
    pub(super) fn answered(&mut self, took: Duration, bytes: u64, flying: usize, full: bool) {
        if self.times.len() < TIMES {
            self.times.push(took.as_secs_f64());
        } else {
            self.times[self.next] = took.as_secs_f64();
        }
        self.next = (self.next + 1) % TIMES;
        let weight = weight(bytes) as f64;
        // A few very late answers would hide the others. They may also be of an earlier window.
        let typical = self.late().map_or(took, |late| took.min(late));
        let (flying, spent) = (flying as f64, weight * typical.as_secs_f64());
        self.round.add(&Answers { number: 1, full: u32::from(full), weight, flying, spent });
        // The answers to as much as is in flight take one round trip.
        if self.round.weight < self.window || self.round.number < ANSWERS {
            return;
        }
        let round = std::mem::take(&mut self.round);
        if 10 * round.full >= 9 * round.number {
            self.turn(&round);
        } else if self.trial == Trial::More {
            // A loader that wants no more says nothing about the network. Or it waits for a sample
            // whose bytes were lost, because there were too many.
            self.failed();
        }
    }

    /// Ends a round.
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
                // Small losses would add up if each were compared with the one before.
                (self.base, self.best) = (self.window, rate.max(self.best));
                Trial::Fewer
            }
            Trial::Fewer => Trial::Rest { more: true },
        };
        self.start(next);
    }

    /// Ends a trial with more requests that is of no use.
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
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// A link with a router, over which requests of one size are answered in turns.
    struct Link {
        /// Bytes per second, seconds of a round trip, and bytes that the router holds back.
        rate: f64,
        delay: f64,
        buffer: f64,
        size: u64,
    }

    /// A connection's first answer takes this many further round trips.
    const COLD: f64 = 3.0;
    /// Of the requests that the router has no room for, one of this many loses bytes, which come
    /// again after some seconds. The others wait at their senders, which have learnt to.
    const LOSES: u64 = 64;
    const AGAIN: f64 = 1.0;
    /// Bytes that are fetched ahead of a sample that does not come.
    const AHEAD: u64 = 256 << 20;

    impl Link {
        /// The share of the link over `seconds` after the first ten, and the window that was best.
        fn run(&self, seconds: f64) -> (f64, usize) {
            let at = |seconds: f64| Duration::from_secs_f64(seconds);
            let (mut pace, mut now, mut free, mut warm) = (Pace::new(), 0.0, 0.0f64, 0);
            // Requests by the time of their answer; and those without an answer, oldest first.
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
                    // Others go first while a connection is slow.
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

        /// The weight that fills the link.
        fn product(&self) -> f64 {
            (self.rate * self.delay / self.size as f64 + 1.0) * weight(self.size) as f64
        }
    }

    #[test]
    fn as_many_requests_fly_as_fill_the_link_and_not_many_more() {
        let links = [(1.0, 0.03), (1.0, 0.2), (10.0, 0.03), (0.1, 0.2)].map(|of| (of, 110_000));
        let blocks = [(1.0, 0.03), (1.0, 0.2), (10.0, 0.03)].map(|of| (of, 2_000_000));
        for ((gbit, delay), size) in links.into_iter().chain(blocks) {
            let rate = gbit * 1.25e8;
            // A router holds back about as much as is on the way.
            let link = Link { rate, delay, buffer: rate * delay, size };
            let (share, window) = link.run(100.0);
            let what = format!("{gbit} Gbit/s, {delay} s, {size} bytes: {share} of the link with {window}");
            assert!(share > 0.97, "{what}");
            assert!(window as f64 <= 2.0 * link.product().max(LEAST), "{what}");
        }
    }

    #[test]
    fn the_number_follows_a_network_that_changes() {
        let mut pace = Pace::new();
        let mut answers = |number: usize, seconds: &dyn Fn(usize) -> f64| {
            for _ in 0..number {
                let flying = (pace.window as usize).min(MOST);
                pace.answered(Duration::from_secs_f64(seconds(flying)), 1000, flying, true);
            }
            pace.base
        };
        // A full link, on which everything waits for all that is in flight.
        assert_eq!(answers(20_000, &|flying| flying as f64 / 1000.0), LEAST);
        // A distant one, where nothing waits.
        assert!(answers(200_000, &|_| 0.1) >= MOST as f64);
        assert!(answers(200_000, &|flying| 0.1 + (flying.saturating_sub(100)) as f64 / 1000.0) < 250.0);
    }

    #[test]
    fn a_trial_that_fails_by_accident_is_repeated_soon() {
        let (mut pace, mut answers) = (Pace::new(), 0);
        // A distant network. The connections that the first trial opens are slow.
        while pace.base <= FIRST {
            let slow = pace.trial == Trial::More && answers < 5_000;
            let seconds = if slow { 0.3 } else { 0.2 };
            let flying = (pace.window as usize).min(MOST);
            pace.answered(Duration::from_secs_f64(seconds), 1000, flying, true);
            answers += 1;
        }
        assert!(answers < 12_000, "{answers} answers, of which {FIRST} take a round trip");
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
    fn late_requests_are_known_and_few_are_sent_twice() {
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
