use std::fmt;

use serde::{Deserialize, Serialize};

use super::StageStats;
use super::stats::ratio;
use super::{Stage, Stats, Straggler, serving};

/// A wait below this share of the time is too short to matter.
pub(super) const STALLED: f64 = 0.05;
/// Workers that are busy for this share of the time are saturated.
pub(super) const SATURATED: f64 = 0.75;
/// A copy or convert stream that is busy for this share of the time is saturated.
pub(super) const STREAM_SATURATED: f64 = 0.8;
/// Workers that wait for a processor for this share of their busy time have too few processors.
const DELAYED: f64 = 0.2;
/// How many times as fast random crops of packed photographs decode, compared with plain ones. On
/// two cores the whole path, 80 % of it decoding, was 1.66 times as fast; on sixteen, 2.03 times
/// (`benches/RESULTS.md`).
const PACKING: f64 = 2.0;
/// With this many reads under way on average, reading is the bottleneck.
const READS: f64 = 2.0;
/// The verdict needs at least this many batches.
pub(super) const LEAST_BATCHES: u64 = 4;

/// The stage that limits a loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Limit {
    /// The consumer. It hardly waits.
    Step,
    /// Reading samples.
    Read,
    /// Decoding.
    Decode,
    /// Crop, resize, colour, or the user's transforms.
    Transform,
    /// Memory: normalising, casting and writing the batch.
    Memory,
    /// The copy to the device.
    Copy,
    /// The conversion on the device.
    Convert,
    /// The decoding on the device.
    DeviceDecode,
    /// Fewer workers than processors.
    Workers,
    /// Too few batches ahead to even out uneven steps or samples.
    Slots,
    /// One or a few samples that take very long.
    Straggler,
    /// The beginnings of epochs.
    EpochStart,
    /// The numbers show no single cause.
    Unclear,
}

/// What limits a loader, with the numbers. Its `Display` is one sentence.
///
/// The first rule that holds decides. *Waited* is the share of the time that the consumer's stream
/// waited on the device, once half of the batches were timed there. For batches in host memory it
/// is the consumer's wait on the host. *Busy* is the share of the workers' time spent in their four
/// stages.
///
/// 1. Fewer than 4 batches: [`Unclear`](Limit::Unclear).
/// 2. Waited less than 5 %: [`Step`](Limit::Step).
/// 3. Samples that took over 10 times as long as a usual one (and over 2 times a batch) make up
///    half of the wait or more, beyond what a usual sample takes and what workers [waited for a
///    processor](Stats::delayed_seconds): [`Straggler`](Limit::Straggler). Samples that were slow
///    at the same moment on several workers do not count: what held them all up is not in the
///    samples.
/// 4. The copy stream busy 80 % of the time: [`Copy`](Limit::Copy); the convert stream:
///    [`Convert`](Limit::Convert); decoding on the device: [`DeviceDecode`](Limit::DeviceDecode).
/// 5. Busy at least 75 %: the stage with the greatest share, read is [`Read`](Limit::Read); write
///    is [`Memory`](Limit::Memory); decode and transform are [`Workers`](Limit::Workers) where
///    there are fewer workers than processors, else [`Decode`](Limit::Decode) and
///    [`Transform`](Limit::Transform).
/// 6. Half of the wait or more for the first batch of an epoch: [`EpochStart`](Limit::EpochStart).
/// 7. Threads that read for the workers had 2 reads or more under way on average:
///    [`Read`](Limit::Read).
/// 8. The coordinator waited for slots 10 % of the time or more, so that workers idled while at
///    other times the consumer waited, and hardly ever had to wait for a processor:
///    [`Slots`](Limit::Slots).
/// 9. [`Unclear`](Limit::Unclear).
///
/// A [`Decoder`](crate::Decoder) is judged by the rules 1, 2, 4 (the device's decoding), 5, 8 and 9,
/// in this order. Its text speaks of requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Verdict {
    /// The stage.
    pub limit: Limit,
    /// The most that the loop could speed up if the consumer never waited, as a factor. `None` if
    /// the step takes almost no time.
    pub max_skipped: Option<f64>,
    /// The evidence, and what would lift the limit.
    pub text: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Shares and rates that several rules use.
