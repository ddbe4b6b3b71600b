//! Tiles: what the matrix unit multiplies, sixteen rows of 64 bytes each.
//!
//! A [`Job`] is one block of sums, up to 2 × 2 tiles, over all of K: its sums stay in tile registers from the first product
//! to the last. The job names operands as the instructions take them: tiles of A hold rows of consecutive k, tiles of B
//! hold, for each group of consecutive k that fills four bytes, those of sixteen columns side by side.
//!
//! In tests a model of the instructions ([`super::model`]) stands in where the machine has none.

#[cfg(target_arch = "x86_64")]
use std::arch::asm;
#[cfg(target_arch = "x86_64")]
use std::mem::offset_of;
#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

use crate::simd::Isa;

/// Rows of a tile, and columns of 32 bits.
pub const SIDE: usize = 16;
/// Bytes of a tile's row.
pub const ROW_BYTES: usize = 64;
/// Rows and columns of the sums of a job.
pub const BLOCK: usize = 2 * SIDE;

/// What one instruction multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dot {
    /// Pairs of bf16, summed in f32.
    Bf16,
    /// Fours of bytes with signs, summed in i32.
    I8I8,
    /// Bytes without signs by bytes with signs.
    U8I8,
}

/// Where the operands of one pass over K begin.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// The first tile of A.
    pub a: *const u8,
    /// The first tile of B.
    pub b: *const u8,
}

/// A block of sums.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    passes: *const Pass,
    count: usize,
    /// Tiles along K in each pass.
    pub steps: usize,
    /// Bytes from a row of a tile of A to the next.
    pub a_row: usize,
    /// Bytes from a tile of A to the next one along K.
    pub a_step: usize,
    /// Bytes from a tile of A to the one sixteen rows below.
    pub a_below: usize,
    /// Bytes from a row of a tile of B to the next.
    pub b_row: usize,
    /// Bytes from a tile of B to the next one along K.
    pub b_step: usize,
    /// Bytes from a tile of B to the one sixteen columns beside it; 0 computes the same sums twice.
    pub b_beside: usize,
    /// Where sums go: [`BLOCK`] rows of [`BLOCK`] numbers of 32 bits, or half of the rows.
    pub c: *mut u8,
    life: std::marker::PhantomData<&'a [Pass]>,
}

impl<'a> Job<'a> {
    /// A job on tiles that follow one another densely: those of A along K, then the rows below; those of B alike.
    pub fn dense(passes: &'a [Pass], steps: usize, wide: bool, c: *mut u8) -> Job<'a> {
        let tile = SIDE * ROW_BYTES;
        Job {
            passes: passes.as_ptr(),
            count: passes.len(),
            steps,
            a_row: ROW_BYTES,
            a_step: tile,
            a_below: tile * steps,
            b_row: ROW_BYTES,
            b_step: tile,
            b_beside: if wide { tile * steps } else { 0 },
            c,
            life: std::marker::PhantomData,
        }
    }

    /// The passes.
    #[cfg(test)]
    pub fn passes(&self) -> &'a [Pass] {
        // SAFETY: `passes` and `count` are those of the slice that made the job.
        unsafe { std::slice::from_raw_parts(self.passes, self.count) }
    }
}

/// Who multiplies tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The processor. Made by [`Unit::of`] alone, after the kernel has granted tiles.
    #[cfg(target_arch = "x86_64")]
    Processor,
    /// The model.
    #[cfg(all(test, target_arch = "x86_64"))]
    Model,
}

impl Unit {
    /// The unit of a level, if it has one.
    pub fn of(isa: Isa) -> Option<Unit> {
        if isa != Isa::Amx {
            return None;
        }
        #[cfg(target_arch = "x86_64")]
        {
            static THERE: OnceLock<bool> = OnceLock::new();
            if *THERE.get_or_init(|| Isa::Amx.is_available()) {
                return Some(Unit::Processor);
            }
            #[cfg(test)]
            return Some(Unit::Model);
        }
        #[allow(unreachable_code)]
        None
    }

