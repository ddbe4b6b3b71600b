//! Instruction set levels: bundles of processor features that kernels are compiled for.
//!
//! A level is available only if the processor has every feature of the bundle and the operating system saves the
//! registers they use. Levels of one architecture are ordered: each includes those before it.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// An instruction set level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// What every processor of the architecture has.
    Portable,
    /// x86-64 with AVX2, FMA, F16C, BMI1 and BMI2.
    Avx2,
    /// [`Isa::Avx2`] with AVX-512 F, BW, DQ and VL.
    Avx512,
    /// [`Isa::Avx512`] with AMX tiles, int8 and bf16, permitted by the kernel.
    Amx,
    /// AArch64 with Advanced SIMD.
    Neon,
}

impl Isa {
    /// Every level, of all architectures.
    pub const ALL: [Isa; 5] = [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Amx, Isa::Neon];

    /// The name that `Display` prints and `FromStr` reads.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Amx => "amx",
            Isa::Neon => "neon",
        }
    }

    /// The best level of this machine.
    pub fn best() -> Isa {
        Isa::available().last().copied().unwrap_or(Isa::Portable)
    }

    /// The levels of this machine, from [`Isa::Portable`] to the best.
    ///
    /// The first call asks the Linux kernel for AMX where the processor has it; the permission then holds for all
    /// threads of the process.
    pub fn available() -> Vec<Isa> {
        static LEVELS: OnceLock<Vec<Isa>> = OnceLock::new();
        LEVELS.get_or_init(detect).clone()
    }

    /// Whether kernels of this level can run on this machine.
    pub fn is_available(self) -> bool {
        Isa::available().contains(&self)
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no instruction set level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown instruction set {text:?}; known: portable, avx2, avx512, amx, neon")]
pub struct ParseIsaError {
    text: String,
}

impl FromStr for Isa {
    type Err = ParseIsaError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let key = text.trim();
        Isa::ALL
            .into_iter()
            .find(|isa| isa.name().eq_ignore_ascii_case(key))
            .ok_or_else(|| ParseIsaError { text: text.chars().take(64).collect() })
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Vec<Isa> {
    use std::arch::is_x86_feature_detected as has;
    let mut levels = vec![Isa::Portable];
    if !(has!("avx2") && has!("fma") && has!("f16c") && has!("bmi1") && has!("bmi2")) {
        return levels;
    }
    levels.push(Isa::Avx2);
    if !(has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl")) {
        return levels;
    }
    levels.push(Isa::Avx512);
    if processor_has_amx() && request_amx() {
        levels.push(Isa::Amx);
    }
    levels
}

#[cfg(target_arch = "aarch64")]
fn detect() -> Vec<Isa> {
    let mut levels = vec![Isa::Portable];
    if std::arch::is_aarch64_feature_detected!("neon") {
        levels.push(Isa::Neon);
    }
    levels
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect() -> Vec<Isa> {
    vec![Isa::Portable]
}

#[cfg(target_arch = "x86_64")]
fn processor_has_amx() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const BF16: u32 = 1 << 22;
    const TILE: u32 = 1 << 24;
    const INT8: u32 = 1 << 25;
    const NEEDED: u32 = BF16 | TILE | INT8;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & NEEDED == NEEDED
}

/// Asks the kernel to save tile data for this process: without it the first tile instruction is a fatal signal.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn request_amx() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_ulong = 18;
    // SAFETY: this call takes two integers and touches no memory of ours; kernels that do not know it return an error.
    let rc = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) };
    rc == 0
}

/// Other systems grant tiles by means of their own that this crate does not speak.
#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
fn request_amx() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_print_and_parse_back() {
        for isa in Isa::ALL {
            assert_eq!(isa.to_string().parse::<Isa>(), Ok(isa));
            assert_eq!(isa.to_string().to_uppercase().parse::<Isa>(), Ok(isa));
        }
        let message = "sse9".parse::<Isa>().unwrap_err().to_string();
        assert!(message.contains("sse9") && message.contains("avx512"));
    }

    #[test]
    fn levels_rise_from_portable() {
        let levels = Isa::available();
        assert_eq!(levels.first(), Some(&Isa::Portable));
        assert!(levels.is_sorted());
        assert_eq!(levels.last(), Some(&Isa::best()));
        for isa in Isa::ALL {
            assert_eq!(isa.is_available(), levels.contains(&isa));
        }
    }

    /// The kernel lists the same features by a reading of CPUID of its own.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    #[test]
    fn levels_agree_with_the_kernel() {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags: Vec<&str> = text.lines().find(|l| l.starts_with("flags")).unwrap().split_whitespace().collect();
        let all = |names: &[&str]| names.iter().all(|n| flags.contains(n));
        let avx2 = all(&["avx2", "fma", "f16c", "bmi1", "bmi2"]);
        let avx512 = avx2 && all(&["avx512f", "avx512bw", "avx512dq", "avx512vl"]);
        assert_eq!(Isa::Avx2.is_available(), avx2);
        assert_eq!(Isa::Avx512.is_available(), avx512);
        if Isa::Amx.is_available() {
            assert!(all(&["amx_tile", "amx_int8", "amx_bf16"]));
        }
        assert!(!Isa::Neon.is_available());
    }
}
