//! [`Verdict`] names the bottleneck of a loader. The rules in this module determine it from the
//! statistics.

use std::fmt;

use serde::{Deserialize, Serialize};
use warpfeed_sources::internal::ratio;

use super::bottleneck::{
    Bottleneck, Judgment, MIN_BATCHES, MIN_BUSY_FRACTION, MIN_STALL_FRACTION, MIN_STREAM_FRACTION, percent,
};
use super::{Stage, StageStats, Stats};
use crate::error::counted;

/// There are too few cores if workers wait for a core for at least this fraction of their busy
/// time.
const MAX_DELAY_FRACTION: f64 = 0.2;
/// Speed of decoding random crops of photographs from packed files, relative to plain files. The
/// whole pipeline, in which decoding takes 80% of the time, was 1.69 times as fast on four cores
/// and 2.03 times as fast on sixteen cores (`benches/RESULTS.md`).
const PACKED_SPEEDUP: f64 = 2.0;
/// Minimum average number of reads in flight for which reading can be the bottleneck.
const MIN_READS_IN_FLIGHT: f64 = 2.0;
/// The verdict mentions the first batches of epochs if they cause at least this fraction of the
/// wait.
const MIN_START_SHARE: f64 = 0.25;

/// The bottleneck of a loader, with the evidence. `Display` prints [`text`](Verdict::text).
///
/// The first matching rule decides. *Waited* is a fraction of time. If at least half of the batches
/// were timed on the device, *waited* is the fraction in which the consumer's stream waited on the
/// device. If fewer batches were timed, *waited* is the greater of this fraction and the fraction
/// in which the consumer waited on the host. For batches in host memory, *waited* is the fraction
/// in which the consumer waited on the host. *Busy* is the fraction of the workers' time that they
/// spent in their stages.
///
/// 1. Fewer than 4 batches were delivered: [`Unclear`](Bottleneck::Unclear).
/// 2. Waited less than 5%: [`Step`](Bottleneck::Step).
/// 3. Slow samples cause at least half of the wait: [`Straggler`](Bottleneck::Straggler). A sample
///    is slow if it took over 10 times the time of a typical sample and over twice the time of a
///    batch. The wait that slow samples cause is the longer of two times: their total excess over
///    the time of a typical sample, and the time in which the consumer waited for a single batch
///    while all later batches were [complete](Stats::straggler_wait). The time that workers [waited
///    for a core](Stats::delayed_seconds) is subtracted, except for samples with over 4 times the
///    average number of bytes. Smaller samples that were slow at the same moment on several workers
///    do not count, because the samples themselves are not the cause.
/// 4. The copy stream is busy at least 80% of the time: [`Copy`](Bottleneck::Copy). The same limit
///    for the convert stream: [`Convert`](Bottleneck::Convert). The same limit for decoding on the
///    device: [`DeviceDecode`](Bottleneck::DeviceDecode).
/// 5. Busy at least 75%: the stage that takes the most time. Reading is [`Read`](Bottleneck::Read),
///    or [`Network`](Bottleneck::Network) if the source is in a store, and writing is
///    [`Memory`](Bottleneck::Memory). Decoding, transforms and fields are
///    [`Workers`](Bottleneck::Workers) if there are fewer workers than 15/16 of the cores and the
///    workers hardly ever wait for a core. Otherwise, they are [`Decode`](Bottleneck::Decode),
///    [`Transform`](Bottleneck::Transform) and [`Field`](Bottleneck::Field).
/// 6. At least half of the wait is for the first batches of two or more epochs:
///    [`EpochStart`](Bottleneck::EpochStart).
/// 7. Readers had at least 2 reads in flight on average: [`Read`](Bottleneck::Read) or
///    [`Network`](Bottleneck::Network).
/// 8. The coordinator waited for slots at least 10% of the time, and workers hardly ever waited
///    for a core: [`Slots`](Bottleneck::Slots). In this case, the workers were sometimes idle, and
///    at other times the consumer waited.
/// 9. Otherwise: [`Unclear`](Bottleneck::Unclear).
///
/// For a [`Decoder`](crate::Decoder), rules 1, 2, 4 (only decoding on the device), 5, 8 (even if
/// workers waited for a core) and 9 apply, in this order, and the text refers to requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Verdict {
    /// The bottleneck.
    pub bottleneck: Bottleneck,
    /// Fraction of time in which the consumer waited, from 0 to 1, as the rules define it.
    pub wait_fraction: f64,
    /// Speed-up of the training loop, as a factor, if the consumer never waited. No advice in the
    /// text promises more than this factor. `None` if the consumer waited at least 98% of the time,
    /// because the step then takes almost no time.
    pub max_speedup: Option<f64>,
    /// A short headline, followed by one line for each piece of evidence and advice. Each of these
    /// lines begins with `- `.
    pub text: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The statistics, and values that several rules compute from them.
