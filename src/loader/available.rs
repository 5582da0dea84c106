//! How much memory this process can still be given.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that the machine has available (`MemAvailable`: without swapping), and no more than the control groups of this process have left. None where the
/// system does not say; it is asked on Linux only.
///
/// A figure of now and for this process alone: who opens several loaders, or shares the machine, may be given less.
pub(super) fn memory() -> Option<usize> {
    let machine = machine(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let left = folders(&groups).iter().filter_map(|folder| left(folder)).fold(machine, u64::min);
    Some(usize::try_from(left).unwrap_or(usize::MAX))
}

/// What `/proc/meminfo` says, in bytes.
fn machine(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The folders of all groups that limit a process of these groups (the text of `/proc/self/cgroup`), of cgroup's second version and of its first. A container
/// sees its own as the root, whatever the name says.
fn folders(groups: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let root = match controllers {
            "" => Path::new("/sys/fs/cgroup"),
            _ if controllers.split(',').any(|name| name == "memory") => Path::new("/sys/fs/cgroup/memory"),
            _ => continue,
        };
        let inside = Path::new(group.trim_start_matches('/'));
        folders.extend(inside.ancestors().map(|group| root.join(group)));
    }
    folders
}

/// Bytes that the group of `folder` has left, if it has a limit. What it holds of files is given back when it is asked for, and counts as left.
fn left(folder: &Path) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    // No limit is `max` in the second version, and a number beyond all memory in the first.
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let (limit, used, files) = match number("memory.max") {
        Some(limit) => (limit, number("memory.current")?, ["active_file", "inactive_file"]),
        None => {
            let (limit, used) = (number("memory.limit_in_bytes")?, number("memory.usage_in_bytes")?);
            (limit, used, ["total_active_file", "total_inactive_file"])
        }
    };
    let stat = read("memory.stat").unwrap_or_default();
    let entries = stat.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| files.contains(name));
    let files: u64 = entries.filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok()).sum();
    Some(limit.saturating_sub(used.saturating_sub(files)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read() {
        assert_eq!(machine("MemTotal:       99 kB\nMemAvailable:    12 kB\n"), Some(12 << 10));
        assert_eq!([machine("MemTotal: 99 kB\n"), machine("MemAvailable: many kB\n")], [None; 2]);
        #[cfg(target_os = "linux")]
        assert!(memory().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn the_groups_of_both_versions_and_those_around_them_are_asked() {
        let of = |groups| folders(groups).iter().map(|f| f.to_str().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(of("0::/a/b\n"), ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup/"]);
        assert_eq!(of("5:cpu,memory:/x\n3:cpuset:/\n"), ["/sys/fs/cgroup/memory/x", "/sys/fs/cgroup/memory/"]);
        assert_eq!(of("0::/\n"), ["/sys/fs/cgroup/"]);
        assert!(of("").is_empty() && of("nonsense\n").is_empty());
    }

    #[test]
    fn a_group_has_left_its_limit_without_what_it_uses_but_for_files() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        assert_eq!(left(root.path()), None);
        put("memory.limit_in_bytes", "1000\n");
        put("memory.usage_in_bytes", "900\n");
        put("memory.stat", "cache 1\nactive_file 7\ntotal_active_file 200\ntotal_inactive_file 300\n");
        assert_eq!(left(root.path()), Some(600), "the first version");
        put("memory.current", "5000\n");
        put("memory.max", "max\n");
        assert_eq!(left(root.path()), Some(600), "the second without a limit");
        put("memory.max", "4000\n");
        put("memory.stat", "anon 3\nactive_file 1500\ninactive_file 500\n");
        assert_eq!(left(root.path()), Some(1000));
        put("memory.stat", "");
        assert_eq!(left(root.path()), Some(0));
    }
}
