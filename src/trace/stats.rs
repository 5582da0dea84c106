use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::tally::ratio;
use super::{Interval, NetworkStats, ProcessStats, Stage, StageStats};
use crate::error::counted;

/// Statistics of a loader's epochs since it was opened. [`since`](Stats::since) returns the
/// difference between two `Stats`.
///
/// Batches, samples and waits count when a batch is delivered. The work of the stages counts when
/// it is done, so the work for batches that an epoch [prepares](crate::Batches::epoch) for the next
/// one counts before that epoch begins. With [`epochs(0)`](crate::Loader::epochs) each epoch's work
/// counts within it.
///
/// Counting is always on and costs about 60 ns per stage and sample. [`verdict`](Stats::verdict)
/// interprets the numbers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Stats {
    /// Whether the batches are answers to requests, as for a [`Decoder`](crate::Decoder).
    pub on_request: bool,
    /// Worker threads.
    pub workers: usize,
    /// The workers' time within epochs, in seconds: the number of workers times
    /// [`seconds`](Stats::seconds).
    pub worker_seconds: f64,
    /// Seconds that workers were ready to run and waited for a processor. Other threads, other
    /// programs or a container's limit (`cpu.max`) cause this. Known on Linux; 0 elsewhere.
    pub delayed_seconds: f64,
    /// Processors that this process may use. Processors shared with other ranks count by this
    /// rank's share.
    pub processors: usize,
    /// Number of batches ahead of the consumer. If it is [automatic](crate::Loader::prefetch), this
    /// is its current value.
    pub prefetch: usize,
    /// With automatic `prefetch`, the maximum it may reach; otherwise equal to
    /// [`prefetch`](Stats::prefetch).
    pub most_prefetch: usize,
    /// Batch buffers in use on the host.
    pub slots: usize,
    /// Batch buffers that were allocated on the host. [`host_bytes`](Stats::host_bytes) counts all
    /// of them.
    pub allocated_slots: usize,
    /// Seconds within epochs. An epoch lasts from its request until its last batch was delivered or
    /// it was dropped. Time outside epochs is excluded from all rates and shares.
    pub seconds: f64,
    /// When the statistics were taken, in seconds after the loader was opened.
    pub until_seconds: f64,
    /// Batches delivered to the consumer.
    pub batches: u64,
    /// Samples delivered to the consumer.
    pub samples: u64,
    /// Samples that workers prepared, delivered or not.
    pub prepared: u64,
    /// Total stored bytes of all fields of the prepared samples.
    pub bytes_read: u64,
    /// Prepared samples that are JPEGs without restart markers. A crop of such a JPEG cannot be
    /// decoded alone. `warpfeed pack` adds restart markers.
    pub plain_jpegs: u64,
    /// Pictures that workers left to the device; see
    /// [`Loader::decode_on`](crate::Loader::decode_on).
    pub decoded_on_device: u64,
    /// Damaged pictures in delivered batches, each time that they were delivered. A decoder finds
    /// damage only in the part of the file that a crop needs.
    /// [`Loader::strict`](crate::Loader::strict) checks the whole file, and makes damage an error.
    pub damaged: u64,
    /// Number of reads that were repeated after a transient error; see
    /// [`Loader::retries`](crate::Loader::retries).
    pub retries: u64,
    /// Seconds the consumer waited for batches on the host.
    pub waited_seconds: f64,
    /// Epochs that delivered a batch.
    pub epochs: u64,
    /// Seconds the consumer waited for the first batches of epochs; part of
    /// [`waited_seconds`](Stats::waited_seconds).
    pub start_seconds: f64,
    /// Reading a sample and choosing its crop. The time of loading a memory-mapped page from the
    /// disk counts in the stage that first touches it, which may be decoding. For a sample that was
    /// read [ahead](Stats::ahead), only choosing the crop counts.
    pub read: StageStats,
    /// Reading by separate threads, which start once reads wait for storage. The times of parallel
    /// reads add up. `None` while workers read.
    pub ahead: Option<StageStats>,
    /// Decoding. The time of pictures decoded side by side is shared among them by their encoded
    /// bytes.
    pub decode: StageStats,
    /// Crop, resize, flip, colour and the user's transforms.
    pub transform: StageStats,
    /// Normalising, casting, and writing into the batch. Fields that only copy count here.
    pub write: StageStats,
    /// The stages of the fields that [compute](crate::field::Kind::copies), by the name of the
    /// field.
    pub fields: BTreeMap<String, StageStats>,
    /// The coordinator's waits for a free slot. Long waits are healthy: the loader is faster than
    /// the consumer.
    pub slot: StageStats,
    /// Copies to the device, on the device's clock; `None` for batches in host memory.
    pub copy: Option<StageStats>,
    /// Conversions on the device, on the device's clock.
    pub convert: Option<StageStats>,
    /// Decoding on the device, a batch at a time, on the device's clock; see
    /// [`Loader::decode_on`](crate::Loader::decode_on).
    pub device_decode: Option<StageStats>,
    /// The consumer's waits for batches, on the host.
    pub wait: StageStats,
    /// Waits of the consumer's stream, from the request for a batch until it is ready, on the
    /// device's clock.
    pub stall: Option<StageStats>,
    /// The consumer's time from receiving a batch to requesting the next one: the training step as
    /// the host sees it. The step of an epoch's last batch is not counted.
    pub step: StageStats,
    /// `ready[n]` is the number of requests for a batch while n batches were ready.
    pub ready: Vec<u64>,
    /// Page-locked bytes of the batch buffers.
    pub pinned_bytes: usize,
    /// All bytes of the batch buffers on the host.
    pub host_bytes: usize,
    /// Bytes taken from the device.
    pub device_bytes: usize,
    /// What the source asked of its store; `None` for a source on this machine.
    pub network: Option<NetworkStats>,
    /// The operating system's counts.
    pub process: ProcessStats,
    /// The samples that took longest, longest first. Older samples count less.
    pub slowest: Vec<Straggler>,
    /// The run in equal intervals, at most 240.
    pub timeline: Vec<Interval>,
}