pub(super) struct Evidence<'a> {
    pub(super) stats: &'a Stats,
    pub(super) wait_fraction: f64,
    pub(super) busy_fraction: f64,
    pub(super) wait_text: String,
}

impl Stats {
    /// Determines the bottleneck of the loader; [`Verdict`] lists the rules.
    pub fn verdict(&self) -> Verdict {
        Verdict::from_stats(self)
    }
}

impl Verdict {
    fn from_stats(stats: &Stats) -> Verdict {
        let wait_fraction = match (&stats.stall, stats.device_stall_fraction()) {
            // A host that is ahead of the device waits at no cost, so use the device's waits.
            (Some(stall), Some(device)) if 2 * stall.count >= stats.batches => device,
            (_, device) => stats.stall_fraction().max(device.unwrap_or(0.0)),
        };
        let wait_fraction = wait_fraction.min(1.0);
        let wait_text = if stats.on_request {
            let images = ratio(stats.samples as f64, stats.batches as f64);
            format!("requests of {images:.1} images waited for a response {}% of the time", percent(wait_fraction))
        } else {
            format!("the step waited {}% of the time", percent(wait_fraction))
        };
        let evidence = Evidence { stats, wait_fraction, busy_fraction: stats.busy_fraction(), wait_text };
        let (bottleneck, headline, mut lines) =
            if stats.on_request { evidence.judge_requests() } else { evidence.judge() };
        if !stats.on_request && bottleneck != Bottleneck::EpochStart {
            lines.extend(evidence.epoch_start_line());
        }
        let text = lines.iter().fold(headline, |text, line| text + "\n- " + line);
        Verdict { bottleneck, wait_fraction, max_speedup: evidence.max_speedup(), text }
    }
}

