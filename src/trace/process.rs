#![allow(unsafe_code)]
//! The operating system's counters for this process and its threads. On systems other than Unix,
//! all counters are 0 or `None`.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use warpfeed_sources::internal::Since;

/// Operating-system counters of the whole process, including threads that do not belong to the
/// loader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ProcessStats {
    /// User and system CPU time of all threads, in seconds. On systems other than Unix, this field
    /// and the page faults are 0.
    pub cpu_seconds: f64,
    /// Page faults served from memory.
    pub minor_faults: u64,
    /// Page faults that had to read from the disk.
    pub major_faults: u64,
    /// Number of bytes read from storage rather than the page cache, if known (Linux only).
    pub disk_read_bytes: Option<u64>,
    /// Resident anonymous memory in bytes, if known (Linux only). Pages of mapped datasets are not
    /// included.
    pub anonymous_bytes: Option<u64>,
}

#[derive(Default)]
struct Usage {
    cpu_seconds: f64,
    minor_faults: u64,
    major_faults: u64,
}

#[cfg(unix)]
fn usage() -> Usage {
    // SAFETY: zeroed bytes are a valid `rusage`, which consists of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writes. If the call fails, `usage` remains zeroed.
    let _ = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
    Usage {
        cpu_seconds: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        minor_faults: usage.ru_minflt as u64,
        major_faults: usage.ru_majflt as u64,
    }
}

#[cfg(not(unix))]
fn usage() -> Usage {
    Usage::default()
}

/// Counters of one thread, which never decrease. Two snapshots show whether the thread has waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ThreadUsage {
    pub(crate) cpu_ns: u64,
    /// Number of voluntary context switches, plus page faults that waited for storage.
    pub(crate) waits: u64,
}

impl ThreadUsage {
    /// Returns the counters of the calling thread, in about 0.3 µs.
    #[cfg(target_os = "linux")]
    pub(crate) fn now() -> Option<Self> {
        // SAFETY: zeroed bytes are a valid `rusage`, which consists of integers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is valid for writes.
        let has_failed = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) } != 0;
        let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
        let cpu_ns = ns(usage.ru_utime) + ns(usage.ru_stime);
        (!has_failed).then(|| ThreadUsage { cpu_ns, waits: (usage.ru_nvcsw + usage.ru_majflt) as u64 })
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn now() -> Option<Self> {
        None
    }
}

/// The path of a thread's scheduler statistics.
pub(crate) struct SchedulerStats(PathBuf);

impl SchedulerStats {
    /// Returns the path for the calling thread, or `None` on systems other than Linux.
    pub(crate) fn of_this_thread() -> Option<Self> {
        Some(SchedulerStats(Path::new("/proc").join(fs::read_link("/proc/thread-self").ok()?).join("schedstat")))
    }

    /// Returns the time in seconds for which the thread was runnable but not running, or `None`
    /// if the thread has ended or the kernel does not report the time. This is the second number in
    /// `schedstat`, in ns (see the kernel's `sched-stats.rst`). Does not allocate.
    pub(crate) fn delayed_seconds(&self) -> Option<f64> {
        // The file contains three numbers of at most 20 digits each.
        let mut line = [0; 96];
        let len = fs::File::open(&self.0).ok()?.read(&mut line).ok()?;
        let line = std::str::from_utf8(&line[..len]).ok()?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? as f64 * 1e-9)
    }
}

/// Subtracts the running totals. The resident memory is not a total, so it keeps the value of
/// `self`.
impl Since for ProcessStats {
    fn since(&self, earlier: &Self) -> Self {
        ProcessStats {
            cpu_seconds: self.cpu_seconds.since(&earlier.cpu_seconds),
            minor_faults: self.minor_faults.since(&earlier.minor_faults),
            major_faults: self.major_faults.since(&earlier.major_faults),
            disk_read_bytes: self.disk_read_bytes.zip(earlier.disk_read_bytes).map(|(now, before)| now.since(&before)),
            anonymous_bytes: self.anonymous_bytes,
        }
    }
}

impl ProcessStats {
    /// Returns the CPU time of the process in seconds, with one system call.
    pub(crate) fn cpu_now() -> f64 {
        usage().cpu_seconds
    }

    pub(crate) fn now() -> Self {
        let usage = usage();
        let number = |path: &str, name: &str| -> Option<u64> {
            let text = fs::read_to_string(path).ok()?;
            text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
        };
        ProcessStats {
            cpu_seconds: usage.cpu_seconds,
            minor_faults: usage.minor_faults,
            major_faults: usage.major_faults,
            disk_read_bytes: number("/proc/self/io", "read_bytes:"),
            anonymous_bytes: number("/proc/self/status", "RssAnon:").map(|kib| kib * 1024),
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn sleeping_counts_as_blocked_but_computing_does_not() {
        let idle_usage = ThreadUsage::now().unwrap();
        let start = std::time::Instant::now();
        while start.elapsed() < std::time::Duration::from_millis(20) {}
        let computed = ThreadUsage::now().unwrap();
        assert_eq!(computed.waits, idle_usage.waits);
        assert!(computed.cpu_ns > idle_usage.cpu_ns);
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(ThreadUsage::now().unwrap().waits > computed.waits);
    }

    #[test]
    fn threads_that_share_a_core_are_delayed() {
        if SchedulerStats::of_this_thread().is_none_or(|stats| stats.delayed_seconds().is_none()) {
            return crate::require::missing("schedstat", "the kernel does not report run-queue delays");
        }
        let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from);
        let start = ProcessStats::cpu_now();
        let delayed: Vec<f64> = std::thread::scope(|scope| {
            let turn = || {
                while ProcessStats::cpu_now() - start < 0.2 {}
                SchedulerStats::of_this_thread().and_then(|stats| stats.delayed_seconds()).unwrap()
            };
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(turn)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(delayed.iter().sum::<f64>() > 0.0, "{delayed:?}");
    }
}