    /// Configures this thread's tiles until the result is dropped.
    pub fn enter(self) -> Entered {
        #[cfg(target_arch = "x86_64")]
        if self == Unit::Processor {
            // SAFETY: the processor has tiles, and the kernel saves them.
            unsafe { configure() };
        }
        Entered(self, std::marker::PhantomData)
    }
}

/// A unit whose tiles are configured, on one thread.
pub struct Entered(Unit, std::marker::PhantomData<*const ()>);

impl Drop for Entered {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if self.0 == Unit::Processor {
            // SAFETY: as in `enter`. Tiles that stay in use would be saved at every switch of threads.
            unsafe { asm!("tilerelease", options(nostack)) };
        }
    }
}

impl Entered {
    /// Computes a job's sums: two rows of tiles, or one.
    ///
    /// # Safety
    /// All tiles that the job names are readable, and its sums writable and apart from them.
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
    pub unsafe fn multiply(&self, dot: Dot, two: bool, job: &Job<'_>) {
        debug_assert!(job.count > 0 && job.steps > 0);
        match self.0 {
            // SAFETY: the caller's promise; tiles are configured while `self` lives, on the thread that it stays on.
            #[cfg(target_arch = "x86_64")]
            Unit::Processor => unsafe { multiply(dot, two, job) },
            // SAFETY: the caller's promise.
            #[cfg(all(test, target_arch = "x86_64"))]
            Unit::Model => unsafe { super::model::multiply(dot, two, job) },
        }
    }
}

/// The operand of `ldtilecfg`.
#[cfg(target_arch = "x86_64")]
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// # Safety
/// The processor has tiles, and the kernel has granted them to the process.
#[cfg(target_arch = "x86_64")]
unsafe fn configure() {
    let mut config = Config { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
    config.row_bytes[..8].fill(ROW_BYTES as u16);
    config.rows[..8].fill(SIDE as u8);
    // The instruction reads memory and clears all tiles: it must not be moved across the stores above, nor are tiles kept
    // across it.
    // SAFETY: the caller's promise; the operand is 64 bytes.
    unsafe {
        asm!(
            "ldtilecfg [{}]",
            in(reg) &raw const config,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack)
        );
    }
}

