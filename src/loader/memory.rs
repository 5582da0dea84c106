//! Plans the memory use of a loader within its limit or the available memory, and allocates its
//! slots (batch buffers).
//!
//! This module reads the cgroup files itself, because the `sysinfo` crate (0.40.1) counts the page
//! cache as used memory. The page cache holds the dataset, and the kernel reclaims it on demand.

use std::fs;
use std::path::{Path, PathBuf};

use crate::batch::{MakeReclaimer, Schemas, SlotMemory};
use crate::device::page_locked;
use crate::engine::{Bounds, ScratchPlan, Settings};
use crate::error::{Error, ErrorKind, Result};
use crate::sampler::Rank;

/// The memory that a loader may use, in bytes.
#[derive(Clone, Copy)]
pub(super) enum MemoryBound {
    /// A limit that the user set, for host and device together.
    Limit(usize),
    /// The available host memory. Device memory is not limited, because allocating too much of it
    /// fails with an error anyway.
    Available(usize),
}

impl MemoryBound {
    pub(super) fn from_limit(limit: Option<usize>) -> Self {
        limit.map_or_else(|| MemoryBound::Available(available_memory().unwrap_or(usize::MAX)), MemoryBound::Limit)
    }

    /// Returns the range of the automatic prefetch depth. Without a limit, the slots may take at
    /// most `max_bytes` bytes at every depth above [`DEFAULT_PREFETCH`]. `device_bytes(schemas, n)`
    /// is the device memory for depth `n`, in bytes.
    ///
    /// If depth 1 fits together with the workers' minimum scratch memory, so does every depth in
    /// the range. A depth above [`DEFAULT_PREFETCH`] requires that all scratch memory fits as well
    /// or, without a limit, that half of the available memory remains free.
    pub(super) fn automatic_prefetch(
        self,
        max_bytes: usize,
        schemas: &Schemas,
        scratch: &ScratchPlan,
        device_bytes: impl Fn(&Schemas, usize) -> usize,
    ) -> Bounds {
        let slots_bytes = |prefetch: usize| Settings::slots_for(prefetch).saturating_mul(schemas.bytes());
        match self {
            MemoryBound::Limit(limit) => automatic_prefetch(limit, |prefetch| {
                let scratch = if prefetch > DEFAULT_PREFETCH { scratch.total_bytes() } else { scratch.min_bytes() };
                slots_bytes(prefetch)
                    .saturating_add(device_bytes(schemas, prefetch.min(DEFAULT_PREFETCH)))
                    .saturating_add(scratch)
            }),
            MemoryBound::Available(free) => {
                // Ignore device memory, which is not limited here.
                let default_bounds = automatic_prefetch(max_bytes, slots_bytes).at_least(DEFAULT_PREFETCH);
                let fitting_bounds = automatic_prefetch(free, |prefetch| {
                    let bytes = slots_bytes(prefetch).saturating_add(scratch.min_bytes());
                    if prefetch > DEFAULT_PREFETCH { bytes.saturating_mul(2) } else { bytes }
                });
                Bounds {
                    min: default_bounds.min.min(fitting_bounds.min),
                    max: default_bounds.max.min(fitting_bounds.max),
                }
            }
        }
    }

    /// Returns the read-ahead budget of a source that requests `requested_bytes` bytes. The budget
    /// is at most a quarter of the memory, so that enough is left for slots and workers.
    pub(super) fn source_budget(self, requested_bytes: usize) -> usize {
        requested_bytes.min(self.bytes() / 4)
    }

    fn bytes(self) -> usize {
        match self {
            MemoryBound::Limit(bytes) | MemoryBound::Available(bytes) => bytes,
        }
    }

    pub(super) fn plan_scratch(self, demand: &MemoryDemand<'_>) -> Result<ScratchPlan> {
        let MemoryDemand { schemas, prefetch, scratch, .. } = *demand;
        let Some(required_bytes) =
            self.required_bytes(demand, schemas, prefetch.max).filter(|required_bytes| *required_bytes <= self.bytes())
        else {
            return Err(self.refusal_error(demand));
        };
        let remaining = self.bytes() - required_bytes;
        // Without a limit, leave half of the remaining memory to the program.
        let remaining = if let MemoryBound::Available(_) = self { remaining / 2 } else { remaining };
        Ok(scratch.shrink_to(remaining.saturating_add(scratch.min_bytes())))
    }

