//! Cores that this process may use: the affinity mask cut down by the control group's CPU quota.
//!
//! A quota of 1.5 cores counts as one: a second spinning thread would have the whole process throttled. Reading files
//! and parsing them are apart, so that the parsing is tested on texts of machines we do not have.

/// Cores granted to this process.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Cores {
    /// Cores in the affinity mask.
    pub affinity: usize,
    /// CPU time per wall time that the control groups grant, if they limit it.
    pub quota: Option<f64>,
}

impl Cores {
    /// Asks the system.
    pub(super) fn detect() -> Cores {
        Cores { affinity: affinity(), quota: quota() }
    }

    /// How many threads can be kept busy: at least 1.
    pub fn usable(&self) -> usize {
        // The cast saturates, and maps NaN to 0.
        let granted = self.quota.map_or(usize::MAX, |q| q.floor() as usize);
        self.affinity.min(granted).max(1)
    }
}

#[cfg(target_os = "linux")]
fn affinity() -> usize {
    // The kernel refuses a mask smaller than its own, so grow it until it fits: 1,024 to 65,536 cores.
    for words in [16_usize, 64, 256, 1024] {
        let mut mask = vec![0_u64; words];
        // SAFETY: the kernel writes at most the given number of bytes, which is the vector's length; pid 0 is this
        // thread. A cpu_set_t is an array of words and any alignment of u64 satisfies it.
        let rc = unsafe { libc::sched_getaffinity(0, words * 8, mask.as_mut_ptr().cast()) };
        if rc == 0 {
            let cores: u32 = mask.iter().map(|word| word.count_ones()).sum();
            return (cores as usize).max(1);
        }
    }
    parallelism()
}

#[cfg(not(target_os = "linux"))]
fn affinity() -> usize {
    parallelism()
}

fn parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

#[cfg(not(target_os = "linux"))]
fn quota() -> Option<f64> {
    None
}

#[cfg(target_os = "linux")]
fn quota() -> Option<f64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    quota_with(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?, read)
}

/// The tightest quota of this process's control groups and of all groups above them.
#[cfg(any(target_os = "linux", test))]
fn quota_with(cgroup: &str, mountinfo: &str, read: impl Fn(&str) -> Option<String>) -> Option<f64> {
    let mut tightest: Option<f64> = None;
    for group in parse_cgroup(cgroup) {
        let Some(mount) = parse_mountinfo(mountinfo).into_iter().find(|m| m.version == group.version) else {
            continue;
        };
        for folder in folders_to_root(&mount, &group.path) {
            let found = match group.version {
                Version::V2 => read(&format!("{folder}/cpu.max")).as_deref().and_then(parse_cpu_max),
                Version::V1 => {
                    let quota = read(&format!("{folder}/cpu.cfs_quota_us"));
                    let period = read(&format!("{folder}/cpu.cfs_period_us"));
                    quota.zip(period).and_then(|(q, p)| parse_cfs_quota(&q, &p))
                }
            };
            if let Some(q) = found {
                tightest = Some(tightest.map_or(q, |t| t.min(q)));
            }
        }
    }
    tightest
}

#[cfg(any(target_os = "linux", test))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A control group that governs this process's CPU time.
#[cfg(any(target_os = "linux", test))]
#[derive(Debug, PartialEq, Eq)]
struct Group {
    version: Version,
    path: String,
}

/// Where a control group file system with the CPU controller is mounted, and which group is its root there.
#[cfg(any(target_os = "linux", test))]
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    version: Version,
    root: String,
    point: String,
}

/// Parses `/proc/self/cgroup`: lines `id:controllers:path`, where id 0 without controllers is version 2.
#[cfg(any(target_os = "linux", test))]
fn parse_cgroup(text: &str) -> Vec<Group> {
    text.lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let version = if id == "0" && controllers.is_empty() {
                Version::V2
            } else if controllers.split(',').any(|c| c == "cpu") {
                Version::V1
            } else {
                return None;
            };
            Some(Group { version, path: path.to_string() })
        })
        .collect()
}

/// Parses `/proc/self/mountinfo`: `id parent dev root point options… - type source super-options`.
#[cfg(any(target_os = "linux", test))]
fn parse_mountinfo(text: &str) -> Vec<Mount> {
    text.lines()
        .filter_map(|line| {
            let (head, tail) = line.split_once(" - ")?;
            let mut fields = head.split(' ').skip(3);
            let (root, point) = (fields.next()?, fields.next()?);
            let mut tail = tail.split(' ');
            let (kind, options) = (tail.next()?, tail.nth(1).unwrap_or(""));
            let version = match kind {
                "cgroup2" => Version::V2,
                "cgroup" if options.split(',').any(|o| o == "cpu") => Version::V1,
                _ => return None,
            };
            Some(Mount { version, root: root.to_string(), point: point.to_string() })
        })
        .collect()
}