/// One job by one instruction: two rows of tiles or one.
#[cfg(target_arch = "x86_64")]
macro_rules! job {
    ($job:ident, $two:ident, $dot:literal) => {
        if $two {
            asm!(
                "mov {p}, [{job} + {passes}]",
                "mov {left}, [{job} + {count}]",
                "mov {ar}, [{job} + {a_row}]",
                "mov {br}, [{job} + {b_row}]",
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "2:",
                "mov {a}, [{p}]",
                "mov {b}, [{p} + 8]",
                "mov {a1}, [{job} + {a_below}]",
                "add {a1}, {a}",
                "mov {b1}, [{job} + {b_beside}]",
                "add {b1}, {b}",
                "mov {n}, [{job} + {steps}]",
                "3:",
                "tileloadd tmm4, [{a} + {ar}*1]",
                "tileloadd tmm6, [{b} + {br}*1]",
                "tileloadd tmm5, [{a1} + {ar}*1]",
                "tileloadd tmm7, [{b1} + {br}*1]",
                concat!($dot, " tmm0, tmm4, tmm6"),
                concat!($dot, " tmm2, tmm5, tmm6"),
                concat!($dot, " tmm1, tmm4, tmm7"),
                concat!($dot, " tmm3, tmm5, tmm7"),
                "add {a}, [{job} + {a_step}]",
                "add {a1}, [{job} + {a_step}]",
                "add {b}, [{job} + {b_step}]",
                "add {b1}, [{job} + {b_step}]",
                "dec {n}",
                "jnz 3b",
                "add {p}, 16",
                "dec {left}",
                "jnz 2b",
                "mov {a}, [{job} + {c}]",
                "mov {ar:e}, 128",
                "tilestored [{a} + {ar}*1], tmm0",
                "tilestored [{a} + {ar}*1 + 64], tmm1",
                "tilestored [{a} + {ar}*1 + 2048], tmm2",
                "tilestored [{a} + {ar}*1 + 2112], tmm3",
                job = in(reg) $job,
                p = out(reg) _, left = out(reg) _, n = out(reg) _, ar = out(reg) _, br = out(reg) _,
                a = out(reg) _, a1 = out(reg) _, b = out(reg) _, b1 = out(reg) _,
                passes = const offset_of!(Job<'static>, passes),
                count = const offset_of!(Job<'static>, count),
                steps = const offset_of!(Job<'static>, steps),
                a_row = const offset_of!(Job<'static>, a_row),
                a_step = const offset_of!(Job<'static>, a_step),
                a_below = const offset_of!(Job<'static>, a_below),
                b_row = const offset_of!(Job<'static>, b_row),
                b_step = const offset_of!(Job<'static>, b_step),
                b_beside = const offset_of!(Job<'static>, b_beside),
                c = const offset_of!(Job<'static>, c),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack)
            )
        } else {
            asm!(
                "mov {p}, [{job} + {passes}]",
                "mov {left}, [{job} + {count}]",
                "mov {ar}, [{job} + {a_row}]",
                "mov {br}, [{job} + {b_row}]",
                "tilezero tmm0",
                "tilezero tmm1",
                "2:",
                "mov {a}, [{p}]",
                "mov {b}, [{p} + 8]",
                "mov {b1}, [{job} + {b_beside}]",
                "add {b1}, {b}",
                "mov {n}, [{job} + {steps}]",
                "3:",
                "tileloadd tmm4, [{a} + {ar}*1]",
                "tileloadd tmm6, [{b} + {br}*1]",
                "tileloadd tmm7, [{b1} + {br}*1]",
                concat!($dot, " tmm0, tmm4, tmm6"),
                concat!($dot, " tmm1, tmm4, tmm7"),
                "add {a}, [{job} + {a_step}]",
                "add {b}, [{job} + {b_step}]",
                "add {b1}, [{job} + {b_step}]",
                "dec {n}",
                "jnz 3b",
                "add {p}, 16",
                "dec {left}",
                "jnz 2b",
                "mov {a}, [{job} + {c}]",
                "mov {ar:e}, 128",
                "tilestored [{a} + {ar}*1], tmm0",
                "tilestored [{a} + {ar}*1 + 64], tmm1",
                job = in(reg) $job,
                p = out(reg) _, left = out(reg) _, n = out(reg) _, ar = out(reg) _, br = out(reg) _,
                a = out(reg) _, b = out(reg) _, b1 = out(reg) _,
                passes = const offset_of!(Job<'static>, passes),
                count = const offset_of!(Job<'static>, count),
                steps = const offset_of!(Job<'static>, steps),
                a_row = const offset_of!(Job<'static>, a_row),
                a_step = const offset_of!(Job<'static>, a_step),
                b_row = const offset_of!(Job<'static>, b_row),
                b_step = const offset_of!(Job<'static>, b_step),
                b_beside = const offset_of!(Job<'static>, b_beside),
                c = const offset_of!(Job<'static>, c),
                out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm6") _, out("tmm7") _,
                options(nostack)
            )
        }
    };
}

/// # Safety
/// As [`Entered::multiply`]; tiles are configured.
#[cfg(target_arch = "x86_64")]
unsafe fn multiply(dot: Dot, two: bool, job: &Job<'_>) {
    let job: *const Job<'_> = job;
    // SAFETY: the caller's promise. Nothing lives in tiles before or after.
    unsafe {
        match dot {
            Dot::Bf16 => job!(job, two, "tdpbf16ps"),
            Dot::I8I8 => job!(job, two, "tdpbssd"),
            Dot::U8I8 => job!(job, two, "tdpbusd"),
        }
    }
}
