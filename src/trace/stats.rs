//! The statistics of a loader, and the counters behind them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use warpfeed_sources::internal::{Count, Since, Tally, ratio};

use super::{DecodedCacheStats, Interval, NetworkStats, ProcessStats, Stage, StageStats};
use crate::error::counted;

/// Defines [`Stats`] and the counters behind it from one list.
///
/// - `workers` and `loader` list counts. If a count has a string and is not 0, `Display` prints the
///   count and the string.
/// - `times` lists times that one thread measures.
/// - `device` lists times that are `None` until a device has measured one.
/// - `sums` lists other values that [`Stats::since`] subtracts, and `state` lists values that it
///   does not subtract.
macro_rules! statistics {
    (
        $(#[$attribute:meta])*
        workers { $($(#[doc = $worker_doc:literal])+ $worker_count:ident $($workers_text:literal)?,)* }
        loader { $($(#[doc = $loader_doc:literal])+ $loader_count:ident $($loader_text:literal)?,)* }
        times { $($(#[doc = $time_doc:literal])+ $time:ident,)* }
        device { $($(#[doc = $device_doc:literal])+ $device:ident,)* }
        sums { $($(#[doc = $sum_doc:literal])+ $sum:ident: $sum_type:ty,)* }
        state { $($(#[doc = $state_doc:literal])+ $state:ident: $state_type:ty,)* }
    ) => {
        $(#[$attribute])*
        pub struct Stats {
            $($(#[doc = $state_doc])+ pub $state: $state_type,)*
            $($(#[doc = $loader_doc])+ pub $loader_count: u64,)*
            $($(#[doc = $worker_doc])+ pub $worker_count: u64,)*
            $($(#[doc = $sum_doc])+ pub $sum: $sum_type,)*
            $($(#[doc = $time_doc])+ pub $time: StageStats,)*
            $($(#[doc = $device_doc])+ pub $device: Option<StageStats>,)*
        }

        #[derive(Default)]
        pub(crate) struct WorkerCounts {
            $(pub(crate) $worker_count: Count,)*
        }

        /// Counters of the loader. Each time is measured by only one thread.
        #[derive(Default)]
        pub(crate) struct LoaderCounts {
            $(pub(crate) $loader_count: Count,)*
            $(pub(crate) $time: Tally,)*
            $(pub(crate) $device: Tally,)*
        }

        impl Stats {
            /// Returns statistics in which only the counts and times are set.
            pub(super) fn from_counts<'w>(
                loader: &LoaderCounts,
                workers: impl Iterator<Item = &'w WorkerCounts> + Clone,
            ) -> Self {
                Stats {
                    $($loader_count: loader.$loader_count.get(),)*
                    $($time: Tally::sum(std::iter::once(&loader.$time)),)*
                    $($device: Some(Tally::sum(std::iter::once(&loader.$device))).filter(|times| times.count > 0),)*
                    $($worker_count: workers.clone().map(|worker| worker.$worker_count.get()).sum(),)*
                    ..Stats::default()
                }
            }

            fn write_counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let counts = [
                    $($((self.$loader_count, $loader_text),)?)*
                    $($((self.$worker_count, $workers_text),)?)*
                ];
                counts.iter().filter(|(n, _)| *n > 0).try_for_each(|(n, text)| write!(f, "\n  {n} {text}"))
            }

            #[cfg(test)]
            const DOCS: &[(&str, &[&str])] = &[
                $((stringify!($loader_count), &[$($loader_doc),+]),)*
                $((stringify!($worker_count), &[$($worker_doc),+]),)*
                $((stringify!($time), &[$($time_doc),+]),)*
                $((stringify!($device), &[$($device_doc),+]),)*
                $((stringify!($sum), &[$($sum_doc),+]),)*
                $((stringify!($state), &[$($state_doc),+]),)*
            ];

            fn difference(&self, earlier: &Self) -> Self {
                Stats {
                    $($loader_count: self.$loader_count.since(&earlier.$loader_count),)*
                    $($worker_count: self.$worker_count.since(&earlier.$worker_count),)*
                    $($time: self.$time.since(&earlier.$time),)*
                    $($device: self.$device.since(&earlier.$device),)*
                    $($sum: self.$sum.since(&earlier.$sum),)*
                    ..self.clone()
                }
            }
        }
    };
}

statistics! {
    /// Statistics of a loader's epochs since it was opened. [`since`](Stats::since) returns the
    /// difference between two `Stats`.
    ///
    /// Batches, samples and waits are counted when a batch is delivered. The time of a stage is
    /// counted when a worker finishes the stage. For batches that are
    /// [prepared](crate::Batches::epoch) for the next epoch, this is before that epoch begins. With
    /// [`epochs(0)`](crate::Loader::epochs), all time spent for an epoch is counted within that
    /// epoch.
    ///
    /// Counting is always on and costs about 60 ns per stage and sample.
    /// [`verdict`](Stats::verdict) interprets the numbers.
    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    #[non_exhaustive]
    workers {
        /// Samples that workers prepared, delivered or not.
        prepared_samples,
        /// Images of prepared samples that are JPEGs without restart markers. Images that were
        /// found in the cache of decoded images, and the frames of clips, are not counted. Decoding
        /// a crop of a JPEG without restart markers cannot skip the data before the crop. `warpfeed
        /// pack` adds restart markers.
        jpegs_without_restart_markers,
        /// Images that workers sent to the device for decoding or conversion; see
        /// [`Loader::decode_on`](crate::Loader::decode_on).
        images_sent_to_device,
        /// Images that workers decoded because the batch had no device memory left for their
        /// encoded data. A large image then delays its batch.
        device_full_images,
        /// Samples with an image that the device could not decode, so that a worker decoded it
        /// again. The batch is delayed by the decoding and by a second copy to the device.
        device_failed_samples,
    }
    loader {
        /// Batches delivered to the consumer.
        batches,
        /// Samples delivered to the consumer.
        samples,
        /// Damaged images in delivered batches, counted at each delivery. A decoder finds damage
        /// only in the part of the file that a crop needs. With
        /// [`Loader::strict`](crate::Loader::strict), the whole file is checked, and the sample
        /// fails if the file is damaged.
        damaged_images "damaged images were decoded",
        /// Number of reads that were repeated after a transient error; see
        /// [`Loader::retries`](crate::Loader::retries).
        read_retries,
    }
    times {
        /// The coordinator's waits for a free slot. Long waits usually mean that the loader is
        /// faster than the consumer.
        slot_wait,
        /// The consumer's waits for batches, on the host.
        wait,
        /// Waits for a single batch while all batches prefetched after it were complete. This
        /// happens if a sample of that batch takes longer than a typical batch. For batches on a
        /// device, these are the waits of the copy thread.
        straggler_wait,
        /// The consumer's time from receiving a batch to requesting the next one: the training step
        /// as the host sees it. The step after the last batch of an epoch is excluded.
        step,
    }
    device {
        /// Copies to the device, on the device's clock; `None` for batches in host memory.
        copy,
        /// Conversions on the device, on the device's clock.
        convert,
        /// Decoding on the device, one entry per batch, on the device's clock; see
        /// [`Loader::decode_on`](crate::Loader::decode_on).
        device_decode,
        /// Waits of the consumer's stream, from the request for a batch until it is ready, on the
        /// device's clock.
        stall,
    }
    sums {
        /// The workers' total time within epochs, in seconds: the number of workers times
        /// [`seconds`](Stats::seconds).
        worker_seconds: f64,
        /// Seconds in which workers were runnable but not running. Possible causes are other
        /// threads, other programs or a container's CPU limit (`cpu.max`). The value is 0 on
        /// systems other than Linux.
        delayed_seconds: f64,
        /// Seconds within epochs. An epoch lasts from its request until its iterator ends or is
        /// dropped. Time outside epochs is excluded from all rates and fractions.
        seconds: f64,
        /// Total stored bytes of all fields of the prepared samples.
        bytes_read: u64,
        /// Seconds in which the consumer waited for batches on the host.
        waited_seconds: f64,
        /// Epochs that delivered at least one batch.
        epochs: u64,
        /// Seconds in which the consumer waited for the first batches of epochs; part of
        /// [`waited_seconds`](Stats::waited_seconds).
        start_wait_seconds: f64,
        /// Reading a sample and choosing its crop. The time to load a memory-mapped page from the
        /// disk is attributed to the stage that first touches the page, which may be decoding. For
        /// samples that were read [ahead](Stats::readahead), only the time to choose the crop is
        /// included.
        read: StageStats,
        /// Reading by separate threads, which start when reads block on storage. The times of
        /// parallel reads are added. `None` until a reader thread has read a sample.
        readahead: Option<StageStats>,
        /// Decoding. Images that are decoded together share the time in proportion to their encoded
        /// size.
        decode: StageStats,
        /// Crop, resize, flip, color changes and custom transforms.
        transform: StageStats,
        /// Normalizing, casting, and writing into the batch, including fields that are cheap to
        /// write.
        write: StageStats,
        /// The stages of the fields that are not [cheap to
        /// write](crate::field::FieldType::write_is_cheap), keyed by field name.
        fields: BTreeMap<String, StageStats>,
        /// `ready_histogram[n]` is the number of requests for a batch while n batches were ready.
        /// Element 63 also counts requests while more batches were ready.
        ready_histogram: Vec<u64>,
        /// Requests of the source to its store; `None` for a local source.
        network: Option<NetworkStats>,
        /// The [cache of decoded images](crate::Loader::cache_decoded); `None` without a cache.
        decoded_cache: Option<DecodedCacheStats>,
        /// Counters of the operating system.
        process: ProcessStats,
    }
    state {
        /// The dataset, the augmentation, and the options that differ from their defaults, as
        /// method calls.
        options: String,
        /// Whether batches are responses to requests, as for a [`Decoder`](crate::Decoder).
        on_request: bool,
        /// Number of worker threads.
        workers: usize,
        /// Number of cores that this process may use. If several ranks share the cores, this is
        /// this rank's share.
        cores: usize,
        /// Number of batches prepared ahead of the consumer. If the number is
        /// [automatic](crate::Loader::prefetch), this is its current value.
        prefetch: usize,
        /// Maximum of an automatic `prefetch`; otherwise equal to [`prefetch`](Stats::prefetch).
        max_prefetch: usize,
        /// Number of batch buffers in use on the host.
        slots: usize,
        /// Number of allocated batch buffers on the host. [`host_bytes`](Stats::host_bytes) is
        /// their total size.
        allocated_slots: usize,
        /// Seconds from opening the loader until the statistics were taken.
        uptime_seconds: f64,
        /// Page-locked bytes of the batch buffers.
        pinned_bytes: usize,
        /// Total size of the batch buffers on the host.
        host_bytes: usize,
        /// Memory allocated on the device, in bytes.
        device_bytes: usize,
        /// The slowest samples, slowest first. At most 8 samples are listed. For this selection,
        /// the time of a sample loses half of its weight every 30 s.
        slowest: Vec<Straggler>,
        /// The run in equal intervals, at most 240.
        timeline: Vec<Interval>,
    }
}

/// One of the slowest samples of a loader.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Straggler {
    /// Index of the sample in the source.
    pub sample: u64,
    /// Key of the sample; empty if the sample could not be read.
    pub key: String,
    /// Name of the stage or of the computed field that took most of the time.
    pub stage: String,
    /// Longest recent time that the sample took, in seconds. A new time replaces this time if it is
    /// longer than this time, halved for every 30 s of age.
    pub seconds: f64,
    /// Number of times that the sample was among the slowest.
    pub times: u64,
    /// Total time that the sample took on these occasions, in seconds.
    pub total_seconds: f64,
    /// Moment at which the sample was last among the slowest, in seconds since the loader was
    /// opened.
    pub at_seconds: f64,
    /// Number of bytes read for the sample, or 0 if the sample could not be read.
    pub bytes: u64,
}

impl Straggler {
    pub(super) fn name(&self) -> String {
        let Straggler { sample, key, .. } = self;
        if key.is_empty() { format!("sample {sample}") } else { format!("sample {sample} ({key})") }
    }
}

impl Stats {
    /// Returns the number of samples delivered per second.
    pub fn samples_per_second(&self) -> f64 {
        ratio(self.samples as f64, self.seconds)
    }

    /// Returns the number of bytes read per second, over all fields.
    pub fn bytes_per_second(&self) -> f64 {
        ratio(self.bytes_read as f64, self.seconds)
    }

    /// Returns the fraction of time in which the consumer waited on the host. In the difference
    /// between two `Stats`, the fraction may exceed 1, because a wait is counted as a whole when it
    /// ends.
    pub fn stall_fraction(&self) -> f64 {
        ratio(self.waited_seconds, self.seconds)
    }

    /// Returns the fraction of time in which the consumer's stream waited on the device. The
    /// fraction may slightly exceed 1, because clocks differ. Returns `None` for batches in host
    /// memory, and until the first wait has been measured.
    pub fn device_stall_fraction(&self) -> Option<f64> {
        self.stall.as_ref().map(|stall| ratio(stall.seconds, self.seconds))
    }

    /// Returns the workers' stages with their names: read, decode, transform, write, then each
    /// computed field.
    pub fn stages(&self) -> impl Iterator<Item = (&str, &StageStats)> {
        self.stages_with_kind().map(|(_, name, stage)| (name, stage))
    }

    pub(super) fn stages_with_kind(&self) -> impl Iterator<Item = (Stage, &str, &StageStats)> {
        let image_stages = [
            (Stage::Read, &self.read),
            (Stage::Decode, &self.decode),
            (Stage::Transform, &self.transform),
            (Stage::Write, &self.write),
        ];
        let image_stages = image_stages.into_iter().map(|(stage, stats)| (stage, stage.name(), stats));
        image_stages.chain(self.fields.iter().map(|(name, stats)| (Stage::Fields, &**name, stats)))
    }

    pub(super) fn busiest_stage(&self) -> (Stage, &str, &StageStats) {
        self.stages_with_kind().max_by(|a, b| a.2.seconds.total_cmp(&b.2.seconds)).expect("at least one stage exists")
    }

    pub(super) fn busy_seconds(&self) -> f64 {
        self.stages().map(|(_, stage)| stage.seconds).sum()
    }

    /// Returns the average number of busy workers, from 0 to [`workers`](Stats::workers).
    pub fn busy_workers(&self) -> f64 {
        let busy = ratio(self.busy_seconds(), self.seconds);
        // The workers' time between epochs is counted as busy, but `seconds` excludes the time
        // between epochs. Statistics from older versions lack the number of workers.
        if self.workers > 0 { busy.min(self.workers as f64) } else { busy }
    }

    /// Returns the fraction of time in which the workers were busy, from 0 to 1.
    pub fn busy_fraction(&self) -> f64 {
        // Statistics from older versions lack `worker_seconds`.
        let total = if self.worker_seconds > 0.0 { self.worker_seconds } else { self.seconds * self.workers as f64 };
        ratio(self.busy_seconds(), total).min(1.0)
    }

    pub(super) fn reads_in_flight(&self) -> f64 {
        self.readahead.as_ref().map_or(0.0, |ahead| ratio(ahead.seconds, self.seconds))
    }

    /// Returns the average number of ready batches at the time of a request.
    pub fn mean_ready(&self) -> f64 {
        let times: u64 = self.ready_histogram.iter().sum();
        ratio(self.ready_histogram.iter().enumerate().map(|(n, &times)| n as f64 * times as f64).sum(), times as f64)
    }

    /// Returns the statistics for the time between `earlier` and `self`, which must come from the
    /// same loader.
    ///
    /// [`slowest`](Stats::slowest) contains only samples that were slow after `earlier`, but the
    /// times of these samples also include earlier occurrences. [`timeline`](Stats::timeline)
    /// contains the intervals that end after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Stats) -> Stats {
        let mut stats = self.difference(earlier);
        stats.slowest.retain(|slow| slow.at_seconds > earlier.uptime_seconds);
        stats.timeline.retain(|interval| interval.start_seconds + interval.seconds > earlier.uptime_seconds);
        stats
    }
}

fn percent(share: f64) -> f64 {
    100.0 * share
}

impl Stats {
    fn write_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  {:<10} {:>9} {:>10} {:>10} {:>10} {:>9}   share of",
            "stage", "count", "mean us", "p50 us", "p99 us", "MB/s"
        )?;
        let write_row = |f: &mut fmt::Formatter<'_>,
                         name: &str,
                         stage: &StageStats,
                         total: f64,
                         suffix: &str,
                         is_parallel: bool| {
            let [mean, p50, p99] = [stage.mean_seconds(), stage.p50_seconds, stage.p99_seconds].map(|s| s * 1e6);
            let speed = match stage.bytes {
                0 => String::new(),
                bytes => format!("{:.0}", ratio(bytes as f64, self.seconds) / 1e6),
            };
            let share = if is_parallel {
                format!("{:>5.1} at a time", ratio(stage.seconds, total))
            } else {
                format!("{:>5.1}%", percent(ratio(stage.seconds, total).min(1.0)))
            };
            let count = stage.count;
            writeln!(f, "  {name:<10} {count:>9} {mean:>10.1} {p50:>10.1} {p99:>10.1} {speed:>9} {share} {suffix}")
        };
        let busy = self.busy_fraction();
        let share = ratio(self.busy_seconds(), busy);
        for (name, stage) in self.stages() {
            write_row(f, name, stage, share, "the workers' time", false)?;
        }
        let idle = percent(1.0 - busy);
        writeln!(f, "  {:<63} {idle:>5.1}% the workers' time ({} workers)", "idle", self.workers)?;
        let other_stages = [
            ("readahead", self.readahead.as_ref(), "by reader threads"),
            ("slot wait", Some(&self.slot_wait), "the coordinator's time, waiting for a free slot"),
            ("copy", self.copy.as_ref(), "the copy stream's time"),
            ("on device", self.device_decode.as_ref(), "the convert stream's time, decoding"),
            ("convert", self.convert.as_ref(), "the convert stream's time"),
            ("wait", Some(&self.wait), "the consumer's time, waiting for a batch"),
            ("stall", self.stall.as_ref(), "the consumer's stream's time, waiting for a batch"),
            ("step", Some(&self.step), "the consumer's time, between batches"),
        ];
        for (name, stage, suffix) in other_stages {
            if let Some(stage) = stage.filter(|s| s.count > 0) {
                write_row(f, name, stage, self.seconds, suffix, name == "readahead")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} in {}, {:.1} s: {:.0} samples/s, {:.1} MB/s read; the consumer waited {:.1}% of the time",
            counted(self.samples, "sample", "samples"),
            counted(self.batches, "batch", "batches"),
            self.seconds,
            self.samples_per_second(),
            self.bytes_per_second() / 1e6,
            percent(self.stall_fraction().min(1.0))
        )?;
        self.write_rows(f)?;
        let describe_max = |max: usize, now: usize| if max > now { format!(", at most {max}") } else { String::new() };
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let ProcessStats { cpu_seconds, minor_faults, major_faults, disk_read_bytes, anonymous_bytes } = self.process;
        write!(f, "  {:.1} batches ready on average, prefetch {}", self.mean_ready(), self.prefetch)?;
        write!(f, "{}", describe_max(self.max_prefetch, self.prefetch))?;
        write!(
            f,
            "; workers were runnable but not running for {:.1} s; process: {cpu_seconds:.1} s of CPU time, {major_faults} major and {minor_faults} \
             minor page faults",
            self.delayed_seconds
        )?;
        if let Some(bytes) = disk_read_bytes {
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
        self.write_counts(f)?;
        for slow in &self.slowest[..self.slowest.len().min(3)] {
            write!(f, "\n  slow: {}: {:.1} ms, most of it in {}", slow.name(), slow.seconds * 1e3, slow.stage)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated_files;

    /// Returns the first sentence of a statistic's documentation, without links.
    fn summary(doc: &[&str]) -> String {
        let text: String = doc.concat();
        let text = text.trim().split_once(". ").map_or(text.trim().trim_end_matches('.'), |(first, _)| first);
        let mut parts = text.split('[');
        let mut plain = parts.next().unwrap().to_owned();
        for part in parts {
            plain += &match part.split_once("](") {
                Some((shown, rest)) => format!("{shown}{}", rest.split_once(')').expect("a link ends").1),
                None => format!("[{part}"),
            };
        }
        plain
    }

    #[test]
    fn the_table_in_the_documentation_lists_all_statistics() {
        let row = |(name, doc): &(&str, &[&str])| format!("| `{name}` | {} |\n", summary(doc));
        let rows: String = Stats::DOCS.iter().map(row).collect();
        let table = format!("| key | content |\n|---|---|\n{rows}");
        generated_files::check_part(
            "docs/where-does-the-time-go.md",
            ["<!-- keys:stats -->\n", "<!-- /keys -->"],
            &table,
        );
        // Python's dict and `flat()` have the keys of the JSON.
        let json = serde_json::to_value(Stats::default()).unwrap();
        let mut names: Vec<&str> = Stats::DOCS.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        assert_eq!(json.as_object().unwrap().keys().collect::<Vec<_>>(), names);
    }

    #[test]
    fn nonzero_counts_with_a_string_are_printed() {
        let text = "2 damaged images were decoded";
        assert!(Stats { damaged_images: 2, ..Stats::default() }.to_string().contains(text));
        assert!(!Stats::default().to_string().contains("damaged"));
    }
}