impl Evidence<'_> {
    fn judge(&self) -> Judgment {
        let Evidence { stats, wait_fraction, busy_fraction, wait_text } = self;
        if stats.batches < MIN_BATCHES {
            let count_text =
                format!("{} so far; at least {MIN_BATCHES} are needed", counted(stats.batches, "batch", "batches"));
            return (Bottleneck::Unclear, "too early to say".into(), vec![count_text]);
        }
        if *wait_fraction < MIN_STALL_FRACTION {
            return self.judge_step();
        }
        if let Some(judgment) = self.judge_stragglers() {
            return judgment;
        }
        if let Some(judgment) = self.judge_device() {
            return judgment;
        }
        if *busy_fraction >= MIN_BUSY_FRACTION {
            return self.judge_work();
        }
        if stats.start_wait_seconds >= 0.5 * stats.waited_seconds
            && let Some(start_line) = self.epoch_start_line()
        {
            let reason = "at most a few batches are prepared before an epoch begins: longer epochs or smaller batches would help";
            let lines = vec![wait_text.clone(), start_line, reason.into()];
            return (Bottleneck::EpochStart, "limited by the starts of epochs".into(), lines);
        }
        if stats.reads_in_flight() >= MIN_READS_IN_FLIGHT {
            return match &stats.network {
                Some(network) if network.requests > 0 => self.judge_network(network),
                _ => self.judge_reads(),
            };
        }
        let blocked_fraction = ratio(stats.slot_wait.seconds, stats.seconds);
        if blocked_fraction >= 0.1 && self.delay_fraction() < MAX_DELAY_FRACTION {
            return self.judge_slots(blocked_fraction);
        }
        let lines = vec![
            wait_text.clone(),
            format!(
                "workers are busy {}% of the time; all slots were in use {}% of the time",
                percent(*busy_fraction),
                percent(blocked_fraction)
            ),
            "a trace (`Loader::trace`) shows which thread waits for which".into(),
        ];
        (Bottleneck::Unclear, "no single cause".into(), lines)
    }

    /// `blocked_fraction` is the fraction of time for which all slots were in use.
    fn judge_slots(&self, blocked_fraction: f64) -> Judgment {
        let Evidence { stats, busy_fraction, wait_text, .. } = self;
        let interval = ratio(stats.seconds, stats.batches as f64);
        let extra_batches = (ratio(stats.wait.p99_seconds, interval).ceil() as usize).clamp(1, 16);
        let lines = vec![
            wait_text.clone(),
            format!(
                "workers are busy {}% of the time; {}% of the time all {} slots were full or being filled",
                percent(*busy_fraction),
                percent(blocked_fraction),
                stats.slots
            ),
            format!(
                "steps or samples take unequal times: prefetch({}) instead of {} would even them out",
                stats.prefetch + extra_batches,
                stats.prefetch
            ),
        ];
        (Bottleneck::Slots, "limited by too few batches ahead".into(), lines)
    }

    fn max_speedup(&self) -> Option<f64> {
        // If the consumer never waited, only the time of the step would remain.
        (self.wait_fraction < 0.98).then(|| 1.0 / (1.0 - self.wait_fraction))
    }

    fn limit_speedup(&self, times: f64) -> f64 {
        self.max_speedup().map_or(times, |max_speedup| times.min(max_speedup))
    }

    /// Returns `None` if the first batches of epochs cause only a small fraction of the wait, if
    /// the wait itself is short, or if only one epoch has delivered batches.
    fn epoch_start_line(&self) -> Option<String> {
        let Evidence { stats, wait_fraction, .. } = self;
        let share = ratio(stats.start_wait_seconds, stats.waited_seconds);
        let is_relevant = *wait_fraction >= MIN_STALL_FRACTION
            && stats.batches >= MIN_BATCHES
            && stats.epochs > 1
            && share >= MIN_START_SHARE;
        is_relevant.then(|| {
            format!(
                "{}% of the wait is for the first batches of {} epochs ({:.1} ms each, {:.1} batches per epoch): `.repeat(n)` makes \
                 one epoch of n",
                percent(share),
                stats.epochs,
                1e3 * stats.start_wait_seconds / stats.epochs as f64,
                stats.batches as f64 / stats.epochs as f64
            )
        })
    }

    /// Returns how many samples per second the workers would prepare if they were never idle.
    fn capacity(&self) -> f64 {
        ratio(self.stats.prepared_samples as f64, self.stats.seconds * self.busy_fraction)
    }

    pub(super) fn busy_workers_line(&self) -> String {
        let Stats { workers, .. } = *self.stats;
        format!("{:.1} of {workers} workers are busy", self.stats.busy_workers().min(workers as f64))
    }

    fn judge_step(&self) -> Judgment {
        let Evidence { stats, wait_text, .. } = self;
        let (rate, capacity) = (stats.samples_per_second(), self.capacity());
        // The host cannot measure the time of steps on a device.
        let device_seconds = ratio((1.0 - self.wait_fraction) * stats.seconds, stats.batches as f64);
        let step_ms = 1e3 * if stats.stall.is_some() { device_seconds } else { stats.step.mean_seconds() };
        let mut lines = vec![wait_text.clone(), format!("a step takes {step_ms:.1} ms: {rate:.0} samples/s")];
        let worker_line = self.busy_workers_line();
        lines.push(if capacity > rate {
            let speedup = ratio(capacity, rate);
            format!("{worker_line}: the loader could deliver about {capacity:.0} samples/s, {speedup:.1} times as many")
        } else {
            worker_line
        });
        (Bottleneck::Step, "step-bound: the loader is not the bottleneck".into(), lines)
    }

    fn judge_device(&self) -> Option<Judgment> {
        let Evidence { stats, wait_text, .. } = self;
        let share = |stage: &StageStats| ratio(stage.seconds, stats.seconds);
        let is_saturated = |stage: &&StageStats| share(stage) >= MIN_STREAM_FRACTION;
        let describe_stream = |name: &str, stage: &StageStats, advice: &str| {
            let speed = ratio(stage.bytes as f64, stage.seconds) / 1e9;
            let busy_line =
                format!("the {name} stream is busy {}% of the time, at {speed:.1} GB/s", percent(share(stage)));
            (format!("{name}-bound"), vec![busy_line, wait_text.clone(), advice.to_owned()])
        };
        if let Some(copy) = stats.copy.as_ref().filter(is_saturated) {
            let advice = "smaller images, or a wider link, would help; more workers would not";
            let (headline, lines) = describe_stream("copy", copy, advice);
            return Some((Bottleneck::Copy, headline, lines));
        }
        if let Some(convert) = stats.convert.as_ref().filter(is_saturated) {
            let advice = "the model's own kernels keep the device busy, or the batches are very small";
            let (headline, lines) = describe_stream("convert", convert, advice);
            return Some((Bottleneck::Convert, headline, lines));
        }
        let decode = stats.device_decode.as_ref().filter(is_saturated)?;
        let lines = vec![
            self.device_decode_line(decode),
            wait_text.clone(),
            "`warpfeed pack` makes files that the device decodes faster; DecodeOn::Auto lets the workers help".into(),
        ];
        Some((Bottleneck::DeviceDecode, "device-decode-bound".into(), lines))
    }

    pub(super) fn device_decode_line(&self, decode: &StageStats) -> String {
        let (share, batch_ms) = (percent(ratio(decode.seconds, self.stats.seconds)), 1e3 * decode.mean_seconds());
        let batch = if self.stats.on_request { "request" } else { "batch" };
        format!("decoding takes {share}% of the device's time, {batch_ms:.2} ms per {batch}")
    }

    /// Returns the judgment for workers that are idle because reading ahead is too slow.
    fn judge_reads(&self) -> Judgment {
        let Evidence { stats, wait_text, .. } = self;
        let mean_seconds = stats.readahead.as_ref().map_or(0.0, StageStats::mean_seconds);
        let lines = vec![
            format!(
                "{}, {:.1} reads are in flight on average ({:.0} us each)",
                self.busy_workers_line(),
                stats.reads_in_flight(),
                1e6 * mean_seconds
            ),
            wait_text.clone(),
            self.read_speed_line(),
            "one packed file (`warpfeed pack`), a faster disk, or more reads in flight \
 (larger batches, or a higher prefetch) would help"
                .into(),
        ];
        (Bottleneck::Read, "read-bound".into(), lines)
    }

    fn read_speed_line(&self) -> String {
        let stats = self.stats;
        let disk = stats.process.disk_read_bytes.map_or(String::new(), |bytes| {
            format!("; {:.1} MB/s came from the disk", ratio(bytes as f64, stats.seconds) / 1e6)
        });
        format!("{:.1} MB/s are read{disk}", stats.bytes_per_second() / 1e6)
    }

    /// Returns the fraction of the workers' busy time for which they were runnable but not running.
    fn delay_fraction(&self) -> f64 {
        ratio(self.stats.delayed_seconds, self.stats.busy_seconds()).min(1.0)
    }

    /// Describes why busy workers were not running. Returns `None` if they were running most of the
    /// time.
    fn off_core_line(&self) -> Option<String> {
        let stats = self.stats;
        let cpu_fraction = ratio(stats.process.cpu_seconds, stats.busy_seconds());
        // Round two of the three percentages, and compute the third so that the sum is 100%. The
        // CPU time is known only for the whole process, and is an upper bound of the workers' CPU
        // time.
        let waiting_percent = percent(self.delay_fraction());
        let running_percent = percent(cpu_fraction).min(100 - waiting_percent);
        let running_percent = if stats.process.cpu_seconds > 0.0 { running_percent } else { 100 - waiting_percent };
        let blocked_percent = 100 - waiting_percent - running_percent;
        let is_crowded = self.delay_fraction() >= MAX_DELAY_FRACTION;
        if !is_crowded && blocked_percent < 30 {
            return None;
        }
        let rest_text = match (waiting_percent > 5, blocked_percent > 5) {
            (true, true) => {
                format!(", waiting for a free core {waiting_percent}%, and blocked for the rest, by a disk or a lock")
            }
            (true, false) => "; for the rest they were waiting for a free core".into(),
            _ => "; for the rest they were blocked, by a disk or a lock".to_owned(),
        };
        let reason = if is_crowded {
            ": there are more threads or programs than cores, or a container's limit (`cpu.max`)"
        } else {
            ""
        };
        Some(format!("workers were running {running_percent}% of their busy time{rest_text}{reason}"))
    }

    pub(super) fn judge_work(&self) -> Judgment {
        let Evidence { stats, wait_text, .. } = self;
        let total_seconds = stats.busy_seconds();
        let (stage_kind, name, stage) = stats.busiest_stage();
        let share = ratio(stage.seconds, total_seconds);
        let (mean_us, p99_us) = (1e6 * stage.mean_seconds(), 1e6 * stage.p99_seconds);
        let sample = if stats.on_request { "image" } else { "sample" };
        let mut lines = vec![
            format!(
                "{}, {}% of that with {name} ({mean_us:.0} us per {sample}, p99 {p99_us:.0})",
                self.busy_workers_line(),
                percent(share)
            ),
            wait_text.clone(),
        ];
        lines.extend(self.off_core_line());
        let simultaneous = self.slow_samples(true);
        if simultaneous.iter().map(|(_, seconds)| seconds).sum::<f64>() >= 0.1 * total_seconds {
            lines.push(format!(
                "{} samples were slow at the same moments on several workers: the machine or the disk stalled",
                simultaneous.len()
            ));
        }
        if let (Stage::Read, Some(network)) =
            (stage_kind, stats.network.as_ref().filter(|network| network.requests > 0))
        {
            return self.judge_network(network);
        }
        let (bottleneck, headline) = match stage_kind {
            Stage::Read => (Bottleneck::Read, "read-bound".into()),
            Stage::Write => (Bottleneck::Memory, "memory-bound".into()),
            // More threads do not help if threads are already waiting for a core. An automatic
            // number of workers may reserve one core of 16 for other threads.
            _ if 16 * stats.workers < 15 * stats.cores && self.delay_fraction() < MAX_DELAY_FRACTION => {
                (Bottleneck::Workers, "limited by the number of workers".into())
            }
            Stage::Decode => (Bottleneck::Decode, "decode-bound".into()),
            Stage::Transform => (Bottleneck::Transform, "transform-bound".into()),
            Stage::Fields => (Bottleneck::Field, format!("limited by the field {name:?}")),
        };
        self.advise(bottleneck, stage, share, &mut lines);
        (bottleneck, headline, lines)
    }

    /// Adds advice to `lines`. `share` is the fraction of the workers' time that `stage` takes.
    fn advise(&self, bottleneck: Bottleneck, stage: &StageStats, share: f64, lines: &mut Vec<String>) {
        let stats = self.stats;
        let half_time_speedup = self.limit_speedup(1.0 / (1.0 - share / 2.0));
        match bottleneck {
            Bottleneck::Read if stats.on_request => lines.push("smaller files would help".into()),
            Bottleneck::Read => {
                lines.push(self.read_speed_line());
                lines.push("one packed file (`warpfeed pack`) or a faster disk would help".into());
            }
            Bottleneck::Memory => {
                let speed = ratio(stage.bytes as f64, stage.seconds * 1e9) * stats.busy_workers();
                lines.push(format!("batches are written at {speed:.1} GB/s"));
                lines.push("u8 batches, normalized on the device, have a quarter of the bytes of f32".into());
            }
            Bottleneck::Workers => {
                let speedup = self.limit_speedup(stats.cores as f64 / stats.workers as f64);
                lines.push(format!(
                    "workers({}), one per core, would be at most {speedup:.1} times as fast",
                    stats.cores
                ));
            }
            Bottleneck::Decode => {
                let plain_fraction = ratio(stats.jpegs_without_restart_markers as f64, stats.prepared_samples as f64).min(1.0);
                lines.push(if plain_fraction < 0.1 || stats.on_request {
                    format!(
                        "decoding in half the time would make the loader {half_time_speedup:.1} times as fast: more cores, or smaller images"
                    )
                } else {
                    // The speed-up is an average. Small crops gain more, and whole images gain
                    // nothing.
                    let speedup = self.limit_speedup(1.0 / (1.0 - share * plain_fraction * (1.0 - 1.0 / PACKED_SPEEDUP)));
                    format!(
                        "{}% of the samples are JPEGs without restart markers: `warpfeed pack` adds them, which makes \
                         the loader about {speedup:.1} times as fast for typical random crops",
                        percent(plain_fraction)
                    )
                });
                if let Some(cache) = stats.decoded_cache.filter(|cache| stats.epochs > 1 && cache.is_full()) {
                    let hits = percent(ratio(cache.hits as f64, (cache.hits + cache.misses) as f64));
                    lines.push(format!(
                        "the cache of decoded images had {hits}% of the images: a larger cache_decoded would help"
                    ));
                }
                if stats.copy.is_some() && stats.images_sent_to_device == 0 {
                    lines.push("JPEGs can be decoded on the device: .decode_on(DecodeOn::Auto)".into());
                }
            }
            Bottleneck::Field => lines.push(format!("computing this field in half the time would make the loader {half_time_speedup:.1} times as fast")),
            _ => lines.push(format!(
                "a transform in half the time would make the loader {half_time_speedup:.1} times as fast: smaller images, or less augmentation"
            )),
        }
    }
}

#[cfg(test)]
mod tests;