/// A sample that took longer than almost all others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Straggler {
    /// Its index in the source.
    pub sample: u64,
    /// Its key; empty if it could not be read.
    pub key: String,
    /// The stage that took most of the time.
    pub stage: String,
    /// The longest recent time, in seconds. The weight of a time halves every 30 s.
    pub seconds: f64,
    /// Number of times the sample was among the slowest.
    pub times: u64,
    /// Total seconds of those times.
    pub total_seconds: f64,
    /// Last time it was among the slowest, in seconds after the loader was opened.
    pub at_seconds: f64,
}

impl Straggler {
    /// Its index and, unless it could not be read, its key.
    pub(super) fn name(&self) -> String {
        let Straggler { sample, key, .. } = self;
        if key.is_empty() { format!("sample {sample}") } else { format!("sample {sample} ({key})") }
    }
}

impl Stats {
    /// Samples delivered per second.
    pub fn samples_per_second(&self) -> f64 {
        ratio(self.samples as f64, self.seconds)
    }

    /// Bytes read per second, of all fields.
    pub fn bytes_per_second(&self) -> f64 {
        ratio(self.bytes_read as f64, self.seconds)
    }

    /// Share of the time that the consumer waited on the host, 0 to 1.
    pub fn stall_fraction(&self) -> f64 {
        ratio(self.waited_seconds, self.seconds)
    }

    /// Share of the time that the consumer's stream waited on the device, 0 to 1; `None` for
    /// batches in host memory.
    pub fn device_stall_fraction(&self) -> Option<f64> {
        self.stall.as_ref().map(|stall| ratio(stall.seconds, self.seconds))
    }

    /// The workers' stages by name: read, decode, transform, write, then each field that computes.
    pub fn stages(&self) -> impl Iterator<Item = (&str, &StageStats)> {
        self.each_stage().map(|(_, name, stage)| (name, stage))
    }

    /// The stages, each with its kind and its name.
    pub(super) fn each_stage(&self) -> impl Iterator<Item = (Stage, &str, &StageStats)> {
        let of_pictures = [
            (Stage::Read, &self.read),
            (Stage::Decode, &self.decode),
            (Stage::Transform, &self.transform),
            (Stage::Write, &self.write),
        ];
        let of_pictures = of_pictures.into_iter().map(|(stage, stats)| (stage, stage.name(), stats));
        of_pictures.chain(self.fields.iter().map(|(name, stats)| (Stage::Fields, &**name, stats)))
    }

    /// The stage in which the workers spent most of their time.
    pub(super) fn busiest(&self) -> (Stage, &str, &StageStats) {
        self.each_stage().max_by(|a, b| a.2.seconds.total_cmp(&b.2.seconds)).expect("there are stages")
    }