/// The folders of a group and of all groups above it, as seen below the mount point; the mount point comes last.
#[cfg(any(target_os = "linux", test))]
fn folders_to_root(mount: &Mount, group: &str) -> Vec<String> {
    // A container may see only the subtree from `root` on; a group outside it (`/../x`) is not visible at all.
    let inside = group
        .strip_prefix(mount.root.trim_end_matches('/'))
        .filter(|rest| rest.is_empty() || rest.starts_with('/'))
        .unwrap_or("");
    let parts: Vec<&str> = inside.split('/').filter(|p| !p.is_empty()).collect();
    let parts = if parts.contains(&"..") { Vec::new() } else { parts };
    (0..=parts.len())
        .rev()
        .filter_map(|depth| parts.get(..depth))
        .map(|parts| {
            let mut folder = mount.point.clone();
            for part in parts {
                folder.push('/');
                folder.push_str(part);
            }
            folder
        })
        .collect()
}

/// Parses version 2's `cpu.max`: `max 100000` or `150000 100000`.
#[cfg(any(target_os = "linux", test))]
fn parse_cpu_max(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let quota = words.next()?;
    let period = words.next().unwrap_or("100000");
    parse_cfs_quota(quota, period)
}

/// Parses version 1's `cpu.cfs_quota_us` (−1 for none) and `cpu.cfs_period_us`.
#[cfg(any(target_os = "linux", test))]
fn parse_cfs_quota(quota: &str, period: &str) -> Option<f64> {
    let quota: u64 = quota.trim().parse().ok()?;
    let period: u64 = period.trim().parse().ok()?;
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn cpu_max_texts() {
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(parse_cpu_max("150000 100000\n"), Some(1.5));
        assert_eq!(parse_cpu_max("400000 100000"), Some(4.0));
        assert_eq!(parse_cpu_max("50000"), Some(0.5));
        for bad in ["", "\n", "x y", "0 100000", "1000 0", "-1 100000"] {
            assert_eq!(parse_cpu_max(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn cfs_quota_texts() {
        assert_eq!(parse_cfs_quota("-1\n", "100000\n"), None);
        assert_eq!(parse_cfs_quota("250000\n", "100000\n"), Some(2.5));
        assert_eq!(parse_cfs_quota("250000", "zero"), None);
    }

    #[test]
    fn usable_is_the_smaller_and_at_least_one() {
        let usable = |affinity, quota| Cores { affinity, quota }.usable();
        assert_eq!(usable(8, None), 8);
        assert_eq!(usable(8, Some(2.9)), 2);
        assert_eq!(usable(2, Some(64.0)), 2);
        assert_eq!(usable(8, Some(0.25)), 1);
        assert_eq!(usable(0, None), 1);
        assert_eq!(usable(8, Some(f64::INFINITY)), 8);
    }

    fn files(list: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        let map: HashMap<String, String> = list.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        move |path| map.get(path).cloned()
    }

    const MOUNT_V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    const MOUNT_V1: &str = "33 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                            34 25 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

    #[test]
    fn version_two_takes_the_tightest_group_on_the_way_up() {
        let read = files(&[
            ("/sys/fs/cgroup/a/b/cpu.max", "800000 100000"),
            ("/sys/fs/cgroup/a/cpu.max", "300000 100000"),
            ("/sys/fs/cgroup/other/cpu.max", "100000 100000"),
        ]);
        assert_eq!(quota_with("0::/a/b\n", MOUNT_V2, read), Some(3.0));
    }

    #[test]
    fn version_one_finds_the_cpu_controller() {
        let read = files(&[
            ("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "50000\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ]);
        let cgroup = "5:memory:/job\n4:cpu,cpuacct:/job\n3:cpuset:/\n0::/\n";
        assert_eq!(quota_with(cgroup, MOUNT_V1, read), Some(0.5));
    }

    #[test]
    fn a_container_that_sees_a_subtree() {
        let mount = "30 23 0:26 /docker/abc /sys/fs/cgroup ro master:1 - cgroup2 cgroup rw\n";
        let read = || files(&[("/sys/fs/cgroup/cpu.max", "200000 100000")]);
        assert_eq!(quota_with("0::/docker/abc\n", mount, read()), Some(2.0));
        assert_eq!(quota_with("0::/docker/abc/in\n", mount, read()), Some(2.0));
        assert_eq!(quota_with("0::/docker/abcd\n", mount, read()), Some(2.0));
        assert_eq!(quota_with("0::/../elsewhere\n", MOUNT_V2, read()), Some(2.0));
    }

    #[test]
    fn nothing_known_is_no_quota() {
        let none = |_: &str| None;
        assert_eq!(quota_with("", "", none), None);
        assert_eq!(quota_with("garbage\n::\n0::\n", "a b c\n - \n", none), None);
        assert_eq!(quota_with("0::/\n", MOUNT_V2, none), None);
    }
}
