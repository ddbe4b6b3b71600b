//! Data cache sizes: from sysfs on Linux, else from CPUID on x86-64, else modest defaults.
//!
//! Invariant: `4096 <= l1d <= l2 <= l3`, whatever a virtual machine reports.

/// Sizes in bytes of the data caches that one core sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caches {
    /// First level, data.
    pub l1d: usize,
    /// Second level; equal to `l1d` on a machine without one.
    pub l2: usize,
    /// Third level, usually shared between cores; equal to `l2` on a machine without one.
    pub l3: usize,
}

/// One data or unified cache as the system lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    level: u32,
    bytes: usize,
}

impl Caches {
    /// Sizes that hold for most processors of the last ten years.
    const DEFAULT: Caches = Caches { l1d: 32 << 10, l2: 256 << 10, l3: 4 << 20 };

    /// Asks the system.
    pub(super) fn detect() -> Caches {
        let from_sysfs = sysfs_levels();
        if from_sysfs.is_empty() { Caches::from_levels(&cpuid_levels()) } else { Caches::from_levels(&from_sysfs) }
    }

    /// Takes the largest cache of each level within sane limits; a list that misses upper levels has none, an empty
    /// list tells nothing.
    fn from_levels(levels: &[Level]) -> Caches {
        let sane = (4 << 10)..=(2_usize << 30);
        let size =
            |wanted: u32| levels.iter().filter(|l| l.level == wanted && sane.contains(&l.bytes)).map(|l| l.bytes).max();
        let Some(l1d) = size(1) else {
            return Caches::DEFAULT;
        };
        let l2 = size(2).unwrap_or(l1d).max(l1d);
        let l3 = size(3).unwrap_or(l2).max(l2);
        Caches { l1d, l2, l3 }
    }
}

#[cfg(not(target_os = "linux"))]
fn sysfs_levels() -> Vec<Level> {
    Vec::new()
}

#[cfg(target_os = "linux")]
fn sysfs_levels() -> Vec<Level> {
    let read = |index: u32, name: &str| {
        std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}")).ok()
    };
    (0..8)
        .map_while(|index| {
            let level = read(index, "level")?;
            Some((level, read(index, "type"), read(index, "size")))
        })
        .filter_map(|(level, kind, size)| parse_sysfs(&level, &kind?, &size?))
        .collect()
}

/// Parses the texts of one sysfs cache entry; instruction caches and nonsense give nothing.
#[cfg(any(target_os = "linux", test))]
fn parse_sysfs(level: &str, kind: &str, size: &str) -> Option<Level> {
    if !matches!(kind.trim(), "Data" | "Unified") {
        return None;
    }
    let size = size.trim();
    let (digits, unit) = match size.as_bytes().last()? {
        b'K' => (size.get(..size.len() - 1)?, 1_usize << 10),
        b'M' => (size.get(..size.len() - 1)?, 1 << 20),
        b'G' => (size.get(..size.len() - 1)?, 1 << 30),
        _ => (size, 1),
    };
    Some(Level { level: level.trim().parse().ok()?, bytes: digits.parse::<usize>().ok()?.checked_mul(unit)? })
}

#[cfg(not(target_arch = "x86_64"))]
fn cpuid_levels() -> Vec<Level> {
    Vec::new()
}

#[cfg(target_arch = "x86_64")]
fn cpuid_levels() -> Vec<Level> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const EXTENDED: u32 = 0x8000_0000;
    const AMD_TOPOLOGY: u32 = 1 << 22;
    // AMD lists its caches in an extended leaf of the same format as Intel's leaf 4.
    let amd = __cpuid(EXTENDED).eax >= 0x8000_001d && __cpuid(EXTENDED | 1).ecx & AMD_TOPOLOGY != 0;
    let leaf = if amd {
        0x8000_001d
    } else if __cpuid(0).eax >= 4 {
        4
    } else {
        return Vec::new();
    };
    (0..8)
        .map(|index| __cpuid_count(leaf, index))
        .take_while(|r| r.eax & 0x1f != 0)
        .filter_map(|r| decode_cpuid(r.eax, r.ebx, r.ecx))
        .collect()
}

/// Decodes one entry of the deterministic cache leaf.
#[cfg(any(target_arch = "x86_64", test))]
fn decode_cpuid(eax: u32, ebx: u32, ecx: u32) -> Option<Level> {
    const INSTRUCTION: u32 = 2;
    if matches!(eax & 0x1f, 0 | INSTRUCTION) {
        return None;
    }
    let field = |value: u32, shift: u32, bits: u32| ((value >> shift) & ((1 << bits) - 1)) as u64 + 1;
    let bytes = field(ebx, 22, 10) * field(ebx, 12, 10) * field(ebx, 0, 12);
    Some(Level { level: (eax >> 5) & 7, bytes: usize::try_from(bytes.checked_mul(u64::from(ecx) + 1)?).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysfs_texts() {
        let level = |level, bytes| Some(Level { level, bytes });
        assert_eq!(parse_sysfs("1\n", "Data\n", "32K\n"), level(1, 32768));
        assert_eq!(parse_sysfs("2\n", "Unified\n", "1M\n"), level(2, 1 << 20));
        assert_eq!(parse_sysfs("3", "Unified", "32768K"), level(3, 32 << 20));
        assert_eq!(parse_sysfs("3", "Unified", "4096"), level(3, 4096));
        assert_eq!(parse_sysfs("1\n", "Instruction\n", "32K\n"), None);
        for bad in ["", "K", "-1K", "1.5M", "99999999999999999999G", "é"] {
            assert_eq!(parse_sysfs("1", "Data", bad), None, "{bad:?}");
        }
        assert_eq!(parse_sysfs("", "Data", "1K"), None);
    }

    #[test]
    fn cpuid_words_of_a_zen_3() {
        // 32 KiB, 8 ways, 64 sets; 512 KiB, 8 ways, 1024 sets; the middle one caches instructions.
        let l1d = decode_cpuid(0x0000_4121, 0x01c0_003f, 0x3f);
        assert_eq!(l1d.map(|l| (l.level, l.bytes)), Some((1, 32 << 10)));
        assert_eq!(decode_cpuid(0x0000_4122, 0x01c0_003f, 0x3f), None);
        let l2 = decode_cpuid(0x0000_4143, 0x01c0_003f, 0x3ff);
        assert_eq!(l2.map(|l| (l.level, l.bytes)), Some((2, 512 << 10)));
    }

    #[test]
    fn missing_and_absurd_levels() {
        let level = |level, bytes| Level { level, bytes };
        assert_eq!(Caches::from_levels(&[]), Caches::DEFAULT);
        assert_eq!(Caches::from_levels(&[level(1, 0)]), Caches::DEFAULT);
        let only_l1 = Caches::from_levels(&[level(1, 65536)]);
        assert_eq!((only_l1.l1d, only_l1.l2, only_l1.l3), (65536, 65536, 65536));
        let small_l3 = Caches::from_levels(&[level(1, 65536), level(2, 1 << 20), level(3, 8192)]);
        assert_eq!(small_l3.l3, 1 << 20);
        let absurd = Caches::from_levels(&[level(1, 65536), level(2, usize::MAX)]);
        assert_eq!(absurd.l2, 65536);
    }

    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn both_sources_agree_where_both_speak() {
        let (sysfs, cpuid) = (sysfs_levels(), cpuid_levels());
        if !sysfs.is_empty() && !cpuid.is_empty() {
            let (a, b) = (Caches::from_levels(&sysfs), Caches::from_levels(&cpuid));
            assert_eq!((a.l1d, a.l2), (b.l1d, b.l2));
        }
    }
}