struct Evidence<'a> {
    stats: &'a Stats,
    /// 0 to 1.
    waited: f64,
    /// 0 to 1.
    busy: f64,
    /// The waits, for people.
    step_waited: String,
}

impl Stats {
    /// What limits the loader, and what would lift it; [`Verdict`] has the rules.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(self)
    }
}

impl Verdict {
    fn of(stats: &Stats) -> Verdict {
        let host = stats.stall_fraction();
        let waited = match (&stats.stall, stats.device_stall_fraction()) {
            // A host that runs ahead of its device waits for the device. That wait costs nothing.
            (Some(stall), Some(device)) if 2 * stall.count >= stats.batches => device,
            (_, device) => host.max(device.unwrap_or(0.0)),
        };
        let waited = waited.min(1.0);
        let busy = stats.busy_fraction();
        let step_waited = format!("the step waited {:.0} % of the time", 100.0 * waited);
        let evidence = Evidence { stats, waited, busy, step_waited };
        let (limit, text) = if stats.on_request { serving::judge(stats, waited, busy) } else { evidence.judge() };
        // Without the wait, only the step remains.
        let max_skipped = (waited < 0.98).then(|| 1.0 / (1.0 - waited));
        Verdict { limit, max_skipped, text }
    }
}

impl Evidence<'_> {
    fn judge(&self) -> (Limit, String) {
        let Evidence { stats, waited, busy, step_waited } = self;
        if stats.batches < LEAST_BATCHES {
            return (
                Limit::Unclear,
                format!("too early to say: {} batches, at least {LEAST_BATCHES} are needed", stats.batches),
            );
        }
        if *waited < STALLED {
            return (Limit::Step, self.step_bound());
        }
        if let Some(text) = self.stragglers() {
            return (Limit::Straggler, text);
        }
        for (limit, name, stage, advice) in [
            (
                Limit::Copy,
                "copy",
                &stats.copy,
                "smaller images, or a wider link, would lift it; more workers would not",
            ),
            (
                Limit::Convert,
                "convert",
                &stats.convert,
                "the model's own kernels leave it no room, or its batches are very small",
            ),
        ] {
            if let Some(stage) = stage.as_ref().filter(|s| ratio(s.seconds, stats.seconds) >= STREAM_SATURATED) {
                let share = 100.0 * ratio(stage.seconds, stats.seconds);
                let speed = ratio(stage.bytes as f64, stage.seconds) / 1e9;
                let text = format!(
                    "{name}-bound: the {name} stream is busy {share:.0} % of the time, at {speed:.1} GB/s; {step_waited}; {advice}"
                );
                return (limit, text);
            }
        }
        if let Some(decode) =
            stats.device_decode.as_ref().filter(|s| ratio(s.seconds, stats.seconds) >= STREAM_SATURATED)
        {
            let share = 100.0 * ratio(decode.seconds, stats.seconds);
            let text = format!(
                "bound by decoding on the device: it takes {share:.0} % of the device's time, {:.2} ms a batch; {step_waited}; \
                 `warpfeed pack` makes files that the device decodes faster, and DecodeOn::Auto lets the workers help",
                1e3 * decode.mean_seconds()
            );
            return (Limit::DeviceDecode, text);
        }
        if *busy >= SATURATED {
            return self.work_bound();
        }
        if stats.start_seconds >= 0.5 * stats.waited_seconds && stats.epochs > 1 {
            let each = 1e3 * stats.start_seconds / stats.epochs as f64;
            let per_epoch = stats.batches as f64 / stats.epochs as f64;
            let text = format!(
                "bound by the starts of epochs: {step_waited}, {:.0} % of that for the first batch of {} epochs of {per_epoch:.1} batches \
                 ({each:.1} ms each); an epoch's batches are made from its start on, so longer epochs or smaller batches would lift it",
                100.0 * ratio(stats.start_seconds, stats.waited_seconds),
                stats.epochs
            );
            return (Limit::EpochStart, text);
        }
        if stats.reads_under_way() >= READS {
            return (Limit::Read, self.reads_bound());
        }
        let blocked = ratio(stats.slot.seconds, stats.seconds);
        if blocked >= 0.1 && self.delayed() < DELAYED {
            let interval = ratio(stats.seconds, stats.batches as f64);
            let more = (ratio(stats.wait.p99_seconds, interval).ceil() as usize).clamp(1, 16);
            let text = format!(
                "too few slots: {step_waited} although workers are busy only {:.0} % of it, since all {} slots were taken for {:.0} % of the time, full or being \
                 filled; steps or samples take unequal times: prefetch({}) in place of {} would even them out",
                100.0 * busy,
                stats.slots,
                100.0 * blocked,
                stats.prefetch + more,
                stats.prefetch
            );
            return (Limit::Slots, text);
        }
        let text = format!(
            "no single cause: {step_waited}, workers are busy {:.0} % of it, slots were taken {:.0} %; a trace (`Loader::trace`) shows who waits for whom",
            100.0 * busy,
            100.0 * blocked
        );
        (Limit::Unclear, text)
    }

    /// Samples a second that the workers could deliver if nobody made them wait.
    fn capacity(&self) -> f64 {
        ratio(self.stats.prepared as f64, self.stats.seconds * self.busy)
    }

    fn step_bound(&self) -> String {
        let Evidence { stats, step_waited, .. } = self;
        let (rate, capacity) = (stats.samples_per_second(), self.capacity());
        // On a device, the host cannot see when a step ends.
        let on_device = ratio((1.0 - self.waited) * stats.seconds, stats.batches as f64);
        let step = 1e3 * if stats.stall.is_some() { on_device } else { stats.step.mean_seconds() };
        format!(
            "step-bound: {step_waited}; a step takes {step:.1} ms, {rate:.0} samples/s. {:.1} of {} workers are busy: the loader could give about {capacity:.0} \
             samples/s, {:.1} times as many; the loader is not the limit",
            stats.busy_workers(),
            stats.workers,
            ratio(capacity, rate)
        )
    }

    /// The workers idle, since samples do not come fast enough to the threads that read.
    fn reads_bound(&self) -> String {
        let Evidence { stats, step_waited, .. } = self;
        let each = stats.ahead.as_ref().map_or(0.0, StageStats::mean_seconds);
        format!(
            "read-bound: {:.1} of {} workers are busy, {:.1} reads are under way at a time ({:.0} us each); {step_waited}; {:.1} MB/s are read{}; one \
             packed file (`warpfeed pack`), a faster disk, or larger or more batches ahead (prefetch) for more reads at a time would lift it",
            stats.busy_workers(),
            stats.workers,
            stats.reads_under_way(),
            1e6 * each,
            stats.bytes_per_second() / 1e6,
            self.disk_share()
        )
    }

    /// How much of what is read comes from the disk, if the system says so.
    fn disk_share(&self) -> String {
        self.stats.process.disk_bytes.map_or(String::new(), |bytes| {
            format!(", {:.1} MB/s of it from the disk", ratio(bytes as f64, self.stats.seconds) / 1e6)
        })
    }

    /// Share of the workers' busy time in which they were ready to run and waited for a processor.
    fn delayed(&self) -> f64 {
        ratio(self.stats.delayed_seconds, self.stats.busy_workers() * self.stats.seconds)
    }

    /// Seconds that a usual sample takes.
    fn usual(&self) -> f64 {
        let ahead = self.stats.ahead.as_ref().map_or(0.0, |ahead| ahead.p50_seconds);
        ahead + self.stats.stages().values().map(|stage| stage.p50_seconds).sum::<f64>()
    }

    /// Samples so slow that their batch waits for them, each with the seconds beyond the usual
    /// time. With `together`, only samples that were slow at the same moment as another; otherwise
    /// only the rest.
    fn slow(&self, together: bool) -> Vec<(&Straggler, f64)> {
        let (stats, usual) = (self.stats, self.usual());
        let batch = usual * ratio(stats.samples as f64, stats.batches as f64) / stats.workers.max(1) as f64;
        let slow: Vec<_> =
            stats.slowest.iter().filter(|s| s.seconds > 10.0 * usual && s.seconds > 2.0 * batch).collect();
        let meets = |a: &Straggler, b: &Straggler| {
            a.sample != b.sample && (a.at_seconds - b.at_seconds).abs() < 0.1 * a.seconds.min(b.seconds)
        };
        let chosen = slow.iter().filter(|a| slow.iter().any(|b| meets(a, b)) == together);
        chosen.map(|s| (*s, s.total_seconds - s.times as f64 * usual)).collect()
    }

    fn stragglers(&self) -> Option<String> {
        let (stats, usual, slow) = (self.stats, self.usual(), self.slow(false));
        let (first, most) = slow.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let excess: f64 = slow.iter().map(|(_, seconds)| seconds).sum();
        // A sample also looks slow if its thread waited for a processor.
        (excess - stats.delayed_seconds >= 0.5 * self.waited * stats.seconds).then(|| {
            let (ms, usual) = (1e3 * first.seconds, 1e3 * usual);
            // Samples below a tenth of the worst are not counted.
            let count = slow.iter().filter(|(_, seconds)| *seconds >= 0.1 * most).count();
            format!(
                "bound by {count} slow sample{}: {} takes {ms:.1} ms, most of it in {}, where others take {usual:.2} ms, and its batch waits for it; {}; \
                 re-encode or drop {}, or raise prefetch above {}",
                if count == 1 { "" } else { "s" },
                first.name(),
                first.stage,
                self.step_waited,
                if count == 1 { "it" } else { "them (`stats.slowest`)" },
                stats.prefetch
            )
        })
    }

    /// The workers are busy: with what?
    fn work_bound(&self) -> (Limit, String) {
        let Evidence { stats, step_waited, .. } = self;
        let total = stats.worked_seconds();
        let stages = stats.stages();
        let (which, stage) =
            stages.iter().max_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds)).expect("there are stages");
        let share = ratio(stage.seconds, total);
        let (mean, p99) = (1e6 * stage.mean_seconds(), 1e6 * stage.p99_seconds);
        let running = ratio(stats.process.cpu_seconds, total);
        let (workers, processors) = (stats.workers, stats.processors);
        let mut evidence = format!(
            "{:.1} of {workers} workers are busy, {:.0} % of that with {which} ({mean:.0} us a sample, p99 {p99:.0}); {step_waited}",
            stats.busy_workers(),
            100.0 * share
        );
        if running < 0.7 {
            evidence += &format!("; busy threads were on a processor only {:.0} % of the time", 100.0 * running);
        }
        if self.delayed() >= DELAYED {
            evidence += &format!(
                "; for {:.0} % of it they were ready and had none: more threads or programs than processors, or a container's limit (`cpu.max`)",
                100.0 * self.delayed().min(1.0)
            );
        }
        let together = self.slow(true);
        if together.iter().map(|(_, seconds)| seconds).sum::<f64>() >= 0.1 * total {
            evidence += &format!(
                "; {} samples were slow at the same moments on several workers: something held up the machine or the disk",
                together.len()
            );
        }
        let halved = 1.0 / (1.0 - share / 2.0);
        let disk = self.disk_share();
        match which {
            Stage::Read => {
                let speed = stats.bytes_per_second() / 1e6;
                let advice = "one packed file (`warpfeed pack`) or a faster disk would lift it";
                (Limit::Read, format!("read-bound: {evidence}; {speed:.1} MB/s are read{disk}; {advice}"))
            }
            Stage::Write => {
                let speed = ratio(stage.bytes as f64, stage.seconds * 1e9) * stats.busy_workers();
                let advice = "it moves memory and hardly computes: u8 batches, normalised on the device, are a quarter of f32's bytes";
                (Limit::Memory, format!("memory-bound: {evidence}; batches are written at {speed:.1} GB/s; {advice}"))
            }
            _ if workers < processors => {
                let times = processors as f64 / workers as f64;
                let advice = format!(
                    "workers({processors}), as many as there are processors, would give up to {times:.1} times as much"
                );
                (Limit::Workers, format!("bound by too few workers: {evidence}; {advice}"))
            }
            Stage::Decode => {
                let plain = ratio(stats.plain_jpegs as f64, stats.prepared as f64).min(1.0);
                let advice = if plain < 0.1 {
                    format!(
                        "decoding in half the time would give {halved:.1} times as much: more processors, or smaller pictures"
                    )
                } else {
                    // Small crops gain more; whole pictures gain nothing.
                    let times = 1.0 / (1.0 - share * plain * (1.0 - 1.0 / PACKING));
                    format!(
                        "{:.0} % of the samples are JPEGs without restart markers: `warpfeed pack` lets crops of them be decoded alone, which with \
                         usual random crops gives about {times:.1} times as much",
                        100.0 * plain
                    )
                };
                let device = if stats.copy.is_some() && stats.decoded_on_device == 0 {
                    "; JPEGs can be decoded on the device: .decode_on(DecodeOn::Auto)"
                } else {
                    ""
                };
                (Limit::Decode, format!("decode-bound: {evidence}; {advice}{device}"))
            }
            Stage::Transform => {
                let advice = format!(
                    "a transform in half the time would give {halved:.1} times as much: smaller images, or less augmentation"
                );
                (Limit::Transform, format!("transform-bound: {evidence}; {advice}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::StageStats;
    use super::*;
    use crate::trace::ProcessStats;

    fn stage(count: u64, seconds: f64, bytes: u64) -> StageStats {
        let each = seconds / count as f64;
        StageStats { count, seconds, bytes, p50_seconds: each, p99_seconds: each, ..StageStats::default() }
    }

    /// Ten seconds of a loader with 4 workers that are busy half of the time, and a consumer that
    /// waits 40 % of it.
    fn loader() -> Stats {
        Stats {
            workers: 4,
            processors: 4,
            prefetch: 2,
            slots: 4,
            seconds: 10.0,
            batches: 100,
            samples: 6400,
            prepared: 6400,
            waited_seconds: 4.0,
            epochs: 1,
            read: stage(6400, 1.0, 1 << 30),
            decode: stage(6400, 14.0, 0),
            transform: stage(6400, 4.0, 0),
            write: stage(6400, 1.0, 1 << 30),
            wait: stage(100, 4.0, 0),
            step: stage(100, 6.0, 0),
            ..Stats::default()
        }
    }

    #[test]
    fn decoding_on_the_device_is_named_and_advised() {
        let decode = Stats { device_decode: Some(stage(100, 9.0, 0)), decoded_on_device: 6400, ..loader() }.verdict();
        assert_eq!(decode.limit, Limit::DeviceDecode);
        assert!(
            decode.text.starts_with(
                "bound by decoding on the device: it takes 90 % of the device's time, 90.00 ms a batch; the step waited 40 %"
            ),
            "{}",
            decode.text
        );
        let advice = "decode_on(DecodeOn::Auto)";
        let busy = stage(6400, 30.0, 0);
        let on_device = Stats { copy: Some(stage(100, 1.0, 1)), decode: busy.clone(), ..loader() };
        assert!(on_device.verdict().text.contains(advice), "{}", on_device.verdict().text);
        let on_host = Stats { decode: busy, ..loader() };
        assert!(!on_host.verdict().text.contains(advice), "batches in host memory cannot");
        let already = Stats { decoded_on_device: 1, ..on_device };
        assert!(!already.verdict().text.contains(advice));
    }

    #[test]
    fn streams_that_are_always_busy_are_named() {
        let copy = Stats { copy: Some(stage(100, 9.2, 230_000_000_000)), ..loader() }.verdict();
        assert_eq!(copy.limit, Limit::Copy);
        assert!(
            copy.text.starts_with(
                "copy-bound: the copy stream is busy 92 % of the time, at 25.0 GB/s; the step waited 40 %"
            ),
            "{copy}"
        );
        let convert = Stats { convert: Some(stage(100, 8.5, 0)), copy: Some(stage(100, 5.0, 1)), ..loader() }.verdict();
        assert_eq!(convert.limit, Limit::Convert);
        // The host hardly waits, since copies are queued; the device's own clock shows the wait.
        let device =
            Stats { waited_seconds: 0.1, stall: Some(stage(100, 5.0, 0)), copy: Some(stage(100, 9.0, 1)), ..loader() };
        assert_eq!(device.verdict().limit, Limit::Copy);
        assert_eq!(device.verdict().max_skipped, Some(2.0));
    }

    /// A program that never waits for its device runs ahead of it, until all slots on the device
    /// are taken.
    #[test]
    fn a_host_that_waits_for_its_busy_device_is_step_bound() {
        let stats = Stats { waited_seconds: 9.0, stall: Some(stage(96, 0.1, 0)), ..loader() };
        let verdict = stats.verdict();
        assert_eq!(verdict.limit, Limit::Step, "{verdict}");
        assert!(verdict.text.contains("the step waited 1 % of the time; a step takes 99.0 ms"), "{verdict}");
        let untimed = Stats { stall: Some(stage(3, 0.1, 0)), ..stats };
        assert_ne!(untimed.verdict().limit, Limit::Step, "three batches say too little");
    }

    #[test]
    fn a_loader_without_a_single_cause_is_unclear() {
        let verdict = loader().verdict();
        assert_eq!(verdict.limit, Limit::Unclear, "{verdict}");
        assert_eq!(Stats { batches: 3, ..loader() }.verdict().limit, Limit::Unclear);
        assert_eq!(Stats::default().verdict().limit, Limit::Unclear);
    }

    fn slow(sample: u64, seconds: f64, at_seconds: f64) -> Straggler {
        Straggler {
            sample,
            key: format!("key{sample}"),
            stage: "decode".into(),
            seconds,
            times: 1,
            total_seconds: seconds,
            at_seconds,
        }
    }

    #[test]
    fn samples_that_were_slow_at_the_same_moment_are_not_blamed() {
        let slowest = vec![slow(7, 2.5, 3.0), slow(8, 2.4, 3.01), slow(9, 2.4, 2.9)];
        let stats = Stats { slowest, decode: StageStats { seconds: 24.0, ..loader().decode }, ..loader() };
        let verdict = stats.verdict();
        assert_eq!(verdict.limit, Limit::Decode, "{verdict}");
        assert!(verdict.text.contains("3 samples were slow at the same moments on several workers"), "{verdict}");
        let slowest = vec![slow(7, 2.5, 3.0), slow(8, 2.4, 3.3), slow(9, 2.4, 2.7)];
        assert_eq!(Stats { slowest, ..stats }.verdict().limit, Limit::Straggler);
    }

    #[test]
    fn a_slow_sample_is_named_unless_its_thread_had_no_processor() {
        let slowest = vec![slow(7, 2.5, 3.0), slow(8, 1.0, 5.0), slow(9, 0.1, 6.0)];
        let stats = Stats { slowest, ..loader() };
        let verdict = stats.verdict();
        assert_eq!(verdict.limit, Limit::Straggler);
        let words = "bound by 2 slow samples: sample 7 (key7) takes 2500.0 ms, most of it in decode, where others take 3.13 ms,";
        assert!(verdict.text.starts_with(words), "{verdict}");
        let unread = Straggler { key: String::new(), ..stats.slowest[0].clone() };
        let unread = Stats { slowest: vec![unread], ..stats.clone() };
        assert!(unread.verdict().text.contains(": sample 7 takes 2500.0 ms"), "{}", unread.verdict());
        assert_eq!(Stats { delayed_seconds: 3.0, ..stats }.verdict().limit, Limit::Unclear);
    }

    #[test]
    fn each_rule_holds_on_its_numbers() {
        let cases = [
            (Limit::Step, Stats { waited_seconds: 0.4, ..loader() }, "a step takes 60.0 ms, 640 samples/s. 2.0 of 4"),
            (Limit::Read, Stats { read: stage(6400, 20.0, 1 << 30), ..loader() }, "read-bound: 3.9 of 4 workers"),
            (
                Limit::Read,
                Stats { ahead: Some(stage(6400, 80.0, 1 << 30)), ..loader() },
                "8.0 reads are under way at a",
            ),
            (Limit::Decode, Stats { decode: stage(6400, 30.0, 0), ..loader() }, "decode-bound: 3.6 of 4 workers"),
            (Limit::Transform, Stats { transform: stage(6400, 20.0, 0), ..loader() }, "transform-bound: 3.6 of 4"),
            (Limit::Memory, Stats { write: stage(6400, 20.0, 1 << 34), ..loader() }, "memory-bound: 3.9 of 4 workers"),
            (
                Limit::Workers,
                Stats { decode: stage(6400, 30.0, 0), processors: 16, ..loader() },
                "workers(16), as many as there are processors, would give up to 4.0 times",
            ),
            (
                Limit::EpochStart,
                Stats { epochs: 10, start_seconds: 3.0, ..loader() },
                "75 % of that for the first batch of 10 epochs of 10.0 batches (300.0 ms each)",
            ),
            (Limit::Slots, Stats { slot: stage(100, 3.0, 0), ..loader() }, "prefetch(3) in place of 2"),
        ];
        for (limit, stats, words) in cases {
            let verdict = stats.verdict();
            assert_eq!(verdict.limit, limit, "{verdict}");
            assert!(verdict.text.contains(words), "{words:?} is not in {:?}", verdict.text);
        }
    }

    #[test]
    fn threads_without_a_processor_are_part_of_the_evidence() {
        let process = ProcessStats { cpu_seconds: 12.0, ..ProcessStats::default() };
        let verdict = Stats { decode: stage(6400, 30.0, 0), delayed_seconds: 18.0, process, ..loader() }.verdict();
        assert_eq!(verdict.limit, Limit::Decode);
        let words =
            "busy threads were on a processor only 33 % of the time; for 50 % of it they were ready and had none";
        assert!(verdict.text.contains(words), "{verdict}");
    }

    #[test]
    fn packing_is_advised_for_plain_jpegs_alone() {
        let busy = Stats { decode: stage(6400, 30.0, 0), ..loader() };
        let plain = Stats { plain_jpegs: 6400, ..busy.clone() }.verdict();
        assert_eq!(plain.limit, Limit::Decode);
        let words = "100 % of the samples are JPEGs without restart markers: `warpfeed pack`";
        assert!(plain.text.contains(words) && plain.text.ends_with("gives about 1.7 times as much"), "{plain}");
        let packed = busy.verdict();
        assert_eq!(packed.limit, Limit::Decode);
        assert!(!packed.text.contains("pack") && packed.text.contains("1.7 times as much"), "{packed}");
    }

    #[test]
    fn what_the_step_leaves_bounds_what_can_be_gained() {
        let verdict = loader().verdict();
        assert!((verdict.max_skipped.unwrap() - 1.0 / 0.6).abs() < 1e-9);
        assert_eq!(Stats { waited_seconds: 9.99, ..loader() }.verdict().max_skipped, None, "there is no step");
    }
}
