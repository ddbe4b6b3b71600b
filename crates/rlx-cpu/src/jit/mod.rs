//! Machine code for scalar programs: AVX2 on x86-64.
//!
//! A program in f32, booleans and integers of up to 32 bits becomes one function that runs over whole rows: a loop for each pass, with
//! all values in registers, where the tile machine makes a loop of each instruction. The function is written by running
//! the tile machine's own vector functions at a level that records them ([`tape`]): results are the same, bit for bit,
//! but for which NaN a NaN is.
//!
//! Code is made when a kernel is first bound and depends on its program and on which reads are uniform, not on sizes; it
//! stays with the program. Where there is none (another dtype, a function without a vector form, another instruction
//! set, no pages to be had) the tile machine runs.
//!
//! - [`nest`]: the program as passes over a row; [`regs`], [`emit`], [`asm`]: from there to bytes.
//! - [`feeds`]: each port's memory; [`run`]: the function on the rows of a kernel (epilogues call it on their pieces).

#[cfg(target_arch = "x86_64")]
mod asm;
#[cfg(target_arch = "x86_64")]
mod emit;
pub(crate) mod feeds;
mod integers;
pub(crate) mod nest;
#[cfg(target_arch = "x86_64")]
mod regs;
pub(crate) mod run;
pub(crate) mod small_floats;
mod tape;
#[cfg(test)]
#[cfg(all(target_arch = "x86_64", unix))]
mod tests;
#[cfg(test)]
#[cfg(all(target_arch = "x86_64", unix))]
mod tests_epilogues;
#[cfg(test)]
#[cfg(all(target_arch = "x86_64", unix))]
mod tests_integers;

use crate::simd::Isa;
use crate::tile::code::Code;
use nest::{Nest, Port, Width};
use rlx_driver::{AlignedBuffer, CodePages};
use std::sync::{Arc, Mutex, PoisonError};

/// True if kernels at this level can be machine code.
pub fn supported(isa: Isa) -> bool {
    cfg!(all(target_arch = "x86_64", unix)) && crate::simd::effective(isa) == Isa::Avx2
}

/// A program's function.
#[derive(Debug)]
pub struct Compiled {
    pages: CodePages,
    pool: AlignedBuffer,
    /// What each port of the argument block is.
    pub ports: Vec<Port>,
    /// How each port's elements lie.
    pub widths: Vec<Width>,
}

impl Compiled {
    #[cfg(target_arch = "x86_64")]
    fn new(code: &Code, uniform: &[bool], along: &[bool], past_caches: bool) -> Option<Compiled> {
        let nest = Nest::new(code, uniform, along)?;
        let emitted = emit::emit(&nest, past_caches)?;
        let pool = AlignedBuffer::copy_of(bytemuck::cast_slice(&emitted.pool)).ok()?;
        Some(Compiled { pages: CodePages::new(&emitted.code)?, pool, ports: nest.ports, widths: nest.widths })
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn new(_: &Code, _: &[bool], _: &[bool], _: bool) -> Option<Compiled> {
        None
    }

    /// Runs the function on an argument block: elements a row, rows (at least one), the pool, then address and step in
    /// bytes of each port.
    /// # Safety
    /// Each port's memory is valid for the elements and rows that it says; the machine has AVX2 and FMA.
    pub unsafe fn call(&self, args: &mut [u64]) {
        debug_assert!(args.len() == 3 + 2 * self.ports.len());
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: the pages hold the code of a function of this type.
            let f: unsafe extern "sysv64" fn(*mut u64) =
                unsafe { std::mem::transmute::<*const u8, unsafe extern "sysv64" fn(*mut u64)>(self.pages.start()) };
            if let Some(pool) = args.get_mut(2) {
                *pool = self.pool.as_ptr() as u64;
            }
            // SAFETY: the caller's promise.
            unsafe { f(args.as_mut_ptr()) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (args, &self.pool);
    }
}

/// What a function is for: which values are uniform, which results vary along the row, whether they go past the caches.
#[derive(Clone, Copy, PartialEq)]
pub struct Form<'a> {
    /// One element for a whole row, of each step.
    pub uniform: &'a [bool],
    /// `along[i]` says whether result `i` varies along the row.
    pub along: &'a [bool],
    /// With this, results are written around the caches, to memory aligned to 32 bytes.
    pub past_caches: bool,
}

/// A function and what it is for; none where there is none for that.
#[derive(Debug)]
struct Variant {
    uniform: Box<[bool]>,
    along: Box<[bool]>,
    past_caches: bool,
    function: Option<Arc<Compiled>>,
}

impl Variant {
    fn form(&self) -> Form<'_> {
        Form { uniform: &self.uniform, along: &self.along, past_caches: self.past_caches }
    }
}

/// A program's functions, made as they are asked for. Kernels of equal programs share them.
#[derive(Debug, Default)]
pub struct Cache {
    variants: Mutex<Vec<Variant>>,
    /// Points that a kernel has at least for a function to be made.
    least: usize,
}

/// Functions of one program; sizes that call for more run on the tile machine.
const VARIANTS: usize = 16;

impl Cache {
    /// For kernels that run once: a function must be worth being made for so many points.
    pub fn from_points(least: usize) -> Self {
        Cache { variants: Mutex::default(), least }
    }

    /// The function of a program for kernels of so many points.
    pub fn get(&self, code: &Code, form: Form<'_>, points: usize) -> Option<Arc<Compiled>> {
        if points < self.least {
            return None;
        }
        let mut list = self.variants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = list.iter().find(|v| v.form() == form) {
            return found.function.clone();
        }
        if list.len() >= VARIANTS {
            return None;
        }
        let function = Compiled::new(code, form.uniform, form.along, form.past_caches).map(Arc::new);
        list.push(Variant {
            uniform: form.uniform.into(),
            along: form.along.into(),
            past_caches: form.past_caches,
            function: function.clone(),
        });
        function
    }

    /// Number of functions made so far.
    pub fn functions(&self) -> usize {
        let list = self.variants.lock().unwrap_or_else(PoisonError::into_inner);
        list.iter().filter(|v| v.function.is_some()).count()
    }
}