    /// Seconds of the workers in all stages together.
    pub(super) fn worked_seconds(&self) -> f64 {
        self.stages().map(|(_, stage)| stage.seconds).sum()
    }

    /// Average number of busy workers: 0 to [`workers`](Stats::workers).
    pub fn busy_workers(&self) -> f64 {
        let busy = ratio(self.worked_seconds(), self.seconds);
        // Work between epochs counts, but that time does not. Older statistics lack the workers.
        if self.workers > 0 { busy.min(self.workers as f64) } else { busy }
    }

    /// Share of the workers' time that they were busy, 0 to 1.
    pub fn busy_fraction(&self) -> f64 {
        // Statistics of older versions contain only the number of workers.
        let all = if self.worker_seconds > 0.0 { self.worker_seconds } else { self.seconds * self.workers as f64 };
        ratio(self.worked_seconds(), all).min(1.0)
    }

    /// Average number of parallel reads by the threads that read ahead.
    pub(super) fn reads_in_flight(&self) -> f64 {
        self.ahead.as_ref().map_or(0.0, |ahead| ratio(ahead.seconds, self.seconds))
    }

    /// Average number of ready batches when the consumer requests one.
    pub fn mean_ready(&self) -> f64 {
        let times: u64 = self.ready.iter().sum();
        ratio(self.ready.iter().enumerate().map(|(n, &times)| n as f64 * times as f64).sum(), times as f64)
    }

    /// Returns the statistics of the time between `earlier` and `self`, of the same loader.
    ///
    /// [`slowest`](Stats::slowest) keeps the samples that were slow after `earlier`, with all their
    /// times.
    #[must_use]
    pub fn since(&self, earlier: &Stats) -> Stats {
        let both = |a: &Option<StageStats>, b: &Option<StageStats>| match (a, b) {
            (Some(a), Some(b)) => Some(a.since(b)),
            (a, _) => a.clone(),
        };
        let mut ready = self.ready.clone();
        ready.iter_mut().zip(&earlier.ready).for_each(|(now, before)| *now = now.saturating_sub(*before));
        let field = |(name, now): (&String, &StageStats)| {
            let now = earlier.fields.get(name).map_or_else(|| now.clone(), |before| now.since(before));
            (name.clone(), now)
        };
        let from = earlier.until_seconds;
        Stats {
            seconds: self.seconds - earlier.seconds,
            worker_seconds: (self.worker_seconds - earlier.worker_seconds).max(0.0),
            delayed_seconds: (self.delayed_seconds - earlier.delayed_seconds).max(0.0),
            batches: self.batches.saturating_sub(earlier.batches),
            samples: self.samples.saturating_sub(earlier.samples),
            prepared: self.prepared.saturating_sub(earlier.prepared),
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            plain_jpegs: self.plain_jpegs.saturating_sub(earlier.plain_jpegs),
            decoded_on_device: self.decoded_on_device.saturating_sub(earlier.decoded_on_device),
            damaged: self.damaged.saturating_sub(earlier.damaged),
            retries: self.retries.saturating_sub(earlier.retries),
            waited_seconds: (self.waited_seconds - earlier.waited_seconds).max(0.0),
            epochs: self.epochs.saturating_sub(earlier.epochs),
            start_seconds: (self.start_seconds - earlier.start_seconds).max(0.0),
            read: self.read.since(&earlier.read),
            ahead: both(&self.ahead, &earlier.ahead),
            decode: self.decode.since(&earlier.decode),
            transform: self.transform.since(&earlier.transform),
            write: self.write.since(&earlier.write),
            fields: self.fields.iter().map(field).collect(),
            slot: self.slot.since(&earlier.slot),
            copy: both(&self.copy, &earlier.copy),
            convert: both(&self.convert, &earlier.convert),
            device_decode: both(&self.device_decode, &earlier.device_decode),
            wait: self.wait.since(&earlier.wait),
            stall: both(&self.stall, &earlier.stall),
            step: self.step.since(&earlier.step),
            ready,
            network: match (&self.network, &earlier.network) {
                (Some(now), Some(before)) => Some(now.since(before)),
                (now, _) => now.clone(),
            },
            process: self.process.since(&earlier.process),
            slowest: self.slowest.iter().filter(|s| s.at_seconds > from).cloned().collect(),
            timeline: self.timeline.iter().filter(|i| i.start + i.seconds > from).copied().collect(),
            ..*self
        }
    }
}