    /// Returns the minimum memory for these schemas and this prefetch depth in bytes, or `None` on
    /// overflow. Without a limit, this excludes device memory.
    fn required_bytes(self, demand: &MemoryDemand<'_>, schemas: &Schemas, prefetch: usize) -> Option<usize> {
        let slots_bytes = Settings::slots_for(prefetch).checked_mul(schemas.bytes())?;
        let device_bytes = (demand.device_bytes)(schemas, prefetch.min(demand.prefetch.min));
        let scratch_bytes = demand.scratch.min_bytes();
        let total_bytes = slots_bytes.checked_add(device_bytes)?.checked_add(scratch_bytes)?;
        Some(if let MemoryBound::Limit(_) = self { total_bytes } else { slots_bytes + scratch_bytes })
    }

    /// Returns an error that lists the parts of the required memory, the limit, and option values
    /// that would fit.
    fn refusal_error(self, demand: &MemoryDemand<'_>) -> Error {
        let MemoryDemand { schemas, prefetch, depth_option, scratch, device_bytes } = *demand;
        let (prefetch_depth, batch_size, slots) = (prefetch.max, schemas.batch(), Settings::slots_for(prefetch.max));
        let slot_bytes = slots.checked_mul(schemas.bytes());
        // Show exact byte counts if the required memory and the limit round to the same text.
        let is_exact = self
            .required_bytes(demand, schemas, prefetch_depth)
            .is_some_and(|need| format_size(need, false) == format_size(self.bytes(), false));
        let format_size = |bytes| format_size(bytes, is_exact);
        let batches_text = if prefetch_depth == 1 {
            format!("one batch of {batch_size} ahead")
        } else {
            format!("{prefetch_depth} batches of {batch_size} ahead")
        };
        let verb = if prefetch_depth == 1 { "needs" } else { "need" };
        let slots_text = slot_bytes.map_or_else(|| "more bytes than this platform can address".to_owned(), format_size);
        let mut text =
            format!("{batches_text} {verb} {slots} slots of {} = {slots_text}", format_size(schemas.bytes()));
        let device_bytes_needed = device_bytes(schemas, prefetch.min);
        if device_bytes_needed > 0 {
            text += &format!(", and {} on the device", format_size(device_bytes_needed));
        }
        if scratch.fixed_bytes > 0 {
            let n = scratch.workers;
            let workers_text = if n == 1 { "one worker".to_owned() } else { format!("{n} workers") };
            text += &format!(", and {} for {workers_text}", format_size(scratch.fixed_bytes.saturating_mul(n)));
        }
        if scratch.transform_bytes > 0 {
            text += &format!(", and {} for transforms", format_size(scratch.transform_bytes));
        }
        if scratch.cache_bytes > 0 {
            text += &format!(", and {} for decoded images", format_size(scratch.cache_bytes));
        }
        text += &match self {
            MemoryBound::Limit(limit) => format!("; memory_limit is {}: ", format_size(limit)),
            MemoryBound::Available(free) => format!("; this machine or container has {} free: ", format_size(free)),
        };
        let fits = |schemas: &Schemas, prefetch_depth| {
            self.required_bytes(demand, schemas, prefetch_depth).is_some_and(|need| need <= self.bytes())
        };
        let smaller_prefetch = find_largest(prefetch_depth - 1, |prefetch_depth| fits(schemas, prefetch_depth));
        let smaller_batch = find_largest(batch_size - 1, |batch_size| {
            schemas.with_batch_size(batch_size).is_ok_and(|schemas| fits(&schemas, prefetch_depth))
        });
        let smallest_fit = || {
            find_largest(batch_size - 1, |batch_size| {
                schemas.with_batch_size(batch_size).is_ok_and(|schemas| fits(&schemas, 1))
            })
        };
        let bytes_without_cache =
            self.required_bytes(demand, schemas, prefetch_depth).map(|need| need - scratch.cache_bytes);
        let cache_bytes =
            bytes_without_cache.and_then(|need| self.bytes().checked_sub(need)).filter(|_| scratch.cache_bytes > 0);
        text += &match (cache_bytes, smaller_prefetch, smaller_batch) {
            (Some(bytes), ..) => format!("cache_decoded({bytes}) fits"),
            (None, Some(prefetch_depth), Some(batch_size)) => {
                format!("{depth_option}({prefetch_depth}) fits, or batch_size({batch_size})")
            }
            (None, Some(prefetch_depth), None) => format!("{depth_option}({prefetch_depth}) fits"),
            (None, None, Some(batch_size)) => format!("batch_size({batch_size}) fits"),
            (None, None, None) => match smallest_fit() {
                Some(batch_size) => format!("batch_size({batch_size}) with {depth_option}(1) fits"),
                None => format!("not even batch_size(1) with {depth_option}(1) fits"),
            },
        };
        Error::new(ErrorKind::Memory, text)
    }
}

