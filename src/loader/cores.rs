//! The number of cores that this process may use.
//!
//! For a single process, `std::thread::available_parallelism` is enough: it returns the minimum of
//! the affinity and the quota. Ranks on the same machine share the quota, but each rank may have
//! its own affinity. Therefore, with several ranks, this module also reads the affinity alone. If
//! the minimum is less than the affinity, the minimum is the quota.

use std::fs;

use crate::sampler::Rank;

/// Returns the number of cores that the affinity mask and the cgroup allow, divided by the number
/// of ranks that use the same cores.
///
/// A launcher that binds ranks to cores has already divided the machine, so a rank that is bound to
/// at most its share uses all of these cores.
pub(super) fn available_cores(rank: &Rank) -> usize {
    let allowed_cores = std::thread::available_parallelism().map_or(1, usize::from);
    let ranks = rank.local_world_size.unwrap_or(1);
    if ranks <= 1 {
        return allowed_cores;
    }
    let affinity_cores = count_cores_of_affinity();
    // A quota applies to the whole container, and so to all ranks together.
    let quota_cores = affinity_cores.filter(|affinity_cores| allowed_cores < *affinity_cores).map(|_| allowed_cores);
    share_cores(allowed_cores, quota_cores.or_else(count_machine_cores).unwrap_or(allowed_cores), ranks)
}

/// If a GPU decodes videos, at least this many workers are started, or [`VIDEO_WORKERS_PER_CORE`]
/// per core if that is fewer. A worker waits for a decoding engine most of the time. With seven
/// engines and 16 cores, 24 workers deliver 1.1 times as many frames as 16 workers.
const VIDEO_WORKERS: usize = 24;
const VIDEO_WORKERS_PER_CORE: usize = 4;

/// The kind of data that a GPU decodes, instead of or together with the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecodedOnGpu {
    Nothing,
    Jpegs,
    Videos,
}

/// If a GPU decodes JPEGs, one of every 16 cores is reserved for the copy thread and the consumer.
/// If workers occupy all 16 cores, these two threads wait for a core, and the longest waits for a
/// batch are three times as long (`benches/RESULTS.md`). With fewer than 16 cores, no core is
/// reserved, because one worker less would reduce throughput by more than the free core gains.
const CORES_PER_FREE_CORE: usize = 16;

pub(super) fn automatic_workers(cores: usize, decoded_on_gpu: DecodedOnGpu) -> usize {
    match decoded_on_gpu {
        DecodedOnGpu::Nothing => cores,
        DecodedOnGpu::Jpegs => cores - cores / CORES_PER_FREE_CORE,
        DecodedOnGpu::Videos => cores.max(VIDEO_WORKERS.min(cores * VIDEO_WORKERS_PER_CORE)),
    }
}

/// Returns the number of cores for one of `ranks` ranks on a machine with `cores` cores. The
/// affinity or the quota allows the rank to use `allowed_cores` cores.
fn share_cores(allowed_cores: usize, cores: usize, ranks: usize) -> usize {
    allowed_cores.min(cores / ranks).max(1)
}

fn count_cores_of_affinity() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).and_then(count_cpus)
}

/// Returns the number of cores of the machine or the container, according to cgroup v2 (or v1, in a
/// container), or the number of cores that are online if there is no such cgroup.
fn count_machine_cores() -> Option<usize> {
    let path = fs::read_to_string("/proc/self/cgroup").ok().and_then(|groups| {
        let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?.trim_matches('/').to_owned();
        Some(format!("/sys/fs/cgroup/{group}/cpuset.cpus.effective"))
    });
    let paths = path
        .iter()
        .map(String::as_str)
        .chain(["/sys/fs/cgroup/cpuset.cpus.effective", "/sys/fs/cgroup/cpuset/cpuset.effective_cpus"]);
    let read_count = |path: &str| fs::read_to_string(path).ok().and_then(|list| count_cpus(&list));
    paths.chain(["/sys/devices/system/cpu/online"]).find_map(read_count)
}

/// Counts the numbers in a list such as `0-3,8,10-11`. Returns `None` if the list is empty or
/// invalid.
fn count_cpus(list: &str) -> Option<usize> {
    let range = |range: &str| match range.split_once('-') {
        None => range.parse::<usize>().ok().map(|_| 1),
        Some((first, last)) => last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1),
    };
    list.trim().split(',').map(range).sum::<Option<usize>>().filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_cpu_list_are_counted() {
        assert_eq!(count_cpus("0-3,8,10-11\n"), Some(7));
        assert_eq!(count_cpus(" 5"), Some(1));
        assert_eq!([count_cpus(""), count_cpus("x"), count_cpus("3-1")], [None; 3]);
    }

    #[test]
    fn videos_of_a_gpu_get_more_workers_than_cores() {
        assert_eq!([1, 2, 4, 16, 64].map(|cores| automatic_workers(cores, DecodedOnGpu::Videos)), [4, 8, 16, 24, 64]);
        assert_eq!([1, 16, 64].map(|cores| automatic_workers(cores, DecodedOnGpu::Nothing)), [1, 16, 64]);
    }

    #[test]
    fn workers_beside_a_decoding_gpu_leave_one_of_16_cores_free() {
        assert_eq!(
            [1, 4, 15, 16, 31, 32].map(|cores| automatic_workers(cores, DecodedOnGpu::Jpegs)),
            [1, 4, 15, 15, 30, 30]
        );
    }

    #[test]
    fn ranks_divide_the_cores_unless_they_are_bound() {
        assert_eq!(share_cores(64, 64, 4), 16, "unbound ranks divide the machine");
        assert_eq!(share_cores(16, 64, 4), 16, "bound ranks have already divided the machine");
        assert_eq!(share_cores(3, 3, 8), 1);
        let alone = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(available_cores(&Rank::SINGLE), alone);
        #[cfg(target_os = "linux")]
        {
            assert!(
                count_cores_of_affinity().unwrap() >= alone,
                "the affinity allows at least as many cores as the quota"
            );
            assert!(count_machine_cores().unwrap() >= 1);
            let of_many = Rank { rank: 0, world_size: 1000, local_rank: Some(0), local_world_size: Some(1000) };
            assert_eq!(available_cores(&of_many), 1);
        }
    }
}