impl fmt::Display for Stats {
    /// Prints a table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| 100.0 * share;
        writeln!(
            f,
            "{} in {}, {:.1} s: {:.0} samples/s, {:.1} MB/s read; the consumer waited {:.1} % of the time",
            counted(self.samples, "sample", "samples"),
            counted(self.batches, "batch", "batches"),
            self.seconds,
            self.samples_per_second(),
            self.bytes_per_second() / 1e6,
            percent(self.stall_fraction().min(1.0))
        )?;
        writeln!(
            f,
            "  {:<10} {:>9} {:>10} {:>10} {:>10} {:>9}   share of",
            "stage", "count", "mean us", "p50 us", "p99 us", "MB/s"
        )?;
        let row = |f: &mut fmt::Formatter<'_>, name: &str, stage: &StageStats, all: f64, of: &str, parallel: bool| {
            let [mean, p50, p99] = [stage.mean_seconds(), stage.p50_seconds, stage.p99_seconds].map(|s| s * 1e6);
            let speed = match stage.bytes {
                0 => String::new(),
                bytes => format!("{:.0}", ratio(bytes as f64, self.seconds) / 1e6),
            };
            let share = if parallel {
                format!("{:>5.1} at a time", ratio(stage.seconds, all))
            } else {
                format!("{:>5.1} %", percent(ratio(stage.seconds, all).min(1.0)))
            };
            let count = stage.count;
            writeln!(f, "  {name:<10} {count:>9} {mean:>10.1} {p50:>10.1} {p99:>10.1} {speed:>9} {share} {of}")
        };
        let busy = self.busy_fraction();
        let all = ratio(self.worked_seconds(), busy);
        for (name, stage) in self.stages() {
            row(f, name, stage, all, "the workers' time", false)?;
        }
        let idle = percent(1.0 - busy);
        let automatic = |most: usize, now: usize| if most > now { format!(", at most {most}") } else { String::new() };
        writeln!(f, "  {:<63} {idle:>5.1} % the workers' time ({} workers)", "idle", self.workers)?;
        let batch = [
            ("ahead", self.ahead.as_ref(), "by threads that read for the workers"),
            ("slot", Some(&self.slot), "the coordinator's time, waiting for a free slot"),
            ("copy", self.copy.as_ref(), "the copy stream's time"),
            ("on device", self.device_decode.as_ref(), "the convert stream's time, decoding"),
            ("convert", self.convert.as_ref(), "the convert stream's time"),
            ("wait", Some(&self.wait), "the consumer's time, waiting for a batch"),
            ("stall", self.stall.as_ref(), "the consumer's stream's time, waiting for a batch"),
            ("step", Some(&self.step), "the consumer's time, between batches"),
        ];
        for (name, stage, of) in batch {
            if let Some(stage) = stage.filter(|s| s.count > 0) {
                row(f, name, stage, self.seconds, of, name == "ahead")?;
            }
        }
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let ProcessStats { cpu_seconds, minor_faults, major_faults, disk_bytes, anonymous_bytes } = self.process;
        write!(f, "  {:.1} batches ready on average, prefetch {}", self.mean_ready(), self.prefetch)?;
        write!(f, "{}", automatic(self.most_prefetch, self.prefetch))?;
        write!(
            f,
            "; workers were ready without a processor for {:.1} s; process: {cpu_seconds:.1} s of processor time, {major_faults} major and {minor_faults} \
             minor page faults",
            self.delayed_seconds
        )?;
        if let Some(bytes) = disk_bytes {
            write!(f, ", {:.1} MiB from the disk", mib(bytes))?;
        }
        if let Some(bytes) = anonymous_bytes {
            write!(f, ", {:.1} MiB of anonymous memory", mib(bytes))?;
        }
        if let Some(network) = &self.network {
            for line in network.lines(self.seconds) {
                write!(f, "\n  network: {line}")?;
            }
        }
        if self.damaged > 0 {
            write!(f, "\n  {} pictures were decoded although they are damaged", self.damaged)?;
        }
        for slow in &self.slowest[..self.slowest.len().min(3)] {
            write!(f, "\n  slow: {}: {:.1} ms, most of it in {}", slow.name(), slow.seconds * 1e3, slow.stage)?;
        }
        Ok(())
    }
}