#[derive(Clone, Copy)]
pub(super) struct MemoryDemand<'a> {
    pub(super) schemas: &'a Schemas,
    pub(super) prefetch: Bounds,
    /// Name of the option that sets the prefetch depth, for messages.
    pub(super) depth_option: &'static str,
    pub(super) scratch: ScratchPlan,
    pub(super) device_bytes: &'a dyn Fn(&Schemas, usize) -> usize,
}

/// Returns the largest number from 1 to `max` that fits, if any. If a number fits, all smaller
/// numbers must fit as well. The binary search calls `fits` about log2(`max`) times.
fn find_largest(max: usize, fits: impl Fn(usize) -> bool) -> Option<usize> {
    let (mut last_fit, mut first_misfit) = (0, max.checked_add(1)?);
    while first_misfit - last_fit > 1 {
        let middle = last_fit + (first_misfit - last_fit) / 2;
        if fits(middle) { last_fit = middle } else { first_misfit = middle }
    }
    (last_fit > 0).then_some(last_fit)
}

fn format_size(bytes: usize, is_exact: bool) -> String {
    match bytes {
        _ if is_exact => format!("{bytes} bytes"),
        0..10_240 => format!("{bytes} bytes"),
        10_240..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    }
}

/// Initial depth of automatic prefetching. Batches that are smaller than the number of workers may
/// raise the initial depth. In device memory, the depth never exceeds this value.
const DEFAULT_PREFETCH: usize = 2;
const MAX_PREFETCH: usize = 16;

/// Returns how many bytes all slots together may use if the prefetch depth is automatic and there
/// is no memory limit. Pageable memory costs nothing until it is used, but page-locked memory is
/// committed when it is allocated. Batches of videos may lock more memory, because a sample is
/// large, and a GPU decodes many clips at once.
pub(super) fn max_slots_bytes(is_locked: bool, has_videos: bool) -> usize {
    match (is_locked, has_videos) {
        (false, _) => 1 << 30,
        (true, false) => 1 << 28,
        (true, true) => 1 << 31,
    }
}

/// Returns the initial and the maximum prefetch depth for which `bytes(depth)` stays within
/// `limit`. Both are at least 1, even if depth 1 exceeds the limit.
fn automatic_prefetch(limit: usize, bytes: impl Fn(usize) -> usize) -> Bounds {
    let max = (1..=MAX_PREFETCH).rev().find(|&n| bytes(n) <= limit).unwrap_or(1);
    Bounds { min: max.min(DEFAULT_PREFETCH), max }
}

/// Allocates `slots` slots of `bytes` bytes each. If `pinned` is true, the memory is page-locked,
/// and a function that creates the [`SlotReclaimer`](crate::batch::SlotReclaimer) is returned as
/// well. If locking fails, the memory is pageable, and the first failure in this process is logged
/// as a warning.
pub(super) fn host_memory(
    bytes: usize,
    slots: usize,
    pinned: bool,
    rank: Rank,
) -> Result<(Vec<SlotMemory>, Option<MakeReclaimer>)> {
    if pinned {
        match page_locked(bytes, slots, rank) {
            Ok((memory, reclaimer)) => return Ok((memory, Some(reclaimer))),
            Err(e) => {
                static WARNED: std::sync::Once = std::sync::Once::new();
                WARNED.call_once(|| {
                    tracing::warn!("pinned(true): batches are in pageable memory, because page-locking failed: {e}")
                });
            }
        }
    }
    Ok(((0..slots).map(|_| SlotMemory::heap(bytes)).collect::<Result<_>>()?, None))
}

/// Returns how many bytes of memory are available on this machine without swapping (`MemAvailable`)
/// and within the cgroups of this process. Returns `None` if `/proc/meminfo` cannot be read, as on
/// systems other than Linux.
pub(super) fn available_memory() -> Option<usize> {
    let machine = machine_memory(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let available =
        cgroup_folders(&groups).iter().filter_map(|folder| available_in_group(folder)).fold(machine, u64::min);
    Some(usize::try_from(available).unwrap_or(usize::MAX))
}

fn machine_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the folders of all cgroups that may limit the process. `groups` is the content of
/// `/proc/self/cgroup`, in the format of cgroup v1 or v2. The list includes the root: inside a
/// container, the root is the container's own group, even if the file reports a different name.
fn cgroup_folders(groups: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let root = match controllers {
            "" => Path::new("/sys/fs/cgroup"),
            _ if controllers.split(',').any(|name| name == "memory") => Path::new("/sys/fs/cgroup/memory"),
            _ => continue,
        };
        let group_path = Path::new(group.trim_start_matches('/'));
        folders.extend(group_path.ancestors().map(|group| root.join(group)));
    }
    folders
}

/// Returns how many bytes are available to the group in `folder`, or `None` if its limit or usage
/// cannot be read. The page cache counts as available, because the kernel reclaims it on demand.
fn available_in_group(folder: &Path) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    // Without a limit, the file contains `max` in v2, and a number larger than any memory in v1.
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let (limit, used_bytes, file_counters) = match number("memory.max") {
        Some(limit) => (limit, number("memory.current")?, ["active_file", "inactive_file"]),
        None => {
            let (limit, used_bytes) = (number("memory.limit_in_bytes")?, number("memory.usage_in_bytes")?);
            (limit, used_bytes, ["total_active_file", "total_inactive_file"])
        }
    };
    let stat = read("memory.stat").unwrap_or_default();
    let entries = stat.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| file_counters.contains(name));
    let cache_bytes: u64 = entries.filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok()).sum();
    Some(limit.saturating_sub(used_bytes.saturating_sub(cache_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Dtype, Field, Role, Schema};

    #[test]
    fn the_available_memory_is_read() {
        assert_eq!(machine_memory("MemTotal:       99 kB\nMemAvailable:    12 kB\n"), Some(12 << 10));
        assert_eq!([machine_memory("MemTotal: 99 kB\n"), machine_memory("MemAvailable: many kB\n")], [None; 2]);
        #[cfg(target_os = "linux")]
        assert!(available_memory().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn automatic_prefetch_fits_wherever_prefetch_1_fits() {
        let array = Field { name: "x".to_owned(), dtype: Dtype::U8, shape: vec![1 << 20] };
        let schemas = Schemas::one(Schema::new(3, [(array, Role::Plain)]).unwrap());
        let (scratch, device_bytes) = (ScratchPlan::ample(32, 2, 1 << 18), |_: &Schemas, _: usize| 0);
        let min_bytes = Settings::slots_for(1) * schemas.bytes() + scratch.min_bytes();
        assert!(scratch.min_bytes() > schemas.bytes());
        for free in (0..200).map(|halves| halves << 19).chain([min_bytes - 1, min_bytes, usize::MAX]) {
            for bound in [MemoryBound::Available(free), MemoryBound::Limit(free)] {
                let prefetch =
                    bound.automatic_prefetch(max_slots_bytes(false, false), &schemas, &scratch, device_bytes);
                let (schemas, device_bytes, depth_option) = (&schemas, &device_bytes, "prefetch");
                let demand = MemoryDemand { schemas, prefetch, depth_option, scratch, device_bytes };
                assert_eq!(bound.plan_scratch(&demand).is_ok(), min_bytes <= free, "{free}: {prefetch:?}");
            }
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn groups_of_both_versions_and_their_parents_are_read() {
        let folders_of =
            |groups| cgroup_folders(groups).iter().map(|f| f.to_str().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(folders_of("0::/a/b\n"), ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup/"]);
        assert_eq!(folders_of("5:cpu,memory:/x\n3:cpuset:/\n"), ["/sys/fs/cgroup/memory/x", "/sys/fs/cgroup/memory/"]);
        assert_eq!(folders_of("0::/\n"), ["/sys/fs/cgroup/"]);
        assert!(folders_of("").is_empty() && folders_of("nonsense\n").is_empty());
    }

    #[test]
    fn free_group_memory_includes_the_page_cache() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        assert_eq!(available_in_group(root.path()), None);
        write("memory.limit_in_bytes", "1000\n");
        write("memory.usage_in_bytes", "900\n");
        write("memory.stat", "cache 1\nactive_file 7\ntotal_active_file 200\ntotal_inactive_file 300\n");
        assert_eq!(available_in_group(root.path()), Some(600), "cgroup v1");
        write("memory.current", "5000\n");
        write("memory.max", "max\n");
        assert_eq!(available_in_group(root.path()), Some(600), "cgroup v2 without a limit");
        write("memory.max", "4000\n");
        write("memory.stat", "anon 3\nactive_file 1500\ninactive_file 500\n");
        assert_eq!(available_in_group(root.path()), Some(1000));
        write("memory.stat", "");
        assert_eq!(available_in_group(root.path()), Some(0));
    }
}
